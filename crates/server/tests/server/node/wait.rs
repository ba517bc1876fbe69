//! Waiting for something to become true, and not a moment longer.

use std::time::Duration;

use store::clock::Stopwatch;

/// Asks again and again until there is an answer; says what was waited for if there is none in time.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> T {
    let begun = Stopwatch::start();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < patience, "waited for {patience:?} in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

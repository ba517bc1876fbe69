//! Waiting for something to become true, and not a moment longer.

use std::time::{Duration, Instant};

/// How long anything may take that is no matter of the test, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks again and again until there is an answer; says what was waited for if there is none in time.
#[expect(clippy::disallowed_methods, reason = "tests of real processes wait in real time")]
pub async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(begun.elapsed() < patience, "waited for {patience:?} in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

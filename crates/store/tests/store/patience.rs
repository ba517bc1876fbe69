//! Patience with engines on a busy machine: whoever says that nobody answered, and to try again, is asked again.

use std::sync::Arc;
use std::time::Duration;

use store::clock::Stopwatch;
use store::machine::{Machine, System};
use store::session::{NodeInfo, Session, SessionDriver, SessionError};
use store::{EngineFault, OpenError, Store};

/// No engine that runs is silent for as long.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often an engine is asked what is wrong with it.
const QUESTIONS_MAX: usize = 10;

fn is_silent(why: &OpenError) -> bool {
    matches!(why, OpenError::Engine { fault: EngineFault::Unreachable, .. })
}

/// The store of an engine that runs.
pub(super) async fn opened<F>(open: impl Fn() -> F) -> Store
where
    F: Future<Output = Result<Store, OpenError>>,
{
    let begun = Stopwatch::start();
    loop {
        match open().await {
            Ok(store) => return store,
            Err(why) if is_silent(&why) && begun.elapsed() < SILENCE_MAX => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(why) => panic!("{why}"),
        }
    }
}

/// Why a store is not opened. That nobody answered is taken for the reason only where it is the one that is expected.
pub(super) async fn refused<F>(expected: EngineFault, open: impl Fn() -> F) -> OpenError
where
    F: Future<Output = Result<Store, OpenError>>,
{
    let mut questions = 1;
    loop {
        let why = open().await.expect_err("it is refused");
        if expected == EngineFault::Unreachable || !is_silent(&why) || questions == QUESTIONS_MAX {
            return why;
        }
        questions += 1;
    }
}

/// A session on this machine. Whoever calls this bounds it.
pub(super) async fn session(store: &Store, node: &NodeInfo) -> (Session, SessionDriver) {
    let machine: Arc<dyn Machine> = Arc::new(System);
    loop {
        match Session::open(store, &machine, node).await {
            Ok(opened) => return opened,
            Err(SessionError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(why) => panic!("{why}"),
        }
    }
}

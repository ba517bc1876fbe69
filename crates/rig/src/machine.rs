//! How much of the machine a test takes, so that many run beside each other and none starves another.
//!
//! Most tests wait: for a session to lapse, for the next second, for an answer that does not come. They take one share
//! of the machine. Those that keep a processor busy take several. Those whose promise is about time, or that starve
//! everybody else on purpose, take all shares; they are in modules called `alone`, so that `--skip ::alone::` leaves
//! them out and `::alone::` selects them. Shares are given in the order in which they are asked for.

use tokio::sync::{Semaphore, SemaphorePermit};

/// All shares of the machine. The number of threads that run tests may be as large.
const SHARES: u32 = 12;

/// Shares of a test that keeps about half a processor busy.
const SHARES_OF_WORK: u32 = 4;

static FREE: Semaphore = Semaphore::const_new(SHARES as usize);

/// Shares of the machine, given back when dropped.
pub type Share = SemaphorePermit<'static>;

/// For a test that mostly waits.
pub async fn waits() -> Share {
    take(1).await
}

/// For a test that loads the machine.
pub async fn works() -> Share {
    take(SHARES_OF_WORK).await
}

/// For a test that measures, or starves the machine: nothing else of this process runs meanwhile.
pub async fn alone() -> Share {
    take(SHARES).await
}

async fn take(shares: u32) -> Share {
    FREE.acquire_many(shares).await.expect("it is never closed")
}

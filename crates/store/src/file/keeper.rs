//! A keeper: a thread that does what commits must not wait for.
//!
//! There are three. One brings closed layers of the index to disk; one merges tables of the index; one
//! puts segments of the log that are no longer needed back into the pool and keeps the next one ready.
//! When the disk is full they try again every second; when they find damage they say so, and the
//! writer takes no more commits.
//!
//! They have the priority of everybody else: one that others are preferred to falls behind on a machine that has too much
//! to do, and then commits wait for it after all, for seconds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::table::IndexError;
use crate::log::is_full;

/// When a keeper in trouble tries again, and how long is long enough to wait for one.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What keeps a keeper from its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeeperTrouble {
    /// There is no room on the disk: it passes when there is.
    Full,
    /// The disk failed, which may pass.
    Disk(String),
    /// Something is damaged, which does not pass.
    Damaged(String),
}

impl From<std::io::Error> for KeeperTrouble {
    fn from(why: std::io::Error) -> Self {
        if is_full(&why) { Self::Full } else { Self::Disk(why.to_string()) }
    }
}

impl From<IndexError> for KeeperTrouble {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Io(why) => why.into(),
            IndexError::Damaged(why) => Self::Damaged(why),
        }
    }
}

/// What comes after a round. Rounds are short: whoever waits for one waits for one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterRound {
    /// There is more to do.
    Again,
    /// Nothing is left, until the next call.
    Rest,
}

/// A handle to the thread. Dropping it lets the thread do one last round, and waits for it.
pub(super) struct BackgroundKeeper {
    calls: Option<SyncSender<()>>,
    state: Arc<KeeperState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct KeeperState {
    last: Mutex<Round>,
    done: Condvar,
}

/// What came of the last round.
#[derive(Default)]
struct Round {
    number: u64,
    trouble: Option<KeeperTrouble>,
}

impl KeeperState {
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackgroundKeeper {
    /// Starts a thread that does rounds whenever it is called, until there is nothing left to do.
    pub(super) fn start(
        name: &str,
        round: impl FnMut() -> Result<AfterRound, KeeperTrouble> + Send + 'static,
    ) -> std::io::Result<Self> {
        // One call waiting is enough: after it everything is done.
        let (calls, called) = sync_channel(1);
        let state = Arc::new(KeeperState::default());
        let thread = thread::Builder::new().name(name.into()).spawn({
            let state = Arc::clone(&state);
            move || run(round, &called, &state)
        })?;
        Ok(Self { calls: Some(calls), state, thread: Some(thread) })
    }

    /// Says that there is something to do.
    pub(super) fn call(&self) {
        let calls = self.calls.as_ref().expect("present until drop");
        match calls.try_send(()) {
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }

    /// What kept the last round from its work, if anything did.
    pub(super) fn trouble(&self) -> Option<KeeperTrouble> {
        self.state.lock().trouble.clone()
    }

    /// Calls for a round, and waits until one has ended, for so long at the most.
    pub(super) fn call_and_wait(&self, most: Duration) {
        let last = self.state.lock();
        let number = last.number;
        self.call();
        let ended = |round: &mut Round| round.number == number;
        let waited = self.state.done.wait_timeout_while(last, most, ended);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for BackgroundKeeper {
    fn drop(&mut self) {
        self.call();
        drop(self.calls.take());
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic in it has been reported by the panic itself.
            let _ = thread.join();
        }
    }
}

fn run(
    mut round: impl FnMut() -> Result<AfterRound, KeeperTrouble>,
    called: &Receiver<()>,
    state: &KeeperState,
) {
    let mut outcome = Ok(AfterRound::Rest);
    loop {
        let call = match &outcome {
            Ok(AfterRound::Again) => Ok(()),
            Ok(AfterRound::Rest) | Err(KeeperTrouble::Damaged(_)) => {
                called.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
            Err(KeeperTrouble::Full | KeeperTrouble::Disk(_)) => called.recv_timeout(RETRY_AFTER),
        };
        if call == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // A keeper that is gone would let the writer wait for ever: what it fell over is told instead.
        outcome = catch_unwind(AssertUnwindSafe(&mut round))
            .unwrap_or_else(|_| Err(KeeperTrouble::Damaged("a keeper fell over".into())));
        let trouble = outcome.as_ref().err().cloned();
        let mut last = state.lock();
        if trouble.is_some() && trouble != last.trouble {
            let thread = thread::current();
            tracing::warn!(?trouble, keeper = thread.name(), "the store is not kept up");
        }
        *last = Round { number: last.number + 1, trouble };
        drop(last);
        state.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_falls_over_is_in_trouble_and_still_answers() {
        let keeper = BackgroundKeeper::start("test", || panic!("on purpose")).unwrap();
        for rounds in 1..=2 {
            // Each call waits for a moment at the most, and its thread may not have run by then.
            while keeper.state.lock().number < rounds {
                keeper.call_and_wait(RETRY_AFTER);
            }
            assert!(matches!(keeper.trouble(), Some(KeeperTrouble::Damaged(_))));
        }
    }

    #[test]
    fn a_keeper_goes_on_until_nothing_is_left_even_when_it_is_dropped() {
        let (done, rounds) = std::sync::mpsc::channel();
        let mut left = 5;
        let keeper = BackgroundKeeper::start("test", move || {
            left -= 1;
            done.send(left).unwrap();
            Ok(if left > 0 { AfterRound::Again } else { AfterRound::Rest })
        });
        drop(keeper.unwrap());
        assert_eq!(rounds.iter().collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn trouble_is_gone_after_a_round_without_it() {
        let mut rounds = 0;
        let keeper = BackgroundKeeper::start("test", move || {
            rounds += 1;
            if rounds == 1 { Err(KeeperTrouble::Full) } else { Ok(AfterRound::Rest) }
        });
        let keeper = keeper.unwrap();
        keeper.call_and_wait(RETRY_AFTER);
        while keeper.trouble().is_some() {
            keeper.call_and_wait(RETRY_AFTER);
        }
    }
}

//! A keeper: a thread that does what commits must not wait for.
//!
//! There are three. One brings closed layers of the index to disk; one merges tables of the index; one
//! puts segments of the log that are no longer needed back on the shelf and keeps the next one ready.
//! When the disk is full they try again every second; when they find damage they say so, and the
//! writer takes no more commits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::table::IndexError;
use crate::log::is_full;

const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How much the operating system should prefer everybody else: commits must not wait for a processor.
const NICENESS: i32 = 10;

/// What keeps a keeper from its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Passes when there is room again.
    Full,
    /// May pass.
    Disk(String),
    /// Does not pass.
    Damaged(String),
}

impl From<std::io::Error> for Trouble {
    fn from(why: std::io::Error) -> Self {
        if is_full(&why) { Self::Full } else { Self::Disk(why.to_string()) }
    }
}

impl From<IndexError> for Trouble {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Io(why) => why.into(),
            IndexError::Damaged(why) => Self::Damaged(why),
        }
    }
}

/// A handle to the thread. Dropping it lets the thread do one last round, and waits for it.
pub(super) struct Keeper {
    calls: Option<SyncSender<()>>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    last: Mutex<Round>,
    done: Condvar,
}

/// What came of the last round.
#[derive(Default)]
struct Round {
    number: u64,
    trouble: Option<Trouble>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Starts a thread that does a `round` of all there is to do whenever it is called.
    pub(super) fn start(
        name: &str,
        round: impl FnMut() -> Result<(), Trouble> + Send + 'static,
    ) -> std::io::Result<Self> {
        // One call waiting is enough: a round does everything.
        let (calls, called) = sync_channel(1);
        let state = Arc::new(State::default());
        let thread = thread::Builder::new().name(name.into()).spawn({
            let state = Arc::clone(&state);
            move || run(round, &called, &state)
        })?;
        Ok(Self { calls: Some(calls), state, thread: Some(thread) })
    }

    /// There is something to do.
    pub(super) fn call(&self) {
        let calls = self.calls.as_ref().expect("present until drop");
        match calls.try_send(()) {
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }

    /// What kept the last round from its work, if anything did.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.state.lock().trouble.clone()
    }

    /// Calls for a round, and waits until one has ended, for a moment at the most.
    pub(super) fn call_and_wait(&self) {
        let last = self.state.lock();
        let number = last.number;
        self.call();
        let ended = |round: &mut Round| round.number == number;
        let waited = self.state.done.wait_timeout_while(last, RETRY_AFTER, ended);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.call();
        drop(self.calls.take());
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic in it has been reported by the panic itself.
            let _ = thread.join();
        }
    }
}

fn run(mut round: impl FnMut() -> Result<(), Trouble>, called: &Receiver<()>, state: &State) {
    // A wish: where it is not granted, commits are only a little later at times.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
    let mut retry = false;
    loop {
        let call = if retry {
            called.recv_timeout(RETRY_AFTER)
        } else {
            called.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        if call == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // A keeper that is gone would let the writer wait for ever: what it fell over is told instead.
        let outcome = catch_unwind(AssertUnwindSafe(&mut round));
        let trouble =
            outcome.unwrap_or_else(|_| Err(Trouble::Damaged("a keeper fell over".into()))).err();
        if let Some(trouble) = &trouble
            && state.lock().trouble.as_ref() != Some(trouble)
        {
            let thread = thread::current();
            tracing::warn!(?trouble, keeper = thread.name(), "the store is not kept up");
        }
        retry = matches!(trouble, Some(Trouble::Full | Trouble::Disk(_)));
        let mut last = state.lock();
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
        let keeper = Keeper::start("test", || panic!("on purpose")).unwrap();
        for _ in 0..2 {
            keeper.call_and_wait();
            assert!(matches!(keeper.trouble(), Some(Trouble::Damaged(_))));
        }
    }

    #[test]
    fn trouble_is_gone_after_a_round_without_it() {
        let mut rounds = 0;
        let keeper = Keeper::start("test", move || {
            rounds += 1;
            if rounds == 1 { Err(Trouble::Full) } else { Ok(()) }
        });
        let keeper = keeper.unwrap();
        keeper.call_and_wait();
        while keeper.trouble().is_some() {
            keeper.call_and_wait();
        }
    }
}

//! Looks at files, each on a thread of its own: a file may lie on a network that does not answer, and then the thread is held
//! for as long as that lasts.
//!
//! So there are so many threads at most. When all of them hang, [`Looks::ready`] says so, and the worker claims nothing until one
//! is free again: each command would only wait, and fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::refusal::{CommandRefusal, Shown};

/// So long is waited for a file system to say what a program is, and for a thread that can wait for it.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Threads that may wait for file systems. The runtime has more, which others need.
const LOOKS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Looks {
    places: Arc<Semaphore>,
    hanging: Arc<Hanging>,
}

/// Looks that nobody waits for any more, and whose threads are held.
#[derive(Debug)]
struct Hanging {
    count: Mutex<usize>,
    ready: watch::Sender<bool>,
}

/// A place among those that look, until the thread is free again.
struct Place {
    _permit: OwnedSemaphorePermit,
    hanging: Arc<Hanging>,
    /// Whether one of the two, who waits and the thread, is done with it. Read and written under the lock of the count.
    is_over: Arc<AtomicBool>,
}

impl Looks {
    pub(super) fn new() -> Self {
        let hanging = Hanging { count: Mutex::new(0), ready: watch::Sender::new(true) };
        Self { places: Arc::new(Semaphore::new(LOOKS_MAX)), hanging: Arc::new(hanging) }
    }

    /// All threads wait, for as long as this lives.
    #[cfg(test)]
    pub(super) fn stuck() -> Self {
        Self { places: Arc::new(Semaphore::new(0)), ..Self::new() }
    }

    /// Whether a file can be looked at.
    pub(super) fn ready(&self) -> watch::Receiver<bool> {
        self.hanging.ready.subscribe()
    }

    /// What a look at this path gives.
    pub(super) async fn at<T: Send + 'static>(
        &self,
        path: &str,
        look: impl FnOnce() -> Result<T, CommandRefusal> + Send + 'static,
    ) -> Result<T, CommandRefusal> {
        // Its own file system is not to blame for those of others.
        let Ok(permit) = timeout(LOOK_MAX, Arc::clone(&self.places).acquire_owned()).await else {
            return Err(CommandRefusal::NoLooks { path: Shown::new(path), unanswered: LOOKS_MAX });
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let place = Place {
            _permit: permit.expect("nobody closes it"),
            hanging: Arc::clone(&self.hanging),
            is_over: Arc::clone(&is_over),
        };
        let looking = tokio::task::spawn_blocking(move || {
            let _place = place;
            look()
        });
        let Ok(looked) = timeout(LOOK_MAX, looking).await else {
            self.hanging.give_up(&is_over);
            let why = format!("its file system has not answered for {LOOK_MAX:?}");
            return Err(CommandRefusal::Unreadable { path: Shown::new(path), why });
        };
        looked.expect("it does not panic")
    }
}

impl Hanging {
    /// Nobody waits for this look any more. What has ended meanwhile hangs no more.
    fn give_up(&self, is_over: &AtomicBool) {
        let mut count = self.count.lock();
        if is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        *count += 1;
        if *count >= LOOKS_MAX && self.ready.send_replace(false) {
            tracing::error!(
                "{LOOKS_MAX} looks at programs hang, as their file systems do not answer: the worker claims nothing more until one \
                 does; see what is mounted"
            );
        }
    }

    /// The thread of this look is free.
    fn end(&self, is_over: &AtomicBool) {
        let mut count = self.count.lock();
        if !is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        *count -= 1;
        if !self.ready.send_replace(true) {
            tracing::info!("a file system answers again, and the worker claims");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hanging.end(&self.is_over);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tokio::task::{JoinSet, yield_now};
    use tokio::time::advance;

    use super::*;

    /// A look at a file system that does not answer before it is told to.
    fn hang() -> (Sender<()>, impl FnOnce() -> Result<(), CommandRefusal> + Send + 'static) {
        let (answer, answered): (_, Receiver<()>) = channel();
        let look = move || {
            let _told = answered.recv();
            Ok(())
        };
        (answer, look)
    }

    /// Virtual time stands still while a thread of the runtime works: it is moved by hand.
    async fn patience_ends() {
        for _ in 0..3 {
            yield_now().await;
        }
        advance(LOOK_MAX).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_system_that_does_not_answer_is_not_waited_for_without_end() {
        let looks = Looks::new();
        let (answer, look) = hang();
        let (looked, ()) = tokio::join!(looks.at("/mnt/true", look), patience_ends());
        let why = looked.unwrap_err();
        assert!(why.may_pass());
        let why = why.to_string();
        assert!(why.contains("/mnt/true") && why.contains("has not answered for 30s"), "{why}");
        drop(answer);
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_threads_hang_nothing_is_claimed_until_one_is_free() {
        let looks = Arc::new(Looks::new());
        let mut ready = looks.ready();
        let (mut answers, mut looking) = (Vec::new(), JoinSet::new());
        for _ in 0..LOOKS_MAX {
            let (answer, look) = hang();
            answers.push(answer);
            let looks = Arc::clone(&looks);
            looking.spawn(async move { looks.at("/mnt/true", look).await });
        }
        patience_ends().await;
        assert!(looking.join_all().await.iter().all(Result::is_err));
        assert!(!*ready.borrow_and_update());
        let (none, ()) = tokio::join!(looks.at("/bin/true", || Ok(())), patience_ends());
        let why = none.unwrap_err().to_string();
        assert!(why.contains("/bin/true") && why.contains("64 others wait"), "{why}");
        answers.pop();
        ready.changed().await.unwrap();
        assert!(*ready.borrow());
        looks.at("/bin/true", || Ok(())).await.unwrap();
        drop(answers);
    }
}

//! Batching: commits that wait at the same time share a call, on engines that take several in one.
//!
//! There are as many lanes as calls may be under way at once. While all lanes are busy, commits wait; when one is free,
//! the next call takes all of them that may share it. Which ones may, each engine says for itself: see [`BatchRule`]. The
//! commits of a call do not depend on each other: each happens or conflicts on its own. Only if the answer is lost, it is
//! lost for all of them.
//!
//! Whoever sends a commit waits for as long as an answer may take. A commit that has not left by then never does, so it is
//! known that nothing was done. If it has left, its outcome is unknown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::limits::STORE_ANSWER_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::{Commit, CommitError, Version};

/// Commits that may wait for a lane; senders of further ones wait for a place.
const WAITING_MAX: usize = 1_024;

/// Bytes from which on nothing is added to a batch.
pub(crate) const BATCH_BYTES: usize = 256 * 1024;

type CommitResult = Result<Version, CommitError>;

/// Which commits may share a call, by what is in the batch so far.
pub(crate) trait BatchRule: Default + 'static {
    /// Whether this commit may join those that were added.
    fn admits(&self, commit: &Commit) -> bool;

    /// Adds a commit to the batch.
    fn add(&mut self, commit: &Commit);
}

/// A commit that waits for a call, or is in one.
pub(crate) struct WaitingCommit {
    pub(crate) commit: Commit,
    reply: oneshot::Sender<CommitResult>,
    /// Set once, by whoever comes first: the one who sends it, or the one who waits no longer.
    is_settled: Arc<AtomicBool>,
}

impl WaitingCommit {
    pub(crate) fn answer(self, outcome: CommitResult) {
        // Whoever asked may have stopped waiting.
        let _ = self.reply.send(outcome);
    }

    /// Marks the commit as sent; false if it must not be sent, because nobody waits for it any longer.
    fn leave(&self) -> bool {
        !self.reply.is_closed() && !self.is_settled.swap(true, Ordering::SeqCst)
    }
}

/// One of the calls that may be under way at once; free again when dropped.
pub(crate) struct CallPermit(#[expect(dead_code, reason = "held, not used")] OwnedSemaphorePermit);

/// Takes commits, and sends them in batches.
pub(crate) struct Batcher {
    waiting_commits: mpsc::Sender<WaitingCommit>,
    lanes: Arc<Semaphore>,
}

impl Batcher {
    /// Gives batches to `carry` for as long as the set of tasks lives.
    pub(crate) fn open<B: BatchRule, F: Future<Output = ()> + Send + 'static>(
        lanes: usize,
        tasks: &mut JoinSet<()>,
        carry: impl Fn(Vec<WaitingCommit>) -> F + Send + 'static,
    ) -> Self {
        let (waiting_commits, receiver) = mpsc::channel(WAITING_MAX);
        let lanes = Arc::new(Semaphore::new(lanes));
        tasks.spawn(send::<B, _>(Arc::clone(&lanes), receiver, carry));
        Self { waiting_commits, lanes }
    }

    /// A lane, if one is free and nobody waits for it: its owner may send a commit without a batch.
    pub(crate) fn lane(&self) -> Option<CallPermit> {
        Arc::clone(&self.lanes).try_acquire_owned().ok().map(CallPermit)
    }

    pub(crate) async fn commit(&self, commit: Commit) -> CommitResult {
        let is_settled = Arc::new(AtomicBool::new(false));
        let (reply, answer) = oneshot::channel();
        let waiting_commit = WaitingCommit { commit, reply, is_settled: Arc::clone(&is_settled) };
        let handed_in = async {
            self.waiting_commits.send(waiting_commit).await.map_err(|_| ())?;
            answer.await.map_err(|_| ())
        };
        match timeout(STORE_ANSWER_MAX, handed_in).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(())) | Err(_) if !is_settled.swap(true, Ordering::SeqCst) => {
                Err(CommitError::Unavailable("it could not be sent in time".to_owned()))
            }
            Ok(Err(())) | Err(_) => Err(CommitError::Unknown("no answer came in time".to_owned())),
        }
    }
}

async fn send<B: BatchRule, F: Future<Output = ()> + Send + 'static>(
    lanes: Arc<Semaphore>,
    mut receiver: mpsc::Receiver<WaitingCommit>,
    carry: impl Fn(Vec<WaitingCommit>) -> F,
) {
    let mut waiting = VecDeque::new();
    let mut under_way = JoinSet::new();
    loop {
        if waiting.is_empty() {
            // Nobody can hand in any more: what is under way comes to its end.
            let Some(waiting_commit) = receiver.recv().await else { break };
            waiting.push_back(waiting_commit);
        }
        let lane = Arc::clone(&lanes).acquire_owned().await.expect("lanes are never closed");
        while waiting.len() < WAITING_MAX
            && let Ok(waiting_commit) = receiver.try_recv()
        {
            waiting.push_back(waiting_commit);
        }
        let batch = pick::<B>(&mut waiting);
        if !batch.is_empty() {
            let carried = carry(batch);
            under_way.spawn(async move {
                carried.await;
                drop(lane);
            });
        }
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

/// Takes out the first commit and all that can travel with it. Those that stay are not asked for their order: they are all
/// under way, and none is acknowledged.
fn pick<B: BatchRule>(waiting: &mut VecDeque<WaitingCommit>) -> Vec<WaitingCommit> {
    let mut batch = Vec::new();
    let mut load = B::default();
    let mut bytes = 0;
    for _ in 0..waiting.len() {
        let Some(waiting_commit) = waiting.pop_front() else { break };
        if batch.is_empty() || (bytes < BATCH_BYTES && load.admits(&waiting_commit.commit)) {
            if !waiting_commit.leave() {
                continue;
            }
            bytes += waiting_commit.commit.len();
            load.add(&waiting_commit.commit);
            batch.push(waiting_commit);
        } else {
            waiting.push_back(waiting_commit);
        }
    }
    batch
}

/// The names of the keys that each batch writes, in the order in which they leave.
#[cfg(test)]
pub(crate) fn batches<B: BatchRule>(commits: Vec<Commit>) -> Vec<Vec<String>> {
    let waiting_commit = |commit| {
        let (reply, answer) = oneshot::channel();
        (WaitingCommit { commit, reply, is_settled: Arc::default() }, answer)
    };
    let (mut waiting, _answers): (VecDeque<_>, Vec<_>) =
        commits.into_iter().map(waiting_commit).unzip();
    let mut batches = Vec::new();
    while !waiting.is_empty() {
        let writes = pick::<B>(&mut waiting)
            .into_iter()
            .flat_map(|waiting_commit| waiting_commit.commit.then);
        batches.push(writes.map(|write| write.key().to_string()).collect());
    }
    batches
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;

    use tokio::sync::Notify;

    use super::*;
    use crate::Key;

    /// Takes whatever comes.
    #[derive(Default)]
    struct Any;

    impl BatchRule for Any {
        fn admits(&self, _: &Commit) -> bool {
            true
        }

        fn add(&mut self, _: &Commit) {}
    }

    fn put(name: &str) -> Commit {
        Commit::new().put(Key::new(name).unwrap(), "")
    }

    /// A batcher with one lane, on which every batch waits until it may go on.
    struct OneLane {
        batcher: Batcher,
        left: Arc<Mutex<Vec<String>>>,
        go_on: Arc<Notify>,
        _tasks: JoinSet<()>,
    }

    impl OneLane {
        fn open() -> Self {
            let (left, go_on) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Notify::new()));
            let mut tasks = JoinSet::new();
            let (seen, gate) = (Arc::clone(&left), Arc::clone(&go_on));
            let batcher =
                Batcher::open::<Any, _>(1, &mut tasks, move |batch: Vec<WaitingCommit>| {
                    let keys = batch
                        .iter()
                        .map(|waiting_commit| waiting_commit.commit.then[0].key().to_string());
                    seen.lock().unwrap().push(keys.collect());
                    let gate = Arc::clone(&gate);
                    async move {
                        gate.notified().await;
                        for waiting_commit in batch {
                            waiting_commit.answer(Ok(Version(1)));
                        }
                    }
                });
            Self { batcher, left, go_on, _tasks: tasks }
        }

        /// Lets everybody go as far as they can: there is one thread, and time stands still.
        async fn settle() {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        /// Somebody who hands in a commit, and now waits.
        async fn hand_in(&self, name: &str) -> Pin<Box<dyn Future<Output = CommitResult> + '_>> {
            let mut caller = Box::pin(self.batcher.commit(put(name)));
            tokio::select! {
                biased;
                outcome = &mut caller => panic!("{name} was answered at once: {outcome:?}"),
                () = Self::settle() => caller,
            }
        }

        fn left(&self) -> Vec<String> {
            self.left.lock().unwrap().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_commit_leaves_at_once_and_those_behind_it_leave_together() {
        let post = OneLane::open();
        let a = post.hand_in("a").await;
        assert_eq!(post.left(), ["a"]);
        assert!(post.batcher.lane().is_none(), "it is under way");
        let (b, c) = (post.hand_in("b").await, post.hand_in("c").await);
        assert_eq!(post.left(), ["a"]);
        post.go_on.notify_one();
        assert_eq!(a.await, Ok(Version(1)));
        OneLane::settle().await;
        assert_eq!(post.left(), ["a", "bc"]);
        post.go_on.notify_one();
        assert_eq!((b.await, c.await), (Ok(Version(1)), Ok(Version(1))));
        OneLane::settle().await;
        assert!(post.batcher.lane().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_any_longer_does_not_leave() {
        let post = OneLane::open();
        let a = post.hand_in("a").await;
        let (late, dropped) = (post.hand_in("late").await, post.hand_in("dropped").await);
        drop(dropped);
        assert!(matches!(a.await, Err(CommitError::Unknown(_))), "it had left");
        assert!(matches!(late.await, Err(CommitError::Unavailable(_))), "it had not");
        let c = post.hand_in("c").await;
        post.go_on.notify_one();
        OneLane::settle().await;
        post.go_on.notify_one();
        assert_eq!(c.await, Ok(Version(1)));
        assert_eq!(post.left(), ["a", "c"]);
    }

    #[test]
    fn a_batch_has_so_many_bytes_and_one_commit_more() {
        let large = |name: &str| Commit::new().put(Key::new(name).unwrap(), vec![0; BATCH_BYTES]);
        let less = |name: &str| {
            Commit::new().put(Key::new(name).unwrap(), vec![0; BATCH_BYTES - 1 - name.len()])
        };
        assert_eq!(batches::<Any>(vec![large("a"), put("b")]), [["a"], ["b"]]);
        assert_eq!(
            batches::<Any>(vec![less("a"), large("b"), put("c")]),
            [vec!["a", "b"], vec!["c"]]
        );
    }
}

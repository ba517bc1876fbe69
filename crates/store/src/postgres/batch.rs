//! Commits that wait at the same time travel together, if they have nothing to do with each other.
//!
//! A lone commit leaves at once. While all connections are busy others gather, and whatever of them touches no key of
//! another goes to the server in one call, which makes them durable with one sync. None of them depends on another: each
//! happens or conflicts on its own. Only their luck is shared: if the answer is lost, it is lost for all.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::limits::STORE_ANSWER_MAX;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Shared;
use super::request::LOCKS_MAX;
use crate::{Commit, CommitError, Key, Version, Write};

/// Commits that may wait to leave; those beyond wait to wait.
const WAITING_MAX: usize = 1_024;

/// Bytes from which on nothing is added to a batch.
const BATCH_BYTES: usize = 256 * 1024;

type Outcome = Result<Version, CommitError>;

/// A commit on its way.
pub(super) struct Parcel {
    pub(super) commit: Commit,
    reply: oneshot::Sender<Outcome>,
    /// Set once, by whoever comes first: the one who sends it, or the one who waits no longer.
    is_settled: Arc<AtomicBool>,
}

impl Parcel {
    pub(super) fn answer(self, outcome: Outcome) {
        // Whoever asked may have stopped waiting.
        let _ = self.reply.send(outcome);
    }
}

/// Where commits are handed in.
pub(super) struct Counter(mpsc::Sender<Parcel>);

impl Counter {
    /// Takes commits, and sends them for as long as the set lives.
    pub(super) fn open(shared: &Arc<Shared>, lanes: usize, tasks: &mut JoinSet<()>) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tasks.spawn(send(Arc::clone(shared), lanes, receiver));
        Self(sender)
    }

    pub(super) async fn commit(&self, commit: Commit) -> Outcome {
        let is_settled = Arc::new(AtomicBool::new(false));
        let (reply, answer) = oneshot::channel();
        let parcel = Parcel { commit, reply, is_settled: Arc::clone(&is_settled) };
        let handed_in = async {
            self.0.send(parcel).await.map_err(|_| ())?;
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

async fn send(shared: Arc<Shared>, lanes: usize, mut receiver: mpsc::Receiver<Parcel>) {
    let mut waiting = VecDeque::new();
    let mut busy = JoinSet::new();
    loop {
        if !waiting.is_empty() && busy.len() < lanes {
            let batch = pick(&mut waiting);
            let shared = Arc::clone(&shared);
            busy.spawn(async move { shared.send(batch).await });
        }
        while waiting.len() < WAITING_MAX
            && let Ok(parcel) = receiver.try_recv()
        {
            waiting.push_back(parcel);
        }
        if !waiting.is_empty() && busy.len() < lanes {
            continue;
        }
        tokio::select! {
            parcel = receiver.recv(), if waiting.len() < WAITING_MAX => match parcel {
                Some(parcel) => waiting.push_back(parcel),
                // Nobody can hand in any more.
                None if waiting.is_empty() && busy.is_empty() => return,
                None => drop(busy.join_next().await),
            },
            Some(_) = busy.join_next() => {}
        }
    }
}

/// Takes out the first commit and all that can travel with it. Those that stay are not asked for their order: they are all
/// under way, and none is acknowledged.
fn pick(waiting: &mut VecDeque<Parcel>) -> Vec<Parcel> {
    let mut batch = Vec::new();
    let mut keys = Keys::default();
    let mut bytes = 0;
    for _ in 0..waiting.len() {
        let Some(parcel) = waiting.pop_front() else { break };
        if batch.is_empty() || (bytes < BATCH_BYTES && keys.admits(&parcel.commit)) {
            if parcel.is_settled.swap(true, Ordering::SeqCst) {
                continue;
            }
            bytes += parcel.commit.len();
            keys.add(&parcel.commit);
            batch.push(parcel);
        } else {
            waiting.push_back(parcel);
        }
    }
    batch
}

/// The keys of a batch, and whether each is written.
#[derive(Default)]
struct Keys(HashMap<Key, bool>);

impl Keys {
    /// What one writes no other looks at or writes.
    fn admits(&self, commit: &Commit) -> bool {
        let conditions = commit.when.len();
        self.0.len() + conditions + commit.then.len() <= LOCKS_MAX
            && commit.when.iter().all(|condition| self.0.get(condition.key()) != Some(&true))
            && commit.then.iter().all(|write| !self.0.contains_key(write.key()))
    }

    fn add(&mut self, commit: &Commit) {
        for condition in &commit.when {
            self.0.entry(condition.key().clone()).or_insert(false);
        }
        for key in commit.then.iter().map(Write::key) {
            self.0.insert(key.clone(), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn parcel(commit: Commit) -> Parcel {
        Parcel { commit, reply: oneshot::channel().0, is_settled: Arc::default() }
    }

    /// The names of the keys that each batch writes, in the order in which they leave.
    fn batches(commits: Vec<Commit>) -> Vec<String> {
        let mut waiting: VecDeque<_> = commits.into_iter().map(parcel).collect();
        let mut batches = Vec::new();
        while !waiting.is_empty() {
            let writes = pick(&mut waiting).into_iter().flat_map(|parcel| parcel.commit.then);
            batches.push(writes.map(|write| write.key().to_string()).collect());
        }
        batches
    }

    #[test]
    fn what_touches_the_same_key_does_not_travel_together() {
        let put = |name: &str| Commit::new().put(key(name), "");
        let sees = |seen: &str, name: &str| put(name).when(Condition::Present(key(seen)));
        assert_eq!(batches(vec![put("a"), put("b"), put("a"), put("c")]), ["abc", "a"]);
        assert_eq!(
            batches(vec![put("a"), sees("a", "b")]),
            ["a", "b"],
            "one looks at what another writes"
        );
        assert_eq!(batches(vec![sees("a", "b"), put("a")]), ["b", "a"], "and the other way round");
        assert_eq!(batches(vec![sees("s", "b"), sees("s", "c")]), ["bc"], "both only look");
    }

    #[test]
    fn a_batch_has_an_end() {
        let put = |number: usize| Commit::new().put(key(&format!("k{number}")), "");
        let mut waiting: VecDeque<_> = (0..=LOCKS_MAX).map(put).map(parcel).collect();
        assert_eq!(pick(&mut waiting).len(), LOCKS_MAX);
        let large = |name: &str| Commit::new().put(key(name), vec![0; BATCH_BYTES]);
        assert_eq!(batches(vec![large("a"), large("b")]), ["a", "b"]);
    }

    #[test]
    fn what_nobody_waits_for_does_not_leave() {
        let withdrawn = parcel(Commit::new().put(key("a"), ""));
        withdrawn.is_settled.store(true, Ordering::SeqCst);
        let mut waiting = VecDeque::from([withdrawn, parcel(Commit::new().put(key("b"), ""))]);
        assert_eq!(pick(&mut waiting).len(), 1);
    }
}

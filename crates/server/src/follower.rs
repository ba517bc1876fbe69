//! Followers: those who are told what runs print, while they print it.
//!
//! The core hands each chunk that a shard took to those who follow its run. A follower has room for a few of them; what
//! comes while that is full is left out for this one, who sees by the offsets that something is missing. So nobody who
//! follows slows anybody down. When a run has ended, its followers are let go, and look what became of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::id::{RunId, ShardId};
use engine::limits::FOLLOWER_CHUNKS_MAX;
use engine::past::Line;
use engine::queue::given::RunToken;
use engine::queue::output::OutputPiece;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// What an attempt of a run printed, in one request of its worker.
#[derive(Debug, Clone)]
pub struct NewOutput {
    /// Attempt number, from 1.
    pub attempt: u32,
    /// The token of the attempt.
    pub token: RunToken,
    /// What it printed.
    pub pieces: Arc<[OutputPiece]>,
}

/// All who follow runs at this server.
#[derive(Debug, Default)]
pub struct OutputFollowers {
    runs: Mutex<HashMap<RunId, Vec<Follower>>>,
    last: AtomicU64,
}

#[derive(Debug)]
struct Follower {
    number: u64,
    chunks: mpsc::Sender<NewOutput>,
}

/// Somebody who follows a run, until it is dropped.
pub(crate) struct Following {
    followers: Arc<OutputFollowers>,
    run: RunId,
    number: u64,
    chunks: mpsc::Receiver<NewOutput>,
}

impl OutputFollowers {
    /// Follows a run from now on.
    pub(crate) fn follow(self: &Arc<Self>, run: RunId) -> Following {
        let (into, chunks) = mpsc::channel(FOLLOWER_CHUNKS_MAX);
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let follower = Follower { number, chunks: into };
        self.runs.lock().entry(run).or_default().push(follower);
        Following { followers: Arc::clone(self), run, number, chunks }
    }

    /// Hands on what a run printed.
    pub(crate) fn tell(&self, run: RunId, new: &NewOutput) {
        if let Some(followers) = self.runs.lock().get(&run) {
            for follower in followers {
                // One that has no room sees later that this is missing.
                let _ = follower.chunks.try_send(new.clone());
            }
        }
    }

    /// Lets those go who follow a run that has ended. Others of the same trigger and slot may be among them: they look again.
    pub(crate) fn let_go(&self, shard: ShardId, ended: &[Line]) {
        let mut runs = self.runs.lock();
        if runs.is_empty() {
            return;
        }
        let is_followed = |run: &RunId, line: &Line| match line {
            Line::Run(ended) => (run.trigger, run.slot) == (ended.trigger, ended.slot),
            Line::Skip(_) => false,
        };
        runs.retain(|run, _| {
            run.shard != shard || !ended.iter().any(|line| is_followed(run, line))
        });
    }
}

impl Following {
    /// The next chunks; nothing, if the run has ended.
    pub(crate) async fn next(&mut self) -> Option<NewOutput> {
        self.chunks.recv().await
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut runs = self.followers.runs.lock();
        if let Some(followers) = runs.get_mut(&self.run) {
            followers.retain(|follower| follower.number != self.number);
            if followers.is_empty() {
                runs.remove(&self.run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::id::{ProjectId, SerialId};
    use engine::instant::Instant;
    use engine::past::{End, Finished};

    use super::*;

    fn new(attempt: u32) -> NewOutput {
        NewOutput { attempt, token: RunToken(1), pieces: Arc::default() }
    }

    fn ended() -> Line {
        Line::Run(Finished {
            project: ProjectId::DEFAULT,
            trigger: SerialId(1),
            slot: Instant(2),
            generation: None,
            sequence: Some(1),
            notice: None,
            queue: None,
            end: End::Succeeded,
            at: Instant(3),
            attempt: 1,
            attempts: Vec::new(),
        })
    }

    #[tokio::test]
    async fn one_who_is_slow_misses_chunks_and_one_who_reads_has_them_all() {
        let followers = Arc::new(OutputFollowers::default());
        let run = RunId { shard: ShardId(0), trigger: SerialId(1), slot: Instant(2), letters: 3 };
        let (mut quick, mut slow) = (followers.follow(run), followers.follow(run));
        let most = u32::try_from(FOLLOWER_CHUNKS_MAX).unwrap();
        for number in 0..=most {
            followers.tell(run, &new(number));
            assert_eq!(quick.next().await.unwrap().attempt, number);
        }
        followers.let_go(ShardId(1), &[ended()]);
        followers.let_go(ShardId(0), &[ended()]);
        let mut seen = 0;
        while slow.next().await.is_some() {
            seen += 1;
        }
        assert_eq!(seen, most, "one is missing, and the end is seen");
        assert!(quick.next().await.is_none());
        drop((quick, slow));
        assert!(followers.runs.lock().is_empty());
    }
}

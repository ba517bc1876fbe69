//! The writer: the one thread that decides and writes commits.
//!
//! It takes whatever waits, judges each commit against the index and the commits before it in the
//! same group, writes the group to the log, syncs once, lets the index take it in, and only then
//! answers anybody, those with a conflict too: their answer tells of commits that must be durable
//! first.
//!
//! When the keeper of the index falls behind, commits become slower long before they have to stop: what comes late can be
//! planned with, and a session whose renewal waits for seconds is lost.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::batch;
use super::index::Index;
use super::keeper::{BackgroundKeeper, KeeperTrouble, RETRY_AFTER};
use super::table::IndexError;
use crate::log::{AppendError, Log};
use crate::{Commit, CommitError, Key, Refusal, Version, Watchers, Write};

/// Most commits in a group: bounds how long the first one waits for the last.
const GROUP_COMMITS_MAX: usize = 1_024;

/// Layers in memory that may wait for the keeper before commits do.
const CLOSED_LAYERS_MAX: usize = 8;

/// Layers that may wait for it before commits become slower.
const CLOSED_LAYERS_EASY: usize = 2;

/// The longest that a group is held back. It gets smaller instead, so that what is small comes through soon.
const GROUP_PAUSE_MAX: Duration = Duration::from_millis(200);

/// So many bytes always fit in a group.
const GROUP_BYTES_MIN: u64 = 64 * 1024;

/// A commit on its way, encoded by the task that sent it.
pub(super) struct CommitRequest {
    commit: Commit,
    payload: Vec<u8>,
    reply: oneshot::Sender<CommitReply>,
    /// Its share of the memory for commits on their way, given back with it.
    _room: OwnedSemaphorePermit,
}

type CommitReply = Result<Version, CommitError>;

impl CommitRequest {
    pub(super) fn new(
        commit: Commit,
        room: OwnedSemaphorePermit,
    ) -> (Self, oneshot::Receiver<CommitReply>) {
        let (reply, answer) = oneshot::channel();
        let payload = batch::encode(&commit.then);
        (Self { commit, payload, reply, _room: room }, answer)
    }
}

pub(super) struct GroupWriter {
    pub(super) place: PathBuf,
    pub(super) log: Log,
    pub(super) index: Arc<Index>,
    pub(super) index_keeper: BackgroundKeeper,
    pub(super) log_keeper: BackgroundKeeper,
    pub(super) watchers: Arc<Watchers>,
    /// When a layer in memory is large enough to go to disk.
    pub(super) layer_bytes: u64,
    /// Set by the first failure of the disk, for good.
    pub(super) poison: Option<String>,
}

/// The commits of a group that go ahead, and the replies that wait for the sync.
#[derive(Default)]
struct Group {
    accepted: Vec<(CommitRequest, Version)>,
    declined: Vec<(CommitRequest, CommitError)>,
    /// What the accepted ones leave behind at each key that they write.
    overlay: HashMap<Key, Option<Version>>,
}

impl GroupWriter {
    /// Works until nobody can send any more, then leaves everything tidy.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<CommitRequest>) {
        let mut waiting = Vec::new();
        while let Some(request) = requests.blocking_recv() {
            let group_bytes_max = self.group_bytes_max();
            let mut bytes = Log::record_bytes(request.payload.len());
            waiting.push(request);
            while waiting.len() < GROUP_COMMITS_MAX
                && bytes < group_bytes_max
                && let Ok(request) = requests.try_recv()
            {
                bytes += Log::record_bytes(request.payload.len());
                waiting.push(request);
            }
            self.hold_back(bytes);
            self.serve(&mut waiting);
        }
        self.finish();
    }

    /// A group must fit in a segment: `limits()` lets a commit have a quarter of one at the most. While the keeper is behind
    /// it has no more than it may be held back for.
    fn group_bytes_max(&self) -> u64 {
        let most = self.log.pool().segment_bytes() / 2;
        let Some(layer_time) = layer_time(self.index.closed_layers()) else { return most };
        let share = self.layer_bytes.saturating_mul(millis(GROUP_PAUSE_MAX)) / millis(layer_time);
        share.max(GROUP_BYTES_MIN).min(most)
    }

    /// Waits before a group of so many bytes, as long as the keeper is behind and brings no layer to disk meanwhile.
    fn hold_back(&self, bytes: u64) {
        if let Some(layer_time) = layer_time(self.index.closed_layers()) {
            let pause = bytes.saturating_mul(millis(layer_time)) / self.layer_bytes.max(1);
            self.index_keeper.call_and_wait(Duration::from_millis(pause).min(GROUP_PAUSE_MAX));
        }
    }

    fn serve(&mut self, waiting: &mut Vec<CommitRequest>) {
        if let Err(why) = self.ready() {
            for request in waiting.drain(..) {
                answer(request, Err(why.clone()));
            }
            return;
        }
        let group = self.judge(waiting);
        let written = self.write(&group);
        for (request, version) in group.accepted {
            answer(request, written.clone().map(|()| version));
        }
        for (request, why) in group.declined {
            let reply = if written.is_ok() { why } else { retry_later() };
            answer(request, Err(reply));
        }
        if self.index.open_bytes() >= self.layer_bytes {
            self.index.close_layer();
            self.index_keeper.call();
        }
    }

    /// Whether commits can be taken at all; waits while the keeper is behind.
    fn ready(&self) -> Result<(), CommitError> {
        loop {
            if let Some(poison) = &self.poison {
                return Err(CommitError::Unavailable(poison.clone()));
            }
            let behind = self.index.closed_layers() >= CLOSED_LAYERS_MAX;
            match self.index_keeper.trouble() {
                Some(KeeperTrouble::Damaged(why)) => return Err(CommitError::Corrupt(why)),
                Some(KeeperTrouble::Full) if behind => return Err(self.full().into()),
                Some(KeeperTrouble::Disk(why)) if behind => {
                    return Err(CommitError::Unavailable(why));
                }
                None | Some(KeeperTrouble::Full | KeeperTrouble::Disk(_)) => {}
            }
            if !behind {
                return Ok(());
            }
            self.index_keeper.call_and_wait(RETRY_AFTER);
        }
    }

    fn judge(&self, waiting: &mut Vec<CommitRequest>) -> Group {
        let mut group = Group::default();
        let mut next = self.log.next();
        let mut left = waiting.len();
        for request in waiting.drain(..) {
            left -= 1;
            let verdict = request.commit.judge(|key| match group.overlay.get(key) {
                Some(version) => Ok(*version),
                None => self.index.version(key).map_err(commit_error),
            });
            if let Err(why) = verdict {
                group.declined.push((request, why));
                continue;
            }
            let version = Version(next);
            next += 1;
            // Nobody looks at what the last one leaves behind.
            let seen = if left > 0 { request.commit.then.as_slice() } else { &[] };
            for write in seen {
                let found = matches!(write, Write::Put(..)).then_some(version);
                group.overlay.insert(write.key().clone(), found);
            }
            group.accepted.push((request, version));
        }
        group
    }

    /// Makes the group durable, then visible, then heard of.
    fn write(&mut self, group: &Group) -> Result<(), CommitError> {
        if group.accepted.is_empty() {
            return Ok(());
        }
        let segment = self.log.ordinal();
        let payloads = group.accepted.iter().map(|(request, _)| request.payload.as_slice());
        match self.log.append(payloads) {
            Ok(()) => {}
            Err(AppendError::Full) => {
                self.log_keeper.call();
                return Err(self.full().into());
            }
            Err(AppendError::NoSegment(why)) => {
                return Err(CommitError::Unavailable(format!("the log cannot go on now: {why}")));
            }
            Err(AppendError::Failed(why)) => return Err(self.fail(&why)),
        }
        if self.log.ordinal() != segment {
            self.log_keeper.call();
        }
        let commits = group
            .accepted
            .iter()
            .map(|(request, version)| (*version, request.commit.then.as_slice()));
        self.index.apply(commits);
        let writes = group.accepted.iter().flat_map(|(request, _)| &request.commit.then);
        self.watchers.notify(&writes.map(Write::key));
        Ok(())
    }

    fn full(&self) -> Refusal {
        Refusal::Full { place: self.place.display().to_string() }
    }

    /// The disk failed under a group: nobody knows what became of it, and nothing may follow it.
    fn fail(&mut self, why: &std::io::Error) -> CommitError {
        tracing::error!(%why, place = %self.place.display(), "the log cannot be written, no more commits are taken");
        self.poison = Some(format!(
            "writing to {} failed ({why}), and what it holds since is uncertain: check the disk, then start again",
            self.place.display()
        ));
        CommitError::Unknown(format!("writing to {} failed: {why}", self.place.display()))
    }

    /// A clean stop: the index holds everything, and the last seal is durable. What fails here is
    /// made good from the log at the next start.
    fn finish(self) {
        self.index.close_layer();
        drop(self.index_keeper);
        drop(self.log_keeper);
        if let Err(why) = self.log.close() {
            tracing::warn!(%why, "the log was not closed cleanly");
        }
    }
}

/// How long it shall take at least until the next layer is full, when so many wait: twice as long with each of them.
fn layer_time(closed: usize) -> Option<Duration> {
    let behind = u32::try_from(closed.checked_sub(CLOSED_LAYERS_EASY)?).ok()?;
    Some(Duration::from_millis(500) * 2_u32.saturating_pow(behind))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A conflict that was judged against commits which then failed is none: nothing is decided.
fn retry_later() -> CommitError {
    CommitError::Unavailable("the commits before it were not written: try again".into())
}

fn answer(request: CommitRequest, reply: CommitReply) {
    // Whoever no longer listens has given up waiting, and treats the outcome as unknown.
    let _ = request.reply.send(reply);
}

fn commit_error(error: IndexError) -> CommitError {
    match error {
        IndexError::Io(why) => CommitError::Unavailable(why.to_string()),
        IndexError::Damaged(why) => CommitError::Corrupt(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_slow_down_before_they_stop() {
        assert_eq!(layer_time(CLOSED_LAYERS_EASY - 1), None);
        let times: Vec<_> =
            (CLOSED_LAYERS_EASY..CLOSED_LAYERS_MAX).filter_map(layer_time).collect();
        let seconds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0].map(Duration::from_secs_f64);
        assert_eq!(times, seconds, "half a minute goes by before nothing goes on");
    }
}

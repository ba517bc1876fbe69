//! Reports: what a node that had a shard tells the one that has it now, through the store.
//!
//! When a shard changes hands, attempts of it may be under way. They belong to the node that made them, not to the
//! shard: it goes on listening, and when one has ended it writes what came of it below the shard, on the condition that
//! its own session is there. The new owner looks for such reports for as long as it waits for any, and takes them out
//! in the commit that records what they say. So no server has to reach another for it, a report is as durable as
//! everything else, and whoever sees that a sender is gone, and reads after that, has seen all that it ever wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::id::ShardId;
use engine::record::{decode, encode};
use engine::shard::record::{FORMAT, ReportRecord, reports};
use store::session::Session;
use store::{Commit, CommitError, Condition, Key, ScanError};
use tokio::sync::{mpsc, watch};

use super::component::{Component, StopOrder};
use super::handover::ShardEvent;
use super::shard_reader;

/// The senders whose reports the shards of this node wait for.
pub(super) type Awaited = BTreeMap<ShardId, BTreeSet<Box<str>>>;

/// A report, and where it goes.
pub(super) type KeyedReport = (String, ReportRecord);

/// How often the collector looks for reports.
const LOOK: Duration = Duration::from_millis(100);

/// How long to wait before what could not be written is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Writes the reports of this node, until there is nobody left who gives any.
pub(super) struct Poster {
    session: Session,
    posts: mpsc::UnboundedReceiver<KeyedReport>,
}

impl Poster {
    /// A poster that writes under this session, and how it is given reports.
    pub(super) fn new(session: &Session) -> (Self, mpsc::UnboundedSender<KeyedReport>) {
        let (posts_in, posts) = mpsc::unbounded_channel();
        (Self { session: session.clone(), posts }, posts_in)
    }
}

impl Component for Poster {
    const NAME: &'static str = "the poster of reports";
    const STOP_ORDER: StopOrder = StopOrder::AfterFirst;

    async fn run(mut self) {
        let limits = self.session.store().limits();
        let mut some = Vec::new();
        while self.posts.recv_many(&mut some, limits.writes).await > 0 {
            let mut rest = some.drain(..).map(|(key, report)| {
                let key = Key::new(key).expect("our keys are short and printable");
                (key, encode(FORMAT, &report))
            });
            let mut next = rest.next();
            while let Some((key, value)) = next.take() {
                let present = Condition::Present(self.session.key().key().clone());
                let mut bytes = key.as_str().len() + value.len();
                let mut commit = Commit::new().when(present).put(key, value);
                for (key, value) in rest.by_ref() {
                    bytes += key.as_str().len() + value.len();
                    if bytes > limits.commit_bytes / 2 {
                        next = Some((key, value));
                        break;
                    }
                    commit = commit.put(key, value);
                }
                if !send(&self.session, commit).await {
                    return;
                }
            }
        }
    }
}

/// Sends a commit until it is done. False, if the session is gone: then nobody waits for its reports.
async fn send(session: &Session, commit: Commit) -> bool {
    loop {
        match session.store().commit(commit.clone()).await {
            Ok(_) => return true,
            Err(CommitError::Conflict(_)) => return false,
            // The commit may have been done: writing it again changes nothing.
            Err(
                why @ (CommitError::Unavailable(_)
                | CommitError::Unknown(_)
                | CommitError::Refused(_)
                | CommitError::Corrupt(_)),
            ) => {
                if session.end().is_some() {
                    return false;
                }
                tracing::warn!(%why, "what came of attempts could not be reported: trying again");
                session.machine().sleep(PAUSE).await;
            }
        }
    }
}

/// Looks for reports that shards of this node wait for, and for senders that are gone.
pub(super) struct Collector {
    session: Session,
    awaited: watch::Receiver<Awaited>,
    shard_events: mpsc::UnboundedSender<ShardEvent>,
}

impl Collector {
    /// A collector that tells the core what it reads, and how it is told for which senders shards wait.
    pub(super) fn new(
        session: &Session,
        shard_events: mpsc::UnboundedSender<ShardEvent>,
    ) -> (Self, watch::Sender<Awaited>) {
        let (awaited_in, awaited) = watch::channel(Awaited::new());
        (Self { session: session.clone(), awaited, shard_events }, awaited_in)
    }
}

impl Component for Collector {
    const NAME: &'static str = "the collector of reports";

    async fn run(mut self) {
        let mut told = BTreeSet::new();
        while self.awaited.wait_for(|awaited| !awaited.is_empty()).await.is_ok() {
            let whom = self.awaited.borrow_and_update().clone();
            told.retain(|(shard, _)| whom.contains_key(shard));
            let roster = self.session.roster().borrow().clone();
            let alive: BTreeSet<&str> = roster.keys().map(|key| key.key().as_str()).collect();
            for (shard, senders) in &whom {
                match read(&self.session, *shard).await {
                    Ok(found) => {
                        for (key, report) in found {
                            // A report is told once for as long as its shard waits for anybody.
                            if told.insert((*shard, key.clone())) {
                                let reported = ShardEvent::Reported { shard: *shard, key, report };
                                let _ = self.shard_events.send(reported);
                            }
                        }
                    }
                    Err(why) => {
                        tracing::debug!(%shard, %why, "reports could not be read");
                        continue;
                    }
                }
                // All that they ever wrote was read after they were seen to be gone.
                for sender in senders.iter().filter(|sender| !alive.contains(&***sender)) {
                    let sender = sender.clone();
                    let _ =
                        self.shard_events.send(ShardEvent::SenderGone { shard: *shard, sender });
                }
            }
            self.session.machine().sleep(LOOK).await;
        }
    }
}

/// The reports that there are for a shard.
async fn read(session: &Session, shard: ShardId) -> Result<Vec<(String, ReportRecord)>, ScanError> {
    let entries = shard_reader::all(session.store(), reports(shard)).await?;
    let read = |entry: store::Entry| match decode(entry.value.as_bytes(), FORMAT) {
        Ok(report) => Some((entry.key.to_string(), report)),
        Err(why) => {
            tracing::debug!(key = %entry.key, %why, "a report cannot be read");
            None
        }
    };
    Ok(entries.into_iter().filter_map(read).collect())
}

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
use engine::limits::PAGE_ENTRIES_MAX;
use engine::record::{decode, encode};
use engine::shard::record::{FORMAT, ReportRecord, reports};
use store::session::Session;
use store::{Commit, CommitError, Condition, Key, Range, ScanError};
use tokio::sync::{mpsc, watch};

use super::handover::Move;

/// Whom the shards of this node wait for.
pub(super) type Awaited = BTreeMap<ShardId, BTreeSet<Box<str>>>;

/// A report, and where it goes.
pub(super) type Post = (String, ReportRecord);

/// How often it is looked whether there is a report.
const LOOK: Duration = Duration::from_millis(100);

/// How long to wait before what could not be written is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Writes reports until there is nobody left who gives any.
pub(super) async fn post(session: Session, mut posts: mpsc::UnboundedReceiver<Post>) {
    let limits = session.store().limits();
    let mut some = Vec::new();
    while posts.recv_many(&mut some, limits.writes).await > 0 {
        let mut rest = some.drain(..).map(|(key, report)| {
            let key = Key::new(key).expect("our keys are short and printable");
            (key, encode(FORMAT, &report))
        });
        let mut next = rest.next();
        while let Some((key, value)) = next.take() {
            let present = Condition::Present(session.key().key().clone());
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
            if !send(&session, commit).await {
                return;
            }
        }
    }
}

/// Whether a commit was done; it is not when the session is gone, and whatever it would say with it.
async fn send(session: &Session, commit: Commit) -> bool {
    loop {
        match session.store().commit(commit.clone()).await {
            Ok(_) => return true,
            Err(CommitError::Conflict(_)) => return false,
            // It may have been done: to write it again changes nothing.
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
pub(super) async fn collect(
    session: Session,
    mut awaited: watch::Receiver<Awaited>,
    moves: mpsc::UnboundedSender<Move>,
) {
    let mut told = BTreeSet::new();
    while awaited.wait_for(|awaited| !awaited.is_empty()).await.is_ok() {
        let whom = awaited.borrow_and_update().clone();
        told.retain(|(shard, _)| whom.contains_key(shard));
        let roster = session.roster().borrow().clone();
        let alive: BTreeSet<&str> = roster.keys().map(|key| key.key().as_str()).collect();
        for (shard, senders) in &whom {
            match read(&session, *shard).await {
                Ok(found) => {
                    for (key, report) in found {
                        // One that was told is not told again for as long as its shard waits for anybody.
                        if told.insert((*shard, key.clone())) {
                            let _ = moves.send(Move::Reported { shard: *shard, key, report });
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
                let _ = moves.send(Move::SenderGone { shard: *shard, sender: sender.clone() });
            }
        }
        session.machine().sleep(LOOK).await;
    }
}

/// The reports that there are for a shard.
async fn read(session: &Session, shard: ShardId) -> Result<Vec<(String, ReportRecord)>, ScanError> {
    let mut found = Vec::new();
    let mut rest = Some(Range::prefix(&reports(shard)));
    while let Some(range) = rest {
        let page = session.store().scan(range, PAGE_ENTRIES_MAX).await?;
        for entry in page.entries {
            match decode(entry.value.as_bytes(), FORMAT) {
                Ok(report) => found.push((entry.key.to_string(), report)),
                Err(why) => tracing::debug!(key = %entry.key, %why, "a report cannot be read"),
            }
        }
        rest = page.next;
    }
    Ok(found)
}

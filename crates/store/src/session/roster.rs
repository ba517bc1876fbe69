//! The sessions there are, as one look showed them.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::lease::Ttl;
use engine::limits::{LEASE_TTL_MAX, PAGE_ENTRIES_MAX};
use engine::mutant::{self, Mutant};

use super::record::SESSIONS;
use super::{NodeId, SessionError, SessionKey, SessionRecord};
use crate::{Commit, CommitError, Condition, Entry, Range, ScanError, Store, Version};

/// All sessions at one moment. A session in it may be lapsed; one that is not in it is dead.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    sessions: Arc<BTreeMap<SessionKey, Seen>>,
}

/// One session.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What it says; `None` if this version of Watchbell cannot read it.
    pub record: Option<SessionRecord>,
    /// At which version it was.
    pub version: Version,
}

impl Roster {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let sessions = entries.into_iter().filter_map(|entry| {
            let key = SessionKey::try_from(&entry.key).ok()?;
            let record = SessionRecord::from_value(&entry.value).ok();
            Some((key, Seen { record, version: entry.version }))
        });
        Self { sessions: Arc::new(sessions.collect()) }
    }

    /// Whether there is this session.
    pub fn contains(&self, session: &SessionKey) -> bool {
        self.sessions.contains_key(session)
    }

    /// The version that it was at.
    pub fn version(&self, session: &SessionKey) -> Option<Version> {
        self.sessions.get(session).map(|seen| seen.version)
    }

    /// All of them that take part, in the order of their keys.
    pub fn live(&self) -> impl Iterator<Item = (&SessionKey, &SessionRecord)> {
        self.sessions.iter().filter_map(|(key, seen)| {
            seen.record.as_ref().filter(|record| !record.joining).map(|record| (key, record))
        })
    }

    /// Those of one node.
    pub(super) fn of_node(&self, node: &NodeId) -> impl Iterator<Item = (&SessionKey, &Seen)> {
        self.sessions.iter().filter(move |(key, _)| key.node() == node)
    }

    /// For the observer. What says no T that makes sense is watched for the longest there is.
    pub(super) fn sights(&self) -> Vec<(SessionKey, Version, Ttl)> {
        let longest = Ttl::new(LEASE_TTL_MAX).expect("a limit is within itself");
        let ttl =
            |seen: &Seen| seen.record.as_ref().and_then(SessionRecord::ttl).unwrap_or(longest);
        self.sessions.iter().map(|(key, seen)| (key.clone(), seen.version, ttl(seen))).collect()
    }

    pub(super) fn without(self, gone: &[SessionKey]) -> Self {
        if gone.is_empty() {
            return self;
        }
        let left = self.sessions.iter().filter(|(key, _)| !gone.contains(key));
        let left = left.map(|(key, seen)| (key.clone(), seen.clone())).collect();
        Self { sessions: Arc::new(left) }
    }
}

/// Everything below `node/`.
pub(super) async fn read_all(store: &Store) -> Result<Vec<Entry>, ScanError> {
    let mut entries = Vec::new();
    let mut rest = Some(Range::prefix(SESSIONS));
    while let Some(range) = rest {
        let page = store.scan(range, PAGE_ENTRIES_MAX).await?;
        entries.extend(page.entries);
        rest = page.next;
    }
    Ok(entries)
}

/// Buries a session that stood still at this version: whatever it owned is free from then on, and its
/// own next renewal fails. The caller answers for its having watched long enough.
pub async fn bury(
    store: &Store,
    session: &SessionKey,
    at: Version,
) -> Result<Version, CommitError> {
    let key = session.key().clone();
    let mut still = Condition::At(key.clone(), at);
    if mutant::active(Mutant::BuryByName) {
        still = Condition::Present(key.clone());
    }
    store.commit(Commit::new().when(still).delete(key)).await
}

/// Buries the sessions of processes that held this exclusive store before: whoever opened it knows
/// that they are dead. Call this once, right after opening and before any session of this process.
/// Sessions that came through a server belong to processes that may still act; patience decides about
/// them. Does nothing on a store that several processes use at once. Tells how many were buried.
pub async fn bury_local(store: &Store) -> Result<usize, SessionError> {
    if !store.is_exclusive() {
        return Ok(0);
    }
    let mut buried = 0;
    for entry in read_all(store).await? {
        let local = SessionRecord::from_value(&entry.value).is_ok_and(|record| record.local);
        if !local && !mutant::active(Mutant::BuryAllOnOpen) {
            continue;
        }
        let Ok(session) = SessionKey::try_from(&entry.key) else { continue };
        match bury(store, &session, entry.version).await {
            Ok(_) => buried += 1,
            Err(CommitError::Conflict(_)) => {}
            Err(CommitError::Refused(why)) => return Err(why.into()),
            Err(CommitError::Corrupt(why)) => return Err(SessionError::Corrupt(why)),
            Err(CommitError::Unavailable(why) | CommitError::Unknown(why)) => {
                return Err(SessionError::Unavailable(why));
            }
        }
    }
    Ok(buried)
}

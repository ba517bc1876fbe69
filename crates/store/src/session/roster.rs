//! The sessions there are, as one look showed them.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::lease::Ttl;
use engine::mutant::{self, Mutant};

use super::clocks::PeerClocks;
use super::record::{Longest, SESSIONS};
use super::{NodeId, SessionError, SessionKey, SessionRecord};
use crate::error::unread;
use crate::{Commit, CommitError, Condition, Entry, Range, ScanError, Store, Version};

/// All sessions at one moment. A session in it may be lapsed; one that is not in it is dead.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    sessions: Arc<BTreeMap<SessionKey, SeenSession>>,
    /// How far each session's wall clock is ahead, where that is known.
    ahead_ms: Arc<BTreeMap<SessionKey, i64>>,
    longest: Option<Ttl>,
}

/// One session, as a look showed it.
#[derive(Debug, Clone)]
pub struct SeenSession {
    /// What it says; `None` if this version of Watchbell cannot read it.
    pub record: Option<SessionRecord>,
    /// At which version it was.
    pub version: Version,
}

impl Roster {
    /// All sessions, as they stand in the store.
    pub async fn read(store: &Store) -> Result<Self, ScanError> {
        read_all(store).await.map(Self::new)
    }

    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let longest = entries.iter().find(|entry| entry.key == Longest::key());
        let longest = longest.and_then(|entry| Longest::from_value(&entry.value).ok()?.ttl());
        let sessions = entries.into_iter().filter_map(|entry| {
            let key = SessionKey::try_from(&entry.key).ok()?;
            let record = SessionRecord::from_value(&entry.value).ok();
            Some((key, SeenSession { record, version: entry.version }))
        });
        Self { sessions: Arc::new(sessions.collect()), ahead_ms: Arc::default(), longest }
    }

    /// Adds how far the others' wall clocks are ahead of `wall_us`, that of the session `own`, which looked.
    pub(super) fn timed(mut self, clocks: &mut PeerClocks, own: &SessionKey, wall_us: u64) -> Self {
        let mut ahead_ms = clocks.see(&self.sessions, wall_us);
        ahead_ms.insert(own.clone(), 0);
        self.ahead_ms = Arc::new(ahead_ms);
        self
    }

    /// How many milliseconds the wall clock of a session's node is ahead of that of whoever looked; behind, if it
    /// is less than nothing, as exactly as `clocks` tells. `None` if it has not been seen to move.
    pub fn ahead_ms(&self, session: &SessionKey) -> Option<i64> {
        self.ahead_ms.get(session).copied()
    }

    /// The longest T that any session ever had.
    pub(super) fn longest(&self) -> Option<Ttl> {
        self.longest
    }

    /// Whether there is this session.
    pub fn contains(&self, session: &SessionKey) -> bool {
        self.sessions.contains_key(session)
    }

    /// The keys of all sessions.
    pub fn keys(&self) -> impl Iterator<Item = &SessionKey> {
        self.sessions.keys()
    }

    /// What a session says, if it is there and can be read.
    pub fn record(&self, session: &SessionKey) -> Option<&SessionRecord> {
        self.sessions.get(session)?.record.as_ref()
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

    /// The sessions that take part and campaign for this election, `project/name`, in the order of their keys.
    pub fn candidates(&self, candidacy: &str) -> impl Iterator<Item = &SessionKey> {
        self.live().filter(move |(_, record)| record.campaigns_for(candidacy)).map(|(key, _)| key)
    }

    /// The sessions of one node.
    pub(super) fn of_node(
        &self,
        node: &NodeId,
    ) -> impl Iterator<Item = (&SessionKey, &SeenSession)> {
        self.sessions.iter().filter(move |(key, _)| key.node() == node)
    }

    /// All sessions, as the observer takes them.
    pub(super) fn sights(&self) -> Vec<(SessionKey, Version, Option<Ttl>)> {
        let ttl = |seen: &SeenSession| seen.record.as_ref().and_then(SessionRecord::ttl);
        self.sessions.iter().map(|(key, seen)| (key.clone(), seen.version, ttl(seen))).collect()
    }

    pub(super) fn without(self, gone: &[SessionKey]) -> Self {
        let left = self.sessions.iter().filter(|(key, _)| !gone.contains(key));
        let left = left.map(|(key, seen)| (key.clone(), seen.clone())).collect();
        Self { sessions: Arc::new(left), ..self }
    }
}

/// Everything below `node/`.
pub(super) async fn read_all(store: &Store) -> Result<Vec<Entry>, ScanError> {
    store.scan_all(Range::prefix(SESSIONS)).await
}

/// Has the store remember this T, if it is longer than all before.
pub async fn raise_longest(store: &Store, ttl: Ttl) -> Result<(), CommitError> {
    let key = Longest::key();
    loop {
        let found = store.get(&key).await.map_err(unread)?;
        let known = found.as_ref().and_then(|entry| Longest::from_value(&entry.value).ok()?.ttl());
        if known.is_some_and(|known| known >= ttl) {
            return Ok(());
        }
        let unmoved = match found {
            Some(entry) => Condition::At(key.clone(), entry.version),
            None => Condition::Absent(key.clone()),
        };
        let raise = Commit::new().when(unmoved).put(key.clone(), Longest::new(ttl).to_value());
        match store.commit(raise).await {
            Ok(_) => return Ok(()),
            // Somebody else did the same.
            Err(CommitError::Conflict(_)) => {}
            Err(why) => return Err(why),
        }
    }
}

/// Buries sessions that stood still at these versions, all of them or none: whatever they owned is free
/// from then on, and their own next renewals fail. The caller answers for its having watched long enough.
pub async fn bury(
    store: &Store,
    sessions: &[(SessionKey, Version)],
) -> Result<Version, CommitError> {
    let burial = sessions.iter().fold(Commit::new(), |burial, (session, at)| {
        let key = session.key().clone();
        let mut still = Condition::At(key.clone(), *at);
        if mutant::active(Mutant::BuryByName) {
            still = Condition::Present(key.clone());
        }
        burial.when(still).delete(key)
    });
    store.commit(burial).await
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
        match bury(store, &[(session, entry.version)]).await {
            Ok(_) => buried += 1,
            Err(CommitError::Conflict(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(buried)
}

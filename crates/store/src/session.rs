//! Sessions: the only lease in the system.
//!
//! An incarnation of a node writes one record, `node/<id>/<incarnation>`, and proves that it lives by
//! changing it. Everything that it owns names this key. Whoever wants its work must have watched the
//! record stand still for longer than the node may act on its own, and then *buries* it: deletes it,
//! at the version that stood still. This is the only place where time decides about somebody else. A
//! key is never used again, so absent means dead for ever.
//!
//! [`Session`] is what the rest of a node holds: may I act, and how much longer? [`SessionDriver`] is the work
//! that keeps it alive and looks after the others; somebody must run it. The rules of time are
//! `engine::lease`'s; see docs/guarantees.md.

mod clocks;
mod keeper;
mod record;
mod renewal;
mod roster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::lease::{Author, Holder, Nonce, Observer, Reading, Token, Ttl};
use engine::limits::INCARNATIONS_MAX;
use engine::mutant::{self, Mutant};
use parking_lot::Mutex;
use tokio::sync::watch;

pub use keeper::SessionDriver;
use record::millis;
pub use record::{BadNodeId, NodeAvailability, NodeId, NodeInfo, SessionKey, SessionRecord};
pub(crate) use record::{Longest, SESSIONS, hex};
pub use renewal::RenewalStats;
pub use roster::{Roster, SeenSession, bury, bury_local, raise_longest};

use crate::machine::{Machine, within};
use crate::{Commit, CommitError, Condition, Epoch, Key, Refusal, ScanError, Store, Version};

/// A node's session. Clones are the same session.
#[derive(Clone)]
pub struct Session(Arc<SessionShared>);

struct SessionShared {
    key: SessionKey,
    store: Store,
    machine: Arc<dyn Machine>,
    holder: Mutex<Holder>,
    observer: Mutex<Observer<SessionKey, Version>>,
    end: watch::Sender<Option<SessionEnd>>,
    roster: watch::Sender<Roster>,
    renewals: watch::Sender<RenewalStats>,
    /// What its node says about itself; the next renewal writes it.
    about: watch::Sender<NodeAvailability>,
    /// The claims that it has a right to, and under which token: one at a time for each.
    rights: Mutex<BTreeMap<Key, Token>>,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// Somebody buried it, or the store forgot it: open a new one, and build everything anew.
    Lost,
    /// Its owner closed it.
    Closed,
}

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Another process says that it is this node, and lives: give this one another id.
    #[error(
        "another node with the id {} is alive (session {other}{}): stop it, or give this one another id",
        other.node(), at_url(url.as_deref())
    )]
    AlreadyLive {
        /// The session of the other process.
        other: SessionKey,
        /// The URL that the other process gives for itself.
        url: Option<String>,
    },
    /// The store gave no clear answer: try again later.
    #[error("the store does not answer, try again: {0}")]
    Unavailable(String),
    /// The store takes no such record: make room, or look at its limits.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What the store holds is damaged: stop, and have a person look.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

fn at_url(url: Option<&str>) -> String {
    url.map(|url| format!(", at {url}")).unwrap_or_default()
}

/// Why nothing may be claimed, and nobody may act, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quarantine {
    pub(crate) left: Duration,
}

impl Session {
    /// Opens a session for a new incarnation of this node, and waits until it is the only one with its
    /// id: a former one is buried when its time is over, and a live one is a reason to refuse. Then it
    /// may take part, as long as somebody runs the [`SessionDriver`].
    pub async fn open(
        store: &Store,
        machine: &Arc<dyn Machine>,
        node: &NodeInfo,
    ) -> Result<(Self, SessionDriver), SessionError> {
        Self::open_after(None, store, machine, node).await
    }

    /// Opens a session for a process whose `former` session has ended. What that session knew of the store's epoch is kept,
    /// so that a store that was restored meanwhile is not taken for one that is seen for the first time.
    pub async fn open_after(
        former: Option<&Self>,
        store: &Store,
        machine: &Arc<dyn Machine>,
        node: &NodeInfo,
    ) -> Result<(Self, SessionDriver), SessionError> {
        let observer = former.map_or_else(
            || Observer::new(node.ttl),
            |former| former.0.observer.lock().successor(node.ttl),
        );
        let mut drawn = Vec::new();
        let (session, mut keeper) = loop {
            match Self::create(&observer, store, machine, node, &mut drawn).await? {
                Some(created) => break created,
                None if drawn.len() == INCARNATIONS_MAX => {
                    let why = format!("it was asked for a session {INCARNATIONS_MAX} times");
                    return Err(SessionError::Unavailable(why));
                }
                None => {}
            }
        };
        match keeper.settle_in(&drawn).await {
            Ok(()) => Ok((session, keeper)),
            Err(why) => {
                session.close().await;
                Err(why)
            }
        }
    }

    /// Writes the record of a new incarnation. `None` if it is not known whether that was done: then
    /// this incarnation is given up, and the next one is another.
    async fn create(
        observer: &Observer<SessionKey, Version>,
        store: &Store,
        machine: &Arc<dyn Machine>,
        node: &NodeInfo,
        drawn: &mut Vec<SessionKey>,
    ) -> Result<Option<(Self, SessionDriver)>, SessionError> {
        let mut key = match store.guest() {
            Some(project) => SessionKey::of_guest(&node.id, &project, machine.random()),
            None => SessionKey::new(&node.id, machine.random()),
        };
        let mut free = Condition::Absent(key.key().clone());
        if mutant::active(Mutant::KeyWithoutIncarnation) {
            key = SessionKey::without_incarnation(&node.id);
            free = match store.get(key.key()).await {
                Ok(Some(former)) => Condition::At(former.key, former.version),
                _ => Condition::Absent(key.key().clone()),
            };
        }
        drawn.push(key.clone());
        match within(machine, node.ttl.timeout(), raise_longest(store, node.ttl)).await {
            Some(Ok(())) => {}
            Some(Err(CommitError::Unknown(_))) | None => return Ok(None),
            Some(Err(why)) => return Err(why.into()),
        }
        let nonce = Nonce(machine.random());
        let record = SessionRecord {
            url: node.url.clone(),
            roles: node.roles.clone(),
            ttl_ms: millis(node.ttl),
            beat: 1,
            nonce,
            wall_us: machine.wall_us(),
            reads: engine::record::Format(1),
            local: store.is_exclusive(),
            joining: true,
            key: None,
            draining: false,
            unable: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            candidacies: node.candidacies.clone(),
        };
        let mut holder = Holder::new(node.ttl);
        holder.sending(nonce, machine.reading());
        let commit = Commit::new().when(free).put(key.key().clone(), record.to_value());
        let version = match within(machine, node.ttl.timeout(), store.commit(commit)).await {
            Some(Ok(version)) => version,
            Some(Err(CommitError::Conflict(_) | CommitError::Unknown(_))) | None => {
                return Ok(None);
            }
            Some(Err(why)) => return Err(why.into()),
        };
        holder.won(nonce, machine.reading());
        let session = Self(Arc::new(SessionShared {
            key,
            store: store.clone(),
            machine: Arc::clone(machine),
            holder: Mutex::new(holder),
            observer: Mutex::new(observer.clone()),
            end: watch::Sender::new(None),
            roster: watch::Sender::new(Roster::default()),
            renewals: watch::Sender::new(RenewalStats::default()),
            about: watch::Sender::new(NodeAvailability::default()),
            rights: Mutex::default(),
        }));
        let keeper = SessionDriver::new(session.clone(), record, version);
        Ok(Some((session, keeper)))
    }

    /// Its key: what everything that it owns names.
    pub fn key(&self) -> &SessionKey {
        &self.0.key
    }

    /// T: how long a renewal is good for.
    pub fn ttl(&self) -> Ttl {
        self.0.holder.lock().ttl()
    }

    /// The store that it lives in.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The machine that it lives on.
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.0.machine
    }

    /// How much longer its node may act, by its own clocks; zero when it has lapsed or ended. Look at
    /// this at the moment when something leaves, not before.
    pub fn valid_for(&self) -> Duration {
        if self.end().is_some() {
            return Duration::ZERO;
        }
        self.0.holder.lock().valid_for(self.0.machine.reading())
    }

    /// The clocks before the last renewal was sent that is known to have been done: what deadlines of others count from. It
    /// moves when [`Session::renewals`] does; none when the session has ended.
    pub fn renewal(&self) -> Option<Reading> {
        if self.end().is_some() {
            return None;
        }
        self.0.holder.lock().renewed()
    }

    /// Whether its node may act now.
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// How it ended, if it did. A lapse is no end: a session that nobody buried may be renewed.
    pub fn end(&self) -> Option<SessionEnd> {
        *self.0.end.borrow()
    }

    /// Waits until the session has ended.
    pub async fn ended(&self) -> SessionEnd {
        let mut end = self.0.end.subscribe();
        let ended = end.wait_for(Option::is_some).await.expect("this handle keeps the sender");
        ended.expect("waited for")
    }

    /// Waits until the right to act has lapsed or the session has ended.
    pub async fn lapsed(&self) {
        self.unrenewed_for(self.ttl().length()).await;
    }

    /// Waits until the last renewal that is known to have won was sent this long ago, or the session
    /// has ended: a deadline, for those who must begin to stop before they have to have stopped.
    pub async fn unrenewed_for(&self, stretch: Duration) {
        loop {
            let passed = self.0.holder.lock().unrenewed_for(self.0.machine.reading());
            let left = stretch.saturating_sub(passed.unwrap_or(stretch));
            if left.is_zero() {
                return;
            }
            // In slices: what one waits by may stand still while the machine sleeps.
            let left = left.min(self.ttl().pause());
            tokio::select! {
                biased;
                _ = self.ended() => return,
                () = self.0.machine.sleep(left) => {}
            }
        }
    }

    /// The sessions there are, as this node saw them last, and word when they change.
    pub fn roster(&self) -> watch::Receiver<Roster> {
        self.0.roster.subscribe()
    }

    /// How its renewals go, and word when one succeeds or fails: for people to see.
    pub fn renewals(&self) -> watch::Receiver<RenewalStats> {
        self.0.renewals.subscribe()
    }

    /// Says something about this node, or takes it back: the record says so from the next renewal on, which is
    /// not waited for. Others see it when they look.
    pub fn say(&self, change: impl FnOnce(&mut NodeAvailability)) {
        self.0.about.send_if_modified(|about| {
            let former = about.clone();
            change(about);
            *about != former
        });
    }

    /// Has it renewed as soon as a pause has passed since the last time, instead of at its beat. Does not wait for it.
    pub fn renew_soon(&self) {
        self.0.about.send_modify(|_| {});
    }

    /// Gives the session up: its node may not act from here on, and everything that it owned is free
    /// as soon as the record is gone. Tries for T; if the store does not answer for so long, patience
    /// will do it.
    pub async fn close(&self) {
        self.finish(SessionEnd::Closed);
        let (ttl, key) = (self.ttl(), self.0.key.key());
        let gone = async {
            loop {
                let commit =
                    Commit::new().when(Condition::Present(key.clone())).delete(key.clone());
                match within(&self.0.machine, ttl.timeout(), self.0.store.commit(commit)).await {
                    Some(Ok(_) | Err(CommitError::Conflict(_))) => return,
                    _ => self.0.machine.sleep(ttl.pause()).await,
                }
            }
        };
        if within(&self.0.machine, ttl.length(), gone).await.is_none() {
            tracing::warn!(session = %self.0.key, "the store did not answer: others will bury this session");
        }
    }

    /// The store's epoch, if this node has been in contact with it for long enough to trust that nobody
    /// acts any more on what an earlier one may have forgotten.
    pub(crate) fn trusted_epoch(&self) -> Result<Epoch, Quarantine> {
        let (epoch, ttl) = (self.0.store.epoch(), self.ttl());
        let observer = self.0.observer.lock();
        if observer.epoch() != Some(epoch.0.as_str()) {
            return Err(Quarantine { left: ttl.poll() });
        }
        let left = observer.quarantine_left(self.0.machine.reading());
        if left.is_zero() { Ok(epoch) } else { Err(Quarantine { left }) }
    }

    /// How long nothing may be claimed yet, because the store may have forgotten what others act on.
    pub fn quarantine_left(&self) -> Duration {
        self.trusted_epoch().map_or_else(|quarantine| quarantine.left, |_| Duration::ZERO)
    }

    /// Makes this token its only right to a claim.
    pub(crate) fn entitle(&self, claim: &Key, token: Token) {
        self.0.rights.lock().insert(claim.clone(), token);
    }

    /// Takes back its right to a claim.
    pub(crate) fn rescind(&self, claim: &Key) {
        self.0.rights.lock().remove(claim);
    }

    /// Whether its right to a claim is this token.
    pub(crate) fn is_entitled(&self, claim: &Key, token: Token) -> bool {
        self.0.rights.lock().get(claim) == Some(&token)
    }

    fn finish(&self, how: SessionEnd) {
        self.0.end.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(how);
            first
        });
    }

    fn sending(&self, nonce: Nonce) {
        self.0.holder.lock().sending(nonce, self.0.machine.reading());
    }

    fn won(&self, nonce: Nonce) -> Author {
        self.0.holder.lock().won(nonce, self.0.machine.reading())
    }

    fn now(&self) -> Reading {
        self.0.machine.reading()
    }
}

impl From<CommitError> for SessionError {
    fn from(why: CommitError) -> Self {
        match why {
            CommitError::Refused(why) => Self::Refused(why),
            CommitError::Corrupt(why) => Self::Corrupt(why),
            CommitError::Unavailable(why) | CommitError::Unknown(why) => Self::Unavailable(why),
            CommitError::Conflict(why) => Self::Unavailable(why.to_string()),
        }
    }
}

impl From<ScanError> for SessionError {
    fn from(why: ScanError) -> Self {
        match why {
            ScanError::Refused(why) => Self::Refused(why),
            ScanError::Unavailable(why) => Self::Unavailable(why),
            ScanError::Corrupt(why) => Self::Corrupt(why),
        }
    }
}

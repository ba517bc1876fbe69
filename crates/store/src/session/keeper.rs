//! What keeps a session: renew one's own record, and look at everybody's.
//!
//! Two loops that share nothing but the session. The *beat* renews every T/5. The *lookout* reads all
//! sessions when a hint comes, at the latest every T/10, and buries those whose time is over. Both may
//! be dropped at any moment: what was in flight then counts as unknown, as it does after a timeout.

use std::time::Duration;

use engine::lease::{Author, Look, Memory, Nonce, Reading};

use super::record::SESSIONS;
use super::roster::{Roster, bury, read_all};
use super::{End, Session, SessionError, SessionKey, SessionRecord};
use crate::machine::within;
use crate::{Class, Commit, CommitError, Condition, Version};

/// The work that keeps a session alive. Run it until it returns.
pub struct Keeper {
    beat: Beat,
    lookout: Lookout,
}

impl Keeper {
    pub(super) fn new(session: Session, record: SessionRecord, version: Version) -> Self {
        let lookout = Lookout { session: session.clone() };
        // That it was created is its first renewal.
        let (last, wait) = (session.now(), session.ttl().beat());
        Self { beat: Beat { session, record, version, last, wait }, lookout }
    }

    /// Renews the session and watches the others until it ends, and tells how. It renews only while
    /// `is_alive` says so: a node that no longer works must lose its session, not keep it.
    pub async fn run(&mut self, is_alive: impl FnMut() -> bool) -> End {
        let session = self.beat.session.clone();
        tokio::select! {
            biased;
            end = session.ended() => end,
            () = self.beat.run(is_alive) => session.ended().await,
            () = self.lookout.run() => unreachable!("the lookout has no end"),
        }
    }

    /// Renews once, without waiting for the beat. Whether that was done will show.
    pub async fn renew(&mut self) {
        self.beat.renew().await;
    }

    /// Waits until no other session has this node's id. Those `drawn` before by this very process do
    /// not count: nobody keeps them.
    pub(super) async fn settle_in(&mut self, drawn: &[SessionKey]) -> Result<(), SessionError> {
        let session = self.beat.session.clone();
        let alone = tokio::select! {
            biased;
            _ = session.ended() => Err(SessionError::Unavailable("the session was lost".into())),
            () = self.beat.run(|| true) => Err(SessionError::Unavailable("the session was lost".into())),
            () = self.lookout.run() => unreachable!("the lookout has no end"),
            alone = alone(&session, drawn) => alone,
        };
        self.beat.record.joining = false;
        alone
    }
}

/// Waits until the roster shows no other session of this node, or one that moves.
async fn alone(session: &Session, drawn: &[SessionKey]) -> Result<(), SessionError> {
    let mut roster = session.roster();
    let mut former = Roster::default();
    loop {
        if roster.changed().await.is_err() {
            return Err(SessionError::Unavailable("the session is gone".into()));
        }
        let now = roster.borrow_and_update().clone();
        let mut others = 0;
        for (key, seen) in now.of_node(session.key().node()) {
            if drawn.contains(key) {
                continue;
            }
            others += 1;
            if former.version(key).is_some_and(|version| version != seen.version) {
                let url = seen.record.as_ref().and_then(|record| record.url.clone());
                return Err(SessionError::AlreadyLive { other: key.clone(), url });
            }
        }
        if others == 0 {
            return Ok(());
        }
        former = now;
    }
}

/// Renews one record.
struct Beat {
    session: Session,
    record: SessionRecord,
    version: Version,
    /// When the last attempt began, and how long after it the next one is made.
    last: Reading,
    wait: Duration,
}

/// What came of one attempt to renew.
enum Renewal {
    Done,
    /// Not done, or not known: again soon.
    Open,
    /// The record is no longer there, or no longer ours.
    Lost,
}

impl Beat {
    /// Renews until the session is lost.
    async fn run(&mut self, mut is_alive: impl FnMut() -> bool) {
        let (ttl, machine) = (self.session.ttl(), self.session.machine().clone());
        loop {
            machine.sleep(self.wait.saturating_sub(self.session.now().most_since(self.last))).await;
            self.last = self.session.now();
            self.wait = ttl.pause();
            if is_alive() {
                match self.renew().await {
                    Renewal::Done => self.wait = ttl.beat(),
                    // At least a pause after the answer, or after it did not come.
                    Renewal::Open => self.last = self.session.now(),
                    Renewal::Lost => return,
                }
            }
        }
    }

    async fn renew(&mut self) -> Renewal {
        let nonce = Nonce(self.session.machine().random());
        self.record.beat += 1;
        self.record.nonce = nonce;
        self.record.wall_us = self.session.machine().wall_us();
        let key = self.session.key().key().clone();
        let commit = Commit::new()
            .when(Condition::At(key.clone(), self.version))
            .put(key, self.record.to_value());
        self.session.sending(nonce);
        let answer = self.session.store().commit(commit);
        let timeout = self.session.ttl().timeout();
        match within(self.session.machine(), timeout, answer).await {
            Some(Ok(version)) => {
                self.version = version;
                self.session.won(nonce);
                Renewal::Done
            }
            Some(Err(CommitError::Unavailable(why))) => {
                tracing::debug!(why, "the session could not be renewed");
                Renewal::Open
            }
            Some(Err(CommitError::Refused(why))) => {
                tracing::warn!(%why, "the store refused to renew the session");
                Renewal::Open
            }
            Some(Err(CommitError::Corrupt(why))) => {
                tracing::error!(why, "the store is damaged, the session could not be renewed");
                Renewal::Open
            }
            // It may be done: then the next one meets a conflict, and we read back.
            Some(Err(CommitError::Unknown(_))) | None => Renewal::Open,
            Some(Err(CommitError::Conflict(_))) => self.read_back().await,
        }
    }

    /// Somebody moved the record: it was one of our own renewals that was never answered, or else the
    /// session is lost.
    async fn read_back(&mut self) -> Renewal {
        let (key, timeout) = (self.session.key().key(), self.session.ttl().timeout());
        let read = self.session.store().get(key);
        let Some(Ok(found)) = within(self.session.machine(), timeout, read).await else {
            return Renewal::Open;
        };
        if let Some(entry) = found
            && let Ok(record) = SessionRecord::from_value(&entry.value)
            && self.session.won(record.nonce) == Author::Me
        {
            self.version = entry.version;
            return Renewal::Open;
        }
        tracing::warn!(session = %self.session.key(), "the session is lost: others took it for dead");
        self.session.finish(End::Lost);
        Renewal::Lost
    }
}

/// Looks at everybody, and buries.
struct Lookout {
    session: Session,
}

impl Lookout {
    async fn run(&mut self) {
        let (ttl, machine) = (self.session.ttl(), self.session.machine().clone());
        let mut hints = self.session.store().watch(SESSIONS);
        loop {
            if let Some(roster) = self.look().await {
                let buried = self.bury_overdue().await;
                let roster = roster.without(&buried);
                self.session.0.roster.send_replace(roster);
            }
            // Everybody's renewals give hints: they shorten the wait, but not to nothing.
            machine.sleep(ttl.pause()).await;
            within(&machine, ttl.poll().saturating_sub(ttl.pause()), hints.changed()).await;
        }
    }

    /// One look at all sessions.
    async fn look(&mut self) -> Option<Roster> {
        let (session, timeout) = (&self.session, self.session.ttl().timeout());
        let asked = session.now();
        let entries = match within(session.machine(), timeout, read_all(session.store())).await {
            Some(Ok(entries)) => entries,
            Some(Err(why)) => {
                tracing::debug!(%why, "the sessions could not be read");
                return None;
            }
            None => return None,
        };
        let roster = Roster::new(entries);
        let memory = match session.store().class() {
            Class::A | Class::S => Memory::Keeps,
            Class::B => Memory::MayForget,
        };
        session.observer().see(Look {
            asked,
            arrived: session.now(),
            epoch: session.store().epoch().0,
            memory,
            sessions: roster.sights(),
        });
        Some(roster)
    }

    /// Buries those whose time is over, and tells whom.
    async fn bury_overdue(&mut self) -> Vec<SessionKey> {
        let session = &self.session;
        let overdue = session.observer().overdue(&session.holder(), session.now());
        let mut buried = Vec::new();
        for (other, version) in overdue {
            if other == *session.key() {
                continue;
            }
            let answer = bury(session.store(), &other, version);
            if let Some(Ok(_)) = within(session.machine(), session.ttl().timeout(), answer).await {
                tracing::info!(session = %other, "buried: it stood still for too long");
                buried.push(other);
            }
        }
        buried
    }
}

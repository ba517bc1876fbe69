//! What keeps a session: renew one's own record, and look at everybody's.
//!
//! Two loops that share nothing but the session. The *beat* renews every T/5, and at once when the node has
//! something to say about itself. The *lookout* reads all sessions when a hint comes, at the latest every T/10,
//! compares their clocks with its own, and buries those whose time is over. Both may be dropped at any moment: what was in
//! flight then counts as unknown, as it does after a timeout.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::lease::{Author, Nonce, Reading, SessionsLook, StoreMemory};
use tokio::sync::watch;

use super::clocks::PeerClocks;
use super::record::SESSIONS;
use super::roster::{Roster, bury, read_all};
use super::{
    NodeAvailability, RenewalStats, Session, SessionEnd, SessionError, SessionKey, SessionRecord,
};
use crate::machine::within;
use crate::{Class, Commit, CommitError, Condition, ScanError, Version};

/// The work that keeps a session alive. Run it until it returns.
pub struct SessionDriver {
    beat: Beat,
    lookout: Lookout,
}

impl SessionDriver {
    pub(super) fn new(session: Session, record: SessionRecord, version: Version) -> Self {
        let lookout = Lookout { session: session.clone(), clocks: PeerClocks::default() };
        // That it was created is its first renewal.
        let (last, wait) = (session.now(), session.ttl().beat());
        let about = session.0.about.subscribe();
        Self { beat: Beat { session, record, version, about, last, wait }, lookout }
    }

    /// Renews the session and watches the others until it ends, and tells how. It renews only while
    /// `is_alive` says so: a node that no longer works must lose its session, not keep it.
    pub async fn run(&mut self, is_alive: impl FnMut() -> bool) -> SessionEnd {
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
        let lookout = &mut self.lookout;
        let others = async {
            lookout.begin().await?;
            tokio::select! {
                biased;
                () = lookout.run() => unreachable!("the lookout has no end"),
                alone = alone(&session, drawn) => alone,
            }
        };
        let alone = tokio::select! {
            biased;
            _ = session.ended() => Err(SessionError::Unavailable("the session was lost".into())),
            () = self.beat.run(|| true) => Err(SessionError::Unavailable("the session was lost".into())),
            alone = others => alone,
        };
        // The next beat says so.
        self.beat.record.joining = false;
        alone
    }
}

/// Waits until the roster shows no other session of this node, or one that moves twice: once it may, when
/// a renewal of a dead one comes late.
async fn alone(session: &Session, drawn: &[SessionKey]) -> Result<(), SessionError> {
    let mut roster = session.roster();
    roster.mark_changed();
    let mut former = Roster::default();
    let mut moves: BTreeMap<SessionKey, u32> = BTreeMap::new();
    loop {
        if roster.changed().await.is_err() {
            return Err(SessionError::Unavailable("the session is gone".into()));
        }
        let now = roster.borrow_and_update().clone();
        let mut others = 0;
        for (key, seen) in now.of_node(session.key().node()) {
            // Projects do not know of each other's nodes, nor of the servers'.
            if drawn.contains(key) || key.guest() != session.key().guest() {
                continue;
            }
            others += 1;
            if former.version(key).is_none() {
                tracing::info!(session = %key, "a former session of this node is there: waiting until it moves or its time is over");
            }
            if former.version(key).is_none_or(|version| version == seen.version) {
                continue;
            }
            let times = moves.entry(key.clone()).or_default();
            *times += 1;
            if *times > 1 {
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
    /// What the node says about itself, and word when it says something new.
    about: watch::Receiver<NodeAvailability>,
    /// When the last attempt began, and how long after it the next one is made.
    last: Reading,
    wait: Duration,
}

/// What came of one attempt to renew.
enum RenewalOutcome {
    Done,
    /// Not done, or not known: again soon.
    Open,
    /// The record is no longer there, or no longer ours.
    Lost,
}

impl Beat {
    /// Renews until the session is lost.
    async fn run(&mut self, mut is_alive: impl FnMut() -> bool) {
        let ttl = self.session.ttl();
        loop {
            self.wait_for_next().await;
            self.last = self.session.now();
            self.wait = ttl.pause();
            if is_alive() {
                match self.renew().await {
                    RenewalOutcome::Done => self.wait = ttl.beat(),
                    // At least a pause after the answer, or after it did not come.
                    RenewalOutcome::Open => self.last = self.session.now(),
                    RenewalOutcome::Lost => return,
                }
            }
        }
    }

    /// Waits until it is time, or until there is something to say and a pause has passed since the last attempt.
    async fn wait_for_next(&mut self) {
        let Self { session, about, last, wait, .. } = self;
        let (machine, pause) = (session.machine(), session.ttl().pause());
        let left = |of: Duration| of.saturating_sub(session.now().most_since(*last));
        let said = async {
            about.changed().await.expect("the session has the other end");
            machine.sleep(left(pause)).await;
        };
        within(machine, left(*wait), said).await;
    }

    async fn renew(&mut self) -> RenewalOutcome {
        self.record.say(&self.about.borrow_and_update());
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
                self.session.0.observer.lock().answered(self.session.now());
                self.session.0.renewals.send_modify(RenewalStats::beats);
                RenewalOutcome::Done
            }
            Some(Err(CommitError::Unavailable(why))) => {
                tracing::debug!(why, "the session could not be renewed");
                self.session.0.observer.lock().refused();
                self.fails(why)
            }
            Some(Err(CommitError::Refused(why))) => {
                tracing::warn!(%why, "the store refused to renew the session");
                self.session.0.observer.lock().refused();
                self.fails(why.to_string())
            }
            Some(Err(CommitError::Corrupt(why))) => {
                tracing::error!(why, "the store is damaged, the session could not be renewed");
                self.fails(why)
            }
            // It may be done: then the next one meets a conflict, and we read back.
            Some(Err(CommitError::Unknown(why))) => self.fails(why),
            None => self.fails("the store did not answer in time"),
            Some(Err(CommitError::Conflict(_))) => self.read_back().await,
        }
    }

    fn fails(&self, why: impl Into<String>) -> RenewalOutcome {
        self.session.0.renewals.send_modify(|renewals| renewals.fails(why));
        RenewalOutcome::Open
    }

    /// Somebody moved the record: it was one of our own renewals that was never answered, or else the
    /// session is lost.
    async fn read_back(&mut self) -> RenewalOutcome {
        let (key, timeout) = (self.session.key().key(), self.session.ttl().timeout());
        let read = self.session.store().get(key);
        let Some(Ok(found)) = within(self.session.machine(), timeout, read).await else {
            return RenewalOutcome::Open;
        };
        self.session.0.observer.lock().answered(self.session.now());
        if let Some(entry) = found {
            // Nobody else writes this key. One of long ago gives no credit, but is ours to go on from.
            if let Ok(record) = SessionRecord::from_value(&entry.value)
                && self.session.won(record.nonce) == Author::Unknown
            {
                tracing::debug!("a renewal of long ago was found");
            }
            self.version = entry.version;
            return RenewalOutcome::Open;
        }
        tracing::warn!(session = %self.session.key(), "the session is lost: others took it for dead, or the store forgot it");
        self.session.finish(SessionEnd::Lost);
        RenewalOutcome::Lost
    }
}

/// Looks at everybody, and buries.
struct Lookout {
    session: Session,
    clocks: PeerClocks,
}

impl Lookout {
    /// The first look. Whoever cannot look at the others for T takes no part.
    async fn begin(&mut self) -> Result<(), SessionError> {
        let (ttl, machine) = (self.session.ttl(), self.session.machine().clone());
        let begun = self.session.now();
        loop {
            match self.look().await {
                Ok(roster) => {
                    self.session.0.roster.send_replace(roster);
                    return Ok(());
                }
                Err(ScanError::Unavailable(_))
                    if self.session.now().least_since(begun) < ttl.length() =>
                {
                    machine.sleep(ttl.pause()).await;
                }
                Err(why) => return Err(why.into()),
            }
        }
    }

    async fn run(&mut self) {
        let (ttl, machine) = (self.session.ttl(), self.session.machine().clone());
        let mut hints = self.session.store().watch(SESSIONS);
        loop {
            match self.look().await {
                Ok(roster) => {
                    self.session.0.roster.send_replace(roster.clone());
                    let buried = self.bury_overdue().await;
                    if !buried.is_empty() {
                        self.session.0.roster.send_replace(roster.without(&buried));
                    }
                }
                Err(why) => tracing::debug!(%why, "the sessions could not be read"),
            }
            // Everybody's renewals give hints: they shorten the wait, but not to nothing.
            machine.sleep(ttl.pause()).await;
            within(&machine, ttl.poll().saturating_sub(ttl.pause()), hints.changed()).await;
        }
    }

    /// One look at all sessions.
    async fn look(&mut self) -> Result<Roster, ScanError> {
        let (session, timeout) = (&self.session, self.session.ttl().timeout());
        let asked = session.now();
        let read = within(session.machine(), timeout, read_all(session.store())).await;
        let silence = || Err(ScanError::Unavailable("it did not answer in time".into()));
        let entries = read.unwrap_or_else(silence)?;
        let wall_us = session.machine().wall_us();
        let roster = Roster::new(entries).timed(&mut self.clocks, session.key(), wall_us);
        let memory = match session.store().class() {
            Class::A | Class::S => StoreMemory::Keeps,
            Class::B => StoreMemory::MayForget,
        };
        session.0.observer.lock().see(SessionsLook {
            asked,
            arrived: session.now(),
            epoch: session.store().epoch().0,
            memory,
            sessions: roster.sights(),
            longest: roster.longest(),
        });
        Ok(roster)
    }

    /// Buries those whose time is over, and tells whom: as many at once as the store takes, and if one of
    /// them has moved after all, one by one.
    async fn bury_overdue(&mut self) -> Vec<SessionKey> {
        let session = &self.session;
        // Who comes through a server leaves that to servers.
        if session.key().guest().is_some() {
            return Vec::new();
        }
        let mut overdue =
            session.0.observer.lock().overdue(&session.0.holder.lock(), session.now());
        overdue.retain(|(other, _)| other != session.key());
        let mut buried = Vec::new();
        for some in overdue.chunks(session.store().limits().writes) {
            if self.bury(some, &mut buried).await == Burial::Conflict && some.len() > 1 {
                for one in some.chunks(1) {
                    self.bury(one, &mut buried).await;
                }
            }
        }
        buried
    }

    async fn bury(&self, some: &[(SessionKey, Version)], buried: &mut Vec<SessionKey>) -> Burial {
        let session = &self.session;
        let answer = bury(session.store(), some);
        match within(session.machine(), session.ttl().timeout(), answer).await {
            Some(Ok(_)) => {
                for (other, _) in some {
                    tracing::info!(session = %other, "buried: it stood still for too long");
                    buried.push(other.clone());
                }
                Burial::Done
            }
            Some(Err(CommitError::Conflict(_))) => Burial::Conflict,
            Some(Err(_)) | None => Burial::Open,
        }
    }
}

/// What came of a burial.
#[derive(PartialEq, Eq)]
enum Burial {
    Done,
    /// One of them has moved, or is gone: none was buried.
    Conflict,
    /// Not known: the next look will show.
    Open,
}

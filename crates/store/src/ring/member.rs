//! A member that lives in this process: for programs that have a store, and need no server.
//!
//! It is in the ring as long as its session is there, and writes nothing for being alive. It looks at its ring alone, and at each
//! turn that is its own it is told so. Somebody must keep the session: see [`Session::open`].
//!
//! ```no_run
//! # async fn example(session: store::session::Session) -> Result<(), store::ring::RingError> {
//! use store::ring::{Member, RingId};
//!
//! let ring = RingId::new("shop", "night-watch")?;
//! let mut member = Member::join(&session, &ring, "anna").await?;
//! while let Some(part) = member.next().await? {
//!     println!("it is my turn, under token {}", part.token);
//!     if part.accept.is_some() {
//!         member.accept(&part).await?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::RING_ANSWER_MAX;
use engine::ring::MemberName;
use engine::ring::member::{MemberRecord, Visit, next_visit};

use super::key::check_member;
use super::setup::unmoved;
use super::state::{RingRecord, to_value};
use super::view::read;
use super::{Cursors, OwnPart, RingDriver, RingError, RingId, RingPart, RingSettings, Rings};
use crate::machine::within;
use crate::session::Session;
use crate::{Commit, CommitError, Condition};

/// How long one wait for a turn lasts; then the next begins.
const WAIT: Duration = Duration::from_secs(30);

/// How often joining is tried anew when others change the member's record at the same time.
const TRIES_MAX: usize = 20;

/// A member with a session of its own.
pub struct Member {
    session: Session,
    ring: RingId,
    name: MemberName,
    visit: Visit,
    rings: Rings,
    driver: RingDriver,
    cursors: Cursors,
    waiting: VecDeque<OwnPart>,
}

impl Member {
    /// Joins a ring under this name, whoever else has it. It is in the ring when this returns.
    pub async fn join(session: &Session, ring: &RingId, name: &str) -> Result<Self, RingError> {
        let name = check_member(name)?;
        let visit = join(session, ring, &name).await?;
        let settings = RingSettings {
            is_server: |_| false,
            clock_is_good: Arc::new(|| true),
            part: RingPart::LooksAt(ring.clone()),
        };
        let (rings, driver) = Rings::new(session, settings);
        let (session, ring) = (session.clone(), ring.clone());
        let (cursors, waiting) = (Cursors::new(), VecDeque::new());
        Ok(Self { session, ring, name, visit, rings, driver, cursors, waiting })
    }

    /// Its visit.
    pub fn visit(&self) -> Visit {
        self.visit
    }

    /// The next part of a turn that is its own, as soon as there is one. `None` when its session has ended. May be dropped at any
    /// moment, and called again.
    pub async fn next(&mut self) -> Result<Option<OwnPart>, RingError> {
        loop {
            if let Some(part) = self.waiting.pop_front() {
                return Ok(Some(part));
            }
            if self.session.end().is_some() {
                return Ok(None);
            }
            let wait = self.rings.attend(&self.ring, &self.name, self.cursors.clone(), WAIT);
            let (parts, cursors) = tokio::select! {
                biased;
                () = self.driver.run() => return Ok(None),
                told = wait => told?,
            };
            self.waiting.extend(parts);
            self.cursors = cursors;
        }
    }

    /// Accepts a part: only then does it act on it. The token of the part.
    pub async fn accept(&mut self, part: &OwnPart) -> Result<u64, RingError> {
        let subscription = self.ring.subscription(&part.subscription)?;
        let accepted = self.rings.accept(&subscription, part.part, &self.name);
        tokio::select! {
            biased;
            () = self.driver.run() => Err(super::driver::stops()),
            told = accepted => told,
        }
    }

    /// Leaves the ring: it is never chosen again when this returns.
    pub async fn leave(mut self) -> Result<(), RingError> {
        let left = self.rings.leave(&self.ring, &self.name, Some(self.visit));
        tokio::select! {
            biased;
            () = self.driver.run() => Err(super::driver::stops()),
            told = left => told.map(|_| ()),
        }
    }
}

async fn join(session: &Session, ring: &RingId, name: &MemberName) -> Result<Visit, RingError> {
    let (store, machine) = (session.store(), session.machine());
    let (key, mut last) = (ring.member_key(name), None);
    for _ in 0..TRIES_MAX {
        let found = store.get(&key).await?;
        let record = found.as_ref().map(|entry| read::<MemberRecord>(&entry.key, &entry.value));
        let record = record.transpose()?;
        let me = session.key().to_string();
        // A commit of which nothing was heard has landed.
        if let Some(record) = &record
            && Some(record.visit) == last
            && record.session.as_ref() == Some(&me)
        {
            return Ok(record.visit);
        }
        let known = record.as_ref().map(|record| record.visit);
        let visit = next_visit(known.max(last), machine.wall_us());
        let now_ms = super::setup::now(session).0;
        let record = MemberRecord { session: Some(me), own: true, visit, since_ms: now_ms };
        let commit = Commit::new()
            .when(Condition::Present(session.key().key().clone()))
            .when(Condition::Present(ring.ring_key()))
            .when(unmoved(key.clone(), found.as_ref()))
            .put(key.clone(), to_value(&record))
            .put(ring.roll_key(), to_value(&RingRecord { at_ms: now_ms }));
        match within(machine, RING_ANSWER_MAX, store.commit(commit)).await {
            Some(Ok(_)) => return Ok(visit),
            Some(Err(CommitError::Conflict(why))) if *why.condition.key() == ring.ring_key() => {
                return Err(RingError::NoRing(ring.clone()));
            }
            Some(Err(CommitError::Conflict(why))) if why.condition.key() == session.key().key() => {
                return Err(RingError::Unavailable("the session has ended".to_owned()));
            }
            Some(Err(CommitError::Conflict(_))) => {}
            Some(Err(CommitError::Unknown(_))) | None => last = Some(visit),
            Some(Err(why)) => return Err(why.into()),
        }
    }
    Err(RingError::Unavailable("others changed the same again and again".to_owned()))
}

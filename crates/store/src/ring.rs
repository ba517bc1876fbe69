//! Rings: round robin without anybody in charge, on the three verbs of a store.
//!
//! Any number of servers advance the rings of a store. Each turn is one commit, conditional on the subscription's record and on
//! the ring's roll as they were read: the first write wins, and what is in the store is what everybody is told. Nobody holds a
//! lease for it. Members come through any server, which vouches for them with its own session and writes when they join, leave or
//! move, never for being alive; or they have a session of their own, as [`Member`].
//!
//! A node has one [`Rings`], and somebody runs its [`RingDriver`]. The driver is one task: it keeps what it knows of each ring in
//! memory, sleeps until the next turn is due or something is asked of it, and has any number of reads and commits under way. The
//! rules are `engine::ring`'s.
//!
//! - [`view`]: how rings stand, read from the store
//! - [`Feed`]: what happens in a subscription, in order, as the record says
//! - [`Member`]: a member that lives in this process

mod call;
mod change;
mod driver;
mod event;
mod feed;
mod flow;
mod follow;
mod key;
mod member;
mod node;
mod part;
mod roll;
mod setup;
mod state;
mod turn;
pub mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::ring::member::Visit;
use engine::ring::part::NotOffered;
use engine::ring::{PartId, SubscriptionDraft};
use engine::trigger::BadField;
use tokio::sync::{mpsc, oneshot, watch};

use crate::session::{Session, SessionRecord};
use crate::{Commit, CommitError, Key, Refusal, ScanError, Store};

use call::Call;
pub use driver::RingDriver;
pub use event::{BadCursor, Cursor, RingEvent, RingEventKind, TurnPart};
pub use feed::Feed;
pub use key::{RingId, SubscriptionId};
pub use member::Member;
pub use node::{LATE_MS_BOUNDS, ProjectRings, RingStats};

/// What a node says about its rings.
#[derive(Clone)]
pub struct RingSettings {
    /// Which sessions are of nodes that advance rings: they stand in for each other.
    pub is_server: fn(&SessionRecord) -> bool,
    /// Whether the wall clock of this node is to be trusted now: otherwise it takes no turn.
    pub clock_is_good: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether it advances rings, or merely looks.
    pub part: RingPart,
}

/// What a node does with the rings of its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingPart {
    /// It advances all of them.
    Advances,
    /// It looks at one of them, for whoever lives in its process.
    LooksAt(RingId),
}

/// What has to do with rings at a node. Clones are the same.
#[derive(Clone)]
pub struct Rings {
    session: Session,
    calls: mpsc::Sender<Call>,
    stats: watch::Receiver<RingStats>,
    note: Note,
}

/// What is written in the same commit as a change: who made it, say.
pub type Note = Arc<[(Key, Vec<u8>)]>;

/// The same commit, which writes this too.
pub(crate) fn noted(commit: Commit, note: &Note) -> Commit {
    note.iter().fold(commit, |commit, (key, value)| commit.put(key.clone(), value.clone()))
}

/// What a member is told when it was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Its visit: it says this with every further beat, and when it leaves.
    pub visit: Visit,
    /// How soon it is to be heard again.
    pub beat: Duration,
}

/// A part of a turn, as its member is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPart {
    /// The subscription.
    pub subscription: String,
    /// The entry by which it is offered to the member: the cursor to go on after.
    pub cursor: Cursor,
    /// Which part of which turn.
    pub part: PartId,
    /// The slot of the turn. None where only the part is known: it was passed on long after its turn.
    pub slot: Option<engine::instant::Instant>,
    /// How much later than the slot it begins: see `splay_percent`.
    pub delay: Duration,
    /// What to show to whatever the member works on: greater than that of anybody before.
    pub token: u64,
    /// How long there is to accept it, if that has to be done before acting on it.
    pub accept: Option<Duration>,
}

/// How far a member has heard of each subscription.
pub type Cursors = BTreeMap<String, Cursor>;

/// Why something about a ring was not done. Each says what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences below are the documentation of each field")]
pub enum RingError {
    #[error("there is no ring {0}: create it first")]
    NoRing(RingId),
    #[error("the ring {} has no subscription {}: create it first", .0.ring.name, .0.name)]
    NoSubscription(SubscriptionId),
    #[error("{member} is no member of the ring {ring}")]
    NoMember { ring: RingId, member: String },
    #[error("there is a ring {0} already: change its subscriptions, or choose another name")]
    RingExists(RingId),
    #[error("a ring {0} is being deleted: try again in a moment")]
    BeingDeleted(RingId),
    #[error("{why}")]
    BadName { what: &'static str, why: String },
    #[error("{}", .0.iter().map(|bad| format!("{}: {}", bad.pointer, bad.why)).collect::<Vec<_>>().join("; "))]
    Bad(Vec<BadField>),
    #[error("{0}")]
    Limit(String),
    #[error(
        "another process has joined as {member} since, with visit {visit}: join anew without a visit if this one is meant to be it"
    )]
    Superseded { member: String, visit: Visit },
    #[error(
        "visit {visit} of {member} is over, since it left, was silent or was removed: join anew without a visit"
    )]
    VisitOver { member: String, visit: Visit },
    #[error(transparent)]
    NotOffered(#[from] NotOffered),
    #[error("it was changed meanwhile: read it again, and decide anew")]
    Changed,
    #[error("the ring cannot be reached now, try again: {0}")]
    Unavailable(String),
    #[error("whether it was done is unknown: read it, or do the same again; {0}")]
    Unknown(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

impl From<ScanError> for RingError {
    fn from(why: ScanError) -> Self {
        match why {
            ScanError::Refused(why) => Self::Refused(why),
            ScanError::Unavailable(why) => Self::Unavailable(why),
            ScanError::Corrupt(why) => Self::Corrupt(why),
        }
    }
}

impl From<CommitError> for RingError {
    fn from(why: CommitError) -> Self {
        match why {
            CommitError::Refused(why) => Self::Refused(why),
            CommitError::Corrupt(why) => Self::Corrupt(why),
            CommitError::Unavailable(why) => Self::Unavailable(why),
            CommitError::Unknown(why) => Self::Unknown(why),
            CommitError::Conflict(_) => Self::Changed,
        }
    }
}

/// Which revision of a subscription is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever is there, or nothing.
    Anything,
    /// Nothing: it is to be new.
    Nothing,
    /// This one.
    Revision {
        /// Its generation.
        generation: u64,
        /// Its revision.
        revision: u64,
    },
}

/// What became of a subscription that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    Created,
    /// It was there, and is another now.
    Changed,
    /// It was like this already.
    Same,
}

impl Rings {
    /// The rings of a session's store. Somebody must run the driver, which ends when the session does.
    pub fn new(session: &Session, settings: RingSettings) -> (Self, RingDriver) {
        let (calls, inbox) = mpsc::channel(engine::limits::RING_CALLS_MAX);
        let driver = RingDriver::new(session, settings, inbox);
        let (stats, note) = (driver.stats(), Note::default());
        (Self { session: session.clone(), calls, stats, note }, driver)
    }

    /// The same, of which each change writes this too, in its commit: those of [`create`](Self::create), [`delete`](Self::delete),
    /// [`put`](Self::put), [`delete_subscription`](Self::delete_subscription), [`pass_over`](Self::pass_over) and
    /// [`leave`](Self::leave).
    #[must_use]
    pub fn noting(&self, note: Note) -> Self {
        Self { note, ..self.clone() }
    }

    /// The store that they are in.
    pub fn store(&self) -> &Store {
        self.session.store()
    }

    /// What this node did about rings, and word when it did more: for metrics.
    pub fn stats(&self) -> watch::Receiver<RingStats> {
        self.stats.clone()
    }

    /// Makes a ring, with `main` as its first subscription.
    pub async fn create(&self, ring: &RingId, draft: &SubscriptionDraft) -> Result<(), RingError> {
        setup::create(self, ring, draft).await
    }

    /// Deletes a ring with all that it has. What is left of it is cleared away by any server.
    pub async fn delete(&self, ring: &RingId) -> Result<(), RingError> {
        setup::delete(self, ring).await?;
        // It looks now; and by itself before long.
        let _later = self.calls.try_send(Call::Look);
        Ok(())
    }

    /// Makes a subscription, or changes it.
    pub async fn put(
        &self,
        subscription: &SubscriptionId,
        draft: &SubscriptionDraft,
        expected: Expected,
    ) -> Result<Put, RingError> {
        setup::put(self, subscription, draft, expected).await
    }

    /// Deletes a subscription; of one that is made anew under its name, its generation tells it.
    pub async fn delete_subscription(
        &self,
        subscription: &SubscriptionId,
        expected: Expected,
    ) -> Result<(), RingError> {
        setup::delete_subscription(self, subscription, expected).await
    }

    /// Has the next member passed over: who it was.
    pub async fn pass_over(&self, subscription: &SubscriptionId) -> Result<String, RingError> {
        let subscription = subscription.clone();
        let note = Arc::clone(&self.note);
        self.call(|answer| Call::PassOver { subscription, note, answer }).await
    }

    /// Hears a member: it joins, or is known to be alive. Without a visit it joins anew, whoever else has its name; the answer
    /// tells the visit to say from then on. It is in the ring when the answer comes.
    pub async fn hear(
        &self,
        ring: &RingId,
        member: &str,
        visit: Option<Visit>,
    ) -> Result<Heard, RingError> {
        let (ring, member) = (ring.clone(), key::check_member(member)?);
        self.call(|answer| Call::Hear { ring, member, visit, answer }).await
    }

    /// A member leaves; it is never chosen again by this visit once the answer has come. Without a visit, whoever has that name is
    /// removed. The visit that is over.
    pub async fn leave(
        &self,
        ring: &RingId,
        member: &str,
        visit: Option<Visit>,
    ) -> Result<Visit, RingError> {
        let (ring, member) = (ring.clone(), key::check_member(member)?);
        let note = Arc::clone(&self.note);
        self.call(|answer| Call::Leave { ring, member, visit, note, answer }).await
    }

    /// Accepts a part of a turn for a member, which acts on it only when the answer has come. The token of the part. Who asks
    /// again is told so again, for a while.
    pub async fn accept(
        &self,
        subscription: &SubscriptionId,
        part: PartId,
        member: &str,
    ) -> Result<u64, RingError> {
        let (subscription, member) = (subscription.clone(), key::check_member(member)?);
        self.call(|answer| Call::Accept { subscription, part, member, answer }).await
    }

    /// What happens in a subscription after this cursor, or from now on.
    pub async fn follow(
        &self,
        subscription: &SubscriptionId,
        from: Option<Cursor>,
    ) -> Result<Feed, RingError> {
        let subscription = subscription.clone();
        self.call(|answer| Call::Follow { subscription, from, answer }).await
    }

    /// The parts of turns that a member is offered, in all subscriptions of the ring, after these cursors; of a subscription
    /// without one, what is open now and comes from now on. Waits for the first up to this long. What to go on after comes with
    /// them.
    pub async fn attend(
        &self,
        ring: &RingId,
        member: &str,
        after: Cursors,
        wait: Duration,
    ) -> Result<(Vec<OwnPart>, Cursors), RingError> {
        let (ring, member) = (ring.clone(), key::check_member(member)?);
        self.call(|answer| Call::Attend { ring, member, after, wait, answer }).await
    }

    /// Takes no turn from here on, and tells every follower that its feed ends. Call it at the beginning of a clean stop, while
    /// the driver still runs; servers that stay go on with the next turn.
    pub async fn stop(&self) {
        // A driver that has ended has stopped.
        let _ended = self.call(|answer| Call::Stop { answer }).await;
    }

    async fn call<T>(
        &self,
        call: impl FnOnce(oneshot::Sender<Result<T, RingError>>) -> Call,
    ) -> Result<T, RingError> {
        let (answer, answered) = oneshot::channel();
        let unavailable = |why: &str| RingError::Unavailable(why.to_owned());
        self.calls.try_send(call(answer)).map_err(|why| match why {
            mpsc::error::TrySendError::Full(_) => unavailable("too much is asked of rings at once"),
            mpsc::error::TrySendError::Closed(_) => unavailable("this server stops"),
        })?;
        answered.await.map_err(|_| unavailable("this server stops"))?
    }
}

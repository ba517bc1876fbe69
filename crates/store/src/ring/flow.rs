//! What a driver has under way: reads and commits, each a future that ends in what came of it.
//!
//! A flow decides nothing. It asks the store, for no longer than an answer is waited for, and brings back what it heard: what that
//! means is up to the driver, which has seen more by then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::Pin;
use std::sync::Arc;

use engine::limits::RING_ANSWER_MAX;
use engine::ring::member::{MemberRecord, Visit};
use engine::ring::{MemberName, NumberedEntry, TurnRecord};
use futures_util::stream::FuturesUnordered;

use super::call::{Answer, Call};
use super::follow::Recalled;
use super::key::Head;
use super::key::{MEMBERS, read_head};
use super::state::{AskedChange, AskedPart, Members, Mono, RingRecord, to_value};
use super::view::{Kept, kept_after};
use super::{Note, RingError, RingId, SubscriptionId, noted, setup};
use crate::machine::{Machine, within};
use crate::session::Session;
use crate::{Commit, CommitError, Condition, Entry, Hints, Range, ScanError, Store, Version};

/// What came of something.
pub(super) enum Done {
    Polled {
        round: u64,
        heads: Result<Vec<Entry>, ScanError>,
    },
    Looked {
        ring: RingId,
        number: u64,
        seen: Result<SeenRing, ScanError>,
    },
    Wrote {
        write: Box<TurnWrite>,
        answer: Result<Version, CommitError>,
    },
    Read {
        ring: RingId,
        batch: Vec<MemberName>,
        found: Result<Vec<Option<Entry>>, ScanError>,
    },
    Enrolled {
        ring: RingId,
        plan: Vec<Enrolment>,
        exact: bool,
        answer: Result<Version, CommitError>,
    },
    TakenOut {
        ring: RingId,
        several: bool,
        answer: Result<Version, CommitError>,
    },
    Left {
        ring: RingId,
        to: Answer<Visit>,
        left: Result<Visit, RingError>,
    },
    Swept {
        ring: RingId,
    },
    CaughtUp {
        subscription: SubscriptionId,
        follower: u64,
        record: Arc<TurnRecord>,
        kept: Result<Kept, RingError>,
    },
    Recalled {
        call: Call,
        subscription: SubscriptionId,
        recalled: Recalled,
        kept: Result<Kept, RingError>,
    },
    Cleared,
}

/// A ring, as one look showed it.
pub(super) struct SeenRing {
    pub(super) heads: Vec<Entry>,
    /// Its members, if they were read: after the roll.
    pub(super) members: Option<Vec<Entry>>,
}

/// A member that is to be written as this server's.
pub(super) struct Enrolment {
    pub(super) member: MemberName,
    pub(super) record: MemberRecord,
}

/// A commit on the record of a subscription.
pub(super) struct TurnWrite {
    pub(super) subscription: SubscriptionId,
    /// What it replaces.
    pub(super) base: Version,
    pub(super) new: Arc<TurnRecord>,
    pub(super) entries: Vec<Arc<NumberedEntry>>,
    pub(super) purpose: Purpose,
}

/// What a commit on a record is for.
pub(super) enum Purpose {
    /// Turns; and whether it names who was chosen instead of the roll.
    Turns { names_chosen: bool },
    /// Parts pass on.
    Pass,
    /// Parts are accepted: each with its token.
    Accept(Vec<(AskedPart, u64)>),
    /// Somebody wanted a change: and who was passed over.
    Change(AskedChange, Option<MemberName>),
}

/// Something that is to be done at a time.
#[derive(Debug, Clone)]
pub(super) enum Alarm {
    Tick,
    Poll,
    Turn(SubscriptionId, u64),
    Parts(SubscriptionId, u64),
    Look(RingId),
    Flush(RingId),
}

struct Planned {
    at: Mono,
    order: u64,
    alarm: Alarm,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A future that a driver polls among its others.
type Flow<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Whom a hint is for.
pub(super) enum HintOf {
    /// Subscriptions were made or deleted.
    All,
    /// Something of this ring has changed.
    Ring(RingId),
}

/// What a driver has under way, and what it means to do.
pub(super) struct Agenda {
    pub(super) flows: FuturesUnordered<Flow<Done>>,
    pub(super) hints: FuturesUnordered<Flow<(HintOf, Hints)>>,
    alarms: BinaryHeap<Reverse<Planned>>,
    planned: u64,
    session: Session,
}

impl Agenda {
    pub(super) fn new(session: &Session) -> Self {
        Self {
            flows: FuturesUnordered::new(),
            hints: FuturesUnordered::new(),
            alarms: BinaryHeap::new(),
            planned: 0,
            session: session.clone(),
        }
    }

    /// When the next alarm is.
    pub(super) fn next(&self) -> Option<Mono> {
        self.alarms.peek().map(|Reverse(planned)| planned.at)
    }

    /// The next alarm, if its time has come.
    pub(super) fn pop(&mut self, now: Mono) -> Option<Alarm> {
        if self.next()? > now {
            return None;
        }
        self.alarms.pop().map(|Reverse(planned)| planned.alarm)
    }

    pub(super) fn alarm(&mut self, at: Mono, alarm: Alarm) {
        self.planned += 1;
        self.alarms.push(Reverse(Planned { at, order: self.planned, alarm }));
    }

    fn go(&mut self, flow: impl Future<Output = Done> + Send + 'static) {
        self.flows.push(Box::pin(flow));
    }

    fn ends(&self) -> (Store, Arc<dyn Machine>) {
        (self.session.store().clone(), Arc::clone(self.session.machine()))
    }

    pub(super) fn wait_for_hint(&mut self, of: HintOf, mut hints: Hints) {
        self.hints.push(Box::pin(async move {
            hints.changed().await;
            (of, hints)
        }));
    }

    /// Reads all heads below a prefix.
    pub(super) fn poll(&mut self, round: u64, prefix: String) {
        let (store, machine) = self.ends();
        self.go(async move {
            let heads =
                within(&machine, RING_ANSWER_MAX * 3, store.scan_all(Range::prefix(&prefix)));
            let heads = heads.await.unwrap_or_else(|| Err(silent()));
            Done::Polled { round, heads }
        });
    }

    /// Looks at a ring: the roll first, then its members, if the roll has moved since they were read.
    pub(super) fn look(
        &mut self,
        ring: RingId,
        number: u64,
        roll: Option<Version>,
        members: Members,
    ) {
        let (store, machine) = self.ends();
        self.go(async move {
            let look = async {
                let heads = store.scan_all(Range::prefix(&ring.heads())).await?;
                let found =
                    heads.iter().find(|e| matches!(read_head(&e.key), Some((_, Head::Roll))));
                let moved = found.map(|entry| entry.version) != roll;
                let members = if moved || members == Members::Always {
                    Some(store.scan_all(Range::prefix(&ring.members())).await?)
                } else {
                    None
                };
                Ok(SeenRing { heads, members })
            };
            let seen = within(&machine, RING_ANSWER_MAX * 3, look).await;
            Done::Looked { ring: ring.clone(), number, seen: seen.unwrap_or_else(|| Err(silent())) }
        });
    }

    pub(super) fn write(&mut self, write: TurnWrite, commit: Commit) {
        let (store, machine) = self.ends();
        let write = Box::new(write);
        self.go(async move { Done::Wrote { write, answer: send(&store, &machine, commit).await } });
    }

    /// Reads what the store says of these members.
    pub(super) fn read(&mut self, ring: RingId, batch: Vec<MemberName>) {
        let (store, machine) = self.ends();
        self.go(async move {
            let read = async {
                // One page where there are many: fewer than a request for each.
                if batch.len() > 8 {
                    let all = store.scan_all(Range::prefix(&ring.members())).await?;
                    let find = |member: &MemberName| {
                        let key = ring.member_key(member);
                        let at = all.binary_search_by(|entry| entry.key.cmp(&key)).ok()?;
                        Some(all[at].clone())
                    };
                    return Ok(batch.iter().map(find).collect());
                }
                let mut found = Vec::with_capacity(batch.len());
                for member in &batch {
                    found.push(store.get(&ring.member_key(member)).await?);
                }
                Ok(found)
            };
            let found = within(&machine, RING_ANSWER_MAX * 3, read).await;
            let found = found.unwrap_or_else(|| Err(silent()));
            Done::Read { ring: ring.clone(), batch, found }
        });
    }

    pub(super) fn enrol(
        &mut self,
        ring: RingId,
        plan: Vec<Enrolment>,
        exact: bool,
        commit: Commit,
    ) {
        let (store, machine) = self.ends();
        self.go(async move {
            let answer = send(&store, &machine, commit).await;
            Done::Enrolled { ring, plan, exact, answer }
        });
    }

    pub(super) fn take_out(&mut self, ring: RingId, several: bool, commit: Commit) {
        let (store, machine) = self.ends();
        self.go(async move {
            Done::TakenOut { ring, several, answer: send(&store, &machine, commit).await }
        });
    }

    /// Leaves a mark where a member was, also where there is nothing yet: a join that is still under way must not land after it.
    pub(super) fn leave(
        &mut self,
        ring: RingId,
        member: MemberName,
        (visit, note): (Option<Visit>, Note),
        to: Answer<Visit>,
    ) {
        let (store, machine) = self.ends();
        self.go(async move {
            let left = leave(&store, &machine, &ring, &member, (visit, &note));
            let left = within(&machine, RING_ANSWER_MAX * 5, left).await;
            let silent = || Err(RingError::Unknown("the store did not answer in time".into()));
            Done::Left { ring: ring.clone(), to, left: left.unwrap_or_else(silent) }
        });
    }

    pub(super) fn sweep(&mut self, ring: RingId) {
        let session = self.session.clone();
        self.go(async move {
            if let Err(why) = setup::sweep(&session, &ring).await {
                tracing::debug!(%ring, %why, "what is left of a deleted ring is still there");
            }
            Done::Swept { ring }
        });
    }

    pub(super) fn clear_pages(&mut self, subscription: SubscriptionId, generation: u64) {
        let session = self.session.clone();
        self.go(async move {
            if let Err(why) = setup::clear_pages(&session, &subscription, generation).await {
                tracing::debug!(%subscription, %why, "pages of a former generation are still there");
            }
            Done::Cleared
        });
    }

    pub(super) fn catch_up(
        &mut self,
        subscription: SubscriptionId,
        follower: u64,
        record: Arc<TurnRecord>,
        after: u64,
    ) {
        let (store, machine) = self.ends();
        self.go(async move {
            let kept = kept(&store, &machine, &subscription, &record, after).await;
            Done::CaughtUp { subscription, follower, record, kept }
        });
    }

    /// Reads what lies behind memory, for a call that needs it.
    pub(super) fn recall(
        &mut self,
        call: Call,
        subscription: SubscriptionId,
        record: Arc<TurnRecord>,
        after: u64,
        recalled: Recalled,
    ) {
        let (store, machine) = self.ends();
        self.go(async move {
            let kept = kept(&store, &machine, &subscription, &record, after).await;
            Done::Recalled { call, subscription, recalled, kept }
        });
    }
}

async fn kept(
    store: &Store,
    machine: &Arc<dyn Machine>,
    subscription: &SubscriptionId,
    record: &TurnRecord,
    after: u64,
) -> Result<Kept, RingError> {
    let kept = kept_after(store, subscription, record, after);
    let silent = || Err(RingError::Unavailable("the store did not answer in time".into()));
    within(machine, RING_ANSWER_MAX * 3, kept).await.unwrap_or_else(silent)
}

fn silent() -> ScanError {
    ScanError::Unavailable("the store did not answer in time".into())
}

async fn send(
    store: &Store,
    machine: &Arc<dyn Machine>,
    commit: Commit,
) -> Result<Version, CommitError> {
    let answer = within(machine, RING_ANSWER_MAX, store.commit(commit)).await;
    answer.unwrap_or_else(|| Err(CommitError::Unknown("the store did not answer in time".into())))
}

async fn leave(
    store: &Store,
    machine: &Arc<dyn Machine>,
    ring: &RingId,
    member: &MemberName,
    (mut visit, note): (Option<Visit>, &Note),
) -> Result<Visit, RingError> {
    loop {
        let key = ring.member_key(member);
        let found = store.get(&key).await?;
        let record =
            found.as_ref().map(|entry| super::view::read::<MemberRecord>(&entry.key, &entry.value));
        let record = record.transpose()?;
        let over = match (visit, &record) {
            // It is over already, or another one has begun.
            (Some(visit), Some(record)) if record.is_newer_than(visit) => return Ok(visit),
            (Some(visit), _) => visit,
            (None, Some(record)) if record.session.is_some() => record.visit,
            (None, _) => {
                return Err(RingError::NoMember { ring: ring.clone(), member: member.to_string() });
            }
        };
        let now_ms = i64::try_from(machine.wall_us() / 1_000).expect("a thousandth fits");
        visit = Some(over);
        let mark = MemberRecord::mark(over, now_ms);
        let commit = Commit::new()
            .when(Condition::Present(ring.ring_key()))
            .when(setup::unmoved(key.clone(), found.as_ref()))
            .put(key, to_value(&mark))
            .put(ring.roll_key(), to_value(&RingRecord { at_ms: now_ms }));
        match send(store, machine, noted(commit, note)).await {
            Ok(_) => return Ok(over),
            Err(CommitError::Conflict(why)) if *why.condition.key() == ring.ring_key() => {
                return Err(RingError::NoRing(ring.clone()));
            }
            // It moved meanwhile; or it may be done, which the next look tells.
            Err(CommitError::Conflict(_) | CommitError::Unknown(_)) => {}
            Err(CommitError::Unavailable(_)) => machine.sleep(RING_ANSWER_MAX / 20).await,
            Err(why) => return Err(why.into()),
        }
    }
}

/// The member of a key, if it is one.
pub(super) fn member_of(entry: &Entry, ring: &RingId) -> Option<MemberName> {
    debug_assert!(entry.key.as_str().starts_with(MEMBERS), "members were read");
    Some(entry.key.as_str().strip_prefix(ring.members().as_str())?.into())
}

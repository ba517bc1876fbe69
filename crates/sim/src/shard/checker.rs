//! The checker of a shard: sees everything that leaves and every command that is acknowledged.
//!
//! It compares each departure with what is in the store at that moment, and remembers what clients were
//! told, so that it can say when something leaves that should not, or when a word is not kept.

use std::collections::{BTreeMap, BTreeSet};

use engine::id::{RunId, SerialId};
use engine::instant::Instant;
use engine::limits::LOOK_AHEAD_MS;
use engine::past::End;
use engine::policy::{Delivery, Overlap, Policy};
use engine::queue::given::GivenRecord;
use engine::shard::Departure;
use engine::shard::record::{OpenRun, RunRecord, RunState};

use super::node::OwnerNodes;
use super::oracle::{Broken, ObservedRun, RunPlace, SlotOracle};
use super::promise::ShardPromise;
use super::shard_store::{CLUSTER, SHARD};

/// An attempt that left.
#[derive(Debug, Clone)]
struct Trip {
    attempt: u32,
    /// When it is over at the receiver, in true time.
    ends: u64,
    /// Whether anything reached the receiver.
    has_reached: bool,
    /// Whether the receiver took it.
    is_taken: bool,
    /// Whether no answer came.
    is_lost: bool,
    /// The node that makes it.
    node: usize,
    /// When its time is over, in true time.
    ends_by: u64,
}

/// What a receiver makes of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct AttemptFate {
    /// When it is over, in true time.
    pub ends: u64,
    /// When it would be over at the latest.
    pub ends_by: u64,
    /// Whether anything reaches the receiver.
    pub has_reached: bool,
    /// Whether the receiver takes it.
    pub is_taken: bool,
    /// Whether no answer comes.
    pub is_lost: bool,
}

/// Slots that must not leave any more.
#[derive(Debug, Clone)]
struct Quiet {
    /// Those that leave after this,
    from: Instant,
    /// and are not after this,
    to: Option<Instant>,
    /// and are of this generation or an older one.
    generation: u32,
    /// It is a pause that may still last: that somebody asked to end it proves nothing, since a crash may have
    /// made that undone.
    is_pausing: bool,
}

/// What clients were told about a trigger.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of its own")]
struct Word {
    revision: u64,
    is_paused: bool,
    is_cancelled: bool,
    is_deleted: bool,
    /// A deletion was asked for.
    is_going: bool,
}

/// Everything that left, and every word that was given.
#[derive(Default)]
pub struct ShardChecker {
    trips: BTreeMap<ObservedRun, Vec<Trip>>,
    /// The last attempts of each trigger: which, of whom.
    last: BTreeMap<SerialId, BTreeSet<ObservedRun>>,
    ids: BTreeMap<RunId, ObservedRun>,
    is_once: BTreeMap<ObservedRun, bool>,
    quiet: BTreeMap<SerialId, Vec<Quiet>>,
    /// Requests to resume a trigger: ticket, what the clock said, and the generation.
    resumed: BTreeMap<SerialId, Vec<(u64, Instant, u32)>>,
    words: BTreeMap<SerialId, Word>,
    deleted: BTreeMap<SerialId, Instant>,
    /// The other project is disabled, and what leaves after this does not leave.
    disabled: Option<Instant>,
    /// The last ticket of somebody who asked that it be enabled.
    enabled: u64,
    /// Nothing goes wrong.
    pub is_rolling: bool,
    /// How many left.
    pub departures: u64,
}

/// Which node sends an attempt, and when.
#[derive(Clone, Copy)]
pub struct LeavingAttempt<'a> {
    /// The node that sends it.
    pub node: usize,
    /// All nodes, of which one is named as the owner.
    pub cluster: &'a OwnerNodes,
    /// What that node's wall clock shows.
    pub wall: Instant,
    /// When it leaves, in true time.
    pub at: u64,
}

/// What is in the store about a run that leaves.
struct Found {
    run: ObservedRun,
    policy: Policy,
    attempt: u32,
    id: RunId,
    leaves_at: Instant,
}

impl ShardChecker {
    /// An attempt leaves.
    pub fn left(
        &mut self,
        departure: &Departure,
        oracle: &SlotOracle,
        leaving: LeavingAttempt<'_>,
    ) -> Result<ObservedRun, Broken> {
        let LeavingAttempt { node, cluster, wall, at } = leaving;
        self.departures += 1;
        check_named(node, cluster)?;
        let Some(found) = find(departure, oracle) else {
            return Err((ShardPromise::WrittenFirst, format!("{departure:?} is not in the store")));
        };
        let run = found.run;
        let wrong = |promise, what: &str| Err((promise, format!("{run:?}: {what}: {departure:?}")));
        if found.attempt != departure.attempt {
            return wrong(
                ShardPromise::WrittenFirst,
                &format!("attempt {} is stored", found.attempt),
            );
        }
        if departure.run != found.id || *self.ids.entry(found.id).or_insert(run) != run {
            return wrong(ShardPromise::OneId, &found.id.to_string());
        }
        if wall < found.leaves_at || departure.leaves_at != found.leaves_at {
            return wrong(
                ShardPromise::NotBeforeItsInstant,
                &format!("{} at {wall}", found.leaves_at),
            );
        }
        let trips = self.trips.get(&run).map(Vec::as_slice).unwrap_or_default();
        if trips.iter().any(|trip| trip.attempt >= departure.attempt) {
            return wrong(ShardPromise::NumbersGrow, &format!("after {trips:?}"));
        }
        let is_under_way = |trip: &Trip| {
            let ends = if trip.is_taken { trip.ends_by } else { trip.ends };
            ends > at && cluster.is_there(trip.node, at)
        };
        if trips.iter().any(is_under_way) {
            return wrong(ShardPromise::LeftAlone, &format!("after {trips:?}"));
        }
        if self.is_rolling && trips.iter().any(|trip| trip.is_taken) {
            return wrong(ShardPromise::NothingDoubled, &format!("after {trips:?}"));
        }
        let is_once = found.policy.delivery == Delivery::AtMostOnce;
        let is_once = *self.is_once.entry(run).or_insert(is_once);
        if is_once && trips.iter().any(|trip| trip.has_reached) {
            return wrong(ShardPromise::AtMostOnce, &format!("after {trips:?}"));
        }
        if trips.is_empty() && self.is_quiet(run, found.leaves_at) {
            return wrong(ShardPromise::QuietIsQuiet, &format!("at {wall}"));
        }
        let project =
            oracle.triggers.get(&departure.run.trigger).map(|seen| seen.record.id.project);
        if let Some(from) = self.disabled.filter(|from| found.leaves_at > *from)
            && project.is_some_and(|project| !project.is_default())
            && matches!(run, ObservedRun::Slot(_))
        {
            return wrong(
                ShardPromise::QuietIsQuiet,
                &format!("its project is disabled since {from}"),
            );
        }
        if found.policy.overlap != Overlap::Allow
            && let Some(other) = self.under_way(departure.run.trigger, at)
        {
            return wrong(ShardPromise::NoOverlap, &format!("beside {other:?}"));
        }
        Ok(run)
    }

    /// An attempt has left, and waits in its node until it begins.
    pub fn waits(&mut self, run: ObservedRun, attempt: u32, node: usize) {
        let (ends, ends_by) = (u64::MAX, u64::MAX);
        let (has_reached, is_taken, is_lost) = (true, false, false);
        let trip = Trip { attempt, ends, has_reached, is_taken, is_lost, node, ends_by };
        self.trips.entry(run).or_default().push(trip);
        // A notice is at another receiver, and stands in nobody's way.
        if !matches!(run, ObservedRun::Notice(..)) {
            self.last.entry(run.trigger()).or_default().insert(run);
        }
    }

    /// The last attempt of a run begins, and this will become of it.
    pub fn begins(
        &mut self,
        run: ObservedRun,
        fate: AttemptFate,
        cluster: &OwnerNodes,
    ) -> Result<(), Broken> {
        let AttemptFate { ends, ends_by, has_reached, is_taken, is_lost } = fate;
        if let Some(trip) = self.trips.get_mut(&run).and_then(|trips| trips.last_mut()) {
            check_named(trip.node, cluster)?;
            *trip = Trip { ends, has_reached, is_taken, is_lost, ends_by, ..*trip };
        }
        Ok(())
    }

    /// The last attempt of a run will never begin.
    pub fn recalled(&mut self, run: ObservedRun) {
        if let Some(trip) = self.trips.get_mut(&run).and_then(|trips| trips.last_mut()) {
            *trip = Trip { ends: 0, ends_by: 0, has_reached: false, ..*trip };
        }
    }

    /// The last attempt of a run was broken off.
    pub fn aborted(&mut self, run: ObservedRun, at: u64) {
        if let Some(trip) = self.trips.get_mut(&run).and_then(|trips| trips.last_mut()) {
            trip.ends = trip.ends.min(at);
        }
    }

    /// A worker is given a run of a queue, by an owner that decided so at `given.at` of its own clock.
    pub fn given(
        &mut self,
        id: RunId,
        given: &GivenRecord,
        oracle: &SlotOracle,
    ) -> Result<ObservedRun, Broken> {
        let (attempt, at) = (given.attempt, given.at);
        let Some(run) = oracle.queued_run(id) else {
            return Err((ShardPromise::WrittenFirst, format!("{id} is in no queue")));
        };
        let wrong = |promise, what: String| Err((promise, format!("{run:?}: {what}")));
        if *self.ids.entry(id).or_insert(run) != run {
            return wrong(ShardPromise::OneId, id.to_string());
        }
        let trips = self.trips.entry(run).or_default();
        if trips.iter().any(|trip| trip.attempt >= attempt) {
            return wrong(ShardPromise::NumbersGrow, format!("{attempt} after {trips:?}"));
        }
        let is_first = trips.is_empty();
        let (ends, ends_by, node) = (0, 0, 0);
        let (has_reached, is_taken, is_lost) = (true, false, false);
        trips.push(Trip { attempt, ends, has_reached, is_taken, is_lost, node, ends_by });
        let ObservedRun::Slot(slot) = run else { return Ok(run) };
        let generation = oracle.generation(slot.trigger, slot.generation);
        let leaves_at = generation.map_or(slot.at, |generation| generation.leaves_at(slot.at));
        if at < leaves_at {
            return wrong(ShardPromise::NotBeforeItsInstant, format!("{leaves_at} at {at}"));
        }
        if is_first && self.is_quiet(run, leaves_at) {
            return wrong(ShardPromise::QuietIsQuiet, format!("given at {at}"));
        }
        Ok(run)
    }

    /// What a worker will have made of its last attempt of a run.
    pub fn worked(&mut self, run: ObservedRun, is_taken: bool) {
        if let Some(trip) = self.trips.get_mut(&run).and_then(|trips| trips.last_mut()) {
            trip.is_taken = is_taken;
        }
    }

    /// A run of this trigger that is at its receiver.
    fn under_way(&mut self, trigger: SerialId, at: u64) -> Option<ObservedRun> {
        let last = self.last.get_mut(&trigger)?;
        let trips = &self.trips;
        last.retain(|run| trips[run].iter().any(|trip| trip.has_reached && trip.ends > at));
        last.first().copied()
    }

    fn is_quiet(&self, run: ObservedRun, leaves_at: Instant) -> bool {
        let ObservedRun::Slot(slot) = run else { return false };
        let quiet = self.quiet.get(&slot.trigger);
        quiet.into_iter().flatten().any(|quiet| {
            leaves_at > quiet.from
                && quiet.to.is_none_or(|to| slot.at <= to)
                && slot.generation <= quiet.generation
        })
    }

    /// Whether what is recorded of a run is what happened.
    pub(super) fn check_record(&self, run: ObservedRun, place: RunPlace) -> Result<(), Broken> {
        let trips = self.trips.get(&run).map(Vec::as_slice).unwrap_or_default();
        let is_true = match place {
            RunPlace::Ended(End::Unknown) if self.is_rolling => {
                if trips.last().is_some_and(|trip| trip.is_lost) {
                    return Ok(());
                }
                return Err((
                    ShardPromise::NothingDoubled,
                    format!("{run:?} is unknown after {trips:?}"),
                ));
            }
            RunPlace::Open
            | RunPlace::Record(_)
            | RunPlace::Queued(_)
            | RunPlace::Ended(End::Cancelled | End::Unknown) => true,
            RunPlace::Ended(End::Succeeded) => trips.iter().any(|trip| trip.is_taken),
            RunPlace::Ended(End::Failed | End::Dead) => !trips.is_empty(),
            RunPlace::Ended(End::Expired) | RunPlace::Skipped(_) => trips.is_empty(),
        };
        if is_true {
            return Ok(());
        }
        Err((ShardPromise::RecordsAreTrue, format!("{run:?} is {place:?} after {trips:?}")))
    }

    /// Whether what is under way elsewhere has left.
    pub(super) fn check_remote(&self, run: ObservedRun, attempt: u32) -> Result<(), Broken> {
        let mut trips = self.trips.get(&run).into_iter().flatten();
        if trips.any(|trip| trip.attempt == attempt) {
            return Ok(());
        }
        Err((ShardPromise::RecordsAreTrue, format!("attempt {attempt} of {run:?} never left")))
    }

    /// When a trigger was deleted, by the clock of whoever did it.
    pub fn deleted_at(&self, trigger: SerialId) -> Option<Instant> {
        self.deleted.get(&trigger).copied()
    }
}

/// What clients ask, and are told.
impl ShardChecker {
    /// Somebody asks that a trigger be resumed.
    pub fn resuming(&mut self, trigger: SerialId, ticket: u64, wall: Instant, generation: u32) {
        self.resumed.entry(trigger).or_default().push((ticket, wall, generation));
        self.words.entry(trigger).or_default().is_paused = false;
        for quiet in self.pausing(trigger) {
            quiet.to = Some(quiet.to.map_or(wall, |to| to.min(wall)));
            quiet.generation = quiet.generation.min(generation);
        }
    }

    /// Somebody was told that a trigger is resumed: its pauses are over.
    pub fn was_resumed(&mut self, trigger: SerialId) {
        for quiet in self.pausing(trigger) {
            quiet.is_pausing = false;
        }
    }

    fn pausing(&mut self, trigger: SerialId) -> impl Iterator<Item = &mut Quiet> {
        let quiet = self.quiet.get_mut(&trigger).into_iter().flatten();
        quiet.filter(|quiet| quiet.is_pausing)
    }

    /// Somebody asks for another schedule of a trigger that is not paused: pauses that are over were about
    /// schedules up to this one, whatever the clocks said.
    pub fn changing(&mut self, trigger: SerialId, generation: u32) {
        for quiet in self.quiet.get_mut(&trigger).into_iter().flatten() {
            // One that ended by itself, by a clock that was ahead, is over as well.
            if quiet.is_pausing || quiet.generation == u32::MAX {
                quiet.generation = quiet.generation.min(generation);
                quiet.is_pausing = false;
            }
        }
    }

    /// Somebody asks that a trigger be paused, which is not: pauses that ended by themselves, by a clock that was ahead,
    /// were about schedules up to this one.
    pub fn pausing_again(&mut self, trigger: SerialId, generation: u32) {
        for quiet in self.quiet.get_mut(&trigger).into_iter().flatten() {
            if quiet.generation == u32::MAX {
                quiet.generation = generation;
            }
        }
    }

    /// Somebody was told that the other project is disabled: what leaves after the look-ahead does not leave.
    pub fn was_disabled(&mut self, ticket: u64, from: Instant) {
        if self.enabled < ticket {
            self.disabled = Some(Instant(from.0 + LOOK_AHEAD_MS));
        }
    }

    /// Somebody asks that it be enabled.
    pub fn enabling(&mut self, ticket: u64) {
        (self.enabled, self.disabled) = (ticket, None);
    }

    /// Somebody asks that a trigger be cancelled.
    pub fn cancelling(&mut self, trigger: SerialId, ticket: u64) {
        self.resumed.entry(trigger).or_default().push((ticket, Instant::LAST, u32::MAX));
        self.words.entry(trigger).or_default().is_paused = false;
    }

    /// Somebody asks that a trigger be deleted.
    pub fn deleting(&mut self, trigger: SerialId, wall: Instant) {
        self.deleted.insert(trigger, wall);
        self.words.entry(trigger).or_default().is_going = true;
    }

    /// Somebody was told that a trigger has this revision.
    pub fn was_written(&mut self, trigger: SerialId, revision: u64) {
        let word = self.words.entry(trigger).or_default();
        word.revision = word.revision.max(revision);
    }

    /// Somebody was told that the schedule of a trigger has changed.
    pub fn was_changed(&mut self, trigger: SerialId, generation: u32, from: Instant) {
        self.keep_quiet(trigger, Quiet { from, to: None, generation, is_pausing: false });
    }

    fn keep_quiet(&mut self, trigger: SerialId, quiet: Quiet) {
        self.quiet.entry(trigger).or_default().push(quiet);
    }

    /// Somebody was told that a trigger is paused. It was not before, so earlier pauses are over.
    pub fn was_paused(
        &mut self,
        trigger: SerialId,
        ticket: u64,
        from: Instant,
        until: Option<Instant>,
    ) {
        let mut resumed = self.resumed.get(&trigger).into_iter().flatten();
        let resumed = resumed.find(|(later, ..)| *later > ticket);
        let to = [until, resumed.map(|(_, wall, _)| *wall)].into_iter().flatten().min();
        let generation = resumed.map_or(u32::MAX, |(.., generation)| *generation);
        self.was_resumed(trigger);
        self.keep_quiet(trigger, Quiet { from, to, generation, is_pausing: true });
        self.words.entry(trigger).or_default().is_paused = to.is_none();
    }

    /// Somebody was told that a trigger never fires again.
    pub fn was_cancelled(&mut self, trigger: SerialId, from: Instant) {
        let generation = u32::MAX - 1;
        self.keep_quiet(trigger, Quiet { from, to: None, generation, is_pausing: false });
        let word = self.words.entry(trigger).or_default();
        (word.is_cancelled, word.is_paused) = (true, false);
    }

    /// Somebody was told that a trigger is gone.
    pub fn was_deleted(&mut self, trigger: SerialId, from: Instant) {
        self.was_cancelled(trigger, from);
        self.words.entry(trigger).or_default().is_deleted = true;
    }

    /// Whether every word is kept.
    pub fn check_words(&self, oracle: &SlotOracle) -> Result<(), Broken> {
        for (trigger, word) in &self.words {
            let seen = oracle.triggers.get(trigger);
            let is_kept = match seen {
                None => word.is_going || word.revision == 0,
                Some(_) if word.is_deleted => false,
                Some(seen) => {
                    seen.record.revision >= word.revision
                        && (!word.is_paused || seen.state.paused.is_some())
                        && (!word.is_cancelled || seen.state.cancelled.is_some())
                }
            };
            if !is_kept {
                let state = seen.map(|seen| &seen.state);
                let what = format!("{trigger}: {word:?}, but {state:?}");
                return Err((ShardPromise::AcknowledgedHolds, what));
            }
        }
        Ok(())
    }

    /// Somebody was told that a run on demand has this id.
    pub fn was_started(&self, id: RunId, oracle: &SlotOracle) -> Result<(), Broken> {
        if oracle.has_demanded(id) {
            return Ok(());
        }
        Err((ShardPromise::AcknowledgedHolds, format!("{id} was started, and is nowhere")))
    }
}

fn check_named(node: usize, cluster: &OwnerNodes) -> Result<(), Broken> {
    if node == cluster.named {
        return Ok(());
    }
    Err((ShardPromise::OneSends, format!("node {node} sends, and {} is named", cluster.named)))
}

/// What the store says about an attempt: its run is open, or has a record that says that it is under way.
fn find(departure: &Departure, oracle: &SlotOracle) -> Option<Found> {
    let trigger = departure.run.trigger;
    let records = || {
        oracle.runs.iter().filter(|(_, record)| {
            let is_it = record.trigger == trigger && record.slot == departure.slot;
            is_it && record.state == RunState::Running
        })
    };
    let id_of = |(sequence, record): (&u64, &RunRecord)| record.id(SHARD, *sequence, CLUSTER);
    let named = records().find(|found| id_of(*found) == departure.run);
    let open = OpenRun { trigger, slot: departure.slot };
    if named.is_none() && oracle.open.contains(&open) {
        let run = oracle.opened(open)?;
        let ObservedRun::Slot(slot) = run else { return None };
        let leaves_at = oracle.generation(trigger, slot.generation)?.leaves_at(slot.at);
        let policy = oracle.triggers.get(&trigger)?.definition.policy;
        return Some(Found { run, policy, attempt: 1, id: SlotOracle::id_of(slot), leaves_at });
    }
    let found = named.or_else(|| records().find(|(_, record)| record.generation.is_some()))?;
    let (id, (sequence, record)) = (id_of(found), found);
    let run = SlotOracle::recorded(*sequence, record);
    let leaves_at = match run {
        ObservedRun::Slot(slot) => oracle.generation(trigger, slot.generation)?.leaves_at(slot.at),
        ObservedRun::Demand(..) | ObservedRun::Notice(..) => record.leaves_at,
    };
    Some(Found { run, policy: record.policy, attempt: record.attempt, id, leaves_at })
}

//! What is written together.
//!
//! The units of a batch, as records: a key that several of them write is written once, and the past of all of them
//! is one record.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::id::{SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::OPEN_RUNS_MAX;
use crate::mutant::{Mutant, active};
use crate::past::exception::exception_key;
use crate::past::{Line, Segment};
use crate::queue::backlog::ClaimOrder;
use crate::queue::dead::{DeadRecord, DeadRun, dead_key};
use crate::queue::pick::{PicksRecord, RunRole, chosen_key, part_ends_key, picks_key};
use crate::queue::record::{self as queue, BodyRecord, QueueNameRecord, RateRecord};
use crate::queue::submitted::{GivenPlace, RunPlace};
use crate::queue::unfinished::QueueDelta;
use crate::record::encode;

use super::memory::Delta;
use super::outbox::Unit;
use super::queues::QueuedRun;
use super::record::{self, FORMAT, HeadRecord, LagRecord, NameRecord, TriggerState};

/// What a commit of a shard writes.
#[derive(Debug)]
pub struct ShardBatch {
    /// The body of its head.
    pub head: HeadRecord,
    /// Every other key that it writes.
    pub puts: Vec<Put>,
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// This key has this value.
    Value(String, Vec<u8>),
    /// This key is gone.
    Gone(String),
}

/// How much fits into a commit.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Writes, the head's among them.
    pub writes: usize,
    /// Bytes of all keys and values.
    pub bytes: usize,
    /// Bytes of one value.
    pub value_bytes: usize,
}

impl Room {
    /// Room for whatever a unit is: one that fits no batch with others goes alone.
    pub(super) const MAX: Self =
        Self { writes: usize::MAX, bytes: usize::MAX, value_bytes: usize::MAX };
}

/// Bytes that a head may have.
const HEAD_BYTES: usize = OPEN_RUNS_MAX * 32 + 1_024;

/// The writes of a batch as it grows. A key that is written twice has its last value.
#[derive(Default)]
pub(super) struct Pile {
    puts: BTreeMap<PutPlace, Option<Vec<u8>>>,
    /// Hosts that lag, or not any more: most units of a host that lags move its mark, which is written once.
    lags: BTreeMap<u64, Option<LagRecord>>,
    bytes: usize,
    /// The writes of the unit that is being added.
    more: Vec<(PutPlace, Option<Vec<u8>>)>,
    more_bytes: usize,
    /// The past, as a JSON list without its brackets.
    lines: Vec<u8>,
    /// The exceptions among it, likewise, and when the newest one was written.
    exceptions: Vec<u8>,
    newest: Option<Instant>,
}

/// Where a write goes. Runs of queues are many, so their keys are spelled out once the batch is full: until then they
/// are compared as numbers, in the same order. A key has one place: what is about a run never goes by its text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PutPlace {
    Key(String),
    Body(SerialId, ClaimOrder),
    Claimed(u64),
    Given(u64),
    Queued(SerialId, ClaimOrder),
}

impl PutPlace {
    fn into_key(self, shard: ShardId) -> String {
        let given = GivenPlace::Nowhere;
        let role = RunRole::Plain;
        let place = |queue, order| RunPlace { queue, order, has_body: false, given, role };
        match self {
            Self::Key(key) => key,
            Self::Body(queue, order) => queue::body_key(shard, &place(queue, order)),
            Self::Claimed(first) => queue::claimed_key(shard, first),
            Self::Given(sequence) => queue::given_key(shard, sequence),
            Self::Queued(queue, order) => queue::queued_key(shard, &place(queue, order)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Key(key) => key.len(),
            Self::Body(..) | Self::Claimed(_) | Self::Given(_) | Self::Queued(..) => {
                queue::RUN_KEY_BYTES_MAX
            }
        }
    }
}

impl Pile {
    /// Adds a unit, if there is room for it beside the head.
    pub(super) fn take(&mut self, shard: ShardId, unit: &Unit, room: Room) -> bool {
        let before = (self.lines.len(), self.exceptions.len(), self.newest);
        let lags = unit.changes.iter().filter_map(|change| match change {
            Delta::Lag(origin, _) => Some((*origin, self.lags.get(origin).copied())),
            _ => None,
        });
        let lags: Vec<_> = lags.collect();
        for change in &unit.changes {
            self.add(shard, change);
        }
        let fits = self.is_within(room);
        if fits {
            self.puts.extend(self.more.drain(..));
            self.bytes += self.more_bytes;
        } else {
            // It is taken back by cutting off what it added.
            self.lines.truncate(before.0);
            self.exceptions.truncate(before.1);
            self.newest = before.2;
            self.more.clear();
            for (origin, before) in lags {
                match before {
                    Some(lag) => self.lags.insert(origin, lag),
                    None => self.lags.remove(&origin),
                };
            }
        }
        self.more_bytes = 0;
        fits
    }

    fn add(&mut self, shard: ShardId, change: &Delta) {
        match change {
            Delta::Trigger(written) => {
                let id = written.0.id;
                self.put(record::trigger_key(shard, id.serial), &written.0);
                let name = record::name_key(id.project, &written.1.name);
                self.put(name, &NameRecord { id });
            }
            Delta::State(serial, state) => {
                let key = record::state_key(shard, *serial);
                if active(Mutant::PositionUnwritten) {
                    self.put(key, &TriggerState { position: None, ..state.clone() });
                } else {
                    self.put(key, state);
                }
            }
            Delta::Gone(id, name) => {
                self.delete(record::trigger_key(shard, id.serial));
                self.delete(record::state_key(shard, id.serial));
                self.delete(record::name_key(id.project, name));
            }
            Delta::Run(sequence, run) => self.put(record::run_key(shard, *sequence), &**run),
            Delta::RunGone(sequence) => self.delete(record::run_key(shard, *sequence)),
            Delta::Stopped(project, Some(stopped)) => {
                self.put(record::stopped_key(shard, *project), stopped);
            }
            Delta::Stopped(project, None) => self.delete(record::stopped_key(shard, *project)),
            Delta::Lag(origin, lag) => _ = self.lags.insert(*origin, *lag),
            Delta::Past(line) => self.add_line(line),
            Delta::Raw(Put::Value(key, value)) => self.put_raw(key.clone(), value.clone()),
            Delta::Raw(Put::Gone(key)) => self.delete(key.clone()),
            Delta::Queue(queue) => {
                self.put(queue::queue_key(shard, queue.id.serial), &**queue);
                let name = queue::queue_name_key(queue.id.project, &queue.name);
                self.put(name, &QueueNameRecord { id: queue.id });
            }
            Delta::QueueGone(id, name) => {
                self.delete(queue::queue_key(shard, id.serial));
                self.delete(queue::rate_key(shard, id.serial));
                self.delete(picks_key(shard, id.serial));
                self.delete(queue::queue_name_key(id.project, name));
            }
            Delta::Submitted(run) => self.add_queued(run),
            Delta::Queued(change) | Delta::Decided(change) => self.add_change(shard, change),
            Delta::Died(dead) => self.add_dead(shard, &dead.0, &dead.1),
            Delta::DeadGone(dead) => {
                let place = &dead.place;
                self.delete(dead_key(shard, place.queue, place.order.sequence));
                self.write(PutPlace::Queued(place.queue, place.order), None);
                if place.has_body {
                    self.write(PutPlace::Body(place.queue, place.order), None);
                }
            }
            Delta::Picks(queue, picks) => {
                let unwritten = active(Mutant::PositionUnwritten);
                let position = if unwritten { Box::default() } else { picks.position.clone() };
                let picks = PicksRecord { position, workers: picks.workers.clone() };
                self.put(picks_key(shard, *queue), &picks);
            }
            Delta::Unique(queue, unique) => {
                self.put(queue::unique_key(shard, *queue, &unique.key), &**unique);
            }
            Delta::UniqueGone(queue, key) => self.delete(queue::unique_key(shard, *queue, key)),
            Delta::Reserved(project, name, Some(reserved)) => {
                self.put(record::reserved_key(shard, *project, name), reserved);
            }
            Delta::Reserved(project, name, None) => {
                self.delete(record::reserved_key(shard, *project, name));
            }
            Delta::DecidedThrough(_) | Delta::Open(_) | Delta::Shut(_) | Delta::News(_) => {}
        }
    }

    fn add_queued(&mut self, QueuedRun { place, record }: &QueuedRun) {
        let queued = PutPlace::Queued(place.queue, place.order);
        match &record.action {
            Some(action) if place.has_body => {
                self.write(queued, Some(encode(FORMAT, &record.without_action())));
                let body = encode(FORMAT, &BodyRecord { action: action.clone() });
                self.write(PutPlace::Body(place.queue, place.order), Some(body));
            }
            _ => self.write(queued, Some(encode(FORMAT, &**record))),
        }
    }

    /// What the run was about stays where it is.
    fn add_dead(&mut self, shard: ShardId, dead: &DeadRun, record: &DeadRecord) {
        let RunPlace { queue, order, given, role, .. } = dead.place;
        self.put(dead_key(shard, queue, order.sequence), record);
        if role.is_whole() {
            self.forget_parts(shard, order.sequence);
        }
        if given == GivenPlace::Own {
            self.write(PutPlace::Given(order.sequence), None);
        }
    }

    fn add_change(&mut self, shard: ShardId, change: &QueueDelta) {
        match change {
            QueueDelta::Given(sequence, given) => {
                self.write(PutPlace::Given(*sequence), Some(encode(FORMAT, &**given)));
            }
            QueueDelta::Claimed(claimed) => {
                if let Some(first) = claimed.given.shared {
                    self.write(PutPlace::Claimed(first), Some(encode(FORMAT, &**claimed)));
                }
            }
            QueueDelta::ClaimedGone(first) => self.write(PutPlace::Claimed(*first), None),
            QueueDelta::Rate(queue, window) => {
                let given = window.clone();
                self.put(queue::rate_key(shard, *queue), &RateRecord { given });
            }
            QueueDelta::Chosen(whole, chosen) => {
                self.put(chosen_key(shard, *whole), &**chosen);
            }
            QueueDelta::PartsEnded(whole, ends) => {
                self.put(part_ends_key(shard, *whole), &**ends);
            }
            QueueDelta::Ended(place) => {
                match place.role {
                    // Its run says what it is.
                    RunRole::Part => {}
                    RunRole::Plain => self.write(PutPlace::Queued(place.queue, place.order), None),
                    RunRole::Whole(_) => {
                        self.write(PutPlace::Queued(place.queue, place.order), None);
                        self.forget_parts(shard, place.order.sequence);
                    }
                }
                if place.has_body {
                    self.write(PutPlace::Body(place.queue, place.order), None);
                }
                if place.given == GivenPlace::Own {
                    self.write(PutPlace::Given(place.order.sequence), None);
                }
            }
            // These follow from records that are written as such.
            QueueDelta::Limits(..) | QueueDelta::NoQueue(_) | QueueDelta::Submitted(_) => {}
        }
    }

    /// Which parts a run had is known no more.
    fn forget_parts(&mut self, shard: ShardId, whole: u64) {
        self.delete(chosen_key(shard, whole));
        self.delete(part_ends_key(shard, whole));
    }

    fn add_line(&mut self, line: &Line) {
        Segment::append(&mut self.lines, line);
        if line.is_exception() {
            Segment::append(&mut self.exceptions, &line.clone().without_responses());
            self.newest = self.newest.max(Some(line.written()));
        }
    }

    fn put<T: Serialize>(&mut self, key: String, value: &T) {
        self.put_raw(key, encode(FORMAT, value));
    }

    fn put_raw(&mut self, key: String, value: Vec<u8>) {
        self.write(PutPlace::Key(key), Some(value));
    }

    fn delete(&mut self, key: String) {
        self.write(PutPlace::Key(key), None);
    }

    fn write(&mut self, place: PutPlace, value: Option<Vec<u8>>) {
        self.more_bytes += place.len() + value.as_ref().map_or(0, Vec::len);
        self.more.push((place, value));
    }

    /// Whether it fits with the unit that is being added, beside the head.
    fn is_within(&self, room: Room) -> bool {
        let lines = self.lines.len() + SEGMENT_BYTES;
        // The head, the segment, and its exceptions if it has any.
        let beside = if self.exceptions.is_empty() { 2 } else { 3 };
        let puts = self.puts.len() + self.more.len() + self.lags.len();
        let bytes = self.bytes + self.more_bytes + self.lags.len() * LAG_BYTES;
        puts + beside <= room.writes
            && lines <= room.value_bytes
            && bytes + lines + self.exceptions.len() + SEGMENT_BYTES + HEAD_BYTES <= room.bytes
    }

    pub(super) fn into_puts(mut self, shard: ShardId, number: u64) -> Vec<Put> {
        for (origin, lag) in std::mem::take(&mut self.lags) {
            let key = record::lag_key(shard, origin);
            match lag {
                Some(lag) => self.put(key, &lag),
                None => self.delete(key),
            }
        }
        self.puts.extend(self.more);
        let past = record::past_key(shard, number);
        let segment =
            (!self.lines.is_empty()).then(|| Put::Value(past, Segment::enclose(&self.lines)));
        let exceptions = self.newest.map(|newest| {
            Put::Value(exception_key(shard, newest, number), Segment::enclose(&self.exceptions))
        });
        let puts =
            self.puts.into_iter().map(|(place, value)| match (place.into_key(shard), value) {
                (key, Some(value)) => Put::Value(key, value),
                (key, None) => Put::Gone(key),
            });
        let puts: Vec<Put> = puts.chain(segment).chain(exceptions).collect();
        debug_assert!(is_each_key_once(&puts), "a key has one place");
        puts
    }
}

/// Bytes that the record of a host that lags takes, and its key.
const LAG_BYTES: usize = 256;

fn is_each_key_once(puts: &[Put]) -> bool {
    let key = |put: &Put| match put {
        Put::Value(key, _) | Put::Gone(key) => key.clone(),
    };
    puts.iter().map(key).collect::<BTreeSet<String>>().len() == puts.len()
}

/// Bytes around the lines of a segment, and its key.
const SEGMENT_BYTES: usize = 128;

//! The oracle: where every slot is, by what is in the store and nothing else.
//!
//! After each batch that landed the oracle looks at what the batch changed, and at the head. It knows the
//! schedule of every generation that there ever was, asks it for its slots one by one, and finds each that
//! is decided in exactly one place: open in the head, in a record of its own, in a queue, or past. It shares no code
//! with the engine but the schedule and the form of the records.

pub mod catch_up;
mod check;
mod notice;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use engine::id::{Birth, ProjectId, RunId, SerialId};
use engine::instant::Instant;
use engine::limits::OPEN_RUNS_MAX;
use engine::notice::Occasion;
use engine::past::{End, Finished, Line, Reason, Segment};
use engine::policy::Overlap;
use engine::queue::dead::dead_at;
use engine::queue::record::{self as queue, QueuedRecord};
use engine::record::decode;
use engine::schedule::Schedule;
use engine::shard::record::{
    self, HeadRecord, LagRecord, Mark, OpenRun, ReportRecord, RunRecord, RunState, StoppedRecord,
    TriggerRecord, TriggerState,
};
use engine::shard::{Put, ShardBatch};
use engine::trigger::{Definition, Draft};

use super::checker::ShardChecker;
use super::promise::ShardPromise;
use super::shard_store::{CLUSTER, SHARD};
use catch_up::Missed;

/// A slot of a generation of a trigger's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The trigger's id.
    pub trigger: SerialId,
    /// Which of its schedules, counted from 1.
    pub generation: u32,
    /// The instant at which it is due.
    pub at: Instant,
}

/// A run: of a slot, or on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObservedRun {
    /// Of this slot.
    Slot(Slot),
    /// On demand, by its trigger and number.
    Demand(SerialId, u64),
    /// A notice, by its trigger and number.
    Notice(SerialId, u64),
}

impl ObservedRun {
    /// The trigger that it is a run of.
    pub fn trigger(self) -> SerialId {
        match self {
            Self::Slot(slot) => slot.trigger,
            Self::Demand(trigger, _) | Self::Notice(trigger, _) => trigger,
        }
    }
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPlace {
    /// In the head.
    Open,
    /// In a record of its own.
    Record(u64),
    /// In a queue.
    Queued(u64),
    /// Past: it ended.
    Ended(End),
    /// Past: it was skipped.
    Skipped(Reason),
}

/// A schedule that counts, or counted.
pub struct Generation {
    /// The schedule that says which slots there are.
    pub schedule: Schedule,
    name: Box<str>,
    limit: Option<u64>,
    /// The next slot that was not seen decided, and when it leaves.
    next: Option<(Instant, Instant)>,
    /// Slots that were launched, if there is a limit.
    launched: BTreeSet<Instant>,
    is_over: bool,
}

/// A trigger, as it is in the store.
pub struct SeenTrigger {
    /// Its record in the store.
    pub record: TriggerRecord,
    /// The definition that its draft stands for.
    pub definition: Definition,
    /// Its state in the store: cursor, pause and so on.
    pub state: TriggerState,
}

/// What was found wrong.
pub type Broken = (ShardPromise, String);

/// Where everything is.
#[derive(Default)]
pub struct SlotOracle {
    /// Triggers in the store.
    pub triggers: BTreeMap<SerialId, SeenTrigger>,
    /// Records of unfinished runs in the store.
    pub runs: BTreeMap<u64, RunRecord>,
    /// Unfinished runs that queues have.
    pub queued: BTreeMap<u64, ObservedRun>,
    /// Open runs in the store.
    pub open: BTreeSet<OpenRun>,
    /// The mark of the shard, as the head has it.
    pub decided_through: Mark,
    /// Projects that are disabled, or not up to date again.
    stopped: BTreeMap<ProjectId, StoppedRecord>,
    /// Hosts that cannot keep up, by origin.
    lags: BTreeMap<u64, LagRecord>,
    generations: BTreeMap<(SerialId, u32), Generation>,
    places: BTreeMap<ObservedRun, RunPlace>,
    told: BTreeMap<SerialId, notice::ToldNotices>,
    /// Reports of former owners in the store.
    reports: BTreeMap<String, ReportRecord>,
    /// How often which things happened.
    pub counts: OracleCounts,
}

/// How often which things happened, by what landed in the store.
#[derive(Debug, Clone, Copy, Default)]
pub struct OracleCounts {
    /// Batches that landed.
    pub commits: u64,
    /// Slots that were skipped.
    pub skipped: u64,
    /// Runs that ended.
    pub ended: u64,
}

impl Generation {
    /// When a slot leaves: never as late as the next one.
    pub fn leaves_at(&self, slot: Instant) -> Instant {
        let leaves_at = self.schedule.leaves_at(slot, &self.name);
        self.schedule.next(slot).map_or(leaves_at, |next| leaves_at.min(Instant(next.0 - 1)))
    }

    fn step(&mut self, after: Instant) {
        self.next = self.schedule.next(after).map(|slot| (slot, self.leaves_at(slot)));
    }

    /// Whether its last run was had before this slot.
    fn is_used_up(&self, slot: Instant) -> bool {
        self.limit.is_some_and(|limit| self.launched.len() as u64 >= limit)
            && self.launched.last().is_some_and(|last| slot > *last)
    }
}

impl SeenTrigger {
    fn host(&self) -> u64 {
        self.definition.target.origin()
    }

    fn cursor(&self) -> Instant {
        self.state.cursor.unwrap_or(self.record.since)
    }
}

impl SlotOracle {
    /// The schedule of a generation.
    pub fn generation(&self, trigger: SerialId, number: u32) -> Option<&Generation> {
        self.generations.get(&(trigger, number))
    }

    /// Where a run is.
    pub fn place(&self, run: ObservedRun) -> Option<RunPlace> {
        self.places.get(&run).copied()
    }

    /// A run of a slot that is open.
    pub fn opened(&self, open: OpenRun) -> Option<ObservedRun> {
        let generation = self.triggers.get(&open.trigger)?.record.generation;
        Some(ObservedRun::Slot(Slot { trigger: open.trigger, generation, at: open.slot }))
    }

    /// A run that has a record.
    pub fn recorded(sequence: u64, record: &RunRecord) -> ObservedRun {
        match record.generation {
            Some(generation) => {
                ObservedRun::Slot(Slot { trigger: record.trigger, generation, at: record.slot })
            }
            None if record.notice.is_some() => ObservedRun::Notice(record.trigger, sequence),
            None => ObservedRun::Demand(record.trigger, sequence),
        }
    }

    /// The id that a run of a slot has.
    pub fn id_of(slot: Slot) -> RunId {
        let letters = Birth::Slot(slot.generation).letters(CLUSTER);
        RunId { shard: SHARD, trigger: slot.trigger, slot: slot.at, letters }
    }

    /// Looks at a batch that has just landed.
    pub fn landed(
        &mut self,
        batch: &ShardBatch,
        missed: &Missed,
        checker: &ShardChecker,
    ) -> Result<(), Broken> {
        self.counts.commits += 1;
        let mut moves = Moves { lagged: self.lags.clone(), ..Moves::default() };
        let mut lines = Vec::new();
        let awaited = self.awaited(batch);
        for put in &batch.puts {
            self.read(put, &mut moves, &mut lines, checker)?;
        }
        self.check_reports(&awaited)?;
        self.read_head(&batch.head, &mut moves)?;
        for line in &lines {
            self.file(line, &mut moves)?;
        }
        catch_up::check(self, missed, &moves, &lines)?;
        notice::check(self, &moves.news, &lines)?;
        self.move_all(moves, checker)?;
        self.check_triggers()
    }

    fn read(
        &mut self,
        put: &Put,
        moves: &mut Moves,
        lines: &mut Vec<Line>,
        checker: &ShardChecker,
    ) -> Result<(), Broken> {
        let (key, value) = match put {
            Put::Value(key, value) => (key, Some(value.as_slice())),
            Put::Gone(key) => (key, None),
        };
        let mut pieces = key.rsplit('/');
        let (name, kind) = (pieces.next().unwrap_or_default(), pieces.next().unwrap_or_default());
        if key.starts_with("name/") {
            return Ok(());
        }
        // What a dead run was about stays where it was, to be carried out again. The past says how the run ended.
        if let Some((_, sequence)) = dead_at(SHARD, key) {
            moves.from.extend(self.queued.remove(&sequence));
            moves.dead.insert(sequence);
            return Ok(());
        }
        if let Some((_, order)) = queue::placed_at(SHARD, key) {
            self.read_queued(order.sequence, value, moves);
            return Ok(());
        }
        match kind {
            "trigger" => self.read_trigger(name.parse().expect("an id"), value, moves, checker),
            "moved" => {
                let Some(value) = value else { return Ok(()) };
                let serial = name.parse().expect("an id");
                match self.triggers.get_mut(&serial) {
                    Some(seen) => seen.state = body(value),
                    None => _ = moves.early.insert(serial, body(value)),
                }
                Ok(())
            }
            "stopped" => {
                let project = ProjectId(name.parse().expect("a number"));
                match value {
                    Some(value) => _ = self.stopped.insert(project, body(value)),
                    None => _ = self.stopped.remove(&project),
                }
                Ok(())
            }
            "lag" => {
                let origin = record::lag_of(SHARD, key).expect("an origin");
                moves.lagging.insert(origin);
                match value {
                    Some(value) => _ = self.lags.insert(origin, body(value)),
                    None => _ = self.lags.remove(&origin),
                }
                Ok(())
            }
            "run" => self.read_run(name.parse().expect("a number"), value, moves),
            "report" if value.is_none() => {
                self.reports.remove(key);
                Ok(())
            }
            // What did not succeed is there once more, for those who look for nothing else. The world of queues looks at
            // what workers were given.
            "odd" | "queues" | "given" | "claimed" => Ok(()),
            "past" => {
                let value = value.expect("the past is never taken back");
                lines.extend(Segment::from_bytes(value).expect("a segment").lines);
                Ok(())
            }
            _ => Err((ShardPromise::OnePlace, format!("nobody knows the key {key}"))),
        }
    }

    fn read_trigger(
        &mut self,
        serial: SerialId,
        value: Option<&[u8]>,
        moves: &mut Moves,
        checker: &ShardChecker,
    ) -> Result<(), Broken> {
        moves.changed.insert(serial);
        let former = self.triggers.remove(&serial);
        let Some(value) = value else {
            if let Some(former) = former {
                let until = checker.deleted_at(serial).unwrap_or(Instant::FIRST);
                let until = until.max(former.cursor());
                moves.over.push((serial, former.record.generation, until, former.state.cancelled));
            }
            return Ok(());
        };
        let record: TriggerRecord = body(value);
        let draft: Draft = serde_json::from_str(record.draft.get()).expect("a draft");
        let definition = draft.build(Instant(0)).map_err(|faults| {
            (ShardPromise::NoPanic, format!("a stored draft is refused: {faults:?}"))
        })?;
        let number = record.generation;
        if let Some(former) = former.as_ref().filter(|former| former.record.generation != number) {
            let cancelled = former.state.cancelled;
            moves.over.push((serial, former.record.generation, record.since, cancelled));
        }
        let state = moves.early.remove(&serial).or(former.map(|former| former.state));
        self.generations.entry((serial, number)).or_insert_with(|| {
            let (schedule, name) = (definition.schedule.clone(), definition.name.clone());
            let (launched, next) = (BTreeSet::new(), None);
            let limit = schedule.limit().map(NonZeroU64::get);
            let mut counted = Generation { schedule, name, limit, next, launched, is_over: false };
            counted.step(record.since);
            counted
        });
        let state = state.unwrap_or_default();
        self.triggers.insert(serial, SeenTrigger { record, definition, state });
        Ok(())
    }

    fn read_run(
        &mut self,
        sequence: u64,
        value: Option<&[u8]>,
        moves: &mut Moves,
    ) -> Result<(), Broken> {
        let former = self.runs.remove(&sequence);
        if let Some(former) = &former {
            moves.from.push(Self::recorded(sequence, former));
        }
        let Some(value) = value else {
            moves.gone.extend(former.map(|former| (sequence, former.policy.overlap)));
            return Ok(());
        };
        let record: RunRecord = body(value);
        let run = Self::recorded(sequence, &record);
        if let Some(former) = &former {
            let is_same = Self::recorded(sequence, former) == run;
            let steps = i64::from(record.attempt) - i64::from(former.attempt);
            if !is_same || !(-1..=1).contains(&steps) {
                let what = format!("{run:?}: {former:?} became {record:?}");
                return Err((ShardPromise::NumbersGrow, what));
            }
        } else {
            moves.news.extend(record.notice.map(|occasion| (record.trigger, occasion)));
            moves.fresh.push(run);
        }
        moves.to.push((run, RunPlace::Record(sequence)));
        moves.remote.extend(record.remote.is_some().then_some((run, record.attempt)));
        self.runs.insert(sequence, record);
        Ok(())
    }

    fn read_queued(&mut self, sequence: u64, value: Option<&[u8]>, moves: &mut Moves) {
        moves.from.extend(self.queued.remove(&sequence));
        let Some(value) = value.filter(|_| !moves.dead.contains(&sequence)) else { return };
        let record: QueuedRecord = body(value);
        let slot = record.trigger.expect("nobody submits anything here");
        let trigger = slot.serial;
        let run = match slot.generation {
            Some(generation) => ObservedRun::Slot(Slot { trigger, generation, at: record.born }),
            None => ObservedRun::Demand(trigger, sequence),
        };
        moves.to.push((run, RunPlace::Queued(sequence)));
        moves.fresh.push(run);
        moves.enqueued.insert(run);
        // One that had a record keeps to what that said, whatever became of its trigger since.
        let recorded = self.runs.get(&sequence).map(|former| former.policy.overlap);
        let recorded = recorded.or(moves.gone.get(&sequence).copied());
        let seen = self.triggers.get(&trigger).map(|seen| seen.definition.policy.overlap);
        if recorded.or(seen).is_some_and(|overlap| overlap != Overlap::Allow) {
            moves.alone.push(run);
        }
        self.queued.insert(sequence, run);
    }

    /// A former owner has written what came of an attempt.
    pub fn report_landed(&mut self, key: &str, report: &ReportRecord) {
        self.reports.insert(key.to_owned(), report.clone());
    }

    /// The reports that a batch deletes although somebody waits for them: of which run, and of which attempt.
    fn awaited(&self, batch: &ShardBatch) -> Vec<(u64, u32)> {
        let deleted = batch.puts.iter().filter_map(|put| match put {
            Put::Gone(key) => Some((record::report_of(SHARD, key)?, self.reports.get(key)?)),
            Put::Value(..) => None,
        });
        let is_awaited = |(sequence, attempt): (u64, u32), report: &ReportRecord| {
            self.runs.get(&sequence).is_some_and(|run| {
                let sender = run.remote.as_ref().map(|remote| &remote.sender);
                run.attempt == attempt && sender == Some(&report.sender)
            })
        };
        deleted
            .filter(|(about, report)| is_awaited(*about, report))
            .map(|(about, _)| about)
            .collect()
    }

    /// What was reported is not waited for any more.
    fn check_reports(&self, awaited: &[(u64, u32)]) -> Result<(), Broken> {
        let is_awaited = |(sequence, attempt): &&(u64, u32)| {
            self.runs.get(sequence).is_some_and(|run| {
                run.attempt == *attempt && run.remote.is_some() && run.state == RunState::Running
            })
        };
        match awaited.iter().find(is_awaited) {
            Some(lost) => Err((ShardPromise::ReportsCount, format!("that of {lost:?} is lost"))),
            None => Ok(()),
        }
    }

    /// The run that is in its place as this open one.
    fn placed_open(&self, open: OpenRun) -> Option<ObservedRun> {
        let is_it = |(run, place): &(&ObservedRun, &RunPlace)| {
            matches!(run, ObservedRun::Slot(slot) if slot.at == open.slot)
                && **place == RunPlace::Open
        };
        self.places.range(all_of(open)).find(is_it).map(|(run, _)| *run)
    }

    fn read_head(&mut self, head: &HeadRecord, moves: &mut Moves) -> Result<(), Broken> {
        if head.open.len() > OPEN_RUNS_MAX {
            return Err((ShardPromise::FitsRoom, format!("{} runs are open", head.open.len())));
        }
        let open: BTreeSet<OpenRun> = head.open.iter().copied().collect();
        // A new schedule may have launched the same instant for which the old one was taken back.
        let is_another = |both: &&OpenRun| {
            moves.changed.contains(&both.trigger) && self.opened(**both) != self.placed_open(**both)
        };
        let others: BTreeSet<OpenRun> =
            self.open.intersection(&open).filter(is_another).copied().collect();
        for shut in self.open.difference(&open).chain(&others) {
            // A trigger may have changed since it was launched, or be gone.
            moves.from.extend(self.placed_open(*shut));
        }
        for launched in open.difference(&self.open).chain(&others) {
            let Some(run) = self.opened(*launched) else {
                return Err((
                    ShardPromise::OnePlace,
                    format!("{launched:?} is open and has no trigger"),
                ));
            };
            moves.to.push((run, RunPlace::Open));
            moves.fresh.push(run);
        }
        (self.open, self.decided_through) = (open, head.decided_through);
        Ok(())
    }

    fn file(&mut self, line: &Line, moves: &mut Moves) -> Result<(), Broken> {
        match line {
            Line::Run(finished) => {
                self.counts.ended += 1;
                moves.to.push((run_of(finished), RunPlace::Ended(finished.end)));
            }
            Line::Skip(skip) => {
                let wrong =
                    |what: &str| Err((ShardPromise::RangesCount, format!("{what}: {skip:?}")));
                let Some(generation) = self.generations.get(&(skip.trigger, skip.generation))
                else {
                    return wrong("a skip of no schedule");
                };
                let (mut slots, mut after) = (Vec::new(), Instant(skip.from.0 - 1));
                while let Some(at) = generation.schedule.next(after).filter(|at| *at <= skip.to) {
                    slots.push(at);
                    after = at;
                }
                let bounds = (slots.first().copied(), slots.last().copied());
                if bounds != (Some(skip.from), Some(skip.to)) {
                    return wrong("no slots there");
                }
                if slots.len() as u64 != skip.count {
                    return wrong(&format!("{} slots there", slots.len()));
                }
                self.counts.skipped += skip.count;
                let (trigger, generation) = (skip.trigger, skip.generation);
                moves.to.extend(slots.into_iter().map(|at| {
                    let run = ObservedRun::Slot(Slot { trigger, generation, at });
                    (run, RunPlace::Skipped(skip.reason))
                }));
            }
        }
        Ok(())
    }
}

/// What a batch moves.
#[derive(Default)]
struct Moves {
    /// Runs that are no longer where they were.
    from: Vec<ObservedRun>,
    /// Runs that are somewhere now.
    to: Vec<(ObservedRun, RunPlace)>,
    /// Runs that were not there before, or were open.
    fresh: Vec<ObservedRun>,
    /// Hosts that lagged before,
    lagged: BTreeMap<u64, LagRecord>,
    /// and those of which the batch says that they do, or do no more.
    lagging: BTreeSet<u64>,
    /// Triggers whose text was written.
    changed: BTreeSet<SerialId>,
    /// Schedules that no longer count, up to when they did, and when they were cancelled.
    over: Vec<(SerialId, u32, Instant, Option<Instant>)>,
    /// Notices that were not there before.
    news: Vec<(SerialId, Occasion)>,
    /// What records that are gone said about overlaps, by the numbers of their runs.
    gone: BTreeMap<u64, Overlap>,
    /// Runs of queues that are dead, by their numbers.
    dead: BTreeSet<u64>,
    /// Runs that were enqueued,
    enqueued: BTreeSet<ObservedRun>,
    /// and those of them that must not be beside others of their trigger.
    alone: Vec<ObservedRun>,
    /// Attempts that are said to be under way elsewhere.
    remote: Vec<(ObservedRun, u32)>,
    /// What moved of triggers that come later in the batch.
    early: BTreeMap<SerialId, TriggerState>,
}

fn body<T: serde::de::DeserializeOwned>(value: &[u8]) -> T {
    decode(value, record::FORMAT).expect("what the engine writes can be read")
}

fn run_of(finished: &Finished) -> ObservedRun {
    let trigger = finished.trigger;
    match (finished.generation, finished.sequence) {
        (Some(generation), _) => ObservedRun::Slot(Slot { trigger, generation, at: finished.slot }),
        (None, sequence) => {
            let sequence = sequence.expect("what is no slot has a number");
            if finished.notice.is_some() {
                ObservedRun::Notice(trigger, sequence)
            } else {
                ObservedRun::Demand(trigger, sequence)
            }
        }
    }
}

/// All generations of a slot, and those of slots between.
fn all_of(open: OpenRun) -> RangeInclusive<ObservedRun> {
    let slot = |generation, at| ObservedRun::Slot(Slot { trigger: open.trigger, generation, at });
    slot(0, open.slot)..=slot(u32::MAX, open.slot)
}

//! What a shard knows, and the only place where that changes.
//!
//! [`Memory::apply`] is total: whatever was decided or was found in the store can be applied, and live
//! work and recovery apply the same changes. A trigger takes few bytes here: its schedule and its rules
//! are shared with all that have the same, and what the user wrote stays in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::hash::{hash, mix};
use crate::id::{Birth, ProjectId, RunId, ShardId, TriggerId, Unique};
use crate::instant::Instant;
use crate::past::Line;
use crate::policy::Policy;
use crate::schedule::Schedule;
use crate::trigger::{Definition, Labels};
use crate::webhook::Webhook;

use super::batch::Put;
use super::kind::{Kind, Kinds};
use super::record::{Mark, OpenRun, RunRecord, StoppedRecord, TriggerRecord, TriggerState};
use super::usage::Ledger;

/// One step from one state to the next.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// There is this trigger, or it has another text.
    Trigger(Box<(TriggerRecord, Definition)>),
    /// What moves of a trigger has moved.
    State(Unique, TriggerState),
    /// There is no trigger with this id and this name any more.
    Gone(TriggerId, Box<str>),
    /// There is this unfinished run, or it is somewhere else.
    Run(u64, Arc<RunRecord>),
    /// There is no such unfinished run any more.
    RunGone(u64),
    /// A project is disabled or being enabled in this way, or neither any more.
    Stopped(ProjectId, Option<StoppedRecord>),
    /// The mark has moved.
    Fired(Mark),
    /// This run was launched.
    Open(OpenRun),
    /// This run is open no more.
    Shut(OpenRun),
    /// This is past. Memory keeps none of it.
    Past(Line),
    /// What is past is kept elsewhere. Memory keeps none of it.
    Raw(Put),
}

impl Change {
    /// Whether it has no record of its own: it is in the head, or among what is past.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Self::Fired(_) | Self::Open(_) | Self::Shut(_) | Self::Past(_) => true,
            Self::Trigger(_)
            | Self::State(..)
            | Self::Gone(..)
            | Self::Run(..)
            | Self::RunGone(_)
            | Self::Stopped(..)
            | Self::Raw(_) => false,
        }
    }
}

/// A trigger, as small as may be.
#[derive(Debug)]
pub(super) struct Trigger {
    pub(super) unique: Unique,
    /// From when on its schedule counts.
    pub(super) since: Instant,
    pub(super) kind: Arc<Kind>,
    /// Its name, its path, its body and its labels, one after the other.
    text: Box<str>,
    state: Option<Box<TriggerState>>,
    pub(super) generation: u32,
    pub(super) revision: u32,
    path_at: u8,
    body_at: u16,
    has_body: bool,
    labels_at: u32,
}

impl Trigger {
    pub(super) fn name(&self) -> &str {
        &self.text[..usize::from(self.path_at)]
    }

    pub(super) fn path(&self) -> &str {
        &self.text[usize::from(self.path_at)..usize::from(self.body_at)]
    }

    pub(super) fn body(&self) -> Option<&str> {
        self.has_body.then(|| &self.text[usize::from(self.body_at)..self.labels_at as usize])
    }

    pub(super) fn labels(&self) -> &str {
        &self.text[self.labels_at as usize..]
    }

    pub(super) fn project(&self) -> ProjectId {
        self.kind.project
    }

    pub(super) fn schedule(&self) -> &Schedule {
        &self.kind.schedule
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.kind.policy
    }

    /// Every slot at or before this is decided.
    pub(super) fn cursor(&self) -> Instant {
        self.state.as_deref().and_then(|state| state.cursor).unwrap_or(self.since)
    }

    /// When it was first made.
    pub(super) fn created(&self) -> Instant {
        self.unique.birth()
    }

    /// What it sends, and where to.
    pub(super) fn webhook(&self) -> Webhook {
        let form = (*self.kind.form).clone();
        Webhook { form, path: self.path().into(), body: self.body().map(Into::into) }
    }

    /// Whether it is this already.
    pub(super) fn is(&self, definition: &Definition) -> bool {
        self.webhook() == definition.webhook
            && *self.policy() == definition.policy
            && *self.schedule() == definition.schedule
            && self.labels() == definition.labels.as_str()
    }

    /// How many runs are left, if there is a limit.
    pub(super) fn remaining(&self) -> Option<u64> {
        let state = self.state.as_deref().and_then(|state| state.remaining);
        state.or_else(|| self.schedule().limit().map(std::num::NonZeroU64::get))
    }

    /// When a slot leaves.
    pub(super) fn leaves(&self, slot: Instant) -> Instant {
        self.schedule().leaves_at(slot, self.name())
    }

    /// What it is, as it was built.
    pub(super) fn definition(&self) -> Definition {
        Definition {
            name: self.name().into(),
            labels: Labels::kept(self.labels()),
            schedule: self.schedule().clone(),
            webhook: self.webhook(),
            policy: *self.policy(),
        }
    }

    /// What has moved, to be changed and written whole.
    pub(super) fn state(&self) -> TriggerState {
        self.state.as_deref().cloned().unwrap_or_default()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.paused.is_some())
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.cancelled.is_some())
    }

    /// Since when it will never fire again.
    pub(super) fn cancelled(&self) -> Option<Instant> {
        self.state.as_deref().and_then(|state| state.cancelled)
    }

    pub(super) fn failures(&self) -> u32 {
        self.state.as_deref().map_or(0, |state| state.failures)
    }
}

/// The state of a shard.
pub(super) struct Memory {
    pub(super) shard: ShardId,
    pub(super) cluster: u64,
    pub(super) fired: Mark,
    pub(super) open: BTreeSet<OpenRun>,
    pub(super) sequence: u64,
    pub(super) stopped: BTreeMap<ProjectId, StoppedRecord>,
    pub(super) runs: BTreeMap<u64, Arc<RunRecord>>,
    /// How many of them are notices.
    pub(super) notices: usize,
    runs_of: BTreeSet<(Unique, u64)>,
    places: Places,
    /// Places by the hash of their trigger's unique part, and of its name: the texts stay where they are.
    by_unique: HashTable<u32>,
    by_name: HashTable<u32>,
    kinds: Kinds,
    pub(super) youngest: Unique,
    /// How many triggers are so.
    pub(super) paused: usize,
    pub(super) cancelled: usize,
    pub(super) usage: Ledger,
}

impl Memory {
    pub(super) fn new(shard: ShardId, cluster: u64, kinds: Kinds) -> Self {
        Self {
            shard,
            cluster,
            fired: Mark::default(),
            open: BTreeSet::new(),
            sequence: 0,
            stopped: BTreeMap::new(),
            runs: BTreeMap::new(),
            notices: 0,
            runs_of: BTreeSet::new(),
            places: Places::default(),
            by_unique: HashTable::new(),
            by_name: HashTable::new(),
            kinds,
            youngest: Unique(0),
            paused: 0,
            cancelled: 0,
            usage: Ledger::default(),
        }
    }

    /// Makes a change. The only mutator.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Trigger(written) => self.write(&written.0, &written.1),
            Change::State(unique, state) => {
                if let Some(place) = self.place(*unique)
                    && let Some(trigger) = self.places.get_mut(place)
                {
                    self.paused -= usize::from(trigger.is_paused());
                    self.cancelled -= usize::from(trigger.is_cancelled());
                    trigger.state = Some(Box::new(state.clone()));
                    self.paused += usize::from(trigger.is_paused());
                    self.cancelled += usize::from(trigger.is_cancelled());
                }
            }
            Change::Gone(id, _) => self.forget(id.unique),
            Change::Run(sequence, run) => {
                self.sequence = self.sequence.max(*sequence);
                let run = self.sharing(run);
                self.runs_of.insert((run.lane(), *sequence));
                self.notices += usize::from(run.notice.is_some());
                let former = self.runs.insert(*sequence, run);
                let was_notice = former.is_some_and(|former| former.notice.is_some());
                self.notices -= usize::from(was_notice);
            }
            Change::RunGone(sequence) => {
                if let Some(run) = self.runs.remove(sequence) {
                    self.runs_of.remove(&(run.lane(), *sequence));
                    self.notices -= usize::from(run.notice.is_some());
                }
            }
            Change::Stopped(project, Some(stopped)) => {
                self.stopped.insert(*project, *stopped);
            }
            Change::Stopped(project, None) => {
                self.stopped.remove(project);
            }
            Change::Fired(mark) => self.fired = *mark,
            Change::Open(run) => {
                self.open.insert(*run);
            }
            Change::Shut(run) => {
                self.open.remove(run);
            }
            Change::Past(_) | Change::Raw(_) => {}
        }
    }

    /// A run that shares what it sends with another one of its trigger: a hundred thousand may wait.
    fn sharing(&self, run: &Arc<RunRecord>) -> Arc<RunRecord> {
        let other = self.runs_of(run.lane()).next().map(|sequence| &self.runs[&sequence].webhook);
        match other {
            Some(webhook) if !Arc::ptr_eq(webhook, &run.webhook) && *webhook == run.webhook => {
                Arc::new(RunRecord { webhook: Arc::clone(webhook), ..(**run).clone() })
            }
            Some(_) | None => Arc::clone(run),
        }
    }

    fn write(&mut self, record: &TriggerRecord, definition: &Definition) {
        let unique = record.id.unique;
        let former = self.place(unique);
        if let Some(place) = former {
            self.vacate(place);
        }
        let (name, path) = (&*definition.name, &*definition.webhook.path);
        let body = definition.webhook.body.as_deref();
        let labels = definition.labels.as_str();
        let text = [name, path, body.unwrap_or_default(), labels].concat().into_boxed_str();
        let trigger = Trigger {
            unique,
            since: record.since,
            kind: self.kinds.of(record.id.project, definition),
            state: None,
            generation: record.generation,
            revision: u32::try_from(record.revision).unwrap_or(u32::MAX),
            labels_at: u32::try_from(text.len() - labels.len()).expect("a body is short"),
            text,
            path_at: u8::try_from(name.len()).expect("a name is short"),
            body_at: u16::try_from(name.len() + path.len()).expect("a URL is short"),
            has_body: body.is_some(),
        };
        self.usage.add(&trigger);
        let place = self.places.put(former, trigger);
        let places = &self.places;
        if former.is_none() {
            let rehash = |place: &u32| hash_of_unique(places.at(*place).unique);
            self.by_unique.insert_unique(hash_of_unique(unique), place, rehash);
        }
        let rehash = |place: &u32| hash_of_name(places.at(*place).name());
        self.by_name.insert_unique(hash_of_name(name), place, rehash);
        self.youngest = self.youngest.max(unique);
    }

    fn forget(&mut self, unique: Unique) {
        if let Some(place) = self.place(unique) {
            let found = self.by_unique.find_entry(hash_of_unique(unique), |found| *found == place);
            if let Ok(entry) = found {
                entry.remove();
            }
            self.vacate(place);
            self.places.free.push(place);
        }
    }

    fn vacate(&mut self, place: u32) {
        let hash = hash_of_name(self.places.at(place).name());
        if let Ok(entry) = self.by_name.find_entry(hash, |found| *found == place) {
            entry.remove();
        }
        let trigger = self.places.take(place);
        self.paused -= usize::from(trigger.is_paused());
        self.cancelled -= usize::from(trigger.is_cancelled());
        self.usage.remove(&trigger);
    }

    /// Where a trigger is.
    pub(super) fn place(&self, unique: Unique) -> Option<u32> {
        let is_it = |place: &u32| self.places.at(*place).unique == unique;
        self.by_unique.find(hash_of_unique(unique), is_it).copied()
    }

    /// The trigger at a place that is in use.
    pub(super) fn at(&self, place: u32) -> &Trigger {
        self.places.at(place)
    }

    pub(super) fn trigger(&self, unique: Unique) -> Option<&Trigger> {
        self.place(unique).map(|place| self.at(place))
    }

    pub(super) fn named(&self, project: ProjectId, name: &str) -> Option<&Trigger> {
        let is_it = |place: &u32| {
            let found = self.places.at(*place);
            found.name() == name && found.project() == project
        };
        self.by_name.find(hash_of_name(name), is_it).map(|place| self.at(*place))
    }

    /// The places that are in use.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.by_unique.iter().copied()
    }

    /// The trigger at a place, if there is one.
    pub(super) fn used(&self, place: u32) -> Option<&Trigger> {
        let place = place as usize;
        self.places.chunks.get(place / CHUNK)?.get(place % CHUNK)?.as_ref()
    }

    /// There is no place from here on.
    pub(super) fn places_end(&self) -> u32 {
        u32::try_from(self.places.chunks.len() * CHUNK).expect("fewer triggers than that")
    }

    pub(super) fn triggers(&self) -> impl Iterator<Item = &Trigger> {
        self.places.chunks.iter().flatten().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.by_unique.len()
    }

    /// Whether a slot is decided.
    pub(super) fn is_decided(&self, trigger: &Trigger, slot: Instant) -> bool {
        slot <= trigger.cursor()
            || Mark(trigger.leaves(slot), trigger.unique) <= self.mark_of(trigger)
    }

    /// The first slot that is not decided, and when it leaves.
    pub(super) fn undecided(&self, trigger: &Trigger) -> Option<(Instant, Instant)> {
        let schedule = trigger.schedule();
        let with_leave = |slot| (slot, trigger.leaves(slot));
        let mark = self.mark_of(trigger).0;
        let mut from = trigger.cursor();
        if mark > from && schedule.is_jittered() {
            // Jitter never reaches the next slot, so at most the last one is held back beyond the mark.
            match schedule.last(from, mark) {
                Some(slot) if !self.is_decided(trigger, slot) => return Some(with_leave(slot)),
                Some(_) | None => from = mark,
            }
        } else {
            from = from.max(Instant(mark.0 - 1));
        }
        let slot = schedule.next(from)?;
        if self.is_decided(trigger, slot) {
            return schedule.next(slot).map(with_leave);
        }
        Some(with_leave(slot))
    }

    /// The open runs of a trigger.
    pub(super) fn open_of(&self, unique: Unique) -> impl Iterator<Item = OpenRun> {
        let from = OpenRun { trigger: unique, slot: Instant(i64::MIN) };
        let to = OpenRun { trigger: unique, slot: Instant(i64::MAX) };
        self.open.range(from..=to).copied()
    }

    /// The unfinished runs of a trigger that have a record, but for notices.
    pub(super) fn runs_of(&self, unique: Unique) -> impl Iterator<Item = u64> {
        self.runs_of.range((unique, 0)..=(unique, u64::MAX)).map(|(_, sequence)| *sequence)
    }

    pub(super) fn id_of(&self, trigger: &Trigger) -> TriggerId {
        TriggerId { shard: self.shard, project: trigger.project(), unique: trigger.unique }
    }

    pub(super) fn run_id(&self, trigger: Unique, slot: Instant, birth: Birth) -> RunId {
        RunId { shard: self.shard, trigger, slot, letters: birth.letters(self.cluster) }
    }
}

fn hash_of_unique(unique: Unique) -> u64 {
    mix(unique.0)
}

fn hash_of_name(name: &str) -> u64 {
    hash(name, "name")
}

/// Triggers in pieces of a fixed size, so that a million more never move those that are there.
#[derive(Default)]
struct Places {
    chunks: Vec<Vec<Option<Trigger>>>,
    free: Vec<u32>,
}

/// Triggers in a piece.
const CHUNK: usize = 256;

impl Places {
    fn at(&self, place: u32) -> &Trigger {
        let place = place as usize;
        self.chunks[place / CHUNK][place % CHUNK].as_ref().expect("a place that is in use")
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut Trigger> {
        let place = place as usize;
        self.chunks[place / CHUNK][place % CHUNK].as_mut()
    }

    fn take(&mut self, place: u32) -> Trigger {
        let place = place as usize;
        self.chunks[place / CHUNK][place % CHUNK].take().expect("a place that is in use")
    }

    /// Puts a trigger where it was, or where there is room.
    fn put(&mut self, former: Option<u32>, trigger: Trigger) -> u32 {
        if let Some(place) = former.or_else(|| self.free.pop()) {
            self.chunks[place as usize / CHUNK][place as usize % CHUNK] = Some(trigger);
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunks = self.chunks.len();
        let chunk = self.chunks.last_mut().expect("just made, if there was none");
        chunk.push(Some(trigger));
        u32::try_from((chunks - 1) * CHUNK + chunk.len() - 1).expect("fewer triggers than that")
    }
}

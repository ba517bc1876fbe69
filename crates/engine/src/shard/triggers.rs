//! Triggers: the part of a shard that knows what they are, and up to where their slots are decided.
//!
//! A trigger takes few bytes here: its schedule and its rules are shared with all that have the same, and what the user
//! wrote stays in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::hash::{hash, mix};
use crate::id::{ProjectId, SerialId};
use crate::instant::Instant;
use crate::limits::TRIGGERS_PER_SHARD_MAX;
use crate::policy::Policy;
use crate::queue::feed::{Feed, FeedForm};
use crate::schedule::Schedule;
use crate::target::Target;
use crate::trigger::{Definition, Labels};
use crate::webhook::Webhook;

use super::kind::{TargetForm, TriggerKind, TriggerKinds};
use super::name::ReservedNames;
use super::record::{HeadRecord, LagRecord, Mark, StoppedRecord, TriggerRecord, TriggerState};
use super::usage::Usage;
use super::view::TriggerView;

/// A trigger, as small as may be.
#[derive(Debug)]
pub(super) struct Trigger {
    pub(super) serial: SerialId,
    /// From when on its schedule counts.
    pub(super) since: Instant,
    pub(super) kind: Arc<TriggerKind>,
    /// Its name, its path, its body or action, and its labels, one after the other.
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

    pub(super) fn view(&self) -> TriggerView<'_> {
        let (name, schedule) = (self.name(), self.schedule());
        let (serial, since, state) = (self.serial, self.since, self.state.as_deref());
        TriggerView { serial, name, schedule, since, state }
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
        self.view().cursor()
    }

    /// Where its runs go.
    pub(super) fn target(&self) -> Target {
        let (path, body) = (self.path(), self.body().map(Into::into));
        match &self.kind.form {
            TargetForm::Webhook(form) => {
                Target::Webhook(Webhook { form: Arc::clone(form), path: path.into(), body })
            }
            TargetForm::Queue(form) => {
                Target::Queue(Feed { form: Arc::clone(form), action: body.unwrap_or_default() })
            }
        }
    }

    /// Which queue it feeds, and how; none, if it calls a webhook.
    pub(super) fn feeds(&self) -> Option<&FeedForm> {
        match &self.kind.form {
            TargetForm::Webhook(_) => None,
            TargetForm::Queue(form) => Some(form),
        }
    }

    /// The origin of the host that its runs go to.
    pub(super) fn host(&self) -> Option<u64> {
        self.kind.host
    }

    /// Whether it is this already.
    pub(super) fn is(&self, definition: &Definition) -> bool {
        self.target() == definition.target
            && *self.policy() == definition.policy
            && *self.schedule() == definition.schedule
            && self.labels() == definition.labels.as_str()
    }

    /// How many runs are left, if there is a limit.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.view().remaining()
    }

    pub(super) fn leaves_at(&self, slot: Instant) -> Instant {
        self.view().leaves_at(slot)
    }

    /// What it is, as it was built.
    pub(super) fn definition(&self) -> Definition {
        Definition {
            name: self.name().into(),
            labels: Labels::kept(self.labels()),
            schedule: self.schedule().clone(),
            target: self.target(),
            policy: *self.policy(),
        }
    }

    /// Its state, to be changed and written whole.
    pub(super) fn state(&self) -> TriggerState {
        self.state.as_deref().cloned().unwrap_or_default()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.paused.is_some())
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled().is_some()
    }

    /// Whether it has slots that are due: it is neither paused nor cancelled, and its limit of runs is not reached.
    pub(super) fn fires(&self) -> bool {
        self.view().fires()
    }

    /// Since when it will never fire again.
    pub(super) fn cancelled(&self) -> Option<Instant> {
        self.state.as_deref().and_then(|state| state.cancelled)
    }
}

/// The triggers of a shard.
pub(super) struct Triggers {
    mark: Mark,
    /// The last serial given to a trigger.
    youngest: SerialId,
    stopped: BTreeMap<ProjectId, StoppedRecord>,
    /// Hosts that cannot keep up, by origin.
    lags: BTreeMap<u64, LagRecord>,
    places: Places,
    /// Places by the hash of their trigger's serial, and of its name: the texts stay where they are.
    by_serial: HashTable<u32>,
    by_name: HashTable<u32>,
    kinds: TriggerKinds,
    paused: usize,
    cancelled: usize,
    usage: BTreeMap<ProjectId, Usage>,
    /// Names that triggers of other shards have.
    pub(super) reserved: ReservedNames,
}

/// What [`super::memory::apply`] does.
impl Triggers {
    pub(super) fn new(head: &HeadRecord, kinds: TriggerKinds) -> Self {
        Self {
            mark: head.decided_through,
            youngest: head.youngest,
            stopped: BTreeMap::new(),
            lags: BTreeMap::new(),
            places: Places::default(),
            by_serial: HashTable::new(),
            by_name: HashTable::new(),
            kinds,
            paused: 0,
            cancelled: 0,
            usage: BTreeMap::new(),
            reserved: ReservedNames::default(),
        }
    }

    pub(super) fn set_mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    pub(super) fn set_stopped(&mut self, project: ProjectId, stopped: Option<StoppedRecord>) {
        match stopped {
            Some(stopped) => self.stopped.insert(project, stopped),
            None => self.stopped.remove(&project),
        };
    }

    pub(super) fn set_lag(&mut self, origin: u64, lag: Option<LagRecord>) {
        match lag {
            Some(lag) => self.lags.insert(origin, lag),
            None => self.lags.remove(&origin),
        };
    }

    pub(super) fn set_state(&mut self, serial: SerialId, state: &TriggerState) {
        if let Some(place) = self.place(serial)
            && let Some(trigger) = self.places.get_mut(place)
        {
            self.paused -= usize::from(trigger.is_paused());
            self.cancelled -= usize::from(trigger.is_cancelled());
            trigger.state = Some(Box::new(state.clone()));
            self.paused += usize::from(trigger.is_paused());
            self.cancelled += usize::from(trigger.is_cancelled());
        }
    }

    pub(super) fn write(&mut self, record: &TriggerRecord, definition: &Definition) {
        let serial = record.id.serial;
        let former = self.place(serial);
        if let Some(place) = former {
            self.vacate(place);
        }
        let (name, (path, body)) = (&*definition.name, definition.target.own_texts());
        let labels = definition.labels.as_str();
        let text = [name, path, body.unwrap_or_default(), labels].concat().into_boxed_str();
        let trigger = Trigger {
            serial,
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
        *self.usage.entry(trigger.project()).or_default() += Usage::of_trigger(&trigger);
        let place = self.places.put(former, trigger);
        let places = &self.places;
        if former.is_none() {
            let rehash = |place: &u32| hash_of_serial(places.at(*place).serial);
            self.by_serial.insert_unique(hash_of_serial(serial), place, rehash);
        }
        let rehash = |place: &u32| hash_of_name(places.at(*place).name());
        self.by_name.insert_unique(hash_of_name(name), place, rehash);
        self.born(serial);
    }

    /// No serial up to this one is given again.
    pub(super) fn born(&mut self, serial: SerialId) {
        self.youngest = self.youngest.max(serial);
    }

    pub(super) fn forget(&mut self, serial: SerialId) {
        if let Some(place) = self.place(serial) {
            let found = self.by_serial.find_entry(hash_of_serial(serial), |found| *found == place);
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
        let trigger = self.places.get_mut(place).take().expect("a place that is in use");
        self.paused -= usize::from(trigger.is_paused());
        self.cancelled -= usize::from(trigger.is_cancelled());
        let usage = self.usage.entry(trigger.project()).or_default();
        *usage -= Usage::of_trigger(&trigger);
        if usage.triggers == 0 {
            self.usage.remove(&trigger.project());
        }
    }
}

/// Which triggers there are.
impl Triggers {
    /// Where a trigger is.
    pub(super) fn place(&self, serial: SerialId) -> Option<u32> {
        let is_it = |place: &u32| self.places.at(*place).serial == serial;
        self.by_serial.find(hash_of_serial(serial), is_it).copied()
    }

    /// The trigger at a place that is in use.
    pub(super) fn at(&self, place: u32) -> &Trigger {
        self.places.at(place)
    }

    pub(super) fn get(&self, serial: SerialId) -> Option<&Trigger> {
        self.place(serial).map(|place| self.at(place))
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
        self.by_serial.iter().copied()
    }

    /// The trigger at a place, if there is one.
    pub(super) fn used(&self, place: u32) -> Option<&Trigger> {
        self.places.used(place)
    }

    /// There is no place from here on.
    pub(super) fn places_end(&self) -> u32 {
        self.places.end()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Trigger> {
        self.places.chunks.iter().flatten().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.by_serial.len()
    }

    /// Whether no trigger can be made until one is deleted.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= TRIGGERS_PER_SHARD_MAX
    }

    pub(super) fn paused_and_cancelled(&self) -> (usize, usize) {
        (self.paused, self.cancelled)
    }

    pub(super) fn usage(&self, project: ProjectId) -> Usage {
        self.usage.get(&project).copied().unwrap_or_default()
    }

    pub(super) fn youngest(&self) -> SerialId {
        self.youngest
    }
}

/// Up to where slots are decided.
impl Triggers {
    /// Every slot that leaves at or before this is decided.
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// How a project is stopped, if it is disabled or not up to date again.
    pub(super) fn stopped(&self, project: ProjectId) -> Option<StoppedRecord> {
        self.stopped.get(&project).copied()
    }

    /// All projects that are disabled or not up to date again.
    pub(super) fn all_stopped(&self) -> impl Iterator<Item = (ProjectId, StoppedRecord)> {
        self.stopped.iter().map(|(project, stopped)| (*project, *stopped))
    }

    /// How a host lags, if it cannot keep up.
    pub(super) fn lag(&self, origin: u64) -> Option<LagRecord> {
        self.lags.get(&origin).copied()
    }

    /// Whether a host cannot keep up.
    pub(super) fn lags(&self, origin: u64) -> bool {
        self.lags.contains_key(&origin)
    }

    /// All hosts that cannot keep up.
    pub(super) fn all_lags(&self) -> impl Iterator<Item = (u64, LagRecord)> {
        self.lags.iter().map(|(origin, lag)| (*origin, *lag))
    }

    /// The mark, as far as it counts for a trigger.
    pub(super) fn mark_of(&self, trigger: &Trigger) -> Mark {
        let lag = trigger.host().and_then(|host| self.lags.get(&host));
        trigger.view().mark(self.mark, self.stopped.get(&trigger.project()), lag)
    }

    /// The mark, as far as it counts for triggers of a host.
    pub(super) fn mark_for(&self, host: Option<u64>) -> Mark {
        let lag = host.and_then(|host| self.lags.get(&host));
        lag.map_or(self.mark, |lag| lag.mark.min(self.mark))
    }

    /// The last slot after a trigger's cursor that leaves at or before a mark.
    pub(super) fn last_passed(trigger: &Trigger, mark: Mark) -> Option<Instant> {
        let (schedule, cursor) = (trigger.schedule(), trigger.cursor());
        let last = schedule.last(cursor, mark.0)?;
        if Mark(trigger.leaves_at(last), trigger.serial) <= mark {
            return Some(last);
        }
        // Jitter keeps back no more than the last one.
        schedule.last(cursor, Instant(last.0 - 1))
    }

    /// Whether a trigger's project is disabled, or was and the trigger is not up to date since.
    pub(super) fn is_behind(&self, trigger: &Trigger) -> bool {
        trigger.view().is_behind(self.stopped.get(&trigger.project()))
    }

    /// The first slot that is not decided, and when it leaves.
    pub(super) fn undecided(&self, trigger: &Trigger) -> Option<(Instant, Instant)> {
        trigger.view().undecided(self.mark_of(trigger))
    }
}

fn hash_of_serial(serial: SerialId) -> u64 {
    mix(serial.0)
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
        self.used(place).expect("a place that is in use")
    }

    fn used(&self, place: u32) -> Option<&Trigger> {
        self.chunks.get(place as usize / CHUNK)?.get(place as usize % CHUNK)?.as_ref()
    }

    fn get_mut(&mut self, place: u32) -> &mut Option<Trigger> {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    fn end(&self) -> u32 {
        u32::try_from(self.chunks.len() * CHUNK).expect("fewer triggers than that")
    }

    /// Puts a trigger where it was, or where there is room.
    fn put(&mut self, former: Option<u32>, trigger: Trigger) -> u32 {
        if self.free.is_empty() && former.is_none() {
            let new = self.end()..self.end() + u32::try_from(CHUNK).expect("a small chunk");
            self.chunks.push(std::iter::repeat_with(|| None).take(CHUNK).collect());
            self.free.extend(new.rev());
        }
        let place = former.or_else(|| self.free.pop()).expect("there is room");
        *self.get_mut(place) = Some(trigger);
        place
    }
}

//! What a predecessor left.
//!
//! A successor reads the head and the records, applies them, and knows all that was decided. What it does
//! not know is which of the launched runs have left. Those are in doubt: all that are open, and all whose
//! record says that an attempt is under way. A run that is delivered at least once is sent again, under
//! the same id, as its next attempt; one that is delivered at most once is recorded as unknown. Where runs
//! of a trigger must not overlap, the doubtful one may still be at work at the receiver: it is left alone
//! for its timeout, and so is all of its trigger.
//!
//! Not in doubt is what a former owner that is there has under way and will report: see `handover`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::{ProjectId, ShardId};
use crate::instant::Instant;
use crate::limits::MARK_AHEAD_MS_MAX;
use crate::mutant::{Mutant, also, pick};
use crate::notice::{self, Audience};
use crate::past::End;
use crate::policy::{Delivery, Overlap};
use crate::queue::backlog::ClaimOrder;
use crate::queue::dead::{DeadRecord, DeadRun, dead_at};
use crate::queue::given::{ClaimedRecord, GivenRecord};
use crate::queue::pick::{ChosenRecord, PartEndsRecord, PicksRecord};
use crate::queue::record::{self as queue, QueueRecord, QueuedRecord, RateRecord, UniqueRecord};
use crate::queue::submitted::{GivenPlace, RunPlace};
use crate::queue::unfinished::QueueDelta;
use crate::record::{RecordError, decode};
use crate::trigger::Draft;

use super::agenda::Agenda;
use super::attempts::{Attempts, RunRef};
use super::kind::TriggerKinds;
use super::memory::{Delta, Memory, apply};
use super::outbox::{Outbox, Unit};
use super::queues::{QueuedRun, Queues};
use super::record::{
    self, FORMAT, HeadRecord, LagRecord, Mark, ReportRecord, ReservedName, RunRecord, RunState,
    StoppedRecord, TriggerRecord, TriggerState, reserved_at,
};
use super::runs::Runs;
use super::triggers::Triggers;
use super::waiting::WaitingRuns;
use super::{Course, Now, Shard};

/// A shard that is being read from the store.
pub struct Loading {
    shard: ShardId,
    cluster: u64,
    triggers: Triggers,
    runs: Runs,
    queues: Queues,
    audience: Audience,
    senders: BTreeSet<Box<str>>,
    reports: Vec<(String, ReportRecord)>,
}

/// Why a shard cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Upgrade, or have a person look.
    #[error("{key}: {why}")]
    Record {
        /// The key of the record.
        key: String,
        /// What is wrong with it.
        why: RecordError,
    },
    /// Have a person look.
    #[error("{key}: what was taken when it was written is refused now: {why}")]
    Draft {
        /// The key of the record.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Loading {
    /// Begins with what the head says.
    pub fn begin(shard: ShardId, cluster: u64, head: &HeadRecord) -> Self {
        Self::sharing(shard, cluster, head, TriggerKinds::default())
    }

    /// Begins a shard that shares what triggers have in common with others of its node.
    pub fn sharing(shard: ShardId, cluster: u64, head: &HeadRecord, kinds: TriggerKinds) -> Self {
        let (senders, reports, audience) = (BTreeSet::new(), Vec::new(), notice::nobody());
        let (triggers, runs, queues) = (Triggers::new(head, kinds), Runs::new(head), Queues::new());
        let mut loading =
            Self { shard, cluster, triggers, runs, queues, audience, senders, reports };
        for run in pick(Mutant::RecomputeInsteadOfOpen, &head.open[..], &[]) {
            loading.apply(&Delta::Open(*run));
        }
        loading
    }

    fn apply(&mut self, change: &Delta) {
        let Self { triggers, runs, queues, .. } = self;
        apply(change, Memory { triggers, runs, queues });
    }

    /// Who listens, also to what is decided while the shard is taken over.
    pub fn set_audience(&mut self, audience: Audience) {
        self.audience = audience;
    }

    /// The keys of the sessions that are alive, and will report what they have under way. By default there are none.
    pub fn set_senders(&mut self, alive: BTreeSet<Box<str>>) {
        self.senders = alive;
    }

    /// A trigger, as it was written.
    pub fn trigger(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: TriggerRecord = read(key, bytes)?;
        let bad = |why: String| LoadError::Draft { key: key.to_owned(), why };
        let draft: Draft =
            serde_json::from_str(record.draft.get()).map_err(|why| bad(why.to_string()))?;
        let definition = draft.build(Instant(0)).map_err(|fields| {
            let texts: Vec<String> =
                fields.iter().map(|field| format!("{}: {}", field.pointer, field.why)).collect();
            bad(texts.join("; "))
        })?;
        self.apply(&Delta::Trigger(Box::new((record, definition))));
        Ok(())
    }

    /// What changed of a trigger since it was written. To be read after the trigger.
    pub fn state(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: TriggerState = read(key, bytes)?;
        if let Some(serial) = key.rsplit('/').next().and_then(|text| text.parse().ok()) {
            self.apply(&Delta::State(serial, record));
        }
        Ok(())
    }

    /// An unfinished run.
    pub fn run(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: RunRecord = read(key, bytes)?;
        if let Some(sequence) = key.rsplit('/').next().and_then(|text| text.parse().ok()) {
            self.apply(&Delta::Run(sequence, record.into()));
        }
        Ok(())
    }

    /// A project that is disabled.
    pub fn stopped(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: StoppedRecord = read(key, bytes)?;
        if let Some(project) = key.rsplit('/').next().and_then(|text| text.parse().ok()) {
            self.apply(&Delta::Stopped(ProjectId(project), Some(record)));
        }
        Ok(())
    }

    /// A host that cannot keep up.
    pub fn lag(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: LagRecord = read(key, bytes)?;
        if let Some(origin) = pick(Mutant::LagUnread, record::lag_of(self.shard, key), None) {
            self.apply(&Delta::Lag(origin, Some(record)));
        }
        Ok(())
    }

    /// A name that is kept for a trigger of another shard.
    pub fn reserved(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: ReservedName = read(key, bytes)?;
        if let Some((project, name)) = reserved_at(self.shard, key) {
            self.apply(&Delta::Reserved(project, name.into(), Some(record)));
        }
        Ok(())
    }

    /// A queue.
    pub fn queue(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: QueueRecord = read(key, bytes)?;
        self.apply(&Delta::Queue(record.into()));
        Ok(())
    }

    /// What was given of a queue within its last period. To be read after the queue.
    pub fn rate(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let RateRecord { given } = read(key, bytes)?;
        if let Some(queue) = key.rsplit('/').next().and_then(|text| text.parse().ok()) {
            self.apply(&Delta::Queued(QueueDelta::Rate(queue, given)));
        }
        Ok(())
    }

    /// A dead run of a queue. To be read before what waits in the queue, among which its definition is.
    pub fn dead(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: DeadRecord = read(key, bytes)?;
        if let Some((queue, sequence)) = dead_at(self.shard, key) {
            let place = record.place(queue, sequence);
            let dead = DeadRun::of(self.shard, self.cluster, place, &record.run);
            self.apply(&Delta::Died(Box::new((dead, record))));
        }
        Ok(())
    }

    /// An unfinished run of a queue, or what is left of a dead one. To be read after the queue and its dead runs.
    pub fn queued(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let place = queue::placed_at(self.shard, key);
        let is_dead = |order: &ClaimOrder| self.queues.dead.get(order.sequence).is_some();
        if place.as_ref().is_some_and(|(_, order)| is_dead(order)) {
            return Ok(());
        }
        let record: QueuedRecord = read(key, bytes)?;
        if let Some((queue, order)) = place {
            let (has_body, given) = (record.has_body(), GivenPlace::Nowhere);
            let place = RunPlace { queue, order, has_body, given, role: record.pick.role() };
            self.apply(&Delta::Submitted(Box::new(QueuedRun { place, record: record.into() })));
        }
        Ok(())
    }

    /// Which workers of a queue may be chosen. To be read after the queue.
    pub fn picks(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: PicksRecord = read(key, bytes)?;
        if let Some(queue) = key.rsplit('/').next().and_then(|text| text.parse().ok()) {
            self.apply(&Delta::Picks(queue, record.into()));
        }
        Ok(())
    }

    /// For whom the parts of a run are. To be read after the runs.
    pub fn chosen(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: ChosenRecord = read(key, bytes)?;
        let whole = key.rsplit('/').next().and_then(|text| text.parse().ok());
        if let Some(whole) = pick(Mutant::ChosenUnread, whole, None) {
            self.apply(&Delta::Queued(QueueDelta::Chosen(whole, record.into())));
        }
        Ok(())
    }

    /// How parts of a run ended. To be read after for whom they are.
    pub fn part_ends(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: PartEndsRecord = read(key, bytes)?;
        if let Some(whole) = key.rsplit('/').next().and_then(|text| text.parse().ok()) {
            self.apply(&Delta::Queued(QueueDelta::PartsEnded(whole, record.into())));
        }
        Ok(())
    }

    /// What is recorded of runs that were given together. To be read after the runs and their parts, and before what is recorded of each.
    pub fn claimed(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let ClaimedRecord { runs, given } = read(key, bytes)?;
        let first = key.rsplit('/').next().and_then(|text| text.parse().ok());
        if let Some(first) = pick(Mutant::ClaimedUnread, first, None) {
            let given = GivenRecord { shared: Some(first), ..Arc::unwrap_or_clone(given) };
            let claimed = ClaimedRecord { runs, given: Arc::new(given) };
            self.apply(&Delta::Queued(QueueDelta::Claimed(Arc::new(claimed))));
        }
        Ok(())
    }

    /// What is recorded of a run that was given. To be read after the run.
    pub fn given(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: GivenRecord = read(key, bytes)?;
        if let Some(sequence) = key.rsplit('/').next().and_then(|text| text.parse().ok()) {
            self.apply(&Delta::Queued(QueueDelta::Given(sequence, record.into())));
        }
        Ok(())
    }

    /// Which run a unique key stands for.
    pub fn unique(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let record: UniqueRecord = read(key, bytes)?;
        let queue = key.rsplit('/').nth(1).and_then(|text| text.parse().ok());
        if let Some(queue) = pick(Mutant::UniqueUnread, queue, None) {
            self.apply(&Delta::Unique(queue, record.into()));
        }
        Ok(())
    }

    /// What came of an attempt that a former owner made.
    pub fn report(&mut self, key: &str, bytes: &[u8]) -> Result<(), LoadError> {
        self.reports.push((key.to_owned(), read(key, bytes)?));
        Ok(())
    }

    /// Everything is read: gives the shard, which decides from here on.
    pub fn finish(self, now: Now) -> Shard {
        let Self { shard: id, cluster, triggers, runs, queues, audience, senders, reports } = self;
        let head = HeadRecord {
            decided_through: triggers.mark(),
            open: runs.all_open(),
            sequence: runs.next_sequence() - 1,
            youngest: triggers.youngest(),
        };
        let mut shard = Shard {
            id,
            cluster,
            agenda: Agenda::new(head.decided_through.0.min(now.wall)),
            triggers,
            runs,
            queues,
            waiting: WaitingRuns::default(),
            attempts: Attempts::default(),
            outbox: Outbox::new(head),
            audience,
            course: Course::Deciding,
            is_suspended: false,
        };
        shard.awake(now);
        shard.queues.listen(now);
        shard.take_over(&senders, now);
        // What is known of an attempt is known before anything is decided about it.
        for (key, report) in reports {
            shard.reported(&key, report, now);
        }
        shard.unblock_all(now);
        shard.arm_all();
        shard.go_on_enabling();
        let lagging: Vec<u64> = shard.triggers.all_lags().map(|(host, _)| host).collect();
        for host in lagging {
            shard.attempts.touch(host);
        }
        shard
    }
}

fn read<T: serde::de::DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, LoadError> {
    decode(bytes, FORMAT).map_err(|why| LoadError::Record { key: key.to_owned(), why })
}

/// The wrong variant of what the record of a run under way says: that it has not left.
fn forget_left(runs: &mut Runs, sequence: u64, now: Now) {
    let record = (*runs[sequence]).clone();
    if record.state == RunState::Running {
        let (state, attempt) = (RunState::Waiting(now.wall), record.attempt - 1);
        runs.write(sequence, &RunRecord { state, attempt, ..record }.into());
    }
}

impl Shard {
    /// Whether the mark is so far ahead that the clock must have been wrong, then or now.
    pub fn is_ahead_of_clock(&self, now: Now) -> bool {
        self.triggers.mark().0.0 > now.wall.0 + MARK_AHEAD_MS_MAX
    }

    fn arm_all(&mut self) {
        let places: Vec<u32> = self.triggers.places().collect();
        for place in places {
            self.arm(place);
        }
    }

    fn take_over(&mut self, senders: &BTreeSet<Box<str>>, now: Now) {
        for open in self.runs.all_open() {
            self.doubt(RunRef::Open(open), now);
        }
        for sequence in self.runs.sequences() {
            also(Mutant::UnfinishedForgetsLeft, || forget_left(&mut self.runs, sequence, now));
            let record = std::sync::Arc::clone(&self.runs[sequence]);
            if record.state != RunState::Running {
                self.waiting.add(sequence, &record);
            } else if record.remote.as_ref().is_some_and(|remote| senders.contains(&remote.sender))
            {
                self.await_remote(sequence, now);
            } else {
                self.doubt(RunRef::Record(sequence), now);
            }
        }
        for trigger in self.triggers.iter() {
            let state = trigger.state();
            if let Some(until) = state.paused.and_then(|pause| pause.until) {
                self.agenda.resume_at(until, trigger.serial);
            }
            if let Some(busy_elsewhere_ms) = state.busy_elsewhere_ms {
                self.attempts.keep_back(trigger.serial, now.steady + u64::from(busy_elsewhere_ms));
            }
        }
        let triggers = self.triggers.iter();
        let watched = triggers.filter(|trigger| trigger.policy().alert_after_ms.is_some());
        let watched: Vec<_> = watched.map(|trigger| trigger.serial).collect();
        for serial in watched {
            self.watch_over(serial);
        }
    }

    /// A run may have left under a predecessor.
    pub(super) fn doubt(&mut self, run: RunRef, now: Now) {
        let record = self.record_of(run);
        if record.notice.is_some() {
            self.attempts.doubt(run, now.steady);
            return;
        }
        let timeout = pick(Mutant::NoPatience, u64::from(record.target.timeout_ms()), 0);
        // A deleted trigger cannot say that something of it may be at work.
        let trigger = self.triggers.get(record.trigger);
        let overlap_now = trigger.map(|trigger| trigger.policy().overlap);
        let may_overlap =
            record.policy.overlap == Overlap::Allow && overlap_now == Some(Overlap::Allow);
        // Its trigger may be changed to one that must not overlap before the timeout is over.
        self.attempts.keep_back(record.trigger, now.steady + timeout);
        let patience = if may_overlap { 0 } else { timeout };
        self.attempts.doubt(run, now.steady + patience);
    }

    /// Decides about runs in doubt that were left alone for long enough.
    pub(super) fn settle(&mut self, now: Now) {
        self.give_up_waiting(now);
        let ripe = self.attempts.doubts().filter(|(_, until)| *until <= now.steady);
        for (run, _) in ripe.collect::<Vec<_>>() {
            let record = self.record_of(run);
            let has_to_wait = record.policy.overlap != Overlap::Allow
                && self.attempts.may_have_left(record.trigger);
            if has_to_wait || self.is_disabled(record.project) {
                continue;
            }
            let resent = Delivery::AtLeastOnce;
            match pick(Mutant::AtMostOnceResent, record.policy.delivery, resent) {
                Delivery::AtMostOnce => {
                    let number = self.number_of(run);
                    self.stay_kept_back(run, now);
                    self.end(run, End::Unknown, number, None, now);
                }
                Delivery::AtLeastOnce if self.is_stopping() => {}
                Delivery::AtLeastOnce => {
                    self.stay_kept_back(run, now);
                    self.attempts.clear_doubt(record.lane(), run);
                    self.begin_in_doubt(run, now);
                }
            }
        }
    }

    /// A run in doubt that may overlap with others is not waited for, although it may be at work at its receiver. Every
    /// successor has to know that: its trigger may be changed to one that must not overlap.
    fn stay_kept_back(&mut self, run: RunRef, now: Now) {
        let Some(Delta::State(serial, state)) = self.kept_back(run, now) else { return };
        let is_known = self.triggers.get(serial).is_some_and(|known| known.state() == state);
        if !is_known && self.attempts.kept_back_until(serial, now).is_some() {
            self.enact(Unit::of(vec![Delta::State(serial, state)]).by(now.wall));
        }
    }

    /// Brings a mark that is far ahead back to the clock, after what it stood for is written to the
    /// cursors: so nothing is decided twice, and nothing waits for the clock to get there.
    pub fn set_back(&mut self, now: Now) {
        if self.course == Course::HandedOver {
            // The successor sets it back.
            return;
        }
        let mut cursors = Vec::new();
        for trigger in self.triggers.iter() {
            let decided = Triggers::last_passed(trigger, self.triggers.mark_of(trigger));
            // Where nothing is due, the mark stands for nothing.
            if let Some(slot) = decided.filter(|_| trigger.fires()) {
                cursors.push((trigger.serial, slot));
            }
        }
        for (serial, slot) in pick(Mutant::SetBackWithoutCursors, cursors, Vec::new()) {
            let mut state = self.triggers.get(serial).expect("listed above").state();
            state.cursor = Some(slot);
            self.enact(Unit::of(vec![Delta::State(serial, state)]).by(now.wall));
        }
        let mark = Mark(now.wall, crate::id::SerialId(0));
        let mut changes = vec![Delta::DecidedThrough(mark)];
        changes.extend(self.triggers.all_stopped().map(|(project, stopped)| {
            let since = stopped.since.min(mark);
            Delta::Stopped(project, Some(StoppedRecord { since, ..stopped }))
        }));
        changes.extend(self.triggers.all_lags().map(|(host, lag)| {
            let (from, own) = (lag.from.min(mark), lag.mark.min(mark));
            Delta::Lag(host, Some(LagRecord { from, mark: own, ..lag }))
        }));
        self.enact(Unit::of(changes).by(now.wall));
        self.agenda.disarm_all(now);
        self.arm_all();
    }

    /// Decides nothing new any more. Attempts that have not left are taken back, and wait for a successor.
    pub fn stop(&mut self, now: Now) {
        self.stop_taking_back(self.unsent(), now);
    }

    pub(super) fn stop_taking_back(&mut self, unsent: Vec<RunRef>, now: Now) {
        if self.course == Course::HandedOver {
            return;
        }
        self.course = Course::Stopping;
        for run in unsent {
            self.put_back(run, now);
        }
    }

    /// Gives what is still under way a record that says so.
    pub fn abandon(&mut self, now: Now) {
        for run in self.runs.all_open() {
            self.write_out_run(run, now);
        }
    }
}

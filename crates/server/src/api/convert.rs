//! Between the wire and the types of engine and store: the one place where they meet.
//!
//! What a person writes needs no conversion: `client::spec::TriggerSpec` and `engine::trigger::Draft` are
//! the same JSON, and a test holds them together.

use client::Timestamp;
use client::account::Reason as WireReason;
use client::key::Scope;
use client::project::{Notify, Occasion as WireOccasion, ProjectLimits};
use client::run::{
    Attempt, QueuedPart, Run, RunKind, RunPart, RunState as WireState, RunSummary,
    Skipped as WireSkipped,
};
use client::spec::TriggerSpec;
use client::trigger::{Pause as WirePause, Status, Trigger};
use engine::id::{Birth, ProjectId, QueueId, RunId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::TRIGGER_NEXT_LEN;
use engine::notice::Occasion;
use engine::past::{self, End, Finished, Line, PastOfQueue, PastParts, Reason, Skipped};
use engine::queue::given::{GivenRecord, GivenState, RunEnd};
use engine::queue::pick::end_of;
use engine::shard::record::{OpenRun, Pause, RunRecord, RunState, TriggerRecord};
use engine::shard::{PartView, QueuedView, TriggerStatus};
use engine::trigger::WebhookDraft;

use super::read::{Silence, Stored};
use super::{output, queue};
use crate::access::record::{KeyScope, NotifyRecord, QuotaRecord};

pub(super) fn timestamp(instant: Instant) -> Timestamp {
    let millis = instant.0.clamp(-377_705_023_201_000, Instant::LAST.0);
    Timestamp::from_millisecond(millis).expect("clamped to what a timestamp can be")
}

pub(super) fn trigger(stored: &Stored, now: Instant, last_run: Option<RunSummary>) -> Trigger {
    let (record, state) = (&stored.record, &stored.state);
    Trigger {
        id: record.id.to_string(),
        name: stored.name().to_owned(),
        status: status(stored, now),
        suspended: None,
        spec: spec(record),
        paused: state.paused.as_ref().map(pause),
        cancelled: state.cancelled.map(timestamp),
        remaining: stored.view().remaining(),
        failures: state.failures,
        revision: record.revision,
        created: timestamp(record.created),
        written: timestamp(record.written),
        author: record.author.clone(),
        last_run,
        next: next(stored, now, TRIGGER_NEXT_LEN),
    }
}

/// What was written, but for the values of secret headers.
fn spec(record: &TriggerRecord) -> TriggerSpec {
    let mut spec: TriggerSpec = serde_json::from_str(record.draft.get())
        .expect("a test holds the draft and the spec together, and this draft was read");
    let webhook = spec.webhook.iter_mut();
    for value in webhook.flat_map(|webhook| webhook.secret_headers.values_mut()) {
        WebhookDraft::MASK.clone_into(value);
    }
    spec
}

pub(super) fn status(stored: &Stored, now: Instant) -> Status {
    match stored.view().status(now) {
        TriggerStatus::Scheduled => Status::Scheduled,
        TriggerStatus::OnDemand => Status::OnDemand,
        TriggerStatus::Paused => Status::Paused,
        TriggerStatus::Expired => Status::Expired,
        TriggerStatus::Cancelled => Status::Cancelled,
    }
}

/// The coming slots that will fire, as things stand.
pub(super) fn next(stored: &Stored, now: Instant, count: usize) -> Vec<Timestamp> {
    stored.view().next(now).take(count).map(timestamp).collect()
}

pub(super) fn pause(pause: &Pause) -> WirePause {
    WirePause {
        since: timestamp(pause.since),
        until: pause.until.map(timestamp),
        author: pause.author.clone(),
        note: pause.note.clone(),
    }
}

/// Where runs are from: a shard of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) shard: ShardId,
    pub(super) cluster: u64,
}

impl Source {
    pub(super) fn finished_id(self, run: &Finished) -> RunId {
        let birth = match run.generation {
            Some(generation) => Birth::Slot(generation),
            None => Birth::Demand(run.sequence.unwrap_or_default()),
        };
        self.id(run.trigger, run.slot, birth)
    }

    /// An open run is of the generation that its trigger has: what is open is written out before a change.
    pub(super) fn open_id(self, run: OpenRun, generation: u32) -> RunId {
        self.id(run.trigger, run.slot, Birth::Slot(generation))
    }

    fn id(self, trigger: SerialId, slot: Instant, birth: Birth) -> RunId {
        RunId { shard: self.shard, trigger, slot, letters: birth.letters(self.cluster) }
    }

    pub(super) fn finished(self, run: &Finished, name: Option<&str>) -> Run {
        let trigger = run.has_trigger().then(|| self.trigger(run.project, run.trigger));
        Run {
            name: name.map(str::to_owned),
            kind: kind(run.notice),
            event: run.notice.map(occasion),
            on_demand: run.generation.is_none() && run.notice.is_none(),
            queued: run.queue.as_deref().map(|queue| self.past_of_queue(queue, run.slot)),
            ended: Some(timestamp(run.at)),
            attempt: run.attempt,
            attempts: run.attempts.iter().map(attempt).collect(),
            ..plain_run(self.finished_id(run), trigger, run.slot, end(run.end))
        }
    }

    pub(super) fn unfinished(self, sequence: u64, run: &RunRecord) -> Run {
        let (state, not_before) = run_state(run.state);
        let id = run.id(self.shard, sequence, self.cluster);
        Run {
            name: Some(run.name.clone()),
            kind: kind(run.notice),
            event: run.notice.map(occasion),
            on_demand: run.generation.is_none() && run.notice.is_none(),
            not_before: not_before.map(timestamp),
            attempt: run.attempt,
            attempts: run.attempts.iter().map(attempt).collect(),
            queued: run.past_of_queue().map(|queue| self.past_of_queue(&queue, run.slot)),
            ..plain_run(id, Some(self.trigger(run.project, run.trigger)), run.slot, state)
        }
    }

    pub(super) fn open(self, run: OpenRun, stored: &Stored, now: Instant) -> Run {
        let leaves_at = stored.view().leaves_at(run.slot);
        let left = leaves_at <= now;
        let state = if left { WireState::Running } else { WireState::Waiting };
        let id = self.open_id(run, stored.record.generation);
        Run {
            name: Some(stored.name().to_owned()),
            not_before: (!left).then(|| timestamp(leaves_at)),
            attempt: u32::from(left),
            ..plain_run(id, Some(stored.id().to_string()), run.slot, state)
        }
    }

    /// Skipped slots in the place of a run: that of the last of them.
    pub(super) fn skipped(self, skip: &Skipped, name: Option<&str>) -> Run {
        let (from, to) = (timestamp(skip.from), timestamp(skip.to));
        let id = self.id(skip.trigger, skip.to, Birth::Slot(skip.generation));
        let trigger = self.trigger(skip.project, skip.trigger);
        Run {
            name: name.map(str::to_owned),
            ended: Some(timestamp(skip.at)),
            skipped: Some(WireSkipped { from, to, count: skip.count, reason: reason(skip.reason) }),
            ..plain_run(id, Some(trigger), skip.to, WireState::Skipped)
        }
    }

    /// A line of the past, as a list tells it.
    pub(super) fn line(self, line: &Line, name: Option<&str>) -> Run {
        match line {
            Line::Run(run) => self.finished(run, name),
            Line::Skip(skip) => self.skipped(skip, name),
        }
    }

    pub(super) fn summary(self, run: &Finished) -> RunSummary {
        RunSummary {
            id: self.finished_id(run).to_string(),
            slot: timestamp(run.slot),
            state: end(run.end),
            ended: timestamp(run.at),
        }
    }

    /// What is told of a run that a queue had.
    fn past_of_queue(self, past: &PastOfQueue, slot: Instant) -> QueuedPart {
        let parts = past.parts.as_deref().map(|parts| self.past_parts(parts, slot));
        QueuedPart {
            queue: past.name.to_string(),
            key: past.key.as_deref().map(str::to_owned),
            labels: queue::labels(past.labels.as_deref()),
            poison: past.poison,
            redriven_from: past.redriven_from.map(|id| id.to_string()),
            parts: parts.unwrap_or_default(),
            part_of: past.part_of.map(|id| id.to_string()),
            ..QueuedPart::default()
        }
    }

    fn past_parts(self, parts: &PastParts, slot: Instant) -> Vec<RunPart> {
        let part = |((place, chosen), letter): ((usize, &Box<str>), char)| {
            let by = parts.by.iter().find(|(of, _)| *of == place).map(|(_, worker)| worker);
            let end = end_of(letter).unwrap_or(RunEnd::Plain(End::Unknown));
            let number = parts.first + place as u64;
            RunPart {
                id: RunId::submitted(self.shard, number, slot, self.cluster).to_string(),
                chosen: chosen.to_string(),
                worker: ran(end, by, chosen),
                state: end_of_part(end),
            }
        };
        parts.workers.iter().enumerate().zip(parts.ends.chars()).map(part).collect()
    }

    fn trigger(self, project: ProjectId, serial: SerialId) -> String {
        TriggerId { shard: self.shard, project, serial }.to_string()
    }
}

/// A run of a slot of which no more is known than this.
fn plain_run(id: RunId, trigger: Option<String>, slot: Instant, state: WireState) -> Run {
    Run {
        id: id.to_string(),
        trigger,
        name: None,
        slot: timestamp(slot),
        kind: RunKind::Run,
        event: None,
        on_demand: false,
        state,
        not_before: None,
        ended: None,
        attempt: 0,
        attempts: Vec::new(),
        queued: None,
        skipped: None,
    }
}

/// Who carried out a part that ended so, if anybody did.
fn ran(end: RunEnd, by: Option<&Box<str>>, chosen: &str) -> Option<String> {
    let chosen = match end {
        RunEnd::Plain(End::Cancelled | End::Expired) => None,
        RunEnd::Plain(_) | RunEnd::Poison => Some(chosen.to_owned()),
    };
    by.map(ToString::to_string).or(chosen)
}

fn end_of_part(of_part: RunEnd) -> WireState {
    match of_part {
        RunEnd::Plain(of_part) => end(of_part),
        RunEnd::Poison => WireState::Dead,
    }
}

/// A part of an unfinished run.
fn part(view: &PartView) -> RunPart {
    let given = view.given.as_deref();
    let has_it = given.filter(|given| given.is_running());
    let (state, worker) = match view.end {
        Some(end) => (end_of_part(end), ran(end, view.by.as_ref(), &view.chosen)),
        None => {
            let worker = has_it.map(|given| given.claimant.own_name().to_owned());
            (given_state(given), worker)
        }
    };
    RunPart { id: view.id.to_string(), chosen: view.chosen.to_string(), worker, state }
}

/// The state of an unfinished run of which this is recorded, if it was given.
fn given_state(given: Option<&GivenRecord>) -> WireState {
    match given {
        Some(given) if given.is_running() => WireState::Running,
        // What was given back unbegun waits as if nobody had had it.
        Some(given) if given.attempt > 0 => WireState::Backoff,
        Some(_) | None => WireState::Waiting,
    }
}

/// An unfinished run of a queue.
pub(super) fn queued(view: &QueuedView, silence: Option<&Silence>) -> Run {
    let (run, details) = (&view.run, view.run.details.as_deref());
    let trigger = details.and_then(|details| details.trigger.as_ref());
    let given = view.given.as_deref();
    let state = given_state(given);
    let not_before = match given.map(|given| given.state) {
        None => Some(run.order.due),
        Some(GivenState::Running) => None,
        Some(GivenState::Waiting(due) | GivenState::InDoubt(due)) => Some(due),
    };
    // The attempts are those of its parts.
    let own = given.filter(|_| !run.role.is_whole());
    let QueueId { shard, project, .. } = view.queue.id;
    let trigger_id = trigger.map(|it| TriggerId { shard, project, serial: it.serial }.to_string());
    let part = QueuedPart {
        queue: view.queue.name.to_string(),
        handler: None,
        argv: Vec::new(),
        key: details.and_then(|details| details.key.as_ref()).map(|key| key.text.to_string()),
        labels: queue::labels(details.and_then(|details| details.labels.as_deref())),
        priority: Some(run.order.priority),
        worker: own
            .filter(|given| given.is_running())
            .map(|given| given.claimant.own_name().to_owned()),
        why: view.why.map(|why| queue::reason(why, &view.queue, silence)),
        cancelling: given.is_some_and(|given| given.cancel),
        poison: false,
        progress: view.progress.as_ref().map(output::progress),
        redriven_from: details.and_then(|details| details.redriven_from).map(|id| id.to_string()),
        parts: view.parts.iter().map(self::part).collect(),
        part_of: view.part_of.as_ref().map(|(run, _)| run.to_string()),
        chosen: view.part_of.as_ref().map(|(_, worker)| worker.to_string()),
    };
    Run {
        name: trigger.map(|trigger| trigger.name.to_string()),
        on_demand: trigger.is_none_or(|trigger| trigger.generation.is_none()),
        not_before: not_before.map(timestamp),
        attempt: own.map_or(0, |given| given.attempt),
        attempts: own.map_or_else(Vec::new, |given| given.attempts.iter().map(attempt).collect()),
        queued: Some(part),
        ..plain_run(view.id, trigger_id, run.born, state)
    }
}

pub(super) fn kind(notice: Option<Occasion>) -> RunKind {
    if notice.is_some() { RunKind::Notification } else { RunKind::Run }
}

pub(super) fn occasion(occasion: Occasion) -> WireOccasion {
    match occasion {
        Occasion::Failure => WireOccasion::Failure,
        Occasion::Recovery => WireOccasion::Recovery,
        Occasion::Paused => WireOccasion::Paused,
        Occasion::Success => WireOccasion::Success,
        Occasion::Overdue => WireOccasion::Overdue,
    }
}

pub(super) fn stored_occasion(occasion: WireOccasion) -> Occasion {
    match occasion {
        WireOccasion::Failure => Occasion::Failure,
        WireOccasion::Recovery => Occasion::Recovery,
        WireOccasion::Paused => Occasion::Paused,
        WireOccasion::Success => Occasion::Success,
        WireOccasion::Overdue => Occasion::Overdue,
    }
}

pub(super) fn notify(stored: &NotifyRecord) -> Notify {
    Notify { url: stored.url.clone(), on: stored.on.iter().copied().map(occasion).collect() }
}

pub(super) fn stored_notify(notify: &Notify) -> NotifyRecord {
    let on = notify.on.iter().copied().map(stored_occasion);
    NotifyRecord { url: notify.url.clone(), on: on.collect() }
}

pub(super) fn limits(stored: QuotaRecord) -> ProjectLimits {
    let QuotaRecord { triggers, fires_per_minute, bytes, waiting_runs } = stored;
    ProjectLimits { triggers, fires_per_minute, bytes, waiting_runs }
}

pub(super) fn stored_limits(limits: ProjectLimits) -> QuotaRecord {
    let ProjectLimits { triggers, fires_per_minute, bytes, waiting_runs } = limits;
    QuotaRecord { triggers, fires_per_minute, bytes, waiting_runs }
}

pub(super) fn scope(stored: KeyScope) -> Scope {
    match stored {
        KeyScope::Admin => Scope::Admin,
        KeyScope::Write => Scope::Write,
        KeyScope::Read => Scope::Read,
        KeyScope::Worker => Scope::Worker,
        KeyScope::Node => Scope::Node,
    }
}

pub(super) fn stored_scope(scope: Scope) -> KeyScope {
    match scope {
        Scope::Admin => KeyScope::Admin,
        Scope::Write => KeyScope::Write,
        Scope::Read => KeyScope::Read,
        Scope::Worker => KeyScope::Worker,
        Scope::Node => KeyScope::Node,
    }
}

fn attempt(attempt: &past::Attempt) -> Attempt {
    Attempt {
        at: timestamp(attempt.at),
        latency_ms: attempt.ms,
        status: attempt.status,
        error: attempt.error.clone(),
        response: attempt.response.clone(),
        worker: attempt.worker.as_deref().map(str::to_owned),
        exit_code: attempt.exit_code,
    }
}

pub(crate) fn end(end: End) -> WireState {
    match end {
        End::Succeeded => WireState::Succeeded,
        End::Failed => WireState::Failed,
        End::Dead => WireState::Dead,
        End::Cancelled => WireState::Cancelled,
        End::Expired => WireState::Expired,
        End::Unknown => WireState::Unknown,
    }
}

/// Where a run is, and no sooner than when it goes on.
fn run_state(state: RunState) -> (WireState, Option<Instant>) {
    match state {
        RunState::Waiting(until) => (WireState::Waiting, Some(until)),
        RunState::Blocked => (WireState::Blocked, None),
        RunState::Backoff(until) => (WireState::Backoff, Some(until)),
        RunState::Running => (WireState::Running, None),
    }
}

pub(super) fn reason(reason: Reason) -> WireReason {
    match reason {
        Reason::Paused => WireReason::Paused,
        Reason::Overlap => WireReason::Overlap,
        Reason::Misfire => WireReason::Misfire,
        Reason::Cap => WireReason::Cap,
        Reason::Limit => WireReason::Limit,
        Reason::Superseded => WireReason::Superseded,
        Reason::Disabled => WireReason::Disabled,
        Reason::Pruned => WireReason::Pruned,
        Reason::QueueFull => WireReason::QueueFull,
    }
}

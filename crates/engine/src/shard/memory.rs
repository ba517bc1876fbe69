//! What changes of what a shard knows, and the only place where that is done.
//!
//! [`apply`] is total: whatever was decided or was found in the store can be applied, and live work and
//! recovery apply the same changes. Each part takes what concerns it and leaves the rest alone.

use std::sync::Arc;

use crate::id::{ProjectId, QueueId, SerialId, TriggerId};
use crate::past::Line;
use crate::queue::dead::{DeadRecord, DeadRun};
use crate::queue::news::QueueNews;
use crate::queue::pick::PicksRecord;
use crate::queue::record::{QueueRecord, UniqueRecord};
use crate::queue::unfinished::QueueDelta;
use crate::trigger::Definition;

use super::batch::Put;
use super::queues::{QueuedRun, Queues};
use super::record::{
    LagRecord, Mark, OpenRun, ReservedName, RunRecord, StoppedRecord, TriggerRecord, TriggerState,
};
use super::runs::Runs;
use super::triggers::Triggers;

/// What a shard knows of what is in the store.
pub(super) struct Memory<'a> {
    pub(super) triggers: &'a mut Triggers,
    pub(super) runs: &'a mut Runs,
    pub(super) queues: &'a mut Queues,
}

/// Makes a change. The only mutator of what is in the store.
pub(super) fn apply(change: &Delta, memory: Memory<'_>) {
    let Memory { triggers, runs, queues } = memory;
    match change {
        Delta::Trigger(written) => triggers.write(&written.0, &written.1),
        Delta::State(serial, state) => triggers.set_state(*serial, state),
        Delta::Gone(id, _) => triggers.forget(id.serial),
        Delta::Run(sequence, run) => runs.write(*sequence, run),
        Delta::RunGone(sequence) => runs.forget(*sequence),
        Delta::Stopped(project, stopped) => {
            triggers.set_stopped(*project, *stopped);
            queues.set_stopped(*project, stopped.is_some_and(|stopped| stopped.enabled.is_none()));
        }
        Delta::DecidedThrough(mark) => triggers.set_mark(*mark),
        Delta::Lag(origin, lag) => triggers.set_lag(*origin, *lag),
        Delta::Open(run) => runs.open(*run),
        Delta::Shut(run) => runs.shut(*run),
        Delta::Queue(record) => {
            triggers.born(record.id.serial);
            queues.write(record);
        }
        Delta::QueueGone(id, _) => queues.forget(id.serial),
        Delta::Submitted(run) => {
            runs.numbered(run.place.order.sequence);
            queues.submit(run);
        }
        Delta::Queued(change) => {
            if let QueueDelta::Chosen(_, chosen) = change {
                runs.numbered(chosen.last());
            }
            queues.queued(change);
        }
        Delta::Picks(queue, record) => queues.set_picks(*queue, record),
        Delta::Died(dead) => queues.dead.insert(dead.0),
        Delta::DeadGone(dead) => queues.dead.remove(dead.place.order.sequence),
        Delta::Unique(queue, record) => queues.write_unique(*queue, record),
        Delta::UniqueGone(queue, key) => queues.forget_unique(*queue, key),
        Delta::Reserved(project, name, reserved) => {
            triggers.reserved.set(*project, name, *reserved);
        }
        Delta::Decided(_) | Delta::Past(_) | Delta::News(_) | Delta::Raw(_) => {}
    }
}

/// One step from one state to the next.
#[derive(Debug, Clone)]
pub(super) enum Delta {
    /// There is this trigger, or it has another text.
    Trigger(Box<(TriggerRecord, Definition)>),
    /// A trigger has this state.
    State(SerialId, TriggerState),
    /// There is no trigger with this id and this name any more.
    Gone(TriggerId, Box<str>),
    /// The record of an unfinished run is new, or has changed.
    Run(u64, Arc<RunRecord>),
    /// There is no such unfinished run any more.
    RunGone(u64),
    /// A project is disabled or being enabled in this way, or neither any more.
    Stopped(ProjectId, Option<StoppedRecord>),
    /// The mark has moved.
    DecidedThrough(Mark),
    /// The host with this origin lags like this, or not any more.
    Lag(u64, Option<LagRecord>),
    /// This run was launched.
    Open(OpenRun),
    /// This run is open no more.
    Shut(OpenRun),
    /// There is this queue, or it has other settings.
    Queue(Arc<QueueRecord>),
    /// There is no queue with this id and this name any more.
    QueueGone(QueueId, Box<str>),
    /// A run waits in a queue.
    Submitted(Box<QueuedRun>),
    /// Something became of runs of queues.
    Queued(QueueDelta),
    /// The same, and memory knows it already: whoever decides about workers needs it at once.
    Decided(QueueDelta),
    /// A run is past, which memory knows already, and can be redriven.
    Died(Box<(DeadRun, DeadRecord)>),
    /// A dead run cannot be redriven any more.
    DeadGone(DeadRun),
    /// These workers of a queue may be chosen, and this one was last.
    Picks(SerialId, Arc<PicksRecord>),
    /// A unique key of a queue stands for this run.
    Unique(SerialId, Arc<UniqueRecord>),
    /// A unique key of a queue stands for none any more.
    UniqueGone(SerialId, Box<str>),
    /// A name is reserved for a trigger of another shard, or is not any more.
    Reserved(ProjectId, Box<str>, Option<ReservedName>),
    /// This is past. Memory keeps none of it.
    Past(Line),
    /// Those who watch are told this. Neither memory nor the store keeps it.
    News(Box<QueueNews>),
    /// A write that memory does not mirror: the past kept elsewhere, a report that is done with, notes of commands.
    Raw(Put),
}

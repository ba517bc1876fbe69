//! What a shard can be told, and what it answers.
//!
//! A command is decided by the shard's owner, in memory, and answered when what it changed is durable.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::id::{ProjectId, RunId, SerialId, ShardId, TriggerId};
use crate::instant::Instant;
use crate::limits::ACTION_INLINE_BYTES_MAX;
use crate::queue::filter::UnfinishedFilter;
use crate::queue::record::QueueSettings;
use crate::trigger::Definition;

use super::by_filter::{FilterProgress, NumberSpan};
use super::dead::{DeadDefinition, RedriveResult};
use super::submit::{Submission, Taken};
use super::usage::Limit;

/// What a person wants of a shard.
#[derive(Clone)]
#[expect(missing_docs, reason = "the fields are those of the records that they end up in")]
pub enum Command {
    /// Make a trigger. If its name is reserved for it by another shard, then no later than the steady instant until which
    /// that is so for sure.
    Create {
        project: ProjectId,
        definition: Box<Definition>,
        draft: Box<RawValue>,
        author: String,
        named_until: Option<u64>,
    },
    /// Give a trigger another text. Create-or-replace is decided by the caller; `revision` is If-Match.
    Replace {
        trigger: SerialId,
        definition: Box<Definition>,
        draft: Box<RawValue>,
        author: String,
        revision: Option<u64>,
    },
    /// Let it fire nothing for a while.
    Pause { trigger: SerialId, author: String, note: String, until: Option<Instant> },
    /// Let it fire again.
    Resume { trigger: SerialId, author: String },
    /// Let it never fire again, but keep it.
    Cancel { trigger: SerialId, author: String },
    /// Forget it, but for its past.
    Delete { trigger: SerialId, author: String },
    /// Start a run of it now.
    Run { trigger: SerialId, author: String },
    /// Run slots of the past again, from `from` on and before `to`, as far as this request has not done it.
    Backfill { trigger: SerialId, author: String, request: String, from: Instant, to: Instant },
    /// Let nothing of a project fire.
    Disable { project: ProjectId },
    /// Let what a project has fire again, and catch up by its policies.
    Enable { project: ProjectId },
    /// Let runs wait in a queue, all or none. The queue comes to be if it is not there.
    Submit { project: ProjectId, queue: Box<str>, runs: Vec<Submission>, author: String },
    /// Give a queue other settings, or make it; `revision` is If-Match.
    SetQueue {
        project: ProjectId,
        name: Box<str>,
        settings: QueueSettings,
        author: String,
        revision: Option<u64>,
    },
    /// Let nothing of a queue be given for a while.
    PauseQueue { queue: SerialId, author: String, note: String, until: Option<Instant> },
    /// Let runs of a queue be given again.
    ResumeQueue { queue: SerialId },
    /// Forget a queue that has no unfinished run.
    DeleteQueue { queue: SerialId },
    /// End a run of a queue.
    CancelRun { project: ProjectId, run: RunId },
    /// End the runs of a queue that a filter means, at most so many.
    CancelRuns { queue: SerialId, filter: UnfinishedFilter, span: NumberSpan, most: usize },
    /// Let dead runs of a queue wait again.
    Redrive { queue: SerialId, runs: Vec<DeadDefinition> },
    /// Keep a name for a trigger of another shard.
    ReserveName { project: ProjectId, name: Box<str>, shard: ShardId },
    /// Keep a name no longer for a trigger of another shard: there is none of that name.
    ReleaseName { project: ProjectId, name: Box<str> },
    /// Delete triggers that ended before then; look from this place on.
    Prune { ended_before: Instant, from: u32 },
}

impl fmt::Debug for Command {
    /// Without what the user wrote: it may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { project, definition, .. } => {
                write!(out, "create {} of {project}", definition.name)
            }
            Self::Replace { trigger, .. } => write!(out, "replace {trigger}"),
            Self::Pause { trigger, .. } => write!(out, "pause {trigger}"),
            Self::Resume { trigger, .. } => write!(out, "resume {trigger}"),
            Self::Cancel { trigger, .. } => write!(out, "cancel {trigger}"),
            Self::Delete { trigger, .. } => write!(out, "delete {trigger}"),
            Self::Run { trigger, .. } => write!(out, "run {trigger}"),
            Self::Backfill { trigger, from, to, .. } => {
                write!(out, "backfill {trigger} from {from} to {to}")
            }
            Self::Prune { ended_before, from } => {
                write!(out, "prune what ended before {ended_before} from place {from}")
            }
            Self::Submit { project, queue, runs, .. } => {
                write!(out, "submit {} runs to {queue} of {project}", runs.len())
            }
            Self::SetQueue { project, name, .. } => write!(out, "set queue {name} of {project}"),
            Self::PauseQueue { queue, .. } => write!(out, "pause queue {queue}"),
            Self::ResumeQueue { queue } => write!(out, "resume queue {queue}"),
            Self::DeleteQueue { queue } => write!(out, "delete queue {queue}"),
            Self::CancelRun { run, .. } => write!(out, "cancel {run}"),
            Self::CancelRuns { queue, span, .. } => {
                write!(out, "cancel runs of queue {queue} after {}", span.after)
            }
            Self::Redrive { queue, runs } => {
                write!(out, "redrive {} runs of queue {queue}", runs.len())
            }
            Self::ReserveName { name, shard, .. } => {
                write!(out, "reserve the name {name} for shard {shard}")
            }
            Self::ReleaseName { name, .. } => write!(out, "release the name {name}"),
            Self::Disable { project } => write!(out, "disable {project}"),
            Self::Enable { project } => write!(out, "enable {project}"),
        }
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what came of the command of the same name")]
pub enum Done {
    Created(TriggerId),
    Replaced { revision: u64 },
    Unchanged,
    Paused,
    Resumed,
    Cancelled,
    Deleted,
    Started(RunId),
    Backfilled(BackfillProgress),
    Rewritten,
    Disabled,
    Enabled,
    Pruned(PruneProgress),
    Submitted(Arc<[Taken]>),
    QueueSet { revision: u64 },
    CancelledSome(FilterProgress),
    Redriven(Arc<[RedriveResult]>),
    NameReserved,
    NameReleased,
}

/// How far a backfill has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackfillProgress {
    /// Runs that this command started.
    pub started: u32,
    /// Whether there are more to start.
    pub has_more: bool,
}

/// How far a look for triggers that ended long ago has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneProgress {
    /// Triggers that this command deleted.
    pub deleted: u16,
    /// The place from which the next command goes on, unless all were looked at.
    pub next: Option<u32>,
}

/// The type of a command's answer: what whoever gave the command wants to know.
pub trait CommandAnswer: Sized {
    /// The answer in what was done; none, if another command does that.
    fn from_done(done: Done) -> Option<Self>;
}

impl Done {
    /// Whether something was done, and is to be written down.
    pub fn is_change(&self) -> bool {
        match self {
            Self::Unchanged => false,
            Self::CancelledSome(progress) => progress.matched > 0,
            Self::Redriven(results) => results.iter().any(|result| result.run().is_some()),
            Self::Created(_)
            | Self::Replaced { .. }
            | Self::Paused
            | Self::Resumed
            | Self::Cancelled
            | Self::Deleted
            | Self::Started(_)
            | Self::Backfilled(_)
            | Self::Rewritten
            | Self::Disabled
            | Self::Enabled
            | Self::Pruned(_)
            | Self::Submitted(_)
            | Self::QueueSet { .. }
            | Self::NameReserved
            | Self::NameReleased => true,
        }
    }

    /// The answer of the command that was given.
    pub fn answer<T: CommandAnswer>(self) -> T {
        let done = std::mem::discriminant(&self);
        T::from_done(self).unwrap_or_else(|| unreachable!("{done:?} is what another command does"))
    }
}

impl CommandAnswer for () {
    fn from_done(done: Done) -> Option<Self> {
        match done {
            Done::Replaced { .. }
            | Done::Unchanged
            | Done::Paused
            | Done::Resumed
            | Done::Cancelled
            | Done::Deleted
            | Done::Rewritten
            | Done::Disabled
            | Done::Enabled
            | Done::QueueSet { .. }
            | Done::NameReserved
            | Done::NameReleased => Some(()),
            Done::Created(_)
            | Done::Started(_)
            | Done::Backfilled(_)
            | Done::Pruned(_)
            | Done::Submitted(_)
            | Done::CancelledSome(_)
            | Done::Redriven(_) => None,
        }
    }
}

macro_rules! answers {
    ($($answer:ty: $done:ident),+) => {$(
        impl CommandAnswer for $answer {
            fn from_done(done: Done) -> Option<Self> {
                if let Done::$done(answer) = done { Some(answer) } else { None }
            }
        }
    )+};
}

answers!(
    TriggerId: Created,
    RunId: Started,
    BackfillProgress: Backfilled,
    PruneProgress: Pruned,
    Arc<[Taken]>: Submitted,
    FilterProgress: CancelledSome,
    Arc<[RedriveResult]>: Redriven
);

/// Why nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences below are the documentation of each field")]
pub enum Rejection {
    #[error("there is no such trigger")]
    NoSuchTrigger,
    #[error("the name is taken by {0}: choose another, or replace that one")]
    NameTaken(TriggerId),
    #[error(
        "it was changed in the meantime and is at revision {found}: read it again, then decide"
    )]
    RevisionMoved { found: u64 },
    #[error("it is paused already")]
    AlreadyPaused,
    #[error("it is not paused")]
    NotPaused,
    #[error("it is cancelled, and that is for good: make a new one")]
    AlreadyCancelled,
    #[error("this shard has as many triggers as it takes: delete some that are not needed")]
    TooManyTriggers,
    #[error("too many runs are under way: wait until some have ended")]
    TooManyRuns,
    #[error(
        "{waiting} runs of the project wait for others of their triggers to end, or for room in their queues, and at most {max} may in one shard: let workers claim some, or cancel some"
    )]
    TooManyRunsBeforeQueues { waiting: usize, max: usize },
    #[error(
        "this request covers what lies from {from} on and before {until}, and goes on from there without a gap: give another one another name"
    )]
    BackfillElsewhere { from: Instant, until: Instant },
    #[error("its project is disabled, or the scheduler is stopped: let it go on first")]
    ProjectIsDisabled,
    #[error(
        "the project has reached its limit of {max} for {limit}: {}, or ask an admin for more",
        limit.remedy()
    )]
    OverLimit { limit: Limit, max: u64 },
    #[error("there is no such queue")]
    NoSuchQueue,
    #[error(
        "the project has as many queues in this shard as it may: delete one that is not needed"
    )]
    TooManyQueues,
    #[error(
        "the queue has {waiting} runs waiting, and at most {max} may: let workers claim some, or raise waiting_max"
    )]
    QueueIsFull { waiting: usize, max: usize },
    #[error(
        "the queue has {long} runs of more than {inline} bytes, and at most {max} may be so long: let workers claim some, or keep what they are about elsewhere",
        inline = ACTION_INLINE_BYTES_MAX
    )]
    TooManyLongRuns { long: usize, max: usize },
    #[error(
        "the queue has runs that are not finished, {runs} of them: let them end, or cancel them, and try again"
    )]
    QueueHasRuns { runs: usize },
    #[error("there is no such run, or it has ended")]
    NoSuchRun,
    #[error(
        "the trigger {0} feeds it: delete that one, or let it feed another queue, and try again"
    )]
    QueueIsFed(TriggerId),
    #[error(
        "the name is kept for a trigger that feeds a queue, since {at}: choose another, or try again a minute after that"
    )]
    NameReserved { at: Instant },
    #[error("it took too long to make it after its name was reserved: try again")]
    ReservationIsOver,
    #[error(
        "the project has as many names reserved for triggers that feed queues in this shard as it may: delete triggers that are not needed"
    )]
    TooManyNames,
    #[error("the project was enabled just now and is not up to date yet: try again in a second")]
    ProjectIsEnabling,
}

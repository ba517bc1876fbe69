//! What may be asked of a node, and why it was not answered.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::id::{ProjectId, RunId, ShardId, TriggerId};
use engine::queue::filter::UnfinishedFilter;
use engine::shard::command::{Command, Done, Rejection};
use engine::shard::{
    CommandNote, NumberSpan, OutputCall, Put, Quota, ShardAnswer, Ticket, WorkerCall,
};
use store::session::NodeId;
use tokio::sync::oneshot;

use crate::shard_usage::{ShardUsage, UsageByShard};

/// What is asked of the node. Whoever takes a call answers it, or drops its `reply` when it stops.
#[expect(missing_docs, reason = "`shard` is the one that is asked, `reply` where the answer goes")]
pub enum NodeCall {
    /// A shard is to carry out a command. It is answered when what the answer says is durable.
    Command {
        shard: ShardId,
        command: Command,
        /// What is written together with the command.
        note: Option<CommandNote>,
        /// The limits of the command's project.
        quota: Option<(ProjectId, Quota)>,
        /// Dropped when the outcome is known, also if nobody waits for the answer any more.
        guard: Option<CommandGuard>,
        reply: oneshot::Sender<Result<Done, CallError>>,
    },
    /// A shard is asked something that it answers from memory, once all that it has decided is durable; a worker that
    /// waits for runs is answered when there are some.
    Ask {
        shard: ShardId,
        ask: ShardAsk,
        /// By which the asker gives up.
        ticket: Ticket,
        reply: oneshot::Sender<Result<ShardAnswer, CallError>>,
    },
    /// Whoever asked a shard under this ticket waits no more.
    StopWaiting { shard: ShardId, ticket: Ticket },
    /// Records of a shard's past are to be written or deleted, in order, but not as one. It is answered when the last
    /// of it is durable.
    Rewrite { shard: ShardId, puts: Vec<Put>, reply: oneshot::Sender<Result<Done, CallError>> },
    /// A shard is to write nothing for a moment, so that it can be read. It is answered when no commit is on its way.
    Quiesce { shard: ShardId, reply: oneshot::Sender<Result<QuiescePoint, CallError>> },
    /// A quiesce is over before its time.
    Release { quiesce: QuiesceId },
    /// What servers have written about limited projects, of every shard, is to be compared with what shards hold. The
    /// answer is what should be written of shards that are run here, and is not.
    CompareUsage {
        found: UsageByShard,
        limited: BTreeSet<ProjectId>,
        reply: oneshot::Sender<Result<Vec<(ShardId, ShardUsage)>, CallError>>,
    },
    /// What is served here is to be counted for the metrics.
    Census { reply: oneshot::Sender<Result<(), CallError>> },
    /// A person says that the clock is right.
    ConfirmTime { reply: oneshot::Sender<Result<(), CallError>> },
}

/// What is asked of a shard's memory.
#[expect(missing_docs, reason = "the fields are those of what is asked")]
pub enum ShardAsk {
    /// A worker says something.
    Worker(Box<WorkerCall>),
    /// How does a queue stand?
    Queue { project: ProjectId, name: Box<str> },
    /// How does an unfinished run of a queue stand?
    Run { project: ProjectId, run: RunId },
    /// How do unfinished runs of a queue stand, after a number?
    Runs { project: ProjectId, queue: Box<str>, after: u64, most: usize },
    /// What does a run print?
    Output { project: ProjectId, run: RunId },
    /// The worker of a run says what it prints.
    TakeOutput(Box<OutputCall>),
    /// How do unfinished runs of a trigger stand that queues have, those of its latest slots?
    RunsOf { trigger: TriggerId, most: usize },
    /// Which runs does a worker have?
    WorkerRuns { project: ProjectId, worker: Box<str>, most: usize },
    /// Which workers were heard of?
    Workers { project: ProjectId },
    /// Where is a dead run?
    Dead { project: ProjectId, run: RunId },
    /// How many unfinished runs of a queue does a filter mean?
    Count { project: ProjectId, queue: Box<str>, filter: Box<UnfinishedFilter>, span: NumberSpan },
}

/// Dropped when the outcome of its command is known.
pub type CommandGuard = Arc<dyn Any + Send + Sync>;

/// What a command comes with.
#[derive(Default)]
pub struct CommandOptions {
    /// What is written together with the command.
    pub note: Option<CommandNote>,
    /// The limits of the command's project.
    pub quota: Option<(ProjectId, Quota)>,
    /// Dropped when the outcome is known.
    pub guard: Option<CommandGuard>,
}

/// Names a quiesce, among all of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuiesceId(pub u64);

/// Where the chain of a shard stands that is quiesced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuiescePoint {
    /// The quiesce's id.
    pub quiesce: QuiesceId,
    /// The number of the last commit of its chain, which is durable.
    pub number: u64,
}

/// Why a call was not answered with what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences are the documentation of each field")]
pub enum CallError {
    /// The shard decided against it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Nobody owns the shard now, and nothing was done: try again then.
    #[error("nobody owns this shard at the moment: try again in {retry_after:?}")]
    NoOwner { retry_after: Duration },
    /// Another server has the shard, and nothing was done: ask that one.
    #[error("the server {node} has this shard: ask that one")]
    Elsewhere { node: NodeId, url: Option<String> },
    /// The same request was carried out meanwhile: send it again, and be told what came of it.
    #[error("the same request was carried out meanwhile: send it again to be told what came of it")]
    Repeated,
    /// The shard had too much to write, and nothing was done: try again.
    #[error("the shard has too much to write at the moment: try again")]
    Busy,
    /// The store takes nothing, and nothing was done: mend that, and try again.
    #[error("nothing was done, because the store takes nothing at the moment: {0}")]
    Refused(WriteTrouble),
    /// The command was handed in, and is written when the store takes it: look then.
    #[error(
        "it is not done yet, because the store takes nothing at the moment: {0}; look later whether it is"
    )]
    Unwritten(WriteTrouble),
    /// The shard went to another server before it was known what came of it: look, or send it again under the same key.
    #[error(
        "the shard changed hands before this was answered: look first whether it was done, or send it again under the same idempotency key"
    )]
    HandedOver,
    /// This node is stopping, and may have done it: ask another node, or try again later.
    #[error("this server is stopping: try again, and look first whether it was done")]
    Stopping,
}

/// Why nothing is written at the moment, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteTrouble {
    /// There is no room: make some.
    #[error("{0}")]
    Full(String),
    /// The store is away, or refuses for another reason: look at it.
    #[error("{0}")]
    Closed(String),
}

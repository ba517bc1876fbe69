//! Queues, and what is submitted to them.

use jiff::Timestamp;

use super::Client;
use super::exchange::Question;
use super::path::Path;
use crate::queue::{BatchSpec, Queue, QueueSpec, RunSpec, Submitted, SubmittedBatch};
use crate::redrive::{CancelRunsRequest, CancelledRuns, DeadKind, RedriveRequest, Redriven};
use crate::run::Run;
use crate::trigger::PauseRequest;
use crate::{ClientError, ListPage};

/// Which queues to list.
#[derive(Debug, Clone, Default)]
pub struct QueueFilter {
    /// Those whose name begins so.
    pub prefix: Option<String>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

/// Which dead runs of a queue to list.
#[derive(Debug, Clone, Default)]
pub struct DeadRunFilter {
    /// Those of one of these kinds; without any, all.
    pub kinds: Vec<DeadKind>,
    /// Those with this concurrency key.
    pub key: Option<String>,
    /// Those with all of these labels, each like `env=prod`.
    pub labels: Vec<String>,
    /// Those that ended at or after this.
    pub from: Option<Timestamp>,
    /// Those that ended before this.
    pub to: Option<Timestamp>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

impl Client {
    /// Lets a queue have a run.
    pub async fn submit(&self, spec: &RunSpec) -> Result<Submitted, ClientError> {
        self.ask(Question::post(Path::new("/v1/runs")).body(spec)).await
    }

    /// Lets a queue have several runs, all or none.
    pub async fn submit_batch(&self, spec: &BatchSpec) -> Result<SubmittedBatch, ClientError> {
        self.ask(Question::post(Path::new("/v1/runs/batch")).body(spec)).await
    }

    /// Ends a run of a queue: at once if it waits. If a worker has it, that worker is told to end it.
    pub async fn cancel_run(&self, id: &str) -> Result<(), ClientError> {
        let question = Question::post(Path::of("runs", id, "/cancel"));
        self.ask_with_retries(question).await.answer.map(drop)
    }

    /// Lets a dead run of a queue wait again, as a new run.
    pub async fn retry_run(&self, id: &str) -> Result<Submitted, ClientError> {
        self.ask(Question::post(Path::of("runs", id, "/retry"))).await
    }

    /// Dead runs of a queue, in the order in which they were submitted.
    pub async fn dead_runs(
        &self,
        queue: &str,
        filter: &DeadRunFilter,
    ) -> Result<ListPage<Run>, ClientError> {
        let kinds: Vec<&str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
        let path = at(queue, "/dead")
            .with("state", (!kinds.is_empty()).then(|| kinds.join(",")))
            .with("key", filter.key.as_deref())
            .with("label", (!filter.labels.is_empty()).then(|| filter.labels.join(",")))
            .with("from", filter.from)
            .with("to", filter.to)
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.ask(Question::get(path)).await
    }

    /// Lets dead runs of a queue wait again, as many as one request does; or counts them.
    pub async fn redrive(
        &self,
        queue: &str,
        request: &RedriveRequest,
    ) -> Result<Redriven, ClientError> {
        self.ask(Question::post(at(queue, "/redrive")).body(request)).await
    }

    /// Ends unfinished runs of a queue, as many as one request does; or counts them.
    pub async fn cancel_runs(
        &self,
        queue: &str,
        request: &CancelRunsRequest,
    ) -> Result<CancelledRuns, ClientError> {
        self.ask(Question::post(at(queue, "/cancel")).body(request)).await
    }

    /// Queues, by name.
    pub async fn queues(&self, filter: &QueueFilter) -> Result<ListPage<Queue>, ClientError> {
        let path = Path::new("/v1/queues")
            .with("prefix", filter.prefix.as_deref())
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.ask(Question::get(path)).await
    }

    /// The queue with this name.
    pub async fn queue(&self, name: &str) -> Result<Queue, ClientError> {
        self.ask(Question::get(at(name, ""))).await
    }

    /// Gives a queue these limits and no others, and makes it if it is not there. With a revision, only if the queue is at
    /// that revision.
    pub async fn set_queue(
        &self,
        name: &str,
        spec: &QueueSpec,
        revision: Option<u64>,
    ) -> Result<Queue, ClientError> {
        self.ask_put(at(name, ""), spec, revision, |found: &Queue, next| {
            found.revision == next && found.spec == *spec
        })
        .await
    }

    /// Lets no worker have runs of a queue. What runs goes on.
    pub async fn pause_queue(
        &self,
        name: &str,
        request: &PauseRequest,
    ) -> Result<Queue, ClientError> {
        self.ask(Question::post(at(name, "/pause")).body(request)).await
    }

    /// Lets workers have runs of a paused queue again.
    pub async fn resume_queue(&self, name: &str) -> Result<Queue, ClientError> {
        self.ask(Question::post(at(name, "/resume"))).await
    }

    /// Deletes a queue that has no unfinished run.
    pub async fn delete_queue(&self, name: &str) -> Result<(), ClientError> {
        self.ask_delete(at(name, "")).await
    }
}

fn at(name: &str, rest: &str) -> Path {
    Path::of("queues", name, rest)
}

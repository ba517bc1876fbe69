//! Runs.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Client;
use super::exchange::{Question, RetriedAnswer};
use super::path::Path;
use super::trigger::at;
use crate::run::{Run, RunKind, RunState, Started};
use crate::{ClientError, ListPage};

/// How often a run is looked at whose end the server does not wait for.
const LOOK: Duration = Duration::from_millis(250);

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Those in one of these states; without any, all runs.
    pub states: Vec<RunState>,
    /// Those of this kind.
    pub kind: Option<RunKind>,
    /// Those of slots at or after this.
    pub from: Option<Timestamp>,
    /// Those of slots before this.
    pub to: Option<Timestamp>,
    /// Those of this queue. Of runs that have not ended, [`Client::queue_runs`] tells.
    pub queue: Option<String>,
    /// Those with this concurrency key, of a queue.
    pub key: Option<String>,
    /// Those with all of these labels, each like `env=prod`, of a queue.
    pub labels: Vec<String>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

impl Client {
    /// Starts a run now, and waits up to `wait` for its end, also while no server answers.
    pub async fn run(&self, name: &str, wait: Option<Duration>) -> Result<Started, ClientError> {
        let begun = Instant::now();
        let text = wait.map(|wait| format!("{}s", wait.as_secs()));
        let question = Question::post(at(name, "/run").with("wait", text)).wait(wait);
        let RetriedAnswer { answer, in_doubt } = self.ask_with_retries(question).await;
        let mut started: Started = self.read(&answer?)?;
        // A server that had started it before does not wait for it again: so it is waited for here.
        while in_doubt
            && !started.run.as_ref().is_some_and(|run| run.state.is_end())
            && wait.is_some_and(|wait| begun.elapsed() < wait)
        {
            tokio::time::sleep(LOOK).await;
            match self.run_by_id(&started.id).await {
                Ok(run) => started.run = Some(run),
                Err(ClientError::Unreachable { .. } | ClientError::Unavailable { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(started)
    }

    /// Runs of a trigger, newest first.
    pub async fn runs_of(
        &self,
        name: &str,
        filter: &RunFilter,
    ) -> Result<ListPage<Run>, ClientError> {
        self.ask(Question::get(filtered(at(name, "/runs"), filter))).await
    }

    /// Runs of all triggers, newest first.
    pub async fn runs(&self, filter: &RunFilter) -> Result<ListPage<Run>, ClientError> {
        self.ask(Question::get(filtered(Path::new("/v1/runs"), filter))).await
    }

    /// Unfinished runs of a queue, in the order in which they came: by state, key and labels.
    pub async fn queue_runs(
        &self,
        queue: &str,
        filter: &RunFilter,
    ) -> Result<ListPage<Run>, ClientError> {
        let RunFilter { states, key, labels, limit, cursor, .. } = filter.clone();
        let filter = RunFilter { states, key, labels, limit, cursor, ..RunFilter::default() };
        self.ask(Question::get(filtered(Path::of("queues", queue, "/runs"), &filter))).await
    }

    /// The run with this id.
    pub async fn run_by_id(&self, id: &str) -> Result<Run, ClientError> {
        self.ask(Question::get(Path::of("runs", id, ""))).await
    }
}

fn filtered(path: Path, filter: &RunFilter) -> Path {
    let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
    path.with("state", (!states.is_empty()).then(|| states.join(",")))
        .with("kind", filter.kind.map(RunKind::as_str))
        .with("from", filter.from)
        .with("to", filter.to)
        .with("queue", filter.queue.as_deref())
        .with("key", filter.key.as_deref())
        .with("label", (!filter.labels.is_empty()).then(|| filter.labels.join(",")))
        .with("limit", filter.limit)
        .with("cursor", filter.cursor.as_deref())
}

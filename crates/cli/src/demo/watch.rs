//! What the server says of the runs: which have ended, and how.
//!
//! It may be down at any moment, by the timetable or by somebody's hand, so each question is asked once and briefly; what was not
//! answered is asked again a moment later. The runs are submitted in the same way, under keys that let each batch be done once.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use client::queue::{BatchSpec, CommandSpec, RunSpec};
use client::run::{Run, RunState};
use client::spec::RetrySpec;
use client::{Client, ClientError, RunFilter};

use super::plan::Task;
use super::stage::{QUEUE, Stage};
use crate::exit::Ending;

/// How long an answer is waited for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs that are submitted at once: a request has at most 256 KiB.
const BATCH: usize = 200;

/// Runs of a page of a list.
const PAGE: usize = 500;

/// Runs that one look asks for one by one.
const ASKED_MAX: usize = 50;

/// The most attempts that any run may have: whoever kills programs by hand shall not end the demonstration.
const ATTEMPTS: u64 = 10;

/// A run that has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// For good, as it was recorded.
    Recorded { task: u32, run: Box<Run> },
    /// It was dead, and waits again as another run.
    Redriven { task: u32, why: String },
}

/// Asks the server.
pub(super) struct Watch {
    client: Client,
    tasks: Vec<Task>,
    command: Vec<String>,
    /// The runs that have not ended, by their tasks.
    open: BTreeMap<u32, String>,
    submitted: usize,
}

impl Watch {
    pub(super) fn new(tasks: &[Task], stage: &Stage, journal: &Path) -> Result<Self, Ending> {
        let client = Client::builder(&stage.url()).retries(0).timeout(ANSWER_TIME_MAX);
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                let path = path.display();
                Ending::wrong_input(format!(
                    "{path} has characters that are no UTF-8: nobody can be asked to run it"
                ))
            })
        };
        let command = vec![text(stage.binary())?, text(&stage.settings())?, text(journal)?];
        let (tasks, open) = (tasks.to_vec(), BTreeMap::new());
        Ok(Self { client: client.build()?, tasks, command, open, submitted: 0 })
    }

    /// Submits what was not submitted yet.
    pub(super) async fn submit(&mut self) -> Result<(), ClientError> {
        while self.submitted < self.tasks.len() {
            let rest = &self.tasks[self.submitted..];
            let batch = &rest[..rest.len().min(BATCH)];
            let runs = batch.iter().map(|task| self.spec(*task)).collect();
            let spec = BatchSpec { queue: QUEUE.to_owned(), runs };
            let once = self.client.once(&format!("demo-{}", self.submitted))?;
            let taken = once.submit_batch(&spec).await?;
            let numbers = batch.iter().map(|task| task.number);
            self.open.extend(numbers.zip(taken.runs.into_iter().map(|run| run.id)));
            self.submitted += batch.len();
        }
        Ok(())
    }

    fn spec(&self, task: Task) -> RunSpec {
        let [binary, settings, journal] = &self.command[..] else {
            unreachable!("there are three words")
        };
        let (number, millis) = (task.number.to_string(), task.length.as_millis().to_string());
        let argv = [binary, "--config", settings, "demo", "task", &number, &millis, journal];
        RunSpec {
            command: Some(CommandSpec {
                argv: argv.map(str::to_owned).to_vec(),
                ..CommandSpec::default()
            }),
            retry: Some(RetrySpec {
                attempts: Some(ATTEMPTS),
                delay: Some("1s".to_owned()),
                max_delay: Some("1s".to_owned()),
                ..RetrySpec::default()
            }),
            labels: [("task".to_owned(), number.clone())].into(),
            ..RunSpec::default()
        }
    }

    /// Whether all have ended.
    pub(super) fn is_over(&self) -> bool {
        self.submitted == self.tasks.len() && self.open.is_empty()
    }

    /// Waits a moment and looks which runs have ended since the last look.
    pub(super) async fn round(mut self) -> (Self, Result<Vec<Ended>, ClientError>) {
        tokio::time::sleep(PAUSE).await;
        let ended = self.look().await;
        (self, ended)
    }

    async fn look(&mut self) -> Result<Vec<Ended>, ClientError> {
        let unfinished = self.unfinished().await?;
        let gone = self.open.iter().filter(|(_, id)| !unfinished.contains(*id));
        let gone: Vec<(u32, String)> =
            gone.take(ASKED_MAX).map(|(task, id)| (*task, id.clone())).collect();
        let mut ended = Vec::new();
        for (task, id) in gone {
            match self.end_of(task, &id).await {
                Ok(end) => ended.extend(end),
                // What was learned before that is not asked for again.
                Err(_) if !ended.is_empty() => break,
                Err(why) => return Err(why),
            }
        }
        Ok(ended)
    }

    /// What a run came to, if it came to something. A dead one is redriven: it counts when the new one has ended.
    async fn end_of(&mut self, task: u32, id: &str) -> Result<Option<Ended>, ClientError> {
        let run = self.client.run_by_id(id).await?;
        if matches!(run.state, RunState::Dead | RunState::Failed) {
            let again = self.client.once(&format!("again-{id}"))?.retry_run(id).await?;
            self.open.insert(task, again.id);
            let last = run.attempts.last().and_then(|last| last.error.clone());
            let why = last.unwrap_or_else(|| run.state.as_str().to_owned());
            return Ok(Some(Ended::Redriven { task, why }));
        }
        if !run.state.is_end() {
            return Ok(None);
        }
        self.open.remove(&task);
        Ok(Some(Ended::Recorded { task, run: Box::new(run) }))
    }

    /// The ids of all unfinished runs.
    async fn unfinished(&self) -> Result<Vec<String>, ClientError> {
        let mut ids = Vec::new();
        let mut filter = RunFilter { limit: Some(PAGE), ..RunFilter::default() };
        loop {
            let page = self.client.queue_runs(QUEUE, &filter).await?;
            ids.extend(page.items.into_iter().map(|run| run.id));
            match page.next {
                Some(next) => filter.cursor = Some(next),
                None => return Ok(ids),
            }
        }
    }
}

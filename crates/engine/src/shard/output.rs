//! What runs print while workers have them, and how far they have come.
//!
//! Both are in memory only, and cost no write while a run executes. A chunk is taken under the run's current token and under
//! no other. When an attempt is over, or its worker falls silent, the last of what it printed is stored in the unit of that
//! result, under the run's id: so whoever learns of the result finds it. A successor begins without: it expects the first
//! byte, and a worker that still has it sends it again.
//!
//! All runs of a shard share [`OUTPUT_SHARD_BYTES_MAX`]. When that is full, the run that printed nothing for the longest time
//! loses what is kept of it, but not the count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::id::{ProjectId, RunId};
use crate::limits::{OUTPUT_SHARD_BYTES_MAX, PROGRESS_EVENT_MS, PROGRESS_EVENTS_MAX};
use crate::queue::given::{GivenState, RunToken, Stale};
use crate::queue::output::{
    OutputPiece, OutputRecord, OutputWindow, RunProgress, joined, output_key, stored,
};
use crate::queue::unfinished::QueueDelta;
use crate::record::encode;

use super::batch::Put;
use super::memory::Delta;
use super::record::FORMAT;
use super::{Now, Shard};

/// What a worker says about a run that it executes.
#[derive(Debug, Clone)]
pub struct OutputCall {
    /// The project that it works for.
    pub project: ProjectId,
    /// The run.
    pub run: RunId,
    /// The token under which it has the run.
    pub token: RunToken,
    /// The worker still has everything that was printed from here on; nothing but these chunks, if it is not said.
    pub oldest: Option<u64>,
    /// What was printed.
    pub chunks: Vec<OutputPiece>,
    /// How far the run has come: percent, and a text.
    pub progress: Option<(Option<u8>, Option<Box<str>>)>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputTaken {
    /// Attempt number, from 1.
    pub attempt: u32,
    /// The offset that is expected next.
    pub next: u64,
    /// What of the chunks was new.
    pub new: Arc<[OutputPiece]>,
    /// How far the run has come, if those who watch are to be told.
    pub told: Option<ToldProgress>,
}

/// How far a run of a queue has come, for those who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldProgress {
    /// The name of the queue.
    pub queue: Box<str>,
    /// What its worker says.
    pub progress: RunProgress,
}

/// What is known in memory of what a run prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveOutput {
    /// No unfinished run of the project has this id.
    NoRun,
    /// The run is unfinished, and nothing came of it in the attempt that is under way, if one is.
    Nothing,
    /// Something came.
    Printed(Box<OutputView>),
}

/// What an unfinished run printed in the attempt that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputView {
    /// Attempt number, from 1.
    pub attempt: u32,
    /// The token of the attempt.
    pub token: RunToken,
    /// So many bytes were printed.
    pub bytes: u64,
    /// What is kept of them, in order.
    pub pieces: Vec<OutputPiece>,
    /// How far it has come.
    pub progress: Option<RunProgress>,
}

/// What the runs of a shard print.
#[derive(Default)]
pub(super) struct Outputs {
    runs: HashMap<u64, AttemptOutput>,
    /// Runs of which something is kept, by when they last printed something.
    by_arrival: BTreeMap<u64, u64>,
    arrivals: u64,
    /// Memory that is taken by what is kept.
    bytes: usize,
    events: EventRate,
    /// Bytes that were stored, and that nobody has counted yet.
    stored: u64,
}

/// What one attempt printed.
struct AttemptOutput {
    project: ProjectId,
    run: RunId,
    attempt: u32,
    token: RunToken,
    window: OutputWindow,
    progress: Option<RunProgress>,
    arrival: u64,
    /// Whether something came that is not stored.
    is_new: bool,
    /// When (steady) those who watch were last told how far it has come.
    told: Option<u64>,
}

/// How many events there were in the second that began then (steady).
#[derive(Default)]
struct EventRate {
    since: u64,
    count: usize,
}

impl EventRate {
    /// Whether there may be one more, which is counted then.
    fn admits(&mut self, now: Now) -> bool {
        if now.steady.saturating_sub(self.since) >= 1_000 {
            *self = Self { since: now.steady, count: 0 };
        }
        self.count += 1;
        self.count <= PROGRESS_EVENTS_MAX
    }
}

impl Outputs {
    /// Takes chunks of an attempt, which is the current one. Gives what of them is new.
    fn take(
        &mut self,
        sequence: u64,
        chunks: Vec<OutputPiece>,
        oldest: Option<u64>,
    ) -> Vec<OutputPiece> {
        let Some(output) = self.runs.get_mut(&sequence) else { return Vec::new() };
        let before = output.window.cost();
        let oldest = oldest.unwrap_or(u64::MAX);
        let new: Vec<OutputPiece> =
            chunks.into_iter().filter_map(|chunk| output.window.take(chunk, oldest)).collect();
        if !new.is_empty() {
            output.is_new = true;
            self.by_arrival.remove(&output.arrival);
            self.arrivals += 1;
            output.arrival = self.arrivals;
            self.by_arrival.insert(output.arrival, sequence);
            self.bytes = self.bytes + output.window.cost() - before;
        }
        while self.bytes > OUTPUT_SHARD_BYTES_MAX
            && let Some((_, sequence)) = self.by_arrival.pop_first()
            && let Some(quiet) = self.runs.get_mut(&sequence)
        {
            self.bytes -= quiet.window.cost();
            quiet.window.forget();
        }
        new
    }

    fn begin(&mut self, sequence: u64, output: AttemptOutput) {
        let is_current = |known: &AttemptOutput| known.token == output.token;
        if !self.runs.get(&sequence).is_some_and(is_current) {
            self.forget(sequence);
            self.runs.insert(sequence, output);
        }
    }

    fn forget(&mut self, sequence: u64) {
        if let Some(output) = self.runs.remove(&sequence)
            && self.by_arrival.remove(&output.arrival).is_some()
        {
            self.bytes -= output.window.cost();
        }
    }

    /// What is stored with a change of a run: what its attempt printed, if that is over, or its worker is silent.
    pub(super) fn stored_with(&mut self, change: &QueueDelta) -> Option<Delta> {
        let (sequence, is_over) = match change {
            QueueDelta::Given(sequence, record) => match record.state {
                GivenState::Running if self.runs.get(sequence)?.token == record.token => {
                    return None;
                }
                GivenState::Running | GivenState::Waiting(_) => (*sequence, true),
                GivenState::InDoubt(_) => (*sequence, false),
            },
            QueueDelta::Ended(place) => (place.order.sequence, true),
            QueueDelta::Limits(..)
            | QueueDelta::NoQueue(_)
            | QueueDelta::Rate(..)
            | QueueDelta::Claimed(_)
            | QueueDelta::ClaimedGone(_)
            | QueueDelta::Chosen(..)
            | QueueDelta::PartsEnded(..)
            | QueueDelta::Submitted(_) => return None,
        };
        let output = self.runs.get_mut(&sequence)?;
        let record = std::mem::take(&mut output.is_new).then(|| output.record());
        self.stored += record.as_ref().map_or(0, |record| record.len() as u64);
        let put = record.map(|record| Delta::Raw(Put::Value(output_key(output.run), record)));
        if is_over {
            self.forget(sequence);
        }
        put
    }
}

impl AttemptOutput {
    fn record(&self) -> Vec<u8> {
        let record = OutputRecord {
            project: self.project,
            attempt: self.attempt,
            token: self.token,
            bytes: self.window.next(),
            pieces: stored(&self.window),
            progress: self.progress.clone(),
        };
        encode(FORMAT, &record)
    }
}

impl Shard {
    /// A worker says what a run prints, and how far it has come. Waits for nothing, and writes nothing.
    pub fn take_output(&mut self, call: OutputCall, now: Now) -> Result<OutputTaken, Stale> {
        let sequence = self.queued_run(call.project, call.run).ok_or(Stale)?;
        let given = self.queues.runs.given(sequence).filter(|given| given.counts(call.token));
        let attempt = given.ok_or(Stale)?.attempt;
        let queue = self.queues.runs.queue_of(sequence).and_then(|queue| self.queues.get(queue));
        let queue = queue.map_or_else(Box::default, |queue| queue.name.clone());
        let outputs = &mut self.queues.outputs;
        outputs.begin(
            sequence,
            AttemptOutput {
                project: call.project,
                run: call.run,
                attempt,
                token: call.token,
                window: OutputWindow::default(),
                progress: None,
                arrival: 0,
                is_new: false,
                told: None,
            },
        );
        let new = outputs.take(sequence, call.chunks, call.oldest);
        let output = outputs.runs.get_mut(&sequence).ok_or(Stale)?;
        let mut told = None;
        if let Some((percent, text)) = call.progress {
            let progress = RunProgress { percent, text, at: now.wall };
            let is_due = output.told.is_none_or(|told| now.steady >= told + PROGRESS_EVENT_MS);
            if is_due && outputs.events.admits(now) {
                output.told = Some(now.steady);
                told = Some(ToldProgress { queue, progress: progress.clone() });
            }
            (output.progress, output.is_new) = (Some(progress), true);
        }
        Ok(OutputTaken { attempt, next: output.window.next(), new: new.into(), told })
    }

    /// What a run of this project prints.
    pub fn output(&self, project: ProjectId, run: RunId) -> LiveOutput {
        let Some(sequence) = self.queued_run(project, run) else { return LiveOutput::NoRun };
        let Some(output) = self.queues.outputs.runs.get(&sequence) else {
            return LiveOutput::Nothing;
        };
        LiveOutput::Printed(Box::new(OutputView {
            attempt: output.attempt,
            token: output.token,
            bytes: output.window.next(),
            pieces: joined(output.window.pieces()),
            progress: output.progress.clone(),
        }))
    }

    /// How many bytes of output were stored since this was last asked.
    pub fn take_output_stored(&mut self) -> u64 {
        std::mem::take(&mut self.queues.outputs.stored)
    }

    /// How far a run has come, by its number.
    pub(super) fn progress(&self, sequence: u64) -> Option<RunProgress> {
        self.queues.outputs.runs.get(&sequence)?.progress.clone()
    }
}

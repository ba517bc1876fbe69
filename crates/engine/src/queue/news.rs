//! News: what those who watch are told about queues and workers while it happens.
//!
//! Neither memory nor the store keeps any of it. What tells of a change is told once that is written.

use std::sync::Arc;

use crate::id::{ProjectId, RunId};
use crate::instant::Instant;

/// Something about a queue or a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueNews {
    /// In which project.
    pub project: ProjectId,
    /// When it happened.
    pub at: Instant,
    /// What it was.
    pub what: QueueHappening,
}

/// What happens in queues, and to workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueHappening {
    /// The oldest run of a queue waits for too long.
    Overdue {
        /// The queue's name.
        queue: Box<str>,
        /// Since when the run is due.
        oldest: Instant,
    },
    /// No run of a queue waits for too long any more.
    Well {
        /// The queue's name.
        queue: Box<str>,
    },
    /// A run was given to a worker.
    Given {
        /// The queue's name.
        queue: Box<str>,
        /// The run's id.
        run: RunId,
        /// The worker's name.
        worker: Box<str>,
        /// Attempt number, from 1.
        attempt: u32,
    },
    /// Something became of a worker.
    Worker {
        /// Its name.
        worker: Box<str>,
        /// What it was.
        turn: WorkerTurn,
    },
}

/// What becomes of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerTurn {
    /// It was heard for the first time, or it has begun a new life.
    Came,
    /// It was not heard of for so long that runs were taken from it.
    Silent {
        /// How many.
        runs: usize,
    },
    /// It was not heard of for long, has no runs, and is forgotten.
    Gone,
}

/// What became of a worker, by the name under which a shard knows it.
pub type WorkerNews = (Arc<str>, WorkerTurn);

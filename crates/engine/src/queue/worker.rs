//! What workers say, and what they are answered: the protocol of claims.
//!
//! A worker says in each request what came of runs (`done`), what it gives back unbegun (`released`) and everything else
//! that it has (`running`). So whatever is recorded as given to it and is not named, it does not have, and if the claim
//! that gave it is settled it never will: it is withdrawn, and waits again. A request may ask for more runs, and wait for
//! them. Requests and answers may be lost, repeated and late: numbers tell what is settled, tokens what is current.
//!
//! What is remembered of a worker is in memory only. A successor has the records of given runs, and gives everybody a fresh
//! period: being alive costs no write. It draws a new *cookie*, so that a claim that was meant for a former memory gets
//! nothing: whether its answer was lost, only that memory knew.
//!
//! Here are the words of the protocol; what follows from them is in [`super::claim`].

use std::sync::Arc;

use crate::id::SerialId;
use crate::past::Attempt;

use super::given::{AttemptResult, GivenRecord, RunToken};

/// A run, and the token under which a worker has it.
pub type HeldRun = (u64, RunToken);

/// What a worker says.
#[derive(Debug, Clone)]
pub struct WorkerRequest {
    /// Its name.
    pub worker: Arc<str>,
    /// Which life of it: greater than all before.
    pub incarnation: u64,
    /// Which request of this life: greater than all before.
    pub number: u64,
    /// The highest number of a claim that is answered or void.
    pub settled: u64,
    /// So long may it be silent.
    pub lease_ms: u32,
    /// Which log it keeps of what it begins: the life with which that began. What an earlier life had under another log, and
    /// nobody names, may have begun.
    pub since: u64,
    /// What came of runs.
    pub done: Vec<DoneRun>,
    /// Runs that it gives back, and has not begun.
    pub released: Vec<HeldRun>,
    /// It takes no more runs, and ends when it has none.
    pub is_draining: bool,
    /// What it wants besides.
    pub wants: Wants,
}

/// What came of a run that a worker had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneRun {
    /// The run, and the token under which the worker had it.
    pub held: HeldRun,
    /// What came of it.
    pub result: AttemptResult,
    /// What is kept of the attempt.
    pub made: Option<Attempt>,
}

/// What a worker wants, and what it names for that.
#[derive(Debug, Clone)]
pub enum Wants {
    /// Nothing: it reports results, and does not say what else it has.
    Report,
    /// To be heard. It has these, beside what the request reports.
    Beat {
        /// Runs that it has.
        running: Vec<HeldRun>,
    },
    /// To be heard, and to get more.
    Claim {
        /// Runs that it has.
        running: Vec<HeldRun>,
        /// What the last answer said about the memory that it speaks to.
        cookie: u64,
        /// From which queues, the first before the second.
        queues: Vec<SerialId>,
        /// So many runs at most.
        free: usize,
        /// Until when (steady) it waits if there is none.
        until: u64,
        /// What it says about itself: `zone=b,version=7`.
        labels: Arc<str>,
    },
}

/// What a worker is answered, once everything behind it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerAnswer {
    /// The memory that it speaks to.
    pub cookie: u64,
    /// The highest number of its requests that was heard.
    pub as_of: u64,
    /// Results and releases that are dealt with: whether they counted. What is missing is to be sent again.
    pub acks: Vec<(HeldRun, bool)>,
    /// Runs that it has lost: it ends them, and forgets their results.
    pub lost: Vec<HeldRun>,
    /// Runs that somebody wants to end.
    pub cancel: Vec<HeldRun>,
    /// Runs that it is given.
    pub runs: Vec<(u64, Arc<GivenRecord>)>,
}

/// What follows from a request at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// This is answered.
    Answer(WorkerAnswer),
    /// The answer comes with a later [step](super::claim::Workers::step).
    Waits,
    /// A later life of the worker was heard: this one has to stop.
    OldIncarnation,
    /// As many workers of its project, or of all projects, are known as may be.
    TooManyWorkers,
}

/// What a worker does, as far as a shard knows. Of a worker that several shards know the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerActivity {
    /// It was not heard of for two beats, nor waited a claim of it meanwhile: it has ended, or cannot be heard.
    Silent,
    /// It has no runs, and no claim of it waits.
    Idle,
    /// A claim of it waits for runs.
    Waiting,
    /// It has runs.
    Busy,
    /// It takes no more runs.
    Draining,
}

/// A worker that was heard of, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    /// Its name.
    pub name: Arc<str>,
    /// Which life of it.
    pub incarnation: u64,
    /// So long ago it was heard, in milliseconds; never by this owner, if that is none.
    pub heard_ms_ago: Option<u64>,
    /// Whether it was not heard of for two beats, not counting those for which a claim of it waited in vain.
    pub is_silent: bool,
    /// Whether it waits for runs.
    pub is_waiting: bool,
    /// It takes no more runs.
    pub is_draining: bool,
    /// The queues that it claims from.
    pub queues: Vec<SerialId>,
    /// How many runs it has, as far as is recorded.
    pub running: usize,
    /// So long may it be silent; none, if it was never heard by this owner.
    pub lease_ms: Option<u32>,
    /// What it said about itself with its last claim: `zone=b,version=7`.
    pub labels: Arc<str>,
}

impl WorkerView {
    /// What it does.
    pub fn activity(&self) -> WorkerActivity {
        match self.running {
            _ if self.is_silent && !self.is_waiting => WorkerActivity::Silent,
            _ if self.is_draining => WorkerActivity::Draining,
            0 if self.is_waiting => WorkerActivity::Waiting,
            0 => WorkerActivity::Idle,
            _ => WorkerActivity::Busy,
        }
    }
}

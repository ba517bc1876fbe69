//! Queues as a child would write them: lists that are searched from end to end for each run.
//!
//! Nothing is kept in order and nothing is counted ahead. What may be given is worked out anew each time from what waits,
//! what executes and what was given before, so each rule of docs/queues.md is one line here.

use engine::id::RunId;
use engine::queue::record::QueueSettings;

/// A run that waits or executes.
#[derive(Debug, Clone)]
pub(super) struct NaiveRun {
    pub(super) id: RunId,
    pub(super) queue: usize,
    pub(super) priority: u8,
    /// When it was due first: what never began waits there again.
    pub(super) first_due: i64,
    pub(super) due: i64,
    pub(super) expires: Option<i64>,
    /// The order in which runs were submitted.
    pub(super) number: usize,
    pub(super) key: Option<&'static str>,
    pub(super) attempt: u32,
    pub(super) failures: u8,
    pub(super) is_cancelled: bool,
    /// The worker that has it.
    pub(super) worker: Option<usize>,
}

/// A queue, and when its runs were given.
#[derive(Debug, Clone)]
pub(super) struct NaiveQueue {
    pub(super) settings: QueueSettings,
    pub(super) is_paused: bool,
    pub(super) given: Vec<i64>,
}

/// A claim for runs.
#[derive(Debug, Clone)]
pub(super) struct NaiveClaim {
    pub(super) worker: usize,
    pub(super) ticket: u64,
    pub(super) queues: Vec<usize>,
    pub(super) free: usize,
    pub(super) until: i64,
}

/// Runs by their ids, with the number of the attempt, in the order in which they are given.
pub(super) type NaiveAnswer = Vec<(RunId, u32)>;

#[derive(Debug, Default)]
pub(super) struct Naive {
    pub(super) queues: Vec<NaiveQueue>,
    pub(super) runs: Vec<NaiveRun>,
    /// Claims that wait, in the order in which they came.
    pub(super) claims: Vec<NaiveClaim>,
}

impl Naive {
    /// The run of a queue that is given next, if one may be given.
    fn next(&self, queue: usize, now: i64) -> Option<usize> {
        let NaiveQueue { settings, is_paused, given } = &self.queues[queue];
        let executing = |key: Option<&str>| {
            let of_queue =
                self.runs.iter().filter(|run| run.queue == queue && run.worker.is_some());
            of_queue.filter(|run| key.is_none() || run.key == key).count()
        };
        let has_room = |max: Option<u32>, count: usize| max.is_none_or(|max| count < max as usize);
        let is_within = |rate: i64| given.iter().filter(|at| **at > now - rate).count();
        let is_open = !is_paused
            && has_room(settings.concurrency, executing(None))
            && settings
                .rate
                .is_none_or(|rate| is_within(rate.period_ms.into()) < rate.runs as usize);
        let may_be_given = |run: &NaiveRun| {
            run.queue == queue
                && run.worker.is_none()
                && run.due <= now
                && (run.key.is_none()
                    || executing(run.key) < settings.per_key.unwrap_or(1) as usize)
        };
        let candidates = (0..self.runs.len()).filter(|index| may_be_given(&self.runs[*index]));
        let order = |index: &usize| {
            let run = &self.runs[*index];
            (run.priority, run.due, run.number)
        };
        candidates.min_by_key(order).filter(|_| is_open)
    }

    /// What a claim is given.
    pub(super) fn give(&mut self, claim: &NaiveClaim, now: i64) -> NaiveAnswer {
        let mut given = Vec::new();
        for queue in &claim.queues {
            while given.len() < claim.free
                && let Some(index) = self.next(*queue, now)
            {
                let run = &mut self.runs[index];
                (run.worker, run.attempt) = (Some(claim.worker), run.attempt + 1);
                given.push((run.id, run.attempt));
                self.queues[*queue].given.push(now);
            }
        }
        given
    }

    /// What time brings: runs expire, claims have waited for long enough, and those that wait are given what is there. Of
    /// those who wait for a queue, the first to come is the first to get something, unless its worker is silent.
    pub(super) fn step(
        &mut self,
        now: i64,
        is_there: impl Fn(usize) -> bool,
    ) -> Vec<(u64, NaiveAnswer)> {
        let is_expired =
            |run: &NaiveRun| run.attempt == 0 && run.expires.is_some_and(|at| at <= now);
        self.runs.retain(|run| run.worker.is_some() || !is_expired(run));
        let over = self.claims.extract_if(.., |claim| claim.until <= now);
        let mut answers: Vec<_> = over.map(|claim| (claim.ticket, Vec::new())).collect();
        for queue in 0..self.queues.len() {
            for claim in self.claims.clone() {
                if claim.queues.contains(&queue)
                    && is_there(claim.worker)
                    && self.next(queue, now).is_some()
                {
                    answers.push((claim.ticket, self.give(&claim, now)));
                    self.claims.retain(|other| other.ticket != claim.ticket);
                }
            }
        }
        answers
    }

    pub(super) fn of_worker(&self, worker: usize) -> impl Iterator<Item = &NaiveRun> {
        self.runs.iter().filter(move |run| run.worker == Some(worker))
    }

    pub(super) fn run(&mut self, id: RunId) -> &mut NaiveRun {
        self.runs.iter_mut().find(|run| run.id == id).expect("a run that is unfinished")
    }

    pub(super) fn ends(&mut self, id: RunId) {
        self.runs.retain(|run| run.id != id);
    }
}

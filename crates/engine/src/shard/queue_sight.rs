//! What those who watch and measure see of the queues of a shard.
//!
//! It is counted as it happens, at the same cost for each run. What has to be looked for, such as the state of every worker,
//! is looked for when somebody asks. News of a run that was given is made only while somebody watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::SerialId;
use crate::queue::decided::RunGiven;
use crate::queue::meter::{Flow, QueueMeter, QueueTally};
use crate::queue::news::{QueueHappening, QueueNews, WorkerTurn};
use crate::queue::unfinished::QueueCensus;
use crate::queue::worker::WorkerActivity;

use super::hear::name_apart;
use super::memory::Delta;
use super::queues::Queues;
use super::{Now, Shard, Unit};

/// What is counted of queues, and told of them.
#[derive(Default)]
pub(super) struct QueueSight {
    meters: BTreeMap<SerialId, QueueMeter>,
    tally: QueueTally,
    is_watched: bool,
    /// News that wait for nothing to be written.
    news: Vec<QueueNews>,
}

impl QueueSight {
    pub(super) fn ended(&mut self, queue: SerialId, now: Now) {
        self.meters.entry(queue).or_default().ended(now.steady);
    }

    pub(super) fn forget(&mut self, queue: SerialId) {
        self.meters.remove(&queue);
    }
}

impl Queues {
    /// What was given of a queue, and what ended, within the last minute.
    pub(super) fn last_minute(&self, queue: SerialId, now: Now) -> Flow {
        let meter = self.sight.meters.get(&queue);
        meter.map_or_else(Flow::default, |meter| meter.last_minute(now.steady))
    }
}

impl Shard {
    /// Whether somebody watches what happens.
    pub fn set_watched(&mut self, is_watched: bool) {
        self.queues.sight.is_watched = is_watched;
    }

    /// What those who watch are told, and waits for nothing to be written.
    pub fn take_news(&mut self) -> Vec<QueueNews> {
        std::mem::take(&mut self.queues.sight.news)
    }

    /// What was counted since this was last asked for.
    pub fn take_tally(&mut self) -> QueueTally {
        std::mem::take(&mut self.queues.sight.tally)
    }

    /// Counts runs that were given, and tells those who watch.
    pub(super) fn see_given(&mut self, given: &[RunGiven], now: Now) {
        for RunGiven { queue, due, .. } in given {
            let sight = &mut self.queues.sight;
            sight.meters.entry(*queue).or_default().given(now.steady);
            let delay = now.wall.0.saturating_sub(due.0).max(0);
            sight.tally.start_delays_ms.push(u32::try_from(delay).unwrap_or(u32::MAX));
        }
        if !self.queues.sight.is_watched || given.is_empty() {
            return;
        }
        let news = given.iter().filter_map(|given| self.news_of_given(given, now));
        let news = news.map(|news| Delta::News(Box::new(news))).collect();
        self.outbox.push(Unit::of(news).by(now.wall));
    }

    fn news_of_given(&self, given: &RunGiven, now: Now) -> Option<QueueNews> {
        let runs = &self.queues.runs;
        let queue = self.queues.get(given.queue)?;
        let record = runs.given(given.sequence)?;
        let what = QueueHappening::Given {
            queue: queue.name.clone(),
            run: self.queued_id(&runs.get(given.sequence)?),
            worker: record.claimant.own_name().into(),
            attempt: record.attempt,
        };
        Some(QueueNews { project: queue.id.project, at: now.wall, what })
    }

    /// Tells those who watch what became of workers.
    pub(super) fn tell_workers(&mut self, now: Now) {
        let mut given_up = Vec::new();
        for (name, turn) in self.queues.workers.take_news() {
            let Some((project, worker)) = name_apart(&name) else { continue };
            let what = QueueHappening::Worker { worker: worker.into(), turn };
            let news = QueueNews { project, at: now.wall, what };
            match turn {
                // That a worker is there, or not, is written by nobody.
                WorkerTurn::Came | WorkerTurn::Gone => self.queues.sight.news.push(news),
                WorkerTurn::Silent { .. } => given_up.push(Delta::News(Box::new(news))),
            }
        }
        if !given_up.is_empty() {
            self.outbox.push(Unit::of(given_up).by(now.wall));
        }
    }

    /// How many runs of queues are unfinished, and how many of them workers have.
    pub fn queue_census(&self) -> QueueCensus {
        let mut sum = QueueCensus::default();
        for queue in self.queues.iter() {
            let census = self.queues.runs.census(queue.id.serial);
            sum.waiting += census.waiting;
            sum.running += census.running;
            sum.oldest = sum.oldest.into_iter().chain(census.oldest).min();
        }
        sum
    }

    /// How many queues have a run that waits for longer than it may.
    pub fn queues_overdue(&self) -> usize {
        self.queues.iter().filter(|queue| queue.overdue.is_some()).count()
    }

    /// What each worker does that this shard knows. One that speaks to several shards is known to each.
    pub fn worker_activities(&self, now: Now) -> impl Iterator<Item = (&Arc<str>, WorkerActivity)> {
        self.queues.workers.activities(&self.queues.runs, now)
    }
}

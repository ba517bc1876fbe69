//! Queues whose oldest run waits for too long: somebody is told once, and once more when it is over.
//!
//! A queue says with `alert_after` how long a run that a worker could have may wait. Whether one waits for longer is looked
//! at when the oldest run comes to that age, and now and then in between, because a run that had to wait for its key
//! may be older than all others when the key has room. That the queue is overdue is in its record, written in the unit of the
//! notice that tells of it: a successor tells nobody again. It is over when the oldest waits for less than half of the time,
//! so that a queue which is just at its bound is told of once and not all day.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::limits::{QUEUE_LOOK_MAX, QUEUE_LOOK_MIN};
use crate::mutant::Mutant;
use crate::notice::{self, NoticeNews, NoticeSubject, Occasion};
use crate::past::PastOfQueue;
use crate::queue::news::{QueueHappening, QueueNews};
use crate::queue::record::QueueRecord;
use crate::queue::unfinished::QueueCensus;

use super::memory::Delta;
use super::{Now, Shard, Unit};

/// The queues that are watched, and when.
#[derive(Default)]
pub(super) struct QueueAlerts {
    /// How long their oldest run may wait.
    after: BTreeMap<SerialId, Duration>,
    /// When to look at them again.
    look: Option<Instant>,
}

/// How a queue that is watched turned.
#[derive(Clone, Copy)]
enum QueueTurn {
    /// Its oldest run waits for too long: it is due since then.
    Overdue(Instant),
    /// It does so no more.
    Well,
}

impl QueueAlerts {
    /// A queue is watched as its record says, and looked at soon.
    pub(super) fn watch(&mut self, record: &QueueRecord) {
        match record.settings.alert_after_ms {
            Some(after_ms) => {
                self.after.insert(record.id.serial, Duration::from_millis(after_ms));
                self.look = Some(Instant::FIRST);
            }
            None => self.forget(record.id.serial),
        }
    }

    pub(super) fn forget(&mut self, queue: SerialId) {
        self.after.remove(&queue);
    }

    /// Something has changed for many queues.
    pub(super) fn look_soon(&mut self) {
        self.look = (!self.after.is_empty()).then_some(Instant::FIRST);
    }

    /// A run of a queue is due then: it may be the oldest one.
    pub(super) fn comes(&mut self, queue: SerialId, due: Instant) {
        if let Some(after) = self.after.get(&queue) {
            self.look_by(due.after(*after));
        }
    }

    fn look_by(&mut self, at: Instant) {
        self.look = self.look.into_iter().chain([at]).min();
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.look
    }
}

/// How a queue turns, by the age of its oldest run; not at all, if that is none.
fn turn(
    record: &QueueRecord,
    oldest: Option<Instant>,
    after: Duration,
    now: Now,
) -> Option<QueueTurn> {
    match (record.overdue, oldest) {
        (None, Some(oldest)) if oldest.after(after) <= now.wall => Some(QueueTurn::Overdue(oldest)),
        (Some(_), None) => Some(QueueTurn::Well),
        (Some(_), Some(oldest)) if oldest.after(after / 2) > now.wall => Some(QueueTurn::Well),
        (None | Some(_), None | Some(_)) => None,
    }
}

impl Shard {
    /// Tells of the queues whose oldest run waits for too long, and of those that are well again.
    pub(super) fn alert_queues(&mut self, now: Now) {
        if self.queues.alerts.look.is_none_or(|at| at > now.wall) {
            return;
        }
        self.queues.alerts.look = None;
        let watched: Vec<_> = self.queues.alerts.after.clone().into_iter().collect();
        for (serial, after) in watched {
            if self.outbox.is_half_full() {
                return self.queues.alerts.look_by(now.wall);
            }
            let census = self.queues.runs.census(serial);
            let Some(record) = self.queues.get(serial).cloned() else { continue };
            let turned = turn(&record, census.oldest, after, now);
            // Whoever paused it, or stopped the project, knows.
            let is_quiet = record.overdue.is_none() && self.queues.is_held_back(&record);
            let turned = turned.filter(|_| !is_quiet);
            let is_overdue = match turned {
                Some(QueueTurn::Overdue(_)) => true,
                Some(QueueTurn::Well) => false,
                None => record.overdue.is_some(),
            };
            if let Some(turned) = turned {
                self.turn_queue(&record, turned, (after, census), now);
            }
            if is_overdue || census.waiting > 0 || census.running > 0 {
                let again = now.wall.after((after / 4).clamp(QUEUE_LOOK_MIN, QUEUE_LOOK_MAX));
                let old = census.oldest.map(|oldest| oldest.after(after));
                let old = old.filter(|at| *at > now.wall && !is_overdue);
                self.queues.alerts.look_by(again.min(old.unwrap_or(again)));
            }
        }
    }

    fn turn_queue(
        &mut self,
        record: &QueueRecord,
        turn: QueueTurn,
        (after, census): (Duration, QueueCensus),
        now: Now,
    ) {
        let (overdue, occasion, news) = match turn {
            QueueTurn::Overdue(oldest) => {
                let waits = u64::try_from(now.wall.0 - oldest.0).unwrap_or(0) / 1_000;
                let news = NoticeNews::LongWait(Duration::from_secs(waits), census);
                (Some(now.wall), Occasion::Overdue, news)
            }
            QueueTurn::Well => (None, Occasion::Recovery, NoticeNews::ShortWait(after)),
        };
        let (project, queue) = (record.id.project, record.name.clone());
        let what = match turn {
            QueueTurn::Overdue(oldest) => QueueHappening::Overdue { queue, oldest },
            QueueTurn::Well => QueueHappening::Well { queue },
        };
        let told = Delta::News(Box::new(QueueNews { project, at: now.wall, what }));
        let turned = Delta::Queue(Arc::new(QueueRecord { overdue, ..record.clone() }));
        let listener = (self.audience)(project).filter(|listener| listener.on.has(occasion));
        let notice = listener.map_or_else(Vec::new, |listener| {
            let subject = NoticeSubject::Queue(record.id, &record.name);
            let body = notice::body(&listener, &subject, occasion, &news, now.wall);
            let about = (project, record.id.serial, &*record.name);
            self.waiting_notice(about, &listener, occasion, body, now)
        });
        self.enact_with(Unit::of(vec![turned, told]).by(now.wall), notice, Mutant::NoticeLater);
    }

    /// What is kept of a notice because it tells of a queue.
    pub(super) fn past_of_queue(&self, serial: SerialId) -> Option<Box<PastOfQueue>> {
        let name = self.queues.get(serial)?.name.clone();
        Some(Box::new(PastOfQueue { name, ..PastOfQueue::default() }))
    }
}

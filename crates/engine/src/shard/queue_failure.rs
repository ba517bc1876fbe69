//! Queues whose submitted runs fail: somebody is told of the first failure, and once more when it is over.
//!
//! Runs of a trigger are reckoned with it ([`super::notify`]). One that was submitted has none, so its queue remembers that
//! runs are failing: in its record, written in the unit of the end and of the notice, so that a successor tells nobody
//! again. Runs of one queue have little to do with each other, and of a thousand one may fail at any time. So it is over when
//! one succeeds and none has failed for [`QUEUE_WELL_AFTER`]: however many fail, two notices are the most within that time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{RunId, SerialId};
use crate::instant::Instant;
use crate::limits::QUEUE_WELL_AFTER;
use crate::notice::{self, NoticeNews, NoticeSubject, Occasion};
use crate::past::{End, Finished};
use crate::queue::record::QueueRecord;

use super::memory::Delta;
use super::{Now, Shard, Unit};

/// How a queue turned with the end of a run.
#[derive(Clone, Copy)]
enum FailureTurn {
    Failing,
    Well,
}

/// When a run failed last, of each queue whose runs are failing.
#[derive(Default)]
pub(super) struct QueueFailures(BTreeMap<SerialId, Instant>);

impl QueueFailures {
    /// A queue is failing or not, as its record says. Whoever begins with the record knows of no later failure.
    pub(super) fn write(&mut self, record: &QueueRecord) {
        match record.failing {
            Some(since) => drop(self.0.entry(record.id.serial).or_insert(since)),
            None => self.forget(record.id.serial),
        }
    }

    pub(super) fn forget(&mut self, queue: SerialId) {
        self.0.remove(&queue);
    }

    /// How a queue turns with the end of a run; not at all, if that is none.
    fn turn(&mut self, record: &QueueRecord, end: End, now: Now) -> Option<FailureTurn> {
        match (end, record.failing) {
            (End::Succeeded, Some(since)) => {
                let last = self.0.get(&record.id.serial).copied().unwrap_or(since);
                (last.after(QUEUE_WELL_AFTER) <= now.wall).then_some(FailureTurn::Well)
            }
            (End::Failed | End::Dead | End::Expired | End::Unknown, Some(_)) => {
                self.0.insert(record.id.serial, now.wall);
                None
            }
            (End::Failed | End::Dead | End::Expired | End::Unknown, None) => {
                Some(FailureTurn::Failing)
            }
            (End::Succeeded, None) | (End::Cancelled, _) => None,
        }
    }
}

impl Shard {
    /// What of a queue changes with the end of a run that was submitted to it, and the notice to whoever is told.
    pub(super) fn reckon_submitted(
        &mut self,
        queue: SerialId,
        finished: &Finished,
        now: Now,
        unit: &mut Unit,
    ) -> Vec<Delta> {
        let Some(record) = self.queues.get(queue).cloned() else { return Vec::new() };
        let Some(turn) = self.queues.failures.turn(&record, finished.end, now) else {
            return Vec::new();
        };
        let listener = (self.audience)(record.id.project);
        let hears = |what| listener.as_ref().is_some_and(|listener| listener.on.has(what));
        let (failing, occasion) = match turn {
            FailureTurn::Failing if !hears(Occasion::Failure) && !hears(Occasion::Recovery) => {
                return Vec::new();
            }
            FailureTurn::Failing => (Some(now.wall), Occasion::Failure),
            FailureTurn::Well => (None, Occasion::Recovery),
        };
        unit.changes.push(Delta::Queue(Arc::new(QueueRecord { failing, ..(*record).clone() })));
        let Some(listener) = listener.filter(|listener| listener.on.has(occasion)) else {
            return Vec::new();
        };
        let run = RunId::submitted(self.id, finished.trigger.0, finished.slot, self.cluster);
        let subject = NoticeSubject::Queue(record.id, &record.name);
        let news = NoticeNews::Ended(run, finished);
        let body = notice::body(&listener, &subject, occasion, &news, now.wall);
        let about = (record.id.project, queue, &*record.name);
        self.waiting_notice(about, &listener, occasion, body, now)
    }
}

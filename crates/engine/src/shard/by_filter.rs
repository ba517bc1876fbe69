//! What people do to many unfinished runs of a queue at once, by a filter, in pieces.
//!
//! A million runs may wait, and slots of triggers are decided by the same shard: so one piece looks at a bounded number of
//! runs and says from which number on to continue. Numbers only grow: whoever goes on to the last number that there was when
//! it began has met every run that was there, and none that came since.

use crate::id::{ProjectId, SerialId};
use crate::limits::{CANCEL_RUNS_MAX, FILTER_LOOKED_AT_MAX};
use crate::queue::decided::Decided;
use crate::queue::filter::UnfinishedFilter;
use crate::queue::given::GivenRecord;

use super::command::{Done, Rejection};
use super::hear::ShardAnswer;
use super::{Now, Shard, Ticket};

/// Runs by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberSpan {
    /// Those after this one,
    pub after: u64,
    /// up to this one.
    pub upto: u64,
}

/// How far a filter has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterProgress {
    /// Runs that were meant.
    pub matched: usize,
    /// Those among them that workers have, and that end when these are told.
    pub running: usize,
    /// The number after which to go on, unless all were looked at.
    pub next: Option<u64>,
}

impl Shard {
    /// Cancels runs of a queue, at most so many.
    pub(super) fn cancel_by_filter(
        &mut self,
        queue: SerialId,
        filter: &UnfinishedFilter,
        span: NumberSpan,
        most: usize,
        now: Now,
    ) -> Result<Done, Rejection> {
        self.queues.get(queue).ok_or(Rejection::NoSuchQueue)?;
        let (meant, progress) = self.meant(queue, filter, span, most.min(CANCEL_RUNS_MAX));
        let mut decided = Decided::with_room(usize::MAX);
        for sequence in meant {
            decided.cancel(&mut self.queues.runs, sequence);
        }
        self.enact_decided(decided, now);
        Ok(Done::CancelledSome(progress))
    }

    /// Tells how many runs of a queue are meant.
    pub fn count_runs(
        &mut self,
        (project, name): (ProjectId, &str),
        filter: &UnfinishedFilter,
        span: NumberSpan,
        ticket: Ticket,
    ) {
        let queue = self.queues.named(project, name).map(|queue| queue.id.serial);
        let count = |queue| self.meant(queue, filter, span, usize::MAX).1;
        let progress = queue.map(count).unwrap_or_default();
        self.outbox.answer(ticket, ShardAnswer::Counted(progress));
    }

    /// The numbers of at most so many runs that are meant. One that is being cancelled already is not.
    fn meant(
        &self,
        queue: SerialId,
        filter: &UnfinishedFilter,
        span: NumberSpan,
        most: usize,
    ) -> (Vec<u64>, FilterProgress) {
        let runs = &self.queues.runs;
        let (mut meant, mut progress) = (Vec::new(), FilterProgress::default());
        let mut last = span.after;
        let numbers = runs.after(span.after).take_while(|sequence| *sequence <= span.upto);
        for (looked_at, sequence) in numbers.enumerate() {
            if looked_at == FILTER_LOOKED_AT_MAX || meant.len() == most {
                progress.next = Some(last);
                break;
            }
            last = sequence;
            let given = self.told_of(sequence).map(|given| &**given);
            // A run is meant with all of its parts.
            let is_meant = runs.queue_of(sequence) == Some(queue)
                && runs.part(sequence).is_none()
                && !given.is_some_and(|given| given.cancel)
                && runs.get(sequence).is_some_and(|run| filter.takes(&run, given));
            if is_meant {
                meant.push(sequence);
                progress.running += usize::from(given.is_some_and(GivenRecord::is_running));
            }
        }
        progress.matched = meant.len();
        (meant, progress)
    }
}

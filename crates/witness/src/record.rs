//! What happened lately, numbered, for those who read it while it happens.
//!
//! Ticks and findings go the same way, in the order in which they came. A reader who is slow, or comes back after a
//! while, gets what is still there, and is told where something is missing. Nobody who reads slows anybody down.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use crate::limits::EVENTS_KEPT_MAX;
use crate::report::Happening;
use crate::tick::Tick;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Event {
    /// A tick came.
    Tick(Tick),
    /// It shows something.
    Happening(Happening),
}

impl Event {
    /// What kind of event it is.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tick(_) => "tick",
            Self::Happening(happening) => happening.name(),
        }
    }
}

/// Events with their numbers, from 1.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// The number of the last one.
    last: u64,
    kept: VecDeque<Arc<Event>>,
}

/// What came after a place in the record.
#[derive(Debug)]
pub(crate) enum News {
    /// Some that came then are not kept any more: go on after this place.
    Lost(u64),
    /// These, with their numbers; none, if nothing came.
    Events(Vec<(u64, Arc<Event>)>),
}

impl Record {
    pub(crate) fn push(&mut self, event: Event) {
        if self.kept.len() == EVENTS_KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Arc::new(event));
        self.last += 1;
    }

    /// The number of the last event.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Up to so many events after that number. One that is not reached yet is of another life of the witness.
    pub(crate) fn after(&self, place: u64, most: usize) -> News {
        let first = self.last - self.kept.len() as u64;
        if place > self.last {
            return News::Lost(self.last);
        }
        if place < first {
            return News::Lost(first);
        }
        let skipped = usize::try_from(place - first).expect("no more are skipped than are kept");
        let events = self.kept.iter().skip(skipped).take(most).cloned();
        News::Events((place + 1..).zip(events).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::Happening(Happening::LeftOut { what: "x" })
    }

    fn numbers(news: News) -> Result<Vec<u64>, u64> {
        match news {
            News::Lost(place) => Err(place),
            News::Events(events) => Ok(events.into_iter().map(|(number, _)| number).collect()),
        }
    }

    #[test]
    fn events_are_kept_up_to_the_limit_and_told_as_lost_past_it() {
        let mut record = Record::default();
        for _ in 0..EVENTS_KEPT_MAX {
            record.push(event());
        }
        assert_eq!(numbers(record.after(0, 3)), Ok(vec![1, 2, 3]));
        record.push(event());
        assert_eq!(numbers(record.after(0, 3)), Err(1));
        assert_eq!(numbers(record.after(1, 2)), Ok(vec![2, 3]));
        assert_eq!(numbers(record.after(record.last(), 2)), Ok(Vec::new()));
        assert_eq!(numbers(record.after(record.last() + 1, 2)), Err(record.last()));
    }
}

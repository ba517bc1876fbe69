//! Events: what happened lately, for those who watch.
//!
//! A server keeps the last ones in memory, in the order in which it learnt that they are durable. Whoever watches
//! reads them at its own pace; who falls so far behind that some are gone, or comes back with the number of one
//! that this server never had, is told so and reads everything again. Nobody who watches slows anybody down.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
use engine::limits::EVENTS_KEPT_MAX;
use engine::past::Line;
use tokio::sync::watch;

use crate::access::key::KeyId;
use crate::monitor::Change;

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Event {
    /// In which project; none, if it concerns all.
    pub project: Option<ProjectId>,
    /// When it happened.
    pub at: Instant,
    /// What it was.
    pub what: What,
}

/// What can happen.
#[derive(Debug, Clone)]
pub enum What {
    /// A run ended, or slots were skipped.
    Past(ShardId, Line),
    /// Somebody changed something.
    Changed {
        /// What was done.
        action: String,
        /// What was changed.
        object: String,
        /// The name of the key by which it was changed.
        author: String,
    },
    /// Something changed among the servers.
    Cluster(Change),
}

/// Where somebody is who watches: after so many events of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub u64);

/// How many watch, and with which keys.
pub(crate) type Seats = Mutex<BTreeMap<Option<KeyId>, usize>>;

/// A place among those who watch, until it is dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    key: Option<KeyId>,
}

impl Seat {
    /// Takes one, if there is one left: of all, and of those for this key.
    pub(crate) fn take(
        seats: &Arc<Seats>,
        key: Option<KeyId>,
        (all_max, of_key_max): (usize, usize),
    ) -> Option<Self> {
        let mut taken = seats.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let of_key = taken.get(&key).copied().unwrap_or(0);
        // Where no key is needed, everybody is the same one.
        let most = if key.is_some() { of_key_max } else { all_max };
        if all >= all_max || of_key >= most {
            return None;
        }
        taken.insert(key, of_key + 1);
        Some(Self { seats: Arc::clone(seats), key })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

/// What there is for somebody who watches.
#[derive(Debug)]
pub enum News {
    /// These, and where that leaves them.
    Events(Vec<Arc<Event>>, Place),
    /// Some are gone that they have not seen.
    Lost(Place),
}

/// The last events of a server.
#[derive(Debug)]
pub struct Events {
    kept: Mutex<Kept>,
    /// How many there were so far.
    count: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    /// How many are gone.
    gone: u64,
}

impl Default for Events {
    fn default() -> Self {
        Self { kept: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl Events {
    /// Takes what happened, in order.
    pub fn push(&self, news: impl IntoIterator<Item = Event>) {
        let mut kept = self.kept();
        for event in news {
            if kept.events.len() == EVENTS_KEPT_MAX {
                kept.events.pop_front();
                kept.gone += 1;
            }
            kept.events.push_back(Arc::new(event));
        }
        let count = kept.count();
        drop(kept);
        self.count.send_if_modified(|known| std::mem::replace(known, count) != count);
    }

    /// What became past in a shard. What receivers said is left out: it may be long, and is told with the run.
    pub(crate) fn push_past(&self, shard: ShardId, lines: Vec<Line>) {
        self.push(lines.into_iter().map(|mut line| {
            let (project, at) = match &mut line {
                Line::Run(run) => {
                    for attempt in &mut run.attempts {
                        (attempt.response, attempt.error) = (None, None);
                    }
                    (run.project, run.at)
                }
                Line::Skip(skip) => (skip.project, skip.at),
            };
            Event { project: Some(project), at, what: What::Past(shard, line) }
        }));
    }

    /// Where somebody is who begins to watch now.
    pub fn now(&self) -> Place {
        Place(self.kept().count())
    }

    /// Up to so many events after a place. A place that never was is one whose events are lost.
    pub fn after(&self, place: Place, most: usize) -> News {
        let kept = self.kept();
        if place.0 < kept.gone || place.0 > kept.count() {
            return News::Lost(Place(kept.count()));
        }
        let skip = usize::try_from(place.0 - kept.gone).expect("no more than are kept");
        let events: Vec<_> = kept.events.iter().skip(skip).take(most).cloned().collect();
        let next = Place(place.0 + events.len() as u64);
        News::Events(events, next)
    }

    /// Waits until there is something after a place.
    pub async fn more(&self, place: Place) {
        let mut count = self.count.subscribe();
        // It cannot fail: the sender is here.
        let _ = count.wait_for(|count| *count > place.0).await;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn count(&self) -> u64 {
        self.gone + self.events.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::limits::{WATCHERS_MAX, WATCHERS_OF_KEY_MAX};

    const MOST: (usize, usize) = (WATCHERS_MAX, WATCHERS_OF_KEY_MAX);

    fn event(number: usize) -> Event {
        let text = || number.to_string();
        let what = What::Changed { action: text(), object: text(), author: text() };
        Event { project: None, at: Instant(0), what }
    }

    fn numbers(news: News) -> Option<(Vec<usize>, Place)> {
        let News::Events(events, place) = news else { return None };
        let number = |event: &Arc<Event>| match &event.what {
            What::Changed { action, .. } => action.parse().unwrap(),
            What::Past(..) | What::Cluster(_) => unreachable!(),
        };
        Some((events.iter().map(number).collect(), place))
    }

    #[test]
    fn seats_are_taken_up_to_their_limits_and_refused_one_past_them() {
        let seats = Arc::new(Seats::default());
        let key = |number| Some(KeyId(engine::id::Unique(number)));
        let mut taken: Vec<_> =
            (0..WATCHERS_OF_KEY_MAX).map(|_| Seat::take(&seats, key(1), MOST).unwrap()).collect();
        assert!(Seat::take(&seats, key(1), MOST).is_none());
        while taken.len() < WATCHERS_MAX {
            let number = 2 + (taken.len() / WATCHERS_OF_KEY_MAX) as u64;
            taken.push(Seat::take(&seats, key(number), MOST).unwrap());
        }
        assert!(Seat::take(&seats, None, MOST).is_none());
        taken.pop();
        assert!(Seat::take(&seats, None, MOST).is_some());
        drop(taken);
        assert!(seats.lock().unwrap().is_empty());
    }

    #[test]
    fn the_last_ten_thousand_are_kept_and_one_before_them_is_lost() {
        let events = Events::default();
        let begin = events.now();
        events.push((0..EVENTS_KEPT_MAX).map(event));
        assert_eq!(numbers(events.after(begin, 2)), Some((vec![0, 1], Place(2))));
        events.push([event(EVENTS_KEPT_MAX)]);
        assert!(matches!(events.after(begin, 2), News::Lost(Place(10_001))));
        assert_eq!(numbers(events.after(Place(1), 1)), Some((vec![1], Place(2))));
        assert_eq!(numbers(events.after(events.now(), 9)), Some((vec![], events.now())));
        assert!(matches!(events.after(Place(10_002), 2), News::Lost(_)));
    }
}

//! Events: what happened lately, for those who watch.
//!
//! A server keeps the last ones in memory, in the order in which it learnt that they are durable. Whoever watches
//! reads them at its own pace; who falls so far behind that some are gone, or comes back with the number of one
//! that this server never had, is told so and reads everything again. Nobody who watches slows anybody down.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::id::{ProjectId, RunId, ShardId};
use engine::instant::Instant;
use engine::limits::EVENTS_KEPT_MAX;
use engine::past::Line;
use engine::queue::news::{QueueHappening, QueueNews};
use engine::shard::ToldProgress;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::access::key::KeyId;
use crate::election::watch::ElectionNews;
use crate::monitor::ClusterChange;

/// Something that happened.
#[derive(Debug, Clone)]
pub struct ServerEvent {
    /// In which project; none, if it concerns all.
    pub project: Option<ProjectId>,
    /// When it happened.
    pub at: Instant,
    /// What it was.
    pub what: EventDetail,
}

/// What an event is about.
#[derive(Debug, Clone)]
pub enum EventDetail {
    /// A run ended, or slots were skipped.
    Past(ShardId, Line),
    /// How far a run of a queue has come.
    Progress(RunId, ToldProgress),
    /// Somebody changed something.
    Changed {
        /// What was done, as the audit calls it.
        action: String,
        /// The name of what was changed.
        object: String,
        /// Who changed it.
        author: String,
    },
    /// Something happened in a queue, or to a worker.
    Queue(QueueHappening),
    /// Something changed in an election.
    Election(ElectionNews),
    /// Something changed among the servers.
    Cluster(ClusterChange),
}

/// How far somebody who watches has read: the number of events of this server before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCursor(pub u64);

/// How many watch, and with which keys.
pub(crate) type WatcherSeats = Mutex<BTreeMap<Option<KeyId>, usize>>;

/// A place among those who watch, until it is dropped.
pub(crate) struct WatcherSeat {
    seats: Arc<WatcherSeats>,
    key: Option<KeyId>,
}

impl WatcherSeat {
    /// Takes a seat, if one is left among all and among those for this key.
    pub(crate) fn take(
        seats: &Arc<WatcherSeats>,
        key: Option<KeyId>,
        (all_max, of_key_max): (usize, usize),
    ) -> Option<Self> {
        let mut taken = seats.lock();
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

impl Drop for WatcherSeat {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

/// What somebody who watches is told next.
#[derive(Debug)]
pub enum NewEvents {
    /// These events, and the cursor after them.
    Events(Vec<Arc<ServerEvent>>, EventCursor),
    /// Events after the cursor are gone; the cursor after the newest one.
    Lost(EventCursor),
}

/// The last events of a server.
#[derive(Debug, Default)]
pub struct EventLog {
    kept: Mutex<KeptEvents>,
    /// How many events there were so far.
    count: watch::Sender<u64>,
    /// How many watch.
    watchers: AtomicUsize,
}

/// Somebody watches, until this is dropped.
pub(crate) struct Watching(Arc<EventLog>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct KeptEvents {
    events: VecDeque<Arc<ServerEvent>>,
    /// How many events are not kept any more.
    gone: u64,
}

impl EventLog {
    /// Adds events, in order.
    pub fn push(&self, news: impl IntoIterator<Item = ServerEvent>) {
        let mut kept = self.kept.lock();
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
            ServerEvent { project: Some(project), at, what: EventDetail::Past(shard, line) }
        }));
    }

    /// What happened in queues.
    pub(crate) fn push_queues(&self, news: Vec<QueueNews>) {
        if news.is_empty() {
            return;
        }
        self.push(news.into_iter().map(|QueueNews { project, at, what }| ServerEvent {
            project: Some(project),
            at,
            what: EventDetail::Queue(what),
        }));
    }

    /// Whether somebody watches at this moment.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Somebody watches until this is dropped.
    pub(crate) fn watching(self: &Arc<Self>) -> Watching {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watching(Arc::clone(self))
    }

    /// The cursor of somebody who begins to watch now.
    pub fn now(&self) -> EventCursor {
        EventCursor(self.kept.lock().count())
    }

    /// Up to `most` events after a cursor. After a cursor of another server's events, they are lost.
    pub fn after(&self, place: EventCursor, most: usize) -> NewEvents {
        let kept = self.kept.lock();
        if place.0 < kept.gone || place.0 > kept.count() {
            return NewEvents::Lost(EventCursor(kept.count()));
        }
        let skip = usize::try_from(place.0 - kept.gone).expect("no more than are kept");
        let events: Vec<_> = kept.events.iter().skip(skip).take(most).cloned().collect();
        let next = EventCursor(place.0 + events.len() as u64);
        NewEvents::Events(events, next)
    }

    /// Waits until there is an event after a cursor.
    pub async fn more(&self, place: EventCursor) {
        let mut count = self.count.subscribe();
        // It cannot fail: the sender is here.
        let _ = count.wait_for(|count| *count > place.0).await;
    }
}

impl KeptEvents {
    fn count(&self) -> u64 {
        self.gone + self.events.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::limits::{WATCHERS_MAX, WATCHERS_OF_KEY_MAX};

    const MOST: (usize, usize) = (WATCHERS_MAX, WATCHERS_OF_KEY_MAX);

    fn event(number: usize) -> ServerEvent {
        let text = || number.to_string();
        let what = EventDetail::Changed { action: text(), object: text(), author: text() };
        ServerEvent { project: None, at: Instant(0), what }
    }

    fn numbers(news: NewEvents) -> Option<(Vec<usize>, EventCursor)> {
        let NewEvents::Events(events, place) = news else { return None };
        let number = |event: &Arc<ServerEvent>| match &event.what {
            EventDetail::Changed { action, .. } => action.parse().unwrap(),
            EventDetail::Past(..)
            | EventDetail::Queue(_)
            | EventDetail::Progress(..)
            | EventDetail::Election(_)
            | EventDetail::Cluster(_) => unreachable!(),
        };
        Some((events.iter().map(number).collect(), place))
    }

    #[test]
    fn seats_are_taken_up_to_their_limits_and_refused_one_past_them() {
        let seats = Arc::new(WatcherSeats::default());
        let key = |number| Some(KeyId(engine::id::SerialId(number)));
        let mut taken: Vec<_> = (0..WATCHERS_OF_KEY_MAX)
            .map(|_| WatcherSeat::take(&seats, key(1), MOST).unwrap())
            .collect();
        assert!(WatcherSeat::take(&seats, key(1), MOST).is_none());
        while taken.len() < WATCHERS_MAX {
            let number = 2 + (taken.len() / WATCHERS_OF_KEY_MAX) as u64;
            taken.push(WatcherSeat::take(&seats, key(number), MOST).unwrap());
        }
        assert!(WatcherSeat::take(&seats, None, MOST).is_none());
        taken.pop();
        assert!(WatcherSeat::take(&seats, None, MOST).is_some());
        drop(taken);
        assert!(seats.lock().is_empty());
    }

    #[test]
    fn the_last_ten_thousand_are_kept_and_one_before_them_is_lost() {
        let events = EventLog::default();
        let begin = events.now();
        events.push((0..EVENTS_KEPT_MAX).map(event));
        assert_eq!(numbers(events.after(begin, 2)), Some((vec![0, 1], EventCursor(2))));
        events.push([event(EVENTS_KEPT_MAX)]);
        assert!(matches!(events.after(begin, 2), NewEvents::Lost(EventCursor(10_001))));
        assert_eq!(numbers(events.after(EventCursor(1), 1)), Some((vec![1], EventCursor(2))));
        assert_eq!(numbers(events.after(events.now(), 9)), Some((vec![], events.now())));
        assert!(matches!(events.after(EventCursor(10_002), 2), NewEvents::Lost(_)));
    }
}

//! A feed: what a follower is told, each from its own cursor, in the order of the record.
//!
//! Nobody waits for a follower. Events wait for it up to a bound; one that is slower than that is cut off, and told so when it has
//! read what is there.

use std::sync::Arc;

use engine::limits::RING_FOLLOWER_EVENTS_MAX;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::event::{Cursor, RingEvent, RingEventKind};

/// What happens in a subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Feed {
    begin: Cursor,
    events: mpsc::Receiver<Arc<RingEvent>>,
    last: Arc<Mutex<Option<RingEventKind>>>,
}

impl Feed {
    /// The place after which it begins.
    pub fn begin(&self) -> Cursor {
        self.begin
    }

    /// The next event, as soon as there is one. `None` after the last, which says why there is no other.
    pub async fn next(&mut self) -> Option<Arc<RingEvent>> {
        match self.events.recv().await {
            Some(event) => Some(event),
            None => self.last.lock().take().map(RingEvent::of),
        }
    }
}

/// The sending end of a feed.
pub(super) struct Follower {
    events: mpsc::Sender<Arc<RingEvent>>,
    last: Arc<Mutex<Option<RingEventKind>>>,
    /// How far it was told. None until that is known.
    pub(super) cursor: Cursor,
    /// What lies behind the page is being read for it.
    pub(super) is_catching_up: bool,
    /// Tells it from others.
    pub(super) id: u64,
}

/// The follower is not to be told any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut;

impl Follower {
    pub(super) fn new(id: u64, cursor: Cursor) -> (Self, Feed) {
        let (events, inbox) = mpsc::channel(RING_FOLLOWER_EVENTS_MAX);
        let last = Arc::new(Mutex::new(None));
        let feed = Feed { begin: cursor, events: inbox, last: Arc::clone(&last) };
        (Self { events, last, cursor, is_catching_up: false, id }, feed)
    }

    pub(super) fn tell(&mut self, event: &Arc<RingEvent>) -> Result<(), Cut> {
        use mpsc::error::TrySendError;
        match self.events.try_send(Arc::clone(event)) {
            Ok(()) => {
                if let Some(cursor) = event.cursor {
                    self.cursor = cursor;
                }
                Ok(())
            }
            Err(TrySendError::Closed(_)) => Err(Cut),
            Err(TrySendError::Full(_)) => {
                let text = "too slow: more events came than wait for a follower; follow anew after the last one";
                self.ends(RingEventKind::Error { text: text.to_owned() });
                Err(Cut)
            }
        }
    }

    /// Says what its last event is; the caller drops it.
    pub(super) fn ends(&self, why: RingEventKind) {
        self.last.lock().get_or_insert(why);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.events.is_closed()
    }
}

//! Following a subscription as server-sent events: what is kept after a place, then everything as it is decided.
//!
//! An entry's place, its generation and number, is the id of its event: the same at every server, so whoever comes back says
//! the last id, at whichever server, and goes on from there. What is not kept any more is told as `gap`. A follower that reads
//! too slowly is told so, and let go: it comes back from where it was.

use std::fmt::Write;
use std::sync::Arc;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use client::ring::RingEvent;
use engine::limits::{RING_FOLLOWERS_MAX, RING_FOLLOWERS_OF_KEY_MAX, STREAM_HEARTBEAT};
use store::ring::{Cursor, Feed, SubscriptionId};

use super::{rings, tell};
use crate::access::book::Book;
use crate::access::key::KeyId;
use crate::api::caller::Caller;
use crate::api::problem::{ApiError, ApiResult};
use crate::api::stream::stream;
use crate::event::WatcherSeat;
use crate::handle::NodeHandle;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Somebody who follows a subscription.
struct RingFollower {
    handle: NodeHandle,
    feed: Feed,
    /// Up to where it was told.
    place: Option<Cursor>,
    is_begun: bool,
    /// What ended it is told, and nothing more.
    is_over: bool,
    key: Option<KeyId>,
    books: tokio::sync::watch::Receiver<Arc<Book>>,
    _seat: WatcherSeat,
}

pub(super) async fn follow(
    handle: NodeHandle,
    caller: Caller,
    subscription: SubscriptionId,
    headers: &HeaderMap,
) -> ApiResult {
    let last = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
    let from: Option<Cursor> = last
        .map(|id| id.parse())
        .transpose()
        .map_err(|why| ApiError::parameter("last-event-id", format!("{why}")))?;
    let most = (RING_FOLLOWERS_MAX, RING_FOLLOWERS_OF_KEY_MAX);
    let seat = WatcherSeat::take(handle.ring_seats(), caller.key, most).ok_or_else(|| {
        let detail = format!(
            "rings are followed by {RING_FOLLOWERS_MAX} at a time, and by {RING_FOLLOWERS_OF_KEY_MAX} with one key: end those that are not needed"
        );
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many follow", detail)
    })?;
    let feed = rings(&handle)?.follow(&subscription, from).await?;
    let follower = RingFollower {
        place: Some(feed.begin()),
        feed,
        is_begun: false,
        is_over: false,
        key: caller.key,
        books: handle.access().books(),
        _seat: seat,
        handle,
    };
    let body = stream(follower, RingFollower::next);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((StatusCode::OK, headers, body).into_response())
}

/// What is next for somebody who follows.
enum Next {
    /// The key may have been taken back.
    Look,
    Heartbeat,
    Event(Arc<store::ring::RingEvent>),
    /// The feed tells nothing more.
    Over,
    Stop,
}

impl RingFollower {
    /// The next piece of the answer.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Some((self.comment("following").into(), self));
        }
        loop {
            // A key that was taken back, or has expired, opens nothing any more.
            if self.is_over || !self.is_let_in() {
                return None;
            }
            let text = match self.wait().await {
                Next::Over => {
                    self.is_over = true;
                    let why = "the subscription is not there any more, or this server stops";
                    self.block(&RingEvent::Closing { why: why.to_owned() })
                }
                Next::Look => continue,
                Next::Heartbeat => self.comment("heartbeat"),
                Next::Stop => {
                    self.is_over = true;
                    let why = "this server stops: follow at another one, from the last id";
                    self.block(&RingEvent::Closing { why: why.to_owned() })
                }
                Next::Event(event) => {
                    self.place = event.cursor.or(self.place);
                    let told = tell::event(&event.kind);
                    self.is_over = matches!(told, RingEvent::Closing { .. });
                    self.block(&told)
                }
            };
            return Some((text.into(), self));
        }
    }

    async fn wait(&mut self) -> Next {
        tokio::select! {
            biased;
            () = self.handle.stopped() => Next::Stop,
            event = self.feed.next() => event.map_or(Next::Over, Next::Event),
            Ok(()) = self.books.changed() => Next::Look,
            () = tokio::time::sleep(STREAM_HEARTBEAT) => Next::Heartbeat,
        }
    }

    fn is_let_in(&self) -> bool {
        let Some(id) = self.key else { return true };
        let now = self.handle.now();
        let book = self.handle.access().book();
        book.key(id).is_some_and(|key| key.expires.is_none_or(|end| now < end))
    }

    fn id(&self) -> String {
        self.place.map_or_else(String::new, |place| format!("id: {place}\n"))
    }

    fn comment(&self, words: &str) -> String {
        format!(": {words}\n{}\n", self.id())
    }

    fn block(&self, event: &RingEvent) -> String {
        let data = serde_json::to_string(event).expect("an event always serializes");
        let mut text = self.id();
        write!(text, "event: {}\ndata: {data}\n\n", event.kind()).expect("a String never fails");
        text
    }
}

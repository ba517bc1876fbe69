//! Events while they come, as server-sent events.
//!
//! An event's id is its number. Who comes back says the last one that it had, as browsers do by themselves, and gets what
//! came since; `missed` stands where some are not kept any more. Now and then there is a comment, so that both sides notice
//! when the other is gone.

use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{Answer, text};
use crate::limits::HEARTBEAT;
use crate::witness::{Court, EventReader, Events};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Somebody who reads, and his place among those who may.
struct Watcher {
    reader: EventReader,
    is_begun: bool,
    _seat: OwnedSemaphorePermit,
}

/// The next piece, and who reads the one after it.
type Piece = Pin<Box<dyn Future<Output = (Bytes, Watcher)> + Send + Sync>>;

/// A body whose pieces are made one after another, each when the one before has been taken.
struct EventBody(Piece);

/// Events from now on, or from the last one that was had.
pub(super) fn events(
    request: &Request<Incoming>,
    court: Arc<Court>,
    seat: OwnedSemaphorePermit,
) -> Answer {
    let place = match request.headers().get(LAST_EVENT_ID).map(|id| id.to_str().map(str::parse)) {
        None => None,
        Some(Ok(Ok(place))) => Some(place),
        Some(Ok(Err(_)) | Err(_)) => {
            let why = "the id of an event is a number\n";
            return text(StatusCode::BAD_REQUEST, why.to_owned());
        }
    };
    let watcher = Watcher { reader: EventReader::new(court, place), is_begun: false, _seat: seat };
    let mut answer = Response::new(EventBody(Box::pin(watcher.next())).boxed());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

impl Watcher {
    async fn next(mut self) -> (Bytes, Self) {
        if !self.is_begun {
            // Whoever reads learns at once that it is connected, and its place.
            self.is_begun = true;
            let text = format!(": watching\nid: {}\n\n", self.reader.place());
            return (text.into(), self);
        }
        let text = match timeout(HEARTBEAT, self.reader.next()).await {
            Err(_) => ": heartbeat\n\n".to_owned(),
            Ok(Events::Missed) => {
                format!("event: missed\nid: {}\ndata: {{}}\n\n", self.reader.place())
            }
            Ok(Events::Some(events)) => {
                let mut text = String::new();
                for (number, event) in events {
                    let data = serde_json::to_string(&*event).expect("events serialize");
                    let name = event.name();
                    let _ = write!(text, "event: {name}\nid: {number}\ndata: {data}\n\n");
                }
                text
            }
        };
        (text.into(), self)
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let (piece, watcher) = ready!(self.0.as_mut().poll(context));
        self.0 = Box::pin(watcher.next());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

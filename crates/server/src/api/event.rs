//! `/v1/events`: what happens, while it happens, as server-sent events.
//!
//! An event's id is the server's start and a number. Who comes back says the last id that it had; if this server
//! does not know what came after it, the first event is `reset`. A comment is sent at the beginning, and now and
//! then, so that both sides notice when the other is gone. It has an id as well: so a watcher knows its place before
//! the first event, and also when nothing happens that it may see.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use client::event::{Event as WireEvent, What as WireWhat};
use engine::id::{ProjectId, TriggerId};
use engine::limits::{WATCHERS_MAX, WATCHERS_OF_KEY_MAX};
use engine::past::Line;

use super::caller::Caller;
use super::convert::{self, Source, timestamp};
use super::problem::Refusal;
use super::query::Query;
use super::stream::stream;
use crate::access::book::Book;
use crate::access::key::KeyId;
use crate::desk::Desk;
use crate::event::{Event, News, Place, Seat, What};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How often something is sent, if nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Events that are sent in one piece.
const EVENTS_AT_ONCE: usize = 256;

/// Somebody who watches.
struct Watcher {
    desk: Desk,
    project: ProjectId,
    is_admin: bool,
    place: Place,
    /// Whether to say first that events are lost.
    is_lost: bool,
    is_begun: bool,
    key: Option<KeyId>,
    books: tokio::sync::watch::Receiver<Arc<Book>>,
    _seat: Seat,
}

pub(super) async fn watch(
    State(desk): State<Desk>,
    caller: Caller,
    request: Request,
) -> Result<Response, Refusal> {
    Query::of(request.uri(), &[])?;
    let last = request.headers().get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
    let known = last.map(|id| place_of(id, desk.start()));
    let place = known.flatten().unwrap_or_else(|| desk.events().now());
    let most = (WATCHERS_MAX, WATCHERS_OF_KEY_MAX);
    let seat = Seat::take(desk.seats(), caller.key, most).ok_or_else(|| {
        let detail = format!(
            "events are watched by {WATCHERS_MAX} at a time, and by {WATCHERS_OF_KEY_MAX} with one key: end those that are not needed"
        );
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many watch", detail)
    })?;
    let watcher = Watcher {
        key: caller.key,
        books: desk.access().books(),
        _seat: seat,
        project: caller.project,
        is_admin: caller.is_admin(),
        place,
        is_lost: known.is_some_and(|place| place.is_none()),
        is_begun: false,
        desk,
    };
    let body = stream(watcher, Watcher::next);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((StatusCode::OK, headers, body).into_response())
}

/// The place after an event, if this server can have had it.
fn place_of(id: &str, start: u64) -> Option<Place> {
    let (begun, number) = id.split_once('-')?;
    let is_ours = u64::from_str_radix(begun, 16).ok()? == start;
    number.parse().ok().filter(|_| is_ours).map(Place)
}

impl Watcher {
    /// The next piece of the answer. It ends when the server stops.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if !self.is_begun {
            // A client learns at once that it is connected.
            self.is_begun = true;
            let mut text = self.comment("watching");
            if self.is_lost {
                text.push_str(&self.reset());
            }
            return Some((text.into(), self));
        }
        loop {
            // A key that was taken back, or has expired, opens nothing any more.
            if !self.is_let_in() {
                return None;
            }
            let desk = self.desk.clone();
            let (events, next) = match desk.events().after(self.place, EVENTS_AT_ONCE) {
                News::Lost(place) => {
                    self.place = place;
                    return Some((self.reset().into(), self));
                }
                News::Events(events, next) => (events, next),
            };
            if events.is_empty() {
                tokio::select! {
                    biased;
                    () = desk.stopped() => return None,
                    () = desk.events().more(self.place) => continue,
                    Ok(()) = self.books.changed() => continue,
                    () = tokio::time::sleep(HEARTBEAT) => {
                        return Some((self.comment("heartbeat").into(), self));
                    }
                }
            }
            let mut text = String::new();
            for (number, event) in (self.place.0 + 1..).zip(&events) {
                if self.may_see(event) {
                    self.tell(&mut text, number, event);
                }
            }
            self.place = next;
            if !text.is_empty() {
                return Some((text.into(), self));
            }
        }
    }

    fn is_let_in(&self) -> bool {
        let Some(id) = self.key else { return true };
        let now = self.desk.now();
        let book = self.desk.access().book();
        book.key(id).is_some_and(|key| key.expires.is_none_or(|end| now < end))
    }

    fn may_see(&self, event: &Event) -> bool {
        event.project.map_or(self.is_admin, |project| project == self.project)
    }

    fn comment(&self, words: &str) -> String {
        format!(": {words}\nid: {:016x}-{}\n\n", self.desk.start(), self.place.0)
    }

    fn reset(&self) -> String {
        let at = timestamp(self.desk.now());
        let mut text = String::new();
        self.write(&mut text, self.place.0, &WireEvent { at, what: WireWhat::Reset });
        text
    }

    fn tell(&self, text: &mut String, number: u64, event: &Event) {
        let what = match &event.what {
            What::Changed { action, object, author } => WireWhat::Changed {
                action: action.clone(),
                object: object.clone(),
                author: author.clone(),
            },
            What::Past(shard, line) => {
                let source = Source { shard: *shard, cluster: self.desk.cluster() };
                let id = |unique| TriggerId { shard: *shard, project: self.project, unique };
                match line {
                    Line::Run(run) => WireWhat::RunEnded {
                        run: source.finished_id(run).to_string(),
                        trigger: id(run.trigger).to_string(),
                        event: run.notice.map(convert::occasion),
                        slot: timestamp(run.slot),
                        state: convert::end(run.end),
                        attempt: run.attempt,
                    },
                    Line::Skip(skip) => WireWhat::SlotsSkipped {
                        trigger: id(skip.trigger).to_string(),
                        from: timestamp(skip.from),
                        to: timestamp(skip.to),
                        count: skip.count,
                        reason: convert::reason(skip.reason),
                    },
                }
            }
        };
        self.write(text, number, &WireEvent { at: timestamp(event.at), what });
    }

    fn write(&self, text: &mut String, number: u64, event: &WireEvent) {
        let data = serde_json::to_string(event).expect("an event always serializes");
        let (start, kind) = (self.desk.start(), event.what.kind());
        write!(text, "id: {start:016x}-{number}\nevent: {kind}\ndata: {data}\n\n")
            .expect("a String never fails");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_another_start_is_not_known() {
        assert_eq!(place_of("00000000000000ff-7", 255), Some(Place(7)));
        for id in ["00000000000000fe-7", "", "-", "ff", "ff-", "ff-x", "x-7"] {
            assert_eq!(place_of(id, 255), None, "{id}");
        }
    }
}

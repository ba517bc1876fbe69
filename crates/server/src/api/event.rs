//! `/v1/events`: what happens, while it happens, as server-sent events.
//!
//! A place among the events of a server is the server's start and a number; an event's id is that of the server that is
//! asked, and those of the others, whose events come with its own (`peers`), with commas between. Who comes back says
//! the last id that it had, at whichever server; where one of them does not know what came after it, or is gone, there is
//! an event `reset`. A comment is sent at the beginning, and now and then, so that both sides notice when the other is
//! gone. It has an id as well: so a watcher knows its place before the first event, and also when nothing happens that
//! it may see.

mod peers;

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use client::event::{Event as WireEvent, EventKind};
use engine::id::{ProjectId, TriggerId};
use engine::instant::Instant;
use engine::limits::{EVENT_SERVERS_MAX, STREAM_HEARTBEAT, WATCHERS_MAX, WATCHERS_OF_KEY_MAX};
use engine::past::Line;
use engine::queue::news::{QueueHappening, WorkerTurn};
use engine::shard::ToldProgress;

use self::peers::{PeerEvent, PeerEvents};
use super::caller::Caller;
use super::convert::{self, Source, timestamp};
use super::forward::{Hop, PeerClient};
use super::output;
use super::problem::{ApiError, ApiResult};
use super::stream::stream;
use crate::access::book::Book;
use crate::access::key::KeyId;
use crate::election::watch::{ElectionChange, ElectionNews, Standing};
use crate::event::{EventCursor, EventDetail, NewEvents, ServerEvent, WatcherSeat, Watching};
use crate::handle::NodeHandle;
use crate::monitor::ClusterChange;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The place before the first event of a server, for other servers that have not heard of it before.
const FIRST: &str = "first";

/// Events that are sent in one piece.
const EVENTS_AT_ONCE: usize = 256;

/// Somebody who watches.
struct Watcher {
    handle: NodeHandle,
    project: ProjectId,
    is_admin: bool,
    place: EventCursor,
    /// The other servers, if their events are wanted as well.
    others: Option<PeerEvents>,
    /// Whether to say first that events are lost.
    is_lost: bool,
    is_begun: bool,
    key: Option<KeyId>,
    books: tokio::sync::watch::Receiver<Arc<Book>>,
    _seat: WatcherSeat,
    _watching: Watching,
}

pub(super) async fn watch(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    request: Request,
) -> ApiResult {
    let last = request.headers().get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
    let known = last.map(|id| place_of(id, handle.start()));
    let place = known.flatten().unwrap_or_else(|| handle.events().now());
    let most = (WATCHERS_MAX, WATCHERS_OF_KEY_MAX);
    let seat = WatcherSeat::take(handle.seats(), caller.key, most).ok_or_else(|| {
        let detail = format!(
            "events are watched by {WATCHERS_MAX} at a time, and by {WATCHERS_OF_KEY_MAX} with one key: end those that are not needed"
        );
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many watch", detail)
    })?;
    let is_for_peer = request.extensions().get::<Hop>().is_some();
    let mut is_lost = known.is_some_and(|place| place.is_none());
    let mut others = None;
    if !is_for_peer {
        let begun = PeerEvents::begin(peers, handle.peers().follow(), last).await;
        let starts = begun.ids().filter_map(start_of).chain([handle.start()]).collect::<Vec<_>>();
        // What a server told that is gone is lost.
        let of_gone = |id: &str| start_of(id).is_some_and(|start| !starts.contains(&start));
        is_lost |= last.is_some_and(|last| parts(last).any(of_gone));
        others = Some(begun);
    }
    let watcher = Watcher {
        key: caller.key,
        others,
        books: handle.access().books(),
        _seat: seat,
        _watching: handle.events().watching(),
        project: caller.project,
        is_admin: caller.is_admin(),
        place,
        is_lost,
        is_begun: false,
        handle,
    };
    let body = stream(watcher, Watcher::next);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((StatusCode::OK, headers, body).into_response())
}

/// The places on single servers that an id is made of.
fn parts(id: &str) -> impl Iterator<Item = &str> {
    id.split(',').take(EVENT_SERVERS_MAX + 1)
}

/// The start of the server that such a place is on.
fn start_of(part: &str) -> Option<u64> {
    u64::from_str_radix(part.split_once('-')?.0, 16).ok()
}

/// The place after an event, if this server can have had it.
fn place_of(id: &str, start: u64) -> Option<EventCursor> {
    if id == FIRST {
        return Some(EventCursor(0));
    }
    let own = parts(id).find(|part| start_of(part) == Some(start))?;
    own.split_once('-')?.1.parse().ok().map(EventCursor)
}

/// What is next for somebody who watches.
enum Next {
    /// Something here, or nothing, but it is time to look.
    Look,
    Heartbeat,
    Peer(PeerEvent),
    End,
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
            let handle = self.handle.clone();
            let (events, next) = match handle.events().after(self.place, EVENTS_AT_ONCE) {
                NewEvents::Lost(place) => {
                    self.place = place;
                    return Some((self.reset().into(), self));
                }
                NewEvents::Events(events, next) => (events, next),
            };
            if events.is_empty() {
                match self.wait(&handle).await {
                    Next::End => return None,
                    Next::Look => continue,
                    Next::Heartbeat => return Some((self.comment("heartbeat").into(), self)),
                    Next::Peer(PeerEvent::Gap) => return Some((self.reset().into(), self)),
                    Next::Peer(PeerEvent::Event { kind, data }) => {
                        let mut text = String::new();
                        self.put(&mut text, self.place.0, &kind, &data);
                        return Some((text.into(), self));
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

    async fn wait(&mut self, handle: &NodeHandle) -> Next {
        let heard = async {
            match &mut self.others {
                Some(others) => others.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = handle.stopped() => Next::End,
            () = handle.events().more(self.place) => Next::Look,
            Ok(()) = self.books.changed() => Next::Look,
            heard = heard => Next::Peer(heard),
            () = tokio::time::sleep(STREAM_HEARTBEAT) => Next::Heartbeat,
        }
    }

    /// The place after so many events of this server.
    fn id(&self, number: u64) -> String {
        let mut id = format!("{:016x}-{number}", self.handle.start());
        for other in self.others.iter().flat_map(PeerEvents::ids) {
            id.push(',');
            id.push_str(other);
        }
        id
    }

    fn is_let_in(&self) -> bool {
        let Some(id) = self.key else { return true };
        let now = self.handle.now();
        let book = self.handle.access().book();
        book.key(id).is_some_and(|key| key.expires.is_none_or(|end| now < end))
    }

    fn may_see(&self, event: &ServerEvent) -> bool {
        event.project.map_or(self.is_admin, |project| project == self.project)
    }

    fn comment(&self, words: &str) -> String {
        format!(": {words}\nid: {}\n\n", self.id(self.place.0))
    }

    fn reset(&self) -> String {
        let at = timestamp(self.handle.now());
        let mut text = String::new();
        self.write(&mut text, self.place.0, &WireEvent { at, what: EventKind::Reset });
        text
    }

    fn tell(&self, text: &mut String, number: u64, event: &ServerEvent) {
        let what = match &event.what {
            EventDetail::Changed { action, object, author } => EventKind::Changed {
                action: action.clone(),
                object: object.clone(),
                author: author.clone(),
            },
            EventDetail::Cluster(change) => of_cluster(change),
            EventDetail::Election(news) => of_election(news),
            EventDetail::Queue(what) => of_queue(what),
            EventDetail::Progress(run, ToldProgress { queue, progress }) => {
                EventKind::RunProgress {
                    run: run.to_string(),
                    queue: queue.to_string(),
                    progress: output::progress(progress),
                }
            }
            EventDetail::Past(shard, line) => {
                let source = Source { shard: *shard, cluster: self.handle.cluster() };
                let id = |serial| TriggerId { shard: *shard, project: self.project, serial };
                match line {
                    Line::Run(run) => EventKind::RunEnded {
                        run: source.finished_id(run).to_string(),
                        trigger: run.has_trigger().then(|| id(run.trigger).to_string()),
                        queue: run.queue.as_ref().map(|queue| queue.name.to_string()),
                        event: run.notice.map(convert::occasion),
                        slot: timestamp(run.slot),
                        state: convert::end(run.end),
                        attempt: run.attempt,
                    },
                    Line::Skip(skip) => EventKind::SlotsSkipped {
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
        self.put(text, number, event.what.kind(), &data);
    }

    fn put(&self, text: &mut String, number: u64, kind: &str, data: &str) {
        let id = self.id(number);
        write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n").expect("a String never fails");
    }
}

/// What happened in a queue, or to a worker.
fn of_queue(what: &QueueHappening) -> EventKind {
    match what {
        QueueHappening::Overdue { queue, oldest } => {
            EventKind::QueueOverdue { queue: queue.to_string(), oldest: timestamp(*oldest) }
        }
        QueueHappening::Well { queue } => EventKind::QueueWell { queue: queue.to_string() },
        QueueHappening::Given { queue, run, worker, attempt } => EventKind::RunGiven {
            run: run.to_string(),
            queue: queue.to_string(),
            worker: worker.to_string(),
            attempt: *attempt,
        },
        QueueHappening::Worker { worker, turn } => {
            let worker = worker.to_string();
            match turn {
                WorkerTurn::Came => EventKind::WorkerCame { worker },
                WorkerTurn::Silent { runs } => {
                    EventKind::WorkerSilent { worker, runs: *runs as u64 }
                }
                WorkerTurn::Gone => EventKind::WorkerGone { worker },
            }
        }
    }
}

/// What changed in an election, and when.
pub(crate) fn election_event(at: Instant, news: &ElectionNews) -> WireEvent {
    WireEvent { at: timestamp(at), what: of_election(news) }
}

/// What changed in an election.
fn of_election(ElectionNews { name, change, .. }: &ElectionNews) -> EventKind {
    let name = name.clone();
    match change {
        ElectionChange::Stands(standing) | ElectionChange::HeldAgain(standing) => {
            let Standing { state, hold, holder, token, cause } = standing.clone();
            EventKind::ElectionChanged { name, state, hold, holder, token, cause }
        }
        ElectionChange::AtRisk { node, reason, what } => {
            let (node, what) = (node.clone(), what.clone());
            EventKind::HoldAtRisk { name, node, reason: *reason, what }
        }
        ElectionChange::Unheld(candidates) => {
            EventKind::ElectionUnheld { name, candidates: candidates.clone() }
        }
    }
}

/// What changed among the servers, and when.
pub(crate) fn cluster_event(at: Instant, change: &ClusterChange) -> WireEvent {
    WireEvent { at: timestamp(at), what: of_cluster(change) }
}

/// What changed among the servers.
fn of_cluster(change: &ClusterChange) -> EventKind {
    match change {
        ClusterChange::Joined(node) => EventKind::ServerJoined { node: node.to_string() },
        ClusterChange::Left(node) => EventKind::ServerLeft { node: node.to_string() },
        ClusterChange::Lost(node) => EventKind::ServerLost { node: node.to_string() },
        ClusterChange::Orphaned(count, shards) => EventKind::ShardsOrphaned {
            count: u64::try_from(*count).expect("there are few"),
            shards: shards.iter().map(|shard| shard.0).collect(),
        },
        ClusterChange::Owned => EventKind::ShardsOwned,
        ClusterChange::ClockApart { node, ahead_ms } => {
            EventKind::ClockApart { node: node.to_string(), ahead_ms: *ahead_ms }
        }
        ClusterChange::ClockRight(node) => EventKind::ClockRight { node: node.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_another_start_is_not_known() {
        assert_eq!(place_of("00000000000000ff-7", 255), Some(EventCursor(7)));
        for id in ["00000000000000fe-7", "", "-", "ff", "ff-", "ff-x", "x-7", ",", "fe-7,fd-8"] {
            assert_eq!(place_of(id, 255), None, "{id}");
        }
    }

    #[test]
    fn an_id_of_several_servers_is_known_to_each_up_to_the_limit() {
        assert_eq!(place_of("fe-1,ff-2,fd-3", 255), Some(EventCursor(2)));
        let others = |count| "1-1,".repeat(count);
        let id = |count| format!("{}ff-9", others(count));
        assert_eq!(place_of(&id(EVENT_SERVERS_MAX), 255), Some(EventCursor(9)));
        assert_eq!(place_of(&id(EVENT_SERVERS_MAX + 1), 255), None);
    }
}

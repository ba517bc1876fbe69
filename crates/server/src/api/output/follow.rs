//! Following what a run prints, as server-sent events: what is kept of it, then the rest, until the run has ended.
//!
//! A place in it is the token of an attempt and an offset, and is the id of each event: whoever comes back says the last id,
//! at whichever server, and goes on from there as far as that is still kept. What is missing is told as `cut`.
//!
//! The server that was asked has the shard and is told by it, or follows the one that has. If the shard changes hands, or
//! a connection breaks, it looks again who has it. A follower who reads too slowly misses what it has no room for.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use client::Followed;
use client::output::OutputEvent;
use engine::id::{ProjectId, RunId};
use engine::limits::{FOLLOWERS_MAX, FOLLOWERS_OF_KEY_MAX, STREAM_HEARTBEAT};
use engine::queue::given::RunToken;
use engine::queue::output::{OutputPiece, StoredPiece};
use engine::shard::{LiveOutput, ShardAnswer};

use super::super::caller::Caller;
use super::super::forward::PeerClient;
use super::super::problem::{ApiError, ApiResult};
use super::super::run;
use super::super::stream::stream;
use super::{chunk, no_run, stored};
use crate::access::book::Book;
use crate::access::key::KeyId;
use crate::event::WatcherSeat;
use crate::follower::{Following, NewOutput};
use crate::handle::{CallError, NodeHandle, ShardAsk};
use crate::peers::ShardLocation;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The pause before the next look at who has the shard.
const PAUSE: Duration = Duration::from_millis(250);

/// Somebody who follows a run.
struct RunFollower {
    handle: NodeHandle,
    project: ProjectId,
    peers: PeerClient,
    run: RunId,
    place: OutputPlace,
    source: Source,
    is_begun: bool,
    key: Option<KeyId>,
    books: tokio::sync::watch::Receiver<Arc<Book>>,
    _seat: WatcherSeat,
}

/// Up to where somebody has been told: of which attempt, and the offset after the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct OutputPlace {
    token: RunToken,
    next: u64,
}

/// Where the output comes from.
enum Source {
    /// That is to be found out.
    Look,
    /// The shard is here.
    Here(Following),
    /// Another server has it.
    There(Box<Followed>),
    /// Everything is told.
    Over,
}

/// What an attempt printed.
struct Printed {
    attempt: u32,
    token: RunToken,
    pieces: Vec<OutputPiece>,
}

pub(super) async fn follow(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    run: RunId,
    headers: &HeaderMap,
) -> ApiResult {
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    let place = last.and_then(OutputPlace::read).unwrap_or_default();
    let most = (FOLLOWERS_MAX, FOLLOWERS_OF_KEY_MAX);
    let seat = WatcherSeat::take(handle.follower_seats(), caller.key, most).ok_or_else(|| {
        let detail = format!(
            "output is followed by {FOLLOWERS_MAX} at a time, and by {FOLLOWERS_OF_KEY_MAX} with one key: end those that are not needed"
        );
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many follow", detail)
    })?;
    let known = run::find_anywhere(&handle, &peers, caller.project, run).await?;
    if known.is_none() {
        return Err(no_run(run));
    }
    let follower = RunFollower {
        project: caller.project,
        peers,
        run,
        place,
        source: Source::Look,
        is_begun: false,
        key: caller.key,
        books: handle.access().books(),
        _seat: seat,
        handle,
    };
    let body = stream(follower, RunFollower::next);
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((StatusCode::OK, headers, body).into_response())
}

/// What is next for somebody who follows.
enum Next {
    /// The key may have been taken back, or the shard may have gone.
    Look,
    Heartbeat,
    Printed(NewOutput),
    /// Passed on by another server: the place after it, the kind of event and what it says.
    Block(Option<String>, Option<String>, String),
    /// Whoever told of it does so no more.
    Broken,
    End,
}

impl RunFollower {
    /// The next piece of the answer. It ends with the run, or when the server stops.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Some((self.comment("following").into(), self));
        }
        loop {
            if !self.is_let_in() {
                return None;
            }
            let text = match &self.source {
                Source::Over => return None,
                Source::Look => self.look().await?,
                Source::Here(_) | Source::There(_) => match self.wait().await {
                    Next::End => return None,
                    Next::Look => String::new(),
                    Next::Heartbeat => self.comment("heartbeat"),
                    Next::Printed(NewOutput { attempt, token, pieces }) => {
                        self.tell(Printed { attempt, token, pieces: pieces.to_vec() })
                    }
                    Next::Block(id, kind, data) => self.pass_on(id.as_deref(), kind, &data),
                    Next::Broken => {
                        self.source = Source::Look;
                        String::new()
                    }
                },
            };
            if !text.is_empty() {
                return Some((text.into(), self));
            }
        }
    }

    async fn wait(&mut self) -> Next {
        let (handle, shard) = (self.handle.clone(), self.run.shard);
        let mut served = handle.peers().served();
        let is_here = |served: &std::collections::BTreeSet<_>| served.contains(&shard);
        let news = async {
            match &mut self.source {
                Source::Here(following) => {
                    tokio::select! {
                        biased;
                        new = following.next() => new.map_or(Next::Broken, Next::Printed),
                        _ = served.wait_for(|served| !is_here(served)) => Next::Broken,
                    }
                }
                Source::There(followed) => match followed.next().await {
                    Ok(block) => Next::Block(block.id, block.kind, block.data),
                    Err(_) => Next::Broken,
                },
                Source::Look | Source::Over => Next::Broken,
            }
        };
        tokio::select! {
            biased;
            () = handle.stopped() => Next::End,
            Ok(()) = self.books.changed() => Next::Look,
            next = news => next,
            () = tokio::time::sleep(STREAM_HEARTBEAT) => Next::Heartbeat,
        }
    }

    /// Finds out where the output comes from, and what there is of it. Nothing, if this server cannot go on.
    async fn look(&mut self) -> Option<String> {
        let (handle, run, project) = (self.handle.clone(), self.run, self.project);
        // It follows before it looks, so that nothing comes in between.
        let following = handle.followers().follow(run);
        let guard = handle.ask_guard(run.shard);
        let live = match handle.ask_shard(&guard, ShardAsk::Output { project, run }).await {
            Ok(ShardAnswer::Output(live)) => live,
            Err(CallError::Elsewhere { .. }) if self.peers.is_asked_by_peer() => return None,
            Err(CallError::Elsewhere { .. }) => return self.look_there().await,
            Err(CallError::Stopping) => return None,
            Ok(_) | Err(_) => return self.pause().await,
        };
        if let LiveOutput::Printed(view) = live {
            self.source = Source::Here(following);
            let (attempt, token) = (view.attempt, view.token);
            return Some(self.tell(Printed { attempt, token, pieces: view.pieces }));
        }
        let Ok(record) = stored(&handle, project, run).await else { return self.pause().await };
        let mut text = record.map_or_else(String::new, |record| {
            let pieces = record.pieces.iter().map(StoredPiece::piece).collect();
            let (attempt, token) = (record.attempt, record.token);
            self.tell(Printed { attempt, token, pieces })
        });
        if live == LiveOutput::Nothing {
            self.source = Source::Here(following);
            return Some(text);
        }
        let Ok(found) = run::find(&handle, project, run).await else { return self.pause().await };
        let state = found.map(|run| run.state);
        if state.is_some_and(|state| !state.is_end()) {
            return self.pause().await;
        }
        self.write(&mut text, &OutputEvent::Ended { state });
        self.source = Source::Over;
        Some(text)
    }

    /// Follows the server that has the shard.
    async fn look_there(&mut self) -> Option<String> {
        let place = self.handle.peers().view().place(self.run.shard);
        let ShardLocation::There(server) = place else { return self.pause().await };
        let path = format!("/v1/runs/{}/output?follow=true", self.run);
        let id = self.place.to_string();
        match self.peers.follow(&server, &path, Some(&id)).await {
            Ok(followed) => {
                self.source = Source::There(Box::new(followed));
                Some(String::new())
            }
            Err(_) => self.pause().await,
        }
    }

    /// Waits a moment before the next look.
    async fn pause(&self) -> Option<String> {
        let handle = self.handle.clone();
        tokio::select! {
            biased;
            () = handle.stopped() => None,
            () = tokio::time::sleep(PAUSE) => Some(self.comment("looking")),
        }
    }

    fn is_let_in(&self) -> bool {
        let Some(id) = self.key else { return true };
        let now = self.handle.now();
        let book = self.handle.access().book();
        book.key(id).is_some_and(|key| key.expires.is_none_or(|end| now < end))
    }

    /// Tells what was printed after this follower's place, and what is missing before it.
    fn tell(&mut self, printed: Printed) -> String {
        let (Printed { attempt, token, pieces }, mut text) = (printed, String::new());
        if token < self.place.token {
            return text;
        }
        if token > self.place.token {
            self.place = OutputPlace { token, next: 0 };
        }
        for piece in pieces {
            let from = self.place.next;
            if piece.offset > from {
                self.place.next = piece.offset;
                self.write(&mut text, &OutputEvent::Cut { attempt, from, to: piece.offset });
            }
            let Some(piece) = piece.from(self.place.next) else { continue };
            self.place.next = piece.end();
            self.write(&mut text, &OutputEvent::Printed { attempt, chunk: chunk(&piece) });
        }
        text
    }

    /// Tells what another server told.
    fn pass_on(&mut self, id: Option<&str>, kind: Option<String>, data: &str) -> String {
        if let Some(place) = id.and_then(OutputPlace::read) {
            self.place = place;
        }
        let Some(kind) = kind.filter(|_| !data.is_empty()) else {
            return self.comment("heartbeat");
        };
        if serde_json::from_str(data).is_ok_and(|it| matches!(it, OutputEvent::Ended { .. })) {
            self.source = Source::Over;
        }
        format!("id: {}\nevent: {kind}\ndata: {data}\n\n", self.place)
    }

    fn comment(&self, words: &str) -> String {
        format!(": {words}\nid: {}\n\n", self.place)
    }

    fn write(&self, text: &mut String, event: &OutputEvent) {
        let data = serde_json::to_string(event).expect("an event always serializes");
        let (id, kind) = (self.place, event.kind());
        write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n").expect("a String never fails");
    }
}

impl OutputPlace {
    fn read(id: &str) -> Option<Self> {
        let (token, next) = id.split_once('-')?;
        Some(Self { token: RunToken(token.parse().ok()?), next: next.parse().ok()? })
    }
}

impl std::fmt::Display for OutputPlace {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.token.0, self.next)
    }
}

//! `/v1/store/watch`: word of changes, as server-sent events. Each names a prefix below which something changed.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use bytes::Bytes;
use client::store::StoreHint;
use engine::limits::{GUEST_WATCHERS_MAX, GUEST_WATCHERS_OF_KEY_MAX, STREAM_HEARTBEAT};
use store::Hints;
use store::guest::SCRATCH;

use super::project_name;
use crate::access::book::Book;
use crate::access::key::KeyId;
use crate::api::caller::Caller;
use crate::api::problem::{ApiError, ApiResult};
use crate::api::stream::stream;
use crate::event::WatcherSeat;
use crate::handle::NodeHandle;

/// Shortest time between two pieces: what changes meanwhile is told as one.
const PAUSE: Duration = Duration::from_millis(10);

struct Watcher {
    handle: NodeHandle,
    key: Option<KeyId>,
    books: tokio::sync::watch::Receiver<Arc<Book>>,
    sessions: Hints,
    elections: (String, Hints),
    /// What checks write, for admins.
    scratch: Option<Hints>,
    is_begun: bool,
    _seat: WatcherSeat,
}

pub(in crate::api) async fn watch(handle: NodeHandle, caller: Caller) -> ApiResult {
    let most = (GUEST_WATCHERS_MAX, GUEST_WATCHERS_OF_KEY_MAX);
    let seat = WatcherSeat::take(handle.guests(), caller.key, most).ok_or_else(|| {
        let detail = format!(
            "a store is watched by {GUEST_WATCHERS_MAX} at a time, and by {GUEST_WATCHERS_OF_KEY_MAX} with one key: look from time to time instead"
        );
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many watch", detail)
    })?;
    let elections = format!("election/{}/", project_name(&handle, caller.project)?);
    let store = handle.store();
    let watcher = Watcher {
        key: caller.key,
        books: handle.access().books(),
        sessions: store.watch("node/"),
        scratch: caller.is_admin().then(|| store.watch(SCRATCH)),
        elections: (elections.clone(), store.watch(&elections)),
        is_begun: false,
        _seat: seat,
        handle,
    };
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((StatusCode::OK, headers, stream(watcher, Watcher::next)).into_response())
}

impl Watcher {
    /// The next piece of the answer. It ends when the server stops.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Some((": watching\n\n".into(), self));
        }
        tokio::time::sleep(PAUSE).await;
        loop {
            if !self.is_let_in() {
                return None;
            }
            let handle = self.handle.clone();
            let scratch = async {
                match &mut self.scratch {
                    Some(hints) => hints.changed().await,
                    None => std::future::pending().await,
                }
            };
            let prefix = tokio::select! {
                () = handle.stopped() => return None,
                () = self.sessions.changed() => "node/",
                () = self.elections.1.changed() => self.elections.0.as_str(),
                () = scratch => SCRATCH,
                Ok(()) = self.books.changed() => continue,
                () = tokio::time::sleep(STREAM_HEARTBEAT) => return Some((": heartbeat\n\n".into(), self)),
            };
            let hint = serde_json::to_string(&StoreHint { prefix: prefix.to_owned() });
            let hint = hint.expect("a hint always serializes");
            return Some((format!("event: hint\ndata: {hint}\n\n").into(), self));
        }
    }

    /// A key that was taken back, or has expired, opens nothing any more.
    fn is_let_in(&self) -> bool {
        let Some(id) = self.key else { return true };
        let now = self.handle.now();
        let book = self.handle.access().book();
        book.key(id).is_some_and(|key| key.expires.is_none_or(|end| now < end))
    }
}

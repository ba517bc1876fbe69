//! `/v1/workers`: who was heard of, by whichever server.

use std::collections::BTreeMap;

use axum::http::Method;
use axum::response::Json;
use client::ListPage;
use client::worker::{Worker, WorkerState};
use engine::instant::Instant;
use engine::queue::worker::{WorkerActivity, WorkerView};
use engine::shard::ShardAnswer;

use super::caller::Caller;
use super::convert::timestamp;
use super::forward::PeerClient;
use super::problem::ApiResult;
use crate::handle::{NodeHandle, ShardAsk};

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
) -> ApiResult<Json<ListPage<Worker>>> {
    let mut workers: BTreeMap<String, Worker> = BTreeMap::new();
    let served: Vec<_> = handle.peers().served().borrow().iter().copied().collect();
    for shard in served {
        let guard = handle.ask_guard(shard);
        let ask = ShardAsk::Workers { project: caller.project };
        if let Ok(ShardAnswer::Workers(views)) = handle.ask_shard(&guard, ask).await {
            for (view, queues) in views {
                add(&mut workers, tell(&view, &queues, handle.now()));
            }
        }
    }
    for (_, answer) in peers.ask_all(&Method::GET, "/v1/workers").await {
        let page = answer.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let page: ListPage<Worker> = page.unwrap_or(ListPage { items: Vec::new(), next: None });
        page.items.into_iter().for_each(|worker| add(&mut workers, worker));
    }
    Ok(Json(ListPage { items: workers.into_values().collect(), next: None }))
}

fn tell(view: &WorkerView, queues: &[Box<str>], now: Instant) -> Worker {
    let heard = view.heard_ms_ago.map(|ago| Instant(now.0 - i64::try_from(ago).unwrap_or(0)));
    let state = match view.activity() {
        WorkerActivity::Draining => WorkerState::Draining,
        WorkerActivity::Waiting => WorkerState::Waiting,
        WorkerActivity::Idle => WorkerState::Idle,
        WorkerActivity::Silent => WorkerState::Silent,
        WorkerActivity::Busy => WorkerState::Busy,
    };
    Worker {
        name: view.name.to_string(),
        incarnation: view.incarnation,
        state,
        heard: heard.map(timestamp),
        queues: queues.iter().map(ToString::to_string).collect(),
        running: view.running as u64,
    }
}

/// A worker speaks to the owners of all its queues: each knows a part.
fn add(workers: &mut BTreeMap<String, Worker>, more: Worker) {
    let Some(known) = workers.get_mut(&more.name) else {
        workers.insert(more.name.clone(), more);
        return;
    };
    known.running += more.running;
    known.queues.extend(more.queues);
    known.queues.sort();
    known.queues.dedup();
    known.state = match (known.state, more.state) {
        (WorkerState::Draining, _) | (_, WorkerState::Draining) => WorkerState::Draining,
        (WorkerState::Busy, _) | (_, WorkerState::Busy) => WorkerState::Busy,
        (WorkerState::Silent, _) | (_, WorkerState::Silent) => WorkerState::Silent,
        (WorkerState::Waiting, _) | (_, WorkerState::Waiting) => WorkerState::Waiting,
        (WorkerState::Idle, WorkerState::Idle) => WorkerState::Idle,
    };
    known.heard = known.heard.max(more.heard);
    known.incarnation = known.incarnation.max(more.incarnation);
}

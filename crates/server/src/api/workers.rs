//! `/v1/workers`: who was heard of, by whichever server, and who is to drain.
//!
//! Each owner of a shard knows a part of what a worker does; whoever is asked puts the parts together. That a worker is to
//! drain is a wish in the book, which every server has: see [`crate::access::drain`].

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::Json;
use client::ListPage;
use client::worker::{Worker, WorkerDetails, WorkerDrain, WorkerRun, WorkerState};
use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
use engine::limits::WORKER_RUNS_SHOWN_MAX;
use engine::queue::worker::{WorkerActivity, WorkerView};
use engine::shard::ShardAnswer;
use engine::trigger::check_name;

use super::body::NoBody;
use super::caller::Caller;
use super::convert::timestamp;
use super::forward::PeerClient;
use super::problem::{ApiError, ApiResult};
use super::queue::labels;
use crate::event::{EventDetail, ServerEvent};
use crate::handle::{NodeHandle, ShardAsk};

/// How long a wish to drain waits for claims that wait: they are told at once.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// Between two looks at them.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
) -> ApiResult<Json<ListPage<Worker>>> {
    let mut workers: BTreeMap<String, Worker> = BTreeMap::new();
    for (_, view, queues) in views(&handle, caller.project).await {
        add(&mut workers, tell(&view, &queues, handle.now()));
    }
    for (_, answer) in peers.ask_all(&Method::GET, "/v1/workers").await {
        let page = answer.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let page: ListPage<Worker> = page.unwrap_or(ListPage { items: Vec::new(), next: None });
        page.items.into_iter().for_each(|worker| add(&mut workers, worker));
    }
    let book = handle.access().book();
    for worker in workers.values_mut() {
        if book.drain(caller.project, &worker.name, worker.incarnation).is_some() {
            drains(worker);
        }
    }
    Ok(Json(ListPage { items: workers.into_values().collect(), next: None }))
}

pub(super) async fn show(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
) -> ApiResult<Json<WorkerDetails>> {
    Ok(Json(find(&handle, &peers, caller.project, &name).await?))
}

pub(super) async fn drain(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult<Json<WorkerDetails>> {
    if peers.is_asked_by_peer() {
        return heed(&handle, caller.project, &name).await;
    }
    let worker = find(&handle, &peers, caller.project, &name).await?.worker;
    let trail = caller.trail(&handle, "worker.drain", &name);
    handle.access().drain_worker(caller.project, &name, worker.incarnation, &trail).await?;
    tell_changed(&handle, &caller, "worker.drain", &name);
    settle(&handle, caller.project, &name).await;
    peers.ask_all(&Method::POST, &format!("/v1/workers/{name}/drain")).await;
    Ok(Json(find(&handle, &peers, caller.project, &name).await?))
}

pub(super) async fn undrain(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
) -> ApiResult<Json<WorkerDetails>> {
    if peers.is_asked_by_peer() {
        return heed(&handle, caller.project, &name).await;
    }
    // A wish outlives the memory of those who heard the worker.
    if handle.access().book().any_drain(caller.project, &name).is_none() {
        find(&handle, &peers, caller.project, &name).await?;
    }
    let trail = caller.trail(&handle, "worker.undrain", &name);
    handle.access().undrain_worker(caller.project, &name, &trail).await?;
    tell_changed(&handle, &caller, "worker.undrain", &name);
    peers.ask_all(&Method::DELETE, &format!("/v1/workers/{name}/drain")).await;
    let found = find(&handle, &peers, caller.project, &name).await;
    Ok(Json(found.unwrap_or_else(|_| unheard(&name))))
}

/// Another server has written a wish: reads it, and lets claims that wait know.
async fn heed(
    handle: &NodeHandle,
    project: ProjectId,
    name: &str,
) -> ApiResult<Json<WorkerDetails>> {
    handle.access().refresh().await?;
    settle(handle, project, name).await;
    Ok(Json(here(handle, project, name).await.unwrap_or_else(|_| unheard(name))))
}

/// Waits until no claim of a worker waits here that is to drain.
async fn settle(handle: &NodeHandle, project: ProjectId, name: &str) {
    let settled = async {
        let waits = |views: Vec<(ShardId, WorkerView, Vec<Box<str>>)>| {
            let mut own = views.into_iter().filter(|(_, view, _)| *view.name == *name);
            own.any(|(_, view, _)| view.is_waiting)
        };
        while handle.access().book().any_drain(project, name).is_some()
            && waits(views(handle, project).await)
        {
            tokio::time::sleep(PAUSE).await;
        }
    };
    // If it takes longer, the claim ends by itself.
    let _ = tokio::time::timeout(SETTLE_MAX, settled).await;
}

fn tell_changed(handle: &NodeHandle, caller: &Caller, action: &str, name: &str) {
    let what = EventDetail::Changed {
        action: action.to_owned(),
        object: name.to_owned(),
        author: caller.author.clone(),
    };
    handle.events().push([ServerEvent { project: Some(caller.project), at: handle.now(), what }]);
}

/// A worker as all servers together know it.
async fn find(
    handle: &NodeHandle,
    peers: &PeerClient,
    project: ProjectId,
    name: &str,
) -> ApiResult<WorkerDetails> {
    check_name(name).map_err(|_| no_worker(name))?;
    let mut found = here(handle, project, name).await.ok();
    for (_, answer) in peers.ask_all(&Method::GET, &format!("/v1/workers/{name}")).await {
        let more = answer.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        found = join(found, more);
    }
    let mut worker = found.ok_or_else(|| no_worker(name))?;
    // Whether it is to drain depends on the life that all together know.
    let (book, incarnation) = (handle.access().book(), worker.worker.incarnation);
    worker.drain = book
        .drain(project, name, incarnation)
        .map(|wish| WorkerDrain { since: timestamp(wish.since), author: wish.author.clone() });
    if worker.drain.is_some() {
        drains(&mut worker.worker);
    }
    worker.runs.sort_by(|one, other| (one.since, &one.id).cmp(&(other.since, &other.id)));
    worker.runs.truncate(WORKER_RUNS_SHOWN_MAX);
    Ok(worker)
}

/// A worker as the shards of this server know it.
pub(super) async fn here(
    handle: &NodeHandle,
    project: ProjectId,
    name: &str,
) -> ApiResult<WorkerDetails> {
    let mut found = None;
    for (shard, view, queues) in views(handle, project).await {
        if *view.name != *name {
            continue;
        }
        let ask =
            ShardAsk::WorkerRuns { project, worker: name.into(), most: WORKER_RUNS_SHOWN_MAX };
        let guard = handle.ask_guard(shard);
        let runs = match handle.ask_shard(&guard, ask).await {
            Ok(ShardAnswer::WorkerRuns(runs)) => runs,
            Ok(_) | Err(_) => Vec::new(),
        };
        let runs = runs.iter().map(|run| WorkerRun {
            id: run.id.to_string(),
            queue: run.queue.to_string(),
            since: timestamp(run.given.at),
            attempt: run.given.attempt,
        });
        let more = WorkerDetails {
            worker: tell(&view, &queues, handle.now()),
            lease_ms: view.lease_ms.map(u64::from),
            drain: None,
            runs: runs.collect(),
        };
        found = join(found, Some(more));
    }
    found.ok_or_else(|| no_worker(name))
}

/// What each shard of this server knows of the workers of a project, with the names of their queues.
async fn views(
    handle: &NodeHandle,
    project: ProjectId,
) -> Vec<(ShardId, WorkerView, Vec<Box<str>>)> {
    let served: Vec<_> = handle.peers().served().borrow().iter().copied().collect();
    let mut all = Vec::new();
    for shard in served {
        let guard = handle.ask_guard(shard);
        let ask = ShardAsk::Workers { project };
        if let Ok(ShardAnswer::Workers(views)) = handle.ask_shard(&guard, ask).await {
            all.extend(views.into_iter().map(|(view, queues)| (shard, view, queues)));
        }
    }
    all
}

fn no_worker(name: &str) -> ApiError {
    let name: String = name.chars().take(100).collect();
    let detail = format!("there is no worker {name:?} that was heard of: list them at /v1/workers");
    ApiError::new(StatusCode::NOT_FOUND, "no-worker", "No such worker", detail)
}

/// A worker of which nobody knows anything.
fn unheard(name: &str) -> WorkerDetails {
    let worker = Worker {
        name: name.to_owned(),
        incarnation: 0,
        state: WorkerState::Silent,
        heard: None,
        queues: Vec::new(),
        running: 0,
        labels: BTreeMap::new(),
    };
    WorkerDetails { worker, lease_ms: None, drain: None, runs: Vec::new() }
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
        labels: labels(Some(&view.labels)),
    }
}

/// A worker speaks to the owners of all its queues: each knows a part.
fn add(workers: &mut BTreeMap<String, Worker>, more: Worker) {
    match workers.remove(&more.name) {
        Some(known) => workers.insert(more.name.clone(), merge(known, more)),
        None => workers.insert(more.name.clone(), more),
    };
}

fn join(known: Option<WorkerDetails>, more: Option<WorkerDetails>) -> Option<WorkerDetails> {
    let (mut known, more) = match (known, more) {
        (Some(known), Some(more)) => (known, more),
        (known, more) => return known.or(more),
    };
    known.worker = merge(known.worker, more.worker);
    known.lease_ms = known.lease_ms.max(more.lease_ms);
    known.runs.extend(more.runs);
    Some(known)
}

/// Somebody wants it to drain. One that cannot be heard may have done so.
fn drains(worker: &mut Worker) {
    if worker.state != WorkerState::Silent {
        worker.state = WorkerState::Draining;
    }
}

fn merge(mut known: Worker, more: Worker) -> Worker {
    known.running += more.running;
    known.queues.extend(more.queues);
    known.queues.sort();
    known.queues.dedup();
    known.state = match (known.state, more.state) {
        (WorkerState::Draining, _) | (_, WorkerState::Draining) => WorkerState::Draining,
        (WorkerState::Busy, _) | (_, WorkerState::Busy) => WorkerState::Busy,
        (WorkerState::Waiting, _) | (_, WorkerState::Waiting) => WorkerState::Waiting,
        (WorkerState::Idle, _) | (_, WorkerState::Idle) => WorkerState::Idle,
        (WorkerState::Silent, WorkerState::Silent) => WorkerState::Silent,
    };
    // Owners of runs alone are told no labels.
    let is_later = more.incarnation > known.incarnation;
    if is_later || (more.incarnation == known.incarnation && known.labels.is_empty()) {
        known.labels = more.labels;
    }
    known.heard = known.heard.max(more.heard);
    known.incarnation = known.incarnation.max(more.incarnation);
    known
}

//! `/v1/queues/{name}/runs`: the unfinished runs of a queue, in the order in which they came.
//!
//! What has ended is among the runs of `/v1/runs`.
//!
//! A shard may have a million runs of other queues, so its owner looks at a bounded number of them before others have their
//! turn, and a page that would have to look at very many is shorter than was asked for.

use axum::extract::Path;
use axum::http::Uri;
use axum::response::Json;
use client::ListPage;
use client::run::{Run, RunState};
use engine::limits::{CANCEL_PIECES_MAX, RUNS_READ_MAX};
use engine::shard::ShardAnswer;

use super::caller::Caller;
use super::convert;
use super::forward::PeerClient;
use super::owner::{self, Told};
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::queue;
use super::read::{Silence, Stored};
use super::trigger::bad_cursor;
use crate::handle::{NodeHandle, ShardAsk};

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
    uri: Uri,
    query: Query,
) -> ApiResult<Json<ListPage<Run>>> {
    let rows = query.rows()?;
    let states = query.words("state", &RunState::ALL, RunState::as_str)?;
    let labels = query.labels()?;
    let key = query.text("key");
    let cursor = query.text("cursor").map(|text| text.parse().map_err(|_| bad_cursor()));
    let after: u64 = cursor.transpose()?.unwrap_or(0);
    let record = queue::find(&handle, caller.project, &name).await?;
    let silence = Silence::of(&handle, caller.project);
    let is_wanted = |run: &Run| {
        let Some(queued) = &run.queued else { return false };
        let carries = |(key, value): &(&str, &str)| {
            queued.labels.get(*key).is_some_and(|found| found == value)
        };
        (states.is_empty() || states.contains(&run.state))
            && key.is_none_or(|key| queued.key.as_deref() == Some(key))
            && labels.iter().all(carries)
    };
    let (mut items, mut next) = (Vec::new(), Some(after));
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    // Others of the shard have their turn between two pieces.
    for piece in 0..CANCEL_PIECES_MAX {
        let Some(after) = next.filter(|_| items.len() < rows) else { break };
        let (project, queue) = (caller.project, record.name.clone());
        let ask = ShardAsk::Runs { project, queue, after, most: RUNS_READ_MAX };
        let (views, more) = match owner::ask(&handle, &peers, record.id.shard, ask, path).await {
            Told::Here(ShardAnswer::QueueRuns { runs, next }) => (runs, next),
            Told::There(bytes) if piece == 0 => {
                let page = serde_json::from_slice(&bytes).map_err(|_| no_owner())?;
                return Ok(Json(page));
            }
            // The shard has another owner by now, who goes on after what was found.
            Told::There(_) | Told::Nobody if piece > 0 => break,
            Told::There(_) | Told::Here(_) | Told::Nobody => return Err(no_owner()),
        };
        next = more;
        for (looked_at, view) in views.iter().enumerate() {
            let run = convert::queued(view, silence.as_ref());
            items.extend(Some(run).filter(&is_wanted));
            if items.len() == rows && (looked_at + 1 < views.len() || more.is_some()) {
                next = Some(view.run.order.sequence);
                break;
            }
        }
    }
    let next = next.map(|sequence| sequence.to_string());
    Ok(Json(ListPage { items, next }))
}

/// The unfinished runs of a trigger that queues have, by whoever owns its shard. A trigger that never fed a queue has none,
/// and nobody is asked.
pub(super) async fn of_trigger(
    handle: &NodeHandle,
    peers: &PeerClient,
    stored: &Stored,
    path: &str,
) -> Told {
    let may_have_fed = stored.draft.queue.is_some() || stored.record.revision > 1;
    if !may_have_fed {
        return Told::Here(ShardAnswer::Runs(Vec::new()));
    }
    let id = stored.id();
    let ask = ShardAsk::RunsOf { trigger: id, most: RUNS_READ_MAX };
    owner::ask(handle, peers, id.shard, ask, path).await
}

fn no_owner() -> ApiError {
    let pause = engine::limits::OWNER_RETRY_AFTER;
    ApiError::unavailable("nobody owns the shard of this queue at the moment: try again", pause)
}

//! `/v1/queues/{name}/runs`: the unfinished runs of a queue, in the order in which they came.
//!
//! What has ended is among the runs of `/v1/runs`.

use axum::extract::Path;
use axum::http::Uri;
use axum::response::Json;
use client::ListPage;
use client::run::{Run, RunState};
use engine::limits::RUNS_READ_MAX;
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
    let ask = ShardAsk::Runs {
        project: caller.project,
        queue: record.name.clone(),
        after,
        most: RUNS_READ_MAX,
    };
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let views = match owner::ask(&handle, &peers, record.id.shard, ask, path).await {
        Told::Here(ShardAnswer::Runs(views)) => views,
        Told::There(bytes) => {
            let page = serde_json::from_slice(&bytes).map_err(|_| no_owner())?;
            return Ok(Json(page));
        }
        Told::Here(_) | Told::Nobody => return Err(no_owner()),
    };
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
    let is_whole = views.len() < RUNS_READ_MAX;
    let (mut items, mut next, mut looked_at) = (Vec::new(), None, 0);
    for view in &views {
        if items.len() == rows {
            break;
        }
        looked_at += 1;
        next = Some(view.run.order.sequence);
        let run = convert::queued(view, silence.as_ref());
        items.extend(Some(run).filter(&is_wanted));
    }
    let has_more = !is_whole || looked_at < views.len();
    let next = next.filter(|_| has_more).map(|sequence| sequence.to_string());
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

//! `/v1/triggers/{name}/explain`: why did it run, and why did it not?
//!
//! The evidence is read in the order in which a run travels: the mark and the open runs in the head, then
//! the unfinished ones, then those in queues, then the past. What moves on while we read is met again further down, and what the
//! mark calls decided was decided before the rest is read, so nothing is taken for missing that is not.

use axum::extract::Path;
use axum::http::Uri;
use axum::response::Json;
use client::account::{Account, Fate};
use engine::instant::Instant;
use engine::length;
use engine::limits::{
    ACCOUNT_SPAN_MAX, EXPLAIN_NEXT_LEN, EXPLAIN_SPAN_MS, RUNS_READ_MAX, SEGMENTS_READ_MAX,
};
use engine::past::Line;
use engine::shard::ShardAnswer;
use engine::shard::record::LagRecord;

use super::account::{Evidence, Window};
use super::caller::Caller;
use super::convert::{self, Source, timestamp};
use super::floor;
use super::forward::PeerClient;
use super::owner::Told;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::queued;
use super::read::{self, Silence, Stored};
use super::segment::{PastSpan, PastWalk};
use crate::handle::{FiringState, NodeHandle};

/// Pages of unfinished runs that one account reads.
const RUN_PAGES_MAX: usize = 5;

pub(super) async fn explain(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
    uri: Uri,
    query: Query,
) -> ApiResult<Json<Account>> {
    let now = handle.now();
    let to = query.get("to")?.unwrap_or(now);
    let from = query.get("from")?.unwrap_or(Instant(to.0 - EXPLAIN_SPAN_MS));
    let window = Window { from, to };
    check(window)?;
    let stored = read::trigger(handle.store(), caller.project, &name).await?;
    let lag = read::lag(handle.store(), &stored).await?;
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let evidence = match gather(&handle, &peers, (&stored, lag), (window, path), now).await? {
        Gathered::Here(evidence) => evidence,
        Gathered::There(account) => return Ok(Json(*account)),
    };
    let (rows, totals, more_from) = evidence.account(window);
    for row in rows.iter().filter(|row| row.fate == Fate::Missing) {
        tracing::error!(trigger = %stored.id(), slot = %row.from, "a slot was decided and has no record");
    }
    let silence = match handle.firing() {
        FiringState::Going => Silence::of(&handle, stored.id().project),
        FiringState::Suspended { why, .. } => {
            Some(Silence { why, cure: "watchbell scheduler confirm-time".to_owned() })
        }
    };
    let (suspended, cure) = silence.map(|silence| (silence.why, silence.cure)).unzip();
    Ok(Json(Account {
        id: stored.id().to_string(),
        name: stored.name().to_owned(),
        status: convert::status(&stored, now),
        paused: stored.state.paused.as_ref().map(convert::pause),
        from: timestamp(from),
        to: timestamp(to),
        schedule_since: timestamp(stored.record.since),
        rows,
        totals,
        next: convert::next(&stored, now, EXPLAIN_NEXT_LEN),
        more_from: more_from.map(timestamp),
        kept_from: Some(evidence.kept_from)
            .filter(|kept| *kept > from.max(stored.record.created))
            .map(timestamp),
        suspended,
        cure,
        host_lags_since: lag.map(|lag| timestamp(lag.since)),
    }))
}

fn check(window: Window) -> ApiResult<()> {
    let span_ms = i64::try_from(ACCOUNT_SPAN_MAX.as_millis()).expect("a year");
    if window.from >= window.to {
        let why = "it must lie before \"to\", which is now if it is not given";
        return Err(ApiError::parameter("from", why));
    }
    if window.to.0.saturating_sub(window.from.0) > span_ms {
        let most = length::text(ACCOUNT_SPAN_MAX);
        let why = format!("at most {most} may lie between \"from\" and \"to\"");
        return Err(ApiError::parameter("from", why));
    }
    Ok(())
}

/// What was found out about a trigger.
enum Gathered<'a> {
    Here(Evidence<'a>),
    /// The owner of its shard, which knows its runs in queues, has told all.
    There(Box<Account>),
}

async fn gather<'a>(
    handle: &NodeHandle,
    peers: &PeerClient,
    (stored, lag): (&'a Stored, Option<LagRecord>),
    (window, path): (Window, &str),
    now: Instant,
) -> ApiResult<Gathered<'a>> {
    let (store, id) = (handle.store(), stored.id());
    let head = read::head(store, id.shard).await?;
    let mark = read::mark(store, stored, head.decided_through, lag).await?;
    let mut unfinished = Vec::new();
    let mut after = None;
    for _ in 0..RUN_PAGES_MAX {
        let page = read::unfinished(store, id.shard, Some(id), after, RUNS_READ_MAX).await?;
        unfinished.extend(page.runs);
        after = page.more_after;
        if after.is_none() {
            break;
        }
    }
    let (queued, is_queue_read) = match queued::of_trigger(handle, peers, stored, path).await {
        Told::Here(ShardAnswer::Runs(views)) => {
            let is_read = views.len() < RUNS_READ_MAX;
            (views.iter().map(|view| convert::queued(view, None)).collect(), is_read)
        }
        Told::There(bytes) => match serde_json::from_slice(&bytes) {
            Ok(account) => return Ok(Gathered::There(account)),
            Err(_) => (Vec::new(), false),
        },
        Told::Here(_) | Told::Nobody => (Vec::new(), false),
    };
    // Nothing is recorded much before its slot, nor before its trigger was made; but a range that reaches
    // into the window may end long after it.
    let from = window.from.max(stored.record.created);
    let span = PastSpan { trigger: id.serial, from, to: Instant::LAST };
    let mut walk = PastWalk::of(store, id.shard, span, None, SEGMENTS_READ_MAX);
    let mut lines: Vec<Line> = Vec::new();
    while let Some(batch) = walk.next().await? {
        lines.extend(batch.lines.into_iter().map(Line::without_responses));
    }
    // After the lines: what was gone by then lies below.
    let kept_from = floor::of(store, id).await?;
    // With more unfinished runs than are read, any slot may be among the rest.
    let read_back_to = match after {
        Some(_) => Some(Instant::LAST),
        None if !is_queue_read => Some(Instant::LAST),
        None => walk.unread_to(),
    };
    Ok(Gathered::Here(Evidence {
        stored,
        source: Source { shard: id.shard, cluster: handle.cluster() },
        mark,
        open: head.open.into_iter().filter(|run| run.trigger == id.serial).collect(),
        unfinished,
        queued,
        lines,
        read_back_to,
        kept_from,
        now,
    }))
}

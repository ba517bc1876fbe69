//! `POST /v1/queues/{name}/cancel`: ending many unfinished runs of a queue at once, by a filter.
//!
//! A million may wait: a request does as many pieces as its limit allows, one commit after the other, and tells where to go
//! on. Cancelling twice is the same as once, so a request that is sent again is carried out again.

use axum::extract::Path;
use axum::response::Json;
use client::redrive::{CancelRunsRequest, CancelledRuns, UnfinishedKind};
use engine::limits::{
    CANCEL_PIECES_MAX, CANCEL_REQUEST_RUNS_MAX, CANCEL_RUNS_MAX, COUNT_PIECES_MAX,
};
use engine::queue::filter::{UnfinishedFilter, UnfinishedState};
use engine::queue::record::QueueRecord;
use engine::shard::command::Command;
use engine::shard::{FilterProgress, NumberSpan, ShardAnswer};

use super::body::JsonBody;
use super::caller::{Act, Caller};
use super::dead::{cursor_text, run_filter, span_of};
use super::problem::{ApiError, ApiResult};
use super::queue;
use crate::handle::{NodeHandle, ShardAsk};
use crate::idempotency::RememberedOutcome;

pub(super) async fn cancel(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<CancelRunsRequest>,
) -> ApiResult<Json<CancelledRuns>> {
    let CancelRunsRequest { state: states, key, labels, since, until, .. } = &request;
    let run = run_filter(key.as_deref(), labels, *since, *until)?;
    let filter = UnfinishedFilter { states: states.iter().copied().map(state).collect(), run };
    let limit = request.limit.unwrap_or(CANCEL_RUNS_MAX as u64);
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    if !(1..=CANCEL_REQUEST_RUNS_MAX).contains(&most) {
        let why = format!("it is a whole number from 1 to {CANCEL_REQUEST_RUNS_MAX}");
        return Err(ApiError::field("/limit", why));
    }
    let record = queue::find(&handle, caller.project, &name).await?;
    let span = span_of(&handle, &record, request.cursor.as_deref()).await?;
    let progress = if request.dry_run {
        count(&handle, &record, &filter, span).await?
    } else {
        cancel_all(&handle, caller, &record, filter, (span, most)).await?
    };
    Ok(Json(CancelledRuns {
        matched: progress.matched as u64,
        running: progress.running as u64,
        next: progress.next.map(|next| cursor_text(next, span)),
    }))
}

/// Cancels runs, at most so many.
async fn cancel_all(
    handle: &NodeHandle,
    caller: Caller,
    queue: &QueueRecord,
    filter: UnfinishedFilter,
    (span, most): (NumberSpan, usize),
) -> ApiResult<FilterProgress> {
    let caller = Caller { idempotency: None, ..caller };
    let (shard, serial) = (queue.id.shard, queue.id.serial);
    let mut sum = FilterProgress { next: Some(span.after), ..FilterProgress::default() };
    for piece in 0..CANCEL_PIECES_MAX {
        let Some(after) = sum.next.filter(|_| sum.matched < most) else { break };
        let (filter, most) = (filter.clone(), most - sum.matched);
        let span = NumberSpan { after, ..span };
        let command = Command::CancelRuns { queue: serial, filter, span, most };
        let done: FilterProgress = if piece == 0 {
            let outcome = RememberedOutcome::Submitted;
            let act = Act { action: "queue.cancel", object: &queue.name, outcome };
            caller.command(handle, shard, command, act).await?
        } else {
            caller.go_on(handle, shard, command).await?
        };
        add(&mut sum, done);
    }
    Ok(sum)
}

/// Counts runs.
async fn count(
    handle: &NodeHandle,
    queue: &QueueRecord,
    filter: &UnfinishedFilter,
    span: NumberSpan,
) -> ApiResult<FilterProgress> {
    let mut sum = FilterProgress { next: Some(span.after), ..FilterProgress::default() };
    for _ in 0..COUNT_PIECES_MAX {
        let Some(after) = sum.next else { break };
        let guard = handle.ask_guard(queue.id.shard);
        let (project, filter) = (queue.id.project, Box::new(filter.clone()));
        let span = NumberSpan { after, ..span };
        let ask = ShardAsk::Count { project, queue: queue.name.clone(), filter, span };
        let ShardAnswer::Counted(done) = handle.ask_shard(&guard, ask).await? else {
            unreachable!("who counts is told a count")
        };
        add(&mut sum, done);
    }
    Ok(sum)
}

fn add(sum: &mut FilterProgress, piece: FilterProgress) {
    sum.matched += piece.matched;
    sum.running += piece.running;
    sum.next = piece.next;
}

fn state(kind: UnfinishedKind) -> UnfinishedState {
    match kind {
        UnfinishedKind::Waiting => UnfinishedState::Waiting,
        UnfinishedKind::Running => UnfinishedState::Running,
        UnfinishedKind::Backoff => UnfinishedState::Backoff,
    }
}

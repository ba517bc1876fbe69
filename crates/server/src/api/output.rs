//! `/v1/runs/{id}/output`: what runs of queues print, and how far they have come.
//!
//! What a run prints while a worker has it is known to the owner of its shard alone. What an attempt that is over printed is
//! in the store, where every server finds it.
//!
//! - `follow`: the same, while it is printed

mod follow;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json};
use client::output::{OutputAnswer, OutputChunk, OutputRequest, OutputStream, RunOutput};
use client::output::{ProgressSpec, RunProgress};
use engine::id::{ProjectId, RunId};
use engine::instant::Instant;
use engine::limits::{
    OUTPUT_CHUNKS_MAX, OUTPUT_OFFSET_MAX, OUTPUT_REQUEST_BYTES_MAX, PROGRESS_CHARS_MAX,
};
use engine::queue::given::RunToken;
use engine::queue::output::{self, OutputPiece, OutputRecord, StoredPiece, output_key};
use engine::shard::{LiveOutput, OutputCall, OutputView, ShardAnswer};
use engine::trigger::BadField;

use super::body::JsonBody;
use super::caller::Caller;
use super::convert::timestamp;
use super::forward::PeerClient;
use super::owner::{self, Told};
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::read::{self, key};
use super::run::{self, read_id};
use crate::handle::{NodeHandle, ShardAsk};

/// The worker of a run says what it prints.
pub(super) async fn take(
    handle: NodeHandle,
    caller: Caller,
    Path(text): Path<String>,
    JsonBody(request): JsonBody<OutputRequest>,
) -> ApiResult<Json<OutputAnswer>> {
    let run = in_shards(&handle, read_id(&text)?)?;
    let (chunks, progress) = checked(&request)?;
    let call = OutputCall {
        project: caller.project,
        run,
        token: RunToken(request.token),
        oldest: request.oldest,
        chunks,
        progress,
    };
    let guard = handle.ask_guard(run.shard);
    match handle.ask_shard(&guard, ShardAsk::TakeOutput(Box::new(call))).await? {
        ShardAnswer::Taken(Ok(taken)) => Ok(Json(OutputAnswer { next: taken.next })),
        ShardAnswer::Taken(Err(why)) => Err(ApiError::new(
            StatusCode::CONFLICT,
            "stale-token",
            "The token is stale",
            why.to_string(),
        )),
        answer => unreachable!("a shard is told of output, and answers {answer:?}"),
    }
}

/// What a worker said about how far a run has come: percent, and a text.
type Progress = (Option<u8>, Option<Box<str>>);

fn checked(request: &OutputRequest) -> ApiResult<(Vec<OutputPiece>, Option<Progress>)> {
    let mut faults = Vec::new();
    let mut fault = |pointer: String, why: String| faults.push(BadField { pointer, why });
    let len = request.chunks.len();
    if len > OUTPUT_CHUNKS_MAX {
        fault(
            "/chunks".to_owned(),
            format!("a request has at most {OUTPUT_CHUNKS_MAX}, and these are {len}"),
        );
    }
    let mut pieces = Vec::with_capacity(len.min(OUTPUT_CHUNKS_MAX));
    let mut bytes_len = 0;
    for (index, chunk) in request.chunks.iter().take(OUTPUT_CHUNKS_MAX).enumerate() {
        if chunk.offset > OUTPUT_OFFSET_MAX {
            fault(format!("/chunks/{index}/offset"), format!("it is at most {OUTPUT_OFFSET_MAX}"));
        }
        match chunk.bytes() {
            Ok(bytes) => {
                bytes_len += bytes.len();
                pieces.push(OutputPiece {
                    offset: chunk.offset,
                    stream: stored_stream(chunk.stream),
                    at: chunk.at.map(|at| Instant(at.as_millisecond())),
                    bytes,
                });
            }
            Err(why) => fault(format!("/chunks/{index}"), why.to_string()),
        }
    }
    if request.oldest.is_some_and(|oldest| oldest > OUTPUT_OFFSET_MAX) {
        fault("/oldest".to_owned(), format!("it is at most {OUTPUT_OFFSET_MAX}"));
    }
    let progress = request.progress.as_ref();
    if progress.and_then(|progress| progress.percent).is_some_and(|percent| percent > 100) {
        fault("/progress/percent".to_owned(), "it is a whole number from 0 to 100".to_owned());
    }
    let text = progress.and_then(|progress| progress.text.as_deref());
    if text.is_some_and(|text| text.chars().count() > PROGRESS_CHARS_MAX) {
        let why = format!("it has at most {PROGRESS_CHARS_MAX} characters");
        fault("/progress/text".to_owned(), why);
    }
    if !faults.is_empty() {
        return Err(ApiError::fields(faults));
    }
    if bytes_len > OUTPUT_REQUEST_BYTES_MAX {
        return Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "Too large",
            format!(
                "the chunks of a request have at most {OUTPUT_REQUEST_BYTES_MAX} bytes, and these have {bytes_len}"
            ),
        ));
    }
    let progress = progress
        .map(|ProgressSpec { percent, text }| (*percent, text.as_deref().map(Box::<str>::from)));
    Ok((pieces, progress))
}

/// What a run printed, or prints.
pub(super) async fn show(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(text): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> ApiResult {
    let run = in_shards(&handle, read_id(&text)?)?;
    if query.word("follow", &["true", "false"], |word| word)? == Some("true") {
        return follow::follow(handle, caller, peers, run, &headers).await;
    }
    let ask = ShardAsk::Output { project: caller.project, run };
    let path = format!("/v1/runs/{run}/output");
    let live = match owner::ask(&handle, &peers, run.shard, ask, &path).await {
        Told::Here(ShardAnswer::Output(live)) => live,
        Told::There(bytes) => {
            let told: Option<RunOutput> = serde_json::from_slice(&bytes).ok();
            if let Some(told) = told {
                return Ok(Json(told).into_response());
            }
            LiveOutput::NoRun
        }
        Told::Here(_) | Told::Nobody => LiveOutput::NoRun,
    };
    let told = match live {
        LiveOutput::Printed(view) => Some(of_view(run, &view)),
        LiveOutput::Nothing => {
            let stored = stored(&handle, caller.project, run).await?;
            Some(stored.map_or_else(|| nothing(run), |record| of_record(run, &record)))
        }
        LiveOutput::NoRun => {
            let stored = stored(&handle, caller.project, run).await?;
            match stored {
                Some(record) => Some(of_record(run, &record)),
                None => run::find(&handle, caller.project, run).await?.map(|_| nothing(run)),
            }
        }
    };
    told.map(|told| Json(told).into_response()).ok_or_else(|| no_run(run))
}

fn no_run(run: RunId) -> ApiError {
    ApiError::not_found(format!("there is no run {run}, or it is too long ago"))
}

/// An id that may be one of a run here.
fn in_shards(handle: &NodeHandle, run: RunId) -> ApiResult<RunId> {
    if run.shard.0 < handle.shards() { Ok(run) } else { Err(no_run(run)) }
}

/// What the last attempt that is over printed, if it is kept.
async fn stored(
    handle: &NodeHandle,
    project: ProjectId,
    run: RunId,
) -> ApiResult<Option<OutputRecord>> {
    let entry = handle.store().get(&key(output_key(run))).await?;
    let record: Option<OutputRecord> = entry.map(|entry| read::record(&entry)).transpose()?;
    Ok(record.filter(|record| record.project == project))
}

fn nothing(run: RunId) -> RunOutput {
    RunOutput { run: run.to_string(), ..RunOutput::default() }
}

fn of_view(run: RunId, view: &OutputView) -> RunOutput {
    RunOutput {
        run: run.to_string(),
        attempt: Some(view.attempt),
        bytes: view.bytes,
        chunks: view.pieces.iter().map(chunk).collect(),
        progress: view.progress.as_ref().map(progress),
    }
}

fn of_record(run: RunId, record: &OutputRecord) -> RunOutput {
    RunOutput {
        run: run.to_string(),
        attempt: Some(record.attempt),
        bytes: record.bytes,
        chunks: record.pieces.iter().map(StoredPiece::piece).map(|piece| chunk(&piece)).collect(),
        progress: record.progress.as_ref().map(progress),
    }
}

fn chunk(piece: &OutputPiece) -> OutputChunk {
    let stream = match piece.stream {
        output::OutputStream::Stdout => OutputStream::Stdout,
        output::OutputStream::Stderr => OutputStream::Stderr,
    };
    OutputChunk::new(piece.offset, stream, &piece.bytes).printed_at(piece.at.map(timestamp))
}

fn stored_stream(stream: OutputStream) -> output::OutputStream {
    match stream {
        OutputStream::Stdout => output::OutputStream::Stdout,
        OutputStream::Stderr => output::OutputStream::Stderr,
    }
}

/// How far a run has come.
pub(super) fn progress(progress: &output::RunProgress) -> RunProgress {
    RunProgress {
        percent: progress.percent,
        text: progress.text.as_deref().map(str::to_owned),
        at: timestamp(progress.at),
    }
}

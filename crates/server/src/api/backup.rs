//! `GET /v1/backup`: all that the store holds, as it is read.

use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;
use store::backup::TakeBackupError;

use super::caller::Caller;
use super::forward::PeerClient;
use super::problem::{ApiError, ApiResult};
use super::stream::stream;
use crate::backup::RunningBackup;
use crate::handle::NodeHandle;

pub(super) const MEDIA_TYPE: &str = "application/x-ndjson";

pub(super) async fn backup(handle: NodeHandle, caller: Caller, peers: PeerClient) -> ApiResult {
    let Some(permit) = handle.backup_permit() else {
        let busy = "another backup is being taken: try again when it is done";
        return Err(ApiError::unavailable(busy, Duration::from_secs(5)));
    };
    let taking = RunningBackup::begin(&handle, peers, permit).await.map_err(refusal)?;
    // It holds everything of everybody: who took it is on record.
    handle.access().note(&caller.trail_of_all(&handle, "backup.create", "cluster")).await?;
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], stream(taking, next)).into_response())
}

/// With the connection the backup ends, and whatever it quiesced goes on.
async fn next(mut taking: RunningBackup) -> Option<(Bytes, RunningBackup)> {
    let piece = taking.next().await?;
    Some((piece, taking))
}

fn refusal(why: TakeBackupError) -> ApiError {
    match why {
        TakeBackupError::Scan(why) => why.into(),
        why => ApiError::unavailable(why.to_string(), Duration::from_secs(1)),
    }
}

//! `GET /v1/backup`: all that the store holds, as it is read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use store::backup::TakeError;

use super::problem::Refusal;
use super::query::Query;
use crate::backup::Taking;
use crate::desk::Desk;

pub(super) async fn backup(State(desk): State<Desk>, uri: Uri) -> Result<Response, Refusal> {
    Query::of(&uri, &[])?;
    let Some(turn) = desk.backup_turn() else {
        let busy = "another backup is being taken: try again when it is done";
        return Err(Refusal::unavailable(busy, Duration::from_secs(5)));
    };
    let taking = Taking::begin(&desk, turn).await.map_err(refusal)?;
    let body = Body::new(Pieces { next: Box::pin(advance(taking)) });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

fn refusal(why: TakeError) -> Refusal {
    match why {
        TakeError::Scan(why) => why.into(),
        why => Refusal::unavailable(why.to_string(), Duration::from_secs(1)),
    }
}

type Next = Pin<Box<dyn Future<Output = Option<(Bytes, Taking)>> + Send>>;

/// The pieces of a backup, each taken when there is room for it on the way out. With the connection the
/// backup ends, and whatever it held back goes on.
struct Pieces {
    next: Next,
}

async fn advance(mut taking: Taking) -> Option<(Bytes, Taking)> {
    let piece = taking.next().await?;
    Some((piece, taking))
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((piece, taking)) = ready!(self.next.as_mut().poll(context)) else {
            self.next = Box::pin(std::future::ready(None));
            return Poll::Ready(None);
        };
        self.next = Box::pin(advance(taking));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

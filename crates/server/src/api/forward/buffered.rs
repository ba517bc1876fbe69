//! A request that can be sent again.
//!
//! Its body is copied while it is read, so nothing is read that nobody asked for, and nobody's body is kept before they
//! are let in. A handler that takes a body has read all of it before it asks a shard; one that takes none leaves it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use engine::limits::REQUEST_BYTES_MAX;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

/// A request as it came, with what was read of its body.
pub(super) struct BufferedRequest {
    pub(super) head: Parts,
    read: Arc<Mutex<Read>>,
}

/// What was read of a body.
#[derive(Default)]
struct Read {
    bytes: BytesMut,
    is_whole: bool,
    is_too_long: bool,
}

impl BufferedRequest {
    /// The copy, and the request to be answered.
    pub(super) fn of(request: Request) -> (Self, Request) {
        let (head, body) = request.into_parts();
        let read = Arc::<Mutex<Read>>::default();
        let copied = Copied { body, read: Arc::clone(&read) };
        (Self { head: head.clone(), read }, Request::from_parts(head, Body::new(copied)))
    }

    /// The request again.
    pub(super) fn request(&self) -> Request {
        Request::from_parts(self.head.clone(), self.body().into())
    }

    /// Its body; nothing, if nobody wanted all of it.
    pub(super) fn body(&self) -> Bytes {
        let read = self.read.lock();
        if read.is_whole { read.bytes.clone().freeze() } else { Bytes::new() }
    }
}

/// A body that is copied while it is read.
struct Copied {
    body: Body,
    read: Arc<Mutex<Read>>,
}

impl hyper::body::Body for Copied {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let mut read = self.read.lock();
        match &frame {
            Some(Ok(frame)) => {
                let piece = frame.data_ref().map_or(&[][..], |data| data);
                // Nobody takes one that is longer.
                read.is_too_long |= read.bytes.len() + piece.len() > REQUEST_BYTES_MAX;
                if !read.is_too_long {
                    read.bytes.extend_from_slice(piece);
                }
            }
            Some(Err(_)) => {}
            None => read.is_whole = !read.is_too_long,
        }
        drop(read);
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn a_body_is_copied_whole_or_not_at_all() {
        let (original, request) = BufferedRequest::of(Request::new(Body::from("a body")));
        assert_eq!(original.body(), "");
        assert_eq!(to_bytes(request.into_body(), 100).await.unwrap(), "a body");
        assert_eq!(original.body(), "a body");
        assert_eq!(to_bytes(original.request().into_body(), 100).await.unwrap(), "a body");
    }

    #[tokio::test]
    async fn a_body_is_copied_up_to_the_limit() {
        let (original, request) =
            BufferedRequest::of(Request::new(Body::from(vec![7; REQUEST_BYTES_MAX])));
        to_bytes(request.into_body(), REQUEST_BYTES_MAX).await.unwrap();
        assert_eq!(original.body().len(), REQUEST_BYTES_MAX);
        let (original, request) =
            BufferedRequest::of(Request::new(Body::from(vec![7; REQUEST_BYTES_MAX + 1])));
        to_bytes(request.into_body(), REQUEST_BYTES_MAX).await.unwrap_err();
        assert_eq!(original.body(), "");
    }
}

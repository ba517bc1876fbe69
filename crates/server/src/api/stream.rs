//! An answer that is made while it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Frame;

/// The next piece, and what is needed for the one after it; nothing at the end.
type Piece<S> = Pin<Box<dyn Future<Output = Option<(Bytes, S)>> + Send>>;

/// A body whose pieces are made one after another, each when the one before has been taken.
pub(super) fn stream<S, F>(state: S, step: impl Fn(S) -> F + Send + 'static) -> Body
where
    S: Send + 'static,
    F: Future<Output = Option<(Bytes, S)>> + Send + 'static,
{
    let step = move |state: S| -> Piece<S> { Box::pin(step(state)) };
    let next = Some(step(state));
    Body::new(StepStream { step: Box::new(step), next })
}

struct StepStream<S> {
    step: Box<dyn Fn(S) -> Piece<S> + Send>,
    next: Option<Piece<S>>,
}

impl<S> hyper::body::Body for StepStream<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let Some((piece, state)) = ready!(next.as_mut().poll(context)) else {
            self.next = None;
            return Poll::Ready(None);
        };
        let next = (self.step)(state);
        self.next = Some(next);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

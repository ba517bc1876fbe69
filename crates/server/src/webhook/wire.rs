//! The last step before bytes leave.
//!
//! Between the decision to send a request and the system call that sends it lie a queue inside of the HTTP client
//! and the whim of the runtime's order. So the permit is asked here, under the client: the first write of a
//! request goes through only if this node may act at that very moment. What was never written was surely not
//! delivered, and this is also where that is known.
//!
//! With HTTP/2 many requests share a connection, and a refused write would take all of them down. There the
//! permit is asked just before the request is handed over, and the write follows in the same turn of the
//! runtime.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::PermitCheck;

/// What is known about the bytes of one connection.
pub(super) struct Wire {
    permit: PermitCheck,
    /// The next write is the first of a request.
    armed: AtomicBool,
    /// The permit was refused; the connection is of no use any more.
    refused: AtomicBool,
    written: AtomicU64,
}

impl Wire {
    pub(super) fn new(permit: PermitCheck) -> Arc<Self> {
        let (armed, refused) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { permit, armed, refused, written: AtomicU64::new(0) })
    }

    /// The next write is the first of a request. Returns a mark to ask [`Wire::silent_since`] with.
    pub(super) fn arm(&self) -> u64 {
        self.armed.store(true, Ordering::Relaxed);
        self.written.load(Ordering::Relaxed)
    }

    /// Whether nothing has left since the mark.
    pub(super) fn silent_since(&self, mark: u64) -> bool {
        self.written.load(Ordering::Relaxed) == mark
    }

    /// Whether the permit was refused.
    pub(super) fn refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    fn check(&self) -> io::Result<()> {
        if self.armed.load(Ordering::Relaxed) {
            if !(self.permit)() {
                self.refused.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            self.armed.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// A stream whose writes are watched.
pub(super) struct WatchedStream<S> {
    stream: S,
    wire: Arc<Wire>,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, wire: Arc<Wire>) -> Self {
        Self { stream, wire }
    }

    fn count(&self, written: usize) -> usize {
        self.wire.written.fetch_add(written as u64, Ordering::Relaxed);
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wire.check()?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        Poll::Ready(Ok(self.count(written)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wire.check()?;
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices))?;
        Poll::Ready(Ok(self.count(written)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn the_first_write_of_a_request_needs_the_permit_and_the_rest_does_not() {
        let may = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&may);
        let wire = Wire::new(Arc::new(move || asked.load(Ordering::Relaxed)));
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = WatchedStream::new(near, Arc::clone(&wire));

        let mark = wire.arm();
        assert!(wire.silent_since(mark));
        near.write_all(b"first ").await.unwrap();
        may.store(false, Ordering::Relaxed);
        near.write_all(b"rest").await.unwrap();
        assert!(!wire.silent_since(mark) && !wire.refused());

        let mark = wire.arm();
        assert!(near.write_all(b"second").await.is_err());
        assert!(wire.silent_since(mark) && wire.refused());
        drop(near);
        let mut arrived = String::new();
        far.read_to_string(&mut arrived).await.unwrap();
        assert_eq!(arrived, "first rest");
    }
}

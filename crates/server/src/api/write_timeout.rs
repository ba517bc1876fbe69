//! A stream whose writes time out: whoever does not read what is sent to them is cut off.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use engine::limits::ANSWER_READ_STALL_MAX;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream on which a write that has to wait for too long is an error.
pub(super) struct WriteTimeout<S> {
    stream: S,
    /// Rings when a write has waited for too long, while one waits.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, alarm: None }
    }

    /// What came of a write, or an error if it has waited for too long.
    fn bound<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.alarm = None;
            return written;
        }
        let alarm =
            self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(ANSWER_READ_STALL_MAX)));
        ready!(alarm.as_mut().poll(context));
        let why = format!("nothing was read on the other side for {ANSWER_READ_STALL_MAX:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bound(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.bound(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It says nothing about what is still to be written, so it does not stop the alarm.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_a_slow_reader_and_not_for_one_that_never_reads() {
        let (near, mut far) = duplex(4);
        let mut near = WriteTimeout::new(near);
        let almost = ANSWER_READ_STALL_MAX.checked_sub(Duration::from_secs(1)).unwrap();
        let reading = async {
            let mut read = [0; 4];
            for _ in 0..3 {
                tokio::time::sleep(almost).await;
                far.read_exact(&mut read).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(&[7; 16]), reading);
        written.unwrap();
        let begun = tokio::time::Instant::now();
        let why = near.write_all(&[7; 4]).await.unwrap_err();
        assert_eq!((why.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, ANSWER_READ_STALL_MAX));
    }
}

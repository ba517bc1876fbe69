//! A connection to a receiver, over which requests are sent.
//!
//! With HTTP/1.1 it is used by one attempt at a time, and rests in its host's pool in between. With HTTP/2 all
//! attempts to a host share one. Each has a task that drives it, which also notices when the receiver
//! closes it while it rests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::limits::{CONNECTION_AGE_MAX, CONNECTION_IDLE_MAX, RESPONSE_HEAD_BYTES_MAX};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::PermitCheck;
use super::wire::{WatchedStream, Wire};

pub(super) type RequestBody = Full<Bytes>;

/// A connection that is open, as far as we know.
pub(super) struct Connection {
    born: Duration,
    /// When it was last given back.
    rests_since: Duration,
    speaks: Speaks,
}

enum Speaks {
    One { sender: http1::SendRequest<RequestBody>, wire: Arc<Wire> },
    Two { sender: http2::SendRequest<RequestBody>, permit: PermitCheck },
}

/// The protocol of a connection, on which the form of its requests depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    One,
    Two,
}

/// Why a request got no answer.
pub(super) enum SendError {
    /// The right to act had lapsed: nothing left.
    Lapsed,
    /// The connection was no good: nothing left.
    Stale,
    /// Something may have left.
    Lost(hyper::Error),
}

impl Connection {
    /// Greets the receiver on a new stream.
    pub(super) async fn greet<S>(
        stream: S,
        protocol: Protocol,
        permit: &PermitCheck,
        drivers: &Drivers,
        now: Duration,
    ) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let wire = Wire::new(Arc::clone(permit));
        let stream = TokioIo::new(WatchedStream::new(stream, Arc::clone(&wire)));
        let speaks = match protocol {
            Protocol::One => {
                let mut builder = http1::Builder::new();
                builder.max_buf_size(RESPONSE_HEAD_BYTES_MAX);
                let (sender, driver) = builder.handshake(stream).await?;
                drivers.spawn(driver);
                Speaks::One { sender, wire }
            }
            Protocol::Two => {
                let mut builder = http2::Builder::new(drivers.clone());
                let head_max = u32::try_from(RESPONSE_HEAD_BYTES_MAX).expect("64 KiB");
                builder.max_header_list_size(head_max);
                let (sender, driver) = builder.handshake(stream).await?;
                drivers.spawn(driver);
                Speaks::Two { sender, permit: Arc::clone(permit) }
            }
        };
        Ok(Self { born: now, rests_since: now, speaks })
    }

    pub(super) fn protocol(&self) -> Protocol {
        match &self.speaks {
            Speaks::One { .. } => Protocol::One,
            Speaks::Two { .. } => Protocol::Two,
        }
    }

    /// Another handle of it, if it can be shared.
    pub(super) fn share(&self) -> Option<Self> {
        let Speaks::Two { sender, permit } = &self.speaks else { return None };
        let speaks = Speaks::Two { sender: sender.clone(), permit: Arc::clone(permit) };
        Some(Self { speaks, ..*self })
    }

    /// It is given back now.
    pub(super) fn rest(&mut self, now: Duration) {
        self.rests_since = now;
    }

    /// Whether it may be used once more.
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        let closed = match &self.speaks {
            Speaks::One { sender, .. } => sender.is_closed(),
            Speaks::Two { sender, .. } => sender.is_closed(),
        };
        !closed
            && now.saturating_sub(self.born) < CONNECTION_AGE_MAX
            && now.saturating_sub(self.rests_since) < CONNECTION_IDLE_MAX
    }

    /// Sends a request and waits for the head of its answer. `on_sent` is called when it is handed over.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
        on_sent: impl FnOnce(),
    ) -> Result<Response<Incoming>, SendError> {
        match &mut self.speaks {
            Speaks::One { sender, wire } => {
                sender.ready().await.map_err(|_| SendError::Stale)?;
                let mark = wire.arm();
                on_sent();
                sender.try_send_request(request).await.map_err(|error| {
                    if wire.refused() {
                        SendError::Lapsed
                    } else if wire.silent_since(mark) {
                        SendError::Stale
                    } else {
                        SendError::Lost(error.into_error())
                    }
                })
            }
            Speaks::Two { sender, permit } => {
                sender.ready().await.map_err(|_| SendError::Stale)?;
                if !permit() {
                    return Err(SendError::Lapsed);
                }
                on_sent();
                sender.try_send_request(request).await.map_err(|mut error| {
                    match error.take_message() {
                        Some(_) => SendError::Stale,
                        None => SendError::Lost(error.into_error()),
                    }
                })
            }
        }
    }
}

/// The tasks that drive connections. They end with their connections, and all of them with their sender.
#[derive(Clone, Default)]
pub(super) struct Drivers {
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Drivers {
    fn spawn<F: Future + Send + 'static>(&self, driver: F) {
        let mut tasks = self.tasks.lock().expect("nothing panics while it holds this");
        // Those that have ended make room.
        while tasks.try_join_next().is_some() {}
        // What ended a connection is told to whoever waits for an answer on it.
        tasks.spawn(async move {
            driver.await;
        });
    }

    /// Ends all of them.
    pub(super) async fn stop(&self) {
        let mut tasks =
            std::mem::take(&mut *self.tasks.lock().expect("nothing panics while it holds this"));
        tasks.shutdown().await;
    }
}

impl<F: Future + Send + 'static> hyper::rt::Executor<F> for Drivers {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

//! What the supervisor is told by signals: to stop, to stop at once, or something that is meant for the program.

use std::io;

use process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The signals that a supervisor heeds.
pub struct Signals {
    term: Stream,
    interrupt: Stream,
    passed_on: Vec<(Signal, Stream)>,
    stops: u32,
}

/// What it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Stop,
    /// Somebody has said it before.
    StopAtOnce,
    /// That is for the program.
    Other(Signal),
}

/// What the program gets instead of the supervisor.
const PASSED_ON: [Signal; 6] =
    [Signal::HUP, Signal::USR1, Signal::USR2, Signal::QUIT, Signal::WINCH, Signal::ALARM];

impl Signals {
    /// From here on, they do not end this process. To be called in a runtime.
    pub fn new() -> io::Result<Self> {
        let stream = |of: Signal| signal(SignalKind::from_raw(of.as_raw()));
        let passed_on = PASSED_ON.map(|of| Ok((of, stream(of)?)));
        Ok(Self {
            term: stream(Signal::TERM)?,
            interrupt: stream(Signal::INT)?,
            passed_on: passed_on.into_iter().collect::<io::Result<_>>()?,
            stops: 0,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Told {
        let other = std::future::poll_fn(|context| {
            for (of, stream) in &mut self.passed_on {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*of);
                }
            }
            std::task::Poll::Pending
        });
        tokio::select! {
            biased;
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
            other = other => return Told::Other(other),
        }
        self.stops += 1;
        if self.stops == 1 { Told::Stop } else { Told::StopAtOnce }
    }

    /// Waits until it is told to stop, while there is no program that anything could be passed on to.
    pub async fn stopped(&mut self) {
        while let Told::Other(signal) = self.next().await {
            tracing::debug!(?signal, "no program runs that a signal could be passed on to");
        }
    }
}

//! One attempt, from the job that a task is given to an outcome.
//!
//! It takes a connection that rests, or has one made, sends the request and reads the answer. One clock runs over
//! all of it. How far it came when that clock, or a cancellation, ends it decides whether it was surely not
//! sent or is lost; the [`AttemptStage`] remembers this outside of the attempt.
//!
//! If that clock rings far too late, this process was stopped or starved. Then an answer that waits to be read
//! still counts, and that there is none says nothing about the host.
//!
//! A rested connection may turn out to have been closed by the receiver. If nothing was written to it, the attempt
//! goes on with a new one and nobody hears of it.
//!
//! The head of an answer is the answer. The body is kept for people to look at, up to its limit: a body that is
//! too long, breaks off or drips until the time is up is cut there, and the status counts all the same.

use std::mem::take;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::{Bytes, BytesMut};
use engine::instant::Instant;
use engine::limits::RESPONSE_BYTES_MAX;
use engine::outcome::{HostSignal, Lost, NotSent, Outcome, retry_after};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use store::machine::Machine;

use super::connection::{Connection, SendError};
use super::dial::{DialError, Dialer};
use super::name::Name;
use super::pool::{AttemptClock, Job, Over, Tools};
use super::request::request;
use super::{Call, Response};

/// How far an attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptStep {
    LookingUp,
    Connecting,
    Greeting,
    Left,
}

/// Where an attempt is, for those who end it from outside.
#[derive(Debug)]
pub(super) struct AttemptStage(AtomicU8);

impl AttemptStage {
    const STEPS: [AttemptStep; 4] =
        [AttemptStep::LookingUp, AttemptStep::Connecting, AttemptStep::Greeting, AttemptStep::Left];

    pub(super) fn new() -> Self {
        Self(AtomicU8::new(AttemptStep::LookingUp as u8))
    }

    /// The next attempt begins.
    pub(super) fn begin(&self) {
        self.enter(AttemptStep::LookingUp);
    }

    pub(super) fn enter(&self, step: AttemptStep) {
        self.0.store(step as u8, Ordering::Relaxed);
    }

    pub(super) fn step(&self) -> AttemptStep {
        Self::STEPS[usize::from(self.0.load(Ordering::Relaxed))]
    }

    /// Why there was no connection in time.
    fn unconnected(&self) -> DialError {
        let (why, sentence) = match self.step() {
            AttemptStep::LookingUp => {
                (NotSent::Name, "looking up the receiver's name took too long")
            }
            AttemptStep::Connecting | AttemptStep::Left => {
                (NotSent::Connect, "connecting to the receiver took too long")
            }
            AttemptStep::Greeting => {
                (NotSent::Tls, "the receiver took too long over the TLS handshake")
            }
        };
        DialError { why, sentence: sentence.to_owned() }
    }

    /// What became of it when it is cancelled now.
    pub(super) fn cancelled(&self) -> Outcome {
        match self.step() {
            AttemptStep::LookingUp | AttemptStep::Connecting | AttemptStep::Greeting => {
                Outcome::NotSent { why: NotSent::Cancelled }
            }
            AttemptStep::Left => Outcome::Lost { why: Lost::Cancelled },
        }
    }
}

/// How an attempt ended.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// What it says about the host.
    pub(super) signal: HostSignal,
    pub(super) response: Option<Response>,
    pub(super) error: Option<String>,
    /// The connection, if it can be used once more.
    pub(super) connection: Option<Connection>,
}

impl Ended {
    pub(super) fn without_answer(outcome: Outcome, sentence: String) -> Self {
        let signal = outcome.host_signal();
        Self { outcome, signal, response: None, error: Some(sentence), connection: None }
    }

    /// What is to be said when the time is over.
    pub(super) fn out_of_time(stage: &AttemptStage, over: Over) -> Self {
        let ended: Self = match stage.step() {
            AttemptStep::LookingUp | AttemptStep::Connecting | AttemptStep::Greeting => {
                stage.unconnected().into()
            }
            AttemptStep::Left => Self::without_answer(
                Outcome::Lost { why: Lost::TimedOut },
                "the receiver did not answer in time".to_owned(),
            ),
        };
        match over {
            Over::OnTime => ended,
            Over::InLeap => Self { signal: HostSignal::Unknown, ..ended },
        }
    }
}

impl From<DialError> for Ended {
    fn from(DialError { why, sentence }: DialError) -> Self {
        Self::without_answer(Outcome::NotSent { why }, sentence)
    }
}

type ReceiverResponse = hyper::Response<Incoming>;

/// Makes an attempt.
pub(super) async fn attempt(
    job: Job,
    stage: &AttemptStage,
    dialer: &Dialer,
    tools: &mut Tools,
) -> Ended {
    let Job { call, rested, name } = job;
    let Tools { clock, headers } = tools;
    clock.start(call.form.timeout());
    let answered = tokio::select! {
        biased;
        answered = converse(&call, rested, &name, dialer, stage, headers) => answered,
        over = clock.over() => return Ended::out_of_time(stage, over),
    };
    match answered {
        Ok((answer, connection)) => {
            take_down(answer, connection, clock, headers, &*dialer.machine).await
        }
        Err(ended) => ended,
    }
}

/// Sends the request and waits for the head of the answer.
async fn converse(
    call: &Call,
    mut rested: Option<Connection>,
    name: &Name,
    dialer: &Dialer,
    stage: &AttemptStage,
    headers: &mut HeaderMap,
) -> Result<(ReceiverResponse, Connection), Ended> {
    loop {
        let is_new = rested.is_none();
        let mut connection = match rested.take() {
            Some(connection) => connection,
            // Boxed, because it is rare and large: attempts on rested connections stay small.
            None => Box::pin(dialer.dial(&call.form, name, stage)).await?,
        };
        let now = wall(&*dialer.machine);
        let signer = (dialer.signing)(call.project);
        let written = request(call, connection.protocol(), now, signer.as_deref(), take(headers));
        let written = written.map_err(|why| {
            Ended::without_answer(Outcome::NotSent { why: NotSent::Malformed }, why.to_string())
        })?;
        match connection.send(written, || stage.enter(AttemptStep::Left)).await {
            Ok(answer) => return Ok((answer, connection)),
            // A rested one that was closed meanwhile: a new one does.
            Err(SendError::Stale) if !is_new => stage.enter(AttemptStep::LookingUp),
            Err(why) => return Err(unanswered(why)),
        }
    }
}

fn unanswered(why: SendError) -> Ended {
    let (outcome, sentence) = match why {
        SendError::Lapsed => (
            Outcome::NotSent { why: NotSent::Lapsed },
            "this node's right to act had lapsed, so nothing was sent".to_owned(),
        ),
        SendError::Stale => (
            Outcome::NotSent { why: NotSent::Connect },
            "the receiver closed the connection before anything was sent".to_owned(),
        ),
        SendError::Lost(why) if why.is_parse() => (
            Outcome::Lost { why: Lost::Broken },
            format!("what the receiver sent is no answer: {why}"),
        ),
        SendError::Lost(why) => (
            Outcome::Lost { why: Lost::Closed },
            format!("the connection ended before an answer came: {why}"),
        ),
    };
    Ended::without_answer(outcome, sentence)
}

/// Reads the answer to its end, its limit, or that of the time.
async fn take_down(
    answer: ReceiverResponse,
    connection: Connection,
    clock: &mut AttemptClock,
    headers: &mut HeaderMap,
    machine: &dyn Machine,
) -> Ended {
    let (head, mut body) = answer.into_parts();
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let outcome = Outcome::Answered {
        status: head.status.as_u16(),
        retry_after: text(RETRY_AFTER).and_then(|text| retry_after(text, wall(machine))),
    };
    let mut kept = BytesMut::new();
    let whole = tokio::select! {
        biased;
        whole = read(&mut body, &mut kept) => whole,
        _ = clock.over() => false,
    };
    let response = Response {
        status: head.status.as_u16(),
        content_type: text(CONTENT_TYPE).map(Into::into),
        body: Bytes::from(kept),
        truncated: !whole,
    };
    Tools::keep(headers, head.headers);
    // What is left of a body that was cut would stand before the next answer.
    let connection = whole.then_some(connection);
    let signal = outcome.host_signal();
    Ended { outcome, signal, response: Some(response), error: None, connection }
}

/// Whether this was all of it.
async fn read(body: &mut Incoming, kept: &mut BytesMut) -> bool {
    while let Some(frame) = body.frame().await {
        // One that broke off is cut like one that is too long.
        let Ok(frame) = frame else { return false };
        let Some(data) = frame.data_ref() else { continue };
        let room = RESPONSE_BYTES_MAX - kept.len();
        if data.len() > room {
            kept.extend_from_slice(&data[..room]);
            return false;
        }
        kept.extend_from_slice(data);
    }
    true
}

/// The wall clock.
pub(super) fn wall(machine: &dyn Machine) -> Instant {
    Instant(i64::try_from(machine.wall_us() / 1_000).unwrap_or(i64::MAX))
}

//! What a client and a worker of a queue say, each over a connection of its own.
//!
//! The protocol is that of any other, and every answer is checked. But the server shares the processors with whoever
//! measures it, so this says and reads no more than it has to: a batch is written once and sent again as it is, and of an
//! answer only what is needed is taken.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use store::machine::{Machine as _, System};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::QUEUE;
use crate::exit::Ending;

/// Where a server is, and by which key it lets somebody in.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Door {
    pub(in crate::bench) address: SocketAddr,
    pub(in crate::bench) key: Option<String>,
}

/// A connection, which stays.
struct Wire {
    sender: SendRequest<Full<Bytes>>,
    headers: HeaderMap,
    /// What drives the connection; it ends with this.
    _driver: JoinSet<()>,
}

impl Wire {
    async fn open(door: &Door) -> Result<Self, Ending> {
        let stream = TcpStream::connect(door.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Whoever waits for an answer is told as well.
            let _ = connection.await;
        });
        let header =
            |text: &str| HeaderValue::from_str(text).map_err(|why| Ending::failed(why.to_string()));
        let mut headers = HeaderMap::new();
        headers.insert(HOST, header(&door.address.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &door.key {
            headers.insert(AUTHORIZATION, header(&format!("Bearer {key}"))?);
        }
        Ok(Self { sender, headers, _driver: driver })
    }

    /// The body of the answer, if it is a good one.
    async fn post(&mut self, path: &'static str, body: Bytes) -> Result<Bytes, Ending> {
        let mut request = Request::post(path).body(Full::new(body)).expect("a path of ours");
        request.headers_mut().clone_from(&self.headers);
        self.sender.ready().await.map_err(lost)?;
        let answer = self.sender.send_request(request).await.map_err(lost)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(lost)?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let said = String::from_utf8_lossy(&body);
        Err(Ending::failed(format!("the server answered {status} to {path}: {said}")))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn lost(why: hyper::Error) -> Ending {
    Ending::failed(format!("the server does not answer: {why}"))
}

fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, Ending> {
    serde_json::from_slice(answer)
        .map_err(|why| Ending::failed(format!("the server's answer is not understood: {why}")))
}

/// Runs that are submitted together, ready to be sent.
#[derive(Debug, Clone)]
pub(super) struct RunBatch {
    body: Bytes,
    count: usize,
}

impl RunBatch {
    /// So many runs that do nothing, all with this payload and priority.
    pub(super) fn new(count: usize, payload: Option<u64>, priority: Option<u8>) -> Self {
        #[derive(Serialize)]
        struct Said<'a> {
            queue: &'a str,
            runs: Vec<Run>,
        }
        #[derive(Clone, Serialize)]
        struct Run {
            handler: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            payload: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            priority: Option<u8>,
        }
        let run = Run { handler: "nothing", payload, priority };
        let said = Said { queue: QUEUE, runs: vec![run; count] };
        let body = serde_json::to_vec(&said).expect("plain structs always serialize");
        Self { body: body.into(), count }
    }
}

/// Somebody who submits.
pub(super) struct Submitter(Wire);

impl Submitter {
    pub(super) async fn open(door: &Door) -> Result<Self, Ending> {
        Wire::open(door).await.map(Self)
    }

    /// Submits runs: all are new when this returns, and durable.
    pub(super) async fn submit(&mut self, batch: &RunBatch) -> Result<(), Ending> {
        #[derive(Deserialize)]
        struct Answer {
            runs: Vec<Taken>,
        }
        #[derive(Deserialize)]
        struct Taken {
            created: bool,
        }
        let answer = self.0.post("/v1/runs/batch", batch.body.clone()).await?;
        let Answer { runs } = read(&answer)?;
        let taken = runs.iter().filter(|run| run.created).count();
        if taken == batch.count {
            return Ok(());
        }
        Err(Ending::failed(format!("the server took {taken} of {} runs", batch.count)))
    }
}

/// Somebody who claims runs, and completes at once what it has, with its next claim.
pub(super) struct Worker {
    wire: Wire,
    name: String,
    incarnation: u64,
    number: u64,
    cookie: String,
    done: Vec<Given>,
}

/// A run that a worker was given.
#[derive(Deserialize)]
struct Given {
    id: String,
    token: u64,
    payload: Option<u64>,
}

/// What a worker was told.
pub(super) struct Told {
    /// The payloads of runs that it was given.
    pub(super) given: Vec<Option<u64>>,
    /// Runs that it completed.
    pub(super) completed: usize,
}

impl Worker {
    pub(super) async fn open(door: &Door, name: String) -> Result<Self, Ending> {
        let (wire, incarnation) = (Wire::open(door).await?, System.wall_us());
        Ok(Self { wire, name, incarnation, number: 0, cookie: String::new(), done: Vec::new() })
    }

    /// Whether it has runs that it has not said to be done.
    pub(super) fn has_runs(&self) -> bool {
        !self.done.is_empty()
    }

    /// Completes what it has, and claims up to `free` more. If there are none, it waits so long, unless it completed some.
    pub(super) async fn claim(&mut self, free: usize, wait_ms: u64) -> Result<Told, Ending> {
        #[derive(Serialize)]
        struct Said<'a> {
            worker: &'a str,
            incarnation: u64,
            number: u64,
            settled: u64,
            #[serde(skip_serializing_if = "str::is_empty")]
            cookie: &'a str,
            queues: [&'a str; 1],
            free: usize,
            wait_ms: u64,
            done: Vec<Done<'a>>,
        }
        #[derive(Serialize)]
        struct Done<'a> {
            id: &'a str,
            token: u64,
            result: &'static str,
        }
        #[derive(Deserialize)]
        struct Answer {
            runs: Vec<Given>,
            acks: Vec<Ack>,
            cookie: String,
        }
        #[derive(Deserialize)]
        struct Ack {
            counted: bool,
        }
        self.number += 1;
        let done = self.done.iter();
        let done = done.map(|run| Done { id: &run.id, token: run.token, result: "succeeded" });
        let said = Said {
            worker: &self.name,
            incarnation: self.incarnation,
            number: self.number,
            settled: self.number - 1,
            cookie: &self.cookie,
            queues: [QUEUE],
            free,
            wait_ms,
            done: done.collect(),
        };
        let body = serde_json::to_vec(&said).expect("plain structs always serialize");
        let answer = self.wire.post("/v1/claim", body.into()).await?;
        let Answer { runs, acks, cookie } = read(&answer)?;
        let completed = acks.iter().filter(|ack| ack.counted).count();
        if completed != self.done.len() {
            let sent = self.done.len();
            return Err(Ending::failed(format!(
                "the server counted {completed} of {sent} results"
            )));
        }
        let given = runs.iter().map(|run| run.payload).collect();
        (self.cookie, self.done) = (cookie, runs);
        Ok(Told { given, completed })
    }
}

#[cfg(test)]
mod tests {
    use client::queue::BatchSpec;

    use super::*;

    #[test]
    fn a_batch_says_what_any_client_would_say() {
        let batch = RunBatch::new(3, Some(42), Some(9));
        let read: BatchSpec = serde_json::from_slice(&batch.body).unwrap();
        assert_eq!((read.queue.as_str(), read.runs.len(), batch.count), (QUEUE, 3, 3));
        assert!(read.runs.iter().all(|run| run.payload == Some(42.into())));
        assert!(read.runs.iter().all(|run| run.priority == Some(9)));
    }
}

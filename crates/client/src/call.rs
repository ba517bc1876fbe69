//! The client: one method per thing that can be asked.
//!
//! Speaks HTTP/1.1 without encryption: across a network, put a proxy with TLS in front of both. Nothing is
//! tried again here: whether that is right depends on what was asked for, and only the caller knows.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::account::Account;
use crate::problem::Problem;
use crate::run::{Run, RunKind, RunState, Started};
use crate::scheduler::SchedulerStatus;
use crate::spec::TriggerSpec;
use crate::trigger::{BackfillRequest, Backfilled, NextSlots, PauseRequest, Status, Trigger};
use crate::{ClientError, Page};

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long to wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// How long to wait for an answer, beside what the server is asked to wait itself.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a connection rests before it is given up: less than a server waits, so that no request crosses its
/// close.
const REST_TIME_MAX: Duration = Duration::from_secs(5);

/// A server, and how to ask it. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    base: Arc<str>,
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

/// Which triggers to list.
#[derive(Debug, Clone, Default)]
pub struct TriggerFilter {
    /// Those with this status.
    pub status: Option<Status>,
    /// Those whose name begins so.
    pub prefix: Option<String>,
    /// Those that carry all of these labels, each `key=value`.
    pub labels: Vec<String>,
    /// So many at most, 1 to 500.
    pub limit: Option<usize>,
    /// From where the last page ended.
    pub cursor: Option<String>,
}

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Those in one of these states; without any, all runs.
    pub states: Vec<RunState>,
    /// Those of this kind.
    pub kind: Option<RunKind>,
    /// Those of slots at or after this.
    pub from: Option<Timestamp>,
    /// Those of slots before this.
    pub to: Option<Timestamp>,
    /// So many at most, 1 to 500.
    pub limit: Option<usize>,
    /// From where the last page ended.
    pub cursor: Option<String>,
}

impl Client {
    /// A client of the server at this URL.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let bad = |why| ClientError::Url { url: url.to_owned(), why };
        if url.starts_with("https://") {
            return Err(bad("https is not spoken yet; use a proxy on this machine"));
        }
        let host = url.strip_prefix("http://").ok_or_else(|| bad("it begins with http://"))?;
        let host = host.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '?', '#', '@']) {
            return Err(bad("it is http://, a host and a port, and nothing else"));
        }
        let parsed: Result<hyper::Uri, _> = format!("http://{host}/").parse();
        parsed.map_err(|_| bad("that is no host"))?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIME_MAX));
        connector.set_nodelay(true);
        let mut http = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        http.pool_idle_timeout(REST_TIME_MAX);
        Ok(Self { base: format!("http://{host}").into(), http: http.build(connector) })
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Makes a trigger.
    pub async fn create_trigger(&self, spec: &TriggerSpec) -> Result<Trigger, ClientError> {
        self.send(Method::POST, "/v1/triggers", Some(spec), HeaderMap::new()).await
    }

    /// Makes a trigger with this name, or gives the one that has it another text. With a revision, only if
    /// it is at that one.
    pub async fn put_trigger(
        &self,
        name: &str,
        spec: &TriggerSpec,
        revision: Option<u64>,
    ) -> Result<Trigger, ClientError> {
        let mut headers = HeaderMap::new();
        if let Some(revision) = revision {
            let tag = HeaderValue::from_str(&format!("\"{revision}\"")).expect("digits");
            headers.insert(IF_MATCH, tag);
        }
        self.send(Method::PUT, &trigger_path(name, ""), Some(spec), headers).await
    }

    /// The trigger with this name or id.
    pub async fn trigger(&self, name: &str) -> Result<Trigger, ClientError> {
        self.get(&trigger_path(name, "")).await
    }

    /// Triggers, by name.
    pub async fn triggers(&self, filter: &TriggerFilter) -> Result<Page<Trigger>, ClientError> {
        let mut path = Path::new("/v1/triggers");
        path.add("status", filter.status.map(Status::as_str));
        path.add("prefix", filter.prefix.as_deref());
        for label in &filter.labels {
            path.add("label", Some(label));
        }
        path.add("limit", filter.limit);
        path.add("cursor", filter.cursor.as_deref());
        self.get(&path.0).await
    }

    /// Pauses a trigger.
    pub async fn pause(&self, name: &str, request: &PauseRequest) -> Result<Trigger, ClientError> {
        let path = trigger_path(name, "/pause");
        self.send(Method::POST, &path, Some(request), HeaderMap::new()).await
    }

    /// Lets a paused trigger go on.
    pub async fn resume(&self, name: &str) -> Result<Trigger, ClientError> {
        self.post(&trigger_path(name, "/resume")).await
    }

    /// Lets a trigger never fire again.
    pub async fn cancel(&self, name: &str) -> Result<Trigger, ClientError> {
        self.post(&trigger_path(name, "/cancel")).await
    }

    /// Deletes a trigger.
    pub async fn delete_trigger(&self, name: &str) -> Result<(), ClientError> {
        let path = trigger_path(name, "");
        self.call(Method::DELETE, &path, None, HeaderMap::new(), ANSWER_TIME_MAX).await.map(drop)
    }

    /// Starts a run now, and waits for its end for as long as is said.
    pub async fn run(&self, name: &str, wait: Option<Duration>) -> Result<Started, ClientError> {
        let mut path = Path(trigger_path(name, "/run"));
        path.add("wait", wait.map(|wait| format!("{}s", wait.as_secs())));
        let patience = ANSWER_TIME_MAX + wait.unwrap_or_default();
        let answer = self.call(Method::POST, &path.0, None, HeaderMap::new(), patience).await?;
        self.read(&answer)
    }

    /// Runs slots of the past again.
    pub async fn backfill(
        &self,
        name: &str,
        request: &BackfillRequest,
    ) -> Result<Backfilled, ClientError> {
        let path = trigger_path(name, "/backfill");
        self.send(Method::POST, &path, Some(request), HeaderMap::new()).await
    }

    /// When a trigger fires next.
    pub async fn next(&self, name: &str, count: usize) -> Result<NextSlots, ClientError> {
        let mut path = Path(trigger_path(name, "/next"));
        path.add("count", Some(count));
        self.get(&path.0).await
    }

    /// Runs of a trigger, newest first.
    pub async fn runs_of(&self, name: &str, filter: &RunFilter) -> Result<Page<Run>, ClientError> {
        self.get(&run_path(trigger_path(name, "/runs"), filter)).await
    }

    /// Runs of all triggers, newest first.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Page<Run>, ClientError> {
        self.get(&run_path("/v1/runs".to_owned(), filter)).await
    }

    /// A run.
    pub async fn run_by_id(&self, id: &str) -> Result<Run, ClientError> {
        self.get(&format!("/v1/runs/{}", Encoded(id))).await
    }

    /// What became of the slots of a trigger.
    pub async fn account(
        &self,
        name: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Account, ClientError> {
        let mut path = Path(trigger_path(name, "/explain"));
        path.add("from", from);
        path.add("to", to);
        self.get(&path.0).await
    }

    /// Has a backup taken; it comes in pieces.
    pub async fn backup(&self) -> Result<Pieces, ClientError> {
        let request = self.request(Method::GET, "/v1/backup", None, HeaderMap::new())?;
        let timed = tokio::time::timeout(ANSWER_TIME_MAX, self.http.request(request)).await;
        let late = |_| self.unreachable(format!("no answer came within {ANSWER_TIME_MAX:?}"));
        let answer = timed.map_err(late)?.map_err(|why| self.lost(&why))?;
        if answer.status().is_success() {
            return Ok(Pieces { body: answer.into_body(), client: self.clone() });
        }
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|why| self.lost(&*why))?.to_bytes();
        Err(self.refused(head.status, &body))
    }

    /// How the scheduler is.
    pub async fn scheduler(&self) -> Result<SchedulerStatus, ClientError> {
        self.get("/v1/scheduler").await
    }

    /// Says that the clock is right, so that firing goes on.
    pub async fn confirm_time(&self) -> Result<SchedulerStatus, ClientError> {
        self.post("/v1/scheduler/confirm-time").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.send(Method::GET, path, None::<&()>, HeaderMap::new()).await
    }

    async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.send(Method::POST, path, None::<&()>, HeaderMap::new()).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        headers: HeaderMap,
    ) -> Result<T, ClientError> {
        let body = body.map(|body| serde_json::to_vec(body).expect("our types always serialize"));
        let answer = self.call(method, path, body, headers, ANSWER_TIME_MAX).await?;
        self.read(&answer)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: HeaderMap,
        patience: Duration,
    ) -> Result<Bytes, ClientError> {
        let request = self.request(method, path, body, headers)?;
        let asked = async {
            let answer = self.http.request(request).await.map_err(|why| self.lost(&why))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|why| self.lost(&*why))?.to_bytes();
            Ok((head.status, body))
        };
        let timed = tokio::time::timeout(patience, asked).await;
        let none = || self.unreachable(format!("no answer came within {patience:?}"));
        let (status, body) = timed.map_err(|_| none())??;
        if status.is_success() { Ok(body) } else { Err(self.refused(status, &body)) }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: HeaderMap,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(all) = request.headers_mut() {
            *all = headers;
            all.insert(ACCEPT, HeaderValue::from_static("application/json"));
            if body.is_some() {
                all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        request.body(body).map_err(|why| self.odd(why.to_string()))
    }

    fn read<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(answer).map_err(|why| self.odd(why.to_string()))
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => self.odd(format!("status {status}")),
        }
    }

    fn odd(&self, why: String) -> ClientError {
        ClientError::Answer { url: self.base.to_string(), why }
    }

    fn lost(&self, why: &(dyn std::error::Error + 'static)) -> ClientError {
        // The innermost cause is the one that says something: "connection refused".
        let mut cause = why;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        self.unreachable(cause.to_string())
    }

    fn unreachable(&self, why: String) -> ClientError {
        ClientError::Unreachable { url: self.base.to_string(), why }
    }
}

/// An answer that is too long to be held at once.
#[derive(Debug)]
pub struct Pieces {
    body: Incoming,
    client: Client,
}

impl Pieces {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::time::timeout(ANSWER_TIME_MAX, self.body.frame()).await;
            let late = |_| self.client.unreachable(format!("nothing came for {ANSWER_TIME_MAX:?}"));
            let Some(frame) = frame.map_err(late)? else { return Ok(None) };
            let frame = frame.map_err(|why| self.client.lost(&why))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

/// A path with its query.
struct Path(String);

impl Path {
    fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    fn add(&mut self, name: &str, value: Option<impl ToString>) {
        let Some(value) = value else { return };
        let sign = if self.0.contains('?') { '&' } else { '?' };
        let value = value.to_string();
        write!(self.0, "{sign}{name}={}", Encoded(&value)).expect("a String takes everything");
    }
}

fn trigger_path(name: &str, rest: &str) -> String {
    format!("/v1/triggers/{}{rest}", Encoded(name))
}

fn run_path(path: String, filter: &RunFilter) -> String {
    let mut path = Path(path);
    let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
    path.add("state", (!states.is_empty()).then(|| states.join(",")));
    path.add("kind", filter.kind.map(RunKind::as_str));
    path.add("from", filter.from);
    path.add("to", filter.to);
    path.add("limit", filter.limit);
    path.add("cursor", filter.cursor.as_deref());
    path.0
}

/// A text as a part of a path or a query.
struct Encoded<'a>(&'a str);

impl std::fmt::Display for Encoded<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.write_char(byte.into())?;
            } else {
                write!(out, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_are_none_are_refused_with_an_example() {
        for bad in ["", "localhost:7400", "https://x", "http://", "http://a/b", "http://u@h"] {
            let why = Client::new(bad).unwrap_err().to_string();
            assert!(why.contains("try http://127.0.0.1:7400"), "{why}");
        }
        assert_eq!(Client::new("http://localhost:7400/").unwrap().url(), "http://localhost:7400");
    }

    #[test]
    fn names_and_values_cannot_leave_their_place() {
        assert_eq!(trigger_path("a/../b?c", "/run"), "/v1/triggers/a%2F..%2Fb%3Fc/run");
        let mut path = Path::new("/x");
        path.add("one", Some("1&2"));
        path.add("none", None::<u8>);
        path.add("two", Some(2));
        assert_eq!(path.0, "/x?one=1%262&two=2");
    }
}

//! One request and its answer, and sending it again.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_MATCH, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::path::Path;
use super::{Client, IDEMPOTENCY_KEY, connect, entropy};
use crate::ClientError;
use crate::problem::Problem;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What is asked, the same in every attempt.
pub(super) struct Question {
    method: Method,
    path: Path,
    body: Option<Bytes>,
    headers: HeaderMap,
    /// How much longer than usual the answer may take.
    wait: Duration,
}

impl Question {
    pub(super) fn get(path: Path) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn delete(path: Path) -> Self {
        Self::new(Method::DELETE, path)
    }

    pub(super) fn put(path: Path, body: &impl Serialize) -> Self {
        Self::new(Method::PUT, path).body(body)
    }

    pub(super) fn post(path: Path) -> Self {
        Self::new(Method::POST, path)
    }

    fn new(method: Method, path: Path) -> Self {
        Self { method, path, body: None, headers: HeaderMap::new(), wait: Duration::ZERO }
    }

    pub(super) fn body(mut self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("our types always serialize");
        self.body = Some(body.into());
        self
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(super) fn wait(mut self, wait: Option<Duration>) -> Self {
        self.wait = wait.unwrap_or_default();
        self
    }
}

/// What came of a question in the end.
pub(super) struct RetriedAnswer {
    pub(super) answer: Result<Bytes, ClientError>,
    /// Whether an attempt before the last one may have been carried out.
    pub(super) in_doubt: bool,
}

impl Client {
    /// Asks, and reads the answer.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        question: Question,
    ) -> Result<T, ClientError> {
        let bytes = self.ask_with_retries(question).await.answer?;
        self.read(&bytes)
    }

    /// Asks for something to be gone.
    pub(super) async fn ask_delete(&self, path: Path) -> Result<(), ClientError> {
        match self.ask_with_retries(Question::delete(path)).await {
            // It was there, or this is not in doubt: an attempt before this one has deleted it.
            RetriedAnswer { answer: Err(ClientError::NotFound(_)), in_doubt: true } => Ok(()),
            RetriedAnswer { answer, .. } => answer.map(drop),
        }
    }

    /// Asks for something to be as `body` says. With a revision, only if it is at that revision. If it is at another one after
    /// an attempt that may have arrived, it is read back: `is_ours` tells whether what is found, at the revision after, is
    /// what that attempt wrote.
    pub(super) async fn ask_put<T: DeserializeOwned>(
        &self,
        path: Path,
        body: &impl Serialize,
        revision: Option<u64>,
        is_ours: impl FnOnce(&T, u64) -> bool,
    ) -> Result<T, ClientError> {
        let mut question = Question::put(path.clone(), body);
        if let Some(revision) = revision {
            let tag = HeaderValue::from_str(&format!("\"{revision}\"")).expect("digits");
            question = question.header(IF_MATCH, tag);
        }
        let RetriedAnswer { answer, in_doubt } = self.ask_with_retries(question).await;
        match (answer, revision) {
            (Err(ClientError::Conflict(problem)), Some(revision))
                if in_doubt && problem.status == 412 =>
            {
                let found = self.ask(Question::get(path)).await?;
                let is_ours = is_ours(&found, revision + 1);
                if is_ours { Ok(found) } else { Err(ClientError::Conflict(problem)) }
            }
            (answer, _) => self.read(&answer?),
        }
    }

    /// Asks until there is an answer, or asking again is of no use.
    pub(super) async fn ask_with_retries(&self, mut question: Question) -> RetriedAnswer {
        if question.method == Method::POST {
            let own = || HeaderValue::try_from(entropy::unique()).expect("hexadecimal digits");
            let key = self.once.clone().unwrap_or_else(own);
            question.headers.insert(IDEMPOTENCY_KEY, key);
        }
        let begun = Instant::now();
        let (mut tried, mut in_doubt) = (0, false);
        loop {
            let error = match self.attempt(&question).await {
                Ok(bytes) => return RetriedAnswer { answer: Ok(bytes), in_doubt },
                Err(error) => error,
            };
            tried += 1;
            let pause = self.retry.pause(tried, begun.elapsed(), &error, entropy::dice());
            let Some(pause) = pause else {
                let error = if in_doubt { error.in_doubt() } else { error };
                return RetriedAnswer { answer: Err(error), in_doubt };
            };
            in_doubt |= error.may_be_done();
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends the request once.
    pub(super) async fn attempt(&self, question: &Question) -> Result<Bytes, ClientError> {
        let patience = self.timeout.saturating_add(question.wait);
        let asked = async {
            let (head, body) = self.send(question).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|why| self.lost(&*why))?.to_bytes();
            if head.status.is_success() {
                return Ok(body);
            }
            Err(self.refused(head.status, &head.headers, &body))
        };
        let timed = tokio::time::timeout(patience, asked).await;
        timed.unwrap_or_else(|_| Err(self.silent(patience)))
    }

    /// Asks for an answer that is read piece by piece.
    pub(super) async fn begin(&self, question: &Question) -> Result<Incoming, ClientError> {
        let (head, body) = self.send(question).await?.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|why| self.lost(&*why))?.to_bytes();
        Err(self.refused(head.status, &head.headers, &body))
    }

    /// Tries again what changes nothing, as with any request.
    pub(super) async fn again<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ClientError> {
        let begun = Instant::now();
        let mut tried = 0;
        loop {
            let timed = tokio::time::timeout(self.timeout, attempt()).await;
            let error = match timed.unwrap_or_else(|_| Err(self.silent(self.timeout))) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tried += 1;
            let pause = self.retry.pause(tried, begun.elapsed(), &error, entropy::dice());
            tokio::time::sleep(pause.ok_or(error)?).await;
        }
    }

    /// Sends a request, and gives the head of its answer.
    async fn send(&self, question: &Question) -> Result<Response<Incoming>, ClientError> {
        let uri = format!("{}{}", self.base, question.path.as_str());
        let mut request = Request::builder().method(question.method.clone()).uri(uri);
        if let Some(all) = request.headers_mut() {
            all.extend(self.headers.clone());
            all.extend(question.headers.clone());
            if question.body.is_some() {
                all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
        }
        let body = Full::new(question.body.clone().unwrap_or_default());
        let request = request.body(body).map_err(|why| self.unexpected_answer(why.to_string()))?;
        let sent = self.http.request(request).await;
        sent.map_err(|why| connect::failure(&self.base, &why))
    }

    pub(super) fn read<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(answer).map_err(|why| self.unexpected_answer(why.to_string()))
    }

    /// What a status that is no success says.
    pub(super) fn refused(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> ClientError {
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = seconds.map(Duration::from_secs);
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => ClientError::of_problem(problem, retry_after),
            // Something that stands before the server says it in words of its own.
            Err(_) if matches!(status.as_u16(), 401 | 403 | 429 | 502..=504) => {
                ClientError::of_problem(self.blank(status), retry_after)
            }
            Err(_) => self.unexpected_answer(format!("status {status}")),
        }
    }

    fn blank(&self, status: StatusCode) -> Problem {
        Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Refused").to_owned(),
            status: status.as_u16(),
            detail: format!("{}, or what stands before it, answered {status}", self.base),
            request_id: None,
            limit: None,
            store: None,
            errors: Vec::new(),
        }
    }

    pub(super) fn unexpected_answer(&self, why: String) -> ClientError {
        ClientError::Answer { url: self.base.to_string(), why }
    }

    /// No answer came in time.
    pub(super) fn silent(&self, patience: Duration) -> ClientError {
        connect::silent(&self.base, patience)
    }

    pub(super) fn lost(&self, why: &(dyn std::error::Error + 'static)) -> ClientError {
        connect::lost(&self.base, why)
    }
}

//! Workers: who they are, and what they say.
//!
//! Claims and beats are sent once and carry no idempotency key: a request has a number instead, and a worker that hears
//! nothing says how things stand then, under the next number.

use std::time::Duration;

use super::Client;
use super::exchange::Question;
use super::path::Path;
use crate::worker::{BeatRequest, ClaimAnswer, ClaimRequest, Worker, WorkerDetails};
use crate::{ClientError, ListPage};

impl Client {
    /// The workers that were heard of, by name.
    pub async fn workers(&self) -> Result<ListPage<Worker>, ClientError> {
        self.ask(Question::get(Path::new("/v1/workers"))).await
    }

    /// A worker, with all that it has.
    pub async fn worker(&self, name: &str) -> Result<WorkerDetails, ClientError> {
        self.ask(Question::get(Path::of("workers", name, ""))).await
    }

    /// Lets a worker, as it lives now, have nothing more, and tells it so.
    pub async fn drain_worker(&self, name: &str) -> Result<WorkerDetails, ClientError> {
        self.ask(Question::post(Path::of("workers", name, "/drain"))).await
    }

    /// Lets a worker have runs again.
    pub async fn undrain_worker(&self, name: &str) -> Result<WorkerDetails, ClientError> {
        self.ask(Question::delete(Path::of("workers", name, "/drain"))).await
    }

    /// Says what came of runs, and claims more. The request is sent once. It may take `wait_ms` longer than any other.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<ClaimAnswer, ClientError> {
        let wait = Duration::from_millis(request.wait_ms);
        let question = Question::post(Path::new("/v1/claim")).body(request).wait(Some(wait));
        self.read(&self.attempt(&question).await?)
    }

    /// Says that a worker is there, and what it has. The request is sent once.
    pub async fn beat(
        &self,
        worker: &str,
        request: &BeatRequest,
    ) -> Result<ClaimAnswer, ClientError> {
        let question = Question::post(Path::of("workers", worker, "/beat")).body(request);
        self.read(&self.attempt(&question).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    /// The head of a request, in small letters.
    fn head(stream: &TcpStream) -> String {
        let lines = BufReader::new(stream).lines().map(Result::unwrap);
        let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        lines.join("\n").to_ascii_lowercase()
    }

    #[tokio::test]
    async fn what_a_worker_says_is_sent_once_and_without_a_key() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Hangs up after each request, which any other is sent again for.
        let server = thread::spawn(move || -> Vec<String> {
            (0..3).map(|_| head(&listener.accept().unwrap().0)).collect()
        });
        let client = Client::builder(&url).retries(9).build().unwrap().once("mine").unwrap();
        client.claim(&ClaimRequest::default()).await.unwrap_err();
        client.beat("w-1", &BeatRequest::default()).await.unwrap_err();
        let once = Client::builder(&url).retries(0).build().unwrap();
        once.workers().await.unwrap_err();
        let heads = server.join().unwrap();
        let paths = ["post /v1/claim ", "post /v1/workers/w-1/beat ", "get /v1/workers "];
        for (head, path) in heads.iter().zip(paths) {
            assert!(head.starts_with(path) && !head.contains("idempotency-key"), "{head}");
        }
    }

    #[tokio::test]
    async fn a_claim_that_waits_may_take_longer_by_as_much() {
        // It is connected to, and says nothing.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::builder(&url).timeout(Duration::from_millis(20)).build().unwrap();
        let request = ClaimRequest { wait_ms: 30, ..ClaimRequest::default() };
        let why = client.claim(&request).await.unwrap_err();
        assert!(why.to_string().contains("within 50ms") && why.may_be_done(), "{why:?}");
    }
}

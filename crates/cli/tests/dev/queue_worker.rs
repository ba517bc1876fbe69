//! A worker that says what a test wants it to say, with the numbers and the cookie that belong to it.

use std::time::Duration;

use client::worker::{
    BeatRequest, ClaimAnswer, ClaimRequest, ClaimedRun, DoneRun, HeldRun, RunResult,
};
use client::{Client, ClientError};
use rig::PATIENCE;
use tokio::time::timeout;

/// A worker of one queue, in one life.
#[derive(Debug, Clone)]
pub(super) struct TestWorker {
    pub(super) name: String,
    pub(super) queue: String,
    pub(super) lease_ms: u64,
    pub(super) incarnation: u64,
    pub(super) number: u64,
    pub(super) cookie: Option<String>,
}

impl TestWorker {
    pub(super) fn new(name: &str, queue: &str) -> Self {
        let (name, queue) = (name.to_owned(), queue.to_owned());
        Self { name, queue, lease_ms: 60_000, incarnation: 1, number: 0, cookie: None }
    }

    /// The next claim: all claims before it are answered, or nobody listens to them.
    pub(super) fn request(&mut self, free: u64, wait_ms: u64) -> ClaimRequest {
        self.number += 1;
        ClaimRequest {
            worker: self.name.clone(),
            incarnation: self.incarnation,
            number: self.number,
            settled: self.number - 1,
            cookie: self.cookie.clone(),
            queues: vec![self.queue.clone()],
            free,
            wait_ms,
            lease_ms: Some(self.lease_ms),
            ..ClaimRequest::default()
        }
    }

    /// Sends a claim, and keeps the cookie of its answer.
    pub(super) async fn send(
        &mut self,
        client: &Client,
        request: &ClaimRequest,
    ) -> Result<ClaimAnswer, ClientError> {
        let answer = client.claim(request).await?;
        self.cookie = Some(answer.cookie.clone());
        Ok(answer)
    }

    /// Claims nothing, so that it is known to serve its queue.
    pub(super) async fn claim_nothing(&mut self, client: &Client) {
        for _ in 0..2 {
            let request = self.request(0, 0);
            self.send(client, &request).await.unwrap();
        }
    }

    /// Claims one run, as often as it takes.
    pub(super) async fn claim_one(&mut self, client: &Client) -> ClaimedRun {
        self.claim_some(client, 1).await.remove(0)
    }

    /// Claims up to so many runs at once, as often as it takes until there are some.
    pub(super) async fn claim_some(&mut self, client: &Client, most: u64) -> Vec<ClaimedRun> {
        let given = async {
            loop {
                let request = self.request(most, 1_000);
                let runs = self.send_patiently(client, &request).await.runs;
                if !runs.is_empty() {
                    return runs;
                }
            }
        };
        timeout(PATIENCE, given).await.expect("a run is given")
    }

    /// Reports what came of a run, as often as it takes, and tells whether that counted.
    pub(super) async fn report(&mut self, client: &Client, run: &ClaimedRun) -> bool {
        let told = async {
            loop {
                let done = vec![done(run, RunResult::Succeeded)];
                let request = ClaimRequest { done, ..self.request(0, 0) };
                if let Some(ack) = self.send_patiently(client, &request).await.acks.pop() {
                    return ack.counted;
                }
            }
        };
        timeout(PATIENCE, told).await.expect("a result is dealt with")
    }

    /// An empty answer stands for none, after a pause: a server that is away is not asked without one.
    async fn send_patiently(&mut self, client: &Client, request: &ClaimRequest) -> ClaimAnswer {
        if let Ok(answer) = self.send(client, request).await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        ClaimAnswer::default()
    }

    /// Says that it is there, and has these.
    pub(super) async fn beat(
        &mut self,
        client: &Client,
        runs: &[ClaimedRun],
    ) -> Result<ClaimAnswer, ClientError> {
        let settled = self.number;
        self.number += 1;
        let request = BeatRequest {
            incarnation: self.incarnation,
            number: self.number,
            settled,
            queues: vec![self.queue.clone()],
            lease_ms: Some(self.lease_ms),
            running: Some(runs.iter().map(held).collect()),
            ..BeatRequest::default()
        };
        client.beat(&self.name, &request).await
    }
}

pub(super) fn held(run: &ClaimedRun) -> HeldRun {
    HeldRun { id: run.id.clone(), token: run.token }
}

pub(super) fn done(run: &ClaimedRun, result: RunResult) -> DoneRun {
    DoneRun {
        id: run.id.clone(),
        token: run.token,
        result,
        final_failure: false,
        retry_after_ms: None,
        error: None,
        exit_code: None,
        started: None,
        took_ms: None,
    }
}

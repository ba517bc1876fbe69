//! What a worker may say, checked, and split by the shards that it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::worker::{Ack, BeatRequest, ClaimRequest, DoneRun, HeldRun, RunResult};
use engine::id::{ProjectId, RunId, ShardId};
use engine::instant::Instant;
use engine::limits::{
    CLAIM_QUEUES_MAX, CLAIM_RUNS_MAX, CLAIM_WAIT_MAX, CROWDED_RETRY_AFTER, DRAINED_CLAIM_WAIT_MAX,
    RETRY_AFTER_MAX, RUN_ERROR_CHARS_MAX, WORKER_LEASE_DEFAULT, WORKER_LEASE_MAX, WORKER_LEASE_MIN,
};
use engine::past::Attempt;
use engine::queue::claim::two_beats;
use engine::queue::given::{AttemptResult, RunToken};
use engine::shard::{ClaimCall, DoneCall, GivenRun, WorkerCall};
use engine::trigger::{BadField, Labels, check_name};

use crate::api::caller::Caller;
use crate::api::forward::PeerClient;
use crate::api::problem::{ApiError, ApiResult};
use crate::handle::NodeHandle;

/// What a worker says, checked.
pub(super) struct Ask {
    project: ProjectId,
    worker: Arc<str>,
    said: ClaimRequest,
    /// Whether it wants runs, and whether it names all that it has.
    is_claim: bool,
    names_all: bool,
    lease_ms: u32,
    done: Vec<(RunId, DoneCall)>,
    running: Vec<(RunId, RunToken)>,
    released: Vec<(RunId, RunToken)>,
    labels: Arc<str>,
}

impl Ask {
    pub(super) fn claim(
        caller: &Caller,
        peers: &PeerClient,
        said: ClaimRequest,
    ) -> ApiResult<Self> {
        Self::checked(caller, peers, said, true, true)
    }

    pub(super) fn beat(
        caller: &Caller,
        peers: &PeerClient,
        worker: &str,
        said: &BeatRequest,
    ) -> ApiResult<Self> {
        let BeatRequest { incarnation, number, settled, queues, lease_ms, done, .. } = said.clone();
        let names_all = said.running.is_some();
        let said = ClaimRequest {
            worker: worker.to_owned(),
            incarnation,
            number,
            settled,
            cookie: None,
            queues,
            free: 0,
            wait_ms: 0,
            lease_ms,
            done,
            running: said.running.clone().unwrap_or_default(),
            released: said.released.clone(),
            since: said.since,
            draining: said.draining,
            labels: BTreeMap::new(),
        };
        Self::checked(caller, peers, said, false, names_all)
    }

    fn checked(
        caller: &Caller,
        peers: &PeerClient,
        said: ClaimRequest,
        is_claim: bool,
        names_all: bool,
    ) -> ApiResult<Self> {
        let mut faults = Faults::default();
        faults.check("/worker", check_name(&said.worker));
        faults.between("/incarnation", said.incarnation, 1, u64::MAX);
        faults.between("/number", said.number, 1, u64::MAX);
        faults.between("/free", said.free, 0, CLAIM_RUNS_MAX as u64);
        faults.between("/wait_ms", said.wait_ms, 0, millis(CLAIM_WAIT_MAX));
        let lease_ms = said.lease_ms.unwrap_or_else(|| millis(WORKER_LEASE_DEFAULT));
        faults.between("/lease_ms", lease_ms, millis(WORKER_LEASE_MIN), millis(WORKER_LEASE_MAX));
        let queues = said.queues.len();
        // Another server asks only for its shards, in which the worker may have runs and claim from no queue.
        let is_none_missing = queues > 0 || peers.is_asked_by_peer();
        if !is_none_missing || queues > CLAIM_QUEUES_MAX {
            faults.add(
                "/queues",
                format!("1 to {CLAIM_QUEUES_MAX} are named, and these are {queues}"),
            );
        }
        for (index, queue) in said.queues.iter().enumerate().take(CLAIM_QUEUES_MAX) {
            faults.check(&format!("/queues/{index}"), check_name(queue));
        }
        let named = said.done.len() + said.running.len() + said.released.len();
        if named > 2 * CLAIM_RUNS_MAX {
            let most = 2 * CLAIM_RUNS_MAX;
            faults.add(
                "/running",
                format!("a request names at most {most} runs, and these are {named}"),
            );
        }
        let running = faults.held("/running", &said.running);
        let released = faults.held("/released", &said.released);
        let done = faults.done(&said.done);
        let labels = faults.labels(&said.labels);
        if !faults.0.is_empty() {
            return Err(ApiError::fields(faults.0));
        }
        Ok(Self {
            project: caller.project,
            worker: said.worker.as_str().into(),
            is_claim,
            names_all,
            lease_ms: u32::try_from(lease_ms).unwrap_or(u32::MAX),
            done,
            running,
            released,
            labels,
            said,
        })
    }

    /// The same without waiting: there are too few connections left to keep one. What is reported is heard.
    pub(super) fn in_a_crowd(mut self) -> ApiResult<Self> {
        let says_something =
            !(self.done.is_empty() && self.running.is_empty() && self.released.is_empty());
        if self.is_claim && !says_something {
            return Err(ApiError::unavailable(
                "as many connections are open as may be, and none is left on which a worker could wait: try again, or ask another server",
                CROWDED_RETRY_AFTER,
            ));
        }
        self.said.wait_ms = 0;
        Ok(self)
    }

    /// By the shards of the queues and of the runs that it names.
    pub(super) fn split(self, handle: &NodeHandle) -> Split {
        let shards = handle.shards();
        let mut queues: BTreeMap<ShardId, Vec<Box<str>>> = BTreeMap::new();
        for queue in &self.said.queues {
            let shard = ShardId::of_queue(self.project, queue, shards);
            queues.entry(shard).or_default().push(queue.as_str().into());
        }
        let cookies = Cookies::read(self.said.cookie.as_deref().unwrap_or_default());
        let mut ask = self;
        let unknown = ask.set_apart(|id| id.shard.0 >= shards);
        let mut split = Split { ask, queues, cookies, shards, unknown, is_drained: false };
        split.is_drained = split.is_drained_now(handle);
        split
    }
}

/// What a worker said about runs of shards that do not exist: nobody has to be asked.
#[derive(Default)]
pub(super) struct UnknownRuns {
    pub(super) acks: Vec<Ack>,
    pub(super) lost: Vec<HeldRun>,
}

impl Ask {
    /// Takes runs out, and says what their worker is told of them.
    fn set_apart(&mut self, is_unknown: impl Fn(&RunId) -> bool) -> UnknownRuns {
        let mut unknown = UnknownRuns::default();
        let ack = |id: &RunId, token: RunToken| Ack {
            id: id.to_string(),
            token: token.0,
            counted: false,
        };
        for (id, done) in self.done.extract_if(.., |(id, _)| is_unknown(id)) {
            unknown.acks.push(ack(&id, done.token));
        }
        for (id, token) in self.released.extract_if(.., |(id, _)| is_unknown(id)) {
            unknown.acks.push(ack(&id, token));
        }
        for (id, token) in self.running.extract_if(.., |(id, _)| is_unknown(id)) {
            unknown.lost.push(HeldRun { id: id.to_string(), token: token.0 });
        }
        unknown
    }
}

/// What a worker says, by shard.
pub(super) struct Split {
    ask: Ask,
    /// Runs that are in no shard.
    pub(super) unknown: UnknownRuns,
    queues: BTreeMap<ShardId, Vec<Box<str>>>,
    cookies: Cookies,
    /// How many shards there are.
    shards: u16,
    /// Whether somebody wanted the worker to drain when it came.
    is_drained: bool,
}

/// How much of the claim somebody is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) free: usize,
    pub(super) wait_ms: u64,
}

impl Split {
    /// The shards that are to hear it: those of its queues, in their order, and then those of runs that it names.
    pub(super) fn shards(&self) -> Vec<ShardId> {
        let Ask { project, said, done, running, released, .. } = &self.ask;
        let queues = said.queues.iter();
        let queues = queues.map(|queue| ShardId::of_queue(*project, queue, self.shards));
        let runs = done.iter().map(|(id, _)| id).chain(running.iter().map(|(id, _)| id));
        let runs = runs.chain(released.iter().map(|(id, _)| id)).map(|id| id.shard);
        let mut seen = BTreeSet::new();
        queues.chain(runs).filter(|shard| seen.insert(*shard)).collect()
    }

    /// What one shard hears.
    pub(super) fn call(&self, shard: ShardId, wants: Wanted) -> WorkerCall {
        let ask = &self.ask;
        let of = |held: &[(RunId, RunToken)]| {
            held.iter().filter(|(id, _)| id.shard == shard).copied().collect::<Vec<_>>()
        };
        let done = ask.done.iter().filter(|(id, _)| id.shard == shard);
        let queues = self.queues.get(&shard).filter(|_| ask.is_claim);
        WorkerCall {
            done: done.map(|(_, done)| done.clone()).collect(),
            released: of(&ask.released),
            running: ask.names_all.then(|| of(&ask.running)),
            claim: queues.map(|queues| ClaimCall {
                cookie: self.cookies.get(shard),
                queues: queues.clone(),
                free: wants.free,
                wait_ms: wants.wait_ms,
                labels: Arc::clone(&ask.labels),
            }),
            ..self.report()
        }
    }

    /// Gives runs back that never reached the worker.
    pub(super) fn release(&self, released: Vec<(RunId, RunToken)>) -> WorkerCall {
        WorkerCall { released, ..self.report() }
    }

    /// Says what came of runs that never reached the worker.
    pub(super) fn report_of(&self, done: Vec<DoneCall>) -> WorkerCall {
        WorkerCall { done, ..self.report() }
    }

    fn report(&self) -> WorkerCall {
        let Ask { project, worker, said, lease_ms, .. } = &self.ask;
        WorkerCall {
            project: *project,
            worker: Arc::clone(worker),
            incarnation: said.incarnation,
            number: said.number,
            settled: said.settled,
            lease_ms: *lease_ms,
            since: said.since,
            is_draining: said.draining,
            done: Vec::new(),
            released: Vec::new(),
            running: None,
            claim: None,
        }
    }

    /// What another server hears, of the shards that it has.
    pub(super) fn body(&self, shards: &[ShardId], wants: Wanted) -> String {
        let said = &self.ask.said;
        let is_of = |id: &str| id.parse().is_ok_and(|id: RunId| shards.contains(&id.shard));
        let held = |runs: &[HeldRun]| {
            runs.iter().filter(|run| is_of(&run.id)).cloned().collect::<Vec<_>>()
        };
        let done: Vec<DoneRun> = said.done.iter().filter(|run| is_of(&run.id)).cloned().collect();
        // None, if it has runs of queues from which the worker does not claim any more. A queue of another shard would say that the
        // worker has nothing in that one.
        let of_shards = self.queues.iter().filter(|(shard, _)| shards.contains(shard));
        let queues = of_shards.flat_map(|(_, queues)| queues).map(ToString::to_string).collect();
        let Wanted { free, wait_ms } = wants;
        let (running, released) = (held(&said.running), held(&said.released));
        let text = if self.ask.is_claim {
            let (free, said) = (free as u64, said.clone());
            serde_json::to_string(&ClaimRequest {
                queues,
                free,
                wait_ms,
                done,
                running,
                released,
                ..said
            })
        } else {
            serde_json::to_string(&BeatRequest {
                incarnation: said.incarnation,
                number: said.number,
                settled: said.settled,
                queues,
                lease_ms: said.lease_ms,
                done,
                running: self.ask.names_all.then_some(running),
                released,
                since: said.since,
                draining: said.draining,
            })
        };
        text.expect("texts and numbers always serialize")
    }

    /// Whether these are all queues that it names.
    pub(super) fn names_only(&self, queues: &[String]) -> bool {
        let named = &self.ask.said.queues;
        !named.is_empty() && named.iter().all(|queue| queues.contains(queue))
    }

    /// Whether nothing can be claimed from these shards, since each of its queues there is among these.
    pub(super) fn is_closed(&self, shards: &[ShardId], queues: &[String]) -> bool {
        let of_shards = self.queues.iter().filter(|(shard, _)| shards.contains(shard));
        let mut named = of_shards.flat_map(|(_, queues)| queues).peekable();
        named.peek().is_some() && named.all(|name| queues.iter().any(|queue| **queue == **name))
    }

    /// Whether one of the queues that it names lives in these shards.
    pub(super) fn has_queues_in(&self, shards: &[ShardId]) -> bool {
        shards.iter().any(|shard| self.queues.contains_key(shard))
    }

    /// Whether it wants runs, and is no beat.
    pub(super) fn is_claim(&self) -> bool {
        self.ask.is_claim
    }

    /// So many runs the worker has room for: it never has more than it can name.
    pub(super) fn free(&self) -> usize {
        if self.ask.said.draining || self.is_drained {
            return 0;
        }
        let free = usize::try_from(self.ask.said.free).unwrap_or(0);
        free.min(CLAIM_RUNS_MAX.saturating_sub(self.ask.running.len()))
    }

    /// A worker that is not heard of for two beats is given nothing: a claim waits no longer than that.
    pub(super) fn wait_ms(&self) -> u64 {
        if !self.ask.is_claim {
            return 0;
        }
        let most = if self.is_drained { millis(DRAINED_CLAIM_WAIT_MAX) } else { u64::MAX };
        self.ask.said.wait_ms.min(two_beats(self.ask.lease_ms)).min(most)
    }

    /// Whether somebody wants the worker to drain.
    pub(super) fn is_drained_now(&self, handle: &NodeHandle) -> bool {
        let Ask { project, worker, said, .. } = &self.ask;
        handle.access().book().drain(*project, worker, said.incarnation).is_some()
    }

    pub(super) fn project(&self) -> ProjectId {
        self.ask.project
    }

    /// Puts runs in the order in which the worker named their queues.
    pub(super) fn sort(&self, runs: &mut [GivenRun]) {
        let queues = &self.ask.said.queues;
        if queues.len() > 1 {
            runs.sort_by_key(|run| queues.iter().position(|queue| **queue == *run.queue.name));
        }
    }

    pub(super) fn lease_ms(&self) -> u32 {
        self.ask.lease_ms
    }

    /// Runs that were named and whose owner could not be asked.
    pub(super) fn unheard(&self, heard: &[ShardId]) -> Vec<HeldRun> {
        let running = self.ask.running.iter().filter(|(id, _)| !heard.contains(&id.shard));
        running.map(|(id, token)| HeldRun { id: id.to_string(), token: token.0 }).collect()
    }
}

/// Whether one of these runs lives in a shard.
pub(super) fn has_any_of(runs: &[HeldRun], shard: ShardId) -> bool {
    runs.iter().any(|run| run.id.parse().is_ok_and(|id: RunId| id.shard == shard))
}

/// Which memory of each shard a worker speaks to: `3:9f…,17:a0…`.
#[derive(Default)]
pub(super) struct Cookies(BTreeMap<ShardId, u64>);

impl Cookies {
    /// What cannot be read is as if it were not there: a claim without a cookie gets none of its runs, and the cookie.
    fn read(text: &str) -> Self {
        let parts = text.split(',').take(usize::from(engine::limits::SHARDS_MAX));
        let pairs = parts.filter_map(|part| {
            let (shard, cookie) = part.split_once(':')?;
            Some((ShardId(shard.parse().ok()?), u64::from_str_radix(cookie, 16).ok()?))
        });
        Self(pairs.collect())
    }

    fn get(&self, shard: ShardId) -> u64 {
        self.0.get(&shard).copied().unwrap_or(0)
    }

    pub(super) fn put(&mut self, shard: ShardId, cookie: u64) {
        self.0.insert(shard, cookie);
    }

    pub(super) fn add(&mut self, text: &str) {
        self.0.extend(Self::read(text).0);
    }
}

impl fmt::Display for Cookies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (shard, cookie)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{shard}:{cookie:x}")?;
        }
        Ok(())
    }
}

/// What is wrong with what a worker said.
#[derive(Default)]
struct Faults(Vec<BadField>);

impl Faults {
    fn add(&mut self, pointer: &str, why: String) {
        self.0.push(BadField { pointer: pointer.to_owned(), why });
    }

    fn check(&mut self, pointer: &str, checked: Result<(), String>) {
        if let Err(why) = checked {
            self.add(pointer, why);
        }
    }

    fn between(&mut self, pointer: &str, number: u64, least: u64, most: u64) {
        if !(least..=most).contains(&number) {
            self.add(pointer, format!("it is a whole number from {least} to {most}"));
        }
    }

    fn id(&mut self, pointer: &str, index: usize, text: &str) -> Option<RunId> {
        let id = text.parse::<RunId>();
        id.map_err(|why| self.add(&format!("{pointer}/{index}/id"), why.to_string())).ok()
    }

    fn labels(&mut self, written: &BTreeMap<String, String>) -> Arc<str> {
        match Labels::of(written) {
            Ok(labels) => labels.as_str().into(),
            Err(found) => {
                self.0.extend(found);
                Arc::default()
            }
        }
    }

    fn held(&mut self, pointer: &str, runs: &[HeldRun]) -> Vec<(RunId, RunToken)> {
        let runs = runs.iter().enumerate();
        runs.filter_map(|(index, run)| {
            Some((self.id(pointer, index, &run.id)?, RunToken(run.token)))
        })
        .collect()
    }

    fn done(&mut self, runs: &[DoneRun]) -> Vec<(RunId, DoneCall)> {
        let mut done = Vec::with_capacity(runs.len());
        for (index, run) in runs.iter().enumerate() {
            let Some(id) = self.id("/done", index, &run.id) else { continue };
            let retry_after = run.retry_after_ms.map(Duration::from_millis);
            if retry_after.is_some_and(|pause| pause > RETRY_AFTER_MAX) {
                let most = millis(RETRY_AFTER_MAX);
                let why = format!("it is a whole number from 0 to {most}");
                self.add(&format!("/done/{index}/retry_after_ms"), why);
            }
            let result = match run.result {
                RunResult::Succeeded => AttemptResult::Succeeded,
                RunResult::Failed if run.final_failure => AttemptResult::FailedForGood,
                RunResult::Failed => AttemptResult::Failed { retry_after },
                RunResult::Cancelled => AttemptResult::Cancelled,
                RunResult::Stopped => AttemptResult::Stopped,
                RunResult::Died => AttemptResult::Died,
            };
            let token = RunToken(run.token);
            done.push((id, DoneCall { run: id, token, result, made: Some(attempt(run)) }));
        }
        done
    }
}

/// What is kept of an attempt.
fn attempt(run: &DoneRun) -> Attempt {
    let error = run.error.as_ref().map(|text| text.chars().take(RUN_ERROR_CHARS_MAX).collect());
    let error = error.or_else(|| match run.result {
        RunResult::Succeeded => None,
        RunResult::Failed => Some("it failed".to_owned()),
        RunResult::Cancelled => Some("it was cancelled".to_owned()),
        RunResult::Stopped => Some("its worker stopped it".to_owned()),
        RunResult::Died => Some("its worker died under it".to_owned()),
    });
    Attempt {
        at: run.started.map_or(Instant(0), |at| Instant(at.as_millisecond())),
        ms: run.took_ms.and_then(|took| u32::try_from(took).ok()).unwrap_or(0),
        error,
        exit_code: run.exit_code,
        ..Attempt::default()
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).expect("a short time")
}

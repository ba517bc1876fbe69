//! Workers and people that load queues, and what has to be true at the end, whatever was done to servers meanwhile.
//!
//! Workers of the tests' own claim runs, carry them out and report, over HTTP and with nothing but the protocol of
//! docs/queues.md. They die now and then: their next life reports what had begun. What they see is written down as it
//! happens ([`Happened`]); at the end the store is read without any server, and held against that.
//!
//! Runs are submitted as they are [allowed](Crowd::allow), so that there is something to do in each life of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::queue::{BatchSpec, QueueSpec, RateSpec, RunSpec};
use client::spec::{Backoff, Delivery, RetrySpec};
use client::worker::{ClaimRequest, ClaimedRun, DoneRun, HeldRun, RunResult};
use client::{Client, ClientError};
use engine::past::End;
use rig::{PATIENCE, Random, until};
use serde_json::{Value, json};
use sim::slot_records::EndedRun;
use store::machine::{Machine, System};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const QUEUES: [&str; 3] = ["mail", "reports", "thumbnails"];

/// Of each key of this queue one run executes at a time.
const KEYED: &str = "reports";
const KEYS: u64 = 7;

/// Runs that a worker has at a time.
const CAPACITY: usize = 40;

/// At most so many runs of this queue execute at a time.
const NARROW: &str = "thumbnails";
const NARROW_MAX: usize = 12;

/// At most so many runs of this queue are given in any period, attempts counted one by one.
const RATED: &str = "mail";
const RATE_RUNS: usize = 300;
const RATE_PERIOD: Duration = Duration::from_secs(2);

/// How long a worker may be silent: longer than any server is away here, and than a busy machine lets a worker wait.
const LEASE_MS: u64 = 60_000;

/// What really happened, as far as workers and those who submit know.
#[derive(Default)]
pub(super) struct Happened {
    /// Runs whose submission was answered.
    acknowledged: BTreeMap<String, Content>,
    /// Of these, runs that are never to begin twice.
    at_most_once: BTreeSet<String>,
    /// Attempts that began, by run.
    begun: BTreeMap<String, Vec<Begun>>,
    /// Runs that execute, with their queues and keys.
    executing: BTreeMap<String, (String, Option<String>)>,
    /// Tokens whose result was answered as one that counted.
    counted: BTreeMap<String, u64>,
    /// When each run of the queue with a rate was given at the earliest and at the latest, in microseconds: between a
    /// request and its answer.
    rated: Vec<(u64, u64)>,
    faults: Vec<String>,
}

/// What a run is about.
#[derive(Debug, Clone, PartialEq)]
struct Content {
    queue: String,
    payload: Option<Value>,
}

/// An attempt, as its worker was told of it.
struct Begun {
    attempt: u32,
    token: u64,
    content: Content,
}

impl Happened {
    fn fault(&mut self, is_fault: bool, what: impl FnOnce() -> String) {
        if is_fault {
            self.faults.push(what());
        }
    }

    fn given(&mut self, run: &ClaimedRun) {
        let counted = self.counted.get(&run.id).copied();
        let is_over = counted.is_some_and(|token| token < run.token);
        self.fault(is_over, || format!("{} was handed out after its end", run.id));
    }

    /// How many runs of the queue with a rate were given within one period at most, as far as that is certain.
    fn most_within_period(&self) -> usize {
        let period_us = u64::try_from(RATE_PERIOD.as_micros()).unwrap();
        let mut rated = self.rated.clone();
        rated.sort_unstable();
        let within = |(index, (begin, _)): (usize, &(u64, u64))| {
            let began = rated[index..].iter().take_while(|(sent, _)| sent - begin < period_us);
            began.filter(|(_, answered)| answered - begin < period_us).count()
        };
        rated.iter().enumerate().map(within).max().unwrap_or(0)
    }

    fn begins(&mut self, run: &ClaimedRun) {
        let begun = self.begun.entry(run.id.clone()).or_default();
        let is_repeated = begun.iter().any(|begun| begun.attempt == run.attempt);
        let is_older = begun.iter().any(|begun| begun.token >= run.token);
        let content = Content { queue: run.queue.clone(), payload: run.payload.clone() };
        begun.push(Begun { attempt: run.attempt, token: run.token, content });
        self.fault(is_repeated, || format!("{} began attempt {} twice", run.id, run.attempt));
        self.fault(is_older, || format!("{} began under a token that did not grow", run.id));
        let executing = self.executing.values();
        let same = executing.filter(|(_, key)| key.is_some() && *key == run.key).count();
        self.fault(same > 0, || format!("two runs with the key {:?} execute", run.key));
        self.executing.insert(run.id.clone(), (run.queue.clone(), run.key.clone()));
        let narrow = self.executing.values().filter(|(queue, _)| queue == NARROW).count();
        self.fault(narrow > NARROW_MAX, || format!("{narrow} runs of {NARROW} execute"));
    }
}

/// A worker, with what it keeps on its disk.
struct Hand {
    name: String,
    happened: Arc<Mutex<Happened>>,
    doors: Arc<Mutex<Vec<Client>>>,
    incarnation: u64,
    number: u64,
    cookie: Option<String>,
    /// Runs that it has begun.
    held: BTreeMap<String, ClaimedRun>,
    /// Results that no answer has dealt with.
    spool: BTreeMap<(String, u64), RunResult>,
    random: Random,
}

impl Hand {
    /// Works until it is told that all is done and it has nothing left.
    async fn work(mut self, is_over: Arc<AtomicBool>) {
        loop {
            self.finish_some();
            let is_last = is_over.load(Ordering::SeqCst);
            if is_last && self.held.is_empty() && self.spool.is_empty() {
                return;
            }
            if self.random.below(400) == 0 {
                self.die();
            }
            self.claim(is_last).await;
        }
    }

    /// Everything in memory is gone. What had begun is reported by the next life.
    fn die(&mut self) {
        self.incarnation += 1;
        (self.number, self.cookie) = (0, None);
        let mut happened = self.happened.lock().unwrap();
        for (id, run) in std::mem::take(&mut self.held) {
            happened.executing.remove(&id);
            self.spool.insert((id, run.token), RunResult::Died);
        }
    }

    fn finish_some(&mut self) {
        let mut happened = self.happened.lock().unwrap();
        let ends: Vec<String> = self.held.keys().cloned().collect();
        for id in ends {
            if self.random.below(3) == 0 {
                continue;
            }
            let run = self.held.remove(&id).expect("listed above");
            happened.executing.remove(&id);
            let failed = self.random.below(10) == 0;
            let result = if failed { RunResult::Failed } else { RunResult::Succeeded };
            self.spool.insert((id, run.token), result);
        }
    }

    fn request(&mut self, is_last: bool) -> ClaimRequest {
        self.number += 1;
        let done = self.spool.iter().map(|((id, token), result)| DoneRun {
            id: id.clone(),
            token: *token,
            result: *result,
            final_failure: false,
            retry_after_ms: None,
            error: None,
            exit_code: None,
            started: None,
            took_ms: None,
        });
        let running =
            self.held.values().map(|run| HeldRun { id: run.id.clone(), token: run.token });
        let room = CAPACITY.saturating_sub(self.held.len());
        ClaimRequest {
            worker: self.name.clone(),
            incarnation: self.incarnation,
            number: self.number,
            settled: self.number - 1,
            cookie: self.cookie.clone(),
            queues: QUEUES.map(str::to_owned).to_vec(),
            free: if is_last { 0 } else { room as u64 },
            wait_ms: if self.held.is_empty() && !is_last { 500 } else { 0 },
            lease_ms: Some(LEASE_MS),
            done: done.collect(),
            running: running.collect(),
            ..ClaimRequest::default()
        }
    }

    async fn claim(&mut self, is_last: bool) {
        let request = self.request(is_last);
        let client = {
            let doors = self.doors.lock().unwrap();
            let door = self.random.below(doors.len() as u64);
            doors[usize::try_from(door).unwrap()].clone()
        };
        let sent = System.wall_us();
        let answer = match client.claim(&request).await {
            Ok(answer) => answer,
            Err(why) => {
                let is_refused =
                    matches!(&why, ClientError::Invalid(_) | ClientError::Forbidden(_));
                assert!(!is_refused, "{} is refused: {why}", self.name);
                // Not a wait for anything: a server that is away is not asked without a pause.
                return tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        self.cookie = Some(answer.cookie);
        let mut happened = self.happened.lock().unwrap();
        for ack in answer.acks {
            let known = self.spool.remove(&(ack.id.clone(), ack.token));
            if ack.counted && known == Some(RunResult::Succeeded) {
                happened.counted.insert(ack.id, ack.token);
            }
        }
        for lost in answer.lost {
            self.spool.remove(&(lost.id.clone(), lost.token));
            if self.held.get(&lost.id).is_some_and(|run| run.token == lost.token) {
                self.held.remove(&lost.id);
                happened.executing.remove(&lost.id);
            }
        }
        for run in answer.runs {
            happened.given(&run);
            happened.begins(&run);
            let answered = System.wall_us();
            happened.rated.extend((run.queue == RATED).then_some((sent, answered)));
            self.held.insert(run.id.clone(), run);
        }
    }
}

/// Submits runs in batches, each until it is acknowledged.
async fn submit(
    doors: Arc<Mutex<Vec<Client>>>,
    happened: Arc<Mutex<Happened>>,
    allowed: Arc<Semaphore>,
    count: usize,
    seed: u64,
) {
    let mut random = Random::new(seed);
    let mut left = count;
    while left > 0 {
        let len = usize::try_from(1 + random.below(30)).unwrap().min(left);
        let permits = u32::try_from(len).unwrap();
        allowed.acquire_many(permits).await.expect("it is never closed").forget();
        let queue = QUEUES[usize::try_from(random.below(3)).unwrap()];
        let mut run = || RunSpec {
            handler: Some("work".to_owned()),
            payload: Some(json!({"number": random.below(1_000_000)})),
            priority: Some(random.below(10)),
            key: (queue == KEYED).then(|| format!("key-{}", random.below(KEYS))),
            delivery: (random.below(4) == 0).then_some(Delivery::AtMostOnce),
            retry: Some(RetrySpec {
                attempts: Some(10),
                delay: Some("1s".to_owned()),
                backoff: Some(Backoff::Constant),
                max_delay: None,
            }),
            ..RunSpec::default()
        };
        let runs = (0..len).map(|_| run()).collect();
        let batch = BatchSpec { queue: queue.to_owned(), runs };
        let key = format!("batch-{seed}-{left}");
        let made = until("a batch is taken", PATIENCE * 4, || {
            let doors = doors.lock().unwrap();
            let door = usize::try_from(System.random() % doors.len() as u64).unwrap();
            let client = doors[door].once(&key).unwrap();
            let batch = &batch;
            async move { client.submit_batch(batch).await.ok() }
        })
        .await;
        let mut happened = happened.lock().unwrap();
        for (made, spec) in made.runs.into_iter().zip(&batch.runs) {
            let content = Content { queue: queue.to_owned(), payload: spec.payload.clone() };
            let is_once = spec.delivery == Some(Delivery::AtMostOnce);
            happened.at_most_once.extend(is_once.then(|| made.id.clone()));
            happened.acknowledged.insert(made.id, content);
        }
        left -= len;
    }
}

/// Workers and those who submit, while somebody else troubles servers.
pub(super) struct Crowd {
    happened: Arc<Mutex<Happened>>,
    pub(super) doors: Arc<Mutex<Vec<Client>>>,
    is_over: Arc<AtomicBool>,
    allowed: Arc<Semaphore>,
    workers: JoinSet<()>,
    submitters: JoinSet<()>,
}

impl Crowd {
    /// Workers, and those who submit so many runs once they may.
    pub(super) async fn start(clients: Vec<Client>, runs: usize) -> Self {
        let keyed = QueueSpec { per_key: Some(1), ..QueueSpec::default() };
        let narrow = QueueSpec { concurrency: Some(NARROW_MAX as u64), ..QueueSpec::default() };
        let per = format!("{}s", RATE_PERIOD.as_secs());
        let rate = Some(RateSpec { runs: RATE_RUNS as u64, per });
        let rated = QueueSpec { rate, ..QueueSpec::default() };
        for (name, spec) in [(KEYED, keyed), (NARROW, narrow), (RATED, rated)] {
            until("a queue is set", PATIENCE, || async {
                clients[0].set_queue(name, &spec, None).await.ok()
            })
            .await;
        }
        let (happened, doors) = (Arc::default(), Arc::new(Mutex::new(clients)));
        let is_over: Arc<AtomicBool> = Arc::default();
        let allowed = Arc::new(Semaphore::new(0));
        let (mut workers, mut submitters) = (JoinSet::new(), JoinSet::new());
        for index in 0..6 {
            let hand = Hand {
                name: format!("worker-{index}"),
                happened: Arc::clone(&happened),
                doors: Arc::clone(&doors),
                incarnation: 1,
                number: 0,
                cookie: None,
                held: BTreeMap::new(),
                spool: BTreeMap::new(),
                random: Random::new(index),
            };
            workers.spawn(hand.work(Arc::clone(&is_over)));
        }
        for seed in 0..2 {
            let (doors, happened) = (Arc::clone(&doors), Arc::clone(&happened));
            let allowed = Arc::clone(&allowed);
            submitters.spawn(submit(doors, happened, allowed, runs / 2, seed));
        }
        Self { happened, doors, is_over, allowed, workers, submitters }
    }

    /// So many more runs may be submitted.
    pub(super) fn allow(&self, runs: usize) {
        self.allowed.add_permits(runs);
    }

    /// Whether a worker has a run now.
    pub(super) fn is_busy(&self) -> bool {
        !self.happened.lock().unwrap().executing.is_empty()
    }

    /// Waits until everything is submitted and has ended.
    pub(super) async fn finish(mut self) -> Happened {
        self.allow(Semaphore::MAX_PERMITS / 2);
        while let Some(ended) = self.submitters.join_next().await {
            ended.unwrap();
        }
        for queue in QUEUES {
            until("a queue is empty", PATIENCE * 6, || async {
                let client = self.doors.lock().unwrap()[0].clone();
                let state = client.queue(queue).await.ok()?.state?;
                (state.waiting == 0 && state.running == 0).then_some(())
            })
            .await;
        }
        self.is_over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.workers.join_next().await {
            ended.unwrap();
        }
        Arc::into_inner(self.happened).unwrap().into_inner().unwrap()
    }
}

/// Holds what the store says against what happened, and prints the balance.
pub(super) fn check(happened: &Happened, ended: &[EndedRun], trouble: &str) {
    let faults = faults(happened, ended);
    assert!(faults.is_empty(), "{} faults, as {:?}", faults.len(), &faults[..faults.len().min(5)]);
    let mut tally: BTreeMap<End, usize> = BTreeMap::new();
    for run in ended.iter().filter(|ended| happened.acknowledged.contains_key(&ended.id)) {
        *tally.entry(run.run.end).or_default() += 1;
    }
    let executions: usize = happened.begun.values().map(Vec::len).sum();
    println!(
        "{} runs acknowledged, {} begun {executions} times, {trouble}, ended as {tally:?}; \
         of {RATED} {} within {RATE_PERIOD:?} at most",
        happened.acknowledged.len(),
        happened.begun.len(),
        happened.most_within_period(),
    );
    assert!(tally.get(&End::Succeeded).is_some_and(|count| *count > tally.len()), "{tally:?}");
}

/// Everything that is wrong, if anything is.
fn faults(happened: &Happened, ended: &[EndedRun]) -> Vec<String> {
    let mut faults = happened.faults.clone();
    let within = happened.most_within_period();
    if within > RATE_RUNS {
        faults.push(format!("{within} runs of {RATED} were given within {RATE_PERIOD:?}"));
    }
    let mut ends: BTreeMap<&str, &EndedRun> = BTreeMap::new();
    for run in ended.iter().filter(|ended| ended.run.queue.is_some()) {
        if ends.insert(&run.id, run).is_some() {
            faults.push(format!("{} has two final states", run.id));
        }
    }
    for (id, content) in &happened.acknowledged {
        let Some(run) = ends.get(id.as_str()) else {
            faults.push(format!("{id} was lost"));
            continue;
        };
        let begun = happened.begun.get(id).map_or(&[][..], Vec::as_slice);
        if begun.iter().any(|begun| begun.content != *content) {
            faults.push(format!("{id} was given as another one, not as {content:?}"));
        }
        if begun.len() > 1 && happened.at_most_once.contains(id) {
            faults.push(format!("{id} is at most once and began {} times", begun.len()));
        }
        let mut attempts: Vec<u32> = begun.iter().map(|begun| begun.attempt).collect();
        attempts.sort_unstable();
        let most = attempts.last().copied().unwrap_or(0);
        if most != run.run.attempt {
            faults.push(format!("{id} began attempt {most} of {}", run.run.attempt));
        }
        if attempts != (1..=most).collect::<Vec<_>>() {
            faults.push(format!("{id} has a gap: {attempts:?}, {run:?}"));
        }
        if happened.counted.contains_key(id) && run.run.end != End::Succeeded {
            faults.push(format!("{id} was acknowledged as carried out: {run:?}"));
        }
    }
    faults
}

mod tests {
    use super::*;

    fn claimed(id: &str, attempt: u32, token: u64) -> ClaimedRun {
        let run = json!({
            "id": id, "token": token, "attempt": attempt, "queue": KEYED, "key": "key-1", "payload": 7,
            "scheduled": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(run).unwrap()
    }

    fn ended(id: &str, end: &str, attempt: u32) -> EndedRun {
        let run = json!({
            "trigger": "0000000000001", "slot": "2026-01-01T00:00:00Z", "queue": { "name": KEYED }, "end": end,
            "at": "2026-01-01T00:00:01Z", "attempt": attempt,
        });
        EndedRun { id: id.to_owned(), run: serde_json::from_value(run).unwrap() }
    }

    /// A run that failed once and was carried out then.
    fn right() -> (Happened, Vec<EndedRun>) {
        let mut happened = Happened::default();
        let content = Content { queue: KEYED.to_owned(), payload: Some(json!(7)) };
        happened.acknowledged.insert("run".to_owned(), content);
        for (attempt, token) in [(1, 10), (2, 20)] {
            happened.given(&claimed("run", attempt, token));
            happened.begins(&claimed("run", attempt, token));
            happened.executing.clear();
        }
        happened.counted.insert("run".to_owned(), 20);
        (happened, vec![ended("run", "succeeded", 2)])
    }

    #[test]
    fn the_checker_notices_each_fault_that_a_bug_would_leave() {
        let (happened, ends) = right();
        assert_eq!(faults(&happened, &ends), Vec::<String>::new());
        let noticed = |words: &str, doctor: fn(&mut Happened, &mut Vec<EndedRun>)| {
            let (mut happened, mut ends) = right();
            doctor(&mut happened, &mut ends);
            let faults = faults(&happened, &ends);
            assert!(faults.iter().any(|fault| fault.contains(words)), "{words}: {faults:?}");
        };
        noticed("was lost", |_, ends| ends.clear());
        noticed("two final states", |_, ends| ends.push(ended("run", "dead", 2)));
        noticed("has a gap", |happened, _| {
            happened.begun.get_mut("run").unwrap().remove(0);
        });
        noticed("began attempt 2 of 1", |_, ends| ends[0].run.attempt = 1);
        noticed("began attempt 2 of 3", |_, ends| ends[0].run.attempt = 3);
        noticed("given as another one", |happened, _| {
            happened.acknowledged.get_mut("run").unwrap().payload = Some(json!(8));
        });
        noticed("began 2 times", |happened, _| {
            happened.at_most_once.insert("run".to_owned());
        });
        noticed("acknowledged as carried out", |_, ends| ends[0] = ended("run", "failed", 2));
        noticed("after its end", |happened, _| happened.given(&claimed("run", 3, 30)));
        noticed("twice", |happened, _| happened.begins(&claimed("run", 2, 30)));
        noticed("did not grow", |happened, _| happened.begins(&claimed("run", 3, 20)));
        noticed("two runs with the key", |happened, _| {
            happened.begins(&claimed("one", 1, 1));
            happened.begins(&claimed("two", 1, 1));
        });
        noticed("of mail were given within", |happened, _| {
            happened.rated = vec![(7, 9); RATE_RUNS + 1];
        });
        noticed("of thumbnails execute", |happened, _| {
            for index in 0..=NARROW_MAX {
                let run = claimed(&index.to_string(), 1, 1);
                happened.begins(&ClaimedRun { queue: NARROW.to_owned(), key: None, ..run });
            }
        });
    }
}

//! Very many runs wait: they are submitted, listed, cancelled by a filter and claimed in order, triggers of their shard go
//! on, and a server that is killed gives the next run soon after it was started again.
//!
//! The long form has a million of them, which asks for a program that was built to be quick: `make soak` names one in
//! `WATCHBELL_QUICK`. Everything that takes time is printed. How soon a server gives the next run after a restart is
//! checked where nothing else runs meanwhile, and how much memory runs take where there are so many that what a server
//! needs besides says little: in the long form.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::queue::{BatchSpec, QueueState, RunSpec};
use client::redrive::{CancelRunsRequest, CancelledRuns};
use client::run::Run;
use client::spec::{CatchUp, TriggerSpec};
use client::worker::{ClaimRequest, ClaimedRun, RunResult};
use client::{Client, RunFilter, Timestamp};
use engine::id::{ProjectId, ShardId};
use engine::limits::{
    CANCEL_REQUEST_RUNS_MAX, CLAIM_RUNS_MAX, QUEUE_WAITING_BYTES, SHARDS_DEFAULT, SUBMIT_RUNS_MAX,
};
use rig::{PATIENCE, Receiver, Reply, machine, redis, until};
use serde_json::json;
use store::clock::Stopwatch;
use store::machine::{Machine, System};
use tokio::task::JoinSet;

use super::process::{measured, place, resident_kib};
use super::queue_worker::{TestWorker, done};
use super::server::Server;

/// The queue in which so many wait.
const LARGE: &str = "letters";

/// Runs of another queue of the same shard, which came last.
const FEW: usize = 600;

/// Half of the runs have this label.
const LABEL: (&str, &str) = ("campaign", "spring");

/// From the start of a server on what waits to the answer that gives a run.
const RESTART_MAX: Duration = Duration::from_secs(5);

/// What a run that waits may take of a server's memory, and one that has a label.
const RUN_BYTES_MAX: usize = 200;
const LABELLED_RUN_BYTES_MAX: usize = 400;

/// From so many runs on their memory is checked.
const WEIGHED_MIN: usize = 250_000;

/// What a server may need besides: kept payloads, what is under way, and what its allocator has not given back.
const BESIDES_KIB_MAX: u64 = 160 * 1_024;

/// A page of a list.
const PAGE: usize = 500;

/// Those who submit at a time.
const SUBMITTERS: usize = 4;

async fn start(data: &Path) -> Server {
    let flags: &[&str] = &["--listen", "127.0.0.1:0", "--node", "test"];
    let program = measured();
    Server::start_by(|| Command::new(&program), &super::server::url(data), data, &[flags]).await
}

/// The first name of these that lives in a shard.
fn named(prefix: &str, is_there: impl Fn(&str) -> bool) -> String {
    let mut names = (0..).map(|number| format!("{prefix}-{number}"));
    names.find(|name| is_there(name)).unwrap()
}

/// What a run is, by its number: priorities come in turns.
fn run(number: usize, label: Option<(&str, &str)>) -> RunSpec {
    RunSpec {
        handler: Some("send".to_owned()),
        payload: Some(serde_json::json!({"number": number, "to": "somebody@example.com"})),
        priority: Some(number as u64 % 10),
        labels: label.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        ..RunSpec::default()
    }
}

/// Lets a queue have so many runs.
async fn fill(
    client: &Client,
    queue: &str,
    count: usize,
    label: Option<(&'static str, &'static str)>,
) {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..SUBMITTERS {
        let (client, queue, next) = (client.clone(), queue.to_owned(), Arc::clone(&next));
        tasks.spawn(async move {
            loop {
                let from = next.fetch_add(SUBMIT_RUNS_MAX, Ordering::SeqCst);
                let to = count.min(from + SUBMIT_RUNS_MAX);
                if from >= to {
                    return;
                }
                let runs = (from..to).map(|number| run(number, label)).collect();
                let batch = BatchSpec { queue: queue.clone(), runs };
                client.submit_batch(&batch).await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// All runs of a queue that are not finished, in the order in which they came, and how long the slowest page took.
async fn list(client: &Client, queue: &str) -> (Vec<Run>, Duration) {
    let (mut runs, mut slowest) = (Vec::new(), Duration::ZERO);
    let mut filter = RunFilter { limit: Some(PAGE), ..RunFilter::default() };
    loop {
        let watch = Stopwatch::start();
        let page = client.queue_runs(queue, &filter).await.unwrap();
        slowest = slowest.max(watch.elapsed());
        runs.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return (runs, slowest);
        }
    }
}

/// Cancels the runs with the label, or counts them, request by request.
async fn cancel(client: &Client, dry_run: bool) -> (u64, Duration) {
    let (mut matched, mut slowest) = (0, Duration::ZERO);
    let mut request = CancelRunsRequest {
        labels: BTreeMap::from([(LABEL.0.to_owned(), LABEL.1.to_owned())]),
        limit: (!dry_run).then_some(CANCEL_REQUEST_RUNS_MAX as u64),
        dry_run,
        ..CancelRunsRequest::default()
    };
    loop {
        let watch = Stopwatch::start();
        let told: CancelledRuns = client.cancel_runs(LARGE, &request).await.unwrap();
        slowest = slowest.max(watch.elapsed());
        matched += told.matched;
        request.cursor = told.next;
        if request.cursor.is_none() {
            return (matched, slowest);
        }
    }
}

async fn state(client: &Client, queue: &str) -> QueueState {
    client.queue(queue).await.unwrap().state.unwrap()
}

/// Runs that wait, in the order in which they have to be given.
fn in_order(listed: &[Run]) -> Vec<&Run> {
    let mut order: Vec<(u8, Timestamp, usize)> = listed
        .iter()
        .enumerate()
        .map(|(place, run)| (run.queued.as_ref().unwrap().priority.unwrap(), run.slot, place))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, _, place)| &listed[place]).collect()
}

fn has_label(run: &Run) -> bool {
    !run.queued.as_ref().unwrap().labels.is_empty()
}

/// Claims so many runs and carries them out, and tells which they were.
async fn work(worker: &mut TestWorker, client: &Client, count: usize) -> Vec<String> {
    let (mut ids, mut held): (_, Vec<ClaimedRun>) = (Vec::new(), Vec::new());
    loop {
        let results = held.iter().map(|run| done(run, RunResult::Succeeded)).collect();
        let free = (count - ids.len()).min(CLAIM_RUNS_MAX) as u64;
        let request = ClaimRequest { done: results, ..worker.request(free, 0) };
        let answer = worker.send(client, &request).await.unwrap();
        assert_eq!(answer.acks.iter().filter(|ack| ack.counted).count(), held.len());
        held = answer.runs;
        ids.extend(held.iter().map(|run| run.id.clone()));
        if held.is_empty() && ids.len() == count {
            return ids;
        }
    }
}

fn told(what: &str, took: Duration, more: &str) {
    println!("{what:34} {:9.3} s  {more}", took.as_secs_f64());
}

/// Tells how much memory a server has with so many runs that wait, plain ones and labelled ones. It has no more than it may,
/// if they are so many that this says something.
fn check_memory(server: &Server, empty_kib: u64, plain: usize, labelled: usize) {
    let kib = resident_kib(server.pid());
    let runs_kib = (plain * RUN_BYTES_MAX + labelled * LABELLED_RUN_BYTES_MAX) as u64 / 1_024;
    let each = kib.saturating_sub(empty_kib) * 1_024 / (plain + labelled) as u64;
    println!("  {plain} plain and {labelled} labelled runs: {kib} KiB, which is {each} bytes each");
    let is_within = kib < empty_kib + BESIDES_KIB_MAX + runs_kib;
    assert!(is_within || plain + labelled < WEIGHED_MIN, "{kib} KiB, {empty_kib} KiB when empty");
}

/// From the start of a server on what waits.
#[derive(Debug, Clone, Copy)]
struct RestartTimes {
    /// To the answer that gave a run.
    claim: Duration,
    /// To the next bell.
    bell: Duration,
}

impl RestartTimes {
    fn check(self) {
        assert!(self.claim < RESTART_MAX, "{self:?}");
        assert!(self.bell < RESTART_MAX + Duration::from_secs(1), "{self:?}");
    }
}

/// Kills a server and starts it again. The next run is this one, and the next bell rings.
async fn restart(
    mut server: Server,
    data: &Path,
    worker: &mut TestWorker,
    next: &str,
    receiver: &Receiver,
) -> (Server, RestartTimes) {
    server.kill();
    let (watch, begun_us) = (Stopwatch::start(), System.wall_us());
    let server = start(data).await;
    let client = server.client();
    let listens = watch.elapsed();
    let run = worker.claim_one(&client).await;
    let took = watch.elapsed();
    let rung_us = until("it rings", PATIENCE, || async {
        let heard = receiver.heard();
        heard.iter().map(|call| call.at_us).find(|at_us| *at_us > begun_us)
    });
    let rung = Duration::from_micros(rung_us.await - begun_us);
    let more = format!("it listened after {listens:?}, and the next bell rang after {rung:?}");
    told("restart to the first claim", took, &more);
    assert_eq!(run.id, next, "the next one, and none that was carried out");
    assert!(worker.report(&client, &run).await);
    (server, RestartTimes { claim: took, bell: rung })
}

/// Tells how soon it went on after each of two restarts.
async fn very_many_wait(count: usize, claimed: usize) -> [RestartTimes; 2] {
    let half = count / 2;
    let (_dir, data) = place();
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let server = start(&data).await;
    let client = server.client();
    let empty = resident_kib(server.pid());
    let shard = ShardId::of_queue(ProjectId::DEFAULT, LARGE, SHARDS_DEFAULT);
    let small = named("reports", |name| {
        ShardId::of_queue(ProjectId::DEFAULT, name, SHARDS_DEFAULT) == shard
    });
    let bell = named("bell", |name| ShardId::of(ProjectId::DEFAULT, name, SHARDS_DEFAULT) == shard);
    let mut spec = TriggerSpec::webhook(&*bell, receiver.url(0, "/bell")).every("1s");
    spec.catch_up = Some(CatchUp::All);
    client.create_trigger(&spec).await.unwrap();
    println!("{count} runs in {LARGE}, {FEW} in {small}, and {bell}, all in one shard");

    let watch = Stopwatch::start();
    fill(&client, LARGE, half, None).await;
    told("submit half of them", watch.elapsed(), "");
    check_memory(&server, empty, half, 0);
    let watch = Stopwatch::start();
    fill(&client, LARGE, half, Some(LABEL)).await;
    told("submit the other half, labelled", watch.elapsed(), "");
    check_memory(&server, empty, half, half);
    fill(&client, &small, FEW, None).await;
    assert_eq!(state(&client, LARGE).await.waiting, count as u64);

    let watch = Stopwatch::start();
    let first = RunFilter { limit: Some(PAGE), ..RunFilter::default() };
    assert_eq!(client.queue_runs(LARGE, &first).await.unwrap().items.len(), PAGE);
    told("list the first page", watch.elapsed(), "");
    let watch = Stopwatch::start();
    let (listed, slowest) = list(&client, LARGE).await;
    told("list all pages", watch.elapsed(), &format!("slowest page {slowest:?}"));
    assert_eq!(listed.len(), count, "each is listed");
    assert_eq!(listed.iter().map(|run| &run.id).collect::<HashSet<_>>().len(), count, "once");
    let watch = Stopwatch::start();
    let (few, slowest) = list(&client, &small).await;
    told("list the few of the other queue", watch.elapsed(), &format!("slowest page {slowest:?}"));
    assert_eq!(few.len(), FEW);

    let order = in_order(&listed);
    let mut worker = TestWorker::new("web-1", LARGE);
    let (server, first) = restart(server, &data, &mut worker, &order[0].id, &receiver).await;
    check_memory(&server, empty, half, half);
    let client = server.client();
    let left: Vec<&Run> = order.into_iter().skip(1).filter(|run| !has_label(run)).collect();
    let meant = listed.iter().filter(|run| has_label(run)).count() as u64;

    let watch = Stopwatch::start();
    let (matched, slowest) = cancel(&client, true).await;
    told("count half of them by label", watch.elapsed(), &format!("slowest request {slowest:?}"));
    assert_eq!(matched, meant);
    let watch = Stopwatch::start();
    let (matched, slowest) = cancel(&client, false).await;
    told("cancel half of them by label", watch.elapsed(), &format!("slowest request {slowest:?}"));
    assert_eq!(matched, meant);
    assert_eq!(cancel(&client, true).await.0, 0, "none is left");
    assert_eq!(state(&client, LARGE).await.waiting, left.len() as u64);
    assert_eq!(state(&client, &small).await.waiting, FEW as u64, "others are not meant");

    let is_next = |given: &[String], from: usize| {
        let expected = left[from..from + given.len()].iter().map(|run| &run.id);
        assert!(given.iter().eq(expected), "they are given in their order");
    };
    let watch = Stopwatch::start();
    let given = work(&mut worker, &client, claimed).await;
    told("claim and carry out", watch.elapsed(), &format!("{claimed} runs"));
    is_next(&given, 0);
    let (server, second) = restart(server, &data, &mut worker, &left[claimed].id, &receiver).await;
    check_memory(&server, empty, half, 0);
    let client = server.client();
    let now = state(&client, LARGE).await;
    assert_eq!((now.waiting, now.running), ((left.len() - claimed - 1) as u64, 0), "none is lost");
    is_next(&work(&mut worker, &client, claimed).await, claimed + 1);
    server.stop().await;
    [first, second]
}

/// Bytes of the memory of the Redis on which so few runs may wait.
const SMALL_ROOM: usize = 16 * 1_024 * 1_024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_little_room_takes_as_many_runs_of_a_queue_as_fit_and_says_so() {
    let _machine = machine::waits().await;
    let room = SMALL_ROOM.to_string();
    let redis = redis::Setup::durable().set("maxmemory", &room);
    let redis = tokio::task::block_in_place(|| redis.start());
    let (_dir, data) = place();
    let server = Server::start_on(&redis.url(), &data).await;
    let client = server.client();
    let most = SMALL_ROOM / usize::try_from(QUEUE_WAITING_BYTES).unwrap();
    fill(&client, LARGE, most, None).await;
    assert_eq!(state(&client, LARGE).await.waiting_max, most as u64);
    let one_more = json!({"queue": LARGE, "handler": "send"});
    let refused = server.ask("POST", "/v1/runs").body(&one_more).await.is(429).json();
    let sentence = format!(
        "the queue has {most} runs waiting, and at most {most} may: let workers claim some, or raise waiting_max"
    );
    assert_eq!(refused["detail"], sentence);
    // Other queues have bounds of their own.
    fill(&client, "reports", 1, None).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_wait_and_are_listed_cancelled_claimed_and_found_again() {
    let _machine = machine::works().await;
    very_many_wait(50_000, 5_000).await;
}

/// What is judged by time: see [`rig::machine`].
mod alone {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_next_of_many_runs_is_given_soon_after_a_restart() {
        let _machine = machine::alone().await;
        very_many_wait(50_000, 1_000).await.into_iter().for_each(RestartTimes::check);
    }
}

#[ignore = "some minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_runs_wait_and_are_listed_cancelled_claimed_and_found_again() {
    let _machine = machine::works().await;
    very_many_wait(1_000_000, 20_000).await.into_iter().for_each(RestartTimes::check);
}

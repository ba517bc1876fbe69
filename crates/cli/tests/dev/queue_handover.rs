//! Hand-overs while many polls wait: a server that leaves or comes takes shards along, and who waited there is told at once,
//! comes again, and is woken as before.
//!
//! Polls and submissions are numbered by one clock that only counts. A run that was submitted while everybody waits has
//! to be given to a poll that began before that: if it was not, nobody was woken, and the run lay there until somebody
//! happened to ask.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::queue::RunSpec;
use client::worker::{ClaimAnswer, ClaimRequest, ClaimedRun, RunResult};
use client::{Client, ClientError};
use rig::postgres::Postgres;
use rig::{PATIENCE, Random, machine, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::clock::Stopwatch;
use tokio::task::JoinSet;

use super::cluster::fleet::Fleet;
use super::cluster::opened;
use super::queue_worker::{TestWorker, done};

const QUEUES: usize = 6;

const POLLS: usize = 1_000;

const WAIT_MS: u64 = 12_000;

/// How much longer than asked for a poll may take on a machine that is busy.
const MARGIN: Duration = Duration::from_secs(8);

/// What pollers have seen.
#[derive(Default)]
struct Seen {
    /// Runs that were given: the number of the attempt, and when the poll had begun that got it.
    given: BTreeMap<String, Vec<(u32, u64)>>,
    /// Runs whose result was dealt with, and how often that was told as one that counted.
    counted: BTreeMap<String, u64>,
    longest: Duration,
    /// Polls that were broken off, by a server that left or a shard that moved.
    broken_off: u64,
}

impl Seen {
    /// A poll that began then has an answer, or none. Whether it has.
    fn note(
        &mut self,
        answer: Result<ClaimAnswer, ClientError>,
        took: Duration,
        begun: u64,
        finished: &mut Option<ClaimedRun>,
    ) -> bool {
        self.longest = self.longest.max(took);
        let Ok(answer) = answer else {
            self.broken_off += 1;
            return false;
        };
        for ack in answer.acks {
            *self.counted.entry(ack.id).or_default() += u64::from(ack.counted);
            *finished = None;
        }
        if let Some(run) = answer.runs.into_iter().next() {
            self.given.entry(run.id.clone()).or_default().push((run.attempt, begun));
            *finished = Some(run);
        }
        true
    }
}

struct Pollers {
    seen: Arc<Mutex<Seen>>,
    clock: Arc<AtomicU64>,
    doors: Arc<Mutex<Vec<Client>>>,
    /// Dropped with the test, and with it every poll.
    tasks: JoinSet<()>,
}

fn queue(index: usize) -> String {
    format!("queue-{}", index % QUEUES)
}

impl Pollers {
    fn start(clients: Vec<Client>, count: usize) -> Self {
        let (seen, clock) = (Arc::default(), Arc::default());
        let doors = Arc::new(Mutex::new(clients));
        let mut tasks = JoinSet::new();
        for index in 0..count {
            let worker = TestWorker::new(&format!("poller-{index}"), &queue(index));
            let random = Random::new(index as u64);
            let (seen, clock) = (Arc::clone(&seen), Arc::clone(&clock));
            tasks.spawn(poll(worker, random, Arc::clone(&doors), seen, clock));
        }
        Self { seen, clock, doors, tasks }
    }

    /// Waits until about everybody waits for a run: some have just been answered, and come again.
    async fn all_wait(&mut self, count: usize) {
        let client = self.doors.lock().unwrap()[0].clone();
        for index in 0..QUEUES {
            let expected = (0..count).filter(|poller| poller % QUEUES == index).count() as u64;
            until("everybody waits", PATIENCE * 2, || async {
                let state = client.queue(&queue(index)).await.ok()?.state?;
                (state.claims_waiting * 10 >= expected * 9).then_some(())
            })
            .await;
        }
        while let Some(ended) = self.tasks.try_join_next() {
            ended.unwrap();
        }
    }

    /// Submits a run to each queue, and tells their ids with when that was acknowledged.
    async fn submit(&self) -> Vec<(String, u64)> {
        let mut submitted = Vec::new();
        for index in 0..QUEUES {
            let (queue, handler) = (Some(queue(index)), Some("work".to_owned()));
            let spec = RunSpec { queue, handler, ..RunSpec::default() };
            let key = format!("run-{}", self.clock.fetch_add(1, Ordering::SeqCst));
            let made = until("a run is submitted", PATIENCE * 2, || {
                let client = self.doors.lock().unwrap()[0].once(&key).unwrap();
                let spec = &spec;
                async move { client.submit(spec).await.ok() }
            });
            let id = made.await.id;
            submitted.push((id, self.clock.fetch_add(1, Ordering::SeqCst)));
        }
        submitted
    }

    /// Waits until a run was given and its result has counted.
    async fn carried_out(&self, id: &str) {
        until(&format!("{id} is carried out"), PATIENCE * 2, || async {
            self.seen.lock().unwrap().counted.contains_key(id).then_some(())
        })
        .await;
    }
}

/// A worker that polls, carries out at once what it is given, and goes to another server when one does not answer.
async fn poll(
    mut worker: TestWorker,
    mut random: Random,
    doors: Arc<Mutex<Vec<Client>>>,
    seen: Arc<Mutex<Seen>>,
    clock: Arc<AtomicU64>,
) {
    let mut finished: Option<ClaimedRun> = None;
    loop {
        let client = random.pick(&doors.lock().unwrap()).unwrap().clone();
        let results = finished.iter().map(|run| done(run, RunResult::Succeeded)).collect();
        let free = u64::from(finished.is_none());
        let request = ClaimRequest { done: results, ..worker.request(free, WAIT_MS) };
        let (begun, took) = (clock.fetch_add(1, Ordering::SeqCst), Stopwatch::start());
        let answer = worker.send(&client, &request).await;
        let took = took.elapsed();
        if !seen.lock().unwrap().note(answer, took, begun, &mut finished) {
            // Not a wait for anything: a server that is away is not asked without a pause.
            tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
        }
    }
}

/// Lets servers leave and come while so many polls wait, so often.
async fn hand_overs(polls: usize, rounds: usize) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let postgres = tokio::task::block_in_place(|| Postgres::start(&[]));
    let direct = opened(&postgres.url()).await;
    let mut fleet = Fleet::on(&["a", "b", "c"], &postgres.url(), &direct).await;
    fleet.settled().await;
    let client = |fleet: &Fleet, name: &str| {
        Client::builder(&fleet.url(name)).key(&fleet.admin).retries(0).build().unwrap()
    };
    let all: Vec<Client> = ["a", "b", "c"].map(|name| client(&fleet, name)).into();
    reported_elsewhere(&all).await;
    let mut pollers = Pollers::start(all.clone(), polls);
    pollers.all_wait(polls).await;
    let mut submitted = Vec::new();
    for round in 0..rounds {
        // Shards of one server move to the others in order, and back.
        fleet.drain("b").await;
        submitted.extend(pollers.submit().await);
        fleet.settled_among(&["a", "c"]).await;
        woken(&mut pollers, polls).await;
        fleet.undrain("b").await;
        submitted.extend(pollers.submit().await);
        fleet.settled().await;
        woken(&mut pollers, polls).await;
        // A server leaves, and comes again.
        *pollers.doors.lock().unwrap() = all[..2].to_vec();
        fleet.stop("c").await;
        submitted.extend(pollers.submit().await);
        fleet.settled().await;
        woken(&mut pollers, polls).await;
        fleet.bring_back("c").await;
        submitted.extend(pollers.submit().await);
        fleet.settled().await;
        pollers.doors.lock().unwrap().clone_from(&all);
        woken(&mut pollers, polls).await;
        println!("round {round} is over");
    }
    for (id, _) in &submitted {
        pollers.carried_out(id).await;
    }
    let seen = pollers.seen.lock().unwrap();
    let twice = seen.counted.iter().find(|(_, count)| **count > 1);
    assert_eq!(twice, None, "a result counts once");
    assert!(seen.broken_off > 0, "hand-overs are told to those who wait");
    let most = Duration::from_millis(WAIT_MS) + MARGIN;
    assert!(seen.longest < most, "somebody waited for {:?}", seen.longest);
    println!(
        "{polls} polls, {} runs carried out, {} polls broken off, the longest took {:?}",
        seen.counted.len(),
        seen.broken_off,
        seen.longest
    );
}

/// What a worker has goes on and is reported, whichever server it speaks to, though it claims from other queues by then.
async fn reported_elsewhere(clients: &[Client]) {
    for index in 0..QUEUES {
        let (one, other) = (&clients[index % 3], &clients[(index + 1) % 3]);
        let (queue, handler) = (queue(index), Some("work".to_owned()));
        let spec = RunSpec { queue: Some(queue.clone()), handler, ..RunSpec::default() };
        until("a run is submitted", PATIENCE, || async { one.submit(&spec).await.ok() }).await;
        let mut worker = TestWorker::new(&format!("mover-{index}"), &queue);
        let run = worker.claim_one(one).await;
        "elsewhere".clone_into(&mut worker.queue);
        let answer = worker.beat(other, std::slice::from_ref(&run)).await.unwrap();
        assert_eq!((answer.lost, answer.unheard), (Vec::new(), Vec::new()), "{queue}");
        assert!(worker.report(other, &run).await, "{queue}");
    }
}

/// When everybody waits, a run is given to somebody who does.
async fn woken(pollers: &mut Pollers, polls: usize) {
    pollers.all_wait(polls).await;
    let submitted = pollers.submit().await;
    for (id, acknowledged) in submitted {
        pollers.carried_out(&id).await;
        let given = pollers.seen.lock().unwrap().given[&id].clone();
        let is_woken = given.iter().any(|(_, begun)| *begun < acknowledged);
        assert!(is_woken, "{id} was submitted at {acknowledged}, and nobody was woken: {given:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_though_shards_move_while_many_polls_wait() {
    let _machine = machine::works().await;
    hand_overs(POLLS, 1).await;
}

#[ignore = "long: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_in_many_hand_overs() {
    let _machine = machine::works().await;
    hand_overs(POLLS, 15).await;
}

//! Simulated workers of queues, and those who submit runs to them.
//!
//! A worker keeps the rules of docs/queues.md: one claim at a time, everything that it has is named, and results are repeated
//! until they are dealt with. It is stopped and killed now and then; what it has begun and what came of it is on its
//! disk, and its next life reports it. Requests and answers are lost, doubled and late.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::id::{ProjectId, RunId};
use engine::past::Attempt;
use engine::policy::{Backoff, Delivery, Retry};
use engine::queue::given::{AttemptResult, GivenPolicy, RunToken};
use engine::queue::pick::Pick;
use engine::queue::submitted::UniqueKey;
use engine::shard::{ClaimCall, DoneCall, ShardAnswer, Submission, WorkerCall, WorkerReply};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::Fleet;
use super::fault::storm;
use super::queue::{QUEUES, QueueCall};
use crate::clock::{MS, TrueTime};
use crate::dice::Dice;
use crate::sim_store::NodeIndex;

/// Workers, half of them for each queue.
const WORKERS: usize = 6;

/// How long a worker may be silent.
const LEASE_MS: u32 = 10_000;

/// By its own account a worker has what it was told to have for so long: clocks of servers run faster by a tenth.
const CONFIRMED: TrueTime = 9_000 * MS;

/// Runs that a worker has at a time.
const CAPACITY: usize = 4;

/// How long a worker waits for an answer, beside what the server is asked to wait.
const ANSWER: TrueTime = 2_000 * MS;

const KEYS: u64 = 3;

/// What survives a worker's death.
#[derive(Default)]
struct Disk {
    incarnation: u64,
    begun: BTreeMap<RunId, RunToken>,
    results: BTreeMap<(RunId, RunToken), AttemptResult>,
}

/// Starts all workers and those who submit.
pub fn start(fleet: &Fleet, dice: &mut Dice) {
    for worker in 0..WORKERS {
        let disk = Arc::default();
        boot(fleet, worker, &disk, dice.fork());
    }
    for queue in 0..QUEUES.len() {
        let (fleet, dice) = (fleet.clone(), dice.fork());
        fleet.world.clone().spawn(|_| submit(fleet, queue, dice));
    }
}

/// Starts a life of a worker, and plans what goes wrong with it.
fn boot(fleet: &Fleet, worker: usize, disk: &Arc<Mutex<Disk>>, mut dice: Dice) {
    let life = dice.fork();
    let process = fleet.world.spawn(|_| {
        let (fleet, disk) = (fleet.clone(), Arc::clone(disk));
        work(fleet, worker, disk, life)
    });
    let (later, disk) = (fleet.clone(), Arc::clone(disk));
    let delay = dice.between(2_000, 20_000) * MS;
    fleet.world.after(delay, move |world| {
        if world.now() > storm(&later) {
            return;
        }
        let length = dice.between(100, 14_000) * MS;
        if dice.chance(50) {
            later.world.trace(process, || format!("worker {worker} is stopped"));
            world.pause(process);
            world.after(length, move |world| world.resume(process));
        }
        let dies = dice.between(0, length);
        world.after(length + dies, move |world| {
            later.world.trace(process, || format!("worker {worker} is killed"));
            world.kill(process);
            boot(&later, worker, &disk, dice);
        });
    });
}

/// A life of a worker.
struct Life {
    fleet: Fleet,
    worker: usize,
    disk: Arc<Mutex<Disk>>,
    dice: Dice,
    number: u64,
    cookie: u64,
    /// The server that answered last.
    server: NodeIndex,
}

async fn work(fleet: Fleet, worker: usize, disk: Arc<Mutex<Disk>>, mut dice: Dice) {
    {
        let mut disk = disk.lock().expect("nobody panics with it");
        disk.incarnation += 1;
        // What had begun without a result is dead.
        for (run, token) in std::mem::take(&mut disk.begun) {
            fleet.hall.put_down(worker, run);
            disk.results.insert((run, token), AttemptResult::Died);
        }
    }
    let server = index(&mut dice, fleet.setting.servers);
    let mut life = Life { fleet, worker, disk, dice, number: 0, cookie: 0, server };
    while !(life.fleet.hall.is_over() && life.has_nothing()) {
        let pause = life.dice.between(20, 400) * MS;
        life.fleet.world.sleep(pause).await;
        life.finish_some();
        life.speak().await;
    }
}

fn index(dice: &mut Dice, len: usize) -> usize {
    usize::try_from(dice.between(0, len as u64 - 1)).expect("an index fits")
}

impl Life {
    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.disk.lock().expect("nobody panics with it")
    }

    fn has_nothing(&self) -> bool {
        let disk = self.disk();
        disk.begun.is_empty() && disk.results.is_empty()
    }

    /// Some runs end, and their results are kept.
    fn finish_some(&mut self) {
        let runs: Vec<(RunId, RunToken)> =
            self.disk().begun.iter().map(|(run, token)| (*run, *token)).collect();
        for (run, token) in runs {
            if self.dice.chance(40) {
                continue;
            }
            let result = match self.dice.between(0, 9) {
                0 => AttemptResult::Failed { retry_after: Some(Duration::from_millis(500)) },
                1 => AttemptResult::Stopped,
                _ => AttemptResult::Succeeded,
            };
            self.fleet.hall.put_down(self.worker, run);
            let mut disk = self.disk();
            disk.begun.remove(&run);
            disk.results.insert((run, token), result);
        }
    }

    fn call(&mut self) -> WorkerCall {
        self.number += 1;
        let wait_ms = if self.dice.chance(50) { self.dice.between(500, 3_000) } else { 0 };
        let disk = self.disk();
        let done = disk.results.iter().map(|((run, token), result)| DoneCall {
            run: *run,
            token: *token,
            result: *result,
            made: Some(Attempt::default()),
        });
        let free = CAPACITY.saturating_sub(disk.begun.len());
        let queue = QUEUES[self.worker % QUEUES.len()];
        let is_over = self.fleet.hall.is_over();
        WorkerCall {
            project: ProjectId::DEFAULT,
            worker: format!("{queue}-{}", self.worker).into(),
            incarnation: disk.incarnation,
            number: self.number,
            settled: self.number - 1,
            lease_ms: LEASE_MS,
            since: 0,
            is_draining: false,
            done: done.collect(),
            released: Vec::new(),
            running: Some(disk.begun.iter().map(|(run, token)| (*run, *token)).collect()),
            claim: Some(ClaimCall {
                cookie: self.cookie,
                queues: vec![queue.into()],
                free: if is_over { 0 } else { free },
                wait_ms,
                labels: Arc::default(),
            }),
        }
    }

    /// Claims, reports and beats, all in one.
    async fn speak(&mut self) {
        let call = self.call();
        let named: Vec<(RunId, RunToken)> = call.running.clone().unwrap_or_default();
        let sent = self.fleet.world.now();
        let Some(reply) = self.ask(call).await else {
            self.server = index(&mut self.dice, self.fleet.setting.servers);
            return;
        };
        self.cookie = reply.cookie;
        let until = sent + CONFIRMED;
        let mut disk = self.disk.lock().expect("nobody panics with it");
        for (run, token, _) in &reply.acks {
            disk.results.remove(&(*run, *token));
        }
        for (run, token) in &reply.lost {
            disk.results.remove(&(*run, *token));
            if disk.begun.get(run) == Some(token) {
                disk.begun.remove(run);
                self.fleet.hall.put_down(self.worker, *run);
            }
        }
        for (run, token) in named {
            if disk.begun.get(&run) == Some(&token) {
                self.fleet.hall.confirmed(self.worker, run, token, until);
            }
        }
        for given in &reply.runs {
            // What is begun may begin no later than it is confirmed for.
            if self.fleet.world.now() < until {
                disk.begun.insert(given.id, given.given.token);
                self.fleet.hall.begins(given.id, &given.given);
                self.fleet.hall.confirmed(self.worker, given.id, given.given.token, until);
            }
        }
    }

    /// Sends a call over a network that loses, doubles and delays, and waits for the answer.
    async fn ask(&mut self, call: WorkerCall) -> Option<WorkerReply> {
        let is_stormy = self.fleet.world.now() < storm(&self.fleet);
        let patience = call.claim.as_ref().map_or(0, |claim| claim.wait_ms) * MS + ANSWER;
        let delay = self.delay();
        if is_stormy && self.dice.chance(5) {
            // It comes when nobody listens any more, or never.
            let late = self.dice.chance(50).then(|| self.delay() * 20);
            self.send_later(call, late);
            self.fleet.world.sleep(delay).await;
            return None;
        }
        if is_stormy && self.dice.chance(5) {
            let late = self.delay() * 20;
            self.send_later(call.clone(), Some(late));
        }
        let (reply, answer) = oneshot::channel();
        let (hall, world) = (Arc::clone(&self.fleet.hall), self.fleet.world.clone());
        world.sleep(delay).await;
        hall.call(self.server, QueueCall::Worker(Box::new(call), reply));
        let answer = tokio::select! {
            biased;
            answer = answer => answer.ok(),
            () = world.sleep(patience) => None,
        };
        let back = self.delay();
        world.sleep(back).await;
        if is_stormy && self.dice.chance(5) {
            return None;
        }
        match answer? {
            ShardAnswer::Worker(reply) => Some(*reply),
            _ => None,
        }
    }

    /// A copy of a call arrives later, at any server, and nobody hears its answer.
    fn send_later(&mut self, call: WorkerCall, late: Option<TrueTime>) {
        let fleet = self.fleet.clone();
        if let Some(late) = late {
            let server = index(&mut self.dice, fleet.setting.servers);
            self.fleet.world.after(late, move |_| {
                let (reply, _) = oneshot::channel();
                fleet.hall.call(server, QueueCall::Worker(Box::new(call), reply));
            });
        }
    }

    fn delay(&mut self) -> TrueTime {
        if self.dice.chance(5) {
            self.dice.between(1, 1_000) * MS
        } else {
            self.dice.between(1, 40) * MS
        }
    }
}

/// Submits runs to a queue until things are mended, each until it is acknowledged.
async fn submit(fleet: Fleet, queue: usize, mut dice: Dice) {
    let mut number = 0_u64;
    while fleet.world.now() < storm(&fleet) {
        fleet.world.sleep(dice.between(100, 1_500) * MS).await;
        number += 1;
        let key = (queue == 1).then(|| dice.between(1, KEYS));
        let run = submission(number, key, &mut dice);
        loop {
            let (reply, answer) = oneshot::channel();
            let server = index(&mut dice, fleet.setting.servers);
            fleet.hall.call(server, QueueCall::Submit(queue, Box::new(run.clone()), reply));
            let made = tokio::select! {
                biased;
                made = answer => made.ok(),
                () = fleet.world.sleep(ANSWER) => None,
            };
            // An answer that is lost is asked for again: the unique key stands for the same run.
            if let Some(id) = made.filter(|_| !dice.chance(5)) {
                fleet.hall.acknowledged(id, key);
                break;
            }
            fleet.world.sleep(dice.between(50, 400) * MS).await;
        }
    }
}

fn submission(number: u64, key: Option<u64>, dice: &mut Dice) -> Submission {
    let once = dice.chance(20);
    Submission {
        priority: dice.pick(&[0, 5, 9]),
        due: None,
        expires: None,
        key: key.map(|key| key.to_string().into()),
        unique: Some(UniqueKey { key: number.to_string().into(), window_ms: 3_600_000 }),
        labels: None,
        policy: GivenPolicy {
            delivery: if once { Delivery::AtMostOnce } else { Delivery::AtLeastOnce },
            retry: Retry {
                attempts: 3,
                delay_ms: 500,
                backoff: Backoff::Constant,
                max_delay_ms: 500,
            },
        },
        timeout_ms: None,
        pick: Pick::Any,
        action: RawValue::from_string("{}".to_owned()).expect("an object"),
    }
}

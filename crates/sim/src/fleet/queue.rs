//! Queues of whole servers: how workers and those who submit reach a server, and what has to be true of what they are told.
//!
//! A server that serves takes calls at a door; whoever knocks while there is none, or when it goes, gets no answer. What
//! a server answers is looked at as it leaves it, before the network can lose it: no run is given after its success was
//! told as one that counted, tokens only grow, no result counts twice, and what a worker has that was heard within its
//! lease is given to nobody else, nor is another run of its key. In the end the store says what became of every run
//! that was acknowledged. That attempts are counted right is looked at whenever something lands ([`super::attempt`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::id::{ProjectId, RunId, ShardId};
use engine::past::End;
use engine::queue::dead::{dead, dead_at};
use engine::queue::given::{AttemptResult, GivenRecord, RunToken};
use engine::queue::record::queued;
use engine::shard::command::{Command, Done};
use engine::shard::{ShardAnswer, Submission, WorkerCall, WorkerReply};
use server::handle::{CommandOptions, NodeHandle, ShardAsk};
use store::{Commit, Range};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Fleet;
use super::attempt::Attempts;
use crate::clock::TrueTime;
use crate::shard::promise::ShardPromise;
use crate::sim_store::{NodeIndex, at_once};
use crate::slot_records::SlotRecords;

/// The queues that there are. Of the second one, one run of each key executes at a time.
pub const QUEUES: [&str; 2] = ["mail", "reports"];

/// What is said to a server.
pub enum QueueCall {
    /// A worker says something, and hears what a shard answers.
    Worker(Box<WorkerCall>, oneshot::Sender<ShardAnswer>),
    /// A run is submitted to a queue.
    Submit(usize, Box<Submission>, oneshot::Sender<RunId>),
}

/// A run that a worker has, as far as the worker knows.
#[derive(Debug, Clone)]
struct HeldBy {
    worker: usize,
    token: RunToken,
    /// Until then nobody else may have it.
    until: TrueTime,
}

/// What is known of queues, all servers together.
#[derive(Default)]
pub struct Hall {
    doors: Mutex<BTreeMap<NodeIndex, mpsc::UnboundedSender<QueueCall>>>,
    state: Mutex<HallState>,
}

/// What was told and what was done.
#[derive(Default)]
struct HallState {
    acknowledged: BTreeSet<RunId>,
    /// Keys of runs that have one.
    keys: BTreeMap<RunId, u64>,
    /// To whom each run was given last, and under which token, as servers said.
    given: BTreeMap<RunId, (usize, RunToken)>,
    counted: BTreeSet<(RunId, RunToken)>,
    succeeded: BTreeSet<RunId>,
    held: BTreeMap<RunId, HeldBy>,
    attempts: Attempts,
    is_over: bool,
}

/// The shard of a queue.
pub fn shard_of(fleet: &Fleet, queue: usize) -> ShardId {
    ShardId::of_queue(ProjectId::DEFAULT, QUEUES[queue], fleet.setting.shards)
}

impl Hall {
    /// Calls a server, if it takes calls.
    pub fn call(&self, server: NodeIndex, call: QueueCall) {
        if let Some(door) = self.doors().get(&server) {
            // One that has gone drops it, and with it whoever waits for the answer is told.
            let _gone = door.send(call);
        }
    }

    /// Nothing more is submitted, and workers that have nothing end.
    pub fn close(&self) {
        self.state().is_over = true;
    }

    /// Whether it is closed.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Whoever submitted a run was told that it is there.
    pub fn acknowledged(&self, run: RunId, key: Option<u64>) {
        let mut state = self.state();
        state.acknowledged.insert(run);
        state.keys.extend(key.map(|key| (run, key)));
    }

    /// A worker was told that it has a run, by the answer to a request that it sent so that it is good until then.
    pub fn confirmed(&self, worker: usize, run: RunId, token: RunToken, until: TrueTime) {
        self.state().held.insert(run, HeldBy { worker, token, until });
    }

    /// A worker has a run no more, whatever servers know.
    pub fn put_down(&self, worker: usize, run: RunId) {
        let mut state = self.state();
        if state.held.get(&run).is_some_and(|held| held.worker == worker) {
            state.held.remove(&run);
        }
    }

    /// A worker begins an attempt.
    pub fn begins(&self, run: RunId, given: &GivenRecord) {
        self.state().attempts.begins(run, given);
    }

    /// How many attempts began, and how many are told of that never did.
    pub fn begun(&self) -> (u64, u64) {
        self.state().attempts.begun()
    }

    /// A commit has landed in the store.
    pub fn landed(&self, commit: &Commit) {
        self.state().attempts.landed(commit);
    }

    /// Accuses of what was wrong about attempts since this was last called.
    pub fn tell(&self, fleet: &Fleet) {
        let wrong = self.state().attempts.take_wrong();
        for (promise, what) in wrong {
            fleet.accuse(promise, what);
        }
    }

    /// A server answers a worker.
    fn answers(&self, fleet: &Fleet, worker: usize, results: &Results, reply: &WorkerReply) {
        let now = fleet.world.now();
        let mut state = self.state();
        let mut wrong = Vec::new();
        for (run, token, _) in reply.acks.iter().filter(|(_, _, counted)| *counted) {
            if !state.counted.insert((*run, *token)) {
                wrong.push((ShardPromise::OneState, format!("a result of {run} counts twice")));
            }
            if results.get(run) == Some(&AttemptResult::Succeeded) {
                state.succeeded.insert(*run);
            }
        }
        for given in &reply.runs {
            let (run, token) = (given.id, given.given.token);
            if state.succeeded.contains(&run) {
                wrong.push((ShardPromise::OneState, format!("{run} is given after its success")));
            }
            let former = state.given.insert(run, (worker, token));
            // The same claim again gets the same again.
            let is_repeated = former == Some((worker, token));
            if !is_repeated && former.is_some_and(|(_, last)| last >= token) {
                wrong.push((ShardPromise::NumbersGrow, format!("the token of {run}")));
            }
            let key = state.keys.get(&run).copied();
            for (other, held) in state.held.iter().filter(|(_, held)| held.until > now) {
                let is_other_worker = held.worker != worker && held.token != token;
                if *other == run && is_other_worker {
                    let what = format!("{run} is given to {worker}, and {held:?} is heard");
                    wrong.push((ShardPromise::LeftAlone, what));
                }
                let is_same_key = key.is_some() && state.keys.get(other).copied() == key;
                if *other != run && is_same_key {
                    let what = format!("{run} is given beside {other} of {held:?}");
                    wrong.push((ShardPromise::LimitIsExact, what));
                }
            }
        }
        drop(state);
        for (promise, what) in wrong {
            fleet.accuse(promise, what);
        }
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<NodeIndex, mpsc::UnboundedSender<QueueCall>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, HallState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker says came of its runs.
type Results = BTreeMap<RunId, AttemptResult>;

/// Takes calls for a node, for as long as this is polled.
pub async fn serve(fleet: Fleet, server: NodeIndex, handle: NodeHandle) {
    let (door, mut calls) = mpsc::unbounded_channel();
    fleet.hall.doors().insert(server, door);
    let mut under_way = JoinSet::new();
    while let Some(call) = calls.recv().await {
        under_way.spawn(answer(fleet.clone(), handle.clone(), call));
        while under_way.try_join_next().is_some() {}
    }
}

/// Answers a call, or drops it.
async fn answer(fleet: Fleet, handle: NodeHandle, call: QueueCall) {
    match call {
        QueueCall::Worker(call, reply) => {
            let queue = usize::from(call.worker.starts_with(QUEUES[1]));
            let (_, number) = call.worker.rsplit_once('-').expect("a name with a number");
            let worker = number.parse().expect("a number");
            let results = call.done.iter().map(|done| (done.run, done.result)).collect();
            let guard = handle.ask_guard(shard_of(&fleet, queue));
            let Ok(answer) = handle.ask_shard(&guard, ShardAsk::Worker(call)).await else { return };
            if let ShardAnswer::Worker(told) = &answer {
                fleet.hall.answers(&fleet, worker, &results, told);
            }
            let _gone = reply.send(answer);
        }
        QueueCall::Submit(queue, run, reply) => {
            let (name, author) = (QUEUES[queue].into(), "simulation".to_owned());
            let project = ProjectId::DEFAULT;
            let command = Command::Submit { project, queue: name, runs: vec![*run], author };
            let options = CommandOptions::default();
            let done = handle.command_with(shard_of(&fleet, queue), command, options).await;
            if let Ok(Done::Submitted(taken)) = done {
                let _gone = reply.send(taken[0].id);
            }
        }
    }
}

/// What the store says of queues, once nobody writes to it: every run that was acknowledged ended once.
pub fn check(fleet: &Fleet) {
    let store = fleet.sim_store.store();
    let records = at_once(SlotRecords::of(&store));
    let mut state = fleet.hall.state();
    let mut ends: BTreeMap<RunId, End> = BTreeMap::new();
    for ended in records.runs.iter().filter(|ended| ended.run.queue.is_some()) {
        let id: RunId = ended.id.parse().expect("made by us");
        if ends.insert(id, ended.run.end).is_some() {
            fleet.accuse(ShardPromise::OneState, format!("{id} has two ends"));
        }
        state.attempts.ended(id, &ended.run);
    }
    let unfinished = unfinished(fleet);
    // What was submitted or failed while a clock was far ahead is due when right clocks get there.
    if fleet.setting.apart.is_none()
        && let Some((shard, sequence)) = unfinished.first()
    {
        let what = format!("{} runs of queues wait, as {sequence} in {shard}", unfinished.len());
        fleet.accuse(ShardPromise::NothingIsStuck, what);
    }
    for run in &state.acknowledged {
        if !ends.contains_key(run) && !unfinished.contains(&(run.shard, run.trigger.0)) {
            fleet.accuse(ShardPromise::AcknowledgedHolds, format!("{run} is lost"));
        }
        if state.succeeded.contains(run) && ends.get(run).is_some_and(|end| *end != End::Succeeded)
        {
            let what = format!("{run} has succeeded, and is on record as {:?}", ends[run]);
            fleet.accuse(ShardPromise::OneState, what);
        }
    }
}

/// Runs of queues that wait or are given, by their shards and numbers, as the store has them. What a dead run was about
/// stays where it was.
pub fn unfinished(fleet: &Fleet) -> BTreeSet<(ShardId, u64)> {
    let store = fleet.sim_store.store();
    let mut unfinished = BTreeSet::new();
    for shard in (0..fleet.setting.shards).map(ShardId) {
        let prefix = queued(shard);
        let page = at_once(store.scan(Range::prefix(&prefix), 1_000)).expect("it is open");
        let orders = page.entries.iter().filter_map(|entry| {
            engine::queue::record::placed_at(shard, entry.key.as_str()).map(|(_, order)| order)
        });
        unfinished.extend(orders.map(|order| (shard, order.sequence)));
        let page = at_once(store.scan(Range::prefix(&dead(shard)), 1_000)).expect("it is open");
        let dead = page.entries.iter().filter_map(|entry| dead_at(shard, entry.key.as_str()));
        for (_, sequence) in dead {
            unfinished.remove(&(shard, sequence));
        }
    }
    unfinished
}

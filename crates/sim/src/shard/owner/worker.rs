//! The worker of the queue that triggers feed: it claims, carries out and reports, one request at a time.
//!
//! It lives as long as the simulation, while owners come and go. What can go wrong between workers and owners is tried by
//! the world of queues (`crates/engine/tests/engine/queue.rs`); here no message is lost, but by an owner that dies before
//! it answers.

use engine::id::{ProjectId, RunId};
use engine::past::Attempt;
use engine::queue::given::{AttemptResult, RunToken};
use engine::shard::{ClaimCall, DoneCall, Now, ShardAnswer, Ticket, WorkerCall, WorkerReply};

use super::super::draft::QUEUE;
use super::super::oracle::{Broken, ObservedRun};
use super::super::promise::ShardPromise;
use super::super::simulation::Simulation;
use super::Owner;

/// The ticket of whatever the worker asks.
const TICKET: Ticket = Ticket(u64::MAX);

/// Runs that it has at a time.
const CAPACITY: usize = 3;

/// It says something so often, in milliseconds.
const BEAT_MS: u64 = 900;

/// The worker of the queue.
#[derive(Default)]
pub struct FedWorker {
    number: u64,
    cookie: u64,
    has: Vec<Carried>,
    /// When it says something again, in true time.
    next: u64,
    /// Runs that it was given.
    pub given: u64,
}

/// A run that a worker carries out.
struct Carried {
    id: RunId,
    token: RunToken,
    run: ObservedRun,
    /// When it is done, in true time.
    ends: u64,
    result: AttemptResult,
}

impl FedWorker {
    /// What it says now.
    fn call(&mut self, project: ProjectId, now: u64, at: Now) -> WorkerCall {
        self.number += 1;
        let made = Some(Attempt { at: at.wall, ms: 1, ..Attempt::default() });
        let done = self.has.iter().filter(|carried| carried.ends <= now);
        let done = done.map(|carried| DoneCall {
            run: carried.id,
            token: carried.token,
            result: carried.result,
            made: made.clone(),
        });
        let running = self.has.iter().filter(|carried| carried.ends > now);
        let running: Vec<_> = running.map(|carried| (carried.id, carried.token)).collect();
        let free = CAPACITY.saturating_sub(self.has.len());
        let queues = vec![QUEUE.into()];
        WorkerCall {
            project,
            worker: "clerk".into(),
            incarnation: 1,
            number: self.number,
            settled: self.number - 1,
            lease_ms: 600_000,
            since: 0,
            is_draining: false,
            done: done.collect(),
            released: Vec::new(),
            running: Some(running),
            claim: Some(ClaimCall {
                cookie: self.cookie,
                queues,
                free,
                wait_ms: 0,
                labels: "".into(),
            }),
        }
    }
}

impl Owner {
    /// The worker says something, if it is time and it waits for no answer.
    pub(super) fn hear_worker(&mut self, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        if sim.setting.feeds == 0 || self.is_asked_by_worker || sim.now < sim.worker.next {
            return Ok(());
        }
        if self.leaving.is_some() {
            return Ok(());
        }
        self.is_asked_by_worker = true;
        let call = sim.worker.call(ProjectId::DEFAULT, sim.now, now);
        sim.note(|| format!("the worker says {call:?}"));
        self.shard.hear(call, TICKET, now);
        let answers = self.shard.take_answers();
        self.answer_worker(answers, sim)
    }

    /// When the worker says something again, if it waits for no answer.
    pub(super) fn next_of_worker(&self, sim: &Simulation) -> Option<u64> {
        let is_silent = sim.setting.feeds == 0 || self.is_asked_by_worker || self.leaving.is_some();
        (!is_silent).then_some(sim.worker.next)
    }

    /// The worker is answered, if it is among those who are.
    pub(super) fn answer_worker(
        &mut self,
        answers: Vec<(Ticket, ShardAnswer)>,
        sim: &mut Simulation,
    ) -> Result<(), Broken> {
        for (_, answer) in answers {
            self.is_asked_by_worker = false;
            sim.worker.next = sim.now + sim.dice.between(1, BEAT_MS);
            match answer {
                ShardAnswer::Worker(reply) => listen(*reply, sim)?,
                other => {
                    return Err((ShardPromise::NoPanic, format!("the worker is told {other:?}")));
                }
            }
        }
        Ok(())
    }
}

fn listen(reply: WorkerReply, sim: &mut Simulation) -> Result<(), Broken> {
    sim.note(|| format!("the worker is told {reply:?}"));
    let Simulation { worker, checker, oracle, dice, .. } = sim;
    worker.cookie = reply.cookie;
    let is_acked = |carried: &Carried| reply.acks.iter().any(|(id, ..)| *id == carried.id);
    worker.has.retain(|carried| !is_acked(carried));
    for (id, _) in reply.cancel {
        for carried in worker.has.iter_mut().filter(|carried| carried.id == id) {
            carried.ends = sim.now;
            carried.result = AttemptResult::Cancelled;
            checker.worked(carried.run, false);
        }
    }
    for given in reply.runs {
        let result = match dice.between(0, 9) {
            0..=6 => AttemptResult::Succeeded,
            7..=8 => AttemptResult::Failed { retry_after: None },
            _ => AttemptResult::FailedForGood,
        };
        let run = checker.given(given.id, &given.given, oracle)?;
        checker.worked(run, result == AttemptResult::Succeeded);
        let ends = sim.now + dice.between(0, 4_000);
        worker.given += 1;
        worker.has.push(Carried { id: given.id, token: given.given.token, run, ends, result });
    }
    Ok(())
}

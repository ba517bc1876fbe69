//! Workers in turn: the engine of a shard, and workers and owners that come and go.
//!
//! A trigger and people let a queue have runs that are for the next workers in turn, or for all. Workers die, hang, drain and come back
//! under their names; owners die before or after any of their commits, and their successors have what is in the store. Requests
//! and answers are lost. After a while nothing goes wrong any more, and everything has to end.
//!
//! The judge shares no code with the engine's decisions: it reads what each commit writes, and sees what workers begin. Everything
//! follows from a seed.

mod judge;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::id::{ProjectId, RunId};
use engine::instant::Instant;
use engine::mutant::{self, Mutant};
use engine::past::Attempt;
use engine::queue::draft::RunDraft;
use engine::queue::feed::FeedDraft;
use engine::queue::given::{AttemptResult, RunToken};
use engine::shard::command::Command;
use engine::shard::{
    ClaimCall, DoneCall, HostRoom, Now, Room, Shard, ShardAnswer, Ticket, WorkerCall, WorkerReply,
};
use engine::trigger::Draft;

use self::judge::Judge;
use super::draft::QUEUE;
use super::shard_store::ShardStore;
use crate::dice::Dice;
use crate::promise::words;

/// What came of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PickReport {
    /// What was broken first, if anything was.
    pub violation: Option<String>,
    /// How often which things happened.
    pub counts: PickCounts,
}

/// How often which things happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PickCounts {
    /// Milliseconds of true time.
    pub length: u64,
    /// Owners, one after the other.
    pub owners: u64,
    /// Workers that were killed.
    pub killed: u64,
    /// Workers that drained.
    pub drained: u64,
    /// Runs that were chosen for.
    pub chosen: u64,
    /// Parts that were for another worker after the first was gone.
    pub passed: u64,
    /// Parts that somebody carried out for whom they were not.
    pub by_others: u64,
    /// Parts that ended.
    pub parts: u64,
}

/// One look at the world, in milliseconds.
const TICK: u64 = 50;
/// Until then things go wrong.
const STORM: u64 = 90_000;
/// By then everything has ended.
const END: u64 = 160_000;
/// Two beats of this are 1.6 s.
const LEASE_MS: u32 = 4_000;
/// A worker that heard nothing for so long asks again.
const TIMEOUT: u64 = 2_500;
/// Runs that a worker has at a time.
const CAPACITY: usize = 3;
const BEGIN: i64 = 1_800_000_000_000;
const NAMES: [&str; 5] = ["b", "d", "f", "h", "k"];

/// A process of a worker.
#[derive(Default)]
struct Process {
    life: u64,
    number: u64,
    settled: u64,
    cookie: u64,
    jobs: Vec<Job>,
    /// The number of the request that is not answered, and since when.
    asks: Option<(u64, u64)>,
    next: u64,
    hangs: bool,
    drains: bool,
    is_heard: bool,
}

struct Job {
    run: RunId,
    token: RunToken,
    ends: u64,
    result: AttemptResult,
}

struct Owner {
    shard: Shard,
    /// Who is to be told what is answered, by its ticket: a worker, and its life and number.
    asked: BTreeMap<Ticket, (&'static str, u64, u64)>,
}

struct PickWorld {
    dice: Dice,
    now: u64,
    store: ShardStore,
    owner: Option<Owner>,
    processes: BTreeMap<&'static str, Process>,
    tickets: u64,
    judge: Judge,
    room: Room,
    /// So many in a thousand commits are an owner's last.
    crashes: u64,
    trigger: Draft,
    is_made: bool,
    counts: PickCounts,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>) -> PickReport {
    mutant::switch(bug);
    let mut world = PickWorld::of(seed);
    let played = catch_unwind(AssertUnwindSafe(|| world.play()));
    mutant::switch(None);
    let broken = match played {
        Ok(()) => world.judge.broken.clone(),
        Err(panic) => Some(words(&*panic)),
    };
    let counts = PickCounts { length: world.now, ..world.counts };
    let at = world.now;
    let violation = broken.map(|broken| format!("at {at} ms: {broken}"));
    PickReport { violation, counts }
}

impl PickWorld {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let count = dice.pick(&[1, 1, 2, 3]);
        let every = dice.pick(&["2s", "3s", "5s"]);
        let schedule = serde_json::from_str(&format!(r#"{{"every": "{every}"}}"#));
        let trigger = Draft {
            name: Some("turns".to_owned()),
            schedule: Some(schedule.expect("it is right")),
            queue: Some(FeedDraft {
                name: Some(QUEUE.to_owned()),
                handler: Some("h".to_owned()),
                pick: Some("next".to_owned()),
                count: Some(count),
                ..FeedDraft::default()
            }),
            ..Draft::default()
        };
        let writes = dice.pick(&[6, 12, 64]);
        Self {
            crashes: dice.pick(&[2, 8, 30]),
            now: 0,
            store: ShardStore::default(),
            owner: None,
            processes: BTreeMap::new(),
            tickets: 0,
            judge: Judge::default(),
            room: Room { writes, bytes: 1 << 20, value_bytes: 1 << 17 },
            trigger,
            is_made: false,
            counts: PickCounts::default(),
            dice,
        }
    }

    fn play(&mut self) {
        while self.now < END && self.judge.broken.is_none() {
            self.now += TICK;
            self.workers_come_and_go();
            self.own();
            if self.owner.is_some() {
                self.people();
                self.talk();
            }
            if let Some(owner) = &mut self.owner {
                let now = at(self.now);
                owner.shard.step(now, &|_| HostRoom::ALL);
            }
            self.commit();
            self.judge.watch(self.now, self.owner.is_some(), &self.store, |worker| {
                self.processes.get(worker).is_some_and(|it| !it.drains && it.is_heard)
            });
        }
        self.judge.conclude(&self.store);
        self.counts.chosen = self.judge.chosen;
        self.counts.passed = self.judge.passed;
        self.counts.by_others = self.judge.by_others;
        self.counts.parts = self.judge.parts;
    }

    fn is_calm(&self) -> bool {
        self.now > STORM
    }

    fn workers_come_and_go(&mut self) {
        let is_calm = self.is_calm();
        for name in NAMES {
            let comes = self.dice.between(0, 999);
            match self.processes.get_mut(name) {
                None => {
                    let stays = is_calm && ["b", "d"].contains(&name);
                    if comes < 8 || stays {
                        let hangs = self.dice.chance(10) && !is_calm;
                        let process = Process { life: self.now, hangs, ..Process::default() };
                        self.processes.insert(name, process);
                    }
                }
                Some(process) if is_calm => process.hangs = false,
                Some(_) if comes < 3 => {
                    self.counts.killed += 1;
                    self.processes.remove(name);
                }
                Some(process) if comes < 5 => process.drains = true,
                Some(_) => {}
            }
        }
    }

    /// A successor comes after a while.
    fn own(&mut self) {
        if self.owner.is_none() && (self.dice.chance(8) || self.is_calm()) {
            self.store.claim();
            let now = at(self.now);
            let (reports, senders) = (Default::default(), Default::default());
            let shard = self.store.load(&reports, senders, now).expect("what was written is read");
            self.owner = Some(Owner { shard, asked: BTreeMap::new() });
            self.counts.owners += 1;
        }
    }

    fn people(&mut self) {
        let Some(owner) = &mut self.owner else { return };
        let (now, project, author) = (at(self.now), ProjectId::DEFAULT, String::new());
        if !self.is_made {
            let definition = Box::new(self.trigger.build(now.wall).expect("it is right"));
            let draft = serde_json::value::to_raw_value(&self.trigger).expect("it is JSON");
            let create = Command::Create { project, definition, draft, author, named_until: None };
            self.is_made = owner.shard.command(create, None, Ticket(0), now).is_ok();
        } else if self.now > STORM + 10_000 {
            let serial = self.judge.trigger;
            let gone = serial.map(|trigger| Command::Delete { trigger, author });
            let _done = gone.map(|gone| owner.shard.command(gone, None, Ticket(0), now));
        } else if self.dice.between(0, 999) < 8 {
            let pick = self.dice.pick(&["all", "next", "next"]);
            let count = (pick == "next").then(|| self.dice.between(1, 4));
            let draft = RunDraft {
                handler: Some("h".to_owned()),
                pick: Some(pick.to_owned()),
                count,
                ..RunDraft::default()
            };
            let runs = vec![draft.build(now.wall).expect("it is right")];
            let submit = Command::Submit { project, queue: QUEUE.into(), runs, author };
            let _taken = owner.shard.command(submit, None, Ticket(0), now);
        }
    }

    /// Workers say something, those who have waited for no answer for too long anew.
    fn talk(&mut self) {
        for name in NAMES {
            let Some(process) = self.processes.get_mut(name) else { continue };
            if let Some((number, since)) = process.asks {
                if self.now - since < TIMEOUT {
                    continue;
                }
                process.settled = process.settled.max(number);
                process.asks = None;
            }
            let Some(owner) = self.owner.as_mut().filter(|_| self.now >= process.next) else {
                continue;
            };
            let call = process.call(name, self.now);
            process.asks = Some((process.number, self.now));
            // The request is lost.
            if self.now <= STORM && self.dice.chance(2) {
                continue;
            }
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            owner.asked.insert(ticket, (name, process.life, process.number));
            process.is_heard = true;
            owner.shard.hear(call, ticket, at(self.now));
        }
    }

    fn commit(&mut self) {
        let Some(mut owner) = self.owner.take() else { return };
        let mut answers = owner.shard.take_answers();
        let number = |store: &ShardStore| store.number + 1;
        while let Some(batch) = owner.shard.take_batch(number(&self.store), self.room) {
            let fate = if self.is_calm() { 999 } else { self.dice.between(0, 999) };
            if fate < self.crashes {
                return;
            }
            self.judge.see(&self.store, &batch);
            self.store.land(&batch);
            self.judge.learn(&self.store);
            if fate < 2 * self.crashes {
                return;
            }
            answers.extend(owner.shard.committed(at(self.now)).answers);
        }
        answers.extend(owner.shard.take_answers());
        for (ticket, answer) in answers {
            let Some((name, life, number)) = owner.asked.remove(&ticket) else { continue };
            let is_lost = !self.is_calm() && self.dice.chance(2);
            let Some(process) = self.processes.get_mut(name).filter(|_| !is_lost) else { continue };
            if process.life != life || process.asks.is_none_or(|(asks, _)| asks != number) {
                continue;
            }
            process.asks = None;
            process.settled = number;
            process.next = self.now + self.dice.between(1, 600);
            if let ShardAnswer::Worker(reply) = answer {
                let is_done = process.listen(*reply, self.now, &mut self.dice, &mut self.judge);
                if is_done {
                    self.counts.drained += 1;
                    self.processes.remove(name);
                }
            }
        }
        self.owner = Some(owner);
    }
}

impl Process {
    fn call(&mut self, name: &str, now: u64) -> WorkerCall {
        self.number += 1;
        let made = Attempt { at: at(now).wall, ms: 1, ..Attempt::default() };
        let done = self.jobs.iter().filter(|job| job.ends <= now).map(|job| DoneCall {
            run: job.run,
            token: job.token,
            result: job.result,
            made: Some(made.clone()),
        });
        let running = self.jobs.iter().filter(|job| job.ends > now);
        let (done, running) = (done.collect(), running.map(|job| (job.run, job.token)).collect());
        let stops = self.hangs || self.drains;
        let free = if stops { 0 } else { CAPACITY.saturating_sub(self.jobs.len()) };
        let claim = ClaimCall {
            cookie: self.cookie,
            queues: vec![QUEUE.into()],
            free,
            wait_ms: if free == 0 { 0 } else { 1_000 },
            labels: "".into(),
        };
        WorkerCall {
            project: ProjectId::DEFAULT,
            worker: name.into(),
            incarnation: self.life,
            number: self.number,
            settled: self.settled,
            lease_ms: LEASE_MS,
            since: self.life,
            is_draining: self.drains,
            done,
            released: Vec::new(),
            running: Some(running),
            claim: Some(claim),
        }
    }

    /// Says whether it ends: it drains, and has nothing left.
    fn listen(&mut self, reply: WorkerReply, now: u64, dice: &mut Dice, judge: &mut Judge) -> bool {
        self.cookie = reply.cookie;
        self.jobs.retain(|job| {
            let is_acked =
                reply.acks.iter().any(|(run, token, _)| (*run, *token) == (job.run, job.token));
            !is_acked && !reply.lost.contains(&(job.run, job.token))
        });
        for given in reply.runs {
            let result = match dice.between(0, 19) {
                0..=1 => AttemptResult::Failed { retry_after: None },
                2 => AttemptResult::FailedForGood,
                _ => AttemptResult::Succeeded,
            };
            judge.begins(given.id, given.given.attempt);
            let ends = now + dice.between(50, 1_500);
            self.jobs.push(Job { run: given.id, token: given.given.token, ends, result });
        }
        self.drains && self.jobs.is_empty()
    }
}

fn at(now: u64) -> Now {
    let wall = Instant(BEGIN + i64::try_from(now).expect("a short time"));
    Now { wall, steady: now, random: now.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
}

//! A worker: what it holds, a spool on disk of results and of what began without one, one open claim, beats beside it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use engine::policy::Delivery;
use engine::queue::given::{AttemptResult, RunToken};
use engine::queue::worker::{DoneRun, HeldRun, Wants, WorkerAnswer, WorkerRequest};

use super::chance::Chance;
use super::world::{Event, Message, Mode, Reply, Said, Sender, Time, World};

const LEASE: Time = 4_000;
pub(super) const BEAT: Time = 800;
const WAIT: Time = 5_000;
/// Runs that it holds, and programs that it executes, at most.
const HELD_MAX: usize = 3;
const EXECUTING_MAX: usize = 2;
/// Results in one request.
const DONE_MAX: usize = 3;

/// A program that executes: its run and token, and the worker.
pub(super) type Execution = (u64, RunToken, usize);

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) life: u32,
    /// It is stopped until then; its programs go on.
    pub(super) stall: Time,
    /// Until then it does not reach the servers behind the walls.
    pub(super) cut: Time,
    pub(super) walls: Vec<usize>,
    pub(super) drains: bool,
    name: Arc<str>,
    rate: u64,
    /// On its disk.
    incarnation: u64,
    since: u64,
    spool: BTreeMap<HeldRun, AttemptResult>,
    began: BTreeSet<HeldRun>,
    /// In its memory. Times are by its own clock.
    number: u64,
    cookie: u64,
    beats: usize,
    open: Option<u64>,
    opened: Time,
    beaten: Time,
    held: BTreeMap<u64, Held>,
    released: BTreeSet<HeldRun>,
    sent: HashMap<u64, Time>,
}

/// A run that a worker has.
#[derive(Debug)]
struct Held {
    token: RunToken,
    attempt: u32,
    is_executing: bool,
    /// From when on it is confirmed for a lease.
    confirmed: Time,
}

#[derive(Debug, Clone)]
pub(super) enum WorkerEvent {
    Boot,
    Step,
    Answer(Message, Reply),
    /// A program has ended.
    Note(HeldRun, AttemptResult),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Program {
    /// It ends, under this life of its worker.
    Ends(u32, AttemptResult),
    /// It takes its worker with it.
    Kills(u32),
    /// It was not confirmed since: the shim ends it.
    Lapses(u32, Time),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Claim,
    Beat,
    Report,
}

impl Worker {
    pub(super) fn new(index: usize, chance: &mut Chance) -> Self {
        Self {
            life: 0,
            stall: 0,
            cut: 0,
            walls: Vec::new(),
            drains: false,
            name: format!("worker-{index}").into(),
            rate: chance.one_of(&[9, 10, 11]),
            incarnation: 0,
            since: 0,
            spool: BTreeMap::new(),
            began: BTreeSet::new(),
            number: 0,
            cookie: 0,
            beats: 0,
            open: None,
            opened: 0,
            beaten: 0,
            held: BTreeMap::new(),
            released: BTreeSet::new(),
            sent: HashMap::new(),
        }
    }

    pub(super) fn has_nothing(&self) -> bool {
        self.spool.is_empty() && self.held.is_empty()
    }

    fn has(&self, (sequence, token): HeldRun) -> bool {
        self.held.get(&sequence).is_some_and(|held| held.token == token)
    }

    /// A program has ended, if it is still the one that is held.
    fn note(&mut self, held: HeldRun, result: AttemptResult) {
        if self.has(held) {
            self.held.remove(&held.0);
            self.spool.insert(held, result);
            self.began.remove(&held);
        }
    }

    fn request(&self, kind: Kind, free: usize) -> WorkerRequest {
        let mut spool = self.spool.iter().map(|(held, result)| (*held, *result));
        let done = spool.by_ref().take(DONE_MAX);
        let done = done.map(|(held, result)| DoneRun { held, result, made: None }).collect();
        let held = self.held.iter().map(|(sequence, held)| (*sequence, held.token));
        let running = held.chain(spool.map(|(held, _)| held)).collect();
        let wants = match kind {
            Kind::Report => Wants::Report,
            Kind::Beat => Wants::Beat { running },
            Kind::Claim => Wants::Claim {
                running,
                cookie: self.cookie,
                // The server names them.
                queues: Vec::new(),
                free,
                until: WAIT,
                labels: Arc::default(),
            },
        };
        WorkerRequest {
            worker: Arc::clone(&self.name),
            incarnation: self.incarnation,
            number: self.number,
            settled: self.open.map_or(self.number, |open| open - 1),
            lease_ms: 4_000,
            since: self.since,
            done,
            released: self.released.iter().copied().collect(),
            is_draining: self.drains,
            wants,
        }
    }
}

impl World {
    pub(super) fn boot_worker(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.life += 1;
        worker.incarnation += 1;
        (worker.number, worker.cookie, worker.beats, worker.open) = (0, 0, 0, None);
        (worker.opened, worker.beaten, worker.drains) = (0, 0, false);
        worker.held.clear();
        worker.released.clear();
        worker.sent.clear();
        // What began, and has no result.
        let began = std::mem::take(&mut worker.began);
        worker.spool.extend(began.into_iter().map(|held| (held, AttemptResult::Died)));
        let life = worker.life;
        let wait = self.chance.below(150);
        self.after(wait, Event::Worker(index, life, WorkerEvent::Step));
    }

    /// After a power cut the list of what began may be lost: what earlier lives had is in doubt.
    pub(super) fn crash_worker(&mut self, index: usize, down: Time, loses_log: bool) {
        self.counts.worker_crashes += 1;
        let worker = &mut self.workers[index];
        worker.life += 1;
        worker.stall = 0;
        worker.held.clear();
        if loses_log {
            worker.began.clear();
            worker.since = worker.incarnation + 1;
        }
        let life = worker.life;
        self.live.retain(|(_, _, worker), _| *worker != index);
        self.after(down, Event::Worker(index, life, WorkerEvent::Boot));
    }

    pub(super) fn worker_event(&mut self, index: usize, event: WorkerEvent) {
        match event {
            WorkerEvent::Boot => self.boot_worker(index),
            WorkerEvent::Note(held, result) => self.workers[index].note(held, result),
            WorkerEvent::Answer(message, reply) => self.worker_answered(index, &message, reply),
            WorkerEvent::Step => {
                let life = self.workers[index].life;
                self.step_worker(index);
                let wait = self.chance.between(105, 195);
                self.after(wait, Event::Worker(index, life, WorkerEvent::Step));
            }
        }
    }

    fn clock_of(&self, index: usize) -> Time {
        self.now * self.workers[index].rate / 10
    }

    /// Whether a worker has this run, and may begin it or go on with it by what it was told.
    pub(super) fn is_confirmed(&self, index: usize, (sequence, token): HeldRun) -> bool {
        let held = self.workers[index].held.get(&sequence);
        held.is_some_and(|held| {
            held.token == token && self.clock_of(index) < held.confirmed + LEASE
        })
    }

    fn step_worker(&mut self, index: usize) {
        let clock = self.clock_of(index);
        let worker = &self.workers[index];
        let free = HELD_MAX.saturating_sub(worker.held.len());
        let sequences: Vec<u64> = worker.held.keys().copied().collect();
        for sequence in sequences {
            self.begin_if_confirmed(index, sequence, clock);
        }
        if self.workers[index].drains && self.drain(index) {
            return self.crash_worker(index, 500, false);
        }
        let worker = &mut self.workers[index];
        if clock > worker.opened + WAIT + 500 {
            worker.open = None;
        }
        let has_results = !worker.spool.is_empty();
        let (drains, is_open) = (worker.drains, worker.open.is_some());
        if free > 0 && !drains && (!is_open || has_results && self.chance.happens(100)) {
            self.workers[index].opened = clock;
            self.say(index, Kind::Claim, free);
        }
        if clock > self.workers[index].beaten + BEAT {
            self.workers[index].beaten = clock;
            self.say(index, Kind::Beat, 0);
        }
        if has_results && self.chance.happens(300) {
            self.say(index, Kind::Report, 0);
        }
    }

    fn begin_if_confirmed(&mut self, index: usize, sequence: u64, clock: Time) {
        let worker = &self.workers[index];
        let executing = worker.held.values().filter(|held| held.is_executing).count();
        let held = &worker.held[&sequence];
        let is_confirmed = clock < held.confirmed + LEASE;
        if !held.is_executing && executing < EXECUTING_MAX && !worker.drains && is_confirmed {
            self.begin(index, sequence);
        }
    }

    /// Gives back what has not begun, and lets the rest end, or ends it. Says whether nothing is left.
    fn drain(&mut self, index: usize) -> bool {
        let sequences: Vec<u64> = self.workers[index].held.keys().copied().collect();
        for sequence in sequences {
            let is_stopped = self.chance.happens(20);
            let worker = &mut self.workers[index];
            let Held { token, is_executing, .. } = worker.held[&sequence];
            let held = (sequence, token);
            if !is_executing {
                worker.released.insert(held);
                worker.held.remove(&sequence);
            } else if is_stopped && self.live.remove(&(sequence, token, index)).is_some() {
                worker.note(held, AttemptResult::Stopped);
            }
        }
        let worker = &self.workers[index];
        worker.has_nothing() && worker.released.is_empty()
    }

    fn say(&mut self, index: usize, kind: Kind, free: usize) {
        let clock = self.clock_of(index);
        let worker = &mut self.workers[index];
        worker.number += 1;
        worker.beats += usize::from(kind == Kind::Beat);
        worker.sent.insert(worker.number, clock);
        if kind == Kind::Claim {
            // From now on the answer to an earlier claim is ignored.
            worker.open = Some(worker.number);
        }
        let turn = if kind == Kind::Beat { worker.beats } else { worker.sent.len() };
        let server = turn % self.servers.len();
        let request = worker.request(kind, free);
        let sender = Sender::Worker(index, worker.life, server);
        let message = Message { said: Rc::new(Said::Worker(request)), sender };
        if self.is_behind_wall(index, server) {
            return;
        }
        let life = self.servers[server].life;
        if self.only_servers_fail() || !self.is_lost(40) {
            let delay = self.net_delay();
            self.after(delay, Event::Delivered(server, life, message.clone()));
        }
        if self.is_lost(40) {
            // Doubled on the way.
            let delay = self.chance.below(15_000);
            self.after(delay, Event::Delivered(server, life, message));
        }
    }

    fn is_behind_wall(&self, index: usize, server: usize) -> bool {
        let worker = &self.workers[index];
        worker.cut > self.now && worker.walls.contains(&server)
    }

    fn worker_answered(&mut self, index: usize, message: &Message, reply: Reply) {
        let (Sender::Worker(_, _, server), Said::Worker(request)) =
            (message.sender, &*message.said)
        else {
            unreachable!("a worker is answered what it asked");
        };
        if self.is_behind_wall(index, server) {
            return;
        }
        let is_open = self.workers[index].open == Some(request.number);
        match reply {
            Reply::Worker(answer) => {
                self.take_acks(index, &answer);
                self.take_endings(index, &answer);
                self.take_confirmation(index, request, &answer);
                if is_open {
                    self.take_runs(index, answer);
                }
            }
            Reply::No | Reply::OldIncarnation => {}
            Reply::Run(_) | Reply::Done(_) => unreachable!("that is for clients"),
        }
        if is_open {
            self.workers[index].open = None;
        }
    }

    fn take_acks(&mut self, index: usize, answer: &WorkerAnswer) {
        for (held, counted) in &answer.acks {
            let worker = &mut self.workers[index];
            let result = worker.spool.remove(held);
            worker.released.remove(held);
            let past = self.store.past.get(&held.0);
            let is_recorded = past.is_some_and(|past| past.token == held.1);
            let is_success = *counted && result == Some(AttemptResult::Succeeded);
            self.store
                .bad("an acknowledged completion is not recorded", is_success && !is_recorded);
        }
    }

    fn take_endings(&mut self, index: usize, answer: &WorkerAnswer) {
        let worker = &mut self.workers[index];
        worker.cookie = answer.cookie;
        for held in &answer.lost {
            worker.spool.remove(held);
            if worker.has(*held) {
                self.counts.ended_as_lost += 1;
                worker.held.remove(&held.0);
                worker.began.remove(held);
                self.live.remove(&(held.0, held.1, index));
            }
        }
        for held in &answer.cancel {
            worker.note(*held, AttemptResult::Cancelled);
            self.live.remove(&(held.0, held.1, index));
        }
    }

    /// What was named and is not lost is confirmed from when the last request that was heard was sent.
    fn take_confirmation(&mut self, index: usize, request: &WorkerRequest, answer: &WorkerAnswer) {
        let named = match &request.wants {
            Wants::Report => return,
            Wants::Beat { running } | Wants::Claim { running, .. } => running,
        };
        let worker = &mut self.workers[index];
        let from = worker.sent.get(&answer.as_of).copied().unwrap_or_default();
        for named in named {
            let worker = &mut self.workers[index];
            if worker.has(*named)
                && let Some(held) = worker.held.get_mut(&named.0)
                && from > held.confirmed
            {
                held.confirmed = from;
                self.arm(index, *named, from);
            }
        }
    }

    fn take_runs(&mut self, index: usize, answer: WorkerAnswer) {
        let worker = &self.workers[index];
        let confirmed = worker.sent.get(&answer.as_of).copied().unwrap_or_default();
        for (sequence, record) in answer.runs {
            let (token, attempt) = (record.token, record.attempt);
            let held = Held { token, attempt, is_executing: false, confirmed };
            // An older program of the same run is ended first.
            if let Some(older) = self.workers[index].held.insert(sequence, held) {
                self.live.remove(&(sequence, older.token, index));
            }
            self.arm(index, (sequence, token), confirmed);
        }
    }

    /// Sets the shim's own timer: it also ends what a stopped worker executes.
    fn arm(&mut self, index: usize, (sequence, token): HeldRun, confirmed: Time) {
        if self.mode == Mode::Lease {
            let worker = &self.workers[index];
            let at = (confirmed + LEASE) * 10 / worker.rate;
            let lapses = Program::Lapses(worker.life, confirmed);
            let wait = at.saturating_sub(self.now);
            self.after(wait, Event::Program((sequence, token, index), lapses));
        }
    }

    fn begin(&mut self, index: usize, sequence: u64) {
        let held = self.workers[index].held.get_mut(&sequence).expect("it is held");
        held.is_executing = true;
        let (token, attempt) = (held.token, held.attempt);
        let execution = (sequence, token, index);
        self.counts.begun += 1;
        let is_current = self.store.is_running((sequence, token));
        let is_past = self.store.past.contains_key(&sequence);
        self.store.bad("began after its end", is_past);
        self.store.bad("began with a stale token", !is_current && !is_past);
        let Some(stored) = self.store.runs.get(&sequence) else {
            return;
        };
        let run = stored.submitted.clone();
        let once = run.policy.delivery == Delivery::AtMostOnce;
        let begun = self.store.begun.entry(sequence).or_default();
        let (began_before, is_repeated) = (!begun.is_empty(), begun.contains(&attempt));
        begun.push(attempt);
        self.store.bad("at most once, and began twice", once && began_before);
        self.store.bad("one attempt began twice", is_repeated);
        let mut live = self.live.keys();
        let is_twice = live.any(|other| (other.0, other.2) == (sequence, index));
        self.store.bad("one worker executes a run twice at once", is_twice);
        self.live.insert(execution, run);
        self.workers[index].began.insert((sequence, token));
        self.check_limits();
        self.start(execution, once);
    }

    fn check_limits(&mut self) {
        let current = self
            .live
            .iter()
            .filter(|(execution, _)| self.store.is_running((execution.0, execution.1)));
        let is_passed = self.store.is_too_many(current.map(|(_, run)| run));
        let is_passed_by_all = self.store.is_too_many(self.live.values());
        self.counts.beyond_limits += u64::from(is_passed_by_all);
        let is_bad = is_passed || self.mode == Mode::Lease && is_passed_by_all;
        self.store.bad("a limit is passed by what executes", is_bad);
    }

    fn start(&mut self, execution: Execution, once: bool) {
        let (sequence, token, index) = execution;
        let life = self.workers[index].life;
        // Some runs kill every worker that begins them: which they are follows from their numbers.
        let kills = Chance::new(sequence).happens(30) && !once && !self.only_servers_fail();
        if kills {
            return self.after(100, Event::Program(execution, Program::Kills(life)));
        }
        let result = if self.chance.happens(750) {
            self.good.insert((sequence, token));
            AttemptResult::Succeeded
        } else {
            AttemptResult::Failed { retry_after: None }
        };
        let lengths: &[Time] = if self.has_cuts {
            &[2_000, 12_000, 20_000]
        } else {
            &[100, 500, 2_000, 3_000, 12_000]
        };
        let length = if self.is_calm { 300 } else { self.chance.one_of(lengths) };
        let length = self.chance.between(length / 2, length * 3 / 2);
        self.after(length, Event::Program(execution, Program::Ends(life, result)));
    }

    pub(super) fn program_event(&mut self, execution: Execution, program: Program) {
        let (sequence, token, index) = execution;
        let (life, result) = match program {
            Program::Ends(life, result) => (life, result),
            Program::Kills(life) => {
                if self.workers[index].life == life && self.live.contains_key(&execution) {
                    *self.killed.entry(sequence).or_default() += 1;
                    let down = self.chance.between(100, 8_000);
                    self.crash_worker(index, down, false);
                }
                return;
            }
            Program::Lapses(life, confirmed) => {
                let held = self.workers[index].held.get(&sequence);
                if held.is_none_or(|held| held.token != token || held.confirmed != confirmed) {
                    return;
                }
                (life, AttemptResult::Stopped)
            }
        };
        if self.workers[index].life != life || self.live.remove(&execution).is_none() {
            return;
        }
        let lapsed = matches!(program, Program::Lapses(..));
        self.counts.ended_by_lease += u64::from(lapsed);
        self.after(0, Event::Worker(index, life, WorkerEvent::Note((sequence, token), result)));
    }
}

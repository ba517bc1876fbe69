//! The world around one shard with two queues: events in virtual time, chance, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use engine::id::RunId;
use engine::past::End;
use engine::queue::given::{GivenRecord, GivenState};
use engine::queue::record::given;
use engine::queue::submitted::SubmittedRun;
use engine::queue::worker::{HeldRun, WorkerAnswer, WorkerRequest};
use engine::record::decode;
use engine::shard::Put;
use engine::shard::record::FORMAT;

use super::chance::Chance;
use super::client::Clients;
use super::server::{Server, ServerEvent};
use super::store::{Batch, SHARD, Store};
use super::worker::{Execution, Program, Worker, WorkerEvent};

/// Milliseconds.
pub(super) type Time = u64;

/// The world begins here, so that nothing has to be before the beginning of time.
const BEGIN: Time = 100_000;
/// So long does everything go wrong.
const CHAOS: Time = 70_000;
/// By then at the latest all is finished.
const END: Time = BEGIN + CHAOS + 150_000;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Everything. The program of a silent worker goes on.
    All,
    /// Everything, and a worker's shim ends a program that was not confirmed for a lease: limits hold for what executes.
    Lease,
    /// Only servers: nothing may be given up, doubled, stopped or unknown.
    Servers,
}

/// What happens at some time.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// To one life of a server, once it is awake.
    Server(usize, u32, ServerEvent),
    /// To one life of a worker, once it is awake.
    Worker(usize, u32, WorkerEvent),
    /// To a program, whether its worker is awake or not.
    Program(Execution, Program),
    /// A copy of a commit of one life of a server reaches the store.
    Arrives(usize, u32, Rc<Batch>),
    /// A request of a worker reaches one life of a server.
    Delivered(usize, u32, Message),
    /// A request of a client reaches a server.
    Posted(usize, Message),
    /// A client has its answer.
    Answered(usize, Reply),
    /// A client was not answered for long.
    AsksAgain(usize),
    /// Clients think of something.
    Client,
    /// The queues are to go on.
    Resume,
    /// Something goes wrong.
    Chaos,
    /// Nothing goes wrong from now on.
    Calm,
    /// Is all finished?
    Look,
}

/// What is said to a server.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) said: Rc<Said>,
    pub(super) sender: Sender,
}

#[derive(Debug)]
pub(super) enum Said {
    Worker(WorkerRequest),
    /// A run, by a number that no other has.
    Submit(u64),
    Cancel(u64),
    Pause(u64),
    /// A dead run is to wait again.
    Redrive(u64),
}

/// Who is to be answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sender {
    /// One life of a worker, by way of a server.
    Worker(usize, u32, usize),
    /// A question of a client.
    Client(usize),
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// Ask somebody else, or later.
    No,
    /// A later life of the worker was heard.
    OldIncarnation,
    Worker(WorkerAnswer),
    Run(u64),
    Done(bool),
}

/// What came of a world.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) violations: Vec<&'static str>,
    pub(super) counts: Counts,
}

/// What happened in a world.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) takes: u64,
    pub(super) hand_overs: u64,
    pub(super) worker_crashes: u64,
    pub(super) begun: u64,
    pub(super) ended_as_lost: u64,
    pub(super) ended_by_lease: u64,
    pub(super) past: u64,
    pub(super) given: u64,
    pub(super) given_up: u64,
    pub(super) taken_back: u64,
    pub(super) beyond_limits: u64,
    pub(super) redriven: u64,
}

impl Counts {
    /// Adds the other counts.
    pub(super) fn add(&mut self, other: Self) {
        self.takes += other.takes;
        self.hand_overs += other.hand_overs;
        self.worker_crashes += other.worker_crashes;
        self.begun += other.begun;
        self.ended_as_lost += other.ended_as_lost;
        self.ended_by_lease += other.ended_by_lease;
        self.past += other.past;
        self.given += other.given;
        self.given_up += other.given_up;
        self.taken_back += other.taken_back;
        self.beyond_limits += other.beyond_limits;
        self.redriven += other.redriven;
    }
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what this world has")]
pub(super) struct World {
    pub(super) now: Time,
    pub(super) chance: Chance,
    pub(super) mode: Mode,
    pub(super) is_calm: bool,
    /// Long runs and cuts instead of crashes.
    pub(super) has_cuts: bool,
    /// Clients redrive dead runs.
    pub(super) has_redrives: bool,
    /// Writes in one commit.
    pub(super) room: usize,
    /// The ids of runs, by their numbers.
    pub(super) ids: HashMap<u64, RunId>,
    pub(super) store: Store,
    pub(super) servers: Vec<Server>,
    pub(super) workers: Vec<Worker>,
    pub(super) clients: Clients,
    /// What really executes.
    pub(super) live: BTreeMap<Execution, SubmittedRun>,
    /// Attempts that were carried out.
    pub(super) good: BTreeSet<HeldRun>,
    /// How many workers each run killed.
    pub(super) killed: HashMap<u64, u32>,
    pub(super) counts: Counts,
    pace: u64,
    events: BTreeMap<(Time, u64), Event>,
    event_number: u64,
    is_over: bool,
}

/// Runs the world of a seed to its end, or to the first violation.
pub(super) fn run(seed: u64, mode: Mode) -> Report {
    let mut world = World::new(seed, mode);
    while let Some(((now, _), event)) = world.events.pop_first() {
        if now > END || world.is_over {
            break;
        }
        world.now = now;
        world.happens(event);
        if !world.store.violations().is_empty() {
            return world.report();
        }
    }
    world.balance();
    world.report()
}

impl World {
    fn new(seed: u64, mode: Mode) -> Self {
        let mut chance = Chance::new(seed);
        let servers = chance.one_of(&[1, 3, 3]);
        let workers = chance.one_of(&[1, 2, 3, 3]);
        let mut world = Self {
            now: BEGIN,
            mode,
            is_calm: false,
            has_cuts: seed.is_multiple_of(3),
            has_redrives: seed % 5 == 4,
            room: chance.one_of(&[8, 8, 12, 64]),
            ids: HashMap::new(),
            store: Store::new(),
            servers: (0..servers).map(|_| Server::new(&mut chance)).collect(),
            workers: (0..workers).map(|index| Worker::new(index, &mut chance)).collect(),
            clients: Clients::default(),
            live: BTreeMap::new(),
            good: BTreeSet::new(),
            killed: HashMap::new(),
            counts: Counts::default(),
            pace: chance.one_of(&[1, 2, 5]),
            events: BTreeMap::new(),
            event_number: 0,
            is_over: false,
            chance,
        };
        (0..servers).for_each(|server| world.boot_server(server));
        (0..workers).for_each(|worker| world.boot_worker(worker));
        world.after(1_000, Event::Client);
        world.after(4_000, Event::Chaos);
        world.after(CHAOS + 4_000, Event::Calm);
        world.after(CHAOS + 20_000, Event::Look);
        world
    }

    /// Lets something happen later.
    pub(super) fn after(&mut self, wait: Time, event: Event) {
        self.event_number += 1;
        self.events.insert((self.now + wait, self.event_number), event);
    }

    pub(super) fn is_chaos_over(&self) -> bool {
        self.now > BEGIN + CHAOS
    }

    pub(super) fn only_servers_fail(&self) -> bool {
        self.mode == Mode::Servers
    }

    /// Whether something is lost that is so often among a thousand.
    pub(super) fn is_lost(&mut self, per_mille: u64) -> bool {
        !self.is_calm && self.chance.happens(per_mille)
    }

    /// How long a message between two processes takes.
    pub(super) fn net_delay(&mut self) -> Time {
        if self.only_servers_fail() { self.chance.between(10, 150) } else { self.store_delay() }
    }

    /// How long a message to or from the store takes.
    pub(super) fn store_delay(&mut self) -> Time {
        match self.chance.below(100) {
            _ if self.is_calm => self.chance.between(10, 150),
            0..93 => self.chance.between(10, 150),
            93..98 => self.chance.between(0, 3_000),
            _ => self.chance.between(0, 15_000),
        }
    }

    /// Answers whoever sent a message; the answer may be lost.
    pub(super) fn reply(&mut self, message: &Message, reply: Reply) {
        match message.sender {
            Sender::Worker(worker, life, _) => {
                if self.only_servers_fail() || !self.is_lost(50) {
                    let delay = self.net_delay();
                    let answer = WorkerEvent::Answer(message.clone(), reply);
                    self.after(delay, Event::Worker(worker, life, answer));
                }
            }
            Sender::Client(question) => {
                if !self.is_lost(50) {
                    let delay = self.net_delay();
                    self.after(delay, Event::Answered(question, reply));
                }
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Server(server, life, what) => {
                let stall = self.servers[server].stall;
                if self.servers[server].life != life {
                    return;
                }
                if stall > self.now {
                    let late = stall - self.now + self.chance.below(20);
                    return self.after(late, Event::Server(server, life, what));
                }
                self.server_event(server, what);
            }
            Event::Worker(worker, life, what) => {
                let stall = self.workers[worker].stall;
                if self.workers[worker].life != life {
                    return;
                }
                if stall > self.now {
                    let late = stall - self.now + self.chance.below(20);
                    return self.after(late, Event::Worker(worker, life, what));
                }
                self.worker_event(worker, what);
            }
            Event::Program(execution, what) => self.program_event(execution, what),
            Event::Arrives(server, life, batch) => {
                self.check_given_up(&batch);
                let is_done = self.store.land(&batch);
                if !self.is_lost(50) {
                    let delay = self.store_delay();
                    let answer = ServerEvent::Committed(batch.head.nonce, is_done);
                    self.after(delay, Event::Server(server, life, answer));
                }
            }
            Event::Delivered(server, life, message) => {
                let stall = self.servers[server].stall;
                if stall > self.now {
                    // Else the connection timed out.
                    if stall < self.now + 2_000 {
                        let late = stall - self.now + self.chance.below(500);
                        self.after(late, Event::Delivered(server, life, message));
                    }
                } else if self.servers[server].life == life {
                    self.receive(server, message, false);
                }
            }
            Event::Posted(server, message) => {
                let life = self.servers[server].life;
                self.happens(Event::Server(server, life, ServerEvent::Receive(message, false)));
            }
            Event::Answered(question, reply) => self.answered(question, &reply),
            Event::AsksAgain(question) => self.ask(question),
            Event::Client => self.client(),
            Event::Resume => self.resume(),
            Event::Chaos => self.chaos(),
            Event::Calm => self.calm(),
            Event::Look => self.look_whether_over(),
        }
    }

    /// What a worker may still begin, or go on with, by its own clock, is not given up.
    fn check_given_up(&mut self, batch: &Batch) {
        if self.store.content.head.number + 1 != batch.head.number {
            return;
        }
        for put in &batch.puts {
            if let Put::Value(key, value) = put
                && let Some(digits) = key.strip_prefix(&given(SHARD))
                && let Ok(record) = decode::<GivenRecord>(value, FORMAT)
                && matches!(record.state, GivenState::InDoubt(_))
            {
                let held = (digits.parse().expect("the number of a run"), record.token);
                let mut workers = 0..self.workers.len();
                let is_confirmed = workers.any(|worker| self.is_confirmed(worker, held));
                self.store.bad("given up though it is confirmed", is_confirmed);
            }
        }
    }

    fn chaos(&mut self) {
        if self.is_chaos_over() {
            return;
        }
        let server = self.chance.index(self.servers.len());
        let worker = self.chance.index(self.workers.len());
        let long = if self.chance.happens(500) { (300, 9_000) } else { (5_000, 25_000) };
        let long = self.now + self.chance.between(long.0, long.1);
        let mut owners = 0..self.servers.len();
        let owner = owners.find(|other| *other != server && self.servers[*other].may_hand_over());
        match owner {
            Some(owner)
                if self.has_cuts && !self.only_servers_fail() && self.chance.happens(300) =>
            {
                self.split(owner, worker);
            }
            _ => {
                self.server_chaos(server, owner, long);
                if !self.only_servers_fail() {
                    self.worker_chaos(worker);
                }
            }
        }
        let wait = self.chance.between(1_000, 5_000) * self.pace;
        self.after(wait, Event::Chaos);
    }

    /// The owner and a worker are on the side that has no store.
    fn split(&mut self, owner: usize, worker: usize) {
        let until = self.now + 25_000;
        self.servers[owner].cut = until;
        self.workers[worker].cut = until;
        let others = (0..self.servers.len()).filter(|other| *other != owner);
        self.workers[worker].walls = others.collect();
    }

    fn server_chaos(&mut self, server: usize, owner: Option<usize>, until: Time) {
        let stalls = if self.has_cuts { 100 } else { 250 };
        let what = self.chance.below(1_000);
        if what < stalls {
            self.servers[server].stall = until;
        } else if what < 400 {
            let down = self.chance.below(3_000);
            self.crash_server(server, down);
        } else if what < 600 {
            self.servers[server].cut = until;
        } else if what < 900
            && let Some(owner) = owner
            && self.servers[server].has_renewed()
        {
            self.servers[owner].goal = Some((server, self.servers[server].life));
        }
    }

    fn worker_chaos(&mut self, worker: usize) {
        let crashes = if self.has_cuts { 50 } else { 250 };
        let what = self.chance.below(1_000);
        if what < crashes {
            let down = self.chance.between(100, 8_000);
            let loses_log = self.chance.happens(200);
            self.crash_worker(worker, down, loses_log);
        } else if what < 500 {
            self.workers[worker].stall = self.now + self.chance.between(1_000, 20_000);
        } else if what < 800 {
            self.workers[worker].cut = self.now + self.chance.between(1_000, 20_000);
            let walls: [&[usize]; 5] = [&[0, 1, 2], &[0, 1, 2], &[0, 1], &[1, 2], &[0, 2]];
            self.workers[worker].walls = self.chance.one_of(&walls).to_vec();
        } else if what < 900 && !self.has_cuts {
            self.workers[worker].drains = true;
        }
    }

    fn calm(&mut self) {
        self.is_calm = true;
        for server in &mut self.servers {
            (server.stall, server.cut) = (0, 0);
        }
        for worker in &mut self.workers {
            (worker.stall, worker.cut) = (0, 0);
        }
    }

    fn look_whether_over(&mut self) {
        self.is_over = self.store.runs.is_empty() && self.workers.iter().all(Worker::has_nothing);
        self.after(1_000, Event::Look);
    }

    /// What has to be true at the end.
    fn balance(&mut self) {
        let store = &mut self.store;
        let is_stuck = !store.runs.is_empty();
        store.bad("stuck", is_stuck);
        let is_kept = |store: &Store, sequence| {
            store.past.contains_key(sequence) || store.runs.contains_key(sequence)
        };
        let is_lost = !self.clients.acknowledged.values().all(|run| is_kept(store, run));
        store.bad("an acknowledged run is lost", is_lost);
        for (sequence, past) in store.past.clone() {
            let begun = store.begun.get(&sequence).map_or(0, Vec::len);
            let is_end = |end| past.end == end;
            let is_good = self.good.contains(&(sequence, past.token));
            store.bad("succeeded without success", is_end(End::Succeeded) && !is_good);
            store.bad("expired though begun", is_end(End::Expired) && begun > 0);
            store.bad("failed more often than begun", past.failures as usize > begun);
            let is_cancelled = self.clients.cancelled.contains(&sequence);
            let is_ended = is_end(End::Cancelled) || is_end(End::Succeeded);
            store.bad("a cancel is lost", is_cancelled && !is_ended);
            let killed = self.killed.get(&sequence).copied().unwrap_or_default();
            store.bad("poison was not noticed", killed > 3);
            if self.mode == Mode::Servers {
                let is_doubled = begun > past.failures as usize + 1;
                let is_unknown = is_end(End::Unknown) || past.is_poison;
                store.bad("work doubled or lost by servers", is_doubled || is_unknown);
            }
        }
        store.check_dead();
        let is_given_up = self.mode == Mode::Servers && store.given_up > 0;
        store.bad("given up though only servers failed", is_given_up);
    }

    fn report(self) -> Report {
        let Store { given, given_up, taken_back, ref past, .. } = self.store;
        let past = past.len() as u64;
        let redriven = self.store.redriven.len() as u64;
        let counts = Counts { past, given, given_up, taken_back, redriven, ..self.counts };
        Report { violations: self.store.violations(), counts }
    }
}

//! Order, limits and rates of queues, as 32 workers see them.
//!
//! A shard and [`Naive`] lists are told the same: runs with priorities, delays and keys are submitted and cancelled, 32
//! workers claim from several queues, wait, report, fail and give back, limits change, queues pause, and owners follow each
//! other. Every answer of the shard has to name exactly the runs that the lists name, in that order and with the same
//! numbers of attempts. Commits take no time here: what becomes of lost ones is the business of the other worlds.

use std::collections::{BTreeMap, HashMap};

use engine::id::{ProjectId, RunId, SerialId};
use engine::instant::Instant;
use engine::mutant::{self, Mutant};
use engine::policy::{Backoff, Delivery, Retry};
use engine::queue::dead;
use engine::queue::given::{AttemptResult, GivenPolicy, RunToken};
use engine::queue::pick::Pick;
use engine::queue::rate::RateLimit;
use engine::queue::record::{self as stored, QueueSettings};
use engine::shard::command::{Command, Done};
use engine::shard::record::HeadRecord;
use engine::shard::{
    ClaimCall, DoneCall, HostRoom, Loading, Now, Put, Room, Shard, ShardAnswer, Submission, Ticket,
    WorkerCall, WorkerReply,
};
use serde_json::value::RawValue;

use super::chance::Chance;
use super::naive::{Naive, NaiveAnswer, NaiveClaim, NaiveQueue, NaiveRun};
use super::store::SHARD;

const WORKERS: usize = 32;
const QUEUES: [&str; 4] = ["plain", "keyed", "narrow", "slow"];
const STEPS: usize = 500;
const SEEDS: u64 = 150;
const SEEDS_LONG: u64 = 5_000;

/// Bugs put in on purpose are caught by one of so many seeds.
const TRIED: u64 = 20;

const LEASE_MS: u32 = 30_000;
const TWO_BEATS: i64 = 12_000;
/// A worker that was not heard for so long is heard before it is given up.
const HEARD_AGAIN: i64 = 25_000;

#[test]
fn thirty_two_workers_are_given_what_a_search_through_all_runs_would_give_them() {
    let given: usize = (0..SEEDS).map(|seed| run(seed).unwrap_or_else(|why| panic!("{why}"))).sum();
    assert!(given as u64 > SEEDS * 100, "{given} runs were given");
}

#[test]
#[ignore = "long: make soak"]
fn thirty_two_workers_are_given_what_a_search_would_give_them_on_many_seeds() {
    let given: usize =
        (0..SEEDS_LONG).map(|seed| run(seed).unwrap_or_else(|why| panic!("{why}"))).sum();
    println!("{given} runs given on {SEEDS_LONG} seeds, each as the lists say");
}

#[test]
fn every_mutant_of_the_order_of_claims_is_caught() {
    for bug in Mutant::QUEUE_ORDER {
        mutant::switch(Some(bug));
        let caught = (0..TRIED).any(|seed| run(seed).is_err());
        mutant::switch(None);
        assert!(caught, "{bug:?} is not noticed within {TRIED} seeds");
    }
}

/// The settings of a queue. A rate stays as it is: what a window forgot under another period is not known.
fn settings(name: &str, chance: &mut Chance) -> QueueSettings {
    let rate = RateLimit { runs: 5, period_ms: 4_000 };
    let plain = QueueSettings::default();
    match name {
        "keyed" => QueueSettings { per_key: Some(chance.one_of(&[1, 1, 2, 3])), ..plain },
        "narrow" => QueueSettings {
            concurrency: Some(chance.one_of(&[1, 4, 8])),
            per_key: Some(chance.one_of(&[1, 2])),
            ..plain
        },
        "slow" => QueueSettings { rate: Some(rate), ..plain },
        _ => plain,
    }
}

/// A worker, as far as it speaks.
#[derive(Debug, Default)]
struct Hand {
    number: u64,
    /// The number of its claim that waits, if one does.
    open: u64,
    cookie: u64,
    heard: i64,
    tokens: HashMap<RunId, RunToken>,
}

struct Hall {
    now: i64,
    chance: Chance,
    shard: Shard,
    /// What the store has.
    records: BTreeMap<String, Vec<u8>>,
    head: HeadRecord,
    commits: u64,
    serials: Vec<SerialId>,
    hands: Vec<Hand>,
    naive: Naive,
    tickets: u64,
    submitted: usize,
    given: usize,
    /// The greatest token that each run was given under.
    last_tokens: HashMap<RunId, RunToken>,
    /// Answers that have come, by their tickets.
    answers: BTreeMap<u64, ShardAnswer>,
    replies: BTreeMap<u64, Done>,
    /// Whose claim a ticket is that waits.
    claims: BTreeMap<u64, usize>,
}

/// Runs the hall of a seed to its end. Tells how many runs were given, or the first difference.
fn run(seed: u64) -> Result<usize, String> {
    let mut hall = Hall::new(seed);
    for step in 0..STEPS {
        let told = hall.event();
        told.map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    Ok(hall.given)
}

impl Hall {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x07de_7000);
        let now = 1_000_000;
        let first = Now { wall: Instant(now), steady: now.unsigned_abs(), random: chance.number() };
        let head = HeadRecord::default();
        let mut hall = Self {
            now,
            chance,
            shard: Loading::begin(SHARD, 7, &head).finish(first),
            records: BTreeMap::new(),
            head,
            commits: 0,
            serials: Vec::new(),
            hands: (0..WORKERS).map(|_| Hand { heard: now, ..Hand::default() }).collect(),
            naive: Naive::default(),
            tickets: 0,
            submitted: 0,
            given: 0,
            last_tokens: HashMap::new(),
            answers: BTreeMap::new(),
            replies: BTreeMap::new(),
            claims: BTreeMap::new(),
        };
        for name in QUEUES {
            // Queues are looked at in the order in which they came.
            hall.now += 1;
            let settings = settings(name, &mut hall.chance);
            hall.naive.queues.push(NaiveQueue { settings, is_paused: false, given: Vec::new() });
            hall.set(name, settings);
        }
        hall.serials = hall.stored_queues();
        hall
    }

    fn time(&mut self) -> Now {
        let steady = self.now.unsigned_abs();
        Now { wall: Instant(self.now), steady, random: self.chance.number() }
    }

    /// Something happens, and then what follows from it. Both sides have to agree about that.
    fn event(&mut self) -> Result<(), String> {
        self.now += i64::try_from(self.chance.below(250)).expect("it is small");
        self.step()?;
        let silent = (0..WORKERS).find(|it| self.now - self.hands[*it].heard > HEARD_AGAIN);
        let worker = silent.unwrap_or_else(|| self.chance.index(WORKERS));
        match self.chance.below(1_000) {
            _ if silent.is_some() => self.speak(worker)?,
            0..300 => self.submit(),
            300..340 => self.cancel(),
            340..360 => self.pause_or_resume(),
            360..380 => self.change_limits(),
            380..384 => self.take_over(),
            _ => self.speak(worker)?,
        }
        self.step()
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// What was decided is written, and what waits for that is answered.
    fn write(&mut self) {
        let now = self.time();
        self.answers
            .extend(self.shard.take_answers().into_iter().map(|(it, answer)| (it.0, answer)));
        let room = Room { writes: 64, bytes: 1 << 20, value_bytes: 1 << 18 };
        while let Some(batch) = self.shard.take_batch(self.commits + 1, room) {
            self.commits += 1;
            self.head = batch.head;
            for put in batch.puts {
                match put {
                    Put::Value(key, value) => drop(self.records.insert(key, value)),
                    Put::Gone(key) => drop(self.records.remove(&key)),
                }
            }
            let done = self.shard.committed(now);
            self.answers.extend(done.answers.into_iter().map(|(it, answer)| (it.0, answer)));
            self.replies.extend(done.replies.into_iter().map(|(it, reply)| (it.0, reply)));
        }
    }

    fn command(&mut self, command: Command) -> Option<Done> {
        let (ticket, now) = (self.ticket(), self.time());
        self.shard.command(command, None, ticket, now).expect("a command that makes sense");
        self.write();
        self.replies.remove(&ticket.0)
    }

    fn set(&mut self, name: &str, settings: QueueSettings) {
        let (name, author) = (name.into(), String::new());
        let project = ProjectId::DEFAULT;
        self.command(Command::SetQueue { project, name, settings, author, revision: None });
    }

    fn stored_queues(&self) -> Vec<SerialId> {
        let prefix = stored::queues(SHARD);
        let records = self.records.iter().filter(|(key, _)| key.starts_with(&prefix));
        let records = records.map(|(_, value)| {
            engine::record::decode::<stored::QueueRecord>(value, engine::shard::record::FORMAT)
                .expect("a record of a queue")
        });
        let mut named: Vec<_> = records.map(|it| (it.name.clone(), it.id.serial)).collect();
        named.sort_by_key(|(name, _)| QUEUES.iter().position(|other| *other == &**name));
        named.into_iter().map(|(_, serial)| serial).collect()
    }

    fn submit(&mut self) {
        let queue = self.chance.index(QUEUES.len());
        let count = 1 + self.chance.index(5);
        let (mut runs, mut naive) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let chance = &mut self.chance;
            let later = |wait: i64| self.now + wait;
            let due =
                chance.one_of(&[None, None, None, Some(1), Some(700), Some(5_000)]).map(later);
            let expires = chance.one_of(&[None, None, None, None, Some(6_000)]).map(later);
            let key = chance.one_of(&[None, Some("a"), Some("b"), Some("c")]);
            let priority = chance.one_of(&[0, 4, 5, 5, 5, 9]);
            let retry =
                Retry { attempts: 3, delay_ms: 1, backoff: Backoff::Constant, max_delay_ms: 1 };
            runs.push(Submission {
                priority,
                due: due.map(Instant),
                expires: expires.map(Instant),
                key: key.map(Into::into),
                unique: None,
                labels: None,
                policy: GivenPolicy { delivery: Delivery::AtLeastOnce, retry },
                timeout_ms: None,
                pick: Pick::Any,
                action: RawValue::from_string("{}".to_owned()).expect("an object"),
            });
            naive.push((priority, due.unwrap_or(self.now), expires, key));
        }
        let (name, author) = (QUEUES[queue].into(), String::new());
        let submit = Command::Submit { project: ProjectId::DEFAULT, queue: name, runs, author };
        let Some(Done::Submitted(taken)) = self.command(submit) else {
            panic!("runs are submitted");
        };
        for ((priority, due, expires, key), taken) in naive.into_iter().zip(taken.iter()) {
            self.submitted += 1;
            self.naive.runs.push(NaiveRun {
                id: taken.id,
                queue,
                priority,
                first_due: due,
                due,
                expires,
                number: self.submitted,
                key,
                attempt: 0,
                failures: 0,
                is_cancelled: false,
                worker: None,
            });
        }
    }

    fn cancel(&mut self) {
        let runs: Vec<RunId> = self.naive.runs.iter().map(|run| run.id).collect();
        if runs.is_empty() {
            return;
        }
        let run = self.chance.one_of(&runs);
        self.command(Command::CancelRun { project: ProjectId::DEFAULT, run });
        let naive = self.naive.run(run);
        naive.is_cancelled = true;
        if naive.worker.is_none() {
            self.naive.ends(run);
        }
    }

    fn pause_or_resume(&mut self) {
        let index = self.chance.index(QUEUES.len());
        let (queue, naive) = (self.serials[index], &mut self.naive.queues[index]);
        naive.is_paused = !naive.is_paused;
        let command = if naive.is_paused {
            let (author, note) = (String::new(), String::new());
            Command::PauseQueue { queue, author, note, until: None }
        } else {
            Command::ResumeQueue { queue }
        };
        self.command(command);
    }

    fn change_limits(&mut self) {
        let index = self.chance.index(QUEUES.len());
        let settings = settings(QUEUES[index], &mut self.chance);
        self.naive.queues[index].settings = settings;
        self.set(QUEUES[index], settings);
    }

    /// Another owner reads what is written. Who waited is told so, and comes again.
    fn take_over(&mut self) {
        let now = self.time();
        let mut loading = Loading::begin(SHARD, 7, &self.head);
        let mut read = |prefix: String, take: fn(&mut Loading, &str, &[u8])| {
            let records = self.records.iter().filter(|(key, _)| key.starts_with(&prefix));
            records.for_each(|(key, value)| take(&mut loading, key, value));
        };
        read(stored::queues(SHARD), |loading, key, value| loading.queue(key, value).unwrap());
        read(stored::rates(SHARD), |loading, key, value| loading.rate(key, value).unwrap());
        read(dead::dead(SHARD), |loading, key, value| loading.dead(key, value).unwrap());
        read(stored::queued(SHARD), |loading, key, value| loading.queued(key, value).unwrap());
        read(stored::claimed(SHARD), |loading, key, value| loading.claimed(key, value).unwrap());
        read(stored::given(SHARD), |loading, key, value| loading.given(key, value).unwrap());
        self.shard = loading.finish(now);
        self.naive.claims.clear();
        self.claims.clear();
        self.hands.iter_mut().for_each(|hand| hand.cookie = 0);
    }

    /// A worker reports some of what it has, names the rest, and wants more or not.
    fn speak(&mut self, worker: usize) -> Result<(), String> {
        let (ticket, now) = (self.ticket(), self.time());
        let held: Vec<NaiveRun> = self.naive.of_worker(worker).cloned().collect();
        let (mut done, mut released, mut running, mut cancel) = (vec![], vec![], vec![], vec![]);
        for run in held {
            let token = self.hands[worker].tokens[&run.id];
            match self.chance.below(10) {
                0..4 => done.push(self.report(&run, token)),
                4 => {
                    released.push((run.id, token));
                    self.give_back(&run);
                }
                _ => {
                    running.push((run.id, token));
                    cancel.extend(run.is_cancelled.then_some((run.id, token)));
                }
            }
        }
        let acks = done.iter().map(|done| (done.run, done.token, true));
        let acks: Vec<_> = acks.chain(released.iter().map(|(run, it)| (*run, *it, true))).collect();
        let claim = self.chance.happens(800).then(|| self.claim(worker, ticket));
        // A beat may go beside a claim that waits, or tell that nobody listens to its answer any more.
        let gives_up = claim.is_some() || self.chance.happens(300);
        let waits = self.naive.claims.iter().any(|claim| claim.worker == worker);
        let hand = &mut self.hands[worker];
        (hand.number, hand.heard) = (hand.number + 1, self.now);
        let settled = if waits && !gives_up { hand.open - 1 } else { hand.number - 1 };
        let call = WorkerCall {
            project: ProjectId::DEFAULT,
            worker: format!("worker-{worker}").into(),
            incarnation: 1,
            number: hand.number,
            settled,
            lease_ms: LEASE_MS,
            since: 0,
            is_draining: false,
            done,
            released,
            running: Some(running),
            claim: claim.as_ref().map(|claim| ClaimCall {
                cookie: hand.cookie,
                queues: claim.queues.iter().map(|queue| QUEUES[*queue].into()).collect(),
                free: claim.free,
                wait_ms: (claim.until - self.now).unsigned_abs(),
                labels: "".into(),
            }),
        };
        let knows_cookie = hand.cookie != 0;
        self.shard.hear(call, ticket, now);
        self.write();

        let mut expected = NaiveAnswer::new();
        if gives_up {
            self.void(worker)?;
        }
        if let Some(claim) = claim.filter(|_| knows_cookie) {
            expected = self.naive.give(&claim, self.now);
            let is_empty = acks.is_empty() && cancel.is_empty() && expected.is_empty();
            if is_empty && claim.until > self.now {
                self.naive.claims.push(claim);
                self.claims.insert(ticket.0, worker);
                self.hands[worker].open = self.hands[worker].number;
                return Ok(());
            }
        }
        let reply = self.heard(ticket.0)?;
        same("acks", &reply.acks, &acks)?;
        same("cancel", &reply.cancel, &cancel)?;
        self.takes(worker, &reply, &expected)
    }

    /// What came of a run, for both sides.
    fn report(&mut self, run: &NaiveRun, token: RunToken) -> DoneCall {
        let wait = self.chance.one_of(&[50, 1_000, 3_000]);
        let retry_after = Some(std::time::Duration::from_millis(wait));
        let result = self.chance.one_of(&[
            AttemptResult::Succeeded,
            AttemptResult::Succeeded,
            AttemptResult::Failed { retry_after },
            AttemptResult::Stopped,
        ]);
        let now = self.now;
        let naive = self.naive.run(run.id);
        naive.worker = None;
        match result {
            AttemptResult::Failed { .. } => {
                naive.failures += 1;
                naive.due = now + i64::try_from(wait).expect("it is small");
            }
            _ => naive.due = now,
        }
        let is_over = naive.is_cancelled || naive.failures == 3;
        if is_over || result == AttemptResult::Succeeded {
            self.naive.ends(run.id);
        }
        DoneCall { run: run.id, token, result, made: None }
    }

    /// A run that never began waits where it did.
    fn give_back(&mut self, run: &NaiveRun) {
        let naive = self.naive.run(run.id);
        (naive.worker, naive.due, naive.attempt) = (None, run.first_due, run.attempt - 1);
        if run.is_cancelled {
            self.naive.ends(run.id);
        }
    }

    fn claim(&mut self, worker: usize, ticket: Ticket) -> NaiveClaim {
        let chance = &mut self.chance;
        let from = chance.index(QUEUES.len());
        let len = 1 + chance.index(QUEUES.len());
        let queues = (0..len).map(|step| (from + step) % QUEUES.len()).collect();
        let wait: i64 = chance.one_of(&[0, 0, 500, 8_000, 20_000]);
        let free = chance.one_of(&[0, 1, 1, 3, 10]);
        NaiveClaim { worker, ticket: ticket.0, queues, free, until: self.now + wait }
    }

    /// The claim of a worker that waits, if one does, is void.
    fn void(&mut self, worker: usize) -> Result<(), String> {
        let Some(former) = self.naive.claims.extract_if(.., |it| it.worker == worker).next() else {
            return Ok(());
        };
        self.claims.remove(&former.ticket);
        match self.answers.remove(&former.ticket) {
            Some(ShardAnswer::Void) => Ok(()),
            other => Err(format!("the claim {} is void, and not {other:?}", former.ticket)),
        }
    }

    /// What time brings, on both sides.
    fn step(&mut self) -> Result<(), String> {
        let now = self.time();
        self.shard.step(now, &|_| HostRoom::ALL);
        self.write();
        let heard: Vec<i64> = self.hands.iter().map(|hand| hand.heard).collect();
        let expected = self.naive.step(self.now, |worker| self.now - heard[worker] < TWO_BEATS);
        for (ticket, runs) in expected {
            let worker = self.claims.remove(&ticket).expect("a claim that waits");
            let reply = self.heard(ticket)?;
            self.takes(worker, &reply, &runs)?;
        }
        match self.answers.pop_first() {
            None => Ok(()),
            Some(surplus) => Err(format!("nobody is to be answered: {surplus:?}")),
        }
    }

    fn heard(&mut self, ticket: u64) -> Result<WorkerReply, String> {
        match self.answers.remove(&ticket) {
            Some(ShardAnswer::Worker(reply)) => Ok(*reply),
            other => Err(format!("request {ticket} is to be answered, and not {other:?}")),
        }
    }

    /// A worker takes what it is given.
    fn takes(
        &mut self,
        worker: usize,
        reply: &WorkerReply,
        expected: &NaiveAnswer,
    ) -> Result<(), String> {
        let given: NaiveAnswer = reply.runs.iter().map(|run| (run.id, run.given.attempt)).collect();
        same("runs", &given, expected)?;
        same("lost", &reply.lost, &[])?;
        self.hands[worker].cookie = reply.cookie;
        self.given += given.len();
        for run in &reply.runs {
            let last = self.last_tokens.insert(run.id, run.given.token);
            if last.is_some_and(|last| last >= run.given.token) {
                return Err(format!("the token of {} did not grow", run.id));
            }
            self.hands[worker].tokens.insert(run.id, run.given.token);
        }
        Ok(())
    }
}

fn same<T: std::fmt::Debug + PartialEq>(what: &str, told: &[T], right: &[T]) -> Result<(), String> {
    if told == right {
        return Ok(());
    }
    Err(format!("{what}: {told:?}, and the lists say {right:?}"))
}

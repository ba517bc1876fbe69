//! A server. Whoever owns the shard has a real one in memory: it tells it what was said, writes what it wants written, and
//! answers when the shard says so and it still has the right. It decides nothing about runs itself.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use engine::id::{ProjectId, RunId};
use engine::instant::Instant;
use engine::past::Attempt;
use engine::policy::{Backoff, Delivery, Retry};
use engine::queue::dead;
use engine::queue::given::GivenPolicy;
use engine::queue::pick::Pick;
use engine::queue::record as stored;
use engine::queue::submitted::UniqueKey;
use engine::queue::worker::{HeldRun, Wants, WorkerAnswer, WorkerRequest};
use engine::shard::command::{Command, Done};
use engine::shard::{
    ClaimCall, CommandNote, DoneCall, HostRoom, Loading, Now, Put, Room, Shard, ShardAnswer,
    Submission, Ticket, WorkerCall, WorkerReply,
};
use serde_json::value::RawValue;

use super::chance::Chance;
use super::heard::HeardWorkers;
use super::store::{APART_MAX, Batch, Content, Head, NARROW, SHARD, ServerLife, WIDE, settings};
use super::world::{Event, Message, Reply, Said, Time, World};

/// So long may a server act after a renewal, on its own clock.
const SESSION: Time = 3_000;

/// Where is kept which word about pauses was heard last.
const PAUSE: &str = "recall/pause";

const CLUSTER: u64 = 7;
const PROJECT: ProjectId = ProjectId::DEFAULT;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) life: u32,
    /// It makes no step before this.
    pub(super) stall: Time,
    /// It does not reach the store before this.
    pub(super) cut: Time,
    /// To whom it is to hand the shard over.
    pub(super) goal: Option<ServerLife>,
    /// Its clock runs by so many tenths.
    rate: u64,
    /// Its wall clock is so much ahead.
    ahead: Time,
    renewed: Time,
    seen_owner: Option<ServerLife>,
    owned: Option<Owned>,
    flying: Option<Flying>,
    inbox: VecDeque<Message>,
}

/// What an owner has in memory.
struct Owned {
    head: Head,
    shard: Shard,
    tickets: BTreeMap<Ticket, Message>,
    last_ticket: u64,
    /// It had no right to act at its last step.
    was_away: bool,
    is_leaving: bool,
    /// The last word about pauses that was heard.
    pause: u64,
    heard: HeardWorkers,
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Owned({:?})", self.head)
    }
}

/// The one commit whose fate is not known.
#[derive(Debug)]
struct Flying {
    batch: Rc<Batch>,
    then: Then,
}

#[derive(Debug)]
enum Then {
    Take(Content),
    Answer,
    Leave,
}

#[derive(Debug, Clone)]
pub(super) enum ServerEvent {
    Boot,
    Renew,
    Look,
    Tick,
    /// The commit with this nonce is sent, or sent again.
    Copy(u64),
    /// Whether the commit with this nonce is done.
    Committed(u64, bool),
    /// A message came, from another server or not.
    Receive(Message, bool),
}

impl Server {
    pub(super) fn new(chance: &mut Chance) -> Self {
        Self {
            life: 0,
            stall: 0,
            cut: 0,
            goal: None,
            rate: chance.one_of(&[9, 10, 11]),
            ahead: chance.one_of(&[0, 500, APART_MAX]),
            renewed: 0,
            seen_owner: None,
            owned: None,
            flying: None,
            inbox: VecDeque::new(),
        }
    }

    pub(super) fn may_hand_over(&self) -> bool {
        self.owned.is_some() && self.goal.is_none()
    }

    pub(super) fn has_renewed(&self) -> bool {
        self.renewed > 0
    }

    fn has_right(&self, now: Time) -> bool {
        (now - self.renewed) * self.rate < SESSION * 10
    }
}

impl World {
    pub(super) fn boot_server(&mut self, index: usize) {
        let server = &mut self.servers[index];
        server.life += 1;
        (server.owned, server.flying, server.goal, server.seen_owner) = (None, None, None, None);
        server.renewed = 0;
        server.inbox.clear();
        let life = server.life;
        for (duty, period) in
            [(ServerEvent::Renew, 600), (ServerEvent::Look, 400), (ServerEvent::Tick, 100)]
        {
            let wait = self.chance.below(period);
            self.after(wait, Event::Server(index, life, duty));
        }
    }

    pub(super) fn crash_server(&mut self, index: usize, down: Time) {
        let server = &mut self.servers[index];
        server.life += 1;
        server.owned = None;
        server.stall = self.now + down;
        let life = server.life;
        self.after(down, Event::Server(index, life, ServerEvent::Boot));
    }

    pub(super) fn server_event(&mut self, index: usize, event: ServerEvent) {
        let life = self.servers[index].life;
        let period = match event {
            ServerEvent::Boot => return self.boot_server(index),
            ServerEvent::Copy(nonce) => return self.send_copy(index, nonce),
            ServerEvent::Committed(nonce, is_done) => {
                return self.committed(index, nonce, is_done);
            }
            ServerEvent::Receive(message, is_forwarded) => {
                return self.receive(index, message, is_forwarded);
            }
            ServerEvent::Renew => {
                self.renew(index);
                600
            }
            ServerEvent::Look => {
                self.look(index);
                400
            }
            ServerEvent::Tick => {
                self.tick(index);
                100
            }
        };
        let wait = self.chance.between(period * 7 / 10, period * 13 / 10);
        self.after(wait, Event::Server(index, life, event));
    }

    fn renew(&mut self, index: usize) {
        let server = &mut self.servers[index];
        let me = (index, server.life);
        if server.cut > self.now {
            return;
        }
        if self.store.buried.contains(&me) {
            return self.boot_server(index);
        }
        server.renewed = self.now;
        self.store.beats.insert(me, self.now);
    }

    /// Looks who owns the shard, and claims it from who is silent for the whole patience.
    fn look(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if server.cut > self.now || !server.has_right(self.now) {
            return;
        }
        let me = (index, server.life);
        let content = &self.store.content;
        server.seen_owner = content.head.owner;
        if server.owned.is_some() || server.flying.is_some() {
            return;
        }
        if let Some(owner) = content.head.owner {
            if owner == me {
                let content = content.clone();
                return self.take(index, content);
            }
            let beat = self.store.beats.get(&owner).copied().unwrap_or_default();
            let is_silent = (self.now - beat) * server.rate * 4 > SESSION * 10 * 5;
            if !is_silent && !self.store.buried.contains(&owner) {
                return;
            }
            self.store.buried.insert(owner);
        }
        let mut content = content.clone();
        let batch = self.batch(Head { owner: Some(me), ..content.head });
        content.head = batch.head.clone();
        self.commit(index, batch, Then::Take(content));
    }

    /// An empty commit after this head.
    fn batch(&mut self, head: Head) -> Batch {
        let head = Head { number: head.number + 1, nonce: self.chance.number(), ..head };
        Batch { head, puts: Vec::new(), successor: None }
    }

    fn commit(&mut self, index: usize, batch: Batch, then: Then) {
        let nonce = batch.head.nonce;
        self.servers[index].flying = Some(Flying { batch: Rc::new(batch), then });
        self.send_copy(index, nonce);
    }

    /// The same commit again until its fate is known. Each copy may land late.
    fn send_copy(&mut self, index: usize, nonce: u64) {
        let server = &self.servers[index];
        let (life, is_cut) = (server.life, server.cut > self.now);
        let Some(flying) = server.flying.as_ref().filter(|it| it.batch.head.nonce == nonce) else {
            return;
        };
        let batch = Rc::clone(&flying.batch);
        if !is_cut && !self.is_lost(30) {
            let delay = self.store_delay();
            self.after(delay, Event::Arrives(index, life, batch));
        }
        self.after(1_000, Event::Server(index, life, ServerEvent::Copy(nonce)));
    }

    fn committed(&mut self, index: usize, nonce: u64, is_done: bool) {
        let server = &mut self.servers[index];
        let Some(flying) = server.flying.take_if(|flying| flying.batch.head.nonce == nonce) else {
            return;
        };
        match flying.then {
            _ if !is_done => self.leave(index),
            Then::Take(content) => self.take(index, content),
            Then::Answer => self.written(index),
            Then::Leave => {
                self.counts.hand_overs += 1;
                self.leave(index);
            }
        }
    }

    /// What was on its way is written.
    fn written(&mut self, index: usize) {
        let now = self.time_at(index);
        let Some(owned) = &mut self.servers[index].owned else {
            return;
        };
        let done = owned.shard.committed(now);
        let replies = done.replies.into_iter();
        let replies =
            replies.filter_map(|(ticket, done)| Some((owned.tickets.remove(&ticket)?, done)));
        for (message, done) in replies.collect::<Vec<_>>() {
            let reply = match done {
                Done::Submitted(taken) => {
                    let id = taken[0].id;
                    self.ids.insert(id.trigger.0, id);
                    Reply::Run(id.trigger.0)
                }
                Done::Redriven(results) => {
                    let run = results[0].run();
                    self.ids.extend(run.map(|id| (id.trigger.0, id)));
                    Reply::Done(run.is_some())
                }
                _ => Reply::Done(true),
            };
            self.reply(&message, reply);
        }
        self.tell(index, done.answers);
    }

    /// Answers from memory, and only with the right.
    fn tell(&mut self, index: usize, answers: Vec<(Ticket, ShardAnswer)>) {
        let has_right = self.servers[index].has_right(self.now);
        for (ticket, answer) in answers {
            let Some(owned) = &mut self.servers[index].owned else {
                return;
            };
            let Some(message) = owned.tickets.remove(&ticket) else {
                continue;
            };
            if !has_right {
                self.reply(&message, Reply::No);
                continue;
            }
            let reply = match answer {
                ShardAnswer::Worker(reply) => {
                    let given = reply.runs.first().map(|run| run.given.at);
                    if let (Some(given), Said::Worker(request)) = (given, &*message.said) {
                        let is_silent = !owned.heard.was_heard_of_late(request, given);
                        self.store.bad("given to who is silent", is_silent);
                        let is_given_up = owned.heard.was_given_up(request, given);
                        self.store.bad("given to a claim that was given up", is_given_up);
                    }
                    Reply::Worker(self.answer_of(*reply))
                }
                ShardAnswer::OldIncarnation => Reply::OldIncarnation,
                ShardAnswer::Void => Reply::No,
                // It was asked for because everything before it is written then.
                ShardAnswer::Queue(_) => Reply::Done(true),
                other => panic!("nobody asked for {other:?}"),
            };
            self.reply(&message, reply);
        }
    }

    /// The answer in numbers of runs, which workers of this world go by.
    fn answer_of(&mut self, reply: WorkerReply) -> WorkerAnswer {
        for (id, token, counted) in &reply.acks {
            if *counted {
                self.store.count((id.trigger.0, *token));
            }
        }
        self.ids.extend(reply.runs.iter().map(|run| (run.id.trigger.0, run.id)));
        let numbered = |(id, token): (RunId, _)| (id.trigger.0, token);
        WorkerAnswer {
            cookie: reply.cookie,
            as_of: reply.as_of,
            acks: reply.acks.into_iter().map(|(id, it, yes)| ((id.trigger.0, it), yes)).collect(),
            lost: reply.lost.into_iter().map(numbered).collect(),
            cancel: reply.cancel.into_iter().map(numbered).collect(),
            runs: reply.runs.into_iter().map(|run| (run.id.trigger.0, run.given)).collect(),
        }
    }

    /// Who is waiting for an answer is told at once.
    fn leave(&mut self, index: usize) {
        let server = &mut self.servers[index];
        server.goal = None;
        let Some(owned) = server.owned.take() else {
            return;
        };
        let inbox = std::mem::take(&mut server.inbox);
        for message in owned.tickets.into_values().chain(inbox) {
            self.reply(&message, Reply::No);
        }
    }

    /// Builds an owner's memory from what the store has.
    fn take(&mut self, index: usize, content: Content) {
        self.counts.takes += 1;
        let now = self.time_at(index);
        let mut loading = Loading::begin(SHARD, CLUSTER, &content.head.body);
        let mut read = |prefix: String, take: fn(&mut Loading, &str, &[u8])| {
            let records = content.records.iter().filter(|(key, _)| key.starts_with(&prefix));
            records.for_each(|(key, value)| take(&mut loading, key, value));
        };
        read(stored::queues(SHARD), |loading, key, value| loading.queue(key, value).unwrap());
        read(stored::rates(SHARD), |loading, key, value| loading.rate(key, value).unwrap());
        read(dead::dead(SHARD), |loading, key, value| loading.dead(key, value).unwrap());
        read(stored::queued(SHARD), |loading, key, value| loading.queued(key, value).unwrap());
        read(stored::claimed(SHARD), |loading, key, value| loading.claimed(key, value).unwrap());
        read(stored::given(SHARD), |loading, key, value| loading.given(key, value).unwrap());
        read(stored::uniques(SHARD), |loading, key, value| loading.unique(key, value).unwrap());
        let mut shard = loading.finish(now);
        let pause = content.records.get(PAUSE).map(|it| String::from_utf8_lossy(it).parse());
        let pause = pause.map_or(0, |number| number.expect("a number"));
        for name in [NARROW, WIDE] {
            let (settings, author) = (settings(name), String::new());
            let (name, revision) = (name.into(), None);
            let command = Command::SetQueue { project: PROJECT, name, settings, author, revision };
            // Nobody waits for the answer.
            shard.command(command, None, Ticket(0), now).unwrap();
        }
        self.servers[index].owned = Some(Owned {
            head: content.head,
            shard,
            tickets: BTreeMap::new(),
            last_ticket: 0,
            was_away: false,
            is_leaving: false,
            pause,
            heard: HeardWorkers::default(),
        });
    }

    fn time_at(&mut self, index: usize) -> Now {
        let server = &self.servers[index];
        let wall = i64::try_from(self.now + server.ahead).expect("a world is short");
        let steady = self.now * server.rate / 10;
        Now { wall: Instant(wall), steady, random: self.chance.number() }
    }

    pub(super) fn receive(&mut self, index: usize, message: Message, is_forwarded: bool) {
        let server = &mut self.servers[index];
        if server.owned.is_some() {
            return server.inbox.push_back(message);
        }
        let seen_owner = server.seen_owner;
        match seen_owner {
            Some((owner, life))
                if !is_forwarded && owner != index && self.servers[owner].life == life =>
            {
                let delay = self.net_delay();
                let forwarded = ServerEvent::Receive(message, true);
                self.after(delay, Event::Server(owner, life, forwarded));
            }
            _ => self.reply(&message, Reply::No),
        }
    }

    /// Handles what came, and what time brings. One commit is in flight at a time.
    fn tick(&mut self, index: usize) {
        let now = self.time_at(index);
        let server = &mut self.servers[index];
        let has_right = server.has_right(self.now);
        let Some(owned) = &mut server.owned else {
            return;
        };
        if !has_right {
            owned.was_away = true;
            return;
        }
        if std::mem::take(&mut owned.was_away) {
            owned.shard.awake(now);
        }
        if server.goal.is_some() && !owned.is_leaving {
            owned.is_leaving = true;
            owned.shard.begin_handover(now);
            owned.shard.hand_over_attempts("me", now);
        }
        if !owned.is_leaving {
            let messages = std::mem::take(&mut server.inbox);
            for message in messages {
                self.handle(index, message, now);
            }
            let Some(owned) = &mut self.servers[index].owned else {
                return;
            };
            owned.shard.step(now, &|_| HostRoom::ALL);
            let ready = owned.shard.take_answers();
            self.tell(index, ready);
        }
        self.write(index);
    }

    /// Sends what the shard wants written, or, when that is all, the name of its new owner.
    fn write(&mut self, index: usize) {
        let room = Room { writes: self.room, bytes: 1 << 20, value_bytes: 1 << 18 };
        let server = &mut self.servers[index];
        if server.flying.is_some() {
            return;
        }
        let goal = server.goal;
        let Some(owned) = &mut server.owned else {
            return;
        };
        if owned.is_leaving && owned.shard.is_settled() {
            let head = Head { owner: goal, body: owned.shard.head(), ..owned.head.clone() };
            let batch = Batch { successor: goal, ..self.batch(head) };
            return self.commit(index, batch, Then::Leave);
        }
        let Some(written) = owned.shard.take_batch(owned.head.number + 1, room) else {
            return;
        };
        let head = Head { body: written.head, ..owned.head.clone() };
        let batch = Batch { puts: written.puts, ..self.batch(head) };
        let head = batch.head.clone();
        self.servers[index].owned.as_mut().expect("looked at above").head = head;
        self.commit(index, batch, Then::Answer);
    }

    fn handle(&mut self, index: usize, message: Message, now: Now) {
        let said = Rc::clone(&message.said);
        let Some(owned) = &mut self.servers[index].owned else {
            return;
        };
        owned.last_ticket += 1;
        let ticket = Ticket(owned.last_ticket);
        let command = match &*said {
            Said::Worker(request) => {
                owned.heard.hear(request, now.wall);
                owned.tickets.insert(ticket, message);
                let call = call_of(request, &self.ids);
                return owned.shard.hear(call, ticket, now);
            }
            Said::Submit(number) => self.submission(*number, now),
            Said::Cancel(run) => Command::CancelRun { project: PROJECT, run: self.ids[run] },
            Said::Pause(to) => return self.pause(index, *to, message, now),
            Said::Redrive(run) => match self.store.definition(*run) {
                Some((queue, run)) => Command::Redrive { queue, runs: vec![run] },
                // Somebody has redriven it.
                None => return self.reply(&message, Reply::Done(false)),
            },
        };
        let Some(owned) = &mut self.servers[index].owned else {
            return;
        };
        match owned.shard.command(command, None, ticket, now) {
            Ok(()) => {
                owned.tickets.insert(ticket, message);
            }
            // A run that is past cannot be cancelled.
            Err(_) => self.reply(&message, Reply::Done(false)),
        }
    }

    /// Both queues pause, or both go on, unless a later word was heard.
    fn pause(&mut self, index: usize, to: u64, message: Message, now: Now) {
        let queues = self.store.queues();
        let Some(owned) = self.servers[index].owned.as_mut().filter(|_| queues.len() == 2) else {
            return self.reply(&message, Reply::No);
        };
        owned.last_ticket += 1;
        let ticket = Ticket(owned.last_ticket);
        owned.tickets.insert(ticket, message);
        if to <= owned.pause {
            return owned.shard.show_queue(PROJECT, NARROW, ticket, now);
        }
        owned.pause = to;
        for (index, queue) in queues.into_iter().enumerate() {
            let command = if to % 2 == 1 {
                let (author, note) = (String::new(), String::new());
                Command::PauseQueue { queue, author, note, until: None }
            } else {
                Command::ResumeQueue { queue }
            };
            // What was heard last is written with the last of it. A successor may find the first done.
            let note: Option<CommandNote> = (index == 1).then(|| {
                let value = to.to_string().into_bytes();
                Box::new(move |_: &[RunId]| vec![Put::Value(PAUSE.to_owned(), value)])
                    as CommandNote
            });
            let ticket = if index == 1 { ticket } else { Ticket(0) };
            let done = owned.shard.command(command, note, ticket, now);
            assert!(index == 0 || done.is_ok(), "what was heard last is written with it");
        }
    }

    fn submission(&mut self, number: u64, now: Now) -> Command {
        let chance = &mut self.chance;
        // The same number always goes to the same queue, as whoever asks again says the same.
        let queue = if number.is_multiple_of(2) { NARROW } else { WIDE };
        let name = if queue == NARROW { chance.one_of(&["1", "2"]) } else { "3" };
        let has_no_key = queue == WIDE && chance.happens(300);
        let once = chance.happens(if self.has_cuts { 100 } else { 400 });
        let later = |wait: i64| Instant(now.wall.0 + wait);
        let run = Submission {
            priority: chance.one_of(&[0, 1, 2]),
            due: chance.one_of(&[None, None, Some(2_000)]).map(later),
            expires: chance.one_of(&[Some(15_000), None, None, None]).map(later),
            key: Some(name.into()).filter(|_| !has_no_key),
            unique: Some(UniqueKey { key: number.to_string().into(), window_ms: 3_600_000 }),
            labels: None,
            policy: GivenPolicy {
                delivery: if once { Delivery::AtMostOnce } else { Delivery::AtLeastOnce },
                retry: Retry {
                    attempts: 3,
                    delay_ms: 1_000,
                    backoff: Backoff::Constant,
                    max_delay_ms: 1_000,
                },
            },
            timeout_ms: None,
            pick: Pick::Any,
            action: RawValue::from_string("{}".to_owned()).expect("an object"),
        };
        let author = String::new();
        Command::Submit { project: PROJECT, queue: queue.into(), runs: vec![run], author }
    }
}

/// What a worker says, as it comes to a shard.
fn call_of(request: &WorkerRequest, ids: &HashMap<u64, RunId>) -> WorkerCall {
    let named = |(sequence, token): &HeldRun| (ids[sequence], *token);
    let done = request.done.iter().map(|done| DoneCall {
        run: ids[&done.held.0],
        token: done.held.1,
        result: done.result,
        made: Some(Attempt::default()),
    });
    let (running, claim) = match &request.wants {
        Wants::Report => (None, None),
        Wants::Beat { running } => (Some(running), None),
        Wants::Claim { running, cookie, free, until, .. } => {
            let queues = vec![NARROW.into(), WIDE.into()];
            let (free, labels) = (*free, Arc::default());
            let claim = ClaimCall { cookie: *cookie, queues, free, wait_ms: *until, labels };
            (Some(running), Some(claim))
        }
    };
    WorkerCall {
        project: PROJECT,
        worker: Arc::clone(&request.worker),
        incarnation: request.incarnation,
        number: request.number,
        settled: request.settled,
        lease_ms: request.lease_ms,
        since: request.since,
        is_draining: request.is_draining,
        done: done.collect(),
        released: request.released.iter().map(named).collect(),
        running: running.map(|running| running.iter().map(named).collect()),
        claim,
    }
}

//! A server. Whoever owns the shard asks the engine what follows from each message, writes that, and answers when it is
//! written and it still has the right. It decides nothing about runs itself.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use engine::instant::Instant;
use engine::policy::{Backoff, Delivery, Retry};
use engine::queue::backlog::{ClaimOrder, ConcurrencyKey};
use engine::queue::decided::Decided;
use engine::queue::given::GivenPolicy;
use engine::queue::unfinished::{QueueDelta, SubmittedRun, UnfinishedRuns};
use engine::queue::worker::{Heard, HeldRun, Wants, WorkerRequest, Workers};
use engine::shard::{Now, Ticket};

use super::chance::Chance;
use super::store::{APART_MAX, Batch, Content, Head, NARROW, ServerLife, UniqueKey, WIDE, limits};
use super::worker::BEAT;
use super::world::{Event, Message, Reply, Said, Time, World};

/// So long may a server act after a renewal, on its own clock.
const SESSION: Time = 3_000;

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
#[derive(Debug)]
struct Owned {
    head: Head,
    runs: UnfinishedRuns,
    workers: Workers,
    keys: BTreeMap<UniqueKey, u64>,
    tickets: BTreeMap<Ticket, Message>,
    last_ticket: u64,
    /// The last life of each worker that was heard, and when, for the checker.
    heard: BTreeMap<Arc<str>, (u64, Time)>,
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
    Answer(Vec<(Message, Reply)>),
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

impl Owned {
    /// Whether the life of a worker that sent this was heard within two beats.
    fn has_heard_of_late(&self, message: &Message, now: Now) -> bool {
        let Said::Worker(request) = &*message.said else {
            return false;
        };
        let (incarnation, heard) = self.heard.get(&request.worker).copied().unwrap_or_default();
        incarnation == request.incarnation && now.steady < heard + 2 * BEAT
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
        content.head = batch.head;
        self.commit(index, batch, Then::Take(content));
    }

    /// An empty commit after this head.
    fn batch(&mut self, head: Head) -> Batch {
        Batch {
            head: Head { number: head.number + 1, nonce: self.chance.number(), ..head },
            at: self.now,
            changes: Vec::new(),
            ended: Vec::new(),
            keys: Vec::new(),
            proofs: Vec::new(),
            successor: None,
        }
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
            Then::Answer(answers) => self.answer(index, answers),
            Then::Leave => {
                self.counts.hand_overs += 1;
                self.leave(index);
            }
        }
    }

    /// Answers only with the right.
    fn answer(&mut self, index: usize, answers: Vec<(Message, Reply)>) {
        if self.servers[index].has_right(self.now) {
            for (message, reply) in answers {
                self.reply(&message, reply);
            }
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
        let mut runs = UnfinishedRuns::default();
        for queue in [NARROW, WIDE] {
            let limits = limits(queue, content.head.pause % 2 == 1);
            runs.apply(&QueueDelta::Limits(queue, limits), now.wall);
        }
        if let Some(window) = &content.window {
            runs.apply(&QueueDelta::Rate(WIDE, window.clone()), now.wall);
        }
        for (sequence, stored) in &content.runs {
            runs.apply(&QueueDelta::Submitted(stored.submitted.clone()), now.wall);
            if let Some(given) = &stored.given {
                runs.apply(&QueueDelta::Given(*sequence, Arc::clone(given)), now.wall);
            }
        }
        let workers = Workers::new(&runs, now);
        let Content { head, keys, .. } = content;
        let tickets = BTreeMap::new();
        self.servers[index].owned = Some(Owned {
            head,
            runs,
            workers,
            keys,
            tickets,
            last_ticket: 0,
            heard: BTreeMap::new(),
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
            owned.workers.was_away(now);
        }
        if server.flying.is_some() || !has_right {
            return;
        }
        if let Some(goal) = server.goal {
            let head = Head { owner: Some(goal), ..owned.head };
            let batch = Batch { successor: Some(goal), ..self.batch(head) };
            return self.commit(index, batch, Then::Leave);
        }
        let mut owned = server.owned.take().expect("it was there");
        let mut step = OwnerStep::new(&owned, self.room);
        while step.decided.has_room()
            && let Some(message) = self.servers[index].inbox.pop_front()
        {
            self.handle(&mut owned, &mut step, message, now);
        }
        for (ticket, answer) in owned.workers.step(&mut owned.runs, &mut step.decided, now) {
            let message = owned.tickets.remove(&ticket).expect("it waits");
            let is_silent = !owned.has_heard_of_late(&message, now);
            self.store.bad("given to who is silent", is_silent && !answer.runs.is_empty());
            step.answers.push((message, Reply::Worker(answer)));
        }
        if !self.is_calm && step.decided.has_room() && self.chance.happens(20) {
            step.head.fired += 1;
            let slot = UniqueKey::Slot(step.head.fired);
            self.submit(&mut owned, &mut step, slot, now);
        }
        let is_same = step.decided.changes.is_empty() && step.head == owned.head;
        if is_same {
            self.servers[index].owned = Some(owned);
            return self.answer(index, step.answers);
        }
        let OwnerStep { head, decided: Decided { changes, ended, .. }, keys, proofs, answers } =
            step;
        let batch = Batch { changes, ended, keys, proofs, ..self.batch(head) };
        owned.head = batch.head;
        self.servers[index].owned = Some(owned);
        self.commit(index, batch, Then::Answer(answers));
    }

    fn handle(&mut self, owned: &mut Owned, step: &mut OwnerStep, message: Message, now: Now) {
        let reply = match &*message.said {
            Said::Worker(request) => return step.hear(owned, request.clone(), message, now),
            Said::Submit(key) => {
                let known = owned.keys.get(key).copied();
                Reply::Run(known.unwrap_or_else(|| self.submit(owned, step, *key, now)))
            }
            Said::Cancel(run) => Reply::Done(step.decided.cancel(&mut owned.runs, *run, now)),
            Said::Pause(to) => {
                if *to > step.head.pause {
                    step.head.pause = *to;
                    for queue in [NARROW, WIDE] {
                        let change = QueueDelta::Limits(queue, limits(queue, to % 2 == 1));
                        step.decided.change(&mut owned.runs, change, now);
                    }
                }
                Reply::Done(true)
            }
        };
        step.answers.push((message, reply));
    }

    fn submit(&mut self, owned: &mut Owned, step: &mut OwnerStep, key: UniqueKey, now: Now) -> u64 {
        let sequence = (owned.head.number + 1) * 100 + step.keys.len() as u64;
        let chance = &mut self.chance;
        let (queue, name) = chance.one_of(&[(NARROW, 1), (NARROW, 2), (WIDE, 3), (WIDE, 3)]);
        let has_no_key = queue == WIDE && chance.happens(300);
        let once = chance.happens(if self.has_cuts { 100 } else { 400 });
        let later = |wait: i64| Instant(now.wall.0 + wait);
        let run = SubmittedRun {
            queue,
            order: ClaimOrder {
                priority: chance.one_of(&[0, 1, 2]),
                due: later(chance.one_of(&[0, 0, 2_000])),
                sequence,
            },
            key: NonZeroU64::new(name).filter(|_| !has_no_key).map(ConcurrencyKey),
            expires: chance.one_of(&[Some(15_000), None, None, None]).map(later),
            policy: Arc::new(GivenPolicy {
                delivery: if once { Delivery::AtMostOnce } else { Delivery::AtLeastOnce },
                retry: Retry {
                    attempts: 3,
                    delay_ms: 1_000,
                    backoff: Backoff::Constant,
                    max_delay_ms: 1_000,
                },
            }),
        };
        step.decided.change(&mut owned.runs, QueueDelta::Submitted(run), now);
        owned.keys.insert(key, sequence);
        step.keys.push((key, sequence));
        sequence
    }
}

/// What is decided between two commits.
struct OwnerStep {
    head: Head,
    decided: Decided,
    keys: Vec<(UniqueKey, u64)>,
    proofs: Vec<HeldRun>,
    answers: Vec<(Message, Reply)>,
}

impl OwnerStep {
    fn new(owned: &Owned, room: usize) -> Self {
        Self {
            head: owned.head,
            decided: Decided::with_room(room),
            keys: Vec::new(),
            proofs: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn hear(&mut self, owned: &mut Owned, mut request: WorkerRequest, from: Message, now: Now) {
        if let Wants::Claim { until, .. } = &mut request.wants {
            *until += now.steady;
        }
        let heard = owned.heard.entry(Arc::clone(&request.worker)).or_default();
        *heard = (*heard).max((request.incarnation, now.steady));
        owned.last_ticket += 1;
        let ticket = Ticket(owned.last_ticket);
        let heard = owned.workers.hear(&request, ticket, &mut owned.runs, &mut self.decided, now);
        match heard {
            Heard::Waits => {
                owned.tickets.insert(ticket, from);
            }
            Heard::OldIncarnation => self.answers.push((from, Reply::OldIncarnation)),
            Heard::Answer(answer) => {
                let counted = answer.acks.iter().filter(|(_, counted)| *counted);
                self.proofs.extend(counted.map(|(held, _)| *held));
                self.answers.push((from, Reply::Worker(answer)));
            }
        }
    }
}

//! A shard on a bench: a store that takes everything at once, and time that is set by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::id::{ProjectId, SerialId, ShardId};
use engine::instant::Instant;
use engine::notice::{Audience, Listener, nobody};
use engine::outcome::Outcome;
use engine::past::{Attempt, End, Line, Reason, Segment};
use engine::queue::dead;
use engine::queue::given::ClaimedRecord;
use engine::queue::news::QueueNews;
use engine::queue::pick::{self, ChosenRecord, PartEndsRecord};
use engine::queue::record::{self as queue, QueuedRecord};
use engine::record::{decode, encode};
use engine::shard::command::{Command, Done, Rejection};
use engine::shard::record::{
    self, FORMAT, HeadRecord, LagRecord, ReportRecord, RunRecord, TriggerRecord, TriggerState,
};
use engine::shard::{
    AttemptReport, DeadDefinition, Departure, HandedOverAttempt, HostRoom, Loading, Now, Put, Room,
    Shard, ShardAnswer, Ticket, WorkerCall, WorkerReply,
};
use engine::trigger::Draft;

/// What the wall clock says when time begins.
pub(super) const BEGIN: i64 = 1_800_000_000_000;

const SHARD: ShardId = ShardId(3);

/// A shard, and what is in its store.
pub(super) struct Bench {
    pub(super) shard: Shard,
    pub(super) head: HeadRecord,
    /// What has left and is under way.
    pub(super) left: Vec<Departure>,
    /// What is past, in order.
    pub(super) past: Vec<Line>,
    /// What those who watch were told about queues.
    pub(super) news: Vec<QueueNews>,
    /// What the wall clock says, after the beginning.
    pub(super) wall: i64,
    /// What a commit takes.
    pub(super) room: Room,
    pub(super) steady: u64,
    /// Sessions that are there.
    pub(super) senders: BTreeSet<Box<str>>,
    entries: BTreeMap<String, Vec<u8>>,
    audience: Audience,
    /// How much room every host has.
    pub(super) host_room: HostRoom,
    number: u64,
    /// Writes of the largest batch, with its head.
    pub(super) writes_most: usize,
    replies: Vec<Done>,
    answers: Vec<ShardAnswer>,
}

/// A trigger with this schedule and these policies.
pub(super) fn draft(schedule: &str, policy: &str) -> Draft {
    let mut draft: Draft = serde_json::from_str(policy).unwrap();
    draft.schedule = Some(serde_json::from_str(schedule).unwrap());
    draft.webhook = Some(serde_json::from_str(r#"{"url": "http://receiver.test/x"}"#).unwrap());
    draft
}

impl Bench {
    pub(super) fn new() -> Self {
        let head = HeadRecord::default();
        let now = Now { wall: Instant(BEGIN), steady: 0, random: 0 };
        Self {
            shard: Loading::begin(SHARD, 1, &head).finish(now),
            head,
            left: Vec::new(),
            past: Vec::new(),
            news: Vec::new(),
            wall: 0,
            room: Room { writes: 64, bytes: 1 << 20, value_bytes: 1 << 17 },
            steady: 0,
            senders: BTreeSet::new(),
            entries: BTreeMap::new(),
            audience: nobody(),
            host_room: HostRoom::ALL,
            number: 0,
            writes_most: 0,
            replies: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Somebody listens from now on, or nobody.
    pub(super) fn hear(&mut self, listener: Option<Listener>) {
        let listener = listener.map(Arc::new);
        self.audience = Arc::new(move |_| listener.clone());
        self.shard.set_audience(Arc::clone(&self.audience));
    }

    pub(super) fn now(&self) -> Now {
        Now { wall: Instant(BEGIN + self.wall), steady: self.steady, random: self.number }
    }

    /// Lets time pass, and the shard do what it has to do by then.
    pub(super) fn go(&mut self, wall: i64) {
        self.steady += u64::try_from(wall - self.wall).unwrap_or(0);
        self.wall = wall;
        for _ in 0..3 {
            self.step();
            self.commit();
            self.shard.depart(self.now(), &mut self.left);
        }
    }

    /// The shard decides what is due.
    pub(super) fn step(&mut self) {
        self.shard.step(self.now(), &|_| self.host_room);
    }

    /// The wall clock is set.
    pub(super) fn set_clock(&mut self, wall: i64) {
        self.wall = wall;
    }

    /// Writes everything that waits.
    pub(super) fn commit(&mut self) {
        while self.commit_one() {}
    }

    /// Writes one batch.
    pub(super) fn commit_one(&mut self) -> bool {
        let Some(batch) = self.shard.take_batch(self.number + 1, self.room) else { return false };
        self.number += 1;
        self.writes_most = self.writes_most.max(batch.puts.len() + 1);
        let has_gone = batch.puts.iter().any(|put| matches!(put, Put::Gone(_)));
        for put in batch.puts {
            match put {
                Put::Value(key, value) => {
                    if key.starts_with(&record::past(SHARD)) {
                        self.past.extend(Segment::from_bytes(&value).unwrap().lines);
                    }
                    self.entries.insert(key, value);
                }
                Put::Gone(key) => {
                    self.entries.remove(&key);
                }
            }
        }
        if has_gone {
            self.check_claimed();
        }
        self.head = batch.head;
        let committed = self.shard.committed(self.now());
        self.replies.extend(committed.replies.into_iter().map(|(_, done)| done));
        self.answers.extend(committed.answers.into_iter().map(|(_, answer)| answer));
        self.news.extend(committed.news);
        self.left.retain(|left| !committed.aborts.contains(&left.key));
        true
    }

    /// What runs share that were given together is there no longer than one of them shares it.
    fn check_claimed(&self) {
        let places = below(&self.entries, queue::queued(SHARD));
        let places = places.filter_map(|(key, _)| queue::placed_at(SHARD, key));
        let unfinished: BTreeSet<u64> = places.map(|(_, order)| order.sequence).collect();
        let parts = below(&self.entries, pick::chosen(SHARD));
        let parts = parts.flat_map(|(key, value)| self.unfinished_parts(key, value));
        let unfinished: BTreeSet<u64> = unfinished.into_iter().chain(parts).collect();
        for (key, value) in below(&self.entries, queue::claimed(SHARD)) {
            let claimed: ClaimedRecord = decode(value, FORMAT).unwrap();
            let has_own = |run| self.entries.contains_key(&queue::given_key(SHARD, run));
            let mut sharers =
                claimed.numbers().filter(|run| unfinished.contains(run) && !has_own(*run));
            assert!(sharers.next().is_some(), "{key} is left behind");
        }
    }

    /// The parts of a run that have not ended.
    fn unfinished_parts(&self, key: &str, value: &[u8]) -> Vec<u64> {
        let chosen: ChosenRecord = decode(value, FORMAT).unwrap();
        let whole = key.rsplit('/').next().unwrap().parse().unwrap();
        let ends = self.entries.get(&pick::part_ends_key(SHARD, whole));
        let ends: Option<PartEndsRecord> = ends.map(|ends| decode(ends, FORMAT).unwrap());
        let has_ended = |place| ends.as_ref().is_some_and(|ends| ends.of(place).is_some());
        let parts = chosen.numbers().enumerate();
        parts.filter(|(place, _)| !has_ended(*place)).map(|(_, number)| number).collect()
    }

    /// How many records of a kind there are.
    pub(super) fn below(&self, kind: &str) -> usize {
        below(&self.entries, format!("shard/{SHARD}/{kind}")).count()
    }

    /// How many batches were written.
    pub(super) fn commits(&self) -> u64 {
        self.number
    }

    /// The last answer from memory, once all that was decided before it is written.
    pub(super) fn answer(&mut self) -> Option<ShardAnswer> {
        self.commit();
        self.answers.extend(self.shard.take_answers().into_iter().map(|(_, answer)| answer));
        self.answers.pop()
    }

    /// The owner stops cleanly, and leaves what is under way alone.
    pub(super) fn stop(&mut self) {
        self.shard.stop(self.now());
        self.shard.abandon(self.now());
        self.commit();
        self.left.clear();
    }

    /// Another owner takes over, with a clock that says this. The last one is dead.
    pub(super) fn take_over(&mut self, wall: i64) {
        self.left.clear();
        self.steady += u64::try_from(wall - self.wall).unwrap_or(0);
        self.wall = wall;
        let mut loading = Loading::begin(SHARD, 1, &self.head);
        for (key, value) in below(&self.entries, record::triggers(SHARD)) {
            loading.trigger(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, record::states(SHARD)) {
            loading.state(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, record::runs(SHARD)) {
            loading.run(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, record::stopped(SHARD)) {
            loading.stopped(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, record::reserved(SHARD)) {
            loading.reserved(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, queue::queues(SHARD)) {
            loading.queue(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, dead::dead(SHARD)) {
            loading.dead(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, queue::queued(SHARD)) {
            loading.queued(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, pick::picks(SHARD)) {
            loading.picks(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, pick::chosen(SHARD)) {
            loading.chosen(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, pick::part_ends(SHARD)) {
            loading.part_ends(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, queue::claimed(SHARD)) {
            loading.claimed(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, queue::given(SHARD)) {
            loading.given(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, record::lags(SHARD)) {
            loading.lag(key, value).unwrap();
        }
        for (key, value) in below(&self.entries, record::reports(SHARD)) {
            loading.report(key, value).unwrap();
        }
        loading.set_senders(self.senders.clone());
        loading.set_audience(Arc::clone(&self.audience));
        self.shard = loading.finish(self.now());
    }

    /// This session hands the shard over to an owner whose clock says this, and is there from then on. What its reports
    /// are about, in the order in which they left.
    pub(super) fn hand_over(&mut self, sender: &str, wall: i64) -> Vec<HandedOverAttempt> {
        self.shard.begin_handover(self.now());
        let handed_over: BTreeMap<u64, HandedOverAttempt> =
            self.shard.hand_over_attempts(sender, self.now()).into_iter().collect();
        let handed_over = self.left.iter().map(|departure| handed_over[&departure.key]).collect();
        self.commit();
        assert!(self.shard.is_settled());
        assert_eq!((self.shard.head(), self.head.open.len()), (self.head.clone(), 0));
        self.senders.insert(sender.into());
        self.take_over(wall);
        handed_over
    }

    /// Something is written down of what came of an attempt. The owner is not told.
    pub(super) fn write_report(
        &mut self,
        handed_over: HandedOverAttempt,
        sender: &str,
        outcome: Outcome,
    ) {
        let (status, error, response) = (None, None, None);
        let made =
            Attempt { at: self.now().wall, ms: 1, status, error, response, ..Attempt::default() };
        let HandedOverAttempt { sequence, attempt } = handed_over;
        let report = ReportRecord { sender: sender.into(), attempt, outcome, made };
        let key = record::report_key(SHARD, sequence, attempt);
        self.entries.insert(key, encode(FORMAT, &report));
    }

    /// The owner is told of every report that there is.
    pub(super) fn read_reports(&mut self) {
        let reports = below(&self.entries, record::reports(SHARD));
        let reports = reports.map(|(key, value)| (key.to_owned(), decode(value, FORMAT).unwrap()));
        for (key, report) in reports.collect::<Vec<(String, ReportRecord)>>() {
            self.shard.reported(&key, report, self.now());
        }
    }

    /// How many reports there are.
    pub(super) fn reports(&self) -> usize {
        below(&self.entries, record::reports(SHARD)).count()
    }

    /// Asks for something, and says what came of it.
    pub(super) fn ask(&mut self, command: Command) -> Option<Done> {
        self.shard.command(command, None, Ticket(1), self.now()).ok()?;
        self.commit();
        self.replies.pop()
    }

    /// Asks for something, and says why it is refused.
    pub(super) fn refused(&mut self, command: Command) -> Option<Rejection> {
        self.shard.command(command, None, Ticket(1), self.now()).err()
    }

    pub(super) fn create(&mut self, draft: Draft) -> SerialId {
        self.create_judged_at(draft, self.wall)
    }

    /// Creates a trigger whose text was judged then.
    pub(super) fn create_judged_at(&mut self, mut draft: Draft, wall: i64) -> SerialId {
        draft.name = Some(format!("t{}", self.number));
        let definition = Box::new(draft.build(Instant(BEGIN + wall)).unwrap());
        let draft = serde_json::value::to_raw_value(&draft).unwrap();
        let (project, author) = (ProjectId::DEFAULT, String::new());
        let create = Command::Create { project, definition, draft, author, named_until: None };
        match self.ask(create) {
            Some(Done::Created(id)) => id.serial,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn replace(&mut self, trigger: SerialId, draft: Draft) {
        assert!(matches!(self.replace_with(trigger, draft), Some(Done::Replaced { .. })));
    }

    /// What a trigger is.
    pub(super) fn trigger(&self, trigger: SerialId) -> TriggerRecord {
        decode(&self.entries[&record::trigger_key(SHARD, trigger)], FORMAT).unwrap()
    }

    pub(super) fn replace_with(&mut self, trigger: SerialId, mut draft: Draft) -> Option<Done> {
        let stored = self.trigger(trigger);
        draft.name = serde_json::from_str::<Draft>(stored.draft.get()).unwrap().name;
        let definition = Box::new(draft.build(self.now().wall).unwrap());
        let draft = serde_json::value::to_raw_value(&draft).unwrap();
        let author = String::new();
        self.ask(Command::Replace { trigger, definition, draft, author, revision: None })
    }

    pub(super) fn pause(&mut self, trigger: SerialId) {
        let (author, note) = (String::new(), String::new());
        let done = self.ask(Command::Pause { trigger, author, note, until: None });
        assert_eq!(done, Some(Done::Paused));
    }

    /// The first that is under way ends like this.
    pub(super) fn finish(&mut self, outcome: Outcome) {
        let departure = self.left.remove(0);
        let status = match outcome {
            Outcome::Answered { status, .. } => Some(status),
            Outcome::NotSent { .. } | Outcome::Lost { .. } => None,
        };
        let (at, error, response) = (self.now().wall, None, None);
        let attempt = Attempt { at, ms: 1, status, error, response, ..Attempt::default() };
        self.shard.finished(AttemptReport { key: departure.key, outcome, attempt }, self.now());
    }

    /// The records of unfinished runs.
    pub(super) fn runs(&self) -> impl Iterator<Item = RunRecord> {
        below(&self.entries, record::runs(SHARD)).map(|(_, value)| decode(value, FORMAT).unwrap())
    }

    /// The queue with this name.
    pub(super) fn queue(&self, name: &str) -> queue::QueueRecord {
        let mut all = below(&self.entries, queue::queues(SHARD))
            .map(|(_, value)| decode::<queue::QueueRecord>(value, FORMAT).unwrap());
        all.find(|queue| &*queue.name == name).unwrap()
    }
    /// The records of hosts that cannot keep up.
    pub(super) fn lags(&self) -> Vec<LagRecord> {
        let lags = below(&self.entries, record::lags(SHARD));
        lags.map(|(_, value)| decode(value, FORMAT).unwrap()).collect()
    }

    /// The runs that wait in queues or are given: the slot of each, after the beginning, and when it is due.
    pub(super) fn queued(&self) -> Vec<(i64, i64)> {
        let runs = below(&self.entries, queue::queued(SHARD)).map(|(key, value)| {
            let (_, order) = queue::placed_at(SHARD, key).unwrap();
            let record: QueuedRecord = decode(value, FORMAT).unwrap();
            (record.born.0 - BEGIN, order.due.0 - BEGIN)
        });
        runs.collect()
    }

    /// The dead runs that are kept, as whoever redrives them reads them.
    pub(super) fn dead(&self) -> Vec<DeadDefinition> {
        let dead = below(&self.entries, dead::dead(SHARD)).map(|(key, value)| {
            let (queue, sequence) = dead::dead_at(SHARD, key).unwrap();
            let place = decode::<dead::DeadRecord>(value, FORMAT).unwrap().place(queue, sequence);
            let queued = &self.entries[&queue::queued_key(SHARD, &place)];
            let mut record: QueuedRecord = decode(queued, FORMAT).unwrap();
            if place.has_body {
                let body = &self.entries[&queue::body_key(SHARD, &place)];
                record.action = Some(decode::<queue::BodyRecord>(body, FORMAT).unwrap().action);
            }
            DeadDefinition { sequence, record: Box::new(record) }
        });
        dead.collect()
    }

    /// A worker says something, and is answered at once.
    pub(super) fn work(&mut self, call: WorkerCall) -> WorkerReply {
        self.shard.hear(call, Ticket(9), self.now());
        let ready = self.shard.take_answers();
        self.answers.extend(ready.into_iter().map(|(_, answer)| answer));
        self.commit();
        match self.answers.pop() {
            Some(ShardAnswer::Worker(reply)) => *reply,
            other => panic!("{other:?}"),
        }
    }

    /// All triggers.
    pub(super) fn triggers(&self) -> Vec<SerialId> {
        let keys = below(&self.entries, record::triggers(SHARD)).map(|(key, _)| key);
        keys.map(|key| key.rsplit('/').next().unwrap().parse().unwrap()).collect()
    }

    /// What moved of a trigger.
    pub(super) fn state(&self, trigger: SerialId) -> TriggerState {
        decode(&self.entries[&record::state_key(SHARD, trigger)], FORMAT).unwrap()
    }

    /// How runs ended.
    pub(super) fn ends(&self) -> Vec<End> {
        let ends = self.past.iter().filter_map(|line| match line {
            Line::Run(run) => Some(run.end),
            Line::Skip(_) => None,
        });
        ends.collect()
    }

    /// What was skipped: from when to when, after the beginning, and why.
    pub(super) fn skips(&self) -> Vec<(i64, i64, Reason)> {
        let skips = self.past.iter().filter_map(|line| match line {
            Line::Skip(skip) => Some((skip.from.0 - BEGIN, skip.to.0 - BEGIN, skip.reason)),
            Line::Run(_) => None,
        });
        skips.collect()
    }
}

fn below(
    entries: &BTreeMap<String, Vec<u8>>,
    prefix: String,
) -> impl Iterator<Item = (&str, &[u8])> {
    let from = entries.range(prefix.clone()..);
    from.take_while(move |(key, _)| key.starts_with(&prefix))
        .map(|(key, value)| (key.as_str(), value.as_slice()))
}

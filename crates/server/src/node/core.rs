//! The core: one thread that owns the shards of this node and moves bytes between them and the world.
//!
//! It decides nothing. It tells shards what happened and what time it is, hands what they want written to
//! the committer and what shall leave to the dispatcher, and sleeps until the next of these.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::jump::{Jump, WallWatch};
use engine::limits::{
    MARK_AHEAD_MS_MAX, MISSED_AFTER_MS, QUEUE_WAITING_BYTES, QUEUE_WAITING_MAX,
    RESPONSE_KEPT_BYTES_MAX, STOP_ATTEMPTS_MAX, STOP_WRITES_MAX,
};
use engine::outcome::Outcome;
use engine::past::Attempt;
use engine::shard::command::Done;
use engine::shard::{
    AttemptReport, Departure, HandedOverAttempt, Now, Room, Shard, ShardAnswer, Ticket,
};
use engine::webhook::Webhook;
use store::election::Right;
use store::machine::Machine;
use store::session::SessionKey;
use store::{Limits, Pending};
use tokio::sync::{mpsc, oneshot, watch};

use super::backpressure::Backpressure;
use super::committer::{Batches, Handed, Order, WrittenBatches};
use super::component::{Component, StopOrder};
use super::handover::{ShardEvent, ShardHandover};
use super::liveness::Liveness;
use super::quiesce::Quiesced;
use super::quota::QuotaLedger;
use super::report::{Awaited, KeyedReport};
use super::start::NodeResources;
use super::{Stop, log, now};
use crate::event::EventLog;
use crate::follower::OutputFollowers;
use crate::handle::{CallError, CommandGuard, FiringState, NodeCall, NodeStatus};
use crate::metric::NodeMetrics;
use crate::peers::Peers;
use crate::webhook::{self, Dispatcher, FinishedCall};

/// Commits that nobody waits for are at least this far apart.
const PACE: Duration = Duration::from_millis(40);

/// Writes that are put together for an engine that others use as well.
const ENGINE_WRITES: usize = 1_024;

/// The core looks around at least this often, so that its session sees that it lives.
const SLEEP_MAX: Duration = Duration::from_millis(400);

/// Calls and answers that are taken in one go before shards have their turn.
const TAKEN_MAX: usize = 1_024;

/// A shard that this node owns.
pub(super) struct Owned {
    pub(super) shard: Shard,
    pub(super) right: Right,
    /// The number of the last commit of its chain.
    pub(super) number: u64,
    /// When its next step is due.
    pub(super) wake: Option<Instant>,
    /// Whether this node had lost the right to act at its last step.
    pub(super) is_lapsed: bool,
}

impl Owned {
    /// Decides what is due. What was due while this node might not act was missed.
    pub(super) fn step(&mut self, hosts: &Backpressure, now: Now) {
        if std::mem::take(&mut self.is_lapsed) {
            self.shard.awake(now);
        }
        let id = self.shard.id();
        self.shard.step(now, &|origin| hosts.room(id, origin, now.steady));
        hosts.demand(id, self.shard.take_host_demands(), now.steady);
    }
}

/// What comes to the core.
pub(super) struct CoreInbox {
    stop: watch::Receiver<Stop>,
    shard_events: mpsc::UnboundedReceiver<ShardEvent>,
    pub(super) results: mpsc::UnboundedReceiver<FinishedCall>,
    calls: mpsc::Receiver<NodeCall>,
}

/// Where others put what comes to the core.
pub(super) struct CoreSenders {
    pub(super) stop: watch::Sender<Stop>,
    pub(super) shard_events: mpsc::UnboundedSender<ShardEvent>,
    pub(super) results: mpsc::UnboundedSender<FinishedCall>,
    pub(super) calls: mpsc::Sender<NodeCall>,
}

/// Whom the core gives something to do.
pub(super) struct CoreOutputs {
    pub(super) dispatcher: Dispatcher,
    /// Orders for the committer.
    pub(super) orders: mpsc::UnboundedSender<Order>,
    /// Reports for the poster to write.
    pub(super) posts: mpsc::UnboundedSender<KeyedReport>,
    /// For whose reports the collector looks.
    pub(super) awaited: watch::Sender<Awaited>,
    /// For those who answer the core by an event.
    pub(super) shard_events: mpsc::UnboundedSender<ShardEvent>,
}

/// What the core wakes up for.
enum Wakeup {
    Shard(ShardEvent),
    Result(FinishedCall),
    Call(NodeCall),
    Stop,
    Time,
}

impl CoreInbox {
    /// An empty one, and how to fill it.
    pub(super) fn new() -> (CoreSenders, Self) {
        let (stop, stopped) = watch::channel(Stop::No);
        let (shard_events, happened) = mpsc::unbounded_channel();
        let (results, finished) = mpsc::unbounded_channel();
        let (calls, called) = mpsc::channel(1_024);
        let senders = CoreSenders { stop, shard_events, results, calls };
        (senders, Self { stop: stopped, shard_events: happened, results: finished, calls: called })
    }

    /// Waits for the next thing to happen; for calls and the word to stop only while it is open.
    async fn next(&mut self, sleeping: Pending<'static, ()>, is_open: bool) -> Wakeup {
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop != Stop::No), if is_open => Wakeup::Stop,
            Some(event) = self.shard_events.recv() => Wakeup::Shard(event),
            Some(result) = self.results.recv() => Wakeup::Result(result),
            call = self.calls.recv(), if is_open => call.map_or(Wakeup::Stop, Wakeup::Call),
            () = sleeping => Wakeup::Time,
        }
    }
}

pub(super) struct NodeCore {
    /// The session of this node.
    pub(super) me: SessionKey,
    pub(super) peers: Arc<Peers>,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) shards: BTreeMap<ShardId, Owned>,
    pub(super) inbox: CoreInbox,
    pub(super) outputs: CoreOutputs,
    status: watch::Sender<NodeStatus>,
    /// How many attempts of shards that have left are under way.
    pub(super) handed_over_count: watch::Sender<usize>,
    pub(super) room: Room,
    /// So many runs of a queue may wait, by what the store takes.
    pub(super) waiting_max: usize,
    metrics: Arc<NodeMetrics>,
    pub(super) events: Arc<EventLog>,
    pub(super) followers: Arc<OutputFollowers>,
    liveness: Liveness,
    pub(super) wall: WallWatch,
    pub(super) tickets: HashMap<Ticket, PendingReply>,
    pub(super) last_ticket: u64,
    /// Who waits for what a shard answers from memory.
    pub(super) asked: HashMap<Ticket, PendingAnswer>,
    pub(super) quotas: QuotaLedger,
    /// Steady time of the last order that is not written yet.
    ordered: Option<u64>,
    last_order: u64,
    last_look: u64,
    /// Nothing fires, because what was fired before lies in the future.
    pub(super) is_ahead: bool,
    /// The node had lost the right to act at its last look.
    is_lapsed: bool,
    pub(super) stopping: Option<StopProgress>,
    /// The shard that writes nothing at the moment.
    pub(super) quiesced: Option<Quiesced>,
    pub(super) hosts: Arc<Backpressure>,
    /// The shard that leaves.
    pub(super) handing_over: Option<ShardHandover>,
    /// Attempts of shards that have left, by key, and what to report them as.
    pub(super) handed_over: HashMap<u64, (ShardId, HandedOverAttempt)>,
    /// How often each shard has come here.
    pub(super) stays: HashMap<ShardId, u16>,
}

/// A reply that waits until its command is written.
pub(super) struct PendingReply {
    pub(super) shard: ShardId,
    pub(super) reply: CommandReply,
    /// Dropped when the outcome of the command is known.
    pub(super) _guard: Option<CommandGuard>,
}

/// An answer from memory that is waited for.
pub(super) struct PendingAnswer {
    pub(super) shard: ShardId,
    pub(super) reply: oneshot::Sender<Result<ShardAnswer, CallError>>,
}

/// How whoever gave a command is told what came of it.
pub(super) type CommandReply = oneshot::Sender<Result<Done, CallError>>;

#[derive(Clone, Copy)]
pub(super) struct StopProgress {
    since: u64,
    is_abandoned: bool,
}

impl Component for NodeCore {
    const NAME: &'static str = "the core";
    const STOP_ORDER: StopOrder = StopOrder::First;

    async fn run(mut self) {
        loop {
            let now = self.look();
            self.end_quiesce(now);
            self.reconsider(now);
            self.step_shards(now);
            self.continue_handover(now);
            if self.is_over(now) {
                break;
            }
            self.order(now);
            let sleeping = self.machine.sleep(self.sleep(now));
            let event = self.inbox.next(sleeping, self.stopping.is_none()).await;
            let now = self.look();
            match event {
                Wakeup::Shard(event) => self.shard_event(event, now),
                Wakeup::Result(result) => self.result(result, now),
                Wakeup::Call(call) => self.call(call, now),
                Wakeup::Stop => self.stop(now),
                Wakeup::Time => {}
            }
            self.take(now);
        }
        self.outputs.dispatcher.stop();
    }
}

impl NodeCore {
    /// A core without shards.
    pub(super) fn new(shared: &NodeResources, inbox: CoreInbox, outputs: CoreOutputs) -> Self {
        let machine = Arc::clone(shared.session.machine());
        let wall = Instant(i64::try_from(machine.wall_us() / 1_000).unwrap_or(i64::MAX));
        let steady = machine.reading().boot;
        let millis = u64::try_from(steady.as_millis()).unwrap_or(u64::MAX);
        let Limits { writes, commit_bytes, value_bytes } = shared.store.limits();
        // Others wait behind a large commit of an engine; one that is decided as a whole goes alone, however large.
        let usual = if shared.store.is_exclusive() { usize::MAX } else { ENGINE_WRITES };
        Self {
            wall: WallWatch::new(wall, steady),
            tickets: HashMap::new(),
            last_ticket: 0,
            asked: HashMap::new(),
            quotas: QuotaLedger::default(),
            ordered: None,
            last_order: 0,
            last_look: millis,
            is_ahead: false,
            is_lapsed: false,
            stopping: None,
            quiesced: None,
            hosts: Arc::default(),
            handing_over: None,
            handed_over: HashMap::new(),
            stays: HashMap::new(),
            shards: BTreeMap::new(),
            me: shared.session.key().clone(),
            peers: Arc::clone(&shared.peers),
            machine,
            inbox,
            outputs,
            status: watch::Sender::new(NodeStatus { firing: FiringState::Going, is_ready: true }),
            handed_over_count: watch::Sender::new(0),
            room: Room { writes: writes.min(usual), bytes: commit_bytes, value_bytes },
            waiting_max: waiting_max(shared.store.room()),
            metrics: Arc::clone(&shared.metrics),
            events: Arc::clone(&shared.events),
            followers: Arc::clone(&shared.followers),
            liveness: shared.liveness.clone(),
        }
    }

    pub(super) fn status(&self) -> watch::Receiver<NodeStatus> {
        self.status.subscribe()
    }

    /// What time it is. Looks whether the clock was set, and whether this process was away: whatever is done
    /// with the time that a clock shows is done after that. As long as nobody has confirmed a jump, time goes
    /// on from where it was before it: what people ask for meanwhile is not dated by a clock that may be wrong.
    fn look(&mut self) -> Now {
        let mut now = now(&*self.machine);
        self.liveness.core_moved(now.steady);
        let away = now.steady.saturating_sub(self.last_look);
        self.last_look = now.steady;
        let jump = self.wall.look(now.wall, Duration::from_millis(now.steady));
        now.wall = Instant(now.wall.0 - self.wall.unconfirmed().unwrap_or(0));
        let was_away = away > MISSED_AFTER_MS.unsigned_abs() + 500;
        match jump {
            Jump::None if !was_away => return now,
            Jump::None => tracing::warn!(away_ms = away, "this process did not run for a while"),
            Jump::Forward(by) => tracing::warn!(by_ms = by, "the wall clock was set forward"),
            Jump::Back(by) => tracing::warn!(by_ms = by, "the wall clock was set back"),
        }
        for owned in self.shards.values_mut() {
            owned.wake = Some(now.wall);
            owned.shard.awake(now);
            if matches!(jump, Jump::Back(by) if by > MARK_AHEAD_MS_MAX)
                && !self.is_ahead
                && owned.shard.is_ahead_of_clock(now)
            {
                owned.shard.set_back(now);
            }
        }
        self.show(now);
        now
    }

    /// Why nothing fires, if nothing does.
    pub(super) fn suspended(&self) -> Option<String> {
        if let Some(by) = self.wall.unconfirmed() {
            let by = Duration::from_millis(by.unsigned_abs());
            return Some(format!("the wall clock was set forward by {by:?}"));
        }
        self.is_ahead
            .then(|| "what was fired before lies in the future by this machine's clock".to_owned())
    }

    /// Shows the world whether this node fires.
    pub(super) fn show(&mut self, now: Now) {
        let why = self.suspended();
        for owned in self.shards.values_mut() {
            owned.shard.set_suspended(why.is_some());
        }
        let shards: Vec<ShardId> = self.shards.keys().copied().collect();
        for shard in shards {
            self.answer_asked(shard);
        }
        let firing = match why {
            None => FiringState::Going,
            Some(why) => {
                tracing::error!(%why, "firing is suspended: check the clock, then watchbell scheduler confirm-time");
                FiringState::Suspended { since: now.wall, why }
            }
        };
        let is_ready = self.stopping.is_none();
        self.status.send_if_modified(|status| {
            let news = NodeStatus { firing, is_ready };
            let is_news = match (&status.firing, &news.firing) {
                (FiringState::Suspended { why, .. }, FiringState::Suspended { why: now, .. }) => {
                    why != now
                }
                (was, is) => was != is,
            } || status.is_ready != news.is_ready;
            if is_news {
                *status = news;
            }
            is_news
        });
    }

    /// Gives every shard its turn that has something to do.
    fn step_shards(&mut self, now: Now) {
        let is_suspended = self.suspended().is_some();
        let (mut leaving, mut ready) = (Vec::new(), Vec::new());
        for (id, owned) in &mut self.shards {
            if owned.wake.is_none_or(|wake| wake > now.wall) {
                continue;
            }
            let Some(permit) = owned.right.permit() else {
                // The session has lapsed, and may be renewed any moment. What is due until then is missed.
                owned.is_lapsed = true;
                owned.wake = Some(Instant(now.wall.0 + 50));
                continue;
            };
            owned.shard.set_watched(self.events.is_watched());
            owned.step(&self.hosts, now);
            self.events.push_queues(owned.shard.take_news());
            owned.wake = owned.shard.next_wake(now);
            if is_suspended {
                continue;
            }
            owned.shard.depart(now, &mut leaving);
            owned.wake = owned.shard.next_wake(now);
            for departure in leaving.drain(..) {
                self.hosts.add(*id, global(*id, departure.key), &departure);
                send(&self.outputs.dispatcher, *id, permit.token.0, departure);
            }
            self.hosts.demand(*id, owned.shard.take_host_demands(), now.steady);
            let answers = owned.shard.take_answers();
            if !answers.is_empty() {
                ready.push((*id, answers));
            }
        }
        for (id, answers) in ready {
            self.tell_asked(id, answers);
        }
        self.metrics
            .in_flight(self.outputs.dispatcher.in_flight(), self.outputs.dispatcher.waiting());
        self.tell_lapse();
    }

    /// Says it once when nothing fires because the session could not be renewed, and when that is over.
    fn tell_lapse(&mut self) {
        let is_lapsed = self.shards.values().any(|owned| owned.is_lapsed);
        if std::mem::replace(&mut self.is_lapsed, is_lapsed) == is_lapsed {
            return;
        }
        if is_lapsed {
            tracing::warn!(
                "this server fires nothing: its session could not be renewed in time; it goes on when the store answers"
            );
        } else {
            tracing::warn!("this server may fire again");
        }
    }

    /// Hands what is to be written to the committer, if it is idle and it is time.
    fn order(&mut self, now: Now) {
        if self.ordered.is_some() {
            return;
        }
        let is_asked = self.writers().any(|owned| owned.shard.is_asked());
        let by = self.writers().filter_map(|owned| owned.shard.commit_by()).min();
        let is_time = by.is_some_and(|by| by <= now.wall) && now.steady >= self.next_order();
        if !is_asked && !is_time && self.stopping.is_none() && self.handing_over.is_none() {
            return;
        }
        let mut order = Batches::new();
        let quiesced = self.quiesced.as_ref().map(|quiesced| quiesced.shard);
        for (id, owned) in self.shards.iter_mut().filter(|(id, _)| Some(**id) != quiesced) {
            if let Some(batch) = owned.shard.take_batch(owned.number + 1, self.room) {
                owned.number += 1;
                order.push((*id, batch));
            }
        }
        if !order.is_empty() && self.outputs.orders.send(Order::Write(order)).is_ok() {
            self.ordered = Some(now.steady);
            self.last_order = now.steady;
        }
    }

    fn writers(&self) -> impl Iterator<Item = &Owned> {
        let quiesced = self.quiesced.as_ref().map(|quiesced| quiesced.shard);
        self.shards.iter().filter(move |(id, _)| Some(**id) != quiesced).map(|(_, owned)| owned)
    }

    fn next_order(&self) -> u64 {
        self.last_order + u64::try_from(PACE.as_millis()).expect("short")
    }

    fn sleep(&self, now: Now) -> Duration {
        let mut wakes: Vec<Instant> = self.shards.values().filter_map(|owned| owned.wake).collect();
        if self.ordered.is_none() {
            let pace = Duration::from_millis(self.next_order().saturating_sub(now.steady));
            let by = self.writers().filter_map(|owned| owned.shard.commit_by()).min();
            wakes.extend(by.map(|by| by.max(now.wall.after(pace))));
        }
        let wake = wakes.into_iter().min().unwrap_or(Instant::LAST);
        let wait = u64::try_from(wake.0.saturating_sub(now.wall.0)).unwrap_or(0);
        Duration::from_millis(wait).min(SLEEP_MAX)
    }

    pub(super) fn written(&mut self, written: WrittenBatches, now: Now) {
        self.ordered = None;
        self.metrics.commit(written.took, written.bytes);
        for id in written.done {
            let Some(owned) = self.shards.get_mut(&id) else { continue };
            let done = owned.shard.committed(now);
            self.metrics.add_output_stored(owned.shard.take_output_stored());
            owned.wake = Some(now.wall);
            for key in done.aborts {
                self.outputs.dispatcher.cancel(global(id, key));
            }
            for (ticket, done) in done.replies {
                if let Some(waiting) = self.tickets.remove(&ticket) {
                    let _ = waiting.reply.send(Ok(done));
                }
            }
            for line in &done.past {
                log::line(id, line);
                self.metrics.line(line);
            }
            self.followers.let_go(id, &done.past);
            self.events.push_past(id, done.past);
            self.events.push_queues(done.news);
            self.metrics.given(&owned.shard.take_tally());
            self.tell_asked(id, done.answers);
        }
        for id in written.lost {
            // Whether its commands were done is not known here: their replies are dropped.
            self.handed(id, Handed::Lost);
        }
        self.begin_quiesce();
    }

    /// Counts what is served here, for somebody who asks.
    pub(super) fn take_census(&self, now: Now) {
        let shards = || self.shards.values().map(|owned| &owned.shard);
        self.metrics.triggers(shards().map(Shard::census));
        self.metrics.queues(shards().map(Shard::queue_census), now.wall);
        self.metrics.overdue_queues(shards().map(Shard::queues_overdue).sum());
        self.metrics.workers(shards().flat_map(|shard| shard.worker_activities(now)));
    }

    /// Takes what has come meanwhile, of every kind: however many results there are, people are heard.
    fn take(&mut self, now: Now) {
        for _ in 0..TAKEN_MAX {
            let Ok(result) = self.inbox.results.try_recv() else { break };
            self.result(result, now);
        }
        for _ in 0..TAKEN_MAX {
            let Ok(call) = self.inbox.calls.try_recv() else { break };
            self.call(call, now);
        }
    }

    pub(super) fn result(&mut self, result: FinishedCall, now: Now) {
        let leaves_at = self.hosts.remove(result.key, &result.outcome, now.steady);
        if let Some(leaves_at) = leaves_at
            && !matches!(result.outcome, Outcome::NotSent { .. })
        {
            self.metrics.late(result.started.0.saturating_sub(leaves_at.0));
        }
        let Some(result) = self.end_handed_over(result) else { return };
        // Pauses before the next attempt shall differ; nobody minds if they could be guessed.
        let random = now.random ^ result.key;
        let (id, key) = local(result.key);
        if let Some(owned) = self.shards.get_mut(&id) {
            owned.shard.finished(report(key, result), Now { random, ..now });
            owned.wake = Some(now.wall);
        }
    }

    /// Begins to stop: nothing new is decided, and what has not left goes back.
    fn stop(&mut self, now: Now) {
        tracing::info!("stopping");
        self.stopping = Some(StopProgress { since: now.steady, is_abandoned: false });
        // A call that is dropped after this is answered by the handle: this node stops.
        self.inbox.calls.close();
        while self.inbox.calls.try_recv().is_ok() {}
        // Stopping does not wait for a backup.
        self.quiesced = None;
        for owned in self.shards.values_mut() {
            owned.shard.stop(now);
            owned.wake = Some(now.wall);
        }
        self.outputs.dispatcher.recall(0..=u64::MAX, || ());
        self.show(now);
    }

    /// Whether everything is written and nothing is under way, or there is no more time to wait.
    fn is_over(&mut self, now: Now) -> bool {
        let Some(stopping) = &mut self.stopping else { return false };
        if *self.inbox.stop.borrow() == Stop::AtOnce {
            return true;
        }
        let passed = Duration::from_millis(now.steady.saturating_sub(stopping.since));
        let in_flight: usize = self.shards.values().map(|owned| owned.shard.in_flight()).sum();
        if (in_flight == 0 || passed >= STOP_ATTEMPTS_MAX) && !stopping.is_abandoned {
            stopping.is_abandoned = true;
            if in_flight > 0 {
                tracing::warn!(
                    in_flight,
                    "stopping while webhooks are under way: they are sent again, or end as unknown if that must not be"
                );
            }
            for owned in self.shards.values_mut() {
                owned.shard.abandon(now);
            }
        }
        let is_settled = self.shards.values().all(|owned| owned.shard.is_settled());
        (stopping.is_abandoned && is_settled && self.ordered.is_none()) || passed >= STOP_WRITES_MAX
    }
}

/// So many runs of a queue may wait in a store that has room for so many bytes, or for as many as a disk.
fn waiting_max(room: Option<u64>) -> usize {
    let runs = room.map(|bytes| usize::try_from(bytes / QUEUE_WAITING_BYTES).unwrap_or(usize::MAX));
    runs.map_or(QUEUE_WAITING_MAX, |runs| runs.min(QUEUE_WAITING_MAX))
}

/// A key of a shard, for a dispatcher that serves all of them.
pub(super) fn global(shard: ShardId, key: u64) -> u64 {
    u64::from(shard.0) << 48 | key
}

fn local(key: u64) -> (ShardId, u64) {
    (ShardId(u16::try_from(key >> 48).expect("16 bits")), key & ((1 << 48) - 1))
}

fn send(dispatcher: &Dispatcher, shard: ShardId, token: u64, departure: Departure) {
    log::departure(shard, &departure);
    let Webhook { form, path, body } = departure.webhook;
    dispatcher.send(webhook::Call {
        key: global(shard, departure.key),
        project: departure.project,
        run: departure.run.to_string().into(),
        attempt: departure.attempt,
        scheduled: departure.slot,
        leave_by: departure.leave_by,
        token,
        form,
        path,
        body: body.map(|body| body.into_boxed_bytes().into_vec().into()),
    });
}

pub(super) fn report(key: u64, result: FinishedCall) -> AttemptReport {
    let is_good = result.response.as_ref().is_some_and(|response| response.status / 100 == 2);
    let kept = if is_good { RESPONSE_KEPT_BYTES_MAX } else { usize::MAX };
    let text =
        result.response.as_ref().filter(|response| !response.body.is_empty()).map(|response| {
            let body = &response.body[..response.body.len().min(kept)];
            // What cannot be seen would take six times its room in a record.
            let is_exception =
                |char: char| char.is_control() && !matches!(char, '\n' | '\r' | '\t');
            String::from_utf8_lossy(body).replace(is_exception, "?")
        });
    let attempt = Attempt {
        at: result.started,
        ms: u32::try_from(result.latency.as_millis()).unwrap_or(u32::MAX),
        status: result.response.map(|response| response.status),
        error: result.error,
        response: text,
        ..Attempt::default()
    };
    AttemptReport { key, outcome: result.outcome, attempt }
}

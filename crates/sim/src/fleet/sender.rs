//! Who calls receivers for a simulated server, and what they hear.
//!
//! A call waits for a moment, so that it can be taken back. Then its server's right is asked, and it leaves: it is
//! heard at that moment, whatever becomes of its answer. Receivers see what no server does: whether the head of the shard
//! names somebody else by then, and what they have heard before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::id::{RunId, SerialId};
use engine::instant::Instant as Wall;
use engine::lease::Reading;
use engine::outcome::{Lost, NotSent, Outcome};
use server::node::SimulatedSender;
use server::webhook::{Call, FinishedCall, PermitCheck, Response, SenderCommand};
use store::machine::Machine;
use store::session::SessionKey;
use tokio::sync::mpsc;

use super::Fleet;
use super::setting::{FleetSetting, Temper};
use crate::clock::{MS, TrueTime};
use crate::dice::Dice;
use crate::shard::promise::ShardPromise;
use crate::world::ProcessId;

/// A call that was heard.
#[derive(Debug, Clone, Copy)]
pub struct HeardCall {
    /// Which attempt of its run.
    pub attempt: u32,
    /// What was answered.
    pub answer: ReceiverAnswer,
}

/// What comes back to a call that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverAnswer {
    /// An answer with this status.
    Status(u16),
    /// It is heard, and the connection ends without an answer.
    Closed,
    /// It is heard, and nothing comes back.
    Silence,
    /// Nobody takes the connection, and nothing is heard.
    Refused,
}

/// Everybody who is called.
pub struct Receivers {
    temper: Temper,
    /// What is to be delivered at most once.
    once: BTreeSet<SerialId>,
    state: Mutex<ReceiversState>,
}

struct ReceiversState {
    dice: Dice,
    heard: BTreeMap<RunId, Vec<HeardCall>>,
    /// Runs that were tried, whether that was heard or not.
    tried: BTreeSet<RunId>,
}

impl Receivers {
    /// The receivers that a setting asks for.
    pub fn new(setting: &FleetSetting, dice: Dice) -> Self {
        let once = setting.triggers.iter().filter(|trigger| trigger.is_once());
        Self {
            temper: setting.temper,
            once: once.map(|trigger| trigger.id.serial).collect(),
            state: Mutex::new(ReceiversState {
                dice,
                heard: BTreeMap::new(),
                tried: BTreeSet::new(),
            }),
        }
    }

    /// What was heard, run by run.
    pub fn heard(&self) -> BTreeMap<RunId, Vec<HeardCall>> {
        self.state().heard.clone()
    }

    /// Whether somebody tried to call.
    pub fn is_tried(&self, run: RunId) -> bool {
        self.state().tried.contains(&run)
    }

    /// What becomes of the next call, and how long that takes.
    fn roll(&self, timeout: TrueTime) -> (ReceiverAnswer, TrueTime) {
        let dice = &mut self.state().dice;
        let most = if dice.chance(20) { 900 * MS } else { 60 * MS };
        let soon = dice.between(MS, most);
        if self.temper == Temper::Gentle {
            return (ReceiverAnswer::Status(200), soon);
        }
        match dice.between(0, 99) {
            0..=2 => (ReceiverAnswer::Refused, 5 * MS),
            3..=5 => (ReceiverAnswer::Silence, timeout),
            6..=8 => (ReceiverAnswer::Closed, soon),
            9..=13 => (ReceiverAnswer::Status(503), soon),
            _ => (ReceiverAnswer::Status(200), soon),
        }
    }

    /// A call leaves, while the clocks of its server show this.
    fn hear(&self, fleet: &Fleet, call: &Call, answer: ReceiverAnswer, now: Reading) {
        let run: RunId = call.run.parse().expect("a run's id");
        let head = fleet.head(run.shard).expect("what leaves has an owner");
        if head.token > call.token {
            let what = format!("{run} left under {}, and {} is named", call.token, head.token);
            fleet.accuse(ShardPromise::OneSends, what);
        }
        let is_lapsed = |session: SessionKey| !fleet.checker.may_act(session.key(), now);
        if head.token == call.token && head.session.is_some_and(is_lapsed) {
            fleet.accuse(
                ShardPromise::NothingAfterLapse,
                format!("{run} left under {}", call.token),
            );
        }
        let mut state = self.state();
        state.tried.insert(run);
        if answer == ReceiverAnswer::Refused {
            return;
        }
        let before = state.heard.entry(run).or_default();
        if let Some(last) = before.last() {
            fleet.count(|counts| counts.again += 1);
            if last.attempt >= call.attempt {
                let what = format!("{run}: {} after {}", call.attempt, last.attempt);
                fleet.accuse(ShardPromise::NumbersGrow, what);
            }
            if self.once.contains(&run.trigger) {
                let what = format!("{run} is heard again, as attempt {}", call.attempt);
                fleet.accuse(ShardPromise::AtMostOnce, what);
            }
            let is_done = before.iter().any(|heard| heard.answer == ReceiverAnswer::Status(200));
            if self.temper == Temper::Gentle && is_done {
                fleet.accuse(ShardPromise::NothingDoubled, format!("{run} is heard again"));
            }
        }
        before.push(HeardCall { attempt: call.attempt, answer });
        fleet.count(|counts| counts.calls += 1);
    }

    fn state(&self) -> MutexGuard<'_, ReceiversState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sender of a process.
pub fn sender(
    fleet: &Fleet,
    process: ProcessId,
    machine: &Arc<dyn Machine>,
    dice: Dice,
) -> SimulatedSender {
    let (fleet, machine, dice) = (fleet.clone(), Arc::clone(machine), Mutex::new(dice));
    Arc::new(move |config, commands, results| {
        let bag = SimSender {
            fleet: fleet.clone(),
            process,
            machine: Arc::clone(&machine),
            permit: Arc::clone(&config.permit),
            results,
            dice: dice.lock().unwrap_or_else(PoisonError::into_inner).fork(),
            waiting: BTreeMap::new(),
            begins: BTreeSet::new(),
            under_way: Arc::default(),
        };
        Box::pin(bag.carry(commands))
    })
}

/// The sender of one simulated server.
struct SimSender {
    fleet: Fleet,
    process: ProcessId,
    machine: Arc<dyn Machine>,
    permit: PermitCheck,
    results: mpsc::UnboundedSender<FinishedCall>,
    dice: Dice,
    /// Calls that have not begun, by key, and when each begins.
    waiting: BTreeMap<u64, (TrueTime, Call)>,
    begins: BTreeSet<(TrueTime, u64)>,
    /// Calls that have left and have not ended, and when they left by the wall clock.
    under_way: Arc<Mutex<BTreeMap<u64, Wall>>>,
}

impl SimSender {
    async fn carry(mut self, mut commands: mpsc::UnboundedReceiver<SenderCommand>) {
        loop {
            let (world, begins_at) = (self.fleet.world.clone(), self.begins.first().copied());
            let wait = begins_at.map_or(0, |(at, _)| at.saturating_sub(world.now()));
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                () = world.sleep(wait), if begins_at.is_some() => {
                    let (_, key) = self.begins.pop_first().expect("there is one");
                    let (_, call) = self.waiting.remove(&key).expect("both know of it");
                    self.leave(&call);
                }
            }
        }
    }

    fn obey(&mut self, command: SenderCommand) {
        match command {
            SenderCommand::Send { call } => {
                if call.scheduled > self.wall() {
                    let what = format!("{} is sent before {}", call.run, call.scheduled);
                    self.fleet.accuse(ShardPromise::NotBeforeItsInstant, what);
                }
                let most = if self.dice.chance(10) { 700 * MS } else { 8 * MS };
                let begins_at = self.fleet.world.now() + self.dice.between(0, most);
                self.begins.insert((begins_at, call.key));
                self.waiting.insert(call.key, (begins_at, call));
            }
            SenderCommand::Cancel { key } => {
                self.revoke(key..=key);
                let left = self.lock().remove(&key);
                if let Some(left) = left {
                    self.tell(key, left, Outcome::Lost { why: Lost::Cancelled });
                }
            }
            SenderCommand::Recall { keys, told } => {
                self.revoke(keys);
                told();
            }
        }
    }

    /// Gives up what has not begun.
    fn revoke(&mut self, keys: RangeInclusive<u64>) {
        let keys: Vec<u64> = self.waiting.range(keys).map(|(key, _)| *key).collect();
        for key in keys {
            let (begins_at, _) = self.waiting.remove(&key).expect("listed");
            self.begins.remove(&(begins_at, key));
            self.tell(key, self.wall(), Outcome::NotSent { why: NotSent::Cancelled });
        }
    }

    fn leave(&self, call: &Call) {
        let (key, now) = (call.key, self.wall());
        if !(self.permit)() {
            return self.tell(key, now, Outcome::NotSent { why: NotSent::Lapsed });
        }
        if call.leave_by.is_some_and(|by| by < now) {
            return self.tell(key, now, Outcome::NotSent { why: NotSent::Late });
        }
        let timeout = u64::from(call.form.timeout_ms) * MS;
        let (answer, length) = self.fleet.receivers.roll(timeout);
        let (run, attempt) = (call.run.clone(), call.attempt);
        self.fleet.world.trace(self.process, || format!("calls   {run} #{attempt}: {answer:?}"));
        self.fleet.receivers.hear(&self.fleet, call, answer, self.machine.reading());
        let outcome = match answer {
            ReceiverAnswer::Status(status) => Outcome::Answered { status, retry_after: None },
            ReceiverAnswer::Closed => Outcome::Lost { why: Lost::Closed },
            ReceiverAnswer::Silence => Outcome::Lost { why: Lost::TimedOut },
            ReceiverAnswer::Refused => Outcome::NotSent { why: NotSent::Connect },
        };
        self.lock().insert(key, now);
        let (under_way, results) = (Arc::clone(&self.under_way), self.results.clone());
        self.fleet.world.after(length, move |_| {
            let left = under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            if let Some(left) = left {
                tell(&results, key, left, length, outcome);
            }
        });
    }

    fn wall(&self) -> Wall {
        Wall(i64::try_from(self.machine.wall_us() / 1_000).expect("this century"))
    }

    fn tell(&self, key: u64, left: Wall, outcome: Outcome) {
        tell(&self.results, key, left, 0, outcome);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Wall>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(
    results: &mpsc::UnboundedSender<FinishedCall>,
    key: u64,
    started: Wall,
    length: TrueTime,
    outcome: Outcome,
) {
    let response = match outcome {
        Outcome::Answered { status, .. } => {
            Some(Response { status, content_type: None, body: Vec::new().into(), truncated: false })
        }
        Outcome::NotSent { .. } | Outcome::Lost { .. } => None,
    };
    let error = response.is_none().then(|| format!("{outcome:?}"));
    let latency = Duration::from_nanos(length);
    // Nobody listens any more if its server was killed meanwhile.
    let _unheard = results.send(FinishedCall { key, outcome, started, latency, response, error });
}

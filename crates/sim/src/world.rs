//! Virtual time, and the processes that live in it.
//!
//! One thread, all events in the order of their time, and all processes that have something
//! to do in the order of their waking. Time stands still while anything runs, and jumps to the next event when nothing does. A process
//! is a future: pausing one means not to poll it, killing one means to drop it. Whatever it had sent is
//! an event by then and happens without it, as a message on its way does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use crate::clock::{MS, TrueTime};

/// A process of the simulation. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub u64);

impl fmt::Display for ProcessId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "p{}", self.0)
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Action = Box<dyn FnOnce(&World) + Send>;

/// The world: a handle that everything in it has.
#[derive(Clone)]
pub struct World(Arc<Mutex<Core>>);

struct Core {
    now: TrueTime,
    /// Events at the same time happen in the order in which they were planned.
    planned: u64,
    events: BinaryHeap<Reverse<WorldEvent>>,
    processes: BTreeMap<ProcessId, ProcessState>,
    ready: VecDeque<ProcessId>,
    /// Those that look around whenever something has happened.
    attentive: BTreeSet<ProcessId>,
    started: u64,
    steps: u64,
    trace: Option<String>,
}

struct ProcessState {
    /// Away while it is being polled.
    task: Option<Task>,
    /// How often it was stopped and not yet let go on.
    pauses: u32,
    /// Whether it waits to be polled, or would if it were not paused.
    is_woken: bool,
}

struct WorldEvent {
    at: TrueTime,
    order: u64,
    action: Action,
}

impl PartialEq for WorldEvent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for WorldEvent {}

impl PartialOrd for WorldEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WorldEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Whether a run writes down what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    /// It writes down every event, one per line.
    On,
    /// It writes nothing down.
    Off,
}

impl World {
    /// An empty world at time 0.
    pub fn new(tracing: Tracing) -> Self {
        let trace = match tracing {
            Tracing::On => Some(String::new()),
            Tracing::Off => None,
        };
        Self(Arc::new(Mutex::new(Core {
            now: 0,
            planned: 0,
            events: BinaryHeap::new(),
            processes: BTreeMap::new(),
            ready: VecDeque::new(),
            attentive: BTreeSet::new(),
            started: 0,
            steps: 0,
            trace,
        })))
    }

    /// The true time.
    pub fn now(&self) -> TrueTime {
        self.lock().now
    }

    /// How many events and polls there were.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Does something after so long.
    pub fn after(&self, delay: TrueTime, action: impl FnOnce(&World) + Send + 'static) {
        let mut core = self.lock();
        let (at, order) = (core.now.saturating_add(delay), core.planned);
        core.planned += 1;
        core.events.push(Reverse(WorldEvent { at, order, action: Box::new(action) }));
    }

    /// Waits for so long.
    pub fn sleep(&self, length: TrueTime) -> Sleep {
        Sleep { world: self.clone(), length, bell: None }
    }

    /// Starts a process. What it is told is its own id.
    pub fn spawn<F>(&self, task: impl FnOnce(ProcessId) -> F) -> ProcessId
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let id = {
            let mut core = self.lock();
            core.started += 1;
            ProcessId(core.started)
        };
        let task: Task = Box::pin(task(id));
        let mut core = self.lock();
        core.processes.insert(id, ProcessState { task: Some(task), pauses: 0, is_woken: true });
        core.ready.push_back(id);
        id
    }

    /// Has a process look around whenever something has happened: one whose parts are woken by each other, and not by this
    /// world.
    pub fn attend(&self, id: ProcessId) {
        self.lock().attentive.insert(id);
    }

    /// Ends a process, as kill -9 does.
    pub fn kill(&self, id: ProcessId) {
        let process = self.lock().processes.remove(&id);
        // Dropping it may touch the world.
        drop(process);
    }

    /// Stops a process, as SIGSTOP does.
    pub fn pause(&self, id: ProcessId) {
        if let Some(process) = self.lock().processes.get_mut(&id) {
            process.pauses += 1;
        }
    }

    /// Lets it go on, if nobody else has stopped it.
    pub fn resume(&self, id: ProcessId) {
        let mut core = self.lock();
        let Some(process) = core.processes.get_mut(&id) else { return };
        process.pauses -= 1;
        if process.is_woken && process.pauses == 0 {
            core.ready.push_back(id);
        }
    }

    /// Whether a process is there and not stopped.
    pub fn runs(&self, id: ProcessId) -> bool {
        self.lock().processes.get(&id).is_some_and(|process| process.pauses == 0)
    }

    /// Whether a process is there; it may be paused.
    pub fn lives(&self, id: ProcessId) -> bool {
        self.lock().processes.contains_key(&id)
    }

    /// Writes down what happens, if anybody wants to know.
    pub fn trace(&self, who: impl fmt::Display, what: impl FnOnce() -> String) {
        let mut core = self.lock();
        let now = core.now;
        if let Some(trace) = &mut core.trace {
            let line = writeln!(trace, "{:>12.6} {who:<8} {}", seconds(now), what());
            line.expect("text takes any text");
        }
    }

    /// What was written down.
    pub fn take_trace(&self) -> String {
        self.lock().trace.take().unwrap_or_default()
    }

    /// Lets the world go on until `end`, or until `check`, which is called after every step, has seen
    /// enough.
    pub fn run(&self, end: TrueTime, mut check: impl FnMut(&World) -> bool) {
        loop {
            let stepped = self.poll_next() || self.happen_next(end);
            if !stepped || check(self) {
                return;
            }
        }
    }

    /// Ends everything: processes hold the world, and the world holds them.
    pub fn end(&self) {
        let mut core = self.lock();
        let (processes, events) =
            (std::mem::take(&mut core.processes), std::mem::take(&mut core.events));
        core.ready.clear();
        drop(core);
        drop(processes);
        drop(events);
    }

    /// Polls the process that waits longest, if one does.
    fn poll_next(&self) -> bool {
        let (id, mut task) = loop {
            let mut core = self.lock();
            let Some(id) = core.ready.pop_front() else { return false };
            let Some(process) = core.processes.get_mut(&id) else { continue };
            if process.pauses > 0 || !process.is_woken {
                continue;
            }
            process.is_woken = false;
            let task = process.task.take().expect("nobody else polls");
            core.steps += 1;
            break (id, task);
        };
        let waker = Waker::from(Arc::new(ProcessWaker { world: Arc::downgrade(&self.0), id }));
        let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut core = self.lock();
        if done {
            let ended = core.processes.remove(&id);
            drop(core);
            drop(ended);
        } else if let Some(process) = core.processes.get_mut(&id) {
            process.task = Some(task);
        }
        true
    }

    /// Lets the next event happen, if there is one before `end`.
    fn happen_next(&self, end: TrueTime) -> bool {
        let mut core = self.lock();
        if core.events.peek().is_none_or(|Reverse(event)| event.at > end) {
            return false;
        }
        let Some(Reverse(event)) = core.events.pop() else { return false };
        core.now = event.at;
        core.steps += 1;
        drop(core);
        (event.action)(self);
        self.lock().wake_attentive();
        true
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    fn wake_attentive(&mut self) {
        self.attentive.retain(|id| self.processes.contains_key(id));
        for id in &self.attentive {
            let Some(process) = self.processes.get_mut(id) else { continue };
            if !std::mem::replace(&mut process.is_woken, true) && process.pauses == 0 {
                self.ready.push_back(*id);
            }
        }
    }
}

/// True time as people read it.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub fn seconds(time: TrueTime) -> f64 {
    time as f64 / (1_000 * MS) as f64
}

/// Wakes one process.
struct ProcessWaker {
    world: Weak<Mutex<Core>>,
    id: ProcessId,
}

impl Wake for ProcessWaker {
    fn wake(self: Arc<Self>) {
        let Some(core) = self.world.upgrade() else { return };
        let mut core = core.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(process) = core.processes.get_mut(&self.id) else { return };
        if !process.is_woken {
            process.is_woken = true;
            if process.pauses == 0 {
                core.ready.push_back(self.id);
            }
        }
    }
}

/// Waits for a stretch of true time.
pub struct Sleep {
    world: World,
    length: TrueTime,
    bell: Option<Arc<Mutex<SleepAlarm>>>,
}

struct SleepAlarm {
    is_over: bool,
    waker: Waker,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(bell) = &self.bell {
            let mut alarm = bell.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.waker.clone_from(context.waker());
            return if alarm.is_over { Poll::Ready(()) } else { Poll::Pending };
        }
        let alarm =
            Arc::new(Mutex::new(SleepAlarm { is_over: false, waker: context.waker().clone() }));
        // A sleep that was dropped wakes nobody.
        let weak = Arc::downgrade(&alarm);
        self.world.after(self.length, move |_| {
            let Some(alarm) = weak.upgrade() else { return };
            let mut alarm = alarm.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.is_over = true;
            let waker = alarm.waker.clone();
            drop(alarm);
            waker.wake();
        });
        self.bell = Some(alarm);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_jumps_to_what_happens_next_and_equal_times_keep_their_order() {
        let world = World::new(Tracing::On);
        for (delay, name) in [(5, "c"), (3, "a"), (3, "b")] {
            world.after(delay * MS, move |world| world.trace(name, String::new));
        }
        world.run(10 * MS, |_| false);
        let trace = world.take_trace();
        let names: Vec<_> = trace.lines().map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(names, [Some("a"), Some("b"), Some("c")]);
        assert_eq!(world.now(), 5 * MS);
    }

    #[test]
    fn a_paused_process_does_nothing_and_then_everything_at_once() {
        let world = World::new(Tracing::On);
        let inner = world.clone();
        let id = world.spawn(|_| async move {
            inner.sleep(2 * MS).await;
            inner.trace("woke", String::new);
        });
        world.run(MS, |_| false);
        world.pause(id);
        world.after(9 * MS, move |world| world.resume(id));
        world.run(100 * MS, |_| false);
        assert!(world.take_trace().contains("0.009000 woke"));
        assert!(!world.lives(id));
    }

    #[test]
    fn a_killed_process_never_goes_on() {
        let world = World::new(Tracing::On);
        let inner = world.clone();
        let id = world.spawn(|_| async move {
            inner.sleep(2 * MS).await;
            inner.trace("woke", String::new);
        });
        world.after(MS, move |world| world.kill(id));
        world.run(100 * MS, |_| false);
        assert_eq!(world.take_trace(), "");
    }
}

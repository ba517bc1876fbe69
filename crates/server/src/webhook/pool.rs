//! The pool of tasks that make attempts, each one attempt after the other.
//!
//! A task, a clock and a table of headers cost more to make than the rest of an attempt on a rested
//! connection. So a pooled task keeps them. The sender puts a job into the mailbox of a task that is free, and takes
//! what has ended, of all tasks together, when it comes round.
//!
//! A task ends in the middle of an attempt only if that is cancelled or panics; another one takes its number.
//! The sender and its tasks share a thread, and a task that was aborted runs no further. So if what has ended is taken
//! before a task is aborted, the call that this ends is the one that was meant.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hyper::header::HeaderMap;
use store::Pending;
use store::machine::Machine;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::Call;
use super::attempt::{AttemptStage, Ended, attempt};
use super::connection::Connection;
use super::dial::Dialer;
use super::name::Name;

/// Headers that a table has room for when it is kept. Larger ones are given up, or receivers would decide how
/// much memory a task takes.
const HEADERS_KEPT_MAX: usize = 48;

/// What a task is given to do.
pub(super) struct Job {
    pub(super) call: Call,
    /// A connection that rests, if there is one.
    pub(super) rested: Option<Connection>,
    pub(super) name: Arc<Name>,
}

/// What a task keeps from one attempt to the next.
pub(super) struct Tools {
    pub(super) clock: AttemptClock,
    pub(super) headers: HeaderMap,
}

impl Tools {
    /// Keeps a table for the next request.
    pub(super) fn keep(headers: &mut HeaderMap, mut used: HeaderMap) {
        if used.capacity() <= HEADERS_KEPT_MAX {
            used.clear();
            *headers = used;
        }
    }
}

/// By how much a clock may ring late before that says something about this process and not about the receiver:
/// it was stopped, or starved.
const LEAP_MIN: Duration = Duration::from_millis(500);

/// How long an attempt goes on after a leap: for an answer that came meanwhile and waits to be read.
const GRACE: Duration = Duration::from_millis(250);

/// How the time of an attempt came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The time ran out while this process ran.
    OnTime,
    /// While this process did not run: nobody knows whether the receiver was late.
    InLeap,
}

/// A clock that is started for each attempt.
///
/// Most attempts end long before their time is up. So the alarm of an earlier one stays set, and is set anew
/// only when it rings, or would ring too late.
///
/// After this process was stopped, the time of an attempt is over and its answer perhaps there, unread. Then
/// the attempt gets a moment more, once.
pub(super) struct AttemptClock {
    machine: Arc<dyn Machine>,
    over_at: Duration,
    over: Over,
    alarm: Option<(Duration, Pending<'static, ()>)>,
}

impl AttemptClock {
    pub(super) fn new(machine: Arc<dyn Machine>) -> Self {
        Self { machine, over_at: Duration::ZERO, over: Over::OnTime, alarm: None }
    }

    pub(super) fn start(&mut self, length: Duration) {
        self.over_at = self.machine.reading().raw + length;
        self.over = Over::OnTime;
    }

    /// Waits until the time is over.
    pub(super) async fn over(&mut self) -> Over {
        loop {
            let now = self.machine.reading().raw;
            if self.over == Over::OnTime && now.saturating_sub(self.over_at) > LEAP_MIN {
                self.over = Over::InLeap;
                self.over_at = now + GRACE;
            }
            if self.over_at <= now {
                return self.over;
            }
            match &mut self.alarm {
                Some((rings_at, alarm)) if now < *rings_at && *rings_at <= self.over_at => {
                    alarm.await;
                    self.alarm = None;
                }
                _ => {
                    let alarm = self.machine.sleep(self.over_at.saturating_sub(now));
                    self.alarm = Some((self.over_at, alarm));
                }
            }
        }
    }
}

/// The tasks of a sender. `F` is what the sender remembers of an attempt under way.
pub(super) struct TaskPool<F> {
    all: Vec<PooledTask<F>>,
    free: Vec<usize>,
    ends: Arc<EndedAttempts>,
    /// Tasks that ended in the middle of an attempt, and were not taken yet.
    broken: Vec<(Id, JoinError)>,
    tasks: JoinSet<()>,
    dialer: Arc<Dialer>,
}

struct PooledTask<F> {
    mailbox: Arc<Mailbox>,
    abort: AbortHandle,
    flight: Option<F>,
}

/// What a task and the sender share.
struct Mailbox {
    job: Mutex<Option<Job>>,
    news: Notify,
    stage: AttemptStage,
}

/// Attempts that have ended, with the numbers of their tasks.
#[derive(Default)]
struct EndedAttempts {
    list: Mutex<Vec<(usize, Ended)>>,
    news: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it holds this")
}

impl<F> TaskPool<F> {
    pub(super) fn new(dialer: Arc<Dialer>) -> Self {
        Self {
            all: Vec::new(),
            free: Vec::new(),
            ends: Arc::default(),
            broken: Vec::new(),
            tasks: JoinSet::new(),
            dialer,
        }
    }

    /// Attempts under way.
    pub(super) fn in_flight(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Starts an attempt. The sender bounds how many there are.
    pub(super) fn start(&mut self, job: Job, flight: F) {
        let number = self.free.pop().unwrap_or_else(|| {
            let task = self.open(self.all.len());
            self.all.push(task);
            self.all.len() - 1
        });
        let task = &mut self.all[number];
        task.flight = Some(flight);
        // Here and not when it is taken up: until then it can be cancelled.
        task.mailbox.stage.begin();
        *lock(&task.mailbox.job) = Some(job);
        task.mailbox.news.notify_one();
    }

    fn open(&mut self, number: usize) -> PooledTask<F> {
        let mailbox = Arc::new(Mailbox {
            job: Mutex::default(),
            news: Notify::new(),
            stage: AttemptStage::new(),
        });
        let serving =
            serve(number, Arc::clone(&mailbox), Arc::clone(&self.ends), Arc::clone(&self.dialer));
        let abort = self.tasks.spawn(serving);
        PooledTask { mailbox, abort, flight: None }
    }

    /// Waits until something has ended that can be taken.
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            biased;
            () = self.ends.news.notified() => (),
            Some(joined) = self.tasks.join_next_with_id() => self.note(joined),
        }
    }

    fn note(&mut self, joined: Result<(Id, ()), JoinError>) {
        let why = joined.expect_err("a task serves for ever");
        self.broken.push((why.id(), why));
    }

    /// Takes what has ended.
    pub(super) fn take(&mut self, taken: &mut Vec<(F, Result<Ended, BrokenAttempt>)>) {
        for (number, ended) in lock(&self.ends.list).drain(..) {
            let flight = self.all[number].flight.take();
            taken.push((flight.expect("an attempt is under way until it has ended"), Ok(ended)));
            self.free.push(number);
        }
        while let Some(joined) = self.tasks.try_join_next_with_id() {
            self.note(joined);
        }
        for (id, why) in std::mem::take(&mut self.broken) {
            let number = self.all.iter().position(|task| task.abort.id() == id);
            let number = number.expect("a task keeps its number until it was taken");
            let anew = self.open(number);
            let task = std::mem::replace(&mut self.all[number], anew);
            let flight = task.flight.expect("a task is told to end while it has an attempt");
            taken.push((flight, Err(BrokenAttempt { why, mailbox: task.mailbox })));
            self.free.push(number);
        }
    }

    /// Ends the attempt that this is true of. What has ended by itself was taken before.
    pub(super) fn abort(&self, is_meant: impl Fn(&F) -> bool) -> bool {
        let mut tasks = self.all.iter();
        let found = tasks.find(|task| task.flight.as_ref().is_some_and(&is_meant));
        if let Some(task) = found {
            task.abort.abort();
        }
        found.is_some()
    }

    /// Ends all attempts. What has ended by itself was taken before.
    pub(super) async fn stop(mut self, taken: &mut Vec<(F, Result<Ended, BrokenAttempt>)>) {
        self.tasks.abort_all();
        let mut broken = std::mem::take(&mut self.broken);
        while let Some(joined) = self.tasks.join_next_with_id().await {
            let why = joined.expect_err("a task serves for ever");
            broken.push((why.id(), why));
        }
        for (id, why) in broken {
            let task = self.all.iter_mut().find(|task| task.abort.id() == id);
            let Some(task) = task else { continue };
            if let Some(flight) = task.flight.take() {
                taken
                    .push((flight, Err(BrokenAttempt { why, mailbox: Arc::clone(&task.mailbox) })));
            }
        }
    }
}

/// How an attempt ended that did not come to its own end.
pub(super) struct BrokenAttempt {
    pub(super) why: JoinError,
    mailbox: Arc<Mailbox>,
}

impl BrokenAttempt {
    /// How far it had come.
    pub(super) fn stage(&self) -> &AttemptStage {
        &self.mailbox.stage
    }
}

async fn serve(
    number: usize,
    mailbox: Arc<Mailbox>,
    ends: Arc<EndedAttempts>,
    dialer: Arc<Dialer>,
) {
    let clock = AttemptClock::new(Arc::clone(&dialer.machine));
    let mut tools = Tools { clock, headers: HeaderMap::new() };
    loop {
        mailbox.news.notified().await;
        let job = lock(&mailbox.job).take();
        let Some(job) = job else { continue };
        let ended = attempt(job, &mailbox.stage, &dialer, &mut tools).await;
        lock(&ends.list).push((number, ended));
        ends.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::task::Poll;

    use engine::lease::Reading;

    use super::*;

    /// Time passes when it is let, and then at once up to the next alarm.
    #[derive(Default)]
    struct Sleepy {
        passes: Arc<AtomicBool>,
        ms: Arc<AtomicU64>,
        alarms: AtomicUsize,
    }

    impl Machine for Sleepy {
        fn reading(&self) -> Reading {
            let now = Duration::from_millis(self.ms.load(Ordering::Relaxed));
            Reading { boot: now, raw: now }
        }

        fn wall_us(&self) -> u64 {
            0
        }

        fn random(&self) -> u64 {
            0
        }

        fn sleep(&self, length: Duration) -> Pending<'static, ()> {
            self.alarms.fetch_add(1, Ordering::Relaxed);
            let (ms, passes) = (Arc::clone(&self.ms), Arc::clone(&self.passes));
            let until = ms.load(Ordering::Relaxed) + u64::try_from(length.as_millis()).unwrap();
            Box::pin(std::future::poll_fn(move |_| {
                if !passes.load(Ordering::Relaxed) {
                    return Poll::Pending;
                }
                ms.fetch_max(until, Ordering::Relaxed);
                Poll::Ready(())
            }))
        }
    }

    /// Starts the clock, and looks at it once.
    async fn start(clock: &mut AttemptClock, seconds: u64) {
        clock.start(Duration::from_secs(seconds));
        tokio::select! {
            biased;
            _ = clock.over() => panic!("it is over at once"),
            () = std::future::ready(()) => (),
        }
    }

    #[tokio::test]
    async fn an_alarm_serves_several_attempts_and_each_has_its_own_time() {
        let machine = Arc::new(Sleepy::default());
        let mut clock = AttemptClock::new(Arc::clone(&machine) as Arc<dyn Machine>);
        let is =
            || (machine.ms.load(Ordering::Relaxed) / 1_000, machine.alarms.load(Ordering::Relaxed));
        start(&mut clock, 10).await;
        machine.ms.store(3_000, Ordering::Relaxed);
        start(&mut clock, 10).await;
        assert_eq!(is(), (3, 1), "that of the first will do for now");
        machine.passes.store(true, Ordering::Relaxed);
        clock.over().await;
        machine.passes.store(false, Ordering::Relaxed);
        assert_eq!(is(), (13, 2), "it rang at 10, which was too early");
        start(&mut clock, 100).await;
        start(&mut clock, 1).await;
        assert_eq!(is(), (13, 4), "that of the first would ring too late");
        machine.passes.store(true, Ordering::Relaxed);
        clock.over().await;
        assert_eq!(is(), (14, 4));
    }

    #[tokio::test]
    async fn a_clock_that_leapt_gives_a_moment_more_and_says_so() {
        let machine = Arc::new(Sleepy::default());
        let mut clock = AttemptClock::new(Arc::clone(&machine) as Arc<dyn Machine>);
        start(&mut clock, 10).await;
        machine.ms.store(70_000, Ordering::Relaxed);
        tokio::select! {
            biased;
            _ = clock.over() => panic!("it gives no moment"),
            () = std::future::ready(()) => (),
        }
        machine.passes.store(true, Ordering::Relaxed);
        assert_eq!(clock.over().await, Over::InLeap);
        assert_eq!(machine.alarms.load(Ordering::Relaxed), 2, "one moment, and no more");
        machine.passes.store(false, Ordering::Relaxed);
        start(&mut clock, 10).await;
        machine.passes.store(true, Ordering::Relaxed);
        assert_eq!(clock.over().await, Over::OnTime, "the next one begins anew");
    }
}

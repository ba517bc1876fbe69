//! A life of a worker: the tasks that claim, beat, print and carry out runs, and how it ends.
//!
//! The rules of the protocol are in the [`Ledger`], which one lock guards. Around it are few tasks, however many runs there
//! are, and two for each run that executes:
//!
//! - `speak`: one task claims and reports, one beats, so that the worker is heard while it works; what is said goes to one of
//!   the servers
//! - `hear`: what follows from answers
//! - `carry`: one run, from when it is given to its result. Results go to the [`Journal`] first, and are reported when they are there
//! - `Printer`: sends output
//! - this file: what the process tells the worker, and when it is over

mod carry;
mod hear;
mod speak;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use client::worker::RunResult;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ledger::{self, Ledger};
use crate::link::{Contact, Link};
use crate::printed::Dirty;
use crate::printer::Printer;
use crate::rotation::Rotation;
use crate::spool::{Journal, Spool};
use crate::worker::Plan;
use crate::{Context, Control, EndReason, Sight, WorkerEnd, clock};

/// A worker that has nothing left says so once more, for so long at most.
const GOODBYE: Duration = Duration::from_secs(3);

/// A worker that drains tries to report what there is for so long at most.
const REPORTING_MAX: Duration = Duration::from_secs(60);

/// After a second signal, so long is tried to report what there is.
const STOP_REPORTS: Duration = Duration::from_secs(5);

/// An answer to a claim may take so long, beside what it waits.
const ANSWER: Duration = Duration::from_secs(10);

/// An answer to a beat may take so long at least.
const BEAT_ANSWER_MIN: Duration = Duration::from_secs(1);

/// What is left to be written at the end may take so long: a disk that hangs keeps no process.
const CLOSING: Duration = Duration::from_secs(10);

/// Tasks that are told to end get so long to let go of what they have.
const LETTING_GO: Duration = Duration::from_secs(2);

/// What the tasks of a worker share.
pub(crate) struct Life {
    plan: Plan,
    sight: Arc<Sight>,
    journal: Journal,
    contact: Contact,
    /// The servers, with the patience of claims and with that of beats.
    claim_servers: Vec<Client>,
    beat_servers: Vec<Client>,
    printer: Arc<Printer>,
    dirty: Arc<Dirty>,
    state: Mutex<State>,
    /// All that executes, and what guards it.
    runs: Mutex<JoinSet<()>>,
    /// Somebody has to look again: whoever claims, whoever beats, whoever waits for the end.
    claims: Notify,
    beats: Notify,
    looks: Notify,
    /// A run of a strict queue has begun.
    strict: Notify,
    phase: watch::Sender<Phase>,
    ends: mpsc::UnboundedSender<Ending>,
}

/// What goes on, guarded by one lock.
struct State {
    ledger: Ledger,
    rotation: Rotation,
    /// By the ids of their runs, from when they were given to when nothing of them executes.
    live: HashMap<String, Live>,
    /// Runs whose former attempt still executes here.
    after: HashMap<String, Context>,
    claim_link: Link,
    beat_link: Link,
    /// The claim that is on its way, if one is, and whether its answer waits for runs.
    open: Option<OpenClaim>,
    last_sent: Duration,
    /// Claims that were to wait and were answered at once, one after the other.
    quick_answers: u32,
    /// A server has heard that it drains, and what it had then.
    said_goodbye: bool,
    refused: Vec<String>,
    is_full_told: bool,
}

/// A run that has a place.
struct Live {
    context: Context,
    /// It has a result already, although its handler does not end.
    is_reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenClaim {
    Waits,
    ComesAtOnce,
}

/// How far it is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Works,
    Drains,
    /// What executes is ended at once.
    Stops,
}

/// Why it is to end.
enum Ending {
    /// A server says that somebody wants it to drain.
    Drain,
    /// Nothing is left to be done.
    Dead(WorkerEnd),
}

/// Works until it is drained, stopped, or of no use.
pub(crate) async fn live(
    mut plan: Plan,
    spool: Option<Spool>,
    sight: Arc<Sight>,
    control: mpsc::Receiver<Control>,
) -> Result<(), WorkerEnd> {
    let (incarnation, since, left) = if let Some(spool) = &spool {
        (spool.incarnation(), spool.since(), spool.left().to_vec())
    } else {
        // What its former lives began, nobody knows.
        let incarnation = clock::wall_us();
        (incarnation, incarnation, Vec::new())
    };
    let died = left.iter().filter(|done| done.result == RunResult::Died).count();
    sight.died.add(died);
    let journal = match spool {
        Some(spool) => Journal::of(spool, Arc::clone(&sight))
            .map_err(|why| WorkerEnd::Spool(format!("the spool has no thread: {why}")))?,
        None => Journal::in_memory(),
    };
    let rotation = Rotation::new(&plan.queues);
    let ledger = Ledger::new(
        ledger::Life {
            name: plan.name.to_string(),
            queues: plan.queues.iter().map(|(queue, _)| queue.clone()).collect(),
            incarnation,
            since,
            lease: plan.lease,
            labels: std::mem::take(&mut plan.labels),
        },
        left,
    );
    let (ends, ended) = mpsc::unbounded_channel();
    let servers = std::mem::take(&mut plan.servers);
    let of = |patience| servers.iter().map(|server| server.with_timeout(patience)).collect();
    let beat = plan.lease / 5;
    let link = |pause_max, wish_max| Link::new(servers.len(), pause_max, wish_max);
    let life = Arc::new(Life {
        contact: Contact::new(Arc::clone(&plan.name), Arc::clone(&sight)),
        claim_servers: of(ANSWER),
        // Of two servers one may be silent.
        beat_servers: of((plan.lease / 4).max(BEAT_ANSWER_MIN)),
        printer: Arc::new(Printer::new(&servers)),
        dirty: Arc::default(),
        state: Mutex::new(State {
            ledger,
            rotation,
            live: HashMap::new(),
            after: HashMap::new(),
            claim_link: link((plan.lease / 2).min(Duration::from_secs(5)), plan.lease / 2),
            beat_link: link(beat.min(Duration::from_secs(2)), beat / 2),
            open: None,
            last_sent: Duration::ZERO,
            quick_answers: 0,
            said_goodbye: false,
            refused: Vec::new(),
            is_full_told: false,
        }),
        runs: Mutex::default(),
        claims: Notify::new(),
        beats: Notify::new(),
        looks: Notify::new(),
        strict: Notify::new(),
        phase: watch::Sender::new(Phase::Works),
        ends,
        plan,
        sight,
        journal,
    });
    let mut duties = life.start();
    let guard = Guard(Arc::clone(&life));
    let ended = life.last(control, ended, &mut duties).await;
    life.end_all(duties).await;
    drop(guard);
    if let Some(Life { journal, plan, .. }) = Arc::into_inner(life)
        && timeout(CLOSING, journal.close()).await.is_err()
    {
        tracing::error!(
            worker = %plan.name,
            "the spool was not written within {CLOSING:?}, and is left as it is: its disk does not answer"
        );
    }
    ended
}

/// Ends what executes, also if nobody waits for the worker any more.
struct Guard(Arc<Life>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.phase.send_replace(Phase::Stops);
        self.0.runs.lock().abort_all();
    }
}

impl Life {
    /// Starts what goes on for as long as the worker lives.
    fn start(self: &Arc<Self>) -> JoinSet<()> {
        let worker = &self.plan.name;
        let queues: Vec<&str> = self.plan.queues.iter().map(|(queue, _)| queue.as_str()).collect();
        tracing::info!(%worker, queues = queues.join(","), "the worker claims");
        let state = self.state();
        self.show(&state);
        let left = state.ledger.unreported().len();
        drop(state);
        if left > 0 {
            tracing::info!(%worker, results = left, "results of its former lives are reported first");
        }
        let mut duties = JoinSet::new();
        duties.spawn(Arc::clone(self).claim_again_and_again());
        duties.spawn(Arc::clone(self).beat_again_and_again());
        duties.spawn(Arc::clone(self).end_unconfirmed_in_time());
        duties.spawn(Arc::clone(self).watch_spool());
        duties.spawn(Arc::clone(self).watch_commands());
        duties.spawn(Arc::clone(&self.printer).serve(Arc::clone(&self.dirty)));
        duties
    }

    /// Waits for the end.
    async fn last(
        self: &Arc<Self>,
        mut control: mpsc::Receiver<Control>,
        mut ended: mpsc::UnboundedReceiver<Ending>,
        duties: &mut JoinSet<()>,
    ) -> Result<(), WorkerEnd> {
        // When handlers are told to end, and when reporting is given up.
        let (mut stop_at, mut give_up_at) = (None, None);
        let mut can_be_told = true;
        loop {
            tokio::select! {
                told = control.recv(), if can_be_told => match told {
                    Some(Control::Drain) => {
                        self.drain();
                        let timeout = self.plan.drain_timeout;
                        stop_at = stop_at.or(timeout.map(|timeout| Instant::now() + timeout));
                    }
                    Some(Control::Stop) => {
                        self.stop();
                        give_up_at = Some(Instant::now() + STOP_REPORTS);
                    }
                    None => can_be_told = false,
                },
                Some(ending) = ended.recv() => match ending {
                    // Who asks for that from afar has what executes go on for as long as it takes.
                    Ending::Drain => self.drain(),
                    Ending::Dead(end) => return Err(end),
                },
                () = self.looks.notified() => {}
                () = until(stop_at) => {
                    stop_at = None;
                    self.end_what_is_left();
                    // Also if something does not end.
                    let patience = self.plan.grace + self.reporting();
                    give_up_at = give_up_at.or(Some(Instant::now() + patience));
                }
                () = until(give_up_at) => {}
                Some(Err(why)) = duties.join_next() => {
                    // A bug: nobody would work, and nobody would know.
                    std::panic::resume_unwind(why.into_panic());
                }
            }
            if let Some(end) = self.is_over(&mut give_up_at) {
                return end;
            }
        }
    }

    /// Claims nothing more.
    fn drain(&self) {
        if *self.phase.borrow() >= Phase::Drains {
            return;
        }
        let mut state = self.state();
        tracing::info!(worker = %self.plan.name, unfinished = state.live.len(), "the worker drains");
        state.ledger.drain();
        state.after.clear();
        self.show(&state);
        drop(state);
        self.sight.drains();
        self.phase.send_replace(Phase::Drains);
        self.notify_all();
    }

    /// How long results are tried to be reported at the end: later than that others have been given their runs.
    fn reporting(&self) -> Duration {
        (self.plan.lease * 5 / 4).min(REPORTING_MAX)
    }

    /// The time of a drain is over.
    fn end_what_is_left(&self) {
        let state = self.state();
        if !state.live.is_empty() {
            tracing::warn!(worker = %self.plan.name, runs = state.live.len(), "what still executes is told to end");
        }
        for live in state.live.values() {
            live.context.tell_to_end(EndReason::Stopping);
        }
    }

    /// Ends at once what executes.
    fn stop(&self) {
        self.drain();
        tracing::warn!(worker = %self.plan.name, runs = self.state().live.len(), "the worker stops, and ends what executes");
        self.end_what_is_left();
        self.phase.send_replace(Phase::Stops);
    }

    /// Whether nothing is left to be done. If no server takes what is left, it is given up in the end.
    fn is_over(&self, give_up_at: &mut Option<Instant>) -> Option<Result<(), WorkerEnd>> {
        let state = self.state();
        if !state.ledger.is_draining() {
            return None;
        }
        let is_late = give_up_at.is_some_and(|at| Instant::now() >= at);
        let executes = state.live.values().any(|live| !live.is_reported);
        if executes && !is_late {
            return None;
        }
        if state.ledger.named() == 0 && state.said_goodbye {
            tracing::info!(worker = %self.plan.name, "the worker has drained");
            return Some(Ok(()));
        }
        if give_up_at.is_none() {
            let patience = if state.ledger.named() > 0 { self.reporting() } else { GOODBYE };
            *give_up_at = Some(Instant::now() + patience);
        }
        if !is_late {
            return None;
        }
        let runs: Vec<String> = state.ledger.unfinished();
        let is_kept = self.journal.is_kept();
        Some(if runs.is_empty() { Ok(()) } else { Err(WorkerEnd::Unreported { runs, is_kept }) })
    }

    /// Ends everything that goes on. What executes is dropped, and its programs end with it.
    async fn end_all(&self, mut duties: JoinSet<()>) {
        duties.abort_all();
        while duties.join_next().await.is_some() {}
        for live in self.state().live.values() {
            live.context.tell_to_end(EndReason::Stopping);
        }
        self.phase.send_replace(Phase::Stops);
        let mut runs = std::mem::take(&mut *self.runs.lock());
        let ended = async { while runs.join_next().await.is_some() {} };
        if timeout(LETTING_GO, ended).await.is_err() {
            tracing::warn!(worker = %self.plan.name, "handlers are left that do not end");
            runs.abort_all();
        }
    }

    /// Shows what is wrong with the spool, and claims again when nothing is.
    async fn watch_spool(self: Arc<Self>) {
        let mut trouble = self.journal.trouble();
        while trouble.changed().await.is_ok() {
            let now = trouble.borrow_and_update().as_deref().map(str::to_owned);
            self.sight.set_spool_trouble(now);
            self.claims.notify_one();
        }
        if self.journal.is_on_disk() {
            // A bug: nothing could begin any more, and nobody would know.
            let why = WorkerEnd::Spool("what writes the spool has ended".to_owned());
            let _told = self.ends.send(Ending::Dead(why));
        }
        std::future::pending::<()>().await;
    }

    /// Claims again when commands can be begun.
    async fn watch_commands(self: Arc<Self>) {
        if let Some(mut ready) = self.plan.handlers.ready.clone() {
            while ready.changed().await.is_ok() {
                self.claims.notify_one();
            }
        }
        std::future::pending::<()>().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn notify_all(&self) {
        self.claims.notify_one();
        self.beats.notify_one();
        self.looks.notify_one();
    }

    /// Shows how it stands.
    fn show(&self, state: &State) {
        self.sight.held.set(state.ledger.held() as u64);
        self.sight.unreported.set(state.ledger.unreported().len() as u64);
        self.sight.executing.set(state.live.len() as u64);
    }
}

/// Waits for an instant; for ever, without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

//! One run, from when it is given to its result.
//!
//! That it begins is written down before it begins, and its result before that is reported. Whoever carries a run out is a task
//! of its own beside the one that guards it, so a handler that panics or blocks harms nobody else.

use std::sync::Arc;
use std::time::Duration;

use client::worker::{ClaimedRun, DoneRun, HeldRun, RunResult};
use jiff::SignedDuration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::{Life, Live, OpenClaim, Phase};
use crate::limits::{ERROR_CHARS_MAX, RETRY_AFTER_MAX};
use crate::{Context, EndReason, Outcome, clock};

/// How long a program that is killed may take to be gone, when the worker stops.
const KILLED: Duration = Duration::from_millis(1_500);

/// A handler that is dropped is gone when it waits for something next. One that does not is reported without its end.
const DROPPED: Duration = Duration::from_millis(250);

impl Life {
    /// Whether somebody here carries out such a run; if not, why.
    pub(super) fn has_handler(&self, run: &ClaimedRun) -> Result<(), String> {
        let worker = &self.plan.name;
        let handlers = &self.plan.handlers;
        match &run.handler {
            Some(name) if handlers.by_name.contains_key(name) => Ok(()),
            Some(name) => {
                let known: Vec<&str> = handlers.by_name.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(format!("worker {worker} has no handler {name:?}; it has: {known}"))
            }
            None if handlers.commands.is_some() => Ok(()),
            None => Err(format!("worker {worker} has handlers, and runs no commands")),
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut runs = self.runs.lock();
        runs.spawn(task);
        // What has ended is forgotten, unless it is a bug: its run would never end.
        while let Some(ended) = runs.try_join_next() {
            if let Err(why) = ended
                && why.is_panic()
            {
                std::panic::resume_unwind(why.into_panic());
            }
        }
    }

    /// Writes down that runs are about to begin, and begins them.
    pub(super) async fn begin_all(self: Arc<Self>, contexts: Vec<Context>) {
        let is_written = self.journal.begun(contexts.iter().map(Context::held).collect()).await;
        let mut not_begun = Vec::new();
        for context in contexts {
            if let Some(held) = self.begin(context, is_written) {
                not_begun.push(held);
            }
        }
        self.journal.over(not_begun);
    }

    /// Begins a run, unless it was cancelled or lost meanwhile, or cannot begin any more: this one then.
    fn begin(self: &Arc<Self>, context: Context, is_written: bool) -> Option<HeldRun> {
        let held = context.held();
        let mut state = self.state();
        if context.peek_ending() == Some(EndReason::Cancelled) {
            let done = done_of(&context, Outcome::ended_early(EndReason::Cancelled, ""), None);
            state.ledger.finish(done);
            self.sight.cancelled.add(1);
        } else if !is_written {
            state.ledger.release(&held);
        } else if state.ledger.begin(&held, clock::since_boot()) {
            drop(state);
            self.sight.begun.add(1);
            if context.run().strict {
                self.strict.notify_one();
            }
            self.spawn(Arc::clone(self).carry_out(context));
            return None;
        }
        drop(state);
        self.forget(&held);
        Some(held)
    }

    /// A run that has begun, to its end.
    async fn carry_out(self: Arc<Self>, context: Context) {
        let began = clock::since_boot();
        let limit = context.run().timeout_ms.map(Duration::from_millis).or(self.plan.timeout);
        context.begin(limit.map(|limit| Instant::now() + limit));
        let mut attempt = JoinSet::new();
        let (life, carried) = (Arc::clone(&self), context.clone());
        attempt.spawn(async move { life.call(carried).await });

        let ended = match self.wait_for(&context, &mut attempt).await {
            Ended::With(outcome) => outcome,
            // Nobody may have it while it executes: the next life, or silence, tells what became of it.
            Ended::Unseen => return,
            Ended::Not(outcome) => {
                self.report_unended(&context, outcome, limit, began).await;
                // It keeps its place until it has really ended.
                let _ended = self.while_it_lives(attempt.join_next()).await;
                return self.forget(&context.held());
            }
        };
        if ended.never_began && ended.result == RunResult::Stopped {
            return self.give_back(&context.held());
        }
        // Of a command it is known when its program ended.
        let is_command = context.run().handler.is_none();
        let ended = if is_command { ended } else { in_time(&context, ended, limit) };
        self.report(&context, done_of(&context, ended, Some(began))).await;
        self.forget(&context.held());
    }

    /// Calls whoever carries it out.
    async fn call(self: Arc<Self>, context: Context) -> Outcome {
        let handlers = &self.plan.handlers;
        let carry = match &context.run().handler {
            Some(name) => handlers.by_name.get(name),
            None => handlers.commands.as_ref(),
        };
        carry.expect("it was looked for when the run was given")(context).await
    }

    /// Waits for the end of an attempt, and sees to it when its time is over or it is told to end.
    async fn wait_for(&self, context: &Context, attempt: &mut JoinSet<Outcome>) -> Ended {
        let told = async {
            tokio::select! {
                () = context.is_told() => {}
                () = super::until(context.deadline()) => context.tell_to_end(EndReason::TimedOut),
            }
        };
        let is_command = context.run().handler.is_none();
        tokio::select! {
            biased;
            Some(ended) = attempt.join_next() => return Ended::With(outcome_of(context, ended)),
            () = self.stops() => {}
            () = told => tokio::select! {
                biased;
                Some(ended) = attempt.join_next() => return Ended::With(outcome_of(context, ended)),
                () = self.stops() => {}
                // A command ends its own program, which may take as long as it takes.
                () = sleep(self.grace_of(context)), if !is_command => {}
            }
        }
        if is_command {
            // Its program is killed, and is gone when the attempt has ended.
            let ended = timeout(KILLED, attempt.join_next()).await;
            let ended = ended.ok().flatten().map(|ended| outcome_of(context, ended));
            return ended.map_or(Ended::Unseen, Ended::With);
        }
        attempt.abort_all();
        let reason = context.peek_ending().unwrap_or(EndReason::Stopping);
        match timeout(DROPPED, attempt.join_next()).await {
            Ok(Some(ended)) => Ended::With(outcome_of(context, ended)),
            Ok(None) => unreachable!("an attempt is one task"),
            Err(_) if matches!(reason, EndReason::TimedOut | EndReason::Stopping) => {
                Ended::Not(Outcome::ended_early(reason, ""))
            }
            Err(_) => match attempt.join_next().await {
                Some(ended) => Ended::With(outcome_of(context, ended)),
                None => unreachable!("an attempt is one task"),
            },
        }
    }

    /// How long a handler that was told to end may take. None, if another worker may have its run by then.
    fn grace_of(&self, context: &Context) -> Duration {
        match context.peek_ending() {
            Some(EndReason::Lost | EndReason::Unconfirmed) => Duration::ZERO,
            Some(EndReason::Cancelled | EndReason::TimedOut | EndReason::Stopping) | None => {
                self.plan.grace
            }
        }
    }

    async fn report_unended(
        &self,
        context: &Context,
        outcome: Outcome,
        limit: Option<Duration>,
        began: Duration,
    ) {
        let run = &context.run().id;
        tracing::warn!(worker = %self.plan.name, %run, "a handler does not end, and its run is reported without it");
        let done = done_of(context, in_time(context, outcome, limit), Some(began));
        self.report(context, done).await;
        let mut state = self.state();
        if let Some(live) = state.live.get_mut(run) {
            live.is_reported = true;
        }
        drop(state);
        self.notify_all();
    }

    /// Keeps a result, and lets it be reported. What comes of a run that is lost is forgotten.
    async fn report(&self, context: &Context, done: DoneRun) {
        if context.peek_ending() == Some(EndReason::Lost) {
            return self.journal.over(vec![context.held()]);
        }
        self.journal.result(&done).await;
        self.printer.send_last(context).await;
        let counter = match done.result {
            RunResult::Succeeded => &self.sight.succeeded,
            RunResult::Failed => &self.sight.failed,
            RunResult::Cancelled => &self.sight.cancelled,
            RunResult::Stopped | RunResult::Died => &self.sight.stopped,
        };
        counter.add(1);
        if !self.state().ledger.finish(done) {
            // It was lost meanwhile.
            self.journal.over(vec![context.held()]);
        }
    }

    /// Gives back a run of which nothing began, although it was written down that it would.
    fn give_back(self: &Arc<Self>, held: &HeldRun) {
        self.journal.over(vec![held.clone()]);
        self.state().ledger.release(held);
        self.forget(held);
    }

    /// A run has a place no more.
    fn forget(self: &Arc<Self>, held: &HeldRun) {
        let mut state = self.state();
        let is_current = |live: &Live| live.context.held() == *held;
        if state.live.get(&held.id).is_some_and(is_current) {
            state.live.remove(&held.id);
            if let Some(after) = state.after.remove(&held.id) {
                let live = Live { context: after.clone(), is_reported: false };
                state.live.insert(held.id.clone(), live);
                self.spawn(Arc::clone(self).begin_all(vec![after]));
            }
        }
        self.show(&state);
        let open = state.open;
        drop(state);
        match open {
            None => self.claims.notify_one(),
            Some(OpenClaim::Waits) => self.beats.notify_one(),
            // What has come by then is claimed and reported by the next one.
            Some(OpenClaim::ComesAtOnce) => {}
        }
        if *self.phase.borrow() >= Phase::Drains {
            self.looks.notify_one();
        }
    }

    /// Waits until the worker ends at once what executes.
    async fn stops(&self) {
        let mut phase = self.phase.subscribe();
        let stops = phase.wait_for(|phase| *phase == Phase::Stops).await;
        drop(stops.expect("the life has the sender"));
    }

    /// Waits for something, but no longer than the worker lives.
    pub(super) async fn while_it_lives<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = what => Some(done),
            () = self.stops() => None,
        }
    }
}

/// A result as it is reported.
fn done_of(context: &Context, outcome: Outcome, began: Option<Duration>) -> DoneRun {
    let run = context.run();
    let took = began.map(|began| clock::since_boot().saturating_sub(began));
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let started =
        took.and_then(|took| clock::wall().checked_sub(SignedDuration::try_from(took).ok()?).ok());
    let error = outcome.error.filter(|error| !error.is_empty());
    DoneRun {
        id: run.id.clone(),
        token: run.token,
        result: outcome.result,
        final_failure: outcome.final_failure,
        retry_after_ms: outcome.retry_after.map(|pause| millis(pause.min(RETRY_AFTER_MAX))),
        error: error.map(|error| error.chars().take(ERROR_CHARS_MAX).collect()),
        exit_code: outcome.exit_code,
        started,
        took_ms: took.map(millis),
    }
}

/// How waiting for an attempt ended.
enum Ended {
    With(Outcome),
    /// It executes still, and is reported as this.
    Not(Outcome),
    /// Nobody knows whether its program executes still.
    Unseen,
}

/// What a task that ended is reported as.
fn outcome_of(context: &Context, ended: Result<Outcome, JoinError>) -> Outcome {
    let why = match ended {
        Ok(outcome) => return outcome,
        Err(why) => why,
    };
    if why.is_cancelled() {
        let reason = context.peek_ending().unwrap_or(EndReason::Stopping);
        return Outcome::ended_early(reason, "");
    }
    let panic = why.into_panic();
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Outcome::failed(format!("the handler panicked: {}", text.unwrap_or("without a text")))
}

/// What took longer than it may failed, unless it says itself why it failed.
fn in_time(context: &Context, outcome: Outcome, limit: Option<Duration>) -> Outcome {
    let reason = context.peek_ending();
    let is_late = context.deadline().is_some_and(|deadline| Instant::now() >= deadline);
    if reason != Some(EndReason::TimedOut) && !(reason.is_none() && is_late) {
        return outcome;
    }
    let says_why = outcome.error.as_ref().is_some_and(|error| !error.is_empty());
    if outcome.result == RunResult::Failed && says_why {
        return outcome;
    }
    let limit = limit.unwrap_or_default();
    let why = format!("it took longer than its time-out of {limit:?}");
    Outcome { exit_code: outcome.exit_code, ..Outcome::failed(why) }
}

//! What follows from answers.

use std::sync::Arc;
use std::time::Duration;

use client::worker::{ClaimedRun, DoneRun, HeldRun};

use super::{Ending, Life, Live};
use crate::ledger::News;
use crate::{Context, EndReason, Outcome};

impl Life {
    pub(super) fn hear(self: &Arc<Self>, news: News) {
        self.sight.uncounted.add(news.uncounted.len());
        for held in &news.uncounted {
            tracing::warn!(worker = %self.plan.name, run = %held.id, "a result did not count: its run was given to another meanwhile, or had ended");
        }
        self.journal.over(news.closed);
        if let Some(refused) = news.refused {
            self.hear_refused(refused);
        }
        self.sight.lost.add(news.lost.len());
        for held in &news.lost {
            tracing::warn!(worker = %self.plan.name, run = %held.id, "the worker has lost a run: it ends, and is forgotten");
            self.tell_to_end(held, EndReason::Lost);
        }
        for held in &news.cancel {
            self.tell_to_end(held, EndReason::Cancelled);
        }
        if news.drain {
            let _told = self.ends.send(Ending::Drain);
        }
        self.take_runs(news.runs, &news.confirmed);
        let state = self.state();
        for (held, until) in news.confirmed {
            let live = state.live.get(&held.id).map(|live| &live.context);
            for context in live.into_iter().chain(state.after.get(&held.id)) {
                if context.held() == held {
                    context.confirm(until);
                }
            }
        }
    }

    fn hear_refused(&self, refused: Vec<String>) {
        let mut state = self.state();
        if state.refused != refused {
            if !refused.is_empty() {
                let queues = refused.join(",");
                tracing::warn!(worker = %self.plan.name, queues, "the project has as many queues as it may: these cannot be made");
            }
            state.refused = refused;
        }
    }

    fn tell_to_end(&self, held: &HeldRun, reason: EndReason) {
        let mut state = self.state();
        if state.after.get(&held.id).is_some_and(|after| after.held() == *held) {
            // It has not begun.
            state.after.remove(&held.id);
            state.ledger.finish(unbegun(held, Outcome::ended_early(reason, "")));
            self.claims.notify_one();
        }
        if let Some(live) = state.live.get(&held.id).filter(|live| live.context.held() == *held) {
            live.context.tell_to_end(reason);
        }
    }

    fn take_runs(self: &Arc<Self>, runs: Vec<ClaimedRun>, confirmed: &[(HeldRun, Duration)]) {
        if runs.is_empty() {
            return;
        }
        self.sight.given.add(runs.len());
        let mut ready = Vec::new();
        let mut state = self.state();
        for run in runs {
            let held = HeldRun { id: run.id.clone(), token: run.token };
            if let Err(why) = self.has_handler(&run) {
                tracing::error!(worker = %self.plan.name, run = %run.id, why, "a run cannot be carried out here");
                self.sight.failed.add(1);
                state.ledger.finish(unbegun(&held, Outcome::failed_for_good(why)));
                continue;
            }
            let worker = Arc::clone(&self.plan.name);
            let context = Context::new(run, worker, Some(Arc::clone(&self.dirty)));
            // One of a strict queue knows its time before it begins.
            if let Some((_, until)) = confirmed.iter().find(|(confirmed, _)| *confirmed == held) {
                context.confirm(*until);
            }
            if let Some(former) = state.live.get(&held.id) {
                // The same run still executes here under an older token: that has to end first.
                former.context.tell_to_end(EndReason::Lost);
                state.after.insert(held.id, context.clone());
                self.spawn(Arc::clone(self).give_up_waiting(context));
                continue;
            }
            let live = Live { context: context.clone(), is_reported: false };
            state.live.insert(held.id, live);
            ready.push(context);
        }
        self.show(&state);
        drop(state);
        self.notify_all();
        self.spawn(Arc::clone(self).begin_all(ready));
    }

    /// An earlier attempt that does not end when it is told to keeps the next one from beginning.
    async fn give_up_waiting(self: Arc<Self>, context: Context) {
        self.while_it_lives(tokio::time::sleep(self.plan.lease)).await;
        let mut state = self.state();
        let held = context.held();
        if state.after.get(&held.id).is_some_and(|after| after.held() == held) {
            state.after.remove(&held.id);
            let why = "an earlier attempt still executes in this worker: it does not end when it is told to";
            state.ledger.finish(unbegun(&held, Outcome::failed(why)));
            self.claims.notify_one();
        }
    }
}

/// The result of a run that never began.
fn unbegun(held: &HeldRun, outcome: Outcome) -> DoneRun {
    DoneRun {
        id: held.id.clone(),
        token: held.token,
        result: outcome.result,
        final_failure: outcome.final_failure,
        retry_after_ms: None,
        error: outcome.error.filter(|error| !error.is_empty()),
        exit_code: None,
        started: None,
        took_ms: None,
    }
}

//! The worker: what it is made with, and how it is started and stopped. What it does is in `life`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, ClientError};
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::handler::{CarriedOut, Handlers, typed};
use crate::limits::{
    DRAIN_TIMEOUT_MAX, GRACE_MAX, LEASE_MAX, LEASE_MIN, QUEUES_MAX, RUNS_MAX, TIMEOUT_MAX,
    WEIGHT_MAX,
};
use crate::{Context, HandlerError, Outcome, Sight, Spool, life};

/// What a worker is told by its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Claim nothing more, give back what has not begun, finish the rest, and end.
    Drain,
    /// End at once what executes, report what can be reported in a few seconds, and end.
    Stop,
}

/// Why a worker ended in another way than by being drained.
#[derive(Debug, thiserror::Error)]
pub enum WorkerEnd {
    /// Another process has its name: give one of them another.
    #[error("{0}")]
    Superseded(String),
    /// No server lets it in: correct the URL, the key or what it was made with.
    #[error(transparent)]
    Refused(#[from] ClientError),
    /// No server took these results.
    #[error("{}", unreported(runs, *is_kept))]
    Unreported {
        /// The ids of their runs.
        runs: Vec<String>,
        /// They are in the spool, and the next life reports them.
        is_kept: bool,
    },
    /// The spool has no thread: let the process have more of them.
    #[error("{0}")]
    Spool(String),
    /// The process cannot be told by signals.
    #[error("the worker cannot hear signals: {0}")]
    Signals(String),
}

fn unreported(runs: &[String], is_kept: bool) -> String {
    let count = runs.len();
    if is_kept {
        return format!(
            "no server took {count} results: they are in the spool, and are reported by the next start under this name"
        );
    }
    let first = runs.first().map(String::as_str).unwrap_or_default();
    format!("no server took {count} results, the first of {first}: those runs are given to others")
}

/// What is wrong with what a worker was to be made with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(String);

/// A worker that is ready to begin.
pub struct Worker {
    plan: Plan,
    spool: Option<Spool>,
    sight: Arc<Sight>,
}

/// What a worker was made with.
pub(crate) struct Plan {
    pub(crate) name: Arc<str>,
    pub(crate) queues: Vec<(String, u32)>,
    pub(crate) servers: Vec<Client>,
    pub(crate) capacity: usize,
    pub(crate) lease: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) handlers: Handlers,
}

/// Makes a [`Worker`]: see [`Worker::new`].
#[must_use]
pub struct WorkerBuilder(Plan, Option<Spool>);

impl Worker {
    /// A worker of this name, which no other process has, that claims from these queues, the first before the second.
    #[expect(clippy::new_ret_no_self, reason = "it is made in steps")]
    pub fn new<Q: Into<String>>(
        name: impl Into<String>,
        queues: impl IntoIterator<Item = Q>,
    ) -> WorkerBuilder {
        let plan = Plan {
            name: name.into().into(),
            queues: queues.into_iter().map(|queue| (queue.into(), 0)).collect(),
            servers: Vec::new(),
            capacity: 10,
            lease: Duration::from_secs(15),
            timeout: None,
            grace: Duration::from_secs(2),
            drain_timeout: None,
            labels: BTreeMap::new(),
            handlers: Handlers::default(),
        };
        WorkerBuilder(plan, None)
    }

    /// What it did and how it stands: also while it runs.
    pub fn sight(&self) -> Arc<Sight> {
        Arc::clone(&self.sight)
    }

    /// Works until it is drained or stopped. If nobody can tell it anything any more, it works on.
    pub async fn run(self, control: mpsc::Receiver<Control>) -> Result<(), WorkerEnd> {
        life::live(self.plan, self.spool, self.sight, control).await
    }

    /// Works until SIGTERM or SIGINT drain it; a second one stops it.
    pub async fn run_until_signal(self) -> Result<(), WorkerEnd> {
        let signals = signal(SignalKind::terminate())
            .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
        let (mut terminate, mut interrupt) =
            signals.map_err(|why| WorkerEnd::Signals(why.to_string()))?;
        let (tell, control) = mpsc::channel(2);
        let mut life = Box::pin(self.run(control));
        let mut next = Control::Drain;
        loop {
            tokio::select! {
                end = &mut life => return end,
                Some(()) = terminate.recv() => {}
                Some(()) = interrupt.recv() => {}
            }
            // Whoever is told twice needs no third word.
            let _told = tell.try_send(next);
            next = Control::Stop;
        }
    }
}

impl WorkerBuilder {
    /// Whom it asks. One is enough; with several it goes on while one of them answers.
    pub fn servers(mut self, servers: impl IntoIterator<Item = Client>) -> Self {
        self.0.servers.extend(servers);
        self
    }

    /// So many runs at a time, up to 1,000: 10 by default.
    pub fn capacity(mut self, runs: usize) -> Self {
        self.0.capacity = runs;
        self
    }

    /// How long it may be silent before its runs are given to others, 1 s to a day: 15 s by default. It is heard five times as
    /// often.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.0.lease = lease;
        self
    }

    /// How long an attempt may take, of runs that do not say it, up to 30 days: as long as it likes by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = Some(timeout);
        self
    }

    /// How long a handler that was told to end may take before it is dropped, up to a day: 2 s by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.0.grace = grace;
        self
    }

    /// How long it waits, when it drains, before it ends what is left, up to 7 days: until it is done by default.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.0.drain_timeout = Some(timeout);
        self
    }

    /// Words by which the worker is found again.
    pub fn labels(mut self, labels: BTreeMap<String, String>) -> Self {
        self.0.labels = labels;
        self
    }

    /// Of all claims, so large a part has this queue first, by its weight from 1 to 1,000; queues without one have 1. Without any
    /// weight the queues stand in the order in which they were named.
    pub fn weight(mut self, queue: &str, weight: u32) -> Self {
        let known = self.0.queues.iter_mut().find(|(name, _)| name == queue);
        match known {
            Some((_, of)) => *of = weight,
            None => self.0.queues.push((queue.to_owned(), weight)),
        }
        self
    }

    /// Carries out the runs that name this handler. The payload is read as the handler's second argument: one that does not fit
    /// is a failure for good.
    pub fn handler<T, H, F>(mut self, name: &str, handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Context, T) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.0.handlers.by_name.insert(name.to_owned(), typed(handler));
        self
    }

    /// Carries out the runs that have a command. When one is told to end it is waited for: it is dropped only when the worker
    /// stops.
    pub fn commands<C, F>(mut self, carry_out: C) -> Self
    where
        C: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let carry = move |context| -> CarriedOut { Box::pin(carry_out(context)) };
        self.0.handlers.commands = Some(Box::new(carry));
        self
    }

    /// Claims nothing while this says `false`: what commands need is not there.
    pub fn ready(mut self, ready: watch::Receiver<bool>) -> Self {
        self.0.handlers.ready = Some(ready);
        self
    }

    /// Keeps results in this spool until a server has taken them. Without one they are in memory.
    pub fn spool(mut self, spool: Spool) -> Self {
        self.1 = Some(spool);
        self
    }

    /// Makes it, if all of that can be.
    pub fn build(self) -> Result<Worker, SettingError> {
        let bad = |why: String| Err(SettingError(why));
        let plan = self.0;
        let queues = plan.queues.len();
        if !is_name(&plan.name) || !plan.queues.iter().all(|(queue, _)| is_name(queue)) {
            return bad(
                "names of workers and queues are 1 to 100 letters, digits, '.', '_', '-'".into()
            );
        }
        if !(1..=QUEUES_MAX).contains(&queues) {
            return bad(format!(
                "a worker claims from 1 to {QUEUES_MAX} queues, and these are {queues}"
            ));
        }
        if !(1..=RUNS_MAX).contains(&plan.capacity) {
            return bad(format!(
                "the capacity is from 1 to {RUNS_MAX}, and this is {}",
                plan.capacity
            ));
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&plan.lease) {
            return bad(format!("the lease is from 1s to 24h, and this is {:?}", plan.lease));
        }
        for (what, time, max) in [
            ("time-out", plan.timeout, TIMEOUT_MAX),
            ("grace", Some(plan.grace), GRACE_MAX),
            ("drain time-out", plan.drain_timeout, DRAIN_TIMEOUT_MAX),
        ] {
            if let Some(time) = time.filter(|time| *time > max) {
                return bad(format!("the {what} is at most {max:?}, and this is {time:?}"));
            }
        }
        if plan.queues.iter().any(|(_, weight)| *weight > WEIGHT_MAX) {
            return bad(format!("the weight of a queue is from 1 to {WEIGHT_MAX}"));
        }
        if plan.servers.is_empty() {
            return bad("a worker needs a server: try http://127.0.0.1:7400".into());
        }
        let sight = Arc::new(Sight::default());
        sight.capacity.set(plan.capacity as u64);
        Ok(Worker { plan, spool: self.1, sight })
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=100).contains(&name.len()) && name.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(change: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Result<(), String> {
        let server = Client::builder("http://127.0.0.1:7400").build().unwrap();
        let builder = change(Worker::new("w", ["q"]).servers([server]));
        builder.build().map(drop).map_err(|why| why.to_string())
    }

    #[test]
    fn times_have_limits_and_who_goes_past_one_is_told_which() {
        let second = Duration::from_secs(1);
        assert_eq!(built(|worker| worker.timeout(TIMEOUT_MAX)), Ok(()));
        assert_eq!(built(|worker| worker.grace(GRACE_MAX)), Ok(()));
        assert_eq!(built(|worker| worker.drain_timeout(DRAIN_TIMEOUT_MAX)), Ok(()));
        for (refused, says) in [
            (built(|worker| worker.timeout(TIMEOUT_MAX + second)), "the time-out is at most"),
            (built(|worker| worker.timeout(Duration::MAX)), "the time-out is at most"),
            (built(|worker| worker.grace(GRACE_MAX + second)), "the grace is at most"),
            (
                built(|worker| worker.drain_timeout(DRAIN_TIMEOUT_MAX + second)),
                "the drain time-out is at most",
            ),
        ] {
            let why = refused.unwrap_err();
            assert!(why.starts_with(says), "{why}");
        }
    }
}

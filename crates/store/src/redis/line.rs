//! A line to whichever Redis can hold the store: one connection at a time, made anew by whoever needs it.
//!
//! Many calls share it, answered in the order in which they were sent, with no lock between them. What was sent and not answered in time is
//! never sent again: the connection is left, and whoever asked learns that nobody knows. A call may be dropped at any moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use redis::{Cmd, RedisError, Value as Reply, cmd};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::link::{Door, Link};
use super::script::Script;
use super::setting::Setting;

/// Between two attempts to connect: at first, and at the most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How often a line looks whether an answer is owed for too long, though everybody who waited for it has gone.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was never sent.
    NotSent(String),
    /// The server answered with an error.
    Told(RedisError),
    /// It was sent, and nobody knows.
    NoAnswer(String),
}

/// Learns how the server of a new connection is set up, and says whether it counts.
type Found = Box<dyn Fn(&Setting) -> bool + Send + Sync>;

pub(super) struct Line {
    door: Arc<Door>,
    current: RwLock<Option<Arc<Link>>>,
    /// How many attempts to connect have failed. Whoever waited meanwhile need not try for itself.
    failed: AtomicU64,
    gate: Mutex<Gate>,
    found: Found,
}

/// Held by whoever connects.
struct Gate {
    not_before: Instant,
    pause: Duration,
    why: String,
}

impl Line {
    pub(super) fn new(door: Arc<Door>, link: Option<Link>, found: Found) -> Self {
        let gate =
            Gate { not_before: Instant::now(), pause: PAUSE_MIN, why: "not connected".into() };
        Self {
            door,
            current: RwLock::new(link.map(Arc::new)),
            failed: AtomicU64::new(0),
            gate: Mutex::new(gate),
            found,
        }
    }

    /// Calls a script, and brings it along if the server has not seen it: it says so before it does anything.
    pub(super) async fn call(
        &self,
        script: &Script,
        fill: impl Fn(Cmd) -> Cmd,
    ) -> Result<Reply, Failure> {
        let deadline = Instant::now() + STORE_ANSWER_MAX;
        match self.ask(&fill(script.by_hash()), deadline).await {
            Err(Failure::Told(why)) if why.code() == Some("NOSCRIPT") => {
                self.ask(&fill(script.by_code()), deadline).await
            }
            other => other,
        }
    }

    /// Sends one command.
    pub(super) async fn ask(&self, command: &Cmd, deadline: Instant) -> Result<Reply, Failure> {
        let link = match self.current() {
            Some(link) => link,
            None => match timeout_at(deadline, self.link()).await {
                Ok(link) => link.map_err(Failure::NotSent)?,
                Err(_) => {
                    return Err(Failure::NotSent("no connection came about in time".to_owned()));
                }
            },
        };
        match timeout_at(deadline, link.ask(command)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(why)) if why.is_unrecoverable_error() => {
                self.leave(&link);
                Err(Failure::NoAnswer(format!("the connection was lost ({})", why.category())))
            }
            Ok(Err(why)) => Err(Failure::Told(why)),
            Err(_) => {
                self.leave(&link);
                let seconds = STORE_ANSWER_MAX.as_secs();
                Err(Failure::NoAnswer(format!("no answer within {seconds} s")))
            }
        }
    }

    /// Leaves whatever connection there is: the next call makes a new one.
    pub(super) fn hang_up(&self) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Leaves a connection on which nobody answers although everybody who asked has stopped waiting. Never ends.
    pub(super) async fn watch(&self) {
        loop {
            sleep(WATCH_EVERY).await;
            let Some(link) = self.current().filter(|link| link.is_owed()) else { continue };
            if timeout(STORE_ANSWER_MAX, link.ask(&cmd("PING"))).await.is_err() {
                self.leave(&link);
            }
        }
    }

    fn current(&self) -> Option<Arc<Link>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|link| !link.is_closed()).map(Arc::clone)
    }

    /// Leaves this connection, unless it was left already.
    fn leave(&self, link: &Arc<Link>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|present| Arc::ptr_eq(present, link)) {
            *current = None;
        }
    }

    /// A new connection, or the one that somebody else has made meanwhile.
    async fn link(&self) -> Result<Arc<Link>, String> {
        let failed = self.failed.load(Ordering::Acquire);
        let mut gate = self.gate.lock().await;
        if let Some(link) = self.current() {
            return Ok(link);
        }
        if self.failed.load(Ordering::Acquire) != failed {
            return Err(gate.why.clone());
        }
        sleep_until(gate.not_before).await;
        match self.door.enter(&self.found).await {
            Ok((link, _)) => {
                gate.pause = PAUSE_MIN;
                let link = Arc::new(link);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::clone(&link));
                Ok(link)
            }
            Err(trouble) => {
                self.failed.fetch_add(1, Ordering::Release);
                gate.not_before = Instant::now() + gate.pause;
                gate.pause = (gate.pause * 2).min(PAUSE_MAX);
                gate.why = trouble.to_string();
                Err(gate.why.clone())
            }
        }
    }
}

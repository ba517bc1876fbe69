//! A client that reconnects: calls to whichever Redis can hold the store, over one connection at a time that is made anew when needed.
//!
//! Many calls share the connection and are answered in the order in which they were sent, with no lock between them. A call that was sent
//! and not answered in time is never sent again: the connection is dropped, and the outcome is unknown. A call may be dropped at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use parking_lot::RwLock;
use redis::{Cmd, RedisError, Value as Reply, cmd};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::connection::{RedisConnection, RedisConnector};
use super::script::LuaScript;
use super::setting::RedisSettings;

/// Between two attempts to connect: at first, and at the most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How often it is looked whether an answer is overdue that nobody waits for any longer.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum RedisFailure {
    /// It was never sent.
    NotSent(String),
    /// The server answered with an error.
    Told(RedisError),
    /// It was sent, and no answer came: the outcome is unknown.
    NoAnswer(String),
}

/// Learns how the server of a new connection is set up, and says whether it counts.
type AcceptServer = Box<dyn Fn(&RedisSettings) -> bool + Send + Sync>;

pub(super) struct RedisClient {
    connector: Arc<RedisConnector>,
    current: RwLock<Option<Arc<RedisConnection>>>,
    /// How many attempts to connect have failed. Whoever waited meanwhile need not try for itself.
    failed: AtomicU64,
    gate: Mutex<ConnectGate>,
    found: AcceptServer,
}

/// Locked while somebody connects: when the next try may begin, and what came of the last one.
struct ConnectGate {
    not_before: Instant,
    pause: Duration,
    why: String,
}

impl RedisClient {
    pub(super) fn new(
        connector: Arc<RedisConnector>,
        connection: Option<RedisConnection>,
        found: AcceptServer,
    ) -> Self {
        let gate = ConnectGate {
            not_before: Instant::now(),
            pause: PAUSE_MIN,
            why: "not connected".into(),
        };
        Self {
            connector,
            current: RwLock::new(connection.map(Arc::new)),
            failed: AtomicU64::new(0),
            gate: Mutex::new(gate),
            found,
        }
    }

    /// Calls a script by its hash, and with its text if the server says that it has not seen it.
    pub(super) async fn call(
        &self,
        script: &LuaScript,
        fill: impl Fn(Cmd) -> Cmd,
    ) -> Result<Reply, RedisFailure> {
        let deadline = Instant::now() + STORE_ANSWER_MAX;
        match self.ask(&fill(script.by_hash()), deadline).await {
            Err(RedisFailure::Told(why)) if why.code() == Some("NOSCRIPT") => {
                self.ask(&fill(script.by_code()), deadline).await
            }
            other => other,
        }
    }

    /// Sends one command.
    pub(super) async fn ask(
        &self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Reply, RedisFailure> {
        let connection = match self.current() {
            Some(connection) => connection,
            None => match timeout_at(deadline, self.connection()).await {
                Ok(connection) => connection.map_err(RedisFailure::NotSent)?,
                Err(_) => {
                    return Err(RedisFailure::NotSent(
                        "no connection came about in time".to_owned(),
                    ));
                }
            },
        };
        match timeout_at(deadline, connection.ask(command)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(why)) if why.is_unrecoverable_error() => {
                self.leave(&connection);
                Err(RedisFailure::NoAnswer(format!("the connection was lost ({})", why.category())))
            }
            Ok(Err(why)) => Err(RedisFailure::Told(why)),
            Err(_) => {
                self.leave(&connection);
                let seconds = STORE_ANSWER_MAX.as_secs();
                Err(RedisFailure::NoAnswer(format!("no answer within {seconds} s")))
            }
        }
    }

    /// Drops the connection, if there is one: the next call makes a new one.
    pub(super) fn hang_up(&self) {
        *self.current.write() = None;
    }

    /// Drops a connection on which an answer is overdue, also when nobody waits for it any longer. Never ends.
    pub(super) async fn watch(&self) {
        loop {
            sleep(WATCH_EVERY).await;
            let Some(connection) = self.current().filter(|connection| connection.is_owed()) else {
                continue;
            };
            if timeout(STORE_ANSWER_MAX, connection.ask(&cmd("PING"))).await.is_err() {
                self.leave(&connection);
            }
        }
    }

    fn current(&self) -> Option<Arc<RedisConnection>> {
        let current = self.current.read();
        current.as_ref().filter(|connection| !connection.is_closed()).map(Arc::clone)
    }

    /// Drops this connection, unless there is another one by now.
    fn leave(&self, connection: &Arc<RedisConnection>) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|present| Arc::ptr_eq(present, connection)) {
            *current = None;
        }
    }

    /// A new connection, or the one that somebody else has made meanwhile.
    async fn connection(&self) -> Result<Arc<RedisConnection>, String> {
        let failed = self.failed.load(Ordering::Acquire);
        let mut gate = self.gate.lock().await;
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        if self.failed.load(Ordering::Acquire) != failed {
            return Err(gate.why.clone());
        }
        sleep_until(gate.not_before).await;
        match self.connector.connect(&self.found).await {
            Ok((connection, _)) => {
                gate.pause = PAUSE_MIN;
                let connection = Arc::new(connection);
                *self.current.write() = Some(Arc::clone(&connection));
                Ok(connection)
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

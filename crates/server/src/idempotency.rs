//! Requests that are remembered: the same one, sent again under the same idempotency key, is done once.
//!
//! What became of a request is written in the same commit as what it changed, so a crash in between cannot part
//! them; a repeated request finds it there and is answered by it. While a request is under way, the same key waits
//! for it: also when the caller is gone, until it is known what became of it.
//!
//! ```text
//! recall/<project>/<hash of the key>     [`IdempotencyRecord`], for a day
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::limits::IDEMPOTENCY_KEPT;
use engine::record::{Format, decode, encode};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use store::{Condition, Key, ScanError, Store};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::access::key::hex;

/// The format of these records.
pub(crate) const FORMAT: Format = Format(1);

/// Where all of them are. The stored text is older than the name, and stays.
pub(crate) const IDEMPOTENCY: &str = "recall/";

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdempotencyRecord {
    /// When the request was carried out.
    pub(crate) at: Instant,
    /// The hash of what was asked.
    pub(crate) request: String,
    /// What came of it.
    pub(crate) outcome: RememberedOutcome,
}

/// What came of a request that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RememberedOutcome {
    /// A trigger was made.
    Created(String),
    /// A trigger was changed.
    Changed(String),
    /// A run was started.
    Started(String),
    /// Slots of the past were run again.
    Submitted,
    /// Runs were submitted to a queue, or were there already.
    Queued {
        /// Whether they were submitted as a batch.
        batch: bool,
        /// Their ids.
        runs: Vec<String>,
    },
    /// A queue was changed.
    Queue(String),
    /// Dead runs of a queue wait again.
    Redriven(client::redrive::Redriven),
    /// A project was made.
    Project(String),
    /// A project was changed.
    ProjectChanged(String),
    /// A project was given a new secret.
    Rotated(String),
    /// A key was made.
    Key(String),
    /// Whoever has an election was asked to leave.
    Resigned(String),
    /// Whoever waits for an election was let begin.
    Approved(String),
    /// The scheduler was told something.
    Done,
    /// A server was told to have no shard.
    Drained(String),
    /// A worker was asked to drain, or to go on.
    Worker(String),
    /// A ring, or a subscription of one, was changed: `ring`, or `ring/subscription`.
    Ring(String),
}

/// Tells a request from others: by the key that its caller gave it, and a hash of what it asks.
#[derive(Debug, Clone)]
pub(crate) struct RequestFingerprint {
    /// Where it is remembered.
    key: String,
    /// The hash of what it asks.
    request: String,
}

impl RequestFingerprint {
    /// A request of a project, under the key that its caller gave it. What it asks is told by `parts`.
    pub(crate) fn new(project: ProjectId, key: &str, parts: &[&[u8]]) -> Self {
        let key = hex(digest(&SHA256, key.as_bytes()).as_ref());
        let mut asked = Vec::new();
        for part in parts {
            asked.extend_from_slice(&(part.len() as u64).to_be_bytes());
            asked.extend_from_slice(part);
        }
        let request = hex(digest(&SHA256, &asked).as_ref());
        Self { key: format!("{IDEMPOTENCY}{}/{key}", project.0), request }
    }

    /// Where it is remembered.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Some digits that tell it from other requests.
    pub(crate) fn short(&self) -> &str {
        &self.key[self.key.len() - 16..]
    }

    /// What to write when it is carried out.
    pub(crate) fn record(&self, at: Instant, outcome: RememberedOutcome) -> Vec<u8> {
        encode(FORMAT, &IdempotencyRecord { at, request: self.request.clone(), outcome })
    }

    /// What became of it, if it was here before.
    pub(crate) async fn find(&self, store: &Store, now: Instant) -> Result<Remembered, ScanError> {
        let key = Key::new(self.key.clone()).expect("a number and digits");
        let Some(entry) = store.get(&key).await? else { return Ok(Remembered::New) };
        let record: IdempotencyRecord = match decode(entry.value.as_bytes(), FORMAT) {
            Ok(record) => record,
            Err(why) => return Err(ScanError::Corrupt(format!("{}: {why}", self.key))),
        };
        if record.at.after(IDEMPOTENCY_KEPT) <= now {
            return Ok(Remembered::New);
        }
        if record.request != self.request {
            return Ok(Remembered::Other);
        }
        Ok(Remembered::Done(record.outcome))
    }

    /// What must be so for it to be carried out now; nothing, if it was carried out meanwhile.
    pub(crate) async fn condition(
        &self,
        store: &Store,
        now: Instant,
    ) -> Result<Option<Condition>, ScanError> {
        let key = Key::new(self.key.clone()).expect("a number and digits");
        let Some(entry) = store.get(&key).await? else { return Ok(Some(Condition::Absent(key))) };
        Ok(match self.find(store, now).await? {
            Remembered::New => Some(Condition::At(key, entry.version)),
            Remembered::Done(_) | Remembered::Other => None,
        })
    }
}

/// Whether a request was here before.
#[derive(Debug)]
pub(crate) enum Remembered {
    /// No request had this key before.
    New,
    /// It was carried out, and this became of it.
    Done(RememberedOutcome),
    /// Another request was carried out under the same key.
    Other,
}

/// The requests that are under way, by their keys.
#[derive(Debug, Default)]
pub(crate) struct RequestsUnderWay(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

/// Keeps other requests with the same key waiting until it is dropped.
pub(crate) type KeyLock = Arc<OwnedMutexGuard<()>>;

impl RequestsUnderWay {
    /// Waits until nobody else is under way with this key.
    pub(crate) async fn enter(&self, request: &RequestFingerprint) -> KeyLock {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(request.key()).and_then(Weak::upgrade);
            let lock = known.unwrap_or_default();
            locks.insert(request.key.clone(), Arc::downgrade(&lock));
            lock
        };
        Arc::new(lock.lock_owned().await)
    }
}

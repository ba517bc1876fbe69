//! A plain key that shows something, such as who leads, to other programs that read this Redis. Watchbell itself never reads it.

use std::sync::Arc;
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use redis::{Cmd, cmd};
use tokio::time::Instant;

use super::reconnect::{RedisClient, RedisFailure};
use crate::{Address, OpenError};

/// Deletes a key that holds this value, and no other.
const CLEAR: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A plain key of a Redis. Each call ends within a few seconds, whatever happens to the server.
pub struct Mirror {
    client: RedisClient,
    key: String,
}

/// Why a mirror does not show what it should.
#[derive(Debug, thiserror::Error)]
#[error("the key {key} could not be written: {why}")]
pub struct MirrorError {
    key: String,
    why: String,
}

impl Mirror {
    /// A key of the Redis at this address. Connects when it is needed.
    pub fn new(at: &Address, key: impl Into<String>) -> Result<Self, OpenError> {
        let (connector, _) = super::read(at)?;
        Ok(Self {
            client: RedisClient::new(Arc::new(connector), None, Box::new(|_| true)),
            key: key.into(),
        })
    }

    /// Shows `value` for `ttl`, unless it is set anew.
    pub async fn set(&self, value: &str, ttl: Duration) -> Result<(), MirrorError> {
        let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut set = cmd("SET");
        set.arg(&self.key).arg(value).arg("PX").arg(ms);
        self.ask(&set).await
    }

    /// Shows nothing any longer, if it still shows `value`.
    pub async fn clear_if(&self, value: &str) -> Result<(), MirrorError> {
        let mut clear = cmd("EVAL");
        clear.arg(CLEAR).arg(1).arg(&self.key).arg(value);
        self.ask(&clear).await
    }

    async fn ask(&self, command: &Cmd) -> Result<(), MirrorError> {
        let deadline = Instant::now() + STORE_ANSWER_MAX;
        let failed = |why| MirrorError { key: self.key.clone(), why };
        match self.client.ask(command, deadline).await {
            Ok(_) => Ok(()),
            Err(RedisFailure::Told(why)) => Err(failed(why.category().to_owned())),
            Err(RedisFailure::NotSent(why) | RedisFailure::NoAnswer(why)) => Err(failed(why)),
        }
    }
}

//! Hints: each call that commits publishes the keys that were changed, and a connection of its own listens.
//!
//! A message notifies watchers at once. Whenever the connection was lost and is back, all watchers are notified. The same connection looks
//! now and then how the server is set up: that shows that it lives, and what a person changed meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use redis::{PushInfo, PushKind, Value as Reply, cmd};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::call::RedisShared;
use super::connection::RedisConnection;
use super::error::{ConnectError, ConnectResult};
use super::script::EVERYTHING;
use crate::{EngineFault, Key};

/// How often the listener looks at the server.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Between two attempts to listen: at first, and at the most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Listens for as long as the store is open.
pub(super) async fn listen(shared: Arc<RedisShared>) {
    let mut pause = PAUSE_MIN;
    loop {
        match subscribe(&shared).await {
            Ok((connection, lost)) => {
                pause = PAUSE_MIN;
                shared.server.may_listen.store(true, Ordering::Relaxed);
                shared.watchers.notify_all();
                tokio::select! {
                    () = lost.notified() => {}
                    () = stay(&shared, &connection) => {}
                }
            }
            Err(trouble) => {
                // A user who may not subscribe gets no hints: watchers are told to look, again and again.
                if trouble.fault == EngineFault::Password {
                    shared.server.may_listen.store(false, Ordering::Relaxed);
                    shared.watchers.notify_all();
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// A connection that listens, and who tells when it is lost.
async fn subscribe(shared: &Arc<RedisShared>) -> ConnectResult<(RedisConnection, Arc<Notify>)> {
    let lost = Arc::new(Notify::new());
    let (told, weak) = (Arc::clone(&lost), Arc::downgrade(shared));
    let push = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            told.notify_one();
        } else if push.kind == PushKind::Message
            && let (Some(shared), Some(Reply::BulkString(keys))) =
                (weak.upgrade(), push.data.last())
        {
            pass_on(&shared, keys);
        }
        Ok::<_, redis::aio::SendError>(())
    };
    let connection = shared.connector.listen(push).await?;
    let mut subscribe = cmd("SUBSCRIBE");
    subscribe.arg(&shared.names.hints);
    match timeout(STORE_ANSWER_MAX, connection.ask(&subscribe)).await {
        Ok(Ok(_)) => Ok((connection, lost)),
        Ok(Err(why)) => Err(ConnectError::told(&why)),
        Err(_) => Err(ConnectError::new(EngineFault::Unreachable, "no answer to SUBSCRIBE")),
    }
}

/// Notifies the watchers of the keys that a message names: separated by spaces, or a star if they are too many.
fn pass_on(shared: &RedisShared, keys: &[u8]) {
    let keys: Result<Vec<Key>, _> =
        keys.split(|byte| *byte == b' ').map(|key| Key::from_bytes(key.to_vec().into())).collect();
    match keys {
        Ok(keys) if keys.iter().any(|key| key.as_str() == EVERYTHING) => {
            shared.watchers.notify_all();
        }
        Ok(keys) => shared.watchers.notify(&keys.iter()),
        // What somebody else published.
        Err(_) => shared.watchers.notify_all(),
    }
}

/// Looks at the server until it no longer answers.
async fn stay(shared: &RedisShared, connection: &RedisConnection) {
    loop {
        sleep(LOOK_EVERY).await;
        match timeout(STORE_ANSWER_MAX, connection.look()).await {
            Ok(Ok(setting)) => {
                if !shared.server.found(&setting) {
                    shared.hang_up();
                    return;
                }
            }
            Ok(Err(trouble)) => {
                // What must not hold a store any longer is left by everybody; connecting says why.
                if trouble.fault != EngineFault::Unreachable {
                    tracing::warn!(%trouble, "redis can no longer be relied on");
                    shared.hang_up();
                }
                return;
            }
            Err(_) => return,
        }
    }
}

//! Hints: each call that commits publishes the keys that were changed, and a connection of its own listens.
//!
//! Messages ring bells at once and are not queued. Whenever the connection was lost and is back, everybody is rung. The same connection looks
//! now and then how the server is set up: that shows that it lives, and what a person changed meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use redis::{PushInfo, PushKind, Value as Reply, cmd};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::core::Core;
use super::link::Link;
use super::script::EVERYTHING;
use super::trouble::Trouble;
use crate::{Fault, Key};

/// How often the listener looks at the server.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Between two attempts to listen: at first, and at the most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Listens for ever.
pub(super) async fn listen(core: Arc<Core>) {
    let mut pause = PAUSE_MIN;
    loop {
        match subscribe(&core).await {
            Ok((link, lost)) => {
                pause = PAUSE_MIN;
                core.about.may_listen.store(true, Ordering::Relaxed);
                core.watchers.ring_all();
                tokio::select! {
                    () = lost.notified() => {}
                    () = stay(&core, &link) => {}
                }
            }
            Err(trouble) => {
                // Whoever may not listen is told to look for itself, again and again.
                if trouble.fault == Fault::Password {
                    core.about.may_listen.store(false, Ordering::Relaxed);
                    core.watchers.ring_all();
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// A connection that listens, and who tells when it is lost.
async fn subscribe(core: &Arc<Core>) -> Result<(Link, Arc<Notify>), Trouble> {
    let lost = Arc::new(Notify::new());
    let (told, weak) = (Arc::clone(&lost), Arc::downgrade(core));
    let push = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            told.notify_one();
        } else if push.kind == PushKind::Message
            && let (Some(core), Some(Reply::BulkString(keys))) = (weak.upgrade(), push.data.last())
        {
            ring(&core, keys);
        }
        Ok::<_, redis::aio::SendError>(())
    };
    let link = core.door.listen(push).await?;
    let mut subscribe = cmd("SUBSCRIBE");
    subscribe.arg(&core.names.hints);
    match timeout(STORE_ANSWER_MAX, link.ask(&subscribe)).await {
        Ok(Ok(_)) => Ok((link, lost)),
        Ok(Err(why)) => Err(Trouble::told(&why)),
        Err(_) => Err(Trouble::new(Fault::Unreachable, "no answer to SUBSCRIBE")),
    }
}

/// Rings for the keys that a message names: separated by spaces, or a star if they are too many.
fn ring(core: &Core, keys: &[u8]) {
    let keys: Result<Vec<Key>, _> =
        keys.split(|byte| *byte == b' ').map(|key| Key::from_bytes(key.to_vec().into())).collect();
    match keys {
        Ok(keys) if keys.iter().any(|key| key.as_str() == EVERYTHING) => core.watchers.ring_all(),
        Ok(keys) => core.watchers.ring(&keys.iter()),
        // What somebody else published.
        Err(_) => core.watchers.ring_all(),
    }
}

/// Looks at the server until it no longer answers.
async fn stay(core: &Core, link: &Link) {
    loop {
        sleep(LOOK_EVERY).await;
        match timeout(STORE_ANSWER_MAX, link.look()).await {
            Ok(Ok(setting)) => {
                if !core.about.found(&setting) {
                    core.hang_up();
                    return;
                }
            }
            Ok(Err(trouble)) => {
                // What must not hold a store any longer is left by everybody; connecting says why.
                if trouble.fault != Fault::Unreachable {
                    tracing::warn!(%trouble, "redis can no longer be relied on");
                    core.hang_up();
                }
                return;
            }
            Err(_) => return,
        }
    }
}

//! Hints: one watch of etcd on all of our keys, made anew by itself.
//!
//! The watch always begins at the present revision. When it is established, all watchers are notified, which covers
//! whatever happened before: so neither a gap nor a compaction matters.

use std::sync::Arc;
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use etcd_client::{WatchOptions, WatchResponse, WatchStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::MESSAGE_BYTES_MAX;
use super::call::EtcdHandle;
use super::failure::{EtcdFailure, deepest};
use super::member::{ConnectionFate, MemberConnection};
use crate::Key;

/// The pause between two watches.
const PAUSE: Duration = Duration::from_millis(100);

/// Passes hints on for as long as the store is open, beginning when somebody wants them.
pub(super) async fn listen(etcd: Arc<EtcdHandle>, wanted: Arc<Notify>) {
    wanted.notified().await;
    loop {
        let Ok(connection) = etcd.members.take(Instant::now() + STORE_ANSWER_MAX).await else {
            sleep(PAUSE).await;
            continue;
        };
        let why = follow(&etcd, &connection).await;
        tracing::debug!(why, "the watch of etcd ended and is made anew");
        sleep(PAUSE).await;
    }
}

/// Passes hints on until the watch ends; returns why it did.
async fn follow(etcd: &EtcdHandle, connection: &MemberConnection) -> String {
    let mut favourite = etcd.members.favourite();
    favourite.mark_unchanged();
    let mut stream = match timeout(STORE_ANSWER_MAX, open(etcd, connection)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return why,
        Err(_) => {
            etcd.members.leave(connection, ConnectionFate::Drop);
            return "no answer in time".to_owned();
        }
    };
    etcd.watchers.notify_all();
    loop {
        let message = tokio::select! {
            message = stream.message() => message,
            _ = favourite.changed() => return "another member is the favourite".to_owned(),
        };
        match message {
            Ok(Some(answer)) if answer.canceled() => return answer.cancel_reason().to_owned(),
            Ok(Some(answer)) => pass_on(etcd, &answer),
            Ok(None) => return "etcd ended it".to_owned(),
            Err(why) => {
                // A connection that is gone, or a member without a leader, is nothing to ask again.
                etcd.members.leave(connection, ConnectionFate::Drop);
                return deepest(&why);
            }
        }
    }
}

/// A watch that etcd has confirmed.
async fn open(etcd: &EtcdHandle, connection: &MemberConnection) -> Result<WatchStream, String> {
    let options = WatchOptions::new().with_range(etcd.space.end()).with_fragment();
    let mut client = connection.client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut stream = match client.watch(etcd.space.prefix(), Some(options)).await {
        Ok(stream) => stream,
        Err(why) => return Err(refused(etcd, connection, &why).await),
    };
    match stream.message().await {
        Ok(Some(answer)) if answer.created() && !answer.canceled() => Ok(stream),
        Ok(answer) => {
            // A token that is no longer good is not told apart from a permission that is missing.
            let _ = connection.client.refresh_token().await;
            Err(answer.map_or_else(String::new, |answer| answer.cancel_reason().to_owned()))
        }
        Err(why) => Err(refused(etcd, connection, &why).await),
    }
}

async fn refused(
    etcd: &EtcdHandle,
    connection: &MemberConnection,
    why: &etcd_client::Error,
) -> String {
    if let EtcdFailure::Token(_) = EtcdFailure::of(why) {
        let _ = connection.client.refresh_token().await;
    } else {
        etcd.members.leave(connection, ConnectionFate::Drop);
    }
    deepest(why)
}

fn pass_on(etcd: &EtcdHandle, answer: &WatchResponse) {
    let key = |event: &etcd_client::Event| etcd.space.read(event.kv()?.key());
    let keys: Vec<Key> = answer.events().iter().filter_map(key).collect();
    etcd.watchers.notify(&keys.iter());
}

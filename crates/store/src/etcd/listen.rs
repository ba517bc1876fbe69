//! Hints: one watch of etcd on all of our keys, made anew by itself.
//!
//! It always begins at the present. Whatever happened before that is covered by ringing for everybody once it
//! stands, so that neither a gap nor a compaction matters.

use std::sync::Arc;
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use etcd_client::{WatchOptions, WatchResponse, WatchStream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::MESSAGE_BYTES_MAX;
use super::call::Reach;
use super::failure::{Failure, deepest};
use super::seat::{Line, Parting};
use crate::Key;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens for ever, from the moment in which somebody wants it.
pub(super) async fn listen(reach: Arc<Reach>, wanted: Arc<Notify>) {
    wanted.notified().await;
    loop {
        let Ok(line) = reach.seats.take(Instant::now() + STORE_ANSWER_MAX).await else {
            sleep(PAUSE).await;
            continue;
        };
        let why = follow(&reach, &line).await;
        tracing::debug!(why, "the watch of etcd ended and is made anew");
        sleep(PAUSE).await;
    }
}

/// Passes hints on until the watch ends; tells why it did.
async fn follow(reach: &Reach, line: &Line) -> String {
    let mut favourite = reach.seats.favourite();
    favourite.mark_unchanged();
    let mut stream = match timeout(STORE_ANSWER_MAX, open(reach, line)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return why,
        Err(_) => {
            reach.seats.leave(line, Parting::Drop);
            return "no answer in time".to_owned();
        }
    };
    reach.watchers.ring_all();
    loop {
        let message = tokio::select! {
            message = stream.message() => message,
            _ = favourite.changed() => return "another member is the favourite".to_owned(),
        };
        match message {
            Ok(Some(answer)) if answer.canceled() => return answer.cancel_reason().to_owned(),
            Ok(Some(answer)) => pass_on(reach, &answer),
            Ok(None) => return "etcd ended it".to_owned(),
            Err(why) => {
                // A connection that is gone, or a member without a leader, is nothing to ask again.
                reach.seats.leave(line, Parting::Drop);
                return deepest(&why);
            }
        }
    }
}

/// A watch that stands.
async fn open(reach: &Reach, line: &Line) -> Result<WatchStream, String> {
    let options = WatchOptions::new().with_range(reach.space.end()).with_fragment();
    let mut client = line.client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut stream = match client.watch(reach.space.prefix(), Some(options)).await {
        Ok(stream) => stream,
        Err(why) => return Err(refused(reach, line, &why).await),
    };
    match stream.message().await {
        Ok(Some(answer)) if answer.created() && !answer.canceled() => Ok(stream),
        Ok(answer) => {
            // A token that is no longer good is not told apart from a permission that is missing.
            let _ = line.client.refresh_token().await;
            Err(answer.map_or_else(String::new, |answer| answer.cancel_reason().to_owned()))
        }
        Err(why) => Err(refused(reach, line, &why).await),
    }
}

async fn refused(reach: &Reach, line: &Line, why: &etcd_client::Error) -> String {
    if let Failure::Token(_) = Failure::of(why) {
        let _ = line.client.refresh_token().await;
    } else {
        reach.seats.leave(line, Parting::Drop);
    }
    deepest(why)
}

fn pass_on(reach: &Reach, answer: &WatchResponse) {
    let key = |event: &etcd_client::Event| reach.space.read(event.kv()?.key());
    let keys: Vec<Key> = answer.events().iter().filter_map(key).collect();
    reach.watchers.ring(&keys.iter());
}

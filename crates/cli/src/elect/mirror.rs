//! In the place of the Redis scheduler: its key, with the id of whoever leads, for those who read it.
//!
//! Nothing is decided by it, and we never read it. It is written beside the campaign, by a connection of its own, for no
//! longer than the right is good, and taken away when the right ends if it is still ours. Where it cannot be written
//! the election goes on.

use store::election::Right;
use store::redis::Mirror;
use tokio::sync::watch;

/// Shows who leads until nobody can say any more who does.
pub(super) async fn show(mirror: Mirror, id: String, mut shown: watch::Receiver<Option<Right>>) {
    let (mut is_there, mut is_told) = (false, false);
    loop {
        let right = shown.borrow_and_update().clone();
        let written = match right.as_ref().and_then(Right::permit) {
            Some(permit) => {
                is_there = true;
                mirror.set(&id, permit.valid_for).await
            }
            None if is_there => {
                is_there = false;
                mirror.clear_if(&id).await
            }
            None => Ok(()),
        };
        match written {
            Ok(()) => is_told = false,
            Err(why) if !is_told => {
                tracing::warn!(%why, "the leader key is not written; the election goes on");
                is_told = true;
            }
            Err(why) => tracing::debug!(%why, "the leader key is not written"),
        }
        if shown.changed().await.is_err() {
            return;
        }
    }
}

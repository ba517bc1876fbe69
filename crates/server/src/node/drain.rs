//! Draining: before a node leaves, the others know that it does, and have its shards.

use std::sync::Arc;

use engine::limits::{DRAIN_ATTEMPTS_MAX, DRAIN_HAND_OVER_MAX};
use engine::mutant::{self, Mutant};
use store::machine::within;
use store::session::SessionRecord;

use super::RunningNode;

impl RunningNode {
    /// Hands all shards over, if there is anybody to take them, and waits until what is under way of them has ended and
    /// is reported. May be dropped at any moment.
    pub async fn drain(&self) {
        self.peers.drain(true);
        tokio::join!(self.be_seen_draining(), self.hand_all_over());
        if mutant::active(Mutant::StopWithoutWaiting) {
            return;
        }
        let mut handed_over = self.handed_over.clone();
        let ended = async { drop(handed_over.wait_for(|handed_over| *handed_over == 0).await) };
        if within(self.session.machine(), DRAIN_ATTEMPTS_MAX, ended).await.is_none() {
            tracing::warn!("webhooks of shards that were handed over are still under way");
        }
    }

    /// Waits until the others can have seen that this node leaves in order: one that vanishes counts as lost.
    async fn be_seen_draining(&self) {
        if self.peers.view().servers.len() < 2 {
            return;
        }
        let (machine, ttl) = (self.session.machine(), self.session.ttl());
        let mut roster = self.session.roster();
        let is_told = |record: Option<&SessionRecord>| record.is_some_and(|record| record.draining);
        let told = roster.wait_for(|roster| is_told(roster.record(self.session.key())));
        if within(machine, ttl.length(), async { drop(told.await) }).await.is_some() {
            machine.sleep(ttl.poll()).await;
        }
    }

    /// Waits until no shard is left here, as long as there is somebody to take one and they get fewer.
    async fn hand_all_over(&self) {
        let (mut served, mut view) = (self.peers.served(), self.peers.follow());
        let mut left = usize::MAX;
        loop {
            let fewer = async {
                loop {
                    let here = served.borrow_and_update().len();
                    let seen = Arc::clone(&view.borrow_and_update());
                    // The last one has gone when somebody else is named.
                    let here = here.max(seen.shards_of(self.session.key()).count());
                    if here == 0 || !seen.has_others_to_take() {
                        return 0;
                    }
                    if here < left {
                        return here;
                    }
                    tokio::select! {
                        biased;
                        Ok(()) = served.changed() => {}
                        Ok(()) = view.changed() => {}
                    }
                }
            };
            match within(self.session.machine(), DRAIN_HAND_OVER_MAX, fewer).await {
                Some(0) => return,
                Some(fewer) => left = fewer,
                None => {
                    tracing::warn!(left, "not all shards could be handed over");
                    return;
                }
            }
        }
    }
}

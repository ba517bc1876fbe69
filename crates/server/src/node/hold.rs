//! A shard that writes nothing for a moment, so that all of it can be read between two commits of its chain.
//!
//! Slots are decided at their time meanwhile, and what was committed before leaves; what is not committed does
//! not, so nothing leaves that a reader would not find. The hold has an end of its own: whoever reads may die or be
//! slow, and no shard waits for that.

use engine::id::ShardId;
use engine::limits::BACKUP_HOLD_MAX;
use engine::shard::Now;
use tokio::sync::oneshot;

use super::core::Core;
use crate::desk::{CallError, HoldId, Quiet};

/// A hold, asked for or begun. Times are steady milliseconds.
pub(super) struct Held {
    id: HoldId,
    shard: ShardId,
    until: u64,
    /// Until it has begun.
    reply: Option<oneshot::Sender<Result<Quiet, CallError>>>,
}

impl Held {
    pub(super) fn new(
        id: HoldId,
        shard: ShardId,
        now: u64,
        reply: oneshot::Sender<Result<Quiet, CallError>>,
    ) -> Self {
        let most = u64::try_from(BACKUP_HOLD_MAX.as_millis()).expect("short");
        Self { id, shard, until: now + most, reply: Some(reply) }
    }

    pub(super) fn id(&self) -> HoldId {
        self.id
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    /// Nothing of the shard is on its way, and this is its last commit. Whether anybody still wants to know.
    pub(super) fn begin(&mut self, number: u64) -> bool {
        let quiet = Quiet { hold: self.id, number };
        self.reply.take().is_none_or(|reply| reply.send(Ok(quiet)).is_ok())
    }

    /// It is over. Whoever still waits for its beginning is told to come again.
    pub(super) fn end(self) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(CallError::Busy));
        }
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.until
    }
}

impl Core {
    /// Tells whoever asked for it that a shard writes nothing, once nothing of it is on its way.
    pub(super) fn begin_hold(&mut self) {
        let Some(held) = &mut self.held else { return };
        let is_kept = match self.shards.get(&held.shard()) {
            Some(owned) if owned.shard.is_writing() => true,
            Some(owned) => held.begin(owned.number),
            None => false,
        };
        if !is_kept {
            self.held = None;
        }
    }

    /// Lets a shard write again that was held back for long enough.
    pub(super) fn end_hold(&mut self, now: Now) {
        if let Some(held) = self.held.take_if(|held| held.is_over(now.steady)) {
            tracing::warn!(shard = %held.shard(), "the shard was held back for too long: it goes on");
            held.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_over_at_its_limit_and_not_one_before_it() {
        let (reply, _answer) = oneshot::channel();
        let held = Held::new(HoldId(1), ShardId(0), 1_000, reply);
        let most = u64::try_from(BACKUP_HOLD_MAX.as_millis()).unwrap();
        assert!(!held.is_over(1_000 + most - 1));
        assert!(held.is_over(1_000 + most));
    }

    #[test]
    fn a_hold_that_nobody_waits_for_does_not_begin() {
        let (reply, answer) = oneshot::channel();
        drop(answer);
        assert!(!Held::new(HoldId(1), ShardId(0), 0, reply).begin(7));
        let (reply, mut answer) = oneshot::channel();
        let mut held = Held::new(HoldId(1), ShardId(0), 0, reply);
        assert!(held.begin(7) && held.begin(8), "it stays as it began");
        assert_eq!(answer.try_recv().unwrap(), Ok(Quiet { hold: HoldId(1), number: 7 }));
    }
}

//! A shard that writes nothing for a moment, so that all of it can be read between two commits of its chain.
//!
//! Slots are decided at their time meanwhile, and what was committed before leaves; what is not committed does
//! not, so nothing leaves that a reader would not find. The quiesce has an end of its own: whoever reads may die or be
//! slow, and no shard waits for that.

use engine::id::ShardId;
use engine::limits::BACKUP_QUIESCE_MAX;
use engine::shard::Now;
use tokio::sync::oneshot;

use super::core::NodeCore;
use crate::handle::{CallError, QuiesceId, QuiescePoint};

/// A quiesce, asked for or begun. Times are steady milliseconds.
pub(super) struct Quiesced {
    pub(super) id: QuiesceId,
    pub(super) shard: ShardId,
    until: u64,
    /// Where the answer goes, until the quiesce has begun.
    reply: Option<oneshot::Sender<Result<QuiescePoint, CallError>>>,
}

impl Quiesced {
    pub(super) fn new(
        id: QuiesceId,
        shard: ShardId,
        now: u64,
        reply: oneshot::Sender<Result<QuiescePoint, CallError>>,
    ) -> Self {
        let most = u64::try_from(BACKUP_QUIESCE_MAX.as_millis()).expect("short");
        Self { id, shard, until: now + most, reply: Some(reply) }
    }

    /// Answers that nothing of the shard is on its way since this commit. False, if nobody waits for that any more.
    pub(super) fn begin(&mut self, number: u64) -> bool {
        let point = QuiescePoint { quiesce: self.id, number };
        self.reply.take().is_none_or(|reply| reply.send(Ok(point)).is_ok())
    }

    /// Ends the quiesce. Whoever still waits for its beginning is told to come again.
    pub(super) fn end(self) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(CallError::Busy));
        }
    }

    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.until
    }
}

impl NodeCore {
    /// Tells whoever asked for it that a shard writes nothing, once nothing of it is on its way.
    pub(super) fn begin_quiesce(&mut self) {
        let Some(quiesced) = &mut self.quiesced else { return };
        let is_kept = match self.shards.get(&quiesced.shard) {
            Some(owned) if owned.shard.is_writing() => true,
            Some(owned) => quiesced.begin(owned.number),
            None => false,
        };
        if !is_kept {
            self.quiesced = None;
        }
    }

    /// Lets a shard write again that was quiesced for long enough.
    pub(super) fn end_quiesce(&mut self, now: Now) {
        if let Some(quiesced) = self.quiesced.take_if(|quiesced| quiesced.is_over(now.steady)) {
            tracing::warn!(shard = %quiesced.shard, "the shard was quiesced for too long: it goes on");
            quiesced.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiesce_is_over_at_its_limit_and_not_one_before_it() {
        let (reply, _answer) = oneshot::channel();
        let quiesced = Quiesced::new(QuiesceId(1), ShardId(0), 1_000, reply);
        let most = u64::try_from(BACKUP_QUIESCE_MAX.as_millis()).unwrap();
        assert!(!quiesced.is_over(1_000 + most - 1));
        assert!(quiesced.is_over(1_000 + most));
    }

    #[test]
    fn a_quiesce_that_nobody_waits_for_does_not_begin() {
        let (reply, answer) = oneshot::channel();
        drop(answer);
        assert!(!Quiesced::new(QuiesceId(1), ShardId(0), 0, reply).begin(7));
        let (reply, mut answer) = oneshot::channel();
        let mut quiesced = Quiesced::new(QuiesceId(1), ShardId(0), 0, reply);
        assert!(quiesced.begin(7) && quiesced.begin(8), "it stays as it began");
        assert_eq!(
            answer.try_recv().unwrap(),
            Ok(QuiescePoint { quiesce: QuiesceId(1), number: 7 })
        );
    }
}

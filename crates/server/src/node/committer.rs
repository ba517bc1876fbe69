//! The committer: writes what the shards of this node have decided, as many together as fit.
//!
//! One store commit is on its way at a time, for all shards. A commit that could not be sent, or for which
//! there is no room, is tried again until it is done: what is decided waits, and is never lost. A shard
//! whose head somebody else has moved is not ours any more; the others do not notice. While the store takes
//! nothing, those at the desk are told why.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::shard::{Batch, Put};
use serde_json::value::RawValue;
use store::chain::ChainError;
use store::election::{Holding, Share};
use store::machine::Machine;
use store::{Key, Refusal, Write};
use tokio::sync::{mpsc, watch};

use super::pulse::Pulse;
use crate::desk::Trouble;

/// What is to be written.
pub(super) type Order = Vec<(ShardId, Batch)>;

/// What became of it.
pub(super) struct Written {
    /// Shards whose batch is written.
    pub(super) done: Vec<ShardId>,
    /// Shards that are not ours any more.
    pub(super) lost: Vec<ShardId>,
    /// How long it took.
    pub(super) took: Duration,
    /// How many bytes it had.
    pub(super) bytes: usize,
}

/// How long to wait before what could not be written is tried again.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Committer {
    pub(super) holdings: HashMap<ShardId, Holding>,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) pulse: Pulse,
    /// Why the store takes nothing, while it does not.
    pub(super) trouble: watch::Sender<Option<Trouble>>,
    /// Whether every shard is still ours.
    pub(super) whole: watch::Sender<bool>,
}

impl Committer {
    /// Takes orders until there is nobody left to give any; then gives the holdings back.
    pub(super) async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        written: mpsc::UnboundedSender<Written>,
    ) -> HashMap<ShardId, Holding> {
        while let Some(order) = orders.recv().await {
            self.pulse.begin_order();
            let outcome = self.write(order).await;
            self.pulse.end_order();
            if written.send(outcome).is_err() {
                break;
            }
        }
        self.holdings
    }

    async fn write(&mut self, order: Order) -> Written {
        let begun = self.machine.reading();
        let mut outcome =
            Written { done: Vec::new(), lost: Vec::new(), took: Duration::ZERO, bytes: 0 };
        let mut left: HashMap<ShardId, (Box<RawValue>, Vec<Write>)> = HashMap::new();
        for (shard, batch) in order {
            let (body, writes) = encoded(batch);
            outcome.bytes += body.get().len() + writes.iter().map(Write::len).sum::<usize>();
            left.insert(shard, (body, writes));
        }
        loop {
            let (order, shares): (Vec<_>, Vec<_>) = self
                .holdings
                .iter_mut()
                .filter_map(|(shard, holding)| {
                    let (body, writes) = left.get(shard)?.clone();
                    Some((*shard, Share { holding, body, writes }))
                })
                .unzip();
            let answers = Holding::commit_all(shares).await;
            let mut trouble = None;
            for (shard, answer) in order.into_iter().zip(answers) {
                match answer {
                    Ok(_) => {
                        left.remove(&shard);
                        outcome.done.push(shard);
                    }
                    Err(ChainError::Moved) => {
                        left.remove(&shard);
                        self.holdings.remove(&shard);
                        self.whole.send_replace(false);
                        outcome.lost.push(shard);
                    }
                    Err(
                        why @ (ChainError::Refused(_)
                        | ChainError::NotSent(_)
                        | ChainError::Corrupt(_)),
                    ) => {
                        trouble = Some(trouble_of(&why));
                    }
                }
            }
            self.tell(trouble);
            if left.is_empty() {
                outcome.took = self.machine.reading().most_since(begun);
                return outcome;
            }
            self.machine.sleep(PAUSE).await;
        }
    }

    /// Shows whether the store takes what it is given, and says so when that changes.
    fn tell(&self, trouble: Option<Trouble>) {
        if *self.trouble.borrow() == trouble {
            return;
        }
        if let Some(why) = &trouble {
            tracing::warn!(%why, "the store did not take a commit: trying again");
        } else {
            tracing::warn!("the store takes commits again");
        }
        self.trouble.send_replace(trouble);
    }
}

fn trouble_of(why: &ChainError) -> Trouble {
    let sentence = why.to_string();
    match why {
        ChainError::Refused(Refusal::Full { .. }) => Trouble::Full(sentence),
        ChainError::Refused(_)
        | ChainError::NotSent(_)
        | ChainError::Corrupt(_)
        | ChainError::Moved => Trouble::Closed(sentence),
    }
}

fn encoded(batch: Batch) -> (Box<RawValue>, Vec<Write>) {
    let body = serde_json::value::to_raw_value(&batch.head)
        .expect("plain structs with text keys always serialize");
    let key = |key: String| Key::new(key).expect("our keys are short and printable");
    let writes = batch.puts.into_iter().map(|put| match put {
        Put::Value(at, value) => Write::Put(key(at), value.into()),
        Put::Gone(at) => Write::Delete(key(at)),
    });
    (body, writes.collect())
}

//! The committer: writes what the shards of this node have decided, as many together as fit.
//!
//! One store commit is on its way at a time, for all shards. A commit that could not be sent, or for which
//! there is no room, is tried again until it is done: what is decided waits, and is never lost. A shard
//! whose head somebody else has moved is not ours any more; the others do not notice. While the store takes
//! nothing, those with a handle are told why. The last commit of a shard that goes to another node names that
//! one; what came of it is known before anything else is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::lease::Token;
use engine::shard::record::HeadRecord;
use engine::shard::{Put, ShardBatch};
use serde_json::value::RawValue;
use store::chain::ChainError;
use store::election::{HolderWrites, Holding};
use store::machine::{Machine, within};
use store::session::SessionKey;
use store::{Epoch, Key, Refusal, Store, Write};
use tokio::sync::{mpsc, watch};

use super::component::Component;
use super::handover::ShardEvent;
use super::liveness::Liveness;
use super::now;
use crate::handle::WriteTrouble;

/// One batch for each shard that has something to write.
pub(super) type Batches = Vec<(ShardId, ShardBatch)>;

/// What the committer is to do.
pub(super) enum Order {
    /// Write for this shard from now on.
    Take(ShardId, Box<Holding>),
    /// Write these batches.
    Write(Batches),
    /// Hand this shard, all of which is written, over to this session.
    Hand { shard: ShardId, to: SessionKey, head: HeadRecord },
}

/// The outcome of handing a shard over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handed {
    /// The shard is another node's now, under this token.
    Over(Token),
    /// The other node is gone: the shard is still this node's, which has to take it anew.
    CalledOff,
    /// The shard was not this node's any more.
    Lost,
}

/// What became of the batches of an order.
pub(super) struct WrittenBatches {
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

/// How long a look at the store may take between two tries.
const LOOK_MAX: Duration = Duration::from_secs(1);

pub(super) struct Committer {
    holdings: BTreeMap<ShardId, Holding>,
    machine: Arc<dyn Machine>,
    liveness: Liveness,
    orders: mpsc::UnboundedReceiver<Order>,
    answers: mpsc::UnboundedSender<ShardEvent>,
    /// Why the store takes nothing, while it does not.
    trouble: watch::Sender<Option<WriteTrouble>>,
    store: Store,
    /// The epoch of the store in which it may write.
    epoch: Epoch,
}

impl Component for Committer {
    const NAME: &'static str = "the committer";

    async fn run(mut self) {
        while let Some(order) = self.orders.recv().await {
            self.liveness.begin_order(now(&*self.machine).steady);
            let answer = match order {
                Order::Take(shard, holding) => {
                    self.holdings.insert(shard, *holding);
                    None
                }
                Order::Write(batches) => Some(ShardEvent::Written(self.write(batches).await)),
                Order::Hand { shard, to, head } => {
                    Some(ShardEvent::Handed(shard, self.hand(shard, &to, &head).await))
                }
            };
            self.liveness.end_order();
            if answer.is_some_and(|answer| self.answers.send(answer).is_err()) {
                break;
            }
        }
    }
}

impl Committer {
    /// A committer that has no shard yet, and how it is given orders.
    pub(super) fn new(
        (store, epoch): (&Store, &Epoch),
        machine: &Arc<dyn Machine>,
        liveness: &Liveness,
        answers: mpsc::UnboundedSender<ShardEvent>,
    ) -> (Self, mpsc::UnboundedSender<Order>) {
        let (orders_in, orders) = mpsc::unbounded_channel();
        let committer = Self {
            holdings: BTreeMap::new(),
            machine: Arc::clone(machine),
            liveness: liveness.clone(),
            orders,
            answers,
            trouble: watch::Sender::new(None),
            store: store.clone(),
            epoch: epoch.clone(),
        };
        (committer, orders_in)
    }

    /// Shows why the store takes nothing, while it does not.
    pub(super) fn trouble(&self) -> watch::Receiver<Option<WriteTrouble>> {
        self.trouble.subscribe()
    }

    /// Hands a shard over, however often the store cannot be reached.
    async fn hand(&mut self, shard: ShardId, to: &SessionKey, head: &HeadRecord) -> Handed {
        let Some(mut holding) = self.holdings.remove(&shard) else { return Handed::Lost };
        let handed = loop {
            match holding.hand_over(to, raw(head)).await {
                Ok(_) => break Handed::Over(holding.head().token()),
                Err(ChainError::Gone) => break Handed::CalledOff,
                Err(ChainError::Moved) => break Handed::Lost,
                Err(why) => {
                    self.tell(Some(trouble_of(&why)));
                    self.machine.sleep(PAUSE).await;
                }
            }
        };
        self.tell(None);
        handed
    }

    async fn write(&mut self, order: Batches) -> WrittenBatches {
        let begun = self.machine.reading();
        let mut outcome =
            WrittenBatches { done: Vec::new(), lost: Vec::new(), took: Duration::ZERO, bytes: 0 };
        let mut left: BTreeMap<ShardId, (Box<RawValue>, Vec<Write>)> = BTreeMap::new();
        for (shard, batch) in order {
            let (body, writes) = encoded(&batch);
            outcome.bytes += body.get().len() + writes.iter().map(Write::len).sum::<usize>();
            if self.holdings.contains_key(&shard) {
                left.insert(shard, (body, writes));
            } else {
                outcome.lost.push(shard);
            }
        }
        while !left.is_empty() {
            let (order, shares): (Vec<_>, Vec<_>) = self
                .holdings
                .iter_mut()
                .filter_map(|(shard, holding)| {
                    let (body, writes) = left.get(shard)?.clone();
                    Some((*shard, HolderWrites { holding, body, writes }))
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
                    Err(ChainError::Moved | ChainError::Gone) => {
                        left.remove(&shard);
                        self.holdings.remove(&shard);
                        outcome.lost.push(shard);
                    }
                    Err(why) => trouble = Some(trouble_of(&why)),
                }
            }
            self.tell(trouble);
            if left.is_empty() {
                break;
            }
            self.machine.sleep(PAUSE).await;
            if self.is_outlived().await {
                // The new epoch decides anew what is not written.
                outcome.lost.extend(left.into_keys());
                break;
            }
        }
        outcome.took = self.machine.reading().most_since(begun);
        outcome
    }

    /// Whether the store is in another epoch by now: what this node claimed is worth nothing then.
    async fn is_outlived(&self) -> bool {
        let key = Key::new("cluster/about").expect("a short key");
        // Whatever it answers, it says in which epoch it is; if it does not, the next look may tell.
        let _ = within(&self.machine, LOOK_MAX, self.store.get(&key)).await;
        self.store.epoch() != self.epoch
    }

    /// Shows whether the store takes what it is given, and says so when that changes.
    fn tell(&self, trouble: Option<WriteTrouble>) {
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

fn trouble_of(why: &ChainError) -> WriteTrouble {
    let sentence = why.to_string();
    match why {
        ChainError::Refused(Refusal::Full { .. }) => WriteTrouble::Full(sentence),
        ChainError::Refused(_)
        | ChainError::NotSent(_)
        | ChainError::Gone
        | ChainError::Corrupt(_)
        | ChainError::Moved => WriteTrouble::Closed(sentence),
    }
}

fn raw(head: &HeadRecord) -> Box<RawValue> {
    serde_json::value::to_raw_value(head).expect("plain structs with text keys always serialize")
}

fn encoded(batch: &ShardBatch) -> (Box<RawValue>, Vec<Write>) {
    let body = raw(&batch.head);
    let puts = batch.puts.iter().map(|put| match put {
        Put::Value(at, value) => (at.as_str(), Some(value.as_slice())),
        Put::Gone(at) => (at.as_str(), None),
    });
    let puts: Vec<_> = puts.collect();
    (body, Write::packed(&puts).expect("our keys are short and printable"))
}

#[cfg(test)]
mod tests {
    use store::file::{FileStore, Sizes};
    use store::machine::System;

    use super::*;

    #[tokio::test]
    async fn what_is_to_be_written_for_a_shard_that_has_left_is_told_as_lost() {
        let machine: Arc<dyn Machine> = Arc::new(System);
        let liveness = Liveness::new(0, Duration::from_secs(3));
        let (answers, _) = mpsc::unbounded_channel();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(FileStore::open_or_create(dir.path(), Sizes::default()).unwrap());
        let on = (&store, &store.epoch());
        let (mut committer, _orders) = Committer::new(on, &machine, &liveness, answers);
        let batch = ShardBatch { head: HeadRecord::default(), puts: Vec::new() };
        let written = committer.write(vec![(ShardId(3), batch)]).await;
        assert_eq!((written.done, written.lost), (vec![], vec![ShardId(3)]));
    }
}

//! How shards come to this node and leave it.
//!
//! A shard comes when it was claimed and read, and is served from then on. It leaves in four steps, and from the first
//! on nothing of it leaves this node:
//!
//! 1. it decides nothing more, and what the dispatcher has not begun comes back;
//! 2. what has left and is not answered is written down as under way at this node;
//! 3. when all of that is written, one commit names the new owner;
//! 4. when that is known to be done, its memory is dropped.
//!
//! If the new owner is gone before step 3 is done, memory is dropped as well: everything is in the store, and this node
//! takes the shard again as it would take any other. Attempts that are under way stay with this node: what comes of
//! them is reported through the store, see [`super::report`], and not before it is written that they are under way.

use std::collections::BTreeSet;

use engine::id::ShardId;
use engine::outcome::Outcome;
use engine::shard::record::{ReportRecord, report_key};
use engine::shard::{HandedOverAttempt, Now};
use store::election::Holding;
use store::session::SessionKey;
use tokio::sync::oneshot;

use super::committer::{Handed, Order, WrittenBatches};
use super::core::{NodeCore, Owned, global, report};
use super::report::KeyedReport;
use crate::peers::show;
use crate::webhook::FinishedCall;

/// What happens to a core's shards.
pub(super) enum ShardEvent {
    /// This node has claimed and read a shard.
    Adopt { owned: Box<Owned>, holding: Box<Holding> },
    /// A shard is to be handed over to another session.
    HandOver { shard: ShardId, to: SessionKey, reply: oneshot::Sender<Handed> },
    /// The committer has written batches.
    Written(WrittenBatches),
    /// A shard was handed over, or was not: it is dropped here either way.
    Handed(ShardId, Handed),
    /// One of the senders has given back what it had not begun.
    Recalled,
    /// A report of an attempt that another node made.
    Reported { shard: ShardId, key: String, report: ReportRecord },
    /// A node that made attempts is gone, and all its reports have been told.
    SenderGone { shard: ShardId, sender: Box<str> },
}

/// A shard that leaves.
pub(super) struct ShardHandover {
    pub(super) shard: ShardId,
    to: SessionKey,
    reply: oneshot::Sender<Handed>,
    step: HandoverStep,
    /// Reports of attempts that ended before it was written that they are under way here: they wait for that.
    early: Vec<KeyedReport>,
}

enum HandoverStep {
    /// Waits for senders that have not given back yet what they had not begun.
    Recall {
        left: usize,
    },
    Write,
    Name,
}

impl NodeCore {
    pub(super) fn shard_event(&mut self, event: ShardEvent, now: Now) {
        match event {
            ShardEvent::Adopt { owned, holding } => self.adopt(*owned, holding, now),
            ShardEvent::HandOver { shard, to, reply } => self.hand_over(shard, to, reply, now),
            ShardEvent::Written(written) => self.written(written, now),
            ShardEvent::Handed(shard, how) => self.handed(shard, how),
            ShardEvent::Recalled => {
                if let Some(ShardHandover { step: HandoverStep::Recall { left }, .. }) =
                    &mut self.handing_over
                {
                    *left = left.saturating_sub(1);
                }
            }
            ShardEvent::Reported { shard, key, report } => {
                if let Some(owned) = self.shards.get_mut(&shard) {
                    owned.shard.reported(&key, report, now);
                    owned.wake = Some(now.wall);
                }
                self.show_awaited();
            }
            ShardEvent::SenderGone { shard, sender } => {
                if let Some(owned) = self.shards.get_mut(&shard) {
                    owned.shard.sender_gone(&sender, now);
                    owned.wake = Some(now.wall);
                }
                self.show_awaited();
            }
        }
    }

    fn adopt(&mut self, mut owned: Owned, holding: Box<Holding>, now: Now) {
        let id = owned.shard.id();
        tracing::info!(shard = %id, token = owned.right.token().0, "this server has a shard");
        let stay = self.stays.entry(id).or_default();
        *stay = stay.wrapping_add(1);
        // Attempts of an earlier stay may still be under way, and are told apart by their keys.
        owned.shard.number_from(u64::from(*stay) << 32);
        if owned.shard.is_ahead_of_clock(now) {
            if self.wall.unconfirmed().is_none() && self.peers.view().agrees_with_others() {
                tracing::warn!(shard = %id, "what was fired before lies in the future, and other servers agree with this clock: it is set back");
                owned.shard.set_back(now);
            } else {
                self.is_ahead = true;
            }
        }
        owned.shard.set_suspended(self.suspended().is_some());
        owned.shard.set_waiting_max(self.waiting_max);
        owned.shard.set_room(self.room);
        if self.stopping.is_some() {
            // The shard came too late to do anything.
            owned.shard.stop(now);
        }
        owned.wake = Some(engine::instant::Instant::FIRST);
        self.shards.insert(id, owned);
        let _ = self.outputs.orders.send(Order::Take(id, holding));
        if self.is_ahead {
            self.show(now);
        }
        self.show_served();
        self.show_awaited();
    }

    /// While what was fired before lies in the future, looks whether it still does: the clock may have been set right, such
    /// a shard may have left, and other servers may agree with this clock by now. A jump that nobody has confirmed comes
    /// first: until then nobody knows what time it is, and whoever confirms it sets back what has to be.
    pub(super) fn reconsider(&mut self, now: Now) {
        if !self.is_ahead || self.wall.unconfirmed().is_some() {
            return;
        }
        let agrees = self.peers.view().agrees_with_others();
        let mut ahead = self.shards.values_mut().filter(|owned| owned.shard.is_ahead_of_clock(now));
        if agrees {
            ahead.for_each(|owned| owned.shard.set_back(now));
        } else if ahead.next().is_some() {
            return;
        }
        tracing::warn!("nothing that was fired before lies in the future any more: firing goes on");
        self.is_ahead = false;
        for owned in self.shards.values_mut() {
            owned.shard.awake(now);
            owned.wake = Some(now.wall);
        }
        self.show(now);
    }

    fn hand_over(
        &mut self,
        shard: ShardId,
        to: SessionKey,
        reply: oneshot::Sender<Handed>,
        now: Now,
    ) {
        let Some(owned) = self.shards.get_mut(&shard) else {
            let _ = reply.send(Handed::Lost);
            return;
        };
        assert!(self.handing_over.is_none(), "one shard leaves at a time");
        owned.shard.begin_handover(now);
        // Whoever waits for runs asks the new owner.
        self.asked.retain(|_, waiting| waiting.shard != shard);
        let shard_events = self.outputs.shard_events.clone();
        let told = move || drop(shard_events.send(ShardEvent::Recalled));
        let left =
            self.outputs.dispatcher.recall(global(shard, 0)..=global(shard, (1 << 48) - 1), told);
        let step = HandoverStep::Recall { left };
        self.handing_over = Some(ShardHandover { shard, to, reply, step, early: Vec::new() });
        // Whoever takes a backup reads the shard at its new owner.
        self.quiesced.take_if(|quiesced| quiesced.shard == shard);
        self.show_served();
    }

    /// Takes the hand-over that is under way as far as it can go now.
    pub(super) fn continue_handover(&mut self, now: Now) {
        if let Some(ShardHandover { step: HandoverStep::Recall { left: 0 }, .. }) =
            &self.handing_over
        {
            // Recalled results come before `Recalled`: drain them first.
            while let Ok(result) = self.inbox.results.try_recv() {
                self.result(result, now);
            }
            self.hand_over_attempts(now);
        }
        let Some(ShardHandover { shard, to, step: step @ HandoverStep::Write, early, .. }) =
            &mut self.handing_over
        else {
            return;
        };
        let Some(owned) = self.shards.get(shard) else { return };
        if owned.shard.is_settled() {
            let (shard, to, head) = (*shard, to.clone(), owned.shard.head());
            *step = HandoverStep::Name;
            for post in early.drain(..) {
                let _ = self.outputs.posts.send(post);
            }
            let _ = self.outputs.orders.send(Order::Hand { shard, to, head });
        }
    }

    fn hand_over_attempts(&mut self, now: Now) {
        let Some(ShardHandover { shard, step, .. }) = &mut self.handing_over else { return };
        *step = HandoverStep::Write;
        if let Some(owned) = self.shards.get_mut(shard) {
            let handed_over = owned.shard.hand_over_attempts(self.me.key().as_str(), now);
            let handed_over =
                handed_over.into_iter().map(|(key, to)| (global(*shard, key), (*shard, to)));
            self.handed_over.extend(handed_over);
            self.handed_over_count.send_replace(self.handed_over.len());
        }
    }

    /// The committer has handed a shard over, or could not.
    pub(super) fn handed(&mut self, shard: ShardId, how: Handed) {
        match how {
            Handed::Over(_) => tracing::info!(%shard, "a shard was handed over"),
            Handed::CalledOff => {
                tracing::warn!(%shard, "the server that should have the shard is gone: it is taken again");
            }
            Handed::Lost => tracing::error!(%shard, "the shard is not ours any more"),
        }
        self.shards.remove(&shard);
        self.hosts.forget(shard);
        self.tickets.retain(|_, waiting| waiting.shard != shard);
        self.asked.retain(|_, waiting| waiting.shard != shard);
        if let Some(handing_over) =
            self.handing_over.take_if(|handing_over| handing_over.shard == shard)
        {
            let _ = handing_over.reply.send(how);
        }
        self.show_served();
        self.show_awaited();
    }

    /// Reports a result to the new owner if its shard was handed over, and gives it back otherwise.
    pub(super) fn end_handed_over(&mut self, finished: FinishedCall) -> Option<FinishedCall> {
        let Some((shard, HandedOverAttempt { sequence, attempt })) =
            self.handed_over.remove(&finished.key)
        else {
            return Some(finished);
        };
        self.handed_over_count.send_replace(self.handed_over.len());
        let outcome: Outcome = finished.outcome;
        let made = report(0, finished).attempt;
        let sender = self.me.key().as_str().into();
        let post = ReportRecord { sender, attempt, outcome, made };
        let post = (report_key(shard, sequence, attempt), post);
        match &mut self.handing_over {
            Some(ShardHandover {
                shard: leaving,
                step: HandoverStep::Recall { .. } | HandoverStep::Write,
                early,
                ..
            }) if *leaving == shard => {
                early.push(post);
            }
            Some(_) | None => {
                let _ = self.outputs.posts.send(post);
            }
        }
        None
    }

    fn show_served(&self) {
        let leaving = self.handing_over.as_ref().map(|handing_over| handing_over.shard);
        let served: BTreeSet<ShardId> =
            self.shards.keys().copied().filter(|shard| Some(*shard) != leaving).collect();
        self.peers.serve(served);
    }

    /// Tells the collector for which senders shards wait.
    pub(super) fn show_awaited(&self) {
        let leaving = self.handing_over.as_ref().map(|handing_over| handing_over.shard);
        let shards = self.shards.iter().filter(|(shard, _)| Some(**shard) != leaving);
        let awaited = shards.map(|(shard, owned)| (*shard, owned.shard.senders()));
        let awaited = awaited.filter(|(_, senders)| !senders.is_empty()).collect();
        show(&self.outputs.awaited, awaited);
    }
}

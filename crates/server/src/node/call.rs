//! What people ask of the core, through the handle.

use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::shard::{Now, Ticket};

use super::core::{CommandReply, NodeCore, Owned, PendingReply};
use super::now;
use super::quiesce::Quiesced;
use crate::handle::{CallError, CommandGuard, NodeCall, QuiesceId};

impl NodeCore {
    pub(super) fn call(&mut self, call: NodeCall, now: Now) {
        let now = Now { random: self.machine.random(), ..now };
        match call {
            NodeCall::ConfirmTime { reply } => {
                self.confirm_time();
                let _ = reply.send(Ok(()));
            }
            NodeCall::Quiesce { shard, reply } => {
                if let Err(why) = self.at_work(shard) {
                    let _ = reply.send(Err(why));
                    return;
                }
                let id = QuiesceId(self.next_ticket().0);
                // One backup is taken at a time, so the reader of a former quiesce is gone.
                self.quiesced = Some(Quiesced::new(id, shard, now.steady, reply));
                self.begin_quiesce();
            }
            NodeCall::CompareUsage { found, limited, reply } => {
                let wrong = self.quotas.compare_usage(&self.shards, &found, &limited, now);
                let _ = reply.send(Ok(wrong));
            }
            NodeCall::Release { quiesce } => {
                self.quiesced.take_if(|quiesced| quiesced.id == quiesce);
            }
            NodeCall::Command { shard, command, note, quota, guard, reply } => {
                let refused = quota.and_then(|(project, quota)| {
                    let to = (shard, project);
                    self.quotas.check(&self.shards, to, quota, &command, now).err()
                });
                if let Some(why) = refused {
                    let _ = reply.send(Err(why.into()));
                    return;
                }
                let hosts = Arc::clone(&self.hosts);
                self.carry_out(shard, (reply, guard), |owned, ticket| {
                    // What is due is due before the command.
                    owned.step(&hosts, now);
                    let done = owned.shard.command(command, note, ticket, now);
                    owned.wake = Some(now.wall);
                    done.map_err(CallError::from)
                });
            }
            NodeCall::Rewrite { shard, puts, reply } => {
                self.carry_out(shard, (reply, None), |owned, ticket| {
                    owned.shard.rewrite(puts, ticket, now);
                    Ok(())
                });
            }
        }
    }

    /// Has a shard do something, after which whoever asked for it waits until it is written.
    fn carry_out(
        &mut self,
        shard: ShardId,
        (reply, guard): (CommandReply, Option<CommandGuard>),
        work: impl FnOnce(&mut Owned, Ticket) -> Result<(), CallError>,
    ) {
        let ticket = self.next_ticket();
        match self.at_work(shard).and_then(|owned| work(owned, ticket)) {
            Ok(()) => {
                self.tickets.insert(ticket, PendingReply { shard, reply, _guard: guard });
            }
            Err(why) => {
                let _ = reply.send(Err(why));
            }
        }
    }

    /// A shard that takes commands: one that leaves does not.
    fn at_work(&mut self, shard: ShardId) -> Result<&mut Owned, CallError> {
        let is_leaving = self.handing_over.as_ref().is_some_and(|handover| handover.shard == shard);
        let owned = self.shards.get_mut(&shard).filter(|_| !is_leaving);
        owned.ok_or(CallError::NoOwner { retry_after: Duration::from_secs(1) })
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Somebody says that the clock is right: firing goes on from what it shows.
    fn confirm_time(&mut self) {
        self.wall.confirm();
        self.is_ahead = false;
        let now = now(&*self.machine);
        for owned in self.shards.values_mut() {
            owned.wake = Some(now.wall);
            owned.shard.awake(now);
            if owned.shard.is_ahead_of_clock(now) {
                owned.shard.set_back(now);
            }
        }
        tracing::info!("the time was confirmed: firing goes on");
        self.show(now);
    }
}

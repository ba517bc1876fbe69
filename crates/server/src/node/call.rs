//! What people ask of the core, through the handle.

use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::limits::OWNER_RETRY_AFTER;
use engine::shard::{Now, OutputCall, OutputTaken, ShardAnswer, Ticket};

use super::core::{CommandReply, NodeCore, Owned, PendingAnswer, PendingReply};
use super::now;
use super::quiesce::Quiesced;
use crate::event::{EventDetail, ServerEvent};
use crate::follower::NewOutput;
use crate::handle::{CallError, CommandGuard, NodeCall, QuiesceId, ShardAsk};

impl NodeCore {
    pub(super) fn call(&mut self, call: NodeCall, now: Now) {
        let now = Now { random: self.machine.dice(), ..now };
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
            NodeCall::Census { reply } => {
                self.take_census(now);
                let _ = reply.send(Ok(()));
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
            NodeCall::Ask { shard, ask, ticket, reply } => {
                self.asked.insert(ticket, PendingAnswer { shard, reply });
                if let Err(why) = self.ask(shard, ask, ticket, now)
                    && let Some(asked) = self.asked.remove(&ticket)
                {
                    let _ = asked.reply.send(Err(why));
                }
            }
            NodeCall::StopWaiting { shard, ticket } => {
                if self.asked.contains_key(&ticket)
                    && let Some(owned) = self.shards.get_mut(&shard)
                {
                    owned.shard.stop_waiting(ticket);
                    self.answer_asked(shard);
                }
            }
            NodeCall::Rewrite { shard, puts, reply } => {
                self.carry_out(shard, (reply, None), |owned, ticket| {
                    owned.shard.rewrite(puts, ticket, now);
                    Ok(())
                });
            }
        }
    }

    /// Has a shard answer from memory. It may act, and be believed, only while this node has the right.
    fn ask(
        &mut self,
        shard: ShardId,
        ask: ShardAsk,
        ticket: Ticket,
        now: Now,
    ) -> Result<(), CallError> {
        let owned = self.at_work(shard)?;
        if owned.right.permit().is_none() {
            return Err(CallError::NoOwner { retry_after: OWNER_RETRY_AFTER });
        }
        match ask {
            ShardAsk::Worker(call) => owned.shard.hear(*call, ticket, now),
            ShardAsk::Queue { project, name } => {
                owned.shard.show_queue(project, &name, ticket, now);
            }
            ShardAsk::Run { project, run } => owned.shard.show_run(project, run, ticket, now),
            ShardAsk::Runs { project, queue, after, most } => {
                owned.shard.show_runs((project, &queue), after, most, ticket, now);
            }
            ShardAsk::RunsOf { trigger, most } => {
                owned.shard.show_runs_of(trigger, most, ticket, now);
            }
            ShardAsk::WorkerRuns { project, worker, most } => {
                owned.shard.show_worker_runs((project, &worker), most, ticket);
            }
            ShardAsk::Workers { project } => owned.shard.show_workers(project, ticket, now),
            // What runs print is in memory alone, so these two wait for no commit, and cause none.
            ShardAsk::Output { project, run } => {
                let live = ShardAnswer::Output(owned.shard.output(project, run));
                self.tell_asked(shard, vec![(ticket, live)]);
                return Ok(());
            }
            ShardAsk::TakeOutput(call) => {
                self.take_output(shard, *call, ticket, now);
                return Ok(());
            }
            ShardAsk::Dead { project, run } => owned.shard.show_dead(project, run, ticket),
            ShardAsk::Count { project, queue, filter, span } => {
                owned.shard.count_runs((project, &queue), &filter, span, ticket);
            }
        }
        owned.wake = Some(now.wall);
        self.answer_asked(shard);
        Ok(())
    }

    /// Has a shard take what a run prints, and hands it to those who follow the run.
    fn take_output(&mut self, shard: ShardId, call: OutputCall, ticket: Ticket, now: Now) {
        let Some(owned) = self.shards.get_mut(&shard) else { return };
        let (project, run, token) = (call.project, call.run, call.token);
        let outcome = owned.shard.take_output(call, now);
        if let Ok(OutputTaken { attempt, new, told, .. }) = &outcome {
            if !new.is_empty() {
                let pieces = Arc::clone(new);
                self.followers.tell(run, &NewOutput { attempt: *attempt, token, pieces });
            }
            let what = told.clone().map(|told| EventDetail::Progress(run, told));
            let event = what.map(|what| ServerEvent { project: Some(project), at: now.wall, what });
            self.events.push(event);
        }
        self.tell_asked(shard, vec![(ticket, ShardAnswer::Taken(outcome))]);
    }

    /// Tells what a shard answers that waits for nothing to be written.
    pub(super) fn answer_asked(&mut self, shard: ShardId) {
        if let Some(owned) = self.shards.get_mut(&shard) {
            let answers = owned.shard.take_answers();
            self.tell_asked(shard, answers);
        }
    }

    /// Tells answers to those who wait for them, if this node has the right: otherwise they are dropped, and whoever
    /// asked is told that the shard changed hands.
    pub(super) fn tell_asked(&mut self, shard: ShardId, answers: Vec<(Ticket, ShardAnswer)>) {
        if answers.is_empty() {
            return;
        }
        let has_right = self.shards.get(&shard).is_some_and(|it| it.right.permit().is_some());
        for (ticket, answer) in answers {
            if let Some(asked) = self.asked.remove(&ticket)
                && has_right
            {
                let _ = asked.reply.send(Ok(answer));
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

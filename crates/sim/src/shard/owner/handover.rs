//! How an owner hands the shard over, step by step, with all that can come between.

use engine::shard::record::ReportRecord;

use super::super::ledger::Broken;
use super::super::node::Task;
use super::super::setting::Company;
use super::super::stage::Stage;
use super::{End, Leaving, Owner};

/// A hand-over.
#[derive(Clone, Copy)]
pub(super) struct HandingOver {
    /// To whom.
    target: usize,
    step: Step,
    /// Its node stops as well.
    is_last: bool,
}

/// How far a hand-over is.
#[derive(Clone, Copy)]
enum Step {
    /// What has not left is taken back, until then.
    Recalling(u64),
    /// What is under way is written down.
    Writing,
    /// The new owner's name is on its way, and lands then.
    Naming(u64),
    /// It has landed, or never will. The old owner learns that then.
    Told(u64),
}

impl HandingOver {
    /// When it goes on, if that is known.
    pub(super) fn next(self) -> Option<u64> {
        match self.step {
            Step::Writing => None,
            Step::Recalling(at) | Step::Naming(at) | Step::Told(at) => Some(at),
        }
    }
}

impl Owner {
    /// Begins to hand the shard over.
    pub(super) fn begin_handover(&mut self, stage: &mut Stage) {
        let Stage { cluster, setting, dice, now: at, .. } = stage;
        let target = cluster.pick(Some(self.node), *at, setting, dice);
        let is_last = dice.chance(40);
        stage.note(|| format!("handing_over, for node {target}, for good: {is_last}"));
        let now = self.now(stage);
        self.shard.begin_handover(now);
        if stage.dice.chance(50) {
            self.recall(stage);
        }
        let commit_ms = stage.setting.commit_ms;
        let step = Step::Recalling(stage.now + stage.dice.between(0, commit_ms));
        self.leaving = Some(Leaving::HandingOver(HandingOver { target, step, is_last }));
    }

    /// Goes on with it. Says how it has ended, if it has.
    pub(super) fn continue_handover(
        &mut self,
        handing_over: HandingOver,
        stage: &mut Stage,
    ) -> Result<Option<End>, Broken> {
        let commit_ms = stage.setting.commit_ms;
        let step = match handing_over.step {
            Step::Recalling(until) if stage.now >= until => {
                self.recall(stage);
                self.hand_over_attempts(stage);
                Step::Writing
            }
            Step::Writing if self.shard.is_settled() && self.sent.is_none() => {
                let tasks = std::mem::take(&mut self.tasks);
                stage.cluster.take_on(self.node, tasks, stage.now, &mut stage.dice);
                let mut late = commit_ms;
                if stage.setting.company == Company::Cluster {
                    match stage.dice.between(0, 19) {
                        0 => stage.cluster.die(handing_over.target, stage.now, &mut stage.dice),
                        1 => stage.cluster.was_dead(handing_over.target, stage.now),
                        2 => late = 10_000,
                        _ => {}
                    }
                }
                Step::Naming(stage.now + stage.dice.between(0, late))
            }
            Step::Naming(lands) if stage.now >= lands => {
                self.name(handing_over, stage)?;
                let is_long = stage.setting.company == Company::Cluster && stage.dice.chance(15);
                let late = stage.dice.between(0, if is_long { 8_000 } else { commit_ms });
                // A new owner need not wait until the old one knows.
                Step::Told(stage.now + if stage.dice.chance(50) { 0 } else { late })
            }
            Step::Told(at) if stage.now >= at => {
                if stage.cluster.named == self.node {
                    return Ok(Some(End::CalledOff));
                }
                if handing_over.is_last {
                    stage.cluster.leave(self.node);
                }
                return Ok(Some(End::HandedOver));
            }
            waits @ (Step::Recalling(_) | Step::Writing | Step::Naming(_) | Step::Told(_)) => waits,
        };
        self.leaving = Some(Leaving::HandingOver(HandingOver { step, ..handing_over }));
        Ok(None)
    }

    /// The new owner's name lands, if it was sent.
    pub(super) fn name(
        &mut self,
        handing_over: HandingOver,
        stage: &mut Stage,
    ) -> Result<(), Broken> {
        match handing_over.step {
            Step::Naming(_) => stage.name(handing_over.target, &self.shard.head()),
            Step::Recalling(_) | Step::Writing | Step::Told(_) => Ok(()),
        }
    }

    /// What is under way is this node's to report.
    fn hand_over_attempts(&mut self, stage: &mut Stage) {
        let now = self.now(stage);
        let session = stage.cluster.nodes[self.node].session.clone();
        for (key, handed_over) in self.shard.hand_over_attempts(&session, now) {
            stage.note(|| format!("sent remote: {key}, {handed_over:?}"));
            let Some(begun) = self.trips.remove(&key).and_then(super::UnderWay::begun) else {
                continue;
            };
            let (attempt, outcome, made) = (handed_over.attempt, begun.outcome, begun.made());
            let report = ReportRecord { sender: session.clone(), attempt, outcome, made };
            self.tasks.push(Task::new(key, handed_over, report, begun.ends));
        }
    }
}

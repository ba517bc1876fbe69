//! How an owner hands the shard over, step by step, with all that can come between.

use engine::shard::record::ReportRecord;

use super::super::node::PendingReport;
use super::super::oracle::Broken;
use super::super::setting::Company;
use super::super::simulation::Simulation;
use super::{Leaving, Owner, ReignEnd};

/// A hand-over that is under way.
#[derive(Clone, Copy)]
pub(super) struct HandingOver {
    /// The node that is to own the shard.
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
    pub(super) fn begin_handover(&mut self, sim: &mut Simulation) {
        let Simulation { cluster, setting, dice, now: at, .. } = sim;
        let target = cluster.pick(Some(self.node), *at, setting, dice);
        let is_last = dice.chance(40);
        sim.note(|| format!("hands over to node {target}, for good: {is_last}"));
        let now = self.now(sim);
        self.shard.begin_handover(now);
        if sim.dice.chance(50) {
            self.recall(sim);
        }
        let commit_ms = sim.setting.commit_ms;
        let step = Step::Recalling(sim.now + sim.dice.between(0, commit_ms));
        self.leaving = Some(Leaving::HandingOver(HandingOver { target, step, is_last }));
    }

    /// Goes on with it. Says how it has ended, if it has.
    pub(super) fn continue_handover(
        &mut self,
        handing_over: HandingOver,
        sim: &mut Simulation,
    ) -> Result<Option<ReignEnd>, Broken> {
        let commit_ms = sim.setting.commit_ms;
        let step = match handing_over.step {
            Step::Recalling(until) if sim.now >= until => {
                self.recall(sim);
                self.hand_over_attempts(sim);
                Step::Writing
            }
            Step::Writing if self.shard.is_settled() && self.sent.is_none() => {
                let tasks = std::mem::take(&mut self.tasks);
                sim.cluster.take_on(self.node, tasks, sim.now, &mut sim.dice);
                let mut late = commit_ms;
                if sim.setting.company == Company::Cluster {
                    match sim.dice.between(0, 19) {
                        0 => sim.cluster.die(handing_over.target, sim.now, &mut sim.dice),
                        1 => sim.cluster.was_dead(handing_over.target, sim.now),
                        2 => late = 10_000,
                        _ => {}
                    }
                }
                Step::Naming(sim.now + sim.dice.between(0, late))
            }
            Step::Naming(lands) if sim.now >= lands => {
                self.name(handing_over, sim)?;
                let is_long = sim.setting.company == Company::Cluster && sim.dice.chance(15);
                let late = sim.dice.between(0, if is_long { 8_000 } else { commit_ms });
                // A new owner need not wait until the old one knows.
                Step::Told(sim.now + if sim.dice.chance(50) { 0 } else { late })
            }
            Step::Told(at) if sim.now >= at => {
                if sim.cluster.named == self.node {
                    return Ok(Some(ReignEnd::CalledOff));
                }
                if handing_over.is_last {
                    sim.cluster.leave(self.node);
                }
                return Ok(Some(ReignEnd::HandedOver));
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
        sim: &mut Simulation,
    ) -> Result<(), Broken> {
        match handing_over.step {
            Step::Naming(_) => sim.name(handing_over.target, &self.shard.head()),
            Step::Recalling(_) | Step::Writing | Step::Told(_) => Ok(()),
        }
    }

    /// What is under way is this node's to report.
    fn hand_over_attempts(&mut self, sim: &mut Simulation) {
        let now = self.now(sim);
        let session = sim.cluster.nodes[self.node].session.clone();
        for (key, handed_over) in self.shard.hand_over_attempts(&session, now) {
            sim.note(|| format!("handed over {key}, {handed_over:?}"));
            let Some(begun) = self.trips.remove(&key).and_then(super::UnderWay::begun) else {
                continue;
            };
            let (attempt, outcome, made) = (handed_over.attempt, begun.outcome, begun.made());
            let report = ReportRecord { sender: session.clone(), attempt, outcome, made };
            self.tasks.push(PendingReport::new(key, handed_over, report, begun.ends));
        }
    }
}

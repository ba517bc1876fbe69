//! What an owner learns of former owners: their reports, some time after these landed, and that they are gone.

use std::collections::BTreeMap;

use engine::mutant::{self, Mutant};
use engine::shard::Now;

use super::super::oracle::Broken;
use super::super::promise::ShardPromise;
use super::super::setting::Company;
use super::super::simulation::Simulation;
use super::Owner;

/// Reports and absences that an owner is about to learn of.
pub(super) struct ReportInbox {
    /// How many reports it has seen arrive.
    seen: usize,
    /// Reports, and when it reads them.
    due: Vec<(u64, String)>,
    /// Sessions that are gone, and when it acts upon that.
    gone: BTreeMap<Box<str>, u64>,
}

impl ReportInbox {
    /// The inbox of an owner who read this many reports when it loaded the shard.
    pub(super) fn since(seen: usize) -> Self {
        Self { seen, due: Vec::new(), gone: BTreeMap::new() }
    }

    /// When there is something to learn.
    pub(super) fn next(&self) -> Option<u64> {
        self.due.iter().map(|(at, _)| *at).chain(self.gone.values().copied()).min()
    }
}

impl Owner {
    /// Learns what there is to learn by now.
    pub(super) fn listen(&mut self, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        let delay_ms = match sim.setting.company {
            Company::Alone | Company::Rolling => 200,
            Company::Cluster => 1_500,
        };
        for key in &sim.cluster.report_keys[self.inbox.seen..] {
            let at = sim.now + sim.dice.between(0, delay_ms);
            self.inbox.due.push((at, key.clone()));
        }
        self.inbox.seen = sim.cluster.report_keys.len();
        let (due, later) =
            std::mem::take(&mut self.inbox.due).into_iter().partition(|(at, _)| *at <= sim.now);
        self.inbox.due = later;
        for (_, key) in due {
            self.read(&key, now, sim);
            if sim.dice.chance(5) {
                self.read(&key, now, sim);
            }
        }
        self.miss(delay_ms, now, sim)
    }

    fn read(&mut self, key: &str, now: Now, sim: &mut Simulation) {
        if let Some(report) = sim.store.report(key) {
            sim.note(|| format!("read {key}: {report:?}"));
            self.shard.reported(key, report, now);
        }
    }

    /// Notices who is gone of those for whom it waits.
    fn miss(&mut self, delay_ms: u64, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        let senders = self.shard.senders();
        self.inbox.gone.retain(|sender, _| senders.contains(sender));
        for sender in senders {
            if !sim.cluster.is_absent(&sender, sim.now) {
                continue;
            }
            let delay = sim.dice.between(0, delay_ms);
            let at = *self.inbox.gone.entry(sender.clone()).or_insert(sim.now + delay);
            if at > sim.now {
                continue;
            }
            if !mutant::active(Mutant::AbsenceBeforeReports) {
                for key in sim.store.reports() {
                    self.read(&key, now, sim);
                }
            }
            sim.note(|| format!("{sender} is gone"));
            self.shard.sender_gone(&sender, now);
            if self.shard.senders().contains(&sender) {
                let what = format!("{sender} is gone, and waited for");
                return Err((ShardPromise::NothingIsStuck, what));
            }
        }
        Ok(())
    }
}

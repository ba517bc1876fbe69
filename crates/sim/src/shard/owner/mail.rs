//! What an owner learns of former owners: their reports, some time after these landed, and that they are gone.

use std::collections::BTreeMap;

use engine::mutant::{self, Mutant};
use engine::shard::Now;

use super::super::ledger::Broken;
use super::super::promise::Promise;
use super::super::setting::Company;
use super::super::stage::Stage;
use super::Owner;

/// What an owner will have learned.
pub(super) struct Mail {
    /// Letters that it has seen arrive.
    seen: usize,
    /// Reports, and when it reads them.
    due: Vec<(u64, String)>,
    /// Sessions that are gone, and when it acts upon that.
    gone: BTreeMap<Box<str>, u64>,
}

impl Mail {
    /// That of an owner who has read so many letters with all else.
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
    pub(super) fn listen(&mut self, now: Now, stage: &mut Stage) -> Result<(), Broken> {
        let delay_ms = match stage.setting.company {
            Company::Alone | Company::Rolling => 200,
            Company::Cluster => 1_500,
        };
        for letter in &stage.cluster.letters[self.mail.seen..] {
            let at = stage.now + stage.dice.between(0, delay_ms);
            self.mail.due.push((at, letter.clone()));
        }
        self.mail.seen = stage.cluster.letters.len();
        let (due, later) =
            std::mem::take(&mut self.mail.due).into_iter().partition(|(at, _)| *at <= stage.now);
        self.mail.due = later;
        for (_, key) in due {
            self.read(&key, now, stage);
            if stage.dice.chance(5) {
                self.read(&key, now, stage);
            }
        }
        self.miss(delay_ms, now, stage)
    }

    fn read(&mut self, key: &str, now: Now, stage: &mut Stage) {
        if let Some(report) = stage.shelf.report(key) {
            stage.note(|| format!("read {key}: {report:?}"));
            self.shard.reported(key, report, now);
        }
    }

    /// Notices who is gone of those for whom it waits.
    fn miss(&mut self, delay_ms: u64, now: Now, stage: &mut Stage) -> Result<(), Broken> {
        let senders = self.shard.senders();
        self.mail.gone.retain(|sender, _| senders.contains(sender));
        for sender in senders {
            if !stage.cluster.is_absent(&sender, stage.now) {
                continue;
            }
            let delay = stage.dice.between(0, delay_ms);
            let at = *self.mail.gone.entry(sender.clone()).or_insert(stage.now + delay);
            if at > stage.now {
                continue;
            }
            if !mutant::active(Mutant::AbsenceBeforeReports) {
                for key in stage.shelf.reports() {
                    self.read(&key, now, stage);
                }
            }
            stage.note(|| format!("{sender} is gone"));
            self.shard.sender_gone(&sender, now);
            if self.shard.senders().contains(&sender) {
                let what = format!("{sender} is gone, and waited for");
                return Err((Promise::NothingIsStuck, what));
            }
        }
        Ok(())
    }
}

//! What must be so between the records of queues in one shard of a backup.
//!
//! Every run lies in a queue that is there, unless it is dead; what was given, is dead, or is long was submitted; and nothing
//! is younger than the head. Keys come in their order, and some of these before the head: so they are judged when all of the
//! shard was read.

use std::collections::BTreeSet;

use engine::id::{SerialId, ShardId};
use engine::queue::dead::{DeadRecord, dead_at};
use engine::queue::given::{ClaimedRecord, GivenRecord};
use engine::queue::pick::{ChosenRecord, PartEndsRecord, PicksRecord};
use engine::queue::record::{
    BodyRecord, QueueRecord, QueuedRecord, RateRecord, UniqueRecord, placed_at, queue_key,
    queue_name_key,
};
use engine::shard::record::HeadRecord;

use super::content::{Flaw, read};
use crate::{Key, Value};

/// What was read of the queues of the shard that is being read.
#[derive(Default)]
pub(super) struct QueuesMoment {
    queues: BTreeSet<SerialId>,
    /// Unfinished runs, and what dead ones were about, with their queues.
    submitted: BTreeSet<(u64, SerialId)>,
    given: BTreeSet<u64>,
    /// The last run of each record that runs share.
    claimed: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    long: BTreeSet<u64>,
    /// Runs of which the workers were chosen, and the parts that they have.
    chosen: BTreeSet<u64>,
    parts: BTreeSet<u64>,
    /// Runs of which parts have ended.
    ended: BTreeSet<u64>,
}

impl QueuesMoment {
    /// Reads a record, if it is one of queues.
    pub(super) fn take(
        &mut self,
        shard: ShardId,
        kind: &str,
        key: &Key,
        value: &Value,
    ) -> Result<(), Flaw> {
        let text = key.as_str();
        let misplaced = || Flaw::Wrong(format!("{key} names no run"));
        let number = || text.rsplit('/').next().and_then(|digits| digits.parse().ok());
        match kind {
            "queues" => {
                let record: QueueRecord = read(key, value)?;
                if queue_key(shard, record.id.serial) != text || record.id.shard != shard {
                    return Err(Flaw::Wrong(format!("{key} holds another queue, {}", record.id)));
                }
                Key::new(queue_name_key(record.id.project, &record.name))
                    .map_err(|why| Flaw::Wrong(format!("{key}: {why}")))?;
                self.queues.insert(record.id.serial);
            }
            "queue" => {
                read::<QueuedRecord>(key, value)?;
                let (queue, order) = placed_at(shard, text).ok_or_else(misplaced)?;
                self.submitted.insert((order.sequence, queue));
            }
            "claimed" => {
                let record: ClaimedRecord = read(key, value)?;
                let first: u64 = number().ok_or_else(misplaced)?;
                self.claimed.insert(record.runs.last().map_or(first, |(_, last)| *last));
            }
            "given" => {
                read::<GivenRecord>(key, value)?;
                self.given.insert(number().ok_or_else(misplaced)?);
            }
            "dead" => {
                read::<DeadRecord>(key, value)?;
                self.dead.insert(dead_at(shard, text).ok_or_else(misplaced)?.1);
            }
            "body" => {
                read::<BodyRecord>(key, value)?;
                self.long.insert(number().ok_or_else(misplaced)?);
            }
            "chosen" => {
                let record: ChosenRecord = read(key, value)?;
                self.chosen.insert(number().ok_or_else(misplaced)?);
                self.parts.extend(record.numbers());
            }
            "parts" => {
                read::<PartEndsRecord>(key, value)?;
                self.ended.insert(number().ok_or_else(misplaced)?);
            }
            "picks" => drop(read::<PicksRecord>(key, value)?),
            "rate" => drop(read::<RateRecord>(key, value)?),
            "unique" => drop(read::<UniqueRecord>(key, value)?),
            _ => {}
        }
        Ok(())
    }

    /// How many runs are not finished.
    pub(super) fn unfinished(&self) -> u64 {
        (self.submitted.len() - self.dead.len().min(self.submitted.len())) as u64
    }

    /// All of it was read: does it fit together, and with the head?
    pub(super) fn check(&self, shard: ShardId, head: &HeadRecord) -> Result<(), Flaw> {
        let wrong = |why: String| Err(Flaw::Wrong(format!("shard {shard}: {why}")));
        if let Some(queue) = self.queues.last().filter(|queue| **queue > head.youngest) {
            return wrong(format!("queue {queue} is younger than the head"));
        }
        if let Some((run, _)) = self.submitted.last().filter(|(run, _)| *run > head.sequence) {
            return wrong(format!("run {run} of a queue is younger than the head"));
        }
        let is_lost = |(run, queue): &&(u64, SerialId)| {
            !self.queues.contains(queue) && !self.dead.contains(run)
        };
        if let Some((run, queue)) = self.submitted.iter().find(is_lost) {
            return wrong(format!("run {run} waits in queue {queue}, which is not there"));
        }
        if let Some(part) = self.parts.last().filter(|part| **part > head.sequence) {
            return wrong(format!("part {part} of a run is younger than the head"));
        }
        if let Some(run) = self.ended.difference(&self.chosen).next() {
            return wrong(format!("parts of run {run} have ended, and nobody was chosen for it"));
        }
        for (runs, what) in [
            (&self.given, "was given"),
            (&self.dead, "is dead"),
            (&self.long, "has a payload"),
            (&self.chosen, "has parts"),
        ] {
            let is_there = |run: u64| {
                let of_number = (run, SerialId(0))..=(run, SerialId(u64::MAX));
                self.submitted.range(of_number).next().is_some() || self.parts.contains(&run)
            };
            if let Some(run) = runs.iter().find(|run| !is_there(**run)) {
                return wrong(format!("run {run} {what}, and was never submitted"));
            }
        }
        if let Some(run) = self.claimed.last().filter(|run| **run > head.sequence) {
            return wrong(format!("run {run}, which was claimed, is younger than the head"));
        }
        if let Some(run) = self.given.intersection(&self.dead).next() {
            return wrong(format!("run {run} is dead, and a worker has it"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut QueuesMoment);

    fn moment(take: impl FnOnce(&mut QueuesMoment)) -> Result<(), Flaw> {
        let queue = SerialId(5);
        let mut moment = QueuesMoment {
            queues: [queue].into(),
            submitted: [(7, queue), (8, queue), (10, queue)].into(),
            given: [7].into(),
            claimed: [10].into(),
            dead: [8].into(),
            long: [8].into(),
            chosen: [10].into(),
            parts: [11, 12].into(),
            ended: [10].into(),
        };
        take(&mut moment);
        let head = HeadRecord { sequence: 12, youngest: queue, ..HeadRecord::default() };
        moment.check(ShardId(3), &head)
    }

    #[test]
    fn records_of_queues_of_different_moments_show_it() {
        assert!(moment(|_| {}).is_ok());
        let cases: [(Change, &str); 11] = [
            (|it| _ = it.queues.insert(SerialId(6)), "queue"),
            (|it| _ = it.submitted.insert((13, SerialId(5))), "younger than the head"),
            (|it| _ = it.parts.insert(13), "part 13 of a run is younger than the head"),
            (|it| _ = it.chosen.insert(9), "has parts, and was never submitted"),
            (|it| _ = it.ended.insert(7), "nobody was chosen"),
            (|it| it.queues.clear(), "which is not there"),
            (|it| _ = it.given.insert(2), "was given, and was never submitted"),
            (|it| _ = it.dead.insert(2), "is dead, and was never submitted"),
            (|it| _ = it.long.insert(2), "has a payload, and was never submitted"),
            (|it| _ = it.given.insert(8), "a worker has it"),
            (|it| _ = it.claimed.insert(13), "younger than the head"),
        ];
        for (change, told) in cases {
            match moment(change) {
                Err(Flaw::Wrong(why)) => assert!(why.contains(told), "{why}"),
                other => panic!("{told}: {other:?}"),
            }
        }
    }
}

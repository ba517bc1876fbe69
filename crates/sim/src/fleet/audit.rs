//! What is looked at when everything has come to rest: who has which shard, and what became of every slot.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::assignment::ranking;
use engine::id::{RunId, ShardId};
use engine::past::End;
use engine::shard::record::{RunRecord, RunState};

use super::Fleet;
use super::sender::{HeardCall, ReceiverAnswer};
use super::setting::{AHEAD_MS_MAX, OFFSET_MS_MAX, STEP_MS, Temper, WALL_MS, name};
use crate::promise::words;
use crate::shard::promise::ShardPromise;
use crate::sim_store::at_once;
use crate::slot_records::SlotRecords;

/// Every run ends within this, with all its attempts.
const OLD_MS: i64 = 60_000;

/// Every shard is where it should be.
pub fn check_owners(fleet: &Fleet) {
    let names: Vec<String> = (0..fleet.setting.servers).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for shard in (0..fleet.setting.shards).map(ShardId) {
        let owner = fleet.head(shard).and_then(|head| head.session);
        let is_there =
            owner.as_ref().filter(|owner| fleet.sim_store.peek_primary(owner.key()).is_some());
        let should = ranking(shard, &names)[0];
        if is_there.is_none_or(|owner| owner.node().as_str() != should) {
            let what = format!("{shard} should be at {should}, and is at {owner:?}");
            fleet.accuse(ShardPromise::ShardsAreServed, what);
        }
    }
}

/// Every slot of every trigger is on record, once, up to when clocks showed this; what succeeded was heard, and nothing was
/// heard that is on no record.
pub fn check_slots(fleet: &Fleet, due_until: i64) {
    let still_there = (0..fleet.setting.servers).filter(|server| fleet.process(*server).is_some());
    let still_there: Vec<_> = still_there.map(name).collect();
    if !still_there.is_empty() {
        return fleet.accuse(ShardPromise::NothingIsStuck, format!("{still_there:?} do not stop"));
    }
    let records = at_once(SlotRecords::of(&fleet.sim_store.store()));
    let whole = match catch_unwind(AssertUnwindSafe(|| records.whole(STEP_MS))) {
        Ok(whole) => whole,
        Err(panic) => return fleet.accuse(ShardPromise::OnePlace, words(&*panic)),
    };
    let offset = i64::try_from(OFFSET_MS_MAX).expect("short");
    for trigger in &fleet.setting.triggers {
        let slots = whole.get(&trigger.id.serial).into_iter().flat_map(BTreeMap::keys);
        let slots: Vec<i64> = slots.copied().collect();
        fleet.count(|counts| counts.slots += slots.len() as u64);
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else {
            let what = format!("nothing became of {:?}", trigger.draft.name);
            return fleet.accuse(ShardPromise::NothingUndecided, what);
        };
        // One slot may be held back by its jitter, and is not decided then.
        let is_late = *last < due_until - STEP_MS - 1_000 - offset;
        if *first > WALL_MS + STEP_MS || is_late {
            let what = format!("{:?}: {first} to {last} of {due_until}", trigger.draft.name);
            fleet.accuse(ShardPromise::NothingUndecided, what);
        }
    }
    check_heard(fleet, &records);
    // A retry that was planned by a clock far ahead comes when right clocks get there.
    let is_planned_ahead = |run: &RunRecord| {
        let ahead = due_until..=due_until + AHEAD_MS_MAX;
        fleet.setting.apart.is_some()
            && matches!(run.state, RunState::Backoff(at) if ahead.contains(&at.0))
    };
    let is_old = |run: &&RunRecord| run.slot.0 < due_until - OLD_MS && !is_planned_ahead(run);
    let old = records.unfinished.iter().find(is_old);
    if records.open > 0 || old.is_some() {
        let what = format!("{} runs are open, and {old:?} waits", records.open);
        fleet.accuse(ShardPromise::NothingIsStuck, what);
    }
}

fn check_heard(fleet: &Fleet, records: &SlotRecords) {
    let mut heard: BTreeMap<RunId, Vec<HeardCall>> = fleet.receivers.heard();
    for ended in records.runs.iter().filter(|ended| ended.run.queue.is_none()) {
        let id: RunId = ended.id.parse().expect("made by us");
        let calls = heard.remove(&id).unwrap_or_default();
        let is_heard = calls.iter().any(|call| call.answer == ReceiverAnswer::Status(200));
        let is_exception = match ended.run.end {
            End::Succeeded => !is_heard,
            End::Expired => !calls.is_empty(),
            End::Failed | End::Dead => {
                fleet.setting.temper == Temper::Gentle || !fleet.receivers.is_tried(id)
            }
            End::Cancelled | End::Unknown => fleet.setting.temper == Temper::Gentle,
        };
        if is_exception {
            let what = format!("{id}: {:?}, and {calls:?} were heard", ended.run);
            fleet.accuse(ShardPromise::RecordsAreTrue, what);
        }
    }
    let unfinished: Vec<_> = records.unfinished.iter().map(|run| (run.trigger, run.slot)).collect();
    heard.retain(|run, _| !unfinished.contains(&(run.trigger, run.slot)));
    if let Some((run, calls)) = heard.first_key_value() {
        let what = format!("{run} was heard, and is on no record: {calls:?}");
        fleet.accuse(ShardPromise::RecordsAreTrue, what);
    }
}

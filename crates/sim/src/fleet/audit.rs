//! What is looked at when everything has come to rest: who has which shard, and what became of every slot.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::assignment::ranking;
use engine::id::{RunId, ShardId};
use engine::past::End;

use super::Fleet;
use super::sender::{Answer, Heard};
use super::setting::{OFFSET_MS_MAX, STEP_MS, Temper, WALL_MS, name};
use crate::ledger::Ledger;
use crate::promise::words;
use crate::shard::promise::Promise;
use crate::vault::at_once;

/// Every run ends within this, with all its attempts.
const OLD_MS: i64 = 60_000;

/// Every shard is where it should be.
pub fn check_owners(fleet: &Fleet) {
    let names: Vec<String> = (0..fleet.setting.servers).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for shard in (0..fleet.setting.shards).map(ShardId) {
        let owner = fleet.head(shard).and_then(|head| head.session);
        let is_there =
            owner.as_ref().filter(|owner| fleet.vault.peek_primary(owner.key()).is_some());
        let should = ranking(shard, &names)[0];
        if is_there.is_none_or(|owner| owner.node().as_str() != should) {
            let what = format!("{shard} should be at {should}, and is at {owner:?}");
            fleet.accuse(Promise::ShardsAreServed, what);
        }
    }
}

/// Every slot of every trigger is on record, once, up to when clocks showed this; what succeeded was heard, and nothing was
/// heard that is on no record.
pub fn check_slots(fleet: &Fleet, rang_until: i64) {
    let still_there = (0..fleet.setting.servers).filter(|place| fleet.process(*place).is_some());
    let still_there: Vec<_> = still_there.map(name).collect();
    if !still_there.is_empty() {
        return fleet.accuse(Promise::NothingIsStuck, format!("{still_there:?} do not stop"));
    }
    let ledger = at_once(Ledger::of(&fleet.vault.store()));
    let whole = match catch_unwind(AssertUnwindSafe(|| ledger.whole(STEP_MS))) {
        Ok(whole) => whole,
        Err(panic) => return fleet.accuse(Promise::OnePlace, words(&*panic)),
    };
    let offset = i64::try_from(OFFSET_MS_MAX).expect("short");
    for bell in &fleet.setting.triggers {
        let slots = whole.get(&bell.id.unique).into_iter().flat_map(BTreeMap::keys);
        let slots: Vec<i64> = slots.copied().collect();
        fleet.count(|counts| counts.slots += slots.len() as u64);
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else {
            let what = format!("nothing became of {:?}", bell.draft.name);
            return fleet.accuse(Promise::NothingUndecided, what);
        };
        // One slot may be held back by its jitter, and is not decided then.
        let is_late = *last < rang_until - STEP_MS - 1_000 - offset;
        if *first > WALL_MS + STEP_MS || is_late {
            let what = format!("{:?}: {first} to {last} of {rang_until}", bell.draft.name);
            fleet.accuse(Promise::NothingUndecided, what);
        }
    }
    check_heard(fleet, &ledger);
    let old = ledger.unfinished.iter().find(|run| run.slot.0 < rang_until - OLD_MS);
    if ledger.open > 0 || old.is_some() {
        let what = format!("{} runs are open, and {old:?} waits", ledger.open);
        fleet.accuse(Promise::NothingIsStuck, what);
    }
}

fn check_heard(fleet: &Fleet, ledger: &Ledger) {
    let mut heard: BTreeMap<RunId, Vec<Heard>> = fleet.receivers.heard();
    for ended in &ledger.runs {
        let id: RunId = ended.id.parse().expect("made by us");
        let calls = heard.remove(&id).unwrap_or_default();
        let is_heard = calls.iter().any(|call| call.answer == Answer::Status(200));
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
            fleet.accuse(Promise::RecordsAreTrue, what);
        }
    }
    let unfinished: Vec<_> = ledger.unfinished.iter().map(|run| (run.trigger, run.slot)).collect();
    heard.retain(|run, _| !unfinished.contains(&(run.trigger, run.slot)));
    if let Some((run, calls)) = heard.first_key_value() {
        let what = format!("{run} was heard, and is on no record: {calls:?}");
        fleet.accuse(Promise::RecordsAreTrue, what);
    }
}

//! The server's account, the store's records and what the receiver heard, held against each other.

use std::collections::{BTreeMap, BTreeSet};

use client::spec::{Delivery, Overlap};
use client::{Client, Timestamp};
use engine::id::{SerialId, TriggerId};
use engine::past::End;
use rig::{Heard, PATIENCE, until};
use sim::slot_records::{KnownTrigger, SlotFate, SlotRecords};

use super::crash::{list, spec};

/// What the server tells of each trigger that is there, when all of its runs have ended.
pub(super) async fn accounts(
    client: &Client,
    ids: &BTreeMap<String, String>,
) -> BTreeMap<String, Told> {
    let mut told = BTreeMap::new();
    for name in list(client).await.into_keys() {
        let mut sum = Told::default();
        let mut from = Some(Timestamp::UNIX_EPOCH.max(born(&ids[&name])));
        while from.is_some() {
            let account = until(&format!("{name} rests"), PATIENCE, || async {
                let account = client.account(&name, from, None).await.unwrap();
                (account.totals.pending + account.totals.under_way == 0).then_some(account)
            })
            .await;
            let totals = account.totals;
            assert_eq!(totals.missing, 0, "{name}: {account:?}");
            sum.runs += totals.succeeded + totals.failed;
            sum.skipped += totals.skipped;
            sum.unread += totals.unread;
            from = account.more_from;
        }
        told.insert(name, sum);
    }
    told
}

/// How many slots the server says became what.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    runs: u64,
    skipped: u64,
    unread: u64,
}

fn serial(id: &str) -> SerialId {
    id.parse::<TriggerId>().unwrap().serial
}

/// A moment before a trigger was made.
fn born(id: &str) -> Timestamp {
    Timestamp::from_millisecond(serial(id).birth().0 - 1_000).unwrap()
}

/// All slots are on record, once; told as they are; and heard as they are told. `deleted` says when the deletion
/// of those that are gone was asked for.
pub(super) fn check(
    ledger: &SlotRecords,
    told: &BTreeMap<String, Told>,
    deleted: &BTreeMap<String, u64>,
    ids: &BTreeMap<String, String>,
    heard: &[Heard],
) {
    println!("{} runs, {} calls", ledger.runs.len(), heard.len());
    check_records(ledger, told, deleted, ids);
    let names = ids.iter().map(|(name, id)| (serial(id), name)).collect();
    check_calls(ledger, &names, heard);
}

/// All slots are on record, once, and told as they are.
pub(super) fn check_records(
    ledger: &SlotRecords,
    told: &BTreeMap<String, Told>,
    deleted: &BTreeMap<String, u64>,
    ids: &BTreeMap<String, String>,
) {
    assert_eq!(ledger.open, 0, "runs are left in heads");
    assert!(ledger.unfinished.is_empty(), "runs are left: {:?}", ledger.unfinished);
    let slots = ledger.slots();
    println!("{} slots", slots.values().map(BTreeMap::len).sum::<usize>());
    for ((trigger, generation), slots) in &slots {
        check_gapless(*trigger, *generation, slots);
    }
    let names: BTreeMap<SerialId, &String> =
        ids.iter().map(|(name, id)| (serial(id), name)).collect();
    for (trigger, known) in &ledger.triggers {
        let name = names[trigger];
        let of = (*trigger, known.record.generation);
        check_reach(name, known, slots.get(&of).unwrap_or(&BTreeMap::new()));
        let mut sum = Told::default();
        for slots in slots.range((*trigger, 0)..=of).map(|(_, slots)| slots) {
            let runs =
                slots.values().filter(|fate| matches!(fate, SlotFate::Run(_))).count() as u64;
            sum.runs += runs;
            sum.skipped += slots.len() as u64 - runs;
        }
        let told = &told[name];
        if told.unread == 0 {
            assert_eq!(told, &sum, "{name}: what the server tells, and what is on record");
        }
    }
    for (name, asked) in deleted {
        let Some(id) = ids.get(name).map(|id| serial(id)) else { continue };
        assert!(!ledger.triggers.contains_key(&id), "{name} is still there");
        let last = slots.range((id, 0)..=(id, u32::MAX)).next_back();
        let last = last.and_then(|(_, slots)| slots.keys().next_back());
        let has_limit = spec(name, &[String::new()]).schedule.unwrap().limit.is_some();
        let accounted = last.is_some_and(|last| *last > asked.cast_signed() - 2_000);
        assert!(accounted || has_limit || last.is_none(), "{name}: {last:?}, deleted at {asked}");
    }
}

/// The slots of an interval are all there, from the first to the last.
fn check_gapless(trigger: SerialId, generation: u32, slots: &BTreeMap<i64, SlotFate>) {
    let steps: BTreeSet<i64> =
        slots.keys().zip(slots.keys().skip(1)).map(|(one, next)| next - one).collect();
    let is_gapless = steps.len() <= 1 && steps.iter().all(|step| [1_000, 2_000].contains(step));
    assert!(is_gapless, "{trigger} of {generation}: slots are {steps:?} ms apart: {slots:?}");
}

/// The slots of the present schedule begin and end where they should, and as many have run as may.
fn check_reach(name: &str, known: &KnownTrigger, slots: &BTreeMap<i64, SlotFate>) {
    let every = match known.record.draft.get() {
        text if text.contains("\"1s\"") && !text.contains("\"every\":\"2s\"") => 1_000,
        _ => 2_000,
    };
    let (state, since) = (&known.state, known.record.since.0);
    if let Some(first) = slots.keys().next() {
        assert!((since + 1..=since + every).contains(first), "{name}: {first} after {since}");
    }
    let ends = state.paused.as_ref().map(|pause| pause.since.0);
    let ends = ends.or(state.cancelled.map(|cancelled| cancelled.0));
    let last = slots.keys().next_back().copied().unwrap_or(since);
    let limit = spec(name, &[String::new()]).schedule.unwrap().limit;
    let runs = slots.values().filter(|fate| matches!(fate, SlotFate::Run(_))).count() as u64;
    if let Some(limit) = limit {
        assert_eq!(state.remaining.unwrap_or(limit) + runs, limit, "{name}: {state:?}");
    }
    if limit != Some(runs) {
        let ends = ends.unwrap_or_else(|| panic!("{name} still fires: {state:?}"));
        assert!(last > ends - every && last <= ends, "{name}: {last} is last, until {ends}");
    }
}

/// What was heard is what is on record, and the other way round.
fn check_calls(ledger: &SlotRecords, names: &BTreeMap<SerialId, &String>, heard: &[Heard]) {
    let mut calls: BTreeMap<&str, Vec<&Heard>> = BTreeMap::new();
    let mut ids: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for call in heard {
        calls.entry(&call.run).or_default().push(call);
        ids.entry((&call.path, &call.slot)).or_default().insert(&call.run);
        let slot: Timestamp = call.slot.parse().unwrap();
        let early = slot.as_microsecond() - call.at_us.cast_signed();
        assert!(early <= 1_000, "{call:?} is {early} us early");
    }
    for (slot, ids) in &ids {
        assert!(ids.len() == 1, "{slot:?} has several ids: {ids:?}");
    }
    for ended in &ledger.runs {
        let name = names[&ended.run.trigger];
        let spec = spec(name, &[String::new()]);
        let calls = calls.remove(ended.id.as_str()).unwrap_or_default();
        let attempts: Vec<u32> = calls.iter().map(|call| call.attempt).collect();
        let is_ordered = attempts.is_sorted_by(|one, next| one < next);
        assert!(is_ordered, "{name} {ended:?}: attempts arrived as {attempts:?}");
        let is_taken = calls.iter().any(|call| call.status == 200);
        let known = ledger.triggers.get(&ended.run.trigger);
        let is_over = known.is_none_or(|known| known.state.cancelled.is_some());
        match ended.run.end {
            End::Succeeded => assert!(is_taken, "{name} {ended:?} did not arrive: {calls:?}"),
            End::Dead | End::Failed => assert!(!calls.is_empty(), "{name} {ended:?} never left"),
            End::Unknown if spec.delivery == Some(Delivery::AtMostOnce) => {}
            // It was in doubt when its trigger was cancelled or deleted, which ends what is not under way.
            End::Unknown if is_over => {}
            End::Unknown => {
                // It was launched ahead and in doubt, and taken back before its time came.
                let jitter_ms =
                    if spec.schedule.is_some_and(|it| it.jitter.is_some()) { 1_000 } else { 0 };
                let is_ahead = ended.run.at.0 < ended.run.slot.0 + jitter_ms;
                assert!(is_ahead && calls.is_empty(), "{name} {ended:?} is in doubt: {calls:?}");
            }
            // By a later slot, or a person.
            End::Cancelled => {}
            End::Expired => panic!("{name} {ended:?} may be as late as it likes"),
        }
        if spec.delivery == Some(Delivery::AtMostOnce) {
            assert!(calls.len() <= 1, "{name} {ended:?} came twice: {calls:?}");
        }
    }
    assert!(calls.is_empty(), "calls that are on no record: {calls:?}");
    check_overlap(heard);
}

/// Where runs of a trigger must not overlap, the receiver never had two of them at a time.
fn check_overlap(heard: &[Heard]) {
    let mut busy: BTreeMap<&str, &Heard> = BTreeMap::new();
    for call in heard {
        let overlap = spec(call.path.trim_start_matches('/'), &[String::new()]).overlap;
        if matches!(overlap, Some(Overlap::Skip | Overlap::QueueOne))
            && let Some(before) = busy.insert(&call.path, call)
        {
            let is_over = before.answered_us.is_some_and(|answered| answered <= call.at_us);
            assert!(is_over, "{call:?} came while {before:?} was under way");
        }
    }
}

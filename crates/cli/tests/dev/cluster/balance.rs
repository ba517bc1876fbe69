//! What the store says of every slot, held against what was heard.

use std::collections::{BTreeMap, BTreeSet};

use engine::id::{ProjectId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::SHARDS_DEFAULT;
use engine::past::End;
use engine::record::encode;
use engine::shard::record::{FORMAT, NameRecord, RunState, TriggerRecord, name_key, trigger_key};
use rig::{Heard, PATIENCE, until};
use serde_json::value::to_raw_value;
use sim::slot_records::{SlotFate, SlotRecords};
use store::machine::{Machine, System};
use store::{Commit, Key, Store};

use super::fleet::bell;

/// The name of a trigger.
pub(super) fn name(number: usize) -> String {
    format!("bell-{number:05}")
}

/// Writes so many triggers to an empty store, as a server would have left them: to create each by a request would take
/// longer than the test. Each rings every `every_s` seconds, those of a second spread over it.
pub(super) async fn fill(store: &Store, count: usize, every_s: usize, urls: &[String]) {
    let born = i64::try_from(System.wall_us() / 1_000).unwrap();
    let key = |text: String| Key::new(text).unwrap();
    let mut writes = Vec::new();
    for number in 0..count {
        let name = name(number);
        let url = format!("{}/{name}", urls[number % urls.len()]);
        let mut spec = bell(&name, &url, &format!("{every_s}s"));
        let schedule = spec.schedule.as_mut().unwrap();
        schedule.phase = Some(format!("{}s", number % every_s));
        schedule.jitter = Some("1s".to_owned());
        let shard = ShardId::of(ProjectId::DEFAULT, &name, SHARDS_DEFAULT);
        let serial = SerialId((born.unsigned_abs() << 20) + number as u64);
        let id = TriggerId { shard, project: ProjectId::DEFAULT, serial };
        let record = TriggerRecord {
            id,
            draft: to_raw_value(&spec).unwrap(),
            created: Instant(born),
            written: Instant(born),
            author: "test".to_owned(),
            revision: 1,
            generation: 1,
            since: Instant(born),
        };
        writes.push((key(trigger_key(shard, serial)), encode(FORMAT, &record)));
        let name = key(name_key(ProjectId::DEFAULT, &name));
        writes.push((name, encode(FORMAT, &NameRecord { id })));
    }
    for some in writes.chunks(store.limits().writes.min(500)) {
        let commit = some.iter().cloned();
        let commit = commit.fold(Commit::new(), |commit, (key, value)| commit.put(key, value));
        store.commit(commit).await.unwrap();
    }
}

/// Waits until nothing is under way in a store whose scheduler is stopped, and gives all that it says then. What was put
/// back waits until somebody starts the scheduler again.
pub(super) async fn at_rest(store: &Store) -> SlotRecords {
    until("nothing is under way", PATIENCE * 2, || async {
        let ledger = SlotRecords::of(store).await;
        let is_stopped = ledger.stopped.len() == usize::from(SHARDS_DEFAULT);
        let is_still = ledger.unfinished.iter().all(|run| run.state != RunState::Running);
        (is_stopped && ledger.open == 0 && is_still).then_some(ledger)
    })
    .await
}

/// Every slot of every trigger is on record, once, from the first to the last that was decided; what succeeded was
/// heard, under its id; and nothing was heard that is on no record.
pub(super) fn check(ledger: &SlotRecords, heard: &[Heard], every_s: usize) {
    let step = i64::try_from(every_s).unwrap() * 1_000;
    let slots = ledger.whole(step);
    let mut fates: BTreeMap<&str, u64> = BTreeMap::new();
    let waiting = ledger.unfinished.iter().map(|run| (run.name.as_str(), run.slot.to_string()));
    let waiting: BTreeSet<(&str, String)> = waiting.collect();
    for (serial, known) in &ledger.triggers {
        let (since, shard) = (known.record.since.0, known.record.id.shard);
        let slots = &slots[serial];
        let (first, last) = (slots.keys().next().unwrap(), slots.keys().next_back().unwrap());
        let end = ledger.stopped[&shard];
        assert!((since + 1..=since + step).contains(first), "{serial}: {first} after {since}");
        // One slot may be held back by its jitter, and is not decided then.
        assert!(*last > end - step - 1_000 && *last <= end, "{serial}: {last} before {end}");
        for fate in slots.values() {
            let fate = match fate {
                SlotFate::Skipped => "skipped",
                SlotFate::Unfinished => "waiting",
                SlotFate::Run(End::Succeeded) => "succeeded",
                SlotFate::Run(_) => "ended otherwise",
            };
            *fates.entry(fate).or_default() += 1;
        }
    }
    let mut calls: BTreeMap<&str, Vec<&Heard>> = BTreeMap::new();
    for call in heard {
        calls.entry(&call.run).or_default().push(call);
    }
    let mut again = 0;
    for ended in &ledger.runs {
        let calls = calls.remove(ended.id.as_str()).unwrap_or_default();
        again += calls.len().saturating_sub(1);
        let attempts: Vec<u32> = calls.iter().map(|call| call.attempt).collect();
        assert!(attempts.is_sorted_by(|one, next| one < next), "{ended:?}: {attempts:?}");
        let is_heard = calls.iter().any(|call| call.status == 200);
        assert!(ended.run.end != End::Succeeded || is_heard, "{ended:?} was not heard");
    }
    // What waits may have been tried.
    calls.retain(|_, calls| {
        let call = calls[0];
        !waiting.contains(&(call.path.trim_start_matches('/'), call.slot.clone()))
    });
    assert!(calls.is_empty(), "calls that are on no record: {calls:?}");
    let paths: BTreeSet<&str> = heard.iter().map(|call| call.path.as_str()).collect();
    println!(
        "balance: {} triggers, {} heard; slots {fates:?}; {} calls, {again} again under the same id",
        ledger.triggers.len(),
        paths.len(),
        heard.len(),
    );
}

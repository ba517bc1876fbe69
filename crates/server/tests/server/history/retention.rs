//! What a real node keeps of the past: the newest, and an account that adds up all the same.

use client::Timestamp;
use client::account::{Account, Fate};
use client::run::{Run, RunState};
use engine::id::{ProjectId, RunId, SerialId};
use engine::past::exception::{exception_pages, exceptions};
use engine::past::floor::floors;
use engine::past::{PastOfQueue, Skipped};
use engine::record::{Format, decode, encode};
use engine::shard::record::{
    self, HeadRecord, Mark, ReservedName, TriggerRecord, reserved_key, trigger_key,
};
use serde_json::value::to_raw_value;

use super::*;

const DAY_MS: i64 = 86_400_000;
const SLOT_MS: i64 = 600_000;

/// How long ago the schedule began, and ended.
const BEGAN_MS: i64 = 20 * DAY_MS;
const ENDED_MS: i64 = 3_600_000;

const FORMAT: Format = Format(1);

fn keeping(retention: Retention) -> HistoryPace {
    HistoryPace { retention, ..QUICK }
}

const ALL: Retention = QUICK.retention;

/// A trigger that has fired every ten minutes of the last twenty days, each seventh time in vain, and was
/// paused for two hours; as an older version would have left it.
struct Old {
    store: Store,
    id: TriggerId,
    now: Instant,
    slots: usize,
    failed: usize,
}

impl Old {
    async fn new() -> Self {
        Self::with_room(None).await
    }

    /// In a store that has room for so many bytes.
    async fn with_room(room: Option<u64>) -> Self {
        let store = Road::with_room(&Arc::new(MemoryStore::new()), room);
        let about = std::collections::BTreeMap::from([("id", 7_u64), ("shards", 1)]);
        let about = encode(FORMAT, &about);
        store.commit(Commit::new().put(key("cluster/about".to_owned()), about)).await.unwrap();
        let maker =
            Served::start(store.clone(), HistoryPace { look: Duration::from_secs(3_600), ..QUICK })
                .await;
        let now = Instant(maker.handle.now().0 / SLOT_MS * SLOT_MS);
        let mut spec = TriggerSpec::webhook("old", "http://127.0.0.1:9/").cron("*/10 * * * *");
        let schedule = spec.schedule.as_mut().unwrap();
        schedule.end = Some(timestamp(Instant(now.0 + DAY_MS)));
        let id: TriggerId = maker.client.create_trigger(&spec).await.unwrap().id.parse().unwrap();
        maker.node.stop().await;
        schedule_back(&store, id, now).await;
        let mut old = Self { store, id, now, slots: 0, failed: 0 };
        old.write().await;
        old
    }

    /// The past, an hour in each segment.
    async fn write(&mut self) {
        let entry = self.store.get(&key(head_key(SHARD))).await.unwrap().unwrap();
        let mut head = Head::from_value(&entry.value).unwrap();
        let (first, last) = (self.now.0 - BEGAN_MS + SLOT_MS, self.now.0 - ENDED_MS);
        let slots: Vec<i64> = (first..=last).step_by(usize::try_from(SLOT_MS).unwrap()).collect();
        for hour in slots.chunks(6) {
            head.number += 1;
            let mut lines = Vec::new();
            for slot in hour {
                self.slots += 1;
                let end = if self.slots.is_multiple_of(7) { End::Failed } else { End::Succeeded };
                self.failed += usize::from(end == End::Failed);
                lines.push(run(self.id, Instant(*slot), end));
            }
            // Some hours were not fired at all.
            if head.number.is_multiple_of(50) {
                self.failed -= lines.iter().filter(|line| line.is_exception()).count();
                lines = vec![skip(
                    self.id,
                    Instant(hour[0]),
                    Instant(hour[hour.len() - 1]),
                    hour.len(),
                )];
            }
            let segment = Segment { lines }.to_bytes();
            let commit = Commit::new().put(key(past_key(SHARD, head.number)), segment);
            self.store.commit(commit).await.unwrap();
        }
        let decided_through = Mark(Instant(self.now.0 - 1), self.id.serial);
        let body =
            HeadRecord { decided_through, youngest: self.id.serial, ..HeadRecord::default() };
        head.body = Some(to_raw_value(&body).unwrap());
        let commit = Commit::new().put(key(head_key(SHARD)), head.to_value());
        self.store.commit(commit).await.unwrap();
    }

    /// All accounts since it began, each of five days.
    async fn accounts(&self, served: &Served) -> Vec<Account> {
        let mut accounts = Vec::new();
        for days in (1..=4).map(|part| part * 5) {
            let from = timestamp(Instant(self.now.0 - days * DAY_MS));
            let to = timestamp(Instant(self.now.0 - (days - 5) * DAY_MS));
            accounts.push(served.client.account("old", Some(from), Some(to)).await.unwrap());
        }
        accounts
    }

    /// Each slot is accounted for; how many are on record, and how many are not any more.
    async fn balance(&self, served: &Served) -> (usize, usize) {
        let (mut kept, mut forgotten, mut slots) = (0, 0, 0);
        for account in self.accounts(served).await {
            let totals = account.totals;
            assert_eq!((totals.missing, totals.unread), (0, 0), "{totals:?}");
            assert!(totals.forgotten == 0 || account.kept_from.is_some(), "{totals:?}");
            let told = totals.succeeded + totals.failed + totals.skipped;
            assert_eq!(told + totals.forgotten, totals.slots, "{totals:?}");
            kept += usize::try_from(told).unwrap();
            forgotten += usize::try_from(totals.forgotten).unwrap();
            slots += usize::try_from(totals.slots).unwrap();
        }
        assert_eq!(slots, self.slots, "every slot");
        (kept, forgotten)
    }

    /// Waits until this holds of what is stored below the pages.
    async fn until_lines(&self, holds: impl Fn(&[Line]) -> bool) -> Vec<Line> {
        let is_so = async |store: &Store| {
            let is_merged = below(store, &past(SHARD)).await.len() <= 12;
            is_merged && holds(&lines(store, &pages(SHARD)).await)
        };
        until(&self.store, is_so).await;
        lines(&self.store, &pages(SHARD)).await
    }
}

/// The trigger was made long ago, and its schedule ended an hour ago.
async fn schedule_back(store: &Store, id: TriggerId, now: Instant) {
    let at = key(trigger_key(SHARD, id.serial));
    let entry = store.get(&at).await.unwrap().unwrap();
    let mut record: TriggerRecord = decode(entry.value.as_bytes(), record::FORMAT).unwrap();
    let mut draft: serde_json::Value = serde_json::from_str(record.draft.get()).unwrap();
    let end = Instant(now.0 - ENDED_MS + 1);
    draft["schedule"]["end"] = serde_json::Value::String(end.to_string());
    record.draft = to_raw_value(&draft).unwrap();
    (record.created, record.since) = (Instant(now.0 - BEGAN_MS), Instant(now.0 - BEGAN_MS));
    store.commit(Commit::new().put(at, encode(record::FORMAT, &record))).await.unwrap();
}

fn run(id: TriggerId, slot: Instant, end: End) -> Line {
    Line::Run(Finished {
        project: engine::id::ProjectId::DEFAULT,
        trigger: id.serial,
        slot,
        generation: Some(1),
        sequence: None,
        notice: None,
        queue: None,
        end,
        at: Instant(slot.0 + 40),
        attempt: 1,
        attempts: Vec::new(),
    })
}

fn skip(id: TriggerId, from: Instant, to: Instant, count: usize) -> Line {
    Line::Skip(Skipped {
        project: engine::id::ProjectId::DEFAULT,
        trigger: id.serial,
        generation: 1,
        from,
        to,
        count: count as u64,
        reason: engine::past::Reason::Paused,
        at: to,
    })
}

fn timestamp(instant: Instant) -> Timestamp {
    Timestamp::from_millisecond(instant.0).unwrap()
}

async fn lines(store: &Store, prefix: &str) -> Vec<Line> {
    let (mut lines, mut rest) = (Vec::new(), Some(Range::prefix(prefix)));
    while let Some(range) = rest {
        let page = store.scan(range, 1_000).await.unwrap();
        let read = |entry: store::Entry| Segment::from_bytes(entry.value.as_bytes()).unwrap().lines;
        lines.extend(page.entries.into_iter().flat_map(read));
        rest = page.next;
    }
    lines
}

/// All rows of a list, page by page.
async fn all(served: &Served, of: Option<&str>, filter: &RunFilter) -> Vec<Run> {
    let (mut rows, mut filter) = (Vec::new(), filter.clone());
    loop {
        let page = match of {
            Some(name) => served.client.runs_of(name, &filter).await.unwrap(),
            None => served.client.runs(&filter).await.unwrap(),
        };
        rows.extend(page.items);
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return rows;
        }
    }
}

fn ids(rows: &[Run]) -> BTreeSet<String> {
    rows.iter().map(|run| run.id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_thousand_of_a_trigger_are_kept_and_its_account_adds_up() {
    let old = Old::new().await;
    let served = Served::start(old.store.clone(), keeping(ALL)).await;
    let kept = old.until_lines(|lines| lines.len() <= 1_125 && !lines.is_empty()).await;
    assert!(kept.len() >= 1_000 - 12 * 6, "no more than that is in segments: {}", kept.len());
    let (told, forgotten) = old.balance(&served).await;
    assert!((1_000..=1_300).contains(&told), "{told}");
    assert_eq!(told + forgotten, old.slots);
    // The newest ones, each once.
    let rows =
        all(&served, Some("old"), &RunFilter { limit: Some(100), ..RunFilter::default() }).await;
    assert_eq!(ids(&rows).len(), rows.len(), "none is told twice");
    assert!(rows.is_sorted_by_key(|run| std::cmp::Reverse(run.slot)));
    assert_eq!(rows[0].slot, timestamp(Instant(old.now.0 - ENDED_MS)));
    let fates: BTreeSet<_> =
        old.accounts(&served).await[3].rows.iter().map(|row| format!("{:?}", row.fate)).collect();
    assert_eq!(fates, BTreeSet::from([format!("{:?}", Fate::Forgotten)]));
    served.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_old_goes_by_the_day() {
    let old = Old::new().await;
    let age = Duration::from_secs(10 * 86_400);
    let served =
        Served::start(old.store.clone(), keeping(Retention { age, lines: 10_000, ..ALL })).await;
    let oldest = Instant((old.now.0 - 10 * DAY_MS) / DAY_MS * DAY_MS);
    let kept = old.until_lines(|lines| lines.iter().all(|line| line.slot() >= oldest)).await;
    assert!(kept.iter().any(|line| line.slot().0 < oldest.0 + 3 * 3_600_000), "no more than that");
    let (told, forgotten) = old.balance(&served).await;
    assert!(told >= 10 * 144 - 6 && forgotten >= 9 * 144, "{told} {forgotten}");
    // Exceptions as well.
    until(&old.store, async |store| {
        lines(store, &exception_pages(SHARD)).await.iter().all(|line| line.written() >= oldest)
    })
    .await;
    served.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_too_many_bytes_forgets_the_oldest() {
    let bytes = 100_000;
    check_forgets(Old::new().await, Retention { bytes, lines: 10_000, ..ALL }, bytes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_has_a_quarter_of_the_room_of_its_store() {
    let bytes = 100_000;
    let old = Old::with_room(Some(4 * bytes)).await;
    check_forgets(old, Retention { lines: 10_000, ..ALL }, bytes).await;
}

/// Of the past no more than so many bytes are kept, and not much less.
async fn check_forgets(old: Old, retention: Retention, bytes: u64) {
    let served = Served::start(old.store.clone(), keeping(retention)).await;
    let stored = async |store: &Store| {
        let mut sum = 0;
        for prefix in [pages(SHARD), exception_pages(SHARD)] {
            let page = store.scan(Range::prefix(&prefix), 1_000).await.unwrap();
            sum += page.entries.iter().map(|entry| entry.value.len() as u64).sum::<u64>();
        }
        sum
    };
    until(&old.store, async |store| {
        below(store, &past(SHARD)).await.len() <= 12 && stored(store).await <= bytes
    })
    .await;
    let (told, forgotten) = old.balance(&served).await;
    assert!(told > 200 && forgotten > 1_000, "{told} {forgotten}");
    let metrics = served.handle.metrics();
    assert!(!metrics.contains("watchbell_history_over_budget_total 0"), "it is counted");
    assert!(metrics.contains("watchbell_history_over_budget_total "));
    assert!(stored(&old.store).await > bytes / 4, "it does not forget everything");
    served.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exceptions_of_a_store_without_an_index_are_found_page_by_page_while_it_is_merged() {
    let old = Old::new().await;
    assert!(
        below(&old.store, &exceptions(SHARD)).await.is_empty()
            && below(&old.store, &floors(SHARD)).await.is_empty()
    );
    let retention = Retention { lines: 100_000, ..ALL };
    let served = Served::start(old.store.clone(), keeping(retention)).await;
    until(&old.store, async |store| !below(store, &floors(SHARD)).await.is_empty()).await;
    let states = vec![RunState::Failed, RunState::Dead];
    let failed = RunFilter { states, limit: Some(7), ..RunFilter::default() };
    let first = all(&served, None, &failed).await;
    assert_eq!((first.len(), ids(&first).len()), (old.failed, old.failed), "each once");
    assert!(first.is_sorted_by_key(|run| std::cmp::Reverse(run.ended)));
    old.until_lines(|_| true).await;
    assert_eq!(all(&served, None, &failed).await, first, "merged or not");
    // The same by trigger, and with slots that were skipped.
    let by_trigger = all(&served, Some("old"), &failed).await;
    assert_eq!(ids(&by_trigger), ids(&first));
    let skipped = RunFilter { states: vec![RunState::Skipped], ..RunFilter::default() };
    let skips = all(&served, None, &skipped).await;
    assert_eq!(ids(&skips), ids(&all(&served, Some("old"), &skipped).await));
    let count: u64 = skips.iter().filter_map(|run| run.skipped).map(|skip| skip.count).sum();
    let lines = old.slots - usize::try_from(count).unwrap();
    let runs =
        all(&served, Some("old"), &RunFilter { limit: Some(500), ..RunFilter::default() }).await;
    assert_eq!((runs.len(), ids(&runs).len()), (lines, lines));
    // Some time of it.
    let (from, to) = (old.now.0 - 5 * DAY_MS, old.now.0 - 4 * DAY_MS);
    let day = RunFilter {
        from: Some(timestamp(Instant(from))),
        to: Some(timestamp(Instant(to))),
        ..failed
    };
    let within = |run: &&Run| (from..to).contains(&run.slot.as_millisecond());
    let expected: BTreeSet<_> = first.iter().filter(within).map(|run| run.id.clone()).collect();
    assert!(expected.len() > 15, "{}", expected.len());
    assert_eq!(ids(&all(&served, None, &day).await), expected);
    assert_eq!(ids(&all(&served, Some("old"), &day).await), expected);
    served.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_reserved_for_no_trigger_is_released_and_others_are_not() {
    let old = Old::new().await;
    let reserve = async |name: &str, at: Instant| {
        let key = key(reserved_key(SHARD, ProjectId::DEFAULT, name));
        let record = encode(record::FORMAT, &ReservedName { shard: SHARD, at });
        old.store.commit(Commit::new().put(key.clone(), record)).await.unwrap();
        key
    };
    let ghost = reserve("ghost", Instant(old.now.0 - DAY_MS)).await;
    let young = reserve("young", Instant(old.now.0 + DAY_MS)).await;
    let used = reserve("old", Instant(old.now.0 - DAY_MS)).await;
    let served = Served::start(old.store.clone(), keeping(ALL)).await;
    until(&old.store, async |store| store.get(&ghost).await.unwrap().is_none()).await;
    for kept in [young, used] {
        assert!(old.store.get(&kept).await.unwrap().is_some(), "{kept}");
    }
    served.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_that_ended_long_ago_is_deleted_and_the_past_says_so() {
    let old = Old::new().await;
    let ended = Duration::from_secs(1_800);
    let served = Served::start(old.store.clone(), keeping(Retention { ended, ..ALL })).await;
    until(&old.store, async |store| {
        store.get(&key(trigger_key(SHARD, old.id.serial))).await.unwrap().is_none()
    })
    .await;
    assert!(served.client.trigger("old").await.is_err());
    let skipped = RunFilter { states: vec![RunState::Skipped], ..RunFilter::default() };
    let skips = all(&served, Some(&old.id.to_string()), &skipped).await;
    let pruned = skips[0].skipped.unwrap();
    assert_eq!((pruned.count, pruned.reason), (0, client::account::Reason::Pruned));
    served.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submitted_run_is_found_by_its_id_for_as_long_as_history_is_kept_after_its_end() {
    let old = Old::new().await;
    let entry = old.store.get(&key(head_key(SHARD))).await.unwrap().unwrap();
    let mut head = Head::from_value(&entry.value).unwrap();
    // Days since the submission and since the end.
    let ages = [(40, 1), (29, 28), (7, 3), (2, 2)];
    let mut ids = Vec::new();
    for (number, (born, ended)) in (1_000_000..).zip(ages) {
        let born = Instant(old.now.0 - born * DAY_MS);
        ids.push(RunId::submitted(SHARD, number, born, 7));
        let Line::Run(run) = run(old.id, born, End::Succeeded) else { unreachable!("it is one") };
        let queue = PastOfQueue { name: "mail".into(), ..PastOfQueue::default() };
        let submitted = Finished {
            trigger: SerialId(number),
            generation: None,
            sequence: Some(number),
            queue: Some(Box::new(queue)),
            at: Instant(old.now.0 - ended * DAY_MS + 60_000),
            ..run
        };
        head.number += 1;
        let segment = Segment { lines: vec![Line::Run(submitted)] }.to_bytes();
        let commit = Commit::new()
            .put(key(past_key(SHARD, head.number)), segment)
            .put(key(head_key(SHARD)), head.to_value());
        old.store.commit(commit).await.unwrap();
    }
    // What is merged last is not merged at once: others come after them.
    for _ in 0..20 {
        head.number += 1;
        let line = skip(old.id, Instant(old.now.0 - 2), Instant(old.now.0 - 1), 1);
        let commit = Commit::new()
            .put(key(past_key(SHARD, head.number)), Segment { lines: vec![line] }.to_bytes())
            .put(key(head_key(SHARD)), head.to_value());
        old.store.commit(commit).await.unwrap();
    }
    let served = Served::start(old.store.clone(), keeping(ALL)).await;
    let is_submitted = |line: &&Line| matches!(line, Line::Run(run) if run.is_submitted());
    old.until_lines(|lines| lines.iter().filter(is_submitted).count() == ages.len()).await;
    for id in ids {
        assert_eq!(served.client.run_by_id(&id.to_string()).await.unwrap().id, id.to_string());
    }
    served.node.stop().await;
}

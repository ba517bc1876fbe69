//! The account of a trigger: each slot once, with what became of it.

use std::time::Duration;

use client::account::{Account, Fate, Reason as WireReason};
use client::run::RunState as WireState;
use client::spec::{QuietSpec, TriggerSpec};
use client::trigger::PauseRequest;
use engine::id::{SerialId, TriggerId};
use engine::instant::Instant;
use engine::limits::SEGMENTS_READ_MAX;
use engine::past::{End, Finished, Line, Reason, Skipped};
use engine::shard::record::{
    HeadRecord, LagRecord, Mark, OpenRun, TriggerState, lag_key, state_key,
};
use engine::webhook::{Method, Webhook};
use server::handle::FiringState;

use super::bench::{Bench, NOW, minute, minutely, succeeded};

fn skipped(id: TriggerId, from: i64, to: i64, reason: Reason) -> Line {
    Line::Skip(Skipped {
        project: engine::id::ProjectId::DEFAULT,
        trigger: id.serial,
        generation: 1,
        from: minute(from),
        to: minute(to),
        count: u64::try_from(to - from + 1).unwrap(),
        reason,
        at: minute(to),
    })
}

fn marked(at: Instant) -> HeadRecord {
    HeadRecord { decided_through: Mark(at, SerialId(u64::MAX)), ..HeadRecord::default() }
}

/// Rows as (first minute, last minute, how many, fate).
fn rows(account: &Account) -> Vec<(i64, i64, u64, Fate)> {
    let number = |at: client::Timestamp| (at.as_millisecond() - NOW.0) / 60_000;
    account.rows.iter().map(|row| (number(row.from), number(row.to), row.count, row.fate)).collect()
}

/// The account from one minute up to another, and of the slot in that one.
async fn account(bench: &Bench, from: i64, to: i64) -> Account {
    between(bench, minute(from), Instant(minute(to).0 + 1)).await
}

async fn between(bench: &Bench, from: Instant, to: Instant) -> Account {
    let at = |instant: Instant| Some(instant.to_string().parse().unwrap());
    bench.client.account("hello", at(from), at(to)).await.unwrap()
}

#[tokio::test]
async fn each_slot_is_told_once_whatever_became_of_it() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench.past(id.shard, vec![succeeded(id, minute(1)), succeeded(id, minute(2))]).await;
    let dead = Line::Run(Finished {
        project: engine::id::ProjectId::DEFAULT,
        trigger: id.serial,
        slot: minute(3),
        generation: Some(1),
        sequence: None,
        notice: None,
        queue: None,
        end: End::Dead,
        at: minute(4),
        attempt: 3,
        attempts: Vec::new(),
    });
    bench.past(id.shard, vec![dead]).await;
    bench.past(id.shard, vec![skipped(id, 4, 6, Reason::Misfire), succeeded(id, minute(7))]).await;
    let open = vec![OpenRun { trigger: id.serial, slot: minute(8) }];
    bench.head(id.shard, &HeadRecord { open, ..marked(minute(8)) }).await;
    bench.set_now(Instant(minute(9).0 + 1));
    let account = account(&bench, 0, 11).await;
    assert_eq!(
        rows(&account),
        [
            (1, 1, 1, Fate::Run),
            (2, 2, 1, Fate::Run),
            (3, 3, 1, Fate::Run),
            (4, 6, 3, Fate::Skipped),
            (7, 7, 1, Fate::Run),
            (8, 8, 1, Fate::Run),
            (9, 9, 1, Fate::Pending),
            (10, 11, 2, Fate::Coming),
        ]
    );
    assert_eq!(account.rows[3].reason, Some(WireReason::Misfire));
    assert_eq!(account.rows[2].run.as_ref().unwrap().state, WireState::Dead);
    assert_eq!(account.rows[5].run.as_ref().unwrap().state, WireState::Running);
    let totals = account.totals;
    assert_eq!(totals.slots, 11, "as many as there are minutes");
    assert_eq!((totals.succeeded, totals.failed, totals.under_way, totals.skipped), (3, 1, 1, 3));
    assert_eq!((totals.pending, totals.coming, totals.missing), (1, 2, 0));
}

#[tokio::test]
async fn a_window_cuts_a_range_of_skips() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench.past(id.shard, vec![skipped(id, 1, 20, Reason::Paused)]).await;
    bench.head(id.shard, &marked(minute(20))).await;
    bench.set_now(minute(20));
    assert_eq!(rows(&account(&bench, 5, 10).await), [(5, 10, 6, Fate::Skipped)]);
}

#[tokio::test]
async fn a_window_has_its_first_instant_and_not_its_last() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench.past(id.shard, (1..=4).map(|number| succeeded(id, minute(number))).collect()).await;
    bench.past(id.shard, vec![skipped(id, 5, 8, Reason::Paused)]).await;
    bench.head(id.shard, &marked(minute(8))).await;
    bench.set_now(minute(9));
    let (two, four) =
        (between(&bench, minute(1), minute(3)), between(&bench, minute(3), minute(7)));
    assert_eq!(rows(&two.await), [(1, 1, 1, Fate::Run), (2, 2, 1, Fate::Run)]);
    let four = rows(&four.await);
    assert_eq!(
        four.iter().map(|(from, _, count, _)| (*from, *count)).collect::<Vec<_>>(),
        [(3, 1), (4, 1), (5, 2)]
    );
    let rest = between(&bench, minute(7), minute(9)).await;
    assert_eq!((rest.totals.skipped, rest.totals.missing), (2, 0));
}

#[tokio::test]
async fn a_range_of_a_former_schedule_is_cut_and_none_of_it_is_counted_twice() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let line = skipped(id, -20, -7, Reason::Paused);
    let Line::Skip(skip) = line else { unreachable!("it was just made") };
    bench.past(id.shard, vec![Line::Skip(Skipped { generation: 0, ..skip })]).await;
    bench.set_now(minute(0));
    // Nobody knows how many of them lie here: the schedule is gone.
    let inside = between(&bench, minute(-15), minute(-12)).await;
    assert_eq!(inside.totals.slots, 0);
    let row = &inside.rows[0];
    let text = |number| minute(number).to_string();
    assert_eq!((row.from.to_string(), row.count), (text(-15), 0));
    let part_of = row.part_of.unwrap();
    assert_eq!((part_of.from.to_string(), part_of.to.to_string()), (text(-20), text(-7)));
    assert_eq!(part_of.count, 14);
    // Its first and its last slot are known.
    let first = between(&bench, minute(-30), minute(-12)).await;
    let last = between(&bench, minute(-12), minute(-1)).await;
    assert_eq!((first.totals.skipped, last.totals.skipped), (1, 1));
    assert!(first.rows[0].part_of.is_some() && last.rows[0].part_of.is_some());
    let all = between(&bench, minute(-20), minute(-6)).await;
    assert_eq!((all.totals.skipped, all.rows[0].part_of), (14, None));
    assert_eq!(rows(&between(&bench, minute(-6), minute(-1)).await), []);
}

#[tokio::test]
async fn two_slots_of_a_former_schedule_are_known_each_by_itself() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let Line::Skip(skip) = skipped(id, -20, -7, Reason::Paused) else { unreachable!() };
    let two = Skipped { generation: 0, count: 2, ..skip };
    bench.past(id.shard, vec![Line::Skip(two)]).await;
    let first = between(&bench, minute(-20), minute(-7)).await;
    assert_eq!(rows(&first), [(-20, -20, 1, Fate::Skipped)]);
    let last = between(&bench, minute(-7), minute(-1)).await;
    assert_eq!(rows(&last), [(-7, -7, 1, Fate::Skipped)]);
    assert_eq!(rows(&between(&bench, minute(-15), minute(-10)).await), []);
}

#[tokio::test]
async fn a_former_range_hides_no_slot_of_the_present_schedule() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let Line::Skip(skip) = skipped(id, -1, 2, Reason::Superseded) else { unreachable!() };
    bench.past(id.shard, vec![Line::Skip(Skipped { generation: 0, ..skip })]).await;
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.head(id.shard, &marked(minute(1))).await;
    bench.set_now(minute(2));
    assert_eq!(
        rows(&account(&bench, -2, 2).await),
        [(-1, 2, 4, Fate::Skipped), (1, 1, 1, Fate::Run), (2, 2, 1, Fate::Pending)]
    );
}

#[tokio::test]
async fn runs_that_left_late_are_counted() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let left = |number: i64, late_ms: i64, attempt: u32| {
        let Line::Run(mut run) = succeeded(id, minute(number)) else { unreachable!() };
        run.attempts[0].at = Instant(run.slot.0 + late_ms);
        run.attempt = attempt;
        Line::Run(run)
    };
    let lines = vec![left(1, 5_000, 1), left(2, 1_000, 1), left(3, 1_001, 1), left(4, 9_000, 2)];
    bench.past(id.shard, lines).await;
    bench.head(id.shard, &marked(minute(4))).await;
    bench.set_now(minute(5));
    let account = account(&bench, 0, 4).await;
    let facts = |row: usize| account.rows[row].run.as_ref().unwrap();
    let late: Vec<_> = (0..4).map(|row| facts(row).late_ms).collect();
    assert_eq!(late, [Some(5_000), Some(1_000), Some(1_001), None]);
    assert_eq!(account.totals.late, 2);
    // Of its first attempt nothing is on record: it may have left in time.
    assert_eq!((facts(3).untold, facts(2).untold), (1, 0));
    assert_eq!(facts(3).sent.unwrap().as_millisecond(), minute(4).0 + 9_000);
}

#[tokio::test]
async fn a_decided_slot_without_a_record_is_missing() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench.past(id.shard, vec![succeeded(id, minute(1)), succeeded(id, minute(3))]).await;
    bench.head(id.shard, &marked(minute(4))).await;
    bench.set_now(Instant(minute(4).0 + 1));
    let account = account(&bench, 0, 4).await;
    assert_eq!(
        rows(&account),
        [
            (1, 1, 1, Fate::Run),
            (2, 2, 1, Fate::Missing),
            (3, 3, 1, Fate::Run),
            (4, 4, 1, Fate::Missing)
        ]
    );
    assert_eq!(account.totals.missing, 2);
}

#[tokio::test]
async fn a_cursor_decides_too() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let state = TriggerState { cursor: Some(minute(2)), ..TriggerState::default() };
    bench.put(state_key(id.shard, id.serial), &state).await;
    bench.set_now(minute(3));
    let told = rows(&account(&bench, 2, 3).await);
    assert_eq!(told, [(2, 2, 1, Fate::Missing), (3, 3, 1, Fate::Pending)]);
}

#[tokio::test]
async fn slots_that_wait_for_a_host_that_lags_are_pending_and_not_missing() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.head(id.shard, &marked(minute(4))).await;
    let mark = |number| Mark(minute(number), SerialId(u64::MAX));
    let lag = LagRecord { since: minute(2), from: mark(0), mark: mark(1) };
    let url = minutely("hello").webhook.unwrap().url;
    let (method, timeout) = (Method::Post, Duration::from_secs(9));
    let webhook = Webhook::new(&url, method, Vec::new(), None, None, timeout).unwrap();
    bench.put(lag_key(id.shard, webhook.form.origin()), &lag).await;
    bench.set_now(Instant(minute(4).0 + 1));
    let account = account(&bench, 0, 4).await;
    assert_eq!(rows(&account), [(1, 1, 1, Fate::Run), (2, 4, 3, Fate::Pending)]);
    assert_eq!(account.host_lags_since.map(client::Timestamp::as_millisecond), Some(minute(2).0));
}

#[tokio::test]
async fn while_a_pause_lasts_its_slots_are_one_open_range() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.set_now(minute(1));
    bench.client.pause("hello", &PauseRequest { note: "x".into(), until: None }).await.unwrap();
    bench.head(id.shard, &marked(minute(5))).await;
    bench.set_now(minute(5));
    let account = account(&bench, 0, 5).await;
    assert_eq!(rows(&account), [(1, 1, 1, Fate::Run), (2, 5, 4, Fate::Paused)]);
    assert_eq!(account.paused.unwrap().note, "x");
    assert!(account.next.is_empty());
}

#[tokio::test]
async fn what_the_calendar_excludes_is_told_and_is_no_slot() {
    let bench = Bench::new().await;
    let mut spec = minutely("hello");
    let quiet = QuietSpec { days: Vec::new(), from: "08:02".into(), to: "08:05".into() };
    spec.schedule.as_mut().unwrap().quiet.push(quiet);
    let id = bench.create(&spec).await;
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.head(id.shard, &marked(minute(1))).await;
    bench.set_now(minute(5));
    let account = account(&bench, 0, 5).await;
    assert_eq!(
        rows(&account),
        [(1, 1, 1, Fate::Run), (2, 4, 3, Fate::Excluded), (5, 5, 1, Fate::Pending)]
    );
    assert_eq!((account.totals.slots, account.totals.excluded), (2, 3));
}

#[tokio::test]
async fn after_a_cancel_and_after_the_last_run_nothing_is_due() {
    let bench = Bench::new().await;
    let mut spec = minutely("hello");
    spec.schedule.as_mut().unwrap().limit = Some(2);
    let id = bench.create(&spec).await;
    bench.past(id.shard, vec![succeeded(id, minute(1)), succeeded(id, minute(2))]).await;
    bench.head(id.shard, &marked(minute(6))).await;
    let state = TriggerState { remaining: Some(0), ..TriggerState::default() };
    bench.put(state_key(id.shard, id.serial), &state).await;
    bench.set_now(minute(6));
    assert_eq!(rows(&account(&bench, 0, 6).await), [(1, 1, 1, Fate::Run), (2, 2, 1, Fate::Run)]);
    assert_eq!(rows(&account(&bench, 3, 6).await), []);
    let state = TriggerState { cancelled: Some(minute(2)), ..TriggerState::default() };
    bench.put(state_key(id.shard, id.serial), &state).await;
    assert_eq!(rows(&account(&bench, 0, 6).await), [(1, 1, 1, Fate::Run), (2, 2, 1, Fate::Run)]);
}

#[tokio::test]
async fn what_was_before_the_present_schedule_is_told_from_the_records() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench
        .past(id.shard, vec![skipped(id, -5, -3, Reason::Superseded), succeeded(id, minute(-2))])
        .await;
    let on_demand = Line::Run(Finished {
        project: engine::id::ProjectId::DEFAULT,
        trigger: id.serial,
        slot: Instant(minute(1).0 + 500),
        generation: None,
        sequence: Some(4),
        notice: None,
        queue: None,
        end: End::Succeeded,
        at: minute(2),
        attempt: 1,
        attempts: Vec::new(),
    });
    bench.past(id.shard, vec![on_demand]).await;
    bench.set_now(minute(1));
    let account = account(&bench, -10, 2).await;
    assert_eq!(
        rows(&account),
        [
            (-5, -3, 3, Fate::Skipped),
            (-2, -2, 1, Fate::Run),
            (1, 1, 1, Fate::Pending),
            (1, 1, 1, Fate::Run),
            (2, 2, 1, Fate::Coming),
        ]
    );
    assert_eq!(account.totals.slots, 6, "a run on demand is no slot");
}

#[tokio::test]
async fn an_account_that_is_too_long_goes_on_where_it_ended() {
    let bench = Bench::new().await;
    let spec = TriggerSpec::webhook("hello", "http://example.com").cron("* * * * * *");
    let id = bench.create(&spec).await;
    let slots = (1..=1_500).map(|second| Instant(NOW.0 + second * 1_000));
    bench.past(id.shard, slots.map(|slot| succeeded(id, slot)).collect()).await;
    bench.head(id.shard, &marked(minute(25))).await;
    bench.set_now(minute(25));
    let first = account(&bench, 0, 25).await;
    assert_eq!(first.rows.len(), 1_000);
    let more = first.more_from.unwrap();
    let second = bench.client.account("hello", Some(more), Some(first.to)).await.unwrap();
    assert_eq!((second.rows.len(), second.more_from), (500, None));
    assert_eq!(first.totals.succeeded + second.totals.succeeded, 1_500);
}

#[tokio::test]
async fn an_account_covers_the_last_hour_unless_told_otherwise() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let why = "the clock went forward".to_owned();
    bench.status.send_modify(|status| {
        status.firing = FiringState::Suspended { since: NOW, why: why.clone() }
    });
    let account = bench.client.account("hello", None, None).await.unwrap();
    assert_eq!(account.to.as_millisecond() - account.from.as_millisecond(), 3_600_000);
    assert_eq!(account.suspended, Some(why));
    for query in
        ["from=2027-01-15T08:00:00Z&to=2027-01-15T07:00:00Z", "from=1990-01-01T00:00:00Z", "to=x"]
    {
        bench.json("GET", &format!("/v1/triggers/hello/explain?{query}"), "").await.problem(422);
    }
}

#[tokio::test]
async fn what_lies_further_back_than_is_read_is_not_called_missing() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let other = TriggerId { serial: SerialId(1), ..id };
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.fill(id.shard, SEGMENTS_READ_MAX, &succeeded(other, minute(60))).await;
    bench.head(id.shard, &marked(minute(75))).await;
    bench.set_now(Instant(minute(75).0 + 1));
    let account = account(&bench, 0, 75).await;
    let told = rows(&account);
    // Clocks may have been set back by ten minutes; what lies later than that is surely missing.
    assert_eq!(told[0], (1, 70, 70, Fate::Unread));
    assert_eq!((account.totals.unread, account.totals.missing), (70, 5));
}

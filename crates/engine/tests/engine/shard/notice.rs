//! Who is told what: the rules of notices, one by one.

use engine::id::SerialId;
use engine::limits::NOTICES_PER_SHARD_MAX;
use engine::notice::{Listener, Occasion, Occasions};
use engine::outcome::Outcome;
use engine::past::{End, Finished, Line};
use engine::shard::Departure;
use engine::shard::command::{Command, Done};
use engine::webhook::Webhook;
use serde_json::{Value, json};

use super::bench::{Bench, draft};

const OK: Outcome = Outcome::Answered { status: 200, retry_after: None };
const REFUSED: Outcome = Outcome::Answered { status: 404, retry_after: None };
const BROKEN: Outcome = Outcome::Answered { status: 500, retry_after: None };
const GONE: Outcome = Outcome::Answered { status: 410, retry_after: None };

const EACH_SECOND: &str = r#"{"cron": "* * * * * *"}"#;
const EACH_HOUR: &str = r#"{"cron": "0 0 * * * *"}"#;

fn listener(url: &str) -> Listener {
    Listener::new("default", url, Occasions::USUAL).unwrap()
}

/// A bench to which somebody listens, as usual.
fn heard() -> Bench {
    let mut bench = Bench::new();
    bench.hear(Some(listener("http://chat.test/hook")));
    bench
}

fn webhook_of(left: &Departure) -> &Webhook {
    &left.webhook
}

fn host_of(left: &Departure) -> &str {
    &webhook_of(left).form.host
}

/// Every run that is under way ends like this.
fn answer(bench: &mut Bench, outcome: Outcome) {
    while let Some(place) = bench.left.iter().position(|left| host_of(left) == "receiver.test") {
        bench.left.swap(0, place);
        bench.finish(outcome);
    }
    bench.go(bench.wall + 60);
}

/// The run of a second, and how it ends.
fn ring(bench: &mut Bench, second: i64, outcome: Outcome) {
    bench.go(second * 1_000);
    answer(bench, outcome);
}

/// What is on its way to whoever listens, which is taken.
fn told(bench: &mut Bench) -> Vec<Value> {
    let mut told = Vec::new();
    while let Some(place) = bench.left.iter().position(|left| host_of(left) != "receiver.test") {
        let body = webhook_of(&bench.left[place]).body.as_ref();
        told.push(serde_json::from_str(body.unwrap()).unwrap());
        bench.left.swap(0, place);
        bench.finish(OK);
    }
    bench.go(bench.wall + 60);
    told
}

fn events(bench: &mut Bench) -> Vec<String> {
    told(bench).iter().map(|told| told["event"].as_str().unwrap().to_owned()).collect()
}

/// Notices that are past.
fn past(bench: &Bench) -> Vec<&Finished> {
    let runs = bench.past.iter().filter_map(|line| match line {
        Line::Run(run) => run.notice.map(|_| run),
        Line::Skip(_) => None,
    });
    runs.collect()
}

fn resume(bench: &mut Bench, trigger: SerialId) {
    let done = bench.ask(Command::Resume { trigger, author: String::new() });
    assert_eq!(done, Some(Done::Resumed));
}

#[test]
fn ten_failures_give_one_notice_and_the_first_success_another() {
    let mut bench = heard();
    bench.create(draft(EACH_SECOND, r#"{"retry": {"attempts": 1}}"#));
    let mut all = Vec::new();
    for second in 1..=10 {
        ring(&mut bench, second, BROKEN);
        all.extend(told(&mut bench));
    }
    let [failure] = &all[..] else { panic!("{all:?}") };
    assert_eq!(failure["event"], "failure");
    assert_eq!(failure["text"], "t0 (default) failed: the receiver answered 500");
    assert_eq!((&failure["project"], &failure["trigger"]), (&json!("default"), &json!("t0")));
    assert_eq!((&failure["state"], &failure["attempts"]), (&json!("dead"), &json!(1)));
    assert_eq!(failure["slot"], "2027-01-15T08:00:01Z");
    assert!(failure["run"].as_str().unwrap().starts_with("run_"), "{failure}");

    ring(&mut bench, 11, OK);
    ring(&mut bench, 12, OK);
    assert_eq!(events(&mut bench), ["recovery"]);
    ring(&mut bench, 13, REFUSED);
    assert_eq!(events(&mut bench), ["failure"]);
    let ends: Vec<_> = past(&bench).iter().map(|run| (run.notice.unwrap(), run.end)).collect();
    let (failure, recovery) = (Occasion::Failure, Occasion::Recovery);
    assert_eq!(
        ends,
        [(failure, End::Succeeded), (recovery, End::Succeeded), (failure, End::Succeeded)]
    );
}

#[test]
fn a_crash_at_any_moment_neither_loses_a_notice_nor_doubles_it() {
    let mut bench = heard();
    bench.create(draft(EACH_SECOND, r#"{"retry": {"attempts": 1}, "catch_up": "skip"}"#));
    ring(&mut bench, 1, BROKEN);
    let first = bench.left.iter().find(|left| host_of(left) == "chat.test").unwrap();
    let (id, number) = (first.run, first.attempt);
    bench.take_over(1_500);
    ring(&mut bench, 2, BROKEN);
    let notices: Vec<_> = bench.left.iter().filter(|left| host_of(left) == "chat.test").collect();
    let [again] = notices[..] else { panic!("{notices:?}") };
    assert_eq!((again.run, again.attempt), (id, number + 1), "the same, once more");
    assert_eq!(events(&mut bench), ["failure"]);
    bench.take_over(2_500);
    ring(&mut bench, 3, BROKEN);
    assert_eq!(events(&mut bench), [""; 0], "the streak is known to who comes after");
    ring(&mut bench, 4, OK);
    bench.take_over(4_500);
    bench.go(4_600);
    assert_eq!(events(&mut bench), ["recovery"]);
}

#[test]
fn a_pause_that_nobody_asked_for_is_told_and_one_that_somebody_did_is_not() {
    for (policy, outcomes, why) in [
        (r#"{"pause_after": 2}"#, [REFUSED, REFUSED], "2 runs failed in a row"),
        ("{}", [OK, GONE], "the receiver answered 410: it is gone for good"),
    ] {
        let mut bench = heard();
        let trigger = bench.create(draft(EACH_SECOND, policy));
        let mut all = Vec::new();
        for (second, outcome) in (1..).zip(outcomes) {
            ring(&mut bench, second, outcome);
            all.extend(told(&mut bench));
        }
        let events: Vec<_> = all.iter().map(|told| told["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["failure", "paused"]);
        assert_eq!(all[1]["text"], format!("t0 (default) was paused: {why}"));
        resume(&mut bench, trigger);
        bench.pause(trigger);
        bench.go(4_000);
        assert_eq!(told(&mut bench), [json!(null); 0]);
    }
}

#[test]
fn who_wants_to_know_of_successes_is_told_of_each() {
    let mut bench = heard();
    bench.create(draft(EACH_SECOND, r#"{"notify": ["success", "failure"]}"#));
    bench.create(draft(EACH_SECOND, r#"{"notify": "none"}"#));
    bench.create(draft(EACH_SECOND, "{}"));
    ring(&mut bench, 1, OK);
    ring(&mut bench, 2, OK);
    assert_eq!(events(&mut bench), ["success", "success"]);
    ring(&mut bench, 3, REFUSED);
    assert_eq!(events(&mut bench), ["failure", "failure"], "the second wants to know nothing");
    ring(&mut bench, 4, OK);
    let mut last = events(&mut bench);
    last.sort();
    assert_eq!(last, ["recovery", "success"], "the first did not ask for recoveries");
}

#[test]
fn what_does_not_succeed_in_time_is_told_once_until_it_does() {
    let mut bench = heard();
    let trigger =
        bench.create(draft(EACH_HOUR, r#"{"alert_after": "90m", "retry": {"attempts": 1}}"#));
    let hour = 3_600;
    ring(&mut bench, hour, OK);
    bench.go((2 * hour + 1_799) * 1_000);
    answer(&mut bench, BROKEN);
    assert_eq!(events(&mut bench), ["failure"], "89 minutes since the last success");
    bench.take_over((2 * hour + 1_802) * 1_000);
    bench.go((2 * hour + 1_803) * 1_000);
    let overdue = told(&mut bench);
    assert_eq!(overdue.len(), 1, "{overdue:?}");
    assert_eq!(overdue[0]["text"], "t0 (default) has not succeeded for 1h30m");
    ring(&mut bench, 3 * hour, BROKEN);
    ring(&mut bench, 6 * hour, BROKEN);
    assert_eq!(events(&mut bench), [""; 0]);
    ring(&mut bench, 7 * hour, OK);
    assert_eq!(events(&mut bench), ["recovery"]);
    bench.go((8 * hour + 1_802) * 1_000);
    assert_eq!(events(&mut bench), ["overdue"], "it is watched anew");

    // One that is paused is not watched, and one that is resumed from then on.
    ring(&mut bench, 9 * hour, OK);
    told(&mut bench);
    bench.pause(trigger);
    bench.go(20 * hour * 1_000);
    assert_eq!(events(&mut bench), [""; 0]);
    resume(&mut bench, trigger);
    bench.go((20 * hour + 5_399) * 1_000);
    answer(&mut bench, BROKEN);
    assert_eq!(events(&mut bench), ["failure"]);
    bench.go((20 * hour + 5_401) * 1_000);
    assert_eq!(events(&mut bench), ["overdue"]);
}

#[test]
fn what_never_succeeded_is_overdue_since_it_was_made() {
    let mut bench = heard();
    bench.create(draft(EACH_HOUR, r#"{"alert_after": "10m"}"#));
    bench.go(599_000);
    assert_eq!(events(&mut bench), [""; 0]);
    bench.go(600_000);
    assert_eq!(events(&mut bench), ["overdue"]);
}

#[test]
fn a_notice_is_tried_again_and_nobody_is_told_what_becomes_of_it() {
    let mut bench = heard();
    bench.create(draft(r#"{"at": ["2027-01-15T08:00:01Z"]}"#, r#"{"pause_after": 1}"#));
    ring(&mut bench, 1, REFUSED);
    let mut attempts = 0;
    for second in 2..2_000 {
        while !bench.left.is_empty() {
            attempts += 1;
            bench.finish(BROKEN);
        }
        bench.go(second * 1_000);
    }
    assert_eq!(attempts, 12, "six for the failure, six for the pause");
    let ends: Vec<_> = past(&bench).iter().map(|run| (run.end, run.attempt)).collect();
    assert_eq!(ends, [(End::Dead, 6); 2]);
}

#[test]
fn a_notice_goes_to_who_listens_when_it_leaves() {
    let mut bench = heard();
    bench.create(draft(EACH_HOUR, r#"{"retry": {"attempts": 1}}"#));
    ring(&mut bench, 3_600, BROKEN);
    bench.finish(BROKEN);
    bench.hear(Some(listener("http://other.test/hook")));
    bench.go(3_610_000);
    assert_eq!(host_of(&bench.left[0]), "other.test");
    bench.finish(BROKEN);
    bench.hear(None);
    bench.go(3_640_000);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    assert_eq!(past(&bench)[0].end, End::Cancelled);
}

#[test]
fn a_notice_stands_in_nobodys_way_and_goes_on_without_its_trigger() {
    let mut bench = heard();
    let policy = r#"{"overlap": "skip", "retry": {"attempts": 1}}"#;
    let trigger = bench.create(draft(EACH_SECOND, policy));
    ring(&mut bench, 1, BROKEN);
    assert_eq!(bench.left.len(), 1, "the notice is under way");
    bench.go(2_000);
    assert_eq!(bench.left.len(), 2, "and the next run as well: {:?}", bench.skips());
    answer(&mut bench, BROKEN);
    assert_eq!(bench.ask(Command::Delete { trigger, author: String::new() }), Some(Done::Deleted));
    bench.go(3_000);
    assert_eq!(events(&mut bench), ["failure"]);
    assert_eq!(past(&bench)[0].end, End::Succeeded);
}

#[test]
fn notices_that_are_too_many_are_given_up_and_that_is_on_record() {
    let mut bench = heard();
    bench.room.writes = 100_000;
    bench.room.bytes = 1 << 30;
    for _ in 0..=NOTICES_PER_SHARD_MAX {
        bench.create(draft(r#"{"at": ["2027-01-15T08:01:00Z"]}"#, "{}"));
    }
    bench.go(60_000);
    answer(&mut bench, REFUSED);
    let waiting = bench.runs().filter(|run| run.notice.is_some()).count();
    assert_eq!(waiting, NOTICES_PER_SHARD_MAX);
    let given_up = past(&bench);
    assert_eq!(given_up.len(), 1);
    assert_eq!((given_up[0].end, given_up[0].attempt), (End::Expired, 0));
}

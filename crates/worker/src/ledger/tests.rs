//! The rules of the protocol, without a server: what a worker says follows from what it was told.

use client::worker::{Ack, RunResult};
use serde_json::json;

use super::*;

const LEASE: Duration = Duration::from_secs(15);

fn at(seconds: f64) -> Duration {
    Duration::from_secs(1_000) + Duration::from_secs_f64(seconds)
}

fn held(id: &str, token: u64) -> HeldRun {
    HeldRun { id: id.to_owned(), token }
}

fn given(id: &str, token: u64) -> ClaimedRun {
    let run = json!({
        "id": id, "token": token, "attempt": 1, "queue": "q", "handler": "echo", "scheduled": "2027-01-15T09:00:00Z",
    });
    serde_json::from_value(run).unwrap()
}

fn done(id: &str, token: u64) -> DoneRun {
    let done = json!({"id": id, "token": token, "result": "succeeded"});
    serde_json::from_value(done).unwrap()
}

fn ack(id: &str, counted: bool) -> Ack {
    Ack { id: id.to_owned(), token: 1, counted }
}

fn answer(as_of: u64) -> ClaimAnswer {
    ClaimAnswer { cookie: "1:a".to_owned(), as_of, ..ClaimAnswer::default() }
}

fn ledger_with(results: Vec<DoneRun>, since: u64) -> Ledger {
    let (name, queues) = ("w".to_owned(), vec!["q".to_owned()]);
    let labels = BTreeMap::from([("zone".to_owned(), "b".to_owned())]);
    Ledger::new(Life { name, queues, incarnation: 7, since, lease: LEASE, labels }, results)
}

fn ledger() -> Ledger {
    ledger_with(Vec::new(), 7)
}

impl Ledger {
    fn next_claim(&mut self, now: Duration) -> Request {
        self.claim(now, vec!["q".to_owned()], 10, Duration::from_secs(5))
    }

    /// Sends a claim that is answered at once.
    fn told(&mut self, now: Duration, change: impl FnOnce(&mut ClaimAnswer)) -> News {
        let request = self.next_claim(now);
        let mut answer = answer(request.number());
        change(&mut answer);
        self.answered(&request, answer, now)
    }

    fn is_given(&mut self, now: Duration, runs: &[(&str, u64)]) -> News {
        let runs = runs.iter().map(|(id, token)| given(id, *token)).collect();
        self.told(now, |answer| answer.runs = runs)
    }
}

fn claim(request: &Request) -> &ClaimRequest {
    let Request::Claim(claim) = request else { panic!("it is a beat: {request:?}") };
    claim
}

fn beat(request: &Request) -> &BeatRequest {
    let Request::Beat(beat) = request else { panic!("it is a claim: {request:?}") };
    beat
}

/// Whose results a claim reports.
fn said(request: &Request) -> Vec<&str> {
    claim(request).done.iter().map(|done| done.id.as_str()).collect()
}

#[test]
fn the_first_claim_has_no_cookie_and_the_next_one_sends_what_was_told() {
    let mut ledger = ledger();
    let first = ledger.next_claim(at(0.0));
    assert_eq!(claim(&first).cookie, None);
    ledger.answered(&first, answer(1), at(0.0));
    let second = ledger.next_claim(at(0.0));
    let second = claim(&second);
    assert_eq!(second.cookie.as_deref(), Some("1:a"));
    assert_eq!((second.number, second.settled), (2, 1));
    assert_eq!((second.incarnation, second.since, second.lease_ms), (7, 7, Some(15_000)));
    assert_eq!(second.labels["zone"], "b");
}

#[test]
fn a_beat_beside_an_open_claim_settles_only_claims_before_it() {
    let mut ledger = ledger();
    ledger.told(at(0.0), |_| ());
    ledger.beat(at(0.0));
    let third = ledger.next_claim(at(0.0));
    assert_eq!((third.number(), claim(&third).settled), (3, 2));
    assert_eq!(beat(&ledger.beat(at(1.0))).settled, 2);
    ledger.failed(&third);
    assert_eq!(beat(&ledger.beat(at(2.0))).settled, 4);
}

#[test]
fn an_answer_to_a_claim_that_is_given_up_gives_no_runs() {
    let mut ledger = ledger();
    let first = ledger.next_claim(at(0.0));
    ledger.failed(&first);
    let told = ClaimAnswer { runs: vec![given("a", 1)], ..answer(1) };
    assert_eq!(ledger.answered(&first, told.clone(), at(1.0)).runs, []);
    let _newer = ledger.next_claim(at(1.0));
    assert_eq!((ledger.answered(&first, told, at(1.0)).runs, ledger.named()), (vec![], 0));
}

#[test]
fn a_run_is_confirmed_from_the_sending_of_the_request_that_was_heard_last() {
    let mut ledger = ledger();
    let first = ledger.next_claim(at(0.0));
    let told = ClaimAnswer { runs: vec![given("a", 1)], ..answer(1) };
    ledger.answered(&first, told, at(14.0));
    assert!(ledger.begin(&held("a", 1), at(14.9)));
    let second = ledger.next_claim(at(20.0));
    let told = ClaimAnswer { runs: vec![given("b", 1)], ..answer(2) };
    ledger.answered(&second, told, at(35.0));
    assert!(!ledger.begin(&held("b", 1), at(35.0)));
    assert_eq!(beat(&ledger.beat(at(35.0))).released, [held("b", 1)]);
}

#[test]
fn a_beat_confirms_what_it_named_but_for_what_was_not_heard() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1), ("b", 1)]);
    let second = ledger.beat(at(10.0));
    let told = ClaimAnswer { unheard: vec![held("b", 1)], ..answer(2) };
    ledger.answered(&second, told, at(10.0));
    assert!(ledger.begin(&held("a", 1), at(20.0)));
    assert!(!ledger.begin(&held("b", 1), at(20.0)));
}

#[test]
fn an_answer_that_heard_an_older_request_confirms_from_that_ones_sending() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    let _unheard = ledger.beat(at(5.0));
    let third = ledger.beat(at(10.0));
    ledger.answered(&third, answer(2), at(10.0));
    assert!(!ledger.begin(&held("a", 1), at(20.0)));
}

#[test]
fn a_number_that_is_not_remembered_confirms_nothing() {
    let mut ledger = ledger();
    ledger.told(at(0.0), |answer| {
        answer.runs = vec![given("a", 1)];
        answer.as_of = 99;
    });
    assert!(!ledger.begin(&held("a", 1), at(0.0)));
}

#[test]
fn a_result_is_repeated_until_it_is_acknowledged() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    ledger.begin(&held("a", 1), at(0.0));
    assert_eq!(beat(&ledger.beat(at(0.0))).running, Some(vec![held("a", 1)]));
    assert!(ledger.finish(done("a", 1)));
    for _ in 0..2 {
        let request = ledger.next_claim(at(0.0));
        let said = claim(&request);
        assert_eq!((&said.done, said.running.len(), said.wait_ms), (&vec![done("a", 1)], 0, 0));
        ledger.failed(&request);
    }
    let news = ledger.told(at(0.0), |answer| answer.acks = vec![ack("a", true)]);
    assert_eq!((ledger.named(), news.uncounted, news.closed), (0, vec![], vec![held("a", 1)]));
}

#[test]
fn a_result_that_came_too_late_is_told_and_forgotten() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    ledger.finish(done("a", 1));
    let news = ledger.told(at(0.0), |answer| answer.acks = vec![ack("a", false)]);
    assert_eq!((news.uncounted, ledger.named()), (vec![held("a", 1)], 0));
}

#[test]
fn a_result_that_two_requests_said_may_have_counted_by_the_one_that_is_not_answered_yet() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    ledger.finish(done("a", 1));
    ledger.next_claim(at(0.0));
    let news = ledger.told(at(0.0), |answer| answer.acks = vec![ack("a", false)]);
    assert_eq!((news.uncounted, news.closed, ledger.named()), (vec![], vec![held("a", 1)], 0));
}

#[test]
fn a_result_that_its_owner_did_not_take_is_named_and_sent_again_later() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    ledger.finish(done("a", 1));
    ledger.told(at(1.0), |_| ());
    let request = ledger.next_claim(at(1.05));
    let said = claim(&request);
    assert_eq!((said.done.len(), &said.running), (0, &vec![held("a", 1)]));
    assert_eq!(said.wait_ms, 5_000);
    assert_eq!(beat(&ledger.beat(at(1.2))).done.len(), 1);
}

#[test]
fn what_is_given_back_and_its_owner_did_not_hear_is_said_again_later() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    ledger.release(&held("a", 1));
    assert!(ledger.has_news(at(0.0)));
    ledger.told(at(1.0), |_| ());
    assert_eq!((ledger.has_news(at(1.05)), ledger.report_at()), (false, Some(at(1.1))));
    let request = ledger.next_claim(at(1.05));
    // It is named all the same: what a request does not name, the worker does not have.
    assert_eq!(
        (claim(&request).wait_ms, &claim(&request).released[..]),
        (5_000, &[held("a", 1)][..])
    );
    ledger.told(at(2.0), |_| ());
    assert_eq!(ledger.report_at(), Some(at(2.2)), "the pause doubles");
    ledger.told(at(3.0), |answer| answer.acks = vec![ack("a", true)]);
    assert_eq!((ledger.named(), ledger.report_at()), (0, None));
}

#[test]
fn results_that_find_no_place_in_a_request_are_named() {
    let mut ledger = ledger();
    let ids: Vec<String> = (0..RUNS_MAX).map(|number| format!("run_{number:028}")).collect();
    let runs: Vec<(&str, u64)> = ids.iter().map(|id| (id.as_str(), u64::MAX)).collect();
    ledger.is_given(at(0.0), &runs);
    for id in &ids {
        let error = Some("\u{1}".repeat(1_000));
        ledger.finish(DoneRun { result: RunResult::Failed, error, ..done(id, u64::MAX) });
    }
    let request = ledger.next_claim(at(0.0));
    let said = claim(&request);
    assert!(said.done.len() > 5, "{}", said.done.len());
    assert_eq!(said.done.len() + said.running.len(), RUNS_MAX);
    assert!(serde_json::to_vec(said).unwrap().len() < 256 * 1024);
}

#[test]
fn results_that_their_owner_did_not_take_hold_up_no_others() {
    let long = |id: &str| DoneRun { error: Some("x".repeat(DONE_BYTES_MAX / 2)), ..done(id, 1) };
    let mut ledger = ledger_with(vec![long("a"), long("b")], 7);
    let first = ledger.next_claim(at(0.0));
    assert_eq!(said(&first), ["a"]);
    ledger.answered(&first, answer(1), at(0.0));
    assert!(ledger.has_news(at(0.0)), "b was not said yet");
    let second = ledger.next_claim(at(0.0));
    assert_eq!((said(&second), claim(&second).running.len()), (vec!["b"], 1));
}

#[test]
fn what_ends_while_an_owner_is_away_is_said_at_once_and_puts_off_nothing() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    ledger.finish(done("a", 1));
    ledger.told(at(1.0), |_| ());
    ledger.finish(done("b", 1));
    ledger.release(&held("c", 1));
    let request = ledger.next_claim(at(1.05));
    assert_eq!((said(&request), claim(&request).wait_ms), (vec!["b"], 0));
    let told = ClaimAnswer { acks: vec![ack("b", true)], ..answer(request.number()) };
    ledger.answered(&request, told, at(1.05));
    assert_eq!(ledger.report_at(), Some(at(1.1)), "a waits for its pause, and no longer");
    ledger.release(&held("d", 1));
    assert!(ledger.has_news(at(1.06)), "d is given back at once");
    ledger.told(at(1.06), |_| ());
    assert_eq!(ledger.report_at(), Some(at(1.1)));
    assert_eq!(said(&ledger.next_claim(at(1.1))), ["a"]);
}

#[test]
fn results_that_are_taken_piece_by_piece_wait_for_no_pause() {
    let long = |id: &str| DoneRun { error: Some("x".repeat(DONE_BYTES_MAX / 2)), ..done(id, 1) };
    let mut ledger = ledger_with(vec![long("a"), long("b")], 7);
    for now in [0.0, 0.01] {
        ledger.told(at(now), |_| ());
    }
    let news = ledger.told(at(1.0), |answer| answer.acks = vec![ack("a", true)]);
    assert_eq!((news.closed, ledger.has_news(at(1.0))), (vec![held("a", 1)], true));
}

#[test]
fn a_request_that_reached_nobody_said_nothing_so_a_late_result_is_told_all_the_same() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    ledger.finish(done("a", 1));
    for now in [1.0, 2.0, 3.0] {
        let request = ledger.next_claim(at(now));
        assert_eq!(said(&request), ["a"]);
        ledger.unheard(&request);
    }
    let news = ledger.told(at(60.0), |answer| answer.acks = vec![ack("a", false)]);
    assert_eq!((news.uncounted, ledger.named()), (vec![held("a", 1)], 0));
}

#[test]
fn a_result_that_was_said_may_have_counted_although_its_run_is_lost_by_now() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1)]);
    ledger.finish(done("a", 1));
    ledger.told(at(1.0), |_| ());
    let news = ledger.told(at(1.05), |answer| answer.lost = vec![held("a", 1)]);
    assert_eq!((news.uncounted, news.closed), (vec![], vec![held("a", 1)]));
}

#[test]
fn a_run_that_is_lost_is_forgotten_with_its_result() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1), ("b", 1)]);
    let request = ledger.next_claim(at(0.0));
    ledger.finish(done("a", 1));
    let told = ClaimAnswer { lost: vec![held("a", 1), held("b", 1)], ..answer(request.number()) };
    let news = ledger.answered(&request, told, at(0.0));
    assert_eq!((news.lost, news.uncounted), (vec![held("b", 1)], vec![held("a", 1)]));
    assert_eq!((news.closed.len(), ledger.named()), (2, 0));
    assert!(!ledger.finish(done("b", 1)));
}

#[test]
fn a_newer_token_of_a_run_ends_the_older_one_and_an_older_one_changes_nothing() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1), ("b", 1)]);
    let news = ledger.is_given(at(0.0), &[("a", 2)]);
    assert_eq!(news.lost, [held("a", 1)]);
    assert_eq!(
        ledger.is_given(at(0.0), &[("a", 1), ("a", 2)]),
        News { refused: Some(Vec::new()), ..News::default() }
    );
    let running = vec![held("a", 2), held("b", 1)];
    assert_eq!(beat(&ledger.beat(at(0.0))).running, Some(running));
}

#[test]
fn cancel_is_said_of_what_the_worker_has() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1), ("b", 1)]);
    ledger.finish(done("b", 1));
    let news = ledger.told(at(0.0), |answer| answer.cancel = vec![held("a", 1), held("b", 1)]);
    assert_eq!(news.cancel, [held("a", 1)]);
}

#[test]
fn whoever_drains_gives_back_what_has_not_begun_and_asks_for_nothing() {
    let mut ledger = ledger();
    ledger.is_given(at(0.0), &[("a", 1), ("b", 1), ("c", 1)]);
    ledger.begin(&held("a", 1), at(0.0));
    assert_eq!(ledger.drain(), [held("b", 1), held("c", 1)]);
    let request = ledger.next_claim(at(0.0));
    let said = claim(&request);
    assert_eq!((said.free, said.wait_ms, said.draining), (0, 0, true));
    assert_eq!(said.running, [held("a", 1)]);
    assert_eq!(said.released, [held("b", 1), held("c", 1)]);
    assert!(!ledger.begin(&held("b", 1), at(0.0)), "what was given back does not begin");
    ledger.told(at(0.0), |answer| answer.acks = vec![ack("b", true)]);
    assert_eq!(beat(&ledger.beat(at(0.0))).released, [held("c", 1)]);
}

#[test]
fn a_worker_never_has_more_than_it_can_name() {
    let mut ledger = ledger();
    let ids: Vec<String> = (0..995).map(|number| format!("run_{number}")).collect();
    let runs: Vec<(&str, u64)> = ids.iter().map(|id| (id.as_str(), 1)).collect();
    ledger.is_given(at(0.0), &runs);
    let request = ledger.claim(at(0.0), vec![], 1_000, LEASE);
    assert_eq!(claim(&request).free, 5);
    let left = (0..RUNS_MAX).map(|number| done(&format!("run_{number}"), 1)).collect();
    let mut ledger = ledger_with(left, 7);
    assert_eq!((claim(&ledger.next_claim(at(0.0))).free, ledger.room()), (0, 0));
}

#[test]
fn what_former_lives_left_is_reported_first_and_until_it_is_acknowledged() {
    let died = DoneRun { result: RunResult::Died, ..done("b", 1) };
    let mut ledger = ledger_with(vec![done("a", 1), died.clone()], 0);
    let request = ledger.next_claim(at(0.0));
    let said = claim(&request);
    assert_eq!((&said.done, said.since), (&vec![done("a", 1), died.clone()], 0));
    let told = ClaimAnswer { acks: vec![ack("a", true)], ..answer(1) };
    ledger.answered(&request, told, at(0.0));
    assert_eq!(beat(&ledger.beat(at(1.0))).done, [died]);
}

#[test]
fn a_strict_run_is_to_end_when_it_is_not_confirmed_in_time() {
    let mut ledger = ledger();
    let strict = ClaimedRun { strict: true, ..given("a", 1) };
    ledger.told(at(0.0), |answer| answer.runs = vec![strict, given("b", 1)]);
    for id in ["a", "b"] {
        assert!(ledger.begin(&held(id, 1), at(0.0)));
    }
    assert_eq!(
        (ledger.unconfirmed(at(14.9)), ledger.unconfirmed_at(at(1.0))),
        (vec![], Some(at(15.0)))
    );
    let second = ledger.beat(at(10.0));
    let news = ledger.answered(&second, answer(2), at(11.0));
    assert_eq!(news.confirmed, [(held("a", 1), at(25.0))]);
    assert_eq!(ledger.unconfirmed(at(24.9)), []);
    assert_eq!(ledger.unconfirmed(at(25.0)), [held("a", 1)], "b is of a queue that is not strict");
    ledger.finish(DoneRun { result: RunResult::Stopped, ..done("a", 1) });
    assert_eq!((ledger.unconfirmed(at(26.0)), ledger.unconfirmed_at(at(26.0))), (vec![], None));
}

//! Keeping a session: how long it is good, and what ends it.

use sim::clock::{MS, TrueTime};
use store::Commit;
use store::session::{SessionEnd, SessionRecord};

use super::bench::{
    BEAT, Bench, JoinedNode, LANE, NOON_US, PATIENCE, PAUSE, POLL, T, TRIP, check_between,
};
use super::tap::Fault;

#[test]
fn validity_runs_from_the_sending_of_a_renewal_and_not_from_its_answer() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let slow = 600 * MS;
    anna.host.change(|site| site.back.delay = slow);
    for _ in 0..5 {
        let sent = bench.run_to_renewal(&anna);
        assert_eq!(anna.valid_for(), T - (bench.now() - sent));
    }
    let answered = bench.now();
    bench.run_for(100 * MS);
    assert_eq!(anna.valid_for(), T - (bench.now() - anna.last_renewal()));
    assert!(answered > anna.last_renewal() + MS, "answers take a while here");
}

#[test]
fn a_renewal_whose_answer_is_lost_is_credited_to_the_attempt_that_won() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    bench.run_to_renewal(&anna);
    // The first is lost, the second is done, the third meets it, and after that nothing leaves.
    let script = [Fault::lose(), Fault::LoseAnswer, Fault::Pass];
    anna.host.tap.on("node/", script.into_iter().chain((0..99).map(|_| Fault::refuse())));
    let before = anna.host.tap.sent("node/").len();
    bench.run_for(BEAT + 4 * PAUSE);
    let sent = anna.host.tap.sent("node/");
    assert!(sent.len() > before + 3);
    let won = sent[before + 1].at;
    assert_eq!(anna.valid_for(), T - (bench.now() - won));
}

#[test]
fn a_renewal_that_is_not_answered_is_made_again_after_a_pause() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    bench.run_to_renewal(&anna);
    anna.host.tap.on("node/", [Fault::lose(), Fault::refuse()]);
    let last = anna.last_renewal();
    bench.run_to_renewal(&anna);
    check_between(anna.last_renewal(), last + BEAT + 2 * PAUSE, last + BEAT + 2 * PAUSE + MS);
}

#[test]
fn a_node_that_no_longer_works_lapses_and_is_buried_by_another() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    bench.run_for(T);
    anna.hang();
    let last = anna.last_renewal();
    bench.run_until(last + T - MS, || false);
    assert!(anna.session.is_valid());
    bench.run_for(2 * MS);
    assert!(!anna.session.is_valid(), "it has lapsed, and no renewal was sent");
    assert_eq!(anna.last_renewal(), last);
    bench.run_until(last + 2 * T, || !bench.is_there(&anna.session));
    check_between(bench.now(), last + PATIENCE, last + PATIENCE + POLL + 3 * TRIP);
    assert!(bert.session.is_valid());
    anna.recover();
    assert_eq!(bench.finish(&anna.keeping), SessionEnd::Lost);
}

#[test]
fn a_node_that_works_again_in_time_is_renewed_within_a_pause() {
    let bench = Bench::new();
    let (anna, _bert) = (bench.node("anna"), bench.node("bert"));
    let last = bench.run_to_renewal(&anna);
    anna.hang();
    bench.run_until(last + T * 11 / 10, || false);
    assert!(!anna.session.is_valid());
    anna.recover();
    bench.run_for(PAUSE + TRIP);
    assert!(anna.session.is_valid());
    bench.run_for(3 * T);
    assert_eq!(anna.session.end(), None);
}

#[test]
fn a_lapse_is_no_loss() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let last = bench.run_to_renewal(&anna);
    anna.host.cut();
    // Attempts are made at 0.2, 0.5, 0.8 and 1.1 T, since each waits T/4 for an answer.
    bench.run_until(last + T * 21 / 20, || false);
    assert!(!anna.session.is_valid());
    anna.host.heal();
    bench.run_until(last + T * 23 / 20, || false);
    assert!(anna.session.is_valid());
    bench.run_for(3 * T);
    assert!(anna.session.is_valid() && bench.is_there(&anna.session));
    assert!(bert.session.roster().borrow().contains(anna.session.key()));
}

#[test]
fn a_cut_that_outlasts_the_patience_of_others_is_a_loss() {
    let bench = Bench::new();
    let (anna, _bert) = (bench.node("anna"), bench.node("bert"));
    bench.run_to_renewal(&anna);
    anna.host.cut();
    bench.run_for(PATIENCE + 2 * POLL);
    assert!(!bench.is_there(&anna.session));
    assert_eq!(anna.session.end(), None, "it cannot know yet");
    anna.host.heal();
    assert_eq!(bench.finish(&anna.keeping), SessionEnd::Lost);
}

/// When "lapsed", "unrenewed for 0.6 T" and "ended" came true, if they did.
fn watch(bench: &Bench, node: &JoinedNode) -> [Box<dyn Fn() -> Option<TrueTime>>; 3] {
    let [first, second, third] = [(); 3].map(|()| node.session.clone());
    let lapsed = bench.spawn(async move { first.lapsed().await });
    let stretch = second.ttl().length() * 3 / 5;
    let unrenewed = bench.spawn(async move { second.unrenewed_for(stretch).await });
    let ended = bench.spawn(async move { third.ended().await });
    [
        Box::new(move || lapsed.done_at()),
        Box::new(move || unrenewed.done_at()),
        Box::new(move || ended.done_at()),
    ]
}

#[test]
fn nothing_is_over_while_renewals_go_on() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let signals = watch(&bench, &anna);
    bench.run_for(10 * T);
    assert_eq!(signals.map(|done_at| done_at()), [None; 3]);
}

#[test]
fn deadlines_are_counted_from_the_last_renewal_and_come_to_the_instant() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let [lapsed, unrenewed, ended] = watch(&bench, &anna);
    bench.run_for(T);
    let last = bench.run_to_renewal(&anna);
    anna.host.cut();
    bench.run_for(3 * T);
    check_between(unrenewed().unwrap(), last + T * 3 / 5, last + T * 3 / 5 + MS / 10);
    check_between(lapsed().unwrap(), last + T, last + T + MS / 10);
    assert_eq!(ended(), None, "a lapse is no end");
}

#[test]
fn an_end_is_noticed_by_the_next_renewal_and_ends_every_wait() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let signals = watch(&bench, &anna);
    bench.run_for(T);
    let last = bench.run_to_renewal(&anna);
    bench.put(&Commit::new().delete(anna.session.key().key().clone()));
    bench.run_for(T);
    for done_at in signals {
        // The renewal meets a conflict, and then the record is looked for.
        check_between(done_at().unwrap(), last + BEAT, last + BEAT + 2 * TRIP);
    }
    assert_eq!((anna.session.end(), anna.valid_for()), (Some(SessionEnd::Lost), 0));
}

#[test]
fn closing_ends_everything_at_once_and_deletes_the_record() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let signals = watch(&bench, &anna);
    bench.run_for(T);
    let begun = bench.now();
    bench.wait(anna.close());
    assert!(bench.now() <= begun + TRIP);
    assert!(!bench.is_there(&anna.session));
    for done_at in signals {
        assert_eq!(done_at(), Some(begun));
    }
    assert_eq!(bench.finish(&anna.keeping), SessionEnd::Closed);
}

#[test]
fn closing_tries_for_one_lease_and_leaves_the_rest_to_patience() {
    let bench = Bench::new();
    let (anna, _bert) = (bench.node("anna"), bench.node("bert"));
    bench.run_to_renewal(&anna);
    anna.host.cut();
    let begun = bench.now();
    bench.wait(anna.close());
    check_between(bench.now(), begun + T, begun + T + MS);
    assert!(!anna.session.is_valid() && bench.is_there(&anna.session));
    bench.run_until(begun + PATIENCE + 2 * POLL + LANE.delay, || false);
    assert!(!bench.is_there(&anna.session));
}

#[test]
fn an_outage_of_refused_requests_after_a_lost_answer_does_not_cost_the_session() {
    for seconds in [5, 8, 10, 12, 20] {
        let bench = Bench::new();
        let anna = bench.node("anna");
        bench.run_to_renewal(&anna);
        let key = anna.session.key().key().clone();
        let before = bench.peek(&key).unwrap().version;
        anna.host.tap.on(key.as_str(), [Fault::LoseAnswer]);
        bench.run_until(bench.now() + T, || bench.peek(&key).unwrap().version > before);
        anna.host.change(|site| site.refused_percent = 100);
        bench.run_for(seconds * 1_000 * MS);
        assert!(!anna.session.is_valid());
        anna.host.change(|site| site.refused_percent = 0);
        bench.run_for(T);
        assert_eq!(anna.session.end(), None, "after {seconds} s");
        assert!(anna.session.is_valid() && bench.is_there(&anna.session), "after {seconds} s");
    }
}

/// What the record of a session says about its node.
fn said(bench: &Bench, node: &JoinedNode) -> (bool, Vec<u16>) {
    let entry = bench.peek(node.session.key().key()).unwrap();
    let record = SessionRecord::from_value(&entry.value).unwrap();
    assert_eq!(record.version, env!("CARGO_PKG_VERSION"));
    (record.draining, record.unable)
}

#[test]
fn what_a_node_says_about_itself_is_written_at_once_and_stays() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let last = bench.run_to_renewal(&anna);
    assert_eq!(said(&bench, &anna), (false, vec![]));
    bench.run_until(last + 2 * PAUSE, || false);
    anna.session.say(|about| about.draining = true);
    let sent = bench.run_to_renewal(&anna);
    check_between(sent, last + 2 * PAUSE, last + 2 * PAUSE + MS);
    assert_eq!(said(&bench, &anna), (true, vec![]));

    // Right after that one: not before a pause, and together with what is said meanwhile.
    anna.session.say(|about| about.unable = vec![3, 5]);
    anna.session.say(|about| about.draining = false);
    let next = bench.run_to_renewal(&anna);
    check_between(next, sent + PAUSE, sent + PAUSE + MS);
    assert_eq!(said(&bench, &anna), (false, vec![3, 5]));
    // And then the beat goes on.
    check_between(bench.run_to_renewal(&anna), next + BEAT, next + BEAT + MS);
    assert_eq!(said(&bench, &anna), (false, vec![3, 5]));
}

#[test]
fn who_says_what_it_said_before_is_not_renewed_for_it() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let last = bench.run_to_renewal(&anna);
    anna.session.say(|about| about.draining = false);
    check_between(bench.run_to_renewal(&anna), last + BEAT, last + BEAT + MS);
}

#[test]
fn what_could_not_be_written_is_said_by_the_next_renewal() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    bench.run_to_renewal(&anna);
    anna.host.tap.on("node/", [Fault::lose(), Fault::refuse()]);
    anna.session.say(|about| about.draining = true);
    bench.run_to_renewal(&anna);
    assert_eq!(said(&bench, &anna), (true, vec![]));
    bench.run_for(POLL + 2 * TRIP);
    let roster = bert.session.roster();
    assert!(roster.borrow().record(anna.session.key()).unwrap().draining, "others see it");
}

#[test]
fn everybody_knows_how_far_the_clocks_of_others_are_ahead() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    bert.host.change(|site| site.clocks.step(NOON_US + 5_000_000));
    bench.run_for(2 * T);
    let ahead =
        |of: &JoinedNode, by: &JoinedNode| by.session.roster().borrow().ahead_ms(of.session.key());
    assert_eq!((ahead(&anna, &anna), ahead(&bert, &bert)), (Some(0), Some(0)));
    let late = i64::try_from((PAUSE + 2 * TRIP) / MS).unwrap();
    let (bert_ahead, anna_ahead) = (ahead(&bert, &anna).unwrap(), ahead(&anna, &bert).unwrap());
    assert!((5_000 - late..=5_000).contains(&bert_ahead), "{bert_ahead}");
    assert!((-5_000 - late..=-5_000).contains(&anna_ahead), "{anna_ahead}");

    bench.wait(bert.close());
    bench.run_for(POLL + 2 * TRIP);
    assert_eq!(ahead(&bert, &anna), None);
}

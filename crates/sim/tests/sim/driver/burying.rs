//! Burying others: only what stood still, only at the version that did, and only when sure.

use sim::clock::MS;
use store::CommitError;

use super::bench::{BEAT, Bench, Hearing, PATIENCE, POLL, Plan, T, TRIP, check_between};
use super::tap::Fault;

#[test]
fn patience_runs_from_the_arrival_of_the_first_look_that_showed_the_version() {
    for beats in 5..25 {
        let bench = Bench::new();
        let (anna, bert) = (bench.node("anna"), bench.node("bert"));
        bert.host.change(|site| site.back.delay = 300 * MS);
        bench.run_for(BEAT * beats);
        bench.run_to_renewal(&anna);
        anna.crash();
        let key = anna.session.key();
        let last = bench.peek(key.key()).unwrap().version;
        let roster = bert.session.roster();
        assert_ne!(roster.borrow().version(key), Some(last), "bert's answers take a while");
        bench.run_until(bench.now() + T, || roster.borrow().version(key) == Some(last));
        let seen = bench.now();
        let buries = || bert.host.tap.sent(key.key().as_str());
        bench.run_until(seen + 2 * T, || !buries().is_empty());
        assert!(buries()[0].at >= seen + PATIENCE, "after {beats} beats");
    }
}

#[test]
fn a_burial_that_is_late_misses_a_session_that_has_moved() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    bert.host.tap.on(anna.session.key().key().as_str(), [Fault::LandLater]);
    bench.run_to_renewal(&anna);
    anna.hang();
    bench.run_for(PATIENCE + POLL);
    anna.recover();
    bench.run_to_renewal(&anna);
    let late = bench.wait(bert.host.tap.clone().land());
    assert!(matches!(late, Some(Err(CommitError::Conflict(_)))), "{late:?}");
    assert!(anna.session.is_valid() && bench.is_there(&anna.session));
}

#[test]
fn an_outage_of_the_store_buries_nobody() {
    for moment in 0..20 {
        let bench = Bench::new();
        let nodes = ["anna", "bert", "carl"].map(|id| {
            bench.run_for(BEAT / 3);
            bench.node(id)
        });
        bench.run_for(T);
        bench.sim_store.shut();
        bench.run_for(5 * T + BEAT * moment / 20);
        bench.sim_store.open();
        bench.run_for(5 * T);
        for node in nodes {
            assert!(node.session.is_valid(), "{} at moment {moment}", node.session.key());
        }
    }
}

#[test]
fn a_node_that_cannot_renew_itself_buries_nobody() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    bench.run_for(T);
    bert.hang();
    anna.crash();
    bench.run_for(10 * T);
    assert!(bench.is_there(&anna.session) && bench.is_there(&bert.session));
    bert.recover();
    bench.run_for(T);
    assert!(!bench.is_there(&anna.session) && bert.session.is_valid());
}

#[test]
fn the_longer_of_two_leases_decides_about_patience() {
    for (theirs, mine) in [(T, 2 * T), (2 * T, T)] {
        let bench = Bench::new();
        let host = |id, ttl| bench.host_with(&Plan { ttl, ..Plan::of(id) });
        let (anna, _bert) = (bench.join(host("anna", theirs)), bench.join(host("bert", mine)));
        bench.run_for(4 * T);
        let last = bench.run_to_renewal(&anna);
        anna.crash();
        bench.run_until(last + 4 * T, || !bench.is_there(&anna.session));
        check_between(bench.now(), last + 2 * PATIENCE, last + 2 * PATIENCE + 3 * POLL);
    }
}

#[test]
fn looks_that_take_up_to_a_quarter_of_a_lease_bury_in_time() {
    for slow in [100, 300, 400, 480, 600, 700].map(|ms| ms * MS) {
        let bench = Bench::new();
        let deaf = bench.host_with(&Plan { hints: Hearing::Deaf, ..Plan::of("bert") });
        let (anna, bert) = (bench.node("anna"), bench.join(deaf));
        bert.host.change(|site| {
            site.read.late_percent = 100;
            site.read.late = (slow, slow);
        });
        bench.run_for(3 * T);
        let last = bench.run_to_renewal(&anna);
        anna.crash();
        bench.run_until(last + 4 * T, || !bench.is_there(&anna.session));
        let longest = last + PATIENCE + 2 * (slow + POLL) + 4 * TRIP;
        check_between(bench.now(), last + PATIENCE, longest);
        assert!(bert.session.is_valid());
    }
}

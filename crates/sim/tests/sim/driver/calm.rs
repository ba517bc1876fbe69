//! A long calm: where nothing goes wrong, nobody changes anything.

use sim::clock::{MS, TrueTime};
use store::election::Candidacy;

use super::bench::{Bench, CLAIM, Plan};

const DAY: TrueTime = 24 * 3_600 * 1_000 * MS;

/// Long enough for a day to be quick: the rules know no other measure than T.
const TTL: TrueTime = 15_000 * MS;

#[test]
fn in_24_hours_without_faults_the_leader_stays_the_same() {
    let bench = Bench::new();
    let host = |id| bench.join(bench.host_with(&Plan { ttl: TTL, ..Plan::of(id) }));
    let (anna, bert, cora) = (host("anna"), host("bert"), host("cora"));
    let (election, holding) = bench.win(&anna);
    let waiting = [&bert, &cora].map(|node| bench.campaign(bench.candidate(node)));
    let watching = bench.spawn({
        let right = holding.right.clone();
        async move { right.over().await }
    });
    let sightings = election.activity();
    let head = bench.head().unwrap();
    let begun = bench.now();
    let mut gaps = 0;
    bench.run_until(begun + DAY, || {
        gaps += u32::from(holding.right.permit().is_none());
        watching.done_at().is_some() || waiting.iter().any(|task| task.done_at().is_some())
    });
    assert_eq!(bench.now(), begun + DAY, "somebody was elected, or the right ended");
    assert_eq!(gaps, 0, "the leader could not act at some time");
    let after = bench.head().unwrap();
    assert_eq!((after.token, after.number, after.session), (head.token, head.number, head.session));
    // Renewals and nothing else: five in T of each, and one to begin with.
    let most = usize::try_from(DAY / (TTL / 5)).unwrap() + 10;
    for node in [&anna, &bert, &cora] {
        let writes = node.host.tap.sent("").len();
        assert!((most * 99 / 100..=most).contains(&writes), "{writes} of {most}");
    }
    assert_eq!(bert.host.tap.sent(CLAIM).len() + cora.host.tap.sent(CLAIM).len(), 0);
    assert_eq!(sightings.borrow().takes, 1);
    let _: (Candidacy, _) = (election, holding);
}

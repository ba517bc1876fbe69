//! A rolling restart: each machine's supervisor is told to stop and started again, one after the other.

use super::*;
use crate::dev::hold::signer::{acts_on, patient_witness, sign, supervisor};

const MACHINES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_rolling_restart_a_successor_runs_within_a_second_of_each_stop_and_never_two_do() {
    let _machine = machine::alone().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let witness = patient_witness().await;
    let start = |node: &str| sign(supervisor(&redis.url()), dir.path(), node, &witness, &QUICK);
    let mut old: Vec<(String, Holder)> = Vec::new();
    for number in 0..MACHINES {
        let node = format!("old-{number}");
        let holder = start(&node);
        holder.event("candidate", 1).await;
        old.push((node, holder));
    }
    acts_on(&witness).await;
    let runs = || witness.report().holds[0].instances.last().unwrap().who.node.clone();
    let (mut new, mut gaps) = (Vec::new(), Vec::new());
    while !old.is_empty() {
        // Whoever runs the program, as long as that is one that was not started again.
        let holder = runs();
        let number = old.iter().position(|(node, _)| *node == holder);
        let (node, mut stopped) = old.remove(number.unwrap_or(0));
        stopped.stop().await;
        let fresh = start(&node.replace("old", "new"));
        fresh.event("candidate", 1).await;
        new.push(fresh);
        if number.is_some() {
            let report = until("somebody else runs it", PATIENCE, || async {
                let report = witness.report();
                (report.holds[0].instances.last()?.who.node != node).then_some(report)
            })
            .await;
            gaps.extend(report.holds[0].changes.last().and_then(|change| change.length));
        }
        acts_on(&witness).await;
    }
    let report = witness.report();
    println!("nobody acted for {gaps:.0?} at a time\n{}", report.text(100));
    assert!(report.all_is_well, "two ran at a time");
    assert!(!gaps.is_empty(), "nobody was restarted who ran it");
    for gap in gaps {
        assert!(gap < Duration::from_secs(1) + ROOM, "{gap:?}");
    }
}

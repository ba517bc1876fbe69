//! Packets between the machine that runs the program and its store are lost, one way and both, for longer than T. Each machine
//! has a network of its own, and the packets are lost in the kernel: nobody is told.

use std::time::Duration;

use rig::machine;
use store::clock::Stopwatch;
use witness::{Witness, WitnessSettings};

use super::super::island::{self, Lost};
use super::ground::{Ground, Link};
use super::signer::sign;
use super::*;
use crate::dev::elect::engine::Engine;

const MACHINES: usize = 3;

const T: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_packets_are_lost_ends_the_program_and_another_machine_runs_it() {
    let _machine = machine::works().await;
    if !island::is_apart() {
        let test =
            "dev::hold::cut::whose_packets_are_lost_ends_the_program_and_another_machine_runs_it";
        tokio::task::block_in_place(|| island::run_apart(test));
        return;
    }
    let ground = Ground::islands(Engine::redis_also_at);
    let settings = WitnessSettings { listen: ground.witness_at(), udp: None, gap: T * 5 };
    let witness = Witness::start(settings).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut places = Vec::new();
    for number in 0..MACHINES {
        let (node, link) = (format!("node-{number}"), ground.link(number).await);
        let command = ground.supervisor(&link);
        let holder = sign(command, dir.path(), &node, &witness, &["--ttl", "3s"]);
        places.push((link, holder));
    }
    for lost in [Lost::There, Lost::Back, Lost::Both] {
        check(&places, &witness, lost).await;
    }
    for (_, holder) in &mut places {
        holder.stop().await;
    }
    let report = witness.report();
    println!("{}", report.text(100));
    assert!(report.all_is_well, "two ran at a time");
    assert!(report.holds[0].instances.len() >= 4, "each time another machine ran it");
}

/// Packets of whoever runs the program are lost until another machine runs it, and then no more.
async fn check(places: &[(Link, Holder)], witness: &Witness, lost: Lost) {
    let runs = || async {
        places.iter().enumerate().find_map(|(number, (_, it))| Some((number, guard_of(it)?)))
    };
    let (number, guard) = until("somebody runs the program", PATIENCE, runs).await;
    let (link, holder) = &places[number];
    let lapses = holder.count("lost");
    let begun = Stopwatch::start();
    link.lose(lost);
    guard.is_gone().await;
    let gone = begun.elapsed();
    let other = until("another machine runs the program", PATIENCE, || async {
        let report = witness.report();
        let node = report.holds.first()?.instances.last()?.who.node.clone();
        (node != format!("node-{number}")).then_some(node)
    })
    .await;
    let followed = begun.elapsed();
    println!("{lost:?}: gone after {gone:.2?}, and {other} runs it after {followed:.2?}");
    link.lose(Lost::Nothing);
    holder.event("lost", lapses + 1).await;
    until("it campaigns again", PATIENCE, || async {
        (last(holder, "candidate") > last(holder, "lost")).then_some(())
    })
    .await;
}

/// The guard of the program, if that runs there as far as it was told.
fn guard_of(holder: &Holder) -> Option<Guard> {
    let running = last(holder, "running").filter(|at| Some(*at) > last(holder, "exited"));
    Some(Guard::of(&holder.events()[running?]))
}

/// Which of all that was told there was the last of this kind.
fn last(holder: &Holder, event: &str) -> Option<usize> {
    holder.events().iter().rposition(|told| told["event"] == event)
}

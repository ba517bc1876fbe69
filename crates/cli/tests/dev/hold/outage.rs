//! The store is away and comes back, on every engine: nobody runs the program who may not, and somebody does again without
//! hands.

use std::time::Duration;

use rig::machine;
use witness::Witness;

use super::clock::killed_at;
use super::signer::{acts_on, instances, patient_witness, sign, supervisor};
use super::*;
use crate::dev::elect::engine::{Engine, on_every_engine};

/// T of those whose store is away for longer.
const T: Duration = Duration::from_secs(3);

/// Two machines on an engine, and who hears of each act of their program.
struct Pair {
    dir: tempfile::TempDir,
    engine: Engine,
    witness: Witness,
    holders: [Holder; 2],
}

impl Pair {
    async fn start(engine: Engine, ttl: &str) -> Self {
        let (dir, witness) = (tempfile::tempdir().unwrap(), patient_witness().await);
        let start = |node| {
            let command = supervisor(&engine.url());
            sign(command, dir.path(), node, &witness, &["--ttl", ttl, "--stop-timeout", "1s"])
        };
        let holders = ["anna", "bert"].map(start);
        for holder in &holders {
            holder.event("candidate", 1).await;
        }
        acts_on(&witness).await;
        Self { dir, engine, witness, holders }
    }

    fn kill_store(&mut self) {
        for member in 0..self.engine.addresses().len() {
            self.engine.kill(member);
        }
    }

    /// Until when the program may run as far as its machine was told last.
    fn deadline(&self) -> Option<u64> {
        let told = ["anna", "bert"].iter().filter_map(|node| killed_at(self.dir.path(), node));
        told.map(|told| told.boot_ms).max()
    }

    async fn end(mut self) {
        for holder in &mut self.holders {
            holder.stop().await;
        }
        let report = self.witness.report();
        println!("{}:\n{}", self.engine.name(), report.text(100));
        assert!(report.all_is_well, "{}: two ran at a time", self.engine.name());
    }
}

async fn check_long(engine: Engine) {
    let mut pair = Pair::start(engine, "3s").await;
    pair.kill_store();
    let killed = pair.witness.report().watched;
    until("nobody has run the program for longer than T", PATIENCE, || async {
        let silent = pair.witness.report().holds[0].silent_for;
        (silent > T * 3 / 2).then_some(())
    })
    .await;
    let acted = pair.witness.report().holds[0].instances.iter().map(|it| it.last).max().unwrap();
    let after = acted.saturating_sub(killed);
    println!("{}: acted for {after:.2?} after its store was gone", pair.engine.name());
    assert!(after < T * 5 / 4, "{}: acted for {after:?}", pair.engine.name());
    pair.engine.restart();
    acts_on(&pair.witness).await;
    pair.end().await;
}

async fn check_short(engine: Engine) {
    // A Redis that is started again is a new epoch, which nobody acts on for a while.
    let comes_back_as_it_was = !matches!(engine, Engine::Redis(_));
    let mut pair = Pair::start(engine, "20s").await;
    if comes_back_as_it_was {
        pair.kill_store();
        pair.engine.restart();
        acts_on(&pair.witness).await;
    }
    for member in 0..pair.engine.addresses().len() {
        pair.engine.pause(member);
    }
    acts_on(&pair.witness).await;
    for member in 0..pair.engine.addresses().len() {
        pair.engine.wake(member);
    }
    let before = pair.deadline();
    until("it is renewed again", PATIENCE, || async { (pair.deadline() > before).then_some(()) })
        .await;
    assert_eq!(instances(&pair.witness), 1, "{}", pair.engine.name());
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_any_store_is_away_for_longer_than_t_nobody_runs_the_program_and_then_somebody_does() {
    let _machine = machine::works().await;
    on_every_engine(check_long).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_does_not_notice_that_any_store_was_away_for_less() {
    let _machine = machine::works().await;
    on_every_engine(check_short).await;
}

//! Restarts in order, losses one at a time, and people who write meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Timestamp;
use client::spec::TriggerSpec;
use rig::etcd::Etcd;
use rig::postgres::Postgres;
use rig::{PATIENCE, Receiver, Reply, machine, redis, until};
use store::machine::{Machine, System};
use tokio::task::JoinSet;

use super::super::process::WATCHBELL as THIS;
use super::balance;
use super::fleet::Fleet;
use super::opened;
use super::storm::{Moves, lengths, tell};

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Triggers that ring every two seconds, with a receiver that takes its time.
const BELLS: usize = 200;
const EVERY_S: usize = 2;

/// Restarts all servers on a store, one after the other, as often as there are programs after the first: no slot is late
/// by more than a second, none is sent twice, and nothing is unknown.
async fn roll(store: &str, programs: &[&Path]) {
    let direct = opened(store).await;
    let receiver = Receiver::start(4, |_| Reply::Status(200, Duration::from_millis(400)));
    let urls: Vec<String> = (0..4).map(|door| receiver.url(door, "")).collect();
    balance::fill(&direct, BELLS, EVERY_S, &urls).await;
    let mut fleet = Fleet::by(programs[0], &["a", "b", "c"], store, &direct).await;
    fleet.settled().await;
    let (begun, settled_us) = (receiver.heard().len(), System.wall_us().cast_signed());
    for program in &programs[1..] {
        fleet.program = program.to_path_buf();
        for name in fleet.names() {
            let took = fleet.stop(&name).await;
            println!("{name} stopped in {took:?}");
            fleet.bring_back(&name).await;
            fleet.settled().await;
        }
    }
    fleet.patient_client("a").stop_scheduler().await.unwrap();
    let ledger = balance::at_rest(&direct).await;
    let heard = receiver.heard();
    balance::check(&ledger, &heard, EVERY_S);
    let mut runs = BTreeSet::new();
    let mut latest = 0;
    for call in &heard[begun..] {
        assert!(runs.insert(&call.run), "{call:?} came twice");
        let slot_us = call.slot.parse::<Timestamp>().unwrap().as_microsecond();
        // What was due before all servers were there is late because of that.
        if slot_us >= settled_us {
            // A slot leaves within a second, as its jitter says.
            latest = latest.max(call.at_us.cast_signed() - slot_us - 1_000_000);
        }
    }
    println!("{} calls while servers were restarted, the latest {latest} µs late", runs.len());
    tell("hand-overs", &lengths(&Moves::of(&fleet).handed_over()));
    assert!(latest <= 1_000_000, "a slot was {latest} µs late");
    // An attempt that was taken back before it left has a number, and was not made.
    let odd: Vec<_> = ledger.runs.iter().filter(|ended| ended.run.attempts.len() > 1).collect();
    assert!(odd.is_empty(), "tried again: {odd:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_lose_any_one_and_any_member_at_once_and_no_slot() {
    let _machine = machine::works().await;
    let mut etcd = blocking(Etcd::three);
    let url = format!("etcd://{}/watchbell", etcd.hosts());
    let direct = opened(&url).await;
    let receiver = Receiver::start(4, |_| Reply::FINE);
    let urls: Vec<String> = (0..4).map(|door| receiver.url(door, "")).collect();
    balance::fill(&direct, 1_000, EVERY_S, &urls).await;
    let mut fleet = Fleet::on(&["a", "b", "c"], &url, &direct).await;
    fleet.settled().await;
    for (member, name) in fleet.names().into_iter().enumerate() {
        fleet.kill(&name);
        etcd.kill(member);
        fleet.settled().await;
        println!("{name} and member {member} are gone, and every shard has an owner");
        blocking(|| etcd.restart(member));
        fleet.bring_back(&name).await;
        fleet.settled().await;
    }
    fleet.patient_client("a").stop_scheduler().await.unwrap();
    let ledger = balance::at_rest(&direct).await;
    balance::check(&ledger, &receiver.heard(), EVERY_S);
}

/// Writers, and runs that each asks for.
const WRITERS: usize = 1_000;
const RUNS: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_thousand_writers_are_told_is_done_once_while_shards_move() {
    let _machine = machine::works().await;
    let redis = blocking(|| redis::Setup::durable().start());
    let receiver = Receiver::start(4, |_| Reply::FINE);
    let direct = opened(&redis.url()).await;
    let fleet = Fleet::on(&["a", "b", "c", "d", "e"], &redis.url(), &direct).await;
    fleet.settled().await;
    let names = fleet.names();
    let clients: Vec<_> = names.iter().map(|name| Arc::new(fleet.patient_client(name))).collect();
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let name = format!("w{number}");
        let spec = TriggerSpec::webhook(&name, receiver.url(number % 4, &format!("/{name}")));
        let clients = clients.clone();
        writers.spawn(async move {
            let (mut made, mut asked) = (false, 0);
            for step in 0..=RUNS {
                let client = &clients[(number + step) % clients.len()];
                if step == 0 {
                    made = client.create_trigger(&spec).await.is_ok();
                } else if made {
                    asked += usize::from(client.run(&name, None).await.is_ok());
                }
            }
            (name, made, asked)
        });
    }
    let over = Arc::new(AtomicBool::new(false));
    let moving = async {
        let mut moved = 0;
        for name in names.iter().cycle() {
            if over.load(Ordering::SeqCst) {
                break;
            }
            fleet.drain(name).await;
            fleet.undrain(name).await;
            moved += 1;
        }
        moved
    };
    let writing = async {
        let told = writers.join_all().await;
        over.store(true, Ordering::SeqCst);
        told
    };
    let (told, moved) = tokio::join!(writing, moving);
    let made = told.iter().filter(|(_, made, _)| *made).count();
    let asked: usize = told.iter().map(|(_, _, asked)| asked).sum();
    println!("{made} triggers made and {asked} runs asked for, while {moved} servers were drained");
    assert!(moved > 0 && made > WRITERS / 2, "the test shows nothing otherwise");
    // Runs of those that were told an error are heard as well, perhaps: each one has to be looked at.
    let heard = until("all runs that were told were heard", PATIENCE, || async {
        let mut heard: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for call in receiver.heard() {
            heard.entry(call.path).or_default().insert(call.run);
        }
        let of = |name: &str| heard.get(&format!("/{name}")).map_or(0, BTreeSet::len);
        told.iter().all(|(name, _, asked)| of(name) >= *asked).then_some(heard)
    })
    .await;
    let client = fleet.patient_client("a");
    for (name, made, asked) in told {
        if made {
            client.trigger(&name).await.unwrap_or_else(|why| panic!("{name} is gone: {why}"));
        }
        let runs = heard.get(&format!("/{name}")).map_or(0, BTreeSet::len);
        assert!(runs >= asked && runs <= RUNS, "{name}: {asked} runs were told, {runs} were made");
        // What was refused for good was not done.
        assert!(made || runs == 0, "{name} was not made, and ran");
    }
}

/// What is judged by time: see [`rig::machine`].
mod alone {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_rolling_restart_doubles_nothing_and_delays_nothing_on_etcd() {
        let _machine = machine::alone().await;
        let etcd = blocking(Etcd::one);
        roll(&format!("etcd://{}/watchbell", etcd.hosts()), &[THIS; 2].map(Path::new)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "needs the program of a former version, which make soak builds"]
    #[expect(clippy::disallowed_methods, reason = "built apart, and only for this")]
    async fn a_rolling_upgrade_and_the_way_back_double_nothing_and_delay_nothing() {
        let _machine = machine::alone().await;
        let former = env::var("WATCHBELL_FORMER").expect("WATCHBELL_FORMER=$(scripts/former)");
        let etcd = blocking(Etcd::one);
        let programs = [&former, THIS, &former].map(Path::new);
        roll(&format!("etcd://{}/watchbell", etcd.hosts()), &programs).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "the same as on etcd"]
    async fn a_rolling_restart_doubles_nothing_and_delays_nothing_on_redis() {
        let _machine = machine::alone().await;
        let redis = blocking(|| redis::Setup::durable().start());
        roll(&redis.url(), &[THIS; 2].map(Path::new)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "the same as on etcd"]
    async fn a_rolling_restart_doubles_nothing_and_delays_nothing_on_postgres() {
        let _machine = machine::alone().await;
        let postgres = blocking(|| Postgres::start(&[]));
        roll(&postgres.url(), &[THIS; 2].map(Path::new)).await;
    }
}

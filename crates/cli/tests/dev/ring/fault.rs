//! Servers, members and the store fail, one by one, in every combination and in networks of their own: each slot has one turn
//! or is in one recorded skip, and everybody sees the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::Client;
use client::ring::{MAIN, RingEvent, SubscriptionSpec};
use rig::etcd::{Etcd, Setup};
use rig::postgres::Postgres;
use rig::{PATIENCE, Random, machine, redis, until};
use rustix::process::Signal;
use serde_json::Value;
use store::clock::Stopwatch;

use super::super::cluster::fleet::{Fleet, Place};
use super::super::cluster::opened;
use super::super::island::{self, Island, Lost, STORE};
use super::super::process::WATCHBELL;
use super::crowd::{Crowd, Seen, Watcher, make};

const NAMES: [&str; 3] = ["a", "b", "c"];

const EVERY: Duration = Duration::from_millis(200);

/// After any single failure a ring goes on within this: a fail-over of the store, and a server that others take the place of. On a
/// busy machine.
const STALL_MAX: Duration = Duration::from_secs(10);

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Not a wait for anything: how long it lasts.
async fn pass(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Clients of all servers, beginning with this one.
fn clients(fleet: &Fleet, first: usize) -> Vec<Client> {
    let client = |step: usize| {
        let name = NAMES[(first + step) % NAMES.len()];
        let timeout = Duration::from_secs(2);
        Client::builder(&fleet.url(name))
            .key(&fleet.admin)
            .retries(0)
            .build()
            .unwrap()
            .with_timeout(timeout)
    };
    (0..NAMES.len()).map(client).collect()
}

/// What three watchers saw, once all of them have seen so many turns more.
async fn all_see(watchers: &[Watcher], more: usize) -> Vec<Seen> {
    let last = |watcher: &Watcher| watcher.seen().order.last().copied();
    let begun: Vec<_> = watchers.iter().map(last).collect();
    let furthest = begun.into_iter().max().flatten().unwrap_or_default();
    let target = (furthest.0, furthest.1 + more as u64);
    let mut all = Vec::new();
    for watcher in watchers {
        let seen =
            watcher.sees("the ring goes on", |seen| seen.order.last() >= Some(&target)).await;
        all.push(seen);
    }
    all
}

fn check(all: &[Seen]) {
    for seen in all {
        seen.check_order();
        let (turns, skipped) = seen.check_slots(EVERY);
        println!(
            "{turns} turns, {skipped} slots in skips, longest stall {:?}",
            seen.longest_stall()
        );
    }
    for pair in all.windows(2) {
        pair[0].check_agrees(&pair[1]);
    }
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    ServerKilled,
    ServerStopped,
    ServerRestarted,
    MemberKilled,
    MemberLeaves,
    MemberJoins,
    StoreMember,
}

const FAULTS: [Fault; 7] = [
    Fault::ServerKilled,
    Fault::ServerStopped,
    Fault::ServerRestarted,
    Fault::MemberKilled,
    Fault::MemberLeaves,
    Fault::MemberJoins,
    Fault::StoreMember,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_workers_and_etcd_fail_and_every_slot_has_one_turn_that_all_see() {
    let _machine = machine::works().await;
    let mut etcd = blocking(Etcd::three);
    let url = format!("etcd://{}/watchbell", etcd.hosts());
    let store = opened(&url).await;
    let mut fleet = Fleet::on(&NAMES, &url, &store).await;
    let spec = SubscriptionSpec {
        catch_up: Some(client::spec::CatchUp::All),
        ..SubscriptionSpec::every("200ms")
    };
    make(&clients(&fleet, 0)[0], "checks", &spec).await;
    let (mut crowd, mut there) = (Crowd::default(), Vec::new());
    for (number, name) in ["m1", "m2", "m3", "m4", "m5"].into_iter().enumerate() {
        crowd.join(&clients(&fleet, number), "checks", name).await;
        there.push(name.to_owned());
    }
    let mut watchers = Vec::new();
    for number in 0..NAMES.len() {
        watchers.push(Watcher::start(&clients(&fleet, number), "checks", MAIN).await);
    }
    all_see(&watchers, 10).await;
    // Each fault alone, then two at a time.
    let mut random = Random::new(22);
    let mut born = 5;
    for round in 0..12 {
        let first = FAULTS[round % FAULTS.len()];
        let second = (round >= FAULTS.len()).then(|| *random.pick(&FAULTS).unwrap());
        let begun = Stopwatch::start();
        let server = NAMES[random.place(NAMES.len())];
        let mut away = None;
        for fault in [Some(first), second].into_iter().flatten() {
            match fault {
                Fault::ServerKilled | Fault::ServerStopped if away.is_some() => {}
                Fault::ServerKilled => {
                    fleet.kill(server);
                    away = Some((server, Fault::ServerKilled));
                }
                Fault::ServerStopped => {
                    fleet.signal(server, Signal::STOP);
                    away = Some((server, Fault::ServerStopped));
                }
                Fault::ServerRestarted => {
                    if away.is_none() {
                        fleet.stop(server).await;
                        away = Some((server, Fault::ServerKilled));
                    }
                }
                Fault::MemberKilled if there.len() > 1 => {
                    crowd.kill(&there.remove(random.place(there.len())));
                }
                Fault::MemberLeaves if there.len() > 1 => {
                    let name = there.remove(random.place(there.len()));
                    // It asks until it is answered.
                    crowd.leave_by_any(&name).await;
                }
                Fault::MemberKilled | Fault::MemberLeaves => {}
                Fault::MemberJoins => {
                    born += 1;
                    let name = format!("m{born}");
                    let servers = clients(&fleet, random.place(NAMES.len()));
                    crowd.join(&servers, "checks", &name).await;
                    there.push(name);
                }
                Fault::StoreMember => etcd.kill(0),
            }
        }
        pass(Duration::from_secs(2)).await;
        if [Some(first), second].contains(&Some(Fault::StoreMember)) {
            blocking(|| etcd.restart(0));
        }
        match away {
            Some((name, Fault::ServerKilled)) => fleet.bring_back(name).await,
            Some((name, _)) => fleet.signal(name, Signal::CONT),
            None => {}
        }
        all_see(&watchers, 3).await;
        println!("{first:?} {second:?}: over after {:?}", begun.elapsed());
    }
    // All servers at once.
    for name in NAMES {
        fleet.kill(name);
    }
    for name in NAMES {
        fleet.bring_back(name).await;
    }
    let all = all_see(&watchers, 20).await;
    check(&all);
    // Where nobody comes and goes, everybody is served alike.
    let seen = &all[0];
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    let turns = seen.turns();
    for turn in &turns[turns.len().saturating_sub(2 * there.len())..] {
        *last.entry(turn[0].as_str()).or_default() += 1;
    }
    println!("the last turns: {last:?}; in the ring: {there:?}");
    for name in NAMES {
        let log = fleet.log(name);
        assert!(!log.contains("panicked"), "{name}: {log}");
    }
}

/// The longest time without a turn after any single failure, beside what is promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_single_failure_a_ring_stalls_for_a_bounded_time() {
    let _machine = machine::works().await;
    let mut etcd = blocking(Etcd::three);
    let url = format!("etcd://{}/watchbell", etcd.hosts());
    let store = opened(&url).await;
    let mut fleet = Fleet::on(&NAMES, &url, &store).await;
    make(&clients(&fleet, 0)[0], "checks", &SubscriptionSpec::every("200ms")).await;
    let mut crowd = Crowd::default();
    for (number, name) in ["m1", "m2", "m3"].into_iter().enumerate() {
        crowd.join(&clients(&fleet, number), "checks", name).await;
    }
    for case in
        ["the last writer is killed", "the last writer is stopped", "the leader of etcd is killed"]
    {
        // What is asked of a server that stays.
        let writer = clients(&fleet, 0)[0].subscription("checks", MAIN).await.unwrap().writer;
        let writer = NAMES.into_iter().find(|name| Some(*name) == writer.as_deref()).unwrap_or("a");
        let other = NAMES.iter().position(|name| *name != writer).unwrap();
        let watcher = Watcher::start(&clients(&fleet, other)[..1], "checks", MAIN).await;
        watcher.turns(5).await;
        match case {
            "the last writer is killed" => fleet.kill(writer),
            "the last writer is stopped" => fleet.signal(writer, Signal::STOP),
            _ => {
                let leader = blocking(|| etcd.leader());
                etcd.kill(leader);
                pass(Duration::from_secs(3)).await;
                blocking(|| etcd.restart(leader));
            }
        }
        let before = watcher.seen().turns().len();
        watcher.turns(before + 10).await;
        let seen = watcher.seen();
        seen.check_slots(EVERY);
        let stall = seen.longest_stall();
        println!("{case}: no turn for {stall:?}");
        assert!(stall < STALL_MAX, "{case}: {stall:?}");
        match case {
            "the last writer is killed" => fleet.bring_back(writer).await,
            "the last writer is stopped" => fleet.signal(writer, Signal::CONT),
            _ => {}
        }
    }
}

/// On the other engines: two servers of which one dies at a time, and on `file` one that dies again and again.
async fn survives(url: &str, names: &[&'static str]) {
    let store = opened(url).await;
    let mut fleet = Fleet::on(names, url, &store).await;
    let all = |fleet: &Fleet, first: usize| -> Vec<Client> {
        let name = |step: usize| names[(first + step) % names.len()];
        (0..names.len())
            .map(|step| {
                Client::builder(&fleet.url(name(step)))
                    .key(&fleet.admin)
                    .retries(0)
                    .build()
                    .unwrap()
            })
            .collect()
    };
    make(&all(&fleet, 0)[0], "checks", &SubscriptionSpec::every("200ms")).await;
    let mut crowd = Crowd::default();
    for (number, name) in ["m1", "m2", "m3"].into_iter().enumerate() {
        crowd.join(&all(&fleet, number), "checks", name).await;
    }
    let mut watchers = Vec::new();
    for number in 0..names.len() {
        watchers.push(Watcher::start(&all(&fleet, number), "checks", MAIN).await);
    }
    all_see(&watchers, 5).await;
    for name in names {
        fleet.kill(name);
        pass(Duration::from_secs(1)).await;
        fleet.bring_back(name).await;
        all_see(&watchers, 5).await;
    }
    crowd.kill("m2");
    let seen = watchers[0]
        .sees("the dead one is taken out", |seen| {
            seen.others
                .iter()
                .any(|event| matches!(event, RingEvent::Remove { member } if member == "m2"))
        })
        .await;
    let before = seen.turns().len();
    let turns = watchers[0].turns(before + 5).await;
    assert!(turns[before + 1..].iter().flatten().all(|name| name != "m2"), "{turns:?}");
    check(&all_see(&watchers, 3).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rings_survive_their_servers_on_redis() {
    let _machine = machine::works().await;
    let redis = blocking(|| redis::Setup::durable().start());
    survives(&redis.url(), &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rings_survive_their_servers_on_postgres() {
    let _machine = machine::works().await;
    let postgres = blocking(|| Postgres::start(&[]));
    survives(&postgres.url(), &["a", "b"]).await;
}

/// A process that does not outlive the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(mut command: Command, args: &[&str], key: &Path, out: &Path) -> Process {
    let append = |path: &Path| fs::File::options().create(true).append(true).open(path).unwrap();
    command.args(args).arg("--key-file").arg(key).args(["--output", "json"]);
    command.stdin(Stdio::null()).stdout(append(out)).stderr(append(&out.with_extension("log")));
    Process(command.spawn().unwrap())
}

/// The turns that a `ring watch` has told: who had each.
fn turns_in(out: &Path) -> BTreeMap<u64, Vec<String>> {
    let text = fs::read_to_string(out).unwrap_or_default();
    let told = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let turn = |told: Value| {
        let parts = told["parts"].as_array()?;
        let names = parts.iter().map(|part| part["member"].as_str().unwrap_or_default().to_owned());
        Some((told["number"].as_u64()?, names.collect()))
    };
    told.filter(|told| told["type"] == "turn").filter_map(turn).collect()
}

/// Three machines, each with a server, a member and somebody who watches; two servers and two members are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_in_three_networks_see_the_same_turns_while_servers_and_members_are_killed() {
    let _machine = machine::works().await;
    if !island::is_apart() {
        let test = "dev::ring::fault::watchers_in_three_networks_see_the_same_turns_while_servers_and_members_are_killed";
        blocking(|| island::run_apart(test));
        return;
    }
    island::make_hub();
    let setup = Setup { also_at: Some(STORE), ..Setup::default() };
    let etcd = blocking(|| Etcd::start(3, &setup));
    let direct = format!("etcd://{}/watchbell", etcd.hosts());
    let store = opened(&direct).await;
    let hosts: Vec<String> =
        (0..etcd.len()).map(|member| format!("{STORE}:{}", etcd.address(member).port())).collect();
    let url = format!("etcd://{}/watchbell", hosts.join(","));
    let on_island = |(name, number)| (name, url.clone(), Place::Island(Island::make(number)));
    let mut fleet = Fleet::start(&store, NAMES.into_iter().zip(2..).map(on_island).collect()).await;
    let others: Vec<Island> = (10..13).map(Island::make).collect();
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, &fleet.admin).unwrap();
    make(&clients(&fleet, 0)[0], "checks", &SubscriptionSpec::every("500ms")).await;
    let mut servers: Vec<String> = NAMES.iter().map(|name| fleet.url(name)).collect();
    let (mut members, mut watchers, mut outs) = (Vec::new(), Vec::new(), Vec::new());
    for (number, island) in others.iter().enumerate() {
        let all = servers.join(",");
        let (name, out) = (format!("m{number}"), dir.path().join(format!("m{number}.out")));
        let words = ["ring", "join", "checks", "--as", &name, "--server", &all];
        let mut joining = island.enter(WATCHBELL);
        joining.args(words).arg("--key-file").arg(&key).args(["--output", "json", "--", "true"]);
        let log = fs::File::options().create(true).append(true).open(&out).unwrap();
        joining.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        members.push(Process(joining.spawn().unwrap()));
        let out = dir.path().join(format!("watch-{number}.out"));
        let words = ["ring", "watch", "checks", "--server", &all];
        watchers.push(start(island.enter(WATCHBELL), &words, &key, &out));
        outs.push(out);
        servers.rotate_left(1);
    }
    let all_have = async |count: usize, what: &str| {
        until(what, PATIENCE * 3, || async {
            outs.iter().all(|out| turns_in(out).len() >= count).then_some(())
        })
        .await;
    };
    all_have(6, "all watch").await;
    let begun = Stopwatch::start();
    // One server is cut off from the store before it dies, the other dies at once.
    fleet.lose("a", Lost::Both);
    fleet.kill("b");
    drop(members.remove(0));
    let so_far = turns_in(&outs[2]).len();
    all_have(so_far + 10, "the ring goes on without a server and a member").await;
    fleet.kill("a");
    drop(members.remove(0));
    let so_far = turns_in(&outs[2]).len();
    all_have(so_far + 20, "the ring goes on with one server and one member").await;
    println!("30 turns within {:?} after the first kill", begun.elapsed());
    let all: Vec<_> = outs.iter().map(|out| turns_in(out)).collect();
    for (number, turns) in all.iter().enumerate() {
        for (turn, names) in turns {
            let other = all[(number + 1) % all.len()].get(turn);
            assert!(other.is_none_or(|other| other == names), "turn {turn}: {names:?}, {other:?}");
        }
        let last: Vec<_> = turns.values().rev().take(3).flatten().collect();
        assert!(last.iter().all(|name| *name == "m2"), "{last:?}");
        println!("watcher {number} saw {} turns", turns.len());
    }
}

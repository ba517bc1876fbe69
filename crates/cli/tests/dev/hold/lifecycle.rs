//! From the first start to the last end: who runs the program, and who does when that one is gone.

use rig::machine;
use rig::redis::Setup;
use store::election::claim_of;
use store::session::{NodeId, Roster};
use store::{StoreUrl, open_existing};

use super::super::process::{Dev, place};
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_runs_the_program_and_who_is_told_to_stop_hands_it_over() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let mut anna = Holder::start(dir.path(), "anna", &redis.url(), &STEADY);
    let guard = anna.runs().await;
    let bert = Holder::start(dir.path(), "bert", &redis.url(), &STEADY);
    bert.event("holder", 1).await;
    assert_eq!(bert.count("running"), 0, "{}", bert.log());
    anna.stop().await;
    assert!(!guard.is_there(), "it ended before the supervisor");
    assert_eq!(anna.event("exited", 1).await["how"], "signal 15, stopped");
    assert_eq!(anna.event("given_up", 1).await["why"], "stopped");
    bert.runs().await;
    ran_one_after_the_other(dir.path(), 2).await;
    let order = ["candidate", "waiting_to_start", "running", "stopping", "exited", "given_up"];
    let told: Vec<Value> = anna.events().into_iter().map(|told| told["event"].clone()).collect();
    let told: Vec<_> =
        told.iter().filter(|event| order.iter().any(|known| event == known)).collect();
    assert_eq!(told, order);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_runs_through_a_server_and_its_record_is_in_the_election() {
    let _machine = machine::waits().await;
    let (_kept, data) = place();
    let (dir, server) = (tempfile::tempdir().unwrap(), Dev::start(&data));
    let flags = ["--server", server.client.url(), "--ttl", "5s"];
    let mut anna = Holder::start(dir.path(), "anna", "memory:", &flags);
    let token = anna.event("running", 1).await["token"].as_u64().unwrap();
    let bert = Holder::start(dir.path(), "bert", "memory:", &flags);
    bert.event("holder", 1).await;
    let election = server.client.election(NAME).await.unwrap();
    assert_eq!(election.holder.map(|holder| holder.node).as_deref(), Some("anna"));
    assert_eq!(election.token, token);
    anna.stop().await;
    bert.runs().await;
    ran_one_after_the_other(dir.path(), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ends_is_started_again_and_after_five_times_another_one_tries() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let program = format!("test $NODE = anna && exit 3; {TICKS}");
    let held = Held { flags: &STEADY, program: &program };
    let anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    anna.event("exited", 1).await;
    let bert = Holder::with(dir.path(), "bert", &redis.url(), &held);
    let running = bert.event("running", 1).await;
    assert_eq!(anna.count("exited"), 5, "{}", anna.log());
    assert_eq!(anna.event("given_up", 1).await["why"], "exits");
    assert!(anna.events().iter().all(|told| told["event"] != "exited" || told["how"] == "exit 3"));
    // What is shown of it came with the claim.
    let store = open_existing(&StoreUrl::parse(&redis.url()).unwrap()).await.unwrap();
    let claim = claim_of("default", NAME).unwrap();
    let shown = until("bert's record is written", PATIENCE, || async {
        let seen = claim.look(&store).await.ok()?;
        let body: Value = serde_json::from_str(seen.head.body?.get()).ok()?;
        Some(body["hold"].clone()).filter(|hold| hold["state"] == "running")
    })
    .await;
    assert_eq!(shown["token"], running["token"]);
    assert_eq!((&shown["node"], &shown["starts"]), (&"bert".into(), &1.into()));
    assert_eq!(shown["pid"], running["pid"]);
    assert_eq!(shown["exits"].as_array().unwrap().len(), 5, "{shown}");
    let came = &shown["hand_overs"][0];
    assert_eq!((&came["from"], &came["to"]), (&"anna".into(), &"bert".into()), "{shown}");
    assert_eq!(came["cause"], "exits", "{shown}");
    assert!(came["took_ms"].as_u64().is_some(), "{shown}");
    assert_eq!(shown["hand_overs"][1]["cause"], "first", "{shown}");
}

/// A machine that has the claim and cannot start is no reason that nobody runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_directory_that_is_removed_is_made_again_and_one_that_cannot_be_hands_over() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let program = format!(
        "test $NODE = anna || {{ {TICKS}; }}; while ! test -e $TICKS.go; do sleep 0.05; done; rm $TICKS.go; exit 3"
    );
    let held = Held { flags: &STEADY, program: &program };
    let anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    anna.runs().await;
    let bert = Holder::with(dir.path(), "bert", &redis.url(), &held);
    bert.event("holder", 1).await;
    let (locks, go) = (dir.path().join("anna.locks"), dir.path().join("ticks.go"));
    fs::remove_dir_all(&locks).unwrap();
    fs::write(&go, "").unwrap();
    anna.event("running", 2).await;
    assert!(locks.is_dir(), "{}", anna.log());
    fs::remove_dir_all(&locks).unwrap();
    fs::write(&locks, "in the way").unwrap();
    fs::write(&go, "").unwrap();
    bert.runs().await;
    assert_eq!(anna.event("given_up", 1).await["why"], "exits");
    let how = anna.event("exited", 3).await["how"].as_str().unwrap().to_owned();
    assert!(how.contains("name a directory of this user with --lock-dir"), "{how}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_not_well_is_handed_over() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let health = [
        "--health",
        "test $NODE = bert",
        "--health-interval",
        "1s",
        "--health-failures",
        "2",
        "--start-grace",
        "0s",
    ];
    let flags = [&STEADY[..], &health].concat();
    let anna = Holder::start(dir.path(), "anna", &redis.url(), &flags);
    anna.runs().await;
    let bert = Holder::start(dir.path(), "bert", &redis.url(), &flags);
    bert.runs().await;
    assert_eq!(anna.event("given_up", 1).await["why"], "health");
    assert!(anna.metrics().await.contains("\nwatchbell_hold_unhealthy_total 2\n"));
    ran_one_after_the_other(dir.path(), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_manual_mode_nothing_runs_until_a_person_approves() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let flags = [&STEADY[..], &["--mode", "manual"]].concat();
    let mut anna = Holder::start(dir.path(), "anna", &redis.url(), &flags);
    let waiting = anna.event("waiting_for_approval", 1).await;
    let token = waiting["token"].as_u64().unwrap();
    let command = format!("watchbell election approve {NAME} --token {token}");
    assert_eq!(waiting["command"], command);
    assert!(anna.metrics().await.contains("state{state=\"waiting_for_approval\"} 1"));
    assert_eq!(anna.count("running"), 0);
    let store = open_existing(&StoreUrl::parse(&redis.url()).unwrap()).await.unwrap();
    let claim = claim_of("default", NAME).unwrap();
    claim.approve(&store, engine::lease::Token(token), "a person").await.unwrap();
    assert_eq!(anna.event("running", 1).await["token"], token);
    anna.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_who_wishes_it_has_another_one_run_the_program() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Holder::start(dir.path(), "anna", &redis.url(), &STEADY);
    anna.runs().await;
    let bert = Holder::start(dir.path(), "bert", &redis.url(), &STEADY);
    bert.event("holder", 1).await;
    let store = open_existing(&StoreUrl::parse(&redis.url()).unwrap()).await.unwrap();
    claim_of("default", NAME).unwrap().wish(&store, "a person").await.unwrap();
    bert.runs().await;
    assert_eq!(anna.event("given_up", 1).await["why"], "resigned");
    ran_one_after_the_other(dir.path(), 2).await;
    assert_eq!(anna.count("running"), 1, "{}", anna.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_a_wish_names_is_the_next_to_run_the_program() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Holder::start(dir.path(), "anna", &redis.url(), &STEADY);
    let token = anna.event("running", 1).await["token"].as_u64().unwrap();
    let others = ["bert", "carl"].map(|it| Holder::start(dir.path(), it, &redis.url(), &STEADY));
    for other in &others {
        other.event("holder", 1).await;
    }
    let [bert, carl] = &others;
    let store = open_existing(&StoreUrl::parse(&redis.url()).unwrap()).await.unwrap();
    until("carl is a candidate", PATIENCE, || async {
        let roster = Roster::read(&store).await.ok()?;
        let campaign = format!("default/{NAME}");
        let mut candidates = roster.candidates(&campaign);
        candidates.any(|key| key.node().as_str() == "carl").then_some(())
    })
    .await;
    let to = NodeId::new("carl").unwrap();
    let claim = claim_of("default", NAME).unwrap();
    store.commit(claim.wishing(token, Some(&to), "a person")).await.unwrap();
    carl.runs().await;
    assert_eq!(bert.count("running"), 0, "{}", bert.log());
    assert_eq!(anna.event("given_up", 1).await["why"], "resigned");
    ran_one_after_the_other(dir.path(), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_weak_kill_is_told_and_leaves_nothing_either() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let flags = [&STEADY[..], &["--isolate", "group"]].concat();
    let program = format!("setsid sleep 3600 & {TICKS}");
    let held = Held { flags: &flags, program: &program };
    let mut anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    let running = anna.event("running", 1).await;
    assert_eq!(running["isolation"], "group");
    assert_eq!(anna.event("at_risk", 1).await["reason"], "weak_kill");
    assert!(anna.metrics().await.contains("at_risk_total{reason=\"weak_kill\"} 1"));
    let guard = Guard::of(&running);
    anna.kill();
    guard.is_gone().await;
}

/// Two starts on one machine know of each other by the lock, whatever their nodes are called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_on_one_machine_follow_each_other() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let locks = dir.path().join("locks");
    let flags = [&STEADY[..], &["--lock-dir", locks.to_str().unwrap()]].concat();
    let mut anna =
        Holder::spawn(on_one_machine("anna", &redis.url(), dir.path(), &flags), dir.path(), "anna");
    let guard = anna.runs().await;
    let bert =
        Holder::spawn(on_one_machine("bert", &redis.url(), dir.path(), &flags), dir.path(), "bert");
    bert.event("holder", 1).await;
    anna.kill();
    guard.is_gone().await;
    bert.runs().await;
    ran_one_after_the_other(dir.path(), 2).await;
}

fn on_one_machine(node: &str, url: &str, dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(WATCHBELL);
    command.args(["hold", NAME, "--node", node, "--output", "json"]).args(flags);
    command.args(["--", "sh", "-c", TICKS]).env("WATCHBELL_STORE", url);
    command.env("NODE", node).env("TICKS", dir.join("ticks"));
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_kills_what_takes_its_time() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let deaf = "trap '' TERM; while :; do sleep 0.1; done";
    let flags = [&STEADY[..], &["--stop-timeout", "1h"]].concat();
    let held = Held { flags: &flags, program: deaf };
    let mut anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    let guard = anna.runs().await;
    anna.signal(Signal::TERM);
    anna.event("stopping", 1).await;
    assert!(guard.is_there());
    anna.signal(Signal::TERM);
    let status = anna.ended().await;
    assert_eq!(status.code(), Some(0), "{}", anna.log());
    assert!(!guard.is_there());
    assert_eq!(anna.event("exited", 1).await["how"], "signal 9, killed");
}

//! From the first look to the last word: who leads, hooks, take-over and hand-over.

use std::fs;

use rig::redis::Setup;
use rig::{PATIENCE, machine, until};
use rustix::process::Signal;
use store::clock::Stopwatch;
use store::election::claim_of;
use store::{StoreUrl, open_existing};
use tokio::task::JoinSet;

use super::super::process::WATCHBELL;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_are_run_in_order_with_the_token_and_no_secret() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let told = dir.path().join("told");
    let hook = |word: &str| {
        let told = told.display();
        format!(
            "echo {word} $WATCHBELL_ELECTION $WATCHBELL_NODE $WATCHBELL_TOKEN $WATCHBELL_VALID_FOR_MS >> {told}; \
             env >> {told}.env; echo heard from {word}; exit 3"
        )
    };
    let hooks = ["--on-elected", &hook("elected"), "--on-lost", &hook("lost")];
    let flags = [&STEADY[..], &hooks].concat();
    let mut anna = Candidate::start(dir.path(), "anna", &redis.url(), &flags);
    let token = anna.elected().await;
    anna.logs("a hook has failed").await;
    anna.stop().await;
    let lines: Vec<String> =
        fs::read_to_string(&told).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, word) in lines.iter().zip(["elected", "lost"]) {
        let begin = format!("{word} {NAME} anna {token} ");
        let millis: u64 =
            line.strip_prefix(&begin).unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        assert!((1..=5_000).contains(&millis), "{line}");
    }
    let env = fs::read_to_string(told.with_extension("env")).unwrap();
    assert!(env.contains("PATH=") && !env.contains("redis://"), "{env}");
    let log = anna.log();
    // What hooks say is passed on, and not between the transitions; that they fail is told.
    assert!(log.contains("heard from elected") && log.contains("heard from lost"), "{log}");
    assert_eq!(log.matches("a hook has failed").count(), 2, "{log}");
    let events = anna.events().into_iter().map(|told| told["event"].clone());
    // What it sees of the claim is told beside what it does, in no order with it.
    let done: Vec<_> = events.filter(|event| event != "vacant").collect();
    assert_eq!(done, ["metrics", "candidate", "elected", "lost"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_hangs_holds_up_neither_the_renewal_nor_the_loss() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let lost = dir.path().join("lost");
    let on_lost = format!("echo $WATCHBELL_TOKEN > {}", lost.display());
    let hooks = ["--on-elected", "sleep 600 & wait", "--on-lost", &on_lost];
    let flags = [&STEADY[..], &hooks].concat();
    let mut anna = Candidate::start(dir.path(), "anna", &redis.url(), &flags);
    let token = anna.elected().await;
    until("it was renewed for longer than its time", PATIENCE, || async {
        (anna.metric("watchbell_leader_refreshed_total").await > 6).then_some(())
    })
    .await;
    assert_eq!(anna.count("lost"), 0, "{}", anna.log());
    let begun = Stopwatch::start();
    anna.stop().await;
    assert_eq!(fs::read_to_string(lost).unwrap().trim(), token.to_string());
    assert!(anna.log().contains("what it was run for is over"), "{}", anna.log());
    println!("stopped in {:?}, with a hook that hangs", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_hook_has_its_time_and_no_more() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let hooks = ["--on-lost", "sleep 600 & wait", "--hook-timeout", "1s"];
    let mut anna = Candidate::start(dir.path(), "anna", &redis.url(), &hooks);
    anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    let begun = Stopwatch::start();
    anna.signal(Signal::TERM);
    // It hands over when its hook is done, and keeps what it has until then.
    bert.elected().await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(anna.ended().await.code(), Some(0));
    assert!(anna.log().contains("it took too long"), "{}", anna.log());
    let mut cora = Candidate::start(dir.path(), "cora", &redis.url(), &["--on-lost", "sleep 600"]);
    cora.event("leader", 1).await;
    drop(bert);
    cora.elected().await;
    // Who says it twice does not wait for hooks.
    cora.signal(Signal::TERM);
    cora.event("lost", 1).await;
    cora.signal(Signal::TERM);
    assert_eq!(cora.ended().await.code(), Some(0), "{}", cora.log());
    assert!(cora.log().contains("told to stop twice"), "{}", cora.log());
}

/// How long it takes until a leader that is killed is followed.
async fn take_over() -> Duration {
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let mut anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    let first = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    let seen = bert.event("leader", 1).await;
    assert_eq!((seen["holder"].as_str(), seen["token"].as_u64()), (Some("anna"), Some(first)));
    let begun = Stopwatch::start();
    anna.kill();
    let second = bert.elected().await;
    let took = begun.elapsed();
    println!("taken over {took:?} after kill -9, T = {T:?}");
    assert!(second > first, "{second} after {first}");
    took
}

/// Whoever stops or is killed is followed, on a store like this.
async fn check_followed(engine: &str, url: &str) {
    let dir = tempfile::tempdir().unwrap();
    let [mut anna, mut bert] =
        ["anna", "bert"].map(|node| Candidate::start(dir.path(), node, url, &[]));
    if leader(&[&anna, &bert]).await == 1 {
        std::mem::swap(&mut anna, &mut bert);
    }
    let first = anna.elected().await;
    bert.event("leader", 1).await;
    let begun = Stopwatch::start();
    anna.signal(Signal::TERM);
    let second = bert.elected().await;
    let handed = begun.elapsed();
    assert_eq!(anna.ended().await.code(), Some(0), "{engine}: {}", anna.log());
    let cora = Candidate::start(dir.path(), "cora", url, &[]);
    cora.event("leader", 1).await;
    let begun = Stopwatch::start();
    bert.kill();
    let third = cora.elected().await;
    println!("{engine}: handed over in {handed:?}, taken over in {:?}", begun.elapsed());
    assert!(first < second && second < third, "{engine}: {first} {second} {third}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_other_engines_whoever_stops_or_is_killed_is_followed_too() {
    let _machine = machine::waits().await;
    let etcd = rig::etcd::Etcd::one();
    check_followed("etcd", &format!("etcd://{}", etcd.hosts())).await;
    drop(etcd);
    let postgres = rig::postgres::Postgres::start(&[]);
    check_followed("postgres", &postgres.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_wished_away_makes_room_and_campaigns_on() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    let first = anna.elected().await;
    let mut bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    let store = open_existing(&StoreUrl::parse(&redis.url()).unwrap()).await.unwrap();
    let claim = claim_of("default", NAME).unwrap();
    assert_eq!(claim.wish(&store, "a test").await.unwrap().unwrap().as_str(), "anna");
    let second = bert.elected().await;
    assert!(second > first && !anna.leads().await);
    bert.stop().await;
    let third = anna.event("elected", 2).await["token"].as_u64().unwrap();
    assert!(third > second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_waits_for_a_redis_that_comes_up_later() {
    let _machine = machine::waits().await;
    let (dir, mut redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let url = redis.url();
    redis.kill();
    let mut anna = Candidate::start(dir.path(), "anna", &url, &[]);
    let log = anna.logs("it is waited for").await;
    assert!(log.contains("ERROR") && log.contains("it cannot be reached"), "{log}");
    assert!(!anna.leads().await);
    redis.restart();
    anna.elected().await;
    redis.kill();
    anna.event("lost", 1).await;
    redis.restart();
    anna.event("elected", 2).await;
    redis.kill();
    // It cannot give up what it has, and ends all the same.
    anna.stop().await;
    let mut impatient = Candidate::start(dir.path(), "impatient", &url, &["--wait", "0s"]);
    assert_eq!(impatient.ended().await.code(), Some(3), "{}", impatient.log());
    // While it waits it can be told to stop.
    let mut patient = Candidate::start(dir.path(), "patient", &url, &[]);
    patient.logs("it is waited for").await;
    patient.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_at_the_start_ends_it_with_its_code() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let redis = Setup::durable().password("right").start();
    let wrong = redis.url().replace("right", "wrong");
    let mut locked_out = Candidate::start(dir.path(), "locked-out", &wrong, &[]);
    assert_eq!(locked_out.ended().await.code(), Some(7), "{}", locked_out.log());
    let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    anna.elected().await;
    let twin = dir.path().join("twin");
    fs::create_dir(&twin).unwrap();
    let mut twin = Candidate::start(&twin, "anna", &redis.url(), &[]);
    assert_eq!(twin.ended().await.code(), Some(3), "{}", twin.log());
    assert!(twin.log().contains("another node with the id anna is alive"), "{}", twin.log());
    let at = anna.address().await.to_string();
    let mut command = Command::new(WATCHBELL);
    command.args(["elect", NAME, "--store", &redis.url(), "--metrics", &at]);
    let mut deaf = Candidate::spawn(command, dir.path(), "deaf");
    assert_eq!(deaf.ended().await.code(), Some(3), "{}", deaf.log());
    assert!(deaf.log().contains("cannot serve metrics on"), "{}", deaf.log());
}

/// What is judged by time: see [`rig::machine`].
mod alone {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_that_is_killed_is_followed_within_a_quarter_more_than_t_and_half_a_second() {
        let _machine = machine::alone().await;
        // So it is where nothing is slow, and a machine that runs tests is slow at times.
        let mut took = Vec::new();
        for _ in 0..3 {
            took.push(take_over().await);
            if took.iter().any(|took| *took <= T * 5 / 4 + Duration::from_millis(500)) {
                return;
            }
        }
        panic!("taken over after {took:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_leader_that_is_told_to_stop_is_followed_at_once() {
        let _machine = machine::alone().await;
        let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
        let mut leader = Candidate::start(dir.path(), "node-0", &redis.url(), &[]);
        leader.elected().await;
        let mut took = Vec::new();
        for number in 1..=5 {
            let next = Candidate::start(dir.path(), &format!("node-{number}"), &redis.url(), &[]);
            next.event("leader", 1).await;
            let begun = Stopwatch::start();
            leader.signal(Signal::TERM);
            next.elected().await;
            took.push(begun.elapsed());
            assert_eq!(leader.ended().await.code(), Some(0), "{}", leader.log());
            leader = next;
        }
        took.sort();
        println!("handed over within {took:?}");
        // 200 ms are what it takes; the rest, and the longer ones, are for a machine that does something else.
        assert!(took[took.len() / 2] <= Duration::from_millis(500), "{took:?}");
        assert!(*took.last().unwrap() < T * 5 / 4, "nobody waits until patience is over: {took:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_a_busy_machine_a_second_is_enough() {
        let _machine = machine::alone().await;
        let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
        let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
        let token = anna.elected().await;
        let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
        bert.event("leader", 1).await;
        let mut work = JoinSet::new();
        let begun = Stopwatch::start();
        let cores = std::thread::available_parallelism().unwrap().get();
        for _ in 0..3 * cores {
            work.spawn_blocking(move || while begun.elapsed() < 4 * T {});
        }
        while work.join_next().await.is_some() {}
        assert_eq!(bert.count("elected"), 0, "{}", bert.log());
        assert!(leader(&[&anna, &bert]).await == 0);
        let last = anna.events().into_iter().rfind(|told| told["event"] == "elected").unwrap();
        assert_eq!(last["token"].as_u64(), Some(token));
        println!("{} lapses in {:?} of {} busy threads", anna.count("lost"), 4 * T, 3 * cores);
    }
}

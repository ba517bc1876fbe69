//! In the place of the Redis scheduler: six variables, four metrics, ten texts and one key.

use rig::redis::{Redis, Setup};
use rig::{PATIENCE, machine, until};
use serde_json::Value;

use super::super::process::WATCHBELL;
use super::*;

const KEY: &str = "leader:uuid";
const PASSWORD: &str = "canary-of-the-redis-scheduler";

/// As its image is started: by six variables, and no flags.
fn command(redis: &Redis, metrics_port: u16) -> Command {
    let mut command = Command::new(WATCHBELL);
    command.arg("elect").env("APP_ENV", "development");
    command.env("METRICS_PORT", metrics_port.to_string());
    command.env("REDIS_HOST", "127.0.0.1").env("REDIS_PORT", redis.address().port().to_string());
    command.env("REDIS_PASSWORD", PASSWORD).env("REDIS_LEADER_KEY", KEY);
    command
}

/// Where it serves metrics, by its log.
async fn address(candidate: &Candidate) -> SocketAddr {
    let log = candidate.logs("metrics are served").await;
    let port = log.split("at=[::]:").nth(1).or_else(|| log.split("at=0.0.0.0:").nth(1)).unwrap();
    let port = port.split_whitespace().next().unwrap().parse().unwrap();
    ([127, 0, 0, 1], port).into()
}

/// One line of a log in text.
fn line<'a>(log: &'a str, text: &str) -> &'a str {
    let found = log.lines().find(|line| line.contains(&format!(": {text} ")));
    found.unwrap_or_else(|| panic!("no {text:?} in {log}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_the_ten_texts_is_logged_at_its_level_with_its_details() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let redis = Setup::durable().password(PASSWORD).start();
    let mut anna = Candidate::spawn(command(&redis, 0), dir.path(), "anna");
    anna.logs("Refreshing leader lock").await;
    assert_eq!(redis.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    anna.logs("Error writing leader").await;
    assert_eq!(redis.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]), "OK");
    anna.stop().await;
    let taken = std::net::TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut deaf = Candidate::spawn(command(&redis, port), dir.path(), "deaf");
    assert_eq!(deaf.ended().await.code(), Some(3), "{}", deaf.log());
    let mut locked_out = command(&redis, 0);
    locked_out.env("REDIS_PASSWORD", format!("{PASSWORD}-wrong"));
    let mut locked_out = Candidate::spawn(locked_out, dir.path(), "locked-out");
    assert_eq!(locked_out.ended().await.code(), Some(7), "{}", locked_out.log());
    let logs = [anna.log(), deaf.log(), locked_out.log()];
    for (log, level, text) in [
        (2, "ERROR", "Unable to create leader"),
        (0, "ERROR", "Error writing leader"),
        (1, "ERROR", "Unable to start HTTP Server"),
        (0, "INFO", "Created new leader"),
        (0, "INFO", "Becoming the leader"),
        (0, "DEBUG", "Writing leader"),
        (0, "DEBUG", "Ending Goroutine."),
        (0, "DEBUG", "Closing gracefully."),
        (0, "DEBUG", "Creating leader"),
        (0, "DEBUG", "Refreshing leader lock"),
    ] {
        let line = line(&logs[log], text);
        assert!(line.contains(&format!(" {level} ")), "{line}");
        assert!(line.contains(&format!("leader_key=\"{KEY}\"")), "{line}");
        let uuid = line.split("uuid=\"").nth(1).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(uuid.split('"').next().unwrap().len(), 36, "{line}");
        assert!(level != "ERROR" || line.contains("detail="), "{line}");
    }
    let creating = line(&logs[0], "Creating leader");
    let port = redis.address().port();
    for detail in ["host=\"127.0.0.1\"", &format!("port={port}"), "password=\"***\""] {
        assert!(creating.contains(detail), "{creating}");
    }
    for log in logs {
        assert!(!log.contains(PASSWORD), "{log}");
    }
    assert!(anna.events().is_empty(), "all of it is in the log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_four_metrics_and_the_leader_key_read_right_from_start_to_end() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let mut redis = Setup::durable().password(PASSWORD).start();
    redis.kill();
    let mut anna = Candidate::spawn(command(&redis, 0), dir.path(), "anna");
    let log = anna.logs("Unable to create leader").await;
    assert!(log.contains("it is waited for"), "{log}");
    let at = address(&anna).await;
    assert_eq!(metric(&page(at).await, "scheduler_leader_current_leader"), 0);
    redis.restart();
    anna.logs("Refreshing leader lock").await;
    let shown = page(at).await;
    assert_eq!(metric(&shown, "scheduler_leader_current_leader"), 1, "{shown}");
    assert_eq!(metric(&shown, "scheduler_leader_claimed_total"), 1, "{shown}");
    for name in ["claimed_total", "refreshed_total", "read_total", "current_leader"] {
        let ours = metric(&shown, &format!("watchbell_leader_{name}"));
        assert_eq!(metric(&shown, &format!("scheduler_leader_{name}")), ours);
        assert!(ours > 0, "{name}: {shown}");
    }
    let log = anna.log();
    let uuid = line(&log, "Created new leader").split('"').nth(1).unwrap().to_owned();
    until("the key shows who leads", PATIENCE, || async {
        (redis.ask(&["GET", KEY]) == uuid).then_some(())
    })
    .await;
    let left: u64 = redis.ask(&["PTTL", KEY]).parse().unwrap();
    assert!(left <= 1_000, "{left}");
    // It shows something, and decides nothing.
    assert_eq!(redis.ask(&["SET", KEY, "somebody else"]), "OK");
    until("the key shows again who leads", PATIENCE, || async {
        (redis.ask(&["GET", KEY]) == uuid).then_some(())
    })
    .await;
    assert_eq!(metric(&page(at).await, "scheduler_leader_current_leader"), 1);
    anna.stop().await;
    assert_eq!(redis.ask(&["EXISTS", KEY]), "0", "released at SIGTERM");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_replicas_one_leads_and_in_production_the_log_says_no_more_than_it_did() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let redis = Setup::durable().password(PASSWORD).start();
    let replica = |name: &str| {
        let mut command = command(&redis, 0);
        command.env("APP_ENV", "production").env("WATCHBELL_LOG_FORMAT", "json");
        Candidate::spawn(command, dir.path(), name)
    };
    let mut all = ["a", "b", "c"].map(replica);
    until("one leads", PATIENCE, || async {
        let leading = all.iter().filter(|one| one.log().contains("Becoming the leader"));
        (leading.count() == 1).then_some(())
    })
    .await;
    for one in &mut all {
        one.logs("Created new leader").await;
        for line in one.log().lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
            assert!(line["level"] != "DEBUG" && line["fields"]["message"].is_string(), "{line}");
        }
    }
    // A leader that leaves is followed, until nobody is left.
    for left in (0..all.len()).rev() {
        let leading = all.iter().position(|one| one.log().contains("Becoming the leader"));
        let place = leading.unwrap();
        all[place].stop().await;
        std::fs::write(&all[place].log, "").unwrap();
        if left > 0 {
            until("another one leads", PATIENCE, || async {
                all.iter().any(|one| one.log().contains("Becoming the leader")).then_some(())
            })
            .await;
        }
    }
}

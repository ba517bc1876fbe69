//! `watchbell ring`, typed: what people are told, and programs that take turns.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use client::ring::{MAIN, SubscriptionSpec};
use rig::{PATIENCE, machine, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::super::command::{said, watchbell};
use super::super::process::{Dev, WATCHBELL, place};
use super::crowd::{Watcher, make};

/// A `watchbell ring join`, which does not outlive the test.
pub(super) struct Joined {
    child: Child,
    out: PathBuf,
}

impl Joined {
    pub(super) fn start(dir: &Path, servers: &str, name: &str, rest: &[&str]) -> Self {
        let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
        let append =
            |path: &Path| fs::File::options().create(true).append(true).open(path).unwrap();
        let child = Command::new(WATCHBELL)
            .args(["ring", "join", "checks", "--as", name, "--server", servers])
            .args(["--output", "json"])
            .args(rest)
            .stdin(Stdio::null())
            .stdout(append(&out))
            .stderr(append(&log))
            .spawn()
            .unwrap();
        Self { child, out }
    }

    /// What it has told, line by line; what its program prints stands between.
    pub(super) fn told(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.out).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub(super) async fn tells(&self, event: &str, count: usize) -> Vec<Value> {
        until(&format!("{event} {count} times"), PATIENCE, || async {
            let told: Vec<Value> =
                self.told().into_iter().filter(|told| told["event"] == event).collect();
            (told.len() >= count).then_some(told)
        })
        .await
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) async fn stop(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.end().await
    }

    async fn end(&mut self) -> ExitStatus {
        until("it ends", PATIENCE, || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints what it finds around it.
const SHOW: &str = r#"echo "$WATCHBELL_RING $WATCHBELL_RING_SUBSCRIPTION $WATCHBELL_RING_TURN $WATCHBELL_RING_SLOT $WATCHBELL_TOKEN""#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_runs_when_it_is_its_turn_and_finds_turn_slot_and_token() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let url = dev.client.url();
    let made =
        watchbell(&dev, &["ring", "create", "checks", "--every", "300ms", "--accept", "5s"]).await;
    said(&made, 0);
    let mut one = Joined::start(dir.path(), url, "web-1", &["--", "sh", "-c", SHOW]);
    let mut two = Joined::start(dir.path(), url, "web-2", &["--", "sh", "-c", SHOW]);
    let watcher = Watcher::start(&[dev.client.clone()], "checks", MAIN).await;
    one.tells("ended", 3).await;
    two.tells("ended", 3).await;
    let mut ran: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    for (name, joined) in [("web-1", &one), ("web-2", &two)] {
        for line in fs::read_to_string(&joined.out).unwrap().lines() {
            let Some(words) = line.strip_prefix("checks main ") else { continue };
            let words: Vec<&str> = words.split(' ').collect();
            let (turn, token) = (words[0].parse().unwrap(), words[2].parse().unwrap());
            let former = ran.insert(turn, (name.to_owned(), token));
            assert_eq!(former, None, "one turn ran twice");
        }
    }
    let tokens: Vec<u64> = ran.values().map(|(_, token)| *token).collect();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{ran:?}");
    let alternate: Vec<&String> = ran.values().map(|(name, _)| name).collect();
    println!("{alternate:?}");
    // Told to stop, it leaves, and ends well.
    assert_eq!(one.stop().await.code(), Some(0));
    one.tells("left", 1).await;
    let before = watcher.seen().turns().len();
    let turns = watcher.turns(before + 3).await;
    assert!(turns[before + 1..].iter().flatten().all(|name| name == "web-2"), "{turns:?}");
    assert_eq!(two.stop().await.code(), Some(0));
    assert_eq!(dev.client.ring("checks").await.unwrap().members, 0);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_killed_with_its_member_leaves_nothing_behind_and_the_others_go_on() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    make(&dev.client, "checks", &SubscriptionSpec::every("200ms")).await;
    let mark = dir.path().join("alive");
    // It goes on writing for as long as it lives.
    let script = format!("while :; do echo x >> {}; sleep 0.02; done", mark.display());
    let one = Joined::start(dir.path(), dev.client.url(), "web-1", &["--", "sh", "-c", &script]);
    until("its program runs", PATIENCE, || async { mark.exists().then_some(()) }).await;
    one.kill();
    until("nothing of it is left", PATIENCE, || async {
        let len = || fs::metadata(&mark).unwrap().len();
        let before = len();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        (len() == before).then_some(())
    })
    .await;
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_a_taken_name_or_no_ring_is_told_and_ends() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    // Without a ring.
    let mut nowhere = Joined::start(dir.path(), dev.client.url(), "web-0", &["--", "true"]);
    assert_eq!(nowhere.end().await.code(), Some(1));
    make(&dev.client, "checks", &SubscriptionSpec::every("1h")).await;
    let mut earlier = Joined::start(dir.path(), dev.client.url(), "web-1", &["--", "true"]);
    earlier.tells("joined", 1).await;
    let later = Joined::start(dir.path(), dev.client.url(), "web-1", &["--", "true"]);
    earlier.tells("taken", 1).await;
    assert_eq!(earlier.end().await.code(), Some(1));
    drop(later);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rings_are_made_shown_changed_and_deleted_by_what_people_type() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let ring = async |words: &[&str], code: i32| {
        let words = [&["ring"], words].concat();
        said(&watchbell(&dev, &words).await, code)
    };
    let (out, _) = ring(&["create", "checks", "--every", "5s"], 0).await;
    assert!(out.contains("watchbell ring join checks"), "{out}");
    let (_, err) = ring(&["create", "checks", "--every", "5s"], 1).await;
    assert!(err.contains("already"), "{err}");
    let (_, err) = ring(&["create", "other", "--every", "1ms"], 2).await;
    assert!(err.contains("20ms to"), "{err}");
    let deep =
        ["create", "checks", "--subscription", "deep", "--cron", "0 3 * * *", "--count", "2"];
    ring(&deep, 0).await;
    let (out, _) = ring(&["show", "checks"], 0).await;
    for words in ["checks, no members", "every 5s", "0 3 * * *, 2 at a time", "nobody yet"] {
        assert!(out.contains(words), "{words:?} is not in\n{out}");
    }
    let (out, _) = ring(&["list"], 0).await;
    assert!(out.contains("every 5s and 1 more"), "{out}");
    let file = dir.path().join("rings.yaml");
    let text = "rings:\n\
         - name: checks\n  schedule: {every: 5s}\n  subscriptions:\n    deep: {schedule: {cron: '0 4 * * *'}}\n\
         - name: new\n  schedule: {every: 1m}\n";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let (out, _) = ring(&["apply", file, "--dry-run"], 0).await;
    for words in ["+ create new", "~ update checks/deep", "1 unchanged. Nothing was sent."] {
        assert!(out.contains(words), "{words:?} is not in\n{out}");
    }
    ring(&["apply", file], 0).await;
    let (out, _) = ring(&["apply", file], 0).await;
    assert!(out.contains("3 unchanged"), "{out}");
    fs::write(file, "rings: [{name: checks, schedule: {every: 5s}}]\n").unwrap();
    ring(&["apply", file, "--prune", "--prefix", "", "--yes"], 0).await;
    let page = dev.client.rings(&client::RingFilter::default()).await.unwrap();
    let names: Vec<_> =
        page.items.iter().map(|ring| (ring.name.as_str(), ring.subscriptions.len())).collect();
    assert_eq!(names, [("checks", 1)]);
    ring(&["delete", "checks", "--yes"], 0).await;
    let (_, err) = ring(&["show", "checks"], 1).await;
    assert!(err.contains("no ring checks"), "{err}");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_tells_lines_and_objects_and_goes_on_from_a_place() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    make(&dev.client, "checks", &SubscriptionSpec::every("100ms")).await;
    let mut crowd = super::crowd::Crowd::default();
    crowd.join_all(&[dev.client.clone()], "checks", &["a", "b"]).await;
    let (out, _) = said(&watchbell(&dev, &["ring", "watch", "checks", "--count", "4"]).await, 0);
    let turns = out.lines().filter(|line| line.contains("  turn  ")).count();
    assert_eq!(turns, 4, "{out}");
    let words = ["ring", "watch", "checks", "--count", "3", "--output", "json"];
    let (out, _) = said(&watchbell(&dev, &words).await, 0);
    let told: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = told.iter().rfind(|told| told["type"] == "turn").unwrap();
    let place = format!("{}.{}", last["generation"], last["number"]);
    let words = ["ring", "watch", "checks", "--after", &place, "--count", "1", "--output", "json"];
    let (out, _) = said(&watchbell(&dev, &words).await, 0);
    let told: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let next = told.iter().find(|told| told["type"] == "turn").unwrap();
    assert_eq!(next["number"].as_u64().unwrap(), last["number"].as_u64().unwrap() + 1, "{out}");
    said(&watchbell(&dev, &["ring", "skip", "checks"]).await, 0);
    said(&watchbell(&dev, &["ring", "remove", "checks", "a", "--yes"]).await, 0);
    dev.stop().await;
}

//! What the program finds around it: variables, the deadline file, signals, and where what it prints goes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rig::machine;
use rig::redis::Setup;
use store::machine::{Machine, System};

use super::super::process::Spawned;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_finds_its_token_its_hold_and_its_deadline_and_no_secret() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().password("geheim").start());
    let found = dir.path().join("found");
    let program = format!(
        "env > {found}.env; while :; do cat $WATCHBELL_DEADLINE_FILE > {found}.new; mv {found}.new {found}; sleep 0.05; done",
        found = found.display()
    );
    let held = Held { flags: &STEADY, program: &program };
    let anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    let token = anna.event("running", 1).await["token"].as_u64().unwrap();
    let deadline = || async {
        let told: Value = serde_json::from_str(&fs::read_to_string(&found).ok()?).ok()?;
        assert_eq!(told["token"], token);
        told["boot_ms"].as_u64()
    };
    let first = until("it finds a deadline", PATIENCE, deadline).await;
    let left = first.saturating_sub(u64::try_from(System.reading().boot.as_millis()).unwrap());
    assert!(left <= 4_250, "{left}");
    until("the deadline moves on", PATIENCE, || async {
        deadline().await.filter(|later| *later > first)
    })
    .await;
    let env = fs::read_to_string(found.with_extension("env")).unwrap();
    assert!(env.contains(&format!("WATCHBELL_TOKEN={token}\n")), "{env}");
    assert!(env.contains("WATCHBELL_HOLD=mailer\n") && env.contains("NODE=anna\n"), "{env}");
    assert!(!env.contains("geheim") && !env.contains("WATCHBELL_STORE"), "{env}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_that_are_not_for_the_supervisor_are_passed_on() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let program =
        "trap 'echo hup' HUP; trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done";
    let held = Held { flags: &STEADY, program };
    let mut anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    let says = async |word: &str| {
        until(&format!("it says {word}"), PATIENCE, || async {
            let text = anna.said();
            text.lines().any(|line| line == word).then_some(())
        })
        .await;
    };
    says("ready").await;
    anna.event("running", 1).await;
    for (signal, word) in [(Signal::HUP, "hup"), (Signal::USR1, "usr1")] {
        anna.signal(signal);
        says(word).await;
    }
    anna.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_prints_goes_to_files_that_follow_each_other() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let out = dir.path().join("printed");
    let program = "seq 1 3000; echo done >&2; sleep 3600";
    let files = ["--output-file", out.to_str().unwrap(), "--output-max-bytes", "4K"];
    let flags = [&STEADY[..], &files, &["--output-files", "3"]].concat();
    let held = Held { flags: &flags, program };
    let mut anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    until("all is written", PATIENCE, || async {
        fs::read_to_string(&out).is_ok_and(|text| text.ends_with("done\n")).then_some(())
    })
    .await;
    let names = ["printed.2", "printed.1", "printed"].map(|name| dir.path().join(name));
    let texts = names.map(|name| fs::read_to_string(name).unwrap());
    assert!(texts.iter().all(|text| text.len() <= 4_096), "{texts:?}");
    let numbers: Vec<u32> = texts.concat().lines().filter_map(|line| line.parse().ok()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
    assert_eq!(numbers.last(), Some(&3_000));
    assert!(!dir.path().join("printed.3").exists());
    assert_eq!(anna.events().len(), anna.said().lines().count());
    anna.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_metrics_tell_what_it_does() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Holder::start(dir.path(), "anna", &redis.url(), &STEADY);
    let token = anna.event("running", 1).await["token"].as_u64().unwrap();
    let page = until("it was renewed", PATIENCE, || async {
        Some(anna.metrics().await)
            .filter(|page| !page.contains("watchbell_hold_renewals_total 0\n"))
    })
    .await;
    for line in [
        "claims_total 1",
        "starts_total 1",
        "exits_total 0",
        &format!("token {token}"),
        "state{state=\"running\"} 1",
        "state{state=\"candidate\"} 0",
        "at_most_one_at_risk_total{reason=\"guards_killed\"} 0",
    ] {
        assert!(page.contains(&format!("\nwatchbell_hold_{line}\n")), "{line}: {page}");
    }
    assert!(!page.contains("watchbell_hold_valid_for_seconds 0.0\n"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stdout_has_what_the_program_prints_and_nothing_else() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let held = Held { flags: &STEADY, program: "seq 1 100; exec sleep 3600" };
    let mut anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    anna.runs().await;
    until("all is printed", PATIENCE, || async {
        fs::read_to_string(&anna.out).unwrap().ends_with("\n100\n").then_some(())
    })
    .await;
    anna.stop().await;
    assert_eq!(anna.count("given_up"), 1, "{}", anna.log());
    let text = fs::read_to_string(&anna.out).unwrap();
    assert!(text.lines().map(str::parse).eq((1..=100).map(Ok)), "{text}");
}

/// The log would be written by whoever renews.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_read_stderr_holds_up_no_renewal_and_no_end() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let mut command = Command::new(WATCHBELL);
    command
        .args(["hold", NAME, "--log-level", "trace", "--lock-dir"])
        .arg(dir.path().join("locks"));
    command.args(STEADY).args(["--", "sh", "-c", "yes >&2 & echo $WATCHBELL_DEADLINE_FILE; wait"]);
    command.env("WATCHBELL_STORE", redis.url());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (stdout, _unread) = (child.stdout.take().unwrap(), child.stderr.take());
    let mut anna = Spawned { child, log: PathBuf::new() };
    let deadlines = tokio::task::block_in_place(|| {
        let mut path = String::new();
        BufReader::new(stdout).read_line(&mut path).unwrap();
        PathBuf::from(path.trim_end())
    });
    let until_ms = || {
        let text = fs::read_to_string(&deadlines).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["boot_ms"].as_u64()
    };
    let first = until("there is a deadline", PATIENCE, || async { until_ms() }).await;
    // Longer than a program goes on without a renewal.
    until("it is renewed all the while", PATIENCE, || async {
        until_ms().filter(|until_ms| *until_ms > first + 6_000)
    })
    .await;
    assert!(anna.stop().await.success());
}

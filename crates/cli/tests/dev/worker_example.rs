//! The two workers that people copy from docs/queues.md, as real processes against a real server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use client::Client;
use client::run::{Run, RunState};
use rig::{Ask, PATIENCE, machine, until};
use serde_json::{Value, json};

use super::process::{Dev, Spawned, place};

/// What a worker is asked to do. The second one fails unless it is tried again.
const PROGRAMS: [(&str, &str); 2] =
    [("steady", "cat >>carried-out"), ("flaky", "tee -a carried-out | grep -q '\"attempt\": 2'")];

const RUNS: usize = 20;

/// Signs that mean something to shells and in JSON.
const TEXT: &str = "it's \"so\"; $(date) \\ \n é";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_document_shows_both_workers_word_for_word() {
    let page = fs::read_to_string(docs().join("queues.md")).unwrap();
    for (name, language) in [("worker.py", "python"), ("worker.sh", "sh")] {
        let worker = fs::read_to_string(docs().join("examples").join(name)).unwrap();
        assert!(
            page.contains(&format!("```{language}\n{worker}```\n")),
            "{name} is shown otherwise"
        );
    }
    let python = fs::read_to_string(docs().join("examples/worker.py")).unwrap();
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with(['#', '"']);
    assert!(python.lines().filter(is_code).count() <= 20, "it is to be twenty lines");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_in_python_carries_out_runs_and_what_failed_once_more() {
    let _machine = machine::waits().await;
    carries_out("worker.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_of_curl_and_sh_carries_out_runs_and_what_failed_once_more() {
    let _machine = machine::waits().await;
    carries_out("worker.sh").await;
}

async fn carries_out(name: &str) {
    let (dir, data) = place();
    let programs = dir.path().join("handlers");
    fs::create_dir(&programs).unwrap();
    for (handler, script) in PROGRAMS {
        let program = programs.join(handler);
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let dev = Dev::start(&data);
    let url = dev.client.url().trim_end_matches('/');
    let mut worker = start(name, url, dir.path());

    let flaky = RUNS / 2;
    let mut ids = Vec::new();
    for index in 0..RUNS {
        let handler = if index == flaky { "flaky" } else { "steady" };
        let run = json!({
            "queue": "mail", "handler": handler, "retry": { "attempts": 2, "delay": "1s" },
            "payload": { "index": index, "text": TEXT },
        });
        let to = url.strip_prefix("http://").unwrap().parse().unwrap();
        let taken = Ask::new(to, "POST", "/v1/runs").body(&run).await.is(201).json();
        ids.push(taken["id"].as_str().unwrap().to_owned());
    }
    for (index, id) in ids.iter().enumerate() {
        let run = ended(&dev.client, id).await;
        let said = fs::read_to_string(&worker.log).unwrap();
        assert_eq!(run.state, RunState::Succeeded, "{run:?}\n{said}");
        let attempts = if index == flaky { 2 } else { 1 };
        assert_eq!((run.attempt, run.attempts.len()), (attempts, attempts as usize), "{run:?}");
    }
    // Each was begun as often as the server says, and with what was submitted.
    let carried_out = fs::read_to_string(dir.path().join("carried-out")).unwrap();
    let begun = serde_json::Deserializer::from_str(&carried_out).into_iter::<Value>();
    let begun: Vec<Value> = begun.collect::<Result<_, _>>().unwrap();
    assert_eq!(begun.len(), RUNS + 1, "{carried_out}");
    for run in &begun {
        let index = ids.iter().position(|id| run["id"] == **id).unwrap();
        assert_eq!(run["payload"]["index"], index);
        assert_eq!(run["payload"]["text"], TEXT);
    }
    worker.stop().await;
    dev.kill();
}

/// Starts a worker that keeps its programs and what they leave behind in this directory.
fn start(name: &str, url: &str, dir: &Path) -> Spawned {
    let log = dir.join("worker.log");
    let file = fs::File::create(&log).unwrap();
    let mut command = Command::new(docs().join("examples").join(name));
    command.args([url, "mail", "worker-1", "handlers"]).current_dir(dir);
    command.env_remove("WATCHBELL_KEY").stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    Spawned { child: command.spawn().unwrap(), log }
}

/// Waits until a run has ended.
async fn ended(client: &Client, id: &str) -> Run {
    until(&format!("the run {id} ends"), PATIENCE, || async {
        client.run_by_id(id).await.ok().filter(|run| run.state.is_end())
    })
    .await
}

//! A worker that is stopped past its lease, as a real process: its run goes to another one, and what it says later does
//! not count and is not mixed in. Whoever watches is told that it fell silent, and when it is forgotten.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use std::time::Duration;

use client::event::EventKind;
use client::output::{OutputChunk, OutputRequest, OutputStream};
use client::queue::RunSpec;
use client::run::RunState;
use client::worker::{ClaimRequest, ClaimedRun, HeldRun, RunResult};
use client::{Client, ClientError, Events};
use engine::limits::WORKER_FORGOTTEN_MS;
use rig::{PATIENCE, machine, until};
use rustix::process::{Pid, Signal, kill_process};
use store::clock::Stopwatch;

use super::process::{Dev, Spawned, place};
use super::queue_worker::{TestWorker, done, held};

/// Says who began it, and ends when it may.
const PROGRAM: &str = "#!/bin/sh
echo begun >>\"begun-$WORKER\"
until [ -e go-on ]; do sleep 0.05; done
";

/// Starts the worker of docs/queues.md under this name, with a lease of so many seconds. It tells its acks.
fn start(name: &str, lease_secs: u32, url: &str, dir: &Path) -> Spawned {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = fs::read_to_string(docs.join("examples/worker.py")).unwrap();
    let (lease, cookie) = ("\"WATCHBELL_KEY\", None), 600", "    cookie, done = answer");
    assert!(text.contains(lease) && text.contains(cookie), "{text}");
    let text = text.replace(lease, &format!("\"WATCHBELL_KEY\", None), {lease_secs}"));
    let tells = "    print(json.dumps(answer[\"acks\"]), file=sys.stderr, flush=True)\n";
    let text = text.replace(cookie, &format!("{tells}{cookie}"));
    let script = dir.join(format!("{name}.py"));
    fs::write(&script, text).unwrap();
    let log = dir.join(format!("{name}.log"));
    let file = fs::File::create(&log).unwrap();
    let mut command = Command::new("python3");
    command.arg(script).args([url, "mail", name, "handlers"]).current_dir(dir);
    command.env_remove("WATCHBELL_KEY").env("WORKER", name);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    Spawned { child: command.spawn().unwrap(), log }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_stopped_past_its_lease_has_lost_its_run() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dir = dir.path();
    fs::create_dir(dir.join("handlers")).unwrap();
    let program = dir.join("handlers/slow");
    fs::write(&program, PROGRAM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let dev = Dev::start(&data);
    let url = dev.client.url().trim_end_matches('/');
    let spec = RunSpec {
        queue: Some("mail".to_owned()),
        handler: Some("slow".to_owned()),
        ..RunSpec::default()
    };
    let id = dev.client.submit(&spec).await.unwrap().id;
    let mut events = dev.client.events().await.unwrap();

    let first = start("first", 3, url, dir);
    began(dir, "first").await;
    kill_process(Pid::from_child(&first.child), Signal::STOP).unwrap();
    assert_eq!(next_of_workers(&mut events).await, came("first"));
    let silent = EventKind::WorkerSilent { worker: "first".to_owned(), runs: 1 };
    assert_eq!(next_of_workers(&mut events).await, silent);
    let mut second = start("second", 600, url, dir);
    began(dir, "second").await;
    fs::write(dir.join("go-on"), "").unwrap();
    let ended = until("the run ends", PATIENCE, || async {
        dev.client.run_by_id(&id).await.ok().filter(|run| run.state.is_end())
    });
    let ended = ended.await;
    assert_eq!((ended.state, ended.attempt), (RunState::Succeeded, 2), "{ended:?}");

    kill_process(Pid::from_child(&first.child), Signal::CONT).unwrap();
    let said = first.says(&format!("\"id\": \"{id}\"")).await;
    assert!(said.contains("\"counted\": false"), "{said}");
    let counted = second.says("\"counted\": true").await;
    assert!(counted.contains(&id), "{counted}");
    let after = dev.client.run_by_id(&id).await.unwrap();
    assert_eq!(after, ended, "a late result changes nothing");
    let workers: Vec<_> = after.attempts.iter().map(|it| it.worker.as_deref()).collect();
    assert_eq!(workers, [Some("first"), Some("second")], "{after:?}");
    let error = after.attempts[0].error.as_deref().unwrap_or_default();
    assert!(error.contains("was not heard of"), "{after:?}");
    second.stop().await;
    dev.kill();
}

fn came(worker: &str) -> EventKind {
    EventKind::WorkerCame { worker: worker.to_owned() }
}

/// What those who watch are told next about workers.
async fn next_of_workers(events: &mut Events) -> EventKind {
    let told = async {
        loop {
            let what = events.next().await.unwrap().what;
            if what.kind().starts_with("worker_") {
                return what;
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("it is told in time")
}

async fn print(client: &Client, run: &ClaimedRun, text: &str) -> Result<u64, ClientError> {
    let chunks = vec![OutputChunk::new(0, OutputStream::Stdout, text.as_bytes())];
    let request = OutputRequest { token: run.token, chunks, ..OutputRequest::default() };
    client.send_output(&run.id, &request).await.map(|answer| answer.next)
}

/// Reports all that a worker has, and tells of each whether that counted.
async fn counted(worker: &mut TestWorker, client: &Client, runs: &[ClaimedRun]) -> Vec<bool> {
    let results = runs.iter().map(|run| done(run, RunResult::Succeeded)).collect();
    let request = ClaimRequest { done: results, ..worker.request(0, 0) };
    let answer = worker.send(client, &request).await.unwrap();
    answer.acks.iter().map(|ack| ack.counted).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worker_prints_that_was_given_up_is_refused_and_not_mixed_in() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let client = &dev.client;
    let mut events = client.events().await.unwrap();
    let spec = RunSpec {
        queue: Some("mail".to_owned()),
        handler: Some("work".to_owned()),
        ..RunSpec::default()
    };
    let (mut first, mut second) =
        (TestWorker::new("first", "mail"), TestWorker::new("second", "mail"));
    // Long enough to print something on a busy machine.
    first.lease_ms = 4_000;
    for _ in 0..2 {
        client.submit(&spec).await.unwrap();
    }
    let old = first.claim_some(client, 2).await;
    assert_eq!(old.len(), 2, "{old:?}");
    for run in &old {
        assert_eq!(print(client, run, "first").await.unwrap(), 5);
    }
    assert_eq!(next_of_workers(&mut events).await, came("first"));
    // From now on it says nothing.
    let silent = EventKind::WorkerSilent { worker: "first".to_owned(), runs: 2 };
    assert_eq!(next_of_workers(&mut events).await, silent);

    assert_eq!(client.run_output(&old[0].id).await.unwrap().bytes, 5, "it is kept");
    let new = second.claim_some(client, 2).await;
    assert_eq!(new.len(), 2, "{new:?}");
    assert_eq!(next_of_workers(&mut events).await, came("second"));
    for (old, new) in old.iter().zip(&new) {
        assert_eq!((&old.id, old.attempt, new.attempt), (&new.id, 1, 2), "in the same order");
        let refused = print(client, old, "late words of the first").await;
        assert!(matches!(refused, Err(ClientError::Conflict(_))), "{refused:?}");
        assert_eq!(print(client, new, "second").await.unwrap(), 6);
        let refused = print(client, old, "later words of the first").await;
        assert!(matches!(refused, Err(ClientError::Conflict(_))), "{refused:?}");
        let output = client.run_output(&new.id).await.unwrap();
        assert_eq!((output.attempt, output.chunks.len()), (Some(2), 1), "{output:?}");
        assert_eq!(output.chunks[0].text.as_deref(), Some("second"));
    }
    let lost: Vec<HeldRun> = old.iter().map(held).collect();
    assert_eq!(first.beat(client, &old).await.unwrap().lost, lost);
    assert_eq!(counted(&mut first, client, &old).await, [false; 2], "another one has them");
    assert_eq!(counted(&mut second, client, &new).await, [true; 2]);
    for run in &new {
        let output = client.run_output(&run.id).await.unwrap();
        assert_eq!(output.chunks[0].text.as_deref(), Some("second"), "what counted is kept");
    }
    dev.kill();
}

#[ignore = "some ten minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_runs_that_is_not_heard_of_for_long_is_told_as_gone() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let mut events = dev.client.events().await.unwrap();
    let mut worker = TestWorker::new("web-1", "mail");
    worker.beat(&dev.client, &[]).await.unwrap();
    let watch = Stopwatch::start();
    assert_eq!(next_of_workers(&mut events).await, came("web-1"));
    let gone = async {
        loop {
            if let EventKind::WorkerGone { worker } = events.next().await.unwrap().what {
                return worker;
            }
        }
    };
    let most = Duration::from_millis(WORKER_FORGOTTEN_MS) + PATIENCE * 2;
    let gone = tokio::time::timeout(most, gone).await.expect("it is told in time");
    println!("told as gone after {:?}", watch.elapsed());
    assert_eq!(gone, "web-1");
    assert_eq!(dev.client.workers().await.unwrap().items, []);
    dev.kill();
}

/// Waits until a worker has begun the run.
async fn began(dir: &Path, worker: &str) {
    until(&format!("{worker} begins the run"), PATIENCE, || async {
        dir.join(format!("begun-{worker}")).exists().then_some(())
    })
    .await;
}

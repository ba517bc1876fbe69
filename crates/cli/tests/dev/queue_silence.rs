//! A worker that is stopped past its lease, as a real process: its run goes to another one, and what it says later does
//! not count.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use client::queue::RunSpec;
use client::run::RunState;
use rig::{PATIENCE, machine, until};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{Dev, Spawned, place};

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

    let first = start("first", 3, url, dir);
    began(dir, "first").await;
    kill_process(Pid::from_child(&first.child), Signal::STOP).unwrap();
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

/// Waits until a worker has begun the run.
async fn began(dir: &Path, worker: &str) {
    until(&format!("{worker} begins the run"), PATIENCE, || async {
        dir.join(format!("begun-{worker}")).exists().then_some(())
    })
    .await;
}

//! The systemd units, as far as they can be started without systemd: their very lines, with other places.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use client::Client;
use client::run::RunState;
use rig::redis::Setup;
use rig::{PATIENCE, machine, until};
use serde_json::Value;

use super::process::{Spawned, WATCHBELL};

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd").join(name);
    fs::read_to_string(path).unwrap()
}

/// The words that a unit starts.
fn start_of(unit: &str) -> Vec<String> {
    let text = deploy(unit);
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

/// Starts a unit with these texts in the place of others.
fn start(unit: &str, dir: &Path, changes: &[(&str, &str)]) -> Spawned {
    start_with(unit, dir, changes, &[])
}

/// The same with these variables, which systemd reads from a file.
fn start_with(
    unit: &str,
    dir: &Path,
    changes: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> Spawned {
    let words = start_of(unit).into_iter().map(|word| changed(word, changes));
    let words: Vec<String> = words.collect();
    let log = dir.join(format!("{unit}.log"));
    let file = fs::File::create(&log).unwrap();
    let child: Child = Command::new(&words[0])
        .args(&words[1..])
        .current_dir("/")
        .env_clear()
        .env("STATE_DIRECTORY", dir.join("state"))
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    Spawned { child, log }
}

fn changed(text: String, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

fn write(path: PathBuf, text: &str, mode: u32) -> PathBuf {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// What a verb says on stdout.
fn said(words: &[&str]) -> String {
    let output = Command::new(WATCHBELL).args(words).env_clear().output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_units_start_a_server_and_a_worker_that_carries_out_a_run() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for name in ["lib", "state", "programs"] {
        fs::create_dir(at(name)).unwrap();
    }
    let address = format!("127.0.0.1:{}", rig::free_port());
    let server = [
        ("/usr/local/bin/watchbell", WATCHBELL),
        ("/var/lib/watchbell", &at("lib")),
        ("127.0.0.1:7400", &address),
    ];
    let _server = start("watchbell.service", dir.path(), &server);
    let url = format!("http://{address}");
    let admin = at("lib/admin-key");
    let client = until("the server is up, and has written its key", PATIENCE, || async {
        let key = fs::read_to_string(&admin).ok()?;
        let client = Client::builder(&url).key(key.trim()).build().ok()?;
        client.workers().await.ok().map(|_| client)
    })
    .await;

    let door = ["--server", &url, "--key-file", &admin];
    let create = ["key", "create", "--name", "worker", "--scope", "worker"];
    let key = said(&[&create[..], &["--project", "default"], &door].concat());
    write(dir.path().join("key"), &key, 0o400);
    let settings = [
        ("http://127.0.0.1:7400", url.as_str()),
        ("/usr/local/lib/watchbell", &at("programs")),
        ("127.0.0.1:9835", "127.0.0.1:0"),
    ];
    let settings = changed(deploy("worker.toml"), &settings);
    let settings = write(dir.path().join("worker.toml"), &settings, 0o644);
    let worker = [
        ("/usr/local/bin/watchbell", WATCHBELL),
        ("/etc/watchbell/worker.toml", settings.to_str().unwrap()),
        ("${CREDENTIALS_DIRECTORY}", dir.path().to_str().unwrap()),
    ];
    let mut worker = start("watchbell-worker.service", dir.path(), &worker);
    let program = write(dir.path().join("programs/greet"), "#!/bin/sh\necho good morning\n", 0o755);
    let submit = ["run", "submit", "--queue", "default", "--output", "json"];
    let program = program.to_str().unwrap();
    let taken = said(&[&submit[..], &["--project", "default"], &door, &["--", program]].concat());
    let taken: Value = serde_json::from_str(&taken).unwrap();
    let id = taken["id"].as_str().unwrap();
    let client = client.in_project("default").unwrap();
    let run = until("the run ends", PATIENCE, || async {
        client.run_by_id(id).await.ok().filter(|run| run.state.is_end())
    })
    .await;
    let log = fs::read_to_string(&worker.log).unwrap();
    assert_eq!(run.state, RunState::Succeeded, "{run:?}\n{log}");
    assert!(
        fs::read_dir(at("state")).unwrap().next().is_some(),
        "the spool is in the state directory"
    );
    assert!(worker.stop().await.success(), "{}", fs::read_to_string(&worker.log).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unit_of_a_hold_starts_its_program_and_hands_it_over_when_it_is_stopped() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let told = dir.path().join("told");
    let script = format!(
        "#!/bin/sh\necho $WATCHBELL_HOLD $WATCHBELL_TOKEN >>{}\nexec sleep 3600\n",
        told.display()
    );
    let program = write(dir.path().join("mailer"), &script, 0o755);
    let started = async |machine: &str| {
        let place = dir.path().join(machine);
        fs::create_dir(&place).unwrap();
        let changes = [
            ("/usr/local/bin/watchbell", WATCHBELL),
            ("%i", "mailer"),
            ("${RUNTIME_DIRECTORY}", place.to_str().unwrap()),
            ("$PROGRAM", program.to_str().unwrap()),
        ];
        let variables = [("WATCHBELL_STORE", redis.url()), ("WATCHBELL_NODE", machine.to_owned())];
        let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
        start_with("watchbell-hold@.service", &place, &changes, &variables)
    };
    let runs = async |count: usize| {
        until(&format!("{count} programs have run"), PATIENCE, || async {
            let told = fs::read_to_string(&told).unwrap_or_default();
            (told.matches('\n').count() >= count).then_some(told)
        })
        .await
    };
    let mut one = started("web-1").await;
    runs(1).await;
    let mut other = started("web-2").await;
    other.says("web-1 has the claim").await;
    assert!(one.stop().await.success(), "{}", fs::read_to_string(&one.log).unwrap());
    let told = runs(2).await;
    let tokens: Vec<u64> =
        told.lines().map(|line| line.strip_prefix("mailer ").unwrap().parse().unwrap()).collect();
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{told}");
    assert!(other.stop().await.success(), "{}", fs::read_to_string(&other.log).unwrap());
}

/// What systemd itself says of them, where its tool is installed.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let dir = tempfile::tempdir().unwrap();
    for unit in ["watchbell.service", "watchbell-worker.service", "watchbell-hold@.service"] {
        let text = deploy(unit).replace("/usr/local/bin/watchbell", WATCHBELL);
        let path = dir.path().join(unit);
        fs::write(&path, text).unwrap();
        let verified =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
        let Ok(verified) = verified else {
            eprintln!(
                "systemd-analyze is not installed: the units are read by crates/cli/src/args/deploy.rs alone"
            );
            return;
        };
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        // What older versions do not know they leave out.
        let about_us: Vec<&str> = said
            .lines()
            .filter(|line| line.contains(unit) && !line.contains("DelegateSubgroup"))
            .collect();
        assert!(about_us.is_empty() && verified.status.success(), "{unit}: {said}");
    }
}

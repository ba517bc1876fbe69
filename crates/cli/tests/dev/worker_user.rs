//! Whose rights the programs of a worker have, and what they may read of it. Only root can test that, as whoever tests is in a
//! container.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use client::run::RunState;
use rig::machine;

use super::command::said;
use super::process::WATCHBELL;
use super::worker_command::{Stage, mark};

/// The user `nobody` of every Linux.
const NOBODY: u32 = 65_534;

/// Ends with its test, however that ends.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the test can be made; if not, it says so.
fn is_root() -> bool {
    if !rig::is_root() {
        eprintln!("not tested: only root can start a process as another user");
    }
    rig::is_root()
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn programs_of_another_user_read_neither_key_nor_spool() {
    if !is_root() {
        return;
    }
    let _share = machine::waits().await;
    let stage = Stage::new();
    permit(stage.dir.path(), 0o777);
    let key = stage.dir.path().join("key");
    fs::write(&key, "wbk_0").unwrap();
    permit(&key, 0o600);
    let user = NOBODY.to_string();
    let mut worker = stage.worker("w", &["--user", &user]);
    let script =
        "id -u; id -G; cat key 2>/dev/null || echo no key; ls spool 2>/dev/null || echo no spool";
    let id = stage.submit(&mark("nobody"), &format!("({script}) >seen; touch done")).await;
    stage.is(&id, RunState::Succeeded).await;
    assert_eq!(stage.read("seen"), format!("{user}\n{user}\nno key\nno spool\n"));
    worker.stop().await;
}

#[tokio::test]
async fn programs_of_the_same_user_do_not_read_the_environment_of_their_worker() {
    if !is_root() {
        return;
    }
    let _share = machine::waits().await;
    let stage = Stage::new();
    permit(stage.dir.path(), 0o777);
    let worker = as_nobody(stage.dir.path())
        .args(["worker", "--server", stage.url(), "--name", "w", "--allow-any"])
        .args(["--isolate", "group", "--spool"])
        .arg(stage.dir.path().join("spool"))
        .env("WATCHBELL_TEST", "hidden")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let worker = Ending(worker);
    let of_worker = format!("/proc/{}", worker.0.id());
    let script = format!("cat {of_worker}/environ >seen 2>why || echo closed >>seen");
    let id = stage.submit(&mark("same"), &script).await;
    stage.is(&id, RunState::Succeeded).await;
    assert_eq!(stage.read("seen"), "closed\n");
    assert!(stage.read("why").contains("Permission denied"), "{}", stage.read("why"));
    let owner = fs::metadata(stage.dir.path().join("seen")).unwrap().uid();
    assert_eq!(owner, NOBODY, "program and worker are of one user");
}

#[tokio::test]
async fn a_worker_that_may_not_limit_its_programs_does_not_start() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    permit(dir.path(), 0o777);
    for limit in [["--memory-max", "64M"], ["--processes-max", "10"]] {
        // Nobody has no cgroup that it may write to.
        let mut command = as_nobody(dir.path());
        command.args(["worker", "--server", "http://127.0.0.1:1", "--allow-any", "--spool"]);
        command.arg(dir.path().join("spool")).args(limit);
        let why = said(&command.output().unwrap(), 4).1;
        assert!(why.contains(limit[0]), "{limit:?}: {why}");
    }
}

/// The command line of Watchbell, as that user. Below the home of whoever tests it can start nothing: hence a copy.
fn as_nobody(dir: &Path) -> Command {
    let copy = dir.join("watchbell");
    if !copy.exists() {
        // By another process: if this one had it open for writing, so would children that other tests start meanwhile.
        assert!(Command::new("cp").arg(WATCHBELL).arg(&copy).status().unwrap().success());
        permit(&copy, 0o755);
    }
    let mut command = Command::new("setpriv");
    let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    command.args(ids).arg("--clear-groups").arg(copy).current_dir(dir);
    command
}

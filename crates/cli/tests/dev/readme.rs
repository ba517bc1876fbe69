//! What the README shows of queues works as it is printed: five lines that a stranger types.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rig::machine;

use super::process::{Spawned, WATCHBELL};

const FIRST: &str = "watchbell dev --allow ";

/// The first line, for one terminal, and those for the other.
fn lines() -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with(FIRST));
    let first = lines.next().expect("the README shows it").to_owned();
    let rest: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    assert_eq!(rest.len(), 4, "{rest:?}");
    (first, rest.join("\n"))
}

/// A shell that knows Watchbell by its name, in this directory, and reads these lines.
fn shell(dir: &Path, lines: &str) -> Command {
    let path = std::env::join_paths([dir.join("bin"), "/usr/bin".into(), "/bin".into()]).unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-e", "-c", lines]).current_dir(dir).stdin(Stdio::null()).env("PATH", path);
    // Where it is printed for, other tests would be.
    shell.env("WATCHBELL_LISTEN", "127.0.0.1:0");
    shell
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_five_lines_about_queues_submit_a_run_show_what_it_printed_and_that_it_is_done() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(WATCHBELL, dir.path().join("bin/watchbell")).unwrap();
    let (first, rest) = lines();
    let log = dir.path().join("dev.log");
    let mut server = shell(dir.path(), &format!("exec {first}"));
    server.stdout(fs::File::create(&log).unwrap()).stderr(Stdio::null());
    let mut server = Spawned { child: server.spawn().unwrap(), log };
    let told = server.says("run submit").await;
    let url = told.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let mut typed = shell(dir.path(), &rest);
    let typed = tokio::task::block_in_place(|| typed.env("WATCHBELL_SERVER", url).output());
    let typed = typed.unwrap();
    let (shown, wrong) =
        (String::from_utf8(typed.stdout).unwrap(), String::from_utf8(typed.stderr).unwrap());
    assert!(typed.status.success(), "{shown}{wrong}");
    assert!(shown.starts_with("eight bells\n"), "{shown}{wrong}");
    assert!(shown.contains("  succeeded  run_"), "{shown}{wrong}");
    assert!(server.stop().await.success());
}

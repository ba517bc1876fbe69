//! Disks that fail: no room, a sync that errs, and the order of syncs and answers.

use std::path::Path;
use std::process::Command;

use super::child::{COMMITTER, Testimony, listen};

/// A command that must be there; a missing one is a failure with a hint.
fn tool(name: &str) -> Command {
    let found = Command::new(name).arg("--version").output();
    assert!(found.is_ok(), "{name} is missing: run scripts/need test");
    Command::new(name)
}

#[test]
fn a_full_disk_refuses_and_loses_nothing_and_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = tool("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=4m tmpfs \"$1\" && exec \"$2\" fill \"$1\"");
    command.arg("sh").arg(dir.path()).arg(COMMITTER);
    let mut lines = Vec::new();
    listen(&mut command, |line| {
        lines.push(line.to_owned());
        true
    });
    let said = lines.join("\n");
    assert!(said.contains("there is no room left in"), "{said}");
    assert!(said.contains("fine with"), "{said}");
}

#[tokio::test]
async fn a_sync_that_fails_poisons_the_store_and_loses_nothing() {
    for failing in [3, 40] {
        let dir = tempfile::tempdir().unwrap();
        // The store is made first: what fails is the writer, not the making.
        let mut testimony = Testimony::default();
        let mut heard = 0;
        listen(Command::new(COMMITTER).arg("commit").arg(dir.path()).arg("2"), |line| {
            testimony.hear(line).unwrap();
            heard += 1;
            heard < 10
        });
        let mut command = tool("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e"]);
        command.arg(format!("inject=fdatasync:error=EIO:when={failing}+"));
        command.arg(COMMITTER).arg("commit").arg(dir.path()).arg("2");
        listen(&mut command, |line| {
            testimony.hear(line).unwrap();
            true
        });
        let errors = &testimony.errors;
        let told = errors
            .iter()
            .all(|error| error.starts_with("unknown") || error.starts_with("unavailable"));
        assert!(errors.len() == 2 && told, "sync {failing}: {errors:?}");
        assert!(errors.iter().any(|error| error.contains("Input/output error")), "{errors:?}");
        testimony.check(dir.path()).await.unwrap();
    }
}

/// Every acknowledgement comes after a successful sync that came after the write before it.
fn check_order(trace: &str) -> Result<usize, String> {
    #[derive(PartialEq)]
    enum Since {
        Nothing,
        Written,
        Synced,
    }
    let mut since = Since::Nothing;
    let mut acknowledgements = 0;
    for line in trace.lines() {
        if line.contains("pwrite64(") && since == Since::Nothing {
            since = Since::Written;
        } else if line.contains("fdatasync") && line.ends_with("= 0") && since == Since::Written {
            since = Since::Synced;
        } else if line.contains("write(1, \"ack ") {
            if since != Since::Synced {
                return Err(format!("acknowledged without a sync: {line}"));
            }
            since = Since::Nothing;
            acknowledgements += 1;
        }
    }
    Ok(acknowledgements)
}

fn trace(dir: &Path) -> String {
    let file = dir.join("trace");
    let mut command = tool("strace");
    command
        .args(["-f", "-qq", "-s", "16", "-e", "trace=pwrite64,fdatasync,write", "-o"])
        .arg(&file);
    command.arg(COMMITTER).arg("commit").arg(dir.join("data")).args(["1", "briefly"]);
    listen(&mut command, |_| true);
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn nothing_is_acknowledged_before_it_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let trace = trace(dir.path());
    let acknowledgements = check_order(&trace).unwrap();
    assert!(acknowledgements > 20, "{acknowledgements} acknowledgements in the trace");

    let without_syncs: Vec<&str> =
        trace.lines().filter(|line| !line.contains("fdatasync")).collect();
    let without_syncs = without_syncs.join("\n");
    assert!(check_order(&without_syncs).is_err(), "a store that does not sync would be noticed");
}

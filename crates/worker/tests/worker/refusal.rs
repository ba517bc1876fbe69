//! All that a worker does not run: it fails for good, says what to change, and starts nothing.

use client::worker::RunResult;
use rig::machine;
use serde_json::{Value, json};
use worker::command::{AllowList, CommandPolicy};

use crate::stage::{carry_run, hands, isolations, policy, run_with};

/// What a run of this command is refused with, by a worker that allows nothing but `/bin/echo` and what is in a directory.
async fn refused(command: Value) -> String {
    let allow = AllowList::listed(vec!["/bin/echo".into(), "/usr/bin".into()]).unwrap();
    let hands = hands(CommandPolicy { allow, ..policy(isolations()[0]) });
    let (outcome, carried) = carry_run(&hands, run_with(&json!({"command": command}))).await;
    assert_eq!((outcome.result, outcome.final_failure), (RunResult::Failed, true), "{outcome:?}");
    assert_eq!((hands.counts().refused, hands.counts().started), (1, 0));
    assert!(carried.context.printed().is_empty());
    outcome.error.expect("it says why")
}

#[tokio::test]
async fn a_program_that_is_not_listed_is_refused_with_the_flag_that_would_allow_it() {
    let _share = machine::waits().await;
    let why = refused(json!({"argv": ["/etc/hostname"]})).await;
    let expected = "/etc/hostname is not allowed on this worker: start the worker with --allow /etc/hostname, \
        or submit to another queue";
    assert_eq!(why, expected);
}

#[tokio::test]
async fn paths_that_hide_where_they_lead_are_refused() {
    let _share = machine::waits().await;
    let why = refused(json!({"argv": ["/usr/bin/../bin/echo"]})).await;
    assert!(why.contains("has `..` in it"), "{why}");
    let why = refused(json!({"argv": ["echo", "hello"]})).await;
    assert!(why.starts_with("echo is no absolute path"), "{why}");
    let why = refused(json!({"argv": ["/usr/bin"]})).await;
    assert!(why.contains("is not a regular file"), "{why}");
}

#[tokio::test]
async fn a_link_out_of_an_allowed_directory_is_refused() {
    let _share = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().canonicalize().unwrap().join("shell");
    std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
    let allow = AllowList::listed(vec![dir.path().into()]).unwrap();
    let hands = hands(CommandPolicy { allow, ..policy(isolations()[0]) });
    let run = run_with(&json!({"command": {"argv": [link, "-c", "true"]}}));
    let (outcome, _) = carry_run(&hands, run).await;
    let why = outcome.error.unwrap();
    assert!(why.contains("outside of the directory that is allowed"), "{why}");
    assert!(outcome.final_failure);
}

#[tokio::test]
async fn what_no_system_takes_is_refused() {
    let _share = machine::waits().await;
    let why = refused(json!({"argv": ["/bin/echo", "a\0b"]})).await;
    assert!(why.contains("has a byte 0 in it"), "{why}");
    let why = refused(json!({"argv": ["/bin/echo", "x".repeat(128 * 1024)]})).await;
    assert!(why.contains("131072 bytes, and 131071 are the most: use standard input"), "{why}");
    let many = vec!["x".repeat(100_000); 11];
    let argv: Vec<String> = std::iter::once("/bin/echo".to_owned()).chain(many).collect();
    let why = refused(json!({"argv": argv})).await;
    assert!(why.contains("arguments and variables have"), "{why}");
    let why =
        refused(json!({"argv": ["/bin/echo"], "stdin": "x".repeat(16 * 1024 * 1024 + 1)})).await;
    assert!(why.contains("standard input has"), "{why}");
    let why = refused(json!({"argv": ["/bin/echo"], "env": {"A=B": "c"}})).await;
    assert!(why.contains("is no name of a variable"), "{why}");
    let why = refused(json!({"argv": []})).await;
    assert!(why.contains("the run has none"), "{why}");
}

#[tokio::test]
async fn variables_that_would_change_the_program_are_refused_by_name() {
    let _share = machine::waits().await;
    for name in
        ["LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "BASH_ENV", "PYTHONPATH", "PATH"]
    {
        let why = refused(json!({"argv": ["/bin/echo"], "env": {name: "/tmp/x.so"}})).await;
        assert!(why.starts_with(&format!("the variable {name} decides what code")), "{why}");
    }
    let why = refused(json!({"argv": ["/bin/echo"], "env": {"WATCHBELL_TOKEN": "1"}})).await;
    assert!(why.contains("are set by the worker"), "{why}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_worked_in_is_refused() {
    let _share = machine::waits().await;
    for (dir, said) in [
        ("here", "it is no absolute path"),
        ("/no/such/dir", "No such file or directory"),
        ("/bin/echo", "it is no directory"),
    ] {
        let why = refused(json!({"argv": ["/bin/echo"], "dir": dir})).await;
        assert!(why.starts_with(&format!("the working directory {dir} cannot be used")), "{why}");
        assert!(why.contains(said), "{why}");
    }
}

/// It is allowed and there, and what it needs is not.
#[tokio::test]
async fn what_cannot_be_started_is_refused_with_what_it_wants() {
    use std::os::unix::fs::PermissionsExt;
    let _share = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("orphan");
    std::fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let hands = hands(policy(isolations()[0]));
    let run = run_with(&json!({"command": {"argv": [path]}}));
    let (outcome, _) = carry_run(&hands, run).await;
    let why = outcome.error.unwrap();
    assert!(why.starts_with("cannot find the interpreter or loader of the program"), "{why}");
    assert!(outcome.final_failure);
}

//! What is refused before there is a claim.

use std::process::Output;

use super::*;

/// A store that nobody asks for.
const NOBODY: &str = "redis://127.0.0.1:1";

fn told(flags: &[&str], program: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(WATCHBELL);
    command.args(["hold", NAME, "--lock-dir"]).arg(dir.path().join("locks"));
    command.env("WATCHBELL_STORE", NOBODY);
    command.args(flags).arg("--").args(program).output().unwrap()
}

#[track_caller]
fn refused(flags: &[&str], program: &[&str], code: i32, sentence: &str) {
    let output = told(flags, program);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(sentence), "{said}");
}

#[test]
fn a_timing_by_which_two_could_run_is_refused_with_what_fails() {
    let short = "the lease of a hold lasts 1s at least, and --ttl is 999ms: give --ttl 1s or more";
    refused(&["--ttl", "999ms"], &["true"], 2, short);
    let weak = "the program is killed after 1.7s, and 400ms for a weak kill make 2.1s, which is not within --ttl 2s: give \
                --ttl 2.7s or more";
    refused(&["--ttl", "2s", "--isolate", "group"], &["true"], 2, weak);
}

#[test]
fn a_program_that_cannot_be_started_is_refused() {
    refused(&[], &["/no/such/program"], 2, "there is no program /no/such/program");
    refused(&[], &["no-such-program"], 2, "no directory of PATH has a program no-such-program");
    refused(&[], &["/etc/passwd"], 2, "/etc/passwd is no program that this user may run");
}

#[test]
fn a_place_to_meet_is_needed_and_a_directory_for_the_lock() {
    let mut nowhere = Command::new(WATCHBELL);
    let output = nowhere.args(["hold", NAME, "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("give --store URL or --server URL, or WATCHBELL_STORE"), "{said}");
    refused(&["--server", "redis://h"], &["true"], 2, "--server is a Watchbell server");
    refused(&["--store", "memory:"], &["true"], 2, "memory: is known to this process alone");
    let mut locked = Command::new(WATCHBELL);
    locked.args(["hold", NAME, "--store", NOBODY, "--lock-dir", "/proc/none", "--", "true"]);
    let output = locked.output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("name a directory of this user with --lock-dir"), "{said}");
}

#[test]
fn output_goes_to_a_file_and_to_nothing_that_could_be_put_aside() {
    for path in ["/dev/null", "/tmp", "/proc/none/out"] {
        refused(&["--output-file", path], &["true"], 4, &format!("--output-file {path}: "));
    }
}

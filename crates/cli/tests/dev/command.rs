//! What people type at a server that runs, what they are told, and how it ends.

use std::process::{Command, Output};
use std::time::Duration;

use rig::{Receiver, Reply, machine};

use super::process::{Dev, WATCHBELL, place};

/// Types this at the server, and waits for the end of it.
pub(super) async fn watchbell(dev: &Dev, args: &[&str]) -> Output {
    let mut command = Command::new(WATCHBELL);
    command.args(args).args(["--server", dev.client.url()]);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// It ended with this code; what it said on stdout and on stderr.
#[track_caller]
pub(super) fn said(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    (out, err)
}

fn answer(path: &str) -> Reply {
    match path {
        "/refused" => Reply::Status(400, Duration::ZERO),
        "/silent" => Reply::Never,
        _ => Reply::FINE,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_run_hears_how_it_ended() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |call| answer(&call.path));
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    for (name, wait, code, told) in [
        ("fine", "20s", 0, ""),
        ("refused", "20", 1, "failed: it was refused for good, and is not tried again"),
        ("silent", "1s", 1, "is not finished; look again later: watchbell run show run_"),
    ] {
        let url = receiver.url(0, &format!("/{name}"));
        let made = watchbell(&dev, &["trigger", "create", "--name", name, "--webhook", &url]).await;
        said(&made, 0);
        let run = watchbell(&dev, &["trigger", "run", name, "--wait", wait]).await;
        let (out, err) = said(&run, code);
        assert!(out.contains("run_"), "{out}");
        assert!(err.contains(told) && err.is_empty() == told.is_empty(), "{err}");
    }
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_deleted_trigger_are_found_as_the_answer_says() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |call| answer(&call.path));
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let url = receiver.url(0, "/fine");
    let create = ["trigger", "create", "--name", "hello", "--webhook", &url];
    said(&watchbell(&dev, &create).await, 0);
    said(&watchbell(&dev, &["trigger", "run", "hello", "--wait", "20s"]).await, 0);
    let (deleted, _) = said(&watchbell(&dev, &["trigger", "delete", "hello", "--yes"]).await, 0);
    let command = deleted.lines().last().unwrap().trim();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    assert_eq!(words[..3], ["run", "list", "--trigger"], "{deleted}");
    let (listed, _) = said(&watchbell(&dev, &words).await, 0);
    let id = listed.split_whitespace().find(|word| word.starts_with("run_")).unwrap();
    let (shown, _) = said(&watchbell(&dev, &["run", "show", id]).await, 0);
    assert!(shown.contains(&format!("{} (deleted)", words[3])), "{shown}");
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_told_in_the_words_of_the_command_line() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let create = ["trigger", "create", "--name", "hello", "--webhook", "http://127.0.0.1:1/x"];
    said(&watchbell(&dev, &create).await, 0);
    let (early, late) = ("2027-01-15T00:00:00Z", "2027-01-16T00:00:00Z");
    for (args, code, told) in [
        (&["trigger", "show", "none"][..], 1, "watchbell trigger list"),
        (&create, 1, "with --replace"),
        (
            &["trigger", "pause", "hello", "--until", "2020-01-01T00:00:00Z"],
            2,
            "--until: it lies in the past",
        ),
        (
            &["trigger", "explain", "hello", "--from", late, "--to", early],
            2,
            "--from: it must lie before --to",
        ),
        (
            &["trigger", "explain", "hello", "--from", "2020-01-01T00:00:00Z", "--to", early],
            2,
            "at most 366d",
        ),
        (
            &[&create[..], &["--every", "0.5s"]].concat(),
            2,
            "--every: a fraction is not read; write whole",
        ),
        (
            &[&create[..], &["--every", "1h", "--jitter", "25h"]].concat(),
            2,
            "--jitter: 0s to 24h are allowed",
        ),
        (&[&create[..], &["--every", "400d"]].concat(), 2, "--every: 1s to 366d are allowed"),
    ] {
        let (_, err) = said(&watchbell(&dev, args).await, code);
        assert!(err.contains(told) && !err.contains("/v1/"), "{args:?}: {err}");
    }
    dev.kill();
}

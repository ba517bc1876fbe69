//! What `dev` does not do, and how it says so.

use std::process::{Command, Output};
use std::time::Duration;

use rig::machine;
use store::clock::Stopwatch;

use super::process::{Dev, WATCHBELL, place};

fn dev(listen: &str, data: &std::path::Path) -> Output {
    let begun = Stopwatch::start();
    let args = ["dev", "--listen", listen, "--data"];
    let output = Command::new(WATCHBELL).args(args).arg(data).output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "it is refused at once");
    output
}

/// It ended with one sentence, which says this.
#[track_caller]
fn check_refused(output: &Output, said: &str) {
    let sentence = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.status.code().is_some_and(|code| code > 0), "{:?} {sentence}", output.status);
    assert!(sentence.starts_with("watchbell: ") && sentence.lines().count() == 1, "{sentence}");
    assert!(sentence.contains(said), "{sentence}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[tokio::test]
async fn a_second_process_on_the_same_directory_is_refused() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let first = Dev::start(&data);
    check_refused(&dev("127.0.0.1:0", &data), "is in use by process");
    assert!(first.client.scheduler().await.unwrap().ready);
    first.stop().await;
    Dev::start(&data).stop().await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_refused() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let first = Dev::start(&data);
    let taken =
        first.client.url().strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
    check_refused(&dev(&taken, &dir.path().join("other")), &format!("cannot listen on {taken}"));
    first.stop().await;
}

#[test]
fn an_address_that_others_reach_is_refused() {
    let (_dir, data) = place();
    check_refused(&dev("0.0.0.0:7400", &data), "is not a loopback address");
    check_refused(&dev("0.0.0.0:7400", &data), "use 127.0.0.1:7400");
}

#[test]
fn an_address_that_is_none_is_told_how_to_write() {
    let (_dir, data) = place();
    for (listen, said) in [("17472", "127.0.0.1:17472"), ("127.0.0.1:80000", "0 to 65535")] {
        let output = dev(listen, &data);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn certificates_that_cannot_be_read_leave_no_store_behind() {
    let (_dir, data) = place();
    let args = ["dev", "--listen", "localhost:0", "--webhook-ca", "/nope", "--data"];
    let output = Command::new(WATCHBELL).args(args).arg(&data).output().unwrap();
    check_refused(&output, "cannot read certificates from /nope");
    assert_eq!((output.status.code(), data.exists()), (Some(2), false));
}

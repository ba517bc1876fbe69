//! Starts that take their time, and starts that nobody listens to.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use client::Client;
use rig::machine;
use tempfile::TempDir;

use super::process::{Dev, WATCHBELL, place, spawn};

/// A directory for a store that may forget what it acknowledged, which makes a start wait.
fn forgetful_place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let data = dir.path().join("data");
    (dir, data)
}

#[tokio::test]
async fn a_start_on_tmpfs_waits_for_its_time_and_says_why() {
    let _machine = machine::waits().await;
    let (_dir, data) = forgetful_place();
    let dev = Dev::start(&data);
    assert!(dev.took < Duration::from_secs(15), "it took {:?} to start", dev.took);
    assert!(dev.client.scheduler().await.unwrap().ready);
    let log = dev.log();
    let told = log.lines().filter(|line| line.contains("starting takes a while")).count();
    assert!(told == 1 && log.contains("may have forgotten what it acknowledged"), "{log}");
    dev.stop().await;
}

#[tokio::test]
async fn a_start_that_waits_is_ended_by_a_signal_at_once() {
    let _machine = machine::waits().await;
    let (_dir, data) = forgetful_place();
    let mut starting = spawn(Command::new(WATCHBELL), &data, Stdio::piped());
    starting.says("starting takes a while").await;
    let status = starting.stop().await;
    assert_eq!(status.code(), Some(0));
    let mut said = String::new();
    starting.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "it had not begun to serve");
}

#[tokio::test]
async fn a_server_to_which_nobody_listens_says_so_and_serves() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut dev = spawn(Command::new(WATCHBELL), &data, writer.into());
    let said = dev.says("could not be said on stdout").await;
    let url = said.split([' ', ',']).find(|word| word.starts_with("http://")).unwrap();
    assert!(Client::new(url).unwrap().scheduler().await.unwrap().ready);
    assert_eq!(dev.stop().await.code(), Some(0));
}

//! What is judged by time, with nothing else of the tests beside it.

mod rolling;
mod thaw;
mod trial;

use std::time::Duration;

use rig::machine;
use rig::redis::Setup;
use store::clock::Stopwatch;

use super::*;

const T: Duration = Duration::from_secs(2);

/// For those who are judged by time.
const QUICK: [&str; 2] = ["--ttl", "2s"];

/// For what a busy machine adds.
const ROOM: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_killed_leaves_nothing_and_another_one_runs_after_its_time() {
    let _machine = machine::alone().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let mut anna = Holder::start(dir.path(), "anna", &redis.url(), &QUICK);
    let guard = anna.runs().await;
    let bert = Holder::start(dir.path(), "bert", &redis.url(), &QUICK);
    bert.event("holder", 1).await;
    let begun = Stopwatch::start();
    anna.kill();
    guard.is_gone().await;
    let gone = begun.elapsed();
    bert.runs().await;
    let took = begun.elapsed();
    println!("gone after {gone:?}, runs again after {took:?}");
    assert!(gone < ROOM, "{gone:?}");
    assert!(took < T * 5 / 4 + Duration::from_millis(500) + ROOM, "{took:?}");
    ran_one_after_the_other(dir.path(), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_of_a_stopped_supervisor_is_gone_within_t_and_another_one_runs() {
    let _machine = machine::alone().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Holder::start(dir.path(), "anna", &redis.url(), &QUICK);
    let guard = anna.runs().await;
    let bert = Holder::start(dir.path(), "bert", &redis.url(), &QUICK);
    bert.event("holder", 1).await;
    let begun = Stopwatch::start();
    anna.signal(Signal::STOP);
    guard.is_gone().await;
    let gone = begun.elapsed();
    println!("gone after {gone:?}");
    assert!(gone < T + ROOM, "{gone:?}");
    bert.runs().await;
    anna.signal(Signal::CONT);
    anna.event("lost", 1).await;
    anna.event("candidate", 2).await;
    let how = anna.event("exited", 1).await["how"].clone();
    assert!(how.as_str().unwrap().ends_with(", unconfirmed"), "{how}");
    assert_eq!(anna.count("running"), 1, "{}", anna.log());
    ran_one_after_the_other(dir.path(), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_told_to_stop_is_followed_within_a_second() {
    let _machine = machine::alone().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let slow = format!("trap 'sleep 1; exit 0' TERM; {TICKS}");
    let held = Held { flags: &STEADY, program: &slow };
    let anna = Holder::with(dir.path(), "anna", &redis.url(), &held);
    let guard = anna.runs().await;
    let bert = Holder::with(dir.path(), "bert", &redis.url(), &held);
    bert.event("holder", 1).await;
    anna.signal(Signal::TERM);
    guard.is_gone().await;
    let begun = Stopwatch::start();
    bert.runs().await;
    let took = begun.elapsed();
    println!("runs again after {took:?}");
    assert!(took < Duration::from_secs(1) + ROOM, "{took:?}");
    assert_eq!(anna.event("exited", 1).await["how"], "exit 0, stopped");
    ran_one_after_the_other(dir.path(), 2).await;
}

//! Somebody who takes every place of the API and does nothing with it.

use std::time::Duration;

use engine::limits::API_CONNECTIONS_MAX;
use rig::machine;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::clock::Stopwatch;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::process::{Dev, place};

/// How long everybody else may have to wait: heads have ten seconds, and the machine is busy.
const LOCKED_OUT_MAX: Duration = Duration::from_secs(20);

#[tokio::test]
async fn heads_that_never_end_do_not_lock_others_out_for_long() {
    let _machine = machine::waits().await;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let address = dev.client.url().strip_prefix("http://").unwrap().to_owned();
    let mut others = Vec::new();
    for _ in 0..API_CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: local").await.unwrap();
        others.push(stream);
    }
    let begun = Stopwatch::start();
    assert!(dev.client.scheduler().await.unwrap().ready);
    let took = begun.elapsed();
    assert!(took < LOCKED_OUT_MAX, "it took {took:?} to be heard");
    println!("everybody else waited for {took:?}");
    dev.stop().await;
}

//! Somebody who takes every place of the API and does nothing with it, and workers who take almost every one.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use engine::limits::API_CONNECTIONS_FOR_PEOPLE;
use rig::{Ask, PATIENCE, machine, until};
use serde_json::json;
use store::clock::Stopwatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::process::{Dev, WATCHBELL, place};

/// How long everybody else may have to wait: heads have ten seconds, and the machine is busy.
const LOCKED_OUT_MAX: Duration = Duration::from_secs(20);

#[tokio::test]
async fn heads_that_never_end_do_not_lock_others_out_for_long() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start_by(with_few_files(), &data);
    let address = dev.client.url().strip_prefix("http://").unwrap().to_owned();
    let mut others = Vec::new();
    for _ in 0..2 * API_CONNECTIONS_FOR_PEOPLE {
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

/// A server that may have so few open files that half of them are connections: twice as many as are left to people.
fn with_few_files() -> Command {
    let mut command = Command::new("sh");
    let files = 4 * API_CONNECTIONS_FOR_PEOPLE;
    command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), WATCHBELL]);
    command
}

#[tokio::test]
async fn the_last_connections_are_for_people_and_a_worker_is_heard_on_them_but_does_not_wait() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start_by(with_few_files(), &data);
    let address: SocketAddr = dev.client.url().strip_prefix("http://").unwrap().parse().unwrap();
    let claim = |running: &[&str]| {
        let held: Vec<_> = running.iter().map(|id| json!({"id": id, "token": 1})).collect();
        json!({"worker": "w", "incarnation": 1, "number": 1, "settled": 0, "queues": ["mail"],
            "free": 1, "wait_ms": 30_000, "running": held})
    };
    let ask = |method: &str, path: &str| Ask::new(address, method, path);
    ask("POST", "/v1/claim").body(&claim(&[])).await.is(200);
    // Whoever watches keeps a connection for as long as they like, as a worker does that waits.
    let mut kept = Vec::new();
    for _ in 0..API_CONNECTIONS_FOR_PEOPLE {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        kept.push(stream);
    }
    for path in ["/livez", "/readyz", "/metrics", "/v1/queues/mail"] {
        ask("GET", path).send().await.is(200);
    }
    let refused = ask("POST", "/v1/claim").body(&claim(&[])).await.is(503);
    assert!(refused.text.contains("ask another server"), "{}", refused.text);
    let heard =
        ask("POST", "/v1/claim").body(&claim(&["run_00y00000000000011m7psmd6tv0jek"])).await;
    assert!(heard.is(200).text.contains("\"lost\":[{"));
    kept.truncate(1);
    until("a worker may wait again", PATIENCE, async || {
        let again = ask("POST", "/v1/claim").body(&claim(&[])).await;
        (again.status == 200).then_some(())
    })
    .await;
    drop(kept);
    dev.stop().await;
}

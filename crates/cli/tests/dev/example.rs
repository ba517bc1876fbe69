//! The client's example, against a real server.

use rig::{Receiver, Reply, machine};

use super::process::{Dev, place};

#[expect(dead_code, reason = "its main is for people")]
#[path = "../../../client/examples/hello.rs"]
mod hello;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_of_the_client_hears_how_its_run_ended() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let state = hello::hello(&dev.client, &receiver.url(0, "/hello")).await.unwrap();
    assert_eq!(state.as_str(), "succeeded");
    assert!(dev.client.trigger("hello-example").await.is_err(), "it leaves nothing behind");
    dev.kill();
}

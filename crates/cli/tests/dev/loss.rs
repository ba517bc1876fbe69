//! A road that loses every first answer, to a real server: what is sent again is done once.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use client::key::{KeySpec, Scope};
use client::spec::TriggerSpec;
use client::{Client, KeyFilter, TriggerFilter};
use rig::{Receiver, Reply, machine};

use super::process::{Dev, place};

/// A way to this server, whose first connection ends when its answer begins. It is there until the process ends.
fn road(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let near = stream.unwrap();
            let far = TcpStream::connect(server).unwrap();
            let (from, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || pump(from, to));
            if number == 0 {
                std::thread::spawn(move || lose(&near, &far));
            } else {
                std::thread::spawn(move || pump(far, near));
            }
        }
    });
    address
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.flush().and_then(|()| to.shutdown(Shutdown::Both));
}

/// Waits until there is an answer, so that all is done, and lets nobody have it.
fn lose(near: &TcpStream, mut far: &TcpStream) {
    let _ = far.read(&mut [0]);
    let _ = near.shutdown(Shutdown::Both).and_then(|()| far.shutdown(Shutdown::Both));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_again_is_done_once() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let server = dev.client.url().strip_prefix("http://").unwrap().parse().unwrap();
    // A new one for each request, with a road of its own: a client may open more connections than it has requests.
    let client = || {
        let road = format!("http://{}", road(server));
        Client::builder(&road).retry_pause(Duration::from_millis(10)).build().unwrap()
    };
    let spec = TriggerSpec::webhook("hello", receiver.url(0, "/hello"));
    let made = client().create_trigger(&spec).await.unwrap();
    let unnamed = TriggerSpec { name: None, ..spec.clone() };
    client().create_trigger(&unnamed).await.unwrap();
    let found = dev.client.triggers(&TriggerFilter::default()).await.unwrap();
    assert_eq!(found.items.len(), 2, "each was made once");

    let started = client().run("hello", None).await.unwrap();
    let runs = dev.client.runs_of("hello", &client::RunFilter::default()).await.unwrap();
    let ids: Vec<&str> = runs.items.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(ids, [started.id.as_str()], "one run was started");

    let other = spec.clone().every("1h");
    let put = client().put_trigger("hello", &other, Some(made.revision)).await.unwrap();
    assert_eq!((put.revision, &put.spec), (made.revision + 1, &other), "it was ours");
    client().put_trigger("hello", &spec, Some(made.revision)).await.unwrap_err();

    let key = KeySpec { name: "lost".to_owned(), scopes: vec![Scope::Read], expires: None };
    let key = client().create_key(&key).await.unwrap();
    assert_eq!(key.secret, None, "it went with the answer");
    assert_eq!(dev.client.keys(&KeyFilter::default()).await.unwrap().items.len(), 1);

    client().delete_trigger("hello").await.unwrap();
    assert!(dev.client.trigger("hello").await.is_err());
    dev.kill();
}

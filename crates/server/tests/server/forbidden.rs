//! Addresses that may not be called, in each of their disguises. Not a byte reaches them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::limits::NAME_AGE_MAX;
use engine::outcome::NotSent;

use super::handle::{NodeHandle, check_not_sent, get, status};
use super::receiver::{Receiver, answer};

#[tokio::test]
async fn forbidden_literals_are_refused() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let port = receiver.address.port();
    let mut handle = NodeHandle::with(|_| ());
    for host in [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "[::1]",
        "[::]",
        "[fc00::1]",
        "[fe80::1]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[2001::1]",
        "[2001:db8::1]",
        "[::127.0.0.1]",
    ] {
        let finished = handle.call(get(&format!("http://{host}:{port}/"))).await;
        check_not_sent(&finished, NotSent::Forbidden, "may not be called");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn names_of_forbidden_addresses_are_refused() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let port = receiver.address.port();
    let mut handle = NodeHandle::with(|_| ());
    for (number, address) in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "10.1.1.1"]
        .into_iter()
        .enumerate()
    {
        let name = format!("n{number}.test");
        handle.script.set(&name, &[&[address]]);
        let finished = handle.call(get(&format!("http://{name}:{port}/"))).await;
        check_not_sent(&finished, NotSent::Forbidden, "--webhook-allow");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn of_several_addresses_only_those_are_called_that_may_be() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::local();
    // Nobody listens at the private one; it is not even tried.
    handle.script.set("both.test", &[&["10.255.255.1", "127.0.0.1"]]);
    let url = format!("http://both.test:{}/", receiver.address.port());
    assert_eq!(status(&handle.call(get(&url)).await), 200);
    assert_eq!(
        receiver.next().await.header("host"),
        format!("both.test:{}", receiver.address.port())
    );
}

#[tokio::test]
async fn a_name_that_moves_to_a_forbidden_address_is_judged_anew_and_asked_once() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::local();
    // First an address that may be called, then one that may not; 127.0.0.2 is not allowed here.
    let port = receiver.address.port();
    let mut narrow = NodeHandle::with(|config| config.allow = vec!["127.0.0.1".parse().unwrap()]);
    narrow.script.set("rebind.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let url = format!("http://rebind.test:{port}/");
    assert_eq!(status(&narrow.call(get(&url)).await), 200);
    assert_eq!(
        narrow.script.asked.load(Ordering::Relaxed),
        1,
        "no second look between judging and calling"
    );
    narrow.machine.forward(NAME_AGE_MAX + Duration::from_secs(1));
    let finished = narrow.call(get(&url)).await;
    check_not_sent(&finished, NotSent::Forbidden, "127.0.0.2");
    assert_eq!(receiver.requests(), 1);

    // The other way round: refused first, and the good address afterwards is a new judgement too.
    handle.script.set("back.test", &[&["10.0.0.1"], &["127.0.0.1"]]);
    let url = format!("http://back.test:{port}/");
    check_not_sent(&handle.call(get(&url)).await, NotSent::Forbidden, "10.0.0.1");
    handle.machine.forward(NAME_AGE_MAX);
    assert_eq!(status(&handle.call(get(&url)).await), 200);
}

#[tokio::test]
async fn a_name_that_is_not_found_is_surely_not_reached() {
    let mut handle = NodeHandle::local();
    let finished = handle.call(get("http://nowhere.test/")).await;
    check_not_sent(&finished, NotSent::Name, "nowhere.test was not found");
    handle.script.set("empty.test", &[&[]]);
    let finished = handle.call(get("http://empty.test/")).await;
    check_not_sent(&finished, NotSent::Name, "has no address");
}

#[tokio::test]
async fn the_next_address_is_tried_when_the_first_does_not_take_the_call() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::local();
    handle.script.set("two.test", &[&["127.0.0.9", "127.0.0.1"]]);
    let url = format!("http://two.test:{}/", receiver.address.port());
    assert_eq!(status(&handle.call(get(&url)).await), 200);
}

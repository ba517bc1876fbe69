//! Servers that do not do everything.

use server::peers::{API, SCHEDULE};

use super::bench::Bench;
use super::pair::{Pair, Who, name_in};

/// From now on a server takes itself and the other for servers of these roles.
fn cast(bench: &Bench, roles: [&str; 2]) {
    let mut view = (*bench.peers.view()).clone();
    for (server, role) in view.servers.iter_mut().zip(roles) {
        server.roles = vec![role.to_owned()];
    }
    bench.peers.show(view);
}

#[tokio::test]
async fn a_server_that_only_schedules_names_one_that_answers() {
    let Pair { a, b } = Pair::new().await;
    cast(&a, [SCHEDULE, API]);
    let answer = a.json("GET", "/v1/triggers", "").await;
    let problem = answer.problem(421);
    assert!(problem.detail.contains(&format!("ask b at {}", b.client.url())), "{}", problem.detail);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(a.json("GET", path, "").await.status(), 200, "{path}");
    }
    // What another server passes on it answers.
    let passed = a.with_headers("GET", "/v1/triggers", "watchbell-forwarded: b\r\n", "").await;
    assert_eq!(passed.status(), 200, "{}", passed.0);
    // Nobody is there who answers.
    cast(&a, [SCHEDULE, SCHEDULE]);
    let answer = a.json("GET", "/v1/triggers", "").await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(answer.problem(503).detail.contains("none at the moment"), "{}", answer.0);
}

#[tokio::test]
async fn a_server_that_only_answers_passes_on_what_takes_a_shard() {
    let pair = Pair::new().await;
    pair.deal([Who::B; 4]);
    cast(&pair.a, [API, SCHEDULE]);
    cast(&pair.b, [API, SCHEDULE]);
    for shard in 0..4 {
        pair.a.minutely(&name_in(shard)).await;
    }
    assert_eq!((pair.a.done(), pair.b.done()), (0, 4));
    assert!(pair.a.client.trigger(&name_in(0)).await.is_ok());
}

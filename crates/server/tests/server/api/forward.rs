//! Requests for shards that another server has.

use std::time::Duration;

use client::audit::AuditEntry;
use client::trigger::Trigger;
use client::{ClientError, ListPage};
use serde_json::json;
use server::api::{ApiSecurity, ServerTls};
use server::handle::CallError;
use store::clock::Stopwatch;

use super::bench::{Answer, Bench, minutely};
use super::pair::{HALVES, Pair, Who, name_in};
use super::relay::{Habit, Relay};

fn draft(name: &str) -> String {
    serde_json::to_string(&minutely(name)).unwrap()
}

/// A request to make a trigger, under an idempotency key.
async fn create_once(bench: &Bench, name: &str, key: &str) -> Answer {
    let headers = format!("content-type: application/json\r\nidempotency-key: {key}\r\n");
    bench.with_headers("POST", "/v1/triggers", &headers, &draft(name)).await
}

#[tokio::test]
async fn a_request_for_a_shard_of_another_server_is_answered_by_that_one() {
    let Pair { a, b } = Pair::new().await;
    let name = name_in(2);
    let headers = "content-type: application/json\r\nx-request-id: mine-1\r\n";
    let made = a.with_headers("POST", "/v1/triggers", headers, &draft(&name)).await;
    assert_eq!(made.status(), 201, "{}", made.0);
    assert_eq!(made.header("watchbell-served-by"), Some("b"));
    assert_eq!(made.header("x-request-id"), Some("mine-1"));
    assert_eq!(made.header("etag"), Some("\"1\""));
    assert_eq!(made.body::<Trigger>().name, name);
    assert_eq!((a.done(), b.done()), (0, 1));
    for (method, path, status) in
        [("POST", "/pause", 200), ("POST", "/resume", 200), ("DELETE", "", 204)]
    {
        let answer = a.json(method, &format!("/v1/triggers/{name}{path}"), "").await;
        assert_eq!(answer.status(), status, "{method} {path}: {}", answer.0);
        assert_eq!(answer.header("watchbell-served-by"), Some("b"), "{method} {path}");
    }
    assert_eq!((a.done(), b.done()), (0, 4));
    // What is its own it does itself.
    let own = a.json("POST", "/v1/triggers", &draft(&name_in(0))).await;
    assert_eq!((own.status(), own.header("watchbell-served-by")), (201, None));
    assert_eq!((a.done(), b.done()), (1, 4));
    // Reads come from the store, wherever the shard is.
    assert!(b.client.trigger(&name_in(0)).await.is_ok());
    // The audit names who connected: the server that passed it on.
    let audit = a.client.audit(&client::AuditFilter::default()).await.unwrap();
    let ListPage { items, .. } = audit;
    let made: &AuditEntry = items.iter().find(|line| line.request_id == "mine-1").unwrap();
    assert_eq!((made.via.as_deref(), made.address.as_deref()), (Some("a"), Some("127.0.0.1")));
    let own = items.iter().find(|line| line.object == name_in(0)).unwrap();
    assert_eq!(own.via, None);
}

#[tokio::test]
async fn what_the_other_server_refuses_is_refused_in_its_words() {
    let Pair { a, b } = Pair::new().await;
    let name = name_in(3);
    a.minutely(&name).await;
    let again = a.json("POST", "/v1/triggers", &draft(&name)).await;
    assert_eq!(again.header("watchbell-served-by"), Some("b"));
    assert!(again.problem(409).kind.ends_with(":name-taken"));
    let paused = format!("/v1/triggers/{name}/resume");
    assert!(a.json("POST", &paused, "").await.problem(409).kind.ends_with(":not-paused"));
    drop(b);
}

#[tokio::test]
async fn of_two_who_change_one_trigger_through_two_servers_one_wins_and_the_other_is_told() {
    let Pair { a, b } = Pair::new().await;
    let name = name_in(2);
    a.minutely(&name).await;
    let path = format!("/v1/triggers/{name}");
    let headers = "content-type: application/json\r\nif-match: \"1\"\r\n";
    let text = |cron| serde_json::to_string(&minutely(&name).cron(cron)).unwrap();
    let (one, other) = (text("1 * * * *"), text("2 * * * *"));
    let (one, other) = tokio::join!(
        a.with_headers("PUT", &path, headers, &one),
        b.with_headers("PUT", &path, headers, &other),
    );
    let mut statuses = [one.status(), other.status()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412], "{} {}", one.0, other.0);
    assert_eq!(a.client.trigger(&name).await.unwrap().revision, 2);
    // Who comes late is told by whichever server.
    let third = a.with_headers("PUT", &path, headers, &text("3 * * * *")).await;
    assert!(third.problem(412).kind.ends_with(":revision-moved"));
}

/// Each takes the other for the owner of shard 2, and reaches it through a relay of this habit.
async fn crossed(habit: Habit) -> (Pair, Relay, Relay) {
    let pair = Pair::new().await;
    let to_a = Relay::to(pair.a.address, habit).await;
    let to_b = Relay::to(pair.b.address, habit).await;
    let mut deal = HALVES;
    pair.tell_of(Who::A, deal, &to_b.url());
    deal[2] = Who::A;
    // `b` reaches `a` at what its view says of it.
    pair.tell(Who::B, deal);
    let mut view = (*pair.b.peers.view()).clone();
    view.servers[0].url = Some(to_a.url());
    pair.b.peers.show(view);
    (pair, to_a, to_b)
}

#[tokio::test]
async fn servers_that_take_each_other_for_the_owner_do_not_send_a_request_round() {
    let (Pair { a, b }, to_a, to_b) = crossed(Habit::Pass).await;
    let answer = a.json("POST", "/v1/triggers", &draft(&name_in(2))).await;
    assert!(answer.header("retry-after").is_some(), "{}", answer.0);
    assert!(answer.problem(503).detail.contains("the server a has this shard"), "{}", answer.0);
    assert!(to_b.seen() >= 1, "it was passed on");
    assert_eq!(to_a.seen(), 0, "and no further");
    assert_eq!((a.done(), b.done()), (0, 0));
}

#[tokio::test]
async fn without_the_mark_that_ends_its_way_a_request_would_go_round_and_this_would_be_seen() {
    // A relay that takes the mark away stands in for servers that do not look at it.
    let (Pair { a, b }, to_a, to_b) = crossed(Habit::Strip(5)).await;
    a.json("POST", "/v1/triggers", &draft(&name_in(2))).await.problem(502);
    assert!(to_a.seen() >= 5 && to_b.seen() >= 5, "{} {}", to_a.seen(), to_b.seen());
    assert_eq!((a.done(), b.done()), (0, 0));
}

#[tokio::test]
async fn who_says_that_it_passes_a_request_on_gains_nothing_but_the_end_of_its_way() {
    let Pair { a, b } = Pair::new().await;
    let headers = "content-type: application/json\r\nwatchbell-forwarded: b\r\n";
    let there = a.with_headers("POST", "/v1/triggers", headers, &draft(&name_in(2))).await;
    assert_eq!(there.header("retry-after"), Some("1"));
    assert!(there.problem(503).kind.ends_with(":elsewhere"));
    assert_eq!((a.done(), b.done()), (0, 0));
    // Nor does it end anywhere else than that.
    let here = a.with_headers("POST", "/v1/triggers", headers, &draft(&name_in(0))).await;
    assert_eq!(here.status(), 201, "{}", here.0);
    let Pair { a, .. } = Pair::behind(ApiSecurity::locked(), ApiSecurity::open()).await;
    a.with_headers("POST", "/v1/triggers", headers, &draft(&name_in(0))).await.problem(401);
}

#[tokio::test]
async fn an_answer_that_is_lost_is_told_as_such_and_the_same_request_is_done_once() {
    let pair = Pair::new().await;
    let relay = Relay::to(pair.b.address, Habit::LoseAnswers).await;
    pair.tell_of(Who::A, HALVES, &relay.url());
    let name = name_in(2);
    let lost = create_once(&pair.a, &name, "k").await;
    let problem = lost.problem(502);
    assert!(problem.kind.ends_with(":in-doubt"), "{}", problem.kind);
    assert!(problem.detail.contains("it may have been done: look first"), "{}", problem.detail);
    assert_eq!((relay.seen(), pair.b.done()), (1, 1), "it was not sent twice");
    pair.deal(HALVES);
    for bench in [&pair.a, &pair.b] {
        let again = create_once(bench, &name, "k").await;
        assert_eq!(again.status(), 201, "{}", again.0);
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    assert_eq!((pair.a.done(), pair.b.done()), (0, 1));
}

#[tokio::test]
async fn a_shard_that_changes_hands_is_looked_for_until_it_is_found() {
    let (pair, _to_a, to_b) = crossed(Habit::Pass).await;
    let name = name_in(2);
    let body = draft(&name);
    let taken = async {
        to_b.saw(2).await;
        pair.tell(Who::B, HALVES);
    };
    let (made, ()) = tokio::join!(pair.a.json("POST", "/v1/triggers", &body), taken);
    assert_eq!((made.status(), made.header("watchbell-served-by")), (201, Some("b")), "{}", made.0);
    // The same, and it comes to the one that was asked.
    let (pair, _to_a, to_b) = crossed(Habit::Pass).await;
    let taken = async {
        to_b.saw(2).await;
        pair.deal([Who::A, Who::A, Who::A, Who::B]);
    };
    let (made, ()) = tokio::join!(pair.a.json("POST", "/v1/triggers", &body), taken);
    assert_eq!((made.status(), made.header("watchbell-served-by")), (201, None), "{}", made.0);
    assert_eq!((pair.a.done(), pair.b.done()), (1, 0));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_tried_for_a_moment_and_nothing_was_done() {
    let pair = Pair::new().await;
    let gone = rig::free_port();
    pair.tell_of(Who::A, HALVES, &format!("http://127.0.0.1:{gone}"));
    let begun = Stopwatch::start();
    let answer = pair.a.json("POST", "/v1/triggers", &draft(&name_in(2))).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(answer.problem(503).detail.contains("nothing was done"), "{}", answer.0);
    // As soon as another one has the shard, it is asked.
    let body = draft(&name_in(2));
    let found = async {
        tokio::task::yield_now().await;
        pair.deal(HALVES);
    };
    let (made, ()) = tokio::join!(pair.a.json("POST", "/v1/triggers", &body), found);
    assert_eq!(made.status(), 201, "{}", made.0);
    // One that does not say where it is cannot be asked.
    let mut view = (*pair.a.peers.view()).clone();
    view.servers[1].url = None;
    pair.a.peers.show(view);
    let answer = pair.a.json("POST", "/v1/triggers", &draft(&name_in(3))).await;
    assert!(answer.problem(503).detail.contains("--url"), "{}", answer.0);
}

#[tokio::test]
async fn the_same_request_through_two_servers_at_once_is_done_once() {
    let Pair { a, b } = Pair::new().await;
    for (number, shard) in [0, 2, 1, 3].into_iter().enumerate() {
        let (name, key) = (name_in(shard), format!("k{number}"));
        let (one, other) = tokio::join!(create_once(&a, &name, &key), create_once(&b, &name, &key));
        assert_eq!((one.status(), other.status()), (201, 201), "{} {}", one.0, other.0);
        let replayed = [&one, &other].map(|answer| answer.header("idempotency-replayed").is_some());
        assert_eq!(replayed.iter().filter(|replayed| **replayed).count(), 1);
        assert_eq!(a.done() + b.done(), number + 1);
    }
}

#[tokio::test]
async fn a_request_that_a_former_owner_has_carried_out_is_not_done_again_by_the_next() {
    let pair = Pair::new().await;
    // `a` waits for shard 2, and `b` has it still.
    pair.tell(Who::A, [Who::A, Who::A, Who::Nobody, Who::B]);
    let name = name_in(2);
    let handed_over = async {
        create_once(&pair.b, &name, "k").await;
        pair.deal([Who::A, Who::A, Who::A, Who::B]);
    };
    let (answer, ()) = tokio::join!(create_once(&pair.a, &name, "k"), handed_over);
    assert_eq!((pair.a.done(), pair.b.done()), (0, 1));
    assert!(matches!(answer.status(), 201 | 503), "{}", answer.0);
    let again = create_once(&pair.a, &name, "k").await;
    assert_eq!((again.status(), again.header("idempotency-replayed")), (201, Some("true")));
}

#[tokio::test]
async fn a_name_that_is_made_up_is_one_of_a_shard_of_this_server() {
    let Pair { a, b } = Pair::new().await;
    let unnamed = json!({ "webhook": { "url": "http://example.com/hook" } }).to_string();
    for _ in 0..20 {
        for bench in [&a, &b] {
            let made = bench.json("POST", "/v1/triggers", &unnamed).await;
            assert_eq!((made.status(), made.header("watchbell-served-by")), (201, None));
        }
    }
    assert_eq!((a.done(), b.done()), (20, 20));
}

#[tokio::test]
async fn the_client_comes_through_a_shard_that_changes_hands() {
    let pair = Pair::new().await;
    pair.deal([Who::A, Who::A, Who::Nobody, Who::B]);
    let why = pair.a.client.create_trigger(&minutely(&name_in(2))).await.unwrap_err();
    assert!(matches!(why, ClientError::Unavailable { retry_after: Some(_), .. }), "{why:?}");
    let patient = client::Client::new(pair.a.client.url()).unwrap();
    let taken = async {
        tokio::task::yield_now().await;
        pair.deal(HALVES);
    };
    let spec = minutely(&name_in(2));
    let (made, ()) = tokio::join!(patient.create_trigger(&spec), taken);
    assert_eq!(made.unwrap().name, name_in(2));
}

#[tokio::test]
async fn servers_pass_requests_on_over_tls_to_those_whose_issuer_they_trust() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let encrypted = || ApiSecurity::open().encrypted(ServerTls::open(&cert, &key).unwrap());
    let trusting = ApiSecurity::open().trusting_peers(&cert).unwrap();
    let pair = Pair::behind(trusting, encrypted()).await;
    let url = format!("https://localhost:{}", pair.b.address.port());
    pair.tell_of(Who::A, HALVES, &url);
    let made = pair.a.json("POST", "/v1/triggers", &draft(&name_in(2))).await;
    assert_eq!((made.status(), made.header("watchbell-served-by")), (201, Some("b")), "{}", made.0);

    let pair = Pair::behind(ApiSecurity::open(), encrypted()).await;
    let url = format!("https://localhost:{}", pair.b.address.port());
    pair.tell_of(Who::A, HALVES, &url);
    let answer = pair.a.json("POST", "/v1/triggers", &draft(&name_in(2))).await;
    assert!(answer.problem(503).detail.contains("--peer-ca"), "{}", answer.0);
    assert_eq!(pair.b.done(), 0);
    let none =
        ApiSecurity::open().trusting_peers(&dir.path().join("nothing")).unwrap_err().to_string();
    assert!(none.contains("give a PEM file"), "{none}");
}

#[tokio::test]
async fn a_backfill_that_has_begun_is_not_begun_again_elsewhere() {
    let Pair { a, b } = Pair::new().await;
    let name = name_in(0);
    a.minutely(&name).await;
    // Its first runs are started here, and then the shard is found with the other server.
    let node = b.peers.view().me.node().clone();
    let elsewhere = CallError::Elsewhere { node, url: Some(b.client.url().to_owned()) };
    *a.backfill.lock().unwrap() = Some(elsewhere);
    let body = json!({ "from": "2027-01-15T07:00:00Z", "to": "2027-01-15T07:30:00Z" }).to_string();
    let path = format!("/v1/triggers/{name}/backfill");
    let problem = a.json("POST", &path, &body).await.problem(503);
    assert!(problem.detail.contains("\"request\": \"backfill-"), "{}", problem.detail);
    assert_eq!(b.done(), 0);
}

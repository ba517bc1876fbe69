//! Workers that mean no good: they get nothing that is not theirs, change nothing, and the server stays well.

use client::key::{KeySpec, Scope};
use client::run::RunState;
use client::worker::{BeatRequest, ClaimRequest, RunResult};
use client::{Client, ClientError};
use engine::limits::{API_CONNECTIONS_MAX, PAYLOAD_BYTES_MAX, WORKERS_PER_PROJECT_MAX};
use rig::{PATIENCE, Random, machine, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::process::{place, resident_kib};
use super::queue_worker::{TestWorker, done, held};
use super::server::Server;

/// Polls that are open at a time, as far as a server takes so many.
const POLLS: usize = 2_000;
const POLLS_LONG: usize = 10_000;

/// Beats of workers that nobody has heard of before.
const BEATS: usize = 1_000;

/// What an open poll may cost a server that is built for tests, and what it may need besides, in KiB.
const POLL_KIB_MAX: u64 = 128;
const GROWTH_KIB_MAX: u64 = 200 * 1_024;

/// A key for workers of a project.
async fn worker_key(admin: &Client, project: &str) -> String {
    let spec = KeySpec { name: "worker".to_owned(), scopes: vec![Scope::Worker], expires: None };
    let of_project = admin.in_project(project).unwrap();
    of_project.create_key(&spec).await.unwrap().secret.expect("a new key is told")
}

fn client_with(server: &Server, key: &str) -> Client {
    Client::builder(&server.url()).key(key).retries(0).build().unwrap()
}

async fn submit(server: &Server, run: &Value) -> String {
    let taken = server.ask("POST", "/v1/runs").body(run).await.is(201).json();
    taken["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_forges_keys_tokens_and_ids_gets_nothing_and_changes_nothing() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let server = Server::start(&data, &[]).await;
    let admin = server.client();
    server.ask("POST", "/v1/projects").body(&json!({"name": "shop"})).await.is(201);
    let ours = client_with(&server, &worker_key(&admin, "default").await);
    let theirs = client_with(&server, &worker_key(&admin, "shop").await);
    let id = submit(&server, &json!({"queue": "mail", "handler": "send"})).await;
    let mut worker = TestWorker::new("web-1", "mail");
    let run = worker.claim_one(&ours).await;
    assert_eq!(run.id, id);
    let unclaimed = submit(&server, &json!({"queue": "mail", "handler": "send"})).await;

    // Without a key, or with one that nobody made.
    let claim = serde_json::to_value(TestWorker::new("thief", "mail").request(9, 0)).unwrap();
    server.ask_without_key("POST", "/v1/claim").body(&claim).await.is(401);
    server.ask_without_key("POST", "/v1/workers/web-1/beat").body(&json!({})).await.is(401);
    server.ask_as(&"x".repeat(40), "POST", "/v1/claim").body(&claim).await.is(401);

    // From another project: under the same name, with the right id and the right token.
    let mut other = TestWorker::new("web-1", "mail");
    other.incarnation = u64::from(u32::MAX);
    for _ in 0..3 {
        let request = ClaimRequest {
            done: vec![done(&run, RunResult::Succeeded)],
            released: vec![held(&run)],
            ..other.request(9, 0)
        };
        let answer = other.send(&theirs, &request).await.unwrap();
        assert_eq!(answer.runs, [], "another project's queue is another queue");
        assert!(
            !answer.acks.is_empty() && answer.acks.iter().all(|ack| !ack.counted),
            "{answer:?}"
        );
    }
    assert_eq!(other.beat(&theirs, std::slice::from_ref(&run)).await.unwrap().lost, [held(&run)]);

    // From the same project, with forged tokens and ids.
    let mut thief = TestWorker::new("forger", "mail");
    for token in [0, 1, run.token - 1, run.token + 1, u64::MAX] {
        let forged = client::worker::ClaimedRun { token, ..run.clone() };
        let request = ClaimRequest {
            done: vec![done(&forged, RunResult::Failed)],
            released: vec![held(&forged)],
            ..thief.request(0, 0)
        };
        let answer = thief.send(&ours, &request).await.unwrap();
        assert!(answer.acks.iter().all(|ack| !ack.counted), "{token}: {answer:?}");
    }
    let letters = run.id.trim_start_matches("run_");
    let mut random = Random::new(7);
    for _ in 0..50 {
        let mut forged: Vec<char> = letters.chars().collect();
        let at = random.place(forged.len());
        forged[at] = *random.pick(&['0', '1', 'a', 'z', 'k']).unwrap();
        let id = format!("run_{}", forged.into_iter().collect::<String>());
        if id == run.id {
            continue;
        }
        let forged = client::worker::ClaimedRun { id, ..run.clone() };
        let done = vec![done(&forged, RunResult::Succeeded)];
        let request = ClaimRequest { done, ..thief.request(0, 0) };
        match thief.send(&ours, &request).await {
            Ok(answer) => assert!(answer.acks.iter().all(|ack| !ack.counted), "{answer:?}"),
            Err(why) => assert!(matches!(why, ClientError::Invalid(_)), "{forged:?}: {why}"),
        }
    }

    let stands = admin.run_by_id(&id).await.unwrap();
    assert_eq!((stands.state, stands.attempt), (RunState::Running, 1), "{stands:?}");
    assert_eq!(admin.run_by_id(&unclaimed).await.unwrap().attempt, 0);
    assert!(worker.report(&ours, &run).await, "whoever has it is heard");
    assert_eq!(worker.claim_one(&ours).await.id, unclaimed);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_rubbish_of_a_worker_is_an_error_of_the_server() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let server = Server::start(&data, &[]).await;
    let run = |payload: String| json!({"queue": "mail", "handler": "send", "payload": payload});
    // The quotes count.
    submit(&server, &run("x".repeat(PAYLOAD_BYTES_MAX - 2))).await;
    let answer = server.ask("POST", "/v1/runs").body(&run("x".repeat(PAYLOAD_BYTES_MAX - 1))).await;
    assert!(answer.clone().is(422).text.contains("/payload"), "{answer:?}");

    let right = serde_json::to_value(TestWorker::new("web-1", "mail").request(1, 0)).unwrap();
    let rubbish = [
        json!(null),
        json!(-1),
        json!(u64::MAX),
        json!(1.5),
        json!("../../etc/passwd"),
        json!("\u{0}"),
        json!([]),
        json!([[[]]]),
        json!({"id": "run_", "token": -1}),
        json!([{"id": "run_", "token": 0, "result": "succeeded"}]),
        json!("z".repeat(100_000)),
        json!(vec!["q"; 3_000]),
    ];
    let fields =
        ["worker", "incarnation", "number", "settled", "cookie", "queues", "free", "wait_ms"];
    let more = ["lease_ms", "done", "running", "released", "since", "draining", "unknown"];
    for field in fields.into_iter().chain(more) {
        for value in &rubbish {
            let mut body = right.clone();
            body[field] = value.clone();
            for path in ["/v1/claim", "/v1/workers/web-1/beat", "/v1/workers/%00%ff/beat"] {
                let answer = server.ask("POST", path).body(&body).await;
                assert!(answer.status < 500, "{field}: {value:.80} at {path}: {answer:?}");
            }
        }
    }
    let mut worker = TestWorker::new("web-2", "mail");
    worker.claim_one(&server.client()).await;
    assert!(!server.told().contains("panicked"), "{}", server.told());
    server.stop().await;
}

/// Opens so many polls, and sends so many beats under names that nobody has heard of.
async fn stays_well(polls: usize, beats: usize) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (_dir, data) = place();
    let server = Server::start(&data, &[]).await;
    let client = server.client();
    let mut worker = TestWorker::new("good", "mail");
    let first = worker.request(1, 0);
    worker.send(&client, &first).await.unwrap();
    let before = resident_kib(server.pid());

    // Some places are left for others.
    let polls = polls.min(API_CONNECTIONS_MAX - 24);
    let mut open = Vec::new();
    for index in 0..polls {
        let name = format!("poll-{index}");
        let mut poller =
            TestWorker { cookie: worker.cookie.clone(), ..TestWorker::new(&name, "mail") };
        let body = serde_json::to_value(poller.request(1, 24_000)).unwrap();
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let text = server.ask("POST", "/v1/claim").with(&body).text();
        stream.write_all(text.as_bytes()).await.unwrap();
        open.push(stream);
    }
    let waiting = until("polls wait", PATIENCE, || async {
        let waiting = client.queue("mail").await.ok()?.state?.claims_waiting;
        (waiting >= polls as u64 / 2).then_some(waiting)
    });
    let waiting = waiting.await;
    for path in ["/livez", "/readyz"] {
        server.ask_without_key("GET", path).send().await.is(200);
    }
    let growth = resident_kib(server.pid()).saturating_sub(before);
    println!("{waiting} of {polls} polls wait, and cost {growth} KiB");
    assert!(growth < GROWTH_KIB_MAX + polls as u64 * POLL_KIB_MAX, "{growth} KiB");
    // Whoever hangs up leaves nothing behind.
    drop(open);
    until("nobody waits", PATIENCE, || async {
        (client.queue("mail").await.ok()?.state?.claims_waiting == 0).then_some(())
    })
    .await;

    // Of polls that were hung up some may not have been heard.
    let known = client.workers().await.unwrap().items.len();
    let mut refused = 0;
    for index in 0..beats {
        let (queues, number) = (vec!["mail".to_owned()], 1);
        let beat = BeatRequest { incarnation: 1, number, queues, ..BeatRequest::default() };
        match client.beat(&format!("ghost-{index}"), &beat).await {
            Ok(_) => {}
            Err(ClientError::LimitReached { .. }) => refused += 1,
            Err(why) => panic!("beat {index}: {why}"),
        }
    }
    let room = WORKERS_PER_PROJECT_MAX.saturating_sub(known);
    let surplus = beats.saturating_sub(room);
    // A poll that was sent before it was hung up may be heard meanwhile, and takes a place.
    assert!((surplus..=surplus + polls).contains(&refused), "{refused} of {beats}, {known} before");
    if refused > 0 {
        let known = client.workers().await.unwrap().items.len();
        assert_eq!(known, WORKERS_PER_PROJECT_MAX, "a shard knows so many of a project, no more");
    }
    for index in 0..beats {
        // The same again and again: nothing comes of it.
        let beat = BeatRequest {
            incarnation: 1,
            number: 2,
            queues: vec!["mail".to_owned()],
            ..BeatRequest::default()
        };
        let heard = client.beat("good", &beat).await;
        assert!(heard.is_ok(), "beat {index}: {heard:?}");
    }
    let growth = resident_kib(server.pid()).saturating_sub(before);
    println!("{beats} beats of new workers, {refused} refused, and as many of one: {growth} KiB");
    assert!(growth < GROWTH_KIB_MAX + polls as u64 * POLL_KIB_MAX, "{growth} KiB");
    submit(&server, &json!({"queue": "mail", "handler": "send"})).await;
    worker.number += 2;
    worker.claim_one(&client).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_polls_and_endless_beats_leave_a_server_well() {
    let _machine = machine::works().await;
    stays_well(POLLS, BEATS).await;
}

#[ignore = "long: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_open_polls_and_endless_beats_leave_a_server_well() {
    let _machine = machine::works().await;
    stays_well(POLLS_LONG, WORKERS_PER_PROJECT_MAX + 50).await;
}

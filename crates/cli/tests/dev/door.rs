//! `watchbell server` lets in who has a key, from the first start on, and through every end that it comes to.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use rig::{Answer, Ask, Random, Receiver, Reply, machine};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::process::place;
use super::server::{Server, key_file, refused};

async fn items(server: &Server, list: &str) -> Vec<Value> {
    let page = server.ask("GET", &format!("/v1/{list}?limit=500")).send().await.is(200).json();
    assert!(page["next"].is_null(), "{page}");
    page["items"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_key_is_for_its_owner_alone_and_is_made_once() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let server = Server::start(&data, &[]).await;
    let mode = fs::metadata(key_file(&data)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let own = server.ask("GET", "/v1/keys/self").send().await.is(200).json();
    assert_eq!(own["scopes"], json!(["admin"]));
    server.ask_without_key("GET", "/v1/keys/self").send().await.is(401);
    assert!(!server.told().contains(&server.admin), "{}", server.told());
    let admin = server.admin.clone();
    server.stop().await;

    // It is in the store: the file has served its purpose.
    fs::remove_file(key_file(&data)).unwrap();
    let server = Server::start(&data, &[]).await;
    assert!(!key_file(&data).exists());
    server.ask_as(&admin, "GET", "/v1/keys/self").send().await.is(200);
    let keys = server.ask_as(&admin, "GET", "/v1/keys").send().await.is(200).json();
    assert_eq!(keys["items"].as_array().unwrap().len(), 1, "{keys}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_in_the_file_becomes_the_first_one_and_anything_else_is_refused() {
    let _machine = machine::waits().await;
    let (_dir, elsewhere) = place();
    let other = Server::start(&elsewhere, &[]).await;
    let text = format!("  {}\n", other.admin);
    other.stop().await;

    let (_dir, data) = place();
    fs::write(key_file(&data), &text).unwrap();
    let server = Server::start(&data, &[]).await;
    server.ask("GET", "/v1/keys/self").send().await.is(200);
    assert_eq!(fs::read_to_string(key_file(&data)).unwrap(), text);
    server.stop().await;

    let key = text.trim();
    for wrong in ["\n", "hunter2", &key[..key.len() - 1], &format!("{key}x"), &key[4..]] {
        let (_dir, data) = place();
        fs::write(key_file(&data), wrong).unwrap();
        let (code, said) = refused(&data, "127.0.0.1:0", &[]).await;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("there is something else in it than a key"), "{said}");
        assert!(wrong.trim().is_empty() || !said.contains(wrong), "{said}");
        assert_eq!(fs::read_to_string(key_file(&data)).unwrap(), wrong);
    }

    // A start that died before it wrote the key leaves an empty file, which is no hindrance.
    let (_dir, data) = place();
    fs::write(key_file(&data), "").unwrap();
    let server = Server::start(&data, &[]).await;
    server.ask("GET", "/v1/keys/self").send().await.is(200);
    assert_eq!(fs::metadata(key_file(&data)).unwrap().permissions().mode() & 0o777, 0o600);
    server.stop().await;

    let (_dir, data) = place();
    fs::create_dir(key_file(&data)).unwrap();
    let (code, said) = refused(&data, "127.0.0.1:0", &[]).await;
    assert!(code == Some(2) && said.contains("it is no file"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_listens_to_others_encrypts_or_says_that_somebody_else_does() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let (code, said) = refused(&data, "0.0.0.0:0", &[]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--tls-cert") && said.contains("--insecure"), "{said}");
    assert!(!data.exists() && !key_file(&data).exists(), "a store was made that nobody wanted");

    let server = Server::start_at(&data, "0.0.0.0:0", &["--insecure"]).await;
    let near = ([127, 0, 0, 1], server.address.port()).into();
    Ask::new(near, "GET", "/v1/keys/self").key(&server.admin).send().await.is(200);
    server.stop().await;
}

/// Asks through an encrypted connection to who has this certificate.
async fn ask_secretly(server: &Server, cert: &rcgen::Certificate, ask: Ask) -> Answer {
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").unwrap();
    ask.over(connector.connect(name, stream).await.unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_certificate_it_speaks_https_and_nothing_else() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let server = Server::start(&data, &["--tls-cert", &cert, "--tls-key", &key]).await;
    assert!(server.told().contains("https://"), "{}", server.told());
    let ask = server.ask("GET", "/v1/keys/self");
    ask_secretly(&server, &made.cert, ask).await.is(200);
    let ask = server.ask_without_key("GET", "/v1/keys/self");
    ask_secretly(&server, &made.cert, ask).await.is(401);
    let plain = TcpStream::connect(server.address).await.unwrap();
    let answer = server.ask("GET", "/v1/keys/self").over(plain).await;
    assert!(answer.is_err(), "{answer:?}");
    server.stop().await;

    let (code, said) = refused(&data, "127.0.0.1:0", &["--url", "nonsense"]).await;
    assert!(code == Some(2) && said.contains("--url: "), "{said}");
    let (code, said) = refused(&data, "127.0.0.1:0", &["--tls-cert", &cert]).await;
    assert_eq!(code, Some(2), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_projects_outlive_a_loss_of_power() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let mut server = Server::start(&data, &[]).await;
    server.ask("POST", "/v1/projects").body(&json!({ "name": "team" })).await.is(201);
    let make = async |scope: &str| {
        let body = json!({ "name": scope, "scopes": [scope] });
        let ask = server.ask("POST", "/v1/keys").header("watchbell-project", "team");
        let made = ask.body(&body).await.is(201).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&made["secret"]), text(&made["key"]["id"]))
    };
    let (kept, _) = make("write").await;
    let (taken_back, id) = make("read").await;
    server.ask("DELETE", &format!("/v1/keys/{id}")).send().await.is(204);
    server.ask("POST", "/v1/projects/team/disable").send().await;
    server.kill();

    let server = Server::start(&data, &[]).await;
    let own = server.ask_as(&kept, "GET", "/v1/keys/self").send().await.is(200).json();
    assert_eq!(own["project"], "team");
    server.ask_as(&taken_back, "GET", "/v1/keys/self").send().await.is(401);
    let team = server.ask("GET", "/v1/projects/team").send().await.is(200).json();
    assert_eq!(team["enabled"], false, "{team}");
    server.stop().await;
}

/// How often the server is killed.
const KILLS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_after_a_loss_of_power_is_done_once() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let (_dir, data) = place();
    let mut server = Server::start(&data, &[]).await;
    let spec = json!({ "name": "bell", "webhook": { "url": receiver.url(0, "/bell") } });
    server.ask("POST", "/v1/triggers").body(&spec).await.is(201);
    // Neither has a name of its own, so that each request that is done makes another one.
    let nameless = json!({ "webhook": { "url": receiver.url(0, "/other") } });
    let key = json!({ "name": "again", "scopes": ["read"] });
    let asks = |server: &Server, round: usize| {
        [
            ("/v1/triggers/bell/run", None),
            ("/v1/triggers", Some(&nameless)),
            ("/v1/keys", Some(&key)),
        ]
        .map(|(path, body)| {
            let ask =
                server.ask("POST", path).header("idempotency-key", &format!("{path} {round}"));
            match body {
                Some(body) => ask.with(body),
                None => ask,
            }
        })
    };
    let mut dice = Random::new(0x1de_0001);
    let mut answered = 0;
    for round in 0..KILLS {
        let mut sent = JoinSet::new();
        for (number, ask) in asks(&server, round).into_iter().enumerate() {
            let address = server.address;
            let over = async move { ask.over(TcpStream::connect(address).await?).await };
            sent.spawn(async move { (number, over.await.ok()) });
        }
        if round % 2 == 0 {
            // Somewhere before the answer, or shortly after it: how long this process lives.
            tokio::time::sleep(Duration::from_micros(dice.below(20_000))).await;
            server.kill();
        }
        let mut told = sent.join_all().await;
        told.sort_unstable_by_key(|(number, _)| *number);
        if round % 2 == 1 {
            server.kill();
        }
        answered += told.iter().filter(|(_, answer)| answer.is_some()).count();
        server = Server::start(&data, &[]).await;
        for (ask, (_, before)) in asks(&server, round).into_iter().zip(told) {
            let again = ask.send().await;
            assert!((200..300).contains(&again.status), "round {round}: {again:?}");
            let Some(before) = before else { continue };
            assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");
            let id = |answer: &Answer| {
                let answer = answer.json();
                [answer["id"].clone(), answer["key"]["id"].clone()]
            };
            assert_eq!(id(&again), id(&before), "round {round}");
        }
    }
    println!("{answered} of {} requests were answered before the end", KILLS * 3);
    assert_eq!(items(&server, "triggers").await.len(), 1 + KILLS);
    assert_eq!(items(&server, "keys").await.len(), 1 + KILLS);
    assert_eq!(items(&server, "triggers/bell/runs").await.len(), KILLS);
    server.stop().await;
}

//! A cluster that encrypts, and a worker with a key of its own: what a library knows of certificates, keys and several servers.

use std::fs;
use std::path::Path;
use std::process::Command;

use client::Client;
use client::key::{KeySpec, Scope};
use client::queue::RunSpec;
use client::run::RunState;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rig::{PATIENCE, redis, until};
use tokio::task::block_in_place;

use super::super::process::WATCHBELL;
use super::super::server::{Server, key_file};
use super::place::{CaseWorker, Library, spec};

/// Enough for shards of each server.
const QUEUES: [&str; 8] = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"];

/// Writes `ca.pem`, `server.pem` and `server.key`.
fn certify(dir: &Path) {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    let (issuer_key, server_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut issuer = CertificateParams::new([]).unwrap();
    issuer.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Of another name than what it signs, which would pass for signed by itself.
    issuer.distinguished_name.push(DnType::CommonName, "the issuer of a test");
    write("ca.pem", issuer.self_signed(&issuer_key).unwrap().pem());
    let issuer = Issuer::new(issuer, issuer_key);
    let server = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    write("server.pem", server.signed_by(&server_key, &issuer).unwrap().pem());
    write("server.key", server_key.serialize_pem());
}

/// Submits a run to each queue, and waits until all have succeeded.
async fn all_succeed(client: &Client) {
    let mut ids = Vec::new();
    for queue in QUEUES {
        let spec = RunSpec { queue: Some(queue.to_owned()), ..spec("echo") };
        ids.push(client.submit(&spec).await.unwrap().id);
    }
    for id in ids {
        until(&format!("{id} succeeds"), PATIENCE * 2, || async {
            let run = client.run_by_id(&id).await.ok()?;
            (run.state == RunState::Succeeded).then_some(())
        })
        .await;
    }
}

pub(super) async fn encrypted(library: Library) {
    let redis = block_in_place(|| redis::Setup::durable().start());
    let dir = tempfile::tempdir().unwrap();
    certify(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--peer-ca", &ca];
    let mut servers: Vec<Server> = Vec::new();
    for name in ["a", "b"] {
        let data = dir.path().join(name);
        if let Some(first) = servers.first() {
            fs::write(key_file(&data), format!("{}\n", first.admin)).unwrap();
        }
        let own = ["--node", name, "--listen", "127.0.0.1:0"];
        let command = || Command::new(WATCHBELL);
        servers.push(Server::start_by(command, &redis.url(), &data, &[&own, &tls]).await);
    }
    let urls: Vec<String> =
        servers.iter().map(|server| format!("https://{}", server.address)).collect();
    let clients = urls.iter().map(|url| {
        let client = Client::builder(url).key(&servers[0].admin).project("default");
        client.ca_file(&ca).build().unwrap()
    });
    let clients: Vec<Client> = clients.collect();
    let own = KeySpec { name: "worker".to_owned(), scopes: vec![Scope::Worker], expires: None };
    let own = clients[0].create_key(&own).await.unwrap().secret.unwrap();

    let mut command = library.command();
    command
        .env("WATCHBELL_SERVER", urls.join(","))
        .env("WATCHBELL_KEY", own)
        .env("WATCHBELL_QUEUE", QUEUES.join(","))
        .env("WATCHBELL_WORKER", "web-1")
        .env("CAPACITY", "8")
        .env("LEASE_MS", "5000")
        .env("SSL_CERT_FILE", &ca)
        .env("NODE_EXTRA_CA_CERTS", &ca);
    let _worker = CaseWorker::start(command, dir.path().join("worker.out"));
    all_succeed(&clients[1]).await;
    servers.remove(0).kill();
    all_succeed(&clients[1]).await;
}

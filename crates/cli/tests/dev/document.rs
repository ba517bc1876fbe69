//! The API is as its document says, whatever is asked: Schemathesis makes thousands of requests from the document,
//! right ones and wrong ones, and compares what is answered with what was promised.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use client::Client;
use client::spec::{CatchUp, TriggerSpec};
use rig::{Ask, machine};
use serde_json::json;
use tokio::task::block_in_place;

use super::process::{Dev, place};
use super::server::Server;

const SEED: u32 = 7;

/// What is looked at in every answer. What is not there: whether right data is taken, which no schema can tell of
/// cron patterns and the like.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_schema_conformance,response_headers_conformance,unsupported_method";

/// Schemathesis, installed once below the directory of builds.
fn schemathesis() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    let made = Command::new(root.join("scripts/schemathesis")).arg(&dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir.join("bin/st")
}

/// How it is asked.
struct Trial<'a> {
    url: &'a str,
    key: Option<&'a str>,
    /// What stands for names and ids, by paths that match: without it, nothing that is asked about is there.
    real: &'a [(&'a str, &'a str, &'a str)],
    examples: u32,
}

impl Trial<'_> {
    /// Asks, expects no fault, and gives how many requests there were.
    fn run(&self, program: &Path, dir: &Path) -> usize {
        let config = dir.join("schemathesis.toml");
        fs::write(&config, self.config()).unwrap();
        let mut command = Command::new(program);
        command.current_dir(dir).arg("--config-file").arg(&config);
        command.args(["run", &format!("{}/openapi.json", self.url), "--no-color"]);
        command.args(["--phases", "examples,coverage,fuzzing", "--checks", CHECKS]);
        command.args(["--seed", &SEED.to_string()]);
        command.args(["--max-examples", &self.examples.to_string()]);
        command.args([
            "--generation-database",
            "none",
            "--exclude-path",
            "/v1/events",
            "--exclude-path",
            "/v1/store/watch",
        ]);
        if !self.real.is_empty() {
            // What is asked about stays.
            command.args(["--exclude-method", "DELETE"]);
            command.args(["--exclude-path-regex", "/(cancel|disable|stop)$"]);
        }
        if let Some(key) = self.key {
            command.args(["--header", &format!("authorization: Bearer {key}")]);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "seed {SEED}: {told}{wrong}");
        let count = told.lines().find_map(|line| line.trim().split_once(" generated, "));
        count.and_then(|(count, _)| count.parse().ok()).unwrap_or_else(|| panic!("{told}"))
    }

    fn config(&self) -> String {
        let mut config = String::new();
        if !self.real.is_empty() {
            config.push_str("[parameters]\n\"header.watchbell-project\" = \"default\"\n");
        }
        for (paths, parameter, value) in self.real {
            write!(
                config,
                "[[operations]]\ninclude-path-regex = \"{paths}\"\n\
                 parameters = {{ \"path.{parameter}\" = \"{value}\" }}\n"
            )
            .unwrap();
        }
        config
    }
}

/// One that rings at this server's own door.
fn bell(url: &str) -> TriggerSpec {
    let mut spec = TriggerSpec::webhook("bell", format!("{url}/livez")).cron("* * * * * *");
    spec.catch_up = Some(CatchUp::Skip);
    spec.webhook.get_or_insert_default().method = Some("GET".to_owned());
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_is_as_its_document_says() {
    let _machine = machine::waits().await;
    let program = schemathesis();
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let url = dev.client.url().trim_end_matches('/').to_owned();
    let made_up = Trial { url: &url, key: None, real: &[], examples: 5 };
    let mut count = block_in_place(|| made_up.run(&program, dir.path()));

    let post = |path| Ask::new(address(&url), "POST", path);
    // Whatever became of the scheduler, it is to ring.
    post("/v1/scheduler/start").send().await;
    post("/v1/triggers").body(&serde_json::to_value(bell(&url)).unwrap()).await.is(201);
    post("/v1/projects").body(&json!({ "name": "team" })).await.is(201);
    let run = post("/v1/triggers/bell/run?wait=10s").send().await.json();
    let real: &[_] = &[
        ("^/v1/triggers/", "name", "bell"),
        ("^/v1/projects/", "name", "team"),
        ("^/v1/runs/", "id", run["id"].as_str().unwrap()),
    ];
    let trial = Trial { url: &url, key: None, real, examples: 15 };
    count += block_in_place(|| trial.run(&program, dir.path()));
    assert!(count > 2_000, "{count} requests");
    println!("{count} requests");
    check_alive(&dev.client, &dev.log()).await;
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_is_as_its_document_says_to_who_may_only_read() {
    let _machine = machine::waits().await;
    let program = schemathesis();
    let (dir, data) = place();
    let server = Server::start(&data, &[]).await;
    let url = server.url();
    let spec = serde_json::to_value(bell(&url)).unwrap();
    server.ask("POST", "/v1/triggers").body(&spec).await.is(201);
    let run = server.ask("POST", "/v1/triggers/bell/run?wait=10s").send().await.json();
    let body = json!({ "name": "reader", "scopes": ["read"] });
    let key = server.ask("POST", "/v1/keys").body(&body).await.is(201).json();
    let before = server.ask("GET", "/v1/triggers/bell").send().await.json();
    let real: &[_] = &[
        ("^/v1/triggers/", "name", "bell"),
        ("^/v1/projects/", "name", "default"),
        ("^/v1/runs/", "id", run["id"].as_str().unwrap()),
        ("^/v1/keys/[{]", "id", key["key"]["id"].as_str().unwrap()),
    ];
    let trial = Trial { url: &url, key: key["secret"].as_str(), real, examples: 6 };
    let count = block_in_place(|| trial.run(&program, dir.path()));
    println!("{count} requests");
    // Who may only read has changed nothing.
    let after = server.ask("GET", "/v1/triggers/bell").send().await.json();
    assert_eq!((&after["revision"], &after["spec"]), (&before["revision"], &before["spec"]));
    let audit = server.ask("GET", "/v1/audit?author=reader").send().await.is(200).json();
    assert_eq!(audit["items"], json!([]));
    assert!(!server.told().contains("panicked"), "{}", server.told());
    server.stop().await;
}

fn address(url: &str) -> std::net::SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

async fn check_alive(client: &Client, log: &str) {
    assert!(!log.contains("panicked"), "{log}");
    assert!(client.scheduler().await.unwrap().ready);
}

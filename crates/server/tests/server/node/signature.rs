//! Signatures of what a real node sends, verified by the libraries that receivers use.
//!
//! The code that verifies is taken from docs/webhooks.md, and the libraries come from their registries.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use client::Timestamp;
use rig::{Heard, PATIENCE, until};
use serde_json::{Value, json};
use store::machine::{Machine, System};

use super::verify::is_ours;
use super::world::{Running, World};

const PAGE: &str = include_str!("../../../../../docs/webhooks.md");

/// The libraries look at the clock, so that of the node is right.
fn now() -> String {
    Timestamp::from_microsecond(System.wall_us().cast_signed()).unwrap().to_string()
}

/// The code of a language, as the page shows it.
fn snippet(language: &str) -> &'static str {
    let (_, begun) = PAGE.split_once(&format!("```{language}\n")).expect("the page shows it");
    begun.split_once("```").expect("it ends").0
}

/// The directory that has the libraries.
fn libraries() -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("standardwebhooks");
    let made = Command::new(format!("{root}/scripts/verifiers")).arg(&dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

/// What a program makes of cases that it is given.
fn judge(mut command: Command, program: &str, cases: &Value) -> Vec<bool> {
    command.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(cases.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn judge_in_python(cases: &Value) -> Vec<bool> {
    let mut command = Command::new(libraries().join("python/bin/python"));
    command.arg("-c");
    let rest = "import json, sys\ncases = json.load(sys.stdin)\nprint(json.dumps([is_ours(c['secret'], c['headers'], c['body'].encode()) for c in cases]))";
    judge(command, &format!("{}\n{rest}", snippet("python")), cases)
}

fn judge_in_node(cases: &Value) -> Vec<bool> {
    let mut command = Command::new("node");
    command.current_dir(libraries().join("node")).arg("-e");
    let rest = "const cases = JSON.parse(require('fs').readFileSync(0));\nconsole.log(JSON.stringify(cases.map(c => isOurs(c.secret, c.headers, c.body))));";
    judge(command, &format!("{}\n{rest}", snippet("javascript")), cases)
}

fn judge_in_rust(cases: &Value) -> Vec<bool> {
    let judged = cases.as_array().unwrap().iter().map(|case| {
        let header = |name: &str| case["headers"][name].as_str().unwrap_or_default();
        let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
        let (secret, body) = (case["secret"].as_str().unwrap(), case["body"].as_str().unwrap());
        is_ours(secret, id, timestamp, body, header("webhook-signature"))
    });
    judged.collect()
}

/// Whether this secret fits this request, with this body.
fn case(secret: &str, heard: &Heard, body: &str) -> Value {
    json!({"secret": secret, "headers": heard.headers, "body": body})
}

async fn rotate(node: &Running, project: &str, grace: &str) -> String {
    let path = format!("/v1/projects/{project}/rotate");
    let answer = node.ask("POST", &path, &json!({ "grace": grace })).await;
    answer["secret"].as_str().unwrap().to_owned()
}

/// Runs a trigger, and gives what its receiver got.
async fn run(world: &World, node: &Running, name: &str) -> Heard {
    let started = node.client.run(name, None).await.unwrap();
    until(&format!("{name} is called"), PATIENCE, || async {
        world.receiver.heard().into_iter().find(|heard| heard.run == started.id)
    })
    .await
}

#[tokio::test]
async fn the_libraries_of_standard_webhooks_verify_what_is_sent_also_while_a_secret_is_replaced() {
    let world = World::new();
    let node = world.start(&now()).await;
    let mut spec = world.spec("signed");
    spec.webhook.get_or_insert_default().body = Some(r#"{"text": "Glück, 5 €"}"#.to_owned());
    node.create(spec).await;
    node.create(world.spec("empty")).await;

    let unsigned = run(&world, &node, "signed").await;
    assert!(!unsigned.headers.contains_key("webhook-signature"), "{unsigned:?}");

    let first = rotate(&node, "default", "1d").await;
    let signed = run(&world, &node, "signed").await;
    let empty = run(&world, &node, "empty").await;
    let second = rotate(&node, "default", "1d").await;
    let rotating = run(&world, &node, "signed").await;
    let third = rotate(&node, "default", "0s").await;
    let rotated = run(&world, &node, "signed").await;

    let mut late = signed.clone();
    late.headers.insert("webhook-id".to_owned(), rotating.run.clone());
    let cases = [
        (case(&first, &signed, &signed.body), true),
        (case(&second, &signed, &signed.body), false),
        (case(&first, &signed, &signed.body.replace('5', "6")), false),
        (case(&first, &late, &late.body), false),
        (case(&first, &empty, ""), true),
        (case(&first, &rotating, &rotating.body), true),
        (case(&second, &rotating, &rotating.body), true),
        (case(&third, &rotating, &rotating.body), false),
        (case(&first, &rotating, "{}"), false),
        (case(&second, &rotated, &rotated.body), false),
        (case(&third, &rotated, &rotated.body), true),
        (case(&third, &unsigned, &unsigned.body), false),
    ];
    let (cases, expected): (Vec<Value>, Vec<bool>) = cases.into_iter().unzip();
    let cases = Value::from(cases);
    assert_eq!(judge_in_python(&cases), expected, "Python");
    assert_eq!(judge_in_node(&cases), expected, "Node");
    assert_eq!(judge_in_rust(&cases), expected, "Rust");
    node.stop().await;
}

#[test]
fn the_page_shows_the_rust_that_is_tested() {
    let code = include_str!("verify.rs").replace("pub(super) fn", "pub fn");
    assert!(code.contains(snippet("rust")), "docs/webhooks.md and verify.rs differ");
}

//! Elections through a real server: it is killed and started again, and people look and ask.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::Client;
use client::election::{Campaign, CampaignRequest};
use rig::machine;
use store::clock::Stopwatch;

use super::command::said;
use super::process::WATCHBELL;

/// Starts a server on what is in this directory.
fn start(dir: &Path, port: u16) -> Child {
    let mut child = Command::new(WATCHBELL)
        .args(["server", "--listen", &format!("127.0.0.1:{port}"), "--store"])
        .arg(format!("file:{}", dir.join("data").display()))
        .arg("--admin-key-file")
        .arg(dir.join("admin-key"))
        .stdout(Stdio::piped())
        .stderr(fs::File::create(dir.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("http://"), "it said {first:?}");
    child
}

/// Ends a server without a word.
fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

async fn campaign(client: &Client, request: &CampaignRequest) -> Campaign {
    client.campaign("nightly", request).await.unwrap().0
}

#[tokio::test]
async fn a_holder_outlives_its_server_and_nobody_else_leads_before_its_time() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let port = rig::free_port();
    let server = start(dir.path(), port);
    let url = format!("http://127.0.0.1:{port}");
    let key = fs::read_to_string(dir.path().join("admin-key")).unwrap();
    let client = Client::builder(&url).key(key.trim()).build().unwrap();
    // Long enough for servers to be started again, and for commands, between two renewals.
    let ttl = Duration::from_secs(10);
    let web_1 = CampaignRequest { ttl_ms: 10_000, ..CampaignRequest::new("web-1") };
    let ask = |args: &[&str], code: i32| {
        let mut command = Command::new(WATCHBELL);
        command.args(args).args(["--server", &url, "--key-file"]).arg(dir.path().join("admin-key"));
        said(&command.stdin(Stdio::null()).output().unwrap(), code)
    };
    assert!(ask(&["election", "list"], 0).0.contains("There are no such elections"));
    let first = campaign(&client, &web_1).await;
    let Campaign::Leading { session, token, .. } = first else { panic!("{first:?}") };

    kill(server);
    let server = start(dir.path(), port);
    let other = campaign(&client, &CampaignRequest::new("web-2")).await;
    assert!(matches!(other, Campaign::Following { .. }), "it is not buried at once: {other:?}");
    let mine = CampaignRequest { session: Some(session), ..web_1 };
    let watch = Stopwatch::start();
    match campaign(&client, &mine).await {
        Campaign::Leading { token: same, .. } => assert_eq!(same, token),
        other => panic!("{other:?}"),
    }

    let (list, _) = ask(&["election", "list"], 0);
    assert!(list.contains("nightly") && list.contains("web-1"), "{list}");
    let (shown, _) = ask(&["election", "show", "nightly", "--output", "json"], 0);
    let shown: client::election::Election = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown.token, token);
    let (line, _) = ask(&["election", "watch", "--count", "1"], 0);
    assert!(line.starts_with("nightly  held  web-1  token "), "{line}");
    assert!(ask(&["election", "resign", "nightly", "--yes"], 0).0.contains("web-1 was asked"));
    ask(&["election", "show", "nothing"], 1);

    kill(server);
    let server = start(dir.path(), port);
    let wait = CampaignRequest { wait_ms: 30_000, ..CampaignRequest::new("web-2") };
    let free = campaign(&client, &wait).await;
    assert!(matches!(free, Campaign::Open { .. }), "{free:?}");
    assert!(watch.elapsed() >= ttl * 5 / 4, "{:?}", watch.elapsed());
    let next = campaign(&client, &CampaignRequest::new("web-2")).await;
    assert!(matches!(next, Campaign::Leading { token: next, .. } if next > token), "{next:?}");
    kill(server);
}

#[tokio::test]
async fn a_candidate_of_the_command_line_leads_through_a_server() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let port = rig::free_port();
    let server = start(dir.path(), port);
    let elect = |project: &str| {
        let mut command = Command::new(WATCHBELL);
        command
            .args(["elect", "nightly", "--node", "web-1", "--project", project, "--output", "json"])
            .args(["--store", &format!("http://127.0.0.1:{port}"), "--key-file"])
            .arg(dir.path().join("admin-key"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let (_, why) = said(&elect("shop").output().unwrap(), 2);
    assert!(why.contains("--project default"), "{why}");
    let mut candidate = elect("default").spawn().unwrap();
    let lines = BufReader::new(candidate.stdout.take().unwrap()).lines();
    let elected = lines.map_while(Result::ok).find(|line| line.contains("\"elected\""));
    assert!(elected.is_some_and(|line| line.contains("web-1")));
    kill(candidate);
    kill(server);
}

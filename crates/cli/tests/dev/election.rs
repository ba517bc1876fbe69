//! Elections through a real server: it is killed and started again, and people look and ask.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use client::election::{Campaign, CampaignRequest, Election, ElectionState};
use engine::hold::record::{self, HandOver, HandOverCause, HoldBody, HoldRecord, RiskReason};
use engine::lease::Ttl;
use rig::{PATIENCE, machine};
use store::StoreUrl;
use store::clock::Stopwatch;
use store::election::{Candidacy, Mode, RightEnd, claim_of};
use store::machine::{Machine, System};
use store::session::{NodeId, NodeInfo, Session};
use tokio::task::JoinSet;
use tokio::time::timeout;

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

/// A hold that runs, as its holder tells of it.
fn running(token: u64) -> HoldBody {
    let mut hold = HoldRecord {
        token,
        node: "web-1".into(),
        state: record::HoldState::Running,
        leaving: None,
        since_ms: 1_800_000_000_000,
        program: "/usr/bin/nightly".into(),
        isolation: Some("namespace".into()),
        pid: Some(4_711),
        starts: 1,
        exits: Vec::new(),
        hand_overs: Vec::new(),
        at_risk: Vec::new(),
    };
    hold.came(HandOver {
        at_ms: 1_800_000_000_000,
        from: None,
        to: "web-1".into(),
        token,
        cause: HandOverCause::First,
        took_ms: Some(40),
    });
    hold.risks(RiskReason::SlowKill, 1_800_000_000_000, "40 ms late");
    HoldBody { hold }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_approved_and_a_hold_is_shown_and_asked_to_leave_on_the_command_line() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let port = rig::free_port();
    let server = start(dir.path(), port);
    let url = format!("http://127.0.0.1:{port}");
    let key = fs::read_to_string(dir.path().join("admin-key")).unwrap().trim().to_owned();
    let ask = |args: &[&str], code: i32| {
        let mut command = Command::new(WATCHBELL);
        command.args(args).args(["--server", &url, "--key-file"]).arg(dir.path().join("admin-key"));
        said(&command.stdin(Stdio::null()).output().unwrap(), code)
    };
    let at = StoreUrl::parse(&format!("http://:{key}@127.0.0.1:{port}")).unwrap();
    let store = store::open_existing(&at).await.unwrap();
    let (machine, mut keepers): (Arc<dyn Machine>, _) = (Arc::new(System), JoinSet::new());
    let mut candidates = Vec::new();
    for id in ["web-1", "web-2"] {
        let node = NodeInfo {
            id: NodeId::new(id).unwrap(),
            ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
            url: None,
            roles: Vec::new(),
            candidacies: vec!["default/nightly".to_owned()],
        };
        let (session, mut keeper) = Session::open(&store, &machine, &node).await.unwrap();
        keepers.spawn(async move { keeper.run(|| true).await });
        let claim = claim_of("default", "nightly").unwrap();
        candidates.push((Candidacy::new(&session, claim, Mode::Manual), session));
    }
    let people = async {
        let client = Client::builder(&url).key(&key).build().unwrap();
        let token = loop {
            match client.election("nightly").await {
                Ok(Election { state: ElectionState::Waiting, token, .. }) => break token,
                _not_yet => tokio::task::yield_now().await,
            }
        };
        let (list, _) = ask(&["election", "list"], 0);
        assert!(list.contains("waiting for approval"), "{list}");
        let (shown, _) = ask(&["election", "show", "nightly"], 0);
        assert!(shown.contains(&format!("election approve nightly --token {token}")), "{shown}");
        let (_, why) = ask(&["election", "approve", "nightly"], 2);
        assert!(why.contains("--yes"), "{why}");
        let (_, why) = ask(&["election", "approve", "nightly", "--token", "1", "--yes"], 1);
        assert!(why.contains("nobody waits for nightly under token 1"), "{why}");
        let (told, _) = ask(&["election", "approve", "nightly", "--yes"], 0);
        assert!(told.contains("web-1 may begin with nightly"), "{told}");
        token
    };
    let (first, _) = &mut candidates[0];
    let (holding, token) = tokio::join!(timeout(PATIENCE, first.campaign()), people);
    let mut holding = holding.unwrap().unwrap();
    assert_eq!(holding.right.token().0, token);
    let told = serde_json::value::to_raw_value(&running(token)).unwrap();
    holding.commit(Some(told), Vec::new()).await.unwrap();

    let (list, _) = ask(&["election", "list"], 0);
    assert!(list.contains("running, at risk"), "{list}");
    let (shown, _) = ask(&["election", "show", "nightly"], 0);
    for line in ["/usr/bin/nightly", "4711", "nobody to web-1: first, 0.040s", "slow_kill, once"] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    let (line, _) = ask(&["election", "watch", "nightly", "--count", "1"], 0);
    assert!(line.starts_with("nightly  running, at risk  web-1  token "), "{line}");
    // A session says so of itself from its second sign of life on.
    let client = Client::builder(&url).key(&key).build().unwrap();
    timeout(PATIENCE, async {
        while client.election("nightly").await.unwrap().candidates != ["web-2"] {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let (_, why) = ask(&["election", "resign", "nightly", "--to", "web-9", "--yes"], 2);
    assert!(why.contains("--to: web-9 does not campaign for nightly; these do: web-2"), "{why}");
    let (asked, _) = ask(&["election", "resign", "nightly", "--to", "web-2", "--yes"], 0);
    assert!(asked.contains("web-1 was asked to leave nightly, for web-2."), "{asked}");
    assert_eq!(timeout(PATIENCE, holding.right.over()).await.unwrap(), RightEnd::Wished);
    assert_eq!(holding.right.wished_to().map(NodeId::as_str), Some("web-2"));
    kill(server);
}

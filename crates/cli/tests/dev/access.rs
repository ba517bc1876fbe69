//! `watchbell server` and the verbs of those who look after it: keys, projects, audit, events, cluster, scheduler.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rig::{PATIENCE, machine, until};
use serde_json::Value;
use tempfile::TempDir;

use super::command::said;
use super::process::{WATCHBELL, place};

/// A server that wants keys, and the file with the first one.
struct Server {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    url: String,
    key_file: PathBuf,
    dir: TempDir,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("admin-key");
        let mut child = Command::new(WATCHBELL)
            .args(["server", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("file:{}", dir.path().join("data").display()))
            .arg("--admin-key-file")
            .arg(&key_file)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        stdout.read_line(&mut first).unwrap();
        let url = first.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("it said {first:?}")).trim_end_matches('.');
        Self { url: url.to_owned(), child, _stdout: stdout, key_file, dir }
    }

    /// Types this, with the key in this file.
    fn type_with(&self, key_file: Option<&Path>, args: &[&str]) -> Output {
        let mut command = Command::new(WATCHBELL);
        command.args(args).args(["--server", &self.url]).stdin(Stdio::null());
        if let Some(path) = key_file {
            command.arg("--key-file").arg(path);
        }
        command.output().unwrap()
    }

    /// Types this as an admin, who expects that it is fine: what stdout says.
    #[track_caller]
    fn admin(&self, args: &[&str]) -> String {
        said(&self.type_with(Some(&self.key_file), args), 0).0
    }

    #[track_caller]
    fn admin_json(&self, args: &[&str]) -> Value {
        let out = self.admin(&[args, &["--output", "json"]].concat());
        serde_json::from_str(&out).unwrap()
    }

    /// Keeps a secret that was told in a file for its owner alone.
    fn keep(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn who_has_no_key_or_a_lesser_one_is_not_allowed() {
    let _machine = machine::waits().await;
    let server = Server::start();
    let (_, err) = said(&server.type_with(None, &["trigger", "list"]), 6);
    assert!(err.contains("--key"), "{err}");
    let wrong = server.keep("wrong", "wbk_wrong");
    said(&server.type_with(Some(&wrong), &["trigger", "list"]), 6);

    let made = server.type_with(
        Some(&server.key_file),
        &["key", "create", "--name", "grafana", "--scope", "read"],
    );
    let (secret, told) = said(&made, 0);
    assert!(secret.starts_with("wbk_") && secret.lines().count() == 1, "alone on stdout");
    assert!(told.contains("told this once") && !told.contains("wbk_"), "{told}");
    let reader = server.keep("reader", &secret);
    said(&server.type_with(Some(&reader), &["trigger", "list"]), 0);
    let (own, _) = said(&server.type_with(Some(&reader), &["key", "self"]), 0);
    assert!(own.contains("grafana") && !own.contains("wbk_"), "{own}");
    let (_, err) = said(&server.type_with(Some(&reader), &["key", "list"]), 6);
    assert!(err.contains("scope admin"), "{err}");
}

#[tokio::test]
async fn a_key_is_listed_rotated_and_taken_back() {
    let _machine = machine::waits().await;
    let server = Server::start();
    server.admin(&["project", "create", "shop"]);
    let create = ["key", "create", "--name", "deploy", "--scope", "write", "--project", "shop"];
    let made = server.admin_json(&create);
    let id = made["key"]["id"].as_str().unwrap();
    assert_eq!(made["key"]["project"], "shop");
    let old = server.keep("old", made["secret"].as_str().unwrap());
    let listed = server.admin_json(&["key", "list", "--project", "shop"]);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");

    let new = server.keep("new", &server.admin(&["key", "rotate", id, "--grace", "0s"]));
    said(&server.type_with(Some(&old), &["trigger", "list"]), 6);
    said(&server.type_with(Some(&new), &["trigger", "list"]), 0);
    let asked = server.type_with(Some(&server.key_file), &["key", "delete", id]);
    let (_, err) = said(&asked, 2);
    assert!(err.contains("nothing was deleted") && err.contains("--yes"), "{err}");
    let own = server.type_with(Some(&new), &["key", "self", "--output", "json"]);
    let own: Value = serde_json::from_str(&said(&own, 0).0).unwrap();
    server.admin(&["key", "delete", own["id"].as_str().unwrap(), "--yes"]);
    said(&server.type_with(Some(&new), &["trigger", "list"]), 6);
}

#[tokio::test]
async fn a_project_is_made_limited_disabled_and_enabled_and_all_of_it_is_on_record() {
    let _machine = machine::waits().await;
    let server = Server::start();
    let made = server.type_with(
        Some(&server.key_file),
        &["project", "create", "shop", "--triggers", "1", "--bytes", "5000"],
    );
    let (secret, told) = said(&made, 0);
    assert!(secret.starts_with("whsec_") && secret.lines().count() == 1, "alone on stdout");
    assert!(told.contains("told this once"), "{told}");
    let create = |name| {
        let args = ["trigger", "create", "--name", name, "--project", "shop"];
        let args = [&args[..], &["--webhook", "http://127.0.0.1:1/x"]].concat();
        server.type_with(Some(&server.key_file), &args)
    };
    said(&create("one"), 0);
    server.admin(&["project", "set", "shop", "--triggers", "2"]);
    let shown = server.admin_json(&["project", "show", "shop"]);
    assert_eq!(shown["limits"], serde_json::json!({ "triggers": 2, "bytes": 5000 }));
    server.admin(&["project", "set", "shop", "--unlimited"]);
    let shown = server.admin(&["project", "show", "shop"]);
    assert!(shown.contains("limits  none"), "{shown}");
    assert!(server.admin(&["project", "list"]).contains("shop"));
    assert!(server.admin(&["project", "rotate", "shop"]).starts_with("whsec_"));

    let refused = server.type_with(Some(&server.key_file), &["project", "disable", "shop"]);
    assert!(said(&refused, 2).1.contains("nothing was disabled"));
    server.admin(&["project", "disable", "shop", "--yes"]);
    assert!(server.admin(&["project", "list"]).contains("not since 2"));
    server.admin(&["project", "enable", "shop"]);

    let audit = server.admin_json(&["audit", "list", "--limit", "500"]);
    let actions: Vec<&str> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|entry| entry["action"].as_str().unwrap())
        .filter(|action| action.starts_with("project."))
        .collect();
    let (create, replace) = ("project.create", "project.replace");
    let rest = ["project.rotate", "project.disable", "project.enable"];
    assert_eq!(actions, [&[create, replace, replace], &rest[..]].concat());
    let some = server.admin(&["audit", "list", "--action", create, "--author", "first admin"]);
    assert!(some.contains("shop") && some.lines().count() == 2, "{some}");
    assert!(server.admin(&["audit", "list", "--author", "nobody"]).contains("no such changes"));
}

#[tokio::test]
async fn events_are_followed_line_by_line() {
    let _machine = machine::waits().await;
    let server = Server::start();
    let mut follower = Command::new(WATCHBELL)
        .args(["events", "--count", "2", "--output", "json", "--server", &server.url])
        .arg("--key-file")
        .arg(&server.key_file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    // It says nothing before the first event, so one is made until it has seen one.
    let heard = std::thread::spawn(move || {
        let first: Vec<String> = lines.by_ref().take(1).map(Result::unwrap).collect();
        (first, lines)
    });
    let mut number = 0;
    while !heard.is_finished() {
        number += 1;
        let name = format!("trigger-{number}");
        server.admin(&["trigger", "create", "--name", &name, "--webhook", "http://127.0.0.1:1/x"]);
    }
    let (first, lines) = heard.join().unwrap();
    let event: Value = serde_json::from_str(&first[0]).unwrap();
    assert_eq!((&event["type"], &event["action"]), (&"changed".into(), &"trigger.create".into()));
    server.admin(&["trigger", "delete", "trigger-1", "--yes"]);
    assert_eq!(lines.map(Result::unwrap).count(), 1, "so many were asked for");
    assert!(follower.wait().unwrap().success());
}

#[tokio::test]
async fn the_scheduler_is_stopped_and_started_and_the_cluster_tells_who_is_there() {
    let _machine = machine::waits().await;
    let server = Server::start();
    let refused = server.type_with(Some(&server.key_file), &["scheduler", "stop"]);
    assert!(said(&refused, 2).1.contains("nothing was stopped"));
    assert!(server.admin(&["scheduler", "stop", "--yes"]).contains("stopped since"));
    assert!(server.admin(&["scheduler", "status"]).contains("watchbell scheduler start"));
    assert!(server.admin(&["scheduler", "start"]).contains("going"));
    let joined = || async {
        let cluster = server.admin_json(&["cluster", "status"]);
        (cluster["nodes"].as_array().unwrap().len() == 1).then_some(())
    };
    until("the node takes part", PATIENCE, joined).await;
    let text = server.admin(&["cluster", "status"]);
    assert!(text.contains("store class") && text.contains(&server.url), "{text}");
    assert!(text.lines().skip(4).all(|line| line.chars().count() <= 80), "{text}");
    let cluster = server.admin_json(&["cluster", "status"]);
    let node = &cluster["nodes"][0];
    assert_eq!(node["server"]["state"], "ready", "{cluster}");
    assert_eq!(node["server"]["shards"].as_array().unwrap().len(), 32);
    assert_eq!(cluster["orphans"], serde_json::json!([]));
    let name = node["name"].as_str().unwrap();
    let unknown = server.type_with(Some(&server.key_file), &["cluster", "drain", "nobody"]);
    assert!(said(&unknown, 1).1.contains(&format!("these are there: {name}")), "{unknown:?}");
    assert!(server.admin(&["cluster", "drain", name, "--undo"]).contains("takes shards again"));
}

#[test]
fn roles_that_are_none_are_refused_with_those_that_there_are() {
    for roles in ["", "api,", "leader", "api schedule"] {
        let typed = ["server", "--store", "file:/nowhere", "--roles", roles];
        let output = Command::new(WATCHBELL).args(typed).output().unwrap();
        let (_, err) = said(&output, 2);
        assert!(err.contains("a role is one of api, schedule"), "{roles:?}: {err}");
    }
}

#[tokio::test]
async fn the_verbs_read_their_key_from_wherever_it_is_but_from_one_place() {
    let _machine = machine::waits().await;
    let server = Server::start();
    let key = fs::read_to_string(&server.key_file).unwrap();
    let list = |key: Option<&str>, file: Option<&Path>| {
        let mut command = Command::new(WATCHBELL);
        command.args(["trigger", "list", "--server", &server.url]);
        command.envs(key.map(|key| ("WATCHBELL_KEY", key)));
        command.envs(file.map(|path| ("WATCHBELL_KEY_FILE", path)));
        command
    };
    said(&list(Some(key.trim()), None).output().unwrap(), 0);
    said(&list(None, Some(&server.key_file)).output().unwrap(), 0);
    let both = list(Some(key.trim()), Some(&server.key_file)).output().unwrap();
    assert!(said(&both, 2).1.contains("give --key or --key-file, not both"));
    // What is typed counts, and what a variable says for the other one does not.
    let typed = |flag: &str, value: &str| {
        list(Some("wbk_wrong"), Some(Path::new("/nope"))).args([flag, value]).output().unwrap()
    };
    said(&typed("--key", key.trim()), 0);
    said(&typed("--key-file", server.key_file.to_str().unwrap()), 0);
    fs::set_permissions(&server.key_file, fs::Permissions::from_mode(0o644)).unwrap();
    let (_, err) = said(&list(None, Some(&server.key_file)).output().unwrap(), 0);
    assert!(err.contains("others can read it: chmod 600"), "{err}");
}

/// A `watchbell dev` at this port, once it serves.
fn dev_at(port: u16, data: &Path) -> Child {
    let listen = format!("127.0.0.1:{port}");
    let mut command = Command::new(WATCHBELL);
    command.args(["dev", "--listen", &listen, "--data"]).arg(data);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains(&listen), "{said}");
    child
}

#[tokio::test]
async fn events_are_followed_on_when_the_server_is_started_again() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let port = rig::free_port();
    let url = format!("http://127.0.0.1:{port}");
    let mut server = dev_at(port, &data);
    let mut follower = Command::new(WATCHBELL)
        .args(["events", "--output", "json", "--server", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut complaints = BufReader::new(follower.stderr.take().unwrap()).lines();
    let heard = std::thread::spawn(move || (lines.next().unwrap().unwrap(), lines));
    for number in 0.. {
        let name = format!("trigger-{number}");
        let made = Command::new(WATCHBELL)
            .args(["trigger", "create", "--webhook", "http://127.0.0.1:1/x", "--server", &url])
            .args(["--name", &name])
            .output()
            .unwrap();
        assert!(made.status.success());
        if heard.is_finished() {
            break;
        }
    }
    let (first, lines) = heard.join().unwrap();
    assert!(first.contains("trigger.create"), "{first}");
    server.kill().unwrap();
    server.wait().unwrap();
    let said = complaints.next().unwrap().unwrap();
    assert!(said.contains("it is tried again until it answers"), "{said}");
    let mut server = dev_at(port, &data);
    // More than one was created before the first was heard of, if the follower was slow.
    let mut later = lines.map(Result::unwrap).skip_while(|line| line.contains("trigger.create"));
    let next = later.next().unwrap();
    assert!(next.contains("reset"), "what it missed is not known any more: {next}");
    follower.kill().unwrap();
    follower.wait().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
}

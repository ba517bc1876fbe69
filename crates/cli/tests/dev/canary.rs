//! Secrets stay where they belong.
//!
//! Every secret that Watchbell is given, or makes, is a text of its own here. Whatever goes well and whatever goes
//! wrong, none of them may turn up in a log at the finest level, in an answer that is not the one that tells it, or
//! in what commands say.

mod engine;
mod notifier;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rig::{Answer, Ask, PATIENCE, machine};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::command::watchbell;
use super::process::{Dev, WATCHBELL, place};
use super::server::{Server, key_file, refused, url};

/// What triggers carry. It may be read by who may read the trigger, and nowhere else.
const OF_TRIGGERS: [&str; 5] =
    ["canary-path", "canary-query", "canary-plain", "canary-body", "canary-notify"];

/// What triggers carry and never tell again.
const OF_HEADERS: &str = "canary-header";

/// What a receiver answers. It is told with the run, and nowhere else.
const ANSWERED: &str = "canary-answer";

/// What is refused, and is told to nobody.
const REFUSED: &str = "canary-refused";

/// Everything that was said, by whom.
#[derive(Default)]
struct Said(Vec<(String, String)>);

impl Said {
    fn note(&mut self, who: impl Into<String>, what: impl Into<String>) {
        self.0.push((who.into(), what.into()));
    }

    fn note_output(&mut self, args: &[&str], output: &Output) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.note(args.join(" "), text(&output.stdout) + &text(&output.stderr));
    }

    /// An answer, headers and all, which it gives back.
    fn answer(&mut self, who: &str, answer: Answer) -> Answer {
        self.note(who, format!("{}\n{}", answer.head, answer.text));
        answer
    }

    #[track_caller]
    fn check<'a>(&self, secrets: impl IntoIterator<Item = &'a str>) {
        for secret in secrets {
            assert!(secret.len() > 10, "{secret:?} could be anywhere");
            for (who, what) in &self.0 {
                let line = what.lines().find(|line| line.contains(secret));
                assert!(line.is_none(), "{who} tells {secret}: {}", line.unwrap_or_default());
            }
        }
    }
}

/// Answers every request with this status, and something that ought not to be passed on.
async fn answer_with(status: u16, listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut bytes = [0; 8_192];
            let text = format!(
                "HTTP/1.1 {status} {ANSWERED}\r\nx-token: {ANSWERED}\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{ANSWERED}",
                ANSWERED.len()
            );
            let _ = stream.read(&mut bytes).await;
            let _ = stream.write_all(text.as_bytes()).await;
        });
    }
}

/// A place to call, which answers so for as long as the tasks live.
async fn receiver(status: u16, tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tasks.spawn(answer_with(status, listener));
    address
}

/// One that carries every secret that a trigger can.
fn spec(name: &str, base: &str) -> Value {
    // What this one is answered must be on record, however busy the machine is that has to answer.
    let timeout = if name == "broken" { "10s" } else { "1s" };
    json!({
        "name": name,
        "webhook": {
            "url": format!("{base}/canary-path?token=canary-query"),
            "headers": { "x-plain": "canary-plain" },
            "secret_headers": { "authorization": "Bearer canary-header" },
            "body": "{\"password\":\"canary-body\"}",
            "timeout": timeout,
        },
        "retry": { "attempts": 1 },
    })
}

/// What is wrong with a trigger, and secret.
fn wrong_specs() -> Vec<Value> {
    let webhook = |webhook: Value| json!({ "name": "wrong", "webhook": webhook });
    let url = "https://hooks.example/";
    vec![
        webhook(json!({ "url": format!("https://user:{REFUSED}@hooks.example/") })),
        webhook(json!({ "url": format!("ftp://hooks.example/{REFUSED}") })),
        webhook(json!({ "url": format!("https://hooks.example:99999/{REFUSED}") })),
        webhook(json!({ "url": format!("https://hooks.example/ {REFUSED}") })),
        webhook(json!({ "url": url, "headers": { "authorization": format!("{REFUSED}\n") } })),
        webhook(json!({ "url": url, "headers": { "authorization": [REFUSED] } })),
        webhook(json!({ "url": url, "headers": { "host": REFUSED } })),
        webhook(json!({ "url": url, "headers": [REFUSED] })),
        webhook(json!({ "url": url, "body": { "password": REFUSED } })),
        webhook(json!({ "url": [REFUSED] })),
        webhook(json!({ "url": url, "content_type": format!("{REFUSED}\n") })),
        webhook(json!(REFUSED)),
    ]
}

/// Asks everything that somebody can ask who looks around, none of which tells a secret.
async fn look_around(server: &Server, run: &str, said: &mut Said) {
    for path in [
        "/",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/v1/runs",
        "/v1/triggers/broken/runs",
        "/v1/triggers/broken/explain",
        "/v1/triggers/broken/next",
        "/v1/triggers/nobody",
        "/v1/scheduler",
        "/v1/cluster",
        "/v1/keys",
        "/v1/keys/self",
        "/v1/audit",
        "/v1/runs/run_0",
        "/v1/nothing",
    ] {
        said.answer(path, server.ask("GET", path).send().await);
    }
    let shown = server.ask("GET", &format!("/v1/runs/{run}")).send().await.is(200);
    // It tells what the receiver said, as it should, and nothing else.
    assert!(shown.text.contains(ANSWERED), "{shown:?}");
    said.note("run show", shown.text.replace(ANSWERED, ""));
    let project = server.ask("GET", "/v1/projects/team").send().await.is(200);
    said.note("/v1/projects/team", project.text.replace("canary-notify", ""));
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_turns_up_where_it_does_not_belong() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let mut tasks = JoinSet::new();
    let (fine, failing) = (receiver(200, &mut tasks).await, receiver(500, &mut tasks).await);
    let closed = format!("127.0.0.1:{}", rig::free_port());
    let (mut said, mut secrets) = (Said::default(), Vec::<String>::new());
    let server = Server::start(&data, &["--log-level", "trace"]).await;
    secrets.push(server.admin.clone());

    // Everything that makes a secret, and tells it once.
    let notify = json!({ "url": format!("http://{failing}/canary-notify") });
    let project = json!({ "name": "team", "notify": notify });
    let made = server.ask("POST", "/v1/projects").header("idempotency-key", "project");
    secrets.push(text(&made.body(&project).await.is(201).json()["secret"]));
    let again = server.ask("POST", "/v1/projects").header("idempotency-key", "project");
    let again = again.body(&project).await.is(201);
    said.note("a project again", again.text.replace("canary-notify", ""));
    let rotated = server.ask("POST", "/v1/projects/team/rotate").send().await.is(200);
    secrets.push(text(&rotated.json()["secret"]));
    let of_team = |ask: Ask| ask.header("watchbell-project", "team");
    let body = json!({ "name": "writer", "scopes": ["write"] });
    let made = of_team(server.ask("POST", "/v1/keys")).body(&body).await.is(201).json();
    let writer = text(&made["secret"]);
    secrets.push(writer.clone());
    let path = format!("/v1/keys/{}/rotate", text(&made["key"]["id"]));
    let rotated = server.ask("POST", &path).send().await.is(201).json();
    secrets.push(text(&rotated["secret"]));

    // Runs of every kind of luck, in both projects.
    let mut failed = String::new();
    for (name, base) in [
        ("fine", format!("http://{fine}")),
        ("broken", format!("http://{failing}")),
        ("closed", format!("http://{closed}")),
        ("not-secure", format!("https://{fine}")),
        ("forbidden", "http://10.255.255.1".to_owned()),
        ("nowhere", "http://hooks.invalid".to_owned()),
    ] {
        for ask in
            [server.ask("POST", "/v1/triggers"), server.ask_as(&writer, "POST", "/v1/triggers")]
        {
            let made = ask.body(&spec(name, &base)).await.is(201);
            let told = |text: String, secret| text.replace(secret, "");
            said.note(format!("POST {name}"), OF_TRIGGERS.into_iter().fold(made.text, told));
        }
        let path = format!("/v1/triggers/{name}/run?wait=30s");
        let run = server.ask("POST", &path).send().await.is(200);
        said.note(format!("a run of {name}"), run.text.replace(ANSWERED, ""));
        server.ask_as(&writer, "POST", &path).send().await.is(200);
        if name == "broken" {
            failed = text(&run.json()["id"]);
        }
    }

    // Whatever is wrong.
    let stranger = format!("{}{}", &writer[..writer.len() - 8], "canary00");
    for key in [&stranger[..], &format!("{REFUSED}-key"), &format!("wbk_{REFUSED}")] {
        let answer = server.ask_as(key, "GET", "/v1/triggers").send().await.is(401);
        said.answer("a wrong key", answer);
    }
    secrets.push(stranger);
    for wrong in wrong_specs() {
        let answer = server.ask("POST", "/v1/triggers").body(&wrong).await;
        assert!((400..500).contains(&answer.status), "{wrong}: {answer:?}");
        said.answer(&format!("POST {wrong}"), answer);
        let answer = server.ask("PUT", "/v1/triggers/wrong").body(&wrong).await;
        said.answer(&format!("PUT {wrong}"), answer);
    }
    let broken = format!("{{\"webhook\":{{\"url\":\"https://hooks.example/{REFUSED}\",,");
    let answer = server.ask("POST", "/v1/triggers").body(&Value::from(broken)).await;
    said.answer("a body that is no object", answer);
    look_around(&server, &failed, &mut said).await;
    with_keys(&server, &writer, &closed, &mut said);
    let log = server.told();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "{log}");
    said.note("the server", log);
    server.stop().await;
    said.note("the server, at its end", fs::read_to_string(data.with_extension("log")).unwrap());

    commands(&data, dir.path(), &failed, &mut said).await;
    said.check(OF_TRIGGERS.into_iter().chain([OF_HEADERS, ANSWERED, REFUSED]));
    said.check(secrets.iter().map(String::as_str));
}

/// What is typed with a key, a right one and wrong ones, at a server that is there and at one that is not.
fn with_keys(server: &Server, writer: &str, closed: &str, said: &mut Said) {
    let wrong = format!("wbk_{REFUSED}");
    for (args, key, url, code) in [
        (&["key", "list"][..], &server.admin[..], server.url(), 0),
        (&["project", "list"], &server.admin, server.url(), 0),
        (&["audit", "list"], &server.admin, server.url(), 0),
        (&["cluster", "status"], &server.admin, server.url(), 0),
        (&["run", "list"], writer, server.url(), 0),
        (&["key", "list"], writer, server.url(), 6),
        (&["run", "list"], &wrong, server.url(), 6),
        (&["trigger", "delete", "nobody", "--yes"], writer, format!("http://{closed}"), 3),
    ] {
        let mut command = Command::new(WATCHBELL);
        command.args(args).args(["--key", key, "--server", &url, "--log-level", "trace"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        said.note_output(args, &output);
    }
}

/// Every command that looks at what is there, on the same data.
async fn commands(data: &Path, dir: &Path, run: &str, said: &mut Said) {
    let mut command = Command::new(WATCHBELL);
    command.args(["--log-level", "trace"]);
    let dev = Dev::start_by(command, data);
    let file = dir.join("backup.ndjson");
    let file = file.to_str().unwrap();
    for args in [
        &["run", "list"][..],
        &["trigger", "explain", "broken"],
        &["trigger", "next", "fine"],
        &["trigger", "pause", "fine"],
        &["scheduler", "status"],
        &["backup", "create", file],
    ] {
        let args = [args, &["--log-level", "trace"]].concat();
        said.note_output(&args, &watchbell(&dev, &args).await);
    }
    // A list tells where each one calls, and no more.
    let listed = watchbell(&dev, &["trigger", "list"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    said.note("trigger list", listed.replace("/canary-path?token=canary-query", ""));
    // Who asks about a run is told what the receiver said.
    for args in [&["run", "show", run][..], &["trigger", "run", "broken", "--wait", "30s"]] {
        let told = watchbell(&dev, args).await;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(ANSWERED), "{told}");
        said.note(args.join(" "), told.replace(ANSWERED, ""));
    }
    said.note("dev", dev.log());
    dev.stop().await;

    let store = url(data);
    for args in [&["store", "check", &store, "--seconds", "0"][..], &["backup", "verify", file]] {
        let args = [args, &["--log-level", "trace"]].concat();
        let output = Command::new(WATCHBELL).args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        said.note_output(&args, &output);
    }
    // A store has what may be read, and a dump tells it.
    let dump = Command::new(WATCHBELL).args(["store", "dump", &store]).output().unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(dump.contains(ANSWERED) && dump.contains("canary-path"), "{dump}");
    let told = OF_TRIGGERS.into_iter().chain([ANSWERED]);
    said.note("store dump", told.fold(dump, |dump, told| dump.replace(told, "")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_in_the_url_of_a_store_is_not_repeated() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let secret = format!("postgres://user:{REFUSED}@localhost/watchbell?password={REFUSED}");
    let mut said = Said::default();
    for args in [
        &["server", "--listen", "127.0.0.1:0", "--store", &secret][..],
        &["server", &secret],
        &["store", "check", &secret],
        &["store", "dump", &secret],
        &["store", "check", &secret, &secret],
        &["restore", "nothing.ndjson", "--to", &secret],
        &["backup", "create", "nothing.ndjson", "--store", &secret],
    ] {
        let args = [args, &["--log-level", "trace"]].concat();
        let output = Command::new(WATCHBELL).args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        said.note(args[0], told + &String::from_utf8_lossy(&output.stdout));
    }
    for args in [&["server", "--help"][..], &["server"], &["store", "--help"]] {
        let mut command = Command::new(WATCHBELL);
        let output = command
            .args(args)
            .env("WATCHBELL_STORE", &secret)
            .env("WATCHBELL_LISTEN", "127.0.0.1:0")
            .output()
            .unwrap();
        said.note_output(args, &output);
    }
    // Somebody gave the wrong file.
    fs::write(key_file(&data), format!("{REFUSED}\n")).unwrap();
    let (code, told) = refused(&data, "127.0.0.1:0", &["--log-level", "trace"]).await;
    assert_eq!(code, Some(2), "{told}");
    said.note("server", told);
    said.check([REFUSED]);
}

/// What a receiver got is what was written: the secrets of this test are really used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_hidden_from_people_is_sent_to_the_receiver() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let dev = Dev::start(&data);
    let spec = serde_json::from_value(spec("bell", &base)).unwrap();
    dev.client.create_trigger(&spec).await.unwrap();
    let run = watchbell(&dev, &["trigger", "run", "bell"]).await;
    assert!(run.status.success(), "{run:?}");
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut heard = Vec::new();
    let heard = tokio::time::timeout(PATIENCE, async {
        while !String::from_utf8_lossy(&heard).contains("canary-body") {
            let len = stream.read_buf(&mut heard).await.unwrap();
            assert!(len > 0, "{heard:?}");
        }
        String::from_utf8(heard).unwrap()
    });
    let heard = heard.await.unwrap();
    for secret in ["canary-path", "canary-query", "canary-header", "canary-body"] {
        assert!(heard.contains(secret), "{heard}");
    }
    dev.kill();
}

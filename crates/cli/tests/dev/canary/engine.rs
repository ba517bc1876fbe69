//! The passwords of engines, and what is kept in them: whatever goes well and whatever goes wrong, nobody tells it.
//!
//! The clients of these engines log as well. At the finest level their words pass through our log, so what they carry is
//! searched for in every form that a careless line gives it.

use std::thread;
use std::time::Duration;

use rig::etcd::Etcd;
use rig::postgres::Postgres;
use rig::redis::Redis;
use rig::{etcd, postgres, redis, until};

use super::super::process::Spawned;
use super::*;

/// The password. That of the Postgres for tests is another one.
const PASSWORD: &str = "canary-of-an-engine";

/// How long an answer is waited for that may not come.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What a process ends with that does not reach its store. It has a second for that, in all, which may be too little
/// where many are started at once: then it is tried again.
const UNREACHED: i32 = 3;
const TRIES_MAX: usize = 5;

/// An engine, with a password.
enum Engine {
    Etcd(Etcd),
    Redis(Redis),
    Postgres(Postgres),
}

impl Engine {
    fn etcd() -> Self {
        let setup = etcd::Setup { password: Some(PASSWORD.into()), ..etcd::Setup::default() };
        Self::Etcd(Etcd::start(1, &setup))
    }

    fn redis() -> Self {
        Self::Redis(redis::Setup::durable().password(PASSWORD).start())
    }

    fn postgres() -> Self {
        Self::Postgres(Postgres::start(&[]))
    }

    fn password(&self) -> &'static str {
        match self {
            Self::Etcd(_) | Self::Redis(_) => PASSWORD,
            Self::Postgres(_) => postgres::PASSWORD,
        }
    }

    fn address(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.hosts(),
            Self::Redis(redis) => redis.address().to_string(),
            Self::Postgres(postgres) => postgres.address().to_string(),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Etcd(etcd) => format!("etcd://wb:{PASSWORD}@{}", etcd.hosts()),
            Self::Redis(redis) => redis.url(),
            Self::Postgres(postgres) => postgres.url(),
        }
    }

    /// Another store in the same engine.
    fn other_url(&self) -> String {
        let url = self.url();
        match self {
            Self::Etcd(_) => format!("{url}/watchbell/other"),
            Self::Redis(_) => url.replace("/0", "/1"),
            Self::Postgres(_) => format!("{url}?schema=other"),
        }
    }

    /// What may be wrong with a URL, and the code that it gives.
    fn wrong_urls(&self) -> [(String, i32); 4] {
        let (url, password) = (self.url(), self.password());
        let closed = format!("127.0.0.1:{}", rig::free_port());
        let secured = match self {
            Self::Etcd(_) => url.replace("etcd:", "etcds:"),
            Self::Redis(_) => url.replace("redis:", "rediss:"),
            Self::Postgres(_) => format!("{url}?sslmode=require"),
        };
        [
            (url.replace(password, &format!("{password}-wrong")), 7),
            (secured, 9),
            (url.replace(&self.address(), &closed), 3),
            (format!("{url}?secret={password}"), 2),
        ]
    }

    fn kill(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.kill(0),
            Self::Redis(redis) => redis.kill(),
            Self::Postgres(postgres) => postgres.kill(),
        }
    }
}

impl Said {
    /// The end of what was said last.
    fn end(&self) -> &str {
        let text = self.0.last().map(|(_, text)| text.trim()).unwrap_or_default();
        text.rsplit_once('\n').map_or(text, |(_, line)| line)
    }
}

/// A text as it stands in a log, and as careless programs print bytes.
fn forms(secret: &str) -> [String; 3] {
    let bytes = secret.as_bytes();
    let decimal: Vec<String> = bytes.iter().map(u8::to_string).collect();
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [secret.to_owned(), decimal.join(", "), hex.concat()]
}

/// A word as etcd makes them for who has given its password: sixteen letters, a point, a number.
fn token(text: &str) -> Option<&str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.').find(|word| {
        word.split_once('.').is_some_and(|(letters, number)| {
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            letters.len() == 16
                && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
                && is_number
        })
    })
}

/// Starts a candidate, which tells everything. What it says goes to one file.
fn elect(dir: &Path, node: &str, change: impl FnOnce(&mut Command)) -> Spawned {
    let log = dir.join(format!("{node}.log"));
    let file = fs::File::create(&log).unwrap();
    let mut command = Command::new(WATCHBELL);
    command.args(["elect", "reports", "--node", node, "--ttl", "5s"]);
    command.args(["--metrics", "127.0.0.1:0", "--log-level", "trace"]);
    change(&mut command);
    let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    Spawned { child, log }
}

/// What the metrics of a candidate say.
async fn metrics(candidate: &Spawned, said: &mut Said) {
    let told = candidate.says("/metrics\n").await;
    let at = told.split("http://").find_map(|rest| rest.split_once("/metrics")).unwrap().0;
    said.answer(
        "metrics of a candidate",
        Ask::new(at.parse().unwrap(), "GET", "/metrics").send().await,
    );
}

/// What is answered, if it is in time: while the engine is away, what depends on it is not.
async fn note(said: &mut Said, who: &str, ask: Ask) {
    if let Ok(answer) = tokio::time::timeout(ANSWER_MAX, ask.send()).await {
        said.answer(who, answer);
    }
}

async fn look(server: &Server, said: &mut Said) {
    for path in ["/metrics", "/readyz", "/v1/cluster", "/v1/elections", "/v1/scheduler", "/v1/x"] {
        note(said, path, server.ask("GET", path)).await;
    }
    let wrong = json!({ "name": "wrong", "webhook": { "url": "ftp://hooks.example/" } });
    note(said, "a problem", server.ask("POST", "/v1/triggers").with(&wrong)).await;
}

/// A server and two candidates, one by the store and one by the server, while all is well, and when the engine is gone.
async fn run(engine: &mut Engine, dir: &Path, said: &mut Said) -> String {
    let (url, data) = (engine.url(), dir.join("data"));
    let mut tasks = JoinSet::new();
    let fine = receiver(200, &mut tasks).await;
    let server = Server::start_telling_all_on(&url, &data).await;
    let carries = |name: &str| spec(name, &format!("http://{fine}"));
    server.ask("POST", "/v1/triggers").body(&carries("fine")).await.is(201);
    server.ask("POST", "/v1/triggers/fine/run?wait=10s").send().await.is(200);
    let mut by_store = elect(dir, "by-store", |command| {
        command.env("WATCHBELL_STORE", &url);
    });
    let mut by_server = elect(dir, "by-server", |command| {
        command.env("WATCHBELL_STORE", server.url()).env("WATCHBELL_KEY", &server.admin);
        command.args(["--project", "default"]);
    });
    for candidate in [&by_store, &by_server] {
        candidate.says("campaigning").await;
        metrics(candidate, said).await;
    }
    look(&server, said).await;
    tokio::task::block_in_place(|| engine.kill());
    by_store.says("the store takes no renewal or claim").await;
    metrics(&by_store, said).await;
    note(said, "a trigger", server.ask("POST", "/v1/triggers").with(&carries("gone"))).await;
    look(&server, said).await;
    let admin = server.admin.clone();
    let told = server.told();
    assert!(told.contains("TRACE") || told.contains("DEBUG"), "{told}");
    let (one, other, ()) = tokio::join!(by_store.stop(), by_server.stop(), server.stop());
    assert_eq!((one.code(), other.code()), (Some(0), Some(0)));
    said.note("the server", fs::read_to_string(data.with_extension("log")).unwrap() + &told);
    for candidate in [&by_store, &by_server] {
        said.note("a candidate", fs::read_to_string(&candidate.log).unwrap());
    }
    admin
}

/// One command that tells everything, with this URL also in its variable, and the code that it ends with.
fn command(args: &[&str], url: &str, code: i32) -> Said {
    let mut command = Command::new(WATCHBELL);
    command.args(args).args(["--log-level", "trace"]);
    command.env("WATCHBELL_STORE", url).env("RUST_LOG", "trace");
    let (mut said, mut ended) = (Said::default(), None);
    for _ in 0..TRIES_MAX {
        let output = command.output().unwrap();
        said.note_output(args, &output);
        ended = output.status.code();
        if code == UNREACHED || ended != Some(UNREACHED) {
            break;
        }
    }
    assert_eq!(ended, Some(code), "{args:?}: {}", said.end());
    said
}

/// Every command that takes the URL of a store.
fn commands(url: &str, other: &str, made: &str, code: i32) -> Vec<Said> {
    let new = format!("{made}.new");
    let all = [
        &["store", "check", url, "--seconds", "0"][..],
        &["store", "dump", url],
        &["backup", "create", &new, "--store", url, "--force"],
        &["restore", made, "--store", other],
    ];
    let mut said: Vec<Said> = all.iter().map(|args| command(args, url, code)).collect();
    said.push(command(&["config", "show"], url, 0));
    said
}

/// Those that go on when all is well.
fn services(url: &str, code: i32) -> Vec<Said> {
    let all = [
        &["server", "--listen", "127.0.0.1:0", "--store", url][..],
        &["elect", "reports", "--wait", "0s", "--store", url],
        &["elect", "reports", "--wait", "0s"],
    ];
    all.iter().map(|args| command(args, url, code)).collect()
}

/// All of them at once, with a URL that is right and with those that are wrong.
fn try_urls(engine: &Engine, dir: &Path, said: &mut Said) {
    let (url, other) = (engine.url(), engine.other_url());
    let path = |name: &str| dir.join(name).display().to_string();
    let made = &path("made.backup");
    let mut all = vec![command(&["backup", "create", made, "--store", &url], &url, 0)];
    thread::scope(|scope| {
        let mut trying = vec![scope.spawn(|| commands(&url, &other, made, 0))];
        for (url, code) in engine.wrong_urls() {
            let made = path(&format!("{code}.backup"));
            fs::copy(path("made.backup"), &made).unwrap();
            trying.push(scope.spawn(move || {
                let mut said = commands(&url, &url, &made, code);
                said.extend(services(&url, code));
                said
            }));
        }
        for tried in trying {
            all.extend(tried.join().unwrap());
        }
    });
    said.0.extend(all.into_iter().flat_map(|said| said.0));
}

async fn check(mut engine: Engine) {
    let (dir, mut said) = (tempfile::tempdir().unwrap(), Said::default());
    // So that there is something in the store.
    let first = Server::start_telling_all_on(&engine.url(), &dir.path().join("data")).await;
    first.stop().await;
    tokio::task::block_in_place(|| try_urls(&engine, dir.path(), &mut said));
    let admin = run(&mut engine, dir.path(), &mut said).await;
    let secrets = OF_TRIGGERS.into_iter().chain([OF_HEADERS, engine.password(), &admin]);
    for secret in secrets {
        let forms = forms(secret);
        said.check(forms.iter().map(String::as_str));
    }
    for (who, what) in &said.0 {
        assert!(!what.contains(" h2::"), "{who} tells every frame");
        let line = what.lines().find_map(token);
        assert!(line.is_none(), "{who} tells what may be a token of etcd: {line:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_tells_the_password_of_an_engine_nor_what_is_in_it() {
    let _machine = machine::works().await;
    let mut all = JoinSet::new();
    for start in [Engine::etcd, Engine::redis, Engine::postgres] {
        all.spawn(async move { check(tokio::task::block_in_place(start)).await });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_does_not_tell_its_key_to_a_server() {
    let _machine = machine::waits().await;
    let (dir, mut said) = (tempfile::tempdir().unwrap(), Said::default());
    let server = Server::start(&dir.path().join("data"), &["--log-level", "trace"]).await;
    let closed = format!("127.0.0.1:{}", rig::free_port());
    let key = format!("wbk_{REFUSED}");
    for (store, code) in [
        (server.url(), 6),
        (server.url().replace("http:", "https:"), 9),
        (format!("http://{closed}"), 3),
        (format!("https://user:{REFUSED}@{closed}"), 2),
    ] {
        let mut candidate = elect(dir.path(), "stranger", |command| {
            command.env("WATCHBELL_STORE", &store).env("WATCHBELL_KEY", &key);
            // Where nobody is, it ends at once; where somebody is, it has time to get there.
            command.args(["--wait", if code == UNREACHED { "0s" } else { "20s" }]);
        });
        let status = until("it ends", PATIENCE, || {
            let status = candidate.child.try_wait().unwrap();
            async move { status }
        });
        let ended = status.await.code();
        let told = fs::read_to_string(&candidate.log).unwrap();
        assert_eq!(ended, Some(code), "{store}: {told}");
        said.note(store.replace(REFUSED, ""), told);
    }
    said.note("the server", server.told());
    server.stop().await;
    said.check(forms(REFUSED).iter().map(String::as_str));
}

#[test]
fn a_token_of_etcd_is_known_when_it_is_seen() {
    assert_eq!(token("authorization: \"QwertyuiopAsdfgh.12\", x"), Some("QwertyuiopAsdfgh.12"));
    assert_eq!(token("127.0.0.1:2379 1.234s watchbell::elect::page.rs"), None);
}

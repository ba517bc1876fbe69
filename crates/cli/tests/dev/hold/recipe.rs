//! The recipes of docs/elections.md, as they stand there: what is acted upon keeps the greatest token that it has seen, and
//! refuses a smaller one. The tokens are those of programs that were held.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use rig::postgres::Postgres;
use rig::redis::Setup;
use rig::{Ask, machine};
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::super::process::Spawned;
use super::*;

/// The blocks in this language, in their order.
fn blocks(language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/elections.md");
    let text = fs::read_to_string(path).unwrap();
    let begin = format!("\n```{language}\n");
    let block = |rest: &str| rest.split_once("\n```\n").expect("a block has an end").0.to_owned();
    text.split(&begin).skip(1).map(block).collect()
}

/// A program of the document, by the name in its first line, in a file.
fn program(name: &str, dir: &Path) -> PathBuf {
    let of_name = |text: &String| text.starts_with(&format!("# {name} "));
    let text = blocks("python").into_iter().find(of_name).unwrap_or_else(|| panic!("no {name}"));
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The tokens of three who had it one after the other.
async fn terms() -> (TempDir, Vec<u64>) {
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let mut tokens = Vec::new();
    for node in ["anna", "bert", "carl"] {
        let mut holder = Holder::start(dir.path(), node, &redis.url(), &STEADY);
        tokens.push(holder.event("running", 1).await["token"].as_u64().unwrap());
        holder.stop().await;
    }
    (dir, tokens)
}

/// What each of them does while it has it, and once more, and again when the next one has it. `write` tells whether it was
/// let.
fn refuses_former(tokens: &[u64], mut write: impl FnMut(u64) -> bool) {
    for (number, token) in tokens.iter().enumerate() {
        assert!(write(*token) && write(*token), "{token} is the greatest");
        for former in &tokens[..number] {
            assert!(!write(*former), "{former} is of before {token}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_refuses_whoever_had_it_before() {
    let _machine = machine::waits().await;
    let (_dir, tokens) = terms().await;
    block_in_place(|| {
        let postgres = Postgres::start(&[]);
        let [report, write, fence] = &blocks("sql")[..] else { panic!("there are three") };
        postgres.sql(report);
        postgres.sql(fence);
        let statement = write.trim_end().trim_end_matches(';');
        refuses_former(&tokens, |token| {
            let prepared =
                format!("PREPARE write(bigint, text) AS {statement} RETURNING 'written'");
            postgres.sql(&format!("{prepared}; EXECUTE write({token}, 'by {token}')")) == "written"
        });
        let last = tokens.last().unwrap();
        assert_eq!(postgres.sql("SELECT body FROM report"), format!("by {last}"));

        // A transaction that is refused has changed nothing, and needs no look at a count.
        postgres.sql("CREATE TABLE mail (token bigint)");
        refuses_former(&tokens, |token| {
            let fenced =
                format!("PERFORM fence('mailer', {token}); INSERT INTO mail VALUES ({token});");
            postgres.sql(&format!(
                "DO $do$ BEGIN {fenced} EXCEPTION WHEN raise_exception THEN NULL; END $do$"
            ));
            let greatest = postgres.sql("SELECT token FROM fence");
            greatest == token.to_string()
        });
        let sent = "SELECT string_agg(token::text, ' ' ORDER BY token) FROM mail";
        let twice: Vec<String> =
            tokens.iter().flat_map(|it| [it.to_string(), it.to_string()]).collect();
        assert_eq!(postgres.sql(sent), twice.join(" "));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_refuses_whoever_had_it_before_and_whoever_shows_no_token() {
    let _machine = machine::waits().await;
    let (dir, tokens) = terms().await;
    let (path, port) = (program("service.py", dir.path()), rig::free_port());
    let log = dir.path().join("service.log");
    let mut command = Command::new("python3");
    command.arg(path).arg(dir.path().join("reports")).arg(port.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let _service = Spawned { child: command.spawn().unwrap(), log };
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    until("the service listens", PATIENCE, || async { TcpStream::connect(at).ok() }).await;

    let put = |token: String| Ask::new(at, "PUT", "/nightly").header("x-token", &token);
    let mut seen = 0;
    for token in [tokens[0], tokens[1], tokens[0], tokens[1], tokens[2], tokens[1], tokens[2]] {
        let answer = put(token.to_string()).send().await;
        assert_eq!(answer.status, if token < seen { 409 } else { 204 }, "{token} after {seen}");
        seen = seen.max(token);
    }
    for none in ["", "-1", "1e99", "9999999999999999999"] {
        assert_eq!(put(none.to_owned()).send().await.status, 428, "{none:?}");
    }
    Ask::new(at, "PUT", "/nightly").send().await.is(428);
    // Others have reports of their own.
    Ask::new(at, "PUT", "/weekly").header("x-token", "1").send().await.is(204);
}

/// A store of one object, that answers as S3 does: its `ETag` is made of its content alone, and a write that would be over
/// something else than what the writer saw is refused with 412.
struct ObjectStore {
    at: SocketAddr,
    content: Arc<Mutex<Option<Vec<u8>>>>,
}

/// What happens at a request.
enum Meanwhile {
    Nothing,
    /// Right after it, somebody writes this.
    Written(Vec<u8>),
    /// It is answered with this status, and nothing is done.
    Refused(u16),
}

impl ObjectStore {
    /// One that asks at each request, by its method, what happens meanwhile.
    fn start(mut meanwhile: impl FnMut(&str) -> Meanwhile + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let content = Arc::<Mutex<Option<Vec<u8>>>>::default();
        let kept = Arc::clone(&content);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut head = Vec::new();
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    match line.trim_end() {
                        "" => break,
                        line => head.push(line.to_owned()),
                    }
                }
                let (request, lines) = head.split_first().unwrap();
                let header: BTreeMap<String, &str> = lines
                    .iter()
                    .filter_map(|line| line.split_once(": "))
                    .map(|(name, value)| (name.to_lowercase(), value))
                    .collect();
                let length = header.get("content-length").map_or(0, |it| it.parse().unwrap());
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let method = request.split(' ').next().unwrap();
                let mut there = kept.lock().unwrap();
                let happens = meanwhile(method);
                let answer = match &happens {
                    Meanwhile::Refused(status) => answer(*status, None),
                    _ if method == "GET" => {
                        there.as_deref().map_or(answer(404, None), |it| answer(200, Some(it)))
                    }
                    _ if may_write(&header, there.as_deref()) => {
                        *there = Some(body);
                        answer(200, None)
                    }
                    _ => answer(412, None),
                };
                if let Meanwhile::Written(by_another) = happens {
                    *there = Some(by_another);
                }
                drop(there);
                stream.get_mut().write_all(&answer).unwrap();
            }
        });
        Self { at, content }
    }

    fn content(&self) -> Value {
        serde_json::from_slice(self.content.lock().unwrap().as_deref().unwrap()).unwrap()
    }

    /// Writes by the program of the document.
    fn write(&self, program: &Path, token: u64, body: &str) -> Output {
        let mut command = Command::new("python3");
        command.arg(program).arg(format!("http://{}/report", self.at)).arg(token.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn etag(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn may_write(header: &BTreeMap<String, &str>, there: Option<&[u8]>) -> bool {
    match (header.get("if-match"), header.get("if-none-match"), there) {
        (Some(seen), None, Some(there)) => **seen == etag(there),
        (None, Some(any), there) => *any == "*" && there.is_none(),
        _ => panic!("a write without a condition: {header:?}"),
    }
}

fn answer(status: u16, content: Option<&[u8]>) -> Vec<u8> {
    let content = content.unwrap_or_default();
    let (length, etag) = (content.len(), etag(content));
    let head = format!(
        "HTTP/1.1 {status} it\r\ncontent-length: {length}\r\netag: {etag}\r\nconnection: close\r\n\r\n"
    );
    [head.as_bytes(), content].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_store_refuses_whoever_had_it_before() {
    let _machine = machine::waits().await;
    let (dir, tokens) = terms().await;
    let program = program("object.py", dir.path());
    block_in_place(|| {
        // Every third request is one that S3 wants to be sent again, if it is a write.
        let mut count = 0;
        let store = ObjectStore::start(move |method| {
            count += 1;
            if count % 3 == 0 && method == "PUT" {
                Meanwhile::Refused(409)
            } else {
                Meanwhile::Nothing
            }
        });
        refuses_former(&tokens, |token| {
            let written = store.write(&program, token, &format!("by {token}"));
            let said = String::from_utf8_lossy(&written.stderr).into_owned();
            assert!(written.status.success() || said == "somebody else leads\n", "{said}");
            assert!(store.content()["token"].as_u64().unwrap() >= token, "{}", store.content());
            written.status.success()
        });
        assert_eq!(store.content()["body"], format!("by {}", tokens[2]));
    });
}

/// It read before the next one wrote, and writes afterwards: with the same body, so that nothing but the token tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looked_before_the_next_one_wrote_is_refused_by_the_object_store() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let program = program("object.py", dir.path());
    block_in_place(|| {
        let of = |token: u64| format!("{{\"token\": {token}, \"body\": \"same\"}}").into_bytes();
        let mut gets = 0;
        let store = ObjectStore::start(move |method| {
            gets += u32::from(method == "GET");
            // The second write is of 7 again; while it has looked, 8 writes.
            if method == "GET" && gets == 2 {
                Meanwhile::Written(of(8))
            } else {
                Meanwhile::Nothing
            }
        });
        assert!(store.write(&program, 7, "same").status.success());
        let late = store.write(&program, 7, "same");
        assert_eq!(String::from_utf8_lossy(&late.stderr), "somebody else leads\n");
        assert_eq!(store.content()["token"], 8);
        let refusing = ObjectStore::start(|_| Meanwhile::Refused(403));
        let refused = refusing.write(&program, 9, "");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("answered 403"));
    });
}

//! What runs print, with real processes: a worker that prints without end, people who follow and read slowly or not at all,
//! servers that die and that stand between the worker, the owner of the shard and whoever follows.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use client::output::{OutputChunk, OutputEvent, OutputRequest, OutputStream, RunOutput};
use client::queue::RunSpec;
use client::run::RunState;
use client::worker::ClaimedRun;
use client::{Client, ClientError, OutputEvents};
use engine::assignment::ranking;
use engine::id::{ProjectId, ShardId};
use engine::limits::{
    ANSWER_READ_STALL_MAX, OUTPUT_KEPT_BYTES_MAX, OUTPUT_REQUEST_BYTES_MAX, SHARDS_DEFAULT,
};
use rig::{PATIENCE, machine, redis, until};
use store::clock::Stopwatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::cluster::fleet::Fleet;
use super::cluster::opened;
use super::process::{Spawned, WATCHBELL, place, resident_kib};
use super::queue_worker::TestWorker;
use super::server::Server;

/// What an endless worker prints, in the test that is in `make test` and in the long one.
const FLOOD_BYTES: u64 = 48 * 1_024 * 1_024;
const FLOOD_BYTES_LONG: u64 = 1_024 * 1_024 * 1_024;

/// What a server may need more of memory and of disk for it, however much it is. A store makes room on disk in large pieces.
const FLOOD_KIB_MAX: u64 = 48 * 1_024;
const FLOOD_DISK_MAX: u64 = 24 * 1_024 * 1_024;

/// How long others rest between two runs.
const OTHERS_PAUSE: Duration = Duration::from_millis(100);

/// How long others may wait for an answer meanwhile, on a machine that is busy.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(5);

async fn submit(client: &Client, queue: &str) -> String {
    let (queue, handler) = (Some(queue.to_owned()), Some("work".to_owned()));
    let spec = RunSpec { queue, handler, ..RunSpec::default() };
    until("a run is submitted", PATIENCE, || async { client.submit(&spec).await.ok() }).await.id
}

/// What a program prints from an offset on: each byte says where it is.
fn printed(from: u64, len: usize) -> String {
    const WORDS: &str = "twenty-three characters";
    let begin = usize::try_from(from % WORDS.len() as u64).unwrap();
    WORDS.repeat(len / WORDS.len() + 2)[begin..begin + len].to_owned()
}

fn chunk(offset: u64, text: &str) -> OutputChunk {
    OutputChunk::new(offset, OutputStream::Stdout, text.as_bytes())
}

/// A program of a worker, and what it has printed: the worker keeps it all, and sends again what is asked for.
struct Program {
    run: ClaimedRun,
    printed: String,
}

impl Program {
    fn new(run: ClaimedRun) -> Self {
        Self { run, printed: String::new() }
    }

    /// Prints this, and says so until it is heard, by whoever owns the shard then.
    async fn print(&mut self, client: &Client, text: &str) {
        self.printed.push_str(text);
        let from = AtomicUsize::new(self.printed.len() - text.len());
        until("what was printed is taken", PATIENCE, || async {
            let begin = from.load(Ordering::SeqCst);
            let request = OutputRequest {
                token: self.run.token,
                oldest: Some(0),
                chunks: vec![chunk(begin as u64, &self.printed[begin..])],
                ..OutputRequest::default()
            };
            let next = client.send_output(&self.run.id, &request).await.ok()?.next;
            let next = usize::try_from(next).unwrap();
            from.store(next, Ordering::SeqCst);
            (next == self.printed.len()).then_some(())
        })
        .await;
    }
}

/// What a follower was told so far, and what was missing.
#[derive(Default)]
struct Told {
    text: Vec<u8>,
    next: u64,
    cut: u64,
    end: Option<RunState>,
}

impl Told {
    fn hear(&mut self, event: OutputEvent) {
        match event {
            OutputEvent::Printed { chunk, .. } => {
                assert_eq!(chunk.offset, self.next, "without a gap, and nothing twice");
                let bytes = chunk.bytes().unwrap();
                self.next += bytes.len() as u64;
                self.text.extend(bytes);
            }
            OutputEvent::Cut { from, to, .. } => {
                assert_eq!(from, self.next, "what is missing is told where it is missing");
                (self.next, self.cut) = (to, self.cut + to - from);
            }
            OutputEvent::Ended { state } => self.end = state,
        }
    }

    /// Hears all until so much was told.
    async fn up_to(&mut self, events: &mut OutputEvents, next: u64) {
        let heard = async {
            while self.next < next {
                self.hear(events.next().await.unwrap().expect("the run has not ended"));
            }
        };
        tokio::time::timeout(PATIENCE, heard).await.expect("it is told in time");
    }

    /// Hears all until the run has ended.
    async fn until_the_end(&mut self, events: &mut OutputEvents) {
        let heard = async {
            while let Some(event) = events.next().await.unwrap() {
                self.hear(event);
            }
        };
        tokio::time::timeout(PATIENCE * 2, heard).await.expect("the end is told in time");
    }
}

fn text_of(output: &RunOutput) -> String {
    let bytes = output.chunks.iter().flat_map(|chunk| chunk.bytes().unwrap()).collect();
    String::from_utf8(bytes).unwrap()
}

/// Bytes of all files below a directory.
fn disk(dir: &Path) -> u64 {
    let sizes = fs::read_dir(dir).unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        // A file may go while one looks.
        Some(if path.is_dir() { disk(&path) } else { path.metadata().ok()?.len() })
    });
    sizes.sum()
}

/// Others submit, claim and report meanwhile; how often, and the longest that one of them took.
async fn others(client: Client) -> (u64, Duration) {
    let mut worker = TestWorker::new("other", "others");
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    loop {
        let watch = Stopwatch::start();
        let id = submit(&client, "others").await;
        let run = worker.claim_one(&client).await;
        assert_eq!(run.id, id);
        assert!(worker.report(&client, &run).await);
        (rounds, longest) = (rounds + 1, longest.max(watch.elapsed()));
        if client.queue("mail").await.unwrap().state.unwrap().running == 0 {
            return (rounds, longest);
        }
        // Not a wait for anything: what others leave in memory, in the log and in the past is not to count among what the
        // output takes, however long it lasts.
        tokio::time::sleep(OTHERS_PAUSE).await;
    }
}

/// A worker prints so many bytes as fast as it can, while one who follows reads nothing and another one all.
async fn flood(bytes: u64) {
    let (_dir, data) = place();
    let mut server = Server::start(&data, &[]).await;
    let client = server.client();
    let id = submit(&client, "mail").await;
    let mut worker = TestWorker { lease_ms: 3_600_000, ..TestWorker::new("endless", "mail") };
    let run = worker.claim_one(&client).await;
    assert_eq!(run.id, id);
    let path = format!("/v1/runs/{id}/output?follow=true");
    let mut sleeper = TcpStream::connect(server.address).await.unwrap();
    sleeper.write_all(server.ask("GET", &path).text().as_bytes()).await.unwrap();
    let mut first = [0; 15];
    sleeper.read_exact(&mut first).await.unwrap();
    assert!(first.ends_with(b"200 OK"), "{}", String::from_utf8_lossy(&first));
    let mut events = client.follow_output(&id).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut told = Told::default();
        while let Some(event) = events.next().await.unwrap() {
            told.hear(event);
            told.text.clear();
        }
        (told.next, told.cut)
    });
    let mut rounds = JoinSet::new();
    rounds.spawn(others(client.clone()));

    let (kib, on_disk) = (resident_kib(server.pid()), disk(&data));
    let (mut next, mut most_kib, mut slowest) = (0, 0, Duration::ZERO);
    let begun = Stopwatch::start();
    while next < bytes {
        let text = printed(next, OUTPUT_REQUEST_BYTES_MAX);
        let request = OutputRequest {
            token: run.token,
            chunks: vec![chunk(next, &text)],
            ..OutputRequest::default()
        };
        let watch = Stopwatch::start();
        let answer = client.send_output(&id, &request).await.unwrap();
        slowest = slowest.max(watch.elapsed());
        assert_eq!(answer.next, next + OUTPUT_REQUEST_BYTES_MAX as u64);
        next = answer.next;
        most_kib = most_kib.max(resident_kib(server.pid()));
    }
    let took = begun.elapsed();
    let check_kept = |output: &RunOutput| {
        let from = bytes - OUTPUT_KEPT_BYTES_MAX as u64;
        assert_eq!((output.bytes, output.chunks[0].offset), (bytes, from));
        assert!(text_of(output) == printed(from, OUTPUT_KEPT_BYTES_MAX), "the last of it is kept");
    };
    check_kept(&client.run_output(&id).await.unwrap());
    assert!(worker.report(&client, &run).await);
    let (others, longest) = rounds.join_next().await.unwrap().unwrap();
    let (told, cut) = tasks.join_next().await.unwrap().unwrap();
    let more_disk = disk(&data).saturating_sub(on_disk);
    println!(
        "{bytes} bytes in {took:?}, the slowest request {slowest:?}; memory {kib} KiB, at most {most_kib} KiB; \
         {more_disk} bytes more on disk, with {others} runs of others, the slowest of them {longest:?}; \
         one who followed was told of {told} bytes, {cut} of them missing"
    );
    assert_eq!(told, bytes, "whoever follows knows what is missing");
    assert!(most_kib < kib + FLOOD_KIB_MAX, "{kib} KiB became {most_kib} KiB");
    assert!(more_disk < FLOOD_DISK_MAX, "{more_disk} bytes more on disk");
    assert!(longest < OTHERS_WAIT_MAX, "another run took {longest:?}");

    // The one who slept reads now: what it missed is told, and so is the end; unless it slept for so long that it was cut off.
    let slept = begun.elapsed();
    let mut rest = Vec::new();
    let read = tokio::time::timeout(PATIENCE, sleeper.read_to_end(&mut rest));
    let _cut_off = read.await.expect("the answer has an end");
    let rest = String::from_utf8_lossy(&rest);
    let is_whole = rest.contains("\nevent: cut\n") && rest.contains("\nevent: ended\n");
    assert!(is_whole || slept > ANSWER_READ_STALL_MAX, "{} after {slept:?}", rest.len());
    assert!((rest.len() as u64) < bytes, "{} bytes were kept for one who slept", rest.len());

    server.kill();
    let server = Server::start(&data, &[]).await;
    check_kept(&until_ok(|| client_output(&server, &id)).await);
    server.stop().await;
}

async fn client_output(server: &Server, id: &str) -> Option<RunOutput> {
    server.client().run_output(id).await.ok()
}

/// Asks until there is an answer.
async fn until_ok<T, F: Future<Output = Option<T>>>(ask: impl FnMut() -> F) -> T {
    until("it is answered", PATIENCE, ask).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output_takes_no_more_memory_or_disk_and_holds_nobody_up() {
    let _machine = machine::works().await;
    flood(FLOOD_BYTES).await;
}

#[ignore = "long: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_of_output_takes_no_more_memory_or_disk_and_holds_nobody_up() {
    let _machine = machine::works().await;
    flood(FLOOD_BYTES_LONG).await;
}

/// Types `run output --follow`, with both streams in files.
fn follow(server: &Server, id: &str, dir: &Path) -> Spawned {
    let (out, log) = (dir.join("followed.out"), dir.join("followed.err"));
    let mut command = Command::new(WATCHBELL);
    command.args(["run", "output", id, "--follow", "--server", &server.url()]);
    command.env("WATCHBELL_KEY", &server.admin).stdin(Stdio::null());
    command.stdout(fs::File::create(out).unwrap()).stderr(fs::File::create(&log).unwrap());
    Spawned { child: command.spawn().unwrap(), log }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_is_told_all_that_is_printed_once_though_the_server_is_killed() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let mut server = Server::start(&data, &[]).await;
    let listen = server.address.to_string();
    let client = server.client();
    let id = submit(&client, "mail").await;
    let mut worker = TestWorker::new("web-1", "mail");
    let mut program = Program::new(worker.claim_one(&client).await);
    program.print(&client, "before anybody follows\n").await;

    let mut followed = follow(&server, &id, dir.path());
    let told = |words: &'static str| {
        let out = dir.path().join("followed.out");
        until("it is told", PATIENCE, move || {
            let said = fs::read_to_string(&out).unwrap_or_default();
            async move { said.contains(words).then_some(()) }
        })
    };
    told("before anybody follows\n").await;
    program.print(&client, "one\n").await;
    told("one\n").await;
    server.kill();
    server = Server::start_at(&data, &listen, &[]).await;
    // The successor has nothing, asks for all of it, and tells only what is new.
    program.print(&client, "two\n").await;
    told("two\n").await;
    assert!(worker.report(&client, &program.run).await);
    let status = until("it ends", PATIENCE, || {
        let status = followed.child.try_wait().unwrap();
        async move { status }
    });
    let status = status.await;
    let said = fs::read_to_string(&followed.log).unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.ends_with("the run has ended: succeeded\n"), "{said}");
    assert!(!said.contains("missing"), "{said}");
    let out = fs::read_to_string(dir.path().join("followed.out")).unwrap();
    assert_eq!(out, program.printed, "{said}");
    server.stop().await;
}

/// A queue whose shard one of these servers has when all of them run.
fn queue_of(owner: &str, servers: &[&str]) -> String {
    let mut names = (0..).map(|number| format!("queue-{number}"));
    let is_there = |name: &String| {
        let shard = ShardId::of_queue(ProjectId::DEFAULT, name, SHARDS_DEFAULT);
        ranking(shard, servers)[0] == owner
    };
    names.find(is_there).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_comes_through_one_server_to_its_owner_and_from_there_through_another() {
    let _machine = machine::waits().await;
    let redis = tokio::task::block_in_place(|| redis::Setup::durable().start());
    let direct = opened(&redis.url()).await;
    let names = ["a", "b", "c"];
    let mut fleet = Fleet::on(&names, &redis.url(), &direct).await;
    fleet.settled().await;
    let queue = queue_of("b", &names);
    let (a, c) = (fleet.patient_client("a"), fleet.patient_client("c"));
    let id = submit(&a, &queue).await;
    let mut worker = TestWorker::new("web-1", &queue);
    let mut program = Program::new(worker.claim_one(&a).await);
    let (mut events, mut told) = (c.follow_output(&id).await.unwrap(), Told::default());
    for line in 0..5 {
        program.print(&a, &format!("line {line}, to b through a\n")).await;
        told.up_to(&mut events, program.printed.len() as u64).await;
        assert_eq!(String::from_utf8_lossy(&told.text), program.printed);
    }
    for client in [&a, &c] {
        assert_eq!(text_of(&client.run_output(&id).await.unwrap()), program.printed);
    }

    // The shard moves, in order and then by a death; the worker and whoever follows stay where they are.
    fleet.drain("b").await;
    fleet.settled_among(&["a", "c"]).await;
    program.print(&a, "after a hand-over\n").await;
    told.up_to(&mut events, program.printed.len() as u64).await;
    fleet.undrain("b").await;
    fleet.settled().await;
    program.print(&a, "it is back\n").await;
    told.up_to(&mut events, program.printed.len() as u64).await;
    fleet.kill("b");
    program.print(&a, "after a death\n").await;
    told.up_to(&mut events, program.printed.len() as u64).await;
    fleet.bring_back("b").await;

    assert!(worker.report(&a, &program.run).await);
    told.until_the_end(&mut events).await;
    assert_eq!((told.cut, told.end), (0, Some(RunState::Succeeded)));
    assert_eq!(String::from_utf8_lossy(&told.text), program.printed);
    for name in names {
        let client = fleet.patient_client(name);
        let kept =
            until("it is shown", PATIENCE, || async { client.run_output(&id).await.ok() }).await;
        assert_eq!(text_of(&kept), program.printed, "{name}");
    }
    let late = Program { printed: String::new(), ..program };
    let request = OutputRequest {
        token: late.run.token,
        chunks: vec![chunk(0, "late")],
        ..OutputRequest::default()
    };
    let refused = a.send_output(&id, &request).await;
    assert!(matches!(refused, Err(ClientError::Conflict(_))), "{refused:?}");
}

//! `make bench`: schedules beside other crates, the dispatcher beside a bare loop, and the `file` store beside
//! bare engines, each in one run. `make bench-triggers`: servers with triggers, see [`triggers`].
//!
//! Every rival gets the same group commit that the `file` store has (one thread that merges whatever
//! waits into one transaction with one sync), because without it none of them comes near.

mod engine;
mod rival;
mod schedule;
mod triggers;
mod webhook;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rival::{Batch, Engine, Grouped};
use store::file::{FileStore, Sizes};
use store::speed::Latencies;
use store::{Commit, Key, Range, Store};
use tokio::task::JoinSet;

const RECORDS_PER_COMMIT: usize = 4;
const VALUE_BYTES: usize = 200;
const ENTRIES: usize = 1_000_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|word| word == "triggers") {
        return triggers::main();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["receive"] => webhook::receive(),
        ["fill", dir] => runtime.block_on(fill_and_be_killed(Path::new(dir))),
        [] => {
            schedules();
            webhook::webhooks();
            runtime.block_on(commits(Duration::from_secs(10)));
            runtime.block_on(scans());
            runtime.block_on(opens());
            runtime.block_on(longest(Duration::from_secs(120)));
        }
        ["engines"] => runtime.block_on(engine::commits(None)),
        ["engines", only @ ("etcd" | "redis" | "postgres")] => {
            runtime.block_on(engine::commits(Some(only)));
        }
        ["fires", binary, options @ ..] => engine::fires(binary, options),
        ["elections"] => runtime.block_on(engine::elections()),
        ["commits"] => runtime.block_on(commits(Duration::from_secs(10))),
        ["schedules"] => schedules(),
        ["webhooks"] => webhook::webhooks(),
        ["scans"] => runtime.block_on(scans()),
        ["opens"] => runtime.block_on(opens()),
        ["longest", seconds] => {
            runtime.block_on(longest(Duration::from_secs(seconds.parse().unwrap())));
        }
        _ => eprintln!(
            "usage: watchbell-bench [schedules | webhooks | commits | engines [etcd | redis | postgres] | elections | fires WATCHBELL [OPTION…] | triggers … | scans | opens | longest SECONDS]"
        ),
    }
    ExitCode::SUCCESS
}

fn schedules() {
    schedule::next_slots();
    schedule::parses();
    schedule::alarms(10_000_000);
}

fn open(dir: &Path) -> Store {
    Store::new(FileStore::open_or_create(dir, Sizes::default()).unwrap())
}

fn key(number: usize) -> String {
    format!("shard/{:02}/trigger/{number:08}", number % 32)
}

/// Text that does not compress to nothing, as ours never will; made once, so that making it is not
/// measured.
fn value(number: usize) -> Vec<u8> {
    static VALUES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..4_096).map(make_value).collect());
    VALUES[number % VALUES.len()].clone()
}

fn make_value(number: usize) -> Vec<u8> {
    let mut random = number as u64 + 1;
    let mut text = String::with_capacity(VALUE_BYTES + 16);
    while text.len() < VALUE_BYTES {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{random:016x}"));
    }
    text.truncate(VALUE_BYTES);
    text.into_bytes()
}

fn batch(writer: usize, round: usize) -> Batch {
    (0..RECORDS_PER_COMMIT)
        .map(|index| {
            let text = format!("shard/{writer:02}/run/{:010}/{index}", round % 100_000);
            (text.into_bytes(), value(round))
        })
        .collect()
}

fn to_commit(batch: Batch) -> Commit {
    batch.into_iter().fold(Commit::new(), |commit, (key, value)| {
        commit.put(Key::new(String::from_utf8(key).unwrap()).unwrap(), value)
    })
}

fn print(name: &str, count: usize, elapsed: Duration, samples: Vec<Duration>) {
    let found = Latencies::of(samples);
    let ms = |latency: Duration| latency.as_secs_f64() * 1_000.0;
    println!(
        "  {name:<22} {:>9.0}/s   p50 {:>7.2}  p99 {:>7.2}  p99.9 {:>7.2}  max {:>7.2} ms",
        count as f64 / elapsed.as_secs_f64(),
        ms(found.p50),
        ms(found.p99),
        ms(found.p999),
        ms(found.max),
    );
}

/// Durable commits per second, 1 and 64 writers.
async fn commits(duration: Duration) {
    for writers in [1, 64] {
        println!(
            "commits of {RECORDS_PER_COMMIT} records of {VALUE_BYTES} bytes, {writers} writers"
        );
        let dir = tempfile::tempdir().unwrap();
        let ours = open(dir.path());
        drive("file", writers, duration, move |batch| {
            let store = ours.clone();
            async move { store.commit(to_commit(batch)).await.map(drop).unwrap() }
        })
        .await;
        for engine in Engine::ALL {
            let dir = tempfile::tempdir().unwrap();
            let rival = std::sync::Arc::new(Grouped::open(engine, dir.path()));
            drive(engine.name(), writers, duration, move |batch| {
                let rival = rival.clone();
                async move { rival.commit(batch).await }
            })
            .await;
        }
    }
}

async fn drive<F: Future<Output = ()> + Send>(
    name: &str,
    writers: usize,
    duration: Duration,
    commit: impl Fn(Batch) -> F + Clone + Send + 'static,
) {
    let clock = Instant::now();
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let commit = commit.clone();
        tasks.spawn(async move {
            let mut samples = Vec::new();
            while clock.elapsed() < duration {
                let batch = batch(writer, samples.len());
                let each = Instant::now();
                commit(batch).await;
                samples.push(each.elapsed());
            }
            samples
        });
    }
    let samples = tasks.join_all().await.concat();
    print(name, samples.len(), clock.elapsed(), samples);
}

async fn fill(store: &Store, entries: usize) {
    for first in (0..entries).step_by(500) {
        let commit = (first..(first + 500).min(entries)).fold(Commit::new(), |commit, number| {
            commit.put(Key::new(key(number)).unwrap(), value(number))
        });
        store.commit(commit).await.unwrap();
    }
}

/// Reading a million small entries in order, beside bare fjall.
async fn scans() {
    println!("scan of {ENTRIES} entries");
    let dir = tempfile::tempdir().unwrap();
    let ours = open(dir.path());
    fill(&ours, ENTRIES).await;
    drop(ours);
    let ours = open(dir.path());
    let rival_dir = tempfile::tempdir().unwrap();
    let rival = rival::Fjall::open(rival_dir.path());
    for first in (0..ENTRIES).step_by(500) {
        rival.write((first..first + 500).map(|n| (key(n).into_bytes(), value(n))));
    }
    drop(rival);
    let rival = rival::Fjall::open(rival_dir.path());
    // Both tidy up after a fill, and would measure that instead.
    tokio::time::sleep(Duration::from_secs(10)).await;
    for _ in 0..5 {
        let clock = Instant::now();
        let mut count = 0;
        let mut rest = Some(Range::all());
        while let Some(range) = rest {
            let page = ours.scan(range, 1_000).await.unwrap();
            count += page.entries.len();
            rest = page.next;
        }
        assert_eq!(count, ENTRIES);
        let ours = clock.elapsed();
        let clock = Instant::now();
        assert_eq!(rival.count(), ENTRIES);
        let bare = clock.elapsed();
        println!(
            "  file {:.0}/s   bare fjall {:.0}/s   ratio {:.2}",
            ENTRIES as f64 / ours.as_secs_f64(),
            ENTRIES as f64 / bare.as_secs_f64(),
            bare.as_secs_f64() / ours.as_secs_f64()
        );
    }
}

/// Opening with a million entries, after a clean stop and after kill -9.
async fn opens() {
    println!("open with {ENTRIES} entries");
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, ENTRIES).await;
    drop(store);
    for _ in 0..3 {
        let clock = Instant::now();
        let store = open(dir.path());
        println!("  after a clean stop   {:?}", clock.elapsed());
        drop(store);
    }
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("fill")
            .arg(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.take().unwrap()),
            &mut line,
        )
        .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let clock = Instant::now();
        let store = open(dir.path());
        println!("  after kill -9        {:?}", clock.elapsed());
        drop(store);
    }
}

async fn fill_and_be_killed(dir: &Path) {
    let store = open(dir);
    fill(&store, ENTRIES).await;
    println!("filled");
    std::future::pending().await
}

/// The longest commit at 20,000 records per second over a million keys.
async fn longest(duration: Duration) {
    const RECORDS: usize = 100;
    const PER_SECOND: u32 = 200;
    println!(
        "{} records/s in commits of {RECORDS}, over {ENTRIES} keys, for {duration:?}",
        PER_SECOND as usize * RECORDS
    );
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, ENTRIES).await;
    let clock = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut tasks = JoinSet::new();
    let mut samples = Vec::new();
    let mut random = 1_u64;
    while clock.elapsed() < duration {
        tick.tick().await;
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < RECORDS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            chosen.insert((random >> 33) as usize % ENTRIES);
        }
        let commit = chosen.into_iter().fold(Commit::new(), |commit, number| {
            commit.put(Key::new(key(number)).unwrap(), value(number))
        });
        let store = store.clone();
        tasks.spawn(async move {
            let each = Instant::now();
            store.commit(commit).await.unwrap();
            each.elapsed()
        });
        while let Some(done) = tasks.try_join_next() {
            samples.push(done.unwrap());
        }
    }
    samples.extend(tasks.join_all().await);
    print("file", samples.len(), clock.elapsed(), samples);
}

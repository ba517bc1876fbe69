//! Stores on real engines, each beside a bare loop of its client in the same run: one compare-and-set of one record of
//! 200 bytes per commit, every writer on a key of its own. Take-overs on them, and a whole server.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::lease::{Token, Ttl};
use rig::etcd::Etcd;
use rig::postgres::Postgres;
use rig::redis::Redis;
use rustix::time::{ClockId, clock_gettime};
use store::claim::Claim;
use store::election::{Candidacy, Mode};
use store::machine::{Machine, System};
use store::session::{NodeId, NodeInfo, Session};
use store::speed::Latencies;
use store::{Commit, Condition, Key, Store, StoreUrl, Version, open_or_create};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::print;

const ROUNDS: usize = 3;
const LENGTH: Duration = Duration::from_secs(4);
const VALUE: [u8; 200] = [b'x'; 200];

async fn open(url: &str) -> Store {
    open_or_create(&StoreUrl::parse(url).unwrap()).await.unwrap()
}

/// What so many writers did in a while.
struct Done {
    rate: f64,
    p99: Duration,
    /// Processor time of each, of this process; where it can be asked for, that of the engine as well.
    each_us: f64,
}

/// Lets so many writers do one thing again and again.
async fn drive<S: Send + 'static, F: Future<Output = S> + Send>(
    name: &str,
    writers: usize,
    begin: impl Fn(usize) -> S,
    step: impl Fn(S) -> F + Clone + Send + 'static,
) -> Done {
    let (clock, before) = (Instant::now(), processor());
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let (mut state, step) = (begin(writer), step.clone());
        tasks.spawn(async move {
            let mut samples = Vec::new();
            while clock.elapsed() < LENGTH {
                let each = Instant::now();
                state = step(state).await;
                samples.push(each.elapsed());
            }
            samples
        });
    }
    let samples = tasks.join_all().await.concat();
    let elapsed = clock.elapsed();
    let spent = processor() - before;
    let done = Done {
        each_us: spent.as_secs_f64() * 1e6 / samples.len() as f64,
        rate: samples.len() as f64 / elapsed.as_secs_f64(),
        p99: Latencies::of(samples.clone()).p99,
    };
    print(name, samples.len(), elapsed, samples);
    done
}

fn processor() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("it counts up")
}

/// Ours: a commit with one condition and one write.
async fn ours(store: &Store, writers: usize) -> Done {
    let store = store.clone();
    let begin = |writer| (Key::new(format!("bench/{writers}/{writer}")).unwrap(), None::<Version>);
    drive("watchbell", writers, begin, move |(key, version)| {
        let store = store.clone();
        async move {
            let version = match version {
                Some(version) => version,
                None => store.commit(Commit::new().put(key.clone(), &VALUE[..])).await.unwrap(),
            };
            let commit = Commit::new().when(Condition::At(key.clone(), version));
            let version = store.commit(commit.put(key.clone(), &VALUE[..])).await.unwrap();
            (key, Some(version))
        }
    })
    .await
}

fn compare(rounds: &[(Done, Done)]) {
    let mut ratios: Vec<f64> = rounds.iter().map(|(ours, bare)| ours.rate / bare.rate).collect();
    ratios.sort_by(f64::total_cmp);
    let p99: Vec<_> = rounds.iter().map(|(ours, bare)| (ours.p99, bare.p99)).collect();
    let each: Vec<_> = rounds.iter().map(|(ours, bare)| (ours.each_us, bare.each_us)).collect();
    println!("  ratio to the bare loop {ratios:.2?}; p99 (ours, bare) {p99:.1?}");
    println!("  µs of processor time per commit (ours, bare) {each:.1?}\n");
}

/// Commits per second with 64 writers and with 1, on each engine, or on the one of this name.
pub async fn commits(only: Option<&str>) {
    let is_asked = |name: &str| only.is_none_or(|only| only == name);
    for writers in [64, 1] {
        if is_asked("etcd") {
            etcd_commits(writers, 1).await;
            etcd_commits(writers, 3).await;
        }
        if is_asked("redis") {
            for fsync in ["always", "everysec"] {
                redis_commits(writers, fsync).await;
            }
        }
        if is_asked("postgres") {
            postgres_commits(writers).await;
        }
    }
}

async fn etcd_commits(writers: usize, members: usize) {
    println!("etcd, {members} members, {writers} writers");
    let etcd = if members == 1 { Etcd::one() } else { Etcd::three() };
    let store = open(&format!("etcd://{}/bench", etcd.hosts())).await;
    let hosts: Vec<String> = etcd.hosts().split(',').map(str::to_owned).collect();
    let client = etcd_client::Client::connect(hosts, None).await.unwrap();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let ours = ours(&store, writers).await;
        let client = client.kv_client();
        let bare = drive(
            "bare",
            writers,
            |writer| (format!("bare/{writers}/{writer}"), None::<i64>),
            move |(key, revision)| {
                use etcd_client::{Compare, CompareOp, Txn, TxnOp};
                let mut client = client.clone();
                async move {
                    let when = revision.map(|revision| {
                        Compare::mod_revision(key.as_str(), CompareOp::Equal, revision)
                    });
                    let txn = Txn::new()
                        .when(when.into_iter().collect::<Vec<_>>())
                        .and_then([TxnOp::put(key.as_str(), VALUE, None)]);
                    let answer = client.txn(txn).await.unwrap();
                    assert!(answer.succeeded());
                    let revision = answer.header().unwrap().revision();
                    (key, Some(revision))
                }
            },
        )
        .await;
        rounds.push((ours, bare));
    }
    compare(&rounds);
}

/// Compare, set, and count a version up.
const REDIS: &str = "local found = redis.call('HGET', KEYS[1], 'v')
if (found or '') ~= ARGV[1] then return redis.error_reply('conflict') end
local version = tostring(redis.call('INCR', KEYS[2]))
redis.call('HSET', KEYS[1], 'v', version, 'd', ARGV[2])
return version";

async fn redis_commits(writers: usize, fsync: &str) {
    println!("Redis, appendfsync {fsync}, {writers} writers");
    let setup = rig::redis::Setup::durable().set("appendfsync", fsync);
    let redis = setup.start();
    let store = open(&redis.url()).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let script = Arc::new(redis::Script::new(REDIS));
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let ours = with_server(&redis, ours(&store, writers)).await;
        let (connection, script) = (connection.clone(), Arc::clone(&script));
        let begin = |writer| (format!("{{bare}}/{round}/{writers}/{writer}"), String::new());
        let bare = with_server(
            &redis,
            drive("bare", writers, begin, move |(key, version)| {
                let (mut connection, script) = (connection.clone(), Arc::clone(&script));
                async move {
                    let mut call = script.key(key.as_str());
                    call.key("{bare}/version").arg(version).arg(&VALUE[..]);
                    let version: String = call.invoke_async(&mut connection).await.unwrap();
                    (key, version)
                }
            }),
        )
        .await;
        rounds.push((ours, bare));
    }
    compare(&rounds);
}

/// Counts the server's processor time too: what one side saves the other may spend.
async fn with_server(redis: &Redis, driving: impl Future<Output = Done>) -> Done {
    let seconds = || -> f64 {
        let info = redis.ask(&["INFO", "cpu"]);
        let of = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok()).unwrap()
        };
        of("used_cpu_user:") + of("used_cpu_sys:")
    };
    let (before, clock) = (seconds(), Instant::now());
    let done = driving.await;
    let commits = done.rate * clock.elapsed().as_secs_f64();
    Done { each_us: done.each_us + (seconds() - before) * 1e6 / commits, ..done }
}

async fn postgres_commits(writers: usize) {
    println!("Postgres, {writers} writers");
    let postgres = Postgres::start(&[]);
    let store = open(&postgres.url()).await;
    let config: tokio_postgres::Config = postgres.url().split('?').next().unwrap().parse().unwrap();
    let manager = deadpool_postgres::Manager::new(config, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(32).build().unwrap();
    pool.get().await.unwrap().batch_execute("CREATE TABLE bare (key text PRIMARY KEY, value bytea NOT NULL, version bigint NOT NULL)").await.unwrap();
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let ours = ours(&store, writers).await;
        let pool = pool.clone();
        let bare = drive("bare", writers, |writer| (format!("{round}/{writers}/{writer}"), 0_i64), move |(key, version)| {
            let pool = pool.clone();
            async move {
                let client = pool.get().await.unwrap();
                let text = "INSERT INTO bare VALUES ($1, $2, $3::bigint + 1) ON CONFLICT (key) DO UPDATE SET value = $2, version = bare.version + 1 WHERE bare.version = $3";
                let statement = client.prepare_cached(text).await.unwrap();
                let done = client.execute(&statement, &[&key, &&VALUE[..], &version]).await.unwrap();
                assert_eq!(done, 1);
                (key, version + 1)
            }
        })
        .await;
        rounds.push((ours, bare));
    }
    compare(&rounds);
}

/// A candidate; dropped, it is as dead as by kill -9.
struct Candidate {
    session: Session,
    _tasks: JoinSet<()>,
}

impl Candidate {
    async fn start(
        store: &Store,
        number: usize,
        ttl: Duration,
        seen: &watch::Sender<(Token, usize)>,
    ) -> Self {
        let id = NodeId::new(format!("candidate-{number}")).unwrap();
        let ttl = Ttl::new(ttl).unwrap();
        let (roles, candidacies) = (Vec::new(), Vec::new());
        let node = NodeInfo { id, ttl, url: None, roles, candidacies };
        let machine: Arc<dyn Machine> = Arc::new(System);
        let (session, mut keeper) = Session::open(store, &machine, &node).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            keeper.run(|| true).await;
        });
        let claim = Claim::new("election/default/bench").unwrap();
        let mut election = Candidacy::new(&session, claim, Mode::Automatic);
        let seen = seen.clone();
        tasks.spawn(async move {
            while let Ok(holding) = election.campaign().await {
                while holding.right.permit().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                seen.send_replace((holding.right.token(), number));
                holding.right.over().await;
            }
        });
        Self { session, _tasks: tasks }
    }
}

/// How long it takes from the death, or the leaving, of a holder to the right of its successor.
pub async fn elections() {
    let etcd = Etcd::three();
    let redis = rig::redis::Setup::durable().start();
    let postgres = Postgres::start(&[]);
    let engines = [
        ("etcd, three members", format!("etcd://{}/bench", etcd.hosts())),
        ("Redis", redis.url()),
        ("Postgres", postgres.url()),
    ];
    for (name, url) in engines {
        for ttl in [Duration::from_secs(1), Duration::from_secs(3)] {
            for is_killed in [true, false] {
                let mut took = take_overs(&url, ttl, is_killed, 12).await;
                took.sort();
                let ms = |length: Duration| length.as_millis();
                println!(
                    "{name}, T = {ttl:?}, {}: least {} ms, p50 {} ms, p90 {} ms, most {} ms",
                    if is_killed { "kill -9" } else { "leaves in order" },
                    ms(took[0]),
                    ms(took[took.len() / 2]),
                    ms(took[took.len() * 9 / 10]),
                    ms(took[took.len() - 1]),
                );
            }
        }
    }
}

async fn take_overs(url: &str, ttl: Duration, is_killed: bool, rounds: usize) -> Vec<Duration> {
    let seen = watch::Sender::new((Token(0), 0));
    let mut candidates = std::collections::BTreeMap::new();
    let mut born = 0;
    let mut took = Vec::new();
    let mut latest = seen.subscribe();
    for round in 0..=rounds {
        while candidates.len() < 3 {
            let store = open(url).await;
            candidates.insert(born, Candidate::start(&store, born, ttl, &seen).await);
            born += 1;
        }
        if round == 0 {
            latest.wait_for(|(token, _)| *token > Token(0)).await.unwrap();
            continue;
        }
        // Somewhere between two renewals.
        tokio::time::sleep(Duration::from_millis((round as u64 * 37) % 200)).await;
        let (token, holder) = *latest.borrow();
        let leaving = candidates.remove(&holder).unwrap();
        let clock = Instant::now();
        if is_killed {
            drop(leaving);
        } else {
            leaving.session.close().await;
        }
        latest.wait_for(|(next, _)| *next > token).await.unwrap();
        took.push(clock.elapsed());
    }
    for candidate in candidates.into_values() {
        candidate.session.close().await;
    }
    took
}

/// `-- triggers fires` of this binary on each engine, and on a file beside them.
pub fn fires(binary: &str, options: &[&str]) {
    let etcd = Etcd::three();
    let redis = rig::redis::Setup::durable().start();
    let postgres = Postgres::start(&[]);
    let engines = [
        ("file", None),
        ("etcd, three members", Some(format!("etcd://{}/bench", etcd.hosts()))),
        ("Redis, appendfsync always", Some(redis.url())),
        ("Postgres", Some(postgres.url())),
    ];
    for (name, url) in engines {
        println!("{name}");
        let mut bench = Command::new(std::env::current_exe().unwrap());
        bench.args(["triggers", "fires", "--watchbell", binary]).args(options);
        if let Some(url) = url {
            bench.args(["--store", &url]);
        }
        assert!(bench.status().unwrap().success(), "{name}");
    }
}

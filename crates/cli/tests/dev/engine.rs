//! A server on a real engine that is killed, stalled and cut off, under load: what was acknowledged is there, every
//! slot is accounted for, and the same process goes on by itself.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::spec::{CatchUp, TriggerSpec};
use client::trigger::PauseRequest;
use client::{Client, ClientError, Timestamp};
use rig::etcd::Etcd;
use rig::postgres::Postgres;
use rig::{PATIENCE, Receiver, Reply, Road, Way, machine, redis, until};
use store::clock::Stopwatch;
use store::machine::{Machine, System};
use tempfile::TempDir;

use super::process::place;
use super::server::Server;

/// Triggers that ring every second.
const BELLS: usize = 40;

/// How long after the store answers again all must be as before: T and two seconds.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// Longer than T, so that the session has lapsed.
const LONG: Duration = Duration::from_secs(4);

/// A server under load.
struct Load {
    _dir: TempDir,
    server: Server,
    client: Client,
    receiver: Receiver,
    /// Names of triggers that the server said it has.
    acknowledged: BTreeSet<String>,
    begun: Timestamp,
}

impl Load {
    async fn start(store: &str) -> Self {
        let receiver = Receiver::start(1, |_| Reply::FINE);
        let (dir, data) = place();
        let server = Server::start_on(store, &data).await;
        let client = server.client();
        let mut load = Self {
            _dir: dir,
            server,
            client,
            receiver,
            acknowledged: BTreeSet::new(),
            begun: now(),
        };
        for number in 0..BELLS {
            load.create(&format!("bell-{number}")).await;
        }
        load.rings_after(now()).await;
        load
    }

    async fn create(&mut self, name: &str) {
        self.client.create_trigger(&self.spec(name)).await.unwrap();
        self.acknowledged.insert(name.to_owned());
    }

    /// Every second; what was missed is made up for, however much it is.
    fn spec(&self, name: &str) -> TriggerSpec {
        let mut spec =
            TriggerSpec::webhook(name, self.receiver.url(0, &format!("/{name}"))).every("1s");
        spec.catch_up = Some(CatchUp::All);
        spec.catch_up_cap = Some(1_000);
        spec
    }

    /// Does something bad while people go on creating triggers, and then sees to it that all is as before, soon after
    /// `fault` has returned, which is when the store answers again. The people are not waited for meanwhile: their last
    /// request may take as long as they are patient.
    async fn survive(&mut self, what: &str, fault: impl AsyncFnOnce()) {
        let over = AtomicBool::new(false);
        let writing = async {
            let mut made = Vec::new();
            for number in 0.. {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let name = format!("{what}-{number}");
                let spec = self.spec(&name);
                let asked = self.client.create_trigger(&spec);
                // Unanswered, or refused for now, it may be there or not.
                if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(1), asked).await {
                    made.push(name);
                }
                // Not a wait for anything: how busy people are.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            made
        };
        let recovering = async {
            fault().await;
            let back = Stopwatch::start();
            over.store(true, Ordering::SeqCst);
            self.rings_after(now()).await;
            let rung = back.elapsed();
            create_in_the_end(&self.client, &self.spec(&format!("{what}-after"))).await;
            (rung, back.elapsed())
        };
        let (made, (rung, written)) = tokio::join!(writing, recovering);
        println!("{what}: {} triggers acknowledged meanwhile", made.len());
        self.acknowledged.extend(made);
        println!("{what}: rings again after {rung:?}, takes writes after {written:?}");
        assert!(self.server.is_running(), "{}", self.server.told());
        assert!(rung < BACK_WITHIN && written < BACK_WITHIN, "{what}:\n{}", self.server.told());
    }

    /// Waits until a slot after this instant has been heard.
    async fn rings_after(&self, after: Timestamp) {
        until("it rings", PATIENCE, || async {
            let heard = self.receiver.heard();
            let slot = |slot: &str| slot.parse::<Timestamp>().unwrap() > after;
            heard.iter().any(|call| slot(&call.slot)).then_some(())
        })
        .await;
    }

    /// Everything that was acknowledged is there, every slot is accounted for, and nothing was heard twice but under
    /// the same id.
    async fn finish(self) {
        let there: BTreeSet<String> = names(&self.client).await;
        let lost: Vec<_> = self.acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        for name in &there {
            self.client.pause(name, &PauseRequest::default()).await.unwrap();
        }
        let mut told = 0;
        for name in &there {
            let account = until("it rests", PATIENCE, || async {
                let account = self.client.account(name, Some(self.begun), None).await.unwrap();
                (account.totals.pending + account.totals.under_way == 0).then_some(account)
            })
            .await;
            let totals = &account.totals;
            assert_eq!((totals.missing, totals.failed, totals.unread), (0, 0, 0), "{account:?}");
            let mut heard = self.receiver.slots(&format!("/{name}"));
            heard.sort();
            heard.dedup();
            assert_eq!(heard.len() as u64, totals.succeeded, "{name}: {account:?}");
            told += totals.succeeded;
        }
        let heard = self.receiver.heard();
        let runs: BTreeSet<_> = heard.iter().map(|call| &call.run).collect();
        println!("{told} slots succeeded, {} calls heard under {} ids", heard.len(), runs.len());
        assert_eq!(runs.len() as u64, told, "one id for each slot");
        self.server.stop().await;
    }
}

/// Creates a trigger, however often that has to be tried. One that is answered "not done yet, look later" may be done
/// afterwards, and then its name is taken when it is tried again.
async fn create_in_the_end(client: &Client, spec: &TriggerSpec) {
    until("a trigger can be created", PATIENCE, || async {
        match client.create_trigger(spec).await {
            Ok(_) | Err(ClientError::Conflict(_)) => Some(()),
            Err(_) => None,
        }
    })
    .await;
}

async fn names(client: &Client) -> BTreeSet<String> {
    super::crash::list(client).await.into_keys().collect()
}

fn now() -> Timestamp {
    Timestamp::from_microsecond(System.wall_us().cast_signed()).unwrap()
}

/// Not a wait for anything: how long something is away.
async fn pass(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Engines are started and stopped by waiting for them.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// The network between a server and its store loses connections, then everything one way, then the other.
async fn survive_the_road(load: &mut Load, road: &Road) {
    load.survive("dropped", async || {
        for _ in 0..20 {
            road.cut();
            pass(Duration::from_millis(100)).await;
        }
    })
    .await;
    load.survive("mute", async || {
        road.there(Way::Closed);
        pass(LONG).await;
        road.there(Way::Open);
    })
    .await;
    load.survive("deaf", async || {
        road.back(Way::Closed);
        pass(LONG).await;
        road.back(Way::Open);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_survives_what_befalls_its_redis() {
    let _machine = machine::works().await;
    let mut redis = blocking(|| redis::Setup::durable().start());
    let road = Road::to(redis.address()).await;
    let mut load = Load::start(&redis.url_at(road.address())).await;
    load.survive("stalled", async || {
        redis.pause();
        pass(LONG).await;
        redis.wake();
    })
    .await;
    load.survive("killed", async || {
        redis.kill();
        pass(Duration::from_secs(1)).await;
        blocking(|| redis.restart());
    })
    .await;
    survive_the_road(&mut load, &road).await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_while_the_store_is_away_goes_by_catch_up() {
    let _machine = machine::waits().await;
    let redis = blocking(|| redis::Setup::durable().start());
    let load = Load::start(&redis.url()).await;
    let mut spec = load.spec("skips");
    (spec.catch_up, spec.catch_up_cap) = (Some(CatchUp::Skip), None);
    load.client.create_trigger(&spec).await.unwrap();
    let begun = now();
    redis.pause();
    pass(LONG * 2).await;
    redis.wake();
    load.rings_after(now()).await;
    load.client.pause("skips", &PauseRequest::default()).await.unwrap();
    let account = until("it rests", PATIENCE, || async {
        let account = load.client.account("skips", Some(begun), None).await.unwrap();
        (account.totals.pending + account.totals.under_way == 0).then_some(account)
    })
    .await;
    // Those of the first T were decided, and a second is no delay; of eight that leaves four, give or take one.
    let totals = &account.totals;
    assert!(totals.skipped >= 3, "{account:?}");
    assert_eq!((totals.missing, totals.failed, totals.unread), (0, 0, 0), "{account:?}");
    load.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_goes_on_by_itself_when_its_redis_has_forgotten_everything() {
    let _machine = machine::waits().await;
    let mut redis =
        blocking(|| redis::Setup::new().set("appendonly", "no").set("save", "").start());
    let mut load = Load::start(&redis.url()).await;
    redis.kill();
    blocking(|| redis.restart());
    let back = Stopwatch::start();
    create_in_the_end(&load.client, &load.spec("anew")).await;
    let begun = now();
    until("it rings", PATIENCE, || async {
        let slots = load.receiver.slots("/anew");
        slots.iter().any(|slot| slot.parse::<Timestamp>().unwrap() > begun).then_some(())
    })
    .await;
    println!("rings again {:?} after Redis was back, empty", back.elapsed());
    assert!(load.server.is_running());
    assert_eq!(names(&load.client).await, BTreeSet::from(["anew".to_owned()]));
    load.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_survives_what_befalls_its_etcd() {
    let _machine = machine::works().await;
    let mut etcd = blocking(Etcd::three);
    let mut load = Load::start(&format!("etcd://{}/watchbell", etcd.hosts())).await;
    for round in ["first leader", "second leader"] {
        let what = round.replace(' ', "-");
        load.survive(&what, async || {
            let leader = blocking(|| etcd.leader());
            etcd.kill(leader);
            pass(Duration::from_secs(2)).await;
            blocking(|| etcd.restart(leader));
        })
        .await;
    }
    load.survive("all", async || {
        for member in 0..etcd.len() {
            etcd.kill(member);
        }
        pass(LONG).await;
        blocking(|| etcd.restart_all());
    })
    .await;
    load.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_survives_what_befalls_its_postgres() {
    let _machine = machine::works().await;
    let mut postgres = blocking(|| Postgres::start(&[]));
    let road = Road::to(postgres.address()).await;
    let mut load = Load::start(&postgres.url_at(road.address())).await;
    load.survive("stalled", async || {
        postgres.pause();
        pass(LONG).await;
        postgres.wake();
    })
    .await;
    load.survive("killed", async || {
        postgres.kill();
        pass(Duration::from_secs(1)).await;
        blocking(|| postgres.bring_up());
    })
    .await;
    survive_the_road(&mut load, &road).await;
    load.finish().await;
}

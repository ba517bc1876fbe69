//! `kill -9`, again and again, under load: what was promised still holds.
//!
//! Hundreds of triggers of every kind ring each second, people create, pause, resume, change, cancel and
//! delete, and the process is killed at random moments and started again on the same directory. What the
//! server acknowledged is looked at after each start. At the end the server's own account, the store's records
//! read without it, and what the receiver heard are held against each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::run::RunState;
use client::spec::{
    Backoff, CatchUp, Delivery, Overlap, RetrySpec, ScheduleSpec, TriggerSpec, WebhookSpec,
};
use client::trigger::{PauseRequest, Trigger};
use client::{Client, ClientError, RunFilter, TriggerFilter};
use rig::{Heard, PATIENCE, Random, Receiver, Reply, hash, machine, until};
use sim::slot_records::SlotRecords;
use store::clock::Stopwatch;
use store::machine::{Machine, System};
use tokio::task::JoinSet;

use super::process::{Dev, place};
use super::verdict::{accounts, check};

/// Triggers that ring once a second.
const TRIGGERS: usize = 500;

/// People who change things at the same time, each with triggers of their own.
const ACTORS: usize = 4;

const DOORS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_promised_survives_fifteen_crashes_under_load() {
    let _machine = machine::works().await;
    crash(0x0b5e_55ed, 15).await;
}

#[ignore = "ten minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_promised_survives_two_hundred_crashes_under_load() {
    let _machine = machine::works().await;
    crash(System.random(), 200).await;
}

/// What a trigger has to be by what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Fires,
    Paused,
    Cancelled,
    Gone,
    /// The process died before it answered.
    Unsure,
}

/// A person, and the triggers that nobody else touches.
struct Actor {
    number: usize,
    random: Random,
    expected: BTreeMap<String, Expected>,
    /// When the deletion of a trigger was asked for.
    deleted: BTreeMap<String, u64>,
    /// The ids of all triggers that it ever made.
    ids: BTreeMap<String, String>,
    made: usize,
    done: usize,
    doors: Arc<Vec<String>>,
}

async fn crash(seed: u64, rounds: usize) {
    println!("seed {seed:#x}, {rounds} rounds");
    let mut random = Random::new(seed);
    let receiver = Receiver::start(DOORS, move |call| answer(call, seed));
    let doors: Vec<String> = (0..DOORS).map(|door| receiver.url(door, "")).collect();
    let doors = Arc::new(doors);
    let (_dir, data) = place();
    let actor = |number| Actor {
        number,
        random: Random::new(seed ^ (1 + number as u64)),
        expected: BTreeMap::new(),
        deleted: BTreeMap::new(),
        ids: BTreeMap::new(),
        made: 0,
        done: 0,
        doors: Arc::clone(&doors),
    };
    let mut actors: Vec<Actor> = (0..ACTORS).map(actor).collect();

    let mut dev = Dev::start(&data);
    actors = act(actors, &dev.client, |mut actor, client| async move {
        for _ in 0..TRIGGERS / ACTORS {
            actor.create(&client).await;
        }
        actor
    })
    .await;
    let mut starts = Vec::new();
    for round in 0..rounds {
        let lives = Duration::from_millis(300 + random.below(2_200));
        let (client, killing) = (dev.client.clone(), async {
            // Not a wait for anything: how long this process lives.
            tokio::time::sleep(lives).await;
            dev.kill();
        });
        let acting = act(actors, &client, |mut actor, client| async move {
            while actor.act(&client).await {}
            actor
        });
        (actors, ()) = tokio::join!(acting, killing);
        if random.below(3) == 0 {
            // It hardly gets to its feet.
            Dev::start_and_kill(&data, Duration::from_millis(random.below(400))).await;
        }
        dev = Dev::start(&data);
        starts.push(dev.took);
        check_acknowledged(round, &mut actors, &dev.client).await;
    }
    starts.sort();
    println!(
        "{} acts acknowledged, {} calls heard; a start takes {:?}, at most {:?}",
        actors.iter().map(|actor| actor.done).sum::<usize>(),
        receiver.heard().len(),
        starts[starts.len() / 2],
        starts[starts.len() - 1],
    );
    finish(dev, &data, actors, &receiver, rounds).await;
}

/// Lets all rest, and holds the accounts against each other.
async fn finish(
    dev: Dev,
    data: &std::path::Path,
    actors: Vec<Actor>,
    receiver: &Receiver,
    rounds: usize,
) {
    let mut actors = act(actors, &dev.client, |mut actor, client| async move {
        for name in actor.those(Expected::Fires) {
            match client.pause(&name, &PauseRequest::default()).await {
                Ok(_) => drop(actor.expected.insert(name, Expected::Paused)),
                // Its receiver or its failures have done so already, or its limit is reached.
                Err(ClientError::Conflict(_)) => {}
                Err(why) => panic!("{name}: {why}"),
            }
        }
        actor
    })
    .await;
    rest(&dev.client).await;
    check_acknowledged(rounds, &mut actors, &dev.client).await;
    let ids: BTreeMap<String, String> = actors.iter().flat_map(|actor| actor.ids.clone()).collect();
    let told = accounts(&dev.client, &ids).await;
    dev.stop().await;
    let ledger = SlotRecords::read(data).await;
    let deleted = actors.iter().flat_map(|actor| {
        let gone = actor.those(Expected::Gone);
        gone.into_iter().filter_map(|name| Some((name.clone(), *actor.deleted.get(&name)?)))
    });
    check(&ledger, &told, &deleted.collect(), &ids, &receiver.heard());
}

/// All actors at once.
async fn act<F: Future<Output = Actor> + Send + 'static>(
    actors: Vec<Actor>,
    client: &Client,
    each: impl Fn(Actor, Client) -> F,
) -> Vec<Actor> {
    let mut acting = JoinSet::new();
    for actor in actors {
        acting.spawn(each(actor, client.clone()));
    }
    acting.join_all().await
}

/// A run that is under way for longer than this is in the list of all runs.
const UNTOLD_MAX: Duration = Duration::from_millis(1_500);

/// Waits until no run is under way. The list of all runs tells nothing of one that left within the last second: it
/// has no record of its own so long. So there must be none for longer than that.
pub(super) async fn rest(client: &Client) {
    let states: Vec<_> = RunState::ALL.into_iter().filter(|state| !state.is_end()).collect();
    let filter = RunFilter { states, limit: Some(1), ..RunFilter::default() };
    let calm: Mutex<Option<Stopwatch>> = Mutex::new(None);
    until("every run ends", PATIENCE, || async {
        let is_calm = client.runs(&filter).await.unwrap().items.is_empty();
        let mut calm = calm.lock().unwrap();
        if !is_calm {
            *calm = None;
            return None;
        }
        let since = calm.get_or_insert_with(Stopwatch::start);
        (since.elapsed() > UNTOLD_MAX).then_some(())
    })
    .await;
}

/// What the receiver does: most is well, some fails, some is slow.
pub(super) fn answer(call: &Heard, seed: u64) -> Reply {
    let dice = hash(&format!("{}#{}#{seed}", call.run, call.attempt));
    let delay = match dice % 100 {
        0..2 => 1_300,
        2..12 => dice / 100 % 120,
        _ => 0,
    };
    let status = if (dice >> 32).is_multiple_of(16) { 500 } else { 200 };
    Reply::Status(status, Duration::from_millis(delay))
}

/// A trigger whose kind is drawn from its name.
pub(super) fn spec(name: &str, doors: &[String]) -> TriggerSpec {
    let dice = hash(name);
    let door = &doors[usize::try_from(dice % doors.len() as u64).unwrap()];
    let overlap = match dice >> 8 & 7 {
        0 => Overlap::Skip,
        1 => Overlap::QueueOne,
        2 => Overlap::Replace,
        _ => Overlap::Allow,
    };
    let catch_up = [CatchUp::Skip, CatchUp::Latest, CatchUp::All][(dice >> 16) as usize % 3];
    let is_careful = (dice >> 24).is_multiple_of(3);
    let delivery = if is_careful { Delivery::AtMostOnce } else { Delivery::AtLeastOnce };
    let limit = (dice >> 32).is_multiple_of(10).then_some(20);
    TriggerSpec {
        name: Some(name.to_owned()),
        schedule: Some(ScheduleSpec {
            every: vec!["1s".to_owned()],
            limit,
            // Half of them ring on the second, the others some time after it.
            jitter: (dice >> 40).is_multiple_of(2).then(|| "1s".to_owned()),
            ..ScheduleSpec::default()
        }),
        webhook: Some(WebhookSpec {
            url: format!("{door}/{name}"),
            timeout: Some("2s".to_owned()),
            ..WebhookSpec::default()
        }),
        catch_up: Some(catch_up),
        overlap: Some(overlap),
        delivery: Some(delivery),
        retry: Some(RetrySpec {
            attempts: Some(3),
            delay: Some("1s".to_owned()),
            backoff: Some(Backoff::Constant),
            ..RetrySpec::default()
        }),
        ..TriggerSpec::default()
    }
}

impl Actor {
    fn those(&self, wanted: Expected) -> Vec<String> {
        let those = self.expected.iter().filter(|(_, expected)| **expected == wanted);
        those.map(|(name, _)| name.clone()).collect()
    }

    async fn create(&mut self, client: &Client) -> bool {
        self.made += 1;
        let name = format!("t-{}-{}", self.number, self.made);
        let spec = spec(&name, &self.doors);
        let made = self.expect(name.clone(), Expected::Fires, client.create_trigger(&spec)).await;
        made.map(|trigger| self.ids.insert(name, trigger.id)).is_some()
    }

    /// Does one thing. Whether it was answered.
    async fn act(&mut self, client: &Client) -> bool {
        // The pace of a person, not a wait for anything.
        tokio::time::sleep(Duration::from_millis(20 + self.random.below(100))).await;
        let (fires, paused) = (self.those(Expected::Fires), self.those(Expected::Paused));
        let is_enough = fires.len() >= TRIGGERS / ACTORS;
        let dice = if is_enough { self.random.below(100) } else { 60 + self.random.below(40) };
        let one = self.random.pick(if dice < 60 { &fires } else { &paused }).cloned();
        let Some(name) = one.filter(|_| dice < 80) else { return self.create(client).await };
        match dice {
            0..25 => {
                let asked = PauseRequest::default();
                self.expect(name.clone(), Expected::Paused, client.pause(&name, &asked))
                    .await
                    .is_some()
            }
            25..35 => {
                self.expect(name.clone(), Expected::Cancelled, client.cancel(&name)).await.is_some()
            }
            35..50 => {
                self.deleted.insert(name.clone(), System.wall_us() / 1_000);
                self.expect(name.clone(), Expected::Gone, client.delete_trigger(&name))
                    .await
                    .is_some()
            }
            50..60 => {
                let mut spec = spec(&name, &self.doors);
                let every = if self.random.below(2) == 0 { "1s" } else { "2s" };
                spec.schedule.as_mut().unwrap().every = vec![every.to_owned()];
                spec.webhook.get_or_insert_default().body = Some(self.random.number().to_string());
                let put = client.put_trigger(&name, &spec, None);
                self.expect(name.clone(), Expected::Fires, put).await.is_some()
            }
            _ => self.expect(name.clone(), Expected::Fires, client.resume(&name)).await.is_some(),
        }
    }

    /// Asks, and remembers what was answered, if anything was.
    async fn expect<T>(
        &mut self,
        name: String,
        then: Expected,
        asked: impl Future<Output = Result<T, ClientError>>,
    ) -> Option<T> {
        match asked.await {
            Ok(answer) => {
                self.expected.insert(name, then);
                self.done += 1;
                Some(answer)
            }
            Err(error) => {
                let refused = error.problem().filter(|problem| problem.status < 500);
                assert_eq!(refused, None, "{name} was not to be {then:?}");
                self.expected.insert(name, Expected::Unsure);
                None
            }
        }
    }
}

/// Every trigger is what was acknowledged. Where nobody knows, what it is now counts from here on.
async fn check_acknowledged(round: usize, actors: &mut [Actor], client: &Client) {
    let found = list(client).await;
    for actor in actors {
        for (name, expected) in &mut actor.expected {
            // One whose limit is reached may be paused as well.
            let is = match found.get(name) {
                None => Expected::Gone,
                Some(trigger) if trigger.cancelled.is_some() => Expected::Cancelled,
                Some(trigger) if trigger.paused.is_some() => Expected::Paused,
                Some(_) => Expected::Fires,
            };
            if *expected == Expected::Unsure {
                *expected = is;
            }
            if let Some(trigger) = found.get(name) {
                let id = actor.ids.entry(name.clone()).or_insert_with(|| trigger.id.clone());
                assert_eq!(*id, trigger.id, "{name} is another one");
            }
            assert_eq!(*expected, is, "{name} after crash {round}");
        }
    }
}

pub(super) async fn list(client: &Client) -> BTreeMap<String, Trigger> {
    let mut found = BTreeMap::new();
    let mut filter = TriggerFilter { limit: Some(500), ..TriggerFilter::default() };
    loop {
        let page = client.triggers(&filter).await.unwrap();
        found.extend(page.items.into_iter().map(|trigger| (trigger.name.clone(), trigger)));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return found;
        }
    }
}

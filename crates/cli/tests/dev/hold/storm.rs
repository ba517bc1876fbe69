//! Five machines that want to hold one program, and what can be done to processes, clocks, ways to the store and the store itself, at
//! random. The witness is the judge: it hears of each act of the program, and knows nothing of leases.

use std::net::Ipv4Addr;
use std::time::Duration;

use rig::{Random, machine};
use store::clock::Stopwatch;
use witness::{Witness, WitnessSettings};

use super::super::island;
use super::blow::{BLOWS, Blow, Place, started_with};
use super::clock::Clocks;
use super::ground::{Ground, Harm, Link};
use super::*;
use crate::dev::elect::engine::Engine;

const MACHINES: usize = 5;

/// Short, so that much happens: where a busy machine is late with a renewal, the program is started once more.
const T: Duration = Duration::from_secs(2);

/// How many machines may be stopped or cut off at once.
const HURT_MAX: usize = 3;

/// Each time so many things happen, one of them happens to the store; ...
const HARM_EVERY: u64 = 15;

/// ...and is taken back when as many have happened afterwards, more or less.
const MEND_EVERY: u64 = 3;

/// How long a storm lasts beside many other tests, and ...
const SHORT: Duration = Duration::from_secs(20);

/// ...where there is time.
const LONG: Duration = Duration::from_secs(300);

struct Storm {
    dir: tempfile::TempDir,
    ground: Ground,
    harm: Option<Harm>,
    witness: Witness,
    random: Random,
    places: Vec<Place>,
    born: usize,
    dealt: BTreeMap<Blow, usize>,
    harms: Vec<Harm>,
}

impl Storm {
    async fn begin(ground: Ground, seed: u64) -> Self {
        let settings = WitnessSettings { listen: ground.witness_at(), udp: None, gap: T * 5 };
        let mut storm = Self {
            dir: tempfile::tempdir().unwrap(),
            ground,
            harm: None,
            witness: Witness::start(settings).await.unwrap(),
            random: Random::new(seed),
            places: Vec::new(),
            born: 0,
            dealt: BTreeMap::new(),
            harms: Vec::new(),
        };
        for number in 0..MACHINES {
            let (clocks, link) = (Clocks::new(), storm.ground.link(number).await);
            let holder = storm.supervise(number, &clocks, &link);
            storm.places.push(Place::new(clocks, link, holder));
        }
        storm
    }

    /// A supervisor on a machine. Each has a name of its own: one who comes back at once would be told that it is there already.
    fn supervise(&mut self, number: usize, clocks: &Clocks, link: &Link) -> Holder {
        let node = format!("node-{}", self.born);
        self.born += 1;
        let locks = self.dir.path().join(format!("machine-{number}"));
        let mut command = self.ground.supervisor(link);
        clocks.rule(&mut command);
        let (ttl, witness) = (format!("{}s", T.as_secs()), self.witness.address().to_string());
        command.args(["hold", NAME, "--node", &node, "--ttl", &ttl, "--stop-timeout", "1s"]);
        command.args(["--output", "json", "--lock-dir"]).arg(locks).arg("--");
        command.args([WATCHBELL, "demo-signer", "--witness", &witness, "--node", &node]);
        Holder::spawn(command, self.dir.path(), &node)
    }

    /// Something bad happens to somebody, or is taken back.
    async fn strike(&mut self) {
        match self.harm {
            Some(harm) if self.random.below(MEND_EVERY) == 0 => {
                self.ground.mend(harm).await;
                self.harm = None;
            }
            None if self.random.below(HARM_EVERY) == 0 => {
                let harm = self.ground.suffer(&mut self.random);
                self.harms.push(harm);
                self.harm = Some(harm);
            }
            _ => self.strike_machine(),
        }
        for number in 0..MACHINES {
            self.bring_back(number);
        }
    }

    /// Half of the time it is whoever runs the program.
    fn strike_machine(&mut self) {
        let runs = self.places.iter().position(Place::runs);
        let chance = self.random.place(MACHINES);
        let number = runs.filter(|_| self.random.below(2) == 0).unwrap_or(chance);
        let blow = *self.random.pick(&BLOWS).expect("there are some");
        let hurt = self.places.iter().filter(|place| place.is_hurt).count();
        let place = &mut self.places[number];
        if place.is_hurt {
            place.heal();
        } else if !blow.lasts() || hurt < HURT_MAX {
            *self.dealt.entry(blow).or_default() += 1;
            place.suffer(blow, &mut self.random);
        }
    }

    /// A supervisor that has ended is followed by another one, as an init would see to it.
    fn bring_back(&mut self, number: usize) {
        if self.places[number].holder.child.try_wait().unwrap().is_none() {
            return;
        }
        let mut place = self.places.remove(number);
        place.holder = self.supervise(number, &place.clocks, &place.link);
        self.places.insert(number, place);
    }

    /// All that lasts is taken back.
    async fn pass(&mut self) {
        if let Some(harm) = self.harm.take() {
            self.ground.mend(harm).await;
        }
        for number in 0..MACHINES {
            self.places[number].heal();
            self.bring_back(number);
        }
    }

    /// Waits until somebody acts.
    async fn somebody_acts(&self) {
        until("somebody runs the program", PATIENCE, || async {
            let silent = self.witness.report().holds.first()?.silent_for;
            (silent < T / 4).then_some(())
        })
        .await;
    }

    /// Tells everybody to stop, and looks at what is left, and at what was seen.
    async fn judge(mut self) {
        for place in &mut self.places {
            place.holder.stop().await;
        }
        let left = started_with(&format!("--witness {}", self.witness.address()));
        let (name, report) = (self.ground.name(), self.witness.report());
        println!("{name}: {} supervisors, {:?}, {:?}", self.born, self.dealt, self.harms);
        let changes = report.holds[0].changes.iter().filter(|change| change.is_fail_over());
        let mut lengths: Vec<_> = changes.filter_map(|change| change.length).collect();
        lengths.sort_unstable();
        println!("{name}: fail-overs, and how long nobody acted: {lengths:.1?}");
        println!("{}", report.text(100));
        assert!(left.is_empty(), "{name}: orphans: {left:?}");
        assert!(report.all_is_well, "{name}: two ran at a time");
        assert!(report.holds[0].instances.len() > 1, "{name}: nothing happened");
    }
}

async fn check_storm(ground: Ground, seed: u64, length: Duration) {
    println!("{}: seed {seed:#x}", ground.name());
    let mut storm = Storm::begin(ground, seed).await;
    storm.somebody_acts().await;
    let begun = Stopwatch::start();
    while begun.elapsed() < length {
        storm.strike().await;
        // Not a wait for anything: how often something happens.
        tokio::time::sleep(Duration::from_millis(100 + storm.random.below(900))).await;
    }
    storm.pass().await;
    storm.somebody_acts().await;
    storm.judge().await;
}

/// The same on islands around an engine, by a test of this name.
async fn check_islands(test: &str, engine: fn(Ipv4Addr) -> Engine, seed: u64, length: Duration) {
    if island::is_apart() {
        check_storm(Ground::islands(engine), seed, length).await;
    } else {
        let test = format!("dev::hold::storm::{test}");
        tokio::task::block_in_place(|| island::run_apart(&test));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_befalls_five_machines_and_their_redis_one_runs_the_program_at_a_time() {
    let _machine = machine::works().await;
    check_storm(Ground::Engine(Engine::redis()), 0x0000_401d, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_befalls_five_machines_and_their_etcd_one_runs_the_program_at_a_time() {
    let _machine = machine::works().await;
    check_storm(Ground::Engine(Engine::etcd()), 0x0e7c_401d, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_befalls_five_machines_and_their_postgres_one_runs_the_program_at_a_time() {
    let _machine = machine::works().await;
    check_storm(Ground::Engine(Engine::postgres()), 0x0b05_401d, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_befalls_five_machines_and_their_servers_one_runs_the_program_at_a_time() {
    let _machine = machine::works().await;
    check_storm(Ground::servers().await, 0x5e47_401d, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_befalls_five_islands_one_runs_the_program_at_a_time() {
    let _machine = machine::works().await;
    let test = "whatever_befalls_five_islands_one_runs_the_program_at_a_time";
    check_islands(test, Engine::redis_also_at, 0x1514_401d, SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn whatever_befalls_five_machines_for_minutes_one_runs_the_program_at_a_time_on_redis() {
    let _machine = machine::works().await;
    check_storm(Ground::Engine(Engine::redis()), 0x0501_401d, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn whatever_befalls_five_machines_for_minutes_one_runs_the_program_at_a_time_on_etcd() {
    let _machine = machine::works().await;
    check_storm(Ground::Engine(Engine::etcd()), 0x0502_401d, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn whatever_befalls_five_machines_for_minutes_one_runs_the_program_at_a_time_on_postgres() {
    let _machine = machine::works().await;
    check_storm(Ground::Engine(Engine::postgres()), 0x0503_401d, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn whatever_befalls_five_machines_for_minutes_one_runs_the_program_at_a_time_on_servers() {
    let _machine = machine::works().await;
    check_storm(Ground::servers().await, 0x0504_401d, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn whatever_befalls_five_islands_for_minutes_one_runs_the_program_at_a_time() {
    let _machine = machine::works().await;
    let test = "whatever_befalls_five_islands_for_minutes_one_runs_the_program_at_a_time";
    check_islands(test, Engine::etcd_also_at, 0x0505_401d, LONG).await;
}

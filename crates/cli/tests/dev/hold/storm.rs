//! Five machines that want to hold one program, and what can be done to processes and to ways to the store, at random. The
//! witness is the judge: it hears of each act of the program, and knows nothing of leases.
//!
//! A machine here is a directory with its lock, a way to the store, and one supervisor after the other. What is done to guards
//! and programs is what root can do to them. Only a supervisor and both of its guards are never stopped together, while the
//! program goes on: docs/holds.md says that nobody ends it then.

use std::time::Duration;

use rig::{Random, Road, Way, machine};
use store::clock::Stopwatch;
use witness::{Witness, WitnessSettings};

use super::*;
use crate::dev::elect::engine::Engine;

const MACHINES: usize = 5;

/// Long enough for a machine on which five supervisors and an engine share two processors with other tests.
const T: Duration = Duration::from_secs(3);

/// How many machines may be stopped or cut off at once.
const HURT_MAX: usize = 3;

/// What is done to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    KillSupervisor,
    KillLaunch,
    KillShim,
    KillProgram,
    TellToStop,
    StopSupervisor,
    StopShim,
    StopProgram,
    StopAllThree,
    CutThere,
    CutBack,
    CutBoth,
}

const BLOWS: [Blow; 12] = [
    Blow::KillSupervisor,
    Blow::KillLaunch,
    Blow::KillShim,
    Blow::KillProgram,
    Blow::TellToStop,
    Blow::StopSupervisor,
    Blow::StopShim,
    Blow::StopProgram,
    Blow::StopAllThree,
    Blow::CutThere,
    Blow::CutBack,
    Blow::CutBoth,
];

impl Blow {
    /// Whether it lasts until somebody takes it back.
    fn lasts(self) -> bool {
        self >= Self::StopSupervisor
    }
}

/// The processes of a machine, as far as they are there.
struct Crew {
    supervisor: u64,
    launch: Option<u64>,
    shim: Option<u64>,
    program: Option<u64>,
}

impl Crew {
    fn of(holder: &Holder) -> Self {
        let supervisor = u64::from(holder.child.id());
        let guard = |pid: &u64| words(*pid).contains("__watchbell_launch");
        let launch = children(supervisor).into_iter().find(guard);
        let child = |of: Option<u64>| children(of?).first().copied();
        let shim = child(launch);
        Self { supervisor, launch, shim, program: child(shim) }
    }
}

/// The children of a process.
fn children(pid: u64) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// What a process was started as.
fn words(pid: u64) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Sends a signal to whoever of these is still there.
fn send(pids: impl IntoIterator<Item = Option<u64>>, signal: Signal) {
    for pid in pids.into_iter().flatten() {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the id of a process");
        let _ = kill_process(pid, signal);
    }
}

/// A machine.
struct Place {
    locks: PathBuf,
    road: Road,
    holder: Holder,
    /// Who was stopped.
    stopped: [Option<u64>; 3],
    is_hurt: bool,
}

struct Storm {
    dir: tempfile::TempDir,
    engine: Engine,
    witness: Witness,
    random: Random,
    places: Vec<Place>,
    born: usize,
    dealt: BTreeMap<Blow, usize>,
}

impl Storm {
    async fn begin(engine: Engine, seed: u64) -> Self {
        let listen = "127.0.0.1:0".parse().unwrap();
        let settings = WitnessSettings { listen, udp: None, gap: T * 5 };
        let mut storm = Self {
            dir: tempfile::tempdir().unwrap(),
            engine,
            witness: Witness::start(settings).await.unwrap(),
            random: Random::new(seed),
            places: Vec::new(),
            born: 0,
            dealt: BTreeMap::new(),
        };
        for number in 0..MACHINES {
            let locks = storm.dir.path().join(format!("machine-{number}"));
            let road = Road::to(storm.engine.address()).await;
            let holder = storm.supervise(&locks, &road);
            let (stopped, is_hurt) = ([None; 3], false);
            storm.places.push(Place { locks, road, holder, stopped, is_hurt });
        }
        storm
    }

    /// A supervisor on a machine. Each has a name of its own: one who comes back at once would be told that it is there already.
    fn supervise(&mut self, locks: &Path, road: &Road) -> Holder {
        let node = format!("node-{}", self.born);
        self.born += 1;
        let mut command = Command::new(WATCHBELL);
        let (ttl, witness) = (format!("{}s", T.as_secs()), self.witness.address().to_string());
        command.args(["hold", NAME, "--node", &node, "--ttl", &ttl, "--stop-timeout", "1s"]);
        command.args(["--output", "json", "--lock-dir"]).arg(locks).arg("--");
        command.args([WATCHBELL, "demo-signer", "--witness", &witness, "--node", &node]);
        command.env("WATCHBELL_STORE", self.engine.url_at(road.address()));
        Holder::spawn(command, self.dir.path(), &node)
    }

    /// Something bad happens to somebody, half of the time to whoever runs the program; or is taken back.
    fn strike(&mut self) {
        let runs = self.places.iter().position(|place| Crew::of(&place.holder).shim.is_some());
        let chance = self.random.place(MACHINES);
        let number = runs.filter(|_| self.random.below(2) == 0).unwrap_or(chance);
        let blow = *self.random.pick(&BLOWS).expect("there are some");
        let hurt = self.places.iter().filter(|place| place.is_hurt).count();
        if self.places[number].is_hurt {
            self.heal(number);
        } else if !blow.lasts() || hurt < HURT_MAX {
            *self.dealt.entry(blow).or_default() += 1;
            self.places[number].suffer(blow);
        }
        for number in 0..MACHINES {
            self.bring_back(number);
        }
    }

    fn heal(&mut self, number: usize) {
        let place = &mut self.places[number];
        send(std::mem::take(&mut place.stopped), Signal::CONT);
        place.road.both(Way::Open);
        place.is_hurt = false;
    }

    /// A supervisor that has ended is followed by another one, as an init would see to it.
    fn bring_back(&mut self, number: usize) {
        if self.places[number].holder.child.try_wait().unwrap().is_none() {
            return;
        }
        let mut place = self.places.remove(number);
        place.holder = self.supervise(&place.locks, &place.road);
        self.places.insert(number, place);
    }

    /// How long nobody has acted.
    fn silent_for(&self) -> Option<Duration> {
        Some(self.witness.report().holds.first()?.silent_for)
    }

    /// Waits until somebody acts.
    async fn somebody_acts(&self) {
        until("somebody runs the program", PATIENCE, || async {
            self.silent_for().filter(|silent| *silent < T / 4).map(|_| ())
        })
        .await;
    }
}

impl Place {
    fn suffer(&mut self, blow: Blow) {
        let Crew { supervisor, launch, shim, program } = Crew::of(&self.holder);
        let mut stops = |pids: [Option<u64>; 3]| {
            self.stopped = pids;
            send(pids, Signal::STOP);
        };
        match blow {
            Blow::KillSupervisor => self.holder.kill(),
            Blow::KillLaunch => send([launch], Signal::KILL),
            Blow::KillShim => send([shim], Signal::KILL),
            Blow::KillProgram => send([program], Signal::KILL),
            Blow::TellToStop => send([Some(supervisor)], Signal::TERM),
            Blow::StopSupervisor => stops([Some(supervisor), None, None]),
            Blow::StopShim => stops([shim, None, None]),
            Blow::StopProgram => stops([program, None, None]),
            Blow::StopAllThree => stops([Some(supervisor), shim, program]),
            Blow::CutThere => self.road.there(Way::Closed),
            Blow::CutBack => self.road.back(Way::Closed),
            Blow::CutBoth => self.road.both(Way::Closed),
        }
        self.is_hurt = blow.lasts();
    }
}

async fn check_storm(engine: Engine, seed: u64, length: Duration) {
    let name = engine.name();
    println!("{name}: seed {seed:#x}");
    let mut storm = Storm::begin(engine, seed).await;
    storm.somebody_acts().await;
    let begun = Stopwatch::start();
    while begun.elapsed() < length {
        storm.strike();
        // Not a wait for anything: how often something happens.
        tokio::time::sleep(Duration::from_millis(100 + storm.random.below(900))).await;
    }
    for number in 0..MACHINES {
        storm.heal(number);
        storm.bring_back(number);
    }
    storm.somebody_acts().await;
    for place in &mut storm.places {
        place.holder.stop().await;
    }
    let mine = format!("--witness {}", storm.witness.address());
    let left: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(words)
        .filter(|words| words.contains(&mine))
        .collect();
    let report = storm.witness.report();
    let chart = report.text(100);
    println!("{name}: {} supervisors, {:?}\n{chart}", storm.born, storm.dealt);
    assert!(left.is_empty(), "orphans: {left:?}");
    assert!(report.all_is_well, "{name}, seed {seed:#x}: two ran at a time");
    assert!(report.holds[0].instances.len() > 1, "nothing happened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_befalls_five_machines_one_runs_the_program_at_a_time() {
    let _machine = machine::works().await;
    check_storm(Engine::redis(), 0x0000_401d, Duration::from_secs(40)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn whatever_befalls_five_machines_for_minutes_one_runs_the_program_at_a_time_on_any_engine() {
    let _machine = machine::works().await;
    for (number, engine) in Engine::all().into_iter().enumerate() {
        check_storm(engine, 0x0501_401d + number as u64, Duration::from_secs(300)).await;
    }
}

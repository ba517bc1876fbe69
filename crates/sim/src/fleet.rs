//! Whole servers in virtual time: sessions, claims, assignment, hand-overs, shards, committers and historians together, as
//! they ship, on a store and roads that misbehave.
//!
//! The leases of [`crate::cluster`] and the one shard of [`crate::shard`] are tried apart and more closely. Here it is
//! tried that they fit: a server is [`server::node::Node`] with all its parts, in one thread ([`process`]); only who calls
//! receivers is of the simulation ([`sender`]). Triggers ring every two seconds while servers are killed, stopped,
//! started anew, cut off and slowed down ([`fault`]). In the end everything is mended, and when things have come to rest
//! what is in the store is held against what was heard ([`audit`]). Everything follows from a seed.

pub mod audit;
pub mod fault;
pub mod process;
pub mod sender;
pub mod setting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::id::ShardId;
use engine::mutant::{self, Mutant};
use engine::record::{Format, decode};
use engine::shard::record::head_key;
use server::node::{HistoryPace, NodeConfig};
use store::claim::{Claim, Head};
use store::{Class, Key};
use tokio::sync::Notify;

use crate::clock::{Instant, MS};
use crate::dice::{Dice, Luck};
use crate::promise::words;
use crate::road::{Road, Sender, SharedSite, SimMachine, Traveller};
use crate::shard::promise::{Promise, Violation};
use crate::vault::{NodeIndex, Vault};
use crate::witness::{Premises, Witness};
use crate::world::{ProcessId, Tracing, World};
use process::{Process, Start};
use sender::Receivers;
use setting::Setting;

/// T of every server.
pub const TTL: Duration = Duration::from_secs(3);

/// How long it may take until things have come to rest, and until all servers have stopped.
const CALM: Instant = 30_000 * MS;
const STOP: Instant = 60_000 * MS;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was simulated.
    pub setting: Setting,
    /// The first promise that was broken, if any was.
    pub violation: Option<Violation>,
    /// What happened.
    pub counts: Counts,
    /// How long it lasted, in true time.
    pub length: Instant,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counts {
    pub starts: u64,
    pub kills: u64,
    pub stops: u64,
    pub pauses: u64,
    pub cuts: u64,
    pub outages: u64,
    pub calls: u64,
    pub again: u64,
    pub slots: u64,
}

/// Servers, their store, and who they call. Clones are the same.
#[derive(Clone)]
pub struct Fleet {
    /// Its time and its processes.
    pub world: World,
    /// Its store.
    pub vault: Arc<Vault>,
    /// Who is called.
    pub receivers: Arc<Receivers>,
    /// What it is like.
    pub setting: Arc<Setting>,
    witness: Arc<Witness>,
    places: Arc<Mutex<Vec<Place>>>,
    dice: Arc<Mutex<Dice>>,
    findings: Arc<Mutex<(Option<Violation>, Counts)>>,
}

/// Where a server runs.
struct Place {
    site: SharedSite,
    process: Option<ProcessId>,
    /// Tells it to stop in order.
    stop: Arc<Notify>,
    is_stopping: bool,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> Report {
    mutant::switch(bug);
    let fleet = Fleet::start(seed, tracing);
    fleet.world.trace("seed", || format!("{seed}: {}", fleet.setting));
    let played = catch_unwind(AssertUnwindSafe(|| fleet.play()));
    if let Err(panic) = played {
        fleet.accuse(Promise::NoPanic, words(&*panic));
    }
    let (violation, counts) = fleet.findings().clone();
    let report = Report {
        setting: (*fleet.setting).clone(),
        violation,
        counts,
        length: fleet.world.now(),
        trace: fleet.world.take_trace(),
    };
    fleet.world.end();
    mutant::switch(None);
    report
}

impl Fleet {
    fn start(seed: u64, tracing: Tracing) -> Self {
        let mut dice = Dice::new(seed);
        let setting = Setting::of(&mut dice);
        let places = (0..setting.servers).map(|place| Place {
            site: Arc::new(Mutex::new(setting.site(place, &mut dice))),
            process: None,
            stop: Arc::default(),
            is_stopping: false,
        });
        let places = places.collect();
        let premises = Premises {
            claim: Claim::new("election/default/nobody").expect("a valid key").key().clone(),
            data: "data/".to_owned(),
            ttl: TTL,
            class: Class::S,
            manual: false,
            calm: false,
        };
        let fleet = Self {
            world: World::new(tracing),
            vault: Arc::new(Vault::new(Class::S)),
            receivers: Arc::new(Receivers::new(&setting, dice.fork())),
            places: Arc::new(Mutex::new(places)),
            setting: Arc::new(setting),
            witness: Arc::new(Witness::new(premises)),
            dice: Arc::new(Mutex::new(dice)),
            findings: Arc::default(),
        };
        fleet.setting.fill(&fleet.vault);
        (0..fleet.setting.servers).for_each(|place| fleet.boot(place));
        fleet
    }

    /// Lets things go wrong, mends them, lets them come to rest, and looks.
    fn play(&self) {
        fault::plan_next(self);
        if !self.go_on(fault::STORM) {
            return;
        }
        fault::mend(self);
        if !self.go_on(CALM) {
            return;
        }
        audit::check_owners(self);
        let rang_until = self.wall_ms();
        (0..self.setting.servers).for_each(|place| self.stop(place));
        if !self.go_on(STOP) {
            return;
        }
        audit::check_slots(self, rang_until);
    }

    /// Lets the world go on. Whether no promise was broken.
    fn go_on(&self, length: Instant) -> bool {
        let end = self.world.now() + length;
        // Something happens at the end, so that time gets there.
        self.world.after(length, |_| {});
        self.world.run(end, |_| self.findings().0.is_some());
        self.findings().0.is_none()
    }

    /// What a right clock shows.
    pub fn wall_ms(&self) -> i64 {
        setting::WALL_MS + i64::try_from(self.world.now() / MS).expect("minutes")
    }

    /// The head of a shard.
    pub fn head(&self, shard: ShardId) -> Option<Head> {
        let key = Key::new(head_key(shard)).expect("a valid key");
        let entry = self.vault.peek_primary(&key)?;
        Some(decode(entry.value.as_bytes(), Format(1)).expect("a head that servers wrote"))
    }

    /// The dice of the faults.
    pub fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn findings(&self) -> MutexGuard<'_, (Option<Violation>, Counts)> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened.
    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.findings().1);
    }

    /// A promise is broken.
    pub fn accuse(&self, promise: Promise, what: String) {
        self.world.trace("witness", || format!("BROKEN  {}: {what}", promise.sentence()));
        let at = self.world.now() / MS;
        self.findings().0.get_or_insert(Violation { promise, at, what });
    }

    /// Changes a server's roads or clocks.
    pub fn at_site<T>(
        &self,
        place: NodeIndex,
        change: impl FnOnce(&mut crate::road::Site) -> T,
    ) -> T {
        let site = Arc::clone(&self.places()[place].site);
        let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut site)
    }

    /// The process of a server, if it runs.
    pub fn process(&self, place: NodeIndex) -> Option<ProcessId> {
        self.places()[place].process.filter(|process| self.world.lives(*process))
    }

    /// Starts a server, unless it runs.
    pub fn boot(&self, place: NodeIndex) {
        if self.process(place).is_some() {
            return;
        }
        self.count(|counts| counts.starts += 1);
        let stop = Arc::new(Notify::new());
        let (fleet, told) = (self.clone(), Arc::clone(&stop));
        let process = self.world.spawn(|process| Process::new(fleet.prepare(place, process, told)));
        self.world.attend(process);
        self.world.trace(process, || format!("starts  {}", setting::name(place)));
        let mut places = self.places();
        places[place].process = Some(process);
        places[place].stop = stop;
        places[place].is_stopping = false;
    }

    /// Ends a server as kill -9 does.
    pub fn kill(&self, place: NodeIndex) {
        if let Some(process) = self.process(place) {
            self.count(|counts| counts.kills += 1);
            self.world.trace(process, || "is killed".into());
            self.world.kill(process);
        }
    }

    /// Tells a server to stop in order.
    pub fn stop(&self, place: NodeIndex) {
        if let Some(process) = self.process(place) {
            self.count(|counts| counts.stops += 1);
            self.world.trace(process, || "is told to stop".into());
            let mut places = self.places();
            places[place].is_stopping = true;
            places[place].stop.notify_one();
        }
    }

    /// Whether a server was told to stop.
    pub fn is_stopping(&self, place: NodeIndex) -> bool {
        self.places()[place].is_stopping
    }

    fn prepare(&self, place: NodeIndex, process: ProcessId, stop: Arc<Notify>) -> Start {
        let site = Arc::clone(&self.places()[place].site);
        let (for_road, for_machine, for_courier) = {
            let mut dice = self.dice();
            (Luck::moment(dice.fork()), Luck::moment(dice.fork()), dice.fork())
        };
        let sender = Sender { node: place, process, exclusive: false };
        let road = Road::new(&self.world, &self.vault, &self.witness, &site, &sender, for_road);
        self.vault.watched_by(&road);
        let config = NodeConfig {
            id: setting::name(place),
            url: None,
            roles: server::peers::ROLES.map(str::to_owned).to_vec(),
            ttl: TTL,
            webhook_allow: Vec::new(),
            webhook_ca: None,
            notify: None,
            history: HistoryPace::default(),
            shards: Some(self.setting.shards),
        };
        Start {
            fleet: self.clone(),
            process,
            road: Traveller(road),
            machine: Arc::new(SimMachine::new(&self.world, &site, for_machine)),
            config,
            dice: for_courier,
            stop,
        }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

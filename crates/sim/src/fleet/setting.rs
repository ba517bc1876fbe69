//! What a seed of whole servers stands for.

use std::fmt;
use std::time::Duration;

use engine::id::{ProjectId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::record::encode;
use engine::shard::record::{FORMAT, NameRecord, TriggerRecord, name_key, trigger_key};
use engine::trigger::{Draft, ScheduleDraft, Texts, WebhookDraft};
use serde_json::value::to_raw_value;
use store::election::Mode;
use store::{Commit, Key};

use super::TTL;
use crate::clock::Clocks;
use crate::cluster::{self, NodeLinks, StoreKind, Weather, node_links};
use crate::dice::Dice;
use crate::network::Site;
use crate::shard::draft;
use crate::sim_store::{NodeIndex, SimStore};

/// What right clocks show when a run begins.
pub const WALL_MS: i64 = 1_800_000_000_000;

/// How far apart the slots of every trigger are.
pub const STEP_MS: i64 = 2_000;

/// A clock may be so far from others and count as right.
pub const OFFSET_MS_MAX: u64 = 1_500;

/// A clock that is wrong is ahead by up to so much.
pub const AHEAD_MS_MAX: i64 = 90_000;

/// How things go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temper {
    /// Servers are stopped in order and started anew, one at a time; everything else is well.
    Gentle,
    /// Servers die, stall and are cut off, and whatever else can go wrong does.
    Rough,
}

/// A trigger of the simulation.
#[derive(Debug, Clone)]
pub struct SimTrigger {
    /// Its id in the store.
    pub id: TriggerId,
    /// Its draft, as a person would write it.
    pub draft: Draft,
}

/// What is simulated.
#[derive(Debug, Clone)]
pub struct FleetSetting {
    /// How many servers there are.
    pub servers: usize,
    /// How many shards.
    pub shards: u16,
    /// How things go wrong.
    pub temper: Temper,
    /// What the network is like.
    pub weather: Weather,
    /// Whose clock is wrong, while things go wrong.
    pub apart: Option<NodeIndex>,
    /// The triggers that are due all the time.
    pub triggers: Vec<SimTrigger>,
}

impl fmt::Display for FleetSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, shards, temper, weather, .. } = self;
        write!(out, "{temper:?}: {servers} servers, {shards} shards, {weather:?} network")?;
        self.apart.map_or(Ok(()), |server| write!(out, ", the clock of {} is wrong", name(server)))
    }
}

/// What a server is called.
pub fn name(server: NodeIndex) -> String {
    format!("n{server}")
}

impl FleetSetting {
    /// The setting of a seed.
    pub fn of(dice: &mut Dice) -> Self {
        let temper = if dice.chance(25) { Temper::Gentle } else { Temper::Rough };
        let servers = dice.pick(&[2, 3, 3, 4]);
        let shards = dice.pick(&[1, 3, 5, 8]);
        let weather = match temper {
            Temper::Gentle => Weather::Calm,
            Temper::Rough => dice.pick(&[
                Weather::Calm,
                Weather::Calm,
                Weather::SlowThere,
                Weather::SlowBack,
                Weather::Lossy,
                Weather::Storm,
            ]),
        };
        let is_apart = temper == Temper::Rough && servers > 2 && dice.chance(25);
        let apart = is_apart.then(|| dice.pick(&[0, 1, 2]));
        let triggers = (0..12).map(|number| SimTrigger::of(number, shards, temper, dice)).collect();
        Self { servers, shards, temper, weather, apart, triggers }
    }

    /// The link of a server, and its clocks.
    pub fn site(&self, server: NodeIndex, dice: &mut Dice) -> Site {
        let NodeLinks { there, read, back } = self.node_links(server);
        let offset_ms = match self.apart {
            Some(apart) if apart == server => {
                dice.pick(&[-90_000, -60_000, -4_000, 4_000, 50_000, AHEAD_MS_MAX])
            }
            Some(_) | None => i64::try_from(dice.between(0, OFFSET_MS_MAX)).expect("short"),
        };
        Site {
            there,
            read,
            back,
            clocks: Clocks::new(cluster::rate(dice), cluster::rate(dice), wall_us(offset_ms)),
            stale_percent: 0,
            refused_percent: u64::from(self.weather != Weather::Calm),
            ambush: None,
        }
    }

    /// What a server's link is like when no fault affects it.
    pub fn node_links(&self, server: NodeIndex) -> NodeLinks {
        let ttls: Vec<Duration> = vec![TTL; self.servers];
        let (kind, weather, mode) = (StoreKind::Shared, self.weather, Mode::Automatic);
        let (stale_reads, hand_overs) = (false, false);
        let like = cluster::ClusterSetting { kind, weather, ttls, mode, stale_reads, hand_overs };
        node_links(&like, server)
    }

    /// Writes the triggers to an empty store, as a server would have left them.
    pub fn fill(&self, sim_store: &SimStore) {
        for SimTrigger { id, draft } in &self.triggers {
            let since = Instant(WALL_MS);
            let record = TriggerRecord {
                id: *id,
                draft: to_raw_value(draft).expect("a draft is plain"),
                created: since,
                written: since,
                author: "simulation".to_owned(),
                revision: 1,
                generation: 1,
                since,
            };
            let key = |text: String| Key::new(text).expect("a valid key");
            let name = draft.name.as_deref().expect("it has one");
            let commit = Commit::new()
                .put(key(trigger_key(id.shard, id.serial)), encode(FORMAT, &record))
                .put(key(name_key(id.project, name)), encode(FORMAT, &NameRecord { id: *id }));
            let said = sim_store.commit(0, &commit, 0).expect("it is open").said;
            said.expect("an unconditional commit to memory");
        }
    }
}

/// What a clock shows at the beginning that is ahead by so much.
pub fn wall_us(offset_ms: i64) -> u64 {
    (WALL_MS + offset_ms).unsigned_abs() * 1_000
}

impl SimTrigger {
    fn of(number: u16, shards: u16, temper: Temper, dice: &mut Dice) -> Self {
        let name = format!("bell-{number:02}");
        let (shard, serial) = (
            ShardId::of(ProjectId::DEFAULT, &name, shards),
            SerialId((WALL_MS.unsigned_abs() << 20) + u64::from(number)),
        );
        let mut draft = Draft { name: Some(name.clone()), ..Draft::default() };
        draft.schedule = Some(ScheduleDraft {
            every: Texts(vec![format!("{}s", STEP_MS / 1_000)]),
            phase: dice.chance(50).then(|| "1s".to_owned()),
            jitter: dice.chance(40).then(|| "1s".to_owned()),
            ..ScheduleDraft::default()
        });
        draft.webhook = Some(WebhookDraft {
            url: Some(format!("http://receiver.test/{name}")),
            timeout: Some(dice.pick(&["1s", "2s", "5s"]).to_owned()),
            ..WebhookDraft::default()
        });
        if temper == Temper::Rough {
            draft::policy(&mut draft, dice);
            // What pauses by itself is due no more.
            draft.pause_after = None;
        } else if dice.chance(40) {
            draft.delivery = Some("at_most_once".to_owned());
        }
        Self { id: TriggerId { shard, project: ProjectId::DEFAULT, serial }, draft }
    }

    /// Whether it is delivered at most once.
    pub fn is_once(&self) -> bool {
        self.draft.delivery.as_deref() == Some("at_most_once")
    }
}

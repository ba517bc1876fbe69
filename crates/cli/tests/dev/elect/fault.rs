//! What happens to the store or the way to it, on every engine: nobody leads who may not, and somebody leads again
//! without hands.

use rig::{PATIENCE, Road, Way, machine, until};
use store::clock::Stopwatch;

use super::engine::{Engine, on_every_engine};
use super::witness::Witness;
use super::*;

/// How long after the store takes writes again somebody must lead.
const BACK_WITHIN: Duration = Duration::from_secs(3);

/// How a leader is cut off.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Both,
    /// It hears nothing.
    Deaf,
    /// Nobody hears it.
    Mute,
}

impl Cut {
    fn apply(self, road: &Road, way: Way) {
        match self {
            Self::Both => road.both(way),
            Self::Deaf => road.back(way),
            Self::Mute => road.there(way),
        }
    }
}

/// Two candidates, each on a road of its own, and who watches them.
struct Pair {
    _dir: tempfile::TempDir,
    roads: [Road; 2],
    nodes: [String; 2],
    candidates: [Candidate; 2],
    witness: Witness,
}

impl Pair {
    /// Who campaigns in a project of this name disturbs nobody else.
    async fn start(engine: &Engine, project: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roads = [Road::to(engine.address()).await, Road::to(engine.address()).await];
        let nodes = ["anna", "bert"].map(|name| format!("{name}-{project}"));
        let candidates = [0, 1].map(|place| {
            let url = engine.url_at(roads[place].address());
            Candidate::start(dir.path(), &nodes[place], &url, &["--project", project])
        });
        let mut witness = Witness::new();
        for (node, candidate) in nodes.iter().zip(&candidates) {
            witness.watch(node, candidate).await;
            candidate.campaigns().await;
        }
        Self { _dir: dir, roads, nodes, candidates, witness }
    }

    /// Waits until one of them leads, and gives which.
    async fn leader(&self) -> usize {
        let [anna, bert] = &self.candidates;
        leader(&[anna, bert]).await
    }

    /// The same, when the witness has heard of it.
    async fn heard_leader(&self) -> usize {
        until("the witness hears who leads", PATIENCE, || async {
            let place = self.leader().await;
            (self.witness.latest().as_ref() == Some(&self.nodes[place])).then_some(place)
        })
        .await
    }

    /// Waits until the witness has heard that this one leads, after the other one.
    async fn hears_of(&self, place: usize) {
        let log = || self.candidates[place].log();
        until(&format!("{} leads:\n{}", self.nodes[place], log()), PATIENCE, || async {
            self.witness.latest().filter(|node| *node == self.nodes[place])
        })
        .await;
    }
}

async fn check_cut(engine: &Engine, cut: Cut) {
    let what = format!("{}-{cut:?}", engine.name()).to_lowercase();
    let mut pair = Pair::start(engine, &what).await;
    let place = pair.heard_leader().await;
    let other = 1 - place;
    cut.apply(&pair.roads[place], Way::Closed);
    // No renewal can have been sent after this and be acknowledged, so no validity reaches further than T from here.
    let since = pair.witness.now();
    pair.hears_of(other).await;
    let took = pair.witness.now().saturating_sub(since);
    let words = pair.witness.words();
    let last = words.iter().rfind(|word| word.node == pair.nodes[place]).unwrap();
    assert!(last.asked < since + T, "{what}: cut off at {since:?}, and {last:?}");
    let said = last.answered.saturating_sub(since);
    println!("{what}: said 1 until {said:?}, followed after {took:?}");
    cut.apply(&pair.roads[place], Way::Open);
    pair.candidates[other].kill();
    let opened = pair.witness.now();
    pair.hears_of(place).await;
    println!("{what}: leads again after {:?}", pair.witness.now().saturating_sub(opened));
    let terms = pair.witness.check();
    assert!(terms.len() >= 3, "{what}: {terms:?}");
}

async fn check_delay(engine: &Engine) {
    let pair = Pair::start(engine, "late").await;
    pair.leader().await;
    let delay = T * 3 / 2;
    for road in &pair.roads {
        road.back(Way::Slow(delay));
    }
    let begun = pair.witness.now();
    // Not a wait for anything: how long it lasts.
    tokio::time::sleep(4 * T).await;
    let over = pair.witness.now();
    for road in &pair.roads {
        road.back(Way::Open);
    }
    pair.witness.check_nobody(begun + T, over);
    let back = Stopwatch::start();
    pair.leader().await;
    let took = back.elapsed();
    println!("{}: leads again {took:?} after the last late answer was sent", engine.name());
    assert!(took < delay + BACK_WITHIN, "{}: {took:?}", engine.name());
    pair.witness.check();
}

async fn check_refused(engine: &Engine) {
    let name = engine.name();
    let dir = tempfile::tempdir().unwrap();
    let mut witness = Witness::new();
    let both = ["anna", "bert"].map(|node| Candidate::start(dir.path(), node, &engine.url(), &[]));
    for (node, candidate) in ["anna", "bert"].iter().zip(&both) {
        witness.watch(node, candidate).await;
        candidate.campaigns().await;
    }
    let both = [&both[0], &both[1]];
    leader(&both).await;
    engine.refuse().await;
    let begun = witness.now();
    // Not a wait for anything: how long it lasts.
    tokio::time::sleep(4 * T).await;
    for candidate in both {
        assert!(!candidate.leads().await, "{name}: {}", candidate.log());
    }
    witness.check_nobody(begun + T, witness.now());
    engine.accept().await;
    let back = Stopwatch::start();
    leader(&both).await;
    let took = back.elapsed();
    println!("{name}: leads again {took:?} after it takes writes");
    let logs = || both.map(|candidate| candidate.log()).join("\n");
    assert!(took < BACK_WITHIN, "{name}: {took:?}\n{}", logs());
    witness.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_either_way_on_any_engine_a_leader_says_0_before_its_validity_ends() {
    let _machine = machine::works().await;
    on_every_engine(|engine| async move {
        let cut = |cut| check_cut(&engine, cut);
        tokio::join!(cut(Cut::Both), cut(Cut::Deaf), cut(Cut::Mute));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_later_than_t_give_nobody_a_right_on_any_engine() {
    let _machine = machine::works().await;
    on_every_engine(|engine| async move { check_delay(&engine).await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_any_engine_refuses_writes_nobody_leads_and_soon_after_somebody_does() {
    let _machine = machine::works().await;
    on_every_engine(|engine| async move { check_refused(&engine).await }).await;
}

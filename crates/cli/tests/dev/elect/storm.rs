//! Five candidates that are killed, stopped and woken at random: at every instant at most one claims to lead.

use std::collections::BTreeMap;

use rig::{Random, machine};
use rustix::process::Signal;
use tokio::task::AbortHandle;

use super::engine::Engine;
use super::witness::Witness;
use super::*;

const CANDIDATES: usize = 5;

/// How many may be stopped at once.
const STOPPED_MAX: usize = 3;

/// One of them.
struct Contender {
    node: String,
    candidate: Candidate,
    is_stopped: bool,
    asking: AbortHandle,
}

struct Storm {
    dir: tempfile::TempDir,
    url: String,
    random: Random,
    born: usize,
    witness: Witness,
    contenders: Vec<Contender>,
    /// All who ever were, for their last words.
    outs: Vec<PathBuf>,
}

impl Storm {
    async fn enter(&mut self) {
        // Each has a name of its own: one who comes back at once would be told that it is there already.
        let node = format!("node-{}", self.born);
        self.born += 1;
        let candidate = Candidate::start(self.dir.path(), &node, &self.url, &[]);
        self.outs.push(candidate.out.clone());
        let asking = self.witness.watch(&node, &candidate).await;
        self.contenders.push(Contender { node, candidate, is_stopped: false, asking });
    }

    /// Something bad happens to somebody; every other time to whoever leads.
    async fn strike(&mut self) {
        let chance = usize::try_from(self.random.below(CANDIDATES as u64)).unwrap();
        let leads = self.witness.latest();
        let leader =
            self.contenders.iter().position(|contender| Some(&contender.node) == leads.as_ref());
        let place = leader.filter(|_| self.random.below(2) == 0).unwrap_or(chance);
        let stopped = self.contenders.iter().filter(|contender| contender.is_stopped).count();
        let contender = &mut self.contenders[place];
        if contender.is_stopped {
            contender.candidate.signal(Signal::CONT);
            contender.is_stopped = false;
        } else if stopped < STOPPED_MAX && self.random.below(2) == 0 {
            contender.candidate.signal(Signal::STOP);
            contender.is_stopped = true;
        } else {
            let mut gone = self.contenders.swap_remove(place);
            gone.candidate.kill();
            // Somebody else may get its port.
            gone.asking.abort();
            self.enter().await;
        }
    }
}

async fn check_storm(engine: &Engine, seed: u64, length: Duration) {
    println!("{}: seed {seed:#x}", engine.name());
    let mut storm = Storm {
        dir: tempfile::tempdir().unwrap(),
        url: engine.url(),
        random: Random::new(seed),
        born: 0,
        witness: Witness::new(),
        contenders: Vec::new(),
        outs: Vec::new(),
    };
    for _ in 0..CANDIDATES {
        storm.enter().await;
    }
    while storm.witness.now() < length {
        storm.strike().await;
        // Not a wait for anything: how often something happens.
        let pause = Duration::from_millis(100 + storm.random.below(700));
        tokio::time::sleep(pause).await;
    }
    for contender in &storm.contenders {
        contender.candidate.signal(Signal::CONT);
    }
    let all: Vec<&Candidate> =
        storm.contenders.iter().map(|contender| &contender.candidate).collect();
    leader(&all).await;
    let terms = storm.witness.check();
    println!(
        "{}: {} were born, {} led one after the other",
        engine.name(),
        storm.born,
        terms.len()
    );
    assert!(terms.len() > 1, "{terms:?}");
    // What they printed agrees: nobody led under another one's token.
    let mut tokens = BTreeMap::new();
    for out in &storm.outs {
        let text = fs::read_to_string(out).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for told in lines.filter(|told| told["event"] == "elected") {
            let token = told["token"].as_u64().unwrap();
            let node = tokens.entry(token).or_insert_with(|| told["node"].clone());
            assert_eq!(*node, told["node"], "token {token}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_stopped_and_woken_at_most_one_leads() {
    let _machine = machine::waits().await;
    check_storm(&Engine::redis(), 0x0005_7024, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn whoever_is_killed_stopped_and_woken_for_minutes_at_most_one_leads_on_any_engine() {
    let _machine = machine::works().await;
    for engine in Engine::all() {
        check_storm(&engine, 0x0005_0a4e, Duration::from_secs(120)).await;
    }
}

//! How soon a program runs elsewhere when the supervisor that had it is killed: two hundred times, of twenty holds at once.
//!
//! `WATCHBELL_QUICK` may name another binary than the one that is tested, for a measurement.

use witness::Report;
use witness::report::Figures;

use super::*;
use crate::dev::hold::signer::patient_witness;
use crate::dev::process::measured;

const HOLDS: usize = 20;
const ROUNDS: usize = 10;

const T: Duration = Duration::from_secs(1);

/// How soon it runs elsewhere, 99 times of 100.
const FOLLOWED_MAX: Duration = Duration::from_millis(1_750);

/// One hold, with two machines.
struct Trial {
    name: String,
    /// Who runs the program, and who waits.
    holders: [(String, Holder); 2],
}

struct Trials {
    dir: tempfile::TempDir,
    program: PathBuf,
    url: String,
    witness: witness::Witness,
    born: usize,
}

impl Trials {
    /// A supervisor of this hold, on a machine of its own.
    fn start(&mut self, hold: &str) -> (String, Holder) {
        let node = format!("{hold}-{}", self.born);
        self.born += 1;
        let mut command = Command::new(&self.program);
        command.args(["hold", hold, "--node", &node, "--ttl", "1s", "--output", "json"]);
        command.arg("--lock-dir").arg(self.dir.path().join(&node)).arg("--").arg(&self.program);
        command.args(["demo-signer", "--witness", &self.witness.address().to_string()]);
        command.env("WATCHBELL_STORE", &self.url);
        (node.clone(), Holder::spawn(command, self.dir.path(), &node))
    }

    async fn start_all(&mut self) -> Vec<Trial> {
        let mut all = Vec::new();
        for number in 0..HOLDS {
            let name = format!("hold-{number}");
            let first = self.start(&name);
            first.1.runs().await;
            let second = self.start(&name);
            all.push(Trial { name, holders: [first, second] });
        }
        all
    }

    /// When the program of this node acted first, if it has.
    fn acted(report: &Report, hold: &str, node: &str) -> Option<Duration> {
        let hold = report.holds.iter().find(|it| it.hold == hold)?;
        Some(hold.instances.iter().find(|it| it.who.node == node)?.first)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_programs_whose_supervisors_are_killed_nearly_all_run_elsewhere_in_time() {
    let _machine = machine::alone().await;
    let redis = Setup::durable().start();
    let mut trials = Trials {
        dir: tempfile::tempdir().unwrap(),
        program: measured(),
        url: redis.url(),
        witness: patient_witness().await,
        born: 0,
    };
    let begun = Stopwatch::start();
    let mut all = trials.start_all().await;
    println!("started after {:.1?}", begun.elapsed());
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        for trial in &all {
            trial.holders[1].1.event("holder", 1).await;
        }
        let mut killed = Vec::new();
        for trial in &mut all {
            killed.push(trials.witness.report().watched);
            trial.holders[0].1.kill();
            // Not a wait for anything: at which moments of their leases they are killed.
            tokio::time::sleep(T / 20).await;
        }
        for (trial, killed) in all.iter().zip(killed) {
            let (node, holder) = &trial.holders[1];
            let acted = until(&format!("{node} runs it:\n{}", holder.log()), PATIENCE, || async {
                Trials::acted(&trials.witness.report(), &trial.name, node)
            })
            .await;
            took.push(acted.saturating_sub(killed));
        }
        for trial in &mut all {
            trial.holders.swap(0, 1);
            trial.holders[1] = trials.start(&trial.name);
        }
    }
    println!("ended after {:.1?}", begun.elapsed());
    let report = trials.witness.report();
    assert!(report.all_is_well, "{}", report.text(100));
    let late = took.iter().filter(|took| **took > FOLLOWED_MAX).count();
    let figures = Figures::of(took.clone()).unwrap();
    println!("runs elsewhere after: {figures:?}; {late} later than {FOLLOWED_MAX:?}");
    print!("{}", histogram(&took));
    assert_eq!(took.len(), HOLDS * ROUNDS);
    assert!(late * 100 <= took.len(), "{late} of {}", took.len());
}

/// How often it took how long, by tenths of a second.
fn histogram(lengths: &[Duration]) -> String {
    let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
    for length in lengths {
        *counts.entry(length.as_millis() / 100).or_default() += 1;
    }
    let line = |(tenths, count): (u128, usize)| {
        let (from, bar) =
            (Duration::from_millis(100) * u32::try_from(tenths).unwrap(), "#".repeat(count));
        format!("{from:>6.1?} {bar} {count}\n")
    };
    counts.into_iter().map(line).collect()
}

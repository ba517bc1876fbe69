//! Runs seeds, and tells which ones went wrong.

use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use engine::mutant::Mutant;
use sim::run::{Report, run};
use sim::world::{Tracing, seconds};

/// Simulate whole clusters with faults, and look for broken promises
///
/// Everything follows from the seed: a run that went wrong can be had again with --seed N --trace.
#[derive(Debug, Parser)]
#[command(
    name = "sim",
    after_help = "Examples:\n  \
        cargo run --release -p watchbell-sim -- --seeds 0..20000\n  \
        cargo run --release -p watchbell-sim -- --seed 136 --trace\n  \
        cargo run --release -p watchbell-sim -- --seeds 0..500 --mutant bury-by-name\n\n\
        Ends with 0 if every promise was kept, and with 1 if one was broken."
)]
struct Args {
    /// Run these seeds, the last one not included
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, required_unless_present = "seed")]
    seeds: Option<Range<u64>>,
    /// Run this seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Show what happens, line by line
    #[arg(long, requires = "seed", conflicts_with = "seeds")]
    trace: bool,
    /// Switch on this bug
    #[arg(long, value_name = "NAME", value_parser = parse_mutant)]
    mutant: Option<Mutant>,
}

/// More seeds than anybody will ever run.
const SEED_MAX: u64 = 1 << 60;

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(low, high)| {
        let (low, high) = (low.parse::<u64>().ok()?, high.parse::<u64>().ok()?);
        (low < high && high <= SEED_MAX).then_some(low..high)
    });
    bounds.ok_or_else(|| "the first seed, two dots, and a greater one, such as 0..200".into())
}

fn parse_mutant(text: &str) -> Result<Mutant, String> {
    let known = Mutant::ALL.into_iter().find(|mutant| mutant.name() == text);
    known.ok_or_else(|| format!("one of {}", Mutant::ALL.map(Mutant::name).join(", ")))
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(seed) = args.seed {
        let tracing = if args.trace { Tracing::On } else { Tracing::Off };
        let report = run(seed, args.mutant, tracing);
        // Whoever reads it may have seen enough.
        let _closed = std::io::stdout().write_all(report.trace.as_bytes());
        return conclude(&tell(seed, &report, &mut Sum::default()), args.mutant);
    }
    let seeds = args.seeds.expect("one of the two is required");
    run_all(seeds, args.mutant)
}

/// Runs seeds on all cores, and tells of each that went wrong as soon as it did.
fn run_all(seeds: Range<u64>, bug: Option<Mutant>) -> ExitCode {
    let (next, sum) = (AtomicU64::new(seeds.start), Mutex::new((Sum::default(), Vec::new())));
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end {
                        return;
                    }
                    let report = run(seed, bug, Tracing::Off);
                    let mut sum = sum.lock().expect("nobody panics with it");
                    let broken = tell(seed, &report, &mut sum.0);
                    sum.1.extend(broken);
                }
            });
        }
    });
    let (sum, mut broken) = sum.into_inner().expect("nobody panics with it");
    broken.sort_unstable();
    say(&sum);
    conclude(&broken, bug)
}

/// What all runs together were like.
#[derive(Default)]
struct Sum {
    runs: u64,
    length: u64,
    steps: u64,
    commits: u64,
    effects: u64,
    takes: u64,
    burials: u64,
    sessions: u64,
}

impl std::fmt::Display for Sum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} runs, {:.1} simulated hours, {} steps, {} commits, {} effects, {} sessions, {} burials, {} take-overs",
            self.runs,
            seconds(self.length) / 3_600.0,
            self.steps,
            self.commits,
            self.effects,
            self.sessions,
            self.burials,
            self.takes
        )
    }
}

fn tell(seed: u64, report: &Report, sum: &mut Sum) -> Vec<u64> {
    sum.runs += 1;
    sum.length += report.length;
    sum.steps += report.steps;
    sum.commits += report.counts.commits;
    sum.effects += report.counts.effects;
    sum.takes += report.counts.takes;
    sum.burials += report.counts.burials;
    sum.sessions += report.counts.sessions;
    match &report.violation {
        Some(violation) => {
            say(&format_args!("seed {seed} ({}): {violation}", report.setting));
            vec![seed]
        }
        None => Vec::new(),
    }
}

fn conclude(broken: &[u64], bug: Option<Mutant>) -> ExitCode {
    let Some(first) = broken.first() else {
        say(&"every promise was kept");
        return ExitCode::SUCCESS;
    };
    let bug = bug.map(|bug| format!(" --mutant {}", bug.name())).unwrap_or_default();
    let len = broken.len();
    say(&format_args!("{len} went wrong; look at the first with --seed {first}{bug} --trace"));
    ExitCode::FAILURE
}

/// Says a line. Whoever reads it may have seen enough.
fn say(what: &dyn std::fmt::Display) {
    let _closed = writeln!(std::io::stdout(), "{what}");
}

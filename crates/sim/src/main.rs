//! Runs seeds, and tells which ones went wrong.

use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use engine::mutant::{self, Mutant};
use sim::clock::MS;
use sim::fleet::Load;
use sim::hold::HoldReport;
use sim::hold::ancestor::Ancestor;
use sim::shard::setting::ShardSetting;
use sim::world::{Tracing, seconds};

/// Simulate whole clusters with faults, and look for broken promises
///
/// Everything follows from the seed: a run that went wrong can be had again with --seed N --trace.
#[derive(Debug, Parser)]
#[command(
    name = "sim",
    after_help = "Examples:\n  \
        cargo run --profile sim -p watchbell-sim -- --seeds 0..20000\n  \
        cargo run --profile sim -p watchbell-sim -- --seed 136 --trace\n  \
        cargo run --profile sim -p watchbell-sim -- --seeds 0..500 --mutant bury-by-name\n  \
        cargo run --profile sim -p watchbell-sim -- --shard --seeds 0..20000\n  \
        cargo run --profile sim -p watchbell-sim -- --fleet --seeds 0..2000\n  \
        cargo run --profile sim -p watchbell-sim -- --fleet --queues --seeds 0..2000\n  \
        cargo run --profile sim -p watchbell-sim -- --hold --seeds 0..20000\n  \
        cargo run --profile sim -p watchbell-sim -- --ring --seeds 0..20000\n\n\
        Ends with 0 if every promise was kept, and with 1 if one was broken."
)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
struct SimArgs {
    /// Simulate one shard and its triggers instead of a cluster and its leases
    #[arg(long)]
    shard: bool,
    /// Simulate one shard, most of whose triggers feed a queue
    #[arg(long, conflicts_with = "shard")]
    feeding: bool,
    /// Simulate one shard, and workers for which runs are in turn
    #[arg(long, conflicts_with_all = ["shard", "feeding"])]
    pick: bool,
    /// Simulate whole servers that share the shards
    #[arg(long, conflicts_with_all = ["shard", "feeding", "pick"])]
    fleet: bool,
    /// Let workers carry out runs of queues besides
    #[arg(long, requires = "fleet")]
    queues: bool,
    /// Simulate programs that are held on one machine at a time
    #[arg(long, conflicts_with_all = ["shard", "feeding", "pick", "fleet"])]
    hold: bool,
    /// Simulate rings that several servers advance
    #[arg(long, conflicts_with_all = ["shard", "feeding", "pick", "fleet", "hold"])]
    ring: bool,
    /// Let an ancestor of Watchbell hold them, of which nothing is promised, and tell how often two run at once
    #[arg(long, value_name = "WHICH", requires = "hold", value_parser = parse_ancestor, conflicts_with = "mutant")]
    ancestor: Option<Ancestor>,
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

fn parse_ancestor(text: &str) -> Result<Ancestor, String> {
    match text {
        "single-executor" => Ok(Ancestor::SingleExecutor),
        "redis-leader" => Ok(Ancestor::RedisLeader),
        _ => Err("one of single-executor, redis-leader".into()),
    }
}

fn parse_mutant(text: &str) -> Result<Mutant, String> {
    if !mutant::BUILT_IN {
        return Err("a release build has no bugs to switch on: build with --profile sim".into());
    }
    let known = || {
        let of_leases = Mutant::LEASE.into_iter().chain(Mutant::HOLD);
        let of_leases = of_leases.chain(Mutant::RING);
        let of_shards = of_leases.chain(Mutant::SHARD).chain(Mutant::QUEUE).chain(Mutant::FEED);
        of_shards.chain(Mutant::PICK)
    };
    known().find(|mutant| mutant.name() == text).ok_or_else(|| {
        let names: Vec<String> = known().map(Mutant::name).collect();
        format!("one of {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let args = SimArgs::parse();
    if let Some(seed) = args.seed {
        let tracing = if args.trace { Tracing::On } else { Tracing::Off };
        let result = args.run(seed, tracing);
        // Whoever reads it may have seen enough.
        let _closed = std::io::stdout().write_all(result.trace.as_bytes());
        return args.conclude(&result.tell(seed));
    }
    let seeds = args.seeds.clone().expect("one of the two is required");
    args.run_all(&seeds)
}

/// What came of a seed.
struct SeedResult {
    trace: String,
    /// What went wrong, and in which setting.
    broken: Option<String>,
    hours: f64,
    counts: NamedCounts,
}

/// What there was of each thing.
type NamedCounts = Vec<(u64, &'static str)>;

impl SimArgs {
    fn run(&self, seed: u64, tracing: Tracing) -> SeedResult {
        if self.shard {
            shard(ShardSetting::of(seed), self.mutant, tracing)
        } else if self.pick {
            pick(seed, self.mutant)
        } else if self.feeding {
            shard(ShardSetting::of(seed).feeding(), self.mutant, tracing)
        } else if self.fleet {
            let load = if self.queues { Load::TriggersAndQueues } else { Load::Triggers };
            fleet(load, seed, self.mutant, tracing)
        } else if let Some(ancestor) = self.ancestor {
            of_ancestor(&sim::hold::run_ancestor(seed, ancestor, tracing))
        } else if self.hold {
            hold(seed, self.mutant, tracing)
        } else if self.ring {
            ring(seed, self.mutant, tracing)
        } else {
            lease(seed, self.mutant, tracing)
        }
    }

    /// Runs seeds on all cores, and tells of each that went wrong as soon as it did.
    fn run_all(&self, seeds: &Range<u64>) -> ExitCode {
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
                        let result = self.run(seed, Tracing::Off);
                        let mut sum = sum.lock().expect("nobody panics with it");
                        sum.1.extend(result.tell(seed));
                        sum.0.add(&result);
                    }
                });
            }
        });
        let (sum, mut broken) = sum.into_inner().expect("nobody panics with it");
        broken.sort_unstable();
        say(&sum);
        self.conclude(&broken)
    }

    fn conclude(&self, broken: &[u64]) -> ExitCode {
        if self.ancestor.is_some() {
            // Nothing was promised.
            return ExitCode::SUCCESS;
        }
        let Some(first) = broken.first() else {
            say(&"every promise was kept");
            return ExitCode::SUCCESS;
        };
        let bug = self.mutant.map(|bug| format!(" --mutant {}", bug.name())).unwrap_or_default();
        let kinds = [
            (self.shard, "--shard "),
            (self.pick, "--pick "),
            (self.feeding, "--feeding "),
            (self.queues, "--fleet --queues "),
            (self.fleet, "--fleet "),
            (self.hold, "--hold "),
            (self.ring, "--ring "),
        ];
        let kind = kinds.into_iter().find(|(is_it, _)| *is_it).map_or("", |(_, kind)| kind);
        let len = broken.len();
        say(&format_args!(
            "{len} went wrong; look at the first with {kind}--seed {first}{bug} --trace"
        ));
        ExitCode::FAILURE
    }
}

fn lease(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> SeedResult {
    let report = sim::run::run(seed, bug, tracing);
    let counts = &report.counts;
    SeedResult {
        broken: report.violation.map(|violation| format!("({}): {violation}", report.setting)),
        hours: seconds(report.length) / 3_600.0,
        counts: vec![
            (report.steps, "steps"),
            (counts.commits, "commits"),
            (counts.effects, "effects"),
            (counts.sessions, "sessions"),
            (counts.burials, "burials"),
            (counts.takes, "take-overs"),
            (counts.hand_overs, "hand-overs"),
            (counts.heirs_gone, "successors gone"),
        ],
        trace: report.trace,
    }
}

fn hold(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> SeedResult {
    let report = sim::hold::run(seed, bug, tracing);
    let counts = &report.counts;
    SeedResult {
        broken: report.broken().map(|broken| format!("({}): {broken}", report.setting)),
        hours: seconds(report.length) / 3_600.0,
        counts: vec![
            (counts.starts, "starts"),
            (counts.takes, "take-overs"),
            (counts.given_up, "given up"),
            (counts.unconfirmed, "ended unconfirmed"),
            (counts.exits, "exits"),
            (counts.raised, "risks told"),
            (counts.woke_late, "overlaps of a waking machine"),
            (counts.beyond, "overlaps beyond the limits"),
        ],
        trace: report.trace,
    }
}

fn ring(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> SeedResult {
    let report = sim::ring::run(seed, bug, tracing);
    let counts = &report.counts;
    SeedResult {
        broken: report.broken().map(|broken| format!("({}): {broken}", report.setting)),
        hours: seconds(report.length) / 3_600.0,
        counts: vec![
            (counts.turns, "turns"),
            (counts.skipped, "slots skipped"),
            (counts.take_overs, "take-overs"),
            (counts.joins, "joins"),
            (counts.gone, "members gone"),
            (counts.passed, "passed on"),
            (counts.accepted, "accepted"),
            (counts.told, "told"),
            (counts.gaps, "gaps told"),
            (counts.generations, "generations"),
        ],
        trace: report.trace,
    }
}

fn of_ancestor(report: &HoldReport) -> SeedResult {
    let counts = &report.counts;
    let (overlaps, ms) = (counts.overlaps, counts.overlapped / MS);
    SeedResult {
        broken: None,
        hours: seconds(report.length) / 3_600.0,
        counts: vec![
            (counts.starts, "starts"),
            (u64::from(overlaps > 0), "runs in which two executed at once"),
            (overlaps, "overlaps"),
            (ms, "ms of them"),
        ],
        trace: report.trace.clone(),
    }
}

fn shard(setting: ShardSetting, bug: Option<Mutant>, tracing: Tracing) -> SeedResult {
    let report = sim::shard::run_in(setting, bug, tracing);
    let counts = &report.counts;
    SeedResult {
        broken: report.violation.map(|violation| format!("({}): {violation}", report.setting)),
        hours: Duration::from_millis(counts.length).as_secs_f64() / 3_600.0,
        counts: vec![
            (counts.owners, "owners"),
            (counts.crashes, "crashes"),
            (counts.hand_overs, "hand-overs"),
            (counts.called_off, "called off"),
            (counts.reports, "reports"),
            (counts.commands, "commands"),
            (counts.commits, "commits"),
            (counts.departures, "departures"),
            (counts.given, "given to workers"),
            (counts.ended, "runs ended"),
            (counts.skipped, "slots skipped"),
        ],
        trace: report.trace,
    }
}

fn pick(seed: u64, bug: Option<Mutant>) -> SeedResult {
    let report = sim::shard::pick::run(seed, bug);
    let counts = report.counts;
    SeedResult {
        broken: report.violation,
        hours: Duration::from_millis(counts.length).as_secs_f64() / 3_600.0,
        counts: vec![
            (counts.owners, "owners"),
            (counts.killed, "workers killed"),
            (counts.drained, "drained"),
            (counts.chosen, "runs chosen for"),
            (counts.parts, "parts"),
            (counts.passed, "passed on"),
            (counts.by_others, "carried out by others"),
        ],
        trace: String::new(),
    }
}

fn fleet(load: Load, seed: u64, bug: Option<Mutant>, tracing: Tracing) -> SeedResult {
    let report = sim::fleet::run_under(load, seed, bug, tracing);
    let counts = &report.counts;
    SeedResult {
        broken: report.violation.map(|violation| format!("({}): {violation}", report.setting)),
        hours: seconds(report.length) / 3_600.0,
        counts: vec![
            (counts.starts, "starts"),
            (counts.kills, "kills"),
            (counts.stops, "stops"),
            (counts.pauses, "pauses"),
            (counts.cuts, "cuts"),
            (counts.outages, "outages"),
            (counts.calls, "calls"),
            (counts.again, "again"),
            (counts.slots, "slots"),
            (counts.begun, "begun"),
            (counts.stormy, "of them in the storm"),
            (counts.unbegun, "told and never begun"),
        ],
        trace: report.trace,
    }
}

impl SeedResult {
    /// Tells of it, if it went wrong.
    fn tell(&self, seed: u64) -> Vec<u64> {
        let Some(broken) = &self.broken else { return Vec::new() };
        say(&format_args!("seed {seed} {broken}"));
        vec![seed]
    }
}

/// What all runs together were like.
#[derive(Default)]
struct Sum {
    runs: u64,
    hours: f64,
    counts: NamedCounts,
}

impl Sum {
    fn add(&mut self, result: &SeedResult) {
        self.runs += 1;
        self.hours += result.hours;
        if self.counts.is_empty() {
            self.counts.clone_from(&result.counts);
            return;
        }
        for (sum, count) in self.counts.iter_mut().zip(&result.counts) {
            sum.0 += count.0;
        }
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} runs, {:.1} simulated hours", self.runs, self.hours)?;
        self.counts.iter().try_for_each(|(count, name)| write!(out, ", {count} {name}"))
    }
}

/// Says a line. Whoever reads it may have seen enough.
fn say(what: &dyn std::fmt::Display) {
    let _closed = writeln!(std::io::stdout(), "{what}");
}

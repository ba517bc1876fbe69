//! `watchbell bench`, as it is typed.

use std::path::PathBuf;

use clap::Subcommand;
use engine::limits::{BENCH_RATE_MAX, MEASURE_SECONDS_MAX};

use super::{OutputFormat, examples};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    Fires(FiresArgs),
    Overload(OverloadArgs),
    Queue(QueueBenchArgs),
}

/// Measure how many webhooks per second a server sends and records, and how late they leave
///
/// A store is filled with triggers that are due every second, a server is started on it, and this process
/// takes its webhooks. All of them share this machine. With more than a server can do it is told what becomes of it then:
/// its memory, how soon its API answers, and how long it takes to stop.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell bench fires\n  \
       watchbell bench fires --rates 100000 --seconds 30\n  \
       watchbell bench fires --rates 10000,30000 --seconds 60\n  \
       watchbell bench fires --store redis://127.0.0.1/15"
))]
pub(crate) struct FiresArgs {
    /// Webhooks that are due every second; several numbers with commas between them
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000],
        value_parser = clap::value_parser!(u32).range(1..=BENCH_RATE_MAX))]
    pub(crate) rates: Vec<u32>,
    /// For how long to measure each of them
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=MEASURE_SECONDS_MAX))]
    pub(crate) seconds: u16,
    /// The binary whose server is measured, to compare two of them; this one otherwise
    #[arg(long, value_name = "PATH", hide = true)]
    pub(crate) server: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) site: BenchSite,
}

/// Measure what three times as much as a server can do does to it
///
/// First the rate of webhooks is looked for that a server just does, and measured for a minute. Then three times as
/// many are due: how many of them are done, what becomes of memory, how soon the API answers meanwhile, and how long does
/// a stop take? The server, its receiver and its store share this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell bench overload\n  \
       watchbell bench overload --full 20000 --seconds 600"
))]
pub(crate) struct OverloadArgs {
    /// Webhooks per second that a server just does; looked for otherwise
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=BENCH_RATE_MAX / 3))]
    pub(crate) full: Option<u32>,
    /// For how long three times as much is due
    #[arg(long, value_name = "N", default_value_t = 600,
        value_parser = clap::value_parser!(u16).range(1..=MEASURE_SECONDS_MAX))]
    pub(crate) seconds: u16,
    #[command(flatten)]
    pub(crate) site: BenchSite,
}

/// Measure how many runs per second a queue takes, gives and ends, and how soon a run is started
///
/// A server is started on a store, and this process submits runs in batches, claims them and completes them, each step
/// durable. Runs do nothing. All of them share this machine. Then it is measured how soon a run is started that nothing keeps
/// waiting, and at half of the load.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell bench queue\n  \
       watchbell bench queue --batch 1 --clients 32\n  \
       watchbell bench queue --waiting 1000000\n  \
       watchbell bench queue --store redis://127.0.0.1/15"
))]
pub(crate) struct QueueBenchArgs {
    /// Runs in one submission, and in one claim
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) batch: u32,
    /// Clients that submit, and workers, at the same time
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) clients: u32,
    /// Runs that wait all the time
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(0..=2_000_000))]
    pub(crate) waiting: u64,
    /// For how long to measure
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=MEASURE_SECONDS_MAX))]
    pub(crate) seconds: u16,
    /// The process of the store's engine, whose processor time, with its children's, is told as well
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) engine: Option<u32>,
    #[command(flatten)]
    pub(crate) site: BenchSite,
}

/// Where something is measured, and how that is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchSite {
    /// The store to measure on, which must be empty and is emptied again; a file store of its own otherwise
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Where file stores are made meanwhile: a directory on the disk that matters
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// How to show what was found
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;

    #[test]
    fn numbers_are_taken_up_to_their_limits_and_refused_one_past_them() {
        let parse = |flag: &str, value: i64| {
            Args::try_parse_from(["watchbell", "bench", "fires", flag, &value.to_string()])
        };
        for (flag, max) in [("--rates", BENCH_RATE_MAX), ("--seconds", MEASURE_SECONDS_MAX)] {
            assert!(parse(flag, 1).is_ok() && parse(flag, max).is_ok(), "{flag}");
            assert!(parse(flag, 0).is_err() && parse(flag, max + 1).is_err(), "{flag}");
        }
    }
}

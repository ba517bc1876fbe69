//! `-- triggers`, as it is typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

const COUNT_MAX: i64 = 20_000_000;
const RATE_MAX: i64 = 1_000_000;
const SECONDS_MAX: i64 = 3_600;
const SERVERS_MAX: i64 = 16;
const ACTION_BYTES_MIN: i64 = 24;
const ACTION_BYTES_MAX: i64 = 10_000;

/// Measure servers with triggers, from outside
#[derive(Debug, Parser)]
#[command(name = "watchbell-bench triggers")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) measurement: Measurement,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Measurement {
    Memory(MemoryArgs),
    Lateness(LatenessArgs),
    Fires(FiresArgs),
    Idle(IdleArgs),
    Takeover(TakeoverArgs),
    /// Take webhooks, and count them; told what to do on stdin
    #[command(hide = true)]
    Receiver(ReceiverArgs),
    /// Send what webhooks send, with nothing behind it
    #[command(hide = true)]
    Bare(BareArgs),
}

/// Measure the memory of a server with so many triggers, and how long it takes to start
#[derive(Debug, clap::Args)]
pub(crate) struct MemoryArgs {
    /// How many triggers; several numbers with commas between them
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [100_000, 1_000_000],
        value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    pub(crate) count: Vec<u32>,
    /// Bytes of each trigger's path and body, which it shares with no other
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(ACTION_BYTES_MIN..=ACTION_BYTES_MAX))]
    pub(crate) action_bytes: u16,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Measure how late webhooks arrive
///
/// Triggers are spread over time by their phase and a jitter of a second. With --burst there is a second
/// measurement, in which so many slots lie on one second, every ten seconds, and all other triggers rest.
#[derive(Debug, clap::Args)]
pub(crate) struct LatenessArgs {
    /// How many triggers
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    pub(crate) count: u32,
    /// How many of them fire in a second; divides their number
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=RATE_MAX))]
    pub(crate) rate: u32,
    /// For how long to measure
    #[arg(long, value_name = "N", default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=SECONDS_MAX))]
    pub(crate) seconds: u16,
    /// Measure also with so many slots on one second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RATE_MAX))]
    pub(crate) burst: Option<u32>,
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Measure how many webhooks per second are sent and recorded, beside a bare client loop
#[derive(Debug, clap::Args)]
pub(crate) struct FiresArgs {
    /// For how long to measure each time
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=SECONDS_MAX))]
    pub(crate) seconds: u16,
    /// How often Watchbell and the bare loop take turns
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// Triggers that are due every second at full speed: more than can be done
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=RATE_MAX))]
    pub(crate) offered: u32,
    /// Fires per second at which commits are counted as well
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [100, 1_000, 10_000],
        value_parser = clap::value_parser!(u32).range(1..=RATE_MAX))]
    pub(crate) rates: Vec<u32>,
    #[command(flatten)]
    pub(crate) on: On,
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Measure what a server costs while nothing is due
#[derive(Debug, clap::Args)]
pub(crate) struct IdleArgs {
    /// How many triggers
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    pub(crate) count: u32,
    /// For how long to measure
    #[arg(long, value_name = "N", default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=SECONDS_MAX))]
    pub(crate) seconds: u16,
    #[command(flatten)]
    pub(crate) on: On,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Measure how long triggers have no server when theirs is killed, and when it leaves in order
///
/// Two servers share a store. One is killed, and the other one has its triggers as soon as it has noticed and read them.
/// Then the one that was killed comes back, is given its shards again, and is told to stop.
#[derive(Debug, clap::Args)]
pub(crate) struct TakeoverArgs {
    /// The store to measure on, which must be empty and is emptied again
    #[arg(long, value_name = "URL")]
    pub(crate) store: String,
    /// How many triggers each of the two servers has, or nearly so; several numbers with commas between them
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1_000, 20_000, 300_000],
        value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX / 2))]
    pub(crate) count: Vec<u32>,
    /// How often a server is killed, and how often it leaves
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What servers are measured on.
#[derive(Debug, clap::Args)]
pub(crate) struct On {
    /// The store to measure on, which must be empty and is emptied again; a file store of its own otherwise
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// How many servers share the store
    #[arg(long, value_name = "N", default_value_t = 1, requires = "store",
        value_parser = clap::value_parser!(u16).range(1..=SERVERS_MAX))]
    pub(crate) servers: u16,
}

/// Whom webhooks call.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Target {
    /// Over how many hosts the webhooks are spread
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) hosts: u16,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The binary that is measured
    #[arg(long, value_name = "PATH", default_value = "target/release/watchbell")]
    pub(crate) watchbell: PathBuf,
    /// Where stores are made while it measures: a directory on the disk that matters
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// How to show what was found
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReceiverArgs {
    /// On how many ports to listen
    #[arg(long, default_value_t = 1)]
    pub(crate) hosts: u16,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BareArgs {
    /// Whom to call
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) to: Vec<SocketAddr>,
    /// How many connections, over all
    #[arg(long, default_value_t = 64)]
    pub(crate) connections: usize,
    /// Bytes of path and body
    #[arg(long)]
    pub(crate) action_bytes: u16,
    /// When to stop: after so many seconds
    #[arg(long, default_value_t = 3_600)]
    pub(crate) seconds: u64,
    /// When to stop: after so many requests
    #[arg(long, default_value_t = u64::MAX)]
    pub(crate) requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_up_to_their_limits_and_refused_one_past_them() {
        let parse = |verb: &str, flag: &str, value: i64| {
            let value = value.to_string();
            let mut words = vec!["triggers", verb, flag, &value];
            if matches!(verb, "fires" | "takeover") {
                words.extend(["--store", "redis://127.0.0.1"]);
            }
            Args::try_parse_from(words)
        };
        for (verb, flag, min, max) in [
            ("memory", "--count", 1, COUNT_MAX),
            ("memory", "--action-bytes", ACTION_BYTES_MIN, ACTION_BYTES_MAX),
            ("lateness", "--rate", 1, RATE_MAX),
            ("idle", "--seconds", 1, SECONDS_MAX),
            ("fires", "--servers", 1, SERVERS_MAX),
            ("takeover", "--count", 1, COUNT_MAX / 2),
        ] {
            assert!(parse(verb, flag, min).is_ok() && parse(verb, flag, max).is_ok(), "{flag}");
            assert!(parse(verb, flag, min - 1).is_err() && parse(verb, flag, max + 1).is_err());
        }
    }
}

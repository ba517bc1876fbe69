//! `watchbell hold`, as it is typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use engine::limits::{
    ELECT_WAIT_MAX, HOLD_HEALTH_FAILURES_MAX, HOLD_HEALTH_INTERVAL_MAX, HOLD_HEALTH_INTERVAL_MIN,
    HOLD_OUTPUT_BYTES_MIN, HOLD_OUTPUT_FILES_MAX, HOLD_STOP_TIME_MAX, LEASE_TTL_MAX, LEASE_TTL_MIN,
};

use super::elect::between;
use super::{OutputFormat, address, examples};
use crate::args::pass::PassArgs;
use crate::args::worker::{Isolate, bytes};

/// Run a program on at most one machine, and start it elsewhere when that machine dies
///
/// Of all that hold the same NAME at most one runs its program at a time. The program needs not know of it. When the store
/// does not answer, it is told to end after 0.6 of the TTL, by SIGTERM, and all of it is killed after 0.85, also if this
/// process is killed or stopped; nobody else starts it before 1.25. When the program ends it is started again, after a pause;
/// when it ends five times within a minute, another one shall try.
///
/// SIGTERM and Ctrl-C end the program and then give it up, so that another one starts it at once; the second time they kill
/// it. HUP, USR1, USR2, QUIT, ALRM and WINCH are passed on to it. What it prints is passed on, and on stdout there is nothing
/// else: each transition is a line on stderr, or on stdout if --output-file has what the program prints. The program finds
/// WATCHBELL_TOKEN, WATCHBELL_HOLD and WATCHBELL_DEADLINE_FILE
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell hold mailer --store redis://cache.example.com:6379 -- /usr/local/bin/mailer --queue 7\n  \
       watchbell hold mailer --store etcd://10.0.0.1,10.0.0.2,10.0.0.3/watchbell --ttl 2s \\\n      \
       --health 'curl -fsS http://127.0.0.1:8080/health' --metrics 127.0.0.1:9834 -- mailer\n  \
       WATCHBELL_KEY_FILE=node.key watchbell hold mailer \\\n      \
       --server https://bells.example.com:7400 --mode manual -- mailer"
))]
pub(crate) struct HoldArgs {
    /// What to hold: letters from a to z, digits, '.', '_' and '-'
    pub(crate) name: String,
    /// The program and its arguments, behind two dashes
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
    /// Where those meet who hold it: the kind of store, a colon, and the place
    #[arg(long, value_name = "URL", env = "WATCHBELL_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// A Watchbell server instead of a store; counts before WATCHBELL_STORE
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// How long the program may run after a renewal; 1s or more [default: 5s]
    ///
    /// There are five renewals in that time; after a crash another one starts it after 1.25 times as long. A weak kill
    /// (--isolate group) needs 2.7s or more.
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_TTL", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// Whether a new holder may begin at once, or a person has to approve it
    #[arg(long, value_enum, env = "WATCHBELL_MODE", default_value = "auto")]
    pub(crate) mode: ModeName,
    /// Run this by sh to know whether the program is well: it is if that exits with 0
    #[arg(long, value_name = "COMMAND", env = "WATCHBELL_HEALTH")]
    pub(crate) health: Option<String>,
    /// How long from one health command to the next, and how long each may take
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_HEALTH_INTERVAL", default_value = "10s",
        hide_short_help = true, value_parser = health_interval)]
    pub(crate) health_interval: Duration,
    /// How many health commands in a row must fail until another one shall run the program
    #[arg(long, value_name = "N", env = "WATCHBELL_HEALTH_FAILURES", default_value_t = 3,
        hide_short_help = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(HOLD_HEALTH_FAILURES_MAX)))]
    pub(crate) health_failures: u32,
    /// How long after a start the first health command is run
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_START_GRACE", default_value = "10s",
        hide_short_help = true, value_parser = start_grace)]
    pub(crate) start_grace: Duration,
    /// How long the program may take to end after SIGTERM before all of it is killed
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_STOP_TIMEOUT", default_value = "10s",
        value_parser = stop_timeout)]
    pub(crate) stop_timeout: Duration,
    /// What keeps the program and all that it starts together, so that it can be ended for certain
    #[arg(
        long,
        value_enum,
        env = "WATCHBELL_ISOLATE",
        default_value = "auto",
        hide_short_help = true
    )]
    pub(crate) isolate: Isolate,
    /// Serve /metrics and /livez there: an address and a port; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", env = "WATCHBELL_METRICS", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// The name of this node, which no other one has
    ///
    /// That of the machine and something drawn, if it is not given.
    #[arg(long, value_name = "NAME", env = "WATCHBELL_NODE")]
    pub(crate) node: Option<String>,
    /// The project that the hold belongs to
    #[arg(long, value_name = "NAME", env = "WATCHBELL_PROJECT", default_value = "default")]
    pub(crate) project: String,
    /// The directory of the lock by which two starts on this machine know of each other
    ///
    /// For root /run/watchbell; for others a directory of the same name in XDG_RUNTIME_DIR, or /tmp/watchbell-UID.
    #[arg(long, value_name = "DIR", env = "WATCHBELL_LOCK_DIR", hide_short_help = true)]
    pub(crate) lock_dir: Option<PathBuf>,
    /// Where that variable is read.
    #[arg(long = "x-runtime-dir", env = "XDG_RUNTIME_DIR", hide = true)]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Write what the program prints to this file instead of passing it on
    #[arg(long, value_name = "FILE", env = "WATCHBELL_OUTPUT_FILE")]
    pub(crate) output_file: Option<PathBuf>,
    /// How large that file becomes before it is put aside as FILE.1: 512K, 100M
    #[arg(long, value_name = "BYTES", env = "WATCHBELL_OUTPUT_MAX_BYTES", default_value = "100M",
        value_parser = output_bytes, hide_short_help = true)]
    pub(crate) output_max_bytes: u64,
    /// How many such files there are, with the one that is written
    #[arg(long, value_name = "N", env = "WATCHBELL_OUTPUT_FILES", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(HOLD_OUTPUT_FILES_MAX)),
        hide_short_help = true)]
    pub(crate) output_files: u32,
    /// How long to wait for a store that cannot be reached at the start; for ever, if it is not given
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_WAIT", value_parser = wait, hide_short_help = true)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// How to show transitions: lines for people, or one JSON object each
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// How a candidate becomes a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// It may begin at once
    Auto,
    /// A person approves each new holder: watchbell election approve NAME
    Manual,
}

fn ttl(text: &str) -> Result<Duration, String> {
    between(text, LEASE_TTL_MIN, LEASE_TTL_MAX)
}

fn health_interval(text: &str) -> Result<Duration, String> {
    between(text, HOLD_HEALTH_INTERVAL_MIN, HOLD_HEALTH_INTERVAL_MAX)
}

fn start_grace(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, HOLD_HEALTH_INTERVAL_MAX)
}

fn stop_timeout(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, HOLD_STOP_TIME_MAX)
}

fn wait(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, ELECT_WAIT_MAX)
}

fn output_bytes(text: &str) -> Result<u64, String> {
    let read = bytes(text)?;
    if read < HOLD_OUTPUT_BYTES_MIN {
        return Err(format!("{HOLD_OUTPUT_BYTES_MIN} bytes or more are allowed"));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sizes_are_taken_up_to_their_limits_and_refused_one_past_them() {
        type Reader = fn(&str) -> Result<Duration, String>;
        let rows: [(Reader, &str, &str, &str, &str); 5] = [
            (ttl, "500ms", "499ms", "1h", "3601s"),
            (health_interval, "1s", "999ms", "1h", "3601s"),
            (start_grace, "0s", "-1s", "1h", "3601s"),
            (stop_timeout, "0s", "-1s", "1h", "3601s"),
            (wait, "0s", "-1s", "1d", "86401s"),
        ];
        for (read, least, below, most, above) in rows {
            assert!(read(least).is_ok() && read(most).is_ok(), "{least} {most}");
            assert!(read(below).is_err() && read(above).is_err(), "{below} {above}");
        }
        assert_eq!((output_bytes("4K"), output_bytes("4096")), (Ok(4_096), Ok(4_096)));
        assert!(output_bytes("4095").is_err());
    }
}

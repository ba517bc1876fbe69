//! `watchbell worker`, as it is typed: to be one, or to look after those that there are.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use engine::limits::RUN_TIMEOUT_MAX;
use process::limits::GRACE_MAX;
use worker::limits::{DRAIN_TIMEOUT_MAX, LEASE_MAX, LEASE_MIN, RUNS_MAX, WEIGHT_MAX};

use super::elect::between;
use super::trigger::{CredentialArgs, ServerArgs, label};
use super::{address, examples};

/// Carry out the commands of queues on this machine, or look after those who do
///
/// Each run is a program with arguments; no shell reads them. It runs as a tree of processes that ends with it, with its
/// time-out, and with this worker, also if this is killed. Only what --allow names is run: everything else fails for good,
/// and says why. What a run may not set are variables that change what a program loads or starts, as LD_PRELOAD or PATH.
///
/// SIGTERM or Ctrl-C lets it finish what it has, and end; a second one ends everything at once. If no server answers it
/// goes on with what it has, and keeps results in its spool until one takes them.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    override_usage = "watchbell worker [OPTIONS] --allow <PATH>\n       watchbell worker list|show|drain"
)]
#[command(after_help = examples(
    "  watchbell worker --queue reports --allow /usr/local/bin/report\n  \
       watchbell worker --server https://bells.example.com:7400 --key-file worker.key \\\n      \
       --queue mail=3 --queue digests --capacity 20 --allow /opt/mail/bin --user mail\n  \
       watchbell worker list\n  \
       watchbell worker drain web-1"
))]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<WorkerVerb>,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// What a worker is told.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkArgs {
    /// A queue whose runs it carries out, and its share of the turns; may be repeated
    ///
    /// Without shares, the runs of the first queue come before those of the next.
    #[arg(
        long,
        value_name = "NAME[=SHARE]",
        env = "WATCHBELL_QUEUE",
        value_delimiter = ',',
        default_value = "default",
        value_parser = queue
    )]
    pub(crate) queue: Vec<(String, Option<u32>)>,
    /// So many runs at a time, 1 to 1000; as many as there are processors, if it is not given
    #[arg(long, value_name = "N", env = "WATCHBELL_CAPACITY", value_parser = capacity)]
    pub(crate) capacity: Option<usize>,
    /// The name of this worker, which no other one has; that of the machine, if it is not given
    #[arg(long, env = "WATCHBELL_NAME")]
    pub(crate) name: Option<String>,
    /// A label to find it by; may be repeated
    #[arg(
        long = "label",
        value_name = "KEY=VALUE",
        env = "WATCHBELL_LABEL",
        value_delimiter = ',',
        value_parser = label,
        hide_short_help = true
    )]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) allow: AllowArgs,
    /// Run commands as this user, USER or USER:GROUP; as the worker itself, if it is not given
    ///
    /// Only a worker that is root may do so.
    #[arg(long, value_name = "USER", env = "WATCHBELL_USER", help_heading = "Programs")]
    pub(crate) user: Option<String>,
    /// The working directory of runs that name none
    #[arg(
        long,
        env = "WATCHBELL_DIR",
        default_value = "/",
        help_heading = "Programs",
        hide_short_help = true
    )]
    pub(crate) dir: PathBuf,
    /// The most memory that the processes of a run have together: 512M, 2G
    ///
    /// Needs a cgroup that the worker may set; where it may not, the worker does not start.
    #[arg(
        long,
        value_name = "BYTES",
        env = "WATCHBELL_MEMORY_MAX",
        value_parser = memory,
        help_heading = "Programs"
    )]
    pub(crate) memory_max: Option<u64>,
    /// The most processes and threads that a run has; needs a cgroup as well
    #[arg(
        long,
        value_name = "N",
        env = "WATCHBELL_PROCESSES_MAX",
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "Programs"
    )]
    pub(crate) processes_max: Option<u64>,
    /// What keeps the processes of a run together, so that all of them end
    #[arg(
        long,
        value_enum,
        env = "WATCHBELL_ISOLATE",
        default_value = "auto",
        help_heading = "Programs",
        hide_short_help = true
    )]
    pub(crate) isolate: Isolate,
    /// How long a run may take that does not say it itself; as long as it likes, if it is not given
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_TIMEOUT", value_parser = timeout, help_heading = "Programs")]
    pub(crate) timeout: Option<Duration>,
    /// How long a run may take to end after SIGTERM before all of it is killed
    #[arg(
        long,
        value_name = "LENGTH",
        env = "WATCHBELL_GRACE",
        default_value = "10s",
        value_parser = grace,
        help_heading = "Programs"
    )]
    pub(crate) grace: Duration,
    /// How long this worker may be silent before its runs are given to others
    #[arg(
        long,
        value_name = "LENGTH",
        env = "WATCHBELL_LEASE",
        default_value = "15s",
        value_parser = lease,
        help_heading = "Life",
        hide_short_help = true
    )]
    pub(crate) lease: Duration,
    /// How long it waits for its runs when it is told to stop, before it ends them
    #[arg(
        long,
        value_name = "LENGTH",
        env = "WATCHBELL_DRAIN_TIMEOUT",
        default_value = "20s",
        value_parser = drain_timeout,
        help_heading = "Life"
    )]
    pub(crate) drain_timeout: Duration,
    /// The directory that keeps what it has begun and what no server has taken yet
    ///
    /// If it is not given: what systemd names in STATE_DIRECTORY; for root /var/lib/watchbell-worker; for others
    /// watchbell-worker in XDG_STATE_HOME, or in ~/.local/state. Each worker has a directory of its name there. A name
    /// belongs to one spool: with another one, runs of the first may be begun twice.
    #[arg(long, value_name = "DIR", env = "WATCHBELL_SPOOL", help_heading = "Life")]
    pub(crate) spool: Option<PathBuf>,
    /// Serve /livez, /readyz and /metrics there: an address and a port; port 0 takes any that is free
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "WATCHBELL_METRICS",
        value_parser = address,
        help_heading = "Life"
    )]
    pub(crate) metrics: Option<SocketAddr>,
    /// A server to work for; with several it goes on while one of them answers
    #[arg(
        long,
        value_name = "URL",
        env = "WATCHBELL_SERVER",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7400",
        help_heading = "Server"
    )]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
    #[command(flatten)]
    pub(crate) surroundings: SurroundingsArgs,
}

/// What may be run.
#[derive(Debug, clap::Args)]
pub(crate) struct AllowArgs {
    /// Let runs have this program, or those in this directory and below; may be repeated
    ///
    /// By its absolute path. A link out of an allowed directory is not followed. Shells are programs like others: whoever
    /// allows one allows everything. Variables that are known to make a program load or start other code are refused, as a
    /// best effort: allow programs that are safe with any argument, variable and directory.
    #[arg(
        long,
        value_name = "PATH",
        env = "WATCHBELL_ALLOW",
        value_delimiter = ',',
        help_heading = "Programs"
    )]
    pub(crate) allow: Vec<PathBuf>,
    /// Let runs have any program: whoever may submit runs can do here whatever the user of this worker can
    #[arg(long, env = "WATCHBELL_ALLOW_ANY", help_heading = "Programs")]
    pub(crate) allow_any: bool,
}

/// What is around it. These are variables that others set; the parser knows none without a flag.
#[derive(Debug, clap::Args)]
pub(crate) struct SurroundingsArgs {
    #[arg(long = "x-tz", env = "TZ", hide = true)]
    pub(crate) zone: Option<String>,
    #[arg(long = "x-state-directory", env = "STATE_DIRECTORY", hide = true)]
    pub(crate) state_directory: Option<String>,
    #[arg(long = "x-state-home", env = "XDG_STATE_HOME", hide = true)]
    pub(crate) state_home: Option<OsString>,
    #[arg(long = "x-home", env = "HOME", hide = true)]
    pub(crate) home: Option<OsString>,
}

/// What keeps the processes of a run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolate {
    /// The strongest that is permitted here
    Auto,
    /// A PID namespace, within a user namespace if need be
    Namespace,
    /// A cgroup that is killed as a whole
    Cgroup,
    /// A process group, and looking for what has left it: the weak kill
    Group,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerVerb {
    /// List the workers that were heard of, by name: what each does, and for which queues
    #[command(after_help = examples(
        "  watchbell worker list\n  \
           watchbell worker list --output json"
    ))]
    List(ServerArgs),
    /// Show a worker: when it was heard, what it has, and whether it is to drain
    #[command(after_help = examples("  watchbell worker show web-1"))]
    Show(WorkerNameArgs),
    Drain(WorkerDrainArgs),
}

/// Which worker is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkerNameArgs {
    /// The name of the worker
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Give a worker nothing more, and tell it to finish what it has
///
/// What the worker has goes on to its end, however long that takes. `watchbell worker` then ends with exit code 0. The drain ends
/// when the worker is started again, which then has a new incarnation, or with --undo, which does not help a process that has
/// begun to drain. So whatever starts it must not do so after an exit code of 0: Restart=on-failure under systemd.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell worker drain web-1\n  \
       watchbell worker drain web-1 --undo"
))]
pub(crate) struct WorkerDrainArgs {
    /// The name of the worker
    pub(crate) name: String,
    /// Give it runs again
    #[arg(long)]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// A queue, and its share of the turns. What names are right, the worker says itself.
fn queue(text: &str) -> Result<(String, Option<u32>), String> {
    let Some((name, share)) = text.split_once('=') else { return Ok((text.to_owned(), None)) };
    let share = share.parse().ok().filter(|share| (1..=WEIGHT_MAX).contains(share));
    let share = share.ok_or_else(|| format!("a share is a number from 1 to {WEIGHT_MAX}"))?;
    Ok((name.to_owned(), Some(share)))
}

fn capacity(text: &str) -> Result<usize, String> {
    let runs = text.parse().ok().filter(|runs| (1..=RUNS_MAX).contains(runs));
    runs.ok_or_else(|| format!("it is a number from 1 to {RUNS_MAX}"))
}

/// Bytes, with K, M, G or T for powers of 1,024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (number, power) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1),
        Some(b'M') => (&text[..text.len() - 1], 2),
        Some(b'G') => (&text[..text.len() - 1], 3),
        Some(b'T') => (&text[..text.len() - 1], 4),
        _ => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| BYTES_RIGHT)?;
    number.checked_mul(1 << (10 * power)).ok_or("that is more than any machine has".to_owned())
}

/// How bytes are written.
const BYTES_RIGHT: &str = "write bytes like 512M or 2G";

/// Bytes that a program can do with.
fn memory(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    if bytes < MEMORY_MIN {
        return Err(format!("{BYTES_RIGHT}; a program needs at least 1M"));
    }
    Ok(bytes)
}

/// Less lets no program start.
const MEMORY_MIN: u64 = 1024 * 1024;

fn timeout(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), RUN_TIMEOUT_MAX)
}

fn grace(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, GRACE_MAX)
}

fn lease(text: &str) -> Result<Duration, String> {
    between(text, LEASE_MIN, LEASE_MAX)
}

fn drain_timeout(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, DRAIN_TIMEOUT_MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Verb};

    fn parse(words: &[&str]) -> Result<WorkerArgs, String> {
        let words = [&["watchbell", "worker"], words].concat();
        match Args::try_parse_from(words).map_err(|why| why.to_string())?.verb {
            Verb::Worker(typed) => Ok(*typed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_worker_is_told_what_it_needs_and_the_rest_has_defaults() {
        let typed = parse(&["--allow", "/bin/echo"]).unwrap();
        assert!(typed.verb.is_none());
        let work = typed.work;
        assert_eq!(work.queue, [("default".to_owned(), None)]);
        assert_eq!(work.allow.allow, [PathBuf::from("/bin/echo")]);
        assert!(!work.allow.allow_any && work.capacity.is_none() && work.user.is_none());
        assert_eq!((work.grace, work.lease), (Duration::from_secs(10), Duration::from_secs(15)));
        let many = parse(&[
            "--queue=a=3,b",
            "--queue=c",
            "--server=http://a,http://b",
            "--label=a=b",
            "--memory-max=512M",
            "--allow=/a,/b",
            "--grace=200ms",
        ]);
        let work = many.unwrap().work;
        let name = |name: &str, share| (name.to_owned(), share);
        assert_eq!(work.queue, [name("a", Some(3)), name("b", None), name("c", None)]);
        assert_eq!(work.server, ["http://a", "http://b"]);
        assert_eq!(work.memory_max, Some(512 << 20));
        assert_eq!(work.allow.allow.len(), 2);
    }

    #[test]
    fn those_that_there_are_can_be_looked_after() {
        assert!(matches!(parse(&["list"]).unwrap().verb, Some(WorkerVerb::List(_))));
        assert!(matches!(parse(&["drain", "web-1"]).unwrap().verb, Some(WorkerVerb::Drain(_))));
        assert!(parse(&["--allow", "/bin/echo", "list"]).is_err());
    }

    #[test]
    fn what_is_out_of_bounds_is_told() {
        for (flag, least, below, most, above) in [
            ("--capacity", "1", "0", "1000", "1001"),
            ("--lease", "1s", "999ms", "1d", "86401s"),
            ("--grace", "0s", "-1s", "1d", "86401s"),
            ("--timeout", "1s", "0s", "30d", "2592001s"),
            ("--drain-timeout", "0s", "-1s", "7d", "604801s"),
            ("--memory-max", "1M", "1048575", "1T", "99999999999T"),
            ("--processes-max", "1", "0", "1000", "-1"),
            ("--queue", "a=1", "a=0", "a=1000", "a=1001"),
        ] {
            for right in [least, most] {
                assert!(parse(&[&format!("{flag}={right}")]).is_ok(), "{flag} {right}");
            }
            for wrong in [below, above] {
                assert!(parse(&[&format!("{flag}={wrong}")]).is_err(), "{flag} {wrong}");
            }
        }
        assert!(parse(&["--memory-max=2X"]).unwrap_err().contains("like 512M or 2G"));
    }
}

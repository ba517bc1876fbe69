//! `watchbell queue`, as it is typed.

use std::path::PathBuf;

use clap::Subcommand;
use client::queue::{LeaseKind, RateSpec};
use engine::length;

use super::examples;
use super::redrive::{QueueCancelArgs, QueueDeadArgs, QueueRedriveArgs};
use super::trigger::{PageArgs, PauseFields, ServerArgs};
use crate::confirm::YesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum QueueVerb {
    List(QueueListArgs),
    /// Show a queue: what it may, how it stands, and why its runs wait
    #[command(after_help = examples("  watchbell queue show mail"))]
    Show(QueueNameArgs),
    Set(QueueSetArgs),
    Apply(QueueApplyArgs),
    Pause(QueuePauseArgs),
    /// Let workers have the runs of a paused queue again
    #[command(after_help = examples("  watchbell queue resume mail"))]
    Resume(QueueNameArgs),
    Delete(QueueDeleteArgs),
    Dead(QueueDeadArgs),
    Redrive(QueueRedriveArgs),
    Cancel(QueueCancelArgs),
}

/// List queues in the order of their names
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell queue list\n  \
       watchbell queue list --prefix mail- --output json"
))]
pub(crate) struct QueueListArgs {
    /// Only those whose name begins so
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Which queue is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct QueueNameArgs {
    /// The name of the queue
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Give a queue these limits and no others
///
/// Every limit that is not named is lifted, also if it was set before. The queue is made if it is not there.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell queue set mail --concurrency 20 --rate 100/1m\n  \
       watchbell queue set reports --per-key 2 --waiting-max 10000 --alert-after 5m\n  \
       watchbell queue set ledger --concurrency 1 --lease strict\n  \
       watchbell queue set mail    # lifts all limits"
))]
pub(crate) struct QueueSetArgs {
    /// The name of the queue: letters, digits, '.', '_' and '-'
    pub(crate) name: String,
    /// So many of its runs execute at a time; not limited, if it is not given
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<u64>,
    /// So many of its runs with the same concurrency key execute at a time; one, if it is not given
    #[arg(long, value_name = "N")]
    pub(crate) per_key: Option<u64>,
    /// So many of its runs are given to workers in so long, 1s to 1d; not limited, if it is not given
    #[arg(long, value_name = "N/LENGTH", value_parser = rate)]
    pub(crate) rate: Option<RateSpec>,
    /// So many of its runs may wait; as many as the store takes, if it is not given
    #[arg(long, value_name = "N")]
    pub(crate) waiting_max: Option<u64>,
    /// Notify when a run that a worker could have waits for so long; never, if it is not given
    #[arg(long, value_name = "LENGTH")]
    pub(crate) alert_after: Option<String>,
    /// What becomes of runs whose worker hears from no server for its lease; loose, if it is not given
    #[arg(long, value_name = "KIND")]
    pub(crate) lease: Option<LeaseWord>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// What becomes of runs whose worker hears from no server for its lease.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum LeaseWord {
    /// They go on, and may execute twice for a while
    Loose,
    /// Their worker ends them: limits are exact for what executes
    Strict,
}

impl LeaseWord {
    pub(crate) fn kind(self) -> LeaseKind {
        match self {
            Self::Loose => LeaseKind::Loose,
            Self::Strict => LeaseKind::Strict,
        }
    }
}

/// Make queues be as files say: make, change, and with --prune delete them
///
/// A file is YAML or JSON: one queue, a list of them, an object with a list called queues (a list called triggers may
/// stand beside it, for watchbell trigger apply), or several YAML documents. The fields are those of the API; each
/// queue has a name, and what it does not name is not limited. All files are read and checked before anything is sent, and
/// what is as it should be is left alone. If some queues fail the others are done all the same, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell queue apply queues.yaml\n  \
       watchbell queue apply queues.yaml --dry-run\n  \
       watchbell queue apply *.yaml --prune --prefix billing-"
))]
pub(crate) struct QueueApplyArgs {
    /// The files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Send nothing, and show what would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete queues whose name begins as --prefix says and are in none of the files; one with unfinished runs stays
    #[arg(long, requires = "prefix")]
    pub(crate) prune: bool,
    /// How the names begin of those that --prune may delete; '' for all
    #[arg(long, value_name = "TEXT", requires = "prune")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Let no worker have the runs of a queue for a while
///
/// What runs goes on, and what is submitted waits.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell queue pause mail --note 'the relay moves'\n  \
       watchbell queue pause mail --until 2027-01-16T06:00:00Z"
))]
pub(crate) struct QueuePauseArgs {
    /// The name of the queue
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) pause: PauseFields,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Delete a queue that has no unfinished run
///
/// Its runs stay on record, but its dead runs cannot be redriven any more. On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell queue delete mail --yes"))]
pub(crate) struct QueueDeleteArgs {
    /// The name of the queue
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// So many runs in so long. What the server allows, it says itself.
fn rate(text: &str) -> Result<RateSpec, String> {
    const RIGHT: &str = "write a number and a length, like 100/1m";
    let (runs, per) = text.split_once('/').ok_or(RIGHT)?;
    let runs = runs.parse().map_err(|_| RIGHT)?;
    length::read(per).map_err(|why| why.to_string())?;
    Ok(RateSpec { runs, per: per.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_length() {
        let per = |runs, per: &str| Ok(RateSpec { runs, per: per.to_owned() });
        assert_eq!(rate("100/1m"), per(100, "1m"));
        assert_eq!(rate("1/1h30m"), per(1, "1h30m"));
        for (text, said) in [
            ("100", "like 100/1m"),
            ("many/1m", "like 100/1m"),
            ("-1/1m", "like 100/1m"),
            ("100/", "a number is missing"),
            ("100/m", "a number is missing"),
            ("100/60", "the unit is missing"),
        ] {
            let why = rate(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}

//! `watchbell queue` and `watchbell worker`, as they are typed.

use clap::Subcommand;
use client::queue::RateSpec;
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

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerVerb {
    /// List the workers that were heard of, by name: what each does, and for which queues
    #[command(after_help = examples(
        "  watchbell worker list\n  \
           watchbell worker list --output json"
    ))]
    List(ServerArgs),
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

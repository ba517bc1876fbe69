//! What is done to many runs of a queue at once, as it is typed.

use client::Timestamp;
use client::redrive::{DeadKind, UnfinishedKind};

use super::examples;
use super::trigger::{PageArgs, ServerArgs, instant, label, word};
use crate::confirm::YesArgs;

/// List the dead runs of a queue, which can be redriven, in the order in which they were submitted
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell queue dead mail\n  \
       watchbell queue dead mail --state poison --since 2027-01-15T00:00:00Z"
))]
pub(crate) struct QueueDeadArgs {
    /// The name of the queue
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) filter: DeadFilterArgs,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Let dead runs of a queue wait again, as new runs
///
/// Each has an id, attempts and deaths of its own, and says which run it is carried out again for. One whose unique key
/// stands for another run by now stays dead.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell queue redrive mail --dry-run\n  \
       watchbell queue redrive mail --state dead --label env=prod --since 2027-01-15T00:00:00Z\n  \
       watchbell queue redrive mail --limit 10"
))]
pub(crate) struct QueueRedriveArgs {
    /// The name of the queue
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) filter: DeadFilterArgs,
    /// At most so many, those that were submitted first; all, if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Count them, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Which dead runs are meant.
#[derive(Debug, clap::Args)]
pub(crate) struct DeadFilterArgs {
    /// Only those that are dead (poison among them), poison, or failed, which were not to be tried again
    #[arg(long, value_name = "STATE,…", value_delimiter = ',', value_parser = word::<DeadKind>)]
    pub(crate) state: Vec<DeadKind>,
    /// Only those with this concurrency key
    #[arg(long, value_name = "KEY")]
    pub(crate) concurrency_key: Option<String>,
    /// Only those with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Only those that ended at or after this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) since: Option<Timestamp>,
    /// Only those that ended before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
}

/// Cancel unfinished runs of a queue
///
/// Those that wait end at once; workers that have one are told to end it. What is submitted meanwhile is not meant. Say
/// which runs, or --all. On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("which")
        .args(["state", "concurrency_key", "labels", "since", "until", "all"])
        .multiple(true)
        .required(true),
    after_help = examples(
        "  watchbell queue cancel mail --label campaign=spring --dry-run\n  \
           watchbell queue cancel mail --state waiting --until 2027-01-15T00:00:00Z --yes\n  \
           watchbell queue cancel mail --all"
    )
)]
pub(crate) struct QueueCancelArgs {
    /// The name of the queue
    pub(crate) name: String,
    /// Only those in one of these states: waiting, running, backoff
    #[arg(long, value_name = "STATE,…", value_delimiter = ',', value_parser = word::<UnfinishedKind>)]
    pub(crate) state: Vec<UnfinishedKind>,
    /// Only those with this concurrency key
    #[arg(long, value_name = "KEY")]
    pub(crate) concurrency_key: Option<String>,
    /// Only those with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Only those that were submitted at or after this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) since: Option<Timestamp>,
    /// Only those that were submitted before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
    /// All of them
    #[arg(long, conflicts_with_all = ["state", "concurrency_key", "labels", "since", "until"])]
    pub(crate) all: bool,
    /// Count them, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

//! `watchbell run` and `watchbell scheduler`, as they are typed.

use clap::Subcommand;
use client::Timestamp;
use client::run::{RunKind, RunState};

use super::examples;
use super::submit::SubmitArgs;
use super::trigger::{PageArgs, ServerArgs, instant, label, word};
use crate::confirm::YesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum RunVerb {
    List(RunListArgs),
    /// Show a run and its attempts
    #[command(after_help = examples("  watchbell run show run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx"))]
    Show(RunIdArgs),
    Submit(Box<SubmitArgs>),
    /// End a run of a queue
    ///
    /// At once if it waits; if a worker has it, that worker is told to end it.
    #[command(after_help = examples("  watchbell run cancel run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx"))]
    Cancel(RunIdArgs),
    Output(RunOutputArgs),
    /// Let a dead run of a queue wait again, as a new run
    ///
    /// The new run has an id, attempts and deaths of its own. All dead runs of a queue: watchbell queue redrive.
    #[command(after_help = examples("  watchbell run retry run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx"))]
    Retry(RunIdArgs),
}

/// Show what a run of a queue printed, or follow it
///
/// The last 64 KiB of its last attempt, what it printed to stdout on stdout and the rest on stderr. What is missing is said
/// on stderr. With --follow all that it prints from now on as well, until it has ended. With --timestamps all lines on
/// stdout, each with the time at which it was printed, to about a second, and the name of its stream.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell run output run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx\n  \
       watchbell run output run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx --follow --timestamps"
))]
pub(crate) struct RunOutputArgs {
    /// The id of the run
    pub(crate) id: String,
    /// Go on until the run has ended, and show what it prints
    #[arg(long)]
    pub(crate) follow: bool,
    /// Begin each line with the time at which it was printed, as its worker says, and its stream
    #[arg(long, short)]
    pub(crate) timestamps: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// List runs, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell run list\n  \
       watchbell run list --trigger hello --state dead\n  \
       watchbell run list --state failed,dead,skipped --from 2027-01-15T00:00:00Z\n  \
       watchbell run list --queue mail --state dead --label env=prod\n  \
       watchbell run list --queue mail --state waiting,running,backoff\n  \
       watchbell run list --trigger hello --output json"
))]
pub(crate) struct RunListArgs {
    /// Only those of this trigger, by its name or id; by its id also if it was deleted
    #[arg(long, value_name = "NAME")]
    pub(crate) trigger: Option<String>,
    /// Only those of this queue; those that have ended, unless --state asks for others
    #[arg(long, value_name = "NAME", conflicts_with = "trigger")]
    pub(crate) queue: Option<String>,
    /// Only those of queues with this concurrency key
    #[arg(long, value_name = "KEY", conflicts_with = "trigger")]
    pub(crate) concurrency_key: Option<String>,
    /// Only those of queues with this label; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label, conflicts_with = "trigger")]
    pub(crate) labels: Vec<(String, String)>,
    /// Only those in one of these states: waiting, blocked, backoff, running, succeeded, failed, dead,
    /// cancelled, expired, unknown; or skipped, for slots that were
    #[arg(long, value_name = "STATE,…", value_delimiter = ',', value_parser = word::<RunState>)]
    pub(crate) state: Vec<RunState>,
    /// Only those of this kind: run or notification
    #[arg(long, value_parser = word::<RunKind>)]
    pub(crate) kind: Option<RunKind>,
    /// Only those of slots at or after this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) from: Option<Timestamp>,
    /// Only those of slots before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) to: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Which run is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct RunIdArgs {
    /// The id of the run
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SchedulerVerb {
    /// Show whether slots are fired, and if not, why
    #[command(after_help = examples("  watchbell scheduler status"))]
    Status(ServerArgs),
    /// Let triggers fire again, of all projects, and catch up by their policies
    #[command(after_help = examples("  watchbell scheduler start"))]
    Start(ServerArgs),
    Stop(SchedulerStopArgs),
    /// Say that the clock is right, so that firing goes on
    ///
    /// Firing is held when the clock went more than five minutes forward, or stands before what was fired
    /// last. Look at the clock first.
    #[command(after_help = examples("  date && watchbell scheduler confirm-time"))]
    ConfirmTime(ServerArgs),
}

/// Let no trigger fire, of any project, until it is started again
///
/// On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell scheduler stop --yes"))]
pub(crate) struct SchedulerStopArgs {
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

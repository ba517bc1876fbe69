//! `watchbell project`, as it is typed.

use clap::Subcommand;
use client::project::Occasion;

use super::examples;
use super::trigger::{PageArgs, ServerArgs, word};
use crate::confirm::YesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectVerb {
    Create(ProjectCreateArgs),
    List(ProjectListArgs),
    /// Show a project
    #[command(after_help = examples("  watchbell project show shop"))]
    Show(ProjectNameArgs),
    Set(ProjectSetArgs),
    /// Let a project's triggers fire again, and catch up by their policies
    #[command(after_help = examples("  watchbell project enable shop"))]
    Enable(ProjectNameArgs),
    Disable(ProjectDisableArgs),
    Rotate(ProjectRotateArgs),
}

/// How much a project may have, and who is told when runs fail.
#[derive(Debug, clap::Args)]
pub(crate) struct ProjectFields {
    /// So many triggers at most
    #[arg(long, value_name = "N")]
    pub(crate) triggers: Option<u64>,
    /// So many runs at most in the busiest minute that its schedules allow
    #[arg(long, value_name = "N")]
    pub(crate) fires_per_minute: Option<u64>,
    /// So many bytes at most of what its triggers say, all together
    #[arg(long, value_name = "N")]
    pub(crate) bytes: Option<u64>,
    /// So many runs at most that wait for workers, in all its queues together
    #[arg(long, value_name = "N")]
    pub(crate) waiting_runs: Option<u64>,
    /// Call this URL when runs fail
    #[arg(long, value_name = "URL")]
    pub(crate) notify_url: Option<String>,
    /// On this occasion: failure, recovery, paused, success or overdue; may be given several times
    /// [default: all but success]
    #[arg(long, value_name = "OCCASION", value_parser = word::<Occasion>, requires = "notify_url")]
    pub(crate) notify_on: Vec<Occasion>,
}

/// Make a project
///
/// The secret that its webhooks are signed with is printed on stdout, this once.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell project create shop\n  \
       watchbell project create shop --triggers 1000 --fires-per-minute 600 > shop.secret\n  \
       watchbell project create shop --notify-url https://example.com/alarm --notify-on failure"
))]
pub(crate) struct ProjectCreateArgs {
    /// Its name, for good: letters, digits, '.', '_' and '-'
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) fields: ProjectFields,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// List projects in the order of their names
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell project list\n  \
       watchbell project list --prefix shop --output json"
))]
pub(crate) struct ProjectListArgs {
    /// Only those whose name begins so
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Which project is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct ProjectNameArgs {
    /// The name of the project
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Change what a project may have, and who is told when runs fail
///
/// What is not named stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell project set shop --triggers 5000\n  \
       watchbell project set shop --unlimited --quiet"
))]
pub(crate) struct ProjectSetArgs {
    /// The name of the project
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) fields: ProjectFields,
    /// Lift all limits that are not named
    #[arg(long)]
    pub(crate) unlimited: bool,
    /// Tell nobody any more
    #[arg(long, conflicts_with = "notify_url")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Let none of a project's triggers fire
///
/// On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell project disable shop --yes"))]
pub(crate) struct ProjectDisableArgs {
    /// The name of the project
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Give a project a new secret, beside the former one for a while
///
/// The new one is printed on stdout, this once. Webhooks are signed with both until the former one ends.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell project rotate shop > shop.secret\n  \
       watchbell project rotate shop --grace 2h"
))]
pub(crate) struct ProjectRotateArgs {
    /// The name of the project
    pub(crate) name: String,
    /// For so long the former one goes on being used; 0s for not at all [default: 1d]
    #[arg(long, value_name = "LENGTH")]
    pub(crate) grace: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

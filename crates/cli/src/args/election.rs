//! `watchbell election`, as it is typed.

use clap::Subcommand;

use super::examples;
use super::trigger::{PageArgs, ServerArgs};
use crate::confirm::YesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ElectionVerb {
    List(ElectionListArgs),
    Show(ElectionShowArgs),
    Resign(ElectionResignArgs),
    Watch(ElectionWatchArgs),
}

/// List elections, by name: who leads, and under which token
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell election list\n  \
       watchbell election list --prefix nightly- --output json"
))]
pub(crate) struct ElectionListArgs {
    /// Only those whose name begins so
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Show who leads
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell election show nightly"))]
pub(crate) struct ElectionShowArgs {
    /// The name of the election
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Ask whoever leads to leave: it stops first, and then somebody else may lead
///
/// On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell election resign nightly --yes"))]
pub(crate) struct ElectionResignArgs {
    /// The name of the election
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Follow who leads, one line per change; it is looked at every second
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell election watch\n  \
       watchbell election watch nightly --count 1 --output json"
))]
pub(crate) struct ElectionWatchArgs {
    /// Only this one; all of the project, if it is not given
    pub(crate) name: Option<String>,
    /// End after so many lines
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

//! `watchbell election`, as it is typed.

use clap::Subcommand;

use super::examples;
use super::trigger::{PageArgs, ServerArgs};
use crate::confirm::YesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum ElectionVerb {
    List(ElectionListArgs),
    Show(ElectionShowArgs),
    Approve(ElectionApproveArgs),
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

/// Show who leads, who else campaigns, and what runs by it if it is a hold
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell election show nightly"))]
pub(crate) struct ElectionShowArgs {
    /// The name of the election
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Let whoever waits for an election begin
///
/// A holder in manual mode waits until a person has approved it. On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell election approve nightly\n  \
       watchbell election approve nightly --token 1800000000000000 --yes"
))]
pub(crate) struct ElectionApproveArgs {
    /// The name of the election
    pub(crate) name: String,
    /// Only if it waits under this token; whoever waits now, if it is not given
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Ask whoever leads to leave: it stops first, and then somebody else may lead
///
/// On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell election resign nightly --yes\n  \
       watchbell election resign nightly --to web-2 --yes"
))]
pub(crate) struct ElectionResignArgs {
    /// The name of the election
    pub(crate) name: String,
    /// Which of the candidates is to follow
    #[arg(long, value_name = "NODE")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Follow who leads and what holds do, one line per change; it is looked at every second
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

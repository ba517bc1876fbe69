//! `watchbell key`, as it is typed.

use clap::Subcommand;
use client::Timestamp;
use client::key::Scope;

use super::examples;
use super::trigger::{PageArgs, ServerArgs, instant, word};
use crate::confirm::YesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    Create(KeyCreateArgs),
    List(KeyListArgs),
    Show(KeyShowArgs),
    Rotate(KeyRotateArgs),
    Delete(KeyDeleteArgs),
    /// Show the key that you ask with
    #[command(name = "self", after_help = examples("  watchbell key self --key-file deploy.key"))]
    Own(ServerArgs),
}

/// Make a key
///
/// The text that lets one in is printed on stdout, this once. A key that is not an admin's is for one project:
/// the one named by --project, or the default one.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell key create --name deploy --scope write --project shop > deploy.key\n  \
       watchbell key create --name grafana --scope read --expires 2028-01-01T00:00:00Z\n  \
       watchbell key create --name alice --scope admin"
))]
pub(crate) struct KeyCreateArgs {
    /// What people call it
    #[arg(long)]
    pub(crate) name: String,
    /// What it may do: admin, write, read, worker or node; may be given several times
    #[arg(long, value_parser = word::<Scope>, required = true)]
    pub(crate) scope: Vec<Scope>,
    /// From this instant on it is not taken any more
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) expires: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// List keys, oldest first; with --project, those of one project
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell key list\n  \
       watchbell key list --project shop --output json"
))]
pub(crate) struct KeyListArgs {
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Show a key, but for its secret
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell key show key_0123456789abcdef"))]
pub(crate) struct KeyShowArgs {
    /// The id of the key
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Make a key of the same kind, and let this one expire after a while
///
/// The text of the new one is printed on stdout, this once.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell key rotate key_0123456789abcdef > deploy.key\n  \
       watchbell key rotate key_0123456789abcdef --grace 2h"
))]
pub(crate) struct KeyRotateArgs {
    /// The id of the key
    pub(crate) id: String,
    /// For so long the former one goes on being taken; 0s for not at all [default: 1d]
    #[arg(long, value_name = "LENGTH")]
    pub(crate) grace: Option<String>,
    /// From this instant on the new one is not taken any more
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) expires: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Take a key back: it lets nobody in any more
///
/// On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell key delete key_0123456789abcdef --yes"))]
pub(crate) struct KeyDeleteArgs {
    /// The id of the key
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

//! `watchbell audit`, `events`, `cluster` and `config`, as they are typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use clap::Subcommand;
use client::Timestamp;

use super::examples;
use super::trigger::{PageArgs, ServerArgs, instant};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    List(AuditListArgs),
}

/// List who changed what, newest first; with --project, in one project
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell audit list\n  \
       watchbell audit list --project shop --action trigger.delete\n  \
       watchbell audit list --author deploy --from 2027-01-15T00:00:00Z --output json"
))]
pub(crate) struct AuditListArgs {
    /// Only changes by this one: the name of a key
    #[arg(long, value_name = "NAME")]
    pub(crate) author: Option<String>,
    /// Only changes of this kind, such as trigger.create
    #[arg(long)]
    pub(crate) action: Option<String>,
    /// Only changes from this instant on
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) from: Option<Timestamp>,
    /// Only changes before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) to: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Follow what happens, while it happens: one line per event, until Ctrl-C
///
/// It goes on by itself when the connection breaks or the server is started again. Where something may have been
/// missed, there is an event "reset".
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell events\n  \
       watchbell events --project shop --output json | jq .type\n  \
       watchbell events --count 1"
))]
pub(crate) struct EventsArgs {
    /// End after so many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Show who takes part in the cluster, who has which shard, and what the store is worth
    #[command(after_help = examples(
        "  watchbell cluster status\n  \
           watchbell cluster status --output json | jq '.nodes[].server.shards'"
    ))]
    Status(ServerArgs),
    Drain(ClusterDrainArgs),
}

/// Let a server hand its shards over to the others and take none, before it is stopped
///
/// It waits until the server has no shard, for at most 30 seconds. Requests are answered there as before. The server
/// takes shards again after --undo, or when it is started anew.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell cluster drain watchbell-2\n  \
       watchbell cluster drain watchbell-2 --undo"
))]
pub(crate) struct ClusterDrainArgs {
    /// The name of the server, as watchbell cluster status shows it
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Let it take shards again
    #[arg(long)]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// See the settings, and where each comes from
///
/// A setting comes from a flag, else from its variable, else from a TOML file, else it has a default. The file is the
/// first of these that is there: --config FILE, WATCHBELL_CONFIG, ./watchbell.toml,
/// $XDG_CONFIG_HOME/watchbell/config.toml (~/.config), /etc/watchbell/config.toml. Its keys are the names of the
/// flags: log-level = "info"
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell config\n  \
       watchbell config show --output json\n  \
       watchbell config show --server https://bells.example.com:7400"
))]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ConfigVerb>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Show each setting, its value, and where it comes from
    #[command(after_help = examples(
        "  watchbell config show\n  \
           watchbell config show --config ./staging.toml --output json"
    ))]
    Show,
}

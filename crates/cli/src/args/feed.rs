//! What a trigger lets a queue have, as it is typed.

use std::path::PathBuf;

use client::queue::PickKind;
use serde_json::Value;

use super::submit::{json, variable};
use super::trigger::word;

/// A queue instead of a webhook.
#[derive(Debug, clap::Args)]
pub(crate) struct FeedArgs {
    /// The command that a worker is to run: the program, by its absolute path, and its arguments
    #[arg(last = true, requires = "queue", conflicts_with = "handler", hide_short_help = true)]
    pub(crate) command: Vec<String>,
    /// Let this queue have the runs, instead of calling a webhook
    ///
    /// With a handler of its workers, or with a command behind two dashes. The queue comes to be if it is not there.
    #[arg(long, value_name = "NAME", conflicts_with = "webhook", help_heading = "Queue")]
    pub(crate) queue: Option<String>,
    /// The handler that a worker is to call
    #[arg(long, value_name = "NAME", requires = "queue", help_heading = "Queue")]
    pub(crate) handler: Option<String>,
    /// What the handler gets
    #[arg(
        long,
        value_name = "JSON",
        value_parser = json,
        requires = "handler",
        conflicts_with = "payload_file",
        help_heading = "Queue"
    )]
    pub(crate) payload: Option<Value>,
    /// Read what the handler gets from a JSON file; - is stdin
    #[arg(
        long,
        value_name = "FILE",
        requires = "handler",
        help_heading = "Queue",
        hide_short_help = true
    )]
    pub(crate) payload_file: Option<PathBuf>,
    /// A variable of the command's environment; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable, requires = "command", help_heading = "Queue", hide_short_help = true)]
    pub(crate) env: Vec<(String, String)>,
    /// The command's working directory
    #[arg(long, requires = "command", help_heading = "Queue", hide_short_help = true)]
    pub(crate) dir: Option<String>,
    /// What the command reads from its standard input
    #[arg(
        long,
        value_name = "TEXT",
        requires = "command",
        help_heading = "Queue",
        hide_short_help = true
    )]
    pub(crate) stdin: Option<String>,
    /// For how many workers each run is: any, next or all [default: any]
    ///
    /// any: for the first that has room; next: for the next ones in turn, in the order of their names; all: for each of them.
    #[arg(long, value_parser = word::<PickKind>, requires = "queue", help_heading = "Queue", hide_short_help = true)]
    pub(crate) pick: Option<PickKind>,
    /// With --pick next: for so many workers, up to 64 [default: 1]
    #[arg(
        long,
        value_name = "N",
        requires = "pick",
        help_heading = "Queue",
        hide_short_help = true
    )]
    pub(crate) count: Option<u64>,
    /// From 0, which workers get first, to 9 [default: 5]
    #[arg(
        long,
        value_name = "N",
        requires = "queue",
        help_heading = "Queue",
        hide_short_help = true
    )]
    pub(crate) priority: Option<u64>,
    /// Of the runs with this key only so many execute at a time
    #[arg(
        long,
        value_name = "TEXT",
        requires = "queue",
        help_heading = "Queue",
        hide_short_help = true
    )]
    pub(crate) concurrency_key: Option<String>,
}

//! `watchbell run submit`, as it is typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::path::PathBuf;

use clap::ArgGroup;
use client::Timestamp;
use client::queue::PickKind;
use client::spec::Delivery;
use serde_json::Value;

use super::examples;
use super::trigger::{RetryArgs, ServerArgs, instant, label, word};

/// Let a queue have a run: a handler of its workers, or a command
///
/// The queue comes to be if it is not there. Flags stand before the two dashes, behind which the command begins.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("action").args(["handler", "command"]).required(true))]
#[command(override_usage = "watchbell run submit [OPTIONS] --handler <NAME>\n       \
    watchbell run submit [OPTIONS] -- <COMMAND>...")]
#[command(after_help = examples(
    "  watchbell run submit -- /bin/echo hello\n  \
       watchbell run submit --queue mail --handler welcome --payload '{\"to\": \"ann@example.com\"}'\n  \
       watchbell run submit --queue mail --handler digest --payload-file digest.json --delay 90s\n  \
       watchbell run submit --queue reports --concurrency-key shop-17 --timeout 10m \\\n      \
       -- /usr/local/bin/report --shop 17"
))]
pub(crate) struct SubmitArgs {
    /// The program, by its absolute path, and its arguments; no shell reads them
    #[arg(last = true)]
    pub(crate) command: Vec<String>,
    /// The name of the queue
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) queue: String,
    /// From 0, which workers get first, to 9 [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) priority: Option<u64>,
    /// For how many workers it is: any, next or all [default: any]
    ///
    /// any: for the first that has room; next: for the next ones in turn, in the order of their names; all: for each of them.
    #[arg(long, value_parser = word::<PickKind>)]
    pub(crate) pick: Option<PickKind>,
    /// With --pick next: for so many workers, up to 64 [default: 1]
    #[arg(long, value_name = "N", requires = "pick")]
    pub(crate) count: Option<u64>,
    /// A label to find it by; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// The handler that a worker is to call
    #[arg(long, value_name = "NAME", help_heading = "Handler")]
    pub(crate) handler: Option<String>,
    /// What the handler gets
    #[arg(long, value_name = "JSON", value_parser = json, conflicts_with = "command", help_heading = "Handler")]
    pub(crate) payload: Option<Value>,
    /// Read what the handler gets from a JSON file; - is stdin
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["command", "payload"],
        help_heading = "Handler"
    )]
    pub(crate) payload_file: Option<PathBuf>,
    /// A variable of the command's environment; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable, conflicts_with = "handler", help_heading = "Command")]
    pub(crate) env: Vec<(String, String)>,
    /// The command's working directory
    #[arg(long, conflicts_with = "handler", help_heading = "Command")]
    pub(crate) dir: Option<String>,
    /// What the command reads from its standard input
    #[arg(long, value_name = "TEXT", conflicts_with = "handler", help_heading = "Command")]
    pub(crate) stdin: Option<String>,
    /// No worker gets it before so much time has passed
    #[arg(long, value_name = "LENGTH", conflicts_with = "not_before", help_heading = "Time")]
    pub(crate) delay: Option<String>,
    /// No worker gets it before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant, help_heading = "Time")]
    pub(crate) not_before: Option<Timestamp>,
    /// It expires if no worker got it within this time of being due
    #[arg(long, value_name = "LENGTH", help_heading = "Time")]
    pub(crate) expires_after: Option<String>,
    /// How long an attempt may take: 1s to 30d
    #[arg(long, value_name = "LENGTH", help_heading = "Time")]
    pub(crate) timeout: Option<String>,
    /// Of the runs with this key only so many execute at a time
    ///
    /// One, unless the queue says otherwise: see watchbell queue set --help
    #[arg(long, value_name = "TEXT", help_heading = "Policies")]
    pub(crate) concurrency_key: Option<String>,
    /// Submit nothing while the queue has a run with this key
    ///
    /// The id of that run is shown instead.
    #[arg(long, value_name = "TEXT", help_heading = "Policies")]
    pub(crate) unique_key: Option<String>,
    /// The unique key goes on counting for so long after the run has ended
    #[arg(long, value_name = "LENGTH", requires = "unique_key", help_heading = "Policies")]
    pub(crate) unique_window: Option<String>,
    /// at_least_once or at_most_once [default: at_least_once]
    ///
    /// A run that a worker may or may not have carried out: at_least_once gives it to another one, at_most_once does not.
    #[arg(long, value_parser = word::<Delivery>, help_heading = "Policies")]
    pub(crate) delivery: Option<Delivery>,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

pub(super) fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|why| {
        format!("that is no JSON ({why}): a text has quotes of its own, '\"like this\"'")
    })
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it like LANG=en")?;
    Ok((name.to_owned(), value.to_owned()))
}

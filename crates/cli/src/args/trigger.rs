//! `watchbell trigger`, as it is typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use client::Timestamp;
use client::spec::{Backoff, CatchUp, Delivery, Dialect, Fold, Gap, Overlap};
use client::trigger::Status;
use engine::instant::Instant;
use engine::length;
use engine::limits::{LIST_ROWS_MAX, NEXT_SLOTS_MAX, RUN_WAIT_MAX};
use engine::trigger::check_label;
use serde::de::DeserializeOwned;

use super::apply::{ApplyArgs, BackfillArgs};
use super::{Output, with_exit_codes};
use crate::confirm::YesArgs;
use crate::secret::Secret;

/// Which server, and how to show what it says.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// The server to ask
    #[arg(
        long,
        value_name = "URL",
        env = "WATCHBELL_SERVER",
        default_value = "http://127.0.0.1:7400",
        help_heading = "Server"
    )]
    pub(crate) server: String,
    /// The key that lets you in; others on this machine can see what is typed, so take --key-file or the
    /// variable
    #[arg(
        long,
        value_name = "KEY",
        env = "WATCHBELL_KEY",
        hide_env_values = true,
        help_heading = "Server"
    )]
    pub(crate) key: Option<Secret>,
    /// A file with the key that lets you in
    #[arg(long, value_name = "FILE", env = "WATCHBELL_KEY_FILE", help_heading = "Server")]
    pub(crate) key_file: Option<PathBuf>,
    /// The project that is meant, if the key is an admin's
    #[arg(long, value_name = "NAME", env = "WATCHBELL_PROJECT", help_heading = "Server")]
    pub(crate) project: Option<String>,
    /// Trust the issuers in this PEM file as well
    #[arg(long, value_name = "FILE", env = "WATCHBELL_CA", help_heading = "Server")]
    pub(crate) ca: Option<PathBuf>,
    /// How to show the answer
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TriggerVerb {
    Create(Box<CreateArgs>),
    Apply(ApplyArgs),
    List(TriggerListArgs),
    Show(ShowArgs),
    Explain(AccountArgs),
    Next(SlotsArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Cancel(CancelArgs),
    Run(StartArgs),
    Backfill(BackfillArgs),
    Delete(DeleteArgs),
}

/// Make a trigger: when, what, and where to
///
/// Without --cron, --every or --at it is run on demand only.
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes(
    "  watchbell trigger create --name hello --cron '*/5 * * * * *' --method GET \\\n      \
       --webhook http://127.0.0.1:7400/livez\n  \
       watchbell trigger create --name report --cron '0 9 * * MON-FRI' --tz Europe/Berlin \\\n      \
       --webhook https://example.com/report --header 'authorization: Bearer TOKEN' --body '{}'\n  \
       watchbell trigger create --name poll --every 90s --webhook https://example.com/poll --method GET\n  \
       watchbell trigger create --file trigger.json"
))]
pub(crate) struct CreateArgs {
    /// Its name: letters, digits, '.', '_' and '-'; the server makes one up if there is none
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A label, by which it is found again; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// A cron pattern; may be given several times
    #[arg(long, value_name = "PATTERN", help_heading = "When")]
    pub(crate) cron: Vec<String>,
    /// An interval, such as 90s, 5m or 1h30m; may be given several times
    #[arg(long, value_name = "LENGTH", help_heading = "When")]
    pub(crate) every: Vec<String>,
    /// Where intervals begin, counted from 1970; a place that comes from the name, if it is not given
    #[arg(long, value_name = "LENGTH", help_heading = "When")]
    pub(crate) phase: Option<String>,
    /// An instant, such as 2027-03-28T01:00:00Z; may be given several times
    #[arg(long, value_name = "INSTANT", value_parser = instant, help_heading = "When")]
    pub(crate) at: Vec<Timestamp>,
    /// The time zone of patterns, excluded dates and quiet windows, by its IANA name [default: UTC]
    #[arg(long = "tz", value_name = "ZONE", help_heading = "When")]
    pub(crate) zone: Option<String>,
    /// How patterns are meant: open or quartz
    #[arg(long, value_parser = word::<Dialect>, help_heading = "When")]
    pub(crate) dialect: Option<Dialect>,
    /// Times that clocks leave out: fire or skip
    #[arg(long, value_parser = word::<Gap>, help_heading = "When")]
    pub(crate) gap: Option<Gap>,
    /// Times that clocks show twice: first, second or both
    #[arg(long, value_parser = word::<Fold>, help_heading = "When")]
    pub(crate) fold: Option<Fold>,
    /// No slot before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant, help_heading = "When")]
    pub(crate) start: Option<Timestamp>,
    /// No slot after this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant, help_heading = "When")]
    pub(crate) end: Option<Timestamp>,
    /// End after so many runs
    #[arg(long, value_name = "N", help_heading = "When")]
    pub(crate) limit: Option<u64>,
    /// Let each slot leave up to so much later
    #[arg(long, value_name = "LENGTH", help_heading = "When")]
    pub(crate) jitter: Option<String>,
    /// A date on which nothing fires, such as 2027-12-24; may be given several times
    #[arg(long, value_name = "DATE", help_heading = "When")]
    pub(crate) exclude: Vec<String>,
    /// The URL to call
    #[arg(long, value_name = "URL", required_unless_present = "file", help_heading = "What")]
    pub(crate) webhook: Option<String>,
    /// GET, HEAD, POST, PUT, PATCH or DELETE [default: POST]
    #[arg(long, help_heading = "What")]
    pub(crate) method: Option<String>,
    /// A header; may be given several times
    #[arg(long, value_name = "NAME:VALUE", value_parser = header, help_heading = "What")]
    pub(crate) header: Vec<(String, String)>,
    /// A header whose value is never told again; may be given several times
    #[arg(long, value_name = "NAME:VALUE", value_parser = header, help_heading = "What")]
    pub(crate) secret_header: Vec<(String, String)>,
    /// What the body is [default: application/json]
    #[arg(long, value_name = "TYPE", help_heading = "What")]
    pub(crate) content_type: Option<String>,
    /// What is sent
    #[arg(long, value_name = "TEXT", help_heading = "What")]
    pub(crate) body: Option<String>,
    /// How long an attempt may take: 1s to 30s [default: 15s]
    #[arg(long, value_name = "LENGTH", help_heading = "What")]
    pub(crate) timeout: Option<String>,
    /// Slots that nobody was there to fire: skip, latest or all [default: latest]
    #[arg(long, value_parser = word::<CatchUp>, help_heading = "Rules")]
    pub(crate) catch_up: Option<CatchUp>,
    /// How many of them fire at most, with --catch-up all [default: 100]
    #[arg(long, value_name = "N", help_heading = "Rules")]
    pub(crate) catch_up_cap: Option<u64>,
    /// A slot while another run is not finished: allow, skip, queue_one or replace [default: allow]
    #[arg(long, value_parser = word::<Overlap>, help_heading = "Rules")]
    pub(crate) overlap: Option<Overlap>,
    /// A run that may or may not have arrived: at_least_once sends it again, at_most_once does not
    /// [default: at_least_once]
    #[arg(long, value_parser = word::<Delivery>, help_heading = "Rules")]
    pub(crate) delivery: Option<Delivery>,
    /// So many attempts at most: 1 to 10 [default: 3]
    #[arg(long, value_name = "N", help_heading = "Rules")]
    pub(crate) retry_attempts: Option<u64>,
    /// The pause after the first attempt: 1s to 5m [default: 5s]
    #[arg(long, value_name = "LENGTH", help_heading = "Rules")]
    pub(crate) retry_delay: Option<String>,
    /// How that pause grows: constant or exponential [default: exponential]
    #[arg(long, value_parser = word::<Backoff>, help_heading = "Rules")]
    pub(crate) retry_backoff: Option<Backoff>,
    /// How far that pause grows: up to 1h [default: 5m]
    #[arg(long, value_name = "LENGTH", help_heading = "Rules")]
    pub(crate) retry_max_delay: Option<String>,
    /// Give a run up that cannot leave within this time
    #[arg(long, value_name = "LENGTH", help_heading = "Rules")]
    pub(crate) max_lateness: Option<String>,
    /// Pause after so many failed runs in a row
    #[arg(long, value_name = "N", help_heading = "Rules")]
    pub(crate) pause_after: Option<u64>,
    /// Tell somebody if there is no success for so long
    #[arg(long, value_name = "LENGTH", help_heading = "Rules")]
    pub(crate) alert_after: Option<String>,
    /// What somebody is told of: failure, recovery, paused, success, overdue, or none; may be given several times
    /// [default: as the project has it]
    #[arg(long, value_name = "WORD", help_heading = "Rules")]
    pub(crate) notify: Vec<String>,
    /// Read it from a JSON file instead, or from stdin if that is -
    #[arg(long, conflicts_with_all = FIELDS)]
    pub(crate) file: Option<PathBuf>,
    /// If there is a trigger with this name already, give it this text
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// What a file says, and the command line then does not.
const FIELDS: [&str; 34] = [
    "name",
    "labels",
    "cron",
    "every",
    "phase",
    "at",
    "zone",
    "dialect",
    "gap",
    "fold",
    "start",
    "end",
    "limit",
    "jitter",
    "exclude",
    "webhook",
    "method",
    "header",
    "secret_header",
    "content_type",
    "body",
    "timeout",
    "catch_up",
    "catch_up_cap",
    "overlap",
    "delivery",
    "retry_attempts",
    "retry_delay",
    "retry_backoff",
    "retry_max_delay",
    "max_lateness",
    "pause_after",
    "alert_after",
    "notify",
];

/// List triggers in the order of their names
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes(
    "  watchbell trigger list\n  \
       watchbell trigger list --status paused --label team=billing\n  \
       watchbell trigger list --prefix report- --output json"
))]
pub(crate) struct TriggerListArgs {
    /// Only those that are scheduled, on_demand, paused, expired or cancelled
    #[arg(long, value_parser = word::<Status>)]
    pub(crate) status: Option<Status>,
    /// Only those whose name begins so
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Only those that carry this label; may be given several times, and then all are needed
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// A part of a list.
#[derive(Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// How many rows to show
    #[arg(long, value_name = "N", default_value_t = 50,
        value_parser = clap::value_parser!(u16).range(1..=LIST_ROWS_MAX.cast_signed() as i64))]
    pub(crate) limit: u16,
    /// Go on where the last page ended
    #[arg(long, value_name = "TEXT")]
    pub(crate) cursor: Option<String>,
}

/// Show a trigger
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes("  watchbell trigger show hello"))]
pub(crate) struct ShowArgs {
    /// Its name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Say what became of each slot of a trigger, and why
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes(
    "  watchbell trigger explain hello\n  \
       watchbell trigger explain hello --from 2027-01-15T00:00:00Z --to 2027-01-16T00:00:00Z"
))]
pub(crate) struct AccountArgs {
    /// Its name or id
    pub(crate) name: String,
    /// From this instant on, with a slot in it; an hour before the end, if it is not given
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) from: Option<Timestamp>,
    /// Up to this instant, without a slot in it; now, if it is not given
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) to: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Show when a trigger fires next
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes("  watchbell trigger next hello --count 20"))]
pub(crate) struct SlotsArgs {
    /// Its name or id
    pub(crate) name: String,
    /// How many to show
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..=NEXT_SLOTS_MAX.cast_signed() as i64))]
    pub(crate) count: u16,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Let a trigger fire nothing for a while
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes(
    "  watchbell trigger pause hello --note 'the receiver moves'\n  \
       watchbell trigger pause hello --until 2027-01-16T06:00:00Z"
))]
pub(crate) struct PauseArgs {
    /// Its name or id
    pub(crate) name: String,
    /// Why
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) note: String,
    /// Let it resume by itself at this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) until: Option<Timestamp>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Let a paused trigger fire again
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes("  watchbell trigger resume hello"))]
pub(crate) struct ResumeArgs {
    /// Its name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Let a trigger never fire again, but keep it and its past
///
/// That is for good. On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes("  watchbell trigger cancel hello --yes"))]
pub(crate) struct CancelArgs {
    /// Its name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Start a run of a trigger now
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes(
    "  watchbell trigger run hello\n  \
       watchbell trigger run hello --wait 30s"
))]
pub(crate) struct StartArgs {
    /// Its name or id
    pub(crate) name: String,
    /// Wait for its end, at most so long, up to 1m; it is a failure if the run does not succeed in this time
    #[arg(long, value_name = "LENGTH", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Delete a trigger
///
/// Its runs stay on record, under its id. On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = with_exit_codes("  watchbell trigger delete hello --yes"))]
pub(crate) struct DeleteArgs {
    /// Its name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// A word of the API.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let read = serde_json::from_value(serde_json::Value::String(text.to_owned()));
    read.map_err(|why| why.to_string().replace('`', "'").replace("variant", "word"))
}

pub(super) fn instant(text: &str) -> Result<Timestamp, String> {
    let instant: Instant =
        text.parse().map_err(|why: engine::instant::BadInstant| why.to_string())?;
    Timestamp::from_millisecond(instant.0).map_err(|why| why.to_string())
}

/// A length to wait for; a bare number is one of seconds.
fn wait(text: &str) -> Result<Duration, String> {
    let read = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => length::read(text).map_err(|why| why.to_string())?,
    };
    if (Duration::from_secs(1)..=RUN_WAIT_MAX).contains(&read) {
        return Ok(read);
    }
    Err(format!("1s to {} are allowed", length::text(RUN_WAIT_MAX)))
}

pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it like team=billing")?;
    check_label(key, value)?;
    Ok((key.to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it like 'name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests;

//! `watchbell trigger`, as it is typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use client::Timestamp;
use client::spec::{Backoff, CatchUp, Delivery, Dialect, Fold, Gap, Overlap, RetrySpec};
use client::trigger::{PauseRequest, Status};
use engine::instant::Instant;
use engine::length;
use engine::limits::{LIST_ROWS_MAX, NEXT_SLOTS_MAX, RUN_WAIT_MAX};
use engine::trigger::check_label;
use serde::de::DeserializeOwned;

use super::apply::{ApplyArgs, BackfillArgs};
use super::feed::FeedArgs;
use super::{OutputFormat, examples};
use crate::confirm::YesArgs;
use crate::secret::TypedSecret;

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
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
    /// How to show the answer
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// Who asks, and whom to trust.
#[derive(Debug, clap::Args)]
pub(crate) struct CredentialArgs {
    /// The key that lets you in
    ///
    /// Others on this machine can see what is typed: take --key-file or the variable.
    #[arg(
        long,
        value_name = "KEY",
        env = "WATCHBELL_KEY",
        hide_env_values = true,
        help_heading = "Server"
    )]
    pub(crate) key: Option<TypedSecret>,
    /// A file with the key that lets you in
    #[arg(long, value_name = "FILE", env = "WATCHBELL_KEY_FILE", help_heading = "Server")]
    pub(crate) key_file: Option<PathBuf>,
    /// The project that is meant, if the key is an admin's
    #[arg(long, value_name = "NAME", env = "WATCHBELL_PROJECT", help_heading = "Server")]
    pub(crate) project: Option<String>,
    /// Trust the issuers in this PEM file as well
    #[arg(long, value_name = "FILE", env = "WATCHBELL_CA", help_heading = "Server")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TriggerVerb {
    Create(Box<CreateArgs>),
    Apply(ApplyArgs),
    List(TriggerListArgs),
    /// Show a trigger
    #[command(after_help = examples("  watchbell trigger show hello"))]
    Show(TriggerNameArgs),
    Explain(AccountArgs),
    Next(SlotsArgs),
    Pause(PauseArgs),
    /// Let a paused trigger fire again
    #[command(after_help = examples("  watchbell trigger resume hello"))]
    Resume(TriggerNameArgs),
    /// Let a trigger never fire again, but keep it and its past
    ///
    /// That is for good. On a terminal you are asked first; elsewhere --yes is needed.
    #[command(after_help = examples("  watchbell trigger cancel hello --yes"))]
    Cancel(TriggerConsentArgs),
    Run(StartArgs),
    Backfill(BackfillArgs),
    /// Delete a trigger
    ///
    /// Its runs stay on record, under its id. On a terminal you are asked first; elsewhere --yes is needed.
    #[command(after_help = examples("  watchbell trigger delete hello --yes"))]
    Delete(TriggerConsentArgs),
}

/// Make a trigger: when, what, and where to
///
/// Without --cron, --every or --at it is run on demand only. It calls a webhook, or lets a queue have its runs.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell trigger create --name hello --cron '*/5 * * * * *' --method GET \\\n      \
       --webhook http://127.0.0.1:7400/livez\n  \
       watchbell trigger create --name report --cron '0 9 * * MON-FRI' --tz Europe/Berlin \\\n      \
       --webhook https://example.com/report --header 'authorization: Bearer TOKEN' --body '{}'\n  \
       watchbell trigger create --name digest --cron '@daily' --queue mail --handler digest\n  \
       watchbell trigger create --name tidy --every 1h --queue ops -- /usr/local/bin/tidy --all\n  \
       watchbell trigger create --file trigger.json"
))]
pub(crate) struct CreateArgs {
    /// Its name; the server makes one up if there is none
    ///
    /// Letters, digits, '.', '_' and '-'.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// A label to find it by; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// A cron pattern; may be repeated
    #[arg(long, value_name = "PATTERN", help_heading = "Schedule")]
    pub(crate) cron: Vec<String>,
    /// An interval: 90s, 5m or 1h30m; may be repeated
    #[arg(long, value_name = "LENGTH", help_heading = "Schedule")]
    pub(crate) every: Vec<String>,
    /// Where intervals begin, counted from 1970
    ///
    /// A place that comes from the name, if it is not given.
    #[arg(long, value_name = "LENGTH", help_heading = "Schedule", hide_short_help = true)]
    pub(crate) phase: Option<String>,
    /// An instant: 2027-03-28T01:00:00Z; may be repeated
    #[arg(long, value_name = "INSTANT", value_parser = instant, help_heading = "Schedule")]
    pub(crate) at: Vec<Timestamp>,
    /// The time zone, by its IANA name [default: UTC]
    ///
    /// That of patterns, excluded dates and quiet windows.
    #[arg(long = "tz", value_name = "ZONE", help_heading = "Schedule")]
    pub(crate) zone: Option<String>,
    /// How patterns are meant: open or quartz
    #[arg(long, value_parser = word::<Dialect>, help_heading = "Schedule", hide_short_help = true)]
    pub(crate) dialect: Option<Dialect>,
    /// Times that clocks leave out: fire or skip
    #[arg(long, value_parser = word::<Gap>, help_heading = "Schedule", hide_short_help = true)]
    pub(crate) gap: Option<Gap>,
    /// Times that clocks show twice: first, second or both
    #[arg(long, value_parser = word::<Fold>, help_heading = "Schedule", hide_short_help = true)]
    pub(crate) fold: Option<Fold>,
    /// No slot before this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant, help_heading = "Schedule", hide_short_help = true)]
    pub(crate) start: Option<Timestamp>,
    /// No slot after this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant, help_heading = "Schedule", hide_short_help = true)]
    pub(crate) end: Option<Timestamp>,
    /// End after so many runs
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub(crate) limit: Option<u64>,
    /// Let each slot leave up to so much later
    #[arg(long, value_name = "LENGTH", help_heading = "Schedule", hide_short_help = true)]
    pub(crate) jitter: Option<String>,
    /// A date without slots: 2027-12-24; may be repeated
    #[arg(long, value_name = "DATE", help_heading = "Schedule", hide_short_help = true)]
    pub(crate) exclude: Vec<String>,
    /// The URL to call
    #[arg(
        long,
        value_name = "URL",
        required_unless_present_any = ["file", "queue"],
        help_heading = "Webhook"
    )]
    pub(crate) webhook: Option<String>,
    /// GET, HEAD, POST, PUT, PATCH or DELETE [default: POST]
    #[arg(long, conflicts_with = "queue", help_heading = "Webhook")]
    pub(crate) method: Option<String>,
    /// A header; may be repeated
    #[arg(long, value_name = "NAME:VALUE", value_parser = header, conflicts_with = "queue", help_heading = "Webhook")]
    pub(crate) header: Vec<(String, String)>,
    /// A header whose value is never shown again; may be repeated
    #[arg(long, value_name = "NAME:VALUE", value_parser = header, conflicts_with = "queue", help_heading = "Webhook", hide_short_help = true)]
    pub(crate) secret_header: Vec<(String, String)>,
    /// The type of the body [default: application/json]
    #[arg(
        long,
        value_name = "TYPE",
        conflicts_with = "queue",
        help_heading = "Webhook",
        hide_short_help = true
    )]
    pub(crate) content_type: Option<String>,
    /// The body of the request
    #[arg(long, value_name = "TEXT", conflicts_with = "queue", help_heading = "Webhook")]
    pub(crate) body: Option<String>,
    /// How long an attempt may take: 1s to 30s [default: 15s]
    ///
    /// With --queue 1s to 30d, and as the worker has it if it is not given.
    #[arg(long, value_name = "LENGTH", help_heading = "Webhook")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) feed: FeedArgs,
    /// Missed slots: skip, latest or all [default: latest]
    ///
    /// Slots are missed when nobody was there to fire them.
    #[arg(long, value_parser = word::<CatchUp>, help_heading = "Policies")]
    pub(crate) catch_up: Option<CatchUp>,
    /// How many of them fire at most, with --catch-up all [default: 100]
    #[arg(long, value_name = "N", help_heading = "Policies", hide_short_help = true)]
    pub(crate) catch_up_cap: Option<u64>,
    /// A slot during a run: allow, skip, queue_one or replace
    ///
    /// What becomes of a slot while another run is not finished [default: allow].
    #[arg(long, value_parser = word::<Overlap>, help_heading = "Policies")]
    pub(crate) overlap: Option<Overlap>,
    /// at_least_once or at_most_once [default: at_least_once]
    ///
    /// A run that may or may not have arrived: at_least_once sends it again, at_most_once does not.
    #[arg(long, value_parser = word::<Delivery>, help_heading = "Policies")]
    pub(crate) delivery: Option<Delivery>,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
    /// Give a run up that cannot leave within this time
    #[arg(long, value_name = "LENGTH", help_heading = "Policies", hide_short_help = true)]
    pub(crate) max_lateness: Option<String>,
    /// Pause after so many failed runs in a row
    #[arg(long, value_name = "N", help_heading = "Policies", hide_short_help = true)]
    pub(crate) pause_after: Option<u64>,
    /// Notify when there is no success for so long
    #[arg(long, value_name = "LENGTH", help_heading = "Notifications")]
    pub(crate) alert_after: Option<String>,
    /// What to notify of; may be repeated
    ///
    /// failure, recovery, paused, success, overdue, or none [default: as the project has it].
    #[arg(long, value_name = "WORD", help_heading = "Notifications")]
    pub(crate) notify: Vec<String>,
    /// Read the trigger from a JSON file; - is stdin
    #[arg(long, conflicts_with_all = FIELDS.split(' '))]
    pub(crate) file: Option<PathBuf>,
    /// Replace a trigger of this name, if there is one
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// When a failed attempt is followed by another.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "flags have the names of fields")]
pub(crate) struct RetryArgs {
    /// So many attempts at most: 1 to 10 [default: 3]
    #[arg(long, value_name = "N", help_heading = "Policies")]
    retry_attempts: Option<u64>,
    /// The pause after the first attempt: 1s to 5m [default: 5s]
    #[arg(long, value_name = "LENGTH", help_heading = "Policies", hide_short_help = true)]
    retry_delay: Option<String>,
    /// How that pause grows: constant or exponential [default: exponential]
    #[arg(long, value_parser = word::<Backoff>, help_heading = "Policies", hide_short_help = true)]
    retry_backoff: Option<Backoff>,
    /// How far that pause grows: up to 1h [default: 5m]
    #[arg(long, value_name = "LENGTH", help_heading = "Policies", hide_short_help = true)]
    retry_max_delay: Option<String>,
}

impl RetryArgs {
    /// What was typed; nothing, if nothing was.
    pub(crate) fn spec(self) -> Option<RetrySpec> {
        let retry = RetrySpec {
            attempts: self.retry_attempts,
            delay: self.retry_delay,
            backoff: self.retry_backoff,
            max_delay: self.retry_max_delay,
        };
        (retry != RetrySpec::default()).then_some(retry)
    }
}

/// What a file says, and the command line then does not.
const FIELDS: &str = "name labels cron every phase at zone dialect gap fold start end limit jitter exclude webhook \
    method header secret_header content_type body timeout catch_up catch_up_cap overlap delivery \
    retry_attempts retry_delay retry_backoff retry_max_delay max_lateness pause_after \
    alert_after notify command queue handler payload payload_file env dir stdin priority concurrency_key pick count";

/// List triggers in the order of their names
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
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

/// Which rows of a list.
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

/// Which trigger is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct TriggerNameArgs {
    /// The trigger's name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Say what became of each slot of a trigger, and why
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell trigger explain hello\n  \
       watchbell trigger explain hello --from 2027-01-15T00:00:00Z --to 2027-01-16T00:00:00Z"
))]
pub(crate) struct AccountArgs {
    /// The trigger's name or id
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
#[command(after_help = examples("  watchbell trigger next hello --count 20"))]
pub(crate) struct SlotsArgs {
    /// The trigger's name or id
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
#[command(after_help = examples(
    "  watchbell trigger pause hello --note 'the receiver moves'\n  \
       watchbell trigger pause hello --until 2027-01-16T06:00:00Z"
))]
pub(crate) struct PauseArgs {
    /// The trigger's name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) pause: PauseFields,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Why something is paused, and until when.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseFields {
    /// Why it is paused, for those who look at it
    #[arg(long, default_value = "", hide_default_value = true)]
    note: String,
    /// Let it resume by itself at this instant
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    until: Option<Timestamp>,
}

impl PauseFields {
    /// What was typed, as a request.
    pub(crate) fn request(self) -> PauseRequest {
        PauseRequest { note: self.note, until: self.until }
    }
}

/// Which trigger is meant, where people are asked first.
#[derive(Debug, clap::Args)]
pub(crate) struct TriggerConsentArgs {
    /// The trigger's name or id
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Start a run of a trigger now
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell trigger run hello\n  \
       watchbell trigger run hello --wait 30s"
))]
pub(crate) struct StartArgs {
    /// The trigger's name or id
    pub(crate) name: String,
    /// Wait for its end, at most so long, up to 1m; it is a failure if the run does not succeed in this time
    #[arg(long, value_name = "LENGTH", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
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

//! `watchbell ring`, as it is typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use client::ring::SubscriptionSpec;
use client::spec::{CatchUp, QuietSpec, ScheduleSpec};
use engine::limits::{RING_COUNT_MAX, RING_SPLAY_PERCENT_MAX};
use process::limits::GRACE_MAX;

use super::elect::between;
use super::examples;
use super::trigger::{CredentialArgs, PageArgs, ServerArgs};
use super::worker::Isolate;
use crate::args::OutputFormat;
use crate::confirm::YesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum RingVerb {
    Create(RingCreateArgs),
    Apply(RingApplyArgs),
    List(RingListArgs),
    Show(RingShowArgs),
    Join(Box<RingJoinArgs>),
    Leave(RingLeaveArgs),
    Remove(RingRemoveArgs),
    Watch(RingWatchArgs),
    Skip(RingSkipArgs),
    Delete(RingDeleteArgs),
}

/// Make a ring: how often a turn comes, and how many members have it
///
/// With --subscription it makes a further subscription of a ring that is there: one with a schedule and a position of its own
/// over the same members. A name that is taken is refused; watchbell ring apply changes what is there.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell ring create checks --every 5s\n  \
       watchbell ring create backups --cron '0 3 * * *' --tz Europe/Berlin --count 2 --accept 30s\n  \
       watchbell ring create checks --subscription slow --every 10m --splay 50"
))]
pub(crate) struct RingCreateArgs {
    /// The name of the ring: letters, digits, '.', '_' and '-'
    pub(crate) name: String,
    /// A further subscription of this ring, instead of the ring itself
    #[arg(long, value_name = "NAME")]
    pub(crate) subscription: Option<String>,
    #[command(flatten)]
    pub(crate) turns: TurnArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// When turns come, and how many members each has.
#[derive(Debug, clap::Args)]
pub(crate) struct TurnArgs {
    /// The time from turn to turn, 20ms or more; or give --cron; may be repeated
    #[arg(long, value_name = "LENGTH", required_unless_present = "cron")]
    pub(crate) every: Vec<String>,
    /// Where intervals begin, counted from 1970; a place that comes from the name, if it is not given
    #[arg(long, value_name = "LENGTH", requires = "every")]
    pub(crate) phase: Option<String>,
    /// A cron pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) cron: Vec<String>,
    /// The zone of patterns, excluded dates and quiet windows
    #[arg(long, value_name = "ZONE")]
    pub(crate) tz: Option<String>,
    /// How many members each turn has, 1 to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=RING_COUNT_MAX))]
    pub(crate) count: Option<u64>,
    /// A date on which no turn comes: 2027-12-24; may be repeated
    #[arg(long, value_name = "DATE")]
    pub(crate) exclude: Vec<String>,
    /// A window in which no turn comes: 22:00-06:00, or sat,sun:00:00-24:00; may be repeated
    #[arg(long, value_name = "WINDOW", value_parser = quiet)]
    pub(crate) quiet: Vec<QuietSpec>,
    /// Spread the parts of a turn over so many percent of the time to the next one
    #[arg(long, value_name = "PERCENT",
        value_parser = clap::value_parser!(u64).range(0..=RING_SPLAY_PERCENT_MAX))]
    pub(crate) splay: Option<u64>,
    /// What becomes of turns that are more than 5 s late; latest, if it is not given
    #[arg(long, value_name = "POLICY")]
    pub(crate) catch_up: Option<CatchUpWord>,
    /// How many of them come at most, with --catch-up all
    #[arg(long, value_name = "N")]
    pub(crate) catch_up_cap: Option<u64>,
    /// Let a part pass to the next member if it is not accepted within this time, 200ms to 1h
    #[arg(long, value_name = "LENGTH")]
    pub(crate) accept: Option<String>,
}

impl TurnArgs {
    pub(crate) fn spec(self) -> SubscriptionSpec {
        let Self { every, phase, cron, tz, count, exclude, quiet, splay, .. } = self;
        let schedule =
            ScheduleSpec { cron, every, phase, tz, exclude, quiet, ..ScheduleSpec::default() };
        SubscriptionSpec {
            schedule: Some(schedule),
            count,
            splay_percent: splay,
            catch_up: self.catch_up.map(CatchUpWord::policy),
            catch_up_cap: self.catch_up_cap,
            accept: self.accept,
        }
    }
}

/// What becomes of turns that nobody was there to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CatchUpWord {
    /// They are skipped
    Skip,
    /// The last one comes
    Latest,
    /// They come, up to a cap
    All,
}

impl CatchUpWord {
    fn policy(self) -> CatchUp {
        match self {
            Self::Skip => CatchUp::Skip,
            Self::Latest => CatchUp::Latest,
            Self::All => CatchUp::All,
        }
    }
}

/// Make rings be as files say: make, change, and with --prune delete them
///
/// A file is YAML or JSON: one ring, a list of them, an object with a list called rings (lists called triggers and queues may
/// stand beside it), or several YAML documents. The fields are those of the API, with the ring's name; further subscriptions
/// stand under subscriptions, by name. All files are read and checked before anything is sent, and what is as it should be is
/// left alone. If some rings fail the others are done all the same, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell ring apply rings.yaml\n  \
       watchbell ring apply rings.yaml --dry-run\n  \
       watchbell ring apply *.yaml --prune --prefix checks-"
))]
pub(crate) struct RingApplyArgs {
    /// The files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete the rings that are in no file and whose name begins as --prefix says
    #[arg(long, requires = "prefix")]
    pub(crate) prune: bool,
    /// How the names of rings begin that may be deleted; all of them, if it is empty
    #[arg(long, requires = "prune", value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// List rings in the order of their names
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell ring list\n  \
       watchbell ring list --prefix checks- --output json"
))]
pub(crate) struct RingListArgs {
    /// Only those whose name begins so
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Show a ring: its subscriptions, how each stands, and who is in it
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell ring show checks"))]
pub(crate) struct RingShowArgs {
    /// The name of the ring
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Be a member of a ring, and run a program whenever it is its turn
///
/// The program is run once for each part of a turn that this member has, one after the other, as a tree of processes that ends
/// with it. It finds WATCHBELL_RING, WATCHBELL_RING_SUBSCRIPTION, WATCHBELL_RING_TURN, WATCHBELL_RING_SLOT and WATCHBELL_TOKEN.
/// Of a subscription with --accept a part is accepted first, and the program is run only when that is acknowledged.
///
/// SIGTERM or Ctrl-C leaves the ring, lets the program end, and ends; the second one kills it. A member that is silent for 5 s,
/// because it was killed or no server answers, is taken out of the ring, and joins again when one does.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell ring join checks --as web-1 -- /usr/local/bin/check --all\n  \
       watchbell ring join checks --as web-1 --subscription slow \\\n      \
       --server http://10.0.0.1:7400,http://10.0.0.2:7400 -- sh -c 'echo turn $WATCHBELL_RING_TURN'"
))]
pub(crate) struct RingJoinArgs {
    /// The name of the ring
    pub(crate) name: String,
    /// The name of this member, which no other one has; that of the machine, if it is not given
    #[arg(long = "as", value_name = "NAME", env = "WATCHBELL_NAME")]
    pub(crate) member: Option<String>,
    /// The program and its arguments, behind two dashes
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
    /// Only turns of this subscription; of all, if it is not given; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) subscription: Vec<String>,
    /// How long the program may take to end after SIGTERM before all of it is killed
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_GRACE", default_value = "10s", value_parser = grace)]
    pub(crate) grace: Duration,
    /// What keeps the program and all that it starts together
    #[arg(
        long,
        value_enum,
        env = "WATCHBELL_ISOLATE",
        default_value = "auto",
        hide_short_help = true
    )]
    pub(crate) isolate: Isolate,
    /// End after so many turns
    #[arg(long, value_name = "N")]
    pub(crate) turns: Option<u64>,
    #[command(flatten)]
    pub(crate) servers: RingServersArgs,
}

/// Which servers, any of which will do, and how to show what happens.
#[derive(Debug, clap::Args)]
pub(crate) struct RingServersArgs {
    /// A server to ask; with several it goes on while one of them answers
    #[arg(
        long,
        value_name = "URL",
        env = "WATCHBELL_SERVER",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:7400",
        help_heading = "Server"
    )]
    pub(crate) server: Vec<String>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
    /// How to show what happens: for people, or one JSON object each
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// Leave a ring, as the member that you were
///
/// For programs that joined by the API. It takes the visit that the member was told, so it never takes out somebody who has
/// joined anew under the name.
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell ring leave checks --as web-1 --visit 3"))]
pub(crate) struct RingLeaveArgs {
    /// The name of the ring
    pub(crate) name: String,
    /// The name of the member
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) member: String,
    /// The visit that it was told
    #[arg(long, value_name = "N")]
    pub(crate) visit: u64,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Take a member out of a ring, whoever it is
///
/// If it still lives it is told so, and may join anew. On a terminal you are asked first; elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell ring remove checks web-1 --yes"))]
pub(crate) struct RingRemoveArgs {
    /// The name of the ring
    pub(crate) name: String,
    /// The name of the member
    pub(crate) member: String,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Follow a ring: who is in it, whose turn it is, and what was skipped
///
/// On a terminal the circle is drawn, and the turn moves around it; elsewhere each event is a line. Everybody who watches sees
/// the same turns in the same order, by whichever server; what is not kept any more is told as a gap.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell ring watch checks\n  \
       watchbell ring watch checks --lines --count 10\n  \
       watchbell ring watch checks --after 1.17 --output json"
))]
pub(crate) struct RingWatchArgs {
    /// The name of the ring
    pub(crate) name: String,
    /// Which of its subscriptions
    #[arg(long, value_name = "NAME", default_value = client::ring::MAIN)]
    pub(crate) subscription: String,
    /// Show lines also on a terminal
    #[arg(long)]
    pub(crate) lines: bool,
    /// Begin after this entry, GENERATION.NUMBER; with what happens from now on, if it is not given
    #[arg(long, value_name = "PLACE")]
    pub(crate) after: Option<String>,
    /// End after so many turns and skips
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) servers: RingServersArgs,
}

/// Let the next turn pass over its next member
#[derive(Debug, clap::Args)]
#[command(after_help = examples("  watchbell ring skip checks"))]
pub(crate) struct RingSkipArgs {
    /// The name of the ring
    pub(crate) name: String,
    /// Which of its subscriptions
    #[arg(long, value_name = "NAME", default_value = client::ring::MAIN)]
    pub(crate) subscription: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Delete a ring, or one of its subscriptions
///
/// Its members are in it no more; a program that says that it still is there is refused. On a terminal you are asked first;
/// elsewhere --yes is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell ring delete checks --yes\n  \
       watchbell ring delete checks --subscription slow --yes"
))]
pub(crate) struct RingDeleteArgs {
    /// The name of the ring
    pub(crate) name: String,
    /// Only this subscription
    #[arg(long, value_name = "NAME")]
    pub(crate) subscription: Option<String>,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn grace(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, GRACE_MAX)
}

/// `22:00-06:00`, or `sat,sun:00:00-24:00`.
fn quiet(text: &str) -> Result<QuietSpec, String> {
    const RIGHT: &str = "write a window like 22:00-06:00, or with days like sat,sun:00:00-24:00";
    let (begin, to) = text.split_once('-').ok_or(RIGHT)?;
    let (days, from) = match begin.matches(':').count() {
        1 => ("", begin),
        2 => begin.split_once(':').ok_or(RIGHT)?,
        _ => return Err(RIGHT.to_owned()),
    };
    let days = days.split(',').filter(|day| !day.is_empty()).map(str::to_owned).collect();
    Ok(QuietSpec { days, from: from.to_owned(), to: to.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_two_times_with_or_without_days() {
        let window = |days: &[&str], from: &str, to: &str| {
            let days = days.iter().map(ToString::to_string).collect();
            Ok(QuietSpec { days, from: from.to_owned(), to: to.to_owned() })
        };
        assert_eq!(quiet("22:00-06:00"), window(&[], "22:00", "06:00"));
        assert_eq!(quiet("sat,sun:00:00-24:00"), window(&["sat", "sun"], "00:00", "24:00"));
        for text in ["", "22:00", "22-06", "a:b:c:d-e"] {
            assert!(quiet(text).is_err(), "{text}");
        }
    }
}

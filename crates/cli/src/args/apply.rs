//! `watchbell trigger apply` and `watchbell trigger backfill`, as they are typed.

use std::path::PathBuf;
use std::time::Duration;

use client::Timestamp;
use engine::length;
use engine::limits::{ACCOUNT_SPAN_MAX, APPLY_RATE_MAX};

use super::examples;
use super::trigger::{ServerArgs, instant, label};
use crate::confirm::YesArgs;

/// Make triggers be as files say: make, change, and with --prune delete them
///
/// A file is YAML or JSON: one trigger, a list of them, an object with a list called triggers, or several YAML
/// documents. The fields are those of the API; each trigger has a name. All files are read and checked before
/// anything is sent, and what is as it should be is left alone. If some triggers fail the others are done all
/// the same, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell trigger apply triggers.yaml\n  \
       watchbell trigger apply triggers.yaml --dry-run --horizon 2d\n  \
       watchbell trigger apply *.yaml --prune --label team=billing\n  \
       watchbell import crontab /etc/crontab --system --webhook-base https://example.com/cron |\n      \
       watchbell trigger apply -"
))]
pub(crate) struct ApplyArgs {
    /// The files; - is stdin
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Send nothing, and show what would change: fields, and slots that appear and vanish
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How far --dry-run looks; it shows up to 20 slots of each trigger, and counts the others
    #[arg(long, value_name = "LENGTH", default_value = "7d", value_parser = horizon)]
    pub(crate) horizon: Duration,
    /// Delete triggers that carry all labels of --label and are in none of the files
    #[arg(long, requires = "labels")]
    pub(crate) prune: bool,
    /// A label of those that --prune may delete; may be given several times, and then all are needed
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label, requires = "prune")]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Run slots of the past again
///
/// Each slot that the present schedule has in the window gets a run on demand, whose slot is that instant.
/// Neither what is on record about these slots nor the runs that are left of a limit change. If it is cut
/// short, the name that it tells goes on with it: --request NAME starts no slot twice.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell trigger backfill report --from 2027-01-01T00:00:00Z --to 2027-01-08T00:00:00Z\n  \
       watchbell trigger backfill report --from 2027-01-01T00:00:00Z --to 2027-01-08T00:00:00Z --dry-run\n  \
       watchbell trigger backfill report --from 2027-01-01T00:00:00Z --to 2027-01-08T00:00:00Z \\\n      \
       --rate 100/m --yes"
))]
pub(crate) struct BackfillArgs {
    /// The trigger's name or id
    pub(crate) name: String,
    /// From this instant on, with a slot in it
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) from: Timestamp,
    /// Up to this instant, without a slot in it
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub(crate) to: Timestamp,
    /// How many runs to start per second, minute or hour: N/s, N/m or N/h
    #[arg(long, value_name = "N/s", default_value = "10/s", value_parser = rate)]
    pub(crate) rate: Rate,
    /// A name for this request; the same name again starts no slot twice
    #[arg(long, value_name = "NAME")]
    pub(crate) request: Option<String>,
    /// Send nothing, and list the slots
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) consent: YesArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// So many in so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) count: u32,
    pub(crate) per: Duration,
}

fn rate(text: &str) -> Result<Rate, String> {
    const RIGHT: &str = "write it like 10/s, 100/m or 1/h";
    let (count, unit) = text.split_once('/').ok_or(RIGHT)?;
    let count: u32 = count.parse().map_err(|_| RIGHT)?;
    if !(1..=APPLY_RATE_MAX).contains(&count) {
        return Err(format!("1 to {APPLY_RATE_MAX} are allowed"));
    }
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(RIGHT.to_owned()),
    };
    Ok(Rate { count, per: Duration::from_secs(seconds) })
}

fn horizon(text: &str) -> Result<Duration, String> {
    let read = length::read(text).map_err(|why| why.to_string())?;
    if (Duration::from_secs(1)..=ACCOUNT_SPAN_MAX).contains(&read) {
        return Ok(read);
    }
    Err(format!("1s to {} are allowed", length::text(ACCOUNT_SPAN_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_up_to_its_limit() {
        let second = Duration::from_secs(1);
        assert_eq!(rate("10/s"), Ok(Rate { count: 10, per: second }));
        assert_eq!(rate("1/h"), Ok(Rate { count: 1, per: 3_600 * second }));
        assert_eq!(rate("1000/m"), Ok(Rate { count: 1_000, per: 60 * second }));
        for bad in ["", "10", "0/s", "1001/s", "x/s", "1/d", "-1/s"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_horizon_is_read_up_to_its_limit() {
        assert_eq!(horizon("366d"), Ok(ACCOUNT_SPAN_MAX));
        assert!(horizon("367d").is_err() && horizon("0s").is_err());
    }
}

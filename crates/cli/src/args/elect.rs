//! `watchbell elect`, as it is typed.

#![expect(
    clippy::doc_markdown,
    reason = "the comments are help texts, which are shown as they are"
)]

use std::net::SocketAddr;
use std::time::Duration;

use engine::length;
use engine::limits::{
    CHECK_INTERVAL_MIN, ELECT_WAIT_MAX, HOOK_TIME_MAX, LEASE_TTL_MAX, LEASE_TTL_MIN,
};

use super::{LogLevel, OutputFormat, address, examples};
use crate::args::pass::PassArgs;
use crate::secret::TypedSecret;

/// Campaign for a leadership, and say when it is won and lost, until SIGTERM or Ctrl-C
///
/// Of all candidates for a NAME at most one leads at a time. Each transition is a line on stdout; a hook may be run
/// for it. A store that goes away ends nothing: who leads says so no more before its time is over, and everybody
/// goes on when the store is back. At the end the leadership is given up, so that another one has it at once.
///
/// Hooks tell; they do not hold. What a hook starts is not stopped when this process is killed, or cannot run: what
/// must never run twice has to check the token. Started with REDIS_HOST and without NAME and --store, it does the
/// work of the Redis scheduler with its six variables: see docs/coming-from-the-redis-scheduler.md
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell elect reports --store redis://cache.example.com:6379\n  \
       watchbell elect reports --store redis://cache:6379 --ttl 1s --check-interval 200ms \\\n      \
       --metrics 127.0.0.1:9834 --on-elected 'systemctl start reports' --on-lost 'systemctl stop reports'\n  \
       WATCHBELL_STORE=https://bells.example.com:7400 WATCHBELL_KEY_FILE=node.key watchbell elect reports --output json"
))]
pub(crate) struct ElectArgs {
    /// What to lead: letters from a to z, digits, '.', '_' and '-'
    pub(crate) name: Option<String>,
    /// Where candidates meet: the kind of store, a colon, and the place
    #[arg(long, value_name = "URL", env = "WATCHBELL_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// How long it may lead after a renewal [default: 3s]
    ///
    /// There are five renewals in that time; after a crash another one leads in 1.25 times as long.
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_TTL", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// How often to look who leads if the store says nothing
    ///
    /// A tenth of the TTL while it does not lead and half of it while it does, if it is not given.
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_CHECK_INTERVAL", value_parser = interval)]
    pub(crate) check_interval: Option<Duration>,
    /// The name of this candidate, which no other one has
    ///
    /// That of the machine and something drawn, if it is not given.
    #[arg(long, value_name = "NAME", env = "WATCHBELL_NODE")]
    pub(crate) node: Option<String>,
    /// The project that the leadership belongs to
    #[arg(long, value_name = "NAME", env = "WATCHBELL_PROJECT", default_value = "default")]
    pub(crate) project: String,
    /// Run this by sh when it has become the leader
    #[arg(long, value_name = "COMMAND", env = "WATCHBELL_ON_ELECTED")]
    pub(crate) on_elected: Option<String>,
    /// Run this by sh when it leads no more
    ///
    /// Also when it is about to lose its lead because the store does not answer.
    #[arg(long, value_name = "COMMAND", env = "WATCHBELL_ON_LOST")]
    pub(crate) on_lost: Option<String>,
    /// How long a hook may run before it is killed
    #[arg(
        long,
        value_name = "LENGTH",
        env = "WATCHBELL_HOOK_TIMEOUT",
        default_value = "10s",
        value_parser = hook_time
    )]
    pub(crate) hook_timeout: Duration,
    /// Serve /metrics and /livez there: an address and a port; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", env = "WATCHBELL_METRICS", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// How long to wait for a store that cannot be reached at the start; for ever, if it is not given
    #[arg(long, value_name = "LENGTH", env = "WATCHBELL_WAIT", value_parser = wait)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
    /// How to show transitions: lines for people, or one JSON object each
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) ancestor: AncestorArgs,
}

/// The variables of the Redis scheduler. They have no flags that anybody should type: the parser knows no variable
/// without one.
#[derive(Debug, clap::Args)]
pub(crate) struct AncestorArgs {
    #[arg(long = "x-app-env", env = "APP_ENV", hide = true)]
    pub(crate) app_env: Option<String>,
    #[arg(long = "x-metrics-port", env = "METRICS_PORT", hide = true)]
    pub(crate) metrics_port: Option<String>,
    #[arg(long = "x-redis-host", env = "REDIS_HOST", hide = true)]
    pub(crate) host: Option<String>,
    #[arg(long = "x-redis-port", env = "REDIS_PORT", hide = true)]
    pub(crate) port: Option<String>,
    #[arg(long = "x-redis-password", env = "REDIS_PASSWORD", hide = true, hide_env_values = true)]
    pub(crate) password: Option<TypedSecret>,
    #[arg(long = "x-redis-leader-key", env = "REDIS_LEADER_KEY", hide = true)]
    pub(crate) leader_key: Option<String>,
}

impl ElectArgs {
    /// Whether it was started as the Redis scheduler was.
    pub(crate) fn is_ancestor(&self) -> bool {
        let named = self.ancestor.host.as_ref().is_some_and(|host| !host.is_empty());
        named && self.name.is_none() && self.store.is_none()
    }

    /// How much it tells unless somebody says otherwise: that of the Redis scheduler, in its place.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        let is_development = self.ancestor.app_env.as_deref() == Some("development");
        let level = if is_development { LogLevel::Debug } else { LogLevel::Info };
        self.is_ancestor().then_some(level)
    }
}

/// A length of time, also in milliseconds.
fn read(text: &str) -> Result<Duration, String> {
    if let Some(millis) = text.strip_suffix("ms")
        && let Ok(millis) = millis.parse()
    {
        return Ok(Duration::from_millis(millis));
    }
    length::read(text).map_err(|why| format!("{why}, or milliseconds like `200ms`"))
}

pub(super) fn between(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let length = read(text)?;
    if (least..=most).contains(&length) {
        return Ok(length);
    }
    let least = if least.subsec_millis() > 0 {
        format!("{}ms", least.as_millis())
    } else {
        length::text(least)
    };
    Err(format!("{least} to {} are allowed", length::text(most)))
}

fn ttl(text: &str) -> Result<Duration, String> {
    between(text, LEASE_TTL_MIN, LEASE_TTL_MAX)
}

fn interval(text: &str) -> Result<Duration, String> {
    between(text, CHECK_INTERVAL_MIN, LEASE_TTL_MAX)
}

fn hook_time(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), HOOK_TIME_MAX)
}

fn wait(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, ELECT_WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_taken_up_to_their_limits_and_refused_one_past_them() {
        type Reader = fn(&str) -> Result<Duration, String>;
        let rows: [(Reader, &str, &str, &str, &str); 4] = [
            (ttl, "500ms", "499ms", "1h", "3601s"),
            (interval, "50ms", "49ms", "1h", "3601s"),
            (hook_time, "1s", "999ms", "5m", "301s"),
            (wait, "0s", "-1s", "1d", "86401s"),
        ];
        for (read, least, below, most, above) in rows {
            assert!(read(least).is_ok() && read(most).is_ok(), "{least} {most}");
            assert!(read(below).is_err() && read(above).is_err(), "{below} {above}");
        }
        assert_eq!(ttl("200ms").unwrap_err(), "500ms to 1h are allowed");
        assert!(ttl("soon").unwrap_err().contains("milliseconds like `200ms`"));
    }
}

//! The command line, as it is typed.
//!
//! Nothing here decides anything: URLs stay text until a verb reads them, so that a password in one
//! is never repeated by the parser's own messages. What is asked of a server is in [`trigger`],
//! [`run`], [`submit`], [`queue`], [`worker`], [`project`], [`key`] and [`system`]; backups are in [`mod@backup`], what a candidate is told in
//! [`elect`], a hold in [`hold`], and what one watches it by in [`mod@witness`].

pub(crate) mod apply;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod elect;
pub(crate) mod election;
pub(crate) mod feed;
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod key;
pub(crate) mod pass;
pub(crate) mod project;
pub(crate) mod queue;
pub(crate) mod redrive;
pub(crate) mod ring;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod submit;
pub(crate) mod system;
pub(crate) mod trigger;
pub(crate) mod witness;
pub(crate) mod worker;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Parser, Subcommand, ValueEnum};
use engine::limits::{CRON_COUNT_MAX, MEASURE_SECONDS_MAX};
use engine::schedule::cron::Dialect;

use self::backup::{BackupVerb, RestoreArgs};
use self::bench::BenchVerb;
use self::demo::DemoVerb;
use self::election::ElectionVerb;
use self::import::{CompletionsArgs, ImportVerb};
use self::key::KeyVerb;
use self::pass::PassArgs;
use self::project::ProjectVerb;
use self::queue::QueueVerb;
use self::ring::RingVerb;
use self::run::{RunVerb, SchedulerVerb};
use self::system::{AuditVerb, ClusterVerb, ConfigArgs, EventsArgs};
use self::trigger::TriggerVerb;
use self::witness::{SignerArgs, WitnessArgs};
use self::worker::{AllowArgs, SurroundingsArgs, WorkerArgs};
use crate::exit::Exit;

/// Watchbell: rings on time, takes turns, and lets exactly one hold the watch
#[derive(Debug, Parser)]
#[command(version, next_help_heading = "Everywhere", after_help = examples(
    "  watchbell trigger create --name hello --cron '*/5 * * * * *' --method GET \\\n      \
       --webhook http://127.0.0.1:7400/livez\n  \
       watchbell trigger explain hello\n  \
       watchbell store check file:./watchbell-data\n  \
       watchbell cron next '*/15 9-17 * * MON-FRI' --tz Europe/Berlin"
))]
pub(crate) struct Args {
    /// How much to tell on stderr about what goes on inside
    #[arg(
        long,
        alias = "log",
        global = true,
        value_name = "LEVEL",
        env = "WATCHBELL_LOG_LEVEL",
        default_value = "warn"
    )]
    pub(crate) log_level: LogLevel,
    /// How to tell it: lines for people, or JSON objects for programs
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        env = "WATCHBELL_LOG_FORMAT",
        default_value = "text"
    )]
    pub(crate) log_format: LogFormat,
    /// A file with settings, under the names of the flags; see watchbell config --help
    #[arg(long, global = true, value_name = "FILE", env = "WATCHBELL_CONFIG")]
    pub(crate) config: Option<std::path::PathBuf>,
    /// Show no colours, also on a terminal
    #[arg(long, global = true, env = "NO_COLOR", value_parser = unless_empty)]
    pub(crate) no_color: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What is wrong with what was typed, without a password or a key that was typed in the wrong place.
pub(crate) fn without_secret(mut why: clap::Error) -> clap::Error {
    let kinds = [
        ContextKind::InvalidArg,
        ContextKind::InvalidSubcommand,
        ContextKind::InvalidValue,
        ContextKind::TrailingArg,
    ];
    for kind in kinds {
        if let Some(ContextValue::String(text)) = why.get(kind)
            && ["@", "wbk_", "whsec_"].iter().any(|mark| text.contains(mark))
        {
            why.insert(kind, ContextValue::String("…".to_owned()));
        }
    }
    why
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Dev(DevArgs),
    Server(serve::ServeArgs),
    /// Make triggers, and ask what became of them
    #[command(subcommand, after_help = examples(
        "  watchbell trigger apply triggers.yaml\n  \
           watchbell trigger list --label team=billing\n  \
           watchbell trigger explain hello"
    ))]
    Trigger(TriggerVerb),
    /// Bring what another scheduler has
    #[command(subcommand, after_help = examples(
        "  crontab -l | watchbell import crontab - --webhook-base https://example.com/cron > cron.yaml"
    ))]
    Import(ImportVerb),
    /// Look at runs, and let queues have them
    #[command(subcommand, after_help = examples(
        "  watchbell run list --trigger hello\n  \
           watchbell run submit --queue mail --handler welcome --payload '{\"to\": \"ann@example.com\"}'"
    ))]
    Run(RunVerb),
    /// Look after queues, whose runs workers carry out
    #[command(subcommand, after_help = examples("  watchbell queue list\n  watchbell queue show mail"))]
    Queue(QueueVerb),
    Worker(Box<WorkerArgs>),
    /// Look after the scheduler as a whole
    #[command(subcommand, after_help = examples("  watchbell scheduler status"))]
    Scheduler(SchedulerVerb),
    /// Look after projects, which own triggers and keys
    #[command(subcommand, after_help = examples("  watchbell project create shop\n  watchbell project list"))]
    Project(ProjectVerb),
    /// Look after keys, which let people and programs in
    #[command(subcommand, after_help = examples(
        "  watchbell key create --name deploy --scope write --project shop\n  watchbell key list"
    ))]
    Key(KeyVerb),
    /// See who leads, and ask whoever does to leave
    #[command(subcommand, after_help = examples("  watchbell election list\n  watchbell election watch"))]
    Election(ElectionVerb),
    /// Look after rings, whose members take turns, and be one of them
    #[command(subcommand, after_help = examples(
        "  watchbell ring create checks --every 5s\n  \
           watchbell ring join checks --as web-1 -- /usr/local/bin/check\n  \
           watchbell ring watch checks"
    ))]
    Ring(RingVerb),
    /// See who changed what
    #[command(subcommand, after_help = examples("  watchbell audit list"))]
    Audit(AuditVerb),
    Events(EventsArgs),
    /// See who takes part, and let a server go
    #[command(subcommand, after_help = examples(
        "  watchbell cluster status\n  \
           watchbell cluster drain watchbell-2"
    ))]
    Cluster(ClusterVerb),
    Elect(Box<elect::ElectArgs>),
    Hold(Box<hold::HoldArgs>),
    Config(ConfigArgs),
    /// Examine a store, and look into it
    #[command(subcommand, after_help = examples("  watchbell store check file:./watchbell-data"))]
    Store(StoreVerb),
    /// Write all that there is to a file, and examine such files
    #[command(subcommand, after_help = examples("  watchbell backup create bells.backup\n  watchbell backup verify bells.backup"))]
    Backup(BackupVerb),
    Restore(RestoreArgs),
    /// Measure how fast Watchbell is, on this machine and a store of yours
    #[command(subcommand, after_help = examples("  watchbell bench fires\n  watchbell bench overload\n  watchbell bench queue"))]
    Bench(BenchVerb),
    /// See what becomes of runs while servers and workers are killed
    #[command(subcommand, after_help = examples("  watchbell demo tasks\n  watchbell demo tasks --speed 10"))]
    Demo(DemoVerb),
    Witness(WitnessArgs),
    DemoSigner(SignerArgs),
    /// Read cron patterns: when they come, and what they mean
    #[command(subcommand, after_help = examples("  watchbell cron explain '0 12 1 * +MON'"))]
    Cron(CronVerb),
    Completions(CompletionsArgs),
}

/// Run a whole Watchbell on this machine: server, scheduler, file store and a worker in one process
///
/// It listens on loopback only and needs no key. Its worker runs what --allow names, and nothing without. Stop it with
/// Ctrl-C: what is under way ends first.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell dev\n  \
       watchbell dev --allow /bin/echo\n  \
       watchbell dev --listen 127.0.0.1:8400 --data /tmp/bells\n  \
       watchbell dev --webhook-allow 10.0.0.0/8"
))]
pub(crate) struct DevArgs {
    /// Where to listen: a loopback address or localhost, and a port; port 0 takes any that is free
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "WATCHBELL_LISTEN",
        default_value = "127.0.0.1:7400",
        value_parser = address
    )]
    pub(crate) listen: SocketAddr,
    /// The directory that holds everything; it is made if it is not there
    ///
    /// The spool of its own worker is beside it, in a directory of that name with -worker behind it.
    #[arg(long, value_name = "DIR", env = "WATCHBELL_DATA", default_value = "./watchbell-data")]
    pub(crate) data: std::path::PathBuf,
    /// Let webhooks call this range of addresses, which is not public; may be given several times
    #[arg(long, value_name = "CIDR", env = "WATCHBELL_WEBHOOK_ALLOW", value_delimiter = ',')]
    pub(crate) webhook_allow: Vec<server::webhook::Cidr>,
    /// Let webhooks trust the issuers in this PEM file as well
    #[arg(long, value_name = "FILE", env = "WATCHBELL_WEBHOOK_CA")]
    pub(crate) webhook_ca: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) allow: AllowArgs,
    /// A queue whose commands it runs, if any are allowed; may be repeated
    #[arg(
        long,
        value_name = "NAME",
        env = "WATCHBELL_WORKER_QUEUE",
        value_delimiter = ',',
        default_value = "default",
        help_heading = "Programs"
    )]
    pub(crate) worker_queue: Vec<String>,
    #[command(flatten)]
    pub(crate) surroundings: SurroundingsArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CronVerb {
    Next(NextArgs),
    Explain(ExplainArgs),
}

/// Show when a cron pattern comes next
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell cron next '*/15 9-17 * * MON-FRI' --tz Europe/Berlin\n  \
       watchbell cron next '30 2 * * *' --tz America/New_York --from 2027-03-13T00:00:00Z\n  \
       watchbell cron next '0 0 12 ? * 6L' --dialect quartz --count 3 --output json"
))]
pub(crate) struct NextArgs {
    #[command(flatten)]
    pub(crate) pattern: PatternArgs,
    /// From this instant on, with a slot in it; now, if it is not given
    #[arg(long, value_name = "INSTANT")]
    pub(crate) from: Option<String>,
    /// How many to show
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=CRON_COUNT_MAX))]
    pub(crate) count: u16,
    /// How to show them: a table, or a JSON array of instants
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// Say in plain English what a cron pattern means, and what happens when clocks are set
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell cron explain '0 12 1 * +MON'\n  \
       watchbell cron explain '30 2 * * *' --tz Europe/Berlin --output json"
))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) pattern: PatternArgs,
    /// How to show it: sentences, or a JSON object
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// A pattern and where it is read.
#[derive(Debug, clap::Args)]
pub(crate) struct PatternArgs {
    /// The pattern: 5, 6 or 7 fields, or a word such as @daily or '@every 90s'
    pub(crate) pattern: String,
    /// The time zone, by its IANA name
    #[arg(long = "tz", value_name = "ZONE", default_value = "UTC")]
    pub(crate) zone: String,
    /// How the pattern is meant
    #[arg(long, value_enum, default_value_t = DialectName::Open)]
    pub(crate) dialect: DialectName,
    /// The trigger's name, from which H and @every take their place
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) name: String,
}

/// A dialect of cron.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DialectName {
    /// The Open Cron Pattern Specification; Sunday is 0 and 7
    Open,
    /// Seconds first, Sunday is 1, `?` in one of the day fields
    Quartz,
}

impl From<DialectName> for Dialect {
    fn from(name: DialectName) -> Self {
        match name {
            DialectName::Open => Self::Open,
            DialectName::Quartz => Self::Quartz,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreVerb {
    Check(CheckArgs),
    Dump(DumpArgs),
}

/// Read everything in a store, examine whether it keeps its promises, and measure it
///
/// Opens the store, or makes one where there is none. Whatever the check writes lies below a
/// prefix of its own (scratch/...), and is removed at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell store check file:./watchbell-data\n  \
       watchbell store check file:/var/lib/watchbell --seconds 10\n  \
       watchbell store check etcd://10.0.0.1,10.0.0.2,10.0.0.3/watchbell\n  \
       watchbell store check file:/var/lib/watchbell --output json > check.json"
))]
pub(crate) struct CheckArgs {
    /// Where the store is: the kind of store, a colon, and the place
    pub(crate) url: String,
    /// How to show what was found
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
    /// How long each of the three measurements takes; 0 leaves them out
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u16).range(0..=MEASURE_SECONDS_MAX))]
    pub(crate) seconds: u16,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

impl CheckArgs {
    /// How long each measurement takes, if there shall be any.
    pub(crate) fn measure_for(&self) -> Option<Duration> {
        (self.seconds > 0).then(|| Duration::from_secs(self.seconds.into()))
    }
}

/// Show the keys, versions and values in a store
///
/// The store must be there, and no entry of it is changed. Values that are JSON or text are shown
/// as such, all others in hexadecimal. On a terminal long values are cut.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell store dump file:./watchbell-data\n  \
       watchbell store dump file:./watchbell-data node/\n  \
       watchbell store dump file:./watchbell-data --output json | jq .key"
))]
pub(crate) struct DumpArgs {
    /// Where the store is: the kind of store, a colon, and the place
    pub(crate) url: String,
    /// Show only the keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// How to show it: a table, or one JSON object per line
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) pass: PassArgs,
}

/// For whom the output is.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OutputFormat {
    /// A text for people
    Table,
    /// JSON, for programs
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// A variable that means something unless it is empty; `false` is what the flag is if it is not given.
#[expect(clippy::unnecessary_wraps, reason = "the parser asks for it")]
fn unless_empty(text: &str) -> Result<bool, String> {
    Ok(!matches!(text, "" | "false"))
}

/// An address to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    const RIGHT: &str = "write an address and a port, like 127.0.0.1:7400 or localhost:7400";
    if let Ok(port) = text.parse::<u16>() {
        return Err(format!("that is a port without an address: write 127.0.0.1:{port}"));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(format!("the port is missing: {RIGHT}"));
    };
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("the port is missing: {RIGHT}"));
    }
    let port: u16 = port.parse().map_err(|_| "a port is a number from 0 to 65535".to_owned())?;
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| format!("that is no address: {RIGHT}"))
}

/// What stands below every help text.
pub(crate) fn examples(examples: &str) -> String {
    format!("Examples:\n{examples}")
}

/// The command line: `-h` is a screenful, and `--help` has all options and the exit codes.
pub(crate) fn command() -> Command {
    fn finished(command: Command) -> Command {
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let codes: Vec<_> =
            Exit::ALL.iter().map(|exit| format!("  {}  {}", exit.code(), exit.meaning())).collect();
        command
            .after_help(format!("{examples}\n\nAll options, and exit codes: --help"))
            .after_long_help(format!("{examples}\n\nExit codes:\n{}", codes.join("\n")))
            .mut_args(|arg| match arg.get_help_heading() {
                Some("Server" | "Everywhere") => arg.hide_short_help(true),
                Some(_) | None => arg,
            })
            .mut_subcommands(finished)
    }
    finished(Args::command())
}

#[cfg(test)]
mod deploy;
#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    /// The words of a line as a shell reads them, as far as our documents need it.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (number, part) in line.split('\'').enumerate() {
            if number % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    #[test]
    fn every_command_in_the_readme_is_one() {
        let readme = include_str!("../../../README.md");
        let lines = readme.lines().filter_map(|line| line.strip_prefix("    watchbell "));
        let lines: Vec<&str> = lines.filter_map(|line| line.split(" #").next()).collect();
        assert!(lines.len() > 5, "{lines:?}");
        for line in lines {
            let parsed = Args::try_parse_from(words(&format!("watchbell {line}")));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn colours_are_shown_unless_somebody_says_otherwise() {
        let parse = |flags: &[&str]| {
            let words = [&["watchbell", "scheduler", "status"], flags].concat();
            Args::try_parse_from(words).unwrap().no_color
        };
        // Whoever runs this may want no colours either.
        assert_eq!(parse(&[]), std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty()));
        assert!(parse(&["--no-color"]));
        assert_eq!(["1", "yes", ""].map(|text| unless_empty(text).unwrap()), [true, true, false]);
    }

    #[test]
    fn an_address_to_listen_on_is_read_or_told_how_to_write() {
        for (text, expected) in [
            ("127.0.0.1:17472", "127.0.0.1:17472"),
            ("localhost:17472", "127.0.0.1:17472"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(address(text), Ok(expected.parse().unwrap()));
        }
        for (text, said) in [
            ("17472", "write 127.0.0.1:17472"),
            ("127.0.0.1", "the port is missing"),
            ("localhost:", "the port is missing"),
            ("127.0.0.1:80000", "from 0 to 65535"),
            ("example.com:80", "like 127.0.0.1:7400 or localhost:7400"),
        ] {
            let why = address(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }

    #[test]
    fn a_password_or_a_key_in_the_wrong_place_is_not_repeated() {
        let url = "postgres://user:canary@host/db";
        for words in [
            &["watchbell", "server", url][..],
            &["watchbell", url],
            &["watchbell", "server", "--store", url, "--log-level", url],
            &["watchbell", "server", "--store", url, "--listen", url],
            &["watchbell", "server", &format!("--stroe={url}")],
            &["watchbell", "store", "check", url, url],
            &["watchbell", "trigger", "list", "wbk_canary"],
        ] {
            let why = without_secret(Args::try_parse_from(words).unwrap_err());
            assert!(!why.to_string().contains("canary"), "{words:?}: {why}");
        }
    }

    #[test]
    fn help_does_not_tell_which_secrets_the_environment_holds() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments() {
                let env = arg.get_env().and_then(|name| name.to_str()).unwrap_or_default();
                if ["WATCHBELL_STORE", "WATCHBELL_KEY", "REDIS_PASSWORD"].contains(&env) {
                    assert!(arg.is_hide_env_values_set(), "{} {env}", command.get_name());
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }

    #[test]
    fn seconds_are_taken_up_to_the_limit_and_refused_one_past_it() {
        let parse = |seconds: i64| {
            Args::try_parse_from([
                "watchbell",
                "store",
                "check",
                "memory:",
                "--seconds",
                &seconds.to_string(),
            ])
        };
        assert!(parse(MEASURE_SECONDS_MAX).is_ok());
        assert!(parse(MEASURE_SECONDS_MAX + 1).is_err());
        assert!(parse(0).is_ok());
        assert!(parse(-1).is_err());
    }
}

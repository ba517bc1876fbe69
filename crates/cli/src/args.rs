//! The command line, as it is typed.
//!
//! Nothing here decides anything: URLs stay text until a verb reads them, so that a password in one
//! is never repeated by the parser's own messages.

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::exit::Exit;

/// Longest measurement, in seconds.
const MEASURE_SECONDS_MAX: i64 = 3_600;

/// Watchbell: rings on time, takes turns, and lets exactly one hold the watch
#[derive(Debug, Parser)]
#[command(version, after_help = with_exit_codes(
    "  watchbell store check file:./watchbell-data\n  \
       watchbell store dump file:./watchbell-data"
))]
pub(crate) struct Args {
    /// How much to tell on stderr about what goes on inside
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "WATCHBELL_LOG",
        default_value = "warn"
    )]
    pub(crate) log: LogLevel,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Examine a store, and look into it
    Store {
        #[command(subcommand)]
        verb: StoreVerb,
    },
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
#[command(after_help = with_exit_codes(
    "  watchbell store check file:./watchbell-data\n  \
       watchbell store check file:/var/lib/watchbell --seconds 10\n  \
       watchbell store check file:/var/lib/watchbell --output json > check.json"
))]
pub(crate) struct CheckArgs {
    /// Where the store is: the kind of store, a colon, and the place
    pub(crate) url: String,
    /// How to show what was found
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// How long each of the three measurements takes; 0 leaves them out
    #[arg(long, value_name = "N", default_value_t = 2,
        value_parser = clap::value_parser!(u16).range(0..=MEASURE_SECONDS_MAX))]
    pub(crate) seconds: u16,
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
#[command(after_help = with_exit_codes(
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
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// For whom the output is.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

/// What stands below every help text.
fn with_exit_codes(examples: &str) -> String {
    let codes: Vec<_> =
        Exit::ALL.iter().map(|exit| format!("  {}  {}", exit.code(), exit.meaning())).collect();
    format!("Examples:\n{examples}\n\nExit codes:\n{}", codes.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
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

//! `watchbell demo`, as it is typed.
//!
//! Two verbs beside it are for nobody to type: the demonstration starts its own processes by them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

use super::{OutputFormat, examples};

/// The most by which the demonstration is faster than it was published: beyond that a worker is back before its runs are
/// given to others, since no lease is shorter than a second.
const SPEED_MAX: i64 = 20;

/// The most runs of a demonstration: one batch.
const TASKS_MAX: i64 = 1_000;

#[derive(Debug, Subcommand)]
pub(crate) enum DemoVerb {
    Tasks(TasksArgs),
    /// Become a server or a worker that dies with the demonstration
    #[command(hide = true, after_help = examples("  watchbell demo actor 4711 -- worker --queue tasks"))]
    Actor(ActorArgs),
    /// Be a run of the demonstration
    #[command(hide = true, after_help = examples("  watchbell demo task 17 3500 /tmp/journal"))]
    Task(TaskArgs),
}

/// Show what becomes of 100 runs while their server and their workers are killed
///
/// Starts a server and three workers as processes of their own, in a temporary directory, and lets a queue have 100 runs of
/// 1 to 20 seconds. Then it ends processes with kill -9 and starts them again: worker 1 is down from 0:50 to 1:16, the server
/// from 1:42 to 2:23, workers 2 and 3 from 2:49 and 3:07 to 3:36 and 4:05. It takes about four and a half minutes. Kill whom
/// you like yourself: it is started again. At the end a table tells who ran what and when, and whether each run was
/// carried out, by what the server recorded and, apart from that, by what the programs wrote down themselves.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(
    "  watchbell demo tasks\n  \
       watchbell demo tasks --speed 10\n  \
       watchbell demo tasks --no-chaos --tasks 20\n  \
       watchbell demo tasks --speed 10 --output json | jq .succeeded"
))]
pub(crate) struct TasksArgs {
    /// So many times faster, up to 20: lengths of runs and the timetable alike
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=SPEED_MAX))]
    pub(crate) speed: u32,
    /// So many runs, up to 1,000; workers carry out more at a time if there are more than 100
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=TASKS_MAX))]
    pub(crate) tasks: u32,
    /// In which order long and short runs come: the same number gives the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Kill nobody
    #[arg(long)]
    pub(crate) no_chaos: bool,
    /// Keep the directory with the store, the logs and the journal, and say where it is
    #[arg(long)]
    pub(crate) keep: bool,
    /// How to show what became of it: a table, or a JSON object. What happens meanwhile is told on stderr
    #[arg(long, value_enum, env = "WATCHBELL_OUTPUT", default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// What becomes of this process.
#[derive(Debug, clap::Args)]
pub(crate) struct ActorArgs {
    /// The process with which it dies
    pub(crate) parent: i32,
    /// What it is to be: words for this binary
    #[arg(last = true, required = true)]
    pub(crate) words: Vec<OsString>,
}

/// A run, as its worker starts it.
#[derive(Debug, clap::Args)]
pub(crate) struct TaskArgs {
    /// Its number
    pub(crate) task: u32,
    /// How long it takes, in milliseconds
    pub(crate) millis: u64,
    /// Where it writes down that it begins and ends
    pub(crate) journal: PathBuf,
    /// Of which run
    #[arg(env = "WATCHBELL_RUN_ID")]
    pub(crate) run: String,
    /// In which attempt
    #[arg(env = "WATCHBELL_ATTEMPT")]
    pub(crate) attempt: u32,
    /// Under which token
    #[arg(env = "WATCHBELL_TOKEN")]
    pub(crate) token: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;

    #[test]
    fn numbers_are_taken_up_to_their_limits_and_refused_one_past_them() {
        let parse = |flag: &str, value: i64| {
            Args::try_parse_from(["watchbell", "demo", "tasks", flag, &value.to_string()])
        };
        for (flag, max) in [("--speed", SPEED_MAX), ("--tasks", TASKS_MAX)] {
            assert!(parse(flag, 1).is_ok() && parse(flag, max).is_ok(), "{flag}");
            assert!(parse(flag, 0).is_err() && parse(flag, max + 1).is_err(), "{flag}");
        }
    }
}

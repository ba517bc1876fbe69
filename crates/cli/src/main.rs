//! `watchbell`: the one binary.
//!
//! What was typed is read in [`args`]; each verb is a function in a file of its own; how it ends is
//! told by [`exit`] and nowhere else.
//!
//! - [`bench`](mod@bench): `watchbell bench`
//! - [`check`]: `watchbell store check`, shown by [`report`]
//! - [`cron`]: `watchbell cron next` and `cron explain`
//! - [`dev`]: `watchbell dev`
//! - [`dump`]: `watchbell store dump`, whose values [`value`] makes readable
//! - [`progress`], [`table`]: what people see meanwhile, and afterwards

mod args;
mod bench;
mod check;
mod cron;
mod dev;
mod dump;
mod exit;
mod progress;
mod report;
mod table;
mod value;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use args::{Args, CronVerb, StoreVerb, Verb};
use clap::Parser;
use exit::{Ending, Exit};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::from(args.log))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    match run(args.verb).await {
        Ok(()) => Exit::Fine.into(),
        Err(ending) => ending.tell().into(),
    }
}

async fn run(verb: Verb) -> Result<(), Ending> {
    match verb {
        Verb::Bench { verb } => bench::bench(&verb).await,
        Verb::Dev(typed) => dev::dev(&typed).await,
        Verb::Store { verb: StoreVerb::Check(typed) } => {
            check::check(&typed.url, typed.measure_for(), typed.output).await
        }
        Verb::Store { verb: StoreVerb::Dump(typed) } => {
            dump::dump(&typed.url, &typed.prefix, typed.output).await
        }
        Verb::Cron { verb: CronVerb::Next(typed) } => cron::next(&typed),
        Verb::Cron { verb: CronVerb::Explain(typed) } => cron::explain(&typed),
    }
}

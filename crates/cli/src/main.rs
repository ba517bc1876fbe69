//! `watchbell`: the one binary.
//!
//! What was typed is read in [`args`]; each verb is a function in a file of its own; how it ends is
//! told by [`exit`] and nowhere else.
//!
//! - [`bench`](mod@bench): `watchbell bench`
//! - [`check`]: `watchbell store check`, shown by [`report`]
//! - [`cron`]: `watchbell cron next` and `cron explain`
//! - [`dev`]: `watchbell dev`
//! - [`trigger`], [`create`]: `watchbell trigger`, but for
//! - [`explain`]: `watchbell trigger explain`
//! - [`mod@run`]: `watchbell run`
//! - [`scheduler`]: `watchbell scheduler`
//! - [`dump`]: `watchbell store dump`, whose values [`value`] makes readable
//! - [`refusal`]: what a server finds wrong, in the words of the command line
//! - [`progress`], [`table`]: what people see meanwhile, and afterwards

mod args;
mod bench;
mod check;
mod create;
mod cron;
mod dev;
mod dump;
mod exit;
mod explain;
mod mask;
mod progress;
mod refusal;
mod report;
mod run;
mod scheduler;
mod table;
mod trigger;
mod value;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use args::run::{RunVerb, SchedulerVerb};
use args::trigger::TriggerVerb;
use args::{Args, CronVerb, LogFormat, StoreVerb, Verb};
use clap::Parser;
use exit::{Ending, Exit};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::from(args.log_level))
        .with_writer(io::stderr);
    match args.log_format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    match run(args.verb).await {
        Ok(()) => Exit::Fine.into(),
        Err(ending) => ending.tell().into(),
    }
}

async fn run(verb: Verb) -> Result<(), Ending> {
    match verb {
        Verb::Bench { verb } => bench::bench(&verb).await,
        Verb::Dev(typed) => dev::dev(&typed).await,
        Verb::Trigger { verb } => run_trigger(verb).await,
        Verb::Run { verb: RunVerb::List(typed) } => run::list(typed).await,
        Verb::Run { verb: RunVerb::Show(typed) } => run::show(&typed).await,
        Verb::Scheduler { verb: SchedulerVerb::Status(typed) } => {
            scheduler::status(&typed.server).await
        }
        Verb::Scheduler { verb: SchedulerVerb::ConfirmTime(typed) } => {
            scheduler::confirm_time(&typed.server).await
        }
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

async fn run_trigger(verb: TriggerVerb) -> Result<(), Ending> {
    match verb {
        TriggerVerb::Create(typed) => create::create(*typed).await,
        TriggerVerb::List(typed) => trigger::list(typed).await,
        TriggerVerb::Show(typed) => trigger::show(&typed).await,
        TriggerVerb::Explain(typed) => explain::explain(&typed).await,
        TriggerVerb::Next(typed) => trigger::next(&typed).await,
        TriggerVerb::Pause(typed) => trigger::pause(typed).await,
        TriggerVerb::Resume(typed) => trigger::resume(&typed).await,
        TriggerVerb::Cancel(typed) => trigger::cancel(&typed).await,
        TriggerVerb::Run(typed) => run::start(&typed).await,
        TriggerVerb::Delete(typed) => trigger::delete(&typed).await,
    }
}

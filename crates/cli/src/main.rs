//! `watchbell`: the one binary.
//!
//! What was typed is read in [`args`]; each verb is a function in a file of its own; how it ends is
//! told by [`exit`] and nowhere else.
//!
//! - [`backup`](mod@backup), [`restore`](mod@restore): `watchbell backup` and `watchbell restore`
//! - [`bench`](mod@bench): `watchbell bench`
//! - [`check`]: `watchbell store check`, shown by [`report`]
//! - [`cron`]: `watchbell cron next` and `cron explain`
//! - [`mod@demo`]: `watchbell demo`
//! - [`dev`]: `watchbell dev`; [`mod@server`]: `watchbell server`; [`serve`]: what they share
//! - [`elect`]: `watchbell elect`; [`mod@hold`]: `watchbell hold`; [`joining`], [`transitions`]: what they share
//! - [`mod@witness`]: `watchbell witness`; [`mod@signer`]: `watchbell demo-signer`, which it watches
//! - [`trigger`], [`create`]: `watchbell trigger`, but for
//! - [`apply`], [`backfill`], [`explain`]: `watchbell trigger` with these verbs
//! - [`import`]: `watchbell import crontab`
//! - [`mod@run`], [`submit`]: `watchbell run`
//! - [`queue`], [`worker`], [`scheduler`], [`project`], [`key`], [`audit`], [`event`], [`cluster`]: the verbs of these names
//! - [`config`]: settings, and `watchbell config`; [`connect`]: from settings to a client
//! - [`dump`]: `watchbell store dump`, whose values [`value`] makes readable
//! - [`outage`]: a server that goes while somebody follows what happens
//! - [`secret`]: a text that is never shown
//! - [`refusal`]: what a server finds wrong, in the words of the command line
//! - [`pages`]: metrics and signs of life of what is no server
//! - [`confirm`], [`progress`], [`table`], [`colour`]: what people are asked, what they see meanwhile, and afterwards

mod apply;
mod args;
mod audit;
mod backfill;
mod backup;
mod bench;
mod check;
mod cluster;
mod colour;
mod config;
mod confirm;
mod connect;
mod create;
mod cron;
mod demo;
mod dev;
mod dump;
mod elect;
mod election;
mod event;
mod exit;
mod explain;
mod hold;
mod import;
mod joining;
mod key;
mod mask;
mod outage;
mod outlet;
mod output;
mod pages;
mod progress;
mod project;
mod queue;
mod redrive;
mod refusal;
mod report;
mod restore;
mod ring;
mod run;
mod scheduler;
mod secret;
mod serve;
mod server;
mod signer;
mod submit;
mod table;
mod transitions;
mod trigger;
mod value;
mod witness;
mod worker;

// What ships has no bug that can be switched on, whatever it is built together with.
const _: () = assert!(cfg!(debug_assertions) || !engine::mutant::BUILT_IN);

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use args::backup::BackupVerb;
use args::import::ImportVerb;
use args::run::{RunVerb, SchedulerVerb};
use args::system::{AuditVerb, ClusterVerb, ConfigArgs, ConfigVerb};
use args::trigger::TriggerVerb;
use args::{Args, CronVerb, LogFormat, LogLevel, StoreVerb, Verb};
use config::Layers;
use engine::limits::LOG_LINES_WAITING_MAX;
use exit::{Ending, Exit};
use outlet::{Outlet, OutletStream};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A queue makes and drops a dozen small pieces of memory for each run, on several threads: the system's allocator took half of
/// the processor for that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long threads may take to end when everything else has.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    // Before there is a thread, and before anything else is done.
    process::run_role_if_asked();
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(verb());
            // A thread may wait for a file system that does not answer.
            runtime.shutdown_timeout(LAST_PATIENCE);
            code
        }
        Err(why) => Ending::failed(format!("no threads could be started: {why}")).tell().into(),
    }
}

async fn verb() -> ExitCode {
    let (args, layers) = match config::read() {
        Ok(read) => read,
        Err(ending) => return ending.tell().into(),
    };
    if args.no_color {
        colour::turn_off();
    }
    let level = LevelFilter::from(tracing::Level::from(log_level(&args, &layers)));
    let outlet = log_outlet(&args.verb);
    let writer = match &outlet {
        Some(outlet) => BoxMakeWriter::new(outlet.clone()),
        None => BoxMakeWriter::new(io::stderr),
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(writer);
    // A hundred lines for each frame of each connection to an etcd: nobody would find anything else.
    let told = Targets::new().with_default(level).with_target("h2", level.min(LevelFilter::INFO));
    match args.log_format {
        LogFormat::Text => log.with_ansi(colour::on_stderr()).finish().with(told).init(),
        LogFormat::Json => log.json().finish().with(told).init(),
    }
    let ended = run(args.verb, &layers).await;
    if let Some(outlet) = outlet {
        outlet.finish();
    }
    match ended {
        Ok(()) => Exit::Fine.into(),
        Err(ending) => ending.tell().into(),
    }
}

/// What keeps whoever does not read its log from holding up a verb: the supervisor of a hold has its stderr in common with a
/// program that may print more than is read, and would end it for want of a renewal.
fn log_outlet(verb: &Verb) -> Option<Outlet> {
    matches!(verb, Verb::Hold(_)).then(|| Outlet::new(OutletStream::Stderr, LOG_LINES_WAITING_MAX))
}

/// As much as was asked for; if nothing was, what the verb has always told.
fn log_level(args: &Args, layers: &Layers) -> LogLevel {
    let usual = match &args.verb {
        Verb::Elect(typed) => typed.log_level(),
        _ => None,
    };
    usual.filter(|_| !layers.says("log-level")).unwrap_or(args.log_level)
}

async fn run(verb: Verb, layers: &Layers) -> Result<(), Ending> {
    match verb {
        Verb::Backup(BackupVerb::Create(typed)) => backup::create(&typed).await,
        Verb::Backup(BackupVerb::Verify(typed)) => backup::verify(&typed),
        Verb::Restore(typed) => restore::restore(&typed).await,
        Verb::Config(ConfigArgs { verb: Some(ConfigVerb::Show) | None }) => layers.show(),
        Verb::Bench(verb) => bench::bench(&verb).await,
        Verb::Demo(verb) => Box::pin(demo::demo(&verb)).await,
        Verb::Witness(typed) => witness::witness(&typed).await,
        Verb::DemoSigner(typed) => signer::signer(&typed).await,
        Verb::Dev(typed) => dev::dev(&typed).await,
        Verb::Server(typed) => server::server(&typed).await,
        Verb::Trigger(verb) => run_trigger(verb).await,
        Verb::Import(ImportVerb::Crontab(typed)) => import::crontab(&typed),
        Verb::Completions(typed) => {
            complete(typed.shell);
            Ok(())
        }
        Verb::Run(RunVerb::List(typed)) => run::list(typed).await,
        Verb::Run(RunVerb::Show(typed)) => run::show(&typed).await,
        Verb::Run(RunVerb::Submit(typed)) => submit::submit(*typed).await,
        Verb::Run(RunVerb::Cancel(typed)) => run::cancel(&typed).await,
        Verb::Run(RunVerb::Output(typed)) => output::output(&typed).await,
        Verb::Run(RunVerb::Retry(typed)) => redrive::retry(&typed).await,
        Verb::Queue(verb) => queue::queue(verb).await,
        Verb::Worker(typed) => worker::worker(*typed).await,
        Verb::Scheduler(SchedulerVerb::Status(typed)) => scheduler::status(&typed).await,
        Verb::Scheduler(SchedulerVerb::ConfirmTime(typed)) => scheduler::confirm_time(&typed).await,
        Verb::Scheduler(SchedulerVerb::Start(typed)) => scheduler::start(&typed).await,
        Verb::Scheduler(SchedulerVerb::Stop(typed)) => scheduler::stop(&typed).await,
        Verb::Project(verb) => project::project(verb).await,
        Verb::Key(verb) => key::key(verb).await,
        Verb::Election(verb) => election::election(verb).await,
        Verb::Ring(verb) => ring::ring(verb).await,
        Verb::Audit(AuditVerb::List(typed)) => audit::list(typed).await,
        Verb::Elect(typed) => elect::elect(&typed).await,
        Verb::Hold(typed) => Box::pin(hold::hold(&typed)).await,
        Verb::Events(typed) => event::follow(&typed).await,
        Verb::Cluster(ClusterVerb::Status(typed)) => cluster::status(&typed).await,
        Verb::Cluster(ClusterVerb::Drain(typed)) => cluster::drain(&typed).await,
        Verb::Store(StoreVerb::Check(typed)) => {
            let url = typed.pass.store(&typed.url)?;
            check::check(&url, typed.measure_for(), typed.output).await
        }
        Verb::Store(StoreVerb::Dump(typed)) => {
            let url = typed.pass.store(&typed.url)?;
            dump::dump(&url, &typed.prefix, typed.output).await
        }
        Verb::Cron(CronVerb::Next(typed)) => cron::next(&typed),
        Verb::Cron(CronVerb::Explain(typed)) => cron::explain(&typed),
    }
}

/// Writes what a shell needs. It is made from the command line itself, so it is never out of date.
fn complete(shell: clap_complete::Shell) {
    let mut command = args::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut io::stdout());
}

async fn run_trigger(verb: TriggerVerb) -> Result<(), Ending> {
    match verb {
        TriggerVerb::Create(typed) => create::create(*typed).await,
        TriggerVerb::Apply(typed) => apply::apply(typed).await,
        TriggerVerb::List(typed) => trigger::list(typed).await,
        TriggerVerb::Show(typed) => trigger::show(&typed).await,
        TriggerVerb::Explain(typed) => explain::explain(&typed).await,
        TriggerVerb::Next(typed) => trigger::next(&typed).await,
        TriggerVerb::Pause(typed) => trigger::pause(typed).await,
        TriggerVerb::Resume(typed) => trigger::resume(&typed).await,
        TriggerVerb::Cancel(typed) => trigger::cancel(&typed).await,
        TriggerVerb::Run(typed) => run::start(&typed).await,
        TriggerVerb::Backfill(typed) => backfill::backfill(typed).await,
        TriggerVerb::Delete(typed) => trigger::delete(&typed).await,
    }
}

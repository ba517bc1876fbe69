//! A worker of commands, from its start to its end: by itself, and within `watchbell dev`.
//!
//! It begins when everything that can be wrong is known to be right: what was typed, the spool, what keeps commands
//! together, the limits. What it is told to do it does in two steps: the first signal lets it finish what it has, the second
//! ends everything at once.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use process::{Isolation, StartError};
use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use worker::command::{AllowList, CommandPolicy, Commands};
use worker::{Control, SettingError, Spool, SpoolError, Worker, WorkerEnd};

use super::board::WorkerBoard;
use super::plan::{WorkPlan, check_files};
use crate::args::worker::WorkArgs;
use crate::exit::{Ending, say};
use crate::pages;
use crate::serve::{Stops, raise_file_limit};

/// Words that a worker may be told before it has heard them: no more than there are.
const CONTROLS_MAX: usize = 2;

/// A worker that is ready to begin, and what it begins with.
pub(crate) struct ReadyWorker {
    worker: Worker,
    commands: Arc<Commands>,
    isolation: Isolation,
}

/// Works until it is drained.
pub(crate) async fn work(typed: &WorkArgs) -> Result<(), Ending> {
    // Whoever tells it to stop while it starts is heard.
    let mut stops = Stops::new()?;
    let plan = WorkPlan::of(typed)?;
    let ready = tokio::select! {
        biased;
        () = stops.next() => return Ok(()),
        ready = ReadyWorker::of(&plan) => ready?,
    };
    let mut tasks = JoinSet::new();
    let mut lines = ready.lines(&plan);
    if let Some(at) = typed.metrics {
        let listener = pages::bind(&[at]).await.map_err(|(at, why)| {
            Ending::unreachable(format!(
                "cannot serve metrics on {at}: {why}; stop whoever does, or give another address with --metrics"
            ))
        })?;
        lines.push(format!("metrics: http://{}/metrics", listener.local_addr()?));
        let board = Arc::new(WorkerBoard::new(&ready.worker.sight(), &ready.commands));
        tasks.spawn(pages::serve(listener, board));
    }
    tell(&lines);
    ready.work(stops).await
}

impl ReadyWorker {
    /// Opens the spool, which waits until nothing of a former life executes, and finds out what is permitted here.
    pub(crate) async fn of(plan: &WorkPlan) -> Result<Self, Ending> {
        // Its programs are of the same user, and are not to read its key in `/proc`. Where this is refused they may.
        let _refused = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        raise_file_limit();
        check_files(plan.capacity, getrlimit(Resource::Nofile).current)?;
        let spool = Spool::open(&plan.spool, &plan.name).await?;
        let (commands, isolation) = confine(plan, &spool).await?;
        let queues = plan.queues.iter().map(|(name, _)| name.as_str());
        let carrier = Arc::clone(&commands);
        let mut builder = Worker::new(&*plan.name, queues)
            .servers(plan.servers.iter().cloned())
            .capacity(plan.capacity)
            .lease(plan.lease)
            .grace(plan.policy.grace)
            .drain_timeout(plan.drain_timeout)
            .labels(plan.labels.clone())
            .spool(spool)
            .ready(commands.ready())
            .commands(move |context| {
                let commands = Arc::clone(&carrier);
                async move { commands.carry_out(context).await }
            });
        for (queue, share) in &plan.queues {
            if let Some(share) = share {
                builder = builder.weight(queue, *share);
            }
        }
        if let Some(timeout) = plan.policy.timeout {
            builder = builder.timeout(timeout);
        }
        Ok(Self { worker: builder.build()?, commands, isolation })
    }

    /// What people are told when it begins.
    fn lines(&self, plan: &WorkPlan) -> Vec<String> {
        let queues = named_queues(plan.queues.iter().map(|(name, _)| name.as_str()));
        let servers: Vec<_> = plan.servers.iter().map(|server| server.url().to_string()).collect();
        let as_whom = match &plan.policy.account {
            Some(account) => format!(" as {}", account.name),
            None => String::new(),
        };
        vec![
            format!(
                "worker {} of {}: {queues}, {} runs at a time",
                plan.name,
                servers.join(" "),
                plan.capacity
            ),
            format!(
                "it runs {}{as_whom}; isolation {}; spool {}",
                allowed(&plan.policy.allow),
                self.isolation,
                spool_of(plan).display()
            ),
        ]
    }

    /// Works until it has done what it was told: finish, or end at once.
    pub(crate) async fn work(self, mut stops: Stops) -> Result<(), Ending> {
        let Self { worker, commands, .. } = self;
        let (control, controls) = mpsc::channel(CONTROLS_MAX);
        let sight = worker.sight();
        let mut running = std::pin::pin!(worker.run(controls));
        let mut next = Control::Drain;
        loop {
            tokio::select! {
                ended = &mut running => return Ok(ended?),
                () = stops.next() => {}
            }
            match next {
                Control::Drain => {
                    let runs = sight.executing.get();
                    tracing::info!(
                        runs,
                        "told to stop: it finishes what it has; told once more, it ends everything at once"
                    );
                }
                Control::Stop => {
                    tracing::warn!("told twice to stop: everything ends at once");
                    commands.hurry();
                }
            }
            // If there is no room it was told so before.
            let _ = control.try_send(next);
            next = Control::Stop;
        }
    }
}

/// Where its spool is.
fn spool_of(plan: &WorkPlan) -> PathBuf {
    plan.spool.join(&plan.name)
}

/// Takes the first isolation that is permitted here, with limits that can be kept.
async fn confine(plan: &WorkPlan, spool: &Spool) -> Result<(Arc<Commands>, Isolation), Ending> {
    let mut refused = None;
    for isolation in &plan.isolations {
        let policy = CommandPolicy { isolation: *isolation, ..plan.policy.clone() };
        let commands = Commands::new(policy, Some(spool.programs_lock()));
        match commands.probe().await {
            Ok(permitted) => return Ok((Arc::new(commands), permitted)),
            Err(why @ StartError::Isolation { .. }) => refused = Some(why),
            Err(why) => return Err(not_confined(&why)),
        }
    }
    Err(not_confined(&refused.expect("there is at least one isolation")))
}

fn not_confined(why: &StartError) -> Ending {
    match why {
        StartError::Limit { .. } => Ending::refused(format!(
            "{why}; give the worker a cgroup that it may set (systemd: Delegate=yes), or leave --memory-max and \
             --processes-max out"
        )),
        StartError::Isolation { .. } => Ending::refused(format!(
            "{why}; permit it, or take the strongest that is with --isolate auto"
        )),
        StartError::Program(_) | StartError::NotStartable { .. } => {
            Ending::wrong_input(why.to_string())
        }
        StartError::Busy(_) | StartError::Interrupted | StartError::TooSlow => {
            Ending::failed(why.to_string())
        }
    }
}

/// These queues, for people.
pub(crate) fn named_queues<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    let word = if names.len() == 1 { "queue" } else { "queues" };
    format!("{word} {}", names.join(" "))
}

/// What may be run, for people.
pub(crate) fn allowed(allow: &AllowList) -> String {
    match allow {
        AllowList::Any => "any program".to_owned(),
        AllowList::Listed(paths) => {
            let path = |path: &PathBuf| {
                let below = if path.is_dir() { "/*" } else { "" };
                format!("{}{below}", path.display())
            };
            paths.iter().map(path).collect::<Vec<_>>().join(" ")
        }
    }
}

/// Who has closed stdout has had enough of it; the worker goes on.
fn tell(lines: &[String]) {
    let mut out = io::stdout().lock();
    let told = lines.iter().try_for_each(|line| writeln!(out, "{line}"));
    if told.and_then(|()| out.flush()).is_err() {
        say(&lines.join("; "));
    }
}

impl From<SpoolError> for Ending {
    fn from(why: SpoolError) -> Self {
        match why {
            SpoolError::Name(_) => Self::wrong_input(why.to_string()),
            SpoolError::Taken { .. } | SpoolError::ProgramsExecute { .. } => {
                Self::unreachable(why.to_string())
            }
            SpoolError::Newer { .. } | SpoolError::Unusable { .. } => {
                Self::refused(why.to_string())
            }
        }
    }
}

impl From<SettingError> for Ending {
    fn from(why: SettingError) -> Self {
        Self::wrong_input(why.to_string())
    }
}

impl From<WorkerEnd> for Ending {
    fn from(why: WorkerEnd) -> Self {
        match why {
            WorkerEnd::Superseded(_) => Self::unreachable(why.to_string()),
            WorkerEnd::Refused(why) => why.into(),
            WorkerEnd::Unreported { .. } | WorkerEnd::Signals(_) => Self::failed(why.to_string()),
            WorkerEnd::Spool(_) => Self::refused(why.to_string()),
        }
    }
}

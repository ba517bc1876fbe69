//! Commands: runs that are programs.
//!
//! A run says which program, with which arguments, variables, directory and standard input. [`Commands`] judges that by a
//! [`CommandPolicy`], which belongs to whoever runs the worker; starts it as a process tree (`process`), so that nothing of it
//! outlives its end or the worker's; passes on what it prints and how far it has come; ends it when it is told to; and says
//! what became of it.
//!
//! - [`AllowList`]: what may be run; [`CommandRefusal`]: what is not, and why
//! - `look`: looks at its files, which may not answer
//! - `environment`: its variables; [`Account`]: whom it runs as; `progress`: what it says of itself
//! - `attempt`: from its start to the end of its tree; `verdict`: what is reported then
//!
//! What is refused is a failure for good, with a sentence that says what to change: another attempt would be refused as well.
//! What the machine cannot do at the moment, as when it has no room for processes or a file system does not answer, is a failure like others, tried again
//! no sooner than after [`BUSY_PAUSE`].
//!
//! No shell reads a command. One that is to be read by a shell names the shell, which must be allowed like any other
//! program; and then everything is.

mod account;
mod allow;
mod attempt;
mod environment;
mod look;
mod progress;
mod refusal;
mod tail;
mod verdict;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::queue::CommandSpec;
use client::worker::ClaimedRun;
use process::{Deadline, Isolation, Launcher, Limits, Program, StartError, Started, Wanted};
use tokio::sync::watch;

pub use self::account::{Account, AccountError};
pub use self::allow::{ALLOWED_MAX, AllowError, AllowList};
use self::attempt::{Attempt, Ended};
pub use self::environment::LOADERS;
use self::look::Looks;
pub use self::refusal::{CommandRefusal, Shown};
use self::verdict::{Terms, verdict};
use crate::{Context, Outcome};

/// How long a run waits that the machine had no room for.
pub const BUSY_PAUSE: Duration = Duration::from_secs(5);

/// What commands may do on this worker.
#[derive(Debug, Clone)]
pub struct CommandPolicy {
    /// What may be run.
    pub allow: AllowList,
    /// Whom commands run as; as the worker itself, if it is not given. Only root may run them as others.
    pub account: Option<Account>,
    /// Their working directory, if the run names none.
    pub directory: PathBuf,
    /// What the tree of one may have. Where cgroups do not permit it nothing is started: see [`Commands::probe`].
    pub limits: Limits,
    /// What keeps a tree together.
    pub isolation: Wanted,
    /// How long one may take to end after SIGTERM before it is killed.
    pub grace: Duration,
    /// How long one may take, if its run does not say it. The worker sees to it; here it is only told.
    pub timeout: Option<Duration>,
    /// Their time zone (`TZ`).
    pub zone: Option<String>,
}

impl Default for CommandPolicy {
    /// Nothing is allowed.
    fn default() -> Self {
        Self {
            allow: AllowList::Listed(Vec::new()),
            account: None,
            directory: PathBuf::from("/"),
            limits: Limits::default(),
            isolation: Wanted::Auto,
            grace: Duration::from_secs(10),
            timeout: None,
            zone: None,
        }
    }
}

/// How many commands there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandCounts {
    /// Started.
    pub started: u64,
    /// Of these, those that only a weak kill could end.
    pub weak: u64,
    /// Refused.
    pub refused: u64,
    /// Of which nobody knows what is left: both guards were killed from outside.
    pub lost: u64,
    /// Lines of progress that could not be read.
    pub progress_lines_left_out: u64,
}

/// Carries out commands.
#[derive(Debug)]
pub struct Commands {
    policy: CommandPolicy,
    account: Account,
    launcher: Launcher,
    hurry: watch::Sender<bool>,
    is_weak_told: AtomicBool,
    refused: AtomicU64,
    lost: AtomicU64,
    lines_left_out: AtomicU64,
    looks: Looks,
}

impl Commands {
    /// Carries out commands by this policy. Each holds the lock as long as anything of it is there
    /// ([`Launcher::holding`](process::Launcher::holding)).
    ///
    /// They are started through this very binary, whose `main` calls `process::run_role_if_asked` first.
    pub fn new(policy: CommandPolicy, lock: Option<Arc<OwnedFd>>) -> Self {
        Self::by(Launcher::new(policy.isolation), policy, lock)
    }

    /// The same through another binary whose `main` does: for tests, whose own `main` does not.
    pub fn through(binary: &Path, policy: CommandPolicy, lock: Option<Arc<OwnedFd>>) -> Self {
        Self::by(Launcher::through(binary, policy.isolation), policy, lock)
    }

    fn by(launcher: Launcher, policy: CommandPolicy, lock: Option<Arc<OwnedFd>>) -> Self {
        let launcher = match lock {
            Some(lock) => launcher.holding(lock),
            None => launcher,
        };
        let account = policy.account.clone().unwrap_or_else(Account::own);
        Self {
            policy,
            account,
            launcher,
            hurry: watch::Sender::new(false),
            is_weak_told: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            lines_left_out: AtomicU64::new(0),
            looks: Looks::new(),
        }
    }

    /// Finds out what keeps commands together on this machine, and whether it keeps the limits of the policy. Starts none.
    pub async fn probe(&self) -> Result<Isolation, StartError> {
        self.launcher.probe(&self.confined(Program::new("/"))).await
    }

    /// How many there were.
    pub fn counts(&self) -> CommandCounts {
        let process::Counts { started, weak } = self.launcher.counts();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        CommandCounts {
            started,
            weak,
            refused: count(&self.refused),
            lost: count(&self.lost),
            progress_lines_left_out: count(&self.lines_left_out),
        }
    }

    /// Whether commands can be begun: not while all that look at programs wait for file systems.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.looks.ready()
    }

    /// From now on no command has a grace: those that execute are killed, and those that start as well.
    pub fn hurry(&self) {
        self.hurry.send_replace(true);
    }

    /// Carries out the command of a run, to the end of its tree.
    pub async fn carry_out(&self, context: Context) -> Outcome {
        let judged = tokio::select! {
            biased;
            reason = context.told_to_end() => {
                return Outcome::never_began(reason, "it was ended before it was started");
            }
            judged = self.judge(context.run()) => judged,
        };
        let program = match judged {
            Ok(program) => program,
            Err(refusal) if refusal.may_pass() => return not_now(context.run(), &refusal),
            Err(refusal) => return self.refuse(context.run(), refusal.to_string()),
        };
        let program = match context.confirmed_until() {
            Some(until) => program.deadline(Deadline::sudden(until)),
            None => program,
        };
        let started = match self.launcher.start(&program).await {
            Ok(started) => started,
            Err(why) => return self.not_started(context.run(), why),
        };
        self.tell_if_weak(&started);
        let ended =
            Attempt::watch(&context, started, self.policy.grace, self.hurry.subscribe()).await;
        self.conclude(&context, &ended)
    }

    /// What a run wants to run, if it may.
    async fn judge(&self, run: &ClaimedRun) -> Result<Program, CommandRefusal> {
        let Some(command) = &run.command else { return Err(CommandRefusal::NoCommand) };
        let variables = environment::variables(run, command, &self.account, self.zone())?;
        let Some((said, arguments)) = command.argv.split_first() else {
            return Err(CommandRefusal::NoCommand);
        };
        let (allow, path, dir) = (self.policy.allow.clone(), said.clone(), command.dir.clone());
        let look = move || {
            let admitted = allow.admit(&path)?;
            Ok((admitted, dir.map(|dir| directory(&dir)).transpose()?))
        };
        let (admitted, dir) = self.looks.at(said, look).await?;
        let mut program = Program::new(admitted.file)
            .name(admitted.name)
            .arguments(arguments)
            .directory(dir.unwrap_or_else(|| self.policy.directory.clone()));
        for (name, value) in variables {
            program = program.variable(name, value);
        }
        if let Some(bytes) = stdin(run, command) {
            program = program.stdin(bytes);
        }
        Ok(self.confined(program))
    }

    fn zone(&self) -> Option<&str> {
        self.policy.zone.as_deref()
    }

    /// The same as whom and within what the policy says.
    fn confined(&self, program: Program) -> Program {
        let program = program.limits(self.policy.limits);
        match &self.policy.account {
            Some(account) => program.user(account.user()),
            None => program,
        }
    }

    fn refuse(&self, run: &ClaimedRun, why: String) -> Outcome {
        self.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(run = %run.id, queue = %run.queue, %why, "a command was refused");
        Outcome::failed_for_good(why)
    }

    fn not_started(&self, run: &ClaimedRun, why: StartError) -> Outcome {
        match why {
            StartError::Program(why) => {
                self.refuse(run, CommandRefusal::Impossible(why.to_string()).to_string())
            }
            StartError::NotStartable { .. } => self.refuse(run, why.to_string()),
            StartError::Isolation { .. }
            | StartError::Limit { .. }
            | StartError::Busy(_)
            | StartError::Interrupted
            | StartError::TooSlow => not_now(run, &why),
        }
    }

    fn tell_if_weak(&self, started: &Started) {
        if started.tree.isolation().is_weak() && !self.is_weak_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "weak kill: neither namespaces nor cgroups are permitted here, so a command that forks faster than it is found may be late to end"
            );
        }
    }

    fn conclude(&self, context: &Context, ended: &Ended) -> Outcome {
        self.lines_left_out.fetch_add(ended.lines_left_out, Ordering::Relaxed);
        let run = context.run();
        let timeout = run.timeout_ms.map(Duration::from_millis).or(self.policy.timeout);
        let has_memory_limit = self.policy.limits.memory_bytes_max.is_some();
        let terms = Terms { timeout, has_memory_limit };
        let outcome = verdict(ended.told, &ended.outcome, ended.last_line.as_deref(), terms);
        match &ended.outcome {
            Ok(of_tree) => {
                let usage = of_tree.usage;
                let cpu = usage.map(|usage| usage.cpu_user + usage.cpu_system);
                tracing::info!(
                    run = %run.id,
                    queue = %run.queue,
                    attempt = run.attempt,
                    result = ?outcome.result,
                    error = outcome.error.as_deref(),
                    took_ms = millis(of_tree.duration),
                    cpu_ms = cpu.map(millis),
                    memory_peak_bytes = usage.map(|usage| usage.memory_peak_bytes),
                    isolation = of_tree.isolation.word(),
                    "a command has ended"
                );
            }
            Err(why) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                tracing::error!(run = %run.id, queue = %run.queue, %why, "a command is lost");
            }
        }
        outcome
    }
}

/// What another attempt may find better.
fn not_now(run: &ClaimedRun, why: &dyn std::error::Error) -> Outcome {
    tracing::warn!(run = %run.id, queue = %run.queue, %why, "a command was not started");
    let why = format!("the worker could not start it: {why}");
    Outcome { retry_after: Some(BUSY_PAUSE), ..Outcome::failed(why) }
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

/// What it reads: what its command says, or the payload of its run, or nothing.
fn stdin(run: &ClaimedRun, command: &CommandSpec) -> Option<Vec<u8>> {
    let payload = || run.payload.as_ref().map(|payload| payload.to_string().into_bytes());
    command.stdin.as_ref().map(|text| text.clone().into_bytes()).or_else(payload)
}

/// A working directory that a run names.
fn directory(said: &str) -> Result<PathBuf, CommandRefusal> {
    let refused = |why: String| CommandRefusal::Directory { path: Shown::new(said), why };
    let path = Path::new(said);
    if !path.is_absolute() {
        return Err(refused("it is no absolute path".to_owned()));
    }
    let unusable = |why: std::io::Error| {
        if refusal::is_passing(&why) {
            return CommandRefusal::Unreadable { path: Shown::new(said), why: why.to_string() };
        }
        refused(why.to_string())
    };
    let found = std::fs::canonicalize(path).map_err(unusable)?;
    if std::fs::metadata(&found).map_err(unusable)?.is_dir() {
        Ok(found)
    } else {
        Err(refused("it is no directory".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use client::worker::RunResult;
    use tokio::time::timeout;

    use super::*;
    use crate::EndReason;

    /// Commands that cannot look at any file, and a run of one.
    fn stuck() -> (Commands, Context) {
        let policy = CommandPolicy { allow: AllowList::Any, ..CommandPolicy::default() };
        let mut commands = Commands::new(policy, None);
        commands.looks = Looks::stuck();
        let run = serde_json::json!({
            "id": "run_1", "token": 1, "attempt": 1, "queue": "q", "scheduled": "2027-01-15T09:00:00Z",
            "command": {"argv": ["/bin/true"]},
        });
        (commands, Context::detached(serde_json::from_value(run).unwrap()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_whose_file_cannot_be_looked_at_is_tried_again_after_a_pause() {
        let (commands, context) = stuck();
        let outcome = timeout(Duration::from_secs(60), commands.carry_out(context)).await.unwrap();
        let expected = (RunResult::Failed, false, Some(BUSY_PAUSE));
        assert_eq!((outcome.result, outcome.final_failure, outcome.retry_after), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_waits_for_a_file_system_ends_when_it_is_told_to() {
        let (commands, context) = stuck();
        let tell = async { context.tell_to_end(EndReason::Cancelled) };
        let (outcome, ()) = tokio::join!(commands.carry_out(context.clone()), tell);
        assert_eq!(outcome.result, RunResult::Cancelled);
    }
}

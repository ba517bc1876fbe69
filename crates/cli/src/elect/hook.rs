//! Hooks: what is run when leadership is won and lost.
//!
//! One task runs them, one at a time and in order: for each stretch of leading `on-elected` and then `on-lost`, and
//! neither of them for a stretch that was over before it was reached. Nobody waits for it but whoever hands over, since
//! the claim may go only when the last hook is done. When the right ends while `on-elected` still runs, that one is
//! ended and `on-lost` begins at once: its time is short.
//!
//! A hook tells; it does not hold. What it starts outlives it, and this process.

use std::process::Stdio;
use std::time::Duration;

use engine::limits::HOOK_END_MAX;
use rustix::process::{Pid, Signal, kill_process_group};
use store::election::Right;
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// Variables that hold secrets, which are none of a hook's business.
const HIDDEN: [&str; 3] = ["REDIS_PASSWORD", "WATCHBELL_STORE", "WATCHBELL_KEY"];

/// What is run, and how long it may take.
#[derive(Debug, Clone)]
pub(super) struct Hooks {
    pub(super) on_elected: Option<String>,
    pub(super) on_lost: Option<String>,
    pub(super) time_max: Duration,
    pub(super) election: String,
    pub(super) node: String,
}

/// How things stand, as far as hooks are concerned.
#[derive(Clone, Default)]
struct Standing {
    /// How often it has changed.
    changes: u64,
    /// What it leads by.
    right: Option<Right>,
}

/// Tells the task that runs hooks of changes, and waits for it.
pub(super) struct HookHandle {
    wanted: watch::Sender<Standing>,
    settled: watch::Receiver<u64>,
}

/// The task that runs hooks.
pub(super) struct HookRunner {
    hooks: Hooks,
    wanted: watch::Receiver<Standing>,
    settled: watch::Sender<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Elected,
    Lost,
}

pub(super) fn hooks(hooks: Hooks) -> (HookHandle, HookRunner) {
    let (wanted, to_do) = watch::channel(Standing::default());
    let (done, settled) = watch::channel(0);
    (HookHandle { wanted, settled }, HookRunner { hooks, wanted: to_do, settled: done })
}

impl HookHandle {
    /// It leads by this right, or no more. Returns at once.
    pub(super) fn change(&self, right: Option<&Right>) {
        self.wanted.send_modify(|standing| {
            standing.changes += 1;
            standing.right = right.cloned();
        });
    }

    /// Waits until all hooks are done that the changes so far ask for.
    pub(super) async fn settled(&self) {
        let changes = self.wanted.borrow().changes;
        // A task that is gone runs nothing any more.
        let _ = self.settled.clone().wait_for(|settled| *settled >= changes).await;
    }
}

impl HookRunner {
    /// Runs hooks until nobody can ask for any more.
    pub(super) async fn run(mut self) {
        // The stretch for which on-elected was begun, and on-lost is owed.
        let mut begun: Option<Standing> = None;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            match (begun.take(), &wanted.right) {
                (Some(former), _) if former.changes != wanted.changes => {
                    let right = former.right.expect("only a stretch of leading is begun");
                    self.call(Kind::Lost, &right, std::future::pending()).await;
                    continue;
                }
                (None, Some(right)) => {
                    let mut next = self.wanted.clone();
                    let over = async { drop(next.changed().await) };
                    self.call(Kind::Elected, right, over).await;
                    begun = Some(wanted.clone());
                }
                (former, _) => begun = former,
            }
            self.settled.send_replace(wanted.changes);
            if self.wanted.changed().await.is_err() {
                return;
            }
        }
    }

    /// Runs a hook to its end, or until its time or its occasion is over.
    async fn call(&self, kind: Kind, right: &Right, over: impl Future<Output = ()>) {
        let (name, command) = match kind {
            Kind::Elected => ("on-elected", &self.hooks.on_elected),
            Kind::Lost => ("on-lost", &self.hooks.on_lost),
        };
        let Some(command) = command else { return };
        let mut child = match self.command(command, right).spawn() {
            Ok(child) => child,
            Err(why) => {
                tracing::error!(%why, hook = name, "a hook could not be started");
                return;
            }
        };
        tokio::select! {
            biased;
            ended = child.wait() => match ended {
                Ok(status) if status.success() => tracing::debug!(hook = name, "a hook is done"),
                Ok(status) => tracing::warn!(%status, hook = name, "a hook has failed"),
                Err(why) => tracing::warn!(%why, hook = name, "a hook was lost sight of"),
            },
            () = over => {
                tracing::warn!(hook = name, "a hook is ended: what it was run for is over");
                end(&mut child).await;
            }
            () = tokio::time::sleep(self.hooks.time_max) => {
                tracing::warn!(hook = name, "a hook is ended: it took too long");
                end(&mut child).await;
            }
        }
    }

    fn command(&self, command: &str, right: &Right) -> Command {
        let valid_for = right.permit().map_or(Duration::ZERO, |permit| permit.valid_for);
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(command).process_group(0).kill_on_drop(true);
        for secret in HIDDEN {
            sh.env_remove(secret);
        }
        sh.env("WATCHBELL_ELECTION", &self.hooks.election);
        sh.env("WATCHBELL_NODE", &self.hooks.node);
        sh.env("WATCHBELL_TOKEN", right.token().0.to_string());
        sh.env("WATCHBELL_VALID_FOR_MS", valid_for.as_millis().to_string());
        // Stdout is for transitions: what hooks say goes to the other one.
        sh.stdin(Stdio::null()).stdout(std::io::stderr()).stderr(Stdio::inherit());
        sh
    }
}

/// Asks a hook and all that it runs to end, and then makes them.
async fn end(child: &mut Child) {
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let Some(group) = group else { return };
    let _ = kill_process_group(group, Signal::TERM);
    let _ = tokio::time::timeout(HOOK_END_MAX, child.wait()).await;
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait().await;
}

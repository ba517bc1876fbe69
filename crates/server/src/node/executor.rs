//! What a node needs more than tasks for: somebody to run its core, and to call receivers.
//!
//! A server has threads for both, so that nothing that a request or a slow store does keeps the core from its clocks. The
//! simulator has all of a node in one thread, where it decides who goes next, and receivers of its own.

use std::io;
use std::sync::Arc;

use store::Pending;
use store::machine::Machine;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::core::Core;
use super::keep;
use crate::alarm::Alarm;
use crate::webhook::{self, Command, Dispatcher, Finished};

/// Who runs a node's core, and calls receivers.
#[derive(Clone)]
pub enum Executor {
    /// Threads of its own.
    Threads,
    /// Tasks like the others, and a sender that makes its calls.
    Tasks(SimulatedSender),
}

/// The work of somebody who takes commands as a sender does, and tells what came of each call.
pub type SimulatedSender = Arc<
    dyn Fn(
            &webhook::Config,
            mpsc::UnboundedReceiver<Command>,
            mpsc::UnboundedSender<Finished>,
        ) -> Pending<'static, ()>
        + Send
        + Sync,
>;

impl Executor {
    /// How many things can be done at a time.
    pub(super) fn cores(&self) -> usize {
        match self {
            Self::Threads => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Tasks(_) => 1,
        }
    }

    /// Whoever calls receivers.
    pub(super) fn dispatcher(
        &self,
        webhooks: &webhook::Config,
        machine: &Arc<dyn Machine>,
        results: &mpsc::UnboundedSender<Finished>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Dispatcher, webhook::StartError> {
        let Self::Tasks(sender) = self else {
            return Dispatcher::start(webhooks, machine, results);
        };
        let (commands, taken) = mpsc::unbounded_channel();
        keep(tasks, &webhooks.alarm, "the sender", sender(webhooks, taken, results.clone()));
        Ok(Dispatcher::by(commands))
    }

    /// Runs the core: in a thread of its own, which has a runtime of its own, or as a task. What is given back ends when
    /// the core has.
    pub(super) fn run(
        &self,
        core: Core,
        alarm: &Alarm,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<oneshot::Receiver<()>> {
        let (running, ended) = oneshot::channel();
        match self {
            Self::Threads => {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_time().build()?;
                let guard = alarm.guard("the core");
                std::thread::Builder::new().name("core".to_owned()).spawn(move || {
                    let _guard = guard;
                    runtime.block_on(core.run());
                    drop(running);
                })?;
            }
            Self::Tasks(_) => keep(tasks, alarm, "the core", async move {
                core.run().await;
                drop(running);
            }),
        }
        Ok(ended)
    }
}

//! What a node needs more than tasks for: somebody to run its core, and to call receivers.
//!
//! A server has threads for both, so that nothing that a request or a slow store does keeps the core from its clocks. The
//! simulator has all of a node in one thread, where it decides who goes next, and receivers of its own.

use std::io;
use std::sync::Arc;

use store::Pending;
use store::machine::Machine;
use tokio::sync::mpsc;

use super::component::{Component, Components};
use super::core::NodeCore;
use crate::webhook::{self, Dispatcher, FinishedCall, SenderCommand};

/// Who runs a node's core, and calls receivers.
#[derive(Clone)]
pub enum Executor {
    /// Threads of its own.
    Threads,
    /// Tasks like the others, and a sender that makes its calls.
    Tasks(SimulatedSender),
}

/// The work of a simulated sender: it takes commands as a sender does, and tells what came of each call.
pub type SimulatedSender = Arc<
    dyn Fn(
            &webhook::Config,
            mpsc::UnboundedReceiver<SenderCommand>,
            mpsc::UnboundedSender<FinishedCall>,
        ) -> Pending<'static, ()>
        + Send
        + Sync,
>;

struct SenderTask(Pending<'static, ()>);

impl Component for SenderTask {
    const NAME: &'static str = "the sender";

    async fn run(self) {
        self.0.await;
    }
}

impl Executor {
    /// How many things can be done at a time.
    pub(super) fn cores(&self) -> usize {
        match self {
            Self::Threads => std::thread::available_parallelism().map_or(1, usize::from),
            Self::Tasks(_) => 1,
        }
    }

    pub(super) fn dispatcher(
        &self,
        webhooks: &webhook::Config,
        machine: &Arc<dyn Machine>,
        results: &mpsc::UnboundedSender<FinishedCall>,
        components: &mut Components,
    ) -> Result<Dispatcher, webhook::StartError> {
        let Self::Tasks(sender) = self else {
            return Dispatcher::start(webhooks, machine, results);
        };
        let (commands, taken) = mpsc::unbounded_channel();
        components.start(SenderTask(sender(webhooks, taken, results.clone())));
        Ok(Dispatcher::by(commands))
    }

    pub(super) fn run(&self, core: NodeCore, components: &mut Components) -> io::Result<()> {
        match self {
            Self::Threads => components.start_thread("core", core)?,
            Self::Tasks(_) => components.start(core),
        }
        Ok(())
    }
}

//! A handler that passes when a test lets it.

use std::sync::Arc;

use rig::PATIENCE;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use worker::{Context, EndReason, HandlerError, WorkerBuilder};

/// Lets runs begin, and pass one by one.
#[derive(Clone)]
pub(super) struct Gate {
    begun: Arc<Semaphore>,
    open: Arc<Semaphore>,
    ended: mpsc::UnboundedSender<EndReason>,
}

/// A gate, and why runs that were before it were told to end.
pub(super) fn gate() -> (Gate, mpsc::UnboundedReceiver<EndReason>) {
    let (ended, reasons) = mpsc::unbounded_channel();
    let (begun, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    (Gate { begun, open, ended }, reasons)
}

impl Gate {
    /// Adds a handler `gate`.
    pub(super) fn stands_in(&self, builder: WorkerBuilder) -> WorkerBuilder {
        let gate = self.clone();
        let pass = move |context: Context, _: serde_json::Value| gate.clone().pass(context);
        builder.handler("gate", pass)
    }

    async fn pass(self, context: Context) -> Result<(), HandlerError> {
        self.begun.add_permits(1);
        tokio::select! {
            open = self.open.acquire() => open?.forget(),
            reason = context.told_to_end() => self.ended.send(reason)?,
        }
        Ok(())
    }

    /// Waits until so many more have begun.
    pub(super) async fn has_begun(&self, count: u32) {
        let begun = timeout(PATIENCE, self.begun.acquire_many(count)).await;
        begun.expect("they begin").expect("nobody closes it").forget();
    }

    /// Lets so many more pass.
    pub(super) fn let_pass(&self, count: usize) {
        self.open.add_permits(count);
    }
}

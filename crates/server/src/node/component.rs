//! Components: what a node is made of, and the order in which they end.
//!
//! A component says in its own file what it is called, what it does and how it ends. It makes the channels that it
//! receives from: its constructor gives the sending ends to whoever needs them. All components are started in one
//! place, `start`, so a new one is an `impl Component` and a line there. One that panics rings the [`Alarm`], which
//! ends the node instead of letting it live on without that component.
//!
//! When a node stops, its shards have been handed over if there was anybody to take them (`drain`). Then the core
//! fires nothing new, writes what is decided and ends; reports are posted to the end; the session is closed, which
//! frees whatever is left at once; and everything else is dropped where it stands.

use std::io;

use store::machine::within;
use store::session::Session;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::Stop;
use crate::alarm::Alarm;

/// Something that works for as long as a node runs.
pub trait Component: Send + 'static {
    /// What log and alarm call it.
    const NAME: &'static str;

    /// How it ends when the node stops.
    const STOP_ORDER: StopOrder = StopOrder::Last;

    /// Works until it has nothing left to do, or is dropped.
    fn run(self) -> impl Future<Output = ()> + Send;
}

/// When a component ends, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOrder {
    /// It is told to stop by the node's stop signal, which it must watch, and is awaited without a limit before any
    /// other. Only the core ends so.
    First,
    /// It ends by itself when those before it have, and is given T for it.
    AfterFirst,
    /// It is dropped when the session is closed.
    Last,
}

/// The components that run, by how they end.
#[derive(Default)]
pub(super) struct Components {
    alarm: Alarm,
    first: JoinSet<()>,
    after_first: JoinSet<()>,
    last: JoinSet<()>,
}

impl Components {
    pub(super) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Starts a component as a task.
    pub(super) fn start<C: Component>(&mut self, component: C) {
        let guard = self.alarm.guard(C::NAME);
        self.tasks(C::STOP_ORDER).spawn(async move {
            let _guard = guard;
            component.run().await;
        });
    }

    /// Starts a component in a thread of its own, which has a runtime of its own.
    pub(super) fn start_thread<C: Component>(
        &mut self,
        thread: &str,
        component: C,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let guard = self.alarm.guard(C::NAME);
        let (running, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name(thread.to_owned()).spawn(move || {
            let _guard = guard;
            runtime.block_on(component.run());
            drop(running);
        })?;
        self.tasks(C::STOP_ORDER).spawn(async { drop(ended.await) });
        Ok(())
    }

    fn tasks(&mut self, order: StopOrder) -> &mut JoinSet<()> {
        match order {
            StopOrder::First => &mut self.first,
            StopOrder::AfterFirst => &mut self.after_first,
            StopOrder::Last => &mut self.last,
        }
    }

    /// Ends all of them, once the first have been told to, and the session with them.
    pub(super) async fn stop(mut self, session: &Session, how: Stop) {
        all(&mut self.first).await;
        if how == Stop::InOrder {
            // They end by themselves or with the session, since nobody gives them anything any more.
            within(session.machine(), session.ttl().length(), all(&mut self.after_first)).await;
        }
        session.close().await;
        self.last.shutdown().await;
    }
}

async fn all(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

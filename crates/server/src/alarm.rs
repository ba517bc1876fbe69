//! An alarm: it rings when a component of the node breaks, so that the node ends instead of living on without it.
//!
//! A component takes an [`AlarmGuard`] and keeps it for as long as it works. A panic drops the guard on its way out, and
//! that rings. Whoever runs the node waits for it: see `Node::ended`.

use std::sync::Arc;
use std::thread;

use tokio::sync::watch;

/// An alarm. Clones are the same alarm.
#[derive(Clone, Default)]
pub struct Alarm(Arc<watch::Sender<Option<&'static str>>>);

impl Alarm {
    /// What a component of this name keeps for as long as it works.
    pub fn guard(&self, component: &'static str) -> AlarmGuard {
        AlarmGuard { alarm: self.clone(), component }
    }

    /// Waits until a component has broken, and says which was the first.
    pub async fn rung(&self) -> &'static str {
        let mut broken = self.0.subscribe();
        let broken = broken.wait_for(Option::is_some).await.expect("this handle keeps the sender");
        broken.expect("waited for")
    }
}

/// Rings when it is dropped by a panic, and not when the component that keeps it ends or is told to.
pub struct AlarmGuard {
    alarm: Alarm,
    component: &'static str,
}

impl Drop for AlarmGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(component = self.component, "a component of this node has panicked");
            self.alarm.0.send_if_modified(|broken| {
                let is_first = broken.is_none();
                broken.get_or_insert(self.component);
                is_first
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_rings_for_a_panic_and_for_nothing_else() {
        let alarm = Alarm::default();
        drop(alarm.guard("one that ends"));
        let aborted = tokio::task::JoinSet::from_iter([hold(alarm.guard("one that is told to"))]);
        drop(aborted);
        tokio::task::yield_now().await;
        let broken = alarm.guard("one that breaks");
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let _guard = broken;
            tokio::task::yield_now().await;
            panic!("on purpose");
        });
        assert_eq!(alarm.rung().await, "one that breaks");
    }

    async fn hold(guard: AlarmGuard) {
        std::future::pending::<()>().await;
        drop(guard);
    }
}

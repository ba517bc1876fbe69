//! The life of a shim, from its start to the moment at which nothing of the tree is left.

use std::sync::Arc;
use std::time::Duration;

use engine::hold::timing::HoldDeadline;
use tokio::sync::mpsc;

use super::{SimTree, TreeNews, TreeOrder};
use crate::clock::MS;

/// What the shim keeps.
struct Term {
    deadline: HoldDeadline,
    /// It has told the program to end, and takes that back no more.
    is_over: bool,
    grace_ends: Option<Duration>,
}

impl Term {
    fn next_at(&self) -> Duration {
        let HoldDeadline { stop_at, kill_at } = self.deadline;
        let of_deadline = if self.is_over { kill_at } else { stop_at.min(kill_at) };
        self.grace_ends.map_or(of_deadline, |at| at.min(of_deadline))
    }
}

impl SimTree {
    /// The life of the shim.
    pub(super) async fn keep(
        self: Arc<Self>,
        mut orders: mpsc::UnboundedReceiver<TreeOrder>,
        deadline: HoldDeadline,
    ) {
        let (launching, fails) = {
            let dice = &mut self.lock().dice;
            let longest = if dice.chance(10) { 300 * MS } else { 15 * MS };
            (dice.between(2 * MS, longest), dice.chance(1))
        };
        self.world.sleep(launching).await;
        if fails {
            self.checker.exits(&self.world);
        }
        if fails || orders.is_closed() {
            self.say(TreeNews::NotStarted);
            return self.leave();
        }
        let mut term = Term { deadline, is_over: false, grace_ends: None };
        let mut is_unconfirmed = self.machine.reading().boot >= deadline.stop_at;
        self.say(TreeNews::Started);
        if !is_unconfirmed {
            self.begin();
            is_unconfirmed = self.watch(&mut orders, &mut term).await;
            self.end().await;
        }
        let now = self.machine.reading().boot;
        let (ran, kill_at) = (now.saturating_sub(self.lock().began), term.deadline.kill_at);
        let kill_late = now.checked_sub(kill_at).filter(|late| !late.is_zero());
        self.say(TreeNews::Ended { ran, is_unconfirmed, kill_late });
        self.leave();
    }

    /// Until the tree is to be killed. Tells whether that is because of its deadline.
    async fn watch(
        &self,
        orders: &mut mpsc::UnboundedReceiver<TreeOrder>,
        term: &mut Term,
    ) -> bool {
        loop {
            let next = term.next_at();
            tokio::select! {
                biased;
                () = self.died.notified() => return term.is_over,
                order = orders.recv() => match order {
                    Some(order) if self.obeys(order, term) => {}
                    Some(_) | None => return term.is_over,
                },
                () = self.machine.until(next) => {
                    // What came by now may have moved the instant.
                    while let Ok(order) = orders.try_recv() {
                        if !self.obeys(order, term) {
                            return term.is_over;
                        }
                    }
                    let now = self.machine.reading().boot;
                    if term.deadline.kill_at <= now {
                        self.checker.unconfirmed(&self.world, self.id);
                        return true;
                    }
                    if term.grace_ends.is_some_and(|at| at <= now) {
                        return term.is_over;
                    }
                    if !term.is_over && term.deadline.stop_at <= now {
                        term.is_over = true;
                        self.checker.unconfirmed(&self.world, self.id);
                        self.tell_to_end();
                    }
                }
            }
        }
    }

    /// Whether the tree goes on.
    fn obeys(&self, order: TreeOrder, term: &mut Term) -> bool {
        match order {
            TreeOrder::Confirm(deadline) if !term.is_over => {
                let HoldDeadline { stop_at, kill_at } = term.deadline;
                term.deadline = HoldDeadline {
                    stop_at: stop_at.max(deadline.stop_at),
                    kill_at: kill_at.max(deadline.kill_at),
                };
                self.lock().kill_at = term.deadline.kill_at;
                true
            }
            TreeOrder::Confirm(_) => true,
            TreeOrder::Stop { grace } => {
                let ends = self.machine.reading().boot + grace;
                term.grace_ends = Some(term.grace_ends.map_or(ends, |at| at.min(ends)));
                self.tell_to_end();
                true
            }
            TreeOrder::Kill => false,
        }
    }
}

//! Triggers that ended long ago.
//!
//! A trigger that was cancelled, or whose schedule or limit of runs is over, stays for a while, so that people
//! can look at it. Then it is deleted like any other, with a line in the past that says so. When it ended is
//! not stored, because the rest of what is known tells it: a cancellation has its instant; the last run of a
//! limit moved the cursor to its slot; a schedule that is over ended with its last slot, or when it began to
//! count if it never had one. What is not finished keeps its trigger.

use crate::instant::Instant;
use crate::limits::{PRUNE_DELETED_MAX, PRUNE_LOOKED_AT_MAX};
use crate::past::{Line, Reason};

use super::command::{Done, PruneProgress};
use super::memory::Delta;
use super::triggers::Trigger;
use super::{Now, Shard};

impl Shard {
    /// Deletes triggers that ended before an instant, at most a few of a bounded number from a place on. Tells
    /// where to go on.
    pub(super) fn prune(&mut self, ended_before: Instant, from: u32, now: Now) -> Done {
        // Nobody knows what time it is, or what is decided is not written any more.
        if self.is_suspended || self.is_stopping() {
            return Done::Pruned(PruneProgress { deleted: 0, next: None });
        }
        let (mut deleted, mut looked_at) = (0_u16, 0);
        for place in from..self.triggers.places_end() {
            looked_at += 1;
            if looked_at > PRUNE_LOOKED_AT_MAX || usize::from(deleted) >= PRUNE_DELETED_MAX {
                return Done::Pruned(PruneProgress { deleted, next: Some(place) });
            }
            let trigger = self.triggers.used(place);
            let ended = trigger.and_then(|trigger| Some((trigger, self.ended(trigger, now)?)));
            let Some((trigger, ended)) = ended.filter(|(_, ended)| *ended < ended_before) else {
                continue;
            };
            let serial = trigger.serial;
            let line = pruned(trigger, ended, now);
            self.delete(serial, vec![Delta::Past(line)], now);
            deleted += 1;
        }
        Done::Pruned(PruneProgress { deleted, next: None })
    }

    /// When a trigger ended, if it has, and nothing of it is under way.
    fn ended(&self, trigger: &Trigger, now: Now) -> Option<Instant> {
        if self.is_active(trigger) || self.triggers.is_behind(trigger) {
            return None;
        }
        if let Some(cancelled) = trigger.cancelled() {
            return Some(cancelled);
        }
        let schedule = trigger.schedule();
        if schedule.specs().is_empty() {
            return None;
        }
        if trigger.remaining() == Some(0) {
            return Some(trigger.cursor());
        }
        if self.triggers.undecided(trigger).is_some() {
            return None;
        }
        Some(schedule.last(trigger.since, now.wall).unwrap_or(trigger.since))
    }
}

/// That no slot was skipped, but the trigger deleted. It stands after the last slot, so it is no other line.
fn pruned(trigger: &Trigger, ended: Instant, now: Now) -> Line {
    let after = Instant(ended.0.saturating_add(1).max(now.wall.0));
    Line::Skip(trigger.skipped((after, after), 0, Reason::Pruned, now))
}

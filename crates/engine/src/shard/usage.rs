//! How much a project has, and how much it may have.
//!
//! What counts is known in memory: so many triggers, the bytes of their names, paths and bodies, and the runs of
//! the busiest minute that their schedules allow. A trigger counts for as long as it is there, also while it is
//! paused. Runs that wait for workers count too, in queues and outside of full ones. What a trigger's schedule feeds counts,
//! and is not refused: its schedule was allowed, and `waiting_max` bounds each queue.

use std::fmt;
use std::ops::{Add, AddAssign, SubAssign};

use crate::id::{ProjectId, SerialId};
use crate::trigger::Definition;

use super::Shard;
use super::backfill;
use super::command::{Command, Rejection};
use super::triggers::Trigger;

/// How much there is of everything that is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// How many triggers there are.
    pub triggers: u64,
    /// Bytes of their names, paths and bodies.
    pub bytes: u64,
    /// Runs in the busiest minute.
    pub fires_per_minute: u64,
    /// Runs that wait for workers.
    pub waiting_runs: u64,
}

/// How much a project may have. What is not said is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the fields are those of what is used")]
pub struct Quota {
    pub triggers: Option<u64>,
    pub bytes: Option<u64>,
    pub fires_per_minute: Option<u64>,
    pub waiting_runs: Option<u64>,
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are named in the same way in the API")]
pub enum Limit {
    Triggers,
    Bytes,
    FiresPerMinute,
    WaitingRuns,
}

impl Limit {
    /// As the API calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Triggers => "triggers",
            Self::Bytes => "bytes",
            Self::FiresPerMinute => "fires_per_minute",
            Self::WaitingRuns => "waiting_runs",
        }
    }

    /// What makes room again.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Triggers | Self::Bytes | Self::FiresPerMinute => "delete what is not needed",
            Self::WaitingRuns => "let workers claim some, or cancel some",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Quota {
    /// Whether something may grow to this. Only what grows is looked at: who has too much already may still have
    /// less.
    pub fn check(&self, now: Usage, then: Usage) -> Result<(), Rejection> {
        let fires = (self.fires_per_minute, now.fires_per_minute, then.fires_per_minute);
        let pairs = [
            (Limit::Triggers, (self.triggers, now.triggers, then.triggers)),
            (Limit::Bytes, (self.bytes, now.bytes, then.bytes)),
            (Limit::FiresPerMinute, fires),
            (Limit::WaitingRuns, (self.waiting_runs, now.waiting_runs, then.waiting_runs)),
        ];
        for (limit, (most, now, then)) in pairs {
            if let Some(max) = most
                && then > now
                && then > max
            {
                return Err(Rejection::OverLimit { limit, max });
            }
        }
        Ok(())
    }
}

impl Usage {
    fn of(definition: &Definition) -> Self {
        let Definition { name, target, schedule, .. } = definition;
        let bytes = name.len() + target.own_bytes();
        let fires_per_minute = schedule.per_minute_max();
        Self { triggers: 1, bytes: bytes as u64, fires_per_minute, waiting_runs: 0 }
    }

    pub(super) fn of_trigger(trigger: &Trigger) -> Self {
        let body = trigger.body().map_or(0, str::len);
        let bytes = (trigger.name().len() + trigger.path().len() + body) as u64;
        let fires_per_minute = trigger.kind.per_minute_max.into();
        Self { triggers: 1, bytes, fires_per_minute, waiting_runs: 0 }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            triggers: self.triggers.saturating_add(other.triggers),
            bytes: self.bytes.saturating_add(other.bytes),
            fires_per_minute: self.fires_per_minute.saturating_add(other.fires_per_minute),
            waiting_runs: self.waiting_runs.saturating_add(other.waiting_runs),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, other: Self) {
        self.triggers -= other.triggers;
        self.bytes -= other.bytes;
        self.fires_per_minute -= other.fires_per_minute;
        self.waiting_runs -= other.waiting_runs;
    }
}

impl Shard {
    /// How much a project has here.
    pub fn usage(&self, project: ProjectId) -> Usage {
        let waiting = self.queues.waiting_of(project) + self.runs.before_queues_of(project);
        Usage { waiting_runs: waiting as u64, ..self.triggers.usage(project) }
    }

    /// How much a project has here, and would have after a command; none, if the command changes nothing of that.
    pub fn usage_after(&self, project: ProjectId, command: &Command) -> Option<(Usage, Usage)> {
        let now = self.usage(project);
        let mut then = now;
        match command {
            Command::Create { definition, .. } => then += Usage::of(definition),
            Command::Replace { trigger, definition, .. } => {
                then -= Usage::of_trigger(self.triggers.get(*trigger)?);
                then += Usage::of(definition);
            }
            // As many as it may start at a time.
            Command::Backfill { trigger, .. } => {
                then += self.usage_of_runs(*trigger, backfill::RUNS_MAX as u64);
            }
            Command::Run { trigger, .. } => then += self.usage_of_runs(*trigger, 1),
            Command::Submit { runs, .. } => then.waiting_runs += runs.len() as u64,
            Command::Redrive { runs, .. } => then.waiting_runs += runs.len() as u64,
            Command::Pause { .. }
            | Command::Resume { .. }
            | Command::Cancel { .. }
            | Command::Delete { .. }
            | Command::Disable { .. }
            | Command::Enable { .. }
            | Command::SetQueue { .. }
            | Command::PauseQueue { .. }
            | Command::ResumeQueue { .. }
            | Command::DeleteQueue { .. }
            | Command::CancelRun { .. }
            | Command::CancelRuns { .. }
            | Command::ReserveName { .. }
            | Command::ReleaseName { .. }
            | Command::Prune { .. } => return None,
        }
        Some((now, then))
    }

    /// What so many runs more of a trigger come to.
    fn usage_of_runs(&self, trigger: SerialId, runs: u64) -> Usage {
        let feeds = self.triggers.get(trigger).is_some_and(|trigger| trigger.feeds().is_some());
        let waiting_runs = if feeds { runs } else { 0 };
        Usage { fires_per_minute: runs, waiting_runs, ..Usage::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(triggers: u64, fires_per_minute: u64) -> Usage {
        Usage { triggers, fires_per_minute, ..Usage::default() }
    }

    #[test]
    fn a_quota_is_kept_at_its_limit_and_refuses_one_past_it() {
        let quota = Quota { triggers: Some(3), ..Quota::default() };
        assert_eq!(quota.check(usage(2, 0), usage(3, 0)), Ok(()));
        let over = Rejection::OverLimit { limit: Limit::Triggers, max: 3 };
        assert_eq!(quota.check(usage(3, 0), usage(4, 0)), Err(over));
        assert_eq!(quota.check(usage(9, 0), usage(8, 99)), Ok(()), "less is always fine");
    }
}

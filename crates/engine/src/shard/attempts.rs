//! Attempts, from launch to past.
//!
//! An attempt is begun when it is decided, may leave once that is written, leaves when its instant has
//! come, and ends with a report. Its number is written before it leaves. None of this is remembered by the
//! store beyond what the units say: after a crash there are no attempts, only runs that are in doubt.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::id::Unique;
use crate::instant::Instant;
use crate::limits::OPEN_MS_MAX;

use super::Now;
use super::record::{OpenRun, RunRecord, RunState};

/// An unfinished run: open in the head, or with a record of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RunRef {
    Open(OpenRun),
    Record(u64),
}

/// An attempt.
pub(super) struct LiveAttempt {
    pub(super) run: RunRef,
    pub(super) trigger: Unique,
    pub(super) number: u32,
    pub(super) leaves: Instant,
    pub(super) phase: Phase,
    /// The run may have left under a predecessor.
    pub(super) is_doubtful: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its unit is not written.
    Decided,
    /// It may leave.
    Ready,
    /// It has left.
    Left,
}

/// All attempts of a shard, and what waits for one.
#[derive(Default)]
pub(super) struct Attempts {
    pub(super) tries: BTreeMap<u64, LiveAttempt>,
    pub(super) by_run: BTreeMap<RunRef, u64>,
    /// Attempts that may leave, by when.
    pub(super) leaving: BTreeSet<(Instant, u64)>,
    /// Attempts that wait for another one of their trigger to end.
    pub(super) blocked: BTreeSet<(Unique, u64)>,
    /// Attempts that have left.
    pub(super) left: BTreeSet<(Unique, u64)>,
    /// Attempts of open runs, by the steady time at which they could leave.
    pub(super) opened: VecDeque<(u64, u64)>,
    /// Runs that wait for an instant.
    pub(super) waiting: BTreeSet<(Instant, u64)>,
    /// Runs that wait for another one of their trigger to end.
    pub(super) blocked_runs: BTreeSet<(Unique, u64)>,
    /// Runs that may have left under a predecessor, and until when (steady) they are left alone.
    pub(super) doubts: BTreeMap<RunRef, u64>,
    /// Those of them whose attempt is made by a former owner that is there, and will report.
    pub(super) remote: BTreeSet<(Unique, u64)>,
    /// Triggers of which something may be under way that we do not see, and until when (steady).
    pub(super) kept_back: HashMap<Unique, u64>,
    /// Attempts that are to be broken off once that is written, and whose they are.
    pub(super) aborting: BTreeMap<u64, Unique>,
    /// Runs that wait for their project to be enabled.
    pub(super) stopped: BTreeSet<u64>,
    /// Runs that wait for a host that has too much already, by its origin.
    pub(super) parked: BTreeMap<u64, BTreeSet<(Instant, u64)>>,
    /// Runs for a host that were started since hosts were last looked at.
    pub(super) started: HashMap<u64, usize>,
    /// When (steady) these hosts are looked at again.
    pub(super) look_again: u64,
    pub(super) last_key: u64,
}

impl Attempts {
    /// Begins an attempt, which leaves when it is released, no sooner than this.
    pub(super) fn begin(
        &mut self,
        run: RunRef,
        trigger: Unique,
        number: u32,
        leaves: Instant,
    ) -> u64 {
        self.last_key += 1;
        let key = self.last_key;
        let phase = Phase::Decided;
        self.tries
            .insert(key, LiveAttempt { run, trigger, number, leaves, phase, is_doubtful: false });
        self.by_run.insert(run, key);
        key
    }

    /// What an attempt rests on is written: it may leave.
    pub(super) fn release(&mut self, key: u64, now: Now) {
        let Some(attempt) = self.tries.get_mut(&key) else { return };
        if attempt.phase == Phase::Decided {
            attempt.phase = Phase::Ready;
            self.leaving.insert((attempt.leaves, key));
            if matches!(attempt.run, RunRef::Open(_)) {
                self.opened.push_back((now.steady, key));
            }
        }
    }

    /// Forgets an attempt.
    pub(super) fn remove(&mut self, key: u64) -> Option<LiveAttempt> {
        let attempt = self.tries.remove(&key)?;
        self.by_run.remove(&attempt.run);
        self.leaving.remove(&(attempt.leaves, key));
        self.blocked.remove(&(attempt.trigger, key));
        self.left.remove(&(attempt.trigger, key));
        Some(attempt)
    }

    /// A run waits, as its record says.
    pub(super) fn wait(&mut self, sequence: u64, run: &RunRecord) {
        match run.state {
            RunState::Waiting(at) | RunState::Backoff(at) => {
                self.waiting.insert((at, sequence));
            }
            RunState::Blocked => {
                self.blocked_runs.insert((run.trigger, sequence));
            }
            RunState::Running => {}
        }
    }

    /// A run waits no more.
    pub(super) fn unwait(&mut self, sequence: u64, run: &RunRecord) {
        self.blocked_runs.remove(&(run.trigger, sequence));
        self.stopped.remove(&sequence);
        if let RunState::Waiting(at) | RunState::Backoff(at) = run.state {
            self.waiting.remove(&(at, sequence));
            let origin = run.webhook.form.origin();
            if let Some(parked) = self.parked.get_mut(&origin) {
                parked.remove(&(at, sequence));
                if parked.is_empty() {
                    self.parked.remove(&origin);
                }
            }
        }
    }

    /// Nothing of this trigger leaves for so long.
    pub(super) fn keep_back(&mut self, trigger: Unique, until: u64) {
        let kept_back = self.kept_back.entry(trigger).or_default();
        *kept_back = until.max(*kept_back);
    }

    /// An attempt is broken off.
    pub(super) fn abort(&mut self, key: u64) {
        self.aborting.remove(&key);
    }

    /// Whether something of this trigger may be at work at a receiver although it is ended.
    pub(super) fn may_be_at_work(&self, trigger: Unique, now: Now) -> bool {
        self.is_kept_back(trigger, now)
            || self.aborting.values().any(|aborting| *aborting == trigger)
    }

    /// Whether nothing of this trigger leaves.
    pub(super) fn is_kept_back(&self, trigger: Unique, now: Now) -> bool {
        self.kept_back.get(&trigger).is_some_and(|until| *until > now.steady)
    }

    /// Until when nothing of this trigger leaves, by the wall clock.
    pub(super) fn kept_back_until(&self, trigger: Unique, now: Now) -> Instant {
        let until = self.kept_back.get(&trigger).copied().unwrap_or_default();
        now.wall.after(Duration::from_millis(until.saturating_sub(now.steady)))
    }

    /// An attempt leaves later.
    pub(super) fn put_off(&mut self, key: u64, leaves: Instant) {
        if let Some(attempt) = self.tries.get_mut(&key) {
            attempt.leaves = leaves;
            self.leaving.insert((leaves, key));
        }
    }

    pub(super) fn key_of(&self, run: RunRef) -> Option<u64> {
        self.by_run.get(&run).copied()
    }

    /// Whether an attempt of this trigger is under way, here or at a former owner.
    pub(super) fn has_others_left(&self, trigger: Unique) -> bool {
        let of_it = (trigger, 0)..=(trigger, u64::MAX);
        self.left.range(of_it.clone()).next().is_some() || self.remote.range(of_it).next().is_some()
    }

    /// Adds this to the key of every attempt so far, none of which may leave yet, and so to those that follow.
    pub(super) fn renumber(&mut self, ahead: u64) {
        assert!(self.leaving.is_empty() && self.left.is_empty(), "nothing may leave yet");
        let tries = std::mem::take(&mut self.tries);
        self.tries = tries.into_iter().map(|(key, attempt)| (key + ahead, attempt)).collect();
        self.by_run.values_mut().for_each(|key| *key += ahead);
        self.last_key += ahead;
    }

    pub(super) fn next_wakes(&self, now: Now) -> impl Iterator<Item = Instant> {
        let steady = |at: u64| now.wall.after(Duration::from_millis(at.saturating_sub(now.steady)));
        let leaving = self.leaving.first().map(|(at, _)| *at);
        let waiting = self.waiting.first().map(|(at, _)| *at);
        let parked = (!self.parked.is_empty()).then(|| steady(self.look_again));
        let opened = self.opened.front().map(|(since, _)| steady(since + OPEN_MS_MAX + 1));
        // One that was left alone for long enough waits for another one of its trigger to end.
        let doubts = self.doubts.values().filter(|until| **until > now.steady).min();
        let doubts = doubts.map(|until| steady(*until));
        [leaving, waiting, parked, opened, doubts].into_iter().flatten()
    }
}

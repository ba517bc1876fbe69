//! Attempts, from launch to past: the part of a shard that knows what is under way.
//!
//! An attempt is begun when it is decided, may leave once that is written, leaves when its instant has
//! come, and ends with a report. Its number is written before it leaves. None of this is remembered by the
//! store beyond what the units say: after a crash there are no attempts, only runs that are in doubt.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::limits::OPEN_MS_MAX;

use super::Now;
use super::record::OpenRun;

/// An unfinished run: open in the head, or with a record of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RunRef {
    Open(OpenRun),
    Record(u64),
}

/// An attempt that was decided and has not ended.
#[derive(Clone, Copy)]
pub(super) struct LiveAttempt {
    pub(super) run: RunRef,
    pub(super) trigger: SerialId,
    pub(super) number: u32,
    pub(super) leaves_at: Instant,
    phase: Phase,
    /// The run may have left under a predecessor.
    pub(super) is_doubtful: bool,
    /// The origin of the host that it goes to.
    host: Option<u64>,
    /// Whether it is on its way to its host, and waits for nothing else.
    is_coming: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its unit is not written.
    Decided,
    /// It may leave.
    Ready,
    /// It has left.
    Left,
}

impl LiveAttempt {
    /// The attempt of this number of a run, which leaves no sooner than this, for the host with this origin.
    pub(super) fn new(
        run: RunRef,
        trigger: SerialId,
        number: u32,
        leaves_at: Instant,
        host: Option<u64>,
    ) -> Self {
        let (phase, is_doubtful, is_coming) = (Phase::Decided, false, false);
        Self { run, trigger, number, leaves_at, phase, is_doubtful, host, is_coming }
    }

    pub(super) fn has_left(&self) -> bool {
        self.phase == Phase::Left
    }
}

/// All attempts of a shard, and what may be under way that it does not see.
#[derive(Default)]
pub(super) struct Attempts {
    live: BTreeMap<u64, LiveAttempt>,
    by_run: BTreeMap<RunRef, u64>,
    /// Attempts that may leave, by when.
    leaving: BTreeSet<(Instant, u64)>,
    /// Attempts that wait for another one of their trigger to end.
    blocked: BTreeSet<(SerialId, u64)>,
    /// Attempts that have left.
    left: BTreeSet<(SerialId, u64)>,
    /// Attempts of open runs, by the steady time at which they could leave.
    opened: VecDeque<(u64, u64)>,
    /// Runs that may have left under a predecessor, and until when (steady) they are left alone.
    doubts: BTreeMap<RunRef, u64>,
    /// Those of them whose attempt is made by a former owner that is there, and will report.
    remote: BTreeSet<(SerialId, u64)>,
    /// Triggers of which something may be under way that we do not see, and until when (steady).
    kept_back: HashMap<SerialId, u64>,
    /// How many attempts are on their way to each host.
    coming: HashMap<u64, usize>,
    /// Hosts of which that has changed, or something else that others want to know.
    touched: HashSet<u64>,
    /// Attempts that are to be broken off once that is written, and whose they are.
    aborting: BTreeMap<u64, SerialId>,
    last_key: u64,
}

fn all_of(trigger: SerialId) -> std::ops::RangeInclusive<(SerialId, u64)> {
    (trigger, 0)..=(trigger, u64::MAX)
}

/// From its beginning to its end.
impl Attempts {
    /// Begins an attempt, which leaves when it is released. Says its key.
    pub(super) fn begin(&mut self, attempt: LiveAttempt) -> u64 {
        self.last_key += 1;
        self.live.insert(self.last_key, attempt);
        self.by_run.insert(attempt.run, self.last_key);
        self.comes(self.last_key);
        self.last_key
    }

    /// An attempt is on its way to its host.
    fn comes(&mut self, key: u64) {
        let Some(attempt) = self.live.get_mut(&key).filter(|attempt| !attempt.is_coming) else {
            return;
        };
        if let Some(host) = attempt.host {
            attempt.is_coming = true;
            *self.coming.entry(host).or_default() += 1;
            self.touched.insert(host);
        }
    }

    /// An attempt is not on its way to its host any more: it is there, or waits for something else.
    fn comes_no_more(&mut self, attempt: LiveAttempt) {
        let Some(host) = attempt.host.filter(|_| attempt.is_coming) else { return };
        if let Some(coming) = self.coming.get_mut(&host) {
            *coming -= 1;
            if *coming == 0 {
                self.coming.remove(&host);
            }
        }
        self.touched.insert(host);
    }

    /// What an attempt rests on is written: it may leave.
    pub(super) fn release(&mut self, key: u64, now: Now) {
        let Some(attempt) = self.live.get_mut(&key) else { return };
        if attempt.phase == Phase::Decided {
            attempt.phase = Phase::Ready;
            self.leaving.insert((attempt.leaves_at, key));
            if matches!(attempt.run, RunRef::Open(_)) {
                self.opened.push_back((now.steady, key));
            }
        }
    }

    /// Takes the next attempt whose instant to leave has come. It has to leave, be put off, be blocked or be removed.
    pub(super) fn next_leaving(&mut self, now: Now) -> Option<(u64, LiveAttempt)> {
        let (_, key) = *self.leaving.first().filter(|(leaves_at, _)| *leaves_at <= now.wall)?;
        self.leaving.pop_first();
        Some((key, self.live[&key]))
    }

    pub(super) fn leave(&mut self, key: u64) {
        if let Some(attempt) = self.live.get_mut(&key) {
            let before = *attempt;
            (attempt.phase, attempt.is_coming) = (Phase::Left, false);
            self.left.insert((attempt.trigger, key));
            self.comes_no_more(before);
        }
    }

    pub(super) fn put_off(&mut self, key: u64, leaves_at: Instant) {
        if let Some(attempt) = self.live.get_mut(&key) {
            let before = *attempt;
            (attempt.leaves_at, attempt.is_coming) = (leaves_at, false);
            self.leaving.insert((leaves_at, key));
            self.comes_no_more(before);
        }
    }

    /// An attempt waits for another one of its trigger to end.
    pub(super) fn block(&mut self, key: u64) {
        if let Some(attempt) = self.live.get_mut(&key) {
            let before = *attempt;
            attempt.is_coming = false;
            self.blocked.insert((attempt.trigger, key));
            self.comes_no_more(before);
        }
    }

    /// Something of this trigger has ended: attempts that waited for that may leave.
    pub(super) fn unblock(&mut self, trigger: SerialId) {
        while let Some(&(_, key)) = self.blocked.range(all_of(trigger)).next() {
            self.blocked.remove(&(trigger, key));
            self.leaving.insert((self.live[&key].leaves_at, key));
            self.comes(key);
        }
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<LiveAttempt> {
        let attempt = self.live.remove(&key)?;
        self.by_run.remove(&attempt.run);
        self.leaving.remove(&(attempt.leaves_at, key));
        self.blocked.remove(&(attempt.trigger, key));
        self.left.remove(&(attempt.trigger, key));
        self.comes_no_more(attempt);
        Some(attempt)
    }

    pub(super) fn remove_of(&mut self, run: RunRef) -> Option<LiveAttempt> {
        self.remove(*self.by_run.get(&run)?)
    }

    /// Forgets the attempt of a run. If it has left, it is to be broken off once that is written: says its key.
    pub(super) fn abort_of(&mut self, run: RunRef) -> Option<u64> {
        let key = *self.by_run.get(&run)?;
        let attempt = self.remove(key).filter(LiveAttempt::has_left)?;
        self.aborting.insert(key, attempt.trigger);
        Some(key)
    }

    pub(super) fn aborted(&mut self, key: u64) {
        self.aborting.remove(&key);
    }

    /// A run has got a record: its attempt and its doubt are those of that.
    pub(super) fn rename(&mut self, from: RunRef, to: RunRef) {
        if let Some(key) = self.by_run.remove(&from) {
            self.by_run.insert(to, key);
            self.live.get_mut(&key).expect("indexed").run = to;
        }
        if let Some(until) = self.doubts.remove(&from) {
            self.doubts.insert(to, until);
        }
    }

    /// Takes the next open run whose attempt could leave long ago.
    pub(super) fn next_long_open(&mut self, now: Now) -> Option<OpenRun> {
        while self.opened.front()?.0 + OPEN_MS_MAX < now.steady {
            let (_, key) = self.opened.pop_front()?;
            if let Some(LiveAttempt { run: RunRef::Open(open), .. }) = self.live.get(&key) {
                return Some(*open);
            }
        }
        None
    }

    /// Adds this to the key of every attempt so far, none of which may leave yet, and so to those that follow.
    pub(super) fn renumber(&mut self, ahead: u64) {
        assert!(self.leaving.is_empty() && self.left.is_empty(), "nothing may leave yet");
        let live = std::mem::take(&mut self.live);
        self.live = live.into_iter().map(|(key, attempt)| (key + ahead, attempt)).collect();
        self.by_run.values_mut().for_each(|key| *key += ahead);
        self.last_key += ahead;
    }
}

/// What may be under way, here or out of sight.
impl Attempts {
    /// A run may have left under a predecessor, and is left alone until then (steady).
    pub(super) fn doubt(&mut self, run: RunRef, until: u64) {
        self.doubts.insert(run, until);
    }

    /// A former owner that is there makes the attempt of a run, and is waited for until then (steady).
    pub(super) fn await_remote(&mut self, lane: SerialId, sequence: u64, until: u64) {
        self.remote.insert((lane, sequence));
        self.doubt(RunRef::Record(sequence), until);
    }

    /// A run is neither in doubt nor made by a former owner any more.
    pub(super) fn clear_doubt(&mut self, lane: SerialId, run: RunRef) {
        self.doubts.remove(&run);
        if let RunRef::Record(sequence) = run {
            self.remote.remove(&(lane, sequence));
        }
    }

    /// Until when (steady) a run in doubt is left alone.
    pub(super) fn in_doubt_until(&self, run: RunRef) -> Option<u64> {
        self.doubts.get(&run).copied()
    }

    /// Runs in doubt, and until when (steady) they are left alone.
    pub(super) fn doubts(&self) -> impl Iterator<Item = (RunRef, u64)> {
        self.doubts.iter().map(|(run, until)| (*run, *until))
    }

    pub(super) fn is_remote(&self, lane: SerialId, run: RunRef) -> bool {
        matches!(run, RunRef::Record(sequence) if self.remote.contains(&(lane, sequence)))
    }

    /// The runs, by the numbers of their records, of which former owners will report.
    pub(super) fn remote(&self) -> impl Iterator<Item = u64> {
        self.remote.iter().map(|(_, sequence)| *sequence)
    }

    /// Nothing of this trigger leaves for so long (steady).
    pub(super) fn keep_back(&mut self, trigger: SerialId, until: u64) {
        let kept_back = self.kept_back.entry(trigger).or_default();
        *kept_back = until.max(*kept_back);
    }

    /// Until when nothing of this trigger leaves, by the wall clock.
    pub(super) fn kept_back_until(&self, trigger: SerialId, now: Now) -> Option<Instant> {
        let until = self.kept_back.get(&trigger).filter(|until| **until > now.steady);
        until.map(|until| by_wall(*until, now))
    }

    /// Whether something of this trigger may be at work at a receiver although it is ended.
    pub(super) fn may_be_at_work(&self, trigger: SerialId, now: Now) -> bool {
        self.kept_back_until(trigger, now).is_some()
            || self.aborting.values().any(|aborting| *aborting == trigger)
    }

    pub(super) fn of(&self, run: RunRef) -> Option<&LiveAttempt> {
        self.by_run.get(&run).map(|key| &self.live[key])
    }

    /// How many attempts are on their way to a host.
    pub(super) fn coming(&self, host: u64) -> usize {
        self.coming.get(&host).copied().unwrap_or(0)
    }

    /// Something has changed for a host that others want to know.
    pub(super) fn touch(&mut self, host: u64) {
        self.touched.insert(host);
    }

    /// Takes the hosts for which something has changed.
    pub(super) fn take_touched(&mut self) -> HashSet<u64> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn left_count(&self) -> usize {
        self.left.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &LiveAttempt)> {
        self.live.iter().map(|(key, attempt)| (*key, attempt))
    }

    /// Whether an attempt of this trigger is under way, here or at a former owner.
    pub(super) fn has_left(&self, trigger: SerialId) -> bool {
        let first = |set: &BTreeSet<_>| set.range(all_of(trigger)).next().is_some();
        first(&self.left) || first(&self.remote)
    }

    /// Whether an attempt of this trigger may leave or has left.
    pub(super) fn may_have_left(&self, trigger: SerialId) -> bool {
        let is_of_it = |live: &LiveAttempt| live.trigger == trigger && live.phase != Phase::Decided;
        self.live.values().any(is_of_it) || self.has_left(trigger)
    }

    pub(super) fn next_wakes(&self, now: Now) -> impl Iterator<Item = Instant> {
        let leaving = self.leaving.first().map(|(at, _)| *at);
        let opened = self.opened.front().map(|(since, _)| by_wall(since + OPEN_MS_MAX + 1, now));
        // One that was left alone for long enough waits for another one of its trigger to end.
        let doubts = self.doubts.values().filter(|until| **until > now.steady).min();
        let doubts = doubts.map(|until| by_wall(*until, now));
        [leaving, opened, doubts].into_iter().flatten()
    }
}

/// When the steady clock shows this, by the wall clock.
pub(super) fn by_wall(steady: u64, now: Now) -> Instant {
    now.wall.after(Duration::from_millis(steady.saturating_sub(now.steady)))
}

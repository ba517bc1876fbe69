//! What a receiver counts, without locks: connections are served by several threads.

use std::sync::RwLock;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use engine::instant::Instant;
use engine::schedule::every::Every;
use engine::schedule::{Schedule, SchedulePlan, Spec};
use serde::{Deserialize, Serialize};

use crate::triggers::crowd::JITTER_S;
use crate::triggers::wall_us;

/// How exact percentiles are.
const STEP_US: u64 = 100;

/// Everything later than this, a minute, is counted as this late; the latest is kept as it is.
const STEPS: usize = 600_000;

/// What was counted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Requests.
    pub(crate) count: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// When the first came, by the wall clock in microseconds; 0 if none has.
    pub(crate) first_us: u64,
    /// Requests of watched slots.
    pub(crate) watched: u64,
    /// Those that came before they were due.
    pub(crate) early: u64,
    /// How late they came.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
}

/// What is being counted.
pub(super) struct Counters {
    count: AtomicU64,
    bytes: AtomicU64,
    first_us: AtomicU64,
    from: AtomicI64,
    to: AtomicI64,
    early: AtomicU64,
    max_us: AtomicU64,
    steps: Box<[AtomicU32]>,
    /// The schedules of triggers with a jitter, by their phase in seconds: with the name they tell when a slot
    /// leaves.
    jittered: RwLock<Vec<Schedule>>,
}

impl Counters {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            count: zero(),
            bytes: zero(),
            first_us: zero(),
            from: AtomicI64::new(0),
            to: AtomicI64::new(0),
            early: zero(),
            max_us: zero(),
            steps: (0..STEPS).map(|_| AtomicU32::new(0)).collect(),
            jittered: RwLock::default(),
        }
    }

    /// Forgets everything, and watches slots from `from` on, up to but not including `to`.
    pub(super) fn watch(&self, from: Instant, to: Instant, jittered_s: u32) {
        let schedules = (0..jittered_s).map(|phase_s| jittered(jittered_s, phase_s)).collect();
        *self.jittered.write().expect("nothing panics while it holds this") = schedules;
        for counter in [&self.count, &self.bytes, &self.first_us, &self.early, &self.max_us] {
            counter.store(0, Relaxed);
        }
        self.steps.iter().for_each(|step| step.store(0, Relaxed));
        self.from.store(from.0, Relaxed);
        self.to.store(to.0, Relaxed);
    }

    /// Whether it matters when requests were due.
    pub(super) fn is_watching(&self) -> bool {
        self.to.load(Relaxed) > 0
    }

    /// A request came.
    pub(super) fn request(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if self.count.fetch_add(1, Relaxed) == 0 {
            self.first_us.store(wall_us(), Relaxed);
        }
    }

    /// It was that of a slot of this trigger.
    pub(super) fn slot(&self, slot: Instant, name: &str) {
        if slot.0 < self.from.load(Relaxed) || slot.0 >= self.to.load(Relaxed) {
            return;
        }
        let due_us = self.leaves(slot, name).0.max(0).unsigned_abs() * 1_000;
        let now_us = wall_us();
        if now_us < due_us {
            self.early.fetch_add(1, Relaxed);
        }
        let late_us = now_us.saturating_sub(due_us);
        self.max_us.fetch_max(late_us, Relaxed);
        let step = usize::try_from(late_us / STEP_US).unwrap_or(usize::MAX).min(STEPS - 1);
        self.steps[step].fetch_add(1, Relaxed);
    }

    fn leaves(&self, slot: Instant, name: &str) -> Instant {
        let schedules = self.jittered.read().expect("nothing panics while it holds this");
        let phase = slot.second().unsigned_abs().checked_rem(schedules.len() as u64);
        let schedule = phase.and_then(|phase| schedules.get(usize::try_from(phase).ok()?));
        schedule.map_or(slot, |schedule| schedule.leaves_at(slot, name))
    }

    pub(super) fn tally(&self) -> Tally {
        let steps: Vec<u64> = self.steps.iter().map(|step| step.load(Relaxed).into()).collect();
        let watched: u64 = steps.iter().sum();
        let late_ms = |per_mille: u64| {
            let wanted = (watched * per_mille).div_ceil(1_000);
            let mut seen = 0;
            let step = steps.iter().position(|count| {
                seen += count;
                seen >= wanted.max(1)
            });
            Duration::from_micros((step.map_or(0, |step| step as u64 + 1)) * STEP_US)
        };
        let millis = |late: Duration| late.as_secs_f64() * 1_000.0;
        Tally {
            count: self.count.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            first_us: self.first_us.load(Relaxed),
            watched,
            early: self.early.load(Relaxed),
            p50_ms: millis(late_ms(500)),
            p99_ms: millis(late_ms(990)),
            p999_ms: millis(late_ms(999)),
            max_ms: millis(Duration::from_micros(self.max_us.load(Relaxed))),
        }
    }
}

fn jittered(interval_s: u32, phase_s: u32) -> Schedule {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let every = Every::at_phase(seconds(interval_s), seconds(phase_s));
    let plan = SchedulePlan {
        specs: every.map(Spec::Every).into_iter().collect(),
        jitter: seconds(JITTER_S),
        ..SchedulePlan::default()
    };
    Schedule::new(plan, Instant(0)).expect("an interval is a schedule")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triggers::crowd::{When, draft, name};
    use crate::triggers::now;

    #[test]
    fn only_slots_in_the_window_are_watched_and_their_lateness_is_kept() {
        let counters = Counters::new();
        let due = Instant(now().0 - 5_000);
        counters.watch(due, Instant(due.0 + 1), 0);
        for slot in [due.0 - 1, due.0, due.0 + 1] {
            counters.request(100);
            counters.slot(Instant(slot), "bell");
        }
        let tally = counters.tally();
        assert_eq!((tally.count, tally.bytes, tally.watched, tally.early), (3, 300, 1, 0));
        assert!(tally.p50_ms >= 5_000.0 && tally.max_ms <= tally.p50_ms, "{tally:?}");
    }

    #[test]
    fn the_receiver_knows_when_a_jittered_slot_leaves() {
        let hosts = ["127.0.0.1:80".parse().unwrap()];
        let counters = Counters::new();
        counters.watch(Instant(0), Instant(1), 100);
        for number in 0..300 {
            let built = draft(When::Spread { interval_s: 100 }, number, &hosts, 64);
            let built = built.build(Instant(0)).unwrap();
            let slot = built.schedule.next(now()).unwrap();
            let leaves = built.schedule.leaves_at(slot, &name(number));
            assert_eq!(counters.leaves(slot, &name(number)), leaves);
        }
    }
}

//! When something is due: the part of a shard that knows which trigger is next, and what for.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::id::SerialId;
use crate::instant::Instant;
use crate::limits::{LOOK_AHEAD_MS, MISSED_AFTER_MS};
use crate::wheel::Wheel;

use super::Now;
use super::record::Mark;
use super::triggers::Triggers;

/// What is due when.
pub(super) struct Agenda {
    wheel: Wheel,
    /// What has left the wheel and is not decided, in the order of the mark.
    front: BTreeMap<(Instant, SerialId), u32>,
    /// Where a place is in the front.
    front_of: HashMap<u32, (Instant, SerialId)>,
    /// What the mark has passed and is not decided: by the origin of the host that lags, in the order of its mark.
    lanes: BTreeMap<u64, BTreeMap<(Instant, SerialId), u32>>,
    /// Where a place is in the lanes.
    lane_of: HashMap<u32, (u64, (Instant, SerialId))>,
    /// Up to here everything has left the wheel.
    horizon: Instant,
    /// Slots that leave up to here were missed: nobody was there.
    missed_until: Instant,
    /// The mark when that was noticed: what leaves up to here was seen when it was due.
    seen_until: Mark,
    /// Pauses that end by themselves.
    resumes: BTreeSet<(Instant, SerialId)>,
    /// Triggers of projects that were enabled, to be brought up to date.
    behind: VecDeque<SerialId>,
    /// Triggers that are overdue then, unless they succeed before, and when each is.
    alerts: BTreeSet<(Instant, SerialId)>,
    alert_of: HashMap<SerialId, Instant>,
}

impl Agenda {
    /// One on which nothing is, and on which nothing will be that leaves before this.
    pub(super) fn new(begin: Instant) -> Self {
        let begin = Instant(begin.0.max(0));
        Self {
            wheel: Wheel::new(begin.0.unsigned_abs()),
            front: BTreeMap::new(),
            front_of: HashMap::new(),
            lanes: BTreeMap::new(),
            lane_of: HashMap::new(),
            horizon: begin,
            missed_until: Instant::FIRST,
            seen_until: Mark::default(),
            resumes: BTreeSet::new(),
            behind: VecDeque::new(),
            alerts: BTreeSet::new(),
            alert_of: HashMap::new(),
        }
    }

    pub(super) fn next_wakes(&self, now: Now) -> impl Iterator<Item = Instant> {
        let front = self.front.keys().next().map(|(at, _)| *at);
        let wheel = self.wheel.next().map(|at| Instant(at.cast_signed() - LOOK_AHEAD_MS));
        let resume = self.next_resume().map(|(at, _)| at);
        let alert = self.alerts.first().map(|(at, _)| *at);
        let behind = (!self.behind.is_empty()).then_some(Instant(now.wall.0 + 1));
        [front, wheel, resume, alert, behind].into_iter().flatten()
    }
}

/// When slots leave.
impl Agenda {
    pub(super) fn scheduled(&self) -> usize {
        self.wheel.len() + self.front.len() + self.lane_of.len()
    }

    /// The next slot of the trigger at this place leaves then.
    pub(super) fn arm(&mut self, place: u32, serial: SerialId, leaves_at: Instant) {
        self.disarm(place);
        if leaves_at <= self.horizon {
            self.put_in_front(place, serial, leaves_at);
        } else {
            self.wheel.arm(place, leaves_at.0.unsigned_abs());
        }
    }

    pub(super) fn disarm(&mut self, place: u32) {
        self.wheel.cancel(place);
        if let Some(key) = self.front_of.remove(&place) {
            self.front.remove(&key);
        }
        if let Some((host, key)) = self.lane_of.remove(&place)
            && let Some(lane) = self.lanes.get_mut(&host)
        {
            lane.remove(&key);
            if lane.is_empty() {
                self.lanes.remove(&host);
            }
        }
    }

    /// No trigger fires, until it is armed by a clock that was set.
    pub(super) fn disarm_all(&mut self, now: Now) {
        self.wheel = Wheel::new(now.wall.0.max(0).unsigned_abs());
        self.front.clear();
        self.front_of.clear();
        self.lanes.clear();
        self.lane_of.clear();
        self.horizon = now.wall;
    }

    /// Looks ahead: what soon leaves comes to the front.
    pub(super) fn fill_front(&mut self, triggers: &Triggers, now: Now) {
        let horizon = Instant(now.wall.0 + LOOK_AHEAD_MS);
        if horizon <= self.horizon {
            return;
        }
        self.horizon = horizon;
        let mut due = Vec::new();
        self.wheel.advance(horizon.0.unsigned_abs(), &mut due, usize::MAX);
        for (leaves_at, place) in due {
            self.put_in_front(place, triggers.at(place).serial, Instant(leaves_at.cast_signed()));
        }
    }

    fn put_in_front(&mut self, place: u32, serial: SerialId, leaves_at: Instant) {
        self.front.insert((leaves_at, serial), place);
        self.front_of.insert(place, (leaves_at, serial));
    }

    /// What soon leaves, and the place of its trigger, in the order of the mark.
    pub(super) fn front(&self) -> impl Iterator<Item = (Instant, u32)> {
        self.front.iter().map(|((leaves_at, _), place)| (*leaves_at, *place))
    }

    /// Slots that were due more than `MISSED_AFTER_MS` ago count as missed; more recent ones are only late.
    pub(super) fn miss(&mut self, mark: Mark, now: Now) {
        self.missed_until = Instant(now.wall.0 - MISSED_AFTER_MS);
        self.seen_until = mark;
    }

    /// Slots that leave up to here were seen when they were due, whatever was missed since.
    pub(super) fn seen_until(&self) -> Mark {
        self.seen_until
    }

    /// Slots that leave up to here were missed.
    pub(super) fn missed_until(&self) -> Instant {
        self.missed_until
    }
}

/// What waits for a host that lags.
impl Agenda {
    /// The next slot of the trigger at this place was to leave then, and waits for its host.
    pub(super) fn wait_for_host(
        &mut self,
        place: u32,
        serial: SerialId,
        leaves_at: Instant,
        host: u64,
    ) {
        self.disarm(place);
        let key = (leaves_at, serial);
        self.lanes.entry(host).or_default().insert(key, place);
        self.lane_of.insert(place, (host, key));
    }

    /// The first slot that waits for a host, and the place of its trigger.
    pub(super) fn first_in_lane(&self, host: u64) -> Option<(Instant, u32)> {
        let ((leaves_at, _), place) = self.lanes.get(&host)?.first_key_value()?;
        Some((*leaves_at, *place))
    }

    /// Whether a trigger's next slot waits for its host.
    pub(super) fn is_in_lane(&self, place: u32) -> bool {
        self.lane_of.contains_key(&place)
    }
}

/// Pauses that end, triggers that are behind, and triggers that are overdue.
impl Agenda {
    pub(super) fn resume_at(&mut self, until: Instant, serial: SerialId) {
        self.resumes.insert((until, serial));
    }

    pub(super) fn resumed(&mut self, until: Instant, serial: SerialId) {
        self.resumes.remove(&(until, serial));
    }

    pub(super) fn next_resume(&self) -> Option<(Instant, SerialId)> {
        self.resumes.first().copied()
    }

    pub(super) fn fall_behind(&mut self, serial: SerialId) {
        self.behind.push_back(serial);
    }

    pub(super) fn next_behind(&mut self) -> Option<SerialId> {
        self.behind.pop_front()
    }

    pub(super) fn is_up_to_date(&self) -> bool {
        self.behind.is_empty()
    }

    /// A trigger is overdue then, or never, unless it succeeds before.
    pub(super) fn alert_at(&mut self, serial: SerialId, due: Option<Instant>) {
        if let Some(former) = self.alert_of.remove(&serial) {
            self.alerts.remove(&(former, serial));
        }
        if let Some(due) = due {
            self.alerts.insert((due, serial));
            self.alert_of.insert(serial, due);
        }
    }

    pub(super) fn next_alert(&mut self, now: Now) -> Option<SerialId> {
        self.alerts.first().filter(|(due, _)| *due <= now.wall)?;
        let (_, serial) = self.alerts.pop_first()?;
        self.alert_of.remove(&serial);
        Some(serial)
    }
}

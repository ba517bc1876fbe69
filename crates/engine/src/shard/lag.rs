//! Hosts that cannot keep up: how slots wait for them.
//!
//! A slot that is due while there is no room for its host is not decided. Nothing is stored of it either: slots are
//! computed. Instead the host lags: it has a mark of its own, in one record, up to which slots of its triggers are
//! decided in the order in which they leave. The shard's mark passes on, so no other host notices. In memory a host that
//! lags has a lane, in which each of its triggers stands once, with its next slot that is not decided. So excess costs
//! no write and no memory for each slot, and what it costs is lateness.
//!
//! Whenever the host has room, slots are taken from the lane in order and decided as ever, in the same unit as the host's
//! mark that passes them. A trigger whose next slot lies after the shard's mark is armed like any other. A lane that is
//! empty has reached the shard's mark: the record goes. A successor finds the record, and every trigger finds its lane again
//! when it is armed.
//!
//! **Late, and too late.** A slot that waits is late, not missed. Once it has waited for longer than a run may wait that
//! cannot even be tried, it counts as missed, and so do those of its trigger that have waited for half as long: catch-up decides
//! what becomes of them. So a host that was down for an hour gets a minute of slots and not an hour of them, unless a policy
//! says so; and where too much is due for ever, a trigger is caught up with now and then, with a line of the past and a
//! cursor for many slots, and not for each slot that leaves.
//!
//! **Room.** How much of it there is says whoever sends. What this shard has decided and not handed over for sending counts
//! here, so that a look that is a little old lets no crowd through. Runs that have a record wait for room as well, and
//! take turns with the lane.

use crate::id::SerialId;
use crate::instant::Instant;
use crate::limits::{LAUNCH_LEAD_MS, MISSED_AFTER_MS, UNTRIED_MAX};
use crate::mutant::{Mutant, pick};
use crate::past::End;
use crate::policy::{Delivery, Overlap};

use super::attempts::RunRef;
use super::memory::Delta;
use super::record::{LagRecord, Mark};
use super::triggers::Trigger;
use super::{Now, Shard, Unit};

/// How many attempts of a shard for one host may be decided and not handed over for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoom {
    /// For one that is delivered at least once.
    pub at_least_once: usize,
    /// For one that is delivered at most once: it shall not be in doubt after a crash although it could not even leave.
    pub at_most_once: usize,
}

/// Says how much room the host with an [origin](crate::webhook::Form::origin) has.
pub type HostRoomOf<'a> = &'a dyn Fn(u64) -> HostRoom;

/// What a shard wants of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDemand {
    /// The host's [origin](crate::webhook::Form::origin).
    pub origin: u64,
    /// Attempts that are decided and not handed over for sending.
    pub coming: usize,
    /// Whether slots or runs wait for room.
    pub waits: bool,
}

impl HostRoom {
    /// Whatever is due may be handed over.
    pub const ALL: Self = Self { at_least_once: usize::MAX, at_most_once: usize::MAX };
    /// Nothing may.
    pub const NONE: Self = Self { at_least_once: 0, at_most_once: 0 };

    fn of(self, delivery: Delivery) -> usize {
        match delivery {
            Delivery::AtLeastOnce => self.at_least_once,
            Delivery::AtMostOnce => self.at_most_once,
        }
    }
}

impl Shard {
    /// What has changed of what this shard wants of hosts, since this was last asked.
    pub fn take_host_demands(&mut self) -> Vec<HostDemand> {
        let touched = self.attempts.take_touched();
        let demand = |origin| {
            let coming = self.attempts.coming(origin);
            let waits = self.triggers.lags(origin) || self.waiting.waits_for(origin);
            HostDemand { origin, coming, waits }
        };
        touched.into_iter().map(demand).collect()
    }

    /// Whether slots or runs wait for a host.
    pub(super) fn waits_for_hosts(&self) -> bool {
        self.waiting.waits_for_any()
            || !self.is_stopping() && self.triggers.all_lags().next().is_some()
    }

    /// Whether there is room for one more attempt to a host.
    pub(super) fn has_room(&self, host: u64, delivery: Delivery, room: HostRoomOf<'_>) -> bool {
        self.attempts.coming(host) < room(host).of(delivery)
    }

    /// Whether the next slot of a trigger, which was to leave then, can be decided: there is room for it, or it needs none.
    pub(super) fn is_decidable(
        &self,
        trigger: &Trigger,
        leaves_at: Instant,
        room: HostRoomOf<'_>,
        now: Now,
    ) -> bool {
        let Some(host) = trigger.host() else { return true };
        let policy = trigger.policy();
        let may_leave = match policy.overlap {
            Overlap::Allow | Overlap::Replace => true,
            Overlap::Skip | Overlap::QueueOne => !self.is_active(trigger),
        };
        !may_leave
            || policy.is_too_late(leaves_at, now.wall)
            || self.has_room(host, policy.delivery, room)
    }

    /// What says that slots of a trigger are decided up to here: the mark of its host, if that lags, or the shard's.
    pub(super) fn passes(&self, trigger: &Trigger, mark: Mark) -> Delta {
        let host = trigger.host();
        match host.and_then(|host| Some((host, self.triggers.lag(host)?))) {
            Some((host, lag)) => {
                let mark = pick(Mutant::LagMarkUnmoved, mark, lag.mark);
                Delta::Lag(host, Some(LagRecord { mark, ..lag }))
            }
            None => Delta::DecidedThrough(mark),
        }
    }

    /// The shard's mark passes a slot that cannot be decided: its trigger waits for the host, which lags from now on.
    pub(super) fn fall_behind(&mut self, place: u32, host: u64, mark: Mark, now: Now) {
        let from = self.triggers.mark();
        let begins = LagRecord { since: now.wall, from, mark: from };
        let begins = (!self.triggers.lags(host)).then_some(Delta::Lag(host, Some(begins)));
        if begins.is_some() {
            self.attempts.touch(host);
        }
        let begins = pick(Mutant::LagUnrecorded, begins, None);
        let by = Instant(now.wall.0 + LAUNCH_LEAD_MS);
        let changes = begins.into_iter().chain([Delta::DecidedThrough(mark)]).collect();
        self.enact(Unit::of(changes).by(by));
        self.arm(place);
    }

    /// Slots of a trigger that leave up to here, and are not decided, were missed. Those that wait for their host were not, until
    /// they have waited for too long; but nobody saw those that were due after the mark that was there when somebody came.
    pub(super) fn missed_until(&self, trigger: &Trigger, mark: Mark, now: Now) -> Instant {
        let missed = self.agenda.missed_until();
        if !trigger.host().is_some_and(|host| self.triggers.lags(host)) {
            return missed;
        }
        let too_long = trigger.policy().retry.span() + UNTRIED_MAX;
        let too_late = now.wall.before(too_long);
        let too_late = if mark.0 <= too_late { now.wall.before(too_long / 2) } else { too_late };
        let is_seen = pick(Mutant::UnseenWaits, mark <= self.agenda.seen_until(), true);
        if is_seen { too_late } else { too_late.max(missed) }
    }

    /// Lets go what waits for hosts that have room, if it is time to look. Hosts that lag no more are told by no record.
    pub(super) fn serve_hosts(&mut self, room: HostRoomOf<'_>, now: Now) {
        if !self.waits_for_hosts() || !self.waiting.is_time_to_look(now) {
            return;
        }
        self.pass_on(now);
        let lagging = self.triggers.all_lags().map(|(host, _)| host);
        let hosts: Vec<u64> = lagging.chain(self.waiting.hosts()).collect();
        for host in hosts {
            self.serve(host, room, now);
            let is_empty = self.agenda.first_in_lane(host).is_none();
            if self.triggers.lags(host) && pick(Mutant::LagEndsEarly, is_empty, true) {
                self.end_lag(host, now);
            }
            if !self.waiting.waits_for(host) {
                self.attempts.touch(host);
            }
        }
    }

    /// Lets go what waits for a host while it has room: slots and runs take turns.
    fn serve(&mut self, host: u64, room: HostRoomOf<'_>, now: Now) {
        loop {
            let has_decided = self.decide_next_in_lane(host, room, now);
            let has_started = self.start_next_parked(host, room, now);
            if !has_decided && !has_started {
                return;
            }
        }
    }

    /// The shard's mark follows the clock while hosts lag, up to the first slot that is not decided: a successor is to know
    /// what was seen when it was due, also if nothing else was.
    fn pass_on(&mut self, now: Now) {
        let first = self.agenda.front().next().map(|(leaves_at, _)| Instant(leaves_at.0 - 1));
        let until = first.map_or(now.wall, |first| first.min(now.wall));
        let mark = Mark(until, SerialId(u64::MAX));
        let lags = self.triggers.all_lags().next().is_some();
        if lags && !self.is_stopping() && mark.0 > self.triggers.mark().0 {
            let by = Instant(now.wall.0 + MISSED_AFTER_MS);
            self.enact(Unit::of(vec![Delta::DecidedThrough(mark)]).by(by));
        }
    }

    /// A lane is empty: its host has reached the shard's mark.
    fn end_lag(&mut self, host: u64, now: Now) {
        let by = Instant(now.wall.0 + LAUNCH_LEAD_MS);
        self.enact(Unit::of(vec![Delta::Lag(host, None)]).by(by));
        self.attempts.touch(host);
    }

    /// Decides the first slot of a lane, if that can be. Says whether it did.
    fn decide_next_in_lane(&mut self, host: u64, room: HostRoomOf<'_>, now: Now) -> bool {
        if self.is_stopping() || self.is_full() {
            return false;
        }
        let Some((leaves_at, place)) = self.agenda.first_in_lane(host) else { return false };
        let is_time = leaves_at <= now.wall || self.may_go_ahead(place);
        is_time && self.decide_if_decidable(place, leaves_at, room, now)
    }

    /// Starts the first of the runs with a record that wait for a host, if there is room. Says whether one waits less.
    fn start_next_parked(&mut self, host: u64, room: HostRoomOf<'_>, now: Now) -> bool {
        let Some(sequence) = self.waiting.first_parked(host) else { return false };
        let (run, policy) = (RunRef::Record(sequence), self.runs[sequence].policy);
        if self.is_untried_too_long(run, &policy, now) {
            self.end(run, End::Dead, self.number_of(run), None, now);
            return true;
        }
        let may_start = self.has_room(host, policy.delivery, room);
        if may_start {
            self.start(sequence, now);
        }
        may_start
    }
}

//! What is due: one commit decides every slot that has come, up to a bound.
//!
//! Slots are instants, and a slot is decided by being passed: `decided` says up to where. A slot that is later than five seconds
//! follows the catch-up policy, and what that leaves out is one entry. A ring without members says so once, and rests until
//! somebody joins; then the whole stretch is one entry.

use super::{Decision, MemberName, RingEntry, SkipReason, SubscriptionConfig, TurnRecord};
use crate::instant::Instant;
use crate::limits::{
    RING_AHEAD_MAX, RING_LATE_MAX, RING_OPEN_PARTS_MAX, RING_PARTS_AT_ONCE_MAX,
    RING_SLOTS_AT_ONCE_MAX,
};
use crate::mutant::{Mutant, active};
use crate::policy::CatchUp;
use crate::ring::{OpenPart, PartId};
use crate::rotation::rotate;
use crate::schedule::Count;

/// Every slot that is due by `now`, decided; `None` if there is nothing to write. `names` ascend, each once.
pub fn decide(
    record: &TurnRecord,
    config: &SubscriptionConfig,
    names: &[MemberName],
    now: Instant,
) -> Option<Decision> {
    if is_ahead(record, now) {
        let record = TurnRecord { decided: now, ..record.clone() };
        return Some(Decision { record, entries: vec![RingEntry::SetBack { to: now }] });
    }
    let first = config.schedule.next(record.decided).filter(|slot| *slot <= now)?;
    if names.is_empty() && record.idle {
        return None;
    }
    let mut deciding = Deciding { record: record.clone(), config, entries: Vec::new() };
    if names.is_empty() {
        // Once; then silence until somebody joins.
        deciding.skip_through(config.schedule.last(record.decided, now), SkipReason::Empty);
        deciding.record.idle = true;
        return deciding.done();
    }
    if record.idle {
        // The last slot that is due was seen to come with members there.
        let last = config.schedule.last(record.decided, now).unwrap_or(first);
        let before = config.schedule.last(record.decided, Instant(last.0 - 1));
        deciding.skip_through(before, SkipReason::Empty);
        deciding.record.idle = false;
    }
    deciding.leave_out_missed(now);
    deciding.turns(names, now);
    deciding.done().map(|decision| decision.with_open_parts(config))
}

/// Whether what was decided lies so far ahead that a clock must have been wrong.
pub fn is_ahead(record: &TurnRecord, now: Instant) -> bool {
    record.decided > now.after(RING_AHEAD_MAX)
}

/// The first slot that is not decided.
pub fn next_due(record: &TurnRecord, config: &SubscriptionConfig) -> Option<Instant> {
    config.schedule.next(record.decided)
}

struct Deciding<'a> {
    record: TurnRecord,
    config: &'a SubscriptionConfig,
    entries: Vec<RingEntry>,
}

impl Deciding<'_> {
    fn done(self) -> Option<Decision> {
        (!self.entries.is_empty())
            .then_some(Decision { record: self.record, entries: self.entries })
    }

    /// Has no turn at the slots up to this one, if any of them is left.
    fn skip_through(&mut self, to: Option<Instant>, reason: SkipReason) {
        let schedule = &self.config.schedule;
        let Some(to) = to.filter(|to| *to > self.record.decided) else { return };
        let Some(from) = schedule.next(self.record.decided) else { return };
        let slots = match schedule.count(self.record.decided, to) {
            Count::Exactly(slots) | Count::MoreThan(slots) => slots,
        };
        self.entries.push(RingEntry::Skip { from, to, slots, reason });
        self.record.decided = to;
    }

    /// Leaves out what is too late and not to be caught up with.
    fn leave_out_missed(&mut self, now: Instant) {
        let (schedule, decided) = (&self.config.schedule, self.record.decided);
        let late = Instant(now.before(RING_LATE_MAX).0 - 1);
        let Some(missed) = (late > decided).then(|| schedule.last(decided, late)).flatten() else {
            return;
        };
        // Where a slot is due that is not late, none that is late is the latest.
        let is_latest = schedule.last(missed, now).is_none();
        let left_out = match self.config.catch_up {
            CatchUp::Latest if !is_latest => Some(missed),
            policy => policy.leaves_out(schedule, decided, missed),
        };
        self.skip_through(left_out, SkipReason::Missed);
    }

    fn turns(&mut self, names: &[MemberName], now: Instant) {
        let mut parts = 0;
        for number in 0..RING_SLOTS_AT_ONCE_MAX {
            parts += self.config.count;
            if number > 0 && parts > RING_PARTS_AT_ONCE_MAX {
                return;
            }
            let next = self.config.schedule.next(self.record.decided);
            let Some(slot) = next.filter(|slot| *slot <= now) else { return };
            let members = self.chosen(names);
            self.record.decided = slot;
            self.entries.push(RingEntry::Turn { slot, members });
        }
    }

    /// Whose turn it is; the position moves on.
    fn chosen(&mut self, names: &[MemberName]) -> Vec<MemberName> {
        let (position, count) = (&mut self.record.position, self.config.count);
        if active(Mutant::PositionAsIndex) {
            let at = position.parse::<usize>().map_or(0, |index| index + 1);
            let chosen = names.iter().cycle().skip(at % names.len()).take(count).cloned();
            *position = ((at + count - 1) % names.len()).to_string().into();
            return chosen.collect();
        }
        let members: Vec<MemberName> = rotate(names, position, count).cloned().collect();
        if let Some(last) = members.last() {
            *position = last.clone();
        }
        members
    }
}

impl Decision {
    /// Opens the parts of its turns, if they have to be accepted. Those beyond the bound end, the oldest first.
    #[must_use]
    pub(super) fn with_open_parts(mut self, config: &SubscriptionConfig) -> Self {
        if config.accept.is_none() {
            return self;
        }
        let mut number = self.record.number;
        for entry in &self.entries {
            number += 1;
            if let RingEntry::Turn { members, .. } = entry {
                let opened = members.iter().zip(0..).map(|(member, part)| OpenPart {
                    id: PartId { turn: number, part },
                    offer: number,
                    member: member.clone(),
                    tried: Vec::new(),
                });
                self.record.open.extend(opened);
            }
        }
        let beyond = self.record.open.len().saturating_sub(RING_OPEN_PARTS_MAX);
        let ended = self.record.open.drain(..beyond);
        self.entries.extend(ended.map(|part| RingEntry::Unaccepted { part: part.id }));
        self
    }
}

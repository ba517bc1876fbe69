//! A cron pattern in a zone: when does it come, when clocks are set?
//!
//! Within a span in which clocks are not set, civil time and time differ by a constant, and the pattern
//! decides. At the end of a span there is a choice:
//!
//! - **Gap**: some civil times never come. A pattern that names times of the day comes once, at the first
//!   moment after the gap; one that goes by intervals simply goes on.
//! - **Fold**: some come twice. The first kind comes in the first pass only; the second in both, because
//!   time passes in both.
//!
//! Either can be told otherwise. Slots always follow each other in time, and no moment is one twice.

mod explain;

use super::civil::{DAY, Second};
use super::cron::{Cron, CronPace};
use super::zone::{ClockChange, Span, UtcSecond, Zone, ZoneId};

/// What happens to civil times that never come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Gap {
    /// `Fire` for patterns that name times of the day, `Skip` for those that go by intervals.
    #[default]
    Usual,
    /// They are left out.
    Skip,
    /// All of them together come once, at the first moment after the gap.
    Fire,
}

/// What happens to civil times that come twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Fold {
    /// `First` for patterns that name times of the day, `Both` for those that go by intervals.
    #[default]
    Usual,
    /// Only the first time counts.
    First,
    /// Only the second time counts.
    Second,
    /// Both times count.
    Both,
}

/// A cron pattern in a zone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Local {
    cron: Cron,
    zone: ZoneId,
    gap: Gap,
    fold: Fold,
}

impl Local {
    /// The pattern in this zone.
    pub fn new(cron: Cron, zone: ZoneId, gap: Gap, fold: Fold) -> Self {
        let gap = match (gap, cron.pace()) {
            (Gap::Usual, CronPace::Fixed) => Gap::Fire,
            (Gap::Usual, CronPace::Interval) => Gap::Skip,
            (Gap::Skip | Gap::Fire, _) => gap,
        };
        let fold = match (fold, cron.pace()) {
            (Fold::Usual, CronPace::Fixed) => Fold::First,
            (Fold::Usual, CronPace::Interval) => Fold::Both,
            (Fold::First | Fold::Second | Fold::Both, _) => fold,
        };
        Self { cron, zone, gap, fold }
    }

    /// The pattern itself.
    pub fn cron(&self) -> &Cron {
        &self.cron
    }

    /// The zone of the pattern.
    pub fn zone(&self) -> ZoneId {
        self.zone
    }

    /// What it does in a gap.
    pub fn gap(&self) -> Gap {
        self.gap
    }

    /// What it does in a fold.
    pub fn fold(&self) -> Fold {
        self.fold
    }

    /// The first slot after this second.
    pub fn next(&self, after: UtcSecond) -> Option<UtcSecond> {
        let zone = self.zone.zone();
        let mut span = zone.span_at(after);
        let mut from = self.begin(zone, span, after).max(after.saturating_add(1) + span.offset);
        // There may be nothing from here on, and yet something: clocks that are set back show it again.
        let mut civil = self.cron.next(from);
        while span.end != UtcSecond::MAX {
            let next = zone.span_after(span);
            let set = ClockChange::between(span, next);
            if civil.is_some_and(|civil| civil < self.end_before(&set)) {
                break;
            }
            if self.gap == Gap::Fire && civil.is_some_and(|civil| civil < set.after) {
                return Some(set.at);
            }
            let begin = self.begin_after(&set);
            // Between `from` and `civil` there is nothing: look again only where that does not help.
            if begin < from || civil.is_some_and(|civil| civil < begin) {
                civil = self.cron.next(begin);
                span = next;
            } else {
                // What is set two days before `civil` makes no difference to it.
                let near = zone.span_at(civil? - 2 * DAY);
                span = if near.start > next.start { near } else { next };
            }
            from = begin;
        }
        civil.map(|civil| civil - span.offset)
    }

    /// How many slots there are after `after`, up to and including `until`. Looks at spans and months, not
    /// at slots.
    pub fn count(&self, after: UtcSecond, until: UtcSecond) -> u64 {
        self.pieces(after, until).map(|piece| self.len(&piece)).sum()
    }

    /// The slot after `after` that has `skip` others before it, if it comes up to and including `until`.
    /// Looks at spans and months, too.
    pub fn nth(&self, after: UtcSecond, until: UtcSecond, skip: u64) -> Option<UtcSecond> {
        let mut left = skip;
        for piece in self.pieces(after, until) {
            let len = self.len(&piece);
            if left < len {
                return match piece {
                    Piece::Civil { from, to, offset } => {
                        self.cron.nth(from, to, left).map(|civil| civil - offset)
                    }
                    Piece::Moment(at) => Some(at),
                };
            }
            left -= len;
        }
        None
    }

    fn len(&self, piece: &Piece) -> u64 {
        match piece {
            Piece::Civil { from, to, .. } => self.cron.count(*from, *to),
            Piece::Moment(_) => 1,
        }
    }

    /// Where civil times of a span begin to count, as far as that matters right after `after`.
    fn begin(&self, zone: &Zone, span: Span, after: UtcSecond) -> Second {
        // No clock is set by more than a day.
        if self.fold != Fold::First || span.start < after - DAY {
            return Second::MIN;
        }
        self.begin_after(&ClockChange::between(zone.span_at(span.start - 1), span))
    }

    /// Where civil times begin to count after clocks were set.
    fn begin_after(&self, set: &ClockChange) -> Second {
        match self.fold {
            Fold::First => set.before.max(set.after),
            Fold::Second | Fold::Both | Fold::Usual => set.after,
        }
    }

    /// Where civil times cease to count before clocks are set.
    fn end_before(&self, set: &ClockChange) -> Second {
        match self.fold {
            Fold::Second => set.before.min(set.after),
            Fold::First | Fold::Both | Fold::Usual => set.before,
        }
    }

    /// Everything after `after`, up to and including `until`, in order, in pieces.
    fn pieces(&self, after: UtcSecond, until: UtcSecond) -> impl Iterator<Item = Piece> {
        let zone = self.zone.zone();
        let first = zone.span_at(after);
        let mut at = Some((first, self.begin(zone, first, after)));
        std::iter::from_fn(move || {
            let (span, begin) = at.take()?;
            let from = begin.max(after.saturating_add(1).saturating_add(span.offset));
            let mut to = until.saturating_add(1).saturating_add(span.offset);
            let mut moment = None;
            // Civil times may cease to count before the span ends, but not by more than a day.
            if span.end != UtcSecond::MAX && span.end <= until.saturating_add(DAY) {
                let next = zone.span_after(span);
                let set = ClockChange::between(span, next);
                to = to.min(self.end_before(&set));
                if span.end <= until {
                    moment = self.comes_at(&set).then_some(Piece::Moment(set.at));
                    at = Some((next, self.begin_after(&set)));
                }
            }
            Some([Some(Piece::Civil { from, to, offset: span.offset }), moment])
        })
        .flatten()
        .flatten()
    }

    /// Whether what a gap swallows makes a slot at its end that would not be there otherwise.
    fn comes_at(&self, set: &ClockChange) -> bool {
        self.gap == Gap::Fire
            && self.cron.count(set.before, set.after) > 0
            && !self.cron.matches(set.after)
    }
}

/// A part of the time line.
#[derive(Debug)]
enum Piece {
    /// The matches of the pattern from `from` on and before `to`, on clocks that are `offset` ahead.
    Civil { from: Second, to: Second, offset: Second },
    /// One slot, where clocks are set.
    Moment(UtcSecond),
}

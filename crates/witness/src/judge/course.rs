//! The course of an instance: which of its ticks were heard, which are missing, and when it made none.
//!
//! A tick that is missing was made, and lost on its way: its number says so. Silence without missing numbers is silence
//! of the program. Where both come together nobody knows at which moments the missing ticks were made; it counts as a
//! gap in acting only if they could not have filled it, however evenly they were spread.

use std::time::Duration;

use super::moment::{Hull, Moment};
use crate::limits::STRETCHES_MAX;

/// A tick that was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) sequence: u64,
    pub(crate) moment: Moment,
}

/// Between two ticks that were heard and none in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) before: Mark,
    pub(crate) after: Mark,
}

/// What a tick is among those of its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The newest, and what lies between the one before and this, if that is of interest.
    Next(Option<Stretch>),
    /// Older than others that came before it.
    Late,
    /// It was heard already.
    Repeated,
}

/// Which ticks were heard.
#[derive(Debug)]
pub(crate) struct Course {
    first: Mark,
    last: Mark,
    /// Those of interest, in order.
    stretches: Vec<Stretch>,
    pub(crate) tally: Tally,
    settled: Settled,
}

/// How many ticks were heard.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) heard: u64,
    pub(crate) late: u64,
    pub(crate) repeated: u64,
}

/// What became of stretches that are not remembered.
#[derive(Debug, Default, Clone, Copy)]
struct Settled {
    lost: u64,
    gaps: u64,
}

impl Stretch {
    /// Ticks that were made in it and did not come.
    pub(crate) fn lost(self) -> u64 {
        self.after.sequence - self.before.sequence - 1
    }

    pub(crate) fn hull(self) -> Hull {
        Hull::new(self.before.moment, self.after.moment)
    }

    pub(crate) fn is_gap(self, gap: Duration) -> bool {
        is_gap(self.hull().own().length(), self.lost(), gap)
    }
}

/// Whether nobody acted for longer than `gap` somewhere in a silence in which so many ticks were lost.
pub(crate) fn is_gap(silence: Duration, lost: u64, gap: Duration) -> bool {
    silence.as_nanos() > gap.as_nanos().saturating_mul(u128::from(lost) + 1)
}

impl Course {
    /// One that begins with this tick, whatever was before it.
    pub(crate) fn new(first: Mark) -> Self {
        let tally = Tally { heard: 1, ..Tally::default() };
        let settled = Settled::default();
        Self { first, last: first, stretches: Vec::new(), tally, settled }
    }

    /// Takes one more tick. Gives also the moment at which it counts: one that is late arrived, at the latest, with
    /// those that were made after it.
    pub(crate) fn hear(&mut self, mut mark: Mark, gap: Duration) -> (Place, Moment) {
        let is_known = [self.first.sequence, self.last.sequence].contains(&mark.sequence);
        let place = if is_known {
            Place::Repeated
        } else if mark.sequence > self.last.sequence {
            let stretch = Stretch { before: self.last, after: mark };
            self.last = mark;
            Place::Next(self.keep(stretch, gap))
        } else if mark.sequence < self.first.sequence {
            mark.moment.arrived = self.first.moment.arrived;
            let stretch = Stretch { before: mark, after: self.first };
            self.first = mark;
            self.keep(stretch, gap);
            Place::Late
        } else {
            self.fill(&mut mark, gap)
        };
        match place {
            Place::Next(_) => self.tally.heard += 1,
            Place::Late => {
                self.tally.heard += 1;
                self.tally.late += 1;
            }
            Place::Repeated => self.tally.repeated += 1,
        }
        (place, mark.moment)
    }

    /// A tick between others: it was missing, or it was heard already.
    fn fill(&mut self, mark: &mut Mark, gap: Duration) -> Place {
        let holds = |stretch: &Stretch| {
            (stretch.before.sequence + 1..stretch.after.sequence).contains(&mark.sequence)
        };
        let Some(at) = self.stretches.iter().position(holds) else { return Place::Repeated };
        let Stretch { before, after } = self.stretches.remove(at);
        let (first, last) = (before.moment.arrived, after.moment.arrived);
        mark.moment.arrived = mark.moment.arrived.clamp(first, last.max(first));
        self.keep(Stretch { before, after: *mark }, gap);
        self.keep(Stretch { before: *mark, after }, gap);
        Place::Late
    }

    /// Remembers a stretch if ticks are missing in it, or nobody acted.
    fn keep(&mut self, stretch: Stretch, gap: Duration) -> Option<Stretch> {
        if stretch.lost() == 0 && !stretch.is_gap(gap) {
            return None;
        }
        let order = |known: &Stretch| known.before.sequence < stretch.before.sequence;
        let at = self.stretches.partition_point(order);
        self.stretches.insert(at, stretch);
        if self.stretches.len() > STRETCHES_MAX {
            let oldest = self.stretches.remove(0);
            self.settled.lost += oldest.lost();
            self.settled.gaps += u64::from(oldest.is_gap(gap));
        }
        Some(stretch)
    }

    /// Ticks that were lost between those that were heard.
    pub(crate) fn lost(&self) -> u64 {
        self.settled.lost + self.stretches.iter().map(|stretch| stretch.lost()).sum::<u64>()
    }

    /// Ticks that were made before the first one that was heard: lost, or made before there was a witness.
    pub(crate) fn before_first(&self) -> u64 {
        self.first.sequence - 1
    }

    /// Stretches in which it did not act, as far as they are remembered.
    pub(crate) fn gaps(&self, gap: Duration) -> impl Iterator<Item = Stretch> + '_ {
        self.stretches.iter().copied().filter(move |stretch| stretch.is_gap(gap))
    }

    /// How many such stretches are not remembered.
    pub(crate) fn gaps_settled(&self) -> u64 {
        self.settled.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_secs(1);

    fn mark(sequence: u64, ms: u64) -> Mark {
        let made = Duration::from_millis(ms);
        Mark { sequence, moment: Moment { made: Some(made), arrived: made } }
    }

    fn course(marks: &[(u64, u64)]) -> Course {
        let mut course = Course::new(mark(marks[0].0, marks[0].1));
        for (sequence, ms) in &marks[1..] {
            course.hear(mark(*sequence, *ms), GAP);
        }
        course
    }

    #[track_caller]
    fn check(marks: &[(u64, u64)], lost: u64, gaps: &[(u64, u64)]) {
        let course = course(marks);
        let ms = |mark: Mark| u64::try_from(mark.moment.arrived.as_millis()).unwrap();
        let found: Vec<_> = course.gaps(GAP).map(|it| (ms(it.before), ms(it.after))).collect();
        assert_eq!((course.lost(), &*found), (lost, gaps));
    }

    #[test]
    fn silence_is_a_gap_from_just_past_the_limit_on() {
        check(&[(1, 0), (2, 1_000)], 0, &[]);
        check(&[(1, 0), (2, 1_001)], 0, &[(0, 1_001)]);
    }

    #[test]
    fn ticks_that_are_lost_are_no_gap_if_they_may_have_filled_it() {
        check(&[(1, 0), (11, 1_500)], 9, &[]);
        check(&[(1, 0), (2, 50), (3, 100), (23, 21_101)], 19, &[(100, 21_101)]);
    }

    #[test]
    fn a_late_tick_fills_its_place_and_shows_the_gap_beside_it() {
        check(&[(1, 0), (3, 1_900)], 1, &[]);
        check(&[(1, 0), (3, 1_900), (2, 50)], 0, &[(50, 1_900)]);
        check(&[(1, 0), (3, 2_100), (2, 1_050)], 0, &[(0, 1_050), (1_050, 2_100)]);
        check(&[(5, 200), (4, 150), (2, 50)], 1, &[]);
    }

    #[test]
    fn what_was_heard_already_changes_nothing() {
        let course = course(&[(1, 0), (2, 50), (2, 50), (5, 200), (4, 150), (4, 150), (1, 0)]);
        assert_eq!(course.tally, Tally { heard: 4, late: 1, repeated: 3 });
        assert_eq!((course.lost(), course.before_first()), (1, 0));
    }

    #[test]
    fn stretches_are_remembered_up_to_the_limit_and_counted_past_it() {
        let marks: Vec<_> =
            (0..).map(|it| (1 + 2 * it, it * 3_000)).take(STRETCHES_MAX + 1).collect();
        let full = course(&marks);
        assert_eq!((full.gaps(GAP).count(), full.gaps_settled()), (STRETCHES_MAX, 0));
        let next = marks.len() as u64;
        let past = course(&[&*marks, &[(1 + 2 * next, next * 3_000)]].concat());
        assert_eq!((past.gaps(GAP).count(), past.gaps_settled()), (STRETCHES_MAX, 1));
        assert_eq!(past.lost(), STRETCHES_MAX as u64 + 1);
    }
}

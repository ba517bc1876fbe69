//! Times at which nothing fires although a slot is due: excluded dates, and quiet windows.

use super::civil::{DAY, Date, Day, Second, weekday};
use super::zone::{UtcSecond, ZoneId};

/// What is excluded, in a zone's civil time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Calendar {
    zone: ZoneId,
    /// The excluded days, in order.
    dates: Vec<Day>,
    quiet: Vec<QuietWindow>,
}

/// A stretch of certain days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuietWindow {
    /// Bits 0 to 6, Sunday first: the days on which it begins.
    pub weekdays: u8,
    /// The second of the day at which it begins, 0 to 86,399.
    pub from: u32,
    /// The second of the day before which it ends, 1 to 86,400; on the next day if that is not after
    /// `from`.
    pub to: u32,
}

/// An excluded stretch of time: its first second, and the first one after it.
pub(super) type Stretch = (UtcSecond, UtcSecond);

impl Calendar {
    /// A calendar. The caller has checked its limits.
    pub(super) fn new(zone: ZoneId, dates: &[Date], quiet: Vec<QuietWindow>) -> Self {
        let mut dates: Vec<Day> = dates.iter().map(|date| date.to_day()).collect();
        dates.sort_unstable();
        dates.dedup();
        Self { zone, dates, quiet }
    }

    /// The stretch around a second, if it is excluded. It may be cut where clocks are set, and then the
    /// next one begins there.
    pub(super) fn around(&self, second: UtcSecond) -> Option<Stretch> {
        let span = self.zone.zone().span_at(second);
        let civil = second + span.offset;
        let (first, last) = self.civil_around(civil)?;
        let start = (first - span.offset).max(span.start);
        Some((start, (last - span.offset).min(span.end)))
    }

    /// The first excluded stretch that begins after this second, and before `end`.
    pub(super) fn next(&self, after: UtcSecond, end: UtcSecond) -> Option<Stretch> {
        let zone = self.zone.zone();
        let mut from = after + 1;
        while from < end {
            let span = zone.span_at(from);
            let found = self.civil_next(from + span.offset).map(|civil| civil - span.offset);
            match found {
                Some(start) if start < span.end.min(end) => return self.around(start),
                _ => from = span.end,
            }
        }
        None
    }

    fn civil_around(&self, civil: Second) -> Option<(Second, Second)> {
        let day = civil.div_euclid(DAY);
        if self.dates.binary_search(&day).is_ok() {
            return Some((day * DAY, (day + 1) * DAY));
        }
        // A window that began today, or yesterday and went on.
        let windows = self.quiet.iter().flat_map(|quiet| [quiet.on(day - 1), quiet.on(day)]);
        windows.flatten().find(|(from, to)| (*from..*to).contains(&civil))
    }

    /// The first civil second at or after `from` that is excluded. Every week has every window.
    fn civil_next(&self, from: Second) -> Option<Second> {
        if self.civil_around(from).is_some() {
            return Some(from);
        }
        let day = from.div_euclid(DAY);
        let date = self.dates.partition_point(|date| date * DAY < from);
        let date = self.dates.get(date).map(|date| date * DAY);
        let windows = self.quiet.iter().flat_map(|quiet| (day..=day + 7).map(|day| quiet.on(day)));
        let window = windows.flatten().map(|(begin, _)| begin).filter(|begin| *begin >= from).min();
        [date, window].into_iter().flatten().min()
    }
}

impl QuietWindow {
    /// The window that begins on this day, if one does.
    fn on(self, day: Day) -> Option<(Second, Second)> {
        let begins = self.weekdays & (1 << weekday(day)) != 0;
        let (from, to) = (Second::from(self.from), Second::from(self.to));
        let to = if to > from { to } else { to + DAY };
        begins.then_some((day * DAY + from, day * DAY + to))
    }
}

//! Cron: which seconds of the calendar match.
//!
//! A pattern is a set of bits for each unit of the calendar, so asking for the next match is a matter of
//! finding the next bit, and counting matches a matter of counting bits. Here everything is *civil* time:
//! the calendar and the clock on a wall, without a zone. What happens to matches when that clock is set
//! is `zone`'s business.

pub(super) mod explain;
mod parse;

pub use parse::{CronError, Dialect, Field, Parsed};

use super::civil::{self, DAY, Date, Day, Second};

/// A cron pattern. Small on purpose: there are millions of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cron {
    /// Bits 0 to 59.
    seconds: u64,
    /// Bits 0 to 59.
    minutes: u64,
    /// The rare parts of a pattern, if it has any.
    rare: Option<Box<Rare>>,
    /// Bits 0 to 23.
    hours: u32,
    /// Bits 1 to 31.
    days: u32,
    /// Bits 1 to 12.
    months: u16,
    /// Bits 0 to 6; Sunday is 0.
    weekdays: u8,
    kind: PatternKind,
}

/// How the fields of a pattern go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PatternKind {
    days: Days,
    pace: CronPace,
}

/// Which of the two day fields decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Days {
    /// Those of the field day of month; the other one is `*` or `?`, or both are.
    OfMonth,
    /// Those of the field day of week; the other one is `*` or `?`.
    OfWeek,
    /// Both fields are restricted, and one is enough.
    Either,
    /// Both must match (`+`).
    Both,
}

/// Whether a pattern names times of the day, or goes by intervals. Clocks that are set treat the two
/// differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CronPace {
    /// Second, minute and hour are single values or lists of them: `30 2 * * *`, `0 6,18 * * *`.
    Fixed,
    /// One of them has `*`, a range or a step: `*/15 * * * *`, `0 9-17 * * *`.
    Interval,
}

/// The rare parts of a pattern, apart so that most patterns stay small.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Rare {
    /// Bit n is the day n days before the last one of the month (`L`, `L-3`).
    from_end: u32,
    /// Bit n is the weekday nearest to day n of the month (`15W`).
    nearest: u32,
    /// The last day of the month from Monday to Friday (`LW`).
    last_workday: bool,
    /// For each day of the week the bits 1 to 5: which of the month (`FRI#2`).
    nth: [u8; 7],
    /// Bits 0 to 6: the last of this day in the month (`FRI#L`, `5L`).
    last: u8,
    /// The years that match, as (first, last, step), in order; all if there are none.
    years: Vec<(u16, u16, u16)>,
}

/// Months in which every pattern without years has matched, if it ever does: the calendar repeats itself
/// after 400 years, with the same days of the week.
const CYCLE_MONTHS: u32 = 400 * 12;

const ALL_HOURS: u32 = 0xff_ffff;

/// The last year that patterns look at.
pub(super) const LAST_YEAR: i32 = 9_999;

impl Cron {
    /// Whether it names times of the day, or goes by intervals.
    pub fn pace(&self) -> CronPace {
        self.kind.pace
    }

    /// How many seconds match in a minute at most.
    pub(super) fn per_minute_max(&self) -> u64 {
        self.seconds.count_ones().into()
    }

    /// Whether it comes in every hour of a day.
    pub(super) fn has_all_hours(&self) -> bool {
        self.hours == ALL_HOURS
    }

    /// The first match at or after `from`, if there is one until the end of 9999.
    pub fn next(&self, from: Second) -> Option<Second> {
        let (day, time) = split(from);
        let date = Date::of(day);
        if self.has_date(date)
            && let Some(time) = self.time_from(time)
        {
            return Some(day * DAY + Second::from(time));
        }
        let day = self.next_date(Date::of(day + 1))?.to_day();
        Some(day * DAY + Second::from(self.first_time()))
    }

    /// Whether this second matches.
    pub fn matches(&self, second: Second) -> bool {
        self.next(second) == Some(second)
    }

    /// How many matches there are from `from` on and before `to`. Looks at months, not at matches.
    pub fn count(&self, from: Second, to: Second) -> u64 {
        if from >= to {
            return 0;
        }
        let ((first, begin), (last, end)) = (split(from), split(to));
        let whole = u64::from(self.times_len());
        if first == last {
            let times = self.times_before(end) - self.times_before(begin);
            return if self.has_date(Date::of(first)) { u64::from(times) } else { 0 };
        }
        let mut count = 0;
        if self.has_date(Date::of(first)) {
            count += whole - u64::from(self.times_before(begin));
        }
        if self.has_date(Date::of(last)) {
            count += u64::from(self.times_before(end));
        }
        count + whole * self.count_days(first + 1, last)
    }

    /// The match that has `skip` others before it, from `from` on and before `to`.
    pub fn nth(&self, from: Second, to: Second, skip: u64) -> Option<Second> {
        let (day, time) = split(from);
        let whole = u64::from(self.times_len());
        let mut left = skip;
        let found = |day: Day, index: u64| {
            let time = self.time_at(u32::try_from(index).expect("a day has 86,400 seconds"));
            Some(day * DAY + Second::from(time)).filter(|found| *found < to)
        };
        if self.has_date(Date::of(day)) {
            let before = u64::from(self.times_before(time));
            if left < whole - before {
                return found(day, before + left);
            }
            left -= whole - before;
        }
        let mut date = self.this_month(Date::of(day + 1))?;
        while date.to_day() * DAY < to {
            let days = self.days_of(date.year, date.month) & from_bit(date.day);
            let here = whole * u64::from(days.count_ones());
            if left < here {
                let index = u32::try_from(left / whole).expect("a month has 31 days");
                let day = Date { day: nth_bit(u64::from(days), index), ..date }.to_day();
                return found(day, left % whole);
            }
            left -= here;
            date = self.next_month(date)?;
        }
        None
    }

    /// Days that match from `first` on and before `end`.
    fn count_days(&self, first: Day, end: Day) -> u64 {
        let Some(mut date) = self.this_month(Date::of(first)) else { return 0 };
        let (end, mut count) = (Date::of(end), 0);
        while (date.year, date.month) < (end.year, end.month) {
            let days = self.days_of(date.year, date.month) & from_bit(date.day);
            count += u64::from(days.count_ones());
            match self.next_month(date) {
                Some(next) => date = next,
                None => return count,
            }
        }
        if (date.year, date.month) == (end.year, end.month) {
            let days = self.days_of(date.year, date.month) & from_bit(date.day);
            count += u64::from((days & !from_bit(end.day)).count_ones());
        }
        count
    }

    fn has_date(&self, date: Date) -> bool {
        self.this_month(date) == Some(date)
            && self.days_of(date.year, date.month) & (1 << date.day) != 0
    }

    /// The first date that matches, at or after this one.
    fn next_date(&self, from: Date) -> Option<Date> {
        let (mut date, mut looked) = (self.this_month(from)?, 0);
        loop {
            let days = self.days_of(date.year, date.month) & from_bit(date.day);
            if days != 0 {
                return Some(Date { day: days.trailing_zeros(), ..date });
            }
            looked += 1;
            if looked > CYCLE_MONTHS && self.years().is_empty() {
                return None;
            }
            date = self.next_month(date)?;
        }
    }

    /// The date itself if it is in a month and a year of the pattern, else the first day after it that is.
    fn this_month(&self, date: Date) -> Option<Date> {
        let year = self.next_year(date.year)?;
        if year > date.year {
            return Some(Date { year, month: self.first_month(), day: 1 });
        }
        let is_month = u32::from(self.months) & (1 << date.month) != 0;
        if is_month { Some(date) } else { self.next_month(date) }
    }

    /// The first day of the next month of the pattern, after one in a year of it.
    fn next_month(&self, date: Date) -> Option<Date> {
        let later = u32::from(self.months) & from_bit(date.month + 1);
        if later != 0 {
            return Some(Date { month: later.trailing_zeros(), day: 1, ..date });
        }
        let year = self.next_year(date.year + 1)?;
        Some(Date { year, month: self.first_month(), day: 1 })
    }

    fn first_month(&self) -> u32 {
        u32::from(self.months).trailing_zeros()
    }

    fn years(&self) -> &[(u16, u16, u16)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.years)
    }

    /// The first year that matches, at or after this one.
    fn next_year(&self, from: i32) -> Option<i32> {
        if self.years().is_empty() {
            return Some(from).filter(|year| *year <= LAST_YEAR);
        }
        let next = |&(first, last, step): &(u16, u16, u16)| {
            let (first, last, step) = (i32::from(first), i32::from(last), i32::from(step));
            let steps = (from - first).max(0) + step - 1;
            Some(first + steps / step * step).filter(|year| *year <= last)
        };
        self.years().iter().filter_map(next).min()
    }

    /// The days that match, as bits 1 to 31, of a month and a year of the pattern.
    fn days_of(&self, year: i32, month: u32) -> u32 {
        let len = civil::month_len(year, month);
        let all = !1 & !from_bit(len + 1);
        if self.kind.days == Days::OfMonth && self.rare.is_none() {
            return self.days & all;
        }
        let first = civil::weekday(Date { year, month, day: 1 }.to_day());
        let mut of_month = self.days;
        let mut of_week = every_week(self.weekdays, first);
        if let Some(rare) = &self.rare {
            of_month |= rare.of_month(len, first);
            of_week |= rare.of_week(len, first);
        }
        all & match self.kind.days {
            Days::OfMonth => of_month,
            Days::OfWeek => of_week,
            Days::Either => of_month | of_week,
            Days::Both => of_month & of_week,
        }
    }

    /// Times of a day that match.
    fn times_len(&self) -> u32 {
        self.hours.count_ones() * self.minutes.count_ones() * self.seconds.count_ones()
    }

    fn first_time(&self) -> u32 {
        self.time_at(0)
    }

    /// The first time of a day at or after this one.
    fn time_from(&self, time: u32) -> Option<u32> {
        let before = self.times_before(time);
        (before < self.times_len()).then(|| self.time_at(before))
    }

    /// How many times of a day match before this one.
    fn times_before(&self, time: u32) -> u32 {
        let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
        let (minutes, seconds) = (self.minutes.count_ones(), self.seconds.count_ones());
        let mut before = below(u64::from(self.hours), hour) * minutes * seconds;
        if self.hours & (1 << hour) != 0 {
            before += below(self.minutes, minute) * seconds;
            if self.minutes & (1 << minute) != 0 {
                before += below(self.seconds, second);
            }
        }
        before
    }

    /// The time of a day that has so many others before it.
    fn time_at(&self, index: u32) -> u32 {
        let (minutes, seconds) = (self.minutes.count_ones(), self.seconds.count_ones());
        let hour = nth_bit(u64::from(self.hours), index / (minutes * seconds));
        let minute = nth_bit(self.minutes, index / seconds % minutes);
        hour * 3_600 + minute * 60 + nth_bit(self.seconds, index % seconds)
    }
}

impl Rare {
    /// Days of a month of this length whose first day is this day of the week.
    fn of_month(&self, len: u32, first: u32) -> u32 {
        let weekday = |day: u32| (first + day - 1) % 7;
        let mut days = 0;
        for back in bits(self.from_end).take_while(|back| *back < len) {
            days |= 1 << (len - back);
        }
        for day in bits(self.nearest).take_while(|day| *day <= len) {
            days |= 1
                << match weekday(day) {
                    6 if day == 1 => 3,
                    6 => day - 1,
                    0 if day == len => day - 2,
                    0 => day + 1,
                    _ => day,
                };
        }
        if self.last_workday {
            days |= 1
                << match weekday(len) {
                    6 => len - 1,
                    0 => len - 2,
                    _ => len,
                };
        }
        days
    }

    fn of_week(&self, len: u32, first: u32) -> u32 {
        let mut days = 0;
        for (weekday, which) in (0_u32..).zip(self.nth) {
            let earliest = 1 + (weekday + 7 - first) % 7;
            for nth in bits(u32::from(which)) {
                days |= 1_u32.checked_shl(earliest + 7 * (nth - 1)).unwrap_or(0);
            }
            if self.last & (1 << weekday) != 0 {
                days |= 1 << (earliest + (len - earliest) / 7 * 7);
            }
        }
        days
    }
}

/// The days of a month, from the days of a week, if its first day is this one.
fn every_week(weekdays: u8, first: u32) -> u32 {
    let week = u64::from(weekdays);
    let turned = (week >> first | week << (7 - first)) & 0x7f;
    let weeks = turned * 0x1020_4081;
    u32::try_from((weeks << 1) & 0xffff_ffff).expect("cut to 32 bits")
}

fn split(second: Second) -> (Day, u32) {
    let time = second.rem_euclid(DAY);
    (second.div_euclid(DAY), u32::try_from(time).expect("less than a day"))
}

/// All bits from this one on.
fn from_bit(bit: u32) -> u32 {
    u32::MAX.checked_shl(bit).unwrap_or(0)
}

/// How many bits are set below this one.
fn below(set: u64, bit: u32) -> u32 {
    (set & !(u64::MAX << bit)).count_ones()
}

/// The places of all bits that are set, the lowest first.
fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let bit = set.trailing_zeros();
            set &= set - 1;
            bit
        })
    })
}

/// The place of the bit that has so many others below it.
fn nth_bit(mut set: u64, skip: u32) -> u32 {
    for _ in 0..skip {
        set &= set.wrapping_sub(1);
    }
    debug_assert!(set != 0, "there are so many bits");
    set.trailing_zeros()
}

//! The calendar and the clock on a wall, without a zone.
//!
//! Days and seconds are counted from the beginning of 1970; the calendar is the Gregorian one, also before
//! it was introduced.

/// A second of civil time, counted from 1970-01-01 00:00:00.
pub type Second = i64;

/// A day, counted from 1970-01-01.
pub type Day = i64;

/// Seconds of a day.
pub const DAY: Second = 86_400;

/// A date of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// 1 to 9999 are looked at by patterns.
    pub year: i32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

impl Date {
    /// Whether the calendar has it, in a year that patterns look at.
    pub fn exists(self) -> bool {
        (1..=9_999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=month_len(self.year, self.month)).contains(&self.day)
    }

    /// The date of a day. Counts in eras of 400 years that begin in March, so that the leap day is the
    /// last one of its year.
    pub fn of(day: Day) -> Self {
        let shifted = day + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self { year: narrow(year), month: narrow_unsigned(month), day: narrow_unsigned(day) }
    }

    /// The day of a date.
    pub fn to_day(self) -> Day {
        let year = i64::from(self.year) - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let march_month = (i64::from(self.month) + 9) % 12;
        let of_year = (153 * march_month + 2) / 5 + i64::from(self.day) - 1;
        let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        era * 146_097 + of_era - 719_468
    }
}

fn narrow(number: i64) -> i32 {
    i32::try_from(number).expect("years are small")
}

fn narrow_unsigned(number: i64) -> u32 {
    u32::try_from(number).expect("months and days are positive")
}

/// The day of the week; Sunday is 0.
pub fn weekday(day: Day) -> u32 {
    narrow_unsigned((day + 4).rem_euclid(7))
}

/// How many days a month has.
pub fn month_len(year: i32, month: u32) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Whether a year has a 29 February.
pub fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_agree_over_eight_hundred_years() {
        let mut date = Date { year: 1600, month: 1, day: 1 };
        let first = date.to_day();
        for day in first..first + 2 * 146_097 {
            assert_eq!(Date::of(day), date);
            assert_eq!(date.to_day(), day);
            date.day += 1;
            if date.day > month_len(date.year, date.month) {
                date = Date { month: date.month + 1, day: 1, ..date };
            }
            if date.month > 12 {
                date = Date { year: date.year + 1, month: 1, day: 1 };
            }
        }
        assert_eq!(date, Date { year: 2400, month: 1, day: 1 });
    }

    #[test]
    fn days_of_the_week_are_right_where_everybody_knows_them() {
        assert_eq!(weekday(Date { year: 1970, month: 1, day: 1 }.to_day()), 4, "a Thursday");
        assert_eq!(weekday(Date { year: 2000, month: 1, day: 1 }.to_day()), 6, "a Saturday");
        assert_eq!(weekday(Date { year: 1969, month: 7, day: 20 }.to_day()), 0, "a Sunday");
    }
}

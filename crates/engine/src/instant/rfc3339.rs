//! The text of an instant as records have it, written and read by hand.
//!
//! Every record of a run has several, and a million are read at a start. What is not exactly of this form, such as an
//! offset or a year before 1970, is left to the library of calendars.
//!
//! ```text
//! 2027-03-28T01:00:00Z    2027-03-28T01:00:00.25Z
//! ```
//!
//! Days are counted in years that begin in March, so that a leap day is the last of its year, and in eras of 400 years,
//! which are all of one length.

use super::Instant;

const DAY_MS: i64 = 86_400_000;

/// Days of 400 years.
const ERA_DAYS: i64 = 146_097;

/// From the 1st of March of the year 0 until 1970.
const EPOCH_DAY: i64 = 719_468;

/// The longest text: with milliseconds.
const TEXT_BYTES: usize = 24;

/// A text of an instant.
pub(super) struct InstantText {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl InstantText {
    /// The text, if it is of a year from 1970 to 9999.
    pub(super) fn of(instant: Instant) -> Option<Self> {
        if !(0..=Instant::LAST.0).contains(&instant.0) {
            return None;
        }
        let (day, ms) = (instant.0 / DAY_MS, instant.0 % DAY_MS);
        let (year, month, day) = civil(day);
        let mut bytes = *b"0000-00-00T00:00:00.000Z";
        put(&mut bytes[0..4], year);
        put(&mut bytes[5..7], month);
        put(&mut bytes[8..10], day);
        put(&mut bytes[11..13], ms / 3_600_000);
        put(&mut bytes[14..16], ms / 60_000 % 60);
        put(&mut bytes[17..19], ms / 1_000 % 60);
        put(&mut bytes[20..23], ms % 1_000);
        let mut len = TEXT_BYTES - 1;
        while bytes[len - 1] == b'0' && len > 20 {
            len -= 1;
        }
        if len == 20 {
            len = 19;
        }
        bytes[len] = b'Z';
        Some(Self { bytes, len: len + 1 })
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("digits and signs")
    }
}

/// The instant of a text that is exactly of this form.
pub(super) fn read(text: &str) -> Option<Instant> {
    let bytes = text.as_bytes();
    let signs = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let is_formed = bytes.len() >= 20 && signs.iter().all(|(at, sign)| bytes[*at] == *sign);
    let fraction = bytes.strip_suffix(b"Z").filter(|_| is_formed)?.get(19..)?;
    let ms = match fraction {
        [] => 0,
        [b'.', a] => number(&[*a])? * 100,
        [b'.', a, b] => number(&[*a, *b])? * 10,
        [b'.', a, b, c] => number(&[*a, *b, *c])?,
        _ => return None,
    };
    let part = |from: usize, to: usize, max: i64| number(&bytes[from..to]).filter(|it| *it <= max);
    let (year, month) = (part(0, 4, 9_999)?, part(5, 7, 12)?);
    let (day, hour) = (part(8, 10, 31)?, part(11, 13, 23)?);
    let (minute, second) = (part(14, 16, 59)?, part(17, 19, 59)?);
    let days = days(year, month, day);
    // A day that its month does not have is another day of the next one.
    if year < 1_970 || civil(days) != (year, month, day) {
        return None;
    }
    let ms = days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1_000 + ms;
    Some(Instant(ms)).filter(|instant| *instant <= Instant::LAST)
}

/// Year, month and day of so many days after the beginning of 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAY;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// Days from the beginning of 1970 until this one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day = (153 * month + 2) / 5 + day - 1;
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + day - EPOCH_DAY
}

fn put(place: &mut [u8], number: i64) {
    let mut rest = number;
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_calendar(instant: i64) -> String {
        jiff::Timestamp::from_millisecond(instant).unwrap().to_string()
    }

    proptest! {
        #[test]
        fn it_is_written_and_read_as_the_calendar_does(instant in 0..=Instant::LAST.0, whole in 0..4_usize) {
            let instant = [instant, instant / 10 * 10, instant / 1_000 * 1_000, instant / DAY_MS * DAY_MS][whole];
            let text = InstantText::of(Instant(instant)).unwrap();
            prop_assert_eq!(text.as_str(), by_calendar(instant));
            prop_assert_eq!(read(text.as_str()), Some(Instant(instant)));
        }

        #[test]
        fn what_is_read_is_what_the_calendar_reads(
            text in "[12][09][0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,4})?Z?"
        ) {
            let by_calendar = text.parse::<jiff::Timestamp>().ok().map(|it| Instant(it.as_millisecond()));
            if let Some(instant) = read(&text) {
                prop_assert_eq!(Some(instant), by_calendar);
            }
        }
    }
}

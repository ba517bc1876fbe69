//! Lengths of time as people write them: `90s`, `5m`, `1h30m`, `2d`.
//!
//! Numbers with units, larger units first, each once, without spaces. One grammar for `@every` in a cron
//! pattern and for every length in a trigger.

use std::fmt::Write;
use std::time::Duration;

/// Why a text is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}; {allowed}")]
pub struct BadLength {
    /// The byte at which it goes wrong: the first one of a character, or the end.
    pub at: usize,
    /// What is wrong with it, for people.
    pub wrong: String,
    /// What would be right, for people.
    pub allowed: &'static str,
}

const EXAMPLES: &str = "an interval like `90s`, `1h30m` or `2d` is allowed";
const UNITS: &str = "`s`, `m`, `h` and `d` are allowed";
const WHOLE: &str = "write whole numbers, each with its unit, like `90s` or `1h30m`";
const ORDER: &str = "larger units come first, each once";

/// Reads a length. One that is too long for anything is read as such: the caller has limits.
pub fn read(text: &str) -> Result<Duration, BadLength> {
    let wrong = |at, wrong: &str, allowed| Err(BadLength { at, wrong: wrong.to_owned(), allowed });
    let bytes = text.as_bytes();
    let (mut at, mut total_s, mut unit_before_s) = (0, 0_u64, u64::MAX);
    if text.is_empty() {
        return wrong(0, "a number is missing", EXAMPLES);
    }
    while at < bytes.len() {
        let number_at = at;
        let mut number = 0_u64;
        while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
            number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            at += 1;
        }
        if at == number_at {
            return wrong(at, "a number is missing", EXAMPLES);
        }
        let letters = bytes[at..].iter().take_while(|byte| !byte.is_ascii_digit()).count();
        let unit_s = match &bytes[at..at + letters] {
            b"s" => 1,
            b"m" => 60,
            b"h" => 3_600,
            b"d" => 86_400,
            b"" => return wrong(at, "the unit is missing", UNITS),
            [b'.' | b',', ..] => return wrong(at, "a fraction is not read", WHOLE),
            _ => {
                let unknown = format!("`{}` is not a unit", brief(&text[at..at + letters]));
                return wrong(at, &unknown, UNITS);
            }
        };
        if unit_s >= unit_before_s {
            return wrong(number_at, "the units are out of order", ORDER);
        }
        total_s = total_s.saturating_add(number.saturating_mul(unit_s));
        unit_before_s = unit_s;
        at += letters;
    }
    Ok(Duration::from_secs(total_s))
}

/// A length as people write it, in whole seconds: `90s` is `1m30s`, and a single day is `24h`.
pub fn text(length: Duration) -> String {
    let seconds = length.as_secs();
    if seconds == 0 {
        return "0s".to_owned();
    }
    let day = if seconds < 2 * 86_400 { u64::MAX } else { 86_400 };
    let mut left = seconds;
    let mut text = String::new();
    for (unit, unit_s) in [("d", day), ("h", 3_600), ("m", 60), ("s", 1)] {
        let count = left / unit_s;
        left %= unit_s;
        if count > 0 {
            write!(text, "{count}{unit}").expect("a String takes everything");
        }
    }
    text
}

/// A piece of a text as it is shown in an error: on one line, and short.
pub(crate) fn brief(piece: &str) -> String {
    const CHARS_MAX: usize = 16;
    let mut shown: String = piece.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if piece.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_with_their_units() {
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("5m", 300),
            ("1h30m", 5_400),
            ("2d1s", 172_801),
            ("99999999999999999999d", u64::MAX),
        ] {
            assert_eq!(read(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_is_refused_at_its_place() {
        for (text, at) in [
            ("", 0),
            ("s", 0),
            ("90", 2),
            ("5 m", 1),
            ("30m1h", 3),
            ("1s1s", 2),
            ("1.5h", 1),
            ("-5s", 0),
            ("5ä", 1),
        ] {
            let why = read(text).unwrap_err();
            assert_eq!(why.at, at, "{text}: {why}");
            assert!(why.to_string().contains("allowed") || [ORDER, WHOLE].contains(&why.allowed));
        }
        let why = read("0.5s").unwrap_err().to_string();
        assert_eq!(
            why,
            "a fraction is not read; write whole numbers, each with its unit, like `90s` or `1h30m`"
        );
    }

    #[test]
    fn lengths_are_written_so_that_they_can_be_read() {
        for text in ["0s", "59s", "1m30s", "5m", "24h", "25h1s", "2d", "366d", "2d1h1m1s"] {
            assert_eq!(super::text(read(text).unwrap()), text);
        }
    }
}

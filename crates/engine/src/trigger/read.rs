//! Reading the small texts of a draft: names, words, lengths, dates, times of the day.
//!
//! Each returns what is right in its error, for a person who wrote something else.

use std::time::Duration;

use crate::id::TriggerId;
use crate::length;
use crate::limits::NAME_CHARS_MAX;
use crate::schedule::civil::{Date, month_len};

/// Whether this can be the name of a trigger, or why not.
pub fn check_name(name: &str) -> Result<(), String> {
    let len = name.chars().count();
    if len == 0 || len > NAME_CHARS_MAX {
        return Err(format!("a name has 1 to {NAME_CHARS_MAX} characters, and this one has {len}"));
    }
    if let Some(odd) = name.chars().find(|char| !is_of_a_name(*char)) {
        return Err(format!(
            "a name is made of letters from a to z, digits, '.', '_' and '-', and {odd:?} is none of them"
        ));
    }
    if matches!(name, "." | "..") {
        return Err("a name of dots alone means something else in a path: add a letter".to_owned());
    }
    if name.parse::<TriggerId>().is_ok() {
        return Err("this name looks like an id: choose another".to_owned());
    }
    Ok(())
}

/// Whether this may stand in a name.
pub(super) fn is_of_a_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-')
}

/// A word of a list.
pub(crate) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*meaning);
    }
    let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    Err(format!("\"{}\" is not known; use {}", length::brief(text), known.join(", ")))
}

/// A length of time between two others.
pub(crate) fn length(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let length = length::read(text).map_err(|why| why.to_string())?;
    if (least..=most).contains(&length) {
        return Ok(length);
    }
    Err(format!("{} to {} are allowed", length::text(least), length::text(most)))
}

/// A whole number between two others.
pub(crate) fn number(number: u64, least: u64, most: u64) -> Result<u64, String> {
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(format!("{least} to {most} are allowed, and {number} was asked for"))
}

/// A date: `2027-12-24`.
pub(crate) fn date(text: &str) -> Result<Date, String> {
    let bad = || format!("\"{}\" is no date: write it like 2027-12-24", length::brief(text));
    let [year, month, day] = digits(text, '-', [4, 2, 2]).ok_or_else(bad)?;
    let year = i32::try_from(year).map_err(|_| bad())?;
    let exists = year > 0 && (1..=12).contains(&month);
    if !exists || day == 0 || day > month_len(year, month) {
        return Err(bad());
    }
    Ok(Date { year, month, day })
}

/// A time of the day as its second: `22:00`, `22:00:30`, and `24:00` for its end.
pub(super) fn time(text: &str) -> Result<u32, String> {
    let long = digits(text, ':', [2, 2, 2]);
    let parts = long.or_else(|| digits(text, ':', [2, 2]).map(|[hour, minute]| [hour, minute, 0]));
    let second = parts.filter(|[hour, minute, second]| {
        let within = *hour < 24 && *minute < 60 && *second < 60;
        within || [*hour, *minute, *second] == [24, 0, 0]
    });
    second.map(|[hour, minute, second]| hour * 3_600 + minute * 60 + second).ok_or_else(|| {
        format!("\"{}\" is no time of the day: write it like 22:00", length::brief(text))
    })
}

/// A day of the week as its bit; Sunday is the first.
pub(super) fn weekday(text: &str) -> Result<u8, String> {
    const DAYS: [(&str, u8); 7] = [
        ("sun", 1),
        ("mon", 1 << 1),
        ("tue", 1 << 2),
        ("wed", 1 << 3),
        ("thu", 1 << 4),
        ("fri", 1 << 5),
        ("sat", 1 << 6),
    ];
    word(text, &DAYS)
}

/// Numbers of so many digits each.
fn digits<const N: usize>(text: &str, between: char, lengths: [usize; N]) -> Option<[u32; N]> {
    let mut parts = text.split(between);
    let mut numbers = [0; N];
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next()?;
        let plain = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| plain)?;
    }
    parts.next().is_none().then_some(numbers)
}

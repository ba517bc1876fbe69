//! Patterns in plain English.
//!
//! The sentence is made from the bits, not from the text, so different ways to write the same pattern read
//! the same. It has two parts: when on the clock (`clock`) and on which days (`day`); here are the words
//! that both need, and how the parts go together. What a zone does to a pattern is `local/explain`'s
//! business.

mod clock;
mod day;

use super::Cron;
use clock::{ClockPhrase, ClockReach};
pub(in crate::schedule) use clock::{LISTED_MAX, time};
pub(in crate::schedule) use day::MONTHS;
use day::{DayPhrase, Lead};

impl Cron {
    /// Says in a sentence when it matches: "At 02:30 every day".
    pub fn explain(&self) -> String {
        let clock = ClockPhrase::of(self.seconds, self.minutes, u64::from(self.hours));
        let day = DayPhrase::of(self);
        if day.lead == Lead::EveryDay && clock.reach == ClockReach::AllDay {
            // "Every 15 minutes in January": that it goes on every day need not be said.
            return join(clock.text, separator(clock.has_clause), &day.rest);
        }
        let is_set_off = match day.lead {
            Lead::EveryDay | Lead::From => clock.reach == ClockReach::Spans || clock.has_clause,
            Lead::Except | Lead::Before => clock.reach != ClockReach::Times,
            Lead::Range => true,
            Lead::On => clock.has_clause,
        };
        let text = join(clock.text, separator(is_set_off), &day.text);
        join(text, separator(day.lead == Lead::Range), &day.rest)
    }
}

fn separator(is_set_off: bool) -> &'static str {
    if is_set_off { ", " } else { " " }
}

/// Adds the second part, if there is one.
fn join(mut text: String, separator: &str, part: &str) -> String {
    if !part.is_empty() {
        text.push_str(separator);
        text.push_str(part);
    }
    text
}

/// The bits that are set, in order.
fn values(bits: u64) -> Vec<u32> {
    (0..64).filter(|value| bits >> value & 1 == 1).collect()
}

/// Neighbours joined: the first and the last of each run.
fn runs(values: &[u32]) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &value in values {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == value => *last = value,
            _ => runs.push((value, value)),
        }
    }
    runs
}

/// As [`runs`], of values that go around from `last` to `first`; a run over the end comes last.
fn runs_around(values: &[u32], first: u32, last: u32) -> Vec<(u32, u32)> {
    let mut runs = runs(values);
    if runs.len() > 1 && runs[0].0 == first && runs[runs.len() - 1].1 == last {
        let (_, end) = runs.remove(0);
        runs.last_mut().expect("there were two").1 = end;
    }
    runs
}

/// Runs of three and more as ranges, others one by one.
fn run_words(runs: &[(u32, u32)], word: impl Fn(u32) -> String) -> Vec<String> {
    let words = runs.iter().flat_map(|&(first, last)| match last - first {
        0 => vec![word(first)],
        1 => vec![word(first), word(last)],
        _ => vec![format!("{} to {}", word(first), word(last))],
    });
    words.collect()
}

/// The distance between neighbours, if it is the same everywhere and more than 1.
fn even_step(values: &[u32]) -> Option<u32> {
    let step = values.get(1)? - values[0];
    let is_even = values.windows(2).all(|pair| pair[1] - pair[0] == step);
    (step > 1 && is_even).then_some(step)
}

/// "a", "a and b", "a, b and c".
pub(in crate::schedule) fn and(items: &[String]) -> String {
    enumerate(items, " and ")
}

fn enumerate(items: &[String], before_last: &str) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., last] => format!("{}{before_last}{last}", rest.join(", ")),
    }
}

/// "1st", "22nd", "13th".
fn ordinal(number: u32) -> String {
    let suffix = match (number % 10, number % 100) {
        (1, tail) if tail != 11 => "st",
        (2, tail) if tail != 12 => "nd",
        (3, tail) if tail != 13 => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

/// "first", "second", and from eleven on "11th".
fn nth(number: u32) -> String {
    const WORDS: [&str; 10] = [
        "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
        "tenth",
    ];
    word(&WORDS, number).unwrap_or_else(|| ordinal(number))
}

/// "two", "three", and from eleven on "11".
fn cardinal(number: u32) -> String {
    const WORDS: [&str; 10] =
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    word(&WORDS, number).unwrap_or_else(|| number.to_string())
}

/// The word for a number, if there is one; the first is for 1.
fn word(words: &[&str], number: u32) -> Option<String> {
    let index = usize::try_from(number.checked_sub(1)?).ok()?;
    words.get(index).map(|word| (*word).to_owned())
}

#[cfg(test)]
mod tests;

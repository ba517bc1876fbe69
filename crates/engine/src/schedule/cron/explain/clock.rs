//! When on the clock: the first part of the sentence.

use super::{and, even_step, join, nth, run_words, runs, runs_around, values};

/// Times up to this many are listed one by one.
pub(in crate::schedule) const LISTED_MAX: usize = 4;

/// When on the clock.
pub(super) struct ClockPhrase {
    pub(super) text: String,
    pub(super) reach: ClockReach,
    /// The text ends with a clause after a comma, so what follows needs a comma as well.
    pub(super) has_clause: bool,
}

/// How much of a day it covers, as the text says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockReach {
    /// Named times: "At 02:30".
    Times,
    /// Parts of the day: "Every hour from 09:00 to 17:00".
    Spans,
    /// The whole day: "Every 15 minutes".
    AllDay,
}

impl ClockPhrase {
    pub(super) fn of(seconds: u64, minutes: u64, hours: u64) -> Self {
        let [seconds, minutes] = [seconds, minutes].map(|bits| ClockUnit::of(bits, 60));
        let hours = ClockUnit::of(hours, 24);
        let units = [&seconds, &minutes, &hours];
        let count: usize = units.map(|unit| unit.values.len()).iter().product();
        let is_even = units.iter().any(|unit| matches!(unit.shape, Shape::Even { .. }));
        if count <= LISTED_MAX && !is_even {
            return Self::times(&hours.values, &minutes.values, &seconds.values);
        }
        match (&*seconds.values, &*minutes.values) {
            ([second], [minute]) => Self::hourly(&hours, *minute, *second),
            ([1..=59], _) if minutes.shape == Shape::All => {
                Self::past_minutes(&seconds.past("second"), &minutes, &hours)
            }
            ([second], _) => Self::by_minutes(&minutes, &hours).at_second(*second),
            _ => Self::by_seconds(&seconds, &minutes, &hours),
        }
    }

    fn new(text: String, reach: ClockReach) -> Self {
        Self { text, reach, has_clause: false }
    }

    fn with_clause(mut self, clause: &str) -> Self {
        self.has_clause |= !clause.is_empty();
        self.text = join(self.text, ", ", clause);
        self
    }

    /// "At 09:00 and 17:00".
    fn times(hours: &[u32], minutes: &[u32], seconds: &[u32]) -> Self {
        // Midnight has no such word: midnight on a Friday could be its beginning or its end.
        if (hours, minutes, seconds) == (&[12], &[0], &[0]) {
            return Self::new("At noon".to_owned(), ClockReach::Times);
        }
        let with_seconds = seconds != [0];
        let mut times = Vec::new();
        for &hour in hours {
            for &minute in minutes {
                for &second in seconds {
                    let seconds =
                        if with_seconds { format!(":{second:02}") } else { String::new() };
                    times.push(format!("{hour:02}:{minute:02}{seconds}"));
                }
            }
        }
        Self::new(format!("At {}", and(&times)), ClockReach::Times)
    }

    /// One minute and second, in many hours.
    fn hourly(hours: &ClockUnit, minute: u32, second: u32) -> Self {
        let at = |hour| time(hour, minute, second);
        match hours.shape {
            Shape::All if (minute, second) == (0, 0) => {
                Self::new("Every hour".to_owned(), ClockReach::AllDay)
            }
            Shape::All => {
                let past: Vec<_> = [(minute, "minute"), (second, "second")]
                    .into_iter()
                    .filter(|(count, _)| *count > 0)
                    .map(|(count, unit)| plural(count, unit))
                    .collect();
                Self::new(format!("At {} past every hour", and(&past)), ClockReach::AllDay)
            }
            Shape::Even { first, step } => {
                let clock = Self::new(format!("Every {step} hours"), ClockReach::AllDay);
                if (first, minute, second) == (0, 0, 0) {
                    return clock;
                }
                clock.with_clause(&format!("starting at {}", at(first)))
            }
            Shape::Steps { first, last, step } => {
                let text = format!("Every {step} hours from {} to {}", at(first), at(last));
                Self::new(text, ClockReach::Spans)
            }
            Shape::Other => {
                let runs = runs_around(&hours.values, 0, 23);
                if runs.iter().all(|run| hours_of(*run) < 3) {
                    return Self::times(&hours.values, &[minute], &[second]);
                }
                let spans = runs.iter().map(|&(first, last)| {
                    if first == last {
                        return format!("at {}", at(first));
                    }
                    format!("from {} to {}", at(first), at(last))
                });
                let spans: Vec<_> = spans.collect();
                Self::new(format!("Every hour {}", and(&spans)), ClockReach::Spans)
            }
        }
    }

    /// Several minutes, at the beginning of each.
    fn by_minutes(minutes: &ClockUnit, hours: &ClockUnit) -> Self {
        match minutes.shape {
            Shape::All => Self::steadily("Every minute".to_owned(), "", 0, hours),
            Shape::Even { first, step } => {
                let start = match first {
                    0 => String::new(),
                    _ => format!("starting {} past the hour", plural(first, "minute")),
                };
                Self::steadily(format!("Every {step} minutes"), &start, first, hours)
            }
            Shape::Steps { .. } | Shape::Other => match *hours.values {
                [hour] => Self::within_hour(minutes, hour),
                _ if minutes.is_halves() && hours.goes_on() => {
                    Self::steadily("Every 30 minutes".to_owned(), "", 0, hours)
                }
                _ => Self::past_hours(minutes, hours),
            },
        }
    }

    /// Something that goes on for whole hours, from their minute `first`.
    fn steadily(text: String, start: &str, first: u32, hours: &ClockUnit) -> Self {
        let clock = Self::new(text, ClockReach::AllDay);
        match hours.shape {
            Shape::All => clock.with_clause(start),
            Shape::Even { .. } | Shape::Steps { .. } => {
                let clock = clock.with_clause(start);
                let separator = if clock.has_clause { ", " } else { " " };
                let (each, reach) = each_hour(hours);
                let text = join(clock.text, separator, &format!("in {each}"));
                Self { text, reach, has_clause: reach == ClockReach::AllDay }
            }
            Shape::Other => {
                let text = join(clock.text, " ", &spans(hours, &format!(":{first:02}"), ":59"));
                Self::new(text, ClockReach::Spans)
            }
        }
    }

    /// Some minutes of one hour.
    fn within_hour(minutes: &ClockUnit, hour: u32) -> Self {
        let span =
            |first, last| format!("from {} to {}", time(hour, first, 0), time(hour, last, 0));
        if let Shape::Steps { first, last, step } = minutes.shape {
            return Self::new(
                format!("Every {step} minutes {}", span(first, last)),
                ClockReach::Spans,
            );
        }
        let runs = runs(&minutes.values);
        if runs.iter().any(|(first, last)| last - first < 2) {
            return Self::times(&[hour], &minutes.values, &[0]);
        }
        let spans: Vec<_> = runs.into_iter().map(|(first, last)| span(first, last)).collect();
        Self::new(format!("Every minute {}", and(&spans)), ClockReach::Spans)
    }

    /// Some minutes of several hours.
    fn past_hours(minutes: &ClockUnit, hours: &ClockUnit) -> Self {
        let past = minutes.past("minute");
        let runs = runs_around(&hours.values, 0, 23);
        if hours.shape == Shape::Other && runs.iter().all(|(first, last)| first == last) {
            let hours: Vec<_> = hours.values.iter().map(|hour| time(*hour, 0, 0)).collect();
            return Self::new(format!("{past} {}", and(&hours)), ClockReach::Times);
        }
        let (each, reach) = each_hour(hours);
        let has_clause = matches!(hours.shape, Shape::Even { .. });
        Self { text: format!("{past} {each}"), reach, has_clause }
    }

    fn at_second(self, second: u32) -> Self {
        match second {
            0 => self,
            _ => self.with_clause(&format!("at {} past the minute", plural(second, "second"))),
        }
    }

    /// Several seconds of a minute.
    fn by_seconds(seconds: &ClockUnit, minutes: &ClockUnit, hours: &ClockUnit) -> Self {
        let (text, start) = match seconds.shape {
            Shape::All => ("Every second".to_owned(), String::new()),
            Shape::Even { first: 0, step } => (format!("Every {step} seconds"), String::new()),
            Shape::Even { first, step } => {
                let start = format!("starting {} past the minute", plural(first, "second"));
                (format!("Every {step} seconds"), start)
            }
            Shape::Other
                if seconds.is_halves() && minutes.shape == Shape::All && hours.goes_on() =>
            {
                ("Every 30 seconds".to_owned(), String::new())
            }
            Shape::Steps { .. } | Shape::Other => {
                return Self::past_minutes(&seconds.past("second"), minutes, hours);
            }
        };
        if minutes.shape == Shape::All && hours.shape == Shape::All {
            return Self::new(text, ClockReach::AllDay).with_clause(&start);
        }
        let first = seconds.values[0];
        if minutes.shape == Shape::All && hours.shape == Shape::Other {
            let spans = spans(hours, &format!(":00:{first:02}"), ":59:59");
            return Self::new(format!("{text} {spans}"), ClockReach::Spans);
        }
        let minute_runs = runs(&minutes.values);
        if let ([hour], [(from, to)]) = (&*hours.values, &*minute_runs) {
            let span = format!("from {hour:02}:{from:02}:{first:02} to {hour:02}:{to:02}:59");
            return Self::new(format!("{text} {span}"), ClockReach::Spans);
        }
        let (which, reach) = which_minutes(minutes, hours);
        let clock = Self::new(text, reach).with_clause(&start);
        let separator = if clock.has_clause { ", " } else { " " };
        Self { text: join(clock.text, separator, &which), reach, has_clause: which.contains(", ") }
    }

    /// Some seconds of several minutes; `past` is "At 0 and 30 seconds past".
    fn past_minutes(past: &str, minutes: &ClockUnit, hours: &ClockUnit) -> Self {
        if let ([minute], [hour]) = (&*minutes.values, &*hours.values) {
            return Self::new(format!("{past} {}", time(*hour, *minute, 0)), ClockReach::Times);
        }
        match (minutes.shape, hours.shape) {
            (Shape::All, Shape::All) => {
                Self::new(format!("{past} every minute"), ClockReach::AllDay)
            }
            (Shape::All, Shape::Other) => {
                let spans = spans(hours, ":00", ":59");
                Self::new(format!("{past} every minute {spans}"), ClockReach::Spans)
            }
            _ => {
                let (which, reach) = which_minutes(minutes, hours);
                let has_clause = which.contains(", ");
                Self { text: format!("{past} the minute, {which}"), reach, has_clause }
            }
        }
    }
}

/// The seconds, minutes or hours that match.
struct ClockUnit {
    values: Vec<u32>,
    shape: Shape,
}

/// What a set of values looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    All,
    /// At least three, at even distances also over the end: 5, 20, 35, 50.
    Even {
        first: u32,
        step: u32,
    },
    /// More than are listed, at even distances: 8, 10, 12, 14, 16.
    Steps {
        first: u32,
        last: u32,
        step: u32,
    },
    Other,
}

impl ClockUnit {
    fn of(bits: u64, len: u32) -> Self {
        let values = values(bits);
        let count = u32::try_from(values.len()).expect("at most 64");
        let (first, last) = (values[0], values[values.len() - 1]);
        let shape = match even_step(&values) {
            _ if count == len => Shape::All,
            Some(step) if count > 2 && count * step == len => Shape::Even { first, step },
            Some(step) if values.len() > LISTED_MAX => Shape::Steps { first, last, step },
            _ => Shape::Other,
        };
        Self { values, shape }
    }

    /// 0 and 30: a person calls that every 30 minutes where it goes on for hours, and lists it elsewhere.
    fn is_halves(&self) -> bool {
        *self.values == [0, 30]
    }

    /// Hours that follow each other: all of them, or spans of at least two.
    fn goes_on(&self) -> bool {
        let runs = runs_around(&self.values, 0, 23);
        self.shape == Shape::All || runs.iter().all(|run| hours_of(*run) > 1)
    }

    /// "At 5 and 35 minutes past", "Every minute from 0 to 29 past".
    fn past(&self, unit: &str) -> String {
        if let Shape::Steps { first, last, step } = self.shape {
            return format!("Every {step} {unit}s from {first} to {last} past");
        }
        let runs = runs(&self.values);
        if runs.iter().all(|(first, last)| last - first >= 2) {
            let spans = runs.iter().map(|(first, last)| format!("from {first} to {last}"));
            return format!("Every {unit} {} past", and(&spans.collect::<Vec<_>>()));
        }
        match *self.values {
            [only] => format!("At {} past", plural(only, unit)),
            _ => format!("At {} {unit}s past", and(&numbers(&self.values))),
        }
    }
}

/// "every hour", "every second hour, starting at 00:00", "every hour from 09:00 to 17:59".
fn each_hour(hours: &ClockUnit) -> (String, ClockReach) {
    match hours.shape {
        Shape::All => ("every hour".to_owned(), ClockReach::AllDay),
        Shape::Even { first, step } => {
            (format!("every {} hour, starting at {first:02}:00", nth(step)), ClockReach::AllDay)
        }
        Shape::Steps { first, last, step } => (
            format!("every {} hour from {first:02}:00 to {last:02}:59", nth(step)),
            ClockReach::Spans,
        ),
        Shape::Other => (format!("every hour {}", spans(hours, ":00", ":59")), ClockReach::Spans),
    }
}

/// "in every fifth minute", "in minutes 0 and 30 of every hour from 09:00 to 17:59".
fn which_minutes(minutes: &ClockUnit, hours: &ClockUnit) -> (String, ClockReach) {
    let (each, reach) = each_hour(hours);
    let which = match (minutes.shape, hours.shape) {
        (Shape::All, _) => return (format!("in {each}"), reach),
        (Shape::Even { first: 0, step }, Shape::All) => {
            return (format!("in every {} minute", nth(step)), reach);
        }
        (Shape::Even { first: 0, step }, _) => format!("in every {} minute", nth(step)),
        (Shape::Even { first, step }, _) => {
            format!("in every {} minute from {first} to {}", nth(step), first + 60 - step)
        }
        (Shape::Steps { first, last, step }, _) => {
            format!("in every {} minute from {first} to {last}", nth(step))
        }
        (Shape::Other, _) if minutes.values.len() == 1 => {
            format!("in minute {}", minutes.values[0])
        }
        (Shape::Other, _) => {
            let words = run_words(&runs(&minutes.values), |minute| minute.to_string());
            format!("in minutes {}", and(&words))
        }
    };
    (format!("{which} of {each}"), reach)
}

/// "from 09:00 to 17:59 and from 20:00 to 21:59".
fn spans(hours: &ClockUnit, from: &str, to: &str) -> String {
    let runs = runs_around(&hours.values, 0, 23);
    let spans = runs.iter().map(|(first, last)| format!("from {first:02}{from} to {last:02}{to}"));
    and(&spans.collect::<Vec<_>>())
}

fn hours_of((first, last): (u32, u32)) -> u32 {
    (last + 24 - first) % 24 + 1
}

/// "02:30", and "02:30:15" if there are seconds.
pub(in crate::schedule) fn time(hour: u32, minute: u32, second: u32) -> String {
    match second {
        0 => format!("{hour:02}:{minute:02}"),
        _ => format!("{hour:02}:{minute:02}:{second:02}"),
    }
}

fn plural(count: u32, unit: &str) -> String {
    match count {
        1 => format!("1 {unit}"),
        _ => format!("{count} {unit}s"),
    }
}

fn numbers(values: &[u32]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

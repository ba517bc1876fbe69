//! Reading patterns: the text of a cron pattern becomes bits.
//!
//! Two dialects share one grammar. `Open` is the Open Cron Pattern Specification 1.4 with additions:
//! ranges that go around the end (`22-2`), `L-3`, `H`, `@every`. `Quartz` is what Java's scheduler
//! reads: seconds first, weeks that begin with Sunday = 1, and `?` in one of the two day fields.
//!
//! This file cuts a text into fields and puts their sets together; what may stand in a field is in
//! `field`. Whatever is wrong is reported with its field, its character and what is allowed there. A
//! pattern may well name days that never come (`31 2`): whether it ever matches is not asked here.

mod error;
mod field;

use std::time::Duration;

use error::CronResult;
pub use error::{CronError, Field};
use field::{FieldForm, FieldReader, FieldSet};

use super::{Cron, CronPace, Days, PatternKind, Rare};
use crate::length::{self, brief};
use crate::limits::{CRON_BYTES_MAX, EVERY_MAX, EVERY_MIN};

/// How a pattern is meant to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// The Open Cron Pattern Specification 1.4 and our additions; Sunday is 0 and 7.
    #[default]
    Open,
    /// Six or seven fields, Sunday is 1, and one of the two day fields is `?`.
    Quartz,
}

/// What a text turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// A pattern of the calendar.
    Pattern(Cron),
    /// An interval (`@every 90s`), which no calendar pattern can say.
    Every(Duration),
}

impl Cron {
    /// Reads a pattern. `name` is its trigger's name, from which `H` takes its values.
    pub fn parse(text: &str, dialect: Dialect, name: &str) -> Result<Parsed, CronError> {
        // What a file or a block of YAML leaves at the end.
        let text = text.trim_end_matches(['\r', '\n']);
        if text.len() > CRON_BYTES_MAX {
            return Err(too_long(text));
        }
        let cut = PatternCut::of(text);
        if cut.len > 0 && text.as_bytes()[cut.fields[0].0] == b'@' {
            return parse_word(text, &cut, dialect, name);
        }
        parse_fields(text, &cut, dialect, name).map(Parsed::Pattern)
    }
}

/// A text cut at its spaces and tabs.
struct PatternCut {
    /// First byte and the one after the last, of the first seven fields.
    fields: [(usize, usize); 7],
    /// All fields, also those beyond the seventh.
    len: usize,
    /// Where the eighth field begins, or else where the last one ends.
    end: usize,
}

impl PatternCut {
    fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut cut = Self { fields: [(0, 0); 7], len: 0, end: 0 };
        let mut at = 0;
        loop {
            at += bytes[at..].iter().take_while(|byte| is_blank(**byte)).count();
            if at == bytes.len() {
                return cut;
            }
            let start = at;
            at += bytes[at..].iter().take_while(|byte| !is_blank(**byte)).count();
            match cut.len {
                0..7 => (cut.fields[cut.len], cut.end) = ((start, at), at),
                7 => cut.end = start,
                _ => {}
            }
            cut.len += 1;
        }
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn parse_fields(text: &str, cut: &PatternCut, dialect: Dialect, name: &str) -> CronResult<Cron> {
    let (with_second, with_year) = match (dialect, cut.len) {
        (Dialect::Open, 5) => (false, false),
        (Dialect::Open | Dialect::Quartz, 6) => (true, false),
        (Dialect::Open | Dialect::Quartz, 7) => (true, true),
        (Dialect::Open | Dialect::Quartz, _) => return Err(wrong_count(text, cut, dialect)),
    };
    let mut rest = cut.fields.iter();
    let mut rare = Rare::default();
    let mut read = |field| {
        let bounds = rest.next().expect("the fields were counted");
        FieldReader::new(text, *bounds, field, dialect, name).read(&mut rare)
    };
    let second = if with_second { read(Field::Second)? } else { FieldSet::single(0) };
    let minute = read(Field::Minute)?;
    let hour = read(Field::Hour)?;
    let day = read(Field::Day)?;
    let month = read(Field::Month)?;
    let weekday = read(Field::Weekday)?;
    if with_year {
        read(Field::Year)?;
    }
    let questions = [day.form, weekday.form].map(|form| form == FieldForm::Question);
    if dialect == Dialect::Quartz && questions[0] == questions[1] {
        return Err(question_marks(text, cut.fields[5].0, questions[0]));
    }
    let interval = second.interval || minute.interval || hour.interval;
    let pace = if interval { CronPace::Interval } else { CronPace::Fixed };
    Ok(Cron {
        seconds: second.bits,
        minutes: minute.bits,
        rare: (rare != Rare::default()).then(|| Box::new(rare)),
        hours: u32::try_from(hour.bits).expect("hours end at 23"),
        days: u32::try_from(day.bits).expect("days end at 31"),
        months: u16::try_from(month.bits).expect("months end at 12"),
        weekdays: u8::try_from(weekday.bits).expect("weekdays end at 6"),
        kind: PatternKind { days: which_days(day.form, weekday.form), pace },
    })
}

fn which_days(day: FieldForm, weekday: FieldForm) -> Days {
    if weekday.is_wild() {
        Days::OfMonth
    } else if day.is_wild() {
        Days::OfWeek
    } else if weekday == FieldForm::PlusList {
        Days::Both
    } else {
        Days::Either
    }
}

/// Reads a text that begins with `@`.
fn parse_word(text: &str, cut: &PatternCut, dialect: Dialect, name: &str) -> CronResult<Parsed> {
    let (start, end) = cut.fields[0];
    let word = &text[start..end];
    let wrong =
        |at, wrong: String, allowed: &str| Err(CronError::new(text, at, None, wrong, allowed));
    if dialect == Dialect::Quartz {
        let allowed = "quartz takes six or seven fields";
        return wrong(start, format!("`{}` is not a pattern of quartz", brief(word)), allowed);
    }
    let is = |known: &str| word.eq_ignore_ascii_case(known);
    if is("@every") {
        return parse_every(text, cut).map(Parsed::Every);
    }
    if is("@reboot") {
        let reason = "`@reboot` names an event, not a time, and a scheduler that restarts would run it again";
        let instead = "use a trigger without a schedule and run it when the machine starts";
        return wrong(start, reason.to_owned(), instead);
    }
    let Some((_, pattern)) = WORDS.iter().find(|(known, _)| is(known)) else {
        let allowed = "`@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`, `@hourly` \
                       and `@every` are allowed";
        return wrong(start, format!("`{}` is not known", brief(word)), allowed);
    };
    if cut.len > 1 {
        return wrong(
            cut.fields[1].0,
            "there is more text".to_owned(),
            &format!("`{word}` stands alone"),
        );
    }
    parse_fields(pattern, &PatternCut::of(pattern), dialect, name).map(Parsed::Pattern)
}

const WORDS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Reads the interval after `@every`: numbers with units, larger units first.
fn parse_every(text: &str, cut: &PatternCut) -> CronResult<Duration> {
    const ALLOWED: &str = "an interval like `90s`, `1h30m` or `2d` is allowed";
    const LIMITS: &str = "1s to 366d are allowed";
    let wrong = |at, wrong: &str, allowed| Err(CronError::new(text, at, None, wrong, allowed));
    if cut.len == 1 {
        return wrong(cut.end, "the interval is missing", ALLOWED);
    }
    if cut.len > 2 {
        return wrong(
            cut.fields[2].0,
            "there is more text",
            "the interval has no spaces, as in `1h30m`",
        );
    }
    let (start, end) = cut.fields[1];
    let read = length::read(&text[start..end]);
    let interval =
        read.map_err(|why| CronError::new(text, start + why.at, None, why.wrong, why.allowed))?;
    match interval {
        short if short < EVERY_MIN => wrong(start, "the interval is too short", LIMITS),
        long if long > EVERY_MAX => wrong(start, "the interval is too long", LIMITS),
        every => Ok(every),
    }
}

fn too_long(text: &str) -> CronError {
    let wrong = format!("the pattern has {} bytes", text.len());
    let allowed = format!("up to {CRON_BYTES_MAX} are allowed");
    let mut end = CRON_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    CronError::new(text, end, None, wrong, allowed)
}

fn wrong_count(text: &str, cut: &PatternCut, dialect: Dialect) -> CronError {
    let wrong = match cut.len {
        0 => "no field was found".to_owned(),
        1 => "1 field was found".to_owned(),
        len => format!("{len} fields were found"),
    };
    let allowed = match dialect {
        Dialect::Open => {
            "5 (minute, hour, day of month, month, day of week), 6 (with second first) or 7 (with second \
             first and year last) are allowed"
        }
        Dialect::Quartz => {
            "quartz takes 6 (second, minute, hour, day of month, month, day of week) or 7 (with year last)"
        }
    };
    CronError::new(text, cut.end, None, wrong, allowed)
}

fn question_marks(text: &str, at: usize, both: bool) -> CronError {
    let wrong = if both { "both day fields are `?`" } else { "neither day field is `?`" };
    let allowed = "in quartz exactly one of day of month and day of week is `?`";
    CronError::new(text, at, Some(Field::Weekday), wrong, allowed)
}

#[cfg(test)]
mod tests;

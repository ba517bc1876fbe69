//! `watchbell cron`: when a pattern comes, and what it means.

use std::io::{self, Write};
use std::time::Duration;

use engine::instant::Instant;
use engine::schedule::civil::{DAY, Date, Second};
use engine::schedule::cron::{Cron, CronError, Parsed};
use engine::schedule::every::Every;
use engine::schedule::local::{Fold, Gap, Local};
use engine::schedule::zone::{Zone, ZoneId};
use engine::schedule::{Schedule, ScheduleError, SchedulePlan, Spec};
use store::machine::{Machine, System};

use crate::args::{ExplainArgs, NextArgs, OutputFormat, PatternArgs};
use crate::exit::{Ending, say};

/// Shows the next slots.
pub(crate) fn next(typed: &NextArgs) -> Result<(), Ending> {
    let from = match &typed.from {
        Some(text) => text.parse().map_err(|why| wrong("--from", &why))?,
        None => now(),
    };
    let (zone, spec) = read(&typed.pattern)?;
    // From this instant on, and with it.
    let before = Instant(from.0 - 1);
    let schedule =
        Schedule::new(SchedulePlan::of(spec), before).map_err(|why| never(from, &why))?;
    let slots: Vec<Instant> =
        std::iter::successors(schedule.next(before), |slot| schedule.next(*slot))
            .take(typed.count.into())
            .collect();
    let mut out = io::stdout().lock();
    match typed.output {
        OutputFormat::Json => {
            let texts: Vec<String> = slots.iter().map(ToString::to_string).collect();
            writeln!(out, "{}", serde_json::json!(texts))?;
        }
        OutputFormat::Table => {
            writeln!(out, "{:<26} {zone} (tzdata {})", "UTC", Zone::version())?;
            for slot in slots {
                writeln!(out, "{:<26} {}", slot.to_string(), local_text(slot, zone))?;
            }
        }
    }
    Ok(())
}

/// Says what a pattern means.
pub(crate) fn explain(typed: &ExplainArgs) -> Result<(), Ending> {
    let (zone, spec) = read(&typed.pattern)?;
    let now = now();
    let sentences = match &spec {
        Spec::Cron(local) => local.explain(now.second()),
        Spec::Every(every) => vec![explain_interval(every, &typed.pattern.name, now)],
        Spec::At(_) => Vec::new(),
    };
    let schedule = Schedule::new(SchedulePlan::of(spec), now);
    let mut out = io::stdout().lock();
    match typed.output {
        OutputFormat::Json => {
            let next = schedule.as_ref().ok().and_then(|schedule| schedule.next(now));
            let explained = serde_json::json!({
                "pattern": typed.pattern.pattern,
                "tz": zone.to_string(),
                "sentences": sentences,
                "next": next.map(|slot| slot.to_string()),
            });
            writeln!(out, "{explained}")?;
        }
        OutputFormat::Table => {
            for sentence in sentences {
                writeln!(out, "{sentence}")?;
            }
        }
    }
    schedule.map(drop).map_err(|why| never(now, &why))
}

/// "Every 1 minute 30 seconds, however clocks are set. …".
fn explain_interval(every: &Every, name: &str, now: Instant) -> String {
    let interval = spell(every.interval());
    let begin = match (name, every.next(now)) {
        ("", _) | (_, None) => "When it begins comes from the trigger's name.".to_owned(),
        (name, Some(next)) => format!("For a trigger named {name:?} it comes next at {next}."),
    };
    format!("Every {interval}, however clocks are set. {begin}")
}

/// A pattern has no end and no calendar: if it does not come, no date fits.
fn never(from: Instant, why: &ScheduleError) -> Ending {
    match why {
        ScheduleError::Never { .. } => {
            Ending::wrong_input(format!("the pattern never comes: no date from {from} on fits"))
        }
        other => wrong("the pattern", other),
    }
}

fn read(typed: &PatternArgs) -> Result<(ZoneId, Spec), Ending> {
    let zone = ZoneId::get(&typed.zone).map_err(|why| wrong("--tz", &why))?;
    warn_of_name(typed);
    let parsed = Cron::parse(&typed.pattern, typed.dialect.into(), &typed.name)
        .map_err(|why| Ending::wrong_input(pointed(&typed.pattern, &why)))?;
    let spec = match parsed {
        Parsed::Pattern(cron) => Spec::Cron(Local::new(cron, zone, Gap::Usual, Fold::Usual)),
        Parsed::Every(interval) => Spec::Every(
            Every::of_name(interval, &typed.name).map_err(|why| wrong("the pattern", &why))?,
        ),
    };
    Ok((zone, spec))
}

/// What depends on a name is not known without one.
fn warn_of_name(typed: &PatternArgs) {
    let pattern = &typed.pattern;
    let is_spread = pattern.starts_with("@every")
        || pattern
            .split([' ', '\t', ','])
            .any(|part| part == "H" || part.starts_with("H(") || part.starts_with("H/"));
    if is_spread && typed.name.is_empty() {
        say(
            "H and @every take their place from the trigger's name: give --name to see when that one comes",
        );
    }
}

fn wrong(what: &str, why: &dyn std::fmt::Display) -> Ending {
    Ending::wrong_input(format!("{what}: {why}"))
}

/// What is wrong with a pattern, with a mark below the place.
fn pointed(pattern: &str, why: &CronError) -> String {
    if pattern.chars().any(char::is_control) || pattern.len() > 100 {
        return why.to_string();
    }
    format!("{why}\n  {pattern}\n  {:>1$}", "^", why.position() + 1)
}

pub(crate) fn now() -> Instant {
    Instant(i64::try_from(System.wall_us() / 1_000).unwrap_or(i64::MAX))
}

/// What clocks in a zone show: date, time, and how far they are ahead of UTC.
fn local_text(slot: Instant, zone: ZoneId) -> String {
    let offset = zone.zone().span_at(slot.second()).offset;
    let civil = slot.second() + offset;
    let sign = if offset < 0 { '-' } else { '+' };
    let (hours, minutes) = (offset.abs() / 3_600, offset.abs() / 60 % 60);
    format!("{} {} {sign}{hours:02}:{minutes:02}", date_text(civil), time_text(civil))
}

fn date_text(civil: Second) -> String {
    let date = Date::of(civil.div_euclid(DAY));
    format!("{:04}-{:02}-{:02}", date.year, date.month, date.day)
}

fn time_text(civil: Second) -> String {
    let time = civil.rem_euclid(DAY);
    format!("{:02}:{:02}:{:02}", time / 3_600, time / 60 % 60, time % 60)
}

/// A length of time in words.
fn spell(length: Duration) -> String {
    let mut left = length.as_secs();
    let mut words = Vec::new();
    for (unit, seconds) in [("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)] {
        let count = left / seconds;
        left %= seconds;
        if count > 0 {
            words.push(format!("{count} {unit}{}", if count == 1 { "" } else { "s" }));
        }
    }
    if words.is_empty() {
        return "0 seconds".to_owned();
    }
    words.join(" ")
}

//! `watchbell cron`: when a pattern comes, and what it means.

use std::io::{self, Write};
use std::time::Duration;

use engine::instant::Instant;
use engine::schedule::civil::{DAY, Date, Second};
use engine::schedule::cron::{Cron, CronError, Parsed};
use engine::schedule::every::Every;
use engine::schedule::local::{Fold, Gap, Local};
use engine::schedule::zone::{Change, Zone, ZoneId};
use engine::schedule::{Plan, Schedule, Spec};
use store::machine::{Machine, System};

use crate::args::{ExplainArgs, NextArgs, Output, PatternArgs};
use crate::exit::Ending;

/// Shows the next slots.
pub(crate) fn next(typed: &NextArgs) -> Result<(), Ending> {
    let from = match &typed.from {
        Some(text) => text.parse().map_err(|why| wrong("--from", &why))?,
        None => now(),
    };
    let (zone, spec) = read(&typed.pattern)?;
    let schedule = Schedule::new(Plan::of(spec), from).map_err(|why| wrong("the pattern", &why))?;
    let slots: Vec<Instant> =
        std::iter::successors(schedule.next(from), |slot| schedule.next(*slot))
            .take(typed.count.into())
            .collect();
    let mut out = io::stdout().lock();
    match typed.output {
        Output::Json => {
            let texts: Vec<String> = slots.iter().map(ToString::to_string).collect();
            writeln!(out, "{}", serde_json::json!(texts))?;
        }
        Output::Table => {
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
    let mut out = io::stdout().lock();
    match &spec {
        Spec::Cron(local) => {
            writeln!(out, "{}.", local.cron().explain())?;
            for sentence in clocks(local, now().second()) {
                writeln!(out, "{sentence}")?;
            }
        }
        Spec::Every(every) => writeln!(
            out,
            "Every {}, counted from 1970: clocks that are set in {zone} make no difference.",
            spell(every.interval())
        )?,
        Spec::At(_) => {}
    }
    match Schedule::new(Plan::of(spec), now()) {
        Ok(_) => Ok(()),
        Err(why) => Err(wrong("the pattern", &why)),
    }
}

fn read(typed: &PatternArgs) -> Result<(ZoneId, Spec), Ending> {
    let zone = ZoneId::get(&typed.zone).map_err(|why| wrong("--tz", &why))?;
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

fn now() -> Instant {
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

/// What happens to a pattern when clocks are set next, each way.
fn clocks(local: &Local, now: i64) -> Vec<String> {
    let zone = local.zone();
    let Some(first) = zone.zone().next_change(now) else {
        return vec![format!("Clocks in {zone} are not set.")];
    };
    let second = zone.zone().next_change(first.at);
    [Some(first), second].into_iter().flatten().map(|change| clock(local, &change)).collect()
}

fn clock(local: &Local, change: &Change) -> String {
    let (from, to) = (time_text(change.before), time_text(change.after));
    let dates = (date_text(change.before), date_text(change.after));
    let is_gap = change.before < change.after;
    let way = if is_gap { "forward" } else { "back" };
    // Around midnight the two moments are on different days, and one date would be wrong for one of them.
    let when = match &dates {
        (before, after) if before == after => format!("from {from} to {to} on {before}"),
        (before, after) => format!("from {from} on {before} to {to} on {after}"),
    };
    let set = format!("In {}, clocks are set {way} {when}", local.zone());
    let then = match (local.is_touched_by(change), is_gap) {
        (false, _) => "this pattern has nothing between.".to_owned(),
        (true, true) => match local.gap() {
            Gap::Fire => format!("what falls between fires once, at {to}."),
            Gap::Skip | Gap::Usual => "what falls between is left out.".to_owned(),
        },
        (true, false) => match local.fold() {
            Fold::First => "what comes twice fires the first time only.".to_owned(),
            Fold::Second => "what comes twice fires the second time only.".to_owned(),
            Fold::Both | Fold::Usual => "what comes twice fires both times.".to_owned(),
        },
    };
    format!("{set}: {then}")
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
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use engine::schedule::cron::Dialect;

    use super::*;

    fn explained(zone: &str, from: &str) -> Vec<String> {
        let Ok(Parsed::Pattern(cron)) = Cron::parse("0 0 * * *", Dialect::Open, "") else {
            panic!("a pattern");
        };
        let local = Local::new(cron, ZoneId::get(zone).unwrap(), Gap::Usual, Fold::Usual);
        clocks(&local, from.parse::<Instant>().unwrap().second())
    }

    #[test]
    fn clocks_that_are_set_at_midnight_are_set_on_the_day_they_show() {
        // In Cairo on Friday, 24 April 2026, when Thursday ends, and on Thursday, 29 October, when it ends.
        assert_eq!(
            explained("Africa/Cairo", "2026-01-01T00:00:00Z"),
            [
                "In Africa/Cairo, clocks are set forward from 00:00:00 to 01:00:00 on 2026-04-24: \
                 what falls between fires once, at 01:00:00.",
                "In Africa/Cairo, clocks are set back from 00:00:00 on 2026-10-30 to 23:00:00 on \
                 2026-10-29: this pattern has nothing between.",
            ]
        );
        // Samoa had no 30 December 2011.
        assert_eq!(
            explained("Pacific/Apia", "2011-12-01T00:00:00Z")[0],
            "In Pacific/Apia, clocks are set forward from 00:00:00 on 2011-12-30 to 00:00:00 on \
             2011-12-31: what falls between fires once, at 00:00:00."
        );
    }
}

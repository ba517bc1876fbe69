//! Ticks as a test plants them, and a judge that hears them. All times are in milliseconds.

use std::time::Duration;

use witness::{Happening, Judge, JudgeSettings, Made, Now, Report, Tick};

/// Nobody acts for longer than this: that is a gap.
pub(super) const GAP: Duration = Duration::from_secs(1);

/// When the judge begins, since the start of its machine.
const BEGINNING: Duration = Duration::from_secs(1_000);

/// So many milliseconds after the judge began.
pub(super) fn at(ms: u64) -> Now {
    let wall = format!("2026-11-19T00:00:{:02}.{:03}Z", ms / 1_000 % 60, ms % 1_000);
    let since_boot = BEGINNING + Duration::from_millis(ms);
    Now { since_boot, wall: wall.parse().expect("an instant") }
}

/// A tick of a hold named `reports`, made at so many milliseconds by the clock of the machine `here`.
pub(super) fn tick(instance: &str, token: u64, sequence: u64, ms: u64) -> Tick {
    let made = BEGINNING + Duration::from_millis(ms);
    let since_boot_us = u64::try_from(made.as_micros()).expect("not that late");
    Tick {
        hold: "reports".to_owned(),
        node: format!("node-{}", &instance[..1]),
        instance: instance.to_owned(),
        token,
        sequence,
        made: Some(Made { boot: "here".to_owned(), since_boot_us }),
        wall: None,
    }
}

/// The same from another machine.
pub(super) fn from(machine: &str, mut tick: Tick) -> Tick {
    machine.clone_into(&mut tick.made.as_mut().expect("it tells the time").boot);
    tick
}

pub(super) fn judge() -> Judge {
    Judge::new(JudgeSettings { gap: GAP, boot: Some("here".to_owned()) }, at(0))
}

/// What a judge says of ticks, each of which arrives at so many milliseconds.
pub(super) fn judged(ticks: &[(u64, Tick)]) -> (Report, Vec<Happening>) {
    let mut judge = judge();
    let heard = ticks.iter().flat_map(|(ms, tick)| judge.hear(tick, at(*ms))).collect();
    let end = ticks.iter().map(|(ms, _)| *ms).max().unwrap_or_default();
    (judge.report(at(end)), heard)
}

/// The same where each arrives when it is made.
pub(super) fn judged_at_once(ticks: &[(&str, u64, u64, u64)]) -> (Report, Vec<Happening>) {
    let tick = |(instance, token, sequence, ms): &(&str, u64, u64, u64)| {
        (*ms, tick(instance, *token, *sequence, *ms))
    };
    judged(&ticks.iter().map(tick).collect::<Vec<_>>())
}

pub(super) fn ms(length: Duration) -> u128 {
    length.as_millis()
}

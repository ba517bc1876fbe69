//! `watchbell trigger backfill`: slots of the past, run again at a pace that the receiver bears.
//!
//! The slots are computed here as the server computes them, and asked for in small windows, one after the other.
//! All windows are one request by its name, so a backfill that was cut short goes on where it stopped.

use std::fmt::Write;
use std::time::Duration;

use client::trigger::{BackfillRequest, Trigger};
use client::{Client, Timestamp};
use engine::instant::Instant;
use engine::length;
use engine::limits::{BACKFILL_COMMAND_SLOTS_MAX, BACKFILL_UNASKED_MAX};
use store::machine::{Machine, System};

use crate::apply::file;
use crate::args::apply::{BackfillArgs, Rate};
use crate::cron::now;
use crate::exit::{Ending, say};
use crate::progress::Progress;
use crate::table::grouped;
use crate::trigger::print;
use crate::value::escape;

/// How often a window is asked for, if the rate allows more than one slot in this time.
const BEAT: Duration = Duration::from_millis(100);

pub(crate) async fn backfill(typed: BackfillArgs) -> Result<(), Ending> {
    let (from, to) = (typed.from, typed.to);
    if from >= to {
        return Err(Ending::wrong_input("--from: it must lie before --to"));
    }
    if to.as_millisecond() > now().0 {
        return Err(Ending::wrong_input(
            "--to: it lies in the future, and what comes is fired anyway",
        ));
    }
    let client = typed.server.client()?;
    let trigger = client.trigger(&typed.name).await?;
    let slots = slots(&trigger, from, to)?;
    if typed.dry_run {
        return print(typed.server.output, &slots, || list(&trigger.name, &slots));
    }
    let name = escape(&trigger.name);
    if slots.len() > BACKFILL_UNASKED_MAX {
        let question = format!("Run {} slots of {name} again?", grouped(slots.len()));
        typed.consent.ask(&question, "nothing was started")?;
    }
    let made_up = || format!("backfill-{:016x}", System.random());
    let request = typed.request.clone().unwrap_or_else(made_up);
    let windows = windows(from, to, &slots, typed.rate);
    if slots.len() > BACKFILL_UNASKED_MAX {
        let (count, per) = (typed.rate.count, length::text(typed.rate.per));
        let slots = grouped(slots.len());
        say(&format!("{slots} slots of {name}, {count} in {per}; Ctrl-C stops it"));
    }
    let sent = send(&client, &trigger.id, &request, &windows, typed.rate).await;
    let started = sent.map_err(|why| {
        why.and(Some(format!(
            "go on with what is missing by the same command and --request {request}"
        )))
    })?;
    let answer = serde_json::json!({"request": request, "slots": slots.len(), "started": started});
    print(typed.server.output, &answer, || {
        format!(
            "{} of {} slots of {name} were started. Look at them: watchbell run list --trigger {name}\n",
            grouped(started),
            grouped(slots.len())
        )
    })
}

/// The slots from `from` on and before `to`.
fn slots(trigger: &Trigger, from: Timestamp, to: Timestamp) -> Result<Vec<Timestamp>, Ending> {
    let built = file::draft(&trigger.spec).and_then(|draft| draft.build(Instant(0)).ok());
    let Some(definition) = built else {
        return Err(Ending::failed("the trigger is one that this version does not understand"));
    };
    let schedule = definition.schedule;
    if schedule.specs().is_empty() {
        return Err(Ending::wrong_input(
            "the trigger has no schedule, and so no slots: watchbell trigger run starts it",
        ));
    }
    let before = Instant(from.as_millisecond() - 1);
    let all = std::iter::successors(schedule.next(before), |slot| schedule.next(*slot));
    let all =
        all.take_while(|slot| slot.0 < to.as_millisecond()).take(BACKFILL_COMMAND_SLOTS_MAX + 1);
    let slots: Vec<Timestamp> =
        all.filter_map(|slot| Timestamp::from_millisecond(slot.0).ok()).collect();
    if slots.len() > BACKFILL_COMMAND_SLOTS_MAX {
        return Err(Ending::wrong_input(format!(
            "at most {} slots are run again at a time: the next ones begin at {}",
            grouped(BACKFILL_COMMAND_SLOTS_MAX),
            slots[BACKFILL_COMMAND_SLOTS_MAX]
        )));
    }
    Ok(slots)
}

fn list(name: &str, slots: &[Timestamp]) -> String {
    let mut text = String::new();
    for slot in slots {
        let _ = writeln!(text, "{slot}");
    }
    let _ = writeln!(
        text,
        "{} slots of {} would be run again. Nothing was sent.",
        grouped(slots.len()),
        escape(name)
    );
    text
}

/// How many slots are started at a time.
fn beat_len(rate: Rate) -> usize {
    let beats = rate.per.as_millis() / BEAT.as_millis();
    usize::try_from(u128::from(rate.count) / beats).unwrap_or(1).max(1)
}

/// Windows that follow each other without a gap, each with as many slots as are started at a time.
fn windows(
    from: Timestamp,
    to: Timestamp,
    slots: &[Timestamp],
    rate: Rate,
) -> Vec<(Timestamp, Timestamp)> {
    let len = beat_len(rate);
    let firsts: Vec<Timestamp> = slots.iter().copied().step_by(len).skip(1).collect();
    let begins = std::iter::once(from).chain(firsts.iter().copied());
    let ends = firsts.iter().copied().chain([to]);
    begins.zip(ends).collect()
}

async fn send(
    client: &Client,
    id: &str,
    request: &str,
    windows: &[(Timestamp, Timestamp)],
    rate: Rate,
) -> Result<u64, Ending> {
    let progress = Progress::on_stderr();
    let pause = rate.per * u32::try_from(beat_len(rate)).unwrap_or(1) / rate.count;
    let mut started = 0;
    for (number, (from, to)) in (1..).zip(windows) {
        let asked = BackfillRequest { request: Some(request.to_owned()), from: *from, to: *to };
        let answer = client.backfill(id, &asked).await?;
        started += answer.started;
        progress.show(format_args!("{started} started, up to {to} ({request})"));
        // What was started before needs no pace.
        if answer.started > 0 && number < windows.len() {
            System.sleep(pause).await;
        }
    }
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn windows_follow_each_other_without_a_gap() {
        let slots: Vec<Timestamp> = (1..=5).map(|number| at(10 * number)).collect();
        let slow = Rate { count: 10, per: Duration::from_secs(1) };
        let expected = [(0, 20), (20, 30), (30, 40), (40, 50), (50, 100)];
        assert_eq!(windows(at(0), at(100), &slots, slow), expected.map(|(a, b)| (at(a), at(b))));
        let fast = Rate { count: 30, per: Duration::from_secs(1) };
        let expected = [(0, 40), (40, 100)];
        assert_eq!(windows(at(0), at(100), &slots, fast), expected.map(|(a, b)| (at(a), at(b))));
        assert_eq!(windows(at(0), at(100), &[], slow), [(at(0), at(100))]);
    }

    #[test]
    fn a_fast_rate_has_larger_beats_and_a_slow_one_longer_pauses() {
        let per = Duration::from_secs(1);
        assert_eq!(beat_len(Rate { count: 1_000, per }), 100);
        assert_eq!(beat_len(Rate { count: 10, per }), 1);
        assert_eq!(beat_len(Rate { count: 1, per: Duration::from_secs(3_600) }), 1);
    }
}

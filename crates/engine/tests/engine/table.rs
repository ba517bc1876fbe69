//! When schedules fire, worked out by hand: every row with its reason, and with what `cron explain` says.
//!
//! Offsets and transitions are those of the time zone database; days of the week follow from 2026-01-01
//! having been a Thursday. A sentence is what a person would write who knows what the pattern means: write
//! it before you look at what is said. `cron/explain/tests.rs` has many more.

#[path = "table/date.rs"]
mod date;
#[path = "table/fold.rs"]
mod fold;
#[path = "table/gap.rs"]
mod gap;

use engine::instant::Instant;
use engine::schedule::cron::{Cron, Dialect, Parsed};
use engine::schedule::local::{Fold, Gap, Local};
use engine::schedule::zone::ZoneId;
use engine::schedule::{Schedule, ScheduleError, SchedulePlan, Spec};

const UTC: &str = "UTC";
const BERLIN: &str = "Europe/Berlin";
const NEW_YORK: &str = "America/New_York";
const LORD_HOWE: &str = "Australia/Lord_Howe";
const CASABLANCA: &str = "Africa/Casablanca";
const CAIRO: &str = "Africa/Cairo";
const SANTIAGO: &str = "America/Santiago";
const APIA: &str = "Pacific/Apia";

const USUAL: (Gap, Fold) = (Gap::Usual, Fold::Usual);

/// A pattern in a zone, and what it does.
struct Row {
    pattern: &'static str,
    zone: &'static str,
    set: (Gap, Fold),
    from: &'static str,
    /// The slots after `from`, as many as are looked at.
    slots: &'static [&'static str],
    reason: &'static str,
    /// How it reads, asked at `from`: when it comes, and what clocks do to it.
    says: &'static [&'static str],
}

impl Row {
    fn check(&self) {
        let Self { pattern, zone, reason, .. } = self;
        let local = local(pattern, zone, self.set);
        let from = at(self.from).second();
        let slots: Vec<_> = walk(&local, from).take(self.slots.len()).collect();
        assert_eq!(texts(&slots), self.slots, "{pattern} in {zone}: {reason}");
        // What is computed agrees with what was walked.
        let last = *slots.last().expect("something is expected");
        assert_eq!(local.count(from, last), slots.len() as u64, "count of {pattern} in {zone}");
        for (skip, slot) in (0..).zip(&slots) {
            assert_eq!(local.nth(from, last, skip), Some(*slot), "slot {skip} of {pattern}");
        }
        assert_eq!(local.explain(from), self.says, "{pattern} in {zone}");
    }
}

fn local(pattern: &str, zone: &str, (gap, fold): (Gap, Fold)) -> Local {
    match Cron::parse(pattern, Dialect::Open, "") {
        Ok(Parsed::Pattern(cron)) => Local::new(cron, ZoneId::get(zone).unwrap(), gap, fold),
        other => panic!("{pattern}: {other:?}"),
    }
}

fn at(text: &str) -> Instant {
    text.parse().unwrap_or_else(|why| panic!("{why}"))
}

fn walk(local: &Local, from: i64) -> impl Iterator<Item = i64> {
    std::iter::successors(local.next(from), |slot| local.next(*slot))
}

fn texts(slots: &[i64]) -> Vec<String> {
    slots.iter().map(|slot| Instant::from_second(*slot).to_string()).collect()
}

#[test]
fn gaps() {
    gap::GAPS.iter().for_each(Row::check);
}

#[test]
fn folds() {
    fold::FOLDS.iter().for_each(Row::check);
}

#[test]
fn dates() {
    date::DATES.iter().for_each(Row::check);
}

#[test]
fn years_run_out() {
    let row = Row {
        pattern: "0 0 0 1 1 ? 2027,2030",
        zone: UTC,
        set: USUAL,
        from: "2026-01-01T00:00:00Z",
        slots: &["2027-01-01T00:00:00Z", "2030-01-01T00:00:00Z"],
        reason: "there are no other years",
        says: &["At 00:00 on 1 January in 2027 and 2030."],
    };
    row.check();
    let local = local(row.pattern, row.zone, row.set);
    assert_eq!(walk(&local, at(row.from).second()).count(), row.slots.len());
}

/// A pattern that does not come any more, and how it reads all the same.
struct Never {
    pattern: &'static str,
    zone: &'static str,
    set: (Gap, Fold),
    reason: &'static str,
    says: &'static [&'static str],
}

const NEVER: &[Never] = &[
    Never {
        pattern: "0 0 30 2 *",
        zone: UTC,
        set: USUAL,
        reason: "February has no 30th",
        says: &["At 00:00 on 30 February."],
    },
    Never {
        pattern: "0 0 31 4,6,9,11 *",
        zone: UTC,
        set: USUAL,
        reason: "none of these months has a 31st",
        says: &["At 00:00 on the 31st of April, June, September and November."],
    },
    Never {
        pattern: "0 0 0 29 2 ? 2100",
        zone: UTC,
        set: USUAL,
        reason: "2100 is no leap year",
        says: &["At 00:00 on 29 February 2100."],
    },
    Never {
        pattern: "0 0 0 1 1 ? 2020",
        zone: UTC,
        set: USUAL,
        reason: "2020 is over",
        says: &["At 00:00 on 1 January 2020."],
    },
    Never {
        pattern: "0 0 1 * +MON#2",
        zone: UTC,
        set: USUAL,
        reason: "the second Monday is never the 1st",
        says: &["At 00:00 on the 1st, if it is the second Monday of the month."],
    },
    Never {
        pattern: "0 30 2 28 3 ? 2027",
        zone: BERLIN,
        set: (Gap::Skip, Fold::Usual),
        reason: "its only time does not come",
        says: &[
            "At 02:30 on 28 March 2027.",
            "On 28 March 2027 clocks in Europe/Berlin go forward from 02:00 to 03:00: 02:30 does not come, and is left out.",
            "On 31 October 2027 clocks in Europe/Berlin go back from 03:00 to 02:00, which makes no difference to it.",
        ],
    },
];

#[test]
fn what_never_fires_is_refused_when_it_is_made() {
    let now = at("2026-11-16T00:00:00Z");
    for Never { pattern, zone, set, reason, says } in NEVER {
        let local = local(pattern, zone, *set);
        assert_eq!(local.explain(now.second()), *says, "{pattern} in {zone}");
        let refusal = Schedule::new(SchedulePlan::of(Spec::Cron(local)), now).unwrap_err();
        assert_eq!(refusal, ScheduleError::Never { after: now }, "{pattern}: {reason}");
        assert_eq!(
            refusal.to_string(),
            "it never fires after 2026-11-16T00:00:00Z: check its dates, its years, its end and its quiet windows"
        );
    }
}

#[test]
fn the_only_time_of_a_pattern_fires_after_the_gap_that_swallows_it() {
    let row = Row {
        pattern: "0 30 2 28 3 ? 2027",
        zone: BERLIN,
        set: USUAL,
        from: "2026-11-16T00:00:00Z",
        slots: &["2027-03-28T01:00:00Z"],
        reason: "clocks go from 02:00 to 03:00, at 01:00 UTC",
        says: &[
            "At 02:30 on 28 March 2027.",
            "On 28 March 2027 clocks in Europe/Berlin go forward from 02:00 to 03:00: 02:30 does not come, and it fires at 03:00 instead.",
            "On 31 October 2027 clocks in Europe/Berlin go back from 03:00 to 02:00, which makes no difference to it.",
        ],
    };
    row.check();
    let spec = Spec::Cron(local(row.pattern, row.zone, row.set));
    assert!(Schedule::new(SchedulePlan::of(spec), at(row.from)).is_ok());
}

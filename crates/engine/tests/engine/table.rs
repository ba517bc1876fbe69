//! When schedules fire, worked out by hand: every row with its reason.
//!
//! Offsets and transitions are those of the time zone database; days of the week follow from 2026-01-01
//! having been a Thursday.

#![expect(clippy::too_many_lines, reason = "a table is as long as it is")]

use engine::instant::Instant;
use engine::schedule::cron::{Cron, Dialect, Parsed};
use engine::schedule::local::{Fold, Gap, Local};
use engine::schedule::zone::ZoneId;
use engine::schedule::{Plan, Schedule, ScheduleError, Spec};

const BERLIN: &str = "Europe/Berlin";
const NEW_YORK: &str = "America/New_York";
const LORD_HOWE: &str = "Australia/Lord_Howe";
const CASABLANCA: &str = "Africa/Casablanca";
const CAIRO: &str = "Africa/Cairo";
const SANTIAGO: &str = "America/Santiago";
const APIA: &str = "Pacific/Apia";

fn local(pattern: &str, zone: &str, gap: Gap, fold: Fold) -> Local {
    match Cron::parse(pattern, Dialect::Open, "") {
        Ok(Parsed::Pattern(cron)) => Local::new(cron, ZoneId::get(zone).unwrap(), gap, fold),
        other => panic!("{pattern}: {other:?}"),
    }
}

fn at(text: &str) -> Instant {
    text.parse().unwrap_or_else(|why| panic!("{why}"))
}

/// The slots after `from`, as many as are expected, are these.
#[track_caller]
fn check(pattern: &str, zone: &str, from: &str, expected: &[&str], reason: &str) {
    check_set(pattern, zone, (Gap::Usual, Fold::Usual), from, expected, reason);
}

#[track_caller]
fn check_set(
    pattern: &str,
    zone: &str,
    (gap, fold): (Gap, Fold),
    from: &str,
    expected: &[&str],
    reason: &str,
) {
    let local = local(pattern, zone, gap, fold);
    let from = at(from).second();
    let slots: Vec<_> = std::iter::successors(local.next(from), |slot| local.next(*slot))
        .take(expected.len())
        .collect();
    let said: Vec<_> = slots.iter().map(|slot| Instant::from_second(*slot).to_string()).collect();
    assert_eq!(said, expected, "{pattern} in {zone}: {reason}");
    // What is computed agrees with what was walked.
    let last = *slots.last().expect("something is expected");
    assert_eq!(local.count(from, last), slots.len() as u64, "count of {pattern} in {zone}");
    for (skip, slot) in (0..).zip(&slots) {
        assert_eq!(local.nth(from, last, skip), Some(*slot), "slot {skip} of {pattern} in {zone}");
    }
}

#[test]
fn gaps() {
    let spring = "2026-03-28T12:00:00Z";
    check(
        "30 2 * * *",
        BERLIN,
        spring,
        &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        "02:30 does not come on 29 March: clocks go from 02:00 to 03:00, at 01:00 UTC",
    );
    check(
        "0 3 * * *",
        BERLIN,
        spring,
        &["2026-03-29T01:00:00Z", "2026-03-30T01:00:00Z"],
        "03:00 is the first moment after the gap, and comes once",
    );
    check(
        "0 2,3 * * *",
        BERLIN,
        spring,
        &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"],
        "02:00 is swallowed and would come at 03:00, where 03:00 is already",
    );
    check(
        "0 2,14 * * *",
        BERLIN,
        spring,
        &["2026-03-28T13:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"],
        "a list names times of the day: none of them is lost",
    );
    check(
        "*/30 * * * *",
        BERLIN,
        "2026-03-29T00:00:00Z",
        &["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
        "every half hour of time that passes: 01:30, 03:00, 03:30",
    );
    check(
        "*/30 2 * * *",
        BERLIN,
        spring,
        &["2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z"],
        "an interval within an hour that does not come has nothing to do",
    );
    check_set(
        "30 2 * * *",
        BERLIN,
        (Gap::Skip, Fold::Usual),
        spring,
        &["2026-03-30T00:30:00Z"],
        "told to skip",
    );
    check_set(
        "*/30 2 * * *",
        BERLIN,
        (Gap::Fire, Fold::Usual),
        spring,
        &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"],
        "told to fire: 02:00 and 02:30 together come once",
    );
    check(
        "30 2 * * *",
        NEW_YORK,
        "2026-03-07T12:00:00Z",
        &["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
        "clocks go from 02:00 EST to 03:00 EDT on 8 March",
    );
    check(
        "15 2 * * *",
        LORD_HOWE,
        "2026-10-03T00:00:00Z",
        &["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
        "a gap of half an hour: from 02:00 (+10:30) to 02:30 (+11) on 4 October",
    );
    check(
        "30 2 * * *",
        CASABLANCA,
        "2026-03-21T12:00:00Z",
        &["2026-03-22T02:00:00Z", "2026-03-23T01:30:00Z"],
        "after Ramadan clocks go from 02:00 (+00) to 03:00 (+01)",
    );
    check(
        "0 0 * * *",
        CAIRO,
        "2026-04-23T00:00:00Z",
        &["2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"],
        "midnight of 24 April does not come: the day begins at 01:00 (+03)",
    );
    check(
        "0 0 * * FRI",
        CAIRO,
        "2026-04-23T00:00:00Z",
        &["2026-04-23T22:00:00Z", "2026-04-30T21:00:00Z"],
        "that day is a Friday, and still fires",
    );
    check(
        "0 0 * * *",
        SANTIAGO,
        "2026-09-05T12:00:00Z",
        &["2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"],
        "midnight of 6 September does not come: from 00:00 (-04) to 01:00 (-03)",
    );
    check(
        "0 12 * * *",
        APIA,
        "2011-12-29T12:00:00Z",
        &["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
        "30 December 2011 does not come at all: its noon comes when 31 December begins (+14)",
    );
    check(
        "0 12 30 12 *",
        APIA,
        "2011-12-01T00:00:00Z",
        &["2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"],
        "a date that does not come still fires once",
    );
    check(
        "0 * * * *",
        APIA,
        "2011-12-30T08:30:00Z",
        &["2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z"],
        "hours pass as ever",
    );
}

#[test]
fn folds() {
    let autumn = "2026-10-24T12:00:00Z";
    check(
        "30 2 * * *",
        BERLIN,
        autumn,
        &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        "02:30 comes twice on 25 October; the first counts",
    );
    check(
        "0 2,14 * * *",
        BERLIN,
        "2026-10-24T13:00:00Z",
        &["2026-10-25T00:00:00Z", "2026-10-25T13:00:00Z"],
        "a list names times of the day: each once",
    );
    check(
        "*/30 * * * *",
        BERLIN,
        "2026-10-25T00:00:00Z",
        &[
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
        ],
        "every half hour of time that passes: 02:30, 02:00 again, 02:30 again, 03:00",
    );
    check(
        "*/30 2 * * *",
        BERLIN,
        autumn,
        &[
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-26T01:00:00Z",
        ],
        "that hour passes twice",
    );
    check_set(
        "30 2 * * *",
        BERLIN,
        (Gap::Usual, Fold::Second),
        autumn,
        &["2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        "told to take the second",
    );
    check_set(
        "30 2 * * *",
        BERLIN,
        (Gap::Usual, Fold::Both),
        autumn,
        &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        "told to take both",
    );
    check_set(
        "*/30 * * * *",
        BERLIN,
        (Gap::Usual, Fold::First),
        "2026-10-25T00:00:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"],
        "told to take the first only: an hour without",
    );
    check_set(
        "30 2 * * *",
        BERLIN,
        (Gap::Usual, Fold::First),
        "2026-10-25T01:10:00Z",
        &["2026-10-26T01:30:00Z"],
        "asked in the second pass, the first is over",
    );
    check(
        "30 1 * * *",
        NEW_YORK,
        "2026-10-31T12:00:00Z",
        &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        "01:30 EDT, not 01:30 EST an hour later",
    );
    check(
        "45 1 * * *",
        LORD_HOWE,
        "2026-04-04T00:00:00Z",
        &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
        "half an hour comes twice on 5 April: 01:30 to 02:00, first at +11",
    );
    check(
        "*/15 * * * *",
        LORD_HOWE,
        "2026-04-04T14:30:00Z",
        &[
            "2026-04-04T14:45:00Z",
            "2026-04-04T15:00:00Z",
            "2026-04-04T15:15:00Z",
            "2026-04-04T15:30:00Z",
        ],
        "01:45, 01:30 again, 01:45 again, 02:00",
    );
    check(
        "30 2 * * *",
        CASABLANCA,
        "2026-02-14T12:00:00Z",
        &["2026-02-15T01:30:00Z", "2026-02-16T02:30:00Z"],
        "before Ramadan clocks go back from 03:00 (+01) to 02:00 (+00)",
    );
    check(
        "30 23 * * *",
        CAIRO,
        "2026-10-29T00:00:00Z",
        &["2026-10-29T20:30:00Z", "2026-10-30T21:30:00Z"],
        "the last hour of 29 October comes twice, first at +03",
    );
    check(
        "30 23 * * *",
        SANTIAGO,
        "2026-04-04T12:00:00Z",
        &["2026-04-05T02:30:00Z", "2026-04-06T03:30:00Z"],
        "the last hour of 4 April comes twice, first at -03",
    );
}

#[test]
fn dates() {
    let utc = |pattern, from: &str, days: &[&str], reason| {
        let expected: Vec<String> = days.iter().map(|day| format!("{day}:00Z")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(pattern, "UTC", &format!("{from}T00:00:00Z"), &expected, reason);
    };
    utc("0 0 29 2 *", "2026-01-01", &["2028-02-29T00:00", "2032-02-29T00:00"], "leap years");
    utc("0 0 29 2 *", "2096-03-01", &["2104-02-29T00:00"], "2100 is none");
    utc(
        "0 0 31 * *",
        "2026-02-01",
        &[
            "2026-03-31T00:00",
            "2026-05-31T00:00",
            "2026-07-31T00:00",
            "2026-08-31T00:00",
            "2026-10-31T00:00",
            "2026-12-31T00:00",
        ],
        "months without a 31st are left out",
    );
    utc(
        "0 0 L * *",
        "2028-01-01",
        &["2028-01-31T00:00", "2028-02-29T00:00", "2028-03-31T00:00", "2028-04-30T00:00"],
        "the last day, whatever its number",
    );
    utc(
        "0 0 L-2 * *",
        "2028-01-01",
        &["2028-01-29T00:00", "2028-02-27T00:00", "2028-03-29T00:00"],
        "two days before the last",
    );
    utc(
        "0 12 15W * *",
        "2026-01-16",
        &[
            "2026-02-16T12:00",
            "2026-03-16T12:00",
            "2026-04-15T12:00",
            "2026-05-15T12:00",
            "2026-06-15T12:00",
            "2026-07-15T12:00",
            "2026-08-14T12:00",
        ],
        "a Sunday goes to Monday, a Saturday to Friday",
    );
    utc(
        "0 0 1W * *",
        "2026-01-15",
        &["2026-02-02T00:00", "2026-03-02T00:00", "2026-04-01T00:00"],
        "the 1st of February and of March is a Sunday",
    );
    utc(
        "0 0 1W 8 *",
        "2026-01-01",
        &["2026-08-03T00:00", "2027-08-02T00:00"],
        "Saturday the 1st goes to Monday the 3rd, not into July; in 2027 it is a Sunday",
    );
    utc(
        "0 0 31W * *",
        "2026-01-01",
        &[
            "2026-01-30T00:00",
            "2026-03-31T00:00",
            "2026-05-29T00:00",
            "2026-07-31T00:00",
            "2026-08-31T00:00",
            "2026-10-30T00:00",
            "2026-12-31T00:00",
        ],
        "Sunday 31 May goes to Friday 29, not into June; short months have none",
    );
    utc(
        "0 0 LW * *",
        "2026-01-01",
        &[
            "2026-01-30T00:00",
            "2026-02-27T00:00",
            "2026-03-31T00:00",
            "2026-04-30T00:00",
            "2026-05-29T00:00",
        ],
        "the last day that is no weekend",
    );
    utc(
        "0 0 * * FRI#5",
        "2026-01-01",
        &["2026-01-30T00:00", "2026-05-29T00:00", "2026-07-31T00:00"],
        "most months have four Fridays",
    );
    utc(
        "0 0 * * 5L",
        "2026-01-01",
        &["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-27T00:00", "2026-04-24T00:00"],
        "the last Friday",
    );
    utc(
        "0 0 * * FRI#2",
        "2026-01-01",
        &["2026-01-09T00:00", "2026-02-13T00:00", "2026-03-13T00:00"],
        "the second Friday",
    );
    utc(
        "0 12 1 * MON",
        "2026-01-01",
        &[
            "2026-01-01T12:00",
            "2026-01-05T12:00",
            "2026-01-12T12:00",
            "2026-01-19T12:00",
            "2026-01-26T12:00",
            "2026-02-01T12:00",
            "2026-02-02T12:00",
        ],
        "either is enough",
    );
    utc(
        "0 12 1 * +MON",
        "2026-01-01",
        &["2026-06-01T12:00", "2027-02-01T12:00", "2027-03-01T12:00"],
        "both are needed",
    );
    utc(
        "0 0 13 * +FRI",
        "2026-01-01",
        &["2026-02-13T00:00", "2026-03-13T00:00", "2026-11-13T00:00"],
        "Friday the 13th",
    );
    utc(
        "0 22-2 * * *",
        "2026-01-01",
        &[
            "2026-01-01T01:00",
            "2026-01-01T02:00",
            "2026-01-01T22:00",
            "2026-01-01T23:00",
            "2026-01-02T00:00",
        ],
        "hours go around midnight",
    );
    utc(
        "0 0 1 NOV-FEB *",
        "2026-01-02",
        &["2026-02-01T00:00", "2026-11-01T00:00", "2026-12-01T00:00", "2027-01-01T00:00"],
        "months go around new year",
    );
    utc(
        "0 0 * * FRI-MON",
        "2026-01-05",
        &[
            "2026-01-09T00:00",
            "2026-01-10T00:00",
            "2026-01-11T00:00",
            "2026-01-12T00:00",
            "2026-01-16T00:00",
        ],
        "days go around the week",
    );
    utc(
        "0 0 * * 7",
        "2026-01-01",
        &["2026-01-04T00:00", "2026-01-11T00:00"],
        "7 is Sunday, as 0 is",
    );
    utc("0 0 1 1 *", "9998-06-01", &["9999-01-01T00:00"], "up to the end of 9999");
}

#[test]
fn years_run_out() {
    let local = local("0 0 0 1 1 ? 2027,2030", "UTC", Gap::Usual, Fold::Usual);
    let slots: Vec<_> =
        std::iter::successors(local.next(at("2026-01-01T00:00:00Z").second()), |slot| {
            local.next(*slot)
        })
        .collect();
    let said: Vec<_> = slots.iter().map(|slot| Instant::from_second(*slot).to_string()).collect();
    assert_eq!(said, ["2027-01-01T00:00:00Z", "2030-01-01T00:00:00Z"]);
}

#[test]
fn clocks_are_set_just_the_same_after_centuries_without_a_match() {
    check(
        "0 30 2 * 3,10 SUN#L 2826",
        BERLIN,
        "2026-01-01T00:00:00Z",
        &["2826-03-29T01:00:00Z", "2826-10-25T00:30:00Z"],
        "2826 has the calendar of 2026: 02:30 is in the gap, and in the first pass of the fold",
    );
}

#[test]
fn a_fold_after_the_last_match_shows_it_again() {
    check(
        "0 */30 2 25 10 ? 2026",
        BERLIN,
        "2026-10-25T00:00:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"],
        "02:30 in summer is the last match of all, and then 02:00 and 02:30 come again",
    );
    check_set(
        "0 30 2 25 10 ? 2026",
        BERLIN,
        (Gap::Usual, Fold::Second),
        "2026-10-25T00:45:00Z",
        &["2026-10-25T01:30:00Z"],
        "asked in the first pass, the second is still to come",
    );
}

#[test]
fn what_never_fires_is_refused_when_it_is_made() {
    let now = at("2026-11-16T00:00:00Z");
    let never = |pattern, zone, gap| {
        let spec = Spec::Cron(local(pattern, zone, gap, Fold::Usual));
        Schedule::new(Plan::of(spec), now).err()
    };
    for (pattern, reason) in [
        ("0 0 30 2 *", "February has no 30th"),
        ("0 0 31 4,6,9,11 *", "none of these months has a 31st"),
        ("0 0 0 29 2 ? 2100", "2100 is no leap year"),
        ("0 0 0 1 1 ? 2020", "2020 is over"),
        ("0 0 1 * +MON#2", "the second Monday is never the 1st"),
    ] {
        assert_eq!(
            never(pattern, "UTC", Gap::Usual),
            Some(ScheduleError::Never { after: now }),
            "{pattern}: {reason}"
        );
    }
    assert_eq!(never("0 30 2 28 3 ? 2027", BERLIN, Gap::Usual), None, "it fires after the gap");
    assert_eq!(
        never("0 30 2 28 3 ? 2027", BERLIN, Gap::Skip),
        Some(ScheduleError::Never { after: now }),
        "its only time does not come"
    );
    let sentence = never("0 0 30 2 *", "UTC", Gap::Usual).unwrap().to_string();
    assert_eq!(
        sentence,
        "it never fires after 2026-11-16T00:00:00Z: check its dates, its years, its end and its quiet windows"
    );
}

/// Patterns of the tables above, as a person would say them; `cron/explain/tests.rs` has many more.
#[test]
fn patterns_of_the_table_in_plain_english() {
    for (pattern, sentence) in [
        ("30 2 * * *", "At 02:30 every day"),
        ("0 3 * * *", "At 03:00 every day"),
        ("0 2,3 * * *", "At 02:00 and 03:00 every day"),
        ("0 2,14 * * *", "At 02:00 and 14:00 every day"),
        ("15 2 * * *", "At 02:15 every day"),
        ("0 0 * * FRI", "At 00:00 on Fridays"),
        ("0 12 30 12 *", "At noon on 30 December"),
        ("0 0 29 2 *", "At 00:00 on 29 February"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
        ("0 12 15W * *", "At noon on the weekday nearest to the 15th of every month"),
        ("0 12 1 * +MON", "At noon on the 1st, if it is a Monday"),
        ("0 0 13 * +FRI", "At 00:00 on the 13th, if it is a Friday"),
    ] {
        match Cron::parse(pattern, Dialect::Open, "") {
            Ok(Parsed::Pattern(cron)) => assert_eq!(cron.explain(), sentence, "{pattern}"),
            other => panic!("{pattern}: {other:?}"),
        }
    }
}

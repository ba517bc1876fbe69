//! Schedules as a whole: what is computed agrees with what is walked, and limits hold.

use std::time::Duration;

use engine::instant::Instant;
use engine::limits::{
    AT_MAX, EXCLUDED_DATES_MAX, JITTER_MAX, QUIET_WINDOWS_MAX, SLOTS_WALKED_MAX, SPECS_MAX,
};
use engine::schedule::calendar::QuietWindow;
use engine::schedule::civil::Date;
use engine::schedule::cron::{Cron, Dialect, Parsed};
use engine::schedule::every::Every;
use engine::schedule::local::{Fold, Gap, Local};
use engine::schedule::zone::ZoneId;
use engine::schedule::{Count, Schedule, ScheduleError, SchedulePlan, Spec};
use proptest::prelude::*;

fn cron(pattern: &str, zone: &str) -> Spec {
    match Cron::parse(pattern, Dialect::Open, "") {
        Ok(Parsed::Pattern(cron)) => {
            Spec::Cron(Local::new(cron, ZoneId::get(zone).unwrap(), Gap::Usual, Fold::Usual))
        }
        other => panic!("{pattern}: {other:?}"),
    }
}

fn at(text: &str) -> Instant {
    text.parse().unwrap()
}

fn now() -> Instant {
    at("2026-11-16T00:00:00Z")
}

fn walk(schedule: &Schedule, after: Instant, until: Instant) -> Vec<Instant> {
    std::iter::successors(schedule.next(after), |slot| schedule.next(*slot))
        .take_while(|slot| *slot <= until)
        .collect()
}

fn texts(slots: &[Instant]) -> Vec<String> {
    slots.iter().map(ToString::to_string).collect()
}

#[test]
fn ten_missed_years_of_every_second_are_computed() {
    let schedule =
        Schedule::new(SchedulePlan::of(cron("* * * * * *", "Europe/Berlin")), now()).unwrap();
    let (then, until) = (at("2016-11-16T00:00:00Z"), now());
    let seconds = until.second() - then.second();
    assert_eq!(schedule.count(then, until), Count::Exactly(seconds.unsigned_abs()));
    assert_eq!(schedule.last(then, until), Some(until));
    let middle = schedule.nth(then, until, seconds.unsigned_abs() / 2);
    assert_eq!(middle, Some(Instant::from_second(then.second() + seconds / 2 + 1)));
}

#[test]
fn what_fires_the_second_time_only_is_not_counted_the_first_time() {
    let Ok(Parsed::Pattern(pattern)) = Cron::parse("30 2 * * *", Dialect::Open, "") else {
        panic!("it is a pattern");
    };
    let berlin = ZoneId::get("Europe/Berlin").unwrap();
    let local = Local::new(pattern, berlin, Gap::Usual, Fold::Second);
    let schedule = Schedule::new(SchedulePlan::of(Spec::Cron(local)), now()).unwrap();
    // On 25 October 2026 clocks go back from 03:00 to 02:00, at 01:00 UTC: 02:30 comes at 00:30 UTC and
    // again at 01:30 UTC.
    let evening = at("2026-10-24T20:00:00Z");
    for (until, slots) in [
        ("2026-10-25T00:29:59Z", &[][..]),
        ("2026-10-25T00:45:00Z", &[]),
        ("2026-10-25T01:00:00Z", &[]),
        ("2026-10-25T01:29:59Z", &[]),
        ("2026-10-25T01:30:00Z", &["2026-10-25T01:30:00Z"]),
    ] {
        let until = at(until);
        assert_eq!(texts(&walk(&schedule, evening, until)), slots, "walked until {until}");
        let len = slots.len() as u64;
        assert_eq!(schedule.count(evening, until), Count::Exactly(len), "counted until {until}");
        let last = schedule.last(evening, until).map(|last| last.to_string());
        assert_eq!(last.as_deref(), slots.last().copied(), "last until {until}");
    }
}

#[test]
fn several_specs_are_one_schedule_and_share_what_they_share() {
    let specs = vec![
        cron("0 6 * * *", "UTC"),
        cron("0 6,18 * * *", "UTC"),
        Spec::at(vec![at("2026-11-16T07:30:00Z")]).unwrap(),
    ];
    let schedule = Schedule::new(SchedulePlan { specs, ..SchedulePlan::default() }, now()).unwrap();
    let day = walk(&schedule, now(), at("2026-11-16T23:00:00Z"));
    assert_eq!(
        texts(&day),
        ["2026-11-16T06:00:00Z", "2026-11-16T07:30:00Z", "2026-11-16T18:00:00Z"]
    );
    assert_eq!(schedule.count(now(), at("2026-11-16T23:00:00Z")), Count::Exactly(3));
}

#[test]
fn what_must_be_walked_is_walked_up_to_a_bound() {
    let specs = vec![cron("* * * * * *", "UTC"), cron("*/2 * * * * *", "UTC")];
    let schedule = Schedule::new(SchedulePlan { specs, ..SchedulePlan::default() }, now()).unwrap();
    let until = now().after(Duration::from_secs(SLOTS_WALKED_MAX));
    assert_eq!(schedule.count(now(), until), Count::Exactly(SLOTS_WALKED_MAX));
    let until = until.after(Duration::from_secs(1));
    assert_eq!(schedule.count(now(), until), Count::MoreThan(SLOTS_WALKED_MAX));
}

#[test]
fn what_is_past_the_bound_of_a_walk_is_not_taken_for_another_slot() {
    let specs = vec![cron("* * * * * *", "UTC"), cron("*/2 * * * * *", "UTC")];
    let schedule = Schedule::new(SchedulePlan { specs, ..SchedulePlan::default() }, now()).unwrap();
    let until = now().after(Duration::from_secs(2 * SLOTS_WALKED_MAX));
    let at_bound = now().after(Duration::from_secs(SLOTS_WALKED_MAX + 1));
    assert_eq!(schedule.nth(now(), until, SLOTS_WALKED_MAX), Some(at_bound));
    assert_eq!(schedule.nth(now(), until, SLOTS_WALKED_MAX + 1), None);
}

#[test]
fn several_specs_are_counted_without_what_the_calendar_excludes() {
    let plan = SchedulePlan {
        specs: vec![cron("* * * * * *", "UTC"), cron("*/2 * * * * *", "UTC")],
        quiet: vec![QuietWindow { weekdays: 0x7f, from: 0, to: 86_399 }],
        ..SchedulePlan::default()
    };
    let schedule = Schedule::new(plan, now()).unwrap();
    // One second a day is left, while the specs have far more slots than are walked.
    let until = now().after(Duration::from_secs(10 * 86_400));
    assert_eq!(schedule.count(now(), until), Count::Exactly(10));
}

#[test]
fn slots_and_counts_end_at_the_last_instant_which_can_be_written() {
    assert_eq!(Instant::FIRST.to_string().parse(), Ok(Instant::FIRST));
    assert_eq!(Instant::LAST.to_string().parse(), Ok(Instant::LAST));
    let (before, beyond) = (at("9999-12-28T00:00:00Z"), Instant(i64::MAX));
    for zone in ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Pacific/Honolulu"] {
        let every = Every::at_phase(Duration::from_secs(1_200), Duration::ZERO).unwrap();
        for spec in [cron("*/20 * * * *", zone), Spec::Every(every)] {
            let plain = SchedulePlan::of(spec);
            let full = SchedulePlan {
                first: Some(Instant(i64::MIN)),
                last: Some(beyond),
                ..plain.clone()
            };
            for plan in [plain, full] {
                let schedule = Schedule::new(plan, now()).unwrap();
                let slots = walk(&schedule, before, beyond);
                assert_eq!(slots.last(), Some(&at("9999-12-30T22:00:00Z")), "{zone}");
                assert_eq!(schedule.count(before, beyond), Count::Exactly(slots.len() as u64));
                assert_eq!(schedule.last(before, beyond), slots.last().copied());
                assert_eq!(schedule.next(beyond), None);
                assert_eq!(schedule.next(Instant(i64::MIN)), Some(at("0001-01-01T00:00:00Z")));
            }
        }
    }
}

#[test]
fn start_and_end_are_kept_to_the_millisecond() {
    let plan = SchedulePlan {
        first: Some(at("2026-12-01T06:00:00Z")),
        last: Some(at("2026-12-03T06:00:00Z")),
        ..SchedulePlan::of(cron("0 6 * * *", "UTC"))
    };
    let schedule = Schedule::new(plan, now()).unwrap();
    let all = walk(&schedule, now(), Instant::LAST);
    assert_eq!(
        texts(&all),
        ["2026-12-01T06:00:00Z", "2026-12-02T06:00:00Z", "2026-12-03T06:00:00Z"]
    );
    assert_eq!(schedule.count(now(), Instant::LAST), Count::Exactly(3));
}

#[test]
fn nothing_fires_on_excluded_dates_and_in_quiet_windows() {
    let plan = SchedulePlan {
        zone: Some(ZoneId::get("Europe/Berlin").unwrap()),
        excluded: vec![Date { year: 2026, month: 11, day: 17 }],
        // Every night from 22:00 to 06:00.
        quiet: vec![QuietWindow { weekdays: 0x7f, from: 22 * 3_600, to: 6 * 3_600 }],
        ..SchedulePlan::of(cron("0 */4 * * *", "Europe/Berlin"))
    };
    let schedule = Schedule::new(plan, now()).unwrap();
    let slots = walk(&schedule, now(), at("2026-11-18T12:00:00Z"));
    // Of 0, 4, 8, 12, 16 and 20 o'clock the first two are in the night; the 17th has none.
    assert_eq!(
        texts(&slots),
        [
            "2026-11-16T07:00:00Z",
            "2026-11-16T11:00:00Z",
            "2026-11-16T15:00:00Z",
            "2026-11-16T19:00:00Z",
            "2026-11-18T07:00:00Z",
            "2026-11-18T11:00:00Z",
        ]
    );
    assert_eq!(schedule.next_slot(at("2026-11-16T19:00:00Z")), Some(at("2026-11-16T23:00:00Z")));
    let last = schedule.last(now(), at("2026-11-18T06:00:00Z"));
    assert_eq!(last, Some(at("2026-11-16T19:00:00Z")));
}

#[test]
fn a_schedule_that_is_always_quiet_never_fires() {
    let plan = SchedulePlan {
        quiet: vec![QuietWindow { weekdays: 0x7f, from: 0, to: 86_400 }],
        ..SchedulePlan::of(cron("0 6 * * *", "UTC"))
    };
    assert_eq!(Schedule::new(plan, now()).err(), Some(ScheduleError::Never { after: now() }));
}

#[test]
fn jitter_is_stable_spread_and_before_the_next_slot() {
    let plan = |jitter| SchedulePlan { jitter, ..SchedulePlan::of(cron("* * * * *", "UTC")) };
    let minute = Schedule::new(plan(Duration::from_secs(3_600)), now()).unwrap();
    let mut leaving = std::collections::BTreeSet::new();
    for slot in walk(&minute, now(), now().after(Duration::from_secs(3_600))) {
        let leaves_at = minute.leaves_at(slot, "backup");
        assert_eq!(leaves_at, minute.leaves_at(slot, "backup"));
        assert!(leaves_at >= slot && leaves_at.0 < slot.0 + 60_000, "cut before the next slot");
        leaving.insert(leaves_at.0 - slot.0);
    }
    let short = Schedule::new(plan(Duration::from_secs(10)), now()).unwrap();
    let offsets: std::collections::BTreeSet<i64> =
        walk(&short, now(), now().after(Duration::from_secs(3_600)))
            .into_iter()
            .map(|slot| short.leaves_at(slot, "backup").0 - slot.0)
            .collect();
    assert!(offsets.len() > 50 && offsets.iter().all(|offset| (0..=10_000).contains(offset)));
    let none = Schedule::new(plan(Duration::ZERO), now()).unwrap();
    assert_eq!(none.leaves_at(now(), "backup"), now());
}

#[test]
fn a_limit_is_kept_for_whoever_counts_the_runs() {
    let limit = std::num::NonZeroU64::new(3);
    let schedule =
        Schedule::new(SchedulePlan { limit, ..SchedulePlan::of(cron("@hourly", "UTC")) }, now())
            .unwrap();
    assert_eq!(schedule.limit(), limit);
    assert!(schedule.next(now()).is_some());
    assert_eq!(
        Schedule::new(SchedulePlan::of(cron("@hourly", "UTC")), now()).unwrap().limit(),
        None
    );
}

#[test]
fn on_demand_has_no_slots_and_is_no_error() {
    let schedule = Schedule::new(SchedulePlan::default(), now()).unwrap();
    assert_eq!(schedule.next(now()), None);
    assert_eq!(schedule.count(now(), Instant::LAST), Count::Exactly(0));
}

#[test]
fn every_limit_holds_at_it_and_not_past_it() {
    let moments = |len: i64| (0..len).map(|number| Instant(now().0 + 1 + number)).collect();
    assert!(Spec::at(moments(i64::try_from(AT_MAX).unwrap())).is_ok());
    for len in [0, AT_MAX + 1] {
        let refusal = Spec::at(moments(i64::try_from(len).unwrap())).err();
        assert_eq!(refusal, Some(ScheduleError::Instants { len }));
    }
    let twice = Spec::at(vec![now(), now()]).err();
    assert_eq!(twice, Some(ScheduleError::Twice { instant: now() }));

    let make = |plan: SchedulePlan| Schedule::new(plan, now()).err();
    let daily = || cron("0 6 * * *", "UTC");
    let specs = |len| SchedulePlan { specs: vec![daily(); len], ..SchedulePlan::default() };
    assert_eq!(make(specs(SPECS_MAX)), None);
    assert_eq!(make(specs(SPECS_MAX + 1)), Some(ScheduleError::Specs { len: SPECS_MAX + 1 }));
    let dates = |len| SchedulePlan {
        excluded: vec![Date { year: 2020, month: 1, day: 1 }; len],
        ..SchedulePlan::of(daily())
    };
    assert_eq!(make(dates(EXCLUDED_DATES_MAX)), None);
    let len = EXCLUDED_DATES_MAX + 1;
    assert_eq!(make(dates(len)), Some(ScheduleError::ExcludedDates { len }));
    for (month, day) in [(0, 1), (13, 1), (1, 0), (2, 29), (4, 31)] {
        let date = Date { year: 2027, month, day };
        let plan = SchedulePlan { excluded: vec![date], ..SchedulePlan::of(daily()) };
        assert_eq!(make(plan), Some(ScheduleError::ExcludedDate { date }));
    }
    let noon = QuietWindow { weekdays: 1, from: 43_200, to: 43_260 };
    let quiet = |quiet: Vec<QuietWindow>| SchedulePlan { quiet, ..SchedulePlan::of(daily()) };
    assert_eq!(make(quiet(vec![noon; QUIET_WINDOWS_MAX])), None);
    let len = QUIET_WINDOWS_MAX + 1;
    assert_eq!(make(quiet(vec![noon; len])), Some(ScheduleError::QuietWindows { len }));
    for bad in [
        QuietWindow { weekdays: 0, ..noon },
        QuietWindow { weekdays: 0x80, ..noon },
        QuietWindow { weekdays: 0x81, ..noon },
        QuietWindow { from: 86_400, ..noon },
        QuietWindow { to: 0, ..noon },
        QuietWindow { to: 86_401, ..noon },
    ] {
        assert_eq!(make(quiet(vec![bad])), Some(ScheduleError::QuietWindow));
    }
    let jitter = |jitter| SchedulePlan { jitter, ..SchedulePlan::of(daily()) };
    assert_eq!(make(jitter(JITTER_MAX)), None);
    let long = JITTER_MAX + Duration::from_millis(1);
    assert_eq!(make(jitter(long)), Some(ScheduleError::Jitter { jitter: long }));
    let (first, last) = (at("2027-01-02T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    let backwards =
        SchedulePlan { first: Some(first), last: Some(last), ..SchedulePlan::of(daily()) };
    assert_eq!(make(backwards), Some(ScheduleError::Backwards { first, last }));
}

#[test]
fn a_distinct_schedule_takes_48_bytes() {
    assert_eq!(size_of::<Schedule>(), 48);
}

fn specs() -> impl Strategy<Value = Spec> {
    let patterns = prop::sample::select(vec![
        "*/7 * * * *",
        "0 */3 * * *",
        "30 2 * * *",
        "*/20 1-3 * * *",
        "15 0,23 * * *",
        "0 12 L * *",
        "0 0 1,15W * FRI",
        "5 4 * * SUN#2",
        "59 59 23 31 12 ? 2026-2030",
    ]);
    let zones = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "America/Santiago",
    ]);
    let policies = (
        prop::sample::select(vec![Gap::Usual, Gap::Skip, Gap::Fire]),
        prop::sample::select(vec![Fold::Usual, Fold::First, Fold::Second, Fold::Both]),
    );
    let local = (patterns, zones, policies).prop_map(|(pattern, zone, (gap, fold))| {
        match Cron::parse(pattern, Dialect::Open, "") {
            Ok(Parsed::Pattern(cron)) => {
                Spec::Cron(Local::new(cron, ZoneId::get(zone).unwrap(), gap, fold))
            }
            other => panic!("{pattern}: {other:?}"),
        }
    });
    let every = (60_u64..100_000, 0_u64..100_000).prop_map(|(interval, phase)| {
        let secs = Duration::from_secs;
        Spec::Every(Every::at_phase(secs(interval), secs(phase)).unwrap())
    });
    prop_oneof![4 => local, 1 => every]
}

proptest! {
    /// Whatever is computed agrees with what is walked, with and without a calendar.
    #[test]
    fn counts_and_places_agree_with_walking(
        specs in prop::collection::vec(specs(), 1..3),
        days in 1_i64..15, start in 0_i64..1_000, part in 0_i64..86_400_000,
        quiet in prop::collection::vec((1_u8..128, 0_u32..86_400, 1_u32..=86_400), 0..3),
    ) {
        let after = Instant(at("2025-01-01T00:00:00Z").0 + start * 86_400_000 + part);
        let until = after.after(Duration::from_secs(days.unsigned_abs() * 86_400));
        let quiet = quiet.into_iter().map(|(weekdays, from, to)| QuietWindow { weekdays, from, to }).collect();
        let zone = Some(ZoneId::get("Europe/Berlin").unwrap());
        let plan = SchedulePlan { specs, zone, quiet, ..SchedulePlan::default() };
        let Ok(schedule) = Schedule::new(plan, after) else { return Ok(()) };
        let walked = walk(&schedule, after, until);
        prop_assert!(walked.is_sorted_by(|one, other| one < other));
        prop_assert_eq!(schedule.count(after, until), Count::Exactly(walked.len() as u64));
        prop_assert_eq!(schedule.last(after, until), walked.last().copied());
        for (skip, slot) in (0_u64..).zip(&walked).step_by(7) {
            prop_assert_eq!(schedule.nth(after, until, skip), Some(*slot));
        }
        prop_assert_eq!(schedule.nth(after, until, walked.len() as u64), None);
    }
}

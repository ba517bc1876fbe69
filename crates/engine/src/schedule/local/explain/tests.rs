use super::super::super::cron::{Cron, Dialect, Parsed};
use super::super::super::zone::ZoneId;
use super::*;

fn local(pattern: &str, zone: &str, gap: Gap, fold: Fold) -> Local {
    match Cron::parse(pattern, Dialect::Open, "") {
        Ok(Parsed::Pattern(cron)) => Local::new(cron, ZoneId::get(zone).unwrap(), gap, fold),
        other => panic!("{pattern}: {other:?}"),
    }
}

/// The second at midnight UTC.
fn utc(year: i32, month: u32, day: u32) -> UtcSecond {
    Date { year, month, day }.to_day() * DAY
}

/// What is said of the first change after a day.
#[track_caller]
fn check(pattern: &str, zone: &str, after: UtcSecond, sentence: &str) {
    let said = local(pattern, zone, Gap::Usual, Fold::Usual).explain(after);
    assert_eq!(said[1], sentence, "{pattern}");
}

#[test]
fn a_zone_whose_clocks_are_not_set_says_so_in_one_sentence() {
    let said = local("30 2 * * *", "UTC", Gap::Usual, Fold::Usual).explain(utc(2026, 1, 1));
    assert_eq!(said, ["At 02:30 every day."], "and UTC goes without saying");
    for zone in ["Asia/Kolkata", "Etc/GMT+5"] {
        let said = local("30 2 * * *", zone, Gap::Usual, Fold::Usual).explain(utc(2026, 1, 1));
        let not_set = format!("Clocks in {zone} are not set forward or back.");
        assert_eq!(said, ["At 02:30 every day.", &not_set]);
    }
}

#[test]
fn a_zone_whose_clocks_are_set_once_more_says_so_once() {
    let said = local("0 9 * * *", "Europe/Istanbul", Gap::Usual, Fold::Usual);
    let forward = "On 27 March 2016 clocks in Europe/Istanbul go forward from 03:00 to 04:00, which makes no difference to it.";
    assert_eq!(said.explain(utc(2016, 1, 1)), ["At 09:00 every day.", forward]);
}

#[test]
fn clocks_that_are_set_over_midnight_say_which_day() {
    let year = utc(2027, 1, 1);
    check(
        "30 23 * * *",
        "America/Nuuk",
        year,
        "On 27 March 2027 clocks in America/Nuuk go forward from 23:00 to 00:00 on the next day: 23:30 does not come, and it fires at 00:00 on the next day instead.",
    );
    check(
        "30 23 * * *",
        "America/Nuuk",
        utc(2027, 6, 1),
        "On 30 October 2027 clocks in America/Nuuk go back from 24:00 to 23:00: 23:30 comes twice, and it fires the first time only.",
    );
    check(
        "*/30 * * * SAT",
        "America/Nuuk",
        year,
        "On 27 March 2027 clocks in America/Nuuk go forward from 23:00 to 00:00 on the next day: 23:00 and 23:30 do not come, and are left out.",
    );
    check(
        "30 23 * * *",
        "America/St_Johns",
        utc(2010, 6, 1),
        "On 7 November 2010 clocks in America/St_Johns go back from 00:01 to 23:01 on the day before: 23:30 comes twice, and it fires the first time only.",
    );
}

#[test]
fn what_runs_for_some_hours_only_or_does_not_fit_says_what_it_loses() {
    let forward = |then: &str| {
        format!("On 28 March 2027 clocks in Europe/Berlin go forward from 02:00 to 03:00: {then}.")
    };
    for (pattern, then) in [
        ("0 */2 * * *", "02:00 does not come, and is left out"),
        ("*/30 0-6 * * *", "02:00 and 02:30 do not come, and are left out"),
        ("* 0-6 * * *", "its times between do not come, and are left out"),
        ("15 30 2 * * *", "02:30:15 does not come, and it fires at 03:00 instead"),
        ("*/7 * * * *", "it goes on at its usual pace"),
        ("* * * * * SUN", "it goes on at its usual pace"),
    ] {
        check(pattern, "Europe/Berlin", utc(2027, 1, 1), &forward(then));
    }
    check(
        "0 * * * *",
        "Australia/Lord_Howe",
        utc(2026, 6, 1),
        "On 4 October 2026 clocks in Australia/Lord_Howe go forward from 02:00 to 02:30: 02:00 does not come, and is left out.",
    );
}

/// The slots around the change are what the sentence promises.
#[track_caller]
fn check_promise(local: &Local, set: &ClockChange) {
    let said = local.explain_change(set);
    let len = (set.after - set.before).abs();
    let slots = |from, to| local.count(from - 1, to - 1);
    // Before and after the change, each as long as clocks are set by.
    let (before, after) = (slots(set.at - len, set.at), slots(set.at, set.at + len));
    let is_gap = set.before < set.after;
    let fires_then = local.next(set.at - 1) == Some(set.at);
    let would_fire = local.cron.matches(set.after);
    let is_kept = if said.ends_with("makes no difference to it.") {
        fires_then == would_fire && (is_gap || before + after == 0)
    } else if said.ends_with("at its usual pace.") {
        before == after && before > 0
    } else if said.ends_with("instead.") {
        is_gap && fires_then && !would_fire
    } else if said.ends_with("anyway.") {
        is_gap && fires_then && would_fire
    } else if said.ends_with("left out.") {
        is_gap && fires_then == would_fire
    } else if said.ends_with("the first time only.") {
        !is_gap && before > 0 && after == 0
    } else if said.ends_with("the second time only.") {
        !is_gap && before == 0 && after > 0
    } else {
        !is_gap && before > 0 && before == after && said.ends_with("both times.")
    };
    assert!(is_kept, "{said} {before} {after}");
}

#[test]
fn what_is_said_is_what_happens() {
    let patterns = [
        "30 2 * * *",
        "0 3 * * *",
        "0 0 * * *",
        "30 23 * * *",
        "0 1,2,3 * * *",
        "*/15 * * * *",
        "15 * * * *",
        "*/20 2 * * *",
        "0 */2 * * *",
        "* * * * *",
        "45 1 * * SUN",
        "30 0-4 * * *",
        "*/30 * * * SAT",
    ];
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Africa/Cairo",
        "America/Santiago",
        "Pacific/Apia",
        "America/Nuuk",
        "Antarctica/Troll",
    ];
    for (pattern, zone) in
        patterns.into_iter().flat_map(|pattern| zones.map(|zone| (pattern, zone)))
    {
        for gap in [Gap::Usual, Gap::Skip, Gap::Fire] {
            for fold in [Fold::Usual, Fold::First, Fold::Second, Fold::Both] {
                let local = local(pattern, zone, gap, fold);
                let zone = local.zone.zone();
                let changes = std::iter::successors(zone.next_change(utc(2009, 1, 1)), |set| {
                    zone.next_change(set.at)
                });
                changes.take(12).for_each(|set| check_promise(&local, &set));
            }
        }
    }
}

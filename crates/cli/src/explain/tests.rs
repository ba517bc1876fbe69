use client::trigger::Pause;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn row(second: i64, fate: Fate) -> Row {
    let (from, to) = (at(second), at(second));
    Row { from, to, count: 1, fate, reason: None, part_of: None, run: None }
}

fn run(second: i64, state: RunState, attempt: u32) -> Row {
    let facts = RunFacts {
        id: "run_x".into(),
        state,
        on_demand: false,
        ended: None,
        attempt,
        late_ms: None,
        untold: 0,
        sent: None,
        status: Some(503),
        error: None,
    };
    Row { run: Some(facts), ..row(second, Fate::Run) }
}

fn account(rows: Vec<Row>, totals: Totals) -> Account {
    Account {
        cure: None,
        id: "trg_x".into(),
        name: "hello".into(),
        status: Status::Scheduled,
        paused: None,
        from: at(0),
        to: at(60),
        schedule_since: at(0),
        rows,
        totals,
        next: vec![at(65)],
        more_from: None,
        kept_from: None,
        suspended: None,
        host_lags_since: None,
    }
}

#[test]
fn an_account_reads_like_a_letter() {
    let skipped =
        Row { to: at(30), count: 2, reason: Some(Reason::Misfire), ..row(25, Fate::Skipped) };
    let rows = vec![
        run(5, RunState::Succeeded, 1),
        run(10, RunState::Succeeded, 1),
        run(15, RunState::Dead, 3),
        run(20, RunState::Succeeded, 2),
        skipped,
    ];
    let totals = Totals { slots: 6, succeeded: 3, failed: 1, skipped: 2, ..Totals::default() };
    assert_eq!(
        text(&account(rows, totals)),
        "hello follows its schedule; it rings next at 2027-01-15T08:01:05Z.\n\
         Between 2027-01-15T08:00:00Z and 2027-01-15T08:01:00Z\n\
         6 slots were due: 3 succeeded, 1 did not succeed, 2 skipped.\n\
         \n\
         2027-01-15T08:00:05Z to 2027-01-15T08:00:10Z  2 runs succeeded\n\
         2027-01-15T08:00:15Z                          given up after 3 attempts: the receiver answered 503 (run_x)\n\
         2027-01-15T08:00:20Z                          succeeded after 2 attempts\n\
         2027-01-15T08:00:25Z to 2027-01-15T08:00:30Z  2 slots skipped: no server could fire then, or their host had no room for long, and catch-up leaves them out\n"
    );
}

#[test]
fn a_pause_is_told_with_its_remedy() {
    let pause =
        Pause { since: at(0), until: None, author: "ann".into(), note: "a\u{1b}[2J".into() };
    let account = Account { paused: Some(pause), ..account(Vec::new(), Totals::default()) };
    let told = text(&account);
    assert!(
        told.starts_with(
            "hello has been paused since 2027-01-15T08:00:00Z by ann (a\\u{1b}[2J); let it go\n\
             on:\n  watchbell trigger resume hello\n"
        ),
        "{told}"
    );
    assert!(told.contains("nothing was due"), "{told}");
}

#[test]
fn a_slot_without_a_record_is_told_loudly() {
    let totals = Totals { slots: 1, missing: 1, ..Totals::default() };
    let told = text(&account(vec![row(5, Fate::Missing)], totals));
    assert!(told.contains("one slot was due: 1 WITHOUT A RECORD"), "{told}");
    assert!(told.contains("NO RECORD: this is a fault of Watchbell"), "{told}");
    assert!(told.contains("Please report this"), "{told}");
}

fn with(mut row: Row, change: impl FnOnce(&mut RunFacts)) -> Row {
    change(row.run.as_mut().unwrap());
    row
}

#[test]
fn skips_for_one_reason_share_a_line_and_late_runs_are_told() {
    let skip = |second, reason| Row { reason: Some(reason), ..row(second, Fate::Skipped) };
    let late = |second| with(run(second, RunState::Succeeded, 1), |run| run.late_ms = Some(9_000));
    let rows = vec![
        skip(5, Reason::Overlap),
        skip(10, Reason::Overlap),
        skip(15, Reason::Paused),
        late(20),
        late(25),
        run(30, RunState::Succeeded, 1),
        with(run(35, RunState::Succeeded, 2), |run| (run.untold, run.sent) = (1, Some(at(50)))),
    ];
    let totals = Totals { slots: 7, succeeded: 4, skipped: 3, late: 2, ..Totals::default() };
    let told = text(&account(rows, totals));
    let expected = "\
         Between 2027-01-15T08:00:00Z and 2027-01-15T08:01:00Z\n\
         7 slots were due: 4 succeeded, 3 skipped.\n\
         Of these, 2 left more than a second late (caught up).\n\
         \n\
         2027-01-15T08:00:05Z to 2027-01-15T08:00:10Z  2 slots skipped: a run before it was not finished\n\
         2027-01-15T08:00:15Z                          1 slot skipped: the trigger was paused\n\
         2027-01-15T08:00:20Z to 2027-01-15T08:00:25Z  2 runs succeeded, late\n\
         2027-01-15T08:00:30Z                          succeeded\n\
         2027-01-15T08:00:35Z                          succeeded after 2 attempts, sent again at 2027-01-15T08:00:50Z: \
         of 1 attempt before nothing is known, since the server stopped or could not send\n";
    assert!(told.ends_with(expected), "{told}");
}

#[test]
fn a_part_of_a_former_range_is_told_with_the_whole() {
    let whole = Whole { from: at(-600), to: at(180), count: 14 };
    let part = Row {
        to: at(59),
        count: 0,
        reason: Some(Reason::Paused),
        part_of: Some(whole),
        ..row(0, Fate::Skipped)
    };
    let told = text(&account(vec![part], Totals::default()));
    assert!(!told.contains("nothing was due"), "{told}");
    let said = "14 slots skipped between 2027-01-15T07:50:00Z and 2027-01-15T08:03:00Z, \
        some outside of what was asked: the trigger was paused\n";
    assert!(told.contains(said), "{told}");
    let summary = told.lines().take_while(|line| !line.is_empty());
    assert!(summary.into_iter().all(|line| line.chars().count() <= 80), "{told}");
}

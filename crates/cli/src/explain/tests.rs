use client::trigger::Pause;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn row(second: i64, fate: Fate) -> Row {
    Row { from: at(second), to: at(second), count: 1, fate, reason: None, run: None }
}

fn run(second: i64, state: RunState, attempt: u32) -> Row {
    let facts = RunFacts {
        id: "run_x".into(),
        state,
        on_demand: false,
        ended: None,
        attempt,
        status: Some(503),
        error: None,
    };
    Row { run: Some(facts), ..row(second, Fate::Run) }
}

fn account(rows: Vec<Row>, totals: Totals) -> Account {
    Account {
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
        held: None,
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
         Between 2027-01-15T08:00:00Z and 2027-01-15T08:01:00Z 6 slots were due: 3 succeeded, 1 did not succeed, 2 skipped.\n\
         \n\
         2027-01-15T08:00:05Z to 2027-01-15T08:00:10Z  2 runs succeeded\n\
         2027-01-15T08:00:15Z                          given up after 3 attempts: the receiver answered 503 (run_x)\n\
         2027-01-15T08:00:20Z                          succeeded after 2 attempts\n\
         2027-01-15T08:00:25Z to 2027-01-15T08:00:30Z  2 slots skipped: no server was there to fire, and catch-up leaves them out\n"
    );
}

#[test]
fn a_pause_is_told_with_its_remedy() {
    let pause =
        Pause { since: at(0), until: None, author: "ann".into(), note: "a\u{1b}[2J".into() };
    let account = Account { paused: Some(pause), ..account(Vec::new(), Totals::default()) };
    let told = text(&account);
    assert!(told.starts_with("hello has been paused since 2027-01-15T08:00:00Z by ann (a\\u{1b}[2J); let it go on with: watchbell trigger resume hello\n"), "{told}");
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

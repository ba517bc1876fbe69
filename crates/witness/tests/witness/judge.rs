//! What the judge notices, and what it must not call an overlap.

use witness::report::Report;
use witness::{Basis, Happening, Tick};

use super::plan::{at, from, judge, judged, judged_at_once, ms, tick};

/// The overlaps of a report: who, with whom, and for how many milliseconds.
fn overlaps(report: &Report) -> Vec<(&str, &str, u128)> {
    let overlaps = report.overlaps.iter();
    overlaps.map(|it| (&*it.earlier.instance, &*it.later.instance, ms(it.length))).collect()
}

/// Who acted under a token that was over, after whom, and for how many milliseconds.
fn back(report: &Report) -> Vec<(&str, &str, u128)> {
    let back = report.tokens_back.iter();
    back.map(|it| (&*it.lower.instance, &*it.greater.instance, ms(it.late_by))).collect()
}

fn count(happenings: &[Happening], name: &str) -> usize {
    happenings.iter().filter(|it| it.name() == name).count()
}

#[test]
fn one_after_another_is_no_overlap_and_takes_so_long() {
    let (report, happenings) =
        judged_at_once(&[("a", 1, 1, 0), ("a", 1, 2, 50), ("b", 2, 1, 850), ("b", 2, 2, 900)]);
    assert!(report.all_is_well, "{}", report.text(80));
    let hold = &report.holds[0];
    let changes: Vec<_> = hold.changes.iter().map(|it| (&*it.to.instance, it.length)).collect();
    assert_eq!(changes, [("b", Some(std::time::Duration::from_millis(800)))]);
    assert_eq!(hold.fail_overs.map(|it| (it.count, ms(it.longest))), Some((1, 800)));
    assert_eq!((hold.restarts, hold.gap_count), (None, 0));
    assert_eq!((count(&happenings, "acting"), happenings.len()), (2, 2));
    assert_eq!(report.verdict(), "no overlap was seen");
}

#[test]
fn a_start_on_the_same_node_is_a_restart_and_no_fail_over() {
    let (report, _) = judged_at_once(&[("a-1", 1, 1, 0), ("a-2", 1, 1, 300)]);
    let hold = &report.holds[0];
    assert_eq!((hold.fail_overs, hold.restarts.map(|it| ms(it.median))), (None, Some(300)));
}

#[test]
fn interleaved_ticks_are_one_overlap_with_its_length() {
    let plan = [
        ("a", 1, 1, 0),
        ("a", 1, 2, 50),
        ("b", 2, 1, 60),
        ("a", 1, 3, 100),
        ("b", 2, 2, 110),
        ("a", 1, 4, 150),
        ("b", 2, 3, 160),
    ];
    let (report, happenings) = judged_at_once(&plan);
    assert_eq!(overlaps(&report), [("a", "b", 90)]);
    assert_eq!(report.overlaps[0].basis, Basis::Machine);
    assert_eq!(report.overlaps[0].noticed, at(100).wall, "when it was seen first");
    assert_eq!(back(&report), [("a", "b", 90)]);
    assert_eq!((count(&happenings, "overlap"), count(&happenings, "token_back")), (1, 1));
    assert!(!report.all_is_well);
    assert_eq!(report.verdict(), "1 overlap was seen, and 1 token that went back");
    assert_eq!(report.holds[0].fail_overs, None, "it is none that took some time");
}

#[test]
fn a_single_late_tick_is_an_overlap() {
    let (report, _) =
        judged_at_once(&[("a", 1, 1, 0), ("b", 2, 1, 100), ("b", 2, 2, 150), ("a", 1, 2, 160)]);
    assert_eq!(overlaps(&report), [("a", "b", 50)], "as long as both are known to have acted");
    assert_eq!(back(&report), [("a", "b", 60)]);
}

#[test]
fn a_single_tick_in_the_middle_of_another_instance_is_an_overlap() {
    let (report, _) = judged_at_once(&[("a", 1, 1, 0), ("b", 1, 1, 25), ("a", 1, 2, 50)]);
    assert_eq!(overlaps(&report), [("a", "b", 0)]);
    assert_eq!(back(&report), []);
}

#[test]
fn two_at_the_same_moment_are_an_overlap() {
    let (report, _) = judged_at_once(&[("a", 1, 1, 0), ("a", 1, 2, 50), ("b", 2, 1, 50)]);
    assert_eq!(overlaps(&report), [("a", "b", 0)]);
}

#[test]
fn whoever_is_stopped_and_goes_on_after_others_overlaps_with_all_of_them() {
    let plan = [
        ("a", 1, 1, 0),
        ("b", 2, 1, 2_000),
        ("b", 2, 2, 2_050),
        ("c", 3, 1, 4_000),
        ("c", 3, 2, 4_050),
        ("a", 1, 2, 9_000),
    ];
    let (report, _) = judged_at_once(&plan);
    assert_eq!(overlaps(&report), [("a", "b", 50), ("a", "c", 50)]);
    assert_eq!(back(&report), [("a", "b", 7_000), ("a", "c", 5_000)]);
}

#[test]
fn a_token_that_goes_back_is_noticed_without_an_overlap() {
    let (report, happenings) = judged_at_once(&[("a", 5, 1, 0), ("a", 5, 2, 50), ("b", 4, 1, 100)]);
    assert_eq!((overlaps(&report), back(&report)), (Vec::new(), vec![("b", "a", 100)]));
    assert_eq!(count(&happenings, "token_back"), 1);
    assert!(!report.all_is_well);
}

#[test]
fn a_token_that_goes_back_within_an_instance_is_noticed() {
    let (report, _) = judged_at_once(&[("a", 5, 1, 0), ("a", 6, 2, 50), ("a", 5, 3, 100)]);
    assert_eq!((overlaps(&report), back(&report)), (Vec::new(), vec![("a", "a", 50)]));
}

#[test]
fn an_instance_between_two_tokens_of_another_is_an_overlap() {
    let (report, _) = judged_at_once(&[("a", 5, 1, 0), ("b", 6, 1, 50), ("a", 7, 2, 100)]);
    assert_eq!((overlaps(&report), back(&report)), (vec![("a", "b", 0)], Vec::new()));
}

#[test]
fn other_holds_and_the_same_name_elsewhere_are_others() {
    let mut elsewhere = tick("a", 1, 1, 25);
    elsewhere.hold = "mail".to_owned();
    let (report, _) =
        judged(&[(0, tick("a", 1, 1, 0)), (25, elsewhere), (50, tick("a", 1, 2, 50))]);
    assert!(report.all_is_well && report.holds.len() == 2);
    let mut copied = tick("a", 1, 2, 25);
    copied.node = "node-x".to_owned();
    let (report, _) = judged(&[(0, tick("a", 1, 1, 0)), (25, copied), (50, tick("a", 1, 3, 50))]);
    assert_eq!(report.overlaps.len(), 1, "a copy of a running machine is another instance");
}

/// Ticks of one instance that gives way to another on the same machine.
fn handed_over() -> Vec<Tick> {
    let first = (1..=5).map(|sequence| tick("a", 1, sequence, sequence * 50));
    let second = (1..=5).map(|sequence| tick("b", 2, sequence, 1_000 + sequence * 50));
    first.chain(second).collect()
}

#[test]
fn ticks_that_are_late_repeated_or_lost_are_no_overlap_where_a_clock_is_shared() {
    // All of the former arrive after those of the latter, the last one first, and each twice but one.
    let ticks = handed_over();
    let turned: Vec<_> = ticks.iter().rev().chain(&ticks[1..]).cloned().collect();
    let (report, happenings) = judged(
        &(3_000..).zip(turned.into_iter().filter(|it| it.sequence != 3)).collect::<Vec<_>>(),
    );
    assert!(report.all_is_well, "{}", report.text(80));
    assert_eq!((count(&happenings, "overlap"), count(&happenings, "token_back")), (0, 0));
    let counts = report.counts;
    assert_eq!((counts.ticks, counts.repeated, counts.late, counts.lost), (8, 7, 6, 2));
    // Of whoever came later nothing was heard when it was heard of.
    assert_eq!(report.holds[0].instances.iter().map(|it| it.before_first).max(), Some(0));
}

#[test]
fn where_no_clock_is_shared_an_old_tick_is_not_taken_for_a_late_act() {
    let mut ticks: Vec<_> = handed_over()
        .into_iter()
        .map(|tick| if tick.instance == "b" { from("there", tick) } else { tick })
        .collect();
    // Two ticks of the former come again, and one that was missing, when the latter acts.
    let missing = ticks.remove(2);
    ticks.extend([
        ticks[0].clone(),
        missing,
        ticks[3].clone(),
        from("there", tick("b", 2, 6, 1_400)),
    ]);
    let (report, _) = judged(&(0..).map(|it| it * 50).zip(ticks).collect::<Vec<_>>());
    assert!(report.all_is_well, "{}", report.text(80));
    assert_eq!((report.counts.repeated, report.counts.late, report.counts.lost), (2, 1, 0));
}

#[test]
fn where_no_clock_is_shared_arrival_decides() {
    let arrivals = [
        (0, tick("a", 1, 1, 500)),
        (50, from("there", tick("b", 2, 1, 0))),
        (80, tick("a", 1, 2, 550)),
        (100, from("there", tick("b", 2, 2, 50))),
    ];
    let (report, _) = judged(&arrivals);
    assert_eq!(overlaps(&report), [("a", "b", 30)]);
    assert_eq!(report.overlaps[0].basis, Basis::Arrival);
    // At one reading of the clock the order of arrival is known all the same.
    let (report, _) = judged(&[arrivals[0].clone(), (0, from("there", tick("b", 2, 1, 0)))]);
    assert!(report.all_is_well);
    let without: Vec<_> = arrivals
        .into_iter()
        .map(|(ms, mut tick)| {
            tick.made = None;
            (ms, tick)
        })
        .collect();
    let (report, _) = judged(&without);
    assert_eq!(overlaps(&report), [("a", "b", 30)], "also for those who do not tell the time");
}

#[test]
fn silence_is_a_gap_and_loss_is_none() {
    let (report, happenings) = judged_at_once(&[
        ("a", 1, 1, 0),
        ("a", 1, 2, 1_500),
        ("a", 1, 33, 3_100),
        ("b", 2, 1, 5_000),
    ]);
    let hold = &report.holds[0];
    let gaps: Vec<_> = hold.gaps.iter().map(|it| (&*it.after.instance, ms(it.length))).collect();
    assert_eq!((gaps, hold.gap_count), (vec![("a", 1_500), ("b", 1_900)], 2));
    assert_eq!((count(&happenings, "gap"), hold.counts.lost), (2, 30));
    assert!(report.all_is_well, "a gap is no overlap");
}

#[test]
fn lost_first_ticks_of_a_successor_make_no_gap() {
    let (report, _) = judged_at_once(&[("a", 1, 1, 0), ("b", 2, 1, 1_500), ("c", 3, 2, 3_100)]);
    let hold = &report.holds[0];
    assert_eq!((hold.gap_count, hold.changes[1].lost), (1, 1));
    assert_eq!(
        hold.counts.lost, 0,
        "nobody knows whether they were made before there was a witness"
    );
}

#[test]
fn nobody_is_said_to_be_silent_while_another_one_acts() {
    let (report, happenings) =
        judged_at_once(&[("a", 1, 1, 0), ("b", 2, 1, 500), ("a", 1, 2, 1_200)]);
    assert_eq!((report.holds[0].gap_count, count(&happenings, "gap")), (0, 0));
    assert_eq!(report.overlaps.len(), 1);
}

#[test]
fn how_long_nobody_has_acted_is_told() {
    let mut judge = judge();
    judge.hear(&tick("a", 1, 1, 10), at(10));
    assert_eq!(ms(judge.report(at(2_010)).holds[0].silent_for), 2_000);
}

#[test]
fn a_report_shows_who_acted_when() {
    let plan = (0..20).map(|it| ("a-instance", 1, it + 1, it * 50));
    let pause = (0..20).map(|it| ("a-instance", 1, it + 21, 3_000 + it * 50));
    let next = (0..40).map(|it| ("b-instance", 2, it + 1, 3_500 + it * 50));
    let mut ticks: Vec<_> = plan.chain(pause).chain(next).collect();
    ticks.sort_by_key(|it| it.3);
    let (report, _) = judged_at_once(&ticks);
    let expected = "\
reports             0.0 s       1.4 s       2.8 s       4.3 s
node-a a-instan  1  ━━━━━━━━━░░░░░░░░░░░░░░░░━━━━━━━━━
node-b b-instan  2                               ━━━━━━━━━━━━━━━━━
two acted                                        ╳╳╳╳╳

";
    assert_eq!(report.chart(66), expected, "{}", report.chart(66));
    let text = report.text(66);
    for said in [
        "reports: OVERLAP: node-a/a-instan (token 1) and node-b/b-instan (token 2) both acted, for 0.450 s",
        "reports: TOKEN WENT BACK: node-a/a-instan (token 1) still acted 0.450 s after",
        "reports: until 3.000 s: nobody acted for 2.050 s before node-a/a-instan (token 1)",
        "1 overlap was seen, and 1 token that went back",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["overlaps"][0]["length_us"], 450_000, "{json:#}");
}

#[test]
fn a_chart_may_be_as_narrow_as_it_likes() {
    let (report, _) = judged_at_once(&[("a", 1, 1, 0), ("b", 2, 1, 0)]);
    for columns in 0..200 {
        let chart = report.chart(columns);
        let most = columns.clamp(40, 500);
        assert!(chart.lines().all(|line| line.chars().count() <= most), "{columns}:\n{chart}");
    }
}

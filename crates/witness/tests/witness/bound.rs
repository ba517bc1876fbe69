//! The bounds of what a judge remembers: at the limit, and one past it.

use witness::limits::{FINDINGS_MAX, HOLDS_MAX, INSTANCES_MAX, STINTS_MAX};
use witness::{Happening, Report};

use super::plan::{at, judge, tick};

/// The events that say that something is left out.
fn left_out(happenings: &[Happening]) -> usize {
    happenings.iter().filter(|it| it.name() == "left_out").count()
}

fn said(report: &Report) -> bool {
    report.text(80).contains("left out: ")
}

#[test]
fn holds_are_judged_up_to_the_limit_and_counted_past_it() {
    let mut judge = judge();
    let mut hear = |number: usize, sequence| {
        let mut tick = tick("a", 1, sequence, sequence);
        tick.hold = format!("hold-{number}");
        let happenings = judge.hear(&tick, at(sequence));
        (left_out(&happenings), judge.report(at(sequence)))
    };
    for number in 0..HOLDS_MAX {
        hear(number, 1);
    }
    let (told, report) = hear(0, 2);
    assert!(told == 0 && !said(&report));
    assert_eq!(hear(HOLDS_MAX, 1).0, 1, "it is told once");
    let (told, report) = hear(HOLDS_MAX + 1, 1);
    assert_eq!((told, report.left_out.ticks, report.holds.len()), (0, 2, HOLDS_MAX));
    assert!(said(&report));
    let (_, report) = hear(0, 3);
    assert_eq!(report.counts.ticks, HOLDS_MAX as u64 + 2, "those that are known go on");
}

#[test]
fn instances_are_remembered_up_to_the_limit_and_forgotten_past_it() {
    let mut judge = judge();
    let most = INSTANCES_MAX as u64;
    // The first one overlaps with the second. Then there is a gap.
    judge.hear(&tick("a", 1, 1, 0), at(0));
    judge.hear(&tick("b0", 1, 1, 1), at(1));
    judge.hear(&tick("a", 1, 2, 2), at(2));
    for number in 1..most - 1 {
        let ms = 5_000 + number;
        let happenings = judge.hear(&tick(&format!("b{number}"), 1, 1, ms), at(ms));
        assert_eq!(left_out(&happenings), 0);
    }
    let full = judge.report(at(5_000 + most));
    assert_eq!((full.holds[0].instances.len() as u64, full.left_out.instances), (most, 0));
    assert_eq!(full.holds[0].gap_count, 1);
    for number in 0..2 {
        let ms = 5_000 + most + number;
        let happenings = judge.hear(&tick(&format!("c{number}"), 1, 1, ms), at(ms));
        assert_eq!(left_out(&happenings), usize::from(number == 0), "it is told once");
    }
    let past = judge.report(at(5_020 + most));
    assert_eq!((past.holds[0].instances.len() as u64, past.left_out.instances), (most, 2));
    assert!(said(&past));
    assert_eq!(past.counts.ticks, full.counts.ticks + 2, "what is forgotten is counted");
    assert_eq!(past.holds[0].gap_count, 1);
    assert_eq!(past.overlaps, full.overlaps, "and what was found is still told");
    // Whoever was forgotten, and acts while another one does, is noticed once more.
    judge.hear(&tick("c1", 1, 2, 5_030 + most), at(5_030 + most));
    judge.hear(&tick("a", 1, 3, 5_031 + most), at(5_031 + most));
    judge.hear(&tick("c1", 1, 3, 5_032 + most), at(5_032 + most));
    assert_eq!(judge.report(at(5_040 + most)).overlaps.len(), past.overlaps.len() + 1);
}

#[test]
fn tokens_of_an_instance_are_remembered_up_to_the_limit_and_counted_past_it() {
    let mut judge = judge();
    let most = STINTS_MAX as u64;
    for token in 1..=most {
        judge.hear(&tick("a", token, token, token), at(token));
    }
    assert!(!said(&judge.report(at(most))));
    judge.hear(&tick("a", most + 1, most + 1, most + 1), at(most + 1));
    let report = judge.report(at(most + 1));
    assert_eq!((report.left_out.tokens, report.all_is_well), (1, true));
    assert!(said(&report));
    judge.hear(&tick("b", most, 1, most + 2), at(most + 2));
    assert_eq!(judge.report(at(most + 2)).tokens_back.len(), 1, "the last ones are known");
}

#[test]
fn findings_are_listed_up_to_the_limit_and_counted_past_it() {
    let mut judge = judge();
    judge.hear(&tick("a", 0, 1, 0), at(0));
    let most = FINDINGS_MAX as u64;
    let mut told = 0;
    for number in 1..=most + 2 {
        told += left_out(&judge.hear(&tick(&format!("b{number}"), 0, 1, number), at(number)));
    }
    let happenings = judge.hear(&tick("a", 0, 2, most), at(most));
    assert_eq!((told, left_out(&happenings)), (0, 0));
    let full = judge.report(at(most));
    assert_eq!((full.overlaps.len(), full.left_out.findings), (FINDINGS_MAX, 0));
    let happenings = judge.hear(&tick("a", 0, 3, most + 2), at(most + 2));
    assert_eq!(left_out(&happenings), 1, "it is told once");
    let past = judge.report(at(most + 2));
    assert_eq!((past.overlaps.len(), past.left_out.findings), (FINDINGS_MAX, 2));
    assert!(said(&past) && !past.all_is_well);
}

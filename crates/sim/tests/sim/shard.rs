//! A shard on fixed seeds, the crowd at one second, and the mutants of the shard engine.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::mutant::Mutant;
use sim::shard::setting::ShardSetting;
use sim::shard::{run, run_in};
use sim::world::Tracing;

use super::gate::{self, Known};
use super::on_two_threads;

/// Seeds that every change must pass.
const SEEDS: u64 = 1_500;

/// Seeds on which nodes are only restarted.
const ROLLING_SEEDS: u64 = 300;

/// Seeds that are tried when the known one does not catch its bug any more, and by `make soak`.
const TRIED: u64 = 600;
const TRIED_LONG: u64 = 20_000;

/// Each bug of the shard engine, with a seed that is known to catch it.
const KNOWN: [Known; 49] = [
    (Mutant::MarkWithoutId, 4),
    (Mutant::NoCursor, 1),
    (Mutant::NowWithoutMark, 4),
    (Mutant::NowWithoutCursor, 85),
    (Mutant::ChangeWithoutAccount, 1),
    (Mutant::RemainingLater, 6),
    (Mutant::SkipsLater, 83),
    (Mutant::EffectsBeforeCommit, 1),
    (Mutant::AttemptNumberAfter, 0),
    (Mutant::RunIdFromFireTime, 0),
    (Mutant::NextSlotFromNow, 0),
    (Mutant::AheadPassesAtMostOnce, 2),
    (Mutant::OpenWithoutRecord, 0),
    (Mutant::UnfinishedForgetsLeft, 0),
    (Mutant::OpenNotWrittenOut, 2),
    (Mutant::JitterNotCut, 2),
    (Mutant::RecomputeInsteadOfOpen, 3),
    (Mutant::NotTakenBack, 1),
    (Mutant::TakenBackWithoutRecord, 4),
    (Mutant::RemainingKept, 9),
    (Mutant::AtMostOnceResent, 3),
    (Mutant::NoPatience, 16),
    (Mutant::EarlyAtSuccessor, 18),
    (Mutant::BesideOthers, 526),
    (Mutant::SetBackWithoutCursors, 6),
    (Mutant::EnabledAtOnce, 16),
    (Mutant::NoticeLater, 50),
    (Mutant::StreakForgotten, 0),
    (Mutant::LeavesAfterHandoverBegins, 15),
    (Mutant::RemoteDeadline, 132),
    (Mutant::PatienceOfTimeLeft, 68),
    (Mutant::RemoteNeverLeft, 6),
    (Mutant::HandedOnForgotten, 39),
    (Mutant::SendersAfterReports, 447),
    (Mutant::PatienceForEver, 103),
    (Mutant::KeysFromOne, 39),
    (Mutant::ReportOfAnother, 108),
    (Mutant::ReportGoneFirst, 15),
    (Mutant::SenderGoneIgnored, 6),
    (Mutant::AbsenceBeforeReports, 15),
    (Mutant::StopWithoutWaiting, 2),
    (Mutant::ClaimWithoutOpen, 3),
    (Mutant::LagUnrecorded, 5),
    (Mutant::LagMarkUnmoved, 15),
    (Mutant::LagEndsEarly, 5),
    (Mutant::LagUnread, 15),
    (Mutant::LagThroughDisable, 103),
    (Mutant::UnseenWaits, 26),
    (Mutant::LagLeftBehind, 109),
];

#[test]
fn every_promise_of_a_shard_is_kept_on_fixed_seeds() {
    let broken = on_two_threads(0..SEEDS, |seed| {
        let violation = run(seed, None, Tracing::Off).violation?;
        Some(format!("seed {seed}: {violation}"))
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn restarts_of_one_node_after_the_other_double_nothing_and_leave_nothing_unknown() {
    let (mut hand_overs, mut reports) = (0, 0);
    for seed in 0..ROLLING_SEEDS {
        let report = run_in(ShardSetting::of(seed).rolling(), None, Tracing::Off);
        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!(report.counts.crashes, 0);
        hand_overs += report.counts.hand_overs;
        reports += report.counts.reports;
    }
    assert!(hand_overs > 5 * ROLLING_SEEDS, "{hand_overs} hand-overs");
    assert!(reports > ROLLING_SEEDS, "{reports} attempts were under way meanwhile");
}

#[test]
fn twenty_thousand_triggers_are_due_at_one_second() {
    let wrong = on_two_threads(0..2, |seed| {
        let report = run_in(ShardSetting::many_at_once(seed, 20_000), None, Tracing::Off);
        let counts = report.counts;
        let is_all = counts.ended > 10_000 && counts.ended + counts.skipped >= 20_000;
        let is_right = report.violation.is_none() && is_all;
        (!is_right).then(|| format!("seed {seed}: {:?}, {counts:?}", report.violation))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn violation(seed: u64, mutant: Mutant) -> Option<String> {
    run(seed, Some(mutant), Tracing::Off).violation.map(|violation| violation.to_string())
}

#[test]
fn every_mutant_of_the_shard_is_caught() {
    assert_eq!(KNOWN.map(|(mutant, _)| mutant), Mutant::SHARD);
    gate::check(&KNOWN, TRIED, violation);
}

#[test]
#[ignore = "long: make soak"]
fn every_mutant_of_the_shard_is_caught_by_a_search() {
    gate::search(&Mutant::SHARD, TRIED_LONG, violation);
}

/// Seeds on which triggers feed a queue, that every change must pass.
const FEEDING_SEEDS: u64 = 600;

/// Each bug of triggers that feed queues, with a seed that is known to catch it.
const KNOWN_OF_FEEDS: [Known; 4] = [
    (Mutant::EnqueuedLater, 1),
    (Mutant::RecordGoneLater, 2),
    (Mutant::QueuedNotActive, 1),
    (Mutant::EnqueuedKept, 8),
];

#[test]
fn every_slot_of_a_trigger_that_feeds_a_queue_ends_in_one_record() {
    let given = AtomicU64::new(0);
    let broken = on_two_threads(0..FEEDING_SEEDS, |seed| {
        let report = run_in(ShardSetting::of(seed).feeding(), None, Tracing::Off);
        given.fetch_add(report.counts.given, Ordering::Relaxed);
        Some(format!("seed {seed}: {}", report.violation?))
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(given.into_inner() > 20 * FEEDING_SEEDS, "workers have something to do");
}

fn violation_of_feeds(seed: u64, mutant: Mutant) -> Option<String> {
    let report = run_in(ShardSetting::of(seed).feeding(), Some(mutant), Tracing::Off);
    report.violation.map(|violation| violation.to_string())
}

#[test]
fn every_mutant_of_triggers_that_feed_queues_is_caught() {
    assert_eq!(KNOWN_OF_FEEDS.map(|(mutant, _)| mutant), Mutant::FEED);
    gate::check(&KNOWN_OF_FEEDS, TRIED, violation_of_feeds);
}

#[test]
fn the_same_seed_gives_the_same_trace_of_a_shard() {
    let here = run(15, None, Tracing::On).trace;
    assert!(here.lines().count() > 500, "seed 15 is about something");
    assert_eq!(here, run(15, None, Tracing::On).trace);
    let args = ["--shard", "--seed", "15", "--trace"];
    let there = Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output().expect("it runs");
    let there = String::from_utf8(there.stdout).expect("a trace is text");
    assert_eq!(there, format!("{here}every promise was kept\n"));
}

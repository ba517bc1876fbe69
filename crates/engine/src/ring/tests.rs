//! Rings by their rules alone: small ones in every order, long ones by chance, each beside what somebody without a clue would do.

use std::collections::BTreeMap;
use std::time::Duration;

use super::change::{change, pass_over};
use super::line::place;
use super::member::{MemberRecord, next_visit};
use super::part::{Acceptance, NotOffered, accept, pass_on};
use super::turn::{decide, next_due};
use super::{
    Decision, MemberName, PartId, RingEntry, SkipReason, SubscriptionConfig, SubscriptionDraft,
    TurnRecord,
};
use crate::instant::Instant;
use crate::limits::{RING_OPEN_PARTS_MAX, RING_SLOTS_AT_ONCE_MAX, RING_TRIES_MAX};
use crate::trigger::{ScheduleDraft, Texts};

fn every(text: &str) -> SubscriptionDraft {
    let (every, phase) = (Texts(vec![text.to_owned()]), Some("0s".to_owned()));
    let schedule = Some(ScheduleDraft { every, phase, ..ScheduleDraft::default() });
    SubscriptionDraft { schedule, ..SubscriptionDraft::default() }
}

fn config(draft: &SubscriptionDraft) -> SubscriptionConfig {
    draft.build("watch", "main", Instant(0)).unwrap()
}

fn record(draft: &SubscriptionDraft, now: i64) -> TurnRecord {
    TurnRecord::new(draft.clone(), 1_000, "node/a/1", Instant(now))
}

fn names(all: &[&str]) -> Vec<MemberName> {
    all.iter().map(|name| (*name).into()).collect()
}

/// The record after a decision.
fn written(decision: Decision, now: i64) -> TurnRecord {
    let mut record = decision.record;
    record.push(decision.entries, Instant(now));
    record
}

fn turns(entries: &[RingEntry]) -> Vec<(i64, String)> {
    let turn = |entry: &RingEntry| match entry {
        RingEntry::Turn { slot, members } => Some((slot.0, members.join("+"))),
        _ => None,
    };
    entries.iter().filter_map(turn).collect()
}

fn skips(entries: &[RingEntry]) -> Vec<(i64, i64, u64, SkipReason)> {
    let skip = |entry: &RingEntry| match entry {
        RingEntry::Skip { from, to, slots, reason } => Some((from.0, to.0, *slots, *reason)),
        _ => None,
    };
    entries.iter().filter_map(skip).collect()
}

#[test]
fn what_is_due_is_decided_once_and_nothing_before_its_time() {
    let draft = every("1s");
    let (config, names, mut record) =
        (config(&draft), names(&["anna", "bert"]), record(&draft, 500));
    assert_eq!(decide(&record, &config, &names, Instant(999)), None);
    let decision = decide(&record, &config, &names, Instant(3_400)).unwrap();
    assert_eq!(turns(&decision.entries).len(), 3);
    record = written(decision, 3_400);
    assert_eq!((record.decided, &*record.position), (Instant(3_000), "anna"));
    assert_eq!(decide(&record, &config, &names, Instant(3_999)), None);
    assert_eq!(next_due(&record, &config), Some(Instant(4_000)));
}

/// Whatever is asked when, by clocks that go wrong, with whomever: slot follows slot.
#[test]
fn slots_follow_each_other_whoever_decides_when() {
    for catch_up in ["skip", "latest", "all"] {
        let draft = SubscriptionDraft { catch_up: Some(catch_up.into()), ..every("1s") };
        let (config, mut record) = (config(&draft), record(&draft, 0));
        let (mut dice, mut now, mut last) = (7_u64, 0_i64, 0_i64);
        for _ in 0..5_000 {
            dice = crate::hash::mix(dice.wrapping_add(1));
            now += [10, 300, 1_000, 4_000, 9_000, 70_000][usize::try_from(dice % 6).unwrap()];
            let skew = i64::try_from(dice >> 8 & 0x7ff).unwrap() - 1_024;
            let who = names(&["anna", "bert", "cleo"][..usize::try_from(dice >> 20 & 3).unwrap()]);
            let at = Instant((now + skew).max(0));
            let Some(decision) = decide(&record, &config, &who, at) else { continue };
            for entry in &decision.entries {
                let (from, to) = match entry {
                    RingEntry::Turn { slot, members } => {
                        assert!(!members.is_empty());
                        (slot.0, slot.0)
                    }
                    RingEntry::Skip { from, to, slots, .. } => {
                        assert_eq!(i64::try_from(*slots).unwrap(), (to.0 - from.0) / 1_000 + 1);
                        (from.0, to.0)
                    }
                    other => panic!("{other:?}"),
                };
                assert_eq!(from, last + 1_000, "{catch_up}");
                assert!(to <= at.0);
                last = to;
            }
            record = written(decision, at.0);
            assert_eq!(record.decided.0, last);
        }
    }
}

#[test]
fn what_is_late_follows_the_policy_and_what_is_left_out_is_one_entry() {
    let at = |catch_up: &str, cap: Option<u64>, now: i64| {
        let catch_up = Some(catch_up.to_owned());
        let draft = SubscriptionDraft { catch_up, catch_up_cap: cap, ..every("10s") };
        let record = record(&draft, 0);
        let decision = decide(&record, &config(&draft), &names(&["anna"]), Instant(now)).unwrap();
        let slots = turns(&decision.entries).into_iter().map(|(slot, _)| slot / 1_000);
        (skips(&decision.entries), slots.collect::<Vec<_>>())
    };
    use SkipReason::Missed;
    // The slot of 60 s is four seconds late, those before it more.
    assert_eq!(at("skip", None, 64_000), (vec![(10_000, 50_000, 5, Missed)], vec![60]));
    assert_eq!(at("latest", None, 64_000), (vec![(10_000, 50_000, 5, Missed)], vec![60]));
    assert_eq!(at("all", Some(2), 64_000), (vec![(10_000, 30_000, 3, Missed)], vec![40, 50, 60]));
    // All of them are late.
    assert_eq!(at("skip", None, 66_000), (vec![(10_000, 60_000, 6, Missed)], vec![]));
    assert_eq!(at("latest", None, 66_000), (vec![(10_000, 50_000, 5, Missed)], vec![60]));
    assert_eq!(at("all", None, 66_000), (vec![], vec![10, 20, 30, 40, 50, 60]));
    // Late by five seconds, and by more.
    assert_eq!(at("skip", None, 15_000), (vec![], vec![10]));
    assert_eq!(at("skip", None, 15_001), (vec![(10_000, 10_000, 1, Missed)], vec![]));
}

#[test]
fn an_empty_ring_says_so_once_and_goes_on_when_somebody_joins() {
    let draft = every("1s");
    let (config, record) = (config(&draft), record(&draft, 0));
    let decision = decide(&record, &config, &[], Instant(2_500)).unwrap();
    assert_eq!(skips(&decision.entries), [(1_000, 2_000, 2, SkipReason::Empty)]);
    let resting = written(decision, 2_500);
    assert!(resting.idle);
    assert_eq!(decide(&resting, &config, &[], Instant(9_000)), None);
    let decision = decide(&resting, &config, &names(&["anna"]), Instant(60_000)).unwrap();
    assert_eq!(skips(&decision.entries), [(3_000, 59_000, 57, SkipReason::Empty)]);
    assert_eq!(turns(&decision.entries), [(60_000, "anna".into())]);
    assert!(!decision.record.idle);
}

#[test]
fn what_a_clock_that_ran_ahead_decided_is_set_back() {
    let draft = every("1s");
    let (config, names) = (config(&draft), names(&["anna"]));
    let record = record(&draft, 400_000);
    assert_eq!(decide(&record, &config, &names, Instant(395_000)), None, "not by so little");
    let decision = decide(&record, &config, &names, Instant(394_999)).unwrap();
    assert_eq!(decision.entries, [RingEntry::SetBack { to: Instant(394_999) }]);
    let record = written(decision, 394_999);
    assert_eq!(next_due(&record, &config), Some(Instant(395_000)));
}

#[test]
fn one_commit_decides_no_more_than_it_may() {
    let most = RING_SLOTS_AT_ONCE_MAX;
    let all = |count| SubscriptionDraft {
        catch_up: Some("all".into()),
        catch_up_cap: Some(1_000),
        count: Some(count),
        ..every("1s")
    };
    let decided = |count| {
        let draft = all(count);
        let record = record(&draft, 0);
        let names = names(&["anna", "bert"]);
        let decision = decide(&record, &config(&draft), &names, Instant(500_000)).unwrap();
        turns(&decision.entries).len()
    };
    assert_eq!([decided(1), decided(4), decided(8), decided(64)], [most, most, 32, 4]);
}

/// Members come and go, several have a turn: whoever stays has a turn exactly once between two of another that stays.
#[test]
fn between_two_turns_of_one_each_other_has_one_whoever_comes_and_goes() {
    let draft = SubscriptionDraft { count: Some(3), ..every("1s") };
    let (config, mut record) = (config(&draft), record(&draft, 0));
    let stay = ["b", "d", "f"];
    let mut between: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
    let mut dice = 3_u64;
    for second in 1..3_000 {
        dice = crate::hash::mix(dice.wrapping_add(1));
        let mut there: Vec<&str> = stay.to_vec();
        there.extend(
            ["a", "c", "e", "g"]
                .iter()
                .enumerate()
                .filter(|(n, _)| dice >> n & 1 == 1)
                .map(|(_, name)| *name),
        );
        there.sort_unstable();
        let decision = decide(&record, &config, &names(&there), Instant(second * 1_000)).unwrap();
        for (_, members) in turns(&decision.entries) {
            for name in members.split('+').filter_map(|one| stay.iter().find(|s| **s == one)) {
                if let Some(others) = between.insert(name, BTreeMap::new()) {
                    let once = stay.iter().filter(|other| *other != name);
                    assert!(
                        once.into_iter().all(|other| others.get(other) == Some(&1)),
                        "{name}: {others:?}"
                    );
                }
                for (_, others) in between.iter_mut().filter(|(one, _)| *one != name) {
                    *others.entry(name).or_default() += 1;
                }
            }
        }
        record = written(decision, second * 1_000);
    }
}

#[test]
fn a_part_is_accepted_by_whom_it_is_offered_to_and_once() {
    let draft = SubscriptionDraft { accept: Some("1s".into()), count: Some(2), ..every("10s") };
    let (config, members) = (config(&draft), names(&["anna", "bert", "cleo"]));
    let first = record(&draft, 0);
    let record = written(decide(&first, &config, &members, Instant(10_000)).unwrap(), 10_000);
    let (one, two) = (PartId { turn: 1, part: 0 }, PartId { turn: 1, part: 1 });
    let ask = |record: &TurnRecord, part, member: &str| {
        let (decision, mut answers) = accept(record, &config, &[(part, member.into())]);
        (decision, answers.remove(0))
    };
    let passed_on = |to: &str| Acceptance::Refused(NotOffered::PassedOn { to: to.into() });
    assert_eq!(ask(&record, one, "bert"), (None, passed_on("anna")));
    assert_eq!(ask(&record, two, "bert").1, Acceptance::New { token: 1_001 });
    let refused = Acceptance::Refused(NotOffered::NotOpen);
    assert_eq!(ask(&record, PartId { turn: 9, part: 0 }, "anna"), (None, refused.clone()));
    // Anna is late, and it passes to the next in the rotation, under a greater token.
    let record = written(pass_on(&record, &members, &[one]).unwrap(), 11_000);
    assert_eq!(ask(&record, one, "anna"), (None, passed_on("cleo")));
    let (decision, answer) = ask(&record, one, "cleo");
    assert_eq!(answer, Acceptance::New { token: 1_002 });
    let record = written(decision.unwrap(), 11_000);
    assert_eq!(ask(&record, one, "cleo"), (None, Acceptance::Again { token: 1_002 }));
    assert_eq!(ask(&record, one, "anna"), (None, refused));
    // Bert's is offered to everybody and ends.
    let mut record = record;
    let mut offered = vec![record.open[0].member.to_string()];
    while let Some(open) = record.open.first().cloned() {
        assert_eq!(open.id, two);
        record = written(pass_on(&record, &members, &[two]).unwrap(), 12_000);
        offered.extend(record.open.first().map(|open| open.member.to_string()));
    }
    offered.sort();
    assert_eq!(offered, ["anna", "bert", "cleo"]);
    assert_eq!(record.page.last().unwrap().entry(), &RingEntry::Unaccepted { part: two });
}

#[test]
fn open_parts_and_tries_have_their_bounds() {
    let draft = SubscriptionDraft { accept: Some("1h".into()), count: Some(64), ..every("1s") };
    let (config, mut record) = (config(&draft), record(&draft, 0));
    let members: Vec<MemberName> = (0..99).map(|n| format!("m{n:02}").into()).collect();
    let mut unaccepted = 0;
    for second in 1..=6 {
        let decision = decide(&record, &config, &members, Instant(second * 1_000)).unwrap();
        let ended = |entry: &&RingEntry| matches!(entry, RingEntry::Unaccepted { .. });
        unaccepted += decision.entries.iter().filter(ended).count();
        record = written(decision, second * 1_000);
        assert_eq!(
            record.open.len(),
            (usize::try_from(second).unwrap() * 64).min(RING_OPEN_PARTS_MAX)
        );
    }
    assert_eq!(unaccepted, 2 * 64);
    let part = record.open[0].id;
    let mut tries = 1;
    loop {
        record = written(pass_on(&record, &members, &[part]).unwrap(), 7_000);
        if !record.open.iter().any(|open| open.id == part) {
            break;
        }
        tries += 1;
    }
    assert_eq!(tries, RING_TRIES_MAX);
}

#[test]
fn a_change_first_decides_what_is_due_and_goes_on_from_there() {
    let (old, new) = (every("1s"), every("3s"));
    let (from, to, members) = (config(&old), config(&new), names(&["anna"]));
    let record = record(&old, 0);
    let decision = change(&record, (&from, &to), &new, &members, Instant(2_500)).unwrap();
    assert_eq!(turns(&decision.entries).len(), 2);
    assert!(matches!(decision.entries[2], RingEntry::Changed { since: Instant(2_500), .. }));
    assert_eq!((decision.record.decided, decision.record.revision), (Instant(2_500), 2));
    assert_eq!(next_due(&decision.record, &to), Some(Instant(3_000)));
    // An empty ring accounts for its slots, too.
    let idle = TurnRecord { idle: true, ..record.clone() };
    let decision = change(&idle, (&from, &to), &new, &[], Instant(9_500)).unwrap();
    assert_eq!(skips(&decision.entries), [(1_000, 9_000, 9, SkipReason::Empty)]);
    // More than one commit decides: turns come first.
    let all = SubscriptionDraft { catch_up: Some("all".into()), ..old };
    let late = change(&record, (&config(&all), &to), &new, &members, Instant(90_000));
    assert_eq!(late, None);
}

#[test]
fn who_is_passed_over_has_lost_its_place() {
    let draft = every("1s");
    let (config, members) = (config(&draft), names(&["anna", "bert", "cleo"]));
    let record = written(pass_over(&record(&draft, 0), &members).unwrap(), 0);
    assert_eq!(pass_over(&record, &[]), None);
    let decision = decide(&record, &config, &members, Instant(3_000)).unwrap();
    let order: Vec<_> = turns(&decision.entries).into_iter().map(|(_, name)| name).collect();
    assert_eq!(order, ["bert", "cleo", "anna"]);
}

#[test]
fn servers_stand_in_line_behind_the_last_writer() {
    let sessions = ["node/a/1", "node/b/1", "node/c/1"];
    for writer in sessions.iter().chain(&["node/gone/1"]) {
        let mut places: Vec<usize> =
            sessions.iter().map(|me| place(sessions, me, writer, "shop/watch/main")).collect();
        if let Some(at) = sessions.iter().position(|session| session == writer) {
            assert_eq!(places[at], 0);
        }
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2], "{writer}");
    }
    let unseen = place(["node/a/1"], "node/z/1", "node/a/1", "x");
    assert_eq!(unseen, 1, "also for one that does not see itself yet");
}

#[test]
fn a_greater_visit_wins_and_one_that_is_over_stays_so() {
    let is =
        |visit| MemberRecord { session: Some("node/a/1".into()), own: false, visit, since_ms: 0 };
    assert!(is(5).is_newer_than(4) && !is(5).is_newer_than(5) && !is(5).is_newer_than(6));
    let mark = MemberRecord::mark(5, 0);
    assert!(mark.is_newer_than(5) && !mark.is_newer_than(6));
    assert_eq!((next_visit(Some(9), 3), next_visit(Some(9), 30), next_visit(None, 3)), (10, 30, 3));
}

#[test]
fn a_cron_pattern_has_its_turns_by_its_zone() {
    let json = r#"{"schedule":{"cron":"30 2 * * *","tz":"Europe/Berlin"}}"#;
    let draft: SubscriptionDraft = serde_json::from_str(json).unwrap();
    let (config, members) = (config(&draft), names(&["anna", "bert"]));
    let evening: Instant = "2027-03-26T20:00:00Z".parse().unwrap();
    let record = TurnRecord::new(draft, 1, "w", evening);
    let sunday = evening.after(Duration::from_secs(2 * 86_400));
    let decision = decide(
        &record,
        &SubscriptionConfig { catch_up: crate::policy::CatchUp::All(9), ..config },
        &members,
        sunday,
    );
    let slots: Vec<_> = turns(&decision.unwrap().entries)
        .into_iter()
        .map(|(slot, who)| (Instant(slot).to_string(), who))
        .collect();
    // On the Sunday the clocks are set forward, and 02:30 is not there.
    assert_eq!(
        slots,
        [
            ("2027-03-27T01:30:00Z".into(), "anna".into()),
            ("2027-03-28T01:00:00Z".into(), "bert".to_string())
        ]
    );
}

//! Runs that are for the next workers in turn, or for all of them.

use std::collections::BTreeMap;

use engine::id::{ProjectId, RunId, SerialId};
use engine::instant::Instant;
use engine::limits::{PART_PASSES_AFTER_MS, PICK_WORKERS_MAX};
use engine::past::{Attempt, End, Finished, Line, Reason};
use engine::queue::draft::RunDraft;
use engine::queue::given::{AttemptResult, RunToken};
use engine::shard::command::{Command, Done};
use engine::shard::{ClaimCall, DoneCall, ShardAnswer, Ticket, WorkerCall, WorkerReply};
use engine::trigger::Draft;

use super::bench::{BEGIN, Bench};
use super::feed::{EVERY_TEN, at_most, feeding, run};

/// It is silent after 4 s, two beats of this.
const LEASE_MS: u32 = 10_000;
const SILENT_MS: i64 = 4_000;

/// Workers by name, each with a number of its last request, a cookie, and what it has.
#[derive(Default)]
struct Crew(BTreeMap<&'static str, Hand>);

#[derive(Default)]
struct Hand {
    number: u64,
    cookie: u64,
    has: Vec<(RunId, RunToken)>,
}

impl Crew {
    /// These workers are there, and may be chosen.
    fn of(names: &[&'static str], bench: &mut Bench) -> Self {
        let mut crew = Self::default();
        for name in names {
            crew.claim(name, 0, bench);
            crew.claim(name, 0, bench);
        }
        crew
    }

    /// A worker says what came of what it has, and claims so many more.
    fn say(
        &mut self,
        name: &'static str,
        result: Option<AttemptResult>,
        free: usize,
        is_draining: bool,
        bench: &mut Bench,
    ) -> WorkerReply {
        let hand = self.0.entry(name).or_default();
        hand.number += 1;
        let made = Some(Attempt { at: bench.now().wall, ..Attempt::default() });
        let done: Vec<DoneCall> = result.map_or_else(Vec::new, |result| {
            let done = hand.has.drain(..);
            done.map(|(run, token)| DoneCall { run, token, result, made: made.clone() }).collect()
        });
        let claim = ClaimCall {
            cookie: hand.cookie,
            queues: vec!["mail".into()],
            free,
            wait_ms: 0,
            labels: "".into(),
        };
        let reply = bench.work(WorkerCall {
            project: ProjectId::DEFAULT,
            worker: name.into(),
            incarnation: 1,
            number: hand.number,
            settled: hand.number - 1,
            lease_ms: LEASE_MS,
            since: 1,
            is_draining,
            done,
            released: Vec::new(),
            running: Some(hand.has.clone()),
            claim: Some(claim),
        });
        hand.cookie = reply.cookie;
        hand.has.extend(reply.runs.iter().map(|run| (run.id, run.given.token)));
        reply
    }

    /// A worker claims so many. What it is given.
    fn claim(&mut self, name: &'static str, free: usize, bench: &mut Bench) -> Vec<RunId> {
        bench.step();
        let reply = self.say(name, None, free, false, bench);
        bench.step();
        reply.runs.iter().map(|run| run.id).collect()
    }

    fn done(&mut self, name: &'static str, result: AttemptResult, bench: &mut Bench) {
        self.say(name, Some(result), 0, false, bench);
        bench.step();
        bench.commit();
    }

    /// Everybody claims as much as there is, the last one first. Who was given something.
    fn claim_all(&mut self, bench: &mut Bench) -> Vec<&'static str> {
        let names: Vec<_> = self.0.keys().rev().copied().collect();
        let mut given: Vec<_> =
            names.into_iter().filter(|name| !self.claim(name, 9, bench).is_empty()).collect();
        given.sort_unstable();
        given
    }

    /// Everybody is heard so often that nobody is taken for silent, while so much time passes.
    fn stay(&mut self, names: &[&'static str], ms: i64, bench: &mut Bench) {
        let end = bench.wall + ms;
        while bench.wall < end {
            bench.go((bench.wall + 1_000).min(end));
            for name in names {
                self.claim(name, 0, bench);
            }
            bench.go(bench.wall);
        }
    }
}

/// A trigger that is for workers in turn, or for all.
fn picking(schedule: &str, policy: &str, pick: &str, count: Option<u64>) -> Draft {
    let mut draft = feeding(schedule, policy);
    let queue = draft.queue.as_mut().unwrap();
    queue.pick = Some(pick.to_owned());
    queue.count = count;
    draft
}

/// A run that is for so many workers is submitted by hand.
fn submit(bench: &mut Bench, json: &str) -> RunId {
    let draft: RunDraft = serde_json::from_str(json).unwrap();
    let runs = vec![draft.build(Instant(BEGIN + bench.wall)).unwrap()];
    let (project, queue, author) = (ProjectId::DEFAULT, "mail".into(), String::new());
    match bench.ask(Command::Submit { project, queue, runs, author }) {
        Some(Done::Submitted(taken)) => taken[0].id,
        other => panic!("{other:?}"),
    }
}

/// Runs that are past and no parts.
fn wholes(bench: &Bench) -> Vec<Finished> {
    let lines = bench.past.iter();
    let runs = lines.filter_map(|line| match line {
        Line::Run(run) if !run.is_part() => Some(run.clone()),
        Line::Run(_) | Line::Skip(_) => None,
    });
    runs.collect()
}

/// How the parts of a run ended, for whom they were, and who carried them out if it was another.
fn parts(run: &Finished) -> (String, Vec<String>, Vec<(usize, String)>) {
    let parts = run.queue.as_ref().unwrap().parts.as_ref().unwrap();
    let workers = parts.workers.iter().map(ToString::to_string).collect();
    let by = parts.by.iter().map(|(place, worker)| (*place, worker.to_string())).collect();
    (parts.ends.clone(), workers, by)
}

const OK: AttemptResult = AttemptResult::Succeeded;

#[test]
fn slots_go_to_workers_in_turn_whoever_owns_the_shard() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b", "c"], &mut bench);
    bench.create(picking(EVERY_TEN, "{}", "next", None));
    let mut served = Vec::new();
    for slot in 1..=7 {
        crew.stay(&["a", "b", "c"], slot * 10_000 - bench.wall, &mut bench);
        if slot % 2 == 0 {
            bench.take_over(bench.wall);
            crew.claim_all(&mut bench);
        }
        let given = crew.claim_all(&mut bench);
        served.extend(given.iter().copied());
        given.iter().for_each(|name| crew.done(name, OK, &mut bench));
    }
    assert_eq!(served, ["a", "b", "c", "a", "b", "c", "a"]);
    assert_eq!(wholes(&bench).len(), 7);
    assert_eq!(parts(&wholes(&bench)[3]), ("s".to_owned(), vec!["a".to_owned()], vec![]));
    assert_eq!(bench.below("chosen/"), 0, "nothing is left behind");
    assert_eq!(bench.below("parts/") + bench.below("given/") + bench.below("claimed/"), 0);
}

#[test]
fn who_joins_has_the_place_of_its_name_and_who_drains_is_passed_over() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["b", "d"], &mut bench);
    let trigger = bench.create(picking(EVERY_TEN, "{}", "next", None));
    let demand = |crew: &mut Crew, bench: &mut Bench| {
        assert!(matches!(bench.ask(run(trigger)), Some(Done::Started(_))));
        bench.step();
        let given = crew.claim_all(bench);
        given.iter().for_each(|name| crew.done(name, OK, bench));
        given
    };
    assert_eq!(demand(&mut crew, &mut bench), ["b"], "a run on demand obeys the rotation");
    crew.claim("c", 0, &mut bench);
    crew.claim("c", 0, &mut bench);
    crew.claim("a", 0, &mut bench);
    crew.claim("a", 0, &mut bench);
    assert_eq!(demand(&mut crew, &mut bench), ["c"]);
    crew.say("d", None, 0, true, &mut bench);
    crew.0.remove("d");
    crew.stay(&["a", "b", "c"], 300, &mut bench);
    assert_eq!(demand(&mut crew, &mut bench), ["a"]);
    assert_eq!(demand(&mut crew, &mut bench), ["b"]);
}

#[test]
fn there_may_be_more_parts_than_workers_and_each_has_an_id_and_a_token() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b"], &mut bench);
    let id = submit(&mut bench, r#"{"handler": "h", "pick": "next", "count": 5}"#);
    let (a, b) = (crew.claim("a", 9, &mut bench), crew.claim("b", 9, &mut bench));
    assert_eq!((a.len(), b.len()), (3, 2));
    let mut ids: Vec<RunId> = a.into_iter().chain(b).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() == 5 && !ids.contains(&id));
    crew.done("a", OK, &mut bench);
    assert_eq!(wholes(&bench), [], "two parts are unfinished");
    bench.take_over(bench.wall);
    crew.done("b", OK, &mut bench);
    let past = wholes(&bench);
    assert_eq!((past.len(), past[0].end), (1, End::Succeeded));
    assert_eq!(parts(&past[0]).1, ["a", "b", "a", "b", "a"]);
    let told = bench.past.iter().filter(|line| matches!(line, Line::Run(run) if run.is_part()));
    assert_eq!(told.count(), 5, "each part is on record");
    // Whose turn it is goes on from there, also for runs that are submitted by hand.
    submit(&mut bench, r#"{"handler": "h", "pick": "next"}"#);
    assert_eq!(crew.claim_all(&mut bench), ["b"]);
}

#[test]
fn what_waits_for_a_worker_that_dies_is_for_its_successor_after_two_beats() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b", "c"], &mut bench);
    let trigger = bench.create(picking(EVERY_TEN, "{}", "next", None));
    assert!(bench.ask(run(trigger)).is_some());
    bench.step();
    crew.stay(&["b", "c"], SILENT_MS - 100, &mut bench);
    assert_eq!(crew.claim("c", 9, &mut bench).len(), 0, "it is for a");
    crew.stay(&["b", "c"], 500, &mut bench);
    assert_eq!(crew.claim("c", 9, &mut bench).len(), 0, "it is for b");
    assert_eq!(crew.claim("b", 9, &mut bench).len(), 1);
    crew.done("b", OK, &mut bench);
    assert_eq!(parts(&wholes(&bench)[0]), ("s".to_owned(), vec!["b".to_owned()], vec![]));
}

#[test]
fn what_a_worker_does_not_take_is_anybodys_after_a_while_unless_it_is_everybodys() {
    for (pick, is_passed) in [("next", true), ("all", false)] {
        let mut bench = Bench::new();
        let mut crew = Crew::of(&["a", "b"], &mut bench);
        submit(&mut bench, &format!(r#"{{"handler": "h", "pick": "{pick}"}}"#));
        // It is there, and has no room.
        crew.stay(&["a", "b"], PART_PASSES_AFTER_MS - 1, &mut bench);
        let own = usize::from(!is_passed);
        assert_eq!(crew.claim("b", 9, &mut bench).len(), own, "{pick}");
        crew.stay(&["a", "b"], 1, &mut bench);
        assert_eq!(crew.claim("b", 9, &mut bench).len(), usize::from(is_passed), "{pick}");
        crew.done("b", OK, &mut bench);
        assert_eq!(crew.claim("a", 9, &mut bench).len(), own);
        crew.done("a", OK, &mut bench);
        let (ends, workers, by) = parts(&wholes(&bench)[0]);
        if is_passed {
            let by_b = vec![(0, "b".to_owned())];
            assert_eq!((ends, workers, by), ("s".to_owned(), vec!["a".to_owned()], by_b));
        } else {
            assert_eq!((&*ends, workers.len(), by), ("ss", 2, vec![]));
        }
    }
}

#[test]
fn without_workers_a_run_waits_and_is_for_whoever_comes() {
    for (pick, parts) in [(r#""next", "count": 2"#, 2), (r#""all""#, 1)] {
        let mut bench = Bench::new();
        let mut crew = Crew::default();
        submit(&mut bench, &format!(r#"{{"handler": "h", "pick": {pick}}}"#));
        bench.take_over(1_000);
        bench.go(2_000);
        crew.claim("a", 0, &mut bench);
        crew.claim("a", 0, &mut bench);
        bench.go(2_100);
        assert_eq!(crew.claim("a", 9, &mut bench).len(), parts, "{pick}");
        crew.done("a", OK, &mut bench);
        assert_eq!(wholes(&bench)[0].end, End::Succeeded);
    }
}

#[test]
fn who_is_chosen_for_a_run_with_a_delay_is_so_when_that_is_over() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a"], &mut bench);
    submit(&mut bench, r#"{"handler": "h", "pick": "all", "delay": "5s"}"#);
    crew.stay(&["a", "b"], 4_900, &mut bench);
    assert!(crew.claim_all(&mut bench).is_empty());
    crew.stay(&["a", "b"], 200, &mut bench);
    assert_eq!(crew.claim_all(&mut bench), ["a", "b"]);
}

#[test]
fn a_run_for_all_is_for_each_worker_once_and_ends_as_the_worst_part() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b", "c"], &mut bench);
    let retry = r#"{"retry": {"attempts": 1}}"#;
    let trigger = bench.create(picking(r#"{"every": "1h"}"#, retry, "all", None));
    assert!(bench.ask(run(trigger)).is_some());
    bench.step();
    assert_eq!(crew.claim_all(&mut bench), ["a", "b", "c"]);
    crew.done("a", OK, &mut bench);
    crew.done("b", AttemptResult::Failed { retry_after: None }, &mut bench);
    crew.done("c", OK, &mut bench);
    let run = &wholes(&bench)[0];
    assert_eq!((run.end, parts(run).0), (End::Dead, "sds".to_owned()));
    assert_eq!((run.trigger, run.attempts.len()), (trigger, 1), "the worst attempt is told");
    // It is kept, and carried out again by all, under an id of its own.
    let dead = bench.dead();
    assert_eq!(dead.len(), 1, "no part is kept beside it");
    let queue = bench.queue("mail").id.serial;
    assert!(bench.ask(Command::Redrive { queue, runs: dead }).is_some());
    bench.step();
    assert_eq!(crew.claim_all(&mut bench), ["a", "b", "c"]);
    ["a", "b", "c"].iter().for_each(|name| crew.done(name, OK, &mut bench));
    let again = wholes(&bench).pop().unwrap();
    assert_eq!(again.end, End::Succeeded);
    assert!(again.queue.unwrap().redriven_from.is_some());
    assert_eq!(bench.dead().len(), 0);
}

#[test]
fn a_part_is_tried_again_by_itself_at_its_worker() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b"], &mut bench);
    submit(&mut bench, r#"{"handler": "h", "pick": "next", "count": 2, "retry": {"delay": "1s"}}"#);
    assert_eq!(crew.claim_all(&mut bench), ["a", "b"]);
    crew.done("b", OK, &mut bench);
    crew.done("a", AttemptResult::Failed { retry_after: None }, &mut bench);
    bench.take_over(bench.wall);
    crew.claim_all(&mut bench);
    crew.stay(&["a", "b"], 2_000, &mut bench);
    assert_eq!(crew.claim_all(&mut bench), ["a"]);
    crew.done("a", OK, &mut bench);
    assert_eq!(wholes(&bench)[0].end, End::Succeeded);
}

#[test]
fn cancelling_ends_what_waits_and_tells_who_has_a_part() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b"], &mut bench);
    let id = submit(&mut bench, r#"{"handler": "h", "pick": "all"}"#);
    assert_eq!(crew.claim("a", 9, &mut bench).len(), 1);
    let cancel = Command::CancelRun { project: ProjectId::DEFAULT, run: id };
    assert_eq!(bench.ask(cancel), Some(Done::Cancelled));
    assert_eq!(crew.claim("b", 9, &mut bench).len(), 0);
    let told = crew.say("a", None, 0, false, &mut bench);
    assert_eq!(told.cancel.len(), 1);
    assert_eq!(wholes(&bench), [], "a has a part");
    crew.done("a", AttemptResult::Cancelled, &mut bench);
    let run = &wholes(&bench)[0];
    assert_eq!((run.end, &*parts(run).0), (End::Cancelled, "cc"));
    // What is for nobody yet ends at once.
    let mut bench = Bench::new();
    let id = submit(&mut bench, r#"{"handler": "h", "pick": "all"}"#);
    let cancel = Command::CancelRun { project: ProjectId::DEFAULT, run: id };
    assert_eq!(bench.ask(cancel), Some(Done::Cancelled));
    assert_eq!(wholes(&bench)[0].end, End::Cancelled);
}

#[test]
fn a_run_with_parts_is_unfinished_for_its_trigger_until_the_last_of_them_has_ended() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b"], &mut bench);
    let policy = r#"{"overlap": "skip"}"#;
    bench.create(picking(EVERY_TEN, policy, "next", Some(2)));
    crew.stay(&["a", "b"], 10_100, &mut bench);
    assert_eq!(crew.claim_all(&mut bench), ["a", "b"]);
    crew.done("a", OK, &mut bench);
    crew.stay(&["a", "b"], 10_000, &mut bench);
    let skipped = |line: &&Line| matches!(line, Line::Skip(skip) if skip.reason == Reason::Overlap);
    assert_eq!(bench.past.iter().filter(skipped).count(), 1, "b has its part");
    crew.done("b", OK, &mut bench);
    crew.stay(&["a", "b"], 10_000, &mut bench);
    assert_eq!(crew.claim_all(&mut bench), ["a", "b"]);
}

#[test]
fn parts_and_what_is_for_nobody_expire() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b"], &mut bench);
    let expiring = r#"{"handler": "h", "pick": "all", "expires_after": "3s"}"#;
    submit(&mut bench, expiring);
    assert_eq!(crew.claim("a", 9, &mut bench).len(), 1);
    crew.done("a", OK, &mut bench);
    crew.stay(&["a", "b"], 3_100, &mut bench);
    assert_eq!(parts(&wholes(&bench)[0]).0, "se");
    let mut bench = Bench::new();
    submit(&mut bench, expiring);
    bench.go(3_100);
    assert_eq!(wholes(&bench)[0].end, End::Expired);
}

#[test]
fn parts_wait_in_a_queue_like_runs_and_one_that_is_full_takes_none() {
    let mut bench = Bench::new();
    let _crew = Crew::of(&["a", "b", "c"], &mut bench);
    assert!(bench.ask(at_most(5)).is_some());
    submit(&mut bench, r#"{"handler": "h", "pick": "all"}"#);
    let draft: RunDraft =
        serde_json::from_str(r#"{"handler": "h", "pick": "next", "count": 3}"#).unwrap();
    let runs = vec![draft.build(Instant(BEGIN)).unwrap()];
    let (project, queue, author) = (ProjectId::DEFAULT, "mail".into(), String::new());
    let refused = bench.refused(Command::Submit { project, queue, runs, author });
    assert!(format!("{refused:?}").contains("QueueIsFull"), "{refused:?}");
    submit(&mut bench, r#"{"handler": "h", "pick": "next", "count": 2}"#);
}

#[test]
fn as_many_workers_are_chosen_as_may_be_and_no_more() {
    let mut bench = Bench::new();
    let names: Vec<&'static str> =
        (0..=PICK_WORKERS_MAX).map(|number| &*format!("w{number:04}").leak()).collect();
    let mut crew = Crew::of(&names, &mut bench);
    submit(&mut bench, r#"{"handler": "h", "pick": "all"}"#);
    let given = crew.claim_all(&mut bench);
    assert_eq!(given.len(), PICK_WORKERS_MAX);
}

#[test]
fn a_slot_that_is_taken_back_leaves_no_part() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a", "b"], &mut bench);
    let trigger = bench.create(picking(EVERY_TEN, "{}", "all", None));
    crew.stay(&["a", "b"], 9_700, &mut bench);
    assert_eq!(bench.below("chosen/"), 1, "it is enqueued ahead");
    bench.pause(trigger);
    bench.commit();
    assert_eq!(bench.below("chosen/") + bench.below("queue/"), 0);
    crew.stay(&["a", "b"], 1_000, &mut bench);
    assert!(crew.claim_all(&mut bench).is_empty());
}

#[test]
fn runs_that_any_worker_may_have_cost_no_record_more() {
    let mut bench = Bench::new();
    let mut crew = Crew::of(&["a"], &mut bench);
    let trigger: SerialId = bench.create(feeding(EVERY_TEN, "{}"));
    assert!(bench.ask(run(trigger)).is_some());
    bench.step();
    assert_eq!(crew.claim("a", 9, &mut bench).len(), 1);
    bench.commit();
    for kind in ["picks/", "chosen/", "parts/"] {
        assert_eq!(bench.below(kind), 0, "{kind}");
    }
    bench.shard.show_run(ProjectId::DEFAULT, crew.0["a"].has[0].0, Ticket(3), bench.now());
    assert!(matches!(bench.answer(), Some(ShardAnswer::Runs(views)) if views.len() == 1));
}

//! Triggers that feed queues.

use engine::id::{ProjectId, RunId, SerialId, ShardId};
use engine::limits::{
    ACTION_INLINE_BYTES_MAX, NAMES_RESERVED_PER_PROJECT_MAX, WAITING_PER_LONG_RUN,
};
use engine::past::{Attempt, End, Line, Reason};
use engine::queue::feed::Payload;
use engine::queue::given::{AttemptResult, RunToken};
use engine::queue::record::QueueSettings;
use engine::shard::command::{Command, Done, Rejection};
use engine::shard::record::RunState;
use engine::shard::{ClaimCall, DoneCall, WorkerCall};
use engine::trigger::Draft;
use serde_json::value::RawValue;

use super::OK;
use super::bench::{Bench, draft};

pub(super) const EVERY_TEN: &str = r#"{"cron": "*/10 * * * * *"}"#;

/// A trigger that feeds the queue `mail`.
pub(super) fn feeding(schedule: &str, policy: &str) -> Draft {
    let mut draft = draft(schedule, policy);
    draft.webhook = None;
    let queue = r#"{"name": "mail", "handler": "welcome", "payload": {"to": "ann"}}"#;
    draft.queue = Some(serde_json::from_str(queue).unwrap());
    draft
}

/// A trigger that feeds the queue `mail` with what is so long that it has a record of its own.
fn feeding_long(policy: &str) -> Draft {
    let mut draft = feeding(EVERY_TEN, policy);
    let long = format!("\"{}\"", "x".repeat(ACTION_INLINE_BYTES_MAX));
    draft.queue.as_mut().unwrap().payload = Some(Payload(RawValue::from_string(long).unwrap()));
    draft
}

/// A worker with one run at a time.
#[derive(Default)]
pub(super) struct Clerk {
    number: u64,
    cookie: u64,
    has: Vec<(RunId, RunToken)>,
}

impl Clerk {
    pub(super) fn say(&mut self, bench: &mut Bench, done: Option<AttemptResult>) -> Vec<RunId> {
        self.number += 1;
        let made = Some(Attempt { at: bench.now().wall, ..Attempt::default() });
        let reported = done.zip(self.has.first().copied());
        let done = reported.map(|(result, (run, token))| DoneCall { run, token, result, made });
        if done.is_some() {
            self.has.remove(0);
        }
        let free = 1 - self.has.len();
        let claim = ClaimCall {
            cookie: self.cookie,
            queues: vec!["mail".into()],
            free,
            wait_ms: 0,
            labels: "".into(),
        };
        let call = WorkerCall {
            project: ProjectId::DEFAULT,
            worker: "clerk".into(),
            incarnation: 1,
            number: self.number,
            settled: self.number - 1,
            lease_ms: 60_000,
            since: 1,
            is_draining: false,
            done: done.into_iter().collect(),
            released: Vec::new(),
            running: Some(self.has.clone()),
            claim: Some(claim),
        };
        let reply = bench.work(call);
        self.cookie = reply.cookie;
        self.has.extend(reply.runs.iter().map(|run| (run.id, run.given.token)));
        reply.cancel.iter().map(|(run, _)| *run).collect()
    }

    /// Claims a run. Says whether there is one.
    pub(super) fn claims(&mut self, bench: &mut Bench) -> bool {
        self.say(bench, None);
        self.say(bench, None);
        !self.has.is_empty()
    }
}

pub(super) fn run(trigger: SerialId) -> Command {
    Command::Run { trigger, author: String::new() }
}

/// Has a dead run of the queue `mail` carried out again. Says as which run.
fn redrive(bench: &mut Bench) -> RunId {
    let dead = bench.dead().swap_remove(0);
    let queue = bench.queue("mail").id.serial;
    let Some(Done::Redriven(results)) = bench.ask(Command::Redrive { queue, runs: vec![dead] })
    else {
        panic!("it is redriven");
    };
    results[0].run().unwrap_or_else(|| panic!("{results:?}"))
}

pub(super) fn at_most(waiting_max: u32) -> Command {
    let settings = QueueSettings { waiting_max: Some(waiting_max), ..QueueSettings::default() };
    let (project, name) = (ProjectId::DEFAULT, "mail".into());
    Command::SetQueue { project, name, settings, author: String::new(), revision: None }
}

#[test]
fn a_slot_waits_in_its_queue_from_the_commit_that_fires_it_and_nobody_gets_it_early() {
    let mut bench = Bench::new();
    bench.create(feeding(EVERY_TEN, "{}"));
    bench.go(9_600);
    assert_eq!(bench.queued(), [(10_000, 10_000)], "it is enqueued ahead");
    assert!(bench.head.open.is_empty());
    let mut clerk = Clerk::default();
    assert!(!clerk.claims(&mut bench), "and it is not due");
    bench.go(10_000);
    assert!(clerk.claims(&mut bench) && bench.left.is_empty());
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    assert_eq!((bench.ends(), bench.queued().len()), (vec![End::Succeeded], 0));
    // A successor goes on after it.
    bench.take_over(15_000);
    bench.go(20_000);
    assert_eq!(bench.queued(), [(20_000, 20_000)]);
    assert!(bench.skips().is_empty());
}

#[test]
fn a_pause_takes_back_what_was_enqueued_ahead_and_leaves_what_is_due() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(r#"{"cron": "*/10 * * * * *", "limit": 5}"#, "{}"));
    bench.go(10_000);
    bench.go(19_700);
    assert_eq!(bench.queued().len(), 2);
    bench.pause(trigger);
    assert_eq!(bench.queued(), [(10_000, 10_000)]);
    assert_eq!(bench.skips(), [(20_000, 20_000, Reason::Paused)]);
    assert_eq!(bench.state(trigger).remaining, Some(4));
}

#[test]
fn a_pause_takes_back_what_a_clock_that_was_ahead_gave_and_nobody_began() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, "{}"));
    bench.go(10_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    // The owner dies before it answers, and its successor's clock shows less.
    clerk.has.clear();
    bench.take_over(9_000);
    assert!(!clerk.claims(&mut bench), "it is not due");
    bench.pause(trigger);
    assert_eq!(bench.skips(), [(10_000, 10_000, Reason::Paused)]);
    bench.go(12_000);
    assert!(!clerk.claims(&mut bench));
}

#[test]
fn a_retry_waits_for_its_instant_also_if_a_clock_that_was_ahead_gave_it_before() {
    let mut bench = Bench::new();
    let retry = r#"{"retry": {"attempts": 3, "delay": "1s", "backoff": "constant"}}"#;
    bench.create(feeding(EVERY_TEN, retry));
    bench.go(10_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    // The successor's clock shows less.
    bench.take_over(7_000);
    clerk.say(&mut bench, Some(AttemptResult::Failed { retry_after: None }));
    bench.go(9_000);
    assert!(!clerk.claims(&mut bench), "its pause is over, and its instant has not come");
    bench.go(10_000);
    assert!(clerk.claims(&mut bench));
}

#[test]
fn while_a_queue_has_a_run_the_next_slot_is_skipped_or_waits_or_takes_its_place() {
    let mut bench = Bench::new();
    bench.create(feeding(EVERY_TEN, r#"{"overlap": "skip"}"#));
    bench.go(10_000);
    bench.go(20_000);
    assert_eq!((bench.queued().len(), bench.skips()), (1, vec![(20_000, 20_000, Reason::Overlap)]));

    let mut bench = Bench::new();
    bench.create(feeding(EVERY_TEN, r#"{"overlap": "queue_one"}"#));
    bench.go(10_000);
    bench.go(20_000);
    bench.go(30_000);
    assert_eq!((bench.queued().len(), bench.skips()), (1, vec![(30_000, 30_000, Reason::Overlap)]));
    assert!(bench.runs().all(|run| run.state == RunState::Blocked));
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    bench.go(30_100);
    assert_eq!((bench.queued(), bench.runs().count()), (vec![(20_000, 20_000)], 0));

    let mut bench = Bench::new();
    bench.create(feeding(EVERY_TEN, r#"{"overlap": "replace"}"#));
    bench.go(10_000);
    bench.go(20_000);
    assert_eq!((bench.queued(), bench.ends()), (vec![(20_000, 20_000)], vec![End::Cancelled]));
}

#[test]
fn what_says_that_a_run_was_given_goes_with_it_though_the_next_one_follows_in_another_commit() {
    let mut bench = Bench::new();
    bench.create(feeding(EVERY_TEN, r#"{"overlap": "queue_one"}"#));
    bench.go(10_000);
    bench.go(20_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    bench.room.writes = 4;
    let before = bench.commits();
    // Each commit is looked at.
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    assert!(bench.commits() - before > 1);
    assert_eq!(bench.ends(), [End::Succeeded]);
}

#[test]
fn a_worker_that_has_a_run_is_told_to_end_it_and_its_replacement_waits_for_that() {
    let mut bench = Bench::new();
    bench.create(feeding(EVERY_TEN, r#"{"overlap": "replace"}"#));
    bench.go(10_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    bench.go(20_000);
    assert_eq!((bench.queued(), bench.runs().count()), (vec![(10_000, 10_000)], 1));
    let told = clerk.say(&mut bench, None);
    assert_eq!(told, [clerk.has[0].0]);
    bench.take_over(21_000);
    bench.go(21_100);
    assert_eq!(bench.queued(), [(10_000, 10_000)], "a successor waits for it too");
    clerk.cookie = 0;
    clerk.say(&mut bench, Some(AttemptResult::Cancelled));
    bench.go(21_200);
    assert_eq!((bench.queued(), bench.ends()), (vec![(20_000, 20_000)], vec![End::Cancelled]));
}

#[test]
fn a_full_queue_skips_slots_for_a_reason_of_its_own_and_refuses_what_is_asked_for() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, "{}"));
    assert_eq!(bench.ask(at_most(1)), Some(Done::QueueSet { revision: 2 }));
    bench.go(10_000);
    bench.go(20_000);
    assert_eq!(bench.queued(), [(10_000, 10_000)]);
    assert_eq!(bench.skips(), [(20_000, 20_000, Reason::QueueFull)]);
    let full = Rejection::QueueIsFull { waiting: 1, max: 1 };
    assert_eq!(bench.refused(run(trigger)), Some(full));
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    assert!(matches!(bench.ask(run(trigger)), Some(Done::Started(_))));
    bench.go(20_100);
    assert_eq!(bench.queued().len(), 2);
    assert_eq!(bench.runs().count(), 0, "it has gone from its record to the queue");
}

#[test]
fn the_bound_for_long_runs_holds_for_those_of_triggers_and_for_redriven_ones() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding_long("{}"));
    bench.shard.set_waiting_max(WAITING_PER_LONG_RUN);
    bench.go(10_000);
    bench.go(20_000);
    assert_eq!(bench.queued(), [(10_000, 10_000)]);
    assert_eq!(bench.skips(), [(20_000, 20_000, Reason::QueueFull)]);
    let too_many = Some(Rejection::TooManyLongRuns { long: 1, max: 1 });
    assert_eq!(bench.refused(run(trigger)), too_many);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::FailedForGood));
    bench.go(30_000);
    let (queue, runs) = (bench.queue("mail").id.serial, bench.dead());
    assert_eq!(
        (bench.queued().len(), runs.len()),
        (2, 1),
        "the dead one lies there, and takes no place"
    );
    assert_eq!(bench.refused(Command::Redrive { queue, runs }), too_many);
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    redrive(&mut bench);
    assert_eq!((bench.queued().len(), bench.dead().len()), (1, 0));
}

#[test]
fn a_run_that_found_its_queue_full_waits_without_a_write_and_keeps_its_place() {
    let mut bench = Bench::new();
    bench.create(feeding(EVERY_TEN, r#"{"overlap": "queue_one"}"#));
    bench.go(10_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    bench.go(20_000);
    bench.ask(at_most(0));
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    bench.go(20_100);
    assert_eq!((bench.queued().len(), bench.runs().count()), (0, 1), "there is no room");
    let written = bench.commits();
    for second in 21..29 {
        bench.go(second * 1_000);
        assert!(
            bench.shard.next_wake(bench.now()).is_some_and(|at| at.0 - bench.now().wall.0 <= 1_000)
        );
    }
    assert_eq!(bench.commits(), written, "nobody has to be told that it waits");
    bench.go(30_000);
    assert_eq!(bench.skips(), [(30_000, 30_000, Reason::Overlap)], "one waits already");
    assert_eq!(bench.runs().count(), 1);
    bench.take_over(31_000);
    bench.go(31_100);
    bench.ask(at_most(1));
    bench.go(32_200);
    assert_eq!((bench.queued(), bench.runs().count()), (vec![(20_000, 20_000)], 0));
}

#[test]
fn a_queue_that_a_run_is_on_its_way_to_is_not_deleted() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, r#"{"overlap": "queue_one"}"#));
    bench.go(10_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    bench.go(20_000);
    bench.ask(at_most(0));
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    let mut elsewhere = feeding(EVERY_TEN, r#"{"overlap": "queue_one"}"#);
    elsewhere.queue.as_mut().unwrap().name = Some("post".to_owned());
    bench.replace(trigger, elsewhere);
    let queue = bench.queue("mail").id.serial;
    let refused = bench.refused(Command::DeleteQueue { queue });
    assert_eq!(refused, Some(Rejection::QueueHasRuns { runs: 1 }));
    bench.ask(Command::Cancel { trigger, author: String::new() });
    assert_eq!(bench.ask(Command::DeleteQueue { queue }), Some(Done::Deleted));
}

#[test]
fn a_run_on_demand_keeps_its_id_on_the_way_to_the_queue_and_waits_for_others() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, r#"{"overlap": "skip"}"#));
    bench.go(10_000);
    let Some(Done::Started(id)) = bench.ask(run(trigger)) else { panic!("it is started") };
    bench.go(10_100);
    assert_eq!((bench.queued().len(), bench.runs().count()), (1, 1));
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::FailedForGood));
    bench.take_over(11_000);
    bench.go(11_100);
    let mut clerk = Clerk { number: 10, ..Clerk::default() };
    assert!(clerk.claims(&mut bench));
    assert_eq!(clerk.has[0].0, id);
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    assert_eq!(bench.ends(), [End::Failed, End::Succeeded]);
}

#[test]
fn a_dead_run_that_is_redriven_waits_for_others_of_its_trigger_where_they_must_not_overlap() {
    for overlap in ["skip", "queue_one", "replace"] {
        let mut bench = Bench::new();
        let trigger = bench.create(feeding(EVERY_TEN, &format!(r#"{{"overlap": "{overlap}"}}"#)));
        bench.go(10_000);
        let mut clerk = Clerk::default();
        assert!(clerk.claims(&mut bench));
        clerk.say(&mut bench, Some(AttemptResult::FailedForGood));
        bench.go(20_000);
        assert!(clerk.claims(&mut bench));
        bench.pause(trigger);
        let id = redrive(&mut bench);
        bench.go(20_100);
        assert_eq!(bench.dead().len(), 0, "{overlap}");
        assert_eq!(bench.queued(), [(20_000, 20_000)], "{overlap}: beside another one");
        assert_eq!(bench.runs().count(), 1);
        bench.take_over(20_200);
        bench.go(20_300);
        assert_eq!(bench.queued(), [(20_000, 20_000)], "{overlap}: a successor waits too");
        clerk.cookie = 0;
        clerk.say(&mut bench, Some(AttemptResult::Succeeded));
        bench.go(20_400);
        assert_eq!((bench.queued(), bench.runs().count()), (vec![(20_000, 20_000)], 0));
        clerk.has.clear();
        assert!(clerk.claims(&mut bench));
        assert_eq!(clerk.has[0].0, id, "{overlap}");
        clerk.say(&mut bench, Some(AttemptResult::Succeeded));
        let Some(Line::Run(run)) = bench.past.last() else { panic!("it is past") };
        let first = bench.past.iter().find_map(|line| match line {
            Line::Run(run) if run.end == End::Failed => Some(run.slot),
            Line::Run(_) | Line::Skip(_) => None,
        });
        let former = run.queue.as_ref().and_then(|queue| queue.redriven_from);
        assert_eq!(former.map(|former| former.slot), first, "{overlap}");
    }
}

#[test]
fn a_dead_run_whose_trigger_lets_runs_overlap_or_is_gone_goes_to_its_queue_at_once() {
    for is_gone in [false, true] {
        let mut bench = Bench::new();
        let overlap = if is_gone { "skip" } else { "allow" };
        let trigger = bench.create(feeding(EVERY_TEN, &format!(r#"{{"overlap": "{overlap}"}}"#)));
        bench.go(10_000);
        let mut clerk = Clerk::default();
        assert!(clerk.claims(&mut bench));
        clerk.say(&mut bench, Some(AttemptResult::FailedForGood));
        bench.go(20_000);
        if is_gone {
            bench.ask(Command::Delete { trigger, author: String::new() });
        }
        redrive(&mut bench);
        assert_eq!((bench.queued().len(), bench.runs().count()), (2, 0), "{is_gone}");
    }
}

#[test]
fn a_redriven_run_that_waits_for_another_can_be_cancelled() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, r#"{"overlap": "skip"}"#));
    bench.go(10_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::FailedForGood));
    bench.go(20_000);
    bench.pause(trigger);
    let run = redrive(&mut bench);
    let cancel = |project| Command::CancelRun { project, run };
    assert_eq!(bench.refused(cancel(ProjectId(7))), Some(Rejection::NoSuchRun));
    assert_eq!(bench.ask(cancel(ProjectId::DEFAULT)), Some(Done::Cancelled));
    assert_eq!((bench.runs().count(), bench.ends()), (0, vec![End::Failed, End::Cancelled]));
}

#[test]
fn failures_in_a_row_pause_a_trigger_whose_runs_workers_carry_out() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, r#"{"pause_after": 1}"#));
    bench.go(10_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::FailedForGood));
    assert!(bench.state(trigger).paused.is_some());
}

#[test]
fn what_nobody_claims_within_its_lateness_expires() {
    let mut bench = Bench::new();
    bench.create(feeding(r#"{"cron": "*/10 * * * * *", "limit": 1}"#, r#"{"max_lateness": "5s"}"#));
    bench.go(10_000);
    bench.go(15_000);
    assert_eq!(bench.ends(), [End::Expired]);
}

#[test]
fn a_run_in_a_queue_outlives_its_trigger_and_its_queue_outlives_both() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, "{}"));
    bench.go(10_000);
    bench.ask(Command::Delete { trigger, author: String::new() });
    assert_eq!((bench.triggers().len(), bench.queued().len()), (0, 1));
    bench.take_over(12_000);
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    assert_eq!(bench.ends(), [End::Succeeded]);
}

#[test]
fn a_trigger_goes_from_a_webhook_to_a_queue_and_back_without_overlap() {
    let mut bench = Bench::new();
    let skip = r#"{"overlap": "skip"}"#;
    let trigger = bench.create(draft(EVERY_TEN, skip));
    bench.go(10_000);
    assert_eq!(bench.left.len(), 1);
    bench.replace(trigger, feeding(EVERY_TEN, skip));
    bench.go(20_000);
    assert_eq!(bench.skips(), [(20_000, 20_000, Reason::Overlap)], "the call is under way");
    bench.finish(OK);
    bench.go(30_000);
    assert_eq!(bench.queued(), [(30_000, 30_000)]);
    bench.replace(trigger, draft(EVERY_TEN, skip));
    bench.go(40_000);
    assert_eq!(bench.skips().len(), 2, "the run is in the queue");
    assert!(bench.left.is_empty());
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    bench.go(50_000);
    assert_eq!(bench.left.len(), 1);
}

#[test]
fn a_queue_that_is_fed_is_not_deleted() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, "{}"));
    let queue = SerialId(trigger.0 - 1);
    let refused = bench.refused(Command::DeleteQueue { queue });
    assert!(
        matches!(refused, Some(Rejection::QueueIsFed(id)) if id.serial == trigger),
        "{refused:?}"
    );
    bench.ask(Command::Delete { trigger, author: String::new() });
    assert_eq!(bench.ask(Command::DeleteQueue { queue }), Some(Done::Deleted));
}

#[test]
fn a_name_is_kept_for_one_shard_until_nobody_can_be_about_to_use_it() {
    let mut bench = Bench::new();
    let reserve = |shard| Command::ReserveName {
        project: ProjectId::DEFAULT,
        name: "a".into(),
        shard: ShardId(shard),
    };
    let release = || Command::ReleaseName { project: ProjectId::DEFAULT, name: "a".into() };
    assert_eq!(bench.ask(reserve(7)), Some(Done::NameReserved));
    bench.take_over(1_000);
    let kept = Rejection::NameReserved { at: engine::instant::Instant(super::BEGIN) };
    assert_eq!(bench.refused(reserve(8)), Some(kept));
    let mut named = draft(EVERY_TEN, "{}");
    named.name = Some("a".to_owned());
    let definition = Box::new(named.build(bench.now().wall).unwrap());
    let text = serde_json::value::to_raw_value(&named).unwrap();
    let create = || Command::Create {
        project: ProjectId::DEFAULT,
        definition: definition.clone(),
        draft: text.clone(),
        author: String::new(),
        named_until: None,
    };
    assert_eq!(bench.refused(create()), Some(kept));
    bench.go(59_000);
    assert_eq!(bench.ask(release()), Some(Done::Unchanged), "it is too young");
    assert_eq!(bench.ask(reserve(7)), Some(Done::NameReserved), "whoever has it gets more time");
    bench.go(118_000);
    assert_eq!(bench.ask(release()), Some(Done::Unchanged));
    bench.go(119_000);
    assert_eq!(bench.ask(release()), Some(Done::NameReleased));
    let mut late = create();
    if let Command::Create { named_until, .. } = &mut late {
        *named_until = Some(bench.steady);
    }
    assert_eq!(bench.refused(late), Some(Rejection::ReservationIsOver));
    assert!(matches!(bench.ask(create()), Some(Done::Created(_))));
    assert!(matches!(bench.refused(reserve(7)), Some(Rejection::NameTaken(_))));
}

#[test]
fn a_project_has_as_many_names_reserved_as_it_may_and_leaves_the_others_theirs() {
    let mut bench = Bench::new();
    let reserve = |project, name: usize| {
        let name = format!("n{name}").into();
        Command::ReserveName { project: ProjectId(project), name, shard: ShardId(7) }
    };
    for name in 0..NAMES_RESERVED_PER_PROJECT_MAX {
        assert_eq!(bench.refused(reserve(1, name)), None);
    }
    let one_more = NAMES_RESERVED_PER_PROJECT_MAX;
    assert_eq!(bench.refused(reserve(1, one_more)), Some(Rejection::TooManyNames));
    assert_eq!(bench.refused(reserve(1, 0)), None, "what it has it may reserve again");
    assert_eq!(bench.refused(reserve(2, one_more)), None);
    bench.go(61_000);
    bench.ask(Command::ReleaseName { project: ProjectId(1), name: "n0".into() });
    assert_eq!(bench.refused(reserve(1, one_more)), None);
}

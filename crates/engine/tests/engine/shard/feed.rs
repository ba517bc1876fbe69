//! Triggers that feed queues.

use engine::id::{ProjectId, RunId, SerialId, ShardId};
use engine::past::{Attempt, End, Reason};
use engine::queue::given::{AttemptResult, RunToken};
use engine::queue::record::QueueSettings;
use engine::shard::command::{Command, Done, Rejection};
use engine::shard::record::RunState;
use engine::shard::{ClaimCall, DoneCall, WorkerCall};
use engine::trigger::Draft;

use super::OK;
use super::bench::{Bench, draft};

const EVERY_TEN: &str = r#"{"cron": "*/10 * * * * *"}"#;

/// A trigger that feeds the queue `mail`.
fn feeding(schedule: &str, policy: &str) -> Draft {
    let mut draft = draft(schedule, policy);
    draft.webhook = None;
    let queue = r#"{"name": "mail", "handler": "welcome", "payload": {"to": "ann"}}"#;
    draft.queue = Some(serde_json::from_str(queue).unwrap());
    draft
}

/// A worker with one run at a time.
#[derive(Default)]
struct Clerk {
    number: u64,
    cookie: u64,
    has: Vec<(RunId, RunToken)>,
}

impl Clerk {
    fn say(&mut self, bench: &mut Bench, done: Option<AttemptResult>) -> Vec<RunId> {
        self.number += 1;
        let made = Some(Attempt { at: bench.now().wall, ..Attempt::default() });
        let reported = done.zip(self.has.first().copied());
        let done = reported.map(|(result, (run, token))| DoneCall { run, token, result, made });
        if done.is_some() {
            self.has.remove(0);
        }
        let free = 1 - self.has.len();
        let claim =
            ClaimCall { cookie: self.cookie, queues: vec!["mail".into()], free, wait_ms: 0 };
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
    fn claims(&mut self, bench: &mut Bench) -> bool {
        self.say(bench, None);
        self.say(bench, None);
        !self.has.is_empty()
    }
}

fn run(trigger: SerialId) -> Command {
    Command::Run { trigger, author: String::new() }
}

fn at_most(waiting_max: u32) -> Command {
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
    };
    assert_eq!(bench.refused(create()), Some(kept));
    bench.go(59_000);
    assert_eq!(bench.ask(release()), Some(Done::Unchanged), "it is too young");
    assert_eq!(bench.ask(reserve(7)), Some(Done::NameReserved), "whoever has it gets more time");
    bench.go(118_000);
    assert_eq!(bench.ask(release()), Some(Done::Unchanged));
    bench.go(119_000);
    assert_eq!(bench.ask(release()), Some(Done::NameReleased));
    assert!(matches!(bench.ask(create()), Some(Done::Created(_))));
    assert!(matches!(bench.refused(reserve(7)), Some(Rejection::NameTaken(_))));
}

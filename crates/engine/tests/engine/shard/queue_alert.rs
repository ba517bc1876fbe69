//! Queues in which runs wait for too long: who is told, how often, and what a successor knows.

use engine::id::{ProjectId, RunId};
use engine::notice::{Listener, Occasions};
use engine::outcome::Outcome;
use engine::past::Line;
use engine::queue::draft::{QueueDraft, RunDraft};
use engine::queue::news::QueueHappening;
use engine::queue::record::QueueSettings;
use engine::shard::command::{Command, Done};
use serde_json::{Value, json};

use super::bench::Bench;

const OK: Outcome = Outcome::Answered { status: 200, retry_after: None };
const PROJECT: ProjectId = ProjectId::DEFAULT;

fn settings(draft: &Value) -> QueueSettings {
    serde_json::from_value::<QueueDraft>(draft.clone()).unwrap().build().unwrap()
}

/// A bench to which somebody listens, with a queue whose runs may wait for a minute.
fn heard() -> Bench {
    let mut bench = Bench::new();
    let listener = Listener::new("default", "http://chat.test/hook", Occasions::USUAL).unwrap();
    bench.hear(Some(listener));
    set(&mut bench, &json!({"alert_after": "1m"}));
    bench
}

fn set(bench: &mut Bench, draft: &Value) {
    let (name, author) = ("mail".into(), String::new());
    let settings = settings(draft);
    bench.ask(Command::SetQueue { project: PROJECT, name, settings, author, revision: None });
}

fn submit(bench: &mut Bench, draft: &Value) -> RunId {
    let draft: RunDraft = serde_json::from_value(draft.clone()).unwrap();
    let runs = vec![draft.build(bench.now().wall).unwrap()];
    let (queue, author) = ("mail".into(), String::new());
    match bench.ask(Command::Submit { project: PROJECT, queue, runs, author }) {
        Some(Done::Submitted(taken)) => taken[0].id,
        other => panic!("{other:?}"),
    }
}

fn cancel(bench: &mut Bench, run: RunId) {
    bench.ask(Command::CancelRun { project: PROJECT, run });
}

/// What is on its way to whoever listens, which is taken.
fn told(bench: &mut Bench) -> Vec<Value> {
    let mut told = Vec::new();
    while let Some(left) = bench.left.first() {
        told.push(serde_json::from_str(left.webhook.body.as_ref().unwrap()).unwrap());
        bench.finish(OK);
    }
    bench.go(bench.wall + 60);
    told
}

/// Lets seconds pass, as often as the shard wants to be woken and not more.
fn pass(bench: &mut Bench, seconds: i64) -> usize {
    let (end, mut wakes) = (bench.wall + seconds * 1_000, 0);
    while let Some(next) = bench.shard.next_wake(bench.now()) {
        let next = next.0 - super::bench::BEGIN;
        if next > end {
            break;
        }
        wakes += 1;
        bench.go(next);
    }
    bench.go(end);
    wakes
}

#[test]
fn a_run_that_waits_for_too_long_is_told_once_and_once_more_when_it_does_not() {
    let mut bench = heard();
    let run = submit(&mut bench, &json!({"handler": "h"}));
    pass(&mut bench, 59);
    assert_eq!(told(&mut bench), [] as [Value; 0]);
    pass(&mut bench, 2);
    let [overdue] = &told(&mut bench)[..] else { panic!("nobody was told") };
    assert_eq!(overdue["event"], "overdue");
    assert_eq!(
        overdue["text"],
        "mail (default) has a run that waits for a worker since 1m: 1 wait, 0 execute"
    );
    assert_eq!((&overdue["queue"], overdue.get("trigger")), (&json!("mail"), None));
    assert!(overdue["queue_id"].as_str().unwrap().starts_with("que_"), "{overdue}");

    // Nobody is told again, however long it takes, whoever has the shard, and the shard is seldom woken.
    let wakes = pass(&mut bench, 3_600);
    assert!(wakes < 300, "{wakes}");
    bench.take_over(bench.wall + 1_000);
    pass(&mut bench, 600);
    assert_eq!(told(&mut bench), [] as [Value; 0]);

    cancel(&mut bench, run);
    pass(&mut bench, 60);
    let [recovery] = &told(&mut bench)[..] else { panic!("nobody was told") };
    assert_eq!(recovery["event"], "recovery");
    assert_eq!(
        recovery["text"],
        "mail (default) has no run any more that waits for longer than 1m"
    );
    let told: Vec<_> = bench.news.iter().map(|news| &news.what).collect();
    let [QueueHappening::Overdue { .. }, QueueHappening::Well { queue }] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(&**queue, "mail");
    let notices = bench.past.iter().filter_map(|line| match line {
        Line::Run(run) => run.notice.and(run.queue.as_ref()),
        Line::Skip(_) => None,
    });
    assert!(notices.map(|queue| &*queue.name).eq(["mail", "mail"]));
    // A queue in which nothing waits wakes nobody.
    assert_eq!(pass(&mut bench, 3_600), 0);
}

#[test]
fn a_queue_is_well_when_its_oldest_waits_for_half_as_long_and_not_before() {
    let mut bench = heard();
    let first = submit(&mut bench, &json!({"handler": "h"}));
    pass(&mut bench, 20);
    let second = submit(&mut bench, &json!({"handler": "h"}));
    pass(&mut bench, 46);
    assert_eq!(told(&mut bench).len(), 1);
    submit(&mut bench, &json!({"handler": "h"}));
    cancel(&mut bench, first);
    pass(&mut bench, 13);
    assert_eq!(told(&mut bench), [] as [Value; 0], "the oldest waits for 59 s");
    cancel(&mut bench, second);
    pass(&mut bench, 15);
    assert_eq!(told(&mut bench).len(), 1, "the oldest waits for 28 s");
}

#[test]
fn what_no_worker_could_have_is_told_to_nobody() {
    let mut bench = heard();
    submit(&mut bench, &json!({"handler": "h", "delay": "1h"}));
    pass(&mut bench, 3_600);
    assert_eq!(told(&mut bench), [] as [Value; 0], "it was not due");
    let queue = bench.queue("mail").id.serial;
    let (author, note) = ("ann".to_owned(), String::new());
    bench.ask(Command::PauseQueue { queue, author, note, until: None });
    pass(&mut bench, 3_600);
    assert_eq!(told(&mut bench), [] as [Value; 0], "whoever paused it knows");
    bench.ask(Command::ResumeQueue { queue });
    pass(&mut bench, 1);
    assert_eq!(told(&mut bench).len(), 1);
    assert!(bench.queue("mail").overdue.is_some());
    // Without the setting nobody is told, and nothing is kept of it.
    set(&mut bench, &json!({}));
    pass(&mut bench, 60);
    assert_eq!((told(&mut bench).len(), bench.queue("mail").overdue), (0, None));
}

#[test]
fn where_nobody_listens_those_who_watch_are_told_all_the_same() {
    let mut bench = heard();
    bench.hear(None);
    submit(&mut bench, &json!({"handler": "h"}));
    pass(&mut bench, 61);
    assert!(bench.left.is_empty() && bench.runs().next().is_none());
    assert_eq!(bench.news.len(), 1);
    assert!(bench.queue("mail").overdue.is_some());
}

use super::*;
use crate::id::SerialId;
use crate::instant::Instant;
use crate::queue::backlog::ClaimOrder;
use crate::queue::given::{GivenPolicy, GivenState};
use crate::queue::pick::RunRole;
use crate::queue::submitted::SubmittedRun;
use crate::queue::unfinished::QueueDelta;

const NOW: Now = Now { wall: Instant(1_000), steady: 1_000, random: 7 };

fn claim(number: u64, settled: u64, free: usize) -> WorkerRequest {
    let queues = vec![SerialId(1)];
    let wants = Wants::Claim {
        running: Vec::new(),
        cookie: NOW.random,
        queues,
        free,
        until: 0,
        labels: Arc::default(),
    };
    WorkerRequest {
        worker: "w".into(),
        incarnation: 5,
        number,
        settled,
        lease_ms: 1_000,
        since: 0,
        done: Vec::new(),
        released: Vec::new(),
        is_draining: free == 0,
        wants,
    }
}

/// A run waits.
fn submitted() -> QueueDelta {
    QueueDelta::Submitted(SubmittedRun {
        queue: SerialId(1),
        order: ClaimOrder { priority: 5, due: Instant(1), sequence: 1 },
        born: Instant(1),
        has_body: false,
        policy: GivenPolicy::default(),
        role: RunRole::Plain,
        details: None,
    })
}

#[test]
fn a_claim_that_waits_is_void_once_its_worker_gave_it_up_and_gets_nothing_while_it_drains() {
    for (settled, is_draining, is_void) in [(2, false, false), (3, false, true), (2, true, false)] {
        let mut runs = UnfinishedRuns::default();
        let mut workers = Workers::new(&runs, NOW);
        let mut hear = |request: WorkerRequest| {
            let mut decided = Decided::with_room(usize::MAX);
            workers.hear(&request, Ticket(request.number), &mut runs, &mut decided, NOW)
        };
        let mut waiting = claim(3, 2, 1);
        let Wants::Claim { until, .. } = &mut waiting.wants else { unreachable!() };
        *until = NOW.steady + 10_000;
        assert_eq!(hear(waiting), Heard::Waits);
        let wants = Wants::Beat { running: Vec::new() };
        hear(WorkerRequest { is_draining, wants, ..claim(4, settled, 1) });
        assert_eq!(workers.take_voided().len(), usize::from(is_void), "{settled}");
        runs.apply(&submitted());
        let mut decided = Decided::with_room(usize::MAX);
        let answers = workers.step(&mut runs, &mut decided, NOW);
        let is_given = !is_void && !is_draining;
        assert_eq!(answers.len(), usize::from(is_given), "{settled}, {is_draining}");
    }
}

#[test]
fn a_claim_of_a_former_life_is_void_once_a_later_one_is_heard() {
    let mut runs = UnfinishedRuns::default();
    let mut workers = Workers::new(&runs, NOW);
    let mut hear = |request: WorkerRequest| {
        let mut decided = Decided::with_room(usize::MAX);
        workers.hear(&request, Ticket(request.number), &mut runs, &mut decided, NOW)
    };
    let mut waiting = claim(3, 2, 1);
    let Wants::Claim { until, .. } = &mut waiting.wants else { unreachable!() };
    *until = NOW.steady + 10_000;
    assert_eq!(hear(waiting), Heard::Waits);
    hear(WorkerRequest { incarnation: 6, wants: Wants::Report, ..claim(1, 0, 1) });
    assert_eq!(workers.take_voided(), [Ticket(3)]);
}

#[test]
fn a_claim_that_comes_after_its_worker_gave_it_up_is_given_nothing() {
    let mut runs = UnfinishedRuns::default();
    runs.apply(&submitted());
    let mut workers = Workers::new(&runs, NOW);
    let mut hear = |request: &WorkerRequest| {
        let mut decided = Decided::with_room(usize::MAX);
        match workers.hear(request, Ticket(request.number), &mut runs, &mut decided, NOW) {
            Heard::Answer(answer) => answer.runs.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(hear(&claim(3, 2, 0)), 0, "it drains");
    assert_eq!(hear(&claim(2, 1, 1)), 0, "it listens to this one no more");
    assert_eq!(hear(&claim(4, 3, 1)), 1);
}

#[test]
fn labels_are_those_of_the_last_claim_of_a_life_and_beats_leave_them() {
    let mut runs = UnfinishedRuns::default();
    let mut workers = Workers::new(&runs, NOW);
    let labelled = |number, incarnation, text: &str| {
        let mut request = WorkerRequest { incarnation, ..claim(number, number - 1, 1) };
        if let Wants::Claim { labels, .. } = &mut request.wants {
            *labels = text.into();
        }
        request
    };
    let beat = |number, incarnation| WorkerRequest {
        wants: Wants::Beat { running: Vec::new() },
        ..labelled(number, incarnation, "")
    };
    let steps = [
        (labelled(1, 5, "zone=b"), "zone=b"),
        (beat(2, 5), "zone=b"),
        (labelled(3, 5, "zone=c"), "zone=c"),
        (beat(1, 6), ""),
        (labelled(2, 6, ""), ""),
    ];
    for (request, expected) in steps {
        let mut decided = Decided::with_room(usize::MAX);
        workers.hear(&request, Ticket(request.number), &mut runs, &mut decided, NOW);
        assert_eq!(&*workers.list(&runs, NOW)[0].labels, expected, "{request:?}");
    }
}

#[test]
fn what_was_claimed_under_another_log_may_have_begun_and_what_is_in_this_one_did_not() {
    // The log under which a run was claimed, and that of the next life.
    for (former, since, has_died) in [(0, 0, false), (3, 3, false), (3, 6, true), (4, 3, true)] {
        let mut runs = UnfinishedRuns::default();
        runs.apply(&submitted());
        let mut workers = Workers::new(&runs, NOW);
        let mut hear = |request: &WorkerRequest, runs: &mut UnfinishedRuns| {
            let mut decided = Decided::with_room(usize::MAX);
            workers.hear(request, Ticket(request.number), runs, &mut decided, NOW);
        };
        hear(&WorkerRequest { since: former, ..claim(1, 0, 1) }, &mut runs);
        assert_eq!(runs.of_worker(&"w".into()).count(), 1);
        hear(&WorkerRequest { since, incarnation: 6, ..claim(1, 0, 0) }, &mut runs);
        let record = runs.given(1).expect("it was given once");
        assert_eq!(record.deaths, u32::from(has_died), "{former} and {since}");
        assert_ne!(record.state, GivenState::Running);
    }
}

#[test]
fn of_what_was_recorded_without_a_log_the_life_tells_whether_it_may_have_begun() {
    let recorded = r#"{"worker":"w","incarnation":5,"claim":1,"lease_ms":1000}"#;
    let claimant: Claimant = serde_json::from_str(recorded).unwrap();
    for (since, has_died) in [(0, false), (4, false), (5, false), (6, true)] {
        let mut runs = UnfinishedRuns::default();
        runs.apply(&submitted());
        let given = Arc::new(GivenRecord::first(claimant.clone(), NOW.wall));
        runs.apply(&QueueDelta::Given(1, given));
        let mut workers = Workers::new(&runs, NOW);
        let mut decided = Decided::with_room(usize::MAX);
        let next = WorkerRequest { since, incarnation: 6, ..claim(1, 0, 0) };
        workers.hear(&next, Ticket(1), &mut runs, &mut decided, NOW);
        let record = runs.given(1).expect("it was given once");
        assert_eq!(record.deaths, u32::from(has_died), "{since}");
    }
}

#[test]
fn a_worker_whose_claim_waited_in_vain_is_not_silent_before_it_could_say_anything() {
    let mut runs = UnfinishedRuns::default();
    let mut workers = Workers::new(&runs, NOW);
    let mut decided = Decided::with_room(usize::MAX);
    let mut waiting = claim(1, 0, 1);
    let end = NOW.steady + two_beats(1_000);
    let Wants::Claim { until, .. } = &mut waiting.wants else { unreachable!() };
    *until = end;
    assert_eq!(workers.hear(&waiting, Ticket(1), &mut runs, &mut decided, NOW), Heard::Waits);
    let at = |steady| Now { steady, ..NOW };
    assert_eq!(workers.step(&mut runs, &mut decided, at(end + 1)).len(), 1);
    let activity = |steady| workers.list(&runs, at(steady))[0].activity();
    let quiet = end + 1 + two_beats(1_000);
    assert_eq!((activity(end + 1), activity(quiet)), (WorkerActivity::Idle, WorkerActivity::Idle));
    assert_eq!(activity(quiet + 1), WorkerActivity::Silent);
}

#[test]
fn a_worker_that_is_not_heard_of_for_two_beats_is_silent_whether_it_had_runs_or_took_no_more() {
    for (free, at_first) in [(1, WorkerActivity::Idle), (0, WorkerActivity::Draining)] {
        let mut runs = UnfinishedRuns::default();
        let mut workers = Workers::new(&runs, NOW);
        let mut decided = Decided::with_room(usize::MAX);
        workers.hear(&claim(1, 0, free), Ticket(1), &mut runs, &mut decided, NOW);
        let two_beats = two_beats(1_000);
        for (later, expected) in [(two_beats, at_first), (two_beats + 1, WorkerActivity::Silent)] {
            let now = Now { steady: NOW.steady + later, ..NOW };
            assert_eq!(workers.list(&runs, now)[0].activity(), expected);
        }
    }
}

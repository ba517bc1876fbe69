//! Runs: started by hand, waited for, listed, found.

use std::time::Duration;

use client::RunFilter;
use client::run::{Run, RunState as WireState};
use client::spec::TriggerSpec;
use client::trigger::Backfilled;
use engine::id::TriggerId;
use engine::instant::Instant;
use engine::limits::{BACKFILL_SLOTS_MAX, SEGMENTS_READ_MAX};
use engine::past::{Attempt, End, Finished, Line};
use engine::shard::record::{HeadRecord, OpenRun, RunRecord, RunState, run_key};
use engine::trigger::Draft;
use serde_json::json;

use super::bench::{Bench, minute, minutely, succeeded};

fn unfinished(id: TriggerId, slot: Instant, state: RunState) -> RunRecord {
    let draft = serde_json::to_string(&minutely("hello")).unwrap();
    let draft: Draft = serde_json::from_str(&draft).unwrap();
    let definition = draft.build(Instant(0)).unwrap();
    RunRecord {
        project: engine::id::ProjectId::DEFAULT,
        trigger: id.serial,
        name: "hello".into(),
        slot,
        leaves_at: slot,
        generation: Some(1),
        state,
        attempt: 1,
        tries: 0,
        untried_since: None,
        notice: None,
        target: definition.target.into(),
        policy: definition.policy,
        attempts: vec![Attempt {
            at: slot,
            ms: 3,
            status: Some(500),
            response: Some("oh".into()),
            ..Attempt::default()
        }],
        remote: None,
        redriven_from: None,
    }
}

#[tokio::test]
async fn a_run_is_started_and_not_waited_for() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let started = bench.client.run("hello", None).await.unwrap();
    assert_eq!(started.run, None);
    let run = bench.client.run_by_id(&started.id).await.unwrap();
    assert_eq!((run.state, run.on_demand), (WireState::Running, true));
    assert_eq!(run.name.as_deref(), Some("hello"));
}

#[tokio::test]
async fn a_run_that_is_waited_for_comes_back_when_it_has_ended() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let mut hints = bench.store.watch("shard/");
    let waiting = bench.client.run("hello", Some(Duration::from_secs(60)));
    let ending = async {
        hints.changed().await;
        bench
            .past(
                id.shard,
                vec![Line::Run(Finished {
                    project: engine::id::ProjectId::DEFAULT,
                    trigger: id.serial,
                    slot: minute(0),
                    generation: None,
                    sequence: Some(1),
                    notice: None,
                    queue: None,
                    end: End::Failed,
                    at: minute(0),
                    attempt: 1,
                    attempts: Vec::new(),
                })],
            )
            .await;
    };
    let (started, ()) = tokio::join!(waiting, ending);
    let run = started.unwrap().run.unwrap();
    assert_eq!((run.state, run.on_demand), (WireState::Failed, true));
}

#[tokio::test]
async fn a_run_that_is_not_over_in_time_is_told_as_it_is() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let answer = bench.json("POST", "/v1/triggers/hello/run?wait=0s", "").await;
    assert_eq!(answer.status(), 202);
    let started: client::run::Started = answer.body();
    assert_eq!(started.run.unwrap().state, WireState::Running);
    for (wait, said) in [("61s", "at most 1m"), ("soon", "a number is missing")] {
        let path = format!("/v1/triggers/hello/run?wait={wait}");
        let problem = bench.json("POST", &path, "").await.problem(422);
        assert!(problem.errors[0].detail.contains(said), "{}", problem.detail);
    }
}

/// A trigger with an open run, two unfinished ones, and four that ended.
async fn busy(bench: &Bench) -> TriggerId {
    let id = bench.minutely("hello").await;
    bench.past(id.shard, vec![succeeded(id, minute(1)), succeeded(id, minute(2))]).await;
    bench.past(id.shard, vec![succeeded(id, minute(3)), succeeded(id, minute(4))]).await;
    bench.put(run_key(id.shard, 1), &unfinished(id, minute(5), RunState::Backoff(minute(9)))).await;
    bench.put(run_key(id.shard, 2), &unfinished(id, minute(6), RunState::Running)).await;
    let open = vec![OpenRun { trigger: id.serial, slot: minute(7) }];
    bench.head(id.shard, &HeadRecord { open, ..HeadRecord::default() }).await;
    bench.set_now(minute(7));
    id
}

#[tokio::test]
async fn runs_of_a_trigger_are_listed_newest_first_in_pages_of_any_size() {
    let bench = Bench::new().await;
    busy(&bench).await;
    let states = |runs: &[Run]| runs.iter().map(|run| run.state).collect::<Vec<_>>();
    let all = bench.client.runs_of("hello", &RunFilter::default()).await.unwrap();
    assert_eq!(all.next, None);
    assert_eq!(
        states(&all.items)[..3],
        [WireState::Running, WireState::Running, WireState::Backoff]
    );
    let slots: Vec<String> = all.items.iter().map(|run| run.slot.to_string()).collect();
    let expected: Vec<String> = (1..=7).rev().map(|number| minute(number).to_string()).collect();
    assert_eq!(slots, expected);
    for limit in 1..=8 {
        let (mut ids, mut cursor) = (Vec::new(), None);
        loop {
            let filter = RunFilter { limit: Some(limit), cursor, ..RunFilter::default() };
            let page = bench.client.runs_of("hello", &filter).await.unwrap();
            ids.extend(page.items.into_iter().map(|run| run.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        ids.sort();
        let mut expected: Vec<String> = all.items.iter().map(|run| run.id.clone()).collect();
        expected.sort();
        assert_eq!(ids, expected, "pages of {limit}");
    }
    let filter = RunFilter { states: vec![WireState::Succeeded], ..RunFilter::default() };
    assert_eq!(bench.client.runs_of("hello", &filter).await.unwrap().items.len(), 4);
}

#[tokio::test]
async fn a_run_is_found_wherever_it_is() {
    let bench = Bench::new().await;
    busy(&bench).await;
    let all = bench.client.runs_of("hello", &RunFilter::default()).await.unwrap();
    for run in all.items {
        let mut found = bench.client.run_by_id(&run.id).await.unwrap();
        for attempt in &mut found.attempts {
            // What the receiver said is told with the run itself, not in lists.
            attempt.response = None;
        }
        assert_eq!(found, run);
    }
    let nobody = "run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx";
    bench.json("GET", &format!("/v1/runs/{nobody}"), "").await.problem(404);
}

#[tokio::test]
async fn runs_of_a_deleted_trigger_stay_on_record() {
    let bench = Bench::new().await;
    let id = busy(&bench).await;
    let filter = RunFilter { states: vec![WireState::Succeeded], ..RunFilter::default() };
    let run = bench.client.runs_of("hello", &filter).await.unwrap().items.remove(0);
    bench.client.delete_trigger("hello").await.unwrap();
    let found = bench.client.run_by_id(&run.id).await.unwrap();
    assert_eq!((found.trigger, found.name), (Some(id.to_string()), None));
    let listed = bench.client.runs_of(&id.to_string(), &filter).await.unwrap().items;
    assert_eq!(listed.len(), 4);
    assert_eq!((&listed[0].id, &listed[0].name), (&run.id, &None));
    bench.json("GET", "/v1/triggers/hello/runs", "").await.problem(404);
}

#[tokio::test]
async fn runs_of_all_shards_are_listed_newest_first() {
    let bench = Bench::new().await;
    let mut expected = Vec::new();
    for (number, name) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        let id = bench.minutely(name).await;
        let slot = minute(i64::try_from(number).unwrap());
        bench.past(id.shard, vec![succeeded(id, slot)]).await;
        expected.insert(0, name.to_owned());
    }
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let filter = RunFilter { limit: Some(4), cursor, ..RunFilter::default() };
        let page = bench.client.runs(&filter).await.unwrap();
        names.extend(page.items.into_iter().filter_map(|run| run.name));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, expected);
}

#[tokio::test]
async fn a_list_that_finds_nothing_in_what_it_may_read_says_where_to_go_on() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let other = TriggerId { serial: engine::id::SerialId(1), ..id };
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.fill(id.shard, SEGMENTS_READ_MAX, &succeeded(other, minute(1))).await;
    let page = bench.client.runs_of("hello", &RunFilter::default()).await.unwrap();
    assert!(page.items.is_empty(), "the run lies in the batch after the last that may be read");
    let filter = RunFilter { cursor: page.next, ..RunFilter::default() };
    assert!(filter.cursor.is_some());
    let page = bench.client.runs_of("hello", &filter).await.unwrap();
    assert_eq!((page.items.len(), page.next), (1, None));
}

#[tokio::test]
async fn a_list_reads_as_many_batches_as_it_may() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let other = TriggerId { serial: engine::id::SerialId(1), ..id };
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.fill(id.shard, SEGMENTS_READ_MAX - 1, &succeeded(other, minute(1))).await;
    let page = bench.client.runs_of("hello", &RunFilter::default()).await.unwrap();
    assert_eq!((page.items.len(), page.next), (1, None));
}

#[tokio::test]
async fn a_backfill_is_of_a_window_of_the_past_with_a_bounded_number_of_slots() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    bench.create(&TriggerSpec::webhook("on-demand", "http://example.com")).await;
    let most = i64::try_from(BACKFILL_SLOTS_MAX).unwrap();
    let ask = |name: &'static str, request: &'static str, from: i64, to: i64| {
        let body = json!({"request": request, "from": minute(from).to_string(),
            "to": minute(to).to_string()});
        let bench = &bench;
        let path = format!("/v1/triggers/{name}/backfill");
        async move { bench.json("POST", &path, &body.to_string()).await }
    };
    let answer = ask("hello", "again", -most, 0).await;
    assert_eq!(answer.status(), 202);
    let told: Backfilled = answer.body();
    assert_eq!((told.request.as_str(), told.slots), ("again", BACKFILL_SLOTS_MAX as u64));
    for (name, request, from, to, pointer) in [
        ("hello", "again", -most - 1, 0, "/to"),
        ("hello", "again", -1, 1, "/to"),
        ("hello", "again", -1, -1, "/from"),
        ("hello", "not a name", -1, 0, "/request"),
        ("on-demand", "again", -1, 0, "/from"),
    ] {
        let problem = ask(name, request, from, to).await.problem(422);
        assert_eq!(problem.errors[0].pointer.as_deref(), Some(pointer), "{}", problem.detail);
    }
    bench.json("POST", "/v1/triggers/hello/backfill", "{}").await.problem(422);
}

fn ended(id: TriggerId, slot: Instant, end: End) -> Line {
    let Line::Run(run) = succeeded(id, slot) else { unreachable!("it is a run") };
    Line::Run(Finished { end, ..run })
}

#[tokio::test]
async fn an_exception_is_found_once_however_many_others_there_are() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let other = Finished {
        project: engine::id::ProjectId(5),
        ..match ended(id, minute(0), End::Failed) {
            Line::Run(run) => run,
            Line::Skip(_) => unreachable!("it is a run"),
        }
    };
    bench.past(id.shard, vec![ended(id, minute(1), End::Failed), Line::Run(other)]).await;
    let others = i64::try_from(SEGMENTS_READ_MAX).unwrap();
    for number in 1..=others {
        bench.past(id.shard, vec![ended(id, minute(1 + number), End::Dead)]).await;
    }
    let states = vec![WireState::Failed, WireState::Unknown];
    let mut filter = RunFilter { states, limit: Some(3), ..RunFilter::default() };
    let (mut found, mut requests) = (Vec::new(), 0);
    loop {
        let page = bench.client.runs(&filter).await.unwrap();
        found.extend(page.items);
        requests += 1;
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    let states: Vec<_> = found.iter().map(|run| run.state).collect();
    assert_eq!(states, [WireState::Failed], "and none of another project");
    assert!((2..=6).contains(&requests), "each does a bounded part of the work: {requests}");
}

#[tokio::test]
async fn runs_are_filtered_by_several_states_and_by_time() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    let ends = [End::Succeeded, End::Failed, End::Dead, End::Expired, End::Failed];
    for (number, end) in (1..).zip(ends) {
        bench.past(id.shard, vec![ended(id, minute(number), end)]).await;
    }
    let timestamp = |number| client::Timestamp::from_millisecond(minute(number).0).unwrap();
    let filter = RunFilter {
        states: vec![WireState::Failed, WireState::Dead],
        from: Some(timestamp(2)),
        to: Some(timestamp(5)),
        ..RunFilter::default()
    };
    for page in [bench.client.runs(&filter).await, bench.client.runs_of("hello", &filter).await] {
        let slots: Vec<_> = page.unwrap().items.into_iter().map(|run| run.slot).collect();
        assert_eq!(slots, [timestamp(3), timestamp(2)]);
    }
    for (bad, said) in [
        ("state=failed,lost", "it is one of waiting"),
        ("from=2027-01-15T08:00:00Z&to=2027-01-15T08:00:00Z", "before"),
        ("from=soon", "soon"),
        ("cursor=soon", "unchanged"),
    ] {
        for path in ["/v1/runs", "/v1/triggers/hello/runs"] {
            let problem = bench.json("GET", &format!("{path}?{bad}"), "").await.problem(422);
            assert!(problem.errors[0].detail.contains(said), "{bad}: {}", problem.detail);
        }
    }
}

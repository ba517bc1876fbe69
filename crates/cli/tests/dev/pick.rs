//! Runs that are for workers in turn, or for all: real workers that are killed, and a server that is.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use client::Client;
use client::queue::{CommandSpec, FeedSpec, PickKind, RunSpec};
use client::run::{Run, RunState};
use client::spec::TriggerSpec;
use rig::{PATIENCE, machine, until};
use rustix::process::Signal;

use super::command::{said, watchbell};
use super::process::{Dev, Spawned, place};
use super::queue_worker::TestWorker;
use super::worker_command::Stage;

/// A lease of this is silent after two fifths of it.
const FLAGS: [&str; 4] = ["--queue", "ops", "--lease", "5s"];

/// Waits until these workers, and no others, may be given runs of the queue `ops`.
async fn are_there(client: &Client, names: &[&str]) {
    until("the workers are there", PATIENCE, || async {
        let workers = client.workers().await.ok()?.items;
        let there = workers.into_iter().filter(|worker| worker.queues.iter().any(|it| it == "ops"));
        let there: BTreeSet<String> = there.map(|worker| worker.name).collect();
        names.iter().all(|name| there.contains(*name)).then_some(())
    })
    .await;
}

/// The runs of a trigger that have succeeded, by their slots, with all that is told of each; as soon as there are so many.
async fn succeeded(client: &Client, trigger: &str, count: usize) -> Vec<Run> {
    until("so many runs have succeeded", PATIENCE, || async {
        let mut runs = client.runs_of(trigger, &client::RunFilter::default()).await.ok()?.items;
        runs.retain(|run| run.state == RunState::Succeeded);
        runs.sort_by_key(|run| run.slot);
        let mut told = Vec::new();
        for run in runs.iter().filter(|_| runs.len() >= count) {
            told.push(client.run_by_id(&run.id).await.ok()?);
        }
        (told.len() >= count).then_some(told)
    })
    .await
}

/// For whom the parts of runs were, in order.
fn chosen(runs: &[Run]) -> Vec<&str> {
    let parts = runs.iter().flat_map(|run| &run.queued.as_ref().unwrap().parts);
    parts.map(|part| &*part.chosen).collect()
}

/// Waits until a run has ended.
async fn ended(client: &Client, id: &str) -> Run {
    until(&format!("the run {id} ends"), PATIENCE, || async {
        client.run_by_id(id).await.ok().filter(|run| run.state.is_end())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_go_around_real_workers_and_on_when_one_of_them_is_killed() {
    let _machine = machine::works().await;
    let stage = Stage::new();
    let client = stage.client();
    let (a, mut b, c) =
        (stage.worker("a", &FLAGS), stage.worker("b", &FLAGS), stage.worker("c", &FLAGS));
    are_there(client, &["a", "b", "c"]).await;
    let create = ["trigger", "create", "--name", "turns", "--every", "1s", "--queue", "ops"];
    let create = [&create[..], &["--pick", "next", "--", "/bin/true"]].concat();
    said(&watchbell(&stage.dev, &create).await, 0);
    let runs = succeeded(client, "turns", 6).await;
    let turns = chosen(&runs);
    let first = ["a", "b", "c"].iter().position(|name| *name == turns[0]).unwrap();
    let expected = ["a", "b", "c"].iter().cycle().skip(first).take(turns.len());
    assert!(turns.iter().eq(expected), "{turns:?}");
    // Whose it was is on record, and who carried it out: the same, as nobody was late.
    for run in &runs {
        let part = &run.queued.as_ref().unwrap().parts[0];
        assert_eq!(part.worker.as_deref(), Some(&*part.chosen), "{run:?}");
        let alone = client.run_by_id(&part.id).await.unwrap();
        let whole = alone.queued.unwrap().part_of;
        assert_eq!((whole.as_ref(), alone.state), (Some(&run.id), RunState::Succeeded));
    }

    b.signal(Signal::KILL);
    b.ended().await;
    let killed_after = runs.len();
    let runs = succeeded(client, "turns", killed_after + 12).await;
    // What had been for it was for its successors, and after that it was nobody's turn but theirs.
    let last = &chosen(&runs)[killed_after + 6..];
    assert!(last.windows(2).all(|pair| pair[0] != pair[1] && pair[0] != "b"), "{last:?}");

    // Somebody looks at a run for all.
    let submit = ["run", "submit", "--queue", "ops", "--pick", "all", "--output", "json"];
    let submit = [&submit[..], &["--", "/bin/true"]].concat();
    let (out, _) = said(&watchbell(&stage.dev, &submit).await, 0);
    let taken: serde_json::Value = serde_json::from_str(&out).unwrap();
    let id = taken["id"].as_str().unwrap();
    let run = ended(client, id).await;
    assert_eq!(
        (run.state, chosen(std::slice::from_ref(&run))),
        (RunState::Succeeded, vec!["a", "c"])
    );
    let (shown, _) = said(&watchbell(&stage.dev, &["run", "show", id]).await, 0);
    assert!(shown.contains("part 1") && shown.contains("c: succeeded, run_"), "{shown}");
    drop((a, c));
    stage.dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_forgets_neither_whose_turn_it_is_nor_a_part() {
    let _machine = machine::works().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let names = ["a", "b", "c", "d"];
    let mut workers = names.map(|name| TestWorker::new(name, "ops"));
    for worker in &mut workers {
        worker.claim_nothing(&dev.client).await;
    }
    let feed = FeedSpec {
        name: "ops".to_owned(),
        handler: Some("h".to_owned()),
        pick: Some(PickKind::Next),
        count: Some(3),
        ..FeedSpec::default()
    };
    let spec =
        TriggerSpec { name: Some("turns".to_owned()), queue: Some(feed), ..TriggerSpec::default() };
    dev.client.create_trigger(&spec).await.unwrap();
    // Three parts: one is done, one is given, one nobody has claimed.
    let first = dev.client.run("turns", None).await.unwrap().id;
    let done = workers[0].claim_one(&dev.client).await;
    assert!(workers[0].report(&dev.client, &done).await);
    let given = workers[1].claim_one(&dev.client).await;
    let second = dev.client.run("turns", None).await.unwrap().id;
    dev.kill();
    let dev = Dev::start(&data);
    assert!(workers[1].report(&dev.client, &given).await, "what was given before counts");
    // The first one's last part is c's; the second run's parts are those of d, a and b.
    for index in [3, 2, 1, 0] {
        let run = workers[index].claim_one(&dev.client).await;
        assert!(workers[index].report(&dev.client, &run).await);
    }
    for (id, expected) in [(&first, ["a", "b", "c"]), (&second, ["d", "a", "b"])] {
        let run = ended(&dev.client, id).await;
        assert_eq!(chosen(std::slice::from_ref(&run)), expected);
        assert_eq!(run.state, RunState::Succeeded);
    }
    // Parts are told with their runs.
    let listed = dev.client.runs_of("turns", &client::RunFilter::default()).await.unwrap().items;
    assert_eq!(listed.len(), 2, "{listed:?}");
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_know_nothing_of_parts_carry_them_out() {
    let _machine = machine::works().await;
    let stage = Stage::new();
    let client = stage.client();
    let programs = stage.dir.path().join("handlers");
    fs::create_dir(&programs).unwrap();
    let program = programs.join("note");
    fs::write(&program, "#!/bin/sh\ncat >>noted\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let url = stage.url().trim_end_matches('/').to_owned();
    let mut copied: Vec<Spawned> = [("worker.py", "python"), ("worker.sh", "shell")]
        .map(|(example, name)| copied_worker(example, name, &url, stage.dir.path()))
        .into();
    let mut wired = TestWorker::new("wired", "ops");
    wired.claim_nothing(client).await;
    are_there(client, &["python", "shell", "wired"]).await;
    let spec = RunSpec {
        queue: Some("ops".to_owned()),
        handler: Some("note".to_owned()),
        pick: Some(PickKind::All),
        ..RunSpec::default()
    };
    let id = client.submit(&spec).await.unwrap().id;
    let own = wired.claim_one(client).await;
    assert!(wired.report(client, &own).await);
    let run = ended(client, &id).await;
    assert_eq!(chosen(std::slice::from_ref(&run)), ["python", "shell", "wired"]);
    assert_eq!(run.state, RunState::Succeeded, "{run:?}");
    let noted = fs::read_to_string(stage.dir.path().join("noted")).unwrap();
    let parts = &run.queued.as_ref().unwrap().parts;
    assert!(parts[..2].iter().all(|part| noted.contains(&part.id)), "{noted}");
    // A command is for those who run commands: a part for who does not is failed, and so is the run.
    let command = CommandSpec { argv: vec!["/bin/true".to_owned()], ..CommandSpec::default() };
    let spec = RunSpec { command: Some(command), handler: None, ..spec };
    let id = client.submit(&spec).await.unwrap().id;
    client.cancel_run(&id).await.unwrap();
    let run = ended(client, &id).await;
    assert!(run.state != RunState::Succeeded, "{run:?}");
    for worker in &mut copied {
        worker.stop().await;
    }
    stage.dev.kill();
}

/// A worker that people copy from the documents.
fn copied_worker(example: &str, name: &str, url: &str, dir: &Path) -> Spawned {
    let log = dir.join(format!("{name}.log"));
    let file = fs::File::create(&log).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(example);
    let mut command = Command::new(path);
    command.args([url, "ops", name, "handlers"]).current_dir(dir).env_remove("WATCHBELL_KEY");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    Spawned { child: command.spawn().unwrap(), log }
}

//! Files that say which triggers there shall be, at a server that runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use client::queue::QueueSpec;
use client::spec::TriggerSpec;
use client::trigger::PauseRequest;
use client::{QueueFilter, Timestamp, TriggerFilter};
use rig::machine;
use serde_json::Value;
use store::clock::Stopwatch;

use super::command::{said, watchbell};
use super::process::{Dev, place};

const HOOK: &str = "webhook: {url: 'http://127.0.0.1:1/x'}";

/// Writes a file, and gives its name.
fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

async fn names(dev: &Dev) -> Vec<String> {
    let page = dev.client.triggers(&TriggerFilter::default()).await.unwrap();
    page.items.into_iter().map(|trigger| trigger.name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_in_any_file_keeps_everything_from_being_sent() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let good = file(dir.path(), "good.yaml", &format!("name: good\n{HOOK}\n"));
    let bad = file(dir.path(), "bad.yaml", &format!("- name: bad\n  {HOOK}\n  overlap: never\n"));
    let (out, err) = said(&watchbell(&dev, &["trigger", "apply", &good, &bad]).await, 2);
    assert!(err.contains("bad.yaml:3: trigger \"bad\": /overlap: \"never\" is not known"), "{err}");
    assert!(out.is_empty() && err.contains("nothing was sent"), "{out}{err}");
    let over = format!("name: over\nschedule: {{at: ['2020-01-01T00:00:00Z']}}\n{HOOK}\n");
    let over = file(dir.path(), "over.yaml", &over);
    let (_, err) = said(&watchbell(&dev, &["trigger", "apply", &good, &over]).await, 2);
    assert!(err.contains("trigger \"over\": /schedule: it never fires"), "{err}");
    assert!(names(&dev).await.is_empty());
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_become_as_files_say_and_what_is_in_none_is_pruned() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    for name in ["old", "other", "kept"] {
        let mut spec = TriggerSpec::webhook(name, "http://127.0.0.1:1/x").every("1h");
        let team = if name == "other" { "other" } else { "a" };
        spec.labels.insert("team".to_owned(), team.to_owned());
        dev.client.create_trigger(&spec).await.unwrap();
    }
    let text = format!(
        "- name: kept\n  labels: {{team: a}}\n  schedule: {{every: 1h}}\n  {HOOK}\n\
         - name: fresh\n  labels: {{team: a}}\n  {HOOK}\n"
    );
    let path = file(dir.path(), "triggers.yaml", &text);
    let prune = ["trigger", "apply", &path, "--prune", "--label", "team=a"];
    let (_, err) = said(&watchbell(&dev, &prune).await, 2);
    assert!(err.contains("nothing was sent") && err.contains("--yes"), "{err}");
    assert_eq!(names(&dev).await, ["kept", "old", "other"]);
    let (out, _) = said(&watchbell(&dev, &[&prune[..], &["--dry-run"]].concat()).await, 0);
    assert!(out.contains("- delete old") && out.contains("Nothing was sent"), "{out}");
    let (out, _) = said(&watchbell(&dev, &[&prune[..], &["--yes"]].concat()).await, 0);
    assert!(out.contains("1 created, 1 unchanged, 1 deleted."), "{out}");
    assert_eq!(names(&dev).await, ["fresh", "kept", "other"]);
    let (out, _) = said(&watchbell(&dev, &[&prune[..], &["--yes"]].concat()).await, 0);
    assert!(out.contains("2 unchanged."), "{out}");
    assert_eq!(dev.client.trigger("kept").await.unwrap().revision, 1);
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_is_told_and_the_others_are_done() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let spec = TriggerSpec::webhook("stopped", "http://127.0.0.1:1/x").every("1h");
    dev.client.create_trigger(&spec).await.unwrap();
    dev.client.cancel("stopped").await.unwrap();
    let mut extra = spec.clone();
    extra.name = Some("extra".to_owned());
    extra.labels.insert("team".to_owned(), "a".to_owned());
    dev.client.create_trigger(&extra).await.unwrap();
    let text = format!("- name: stopped\n  {HOOK}\n- name: fresh\n  {HOOK}\n");
    let path = file(dir.path(), "triggers.yaml", &text);
    let args = ["trigger", "apply", &path, "--prune", "--label", "team=a", "--yes"];
    let (out, err) = said(&watchbell(&dev, &args).await, 1);
    assert!(out.contains("1 created, 2 failed.") && out.contains("cancelled"), "{out}");
    assert!(err.contains("2 of 3 triggers failed"), "{err}");
    assert_eq!(names(&dev).await, ["extra", "fresh", "stopped"], "nothing is pruned then");
    dev.kill();
}

/// What a dry run says of a trigger: slots that appear, slots that vanish, and up to when it looked.
fn predicted(dry: &Value, name: &str) -> (BTreeSet<Timestamp>, BTreeSet<Timestamp>, Timestamp) {
    let all = dry["triggers"].as_array().unwrap();
    let told = all.iter().find(|told| told["name"] == name).unwrap();
    let slots = |field: &str| {
        let slots = told[field].as_array().unwrap();
        slots.iter().map(|slot| slot.as_str().unwrap().parse().unwrap()).collect()
    };
    (slots("appear"), slots("vanish"), told["compared_until"].as_str().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_tells_the_very_slots_that_come_after_it_was_done() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let cases = [
        ("hourly", Some("{cron: '0 * * * *'}"), Some("{cron: '30 * * * *'}")),
        (
            "excluded",
            Some("{cron: '0 */6 * * *'}"),
            Some("{cron: '0 */4 * * *', tz: Asia/Kolkata}"),
        ),
        ("limited", Some("{cron: '0 * * * *', limit: 3}"), Some("{cron: '0 * * * *', limit: 5}")),
        ("jittered", Some("{every: 2h}"), Some("{every: 2h, jitter: 10m}")),
        ("hashed", Some("{cron: 'H H * * *'}"), Some("{cron: ['H H * * *', '0 12 * * *']}")),
        ("ended", Some("{cron: '0 0 * * *'}"), Some("{at: ['2099-01-01T00:00:00Z']}")),
        ("quiet", Some("{every: 1h}"), Some("{every: 1h, quiet: [{from: '22:00', to: '06:00'}]}")),
        ("same", Some("{every: 3h}"), Some("{every: 3h}")),
        ("respelt", Some("{every: 180m}"), Some("{every: 3h}")),
        ("paused", Some("{every: 1h}"), Some("{every: 2h}")),
        ("resuming", Some("{every: 1h}"), Some("{every: 2h}")),
        ("rested", Some("{every: 1h}"), None),
        ("woken", None, Some("{every: 5h}")),
        ("fresh", None, Some("{cron: '15 */3 * * *'}")),
        ("gone", Some("{every: 4h}"), None),
    ];
    let one = |name: &str, schedule: Option<&str>| {
        let schedule = schedule.map_or_else(String::new, |text| format!("  schedule: {text}\n"));
        format!("- name: {name}\n  labels: {{by: file}}\n{schedule}  {HOOK}\n")
    };
    let old = cases.iter().filter(|(name, ..)| *name != "fresh");
    let old: String = old.map(|(name, old, _)| one(name, *old)).collect();
    let new = cases.iter().filter(|(name, ..)| *name != "gone");
    let new: String = new.map(|(name, _, new)| one(name, *new)).collect();
    let (old, new) = (file(dir.path(), "old.yaml", &old), file(dir.path(), "new.yaml", &new));
    said(&watchbell(&dev, &["trigger", "apply", &old]).await, 0);
    dev.client.pause("paused", &PauseRequest::default()).await.unwrap();
    let began = dev.client.trigger("hourly").await.unwrap().written;
    let later = Timestamp::from_second(began.as_second() + 2 * 86_400).unwrap();
    let request = PauseRequest { until: Some(later), ..PauseRequest::default() };
    dev.client.pause("resuming", &request).await.unwrap();
    let next = async |name: &str| match dev.client.next(name, 200).await {
        Ok(slots) => slots.items.into_iter().collect::<BTreeSet<_>>(),
        Err(_) => BTreeSet::new(),
    };
    let mut before = Vec::new();
    for (name, ..) in cases {
        before.push(next(name).await);
    }
    let apply = ["trigger", "apply", &new, "--prune", "--label", "by=file"];
    let dry = [&apply[..], &["--dry-run", "--horizon", "3d", "--output", "json"]].concat();
    let dry: Value = serde_json::from_str(&said(&watchbell(&dev, &dry).await, 0).0).unwrap();
    said(&watchbell(&dev, &[&apply[..], &["--yes"]].concat()).await, 0);
    // What comes within these minutes may have come by now.
    let soon = Timestamp::from_second(began.as_second() + 180).unwrap();
    for ((name, ..), before) in cases.iter().zip(before) {
        let (appear, vanish, until) = predicted(&dry, name);
        assert!(vanish.is_subset(&before) && appear.is_disjoint(&before), "{name}");
        let counts = |slot: &&Timestamp| **slot > soon && **slot <= until;
        let foretold: BTreeSet<Timestamp> =
            before.difference(&vanish).chain(&appear).copied().collect();
        let foretold: Vec<_> = foretold.iter().filter(counts).collect();
        let after = next(name).await;
        let after: Vec<_> = after.iter().filter(counts).collect();
        assert_eq!(foretold, after, "{name}, up to {until}");
        let changes = appear.len() + vanish.len();
        let stays = ["jittered", "same", "respelt", "paused"].contains(name);
        assert_eq!(changes == 0, stays, "{name}: {appear:?} {vanish:?}");
    }
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_triggers_are_compared_in_a_few_requests() {
    let _machine = machine::works().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let text = |minute: usize| {
        let one = |number: usize| {
            let minute = (number + minute) % 60;
            format!("- name: t{number:04}\n  schedule: {{cron: '{minute} * * * *'}}\n  {HOOK}\n")
        };
        (0..1_000).map(one).collect::<String>()
    };
    let path = file(dir.path(), "old.yaml", &text(0));
    let (out, _) = said(&watchbell(&dev, &["trigger", "apply", &path]).await, 0);
    assert!(out.contains("1,000 created."), "{out}");
    let path = file(dir.path(), "new.yaml", &text(1));
    let begun = Stopwatch::start();
    let (out, _) = said(&watchbell(&dev, &["trigger", "apply", &path, "--dry-run"]).await, 0);
    let took = begun.elapsed();
    assert!(out.contains("1,000 to update"), "{out}");
    eprintln!("a thousand triggers were compared in {took:?}");
    // One second in a release build; this one is not optimised, and other machines are slower.
    assert!(took.as_secs() < 10, "{took:?}");
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_the_documentation_is_applied() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let document = include_str!("../../../../docs/apply.md");
    let example = document.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let path = file(dir.path(), "example.yaml", example.unwrap());
    let (out, _) = said(&watchbell(&dev, &["trigger", "apply", &path]).await, 0);
    assert!(out.contains("created"), "{out}");
    let (out, _) = said(&watchbell(&dev, &["trigger", "apply", &path]).await, 0);
    assert!(out.contains("unchanged") && !out.contains("updated"), "{out}");
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crontab_becomes_a_file_that_can_be_applied() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let text = "MAILTO=ops\nCRON_TZ=Europe/Berlin\n*/15 * * * * root /bin/a --x\n@reboot root /bin/b\n@daily www echo 'it''s' \"<>\" 50\\% ä%in\n";
    let crontab = file(dir.path(), "crontab", text);
    let base = ["--webhook-base", "http://127.0.0.1:1/cron"];
    let import = [&["import", "crontab", &crontab, "--system"], &base[..]].concat();
    let mut command = std::process::Command::new(super::process::WATCHBELL);
    let (out, err) = said(&command.args(import).output().unwrap(), 1);
    assert!(err.contains("line 4 is left out: a start of the machine"), "{err}");
    assert!(err.contains("line 1: MAILTO") && err.contains("1 of 3 lines were left out"), "{err}");
    let path = file(dir.path(), "cron.yaml", &out);
    let (told, _) = said(&watchbell(&dev, &["trigger", "apply", &path]).await, 0);
    assert!(told.contains("2 created."), "{told}{out}");
    let (told, _) = said(&watchbell(&dev, &["trigger", "apply", &path]).await, 0);
    assert!(told.contains("2 unchanged."), "{told}");
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_become_as_files_say_and_what_is_in_none_is_pruned() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let set = async |name: &str, concurrency| {
        let spec = QueueSpec { concurrency: Some(concurrency), ..QueueSpec::default() };
        dev.client.set_queue(name, &spec, None).await.unwrap();
    };
    set("a-kept", 2).await;
    set("a-changed", 2).await;
    set("a-old", 2).await;
    set("other", 2).await;
    let bad = file(dir.path(), "bad.yaml", "queues:\n- name: a-new\n- name: b\n  concurrency: 0\n");
    let (_, err) = said(&watchbell(&dev, &["queue", "apply", &bad]).await, 2);
    assert!(
        err.contains("bad.yaml:4: queue \"b\": /concurrency: ") && err.contains("nothing was sent"),
        "{err}"
    );
    let text = format!(
        "queues:\n- {{name: a-kept, concurrency: 2}}\n- {{name: a-changed, concurrency: 5, alert_after: 5m}}\n\
         - name: a-new\n  rate: {{runs: 100, per: 1m}}\ntriggers:\n- name: feed\n  {HOOK}\n"
    );
    let path = file(dir.path(), "all.yaml", &text);
    let prune = ["queue", "apply", &path, "--prune", "--prefix", "a-"];
    let (out, _) = said(&watchbell(&dev, &[&prune[..], &["--dry-run"]].concat()).await, 0);
    for line in [
        "~ update a-changed\n    alert_after: 5m is new\n    concurrency: 2 → 5\n",
        "+ create a-new\n",
        "- delete a-old\n",
        "1 to create, 1 to update, 1 unchanged, 1 to delete. Nothing was sent.\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    let (_, err) = said(&watchbell(&dev, &prune).await, 2);
    assert!(err.contains("nothing was sent") && err.contains("--yes"), "{err}");
    let (out, _) = said(&watchbell(&dev, &[&prune[..], &["--yes"]].concat()).await, 0);
    assert!(out.contains("1 created, 1 updated, 1 unchanged, 1 deleted."), "{out}");
    let (out, _) = said(&watchbell(&dev, &[&prune[..], &["--yes"]].concat()).await, 0);
    assert!(out.contains("3 unchanged."), "{out}");
    let found = dev.client.queues(&QueueFilter::default()).await.unwrap().items;
    let found: Vec<_> = found.iter().map(|queue| (queue.name.as_str(), queue.revision)).collect();
    assert_eq!(found, [("a-changed", 2), ("a-kept", 1), ("a-new", 1), ("other", 1)]);
    let (out, _) = said(&watchbell(&dev, &["trigger", "apply", &path]).await, 0);
    assert!(out.contains("1 created."), "the triggers of the same file: {out}");
    dev.kill();
}

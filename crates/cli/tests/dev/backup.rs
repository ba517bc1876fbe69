//! Backups by the real binary: of a server under load, of a directory, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use client::trigger::PauseRequest;
use client::{Client, ClientError};
use rig::{Heard, PATIENCE, Receiver, Reply, machine, until};
use serde_json::Value;
use sim::slot_records::SlotRecords;

use super::crash::{answer, list, rest, spec};
use super::process::{Dev, WATCHBELL, place};
use super::verdict::{accounts, check_records};

const TRIGGERS: usize = 150;
const DOORS: usize = 2;
const SEED: u64 = 0xbac_c0de;

async fn watchbell(args: &[&str]) -> Output {
    let mut command = Command::new(WATCHBELL);
    command.args(args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[track_caller]
fn check_fine(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// It ended with this code and one sentence, which says this.
#[track_caller]
fn check_refused(output: &Output, code: i32, said: &str) {
    let sentence = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{sentence}");
    assert!(sentence.starts_with("watchbell: ") && sentence.lines().count() == 1, "{sentence}");
    assert!(sentence.contains(said), "{sentence}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn url(dir: &Path) -> String {
    format!("file:{}", dir.display())
}

/// Makes and deletes triggers until it is dropped, so that names come and go while they are read.
async fn stir(client: &Client, round: usize, doors: &[String]) {
    for number in 0.. {
        let name = format!("brief-{round}-{number}");
        client.create_trigger(&spec(&name, doors)).await.unwrap();
        if number % 3 > 0 {
            client.delete_trigger(&name).await.unwrap();
        }
    }
}

/// A backup of this server, under a load of changes.
async fn backup(dev: &Dev, file: &Path, round: usize, doors: &[String]) -> Value {
    let args = ["backup", "create", text(file), "--force", "--server", dev.client.url()];
    let output = tokio::select! {
        () = stir(&dev.client, round, doors) => unreachable!("it goes on"),
        output = watchbell(&args) => output,
    };
    check_fine(&output);
    let verified = watchbell(&["backup", "verify", text(file), "--output", "json"]).await;
    serde_json::from_str(&check_fine(&verified)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_under_load_restores_to_a_store_whose_slots_are_all_accounted_for() {
    let _machine = machine::works().await;
    let receiver = Receiver::start(DOORS, |call| answer(call, SEED));
    let doors: Vec<String> = (0..DOORS).map(|door| receiver.url(door, "")).collect();
    let (dir, data) = place();
    let dev = Dev::start(&data);
    for number in 0..TRIGGERS {
        dev.client.create_trigger(&spec(&format!("t-{number}"), &doors)).await.unwrap();
    }
    let file = dir.path().join("bells.backup");
    let mut taken = Value::Null;
    for round in 1..=3 {
        let calls = round * TRIGGERS;
        until(&format!("{calls} calls are heard"), PATIENCE, || async {
            (receiver.heard().len() >= calls).then_some(())
        })
        .await;
        taken = backup(&dev, &file, round, &doors).await;
        println!("{taken}");
    }
    assert!(taken["triggers"].as_u64().unwrap() >= TRIGGERS as u64, "{taken}");
    assert!(taken["history_lines"].as_u64().unwrap() > 0, "it was taken under load: {taken}");
    let cluster = dev.client.scheduler().await.unwrap().cluster;
    dev.kill();

    let copy = dir.path().join("copy");
    check_fine(&watchbell(&["restore", text(&file), "--store", &url(&copy)]).await);
    let before = SlotRecords::read(&copy).await;
    let dev = Dev::start(&copy);
    assert_eq!(dev.client.scheduler().await.unwrap().cluster, cluster);
    let triggers = list(&dev.client).await;
    let known: BTreeSet<String> =
        before.triggers.values().map(|known| known.record.id.to_string()).collect();
    let listed = triggers.values().map(|trigger| trigger.id.clone());
    assert_eq!(listed.collect::<BTreeSet<_>>(), known, "every trigger is found by its name");
    for name in triggers.keys() {
        match dev.client.pause(name, &PauseRequest::default()).await {
            // If not, its limit is reached.
            Ok(_) | Err(ClientError::Conflict(_)) => {}
            Err(why) => panic!("{name}: {why}"),
        }
    }
    rest(&dev.client).await;
    let ids: BTreeMap<String, String> =
        triggers.into_iter().map(|(name, trigger)| (name, trigger.id)).collect();
    let told = accounts(&dev.client, &ids).await;
    dev.stop().await;

    let after = SlotRecords::read(&copy).await;
    check_records(&after, &told, &BTreeMap::new(), &ids);
    check_ids(&before, &after, &receiver.heard());
}

/// What ended before the backup is on record as it was, and a slot has one id, whoever ran it and how often.
fn check_ids(before: &SlotRecords, after: &SlotRecords, heard: &[Heard]) {
    let ended: BTreeMap<&str, _> = after.runs.iter().map(|it| (it.id.as_str(), &it.run)).collect();
    for former in &before.runs {
        assert_eq!(ended.get(former.id.as_str()), Some(&&former.run), "{former:?}");
    }
    let mut ids: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for call in heard {
        ids.entry((&call.path, &call.slot)).or_default().insert(&call.run);
    }
    for (slot, ids) in &ids {
        assert_eq!(ids.len(), 1, "{slot:?} has several ids: {ids:?}");
    }
    let heard: BTreeSet<&str> = heard.iter().map(|call| call.run.as_str()).collect();
    let known = ended.keys().filter(|id| heard.contains(**id)).count();
    println!("{} runs on record, {known} of them heard, {} before", ended.len(), before.runs.len());
    assert!(known > before.runs.len() / 2, "{known}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_no_server_uses_is_backed_up_verified_and_restored() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let (dir, data) = place();
    let (file, copy) = (dir.path().join("bells.backup"), dir.path().join("copy"));
    let dev = Dev::start(&data);
    let doors = [receiver.url(0, "")];
    let made = dev.client.create_trigger(&spec("bell", &doors)).await.unwrap();
    let create = ["backup", "create", text(&file), "--store", &url(&data)];
    check_refused(&watchbell(&create).await, 3, "from that server with --server URL");
    dev.stop().await;

    let said = check_fine(&watchbell(&create).await);
    assert!(said.contains("triggers  1\n") && said.contains("format    1, written by"), "{said}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    check_refused(&watchbell(&create).await, 4, "is there already");
    let left: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| text(Path::new(name)).starts_with(".watchbell")), "{left:?}");
    check_fine(&watchbell(&[&create[..], &["--force"]].concat()).await);
    assert_eq!(check_fine(&watchbell(&["backup", "verify", text(&file)]).await), {
        check_fine(&watchbell(&["backup", "verify", text(&file)]).await)
    });

    let restore = ["restore", text(&file), "--store", &url(&copy)];
    let said = check_fine(&watchbell(&restore).await);
    assert!(said.contains("Restored to file:"), "{said}");
    check_refused(&watchbell(&restore).await, 4, "the store is not empty");
    let dev = Dev::start(&copy);
    assert_eq!(dev.client.trigger("bell").await.unwrap().id, made.id);
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_backup_is_refused_and_no_store_is_made_of_it() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let file = dir.path().join("bells.backup");
    Dev::start(&data).stop().await;
    check_fine(&watchbell(&["backup", "create", text(&file), "--store", &url(&data)]).await);
    let whole = fs::read(&file).unwrap();
    let copy = dir.path().join("copy");
    let (copy_url, missing) = (url(&copy), dir.path().join("missing"));
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, code, said) in [
        (&flipped[..], 5, "the backup is damaged, in line"),
        (&whole[..whole.len() - 1], 5, "it breaks off"),
        (&b"[package]\n"[..], 4, "that is no backup of Watchbell"),
        (&br#"{"format":2}"#[..], 4, "upgrade Watchbell"),
    ] {
        fs::write(&file, bytes).unwrap();
        check_refused(&watchbell(&["backup", "verify", text(&file)]).await, code, said);
        let restore = ["restore", text(&file), "--store", &copy_url];
        check_refused(&watchbell(&restore).await, code, said);
        assert!(!copy.exists());
    }
    let restore = ["restore", text(&missing), "--store", &copy_url];
    check_refused(&watchbell(&restore).await, 4, "cannot open");
    let memory = ["restore", text(&file), "--store", "memory:"];
    check_refused(&watchbell(&memory).await, 2, "gone when this command ends");
    let nowhere = ["backup", "create", text(&file), "--force", "--server", "http://127.0.0.1:1"];
    check_refused(&watchbell(&nowhere).await, 3, "127.0.0.1:1");
    assert_eq!(fs::read(&file).unwrap(), br#"{"format":2}"#, "what was there is still there");
}

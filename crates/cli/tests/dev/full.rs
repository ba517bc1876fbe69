//! A disk without room: what cannot be written is refused, nothing that was acknowledged is lost, and when
//! there is room again firing goes on.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use client::account::Account;
use client::spec::TriggerSpec;
use client::trigger::PauseRequest;
use client::{ClientError, Timestamp};
use rig::{PATIENCE, Receiver, Reply, machine, until};
use store::machine::{Machine, System};

use super::process::{Dev, WATCHBELL};

/// More triggers than fit.
const TRIGGERS_MAX: usize = 2_000;

/// A command that becomes the binary, with a small file system of its own at this place.
fn on_small_disk(place: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=64m tmpfs \"$0\" && exec \"$@\"").arg(place).arg(WATCHBELL);
    command
}

/// Takes all the room there is.
fn fill(ballast: &Path) {
    let mut file = File::create(ballast).unwrap();
    for chunk in [1 << 16, 1 << 12] {
        let full = loop {
            if let Err(why) = file.write_all(&vec![b'x'; chunk]) {
                break why;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }
}

/// Makes triggers until there is no room for more, and tells which were acknowledged.
async fn create_until_full(dev: &Dev) -> Vec<String> {
    let mut made = Vec::new();
    for number in 0..TRIGGERS_MAX {
        let name = format!("big-{number}");
        let mut spec = TriggerSpec::webhook(&name, "http://127.0.0.1:1/");
        spec.webhook.get_or_insert_default().body = Some("x".repeat(90_000));
        match dev.client.create_trigger(&spec).await {
            Ok(_) => made.push(name),
            Err(ClientError::Refused(problem)) if problem.status == 507 => {
                assert!(problem.detail.contains("nothing was done"), "{}", problem.detail);
                assert!(problem.detail.contains("there is no room left in"), "{}", problem.detail);
                return made;
            }
            // The one that came when it was not known yet.
            Err(ClientError::Unavailable { problem, .. }) => {
                assert!(problem.detail.contains("it is not done yet"), "{}", problem.detail);
            }
            Err(why) => panic!("{why}"),
        }
    }
    panic!("there was room for {} triggers", made.len());
}

fn now() -> Timestamp {
    Timestamp::from_microsecond(System.wall_us().cast_signed()).unwrap()
}

/// Waits until a slot after this instant has come.
async fn rings_after(receiver: &Receiver, after: Timestamp) {
    until("it rings", PATIENCE, || async {
        let slots = receiver.slots("/bell");
        slots.iter().any(|slot| slot.parse::<Timestamp>().unwrap() > after).then_some(())
    })
    .await;
}

/// The account of the trigger that rings, once it rests.
async fn account(dev: &Dev, begun: Timestamp) -> Account {
    dev.client.pause("bell", &PauseRequest::default()).await.unwrap();
    until("it rests", PATIENCE, || async {
        let account = dev.client.account("bell", Some(begun), None).await.unwrap();
        (account.totals.pending + account.totals.under_way == 0).then_some(account)
    })
    .await
}

#[tokio::test]
async fn a_full_disk_refuses_what_is_new_and_loses_nothing_and_goes_on_when_there_is_room() {
    let _machine = machine::works().await;
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let dev = Dev::start_by(on_small_disk(&disk), &disk.join("data"));
    let begun = now();
    let bell = TriggerSpec::webhook("bell", receiver.url(0, "/bell")).every("1s");
    dev.client.create_trigger(&bell).await.unwrap();
    rings_after(&receiver, begun).await;

    let inside = PathBuf::from(format!("/proc/{}/root{}", dev.pid(), disk.display()));
    let ballast = inside.join("ballast");
    fill(&ballast);
    let made = create_until_full(&dev).await;
    assert!(dev.client.trigger("bell").await.is_ok(), "reading goes on");
    std::fs::remove_file(&ballast).unwrap();
    rings_after(&receiver, now()).await;

    let account = account(&dev, begun).await;
    let totals = &account.totals;
    assert_eq!((totals.missing, totals.failed, totals.unread), (0, 0, 0), "{account:?}");
    assert_eq!(totals.succeeded + totals.skipped, totals.slots, "{account:?}");
    for name in made {
        assert!(dev.client.trigger(&name).await.is_ok(), "{name} was acknowledged");
    }
    dev.client.create_trigger(&TriggerSpec::webhook("after", receiver.url(0, "/"))).await.unwrap();
    dev.stop().await;
}

//! Signers and a witness in one process, by both roads.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rig::{PATIENCE, free_port, until};
use tokio::task::JoinSet;
use witness::{Contact, Road, Signer, SignerSettings, Witness, WitnessSettings, sign};

use super::socket::witness;

fn settings(witness: String, road: Road, token: u64) -> SignerSettings {
    let every = Duration::from_millis(5);
    let node = format!("node-{token}");
    SignerSettings { witness, road, every, hold: "reports".to_owned(), node, token }
}

/// Starts one. It ends with the set; what it says can be read.
fn start(settings: SignerSettings) -> (JoinSet<()>, Receiver<Contact>) {
    let (say, said) = channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let signer = Signer::new(&settings).unwrap();
        sign(signer, &settings, |contact| drop(say.send(contact))).await;
    });
    (tasks, said)
}

async fn heard(witness: &Witness, instances: usize, ticks: u64) {
    until("the signer is heard", PATIENCE, || async {
        let report = witness.report();
        let hold = report.holds.first()?;
        let last = hold.instances.get(instances - 1)?;
        (last.counts.ticks >= ticks).then_some(())
    })
    .await;
}

async fn two_after_each_other_and_two_at_once(road: Road) {
    let witness = witness().await;
    let at = witness.address().to_string();
    let (first, said) = start(settings(at.clone(), road, 1));
    heard(&witness, 1, 10).await;
    drop(first);
    let (second, _) = start(settings(at.clone(), road, 2));
    heard(&witness, 2, 10).await;
    let report = witness.report();
    assert!(report.all_is_well, "{}", report.text(80));
    assert_eq!((report.counts.unreadable, said.try_iter().count()), (0, 0));
    assert_eq!(report.holds[0].fail_overs.map(|it| it.count), Some(1));
    let (_third, _) = start(settings(at, road, 3));
    heard(&witness, 3, 10).await;
    heard(&witness, 2, 20).await;
    until("both were seen", PATIENCE, || async {
        (witness.report().overlaps.len() == 1).then_some(())
    })
    .await;
    drop(second);
}

#[tokio::test]
async fn two_signers_by_udp_overlap_only_if_they_do() {
    two_after_each_other_and_two_at_once(Road::Udp).await;
}

#[tokio::test]
async fn two_signers_by_http_overlap_only_if_they_do() {
    two_after_each_other_and_two_at_once(Road::Http).await;
}

async fn a_witness_that_is_away(road: Road) {
    let at = format!("127.0.0.1:{}", free_port());
    let (_signer, said) = start(settings(at.clone(), road, 1));
    let away =
        until("it says that the witness is away", PATIENCE, || async { said.try_recv().ok() })
            .await;
    assert!(matches!(away, Contact::Away(_)), "{away:?}");
    let listen = at.parse().unwrap();
    let gap = Duration::from_secs(1);
    let witness = Witness::start(WitnessSettings { listen, udp: None, gap }).await.unwrap();
    heard(&witness, 1, 20).await;
    let report = witness.report();
    assert!(report.holds[0].instances[0].before_first > 0, "it went on meanwhile");
    assert!(report.all_is_well && report.counts.late == 0, "{}", report.text(80));
    let back =
        until("it says that the witness is back", PATIENCE, || async { said.try_recv().ok() })
            .await;
    assert_eq!(back, Contact::Back, "that it is away is said once");
    assert_eq!(said.try_iter().count(), 0);
}

#[tokio::test]
async fn a_signer_by_udp_goes_on_without_a_witness_and_says_so_once() {
    a_witness_that_is_away(Road::Udp).await;
}

#[tokio::test]
async fn a_signer_by_http_goes_on_without_a_witness_and_says_so_once() {
    a_witness_that_is_away(Road::Http).await;
}

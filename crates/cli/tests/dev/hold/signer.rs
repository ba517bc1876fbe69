//! Programs that tell a witness of each of their acts, and what it has heard of them.

use std::time::Duration;

use rig::{PATIENCE, until};
use witness::{Witness, WitnessSettings};

use super::*;

/// A witness who takes no pause for a gap.
pub(super) async fn patient_witness() -> Witness {
    let listen = "127.0.0.1:0".parse().unwrap();
    let settings = WitnessSettings { listen, udp: None, gap: Duration::from_secs(3_600) };
    Witness::start(settings).await.unwrap()
}

/// A command that becomes a supervisor on this store.
pub(super) fn supervisor(url: &str) -> Command {
    let mut command = Command::new(WATCHBELL);
    command.env("WATCHBELL_STORE", url).env("WATCHBELL_LOG_LEVEL", "info");
    command
}

/// Whoever is of this name, and holds a program that tells this witness of its acts. The lock is in a directory of its own.
pub(super) fn sign(
    mut command: Command,
    dir: &Path,
    node: &str,
    witness: &Witness,
    flags: &[&str],
) -> Holder {
    signing(&mut command, dir, node, witness, flags);
    Holder::spawn(command, dir, node)
}

/// What such a supervisor is told. What is added is for the program.
pub(super) fn signing(
    command: &mut Command,
    dir: &Path,
    node: &str,
    witness: &Witness,
    flags: &[&str],
) {
    command.args(["hold", NAME, "--node", node, "--output", "json", "--lock-dir"]);
    command.arg(dir.join(format!("{node}.locks"))).args(flags).args(["--", WATCHBELL]);
    command.args(["demo-signer", "--witness", &witness.address().to_string()]);
}

/// How many programs have acted so far.
pub(super) fn instances(witness: &Witness) -> usize {
    witness.report().holds.first().map_or(0, |hold| hold.instances.len())
}

/// Waits until a program acts that is this node's, and no other one's act was heard since.
pub(super) async fn acts(witness: &Witness, node: &str) {
    until(&format!("{node} runs the program"), PATIENCE, || async {
        let report = witness.report();
        (report.holds.first()?.instances.last()?.who.node == node).then_some(())
    })
    .await;
}

/// Waits until ten more acts were heard.
pub(super) async fn acts_on(witness: &Witness) {
    let ticks = || witness.report().counts.ticks;
    let before = ticks();
    until("the program acts on", PATIENCE, || async { (ticks() >= before + 10).then_some(()) })
        .await;
}

//! A machine that is paused as a whole, for longer than T: supervisor, guards and program stand still together, and another
//! machine runs the program. When the first one goes on, its program is ended before it can do much: how much is measured.

use rig::Freezer;

use super::*;
use crate::dev::hold::signer::{acts, patient_witness, signing, supervisor};

const ROUNDS: usize = 8;

/// How long a program may act on when its machine goes on.
const THAW_MAX: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_machine_that_was_paused_for_longer_than_t_the_program_hardly_acts() {
    let _machine = machine::alone().await;
    if !rig::is_root() {
        return;
    }
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let witness = patient_witness().await;
    let nodes = ["anna", "bert"];
    let freezers = nodes.map(|node| Freezer::new(&format!("{}-{node}", std::process::id())));
    let mut holders = Vec::new();
    for (node, freezer) in nodes.iter().zip(&freezers) {
        let mut supervisor = supervisor(&redis.url());
        signing(&mut supervisor, dir.path(), node, &witness, &["--ttl", "1s"]);
        supervisor.args(["--every", "1ms"]);
        let holder = Holder::spawn(within(freezer, &supervisor), dir.path(), node);
        acts(&witness, nodes[0]).await;
        holder.event("candidate", 1).await;
        holders.push(holder);
    }
    let mut ran = Vec::new();
    for round in 0..ROUNDS {
        let (this, other) = (round % 2, 1 - round % 2);
        let lapses = holders[this].count("candidate");
        let paused = freezers[this].freeze().await;
        acts(&witness, nodes[other]).await;
        let thawed = witness.report().watched;
        paused.thaw();
        holders[this].event("candidate", lapses + 1).await;
        let report = witness.report();
        let mut instances = report.holds[0].instances.iter();
        let frozen = instances.rfind(|it| it.who.node == nodes[this]).unwrap();
        ran.push(frozen.last.saturating_sub(thawed));
    }
    println!("acted on for {ran:.1?} when their machines went on");
    for ran in ran {
        assert!(ran <= THAW_MAX, "{ran:?}");
    }
}

/// A command that becomes this one, in a cgroup that can be frozen.
fn within(freezer: &Freezer, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    let enter = format!("echo $$ >{} && exec \"$@\"", freezer.members());
    shell.args(["-c", &enter, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        shell.env(name, value.expect("none is taken away"));
    }
    shell
}

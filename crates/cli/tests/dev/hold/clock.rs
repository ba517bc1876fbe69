//! Clocks of a machine's own: those of some processes are set, or count faster, and nobody else's are.
//!
//! A library that is loaded before all others (`clock.c`, compiled here) stands between these processes and the kernel's
//! clocks, and adds what the test says. Timers are the kernel's, and go by the true clocks.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rig::machine;
use rig::redis::Setup;
use serde::Deserialize;
use store::machine::{Machine, System};
use tempfile::TempDir;

use super::signer::{acts, acts_on, instances, patient_witness, sign, supervisor};
use super::*;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dev/hold/clock.c");

/// The clocks of a machine.
pub(super) struct Clocks {
    dir: TempDir,
    setting: File,
}

impl Clocks {
    /// Clocks that are right.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let setting = File::create(dir.path().join("setting")).unwrap();
        let clocks = Self { dir, setting };
        clocks.write(0, &[0, 0, 0]);
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-shared", "-fPIC", "-o"]).arg(clocks.library()).arg(SOURCE);
        let done = compiler.output().unwrap_or_else(|why| {
            panic!("cc does not start ({why}): install it with scripts/need test")
        });
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        clocks
    }

    /// A process that goes by them, with all that it starts.
    pub(super) fn rule(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.library());
        command.env("WATCHBELL_TEST_CLOCK", self.dir.path().join("setting"));
    }

    /// Sets the wall clock so far ahead of the true one, or behind.
    pub(super) fn set_wall(&self, ahead: i64) {
        self.write(0, &[ahead * 1_000_000_000]);
    }

    /// From now on the clock since boot counts faster by so many parts of a hundred.
    pub(super) fn quicken_boot(&self, percent: i64) {
        let now = i64::try_from(System.reading().boot.as_nanos()).expect("three hundred years");
        self.write(1, &[0, now]);
        self.write(1, &[percent * 10_000]);
    }

    fn library(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }

    /// Each number is read in one step.
    fn write(&self, place: u64, numbers: &[i64]) {
        for (place, number) in (place..).zip(numbers) {
            self.setting.write_all_at(&number.to_ne_bytes(), place * 8).unwrap();
        }
    }
}

/// So many hours, in seconds.
pub(super) const fn hours(count: i64) -> i64 {
    count * 3_600
}

#[test]
fn a_process_goes_by_the_clocks_that_it_is_given() {
    let clocks = Clocks::new();
    let wall = || {
        let mut date = Command::new("date");
        clocks.rule(date.arg("+%s"));
        let said = String::from_utf8(date.output().unwrap().stdout).unwrap();
        said.trim().parse::<i64>().unwrap()
    };
    let truth = || i64::try_from(System.wall_us() / 1_000_000).unwrap();
    for ahead in [0, hours(7), hours(-1_000)] {
        clocks.set_wall(ahead);
        let (from, said, to) = (truth() + ahead, wall(), truth() + ahead);
        assert!((from..=to).contains(&said), "{said} is not between {from} and {to}");
    }
}

/// When a program is killed unless there is another renewal, as its machine tells it.
#[derive(Deserialize)]
pub(super) struct KilledAt {
    pub(super) boot_ms: u64,
    wall_ms: i64,
}

/// What stands in the deadline file of the program of this node.
pub(super) fn killed_at(dir: &Path, node: &str) -> Option<KilledAt> {
    let locks = fs::read_dir(dir.join(format!("{node}.locks"))).ok()?;
    let mut files = locks.filter_map(|entry| Some(entry.ok()?.path().join("deadline")));
    serde_json::from_str(&files.find_map(|file| fs::read_to_string(file).ok())?).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_goes_on_whatever_the_wall_clock_of_its_machine_is_set_to() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let (witness, clocks) = (patient_witness().await, [Clocks::new(), Clocks::new()]);
    let start = |node, clocks: &Clocks| {
        let mut command = supervisor(&redis.url());
        clocks.rule(&mut command);
        sign(command, dir.path(), node, &witness, &STEADY)
    };
    let mut anna = start("anna", &clocks[0]);
    acts(&witness, "anna").await;
    let mut bert = start("bert", &clocks[1]);
    bert.event("holder", 1).await;
    for ahead in [hours(5), hours(-7), hours(24 * 400), hours(-24 * 400), 0] {
        clocks[0].set_wall(ahead);
        clocks[1].set_wall(-ahead);
        let wall = i64::try_from(System.wall_us() / 1_000).unwrap() + ahead * 1_000;
        until("a renewal came since the clock was set", PATIENCE, || async {
            let at = killed_at(dir.path(), "anna")?.wall_ms;
            (at.abs_diff(wall) < 60_000).then_some(())
        })
        .await;
        acts_on(&witness).await;
    }
    assert_eq!(instances(&witness), 1, "{}", anna.log());
    clocks[0].set_wall(hours(-3));
    anna.kill();
    acts(&witness, "bert").await;
    bert.stop().await;
    let report = witness.report();
    assert!(report.all_is_well, "{}", report.text(100));
}

//! A leader that is given next to no time of the processor, as by the limit of a container.

use std::fs;
use std::path::PathBuf;

use rig::machine;
use rig::redis::Setup;
use tokio::task::JoinSet;

use super::engine::Engine;
use super::witness::Witness;
use super::*;

/// So little of a processor for one process, a thousandth to a fiftieth, and all of it at once at the begin of each second:
/// it stands still for the rest. Taken back when dropped.
struct Throttle(PathBuf);

impl Throttle {
    /// By a group of control; `None` where this user may make none.
    fn of(candidate: &Candidate, quota_us: u32) -> Option<Self> {
        let (max, quota) = (format!("{quota_us} 1000000"), quota_us.to_string());
        let name = format!("watchbell-test-{}", candidate.child.id());
        let limits: [(&str, &[(&str, &str)]); 2] = [
            ("/sys/fs/cgroup", &[("cpu.max", &max)]),
            (
                "/sys/fs/cgroup/cpu",
                &[("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", &quota)],
            ),
        ];
        for (root, lines) in limits {
            let throttle = Self(PathBuf::from(root).join(&name));
            // Where this is no such file system, a directory has no files that it was not given.
            let limit = |(file, line): &(&str, &str)| {
                let file = throttle.0.join(file);
                file.exists() && fs::write(file, line).is_ok()
            };
            let is_made = fs::create_dir(&throttle.0).is_ok() && lines.iter().all(limit);
            let id = candidate.child.id().to_string();
            if is_made && fs::write(throttle.0.join("cgroup.procs"), id).is_ok() {
                return Some(throttle);
            }
        }
        None
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Everybody in it goes back to where it came from; a group with nobody in it can be removed.
        if let Some(root) = self.0.parent() {
            for id in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(root.join("cgroup.procs"), id);
            }
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Only root may; a pause, which every user may, is tried in other tests.
fn not_tried() {
    assert!(!rig::is_root(), "root may make a group of control");
    println!("not tried: this user may not throttle a process by a group of control");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_throttled_never_says_1_after_another_one_leads() {
    let _machine = machine::waits().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    let first = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    let at = anna.address().await;
    let Some(throttle) = Throttle::of(&anna, 1_000) else { return not_tried() };
    let second = bert.elected().await;
    assert!(second > first);
    let mut asked = JoinSet::new();
    for _ in 0..8 {
        asked.spawn(page(at));
    }
    drop(throttle);
    while let Some(page) = asked.join_next().await {
        assert_eq!(metric(&page.unwrap(), "watchbell_leader_current_leader"), 0);
    }
    anna.event("candidate", 2).await;
    assert!(!anna.leads().await);
    bert.says_1().await;
}

/// A leader that is given a hundredth of a processor may go on leading or not: it gets on by leaps, and is asked by a
/// witness who takes for granted no more than what it certainly claimed (see there), as its answers come late.
async fn check_starved(engine: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let both = ["anna", "bert"].map(|node| Candidate::start(dir.path(), node, &engine.url(), &[]));
    let mut witness = Witness::new();
    for (node, candidate) in ["anna", "bert"].iter().zip(&both) {
        witness.watch(node, candidate).await;
    }
    let place = leader(&[&both[0], &both[1]]).await;
    for quota_us in [20_000, 10_000, 3_000] {
        let Some(throttle) = Throttle::of(&both[place], quota_us) else { return not_tried() };
        // Not a wait for anything: how long it lasts.
        tokio::time::sleep(2 * T).await;
        drop(throttle);
    }
    leader(&[&both[0], &both[1]]).await;
    let terms = witness.check();
    println!("{}: {} led, one after the other", engine.name(), terms.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_starved_on_any_engine_never_leads_beside_another_one() {
    let _machine = machine::works().await;
    let engines = Engine::all();
    let [etcd, redis, postgres] = &engines;
    tokio::join!(check_starved(etcd), check_starved(redis), check_starved(postgres));
}

//! A leader that is given next to no time of the processor, as by the limit of a container.

use std::fs;
use std::path::PathBuf;

use rig::redis::Setup;
use tokio::task::JoinSet;

use super::super::process::MACHINE;
use super::*;

/// One thousandth of a processor, for one process. Taken back when dropped.
struct Throttle(PathBuf);

impl Throttle {
    /// By a group of control; `None` where this user may make none.
    fn of(candidate: &Candidate) -> Option<Self> {
        let name = format!("watchbell-test-{}", candidate.child.id());
        let limits: [(&str, &[(&str, &str)]); 2] = [
            ("/sys/fs/cgroup", &[("cpu.max", "1000 1000000")]),
            (
                "/sys/fs/cgroup/cpu",
                &[("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", "1000")],
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_throttled_never_says_1_after_another_one_leads() {
    let _machine = MACHINE.read().await;
    let (dir, redis) = (tempfile::tempdir().unwrap(), Setup::durable().start());
    let anna = Candidate::start(dir.path(), "anna", &redis.url(), &[]);
    let first = anna.elected().await;
    let bert = Candidate::start(dir.path(), "bert", &redis.url(), &[]);
    bert.event("leader", 1).await;
    let at = anna.address().await;
    let Some(throttle) = Throttle::of(&anna) else {
        // Only root may; a pause, which every user may, is tried in another test.
        assert!(!rig::is_root(), "root may make a group of control");
        return;
    };
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
    assert!(!anna.leads().await && bert.leads().await);
}

//! A cgroup that can be frozen: everything in it stands still, as on a machine that is paused.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::{PATIENCE, until};

/// A cgroup, with whatever is started in it. Removed when dropped.
pub struct Freezer {
    directory: PathBuf,
    file: &'static str,
    frozen: &'static str,
    thawed: &'static str,
}

impl Freezer {
    /// One that has this name, of whichever version this machine has.
    ///
    /// # Panics
    ///
    /// If this user may not make one.
    pub fn new(name: &str) -> Self {
        for (root, file, frozen, thawed) in [
            ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
            ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
            ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
        ] {
            let directory = Path::new(root).join(format!("test-{name}"));
            if fs::create_dir(&directory).is_ok() && directory.join(file).exists() {
                return Self { directory, file, frozen, thawed };
            }
            let _ = fs::remove_dir(&directory);
        }
        panic!("root has a cgroup that can be frozen");
    }

    /// Where a process writes itself to be in it.
    pub fn members(&self) -> String {
        self.directory.join("cgroup.procs").display().to_string()
    }

    /// Waits until everything in it stands still. It does for as long as what is given is there.
    pub async fn freeze(&self) -> Frozen<'_> {
        let frozen = Frozen(self);
        self.set(self.frozen);
        until("it is frozen", PATIENCE, || async {
            let state = fs::read_to_string(self.directory.join(self.file)).expect("it is there");
            let events = fs::read_to_string(self.directory.join("cgroup.events"));
            let is_frozen = match events {
                Ok(events) => events.contains("frozen 1"),
                Err(_) => state.trim() == self.frozen,
            };
            is_frozen.then_some(())
        })
        .await;
        frozen
    }

    fn set(&self, state: &str) {
        fs::write(self.directory.join(self.file), state).expect("it is ours");
    }
}

impl Drop for Freezer {
    #[expect(clippy::disallowed_methods, reason = "the kernel needs real time to end processes")]
    fn drop(&mut self) {
        // Whoever is in it is about to end.
        let begun = Instant::now();
        while fs::remove_dir(&self.directory).is_err() && begun.elapsed() < Duration::from_secs(10)
        {
            std::thread::yield_now();
        }
    }
}

/// That everything in a cgroup stands still. It goes on when this is dropped: who stands still cannot even be killed.
#[must_use]
pub struct Frozen<'a>(&'a Freezer);

impl Frozen<'_> {
    /// Lets it go on.
    pub fn thaw(self) {}
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.thawed);
    }
}

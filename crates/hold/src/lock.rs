//! The lock of a hold on this machine: nothing of a former start is left.
//!
//! A file on which `flock` is held: by the supervisor for the moment of a start, and then by both guards of the tree and by
//! nobody else. So it ends with the tree, whatever becomes of the supervisor, also if that is stopped for hours; and the next
//! one on the machine gets it when the tree is empty, and not before. It says nothing about other machines: there the claim
//! decides.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::process::geteuid;

/// How often it is tried while somebody else has it.
const PAUSE: Duration = Duration::from_millis(10);

/// The lock of one hold, which nobody has yet.
#[derive(Debug, Clone)]
pub struct HoldLock {
    place: PathBuf,
}

/// The lock, had for as long as this or a copy of the file is open.
pub(crate) type HadLock = Arc<OwnedFd>;

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The directory or the file cannot be used.
    #[error("{}: {why}: name a directory of this user with --lock-dir", place.display())]
    Io {
        /// What.
        place: PathBuf,
        /// What the operating system says.
        why: io::Error,
    },
    /// Somebody else could put other files in its place.
    #[error("{} is not a directory of this user alone: name another one with --lock-dir", .0.display())]
    Foreign(PathBuf),
}

impl HoldLock {
    /// The file of this name in this directory, which is made if it is not there. It is not locked.
    pub fn new(directory: &Path, name: &str) -> Result<Self, LockError> {
        own_directory(directory)?;
        let this = Self { place: directory.join(format!("{name}.lock")) };
        this.open().map_err(|why| LockError::Io { place: this.place.clone(), why: why.into() })?;
        Ok(this)
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        open(&self.place, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Has it from here on, if it is free now.
    fn try_take(&self) -> Result<OwnedFd, Errno> {
        let file = self.open()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    /// Waits until it is free, and has it then. May be dropped at any moment.
    pub(crate) async fn take(self) -> HadLock {
        let mut is_told = false;
        loop {
            match self.try_take() {
                Ok(file) => return Arc::new(file),
                Err(why) if !is_told => {
                    is_told = true;
                    let (place, why) = (self.place.display(), io::Error::from(why));
                    tracing::info!(%place, %why, "another start of this hold is on this machine: waiting until nothing of it is left");
                }
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Makes the directory, and looks that nobody else may put other files in the place of what is in it.
pub(crate) fn own_directory(directory: &Path) -> Result<(), LockError> {
    const STICKY: u32 = 0o1000;
    let failed = |why| LockError::Io { place: directory.to_owned(), why };
    let mut made = DirBuilder::new();
    made.recursive(true).mode(0o700);
    made.create(directory).map_err(failed)?;
    let about = fs::symlink_metadata(directory).map_err(failed)?;
    let is_ours = about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0;
    let is_shared = about.mode() & STICKY != 0;
    if about.is_dir() && (is_ours || is_shared) {
        Ok(())
    } else {
        Err(LockError::Foreign(directory.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn it_is_had_as_long_as_anybody_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("watchbell");
        let lock = HoldLock::new(&place, "a").unwrap();
        let had = lock.clone().take().await;
        assert_eq!(lock.try_take().err(), Some(Errno::WOULDBLOCK));
        assert!(HoldLock::new(&place, "b").unwrap().try_take().is_ok());
        let of_a_tree = had.try_clone().unwrap();
        drop(had);
        assert_eq!(lock.try_take().err(), Some(Errno::WOULDBLOCK), "a tree has it");
        drop(of_a_tree);
        assert!(lock.try_take().is_ok());
    }

    #[test]
    fn a_directory_in_which_others_may_change_files_is_refused_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        fs::create_dir(&place).unwrap();
        for (mode, is_good) in [(0o755, true), (0o777, false), (0o775, false), (0o1777, true)] {
            fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
            assert_eq!(HoldLock::new(&place, "a").is_ok(), is_good, "{mode:o}");
        }
        std::os::unix::fs::symlink("/etc/passwd", place.join("link.lock")).unwrap();
        assert!(matches!(HoldLock::new(&place, "link"), Err(LockError::Io { .. })));
        let link = dir.path().join("elsewhere");
        std::os::unix::fs::symlink(&place, &link).unwrap();
        assert!(matches!(HoldLock::new(&link, "a"), Err(LockError::Foreign(_))));
    }
}

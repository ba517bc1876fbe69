//! The lock of a hold on this machine: nothing of a former start is left.
//!
//! A file on which `flock` is held: by the supervisor for the moment of a start, and then by both guards of the tree and by
//! nobody else. So it ends with the tree, whatever becomes of the supervisor, also if that is stopped for hours; and the next
//! one on the machine gets it when the tree is empty, and not before. It says nothing about other machines: there the claim
//! decides.

use std::fs::{self, DirBuilder, Metadata};
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

/// After so many times somebody is told, once: a tree that was killed is empty long before.
const TOLD_AFTER: u32 = 100;

/// The lock of one hold, which nobody has yet.
#[derive(Debug, Clone)]
pub struct HoldLock {
    directory: PathBuf,
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
    /// What is to be written stands in its way.
    #[error("{} is a directory, and is to be a file: remove it, or name another directory with --lock-dir", .0.display())]
    Directory(PathBuf),
}

impl HoldLock {
    /// The file of this name in this directory, which is made if it is not there. It is not locked.
    pub fn new(directory: &Path, name: &str) -> Result<Self, LockError> {
        let place = directory.join(format!("{name}.lock"));
        let this = Self { directory: directory.to_owned(), place };
        safe_directory(directory)?;
        this.open().map_err(|why| this.failed(why))?;
        Ok(this)
    }

    fn failed(&self, why: Errno) -> LockError {
        LockError::Io { place: self.place.clone(), why: why.into() }
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

    /// Waits until it is free, and has it then. What somebody has removed is made again. May be dropped at any moment.
    pub(crate) async fn take(self) -> Result<HadLock, LockError> {
        safe_directory(&self.directory)?;
        let mut tried = 0_u32;
        loop {
            match self.try_take() {
                Ok(file) => return Ok(Arc::new(file)),
                Err(Errno::WOULDBLOCK) => {}
                Err(why) => return Err(self.failed(why)),
            }
            tried = tried.saturating_add(1);
            if tried == TOLD_AFTER {
                let place = self.place.display();
                tracing::warn!(%place, "something of another start of this hold is left on this machine, and is waited for");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Makes the directory, and looks that nobody else may put other files in the place of what is in it.
fn safe_directory(directory: &Path) -> Result<(), LockError> {
    const STICKY: u32 = 0o1000;
    let about = made(directory)?;
    // Whoever has a directory may do so in spite of that bit.
    let is_shared = about.mode() & STICKY != 0 && (about.uid() == 0 || is_mine(&about));
    if about.is_dir() && (is_shared || is_mine_alone(&about)) {
        return Ok(());
    }
    Err(LockError::Foreign(directory.to_owned()))
}

/// Makes the directory, and looks that nobody else may change anything in it.
pub(crate) fn own_directory(directory: &Path) -> Result<(), LockError> {
    let about = made(directory)?;
    if about.is_dir() && is_mine_alone(&about) {
        return Ok(());
    }
    Err(LockError::Foreign(directory.to_owned()))
}

fn made(directory: &Path) -> Result<Metadata, LockError> {
    let failed = |why| LockError::Io { place: directory.to_owned(), why };
    let mut made = DirBuilder::new();
    made.recursive(true).mode(0o700);
    made.create(directory).map_err(failed)?;
    fs::symlink_metadata(directory).map_err(failed)
}

fn is_mine(about: &Metadata) -> bool {
    about.uid() == geteuid().as_raw()
}

fn is_mine_alone(about: &Metadata) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    is_mine(about) && about.mode() & OTHERS_WRITE == 0
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
        let had = lock.clone().take().await.unwrap();
        assert_eq!(lock.try_take().err(), Some(Errno::WOULDBLOCK));
        assert!(HoldLock::new(&place, "b").unwrap().try_take().is_ok());
        let of_a_tree = had.try_clone().unwrap();
        drop(had);
        assert_eq!(lock.try_take().err(), Some(Errno::WOULDBLOCK), "a tree has it");
        drop(of_a_tree);
        assert!(lock.try_take().is_ok());
        fs::remove_dir_all(&place).unwrap();
        assert!(lock.clone().take().await.is_ok(), "what is gone is made again");
        fs::remove_dir_all(&place).unwrap();
        fs::write(&place, "").unwrap();
        assert!(matches!(lock.take().await, Err(LockError::Io { .. })));
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

    /// As one who waits for the name in /tmp could do, and as a volume of a container is: only root can play that.
    #[test]
    fn a_directory_that_somebody_else_has_is_refused_and_one_that_is_made_in_it_is_taken() {
        const SOMEBODY: u32 = 65_533;
        if !geteuid().is_root() {
            return eprintln!("only root can give a directory to somebody else");
        }
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        fs::create_dir(&place).unwrap();
        std::os::unix::fs::chown(&place, Some(SOMEBODY), None).unwrap();
        for mode in [0o755, 0o777, 0o1777] {
            fs::set_permissions(&place, Permissions::from_mode(mode)).unwrap();
            let refused = HoldLock::new(&place, "a");
            assert!(matches!(refused, Err(LockError::Foreign(_))), "{mode:o}: {refused:?}");
        }
        HoldLock::new(&place.join("mine"), "a").unwrap();
    }
}

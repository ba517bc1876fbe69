//! Who may use a spool: one process at a time, and none while a program of a former life executes.
//!
//! Both locks are `flock`s, which the kernel frees when the last descriptor of theirs is closed, however that came about.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::time::{Instant, sleep};

use super::SpoolError;

/// A process that was killed has its files for a moment longer.
const TAKEN_PATIENCE: Duration = Duration::from_secs(2);

/// After so long it is said what is waited for.
const SILENCE: Duration = Duration::from_secs(1);

const LOOK: Duration = Duration::from_millis(20);

/// Makes a directory that nobody else reads: errors of runs may be private.
pub(super) fn make_private(dir: &Path) -> Result<(), SpoolError> {
    let new: Vec<&Path> = dir.ancestors().take_while(|place| !place.exists()).collect();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    // What was made is to be there also after a power loss.
    let synced = made.and_then(|()| new.into_iter().try_for_each(sync_entry));
    synced.map_err(|why| unusable(dir, "make", why))
}

/// Makes the entry of a file or directory durable, where that is permitted: who may make a directory may not have the right to
/// read the one above, and some file systems sync no directories.
fn sync_entry(of: &Path) -> io::Result<()> {
    let parent = of.parent().filter(|parent| !parent.as_os_str().is_empty());
    let synced = File::open(parent.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
    synced.or_else(|why| match Errno::from_io_error(&why) {
        Some(Errno::ACCESS | Errno::INVAL) => {
            tracing::debug!(of = %of.display(), %why, "the entry of a directory was not synced");
            Ok(())
        }
        Some(_) | None => Err(why),
    })
}

/// The lock of the worker.
pub(super) async fn take(dir: &Path) -> Result<File, SpoolError> {
    let path = dir.join("lock");
    let mut file = open(&path)?;
    let begun = Instant::now();
    while !is_free(&file, &path)? {
        if begun.elapsed() >= TAKEN_PATIENCE {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(SpoolError::Taken { path: dir.to_owned(), pid });
        }
        sleep(LOOK).await;
    }
    // It only serves to tell others: a full disk is met later.
    let _untold = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// The lock of the programs, once no program of a former life executes.
pub(super) async fn programs(dir: &Path, patience: Duration) -> Result<OwnedFd, SpoolError> {
    let path = dir.join("programs");
    let file = open(&path)?;
    let begun = Instant::now();
    let mut is_told = false;
    while !is_free(&file, &path)? {
        let waited = begun.elapsed();
        if waited >= patience {
            return Err(SpoolError::ProgramsExecute { path, waited: patience });
        }
        if waited >= SILENCE && !is_told {
            is_told = true;
            tracing::warn!(
                path = %path.display(),
                "the worker waits until programs of its former life have ended: their guards have this file open"
            );
        }
        sleep(LOOK).await;
    }
    Ok(file.into())
}

fn open(path: &Path) -> Result<File, SpoolError> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(0o600);
    options.open(path).map_err(|why| unusable(path, "open", why))
}

/// Takes a lock, if nobody has it.
fn is_free(file: &File, path: &Path) -> Result<bool, SpoolError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(why) => Err(unusable(path, "lock", why.into())),
    }
}

fn unusable(path: &Path, what: &'static str, why: std::io::Error) -> SpoolError {
    SpoolError::Unusable { path: PathBuf::from(path), what, why }
}

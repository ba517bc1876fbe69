//! The spool: what a worker must not forget when its process dies.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The spool of one worker, in a directory of its own.
#[derive(Debug)]
pub struct Spool {
    programs: Arc<OwnedFd>,
}

/// Why a spool cannot be used. Each variant is one thing to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process has it: end that one, or give this worker another name.
    #[error("another worker has the spool {path:?}{}: one name, one process", holder(*pid))]
    Taken {
        /// Where it is.
        path: PathBuf,
        /// Who has it, if that is known.
        pid: Option<u32>,
    },
    /// Programs of a former life execute still: end them.
    #[error(
        "programs of a former life of this worker execute still, after {waited:?}: end whoever holds {path:?} (fuser tells who)"
    )]
    ProgramsExecute {
        /// The file that they hold.
        path: PathBuf,
        /// So long was waited for them.
        waited: Duration,
    },
    /// It cannot be read or written: make room, or correct the permissions.
    #[error("the spool {path:?} cannot be used: {what}: {why}")]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What happened.
        why: std::io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

impl Spool {
    /// Opens the spool of the worker with this name below `dir`, and makes it if it is not there. Waits until no program of a
    /// former life executes.
    pub async fn open(dir: &Path, name: &str) -> Result<Self, SpoolError> {
        let path = dir.join(name).join("programs");
        let unusable = |why| SpoolError::Unusable { path: path.clone(), what: "open", why };
        std::fs::create_dir_all(dir.join(name)).map_err(unusable)?;
        let file = std::fs::File::options().create(true).append(true).open(&path);
        Ok(Self { programs: Arc::new(file.map_err(unusable)?.into()) })
    }

    /// A lock that the trees of programs inherit, so that it is free only when all of them are empty.
    pub fn programs_lock(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.programs)
    }
}

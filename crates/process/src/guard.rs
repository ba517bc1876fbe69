//! The guards as a program of their own: small, and quick to start.
//!
//! Launch and shim may be any binary whose `main` takes roles, so a supervisor could be its own guards, and is where nothing
//! better was built in. But each run starts two of them, and a large program takes five times as long to start as a small one,
//! and keeps a megabyte: pages that the loader wrote relocations to. So what ships has `watchbell-guard` inside, built from the
//! same tree (`scripts/guard`), and hands it to the kernel as a file in memory.
//!
//! A machine may forbid to execute such files. Then the supervisor is its own guards, as without one.

use std::path::PathBuf;

#[cfg(feature = "small-guard")]
const BUILT_IN: Option<&[u8]> = Some(include_bytes!(env!("WATCHBELL_GUARD")));
#[cfg(not(feature = "small-guard"))]
const BUILT_IN: Option<&[u8]> = None;

/// Where the small guard is, if this binary has one and it can be kept in memory.
pub(crate) fn built_in() -> Option<PathBuf> {
    file::path_of(BUILT_IN?)
}

mod file {
    use std::fs::File;
    use std::io::{self, Write};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::path::PathBuf;
    use std::sync::OnceLock;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use rustix::io::Errno;

    /// Kept open for as long as the process is there: others are started by its number.
    static GUARD: OnceLock<Option<OwnedFd>> = OnceLock::new();

    pub(super) fn path_of(bytes: &[u8]) -> Option<PathBuf> {
        let guard = GUARD.get_or_init(|| {
            executable(bytes)
                .inspect_err(|why| tracing::info!(%why, "the small guard of programs cannot be kept in memory: this binary guards them"))
                .ok()
        });
        guard.as_ref().map(path)
    }

    /// As whoever is about to become it sees it.
    pub(super) fn path(file: &OwnedFd) -> PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }

    /// These bytes as a file that may be executed, and that nobody can change.
    pub(super) fn executable(bytes: &[u8]) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know that a file in memory may be one that is not executed.
        let file = match memfd_create(c"watchbell-guard", flags | MemfdFlags::EXEC) {
            Err(Errno::INVAL) => memfd_create(c"watchbell-guard", flags),
            other => other,
        }?;
        let mut file = File::from(file);
        file.write_all(bytes)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        Ok(file.into())
    }
}

#[cfg(test)]
mod tests {
    use super::file::{executable, path};
    use std::process::Command;

    #[test]
    fn a_program_in_memory_can_be_started() {
        let file = executable(&std::fs::read("/bin/true").unwrap()).unwrap();
        for _ in 0..2 {
            assert!(Command::new(path(&file)).status().unwrap().success());
        }
    }
}

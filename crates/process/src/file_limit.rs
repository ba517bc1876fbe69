//! How many files may be open: as many as are permitted for the supervisor, as many as it was started with for its programs.
//!
//! A supervisor needs some for each tree. A program that may have many more than it expects goes through all of them before it
//! starts another, or is lost with numbers that `select` does not take.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What this process was started with, if that was raised.
static FORMER: OnceLock<Rlimit> = OnceLock::new();

/// Takes as many open files as this process may have. Programs that it starts have no more than before.
pub fn raise_file_limit() -> io::Result<()> {
    let former = FORMER.get_or_init(|| getrlimit(Resource::Nofile));
    set(former.maximum)
}

/// How many a program may have; none if that is what this process may have.
pub(crate) fn of_programs() -> Option<u64> {
    FORMER.get()?.current
}

/// Sets how many this process and those that it starts may have.
pub(crate) fn set(current: Option<u64>) -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

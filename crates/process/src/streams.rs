//! What a program reads and prints, where its supervisor takes no part in it.
//!
//! Pipes end at the supervisor, and a program whose supervisor is stopped waits when they are full. A program that is to go on
//! meanwhile gets the descriptors themselves. What it prints is then nobody's to read here, and lost to nobody.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

/// Descriptors that programs get as they are.
#[derive(Debug)]
pub struct Streams {
    /// Standard input.
    pub stdin: OwnedFd,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
}

impl Streams {
    /// The supervisor's own output and error. Its input as well if that is a terminal, and otherwise `/dev/null`: what
    /// comes once is not for a program that may be started again.
    pub fn own() -> io::Result<Self> {
        let stdin = io::stdin();
        let stdin =
            if stdin.is_terminal() { stdin.as_fd().try_clone_to_owned()? } else { nothing()? };
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Self { stdin, stdout, stderr: io::stderr().as_fd().try_clone_to_owned()? })
    }
}

/// An input that is at its end.
pub(crate) fn nothing() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

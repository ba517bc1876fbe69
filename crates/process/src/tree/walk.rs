//! A walk of `/proc`: who descends from this process?
//!
//! Nothing tells all descendants of a process at once, so every process of the machine is asked for its parent, and its
//! parent's, until that is this process. Who started before this process is none of them, which settles most with one
//! question. A parent that dies in between gives its children to this process: they are found in the next walk.
//!
//! All of it happens on the stack.

use std::ffi::CStr;
use std::io;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, open, openat};
use rustix::io::read;
use rustix::process::{Pid, getpid};

use crate::limits::ANCESTORS_MAX;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It may fork.
    Runs,
    /// It was stopped.
    Stopped,
    /// It is dead and not reaped, or only its main thread is, while others run: the kernel shows both alike.
    Zombie,
}

/// Those that descend from this process.
pub(super) struct Descendants {
    me: i32,
    /// When this process started, in the kernel's ticks.
    since: u64,
}

struct Stat {
    state: State,
    parent: i32,
    started: u64,
}

impl Descendants {
    /// An error if `/proc` cannot be read, or shows another namespace.
    pub(super) fn of_me() -> io::Result<Self> {
        let me = getpid().as_raw_pid();
        let proc = open_proc()?;
        let about = stat(proc.as_fd(), me).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { me, since: about.started })
    }

    /// Tells of each of them, once.
    pub(super) fn each(&self, mut tell: impl FnMut(Pid, State)) {
        let Ok(proc) = open_proc() else { return };
        let mut space = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(proc.as_fd(), &mut space);
        while let Some(Ok(entry)) = entries.next() {
            let Some(pid) = number(entry.file_name().to_bytes()) else { continue };
            let Ok(pid) = i32::try_from(pid) else { continue };
            let Some(state) = self.state_if_mine(proc.as_fd(), pid) else { continue };
            if let Some(pid) = Pid::from_raw(pid) {
                tell(pid, state);
            }
        }
    }

    fn state_if_mine(&self, proc: impl AsFd + Copy, pid: i32) -> Option<State> {
        let about = stat(proc, pid)?;
        let mut ancestor = (about.parent, about.started);
        for _ in 0..ANCESTORS_MAX {
            match ancestor {
                (_, started) if started < self.since => return None,
                (parent, _) if parent == self.me => return Some(about.state),
                (parent, _) if parent <= 1 => return None,
                (parent, _) => {
                    let about = stat(proc, parent)?;
                    ancestor = (about.parent, about.started);
                }
            }
        }
        None
    }
}

fn open_proc() -> rustix::io::Result<OwnedFd> {
    open(c"/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// What `/proc/<pid>/stat` says; none if there is no such process any more.
fn stat(proc: impl AsFd, pid: i32) -> Option<Stat> {
    let mut name = [0; 32];
    write!(&mut name[..], "{pid}/stat\0").expect("a number and a word fit");
    let name = CStr::from_bytes_until_nul(&name).expect("it was written with its end");
    let file = openat(proc, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; 1024];
    let len = read(&file, &mut bytes).ok()?;
    parse(&bytes[..len])
}

/// `2 (a name, with anything in it) S 1 …`: the state follows the last parenthesis, then the parent; when it started is the
/// twentieth from there.
fn parse(line: &[u8]) -> Option<Stat> {
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = line[name_end + 1..].split(|byte| *byte == b' ').skip(1);
    let state = match fields.next()?.first()? {
        b'T' | b't' => State::Stopped,
        b'Z' | b'X' | b'x' => State::Zombie,
        _ => State::Runs,
    };
    let parent = i32::try_from(number(fields.next()?)?).ok()?;
    Some(Stat { state, parent, started: number(fields.nth(17)?)? })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_anything_in_it() {
        let line = b"7 (a) Z 1 (b) T 42 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1";
        let about = parse(line).unwrap();
        assert_eq!((about.state, about.parent, about.started), (State::Stopped, 42, 12_345));
    }

    #[test]
    fn half_a_line_says_nothing() {
        assert!(parse(b"7 (a) S 42 7 7").is_none());
        assert!(parse(b"").is_none());
    }

    #[test]
    fn a_child_is_found_and_a_parent_is_not() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut found = Vec::new();
        Descendants::of_me().unwrap().each(|pid, _| found.push(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&Pid::from_child(&child)));
        assert!(!found.contains(&getpid()));
    }
}

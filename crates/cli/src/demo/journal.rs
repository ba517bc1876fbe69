//! What the runs of the demonstration write down themselves: that they begin, and that they end.
//!
//! One line for each, in a file that all of them append to. No server and no worker has a hand in it, so it is what the
//! records of the server are held against: a run that ended and has no line was never carried out, and a line that no
//! record knows was carried out in vain. It also tells who executes what while there is no server to ask.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Whether a program began or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mark {
    Begun,
    Ended,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) mark: Mark,
    /// Its number in the demonstration.
    pub(super) task: u32,
    /// The id of its run.
    pub(super) run: String,
    pub(super) attempt: u32,
    pub(super) token: u64,
    pub(super) worker: String,
    /// By the wall clock, in microseconds since 1970.
    pub(super) at_us: u64,
}

impl Entry {
    /// Whether both are of the same attempt at the same worker.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        (&self.run, self.attempt, self.token, &self.worker)
            == (&other.run, other.attempt, other.token, &other.worker)
    }
}

/// Adds a line. It is one write at the end of the file, so lines of several programs do not mix.
pub(super) fn append(path: &Path, entry: &Entry) -> io::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    File::options().append(true).open(path)?.write_all(&line)
}

/// Reads a journal while it grows.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    read_to: u64,
    /// All lines so far.
    pub(super) entries: Vec<Entry>,
}

impl Journal {
    /// Makes the file, which is empty.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        File::create(&path)?;
        Ok(Self { path, read_to: 0, entries: Vec::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what was added, as far as lines are complete.
    pub(super) fn read_on(&mut self) -> io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut added = String::new();
        file.read_to_string(&mut added)?;
        for line in added.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            self.entries.push(serde_json::from_str(line)?);
            self.read_to += line.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::demo) fn entry(mark: Mark, task: u32, attempt: u32, worker: &str) -> Entry {
        let run = format!("run_{task}");
        let token = u64::from(task * 100 + attempt);
        Entry { mark, task, run, attempt, token, worker: worker.to_owned(), at_us: 0 }
    }

    #[test]
    fn what_was_appended_is_read_once_and_a_line_that_is_not_complete_later() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(dir.path().join("journal")).unwrap();
        let [begun, ended] = [Mark::Begun, Mark::Ended].map(|mark| entry(mark, 1, 1, "worker-1"));
        append(journal.path(), &begun).unwrap();
        let line = serde_json::to_string(&ended).unwrap();
        let mut file = File::options().append(true).open(journal.path()).unwrap();
        file.write_all(&line.as_bytes()[..10]).unwrap();
        journal.read_on().unwrap();
        assert_eq!(journal.entries, std::slice::from_ref(&begun));
        file.write_all(&line.as_bytes()[10..]).unwrap();
        file.write_all(b"\n").unwrap();
        journal.read_on().unwrap();
        journal.read_on().unwrap();
        assert!(begun.is_beside(&ended));
        assert_eq!(journal.entries, [begun, ended]);
    }
}

//! The log of a spool: reading what a former life left, and writing what this one must not forget.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use client::worker::{DoneRun, HeldRun};

use super::SpoolError;
use super::record::{LifeRecord, Record, newer_format};
use crate::ledger::held_of;

/// A log is written anew when it has grown to so many times of what it had when it was made, and to this.
const GROWTH: u64 = 4;
const COMPACT_BYTES: u64 = 256 * 1024;

/// Damaged logs that are kept.
const DAMAGED_MAX: usize = 8;

/// What a former life left.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) incarnation: u64,
    pub(super) since: u64,
    pub(super) boot: Option<String>,
    /// Runs that were begun and have no result.
    pub(super) begun: BTreeSet<HeldRun>,
    pub(super) results: BTreeMap<HeldRun, DoneRun>,
    /// What could not be read.
    pub(super) damage: Option<String>,
}

impl Reading {
    /// Whether everything that was begun since the machine started is known.
    pub(super) fn is_whole(&self) -> bool {
        self.incarnation > 0 && self.damage.is_none()
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Life(life) => {
                self.incarnation = self.incarnation.max(life.incarnation);
                self.since = life.since;
                self.boot = Some(life.boot);
            }
            Record::Begun(held) => {
                self.begun.insert(held);
            }
            Record::Result(done) => {
                let held = held_of(&done);
                self.begun.remove(&held);
                self.results.insert(held, *done);
            }
            Record::Over(held) => {
                self.begun.remove(&held);
                self.results.remove(&held);
            }
        }
    }
}

/// Reads the log of a directory. There is none before the first start.
pub(super) fn read(dir: &Path) -> Result<Reading, SpoolError> {
    let path = dir.join("log");
    match fs::read(&path) {
        Ok(bytes) => read_bytes(&path, &bytes),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(Reading::default()),
        Err(why) => Err(SpoolError::Unusable { path, what: "read", why }),
    }
}

fn read_bytes(path: &Path, bytes: &[u8]) -> Result<Reading, SpoolError> {
    let mut reading = Reading::default();
    let mut unread = 0_usize;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = line.strip_suffix(b"\n");
        match Record::read(text.unwrap_or(line)) {
            Some(Record::Life(life)) if life.format > super::FORMAT => {
                let found = life.format;
                return Err(SpoolError::Newer { path: path.to_owned(), found });
            }
            Some(record) => reading.take(record),
            // A crash left it, and nobody relied on it.
            None if text.is_none() => {}
            None => {
                if let Some(found) = newer_format(line.trim_ascii_end()) {
                    return Err(SpoolError::Newer { path: path.to_owned(), found });
                }
                unread += 1;
            }
        }
    }
    if unread > 0 {
        reading.damage = Some(format!("{unread} lines cannot be read"));
    } else if reading.incarnation == 0 {
        reading.damage = Some("it does not say whose it is".to_owned());
    }
    Ok(reading)
}

/// Keeps a damaged log under another name, which is told, and no more of them than are useful.
pub(super) fn set_aside(dir: &Path, number: u64) -> Result<PathBuf, SpoolError> {
    let kept = dir.join(format!("damaged-{number:020}"));
    // The log stays under its name until the next one takes it.
    fs::hard_link(dir.join("log"), &kept)
        .or_else(|_| fs::copy(dir.join("log"), &kept).map(drop))
        .map_err(|why| unusable(dir, "set aside the log of", why))?;
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_damaged = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("damaged-"))
    };
    let mut damaged: Vec<PathBuf> = entries.filter(is_damaged).collect();
    damaged.sort();
    for oldest in damaged.iter().take(damaged.len().saturating_sub(DAMAGED_MAX)) {
        let _kept = fs::remove_file(oldest);
    }
    Ok(kept)
}

/// The log that is being written, and all that it has to keep.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    life: LifeRecord,
    begun: BTreeSet<HeldRun>,
    results: BTreeMap<HeldRun, DoneRun>,
    file: File,
    bytes: u64,
    /// How many it had when it was made.
    made_bytes: u64,
    #[cfg(test)]
    pub(super) is_full: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Log {
    /// Makes a log with nothing in it but these, in the place of the one that is there. It is durable.
    pub(super) fn create(
        dir: &Path,
        life: LifeRecord,
        begun: BTreeSet<HeldRun>,
        results: BTreeMap<HeldRun, DoneRun>,
    ) -> io::Result<Self> {
        let (file, bytes) = write_anew(dir, &life, &begun, &results)?;
        Ok(Self {
            dir: dir.to_owned(),
            life,
            begun,
            results,
            file,
            bytes,
            made_bytes: bytes,
            #[cfg(test)]
            is_full: std::sync::Arc::default(),
        })
    }

    /// What becomes of a run, in memory.
    pub(super) fn apply(&mut self, record: &Record) {
        match record {
            Record::Life(_) => unreachable!("a log has one life"),
            Record::Begun(held) => {
                self.begun.insert(held.clone());
            }
            Record::Result(done) => {
                let held = held_of(done);
                self.begun.remove(&held);
                self.results.insert(held, (**done).clone());
            }
            Record::Over(held) => {
                self.begun.remove(held);
                self.results.remove(held);
            }
        }
    }

    /// Writes lines behind the others. After an error nothing is known of the file: see [`Log::write_anew`].
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.check_room()?;
        self.file.write_all(lines)?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// What was appended outlives the machine when this returns.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.check_room()?;
        self.file.sync_data()
    }

    /// Writes a log with all that memory has, in the place of this one. It is durable.
    pub(super) fn write_anew(&mut self) -> io::Result<()> {
        self.check_room()?;
        let (file, bytes) = write_anew(&self.dir, &self.life, &self.begun, &self.results)?;
        (self.file, self.bytes, self.made_bytes) = (file, bytes, bytes);
        Ok(())
    }

    /// Whether most of it is about what is over.
    pub(super) fn is_mostly_over(&self) -> bool {
        self.bytes > COMPACT_BYTES.max(GROWTH * self.made_bytes)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    #[cfg(test)]
    fn check_room(&self) -> io::Result<()> {
        let is_full = self.is_full.load(std::sync::atomic::Ordering::SeqCst);
        if is_full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests have it refuse")]
    fn check_room(&self) -> io::Result<()> {
        Ok(())
    }
}

fn write_anew(
    dir: &Path,
    life: &LifeRecord,
    begun: &BTreeSet<HeldRun>,
    results: &BTreeMap<HeldRun, DoneRun>,
) -> io::Result<(File, u64)> {
    let mut lines = Vec::new();
    Record::Life(life.clone()).write_to(&mut lines);
    for held in begun {
        Record::Begun(held.clone()).write_to(&mut lines);
    }
    for done in results.values() {
        Record::Result(Box::new(done.clone())).write_to(&mut lines);
    }
    let path = dir.join("log.tmp");
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    let mut file = options.open(&path)?;
    file.write_all(&lines)?;
    file.sync_data()?;
    fs::rename(&path, dir.join("log"))?;
    File::open(dir)?.sync_all()?;
    Ok((file, lines.len() as u64))
}

pub(super) fn unusable(dir: &Path, what: &'static str, why: io::Error) -> SpoolError {
    SpoolError::Unusable { path: dir.to_owned(), what, why }
}

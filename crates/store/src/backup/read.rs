//! Reading a backup: every byte counts, and nothing is taken for granted.

use std::fmt;
use std::io::{self, BufRead, Read};

use engine::instant::Instant;
use engine::limits::{BACKUP_LINE_BYTES_MAX, SHARDS_MAX};
use engine::record::{RecordError, decode};
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::Xxh3;

use super::line::{FORMAT, KIND, Opening, end_line, unhex};
use super::{BackupCensus, BackupHeader, BackupSection, Flaw, Summary};
use crate::{Key, Value};

/// A checksum over the lines of a backup: xxh3, 128 bits. It finds faults, not forgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(u128);

impl Checksum {
    pub(super) fn of(hash: &Xxh3) -> Self {
        Self(hash.digest128())
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

/// Why a backup is not read. Each sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupReadError {
    /// Look at the disk.
    #[error("the backup cannot be read: {0}; check the disk, or use another copy")]
    Io(#[from] io::Error),
    /// Give another file.
    #[error(
        "that is no backup of Watchbell, or its first line is damaged: {0}; give a file that watchbell backup create wrote"
    )]
    Foreign(String),
    /// Upgrade this program.
    #[error("the backup is newer than this program: {0}")]
    Newer(RecordError),
    /// Look at why, and take another.
    #[error("the backup was given up while it was taken: {0}")]
    Broken(String),
    /// Use another copy.
    #[error("the backup is damaged, in line {line}: {why}; use another copy, or an older backup")]
    Damaged {
        /// The line at which the damage was noticed.
        line: u64,
        /// What is wrong with that line.
        why: String,
    },
}

/// What comes in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupItem {
    /// The entries that follow are of this section.
    Section(BackupSection),
    /// One entry of the section.
    Entry {
        /// The key of the entry.
        key: Key,
        /// The value of the entry.
        value: Value,
    },
}

/// Any line but the first.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackupLine<'a> {
    #[serde(rename = "part")]
    section: Option<String>,
    key: Option<String>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    hex: Option<String>,
    broken: Option<String>,
}

/// Reads a backup line by line. That it is whole is known when [`BackupReader::next`] has returned `None`.
pub struct BackupReader<R> {
    from: R,
    header: BackupHeader,
    hash: Box<Xxh3>,
    bytes: u64,
    lines: u64,
    entries: u64,
    section: Option<BackupSection>,
    last: Option<Key>,
}

impl<R: BufRead> BackupReader<R> {
    /// Reads the first line.
    pub fn new(mut from: R) -> Result<Self, BackupReadError> {
        let foreign = |why: &str| BackupReadError::Foreign(why.to_owned());
        let Some(line) = read_line(&mut from)? else {
            return Err(foreign("the file is empty"));
        };
        let opening: Opening = match decode(&line, FORMAT) {
            Ok(opening) => opening,
            Err(why @ RecordError::Newer { .. }) => return Err(BackupReadError::Newer(why)),
            Err(RecordError::Malformed(why)) => return Err(BackupReadError::Foreign(why)),
        };
        if opening.watchbell != KIND {
            return Err(foreign("its first line does not say so"));
        }
        let cluster = u64::from_str_radix(&opening.cluster, 16);
        let cluster = cluster.map_err(|_| foreign("its first line names no cluster"))?;
        if !(1..=SHARDS_MAX).contains(&opening.shards) {
            return Err(foreign("its first line says nothing sensible about shards"));
        }
        let header = BackupHeader {
            version: opening.version,
            cluster,
            shards: opening.shards,
            taken: Instant(opening.taken_ms),
        };
        let mut this = Self {
            from,
            header,
            hash: Box::default(),
            bytes: 0,
            lines: 0,
            entries: 0,
            section: None,
            last: None,
        };
        this.count(&line);
        if !line.ends_with(b"\n") {
            return Err(this.damaged("it breaks off"));
        }
        Ok(this)
    }

    /// What the first line says.
    pub fn header(&self) -> &BackupHeader {
        &self.header
    }

    /// The next item; `None` at the end, and then all of it was as it was written.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<BackupItem>, BackupReadError> {
        let line = read_line(&mut self.from)?;
        let Some(line) = line.filter(|line| line.ends_with(b"\n")) else {
            self.lines += 1;
            let why = "it breaks off: it was not written to its end, or was cut short since";
            return Err(self.damaged(why));
        };
        if line.starts_with(b"{\"end\":") {
            return self.end(&line).map(|()| None);
        }
        self.count(&line);
        let read = serde_json::from_slice::<BackupLine<'_>>(&line);
        let read = read.map_err(|why| self.damaged(&format!("it cannot be read ({why})")))?;
        match read {
            BackupLine {
                section: Some(section),
                key: None,
                value: None,
                hex: None,
                broken: None,
            } => self.begin(&section).map(|section| Some(BackupItem::Section(section))),
            BackupLine {
                section: None,
                key: Some(key),
                value: Some(json),
                hex: None,
                broken: None,
            } => self.entry(key, json.get().as_bytes().to_vec()).map(Some),
            BackupLine {
                section: None,
                key: Some(key),
                value: None,
                hex: Some(hex),
                broken: None,
            } => {
                let bytes = unhex(&hex).ok_or_else(|| self.damaged("its value is not hex"))?;
                self.entry(key, bytes).map(Some)
            }
            BackupLine { broken: Some(why), .. } => Err(BackupReadError::Broken(why)),
            BackupLine { .. } => Err(self.damaged("it is neither a part nor an entry")),
        }
    }

    /// What was read, once all of it was.
    pub(super) fn summary(&self, census: BackupCensus) -> Summary {
        Summary {
            header: self.header.clone(),
            bytes: self.bytes,
            entries: self.entries,
            checksum: Checksum::of(&self.hash),
            census,
        }
    }

    /// What is wrong with the last line.
    pub(super) fn flawed(&self, flaw: Flaw) -> BackupReadError {
        match flaw {
            Flaw::Newer(why) => BackupReadError::Newer(why),
            Flaw::Wrong(why) => self.damaged(&why),
        }
    }

    fn begin(&mut self, text: &str) -> Result<BackupSection, BackupReadError> {
        let section =
            BackupSection::read(text).ok_or_else(|| self.damaged("there is no such part"))?;
        if self.section.is_some_and(|last| last >= section) {
            return Err(self.damaged("its part is there twice, or out of order"));
        }
        (self.section, self.last) = (Some(section), None);
        Ok(section)
    }

    fn entry(&mut self, key: String, value: Vec<u8>) -> Result<BackupItem, BackupReadError> {
        let key = Key::new(key).map_err(|why| self.damaged(&why.to_string()))?;
        if !self.section.is_some_and(|section| section.contains(&key)) {
            return Err(self.damaged(&format!("{key} does not belong to this part")));
        }
        if self.last.as_ref().is_some_and(|last| last.as_str() >= key.as_str()) {
            return Err(self.damaged(&format!("{key} is there twice, or out of order")));
        }
        self.last = Some(key.clone());
        self.entries += 1;
        Ok(BackupItem::Entry { key, value: value.into() })
    }

    fn end(&mut self, line: &[u8]) -> Result<(), BackupReadError> {
        let expected = end_line(self.entries, Checksum::of(&self.hash));
        self.lines += 1;
        if line != expected.as_bytes() {
            return Err(self.damaged("what stands before it is not what was written"));
        }
        self.bytes += line.len() as u64;
        if read_line(&mut self.from)?.is_none() {
            return Ok(());
        }
        self.lines += 1;
        Err(self.damaged("it stands behind the end"))
    }

    fn count(&mut self, line: &[u8]) {
        self.hash.update(line);
        self.bytes += line.len() as u64;
        self.lines += 1;
    }

    fn damaged(&self, why: &str) -> BackupReadError {
        BackupReadError::Damaged { line: self.lines, why: why.to_owned() }
    }
}

/// The next line with its end; without one, if the file or the longest line ends before.
fn read_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = BACKUP_LINE_BYTES_MAX as u64;
    from.by_ref().take(most).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then_some(line))
}

//! What stands in the log of a spool: one record in each line, behind its checksum.

use client::worker::{DoneRun, HeldRun};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The format of a spool. It rises when an older version would misread one.
pub(super) const FORMAT: u64 = 1;

/// Digits of a checksum: XXH3, 64 bits, of the JSON behind it.
const CHECKSUM_LEN: usize = 16;

/// Something that is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    /// A life of the worker. The first record of each log.
    Life(LifeRecord),
    /// A run is about to begin.
    Begun(HeldRun),
    /// What came of a run.
    Result(Box<DoneRun>),
    /// A server has taken the result, or wants none.
    Over(HeldRun),
}

/// Who the worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LifeRecord {
    pub(super) format: u64,
    pub(super) name: String,
    /// Greater than those of all lives before.
    pub(super) incarnation: u64,
    /// Lives before this one may have begun what nobody wrote down.
    pub(super) since: u64,
    /// Since which start of the machine the log is whole.
    pub(super) boot: String,
}

impl Record {
    /// Writes it as a line.
    pub(super) fn write_to(&self, lines: &mut Vec<u8>) {
        let json = serde_json::to_string(self).expect("our types always serialize");
        let checksum = xxh3_64(json.as_bytes());
        lines.extend_from_slice(format!("{checksum:016x} {json}\n").as_bytes());
    }

    /// Reads a line without its newline. Nothing, if it is not what was written.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let (checksum, rest) = line.split_at_checked(CHECKSUM_LEN)?;
        let json = rest.strip_prefix(b" ")?;
        let is_whole = checksum == format!("{:016x}", xxh3_64(json)).as_bytes();
        is_whole.then(|| serde_json::from_slice(json).ok()).flatten()
    }
}

/// The format that a line's life says, if it is a whole line of a format that this version cannot read.
pub(super) fn newer_format(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Line {
        life: Life,
    }
    #[derive(Deserialize)]
    struct Life {
        format: u64,
    }
    let (checksum, rest) = line.split_at_checked(CHECKSUM_LEN)?;
    let json = rest.strip_prefix(b" ")?;
    if checksum != format!("{:016x}", xxh3_64(json)).as_bytes() {
        return None;
    }
    let line: Line = serde_json::from_slice(json).ok()?;
    Some(line.life.format).filter(|format| *format > FORMAT)
}

//! Reading the log back after any stop: what is whole, what was cut short, what is damaged.
//!
//! Records are expected in order. Where the expected one cannot be read, the rest of the segment is
//! searched for whole frames. If one of them, or the seal, vouches for the missing record, that record
//! was acknowledged and its bytes have changed since: damage. If none does, the group was never
//! acknowledged, and the log ends there. Damage to records that the index holds anyway is passed
//! over with a word; anything else stops the opening.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Log;
use super::frame::{self, Frame, LogId, STEP, Seed};
use super::pool::{SegmentPool, parse_segment_name, segment_name};
use super::seal::Seal;

/// Why a log cannot be read back.
#[derive(Debug)]
pub enum LogError {
    /// The operating system would not let us.
    Io {
        /// The file that could not be used.
        path: PathBuf,
        /// The error of the operating system.
        why: io::Error,
    },
    /// Records that were acknowledged are gone or changed. The sentence says which, and what to do.
    Damaged(String),
}

/// What reading back found beside the records.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Number of the last record.
    pub last: u64,
    /// Whether a group that was cut short by a stop was cut off; nobody was told that it was done.
    pub torn: bool,
    /// Ranges of records that are damaged but held elsewhere.
    pub damaged: Vec<(u64, u64)>,
}

/// What is done with a record: its number and payload, or a reason why it makes no sense.
pub type RecordVisitor<'a> = dyn FnMut(u64, &[u8]) -> Result<(), String> + 'a;

/// Opens the log in `dir`, gives `visit` every record after `indexed` in order, and returns the log
/// ready to be written. `indexed` is the last record that is held elsewhere, 0 for none.
pub fn recover(
    dir: &Path,
    id: LogId,
    segment_bytes: u64,
    indexed: u64,
    visit: &mut RecordVisitor<'_>,
) -> Result<(Log, Recovered), LogError> {
    let pool = Arc::new(SegmentPool::new(dir.to_owned(), segment_bytes));
    let (ordinals, mut free) = list(dir).map_err(io_at(dir))?;
    check_ordinals(dir, &ordinals, indexed)?;

    let (seal, sealed) = Seal::open(dir, id).map_err(io_at(dir))?;
    let mut reader =
        Recovery { indexed, sealed, expected: indexed + 1, begun: false, damaged: Vec::new() };
    let mut end = LogEnd::default();
    // Behind the segment being written stands the next one, to which nothing has been written yet.
    let mut blank = Vec::new();
    for &ordinal in &ordinals {
        let path = dir.join(segment_name(ordinal));
        let bytes = fs::read(&path).map_err(io_at(&path))?;
        check_len(&path, bytes.len(), segment_bytes)?;
        let segment = SegmentBytes { path: &path, bytes: &bytes, seed: Seed::new(id, ordinal) };
        let read = reader.read(&segment, visit)?;
        if read.is_blank() {
            blank.push(ordinal);
            continue;
        }
        let former = (end.ordinal > 0).then_some(end.ordinal).into_iter().chain(blank.drain(..));
        former.for_each(|former| pool.put_full(former, read.first - 1));
        end = LogEnd { ordinal, bytes, read };
    }
    reader.pass_over(sealed, &format!("at the end of the log in {}", dir.display()))?;
    if reader.expected <= indexed {
        return Err(LogError::Damaged(format!(
            "the log in {} ends at record {}, and the index already holds record {indexed}: segments are \
             missing; put them back, or restore the directory from a backup",
            dir.display(),
            reader.expected - 1,
        )));
    }
    if reader.expected == 1 && ordinals.first().is_some_and(|first| *first > 1) {
        return Err(LogError::Damaged(format!(
            "the log in {} is empty, though it once had records: restore the directory from a backup",
            dir.display(),
        )));
    }
    // Blank segments give their ordinals back: no frame of theirs exists anywhere.
    let highest = match (end.ordinal, ordinals.first()) {
        (0, Some(first)) => first - 1,
        (ordinal, _) => ordinal,
    };
    free.extend(blank.iter().map(|&ordinal| dir.join(segment_name(ordinal))));
    pool.stock(highest, &free).map_err(io_at(dir))?;
    let found =
        Recovered { last: reader.expected - 1, torn: end.read.torn, damaged: reader.damaged };
    let log = resume(dir, id, pool, seal, end, found.last + 1).map_err(io_at(dir))?;
    Ok((log, found))
}

/// Where the log ended.
#[derive(Default)]
struct LogEnd {
    /// Of the last segment with anything in it, 0 if there is none.
    ordinal: u64,
    bytes: Vec<u8>,
    read: SegmentRead,
}

/// The log, to be written on where it ended.
fn resume(
    dir: &Path,
    id: LogId,
    pool: Arc<SegmentPool>,
    seal: Seal,
    end: LogEnd,
    next: u64,
) -> io::Result<Log> {
    let LogEnd { ordinal, mut bytes, read: SegmentRead { end, unsealed_at, torn, .. } } = end;
    if ordinal == 0 {
        let (ordinal, file) = pool.begin()?;
        return Ok(Log { id, pool, seal, file, ordinal, position: 0, next, group: Vec::new() });
    }
    let file = OpenOptions::new().read(true).write(true).open(dir.join(segment_name(ordinal)))?;
    if torn {
        bytes[end..].fill(0);
        write_again(&file, &bytes, end)?;
    }
    if let Some(begin) = unsealed_at {
        write_again(&file, &bytes[..end], begin)?;
    }
    let position = end as u64;
    let mut log = Log { id, pool, seal, file, ordinal, position, next, group: Vec::new() };
    log.set_seal();
    Ok(log)
}

/// Writes what was read once more, from `begin`, and syncs it.
///
/// For a torn group, zeros: so that none of its records comes to life behind a new one. For records
/// that the seal does not vouch for, the same bytes: they were read from the kernel's memory, and if
/// the sync behind them failed before the stop they are perhaps nowhere else. Nothing is served before
/// it is durable.
fn write_again(file: &File, bytes: &[u8], begin: usize) -> io::Result<()> {
    file.write_all_at(&bytes[begin..], begin as u64)?;
    file.sync_data()
}

/// The ordinals of the segments, in order, and the files that are free. Unfinished ones are removed.
fn list(dir: &Path) -> io::Result<(Vec<u64>, Vec<PathBuf>)> {
    let mut ordinals = Vec::new();
    let mut free = Vec::new();
    for file in fs::read_dir(dir)? {
        let file = file?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if let Some(ordinal) = parse_segment_name(&name) {
            ordinals.push(ordinal);
        } else if name.ends_with(".tmp") {
            fs::remove_file(file.path())?;
        } else if name.starts_with("spare-") {
            free.push(file.path());
        }
    }
    ordinals.sort_unstable();
    Ok((ordinals, free))
}

fn check_ordinals(dir: &Path, ordinals: &[u64], indexed: u64) -> Result<(), LogError> {
    if ordinals.is_empty() && indexed > 0 {
        return Err(LogError::Damaged(format!(
            "there is no log in {}, and the index holds {indexed} records: put the log back, or restore \
             the directory from a backup",
            dir.display(),
        )));
    }
    match ordinals.windows(2).find(|pair| pair[1] != pair[0] + 1) {
        None => Ok(()),
        Some(pair) => Err(LogError::Damaged(format!(
            "{} is missing: put it back, or restore the directory from a backup",
            dir.join(segment_name(pair[0] + 1)).display(),
        ))),
    }
}

fn check_len(path: &Path, len: usize, segment_bytes: u64) -> Result<(), LogError> {
    if len as u64 == segment_bytes {
        return Ok(());
    }
    Err(LogError::Damaged(format!(
        "{} has {len} bytes, and a segment has {segment_bytes}: restore the directory from a backup",
        path.display(),
    )))
}

struct SegmentBytes<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    seed: Seed,
}

/// What was read of one segment.
#[derive(Default)]
struct SegmentRead {
    /// The number expected at its beginning.
    first: u64,
    /// The byte at which its records end.
    end: usize,
    /// Where the first record stands that the seal does not vouch for.
    unsealed_at: Option<usize>,
    /// Whether frames follow that nobody was told about.
    torn: bool,
}

impl SegmentRead {
    /// Whether nothing was ever written to it in this use.
    fn is_blank(&self) -> bool {
        self.end == 0 && !self.torn
    }
}

/// What follows an unreadable place.
enum Rest {
    /// No frame of ours: the log ends here.
    Nothing,
    /// Frames of a group that nobody was told about: the log ends here, and they must go.
    Torn,
    /// The frame at `offset` may be read next; records up to `last` are damaged or missing.
    Gap { offset: usize, last: u64 },
}

struct Recovery {
    indexed: u64,
    /// The last record that the seal vouches for.
    sealed: u64,
    /// Number of the next record.
    expected: u64,
    /// Whether any frame was read: the first one says where the log begins.
    begun: bool,
    /// Ranges that are damaged but held elsewhere.
    damaged: Vec<(u64, u64)>,
}

impl Recovery {
    /// Reads a segment up to where its records end.
    fn read(
        &mut self,
        segment: &SegmentBytes<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<SegmentRead, LogError> {
        let first = self.expected;
        let (mut at, mut unsealed_at, mut torn) = (0, None, false);
        loop {
            let frame = frame::decode(&segment.bytes[at..], segment.seed);
            if let Some(frame) = frame.filter(|frame| frame.number == self.expected) {
                self.begun = true;
                if frame.number > self.sealed {
                    unsealed_at = unsealed_at.or(Some(at));
                }
                at += frame.encoded_len();
                self.take(segment, &frame, visit)?;
                continue;
            }
            match self.search(segment, at) {
                Rest::Nothing => break,
                Rest::Torn => {
                    torn = true;
                    break;
                }
                Rest::Gap { offset, last } => {
                    let place = format!("in {} at byte {at}", segment.path.display());
                    self.pass_over(last, &place)?;
                    at += offset;
                }
            }
        }
        Ok(SegmentRead { first, end: at, unsealed_at, torn })
    }

    fn take(
        &mut self,
        segment: &SegmentBytes<'_>,
        frame: &Frame<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), LogError> {
        if frame.number > self.indexed {
            visit(frame.number, frame.payload).map_err(|why| {
                LogError::Damaged(format!(
                    "record {} in {} is whole and makes no sense ({why}): it was written by another \
                     program; restore the directory from a backup",
                    frame.number,
                    segment.path.display(),
                ))
            })?;
        }
        self.expected += 1;
        Ok(())
    }

    /// The expected record does not stand at `begin`. What does the rest of the segment say?
    fn search(&mut self, segment: &SegmentBytes<'_>, begin: usize) -> Rest {
        let bytes = &segment.bytes[begin..];
        let mut first: Option<(usize, u64)> = None;
        let mut vouched = self.sealed;
        let mut at = 0;
        while at < bytes.len() {
            let Some(frame) = frame::decode(&bytes[at..], segment.seed) else {
                at += STEP;
                continue;
            };
            if frame.number >= self.expected || !self.begun {
                first = first.or(Some((at, frame.number)));
            }
            vouched = vouched.max(frame.durable);
            at += frame.encoded_len();
        }
        let Some((offset, number)) = first else {
            return Rest::Nothing;
        };
        if !self.begun && number <= self.expected {
            // The oldest segment begins with what the index holds already.
            self.expected = number;
        }
        if number <= self.expected || vouched >= self.expected {
            Rest::Gap { offset, last: number - 1 }
        } else {
            Rest::Torn
        }
    }

    /// Goes on behind damaged or missing records up to `last`, if they are held elsewhere.
    fn pass_over(&mut self, last: u64, place: &str) -> Result<(), LogError> {
        if last < self.expected {
            return Ok(());
        }
        if last > self.indexed {
            return Err(LogError::Damaged(format!(
                "records {} to {last} of the log cannot be read, though they were acknowledged ({place}): \
                 restore the directory from a backup, and check the disk",
                self.expected,
            )));
        }
        self.damaged.push((self.expected, last));
        self.expected = last + 1;
        Ok(())
    }
}

fn io_at(path: &Path) -> impl Fn(io::Error) -> LogError {
    let path = path.to_owned();
    move |why| LogError::Io { path: path.clone(), why }
}

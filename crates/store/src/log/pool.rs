//! The pool of segments: those that are not being written.
//!
//! Segments are numbered by ordinals, in the order of their use, and named after them. The **next**
//! one stands ready under its name before it is needed, zeroed or used before, so that the writer
//! changes over without a word to the file system. A full one stays until everything in it is in the index
//! on disk; then it is spare, and later a next one.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// More spares than this are deleted, so that a burst does not keep its disk space for ever.
const SPARES_MAX: usize = 4;

/// New segments are zeroed and synced in pieces, so that the log's own syncs never wait for more.
const ZERO_PIECE: &[u8] = &[0; 256 * 1024];

/// The segments of one log that are not being written. Shared by the writer and by whoever tidies up
/// behind it; the writer comes here only to change segments.
#[derive(Debug)]
pub struct SegmentPool {
    dir: PathBuf,
    segment_bytes: u64,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Ordinal and last record of each full segment, the oldest first.
    full: VecDeque<(u64, u64)>,
    next: Option<(u64, File)>,
    /// The highest ordinal in use, that of the next segment included.
    highest: u64,
    spares: Vec<PathBuf>,
    /// Spares named since the start.
    named: u64,
}

impl SegmentPool {
    pub(super) fn new(dir: PathBuf, segment_bytes: u64) -> Self {
        Self { dir, segment_bytes, state: Mutex::default() }
    }

    /// How large each segment is.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Everything up to record `through` is held elsewhere: full segments with nothing newer become
    /// spare, and a next one is made ready if there is none.
    pub fn tidy(&self, through: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        while let Some(&(ordinal, last)) = state.full.front()
            && last <= through
        {
            self.put_spare(&mut state, &self.dir.join(segment_name(ordinal)))?;
            state.full.pop_front();
        }
        if state.next.is_none() {
            let next = self.prepare(&mut state)?;
            state.next = Some(next);
        }
        Ok(())
    }

    /// The segment to write first, with its ordinal; its name is durable.
    pub(super) fn begin(&self) -> io::Result<(u64, File)> {
        self.take_next(&mut self.state.lock())
    }

    /// Takes a full segment, of which the last record is `last`, and gives the next one for it.
    pub(super) fn exchange(&self, ordinal: u64, last: u64) -> io::Result<(u64, File)> {
        let mut state = self.state.lock();
        let next = self.take_next(&mut state)?;
        state.full.push_back((ordinal, last));
        Ok(next)
    }

    /// Takes over a full segment that was found at open.
    pub(super) fn put_full(&self, ordinal: u64, last: u64) {
        self.state.lock().full.push_back((ordinal, last));
    }

    /// Takes over what was found at open: the highest ordinal in use, and files that are free.
    pub(super) fn stock(&self, highest: u64, free: &[PathBuf]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.highest = highest;
        free.iter().try_for_each(|file| self.put_spare(&mut state, file))
    }

    fn take_next(&self, state: &mut PoolState) -> io::Result<(u64, File)> {
        match state.next.take() {
            Some(next) => Ok(next),
            None => self.prepare(state),
        }
    }

    fn put_spare(&self, state: &mut PoolState, file: &Path) -> io::Result<()> {
        if state.spares.len() == SPARES_MAX || fs::metadata(file)?.len() != self.segment_bytes {
            return fs::remove_file(file);
        }
        let spare = self.name_spare(state);
        fs::rename(file, &spare)?;
        state.spares.push(spare);
        Ok(())
    }

    /// Makes the next segment ready: from a spare one, or a new one.
    fn prepare(&self, state: &mut PoolState) -> io::Result<(u64, File)> {
        let spare = match state.spares.pop() {
            Some(spare) => spare,
            None => self.make_spare(state)?,
        };
        let ordinal = state.highest + 1;
        let path = self.dir.join(segment_name(ordinal));
        let named = fs::rename(&spare, &path)
            .and_then(|()| File::open(&self.dir)?.sync_all())
            .and_then(|()| OpenOptions::new().read(true).write(true).open(&path));
        match named {
            Ok(file) => {
                state.highest = ordinal;
                Ok((ordinal, file))
            }
            Err(why) => {
                // The ordinal is used by the next try, so that none is ever missing; so is the file.
                state.spares.push(if spare.exists() { spare } else { path });
                Err(why)
            }
        }
    }

    fn make_spare(&self, state: &mut PoolState) -> io::Result<PathBuf> {
        let spare = self.name_spare(state);
        let unfinished = spare.with_extension("tmp");
        let made = self.write_zeros(&unfinished).and_then(|()| fs::rename(&unfinished, &spare));
        if let Err(why) = made {
            // Best effort: what is left behind is swept at the next start.
            let _ = fs::remove_file(&unfinished);
            return Err(why);
        }
        Ok(spare)
    }

    fn write_zeros(&self, path: &Path) -> io::Result<()> {
        let mut file = File::create(path)?;
        let mut left = usize::try_from(self.segment_bytes).expect("a segment fits in memory");
        while left > 0 {
            let piece = left.min(ZERO_PIECE.len());
            file.write_all(&ZERO_PIECE[..piece])?;
            file.sync_data()?;
            left -= piece;
        }
        file.sync_all()
    }

    fn name_spare(&self, state: &mut PoolState) -> PathBuf {
        loop {
            state.named += 1;
            let path = self.dir.join(format!("spare-{}", state.named));
            if !path.exists() {
                return path;
            }
        }
    }
}

/// Names sort as ordinals do.
pub(super) fn segment_name(ordinal: u64) -> String {
    format!("{ordinal:020}.log")
}

/// The ordinal of the segment with this name, if it is a segment's.
pub(super) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

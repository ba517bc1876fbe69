//! A log: what gives a store on this machine its order and its durability.
//!
//! Records are numbered 1, 2, 3 … for the life of the store, and written in groups: one write and one
//! sync for all of a group. They live in segments, files of one fixed size that are zeroed before use
//! and used again when everything in them is held elsewhere, so that a sync never waits for the file
//! system to find room. After the sync, and before anybody is told, a **seal** is set: a small file
//! that says up to which record everything is durable.
//!
//! That is what tells a torn tail from damage. When the machine dies in the middle of a group, some
//! of its records may be readable and some not, in any order. Neither the seal nor a later group
//! vouches for them, and nobody was told that they are done: those before the first unreadable one
//! are kept, the rest is cut off. A record that is unreadable although something vouches for it was
//! acknowledged: that is damage, and it is reported, never cut. (What remains: a power cut that loses
//! the newest seal, which is not synced, *and* damage to that very group. One fault alone is told.)
//!
//! - `frame`: a record, or a seal, as bytes
//! - `seal`: how far the log is known to be durable
//! - `pool`: the segments that are not being written
//! - `recovery`: reading the log back after any stop
//!
//! docs/format.md has the layout byte by byte.

mod frame;
mod pool;
mod recovery;
mod seal;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub use frame::LogId;
pub use pool::SegmentPool;
pub use recovery::{LogError, RecordVisitor, Recovered, recover};

use frame::{FrameKind, Seed};
use seal::Seal;

/// The end of a log that is being written. One at a time: the directory's lock sees to that.
pub struct Log {
    id: LogId,
    pool: Arc<SegmentPool>,
    seal: Seal,
    file: File,
    /// The ordinal of this segment.
    ordinal: u64,
    /// Where in this segment the next group begins.
    position: u64,
    /// Number of the next record.
    next: u64,
    /// The group being encoded; kept for its memory.
    group: Vec<u8>,
}

/// Why a group was not written.
#[derive(Debug)]
pub enum AppendError {
    /// No room for another segment: nothing was written; try again when there is.
    Full,
    /// No other segment could be had: nothing was written; try again.
    NoSegment(io::Error),
    /// The disk failed. What became of the group is unknown, and this log must not be written any
    /// more: after a failed sync, a later one that succeeds proves nothing.
    Failed(io::Error),
}

impl Log {
    /// Number of the next record.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Of the segment being written: it changes when the pool needs tidying.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The segments that are not being written.
    pub fn pool(&self) -> Arc<SegmentPool> {
        Arc::clone(&self.pool)
    }

    /// How many bytes a record with a payload of this length takes in a segment.
    pub fn record_bytes(payload_len: usize) -> u64 {
        frame::encoded_len(payload_len) as u64
    }

    /// Writes the payloads as the next records and syncs them. When this returns, they are durable;
    /// their numbers are those from [`Log::next`] before the call. A group must fit in a segment.
    pub fn append<'a>(
        &mut self,
        payloads: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), AppendError> {
        let bytes: u64 = payloads.clone().map(|payload| Self::record_bytes(payload.len())).sum();
        self.make_room(bytes)?;

        self.group.clear();
        let seed = Seed::new(self.id, self.ordinal);
        let durable = self.next - 1;
        let mut next = self.next;
        for payload in payloads {
            frame::encode(&mut self.group, seed, FrameKind::Record, next, durable, payload);
            next += 1;
        }
        self.write_group()?;
        self.file.sync_data().map_err(AppendError::Failed)?;
        self.position += bytes;
        self.next = next;
        self.set_seal();
        Ok(())
    }

    /// Makes the seal durable too: a clean stop. Then no damage can pass for a torn tail.
    pub fn close(self) -> io::Result<()> {
        self.seal.sync()
    }

    fn make_room(&mut self, needed: u64) -> Result<(), AppendError> {
        let capacity = self.pool.segment_bytes();
        assert!(needed <= capacity, "the writer keeps groups within a segment");
        if self.position + needed <= capacity {
            return Ok(());
        }
        let exchanged = self.pool.exchange(self.ordinal, self.next - 1);
        let (ordinal, file) = exchanged.map_err(|why| {
            if is_full(&why) { AppendError::Full } else { AppendError::NoSegment(why) }
        })?;
        (self.ordinal, self.file, self.position) = (ordinal, file, 0);
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), AppendError> {
        let Err(why) = self.file.write_all_at(&self.group, self.position) else {
            return Ok(());
        };
        // Segments are written through before use, so this does not happen on most file systems.
        // Where it does (copy on write), what was written of the group must not come to life later.
        if is_full(&why) && self.blank(self.group.len()).is_ok() {
            return Err(AppendError::Full);
        }
        Err(AppendError::Failed(why))
    }

    fn blank(&self, len: usize) -> io::Result<()> {
        self.file.write_all_at(&vec![0; len], self.position)?;
        self.file.sync_data()
    }

    /// Vouches for everything written. The records are durable without it, so its failure is only
    /// worth a word: the next group vouches as well.
    fn set_seal(&mut self) {
        if let Err(why) = self.seal.set(self.next - 1) {
            tracing::warn!(%why, "the log's seal was not set");
        }
    }
}

/// Whether the error says that there is no room: on the disk, or for this user.
pub(crate) fn is_full(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

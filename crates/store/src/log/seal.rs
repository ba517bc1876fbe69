//! The seal: how far the log is known to be durable.
//!
//! A small file beside the segments, with two slots that are written in turn, so that a torn write
//! leaves the one before. It is written after each sync and not synced itself: that would double the
//! price of a commit. It lies apart from the records that it vouches for, so that no single bad
//! sector takes both.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::frame::{self, FrameKind, LogId, Seed};

/// Slots lie in pages of their own.
const SLOT_BYTES: usize = 4096;
const SLOTS: usize = 2;

/// The seal is no segment: segments count from 1.
const ORDINAL: u64 = 0;

#[derive(Debug)]
pub(super) struct Seal {
    file: File,
    seed: Seed,
    /// The slot that is written next.
    slot: usize,
}

impl Seal {
    /// Opens the seal in `dir`, and tells the last record that it vouches for, 0 if none.
    pub(super) fn open(dir: &Path, id: LogId) -> io::Result<(Self, u64)> {
        let path = dir.join("seal");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() == 0 {
            file.write_all_at(&[0; SLOT_BYTES * SLOTS], 0)?;
            file.sync_all()?;
        }
        let seed = Seed::new(id, ORDINAL);
        let mut bytes = vec![0; SLOT_BYTES * SLOTS];
        let read = file.read_at(&mut bytes, 0)?;
        let slots: Vec<u64> =
            bytes[..read].chunks(SLOT_BYTES).map(|slot| vouched(slot, seed)).collect();
        let newest = slots.iter().copied().max().unwrap_or(0);
        let slot = slots.iter().position(|&number| number != newest).unwrap_or(0);
        Ok((Self { file, seed, slot }, newest))
    }

    /// Vouches for everything up to record `last`.
    pub(super) fn set(&mut self, last: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(frame::encoded_len(0));
        frame::encode(&mut bytes, self.seed, FrameKind::Seal, last, last, &[]);
        self.file.write_all_at(&bytes, (self.slot * SLOT_BYTES) as u64)?;
        self.slot = (self.slot + 1) % SLOTS;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn vouched(slot: &[u8], seed: Seed) -> u64 {
    frame::decode(slot, seed)
        .filter(|frame| frame.kind == FrameKind::Seal)
        .map_or(0, |frame| frame.number)
}

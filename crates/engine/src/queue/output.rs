//! What a run prints: the last of it, by offsets.
//!
//! A worker sends what its program prints in chunks. Each chunk has the offset of its first byte, counted over stdout and
//! stderr together from the beginning of the attempt. So what comes twice is recognised, and what is missing is seen. The
//! window keeps the last [`OUTPUT_KEPT_BYTES_MAX`] bytes; the count goes on whatever is dropped.
//!
//! A chunk beyond what is expected next leaves a gap. If the worker still has what is missing, the chunk is refused and the
//! worker sends again from the expected offset; if not, the chunk is taken and the gap stays visible between two offsets.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::id::{ProjectId, RunId, ShardId};
use crate::instant::Instant;
use crate::limits::{OUTPUT_KEPT_BYTES_MAX, OUTPUT_PIECES_KEPT_MAX};

use super::given::RunToken;

/// Where a program printed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// Some bytes that a program printed, all to one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPiece {
    /// How many bytes the attempt printed before it, to both streams.
    pub offset: u64,
    /// The stream.
    pub stream: OutputStream,
    /// When the first of these bytes was printed, as the worker says.
    pub at: Option<Instant>,
    /// What it printed.
    pub bytes: Vec<u8>,
}

impl OutputPiece {
    /// The offset of the byte after it.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.len() as u64)
    }

    /// Whether the next piece may be put to this one: it follows in the same stream, within a second or in the middle of a
    /// character.
    fn takes(&self, next: &Self) -> bool {
        let is_soon = match (self.at, next.at) {
            (None, None) => true,
            (Some(at), Some(next)) => (0..TOGETHER_MS).contains(&(next.0 - at.0)),
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_rest_of_character = next.bytes.first().is_some_and(|byte| byte & 0xc0 == 0x80);
        self.stream == next.stream && self.end() == next.offset && (is_soon || is_rest_of_character)
    }

    /// The part at or after an offset; nothing, if all of it lies before.
    pub fn from(mut self, offset: u64) -> Option<Self> {
        if self.end() <= offset {
            return None;
        }
        let before = usize::try_from(offset.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        self.bytes.drain(..before.min(self.bytes.len()));
        self.offset = self.offset.max(offset);
        Some(self)
    }
}

/// The last bytes that an attempt printed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputWindow {
    /// In the order of their offsets. Neighbours of one stream and one second are one piece, up to [`PIECE_BYTES`].
    pieces: VecDeque<OutputPiece>,
    kept: usize,
    next: u64,
}

/// Bytes of a piece that others are added to: so little is moved when its beginning is dropped.
const PIECE_BYTES: usize = 4 * 1024;

/// Bytes of memory that a piece takes beside what was printed.
const PIECE_COST: usize = 80;

/// What is printed to one stream within this time, in milliseconds, is kept under the time of its first byte.
const TOGETHER_MS: i64 = 1_000;

impl OutputWindow {
    /// The offset that is expected next: so many bytes were printed, as far as is known.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// What is kept, in order. A gap between two pieces, or before the first one, was lost or dropped.
    pub fn pieces(&self) -> impl Iterator<Item = &OutputPiece> {
        self.pieces.iter()
    }

    /// Bytes of memory that it takes.
    pub fn cost(&self) -> usize {
        self.kept + self.pieces.len() * PIECE_COST
    }

    /// Takes a chunk from a worker that still has everything from `oldest` on. Gives what of it is new; nothing, if all of
    /// it was there, or if the worker can fill the gap before it.
    pub fn take(&mut self, chunk: OutputPiece, oldest: u64) -> Option<OutputPiece> {
        if chunk.offset > self.next && oldest < chunk.offset {
            return None;
        }
        let new = chunk.from(self.next)?;
        self.next = new.end();
        self.keep(&new);
        Some(new)
    }

    /// Keeps nothing of what was printed so far, but the count.
    pub fn forget(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }

    fn keep(&mut self, new: &OutputPiece) {
        // What would be dropped at once is not copied.
        let from = new.bytes.len().saturating_sub(OUTPUT_KEPT_BYTES_MAX);
        let mut offset = new.offset + from as u64;
        for bytes in new.bytes[from..].chunks(PIECE_BYTES) {
            let len = bytes.len() as u64;
            self.append(OutputPiece { offset, bytes: bytes.to_vec(), ..*new });
            offset += len;
        }
        while self.kept > OUTPUT_KEPT_BYTES_MAX || self.pieces.len() > OUTPUT_PIECES_KEPT_MAX {
            self.drop_first();
        }
    }

    fn append(&mut self, piece: OutputPiece) {
        self.kept += piece.bytes.len();
        if let Some(last) = self.pieces.back_mut()
            && last.takes(&piece)
            && last.bytes.len() + piece.bytes.len() <= PIECE_BYTES
        {
            last.bytes.extend_from_slice(&piece.bytes);
            return;
        }
        self.pieces.push_back(piece);
    }

    /// Drops what is too much of the oldest piece, or all of it.
    fn drop_first(&mut self) {
        let Some(first) = self.pieces.pop_front() else { return };
        self.kept -= first.bytes.len();
        if self.pieces.len() >= OUTPUT_PIECES_KEPT_MAX {
            return;
        }
        let room = OUTPUT_KEPT_BYTES_MAX.saturating_sub(self.kept);
        let from = first.end() - room.min(first.bytes.len()) as u64;
        if let Some(rest) = first.from(from) {
            self.kept += rest.bytes.len();
            self.pieces.push_front(rest);
        }
    }
}

/// How far an attempt has come, as its worker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgress {
    /// From 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// What it does at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Box<str>>,
    /// When that was said.
    pub at: Instant,
}

/// What an attempt printed last, as it is stored beside what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRecord {
    /// The project of the run.
    #[serde(default, skip_serializing_if = "ProjectId::is_default")]
    pub project: ProjectId,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// The token of the attempt.
    pub token: RunToken,
    /// So many bytes were printed.
    pub bytes: u64,
    /// What is kept of them, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<StoredPiece>,
    /// What the worker said last about how far it had come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RunProgress>,
}

/// A piece as it is stored: readable where it is text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPiece {
    /// As in [`OutputPiece`].
    pub offset: u64,
    /// The stream.
    pub stream: OutputStream,
    /// When the first of these bytes was printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Instant>,
    /// What it printed, if that is text without control characters, or in hexadecimal digits.
    #[serde(flatten)]
    pub content: StoredContent,
}

/// Bytes as text, where that is no longer than digits would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredContent {
    /// As it was printed.
    Text(String),
    /// Two digits for each byte.
    Hex(String),
}

impl StoredContent {
    fn of(bytes: &[u8]) -> Self {
        // A control character would take six bytes.
        let is_plain = |text: &str| {
            !text.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\r' | '\t'))
        };
        match std::str::from_utf8(bytes) {
            Ok(text) if is_plain(text) => Self::Text(text.to_owned()),
            Ok(_) | Err(_) => {
                let digit = |half: u8| char::from_digit(half.into(), 16).expect("half a byte");
                let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
                Self::Hex(digits.collect())
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.as_bytes().to_vec(),
            Self::Hex(digits) => {
                let pairs = digits.as_bytes().chunks_exact(2);
                let byte =
                    |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                pairs.map_while(byte).collect()
            }
        }
    }
}

impl StoredPiece {
    /// As it was printed.
    pub fn piece(&self) -> OutputPiece {
        let Self { offset, stream, at, ref content } = *self;
        OutputPiece { offset, stream, at, bytes: content.bytes() }
    }
}

/// The same pieces, with neighbours of one stream and one second put together: so text is cut at no other place.
pub fn joined<'a>(pieces: impl Iterator<Item = &'a OutputPiece>) -> Vec<OutputPiece> {
    let mut joined: Vec<OutputPiece> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.takes(piece) => {
                last.bytes.extend_from_slice(&piece.bytes);
            }
            Some(_) | None => joined.push(piece.clone()),
        }
    }
    joined
}

/// The pieces of a window as they are stored.
pub fn stored(window: &OutputWindow) -> Vec<StoredPiece> {
    let pieces = joined(window.pieces()).into_iter();
    let stored = pieces.map(|piece| StoredPiece {
        offset: piece.offset,
        stream: piece.stream,
        at: piece.at,
        content: StoredContent::of(&piece.bytes),
    });
    stored.collect()
}

/// Where is kept what runs of a shard printed, oldest first.
pub fn outputs(shard: ShardId) -> String {
    format!("shard/{shard}/output/")
}

/// Where is kept what a run printed, by when it was submitted.
pub fn output_key(run: RunId) -> String {
    format!("{}{:015}/{run}", outputs(run.shard), run.slot.0.max(0))
}

/// When the run was submitted whose output is under this key.
pub fn output_born(shard: ShardId, key: &str) -> Option<Instant> {
    let (born, _) = key.strip_prefix(&outputs(shard))?.split_once('/')?;
    born.parse().ok().map(Instant)
}

#[cfg(test)]
mod tests;

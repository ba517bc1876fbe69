//! What a run printed and how far it has come, until a server has it.
//!
//! The last 64 KiB are kept also when they were sent, since another server may have to be told once more. Offsets count
//! all bytes, so what is missing shows as a gap.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use client::output::{OutputChunk, OutputRequest, OutputStream, ProgressSpec};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Context;
use crate::limits::{OUTPUT_KEPT_BYTES, PROGRESS_CHARS_MAX};

/// What one request has at most. As JSON a byte may take six, and a request has at most 256 KiB.
const CHUNKS_MAX: usize = 256;
const SENT_BYTES_MAX: usize = 32 * 1024;

/// Pieces that are kept.
const PIECES_MAX: usize = 1_024;

/// What is printed in small portions is put together up to this size.
const PIECE_BYTES: usize = 8 * 1024;

/// The output of one run.
#[derive(Default)]
pub(crate) struct Printed {
    buffer: Mutex<Buffer>,
    /// It is among those whose output is to be sent.
    is_dirty: AtomicBool,
    /// Held by whoever sends it: pieces leave in order.
    pub(crate) sending: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Buffer {
    pieces: VecDeque<Piece>,
    kept_bytes: usize,
    /// So many bytes were printed.
    end: u64,
    /// What a server expects next.
    expected: u64,
    progress: Option<ProgressSpec>,
    /// Counts what was said of the progress, so that what was sent is told from what came later.
    progress_number: u64,
    /// No server takes more of it.
    is_stale: bool,
}

struct Piece {
    offset: u64,
    stream: OutputStream,
    bytes: Vec<u8>,
}

/// What is to be sent, and which progress is in it.
pub(crate) struct OutputPart {
    pub(crate) request: OutputRequest,
    progress_number: u64,
}

impl Printed {
    pub(crate) fn print(&self, stream: OutputStream, bytes: &[u8]) {
        let mut buffer = self.buffer.lock();
        for bytes in bytes.chunks(SENT_BYTES_MAX) {
            buffer.append(stream, bytes);
        }
    }

    pub(crate) fn progress(&self, percent: Option<u8>, text: Option<&str>) {
        let text = text.map(|text| text.chars().take(PROGRESS_CHARS_MAX).collect());
        let mut buffer = self.buffer.lock();
        buffer.progress = Some(ProgressSpec { percent: percent.map(|it| it.min(100)), text });
        buffer.progress_number += 1;
    }

    /// Whether there is something that no server has.
    pub(crate) fn has_more(&self) -> bool {
        let buffer = self.buffer.lock();
        !buffer.is_stale && (buffer.end > buffer.expected || buffer.progress.is_some())
    }

    /// What is to be sent next.
    pub(crate) fn part(&self, token: u64) -> OutputPart {
        let buffer = self.buffer.lock();
        let chunks = buffer.unsent();
        let oldest = buffer.pieces.front().filter(|_| !chunks.is_empty()).map(|it| it.offset);
        let progress = buffer.progress.clone();
        let request = OutputRequest { token, oldest, chunks, progress };
        OutputPart { request, progress_number: buffer.progress_number }
    }

    /// A server has taken it, and expects what was printed from `next` on.
    pub(crate) fn taken(&self, part: &OutputPart, next: u64) {
        let mut buffer = self.buffer.lock();
        buffer.expected = next.min(buffer.end);
        if buffer.progress_number == part.progress_number {
            buffer.progress = None;
        }
    }

    /// The run is another's by now, or is over.
    pub(crate) fn is_taken_no_more(&self) {
        self.buffer.lock().is_stale = true;
    }

    pub(crate) fn kept(&self) -> Vec<OutputChunk> {
        let buffer = self.buffer.lock();
        buffer.pieces.iter().map(|it| OutputChunk::new(it.offset, it.stream, &it.bytes)).collect()
    }
}

impl Buffer {
    fn append(&mut self, stream: OutputStream, bytes: &[u8]) {
        let expected = self.expected;
        // A piece of which a part may have been sent stays as it is.
        let last = self.pieces.back_mut().filter(|last| {
            let is_small = last.bytes.len() + bytes.len() < PIECE_BYTES;
            last.stream == stream && last.offset >= expected && is_small
        });
        match last {
            Some(last) => last.bytes.extend_from_slice(bytes),
            None => {
                let piece = Piece { offset: self.end, stream, bytes: bytes.to_vec() };
                self.pieces.push_back(piece);
            }
        }
        self.end += bytes.len() as u64;
        self.kept_bytes += bytes.len();
        while self.kept_bytes > OUTPUT_KEPT_BYTES || self.pieces.len() > PIECES_MAX {
            let oldest = self.pieces.pop_front().expect("what is kept lies in pieces");
            self.kept_bytes -= oldest.bytes.len();
        }
    }

    fn unsent(&self) -> Vec<OutputChunk> {
        let mut chunks = Vec::new();
        let mut room = SENT_BYTES_MAX;
        for piece in &self.pieces {
            let skipped = self.expected.saturating_sub(piece.offset);
            let rest = usize::try_from(skipped).ok().and_then(|from| piece.bytes.get(from..));
            let Some(rest) = rest.filter(|rest| !rest.is_empty()) else { continue };
            if rest.len() > room || chunks.len() == CHUNKS_MAX {
                break;
            }
            room -= rest.len();
            chunks.push(OutputChunk::new(piece.offset + skipped, piece.stream, rest));
        }
        chunks
    }
}

/// The runs whose output is to be sent.
#[derive(Default)]
pub(crate) struct Dirty {
    contexts: Mutex<Vec<Context>>,
    pub(crate) wake: Notify,
}

impl Dirty {
    pub(crate) fn add(&self, context: &Context) {
        let Some(printed) = context.output_if_any() else { return };
        if !printed.is_dirty.swap(true, Ordering::AcqRel) {
            self.contexts.lock().push(context.clone());
            self.wake.notify_one();
        }
    }

    /// All of them. They are not among them any more.
    pub(crate) fn take(&self) -> Vec<Context> {
        let contexts = std::mem::take(&mut *self.contexts.lock());
        for printed in contexts.iter().filter_map(Context::output_if_any) {
            printed.is_dirty.store(false, Ordering::Release);
        }
        contexts
    }
}

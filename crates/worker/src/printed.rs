//! What a run printed and how far it has come, until a server has it.
//!
//! The last 64 KiB are kept also when they were sent, since another server may have to be told once more. Offsets count
//! all bytes, so what is missing shows as a gap.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::output::{OutputChunk, OutputRequest, OutputStream, ProgressSpec};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::{OUTPUT_KEPT_BYTES, PROGRESS_CHARS_MAX};
use crate::{Context, clock};

/// What one request has at most. As JSON a byte may take six, and a request has at most 256 KiB.
const CHUNKS_MAX: usize = 256;
const SENT_BYTES_MAX: usize = 32 * 1024;

/// Pieces that are kept.
const PIECES_MAX: usize = 1_024;

/// What is printed in small portions is put together up to this size.
const PIECE_BYTES: usize = 8 * 1024;

/// … and if it comes within this time.
const PIECE_TIME: Duration = Duration::from_millis(100);

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
    /// When its first byte was printed.
    at: Timestamp,
    bytes: Vec<u8>,
}

impl Piece {
    /// What was printed from the byte `from` of the piece on.
    fn chunk(&self, from: usize) -> OutputChunk {
        let chunk = OutputChunk::new(self.offset + from as u64, self.stream, &self.bytes[from..]);
        chunk.printed_at(Some(self.at))
    }
}

/// What is to be sent, and which progress is in it.
pub(crate) struct OutputPart {
    pub(crate) request: OutputRequest,
    progress_number: u64,
}

impl Printed {
    pub(crate) fn print(&self, stream: OutputStream, bytes: &[u8]) {
        let at = clock::wall();
        let mut buffer = self.buffer.lock();
        for bytes in bytes.chunks(SENT_BYTES_MAX) {
            buffer.append(stream, at, bytes);
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
        buffer.pieces.iter().map(|piece| piece.chunk(0)).collect()
    }
}

impl Buffer {
    fn append(&mut self, stream: OutputStream, at: Timestamp, bytes: &[u8]) {
        let expected = self.expected;
        // A piece of which a part may have been sent stays as it is.
        let last = self.pieces.back_mut().filter(|last| {
            let is_small = last.bytes.len() + bytes.len() < PIECE_BYTES;
            let is_recent = at.duration_since(last.at).unsigned_abs() < PIECE_TIME;
            last.stream == stream && last.offset >= expected && is_small && is_recent
        });
        if let Some(last) = last {
            last.bytes.extend_from_slice(bytes);
        } else {
            let piece = Piece { offset: self.end, stream, at, bytes: bytes.to_vec() };
            self.pieces.push_back(piece);
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
            let sent = usize::try_from(self.expected.saturating_sub(piece.offset));
            let Some(sent) = sent.ok().filter(|sent| *sent < piece.bytes.len()) else { continue };
            let rest = piece.bytes.len() - sent;
            if rest > room || chunks.len() == CHUNKS_MAX {
                break;
            }
            room -= rest;
            chunks.push(piece.chunk(sent));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(part: &OutputPart) -> Vec<(u64, String)> {
        let chunks = part.request.chunks.iter();
        chunks.map(|it| (it.offset, it.text.clone().unwrap_or_default())).collect()
    }

    #[test]
    fn what_is_printed_is_sent_from_where_a_server_expects_it() {
        let printed = Printed::default();
        printed.print(OutputStream::Stdout, b"one ");
        printed.print(OutputStream::Stderr, b"two");
        let part = printed.part(7);
        assert_eq!(texts(&part), [(0, "one ".to_owned()), (4, "two".to_owned())]);
        assert_eq!((part.request.token, part.request.oldest), (7, Some(0)));
        assert!(part.request.chunks.iter().all(|chunk| chunk.at.is_some()));
        printed.taken(&part, 5);
        assert_eq!(texts(&printed.part(7)), [(5, "wo".to_owned())]);
        printed.taken(&part, 7);
        assert!(!printed.has_more());
        // Another server has nothing yet.
        printed.taken(&part, 0);
        assert_eq!(texts(&printed.part(7)).len(), 2);
    }

    #[test]
    fn the_last_64_kib_are_kept_and_a_request_stays_small_whatever_is_printed() {
        let printed = Printed::default();
        for _ in 0..100 {
            printed.print(OutputStream::Stdout, &[1; 10_000]);
        }
        let kept: usize = printed.kept().iter().map(|it| it.bytes().unwrap().len()).sum();
        assert!((50_000..=OUTPUT_KEPT_BYTES).contains(&kept), "{kept}");
        let part = printed.part(1);
        assert_eq!(part.request.oldest, Some(1_000_000 - kept as u64));
        assert!(serde_json::to_vec(&part.request).unwrap().len() < 256 * 1024);
    }

    #[test]
    fn of_several_words_about_progress_the_last_one_is_sent_once() {
        let printed = Printed::default();
        printed.progress(Some(10), Some("page 1"));
        printed.progress(Some(200), Some(&"x".repeat(500)));
        let part = printed.part(1);
        let progress = part.request.progress.clone().unwrap();
        assert_eq!((progress.percent, progress.text.unwrap().len()), (Some(100), 200));
        printed.progress(Some(30), None);
        printed.taken(&part, 0);
        assert!(printed.has_more(), "what was said meanwhile is to be sent");
        printed.taken(&printed.part(1), 0);
        assert!(!printed.has_more());
    }
}

//! The window beside a naive one, which keeps every byte.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::id::SerialId;

fn piece(offset: u64, stream: OutputStream, bytes: &[u8]) -> OutputPiece {
    OutputPiece { offset, stream, at: None, bytes: bytes.to_vec() }
}

fn out(offset: u64, text: &str) -> OutputPiece {
    piece(offset, OutputStream::Stdout, text.as_bytes())
}

fn texts(window: &OutputWindow) -> Vec<(u64, String)> {
    let text = |piece: &OutputPiece| String::from_utf8(piece.bytes.clone()).unwrap();
    joined(window.pieces()).iter().map(|piece| (piece.offset, text(piece))).collect()
}

#[test]
fn what_comes_twice_is_dropped_and_what_overlaps_is_cut() {
    let mut window = OutputWindow::default();
    assert_eq!(window.take(out(0, "hello"), 0), Some(out(0, "hello")));
    assert_eq!(window.take(out(0, "hello"), 0), None);
    assert_eq!(window.take(out(3, "lo wor"), 0), Some(out(5, " wor")));
    assert_eq!((window.next(), texts(&window)), (9, vec![(0, "hello wor".to_owned())]));
}

#[test]
fn a_gap_is_refused_if_the_worker_can_fill_it_and_seen_if_not() {
    let mut window = OutputWindow::default();
    window.take(out(0, "ab"), 0);
    assert_eq!(window.take(out(5, "f"), 4), None, "the worker has what is missing, or some of it");
    assert_eq!(window.next(), 2);
    assert_eq!(window.take(out(4, "ef"), 4), Some(out(4, "ef")));
    let kept = vec![(0, "ab".to_owned()), (4, "ef".to_owned())];
    assert_eq!((window.next(), texts(&window)), (6, kept));
}

#[test]
fn the_last_bytes_are_kept_up_to_the_limit_and_one_more_drops_the_first() {
    let mut window = OutputWindow::default();
    let full = "x".repeat(OUTPUT_KEPT_BYTES_MAX);
    window.take(out(0, &full), 0);
    assert_eq!(window.pieces().next().unwrap().offset, 0);
    window.take(out(window.next(), "y"), 0);
    assert_eq!(window.pieces().next().unwrap().offset, 1);
    assert_eq!(window.kept, OUTPUT_KEPT_BYTES_MAX);
    window.forget();
    assert_eq!((window.cost(), window.next()), (0, OUTPUT_KEPT_BYTES_MAX as u64 + 1));
}

#[test]
fn as_many_pieces_are_kept_as_may_be_and_one_more_drops_the_first() {
    let mut window = OutputWindow::default();
    for offset in 0..=OUTPUT_PIECES_KEPT_MAX as u64 {
        let stream = if offset % 2 == 0 { OutputStream::Stdout } else { OutputStream::Stderr };
        assert_eq!(window.pieces.front().map_or(0, |first| first.offset), 0);
        window.take(piece(offset, stream, b"z"), 0);
    }
    assert_eq!(window.pieces.len(), OUTPUT_PIECES_KEPT_MAX);
    assert_eq!(window.pieces[0].offset, 1);
}

fn timed(offset: u64, at: i64, text: &str) -> OutputPiece {
    OutputPiece { at: Some(Instant(at)), ..out(offset, text) }
}

fn times(window: &OutputWindow) -> Vec<(Option<i64>, usize)> {
    let time = |piece: &OutputPiece| (piece.at.map(|at| at.0), piece.bytes.len());
    joined(window.pieces()).iter().map(time).collect()
}

#[test]
fn what_is_printed_within_a_second_is_one_piece_and_what_comes_a_second_later_another() {
    let mut window = OutputWindow::default();
    for (at, text) in [(5_000, "a"), (5_999, "b"), (6_000, "c"), (5_990, "d")] {
        window.take(timed(window.next(), at, text), 0);
    }
    window.take(out(window.next(), "e"), 0);
    window.take(out(window.next(), "f"), 0);
    // The clock was set back before d, and whoever printed e and f did not say when.
    let expected = [(Some(5_000), 2), (Some(6_000), 1), (Some(5_990), 1), (None, 2)];
    assert_eq!(times(&window), expected);
}

#[test]
fn long_chunks_have_one_time_and_characters_are_not_cut_by_one() {
    let mut window = OutputWindow::default();
    window.take(timed(0, 5_000, &"x".repeat(3 * PIECE_BYTES)), 0);
    assert!(window.pieces.len() > 1);
    assert_eq!(times(&window), [(Some(5_000), 3 * PIECE_BYTES)]);
    window.forget();
    let next = window.next();
    let whole = "ä".as_bytes();
    let half = |offset, at, bytes: &[u8]| OutputPiece {
        at: Some(Instant(at)),
        ..piece(offset, OutputStream::Stdout, bytes)
    };
    window.take(half(next, 5_000, &whole[..1]), 0);
    window.take(half(next + 1, 9_000, &whole[1..]), 0);
    assert_eq!(texts(&window), [(next, "ä".to_owned())]);
}

#[test]
fn pieces_that_are_a_second_apart_count_for_the_limit_of_pieces() {
    let mut window = OutputWindow::default();
    for number in 0..=OUTPUT_PIECES_KEPT_MAX {
        window.take(timed(window.next(), 1_000 * i64::try_from(number).unwrap(), "z"), 0);
    }
    assert_eq!((window.pieces.len(), window.pieces[0].offset), (OUTPUT_PIECES_KEPT_MAX, 1));
    assert_eq!(window.cost(), OUTPUT_PIECES_KEPT_MAX * (1 + PIECE_COST));
    assert!(size_of::<OutputPiece>() <= PIECE_COST);
}

#[test]
fn a_piece_that_was_stored_without_a_time_is_read_and_one_without_writes_none() {
    let text = r#"{"offset":3,"stream":"stderr","text":"x"}"#;
    let old: StoredPiece = serde_json::from_str(text).unwrap();
    assert_eq!(old.piece(), piece(3, OutputStream::Stderr, b"x"));
    assert_eq!(serde_json::to_string(&old).unwrap(), text);
    let new = StoredPiece { at: Some(Instant(1_800_000_000_120)), ..old };
    let text = serde_json::to_string(&new).unwrap();
    assert!(text.contains(r#""at":"2027-01-15T08:00:00.12"#), "{text}");
    assert_eq!(serde_json::from_str::<StoredPiece>(&text).unwrap(), new);
}

#[test]
fn what_is_stored_is_read_as_it_was_printed() {
    let mut window = OutputWindow::default();
    window.take(out(0, "näh\n"), 0);
    let at = Some(Instant(1_800_000_000_000));
    let bytes = [0, 159, 146, 150];
    window.take(OutputPiece { at, ..piece(5, OutputStream::Stderr, &bytes) }, 0);
    let record = OutputRecord {
        project: ProjectId(3),
        attempt: 2,
        token: RunToken(7),
        bytes: window.next(),
        pieces: stored(&window),
        progress: Some(RunProgress { percent: Some(40), text: None, at: Instant(5) }),
    };
    let text = serde_json::to_string(&record).unwrap();
    assert!(text.contains(r#""text":"näh\n""#) && text.contains(r#""hex":"009f9296""#), "{text}");
    let read: OutputRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(read, record);
    let pieces: Vec<OutputPiece> = read.pieces.iter().map(StoredPiece::piece).collect();
    assert_eq!(pieces, window.pieces().cloned().collect::<Vec<_>>());
}

#[test]
fn a_key_says_when_its_run_was_submitted() {
    let run = |slot| RunId { shard: ShardId(3), trigger: SerialId(9), slot, letters: 1 };
    let keys = [Instant(999), Instant(1_000_000)].map(|slot| output_key(run(slot)));
    assert!(keys.is_sorted(), "{keys:?}");
    assert_eq!(output_born(ShardId(3), &keys[1]), Some(Instant(1_000_000)));
    assert_eq!(output_born(ShardId(4), &keys[1]), None);
}

/// Everything that was taken, byte by byte.
#[derive(Default)]
struct Naive {
    bytes: BTreeMap<u64, (OutputStream, u8)>,
    next: u64,
}

impl Naive {
    fn take(&mut self, chunk: &OutputPiece, oldest: u64) {
        if chunk.offset > self.next && oldest < chunk.offset {
            return;
        }
        // A gap that was passed stays one.
        let new = (chunk.offset..).zip(&chunk.bytes).filter(|(offset, _)| *offset >= self.next);
        self.bytes.extend(new.map(|(offset, byte)| (offset, (chunk.stream, *byte))));
        self.next = self.next.max(chunk.end());
    }
}

fn chunks() -> impl Strategy<Value = Vec<(u64, bool, Vec<u8>, bool)>> {
    // Offsets relative to what is expected, lengths up to more than is kept.
    let len = prop_oneof![4 => 0_usize..9, 1 => 0_usize..(OUTPUT_KEPT_BYTES_MAX + 9)];
    let bytes = (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
    prop::collection::vec((0_u64..12, any::<bool>(), bytes, any::<bool>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn the_window_is_the_end_of_everything_that_was_taken(chunks in chunks()) {
        let (mut window, mut naive) = (OutputWindow::default(), Naive::default());
        for (second, (ahead, is_stdout, bytes, can_fill)) in (0_i64..).zip(chunks) {
            let offset = (window.next() + ahead).saturating_sub(6);
            let stream = if is_stdout { OutputStream::Stdout } else { OutputStream::Stderr };
            let at = (second % 3 > 0).then_some(Instant(400 * second));
            let chunk = OutputPiece { at, ..piece(offset, stream, &bytes) };
            let oldest = if can_fill { 0 } else { offset };
            naive.take(&chunk, oldest);
            window.take(chunk, oldest);
        }
        prop_assert_eq!(window.next(), naive.next);
        let kept: Vec<_> = window.pieces().flat_map(|piece| {
            (piece.offset..).zip(piece.bytes.iter().map(|byte| (piece.stream, *byte)))
        }).collect();
        prop_assert!(kept.len() <= OUTPUT_KEPT_BYTES_MAX);
        let most = naive.bytes.len().min(OUTPUT_KEPT_BYTES_MAX);
        prop_assert!(kept.len() == most || window.pieces.len() == OUTPUT_PIECES_KEPT_MAX);
        let all: Vec<_> = naive.bytes.into_iter().collect();
        prop_assert_eq!(&kept[..], &all[all.len() - kept.len()..]);
    }
}

//! A frame: one record, or a seal, as bytes.
//!
//! ```text
//! 0   magic      u32   "WBr1" for a record, "WBs1" for a seal
//! 4   length     u32   of the payload
//! 8   number     u64   of the record; of the last record before a seal
//! 16  durable    u64   up to which number everything was synced when this was written
//! 24  checksum   u64   xxh3 of the payload, seeded with that of the 24 bytes above, which is
//!                      seeded with the segment's seed
//! 32  payload, then zeros up to a multiple of 8
//! ```
//!
//! Numbers are little-endian. The seed is made of the log's id and the segment's ordinal: so neither
//! frames of another log nor those of a segment's former use are ever taken for ours.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const HEADER_BYTES: usize = 32;
const ALIGNMENT: usize = 8;

/// Frames begin at multiples of this.
pub(super) const STEP: usize = ALIGNMENT;

/// Tells one log from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogId(pub u64);

/// Tells one use of a segment from every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed(u64);

impl Seed {
    pub(super) fn new(id: LogId, ordinal: u64) -> Self {
        Self(xxh3_64_with_seed(&ordinal.to_le_bytes(), id.0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Record,
    Seal,
}

impl FrameKind {
    const fn magic(self) -> u32 {
        match self {
            Self::Record => u32::from_le_bytes(*b"WBr1"),
            Self::Seal => u32::from_le_bytes(*b"WBs1"),
        }
    }

    const fn of_magic(magic: u32) -> Option<Self> {
        if magic == Self::Record.magic() {
            return Some(Self::Record);
        }
        if magic == Self::Seal.magic() { Some(Self::Seal) } else { None }
    }
}

/// A frame that was read and is whole.
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
pub(super) struct Frame<'a> {
    pub(super) kind: FrameKind,
    pub(super) number: u64,
    pub(super) durable: u64,
    pub(super) payload: &'a [u8],
}

impl Frame<'_> {
    pub(super) fn encoded_len(&self) -> usize {
        encoded_len(self.payload.len())
    }
}

/// Bytes that a frame with a payload of this length takes.
pub(super) const fn encoded_len(payload_len: usize) -> usize {
    (HEADER_BYTES + payload_len).next_multiple_of(ALIGNMENT)
}

pub(super) fn encode(
    out: &mut Vec<u8>,
    seed: Seed,
    kind: FrameKind,
    number: u64,
    durable: u64,
    payload: &[u8],
) {
    let begin = out.len();
    let len = u32::try_from(payload.len()).expect("payloads are smaller than a segment");
    out.extend_from_slice(&kind.magic().to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    let checksum = checksum(seed, &out[begin..], payload);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(payload);
    out.resize(begin + encoded_len(payload.len()), 0);
}

/// The frame at the beginning of `bytes`, if one stands there whole.
pub(super) fn decode(bytes: &[u8], seed: Seed) -> Option<Frame<'_>> {
    let header = bytes.get(..HEADER_BYTES)?;
    let kind = FrameKind::of_magic(u32_at(header, 0))?;
    let len = usize::try_from(u32_at(header, 4)).ok()?;
    let payload = bytes[HEADER_BYTES..].get(..len)?;
    if bytes.len() < encoded_len(len) {
        return None;
    }
    let whole = u64_at(header, 24) == checksum(seed, &header[..24], payload);
    whole.then(|| Frame { kind, number: u64_at(header, 8), durable: u64_at(header, 16), payload })
}

fn checksum(seed: Seed, header: &[u8], payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, xxh3_64_with_seed(header, seed.0))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: LogId = LogId(42);

    fn seed() -> Seed {
        Seed::new(ID, 1)
    }

    fn record(number: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, seed(), FrameKind::Record, number, number - 1, payload);
        bytes
    }

    #[test]
    fn a_frame_of_another_log_or_of_a_former_use_is_not_ours() {
        let frame = record(7, b"watch");
        assert!(decode(&frame, seed()).is_some());
        assert_eq!(decode(&frame, Seed::new(LogId(43), 1)), None);
        assert_eq!(decode(&frame, Seed::new(ID, 2)), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number in 1..u64::MAX, payload in prop::collection::vec(any::<u8>(), 0..100)) {
            let bytes = record(number, &payload);
            let frame = decode(&bytes, seed()).unwrap();
            prop_assert_eq!(frame.payload, payload.as_slice());
            prop_assert_eq!((frame.number, frame.durable), (number, number - 1));
            prop_assert_eq!(frame.encoded_len(), bytes.len());
            prop_assert_eq!(bytes.len() % STEP, 0);
        }

        #[test]
        fn any_bytes_give_a_frame_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes, seed());
        }

        #[test]
        fn any_length_and_kind_in_a_header_is_borne(len in any::<u32>(), rest in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = b"WBr1".to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(rest);
            prop_assert_eq!(decode(&bytes, seed()), None);
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_noticed(payload in prop::collection::vec(any::<u8>(), 1..60), at in any::<prop::sample::Index>()) {
            let bytes = record(3, &payload);
            let significant = HEADER_BYTES + payload.len();
            let bit = at.index(significant * 8);
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(&flipped, seed()), None);
            prop_assert_eq!(decode(&bytes[..at.index(bytes.len())], seed()), None);
        }
    }
}

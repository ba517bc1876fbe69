//! An entry as the tables store it: version, checksum, value.
//!
//! The checksum is of the key, the version and the value as it was committed, from the commit to the reader.
//!
//! Tables are merged again and again, and what is merged is written anew each time. So a long value is packed, once,
//! before it first goes to disk: the past is text that repeats itself, and takes a sixth of the space then. The tree could
//! pack its blocks instead, but would do so in each merge.

use std::borrow::Cow;

use bytes::Bytes;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::table::{IndexError, Result};
use crate::{Entry, Key, Value, Version};

const VERSION_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;
const HEADER_BYTES: usize = VERSION_BYTES + CHECKSUM_BYTES;

/// Set in the version of a value that is packed: its length stands before it. No store gets to so many commits.
const PACKED: u64 = 1 << 63;
const LENGTH_BYTES: usize = 4;

/// Shorter values are stored as they are.
const PACKED_BYTES_MIN: usize = 256;

/// What is packed cannot be more than this many times as long: a length that says so was not written by us.
const RATIO_MAX: usize = 256;

/// An entry as the tables store it.
pub(super) fn bytes(key: &[u8], version: Version, value: &Value) -> Vec<u8> {
    let value = value.as_bytes();
    let packed = pack(value);
    let flag = if packed.is_some() { PACKED } else { 0 };
    let body = packed.as_deref().unwrap_or(value);
    let mut stored = Vec::with_capacity(HEADER_BYTES + body.len());
    stored.extend_from_slice(&(version.0 | flag).to_le_bytes());
    stored.extend_from_slice(&checksum(key, version, value));
    stored.extend_from_slice(body);
    stored
}

/// What was stored under a key.
pub(super) fn entry(key: Bytes, stored: &Bytes) -> Result<Entry> {
    let (version, value) = read(&key, stored)?;
    let value = match value {
        Cow::Borrowed(_) => Value::from(stored.slice(HEADER_BYTES..)),
        Cow::Owned(unpacked) => Value::from(unpacked),
    };
    let key = Key::from_bytes(key).map_err(|why| {
        IndexError::Damaged(format!("an entry of the index has no proper key: {why}"))
    })?;
    Ok(Entry { key, value, version })
}

/// The version of what was stored under a key.
pub(super) fn version(key: &[u8], stored: &[u8]) -> Result<Version> {
    Ok(read(key, stored)?.0)
}

fn read<'a>(key: &[u8], stored: &'a [u8]) -> Result<(Version, Cow<'a, [u8]>)> {
    let whole = || {
        let (word, rest) = stored.split_first_chunk::<VERSION_BYTES>()?;
        let (expected, body) = rest.split_first_chunk::<CHECKSUM_BYTES>()?;
        let word = u64::from_le_bytes(*word);
        let version = Version(word & !PACKED);
        let value = if word & PACKED == 0 { body.into() } else { Cow::Owned(unpack(body)?) };
        (*expected == checksum(key, version, &value)).then_some((version, value))
    };
    whole().ok_or_else(|| {
        let key = String::from_utf8_lossy(key);
        IndexError::Damaged(format!("the index's entry for {key:?} is not what was written"))
    })
}

/// A value packed, with its length before it; nothing if that would hardly be shorter.
fn pack(value: &[u8]) -> Option<Vec<u8>> {
    if value.len() < PACKED_BYTES_MIN {
        return None;
    }
    let length = u32::try_from(value.len()).ok()?.to_le_bytes();
    let mut packed = vec![0; LENGTH_BYTES + get_maximum_output_size(value.len())];
    packed[..LENGTH_BYTES].copy_from_slice(&length);
    let written = compress_into(value, &mut packed[LENGTH_BYTES..]).ok()?;
    packed.truncate(LENGTH_BYTES + written);
    (packed.len() < value.len() / 8 * 7).then_some(packed)
}

fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (length, packed) = packed.split_first_chunk::<LENGTH_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length > packed.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    let mut value = vec![0; length];
    let written = decompress_into(packed, &mut value).ok()?;
    (written == length).then_some(value)
}

fn checksum(key: &[u8], version: Version, value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let checksum = xxh3_64_with_seed(value, xxh3_64_with_seed(key, version.0));
    *checksum.to_le_bytes().first_chunk().expect("eight bytes have a first half")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values that are too short to be packed, that repeat themselves, and that do not.
    fn values() -> impl Strategy<Value = Vec<u8>> {
        let bytes = prop::collection::vec(any::<u8>(), 0..600);
        let again = (prop::collection::vec(any::<u8>(), 1..40), 0..200_usize)
            .prop_map(|(part, times)| part.repeat(times));
        prop_oneof![bytes, again]
    }

    fn read_back(key: &str, stored: Vec<u8>) -> Result<Entry> {
        entry(Bytes::copy_from_slice(key.as_bytes()), &stored.into())
    }

    #[test]
    fn what_repeats_itself_takes_less_and_what_does_not_takes_no_more() {
        let text = (0..100).map(|n| format!("{{\"slot\":{n},\"end\":\"succeeded\"}}"));
        let text = text.collect::<Vec<_>>().join(",\n");
        assert!(bytes(b"k", Version(1), &text.clone().into()).len() < text.len() / 4);
        let noise: Vec<u8> =
            (0..1_000_u64).map(|n| xxh3_64_with_seed(&[], n).to_le_bytes()[0]).collect();
        assert_eq!(
            bytes(b"k", Version(1), &noise.clone().into()).len(),
            HEADER_BYTES + noise.len()
        );
    }

    #[test]
    fn a_length_that_cannot_be_reserves_no_memory() {
        let mut stored = bytes(b"k", Version(1), &"again ".repeat(100).into());
        stored[HEADER_BYTES..HEADER_BYTES + LENGTH_BYTES].fill(0xff);
        assert!(read_back("k", stored).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_entry_or_an_error(
            key in prop::collection::vec(any::<u8>(), 0..20), stored in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            let _ = entry(key.into(), &stored.into());
        }

        #[test]
        fn an_entry_is_read_as_it_was_written_and_any_changed_bit_is_noticed(
            value in values(), at in any::<prop::sample::Index>()
        ) {
            let value = Value::from(value);
            let mut stored = bytes(b"bell", Version(5), &value);
            let written = Entry { key: Key::new("bell").unwrap(), value, version: Version(5) };
            prop_assert_eq!(read_back("bell", stored.clone()).unwrap(), written.clone());
            prop_assert_eq!(version(b"bell", &stored).unwrap(), Version(5));
            prop_assert!(read_back("ball", stored.clone()).is_err());
            let bit = at.index(stored.len() * 8);
            stored[bit / 8] ^= 1 << (bit % 8);
            // Packed text can be written in several ways: what is read must be right, or refused.
            prop_assert!(read_back("bell", stored).map_or(true, |read| read == written));
        }
    }
}

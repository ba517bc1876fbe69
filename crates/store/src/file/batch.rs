//! The writes of one commit as the payload of one record of the log.
//!
//! ```text
//! count  u32, then for each write
//!   kind   u8    0 delete, 1 put
//!   key    u16 length, then its text
//!   value  u32 length, then its bytes; only for a put
//! ```

use bytes::Bytes;

use crate::{Key, Value, Write};

const DELETE: u8 = 0;
const PUT: u8 = 1;

pub(super) fn encode(writes: &[Write]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + writes.iter().map(|write| 7 + write.len()).sum::<usize>());
    push_u32(&mut out, writes.len());
    for write in writes {
        let key = write.key().as_bytes();
        out.push(if matches!(write, Write::Put(..)) { PUT } else { DELETE });
        let key_len = u16::try_from(key.len()).expect("a key has at most 512 bytes");
        out.extend_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(key);
        if let Write::Put(_, value) = write {
            push_u32(&mut out, value.len());
            out.extend_from_slice(value.as_bytes());
        }
    }
    out
}

/// The writes, or what is wrong with the bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Write>, String> {
    let mut rest = bytes;
    let count = take_u32(&mut rest)?;
    // A write takes at least four bytes, which bounds what a wrong count can make us reserve.
    let mut writes = Vec::with_capacity(count.min(rest.len() / 4));
    for _ in 0..count {
        writes.push(take_write(&mut rest)?);
    }
    if rest.is_empty() { Ok(writes) } else { Err(format!("{} bytes too many", rest.len())) }
}

fn take_write(rest: &mut &[u8]) -> Result<Write, String> {
    let [kind] = take_array::<1>(rest)?;
    let key_len = usize::from(u16::from_le_bytes(take_array::<2>(rest)?));
    let text = std::str::from_utf8(take(rest, key_len)?).map_err(|why| why.to_string())?;
    let key = Key::new(text).map_err(|why| why.to_string())?;
    match kind {
        DELETE => Ok(Write::Delete(key)),
        PUT => {
            let value_len = take_u32(rest)?;
            Ok(Write::Put(key, Value::from(Bytes::copy_from_slice(take(rest, value_len)?))))
        }
        other => Err(format!("{other} is not a kind of write")),
    }
}

fn push_u32(out: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("the limits keep commits far below 4 GiB");
    out.extend_from_slice(&number.to_le_bytes());
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], String> {
    let (taken, left) = rest.split_at_checked(len).ok_or("cut short")?;
    *rest = left;
    Ok(taken)
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    Ok(take(rest, N)?.try_into().expect("as many as were asked for"))
}

fn take_u32(rest: &mut &[u8]) -> Result<usize, String> {
    let number = u32::from_le_bytes(take_array::<4>(rest)?);
    usize::try_from(number).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write() -> impl Strategy<Value = Write> {
        let key = "[!-~]{1,20}".prop_map(|text| Key::new(text).unwrap());
        (key, prop::option::of(prop::collection::vec(any::<u8>(), 0..40))).prop_map(
            |(key, value)| match value {
                Some(value) => Write::Put(key, value.into()),
                None => Write::Delete(key),
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(writes in prop::collection::vec(write(), 0..10)) {
            prop_assert_eq!(decode(&encode(&writes)), Ok(writes));
        }

        #[test]
        fn any_bytes_give_writes_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn bytes_cut_short_or_changed_are_borne(
            writes in prop::collection::vec(write(), 1..5), at in any::<prop::sample::Index>(), byte in any::<u8>()
        ) {
            let mut bytes = encode(&writes);
            prop_assert!(decode(&bytes[..at.index(bytes.len())]).is_err());
            let place = at.index(bytes.len());
            bytes[place] = byte;
            let _ = decode(&bytes);
        }
    }
}

//! What a stored value looks like: a JSON object that begins with a format number.
//!
//! A person with `etcdctl`, `redis-cli` or `psql` can read it, and an older binary knows at the
//! first field whether it may. The number belongs to the kind of record, not to the release: it
//! rises when an older reader would misunderstand the fields, and never for a field that an older
//! reader may ignore.

use std::fmt;
use std::io::Write as _;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The format of one kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Format(pub u32);

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// Why bytes are not a record that this reader can use.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by a newer Watchbell: upgrade this one; do not touch the record.
    #[error("it has format {found}, and this version reads up to {reads}: upgrade Watchbell")]
    Newer {
        /// The format that the record says.
        found: Format,
        /// The newest that this reader understands.
        reads: Format,
    },
    /// Not a record of this kind: the store was changed by hand, or by something else.
    #[error("it is not a Watchbell record: {0}")]
    Malformed(String),
}

/// Writes `body` as a record. `body` must serialize to a JSON object.
pub fn encode<T: Serialize>(format: Format, body: &T) -> Vec<u8> {
    let mut record = Vec::with_capacity(256);
    write!(record, r#"{{"format":{format}"#).expect("a list of bytes takes everything");
    let begin = record.len();
    serde_json::to_writer(&mut record, body)
        .expect("our record types are plain structs with text keys, which always serialize");
    // The brace that opens the body is where the comma before its first field belongs.
    if record[begin..] == *b"{}" {
        record.truncate(begin);
        record.push(b'}');
    } else {
        record[begin] = b',';
    }
    record
}

/// Reads a record of at most format `reads`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], reads: Format) -> Result<T, RecordError> {
    #[derive(Deserialize)]
    struct FormatField {
        format: Format,
    }
    let malformed = |error: serde_json::Error| RecordError::Malformed(error.to_string());
    let found = match leading_format(bytes) {
        Some(format) => format,
        None => serde_json::from_slice::<FormatField>(bytes).map_err(malformed)?.format,
    };
    if found > reads {
        return Err(RecordError::Newer { found, reads });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

/// The format, if the record begins with it in the way that [`encode`] writes it: then it need not be read
/// twice.
fn leading_format(bytes: &[u8]) -> Option<Format> {
    let rest = bytes.strip_prefix(br#"{"format":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_whole = matches!(rest.get(digits), Some(b',' | b'}'));
    let number = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    is_whole.then_some(Format(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Bell {
        name: String,
        strokes: u32,
    }

    fn bell() -> Bell {
        Bell { name: "noon".into(), strokes: 8 }
    }

    #[test]
    fn a_record_is_json_that_begins_with_its_format() {
        let bytes = encode(Format(3), &bell());
        assert_eq!(String::from_utf8(bytes).unwrap(), r#"{"format":3,"name":"noon","strokes":8}"#);
    }

    #[test]
    fn a_record_of_the_same_or_an_older_format_is_read() {
        let bytes = encode(Format(3), &bell());
        assert_eq!(decode(&bytes, Format(3)), Ok(bell()));
        assert_eq!(decode(&bytes, Format(4)), Ok(bell()));
    }

    #[test]
    fn a_newer_record_is_refused_before_its_fields_are_looked_at() {
        let refusal = decode::<Bell>(br#"{"format":4,"strokes":"a new meaning"}"#, Format(3));
        assert_eq!(refusal, Err(RecordError::Newer { found: Format(4), reads: Format(3) }));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Bell>(&bytes, Format(1));
        }

        #[test]
        fn any_json_gives_a_record_or_an_error(format in any::<i64>(), rest in "[\\PC]{0,40}") {
            let _ = decode::<Bell>(format!("{{\"format\":{format},{rest}}}").as_bytes(), Format(1));
        }
    }
}

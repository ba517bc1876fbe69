//! The lines of a backup, as they are written.
//!
//! ```text
//! {"format":1,"watchbell":"backup","version":"0.1.0","cluster":"00000000000000ab","shards":32,"taken_ms":…}
//! {"part":"recall/"}
//! …
//! {"part":"shard/0/"}
//! {"key":"shard/0/head","value":{"format":1,…}}
//! …
//! {"part":"rest"}
//! {"key":"cluster/about","value":{"format":1,…}}
//! {"end":{"entries":2,"checksum":"…32 hexadecimal digits…"}}
//! ```
//!
//! A value that is JSON on one line stands there as it is, so that `jq` reads a backup; any other is
//! `"hex"`. Either way it is the same bytes when it is read.

use std::fmt::Write;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::limits::BACKUP_LINE_BYTES_MAX;
use engine::record::{Format, encode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::Xxh3;

use super::read::Checksum;
use crate::{Key, Value};

/// The format of the whole file.
pub(super) const FORMAT: Format = Format(1);

pub(super) const KIND: &str = "backup";

/// Where idempotency records are. The stored text is older than the name, and stays.
const IDEMPOTENCY: &str = "recall/";

/// What a backup says about itself in its first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupHeader {
    /// Which Watchbell wrote it.
    pub version: String,
    /// The id of the cluster that it is of.
    pub cluster: u64,
    /// How many shards the cluster has.
    pub shards: u16,
    /// When it was begun, by the wall clock of whoever took it.
    pub taken: Instant,
}

impl BackupHeader {
    /// The format of the whole file, in this version.
    pub fn format(&self) -> Format {
        FORMAT
    }
}

/// The header as it is written.
#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) watchbell: String,
    pub(super) version: String,
    pub(super) cluster: String,
    pub(super) shards: u16,
    pub(super) taken_ms: i64,
}

/// A section of a backup: they come in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackupSection {
    /// Requests that are remembered.
    Idempotency,
    /// What lies below a shard.
    Shard(ShardId),
    /// Everything else in the store.
    Rest,
}

impl BackupSection {
    /// As it is written: the beginning of its keys, if they have one in common.
    pub(super) fn text(self) -> String {
        match self {
            Self::Idempotency => IDEMPOTENCY.to_owned(),
            Self::Shard(shard) => format!("shard/{shard}/"),
            Self::Rest => "rest".to_owned(),
        }
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            IDEMPOTENCY => Some(Self::Idempotency),
            "rest" => Some(Self::Rest),
            _ => {
                let number = text.strip_prefix("shard/")?.strip_suffix('/')?.parse().ok()?;
                let section = Self::Shard(ShardId(number));
                (section.text() == text).then_some(section)
            }
        }
    }

    /// Whether a key belongs there.
    pub(super) fn contains(self, key: &Key) -> bool {
        match self {
            Self::Idempotency | Self::Shard(_) => key.as_str().starts_with(&self.text()),
            Self::Rest => {
                !["shard/", IDEMPOTENCY].iter().any(|begin| key.as_str().starts_with(begin))
            }
        }
    }
}

/// An entry that no backup takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the value of {key} has {len} bytes, and its line in a backup may have {BACKUP_LINE_BYTES_MAX}: look at what wrote it"
)]
pub struct EntryTooLong {
    /// The key of that entry.
    pub key: Key,
    /// How long its value is.
    pub len: usize,
}

/// Writes the lines of one backup, in order, and counts them.
#[derive(Clone)]
pub struct Encoder {
    hash: Box<Xxh3>,
    entries: u64,
}

impl Encoder {
    /// Writes the first line.
    pub fn begin(header: &BackupHeader, out: &mut Vec<u8>) -> Self {
        let opening = Opening {
            watchbell: KIND.to_owned(),
            version: header.version.clone(),
            cluster: format!("{:016x}", header.cluster),
            shards: header.shards,
            taken_ms: header.taken.0,
        };
        let mut this = Self { hash: Box::default(), entries: 0 };
        this.push(&encode(FORMAT, &opening), out);
        this
    }

    /// Begins a section.
    pub fn section(&mut self, section: BackupSection, out: &mut Vec<u8>) {
        self.push(format!("{{\"part\":\"{}\"}}", section.text()).as_bytes(), out);
    }

    /// Writes an entry of the section that was begun last.
    pub fn entry(
        &mut self,
        key: &Key,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), EntryTooLong> {
        let name = serde_json::to_string(key.as_str()).expect("text always serializes");
        let line = match plain(value.as_bytes()) {
            Some(json) => format!("{{\"key\":{name},\"value\":{json}}}"),
            None => format!("{{\"key\":{name},\"hex\":\"{}\"}}", hex(value.as_bytes())),
        };
        if line.len() >= BACKUP_LINE_BYTES_MAX {
            return Err(EntryTooLong { key: key.clone(), len: value.len() });
        }
        self.entries += 1;
        self.push(line.as_bytes(), out);
        Ok(())
    }

    /// Writes why nothing more will come: whoever reads this is told.
    pub fn broken(&mut self, why: &str, out: &mut Vec<u8>) {
        let why = serde_json::to_string(why).expect("text always serializes");
        self.push(format!("{{\"broken\":{why}}}").as_bytes(), out);
    }

    /// Writes the last line.
    pub fn end(self, out: &mut Vec<u8>) {
        out.extend(end_line(self.entries, Checksum::of(&self.hash)).into_bytes());
    }

    fn push(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(line);
        out.push(b'\n');
        self.hash.update(&out[from..]);
    }
}

/// The last line, to the byte: there is one way to write it, so that no byte of it can differ unnoticed.
pub(super) fn end_line(entries: u64, checksum: Checksum) -> String {
    format!("{{\"end\":{{\"entries\":{entries},\"checksum\":\"{checksum}\"}}}}\n")
}

/// The value as JSON, if that is what it is, on one line and with nothing around it.
fn plain(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains(['\n', '\r']))?;
    let json: &RawValue = serde_json::from_str(text).ok()?;
    (json.get() == text).then_some(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

/// Reads what [`hex`] wrote.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::{BackupItem, BackupReader};
    use proptest::prelude::*;

    fn header() -> BackupHeader {
        BackupHeader { version: "0".into(), cluster: 7, shards: 1, taken: Instant(5) }
    }

    fn there_and_back(value: &[u8]) -> Value {
        let (key, mut out) = (Key::new("a\"\\b").unwrap(), Vec::new());
        let mut encoder = Encoder::begin(&header(), &mut out);
        encoder.section(BackupSection::Rest, &mut out);
        encoder.entry(&key, &Value::from(value.to_vec()), &mut out).unwrap();
        encoder.end(&mut out);
        let mut reader = BackupReader::new(&out[..]).unwrap();
        assert_eq!(reader.header(), &header());
        assert_eq!(reader.next().unwrap(), Some(BackupItem::Section(BackupSection::Rest)));
        let Some(BackupItem::Entry { key: read, value }) = reader.next().unwrap() else { panic!() };
        assert_eq!(read, key);
        assert_eq!(reader.next().unwrap(), None);
        value
    }

    #[test]
    fn a_value_that_looks_like_json_is_the_same_bytes_again() {
        for text in [
            "",
            " ",
            "{}",
            " {}",
            "{} ",
            "{ \"a\" : 1.50e3 }",
            "{\n}",
            "\"\\u0041\"",
            "nul",
            "1 2",
            "[[[]]]",
            "\u{feff}{}",
            "{\"a\":1,\"a\":2}",
        ] {
            assert_eq!(there_and_back(text.as_bytes()).as_bytes(), text.as_bytes(), "{text:?}");
        }
        let deep = [vec![b'['; 5_000], vec![b']'; 5_000]].concat();
        assert_eq!(there_and_back(&deep).as_bytes(), &deep);
    }

    proptest! {
        #[test]
        fn any_value_is_the_same_bytes_again(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let read = there_and_back(&bytes);
            prop_assert_eq!(read.as_bytes(), &bytes[..]);
        }
    }

    #[test]
    fn a_line_is_taken_at_its_limit_and_refused_one_past_it() {
        let key = Key::new("k").unwrap();
        // {"key":"k","value":"…"} and the end of the line.
        let room = BACKUP_LINE_BYTES_MAX - 23;
        let text = |len: usize| Value::from(format!("\"{}\"", "x".repeat(len)).into_bytes());
        let mut out = Vec::new();
        let mut encoder = Encoder::begin(&header(), &mut out);
        encoder.section(BackupSection::Rest, &mut out);
        let before = out.len();
        encoder.entry(&key, &text(room), &mut out).unwrap();
        assert_eq!(out.len() - before, BACKUP_LINE_BYTES_MAX);
        assert!(encoder.entry(&key, &text(room + 1), &mut out).is_err());
        encoder.end(&mut out);
        let mut reader = BackupReader::new(&out[..]).unwrap();
        while reader.next().unwrap().is_some() {}
    }

    #[test]
    fn parts_are_read_as_they_are_written_and_nothing_else_is_one() {
        for part in [
            BackupSection::Idempotency,
            BackupSection::Shard(ShardId(0)),
            BackupSection::Shard(ShardId(4_095)),
            BackupSection::Rest,
        ] {
            assert_eq!(BackupSection::read(&part.text()), Some(part));
        }
        for bad in ["", "shard/", "shard/00/", "shard/+1/", "shard/1", "shard/70000/", "Rest"] {
            assert_eq!(BackupSection::read(bad), None, "{bad}");
        }
    }
}

//! A server's store, as candidates and members use it: sessions and elections of their project, and nothing else.
//!
//! These are the types behind the store URL `https://…`. A program that wants to take part in an election without
//! Watchbell's own code has an easier way: see [`crate::election`].

use serde::{Deserialize, Serialize};

/// What a server says of its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreFacts {
    /// What an acknowledgement is worth, and in which epoch it was given.
    #[serde(flatten)]
    pub moment: StoreMoment,
    /// The project on whose behalf this key asks: its sessions are `node/<id>/<project>.<incarnation>`.
    pub project: String,
    /// Most writes in a commit, and most conditions.
    pub writes: usize,
    /// Most bytes of all keys and values of a commit.
    pub commit_bytes: usize,
    /// Most bytes of a value.
    pub value_bytes: usize,
}

/// How the store was when it answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreMoment {
    /// What an acknowledgement is worth: `A`, `S` or `B`.
    pub class: String,
    /// Changes when the store failed over, was restored, or is another one.
    pub epoch: String,
}

/// What a key holds: any bytes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Blob {
    /// A text without control characters.
    Text(String),
    /// Anything else, two hexadecimal digits a byte.
    Hex(String),
}

impl Blob {
    /// A blob of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.bytes().any(|byte| byte < b' ') => Self::Text(text.to_owned()),
            _ => Self::Hex(bytes.iter().fold(String::new(), |mut text, byte| {
                for digit in [byte >> 4, byte & 15] {
                    text.extend(char::from_digit(digit.into(), 16));
                }
                text
            })),
        }
    }

    /// The bytes; nothing, if the digits are none.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let text = match self {
            Self::Text(text) => return Some(text.clone().into_bytes()),
            Self::Hex(text) => text.as_bytes(),
        };
        let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
        let pairs = text.chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        });
        pairs.collect()
    }
}

impl std::fmt::Debug for Blob {
    /// Without what it holds.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Blob")
    }
}

/// Where a range begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Edge {
    /// With this key.
    Included(String),
    /// Next to this key.
    Excluded(String),
}

/// A range of keys to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StoreScan {
    /// Where the range begins.
    pub from: Edge,
    /// Where the range ends.
    pub to: Edge,
    /// Most entries to answer.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: usize,
}

/// What a key holds, and since which commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreEntry {
    /// The key of the entry.
    pub key: String,
    /// What it holds.
    pub value: Blob,
    /// The commit that wrote it last.
    pub version: u64,
}

/// A part of a range, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StorePage {
    /// In the order of keys.
    pub entries: Vec<StoreEntry>,
    /// From where the rest of the range is, if there may be some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Edge>,
    /// How the store was.
    #[serde(flatten)]
    pub moment: StoreMoment,
}

/// What must hold for a commit to happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StoreCondition {
    /// The key is not there.
    Absent(String),
    /// The key is there.
    Present(String),
    /// The key is there, last written by this commit.
    At(String, u64),
}

/// One change of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StoreWrite {
    /// The key holds this from now on.
    Put(String, Blob),
    /// The key is gone.
    Delete(String),
}

/// Conditions and writes, checked and done as one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StoreCommit {
    /// All of these must hold.
    pub when: Vec<StoreCondition>,
    /// Then all of these are done.
    pub then: Vec<StoreWrite>,
}

/// A commit that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreCommitted {
    /// The version that the commit has.
    pub version: u64,
    /// How the store was.
    #[serde(flatten)]
    pub moment: StoreMoment,
}

/// What a problem says of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreTrouble {
    /// How the store was.
    #[serde(flatten)]
    pub moment: StoreMoment,
    /// The first condition of the commit that does not hold, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<usize>,
    /// The version that was found instead; none, if nothing is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
}

/// Below which prefix something has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoreHint {
    /// The prefix of the keys that may have changed.
    pub prefix: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_go_through_a_blob() {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        for bytes in [&b""[..], b"caf\xc3\xa9 \"{}\\", b"\0", b"a\nb", b"\xff", &every] {
            let blob = Blob::new(bytes);
            assert_eq!(blob.bytes().as_deref(), Some(bytes));
            let text = serde_json::to_string(&blob).unwrap();
            assert!(text.len() <= 2 * bytes.len() + 12, "it stays within what a request may have");
            assert_eq!(serde_json::from_str::<Blob>(&text).unwrap(), blob);
        }
        for bad in ["0", "0g", "é"] {
            assert_eq!(Blob::Hex(bad.to_owned()).bytes(), None, "{bad}");
        }
    }
}

//! What runs of queues print, and how far they have come. docs/queues.md tells what a worker sends.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::run::RunState;

/// What a worker says about a run that it executes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputRequest {
    /// The token under which the worker has the run.
    pub token: u64,
    /// The worker still has everything that was printed from this offset on, and can send it again. If it is not given, what
    /// lies before the first chunk is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<u64>,
    /// What was printed, in order: up to 256 chunks, of 65,536 bytes together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub chunks: Vec<OutputChunk>,
    /// How far the run has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressSpec>,
}

/// Some bytes that a program printed, as `text` or as `base64`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputChunk {
    /// How many bytes the attempt printed before it, to both streams.
    pub offset: u64,
    /// Where it was printed.
    pub stream: OutputStream,
    /// When its first byte was printed, as its worker says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// What was printed, if that is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What was printed, if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Where a program prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// How far a run has come, as its worker tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProgressSpec {
    /// From 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100)))]
    pub percent: Option<u8>,
    /// What it does at the moment, in up to 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 200)))]
    pub text: Option<String>,
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunProgress {
    /// From 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// What it does at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// When its worker said so.
    pub at: Timestamp,
}

/// What a worker is answered about output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputAnswer {
    /// The offset that is expected next: what was printed from there on is to be sent, also if it was sent before.
    pub next: u64,
}

/// What a run printed in its last attempt, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunOutput {
    /// The run's id.
    pub run: String,
    /// Which attempt printed it; none, if nothing is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// So many bytes were printed.
    pub bytes: u64,
    /// What is kept of them, in order. A gap between two offsets, or before the first one, is not kept.
    pub chunks: Vec<OutputChunk>,
    /// How far the run has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RunProgress>,
}

/// What happens while a run's output is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputEvent {
    /// The run printed something.
    Printed {
        /// Attempt number, from 1.
        attempt: u32,
        /// What it printed.
        #[serde(flatten)]
        chunk: OutputChunk,
    },
    /// Bytes are missing here: they are not kept, never arrived, or came faster than this follower read.
    Cut {
        /// Attempt number, from 1.
        attempt: u32,
        /// The offset of the first of them.
        from: u64,
        /// The offset after the last of them.
        to: u64,
    },
    /// The run has ended, and nothing more comes.
    Ended {
        /// How it ended; none, if that is not kept any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<RunState>,
    },
}

impl OutputEvent {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Printed { .. } => "printed",
            Self::Cut { .. } => "cut",
            Self::Ended { .. } => "ended",
        }
    }
}

/// A chunk that is neither text nor base64, or both, or not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has either text or base64 of the standard alphabet, with its padding")]
pub struct BadChunk;

impl OutputChunk {
    /// A chunk of these bytes: as text if they are.
    pub fn new(offset: u64, stream: OutputStream, bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
        let base64 = text.is_none().then(|| STANDARD.encode(bytes));
        Self { offset, stream, at: None, text, base64 }
    }

    /// The same, with the time at which its first byte was printed.
    #[must_use]
    pub fn printed_at(self, at: Option<Timestamp>) -> Self {
        Self { at, ..self }
    }

    /// What was printed.
    pub fn bytes(&self) -> Result<Vec<u8>, BadChunk> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(text.as_bytes().to_vec()),
            (None, Some(digits)) => STANDARD.decode(digits).map_err(|_| BadChunk),
            (Some(_), Some(_)) | (None, None) => Err(BadChunk),
        }
    }
}

impl OutputStream {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_text_where_they_can_be_and_come_back_as_they_were() {
        for (bytes, is_text) in [(&b"hello\n"[..], true), (&[0xff, 0x00][..], false)] {
            let chunk = OutputChunk::new(3, OutputStream::Stderr, bytes);
            assert_eq!((chunk.text.is_some(), chunk.bytes().unwrap()), (is_text, bytes.to_vec()));
        }
        let chunk = OutputChunk::new(0, OutputStream::Stdout, b"x");
        let both = OutputChunk { base64: Some("eA==".to_owned()), ..chunk.clone() };
        let none = OutputChunk { text: None, ..chunk };
        assert_eq!((both.bytes(), none.bytes()), (Err(BadChunk), Err(BadChunk)));
    }
}

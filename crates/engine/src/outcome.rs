//! What came of an attempt, and what it means.
//!
//! After an attempt three things can be the case, and which one it is decides who may repeat it:
//!
//! - the receiver **answered**: its status is the answer, whatever became of the body;
//! - it was **not sent**: nothing left this process that a receiver could act upon. Also an `at_most_once` run
//!   may be tried again;
//! - it is **lost**: something left and no answer came. Perhaps it was done. `at_least_once` sends it again under
//!   the same run id; `at_most_once` ends as unknown.
//!
//! The line between the last two is drawn on the safe side: what cannot be told is lost.
//!
//! [`Outcome::verdict`] says what follows. Not every attempt that failed was a try: when the host was being left
//! alone, when the right to act had lapsed, when it was cancelled before it left, nobody learned anything about
//! the receiver. Such an attempt is *untried* and takes nothing from the tries that the user granted. What ends
//! it is the run's own time, not a count of attempts that were never made.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::fmt::rfc2822;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::limits::RETRY_AFTER_MAX;

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The receiver answered.
    Answered {
        /// The status of its answer.
        status: u16,
        /// How long it asks to be left alone.
        #[serde(default, rename = "retry_after_ms", with = "millis::optional")]
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<Duration>,
    },
    /// Nothing left this process that the receiver could act upon.
    NotSent {
        /// What stood in the way.
        why: NotSent,
    },
    /// It may have arrived, and no answer came.
    Lost {
        /// How it was lost.
        why: Lost,
    },
}

/// Why nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotSent {
    /// The request cannot be written down: its parts were never judged.
    Malformed,
    /// The host has no address that may be called.
    Forbidden,
    /// The host's name was not found.
    Name,
    /// No connection came about.
    Connect,
    /// No encrypted connection came about: wrong name, expired, unknown issuer.
    Tls,
    /// This machine has no socket left: nothing is known about the host.
    Exhausted,
    /// The host did not answer lately and is left alone.
    Resting {
        /// How much longer it is left alone.
        #[serde(rename = "rest_ms", with = "millis")]
        rest: Duration,
    },
    /// The right to act had lapsed when it was about to leave.
    Lapsed,
    /// It was cancelled before it left.
    Cancelled,
    /// It waited until it was too late.
    Late,
}

/// How an attempt was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// No answer in time.
    TimedOut,
    /// The connection ended without an answer.
    Closed,
    /// What came was no answer: not HTTP, or a head without an end.
    Broken,
    /// It was cancelled after it had left.
    Cancelled,
}

/// What follows from an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver took it.
    Succeeded,
    /// The receiver is gone for ever (410): pause the trigger.
    Gone,
    /// Refused for good: the same request will not fare better.
    Refused,
    /// It failed, which counts, and another try may fare better.
    Again {
        /// Whether this one may have been acted upon.
        arrival: Arrival,
        /// No sooner than after this.
        retry_after: Option<Duration>,
    },
    /// It did not leave in time, and shall not leave any more.
    Late,
    /// It was not tried, which counts for nothing.
    Untried {
        /// No sooner than after this.
        retry_after: Duration,
    },
}

/// Whether a receiver got an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It surely did not arrive.
    Never,
    /// It may have arrived.
    Perhaps,
    /// It surely arrived: the receiver answered.
    Surely,
}

impl Outcome {
    /// What follows from this outcome.
    pub fn verdict(&self) -> Verdict {
        match *self {
            Self::Answered { status, retry_after } => answered(status, retry_after),
            Self::NotSent { why } => not_sent(why),
            Self::Lost { why } => lost(why),
        }
    }

    /// What it says about the host.
    pub fn host_signal(&self) -> HostSignal {
        match self {
            Self::Answered { .. } => HostSignal::Responsive,
            Self::NotSent { why } => match why {
                NotSent::Name | NotSent::Connect | NotSent::Tls => HostSignal::Unresponsive,
                NotSent::Malformed
                | NotSent::Forbidden
                | NotSent::Exhausted
                | NotSent::Resting { .. }
                | NotSent::Lapsed
                | NotSent::Cancelled
                | NotSent::Late => HostSignal::Unknown,
            },
            Self::Lost { why } => match why {
                Lost::TimedOut | Lost::Closed => HostSignal::Unresponsive,
                Lost::Broken | Lost::Cancelled => HostSignal::Unknown,
            },
        }
    }
}

/// What an outcome says about the host, for its [`Breaker`](crate::breaker::Breaker).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostSignal {
    /// The host answers.
    Responsive,
    /// It cannot be reached, or does not answer.
    Unresponsive,
    /// The outcome says nothing about the host.
    Unknown,
}

fn answered(status: u16, retry_after: Option<Duration>) -> Verdict {
    match status {
        200..=299 => Verdict::Succeeded,
        410 => Verdict::Gone,
        // Too slow a request, too early, too many; and whatever is the receiver's own trouble.
        408 | 425 | 429 | 500..=599 => Verdict::Again { arrival: Arrival::Surely, retry_after },
        // Redirects are not followed: what a person allowed is this host and no other.
        _ => Verdict::Refused,
    }
}

fn not_sent(why: NotSent) -> Verdict {
    match why {
        NotSent::Malformed | NotSent::Forbidden => Verdict::Refused,
        NotSent::Name | NotSent::Connect | NotSent::Tls => {
            Verdict::Again { arrival: Arrival::Never, retry_after: None }
        }
        NotSent::Late => Verdict::Late,
        NotSent::Resting { rest } => Verdict::Untried { retry_after: rest },
        NotSent::Exhausted | NotSent::Lapsed | NotSent::Cancelled => {
            Verdict::Untried { retry_after: Duration::ZERO }
        }
    }
}

fn lost(why: Lost) -> Verdict {
    match why {
        Lost::TimedOut | Lost::Closed | Lost::Broken | Lost::Cancelled => {
            Verdict::Again { arrival: Arrival::Perhaps, retry_after: None }
        }
    }
}

/// How long a `Retry-After` asks for: a number of seconds, or a date in one of HTTP's three forms. Nothing if
/// it is neither; at most [`RETRY_AFTER_MAX`].
pub fn retry_after(text: &str, now: Instant) -> Option<Duration> {
    let text = text.trim();
    let asked = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number takes are a long time too.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let then = http_date(text)?;
        Duration::from_millis(u64::try_from(then.0.saturating_sub(now.0)).unwrap_or(0))
    };
    Some(asked.min(RETRY_AFTER_MAX))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun Nov  6 08:49:37 1994`.
fn http_date(text: &str) -> Option<Instant> {
    if let Ok(timestamp) = rfc2822::DateTimeParser::new().parse_timestamp(text) {
        return Some(Instant(timestamp.as_millisecond()));
    }
    let obsolete = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let civil = obsolete.iter().find_map(|form| DateTime::strptime(form, text).ok())?;
    let timestamp = TimeZone::UTC.to_timestamp(civil).ok()?;
    Some(Instant(timestamp.as_millisecond()))
}

/// Lengths of time as whole milliseconds, rounded up: nobody is called sooner than asked for.
mod millis {
    use super::{Deserialize, Duration};

    pub(super) fn serialize<S: serde::Serializer>(
        length: &Duration,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.serialize_u64(length.as_micros().div_ceil(1_000).try_into().unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }

    pub(super) mod optional {
        use super::{Deserialize, Duration};

        #[expect(clippy::ref_option, reason = "serde asks for a reference")]
        pub(in super::super) fn serialize<S: serde::Serializer>(
            length: &Option<Duration>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            match length {
                Some(length) => super::serialize(length, out),
                None => out.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: serde::Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_of_an_outcome_is_short_and_read_as_it_was() {
        let retry_after = Some(Duration::from_millis(1_500));
        for (outcome, text) in [
            (answer(200), r#"{"answered":{"status":200}}"#),
            (
                Outcome::Answered { status: 429, retry_after },
                r#"{"answered":{"status":429,"retry_after_ms":1500}}"#,
            ),
            (Outcome::NotSent { why: NotSent::Connect }, r#"{"not_sent":{"why":"connect"}}"#),
            (
                Outcome::NotSent { why: NotSent::Resting { rest: Duration::from_secs(2) } },
                r#"{"not_sent":{"why":{"resting":{"rest_ms":2000}}}}"#,
            ),
            (Outcome::Lost { why: Lost::TimedOut }, r#"{"lost":{"why":"timed_out"}}"#),
        ] {
            assert_eq!(serde_json::to_string(&outcome).unwrap(), text);
            assert_eq!(serde_json::from_str::<Outcome>(text).unwrap(), outcome);
        }
    }

    fn answer(status: u16) -> Outcome {
        Outcome::Answered { status, retry_after: None }
    }

    #[test]
    fn a_status_means_what_it_says() {
        let again = Verdict::Again { arrival: Arrival::Surely, retry_after: None };
        for (statuses, verdict) in [
            (&[200, 201, 202, 204, 299][..], Verdict::Succeeded),
            (&[410], Verdict::Gone),
            (&[408, 425, 429, 500, 501, 502, 503, 504, 599], again),
            (&[101, 199, 300, 301, 302, 304, 307, 308, 399], Verdict::Refused),
            (&[400, 401, 403, 404, 405, 409, 411, 413, 418, 422, 424, 426, 428], Verdict::Refused),
            (&[600, 999, 0], Verdict::Refused),
        ] {
            for status in statuses {
                assert_eq!(answer(*status).verdict(), verdict, "{status}");
            }
        }
    }

    #[test]
    fn a_pause_is_asked_for_with_a_failure() {
        let retry_after = Some(Duration::from_secs(7));
        let verdict = |status| Outcome::Answered { status, retry_after }.verdict();
        assert_eq!(verdict(503), Verdict::Again { arrival: Arrival::Surely, retry_after });
        assert_eq!(verdict(200), Verdict::Succeeded);
    }

    #[test]
    fn what_was_not_sent_may_be_repeated_by_anybody_and_what_is_lost_may_not() {
        let again = |arrival| Verdict::Again { arrival, retry_after: None };
        let untried = |retry_after| Verdict::Untried { retry_after };
        let rest = Duration::from_secs(3);
        for (why, verdict, signal) in [
            (NotSent::Malformed, Verdict::Refused, HostSignal::Unknown),
            (NotSent::Forbidden, Verdict::Refused, HostSignal::Unknown),
            (NotSent::Name, again(Arrival::Never), HostSignal::Unresponsive),
            (NotSent::Connect, again(Arrival::Never), HostSignal::Unresponsive),
            (NotSent::Tls, again(Arrival::Never), HostSignal::Unresponsive),
            (NotSent::Exhausted, untried(Duration::ZERO), HostSignal::Unknown),
            (NotSent::Resting { rest }, untried(rest), HostSignal::Unknown),
            (NotSent::Lapsed, untried(Duration::ZERO), HostSignal::Unknown),
            (NotSent::Cancelled, untried(Duration::ZERO), HostSignal::Unknown),
            (NotSent::Late, Verdict::Late, HostSignal::Unknown),
        ] {
            let outcome = Outcome::NotSent { why };
            assert_eq!((outcome.verdict(), outcome.host_signal()), (verdict, signal), "{why:?}");
        }
        for (why, signal) in [
            (Lost::TimedOut, HostSignal::Unresponsive),
            (Lost::Closed, HostSignal::Unresponsive),
            (Lost::Broken, HostSignal::Unknown),
            (Lost::Cancelled, HostSignal::Unknown),
        ] {
            let outcome = Outcome::Lost { why };
            assert_eq!(
                (outcome.verdict(), outcome.host_signal()),
                (again(Arrival::Perhaps), signal)
            );
        }
        assert_eq!(answer(500).host_signal(), HostSignal::Responsive, "also trouble is an answer");
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        // 06 Nov 1994 08:49:37 UTC.
        let now = Instant::from_second(784_111_777 - 60);
        let minute = Some(Duration::from_secs(60));
        for (text, asked) in [
            ("60", minute),
            (" 60 ", minute),
            ("0", Some(Duration::ZERO)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", minute),
            ("Sunday, 06-Nov-94 08:49:37 GMT", minute),
            ("Sun Nov  6 08:49:37 1994", minute),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(Duration::ZERO)),
            ("Sat, 05 Nov 1994 08:48:37 GMT", Some(Duration::ZERO)),
            ("3599", Some(Duration::from_secs(3_599))),
            ("3600", Some(RETRY_AFTER_MAX)),
            ("3601", Some(RETRY_AFTER_MAX)),
            ("99999999999999999999999", Some(RETRY_AFTER_MAX)),
            ("Thu, 30 Dec 9999 20:00:00 GMT", Some(RETRY_AFTER_MAX)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("Mon, 31 Feb 2027 00:00:00 GMT", None),
        ] {
            assert_eq!(retry_after(text, now), asked, "{text:?}");
        }
    }
}

//! When a request is sent again.
//!
//! A request may be sent again when nobody knows whether it arrived, because sending it again is safe: GET changes
//! nothing, PUT and DELETE say how it shall be in the end, and every POST carries an idempotency key, under which
//! the server carries it out once. What the server refuses is refused the next time too, and is not sent again.

use std::time::Duration;

use crate::ClientError;

/// How often, for how long and with which pauses a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestRetry {
    /// How many attempts follow the first one at most.
    pub(super) retries: u32,
    /// No attempt begins later than this after the first one.
    pub(super) time: Duration,
    /// The first pause; each is twice as long as the one before.
    pub(super) pause: Duration,
}

/// No pause grows longer than this by itself.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Default for RequestRetry {
    fn default() -> Self {
        Self { retries: 3, time: Duration::from_secs(30), pause: Duration::from_millis(100) }
    }
}

impl RequestRetry {
    /// How long to wait before the next attempt; nothing, if there is none. `tried` attempts were made in
    /// `elapsed`; `dice` is from 0 to 1.
    pub(super) fn pause(
        &self,
        tried: u32,
        elapsed: Duration,
        error: &ClientError,
        dice: f64,
    ) -> Option<Duration> {
        let wish = wish(error)?;
        if tried > self.retries {
            return None;
        }
        let doubled = self.pause.saturating_mul(1 << tried.saturating_sub(1).min(16));
        let own = doubled.min(PAUSE_MAX).mul_f64(0.5 + dice / 2.0);
        let pause = wish.saturating_add(own);
        (elapsed.saturating_add(pause) <= self.time).then_some(pause)
    }
}

/// How long the server wishes that we wait; nothing, if sending it again is of no use.
fn wish(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Unreachable { .. } => Some(Duration::ZERO),
        ClientError::Unavailable { retry_after, .. } => Some(retry_after.unwrap_or_default()),
        // A limit that says no time does not pass by itself.
        ClientError::LimitReached { retry_after, .. } => *retry_after,
        ClientError::Url { .. }
        | ClientError::Setting { .. }
        | ClientError::Untrusted { .. }
        | ClientError::Unauthorized(_)
        | ClientError::Forbidden(_)
        | ClientError::NotFound(_)
        | ClientError::Conflict(_)
        | ClientError::Invalid(_)
        | ClientError::Refused(_)
        | ClientError::Answer { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;

    fn lost() -> ClientError {
        ClientError::Unreachable { url: String::new(), why: String::new(), may_be_done: true }
    }

    fn answered(status: u16, retry_after: Option<u64>) -> ClientError {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: String::new(),
            status,
            detail: String::new(),
            request_id: None,
            limit: None,
            store: None,
            errors: Vec::new(),
        };
        ClientError::of_problem(problem, retry_after.map(Duration::from_secs))
    }

    #[test]
    fn pauses_double_and_are_never_less_than_half_nor_more_than_the_most() {
        let retry = RequestRetry { retries: 30, time: Duration::MAX, ..RequestRetry::default() };
        let pause = |tried, dice| retry.pause(tried, Duration::ZERO, &lost(), dice).unwrap();
        assert_eq!(pause(1, 1.0), Duration::from_millis(100));
        assert_eq!(pause(1, 0.0), Duration::from_millis(50));
        assert_eq!(pause(3, 1.0), Duration::from_millis(400));
        assert_eq!(pause(30, 1.0), PAUSE_MAX);
    }

    #[test]
    fn it_ends_after_so_many_attempts_and_after_so_long() {
        let retry = RequestRetry::default();
        assert!(retry.pause(3, Duration::ZERO, &lost(), 0.0).is_some());
        assert_eq!(retry.pause(4, Duration::ZERO, &lost(), 0.0), None);
        assert_eq!(retry.pause(1, Duration::from_secs(30), &lost(), 0.0), None);
        let off = RequestRetry { retries: 0, ..retry };
        assert_eq!(off.pause(1, Duration::ZERO, &lost(), 0.0), None);
    }

    #[test]
    fn a_server_that_says_when_is_not_asked_sooner_and_not_at_all_if_that_is_too_late() {
        let retry = RequestRetry::default();
        for status in [429, 502, 503, 504] {
            let pause = retry.pause(1, Duration::ZERO, &answered(status, Some(2)), 0.0).unwrap();
            assert_eq!(pause, Duration::from_millis(2_050), "{status}");
            let late = answered(status, Some(30));
            assert_eq!(retry.pause(1, Duration::ZERO, &late, 0.0), None, "{status}");
        }
        assert!(retry.pause(1, Duration::ZERO, &answered(503, None), 0.0).is_some());
    }

    #[test]
    fn what_was_refused_is_not_asked_again() {
        let retry = RequestRetry::default();
        for status in [400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 422, 500, 507] {
            assert_eq!(retry.pause(1, Duration::ZERO, &answered(status, Some(1)), 0.0), None);
        }
        assert_eq!(retry.pause(1, Duration::ZERO, &answered(429, None), 0.0), None);
    }
}

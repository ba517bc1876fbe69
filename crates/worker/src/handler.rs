//! Handlers: async functions that carry out runs, each with a payload of its own type.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::{Context, EndReason, Outcome};

/// Why a handler did not carry out its run. Any error becomes [`HandlerError::Failed`] by `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerError {
    /// It is tried again, as the run says.
    Failed(String),
    /// It is not tried again: it would fail again.
    FailedForGood(String),
    /// It is tried again no sooner than this, up to an hour.
    RetryAfter(Duration, String),
}

impl fmt::Display for HandlerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) | Self::FailedForGood(why) | Self::RetryAfter(_, why) => {
                out.write_str(why)
            }
        }
    }
}

impl<E: Error> From<E> for HandlerError {
    /// With all that it came from.
    fn from(error: E) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            why = format!("{why}: {inner}");
            cause = inner.source();
        }
        Self::Failed(why)
    }
}

pub(crate) type CarriedOut = Pin<Box<dyn Future<Output = Outcome> + Send>>;
pub(crate) type Carry = Box<dyn Fn(Context) -> CarriedOut + Send + Sync>;

/// What carries out runs: handlers by their names, and commands.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) by_name: BTreeMap<String, Carry>,
    pub(crate) commands: Option<Carry>,
    /// Whether they can be begun; always, if nobody says it.
    pub(crate) ready: Option<watch::Receiver<bool>>,
}

impl Handlers {
    /// Whether runs can be begun.
    pub(crate) fn are_ready(&self) -> bool {
        self.ready.as_ref().is_none_or(|ready| *ready.borrow())
    }
}

/// A handler as the worker calls it.
pub(crate) fn typed<T, H, F>(handler: H) -> Carry
where
    T: DeserializeOwned + Send + 'static,
    H: Fn(Context, T) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    Box::new(move |context: Context| -> CarriedOut {
        let payload = context.run().payload.as_ref().unwrap_or(&Value::Null);
        match serde_path_to_error::deserialize::<_, T>(payload) {
            Ok(payload) => {
                let carried_out = handler(context.clone(), payload);
                Box::pin(async move { judged(&context, carried_out.await) })
            }
            Err(why) => Box::pin(std::future::ready(unfit(&why))),
        }
    })
}

/// Another attempt would find the same payload.
fn unfit(why: &serde_path_to_error::Error<serde_json::Error>) -> Outcome {
    let (path, what) = (why.path().to_string(), why.inner());
    Outcome::failed_for_good(match path.as_str() {
        "." => format!("the payload does not fit: {what}"),
        path => format!("the payload does not fit: {path}: {what}"),
    })
}

/// What the end of a handler is reported as.
///
/// A handler that was told to end, **has seen it**, and then returns, whatever it returns, ended early: `cancelled`, or `stopped`.
/// One that never looked is reported as what it returned: its run was carried out before anybody could stop it, and saying
/// otherwise would hide that. Whether it looked is what tells the two apart, since the time of a cancel says nothing about
/// what the handler had done by then. What took longer than its time-out failed in either case.
fn judged(context: &Context, returned: Result<(), HandlerError>) -> Outcome {
    if let Some(reason) = context.peek_ending().filter(|_| context.has_seen_ending()) {
        // That its time was over says more than what the handler made of it.
        let why = returned.err().filter(|_| reason != EndReason::TimedOut);
        let why = why.map(|why| why.to_string());
        return Outcome { error: why, ..Outcome::ended_early(reason, "") };
    }
    match returned {
        Ok(()) => Outcome::succeeded(),
        Err(HandlerError::Failed(why)) => Outcome::failed(why),
        Err(HandlerError::FailedForGood(why)) => Outcome::failed_for_good(why),
        Err(HandlerError::RetryAfter(pause, why)) => {
            Outcome { retry_after: Some(pause), ..Outcome::failed(why) }
        }
    }
}

#[cfg(test)]
mod tests {
    use client::worker::RunResult;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Welcome {
        user: User,
    }

    #[derive(Debug, Deserialize)]
    struct User {
        name: String,
        age: u8,
    }

    fn context(payload: &Value) -> Context {
        let run = json!({
            "id": "run_1", "token": 1, "attempt": 1, "queue": "q", "handler": "welcome",
            "scheduled": "2027-01-15T09:00:00Z", "payload": payload,
        });
        Context::detached(serde_json::from_value(run).unwrap())
    }

    #[tokio::test]
    async fn a_payload_that_does_not_fit_is_a_final_failure_that_names_the_field() {
        let welcome = typed(|_, welcome: Welcome| async move {
            assert!(welcome.user.name == "Ann" && welcome.user.age == 7);
            Ok(())
        });
        let fits = context(&json!({"user": {"name": "Ann", "age": 7}}));
        assert_eq!(welcome(fits).await, Outcome::succeeded());
        let outcome = welcome(context(&json!({"user": {"name": "Ann", "age": "old"}}))).await;
        let why = outcome.error.unwrap();
        assert!(why.starts_with("the payload does not fit: user.age: invalid type"), "{why}");
        assert!(outcome.final_failure);
    }

    #[tokio::test]
    async fn any_error_is_a_failure_with_all_that_it_came_from() {
        #[derive(Debug, thiserror::Error)]
        #[error("the relay is away")]
        struct Away(#[source] std::io::Error);
        let fails = typed(|_, (): ()| async {
            Err(Away(std::io::Error::other("connection refused")))?;
            Ok(())
        });
        let outcome = fails(context(&Value::Null)).await;
        assert_eq!(outcome, Outcome::failed("the relay is away: connection refused"));
    }

    #[tokio::test]
    async fn a_handler_that_returns_counts_as_cancelled_only_if_it_has_seen_the_cancel() {
        let looks = typed(|context: Context, (): ()| async move {
            let _seen = context.ending();
            Ok(())
        });
        let does_not_look = typed(|_, (): ()| async { Ok(()) });
        for (handler, result) in
            [(looks, RunResult::Cancelled), (does_not_look, RunResult::Succeeded)]
        {
            let context = context(&Value::Null);
            context.tell_to_end(EndReason::Cancelled);
            assert_eq!(handler(context).await.result, result);
        }
    }
}

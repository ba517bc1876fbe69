//! What became of a command, as it is reported: the end of its tree, and whether it was told to end before.
//!
//! | the tree ended | result | error |
//! |---|---|---|
//! | by itself, exit code 0 | succeeded | |
//! | by itself, another exit code | failed | `exit code 3: ` and the last line on standard error |
//! | by itself, a signal | failed | `ended by SIGSEGV` |
//! | after its time-out | failed | `timed out after 30s` |
//! | after a cancel | cancelled | |
//! | because its worker stops, lost it, or was not confirmed | stopped | |
//! | before anything of it began, as nobody confirmed it in time | given back | |
//! | with its shim, which somebody killed | failed | |
//!
//! No exit code means anything else. A command that has ended by itself before an order to end reached it is reported as
//! what it was.

use std::time::Duration;

use nix::sys::signal::Signal;
use process::{Cause, End, Lost};

use crate::{EndReason, Outcome};

/// What a command was run with, as far as its error tells of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Terms {
    /// How long it might take.
    pub(super) timeout: Option<Duration>,
    /// It had a limit of memory.
    pub(super) has_memory_limit: bool,
}

/// The outcome to report.
pub(super) fn verdict(
    told: Option<EndReason>,
    ended: &Result<process::Outcome, Lost>,
    last_line: Option<&str>,
    terms: Terms,
) -> Outcome {
    let ended = match ended {
        Ok(ended) => ended,
        Err(lost) => return Outcome::failed(lost.to_string()),
    };
    let reason = match (told, ended.cause) {
        // It had ended before anybody could end it, or was ended by somebody else.
        (_, Cause::Itself) | (None, Cause::ShimKilled) => None,
        (_, Cause::Unconfirmed) => Some(EndReason::Unconfirmed),
        (Some(reason), _) => Some(reason),
        // Nobody but a worker that stops kills without having told.
        (None, Cause::Killed | Cause::Stopped | Cause::KilledAfterGrace) => {
            Some(EndReason::Stopping)
        }
    };
    let outcome = match reason {
        Some(reason) => early(reason, ended, last_line, terms),
        None => by_itself(ended.end, last_line, terms),
    };
    let never_began = matches!((ended.cause, ended.end), (Cause::Unconfirmed, End::Unseen));
    let outcome = Outcome { never_began, ..outcome };
    match ended.end {
        End::Exited(code) => outcome.exit_code(code),
        End::Signaled(_) | End::Unseen => outcome,
    }
}

fn by_itself(end: End, last_line: Option<&str>, terms: Terms) -> Outcome {
    match end {
        End::Exited(0) => Outcome::succeeded(),
        End::Exited(code) => Outcome::failed(with(format!("exit code {code}"), last_line)),
        End::Signaled(signal) => {
            let mut why = format!("ended by {}", name(signal));
            if terms.has_memory_limit && signal == Signal::SIGKILL as i32 {
                why += ", perhaps for want of memory: see --memory-max of the worker";
            }
            Outcome::failed(with(why, last_line))
        }
        End::Unseen => {
            Outcome::failed("its shim was killed from outside, and the command ended with it")
        }
    }
}

fn early(
    reason: EndReason,
    ended: &process::Outcome,
    last_line: Option<&str>,
    terms: Terms,
) -> Outcome {
    let how = match (ended.cause, ended.end) {
        (Cause::KilledAfterGrace, _) => "killed after its grace".to_owned(),
        (_, End::Exited(code)) => format!("ended with exit code {code}"),
        (_, End::Signaled(signal)) => format!("ended by {}", name(signal)),
        (Cause::Unconfirmed, End::Unseen) => "it was not begun".to_owned(),
        (_, End::Unseen) => "ended with its shim".to_owned(),
    };
    let why = match reason {
        EndReason::TimedOut => {
            let after = terms.timeout.map_or(String::new(), |it| format!(" after {}", length(it)));
            with(format!("timed out{after}"), last_line)
        }
        EndReason::Cancelled => format!("cancelled, and {how}"),
        EndReason::Stopping => format!("the worker stopped before it was done: {how}"),
        EndReason::Lost => format!("the worker lost it: {how}"),
        EndReason::Unconfirmed => {
            format!("no server confirmed in time that it may go on: {how}")
        }
    };
    Outcome::ended_early(reason, why)
}

fn with(why: String, last_line: Option<&str>) -> String {
    match last_line {
        Some(line) => format!("{why}: {line}"),
        None => why,
    }
}

/// `SIGSEGV`; a number, where a signal has no name.
fn name(signal: i32) -> String {
    Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |it| it.as_str().to_owned())
}

/// As people write it.
fn length(of: Duration) -> String {
    if of.subsec_millis() > 0 {
        format!("{}ms", of.as_millis())
    } else {
        format!("{}s", of.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use client::worker::RunResult;
    use process::Isolation;

    use super::*;

    fn ended(end: End, cause: Cause) -> process::Outcome {
        let (duration, isolation) = (Duration::from_secs(1), Isolation::Namespace);
        process::Outcome { end, cause, duration, usage: None, isolation, kill_late: None }
    }

    #[test]
    fn what_ended_by_itself_is_what_it_says() {
        let terms = Terms::default();
        for (end, last_line, result, error, code) in [
            (End::Exited(0), Some("warning"), RunResult::Succeeded, None, Some(0)),
            (End::Exited(3), None, RunResult::Failed, Some("exit code 3"), Some(3)),
            (
                End::Exited(3),
                Some("disk full"),
                RunResult::Failed,
                Some("exit code 3: disk full"),
                Some(3),
            ),
            (End::Signaled(11), None, RunResult::Failed, Some("ended by SIGSEGV"), None),
            (End::Signaled(40), None, RunResult::Failed, Some("ended by signal 40"), None),
        ] {
            // Also if somebody wanted it to end, and came too late.
            for told in [None, Some(EndReason::Cancelled), Some(EndReason::Stopping)] {
                let outcome = verdict(told, &Ok(ended(end, Cause::Itself)), last_line, terms);
                assert_eq!((outcome.result, outcome.error.as_deref()), (result, error), "{end:?}");
                assert_eq!((outcome.exit_code, outcome.final_failure), (code, false));
            }
        }
        let limited = Terms { has_memory_limit: true, ..terms };
        let killed = verdict(None, &Ok(ended(End::Signaled(9), Cause::Itself)), None, limited);
        assert!(killed.error.unwrap().contains("for want of memory"));
    }

    #[test]
    fn what_was_ended_is_why_it_was_ended() {
        let terms = Terms { timeout: Some(Duration::from_secs(30)), ..Terms::default() };
        let stopped = Ok(ended(End::Signaled(15), Cause::Stopped));
        let killed = Ok(ended(End::Signaled(9), Cause::KilledAfterGrace));
        let heeded = Ok(ended(End::Exited(0), Cause::Stopped));
        for (told, ended, result, error) in [
            (EndReason::TimedOut, &stopped, RunResult::Failed, "timed out after 30s: last"),
            (EndReason::TimedOut, &heeded, RunResult::Failed, "timed out after 30s: last"),
            (
                EndReason::Cancelled,
                &stopped,
                RunResult::Cancelled,
                "cancelled, and ended by SIGTERM",
            ),
            (
                EndReason::Cancelled,
                &heeded,
                RunResult::Cancelled,
                "cancelled, and ended with exit code 0",
            ),
            (
                EndReason::Cancelled,
                &killed,
                RunResult::Cancelled,
                "cancelled, and killed after its grace",
            ),
            (
                EndReason::Stopping,
                &stopped,
                RunResult::Stopped,
                "the worker stopped before it was done: ended by SIGTERM",
            ),
            (
                EndReason::Lost,
                &killed,
                RunResult::Stopped,
                "the worker lost it: killed after its grace",
            ),
        ] {
            let outcome = verdict(Some(told), ended, Some("last"), terms);
            assert_eq!((outcome.result, outcome.error.as_deref()), (result, Some(error)));
        }
        let lapsed = verdict(None, &Ok(ended(End::Signaled(9), Cause::Unconfirmed)), None, terms);
        assert_eq!((lapsed.result, lapsed.never_began), (RunResult::Stopped, false));
        let unbegun = verdict(None, &Ok(ended(End::Unseen, Cause::Unconfirmed)), None, terms);
        assert_eq!((unbegun.result, unbegun.never_began), (RunResult::Stopped, true));
    }

    #[test]
    fn guards_that_were_killed_are_told() {
        let unseen =
            verdict(None, &Ok(ended(End::Unseen, Cause::ShimKilled)), None, Terms::default());
        assert!(unseen.error.unwrap().contains("its shim was killed from outside"));
        let told = Some(EndReason::Cancelled);
        let cancelled =
            verdict(told, &Ok(ended(End::Unseen, Cause::ShimKilled)), None, Terms::default());
        assert_eq!(cancelled.result, RunResult::Cancelled);
        let lost = verdict(None, &Err(Lost), None, Terms::default());
        assert_eq!(lost.result, RunResult::Failed);
        assert!(lost.error.unwrap().contains("look for what is left"));
    }
}

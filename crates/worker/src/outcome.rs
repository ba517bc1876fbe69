//! What came of an attempt, as it was carried out here.

use std::time::Duration;

use client::worker::RunResult;

use crate::EndReason;

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// In a word.
    pub result: RunResult,
    /// What went wrong, in a sentence. The first 1,000 characters are reported.
    pub error: Option<String>,
    /// The exit code of the program.
    pub exit_code: Option<i32>,
    /// If it failed: it is not to be tried again.
    pub final_failure: bool,
    /// If it failed: it is to be tried again no sooner than this, up to an hour.
    pub retry_after: Option<Duration>,
    /// If it was stopped: it certainly never began. Its run is given back, and no attempt counts.
    pub never_began: bool,
}

impl Outcome {
    /// It was carried out.
    pub fn succeeded() -> Self {
        Self::of(RunResult::Succeeded)
    }

    /// It failed, and is tried again as its run says.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::of(RunResult::Failed) }
    }

    /// It failed, and would fail again.
    pub fn failed_for_good(why: impl Into<String>) -> Self {
        Self { final_failure: true, ..Self::failed(why) }
    }

    /// It was told to end, and did so before it was done. Only what took too long counts as a failure: an attempt that was
    /// stopped uses up nobody's attempts.
    pub fn ended_early(reason: EndReason, why: impl Into<String>) -> Self {
        let result = match reason {
            EndReason::Cancelled => RunResult::Cancelled,
            EndReason::TimedOut => RunResult::Failed,
            EndReason::Lost | EndReason::Unconfirmed | EndReason::Stopping => RunResult::Stopped,
        };
        Self { error: Some(why.into()), ..Self::of(result) }
    }

    /// It was told to end before it began, and certainly never did.
    pub fn never_began(reason: EndReason, why: impl Into<String>) -> Self {
        Self { never_began: true, ..Self::ended_early(reason, why) }
    }

    /// The same with the exit code of a program.
    #[must_use]
    pub fn exit_code(self, code: i32) -> Self {
        Self { exit_code: Some(code), ..self }
    }

    fn of(result: RunResult) -> Self {
        Self {
            result,
            error: None,
            exit_code: None,
            final_failure: false,
            retry_after: None,
            never_began: false,
        }
    }
}

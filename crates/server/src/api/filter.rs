//! Which runs a list is about: a project's, in some states, of some time.

use client::run::{Run, RunKind, RunState};
use engine::id::ProjectId;
use engine::instant::Instant;
use engine::past::Line;

use super::convert;
use super::problem::{ApiError, ApiResult};
use super::query::Query;

/// Which runs a request asks for.
pub(super) struct RunSelection {
    pub(super) project: ProjectId,
    /// Empty for all runs; skipped slots are told only if they are asked for.
    states: Vec<RunState>,
    kind: Option<RunKind>,
    /// Slots from here on,
    pub(super) from: Instant,
    /// and before this.
    pub(super) to: Instant,
}

impl RunSelection {
    /// What a query asks for, of a project.
    pub(super) fn of(query: &Query, project: ProjectId) -> ApiResult<Self> {
        let states = query.words("state", &RunState::ALL, RunState::as_str)?;
        let kind = query.word("kind", &RunKind::ALL, RunKind::as_str)?;
        let from = query.get("from")?.unwrap_or(Instant::FIRST);
        let to = query.get("to")?.unwrap_or(Instant::LAST);
        if from >= to {
            return Err(ApiError::parameter("from", "it must lie before \"to\""));
        }
        Ok(Self { project, states, kind, from, to })
    }

    fn has(&self, state: RunState) -> bool {
        match self.states.as_slice() {
            [] => state != RunState::Skipped,
            states => states.contains(&state),
        }
    }

    fn is_of(&self, kind: RunKind) -> bool {
        self.kind.is_none_or(|wanted| wanted == kind)
    }

    /// Whether what has not ended is wanted.
    pub(super) fn wants_unfinished(&self) -> bool {
        RunState::ALL.into_iter().any(|state| !state.is_end() && self.has(state))
    }

    /// Whether what has ended is wanted.
    pub(super) fn wants_past(&self) -> bool {
        RunState::ALL.into_iter().any(|state| state.is_end() && self.has(state))
    }

    /// Whether of that only exceptions are wanted.
    pub(super) fn wants_exceptions_only(&self) -> bool {
        !self.has(RunState::Succeeded)
    }

    /// Whether a line of the past is wanted. Of a range of skipped slots one is enough.
    pub(super) fn takes(&self, line: &Line) -> bool {
        let (state, kind, from, to) = match line {
            Line::Run(run) => {
                (convert::end(run.end), convert::kind(run.notice), run.slot, run.slot)
            }
            Line::Skip(skip) => (RunState::Skipped, RunKind::Run, skip.from, skip.to),
        };
        let is_within = from < self.to && to >= self.from;
        line.project() == self.project && self.has(state) && self.is_of(kind) && is_within
    }

    /// Whether a run that has not ended is wanted.
    pub(super) fn takes_run(&self, run: &Run) -> bool {
        let slot = Instant(run.slot.as_millisecond());
        self.has(run.state) && self.is_of(run.kind) && self.from <= slot && slot < self.to
    }
}

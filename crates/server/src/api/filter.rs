//! Which runs a list is about: a project's, in some states, of some time.

use client::run::{Run, RunKind, RunState};
use engine::id::ProjectId;
use engine::instant::Instant;
use engine::past::{Finished, Line};
use engine::queue::filter::RunFilter;
use engine::trigger::check_name;

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
    /// Only those of queues, like this.
    queued: Option<QueuedSelection>,
}

/// Which runs of queues a request asks for.
struct QueuedSelection {
    queue: Option<String>,
    run: RunFilter,
}

impl QueuedSelection {
    /// What a query asks for, if it asks for runs of queues.
    fn of(query: &Query) -> ApiResult<Option<Self>> {
        let labels = query.labels()?;
        let labels = labels.into_iter().map(|(key, value)| format!("{key}={value}").into());
        let labels: Vec<Box<str>> = labels.collect();
        let (queue, key) = (query.text("queue"), query.text("key"));
        if queue.is_none() && key.is_none() && labels.is_empty() {
            return Ok(None);
        }
        if let Some(queue) = queue {
            check_name(queue).map_err(|why| ApiError::parameter("queue", why))?;
        }
        let run = RunFilter { key: key.map(Into::into), labels, ..RunFilter::default() };
        Ok(Some(Self { queue: queue.map(str::to_owned), run }))
    }

    fn takes(&self, run: &Finished) -> bool {
        run.queue.as_deref().is_some_and(|queue| {
            self.queue.as_deref().is_none_or(|name| name == &*queue.name)
                && self.run.takes_past(queue, run.slot)
        })
    }
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
        let queued = QueuedSelection::of(query)?;
        Ok(Self { project, states, kind, from, to, queued })
    }

    /// The queue that is asked for.
    pub(super) fn queue(&self) -> Option<&str> {
        self.queued.as_ref()?.queue.as_deref()
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
        let is_queued = |queued: &QueuedSelection| match line {
            Line::Run(run) => queued.takes(run),
            Line::Skip(_) => false,
        };
        // A part is told with its run.
        let is_part = matches!(line, Line::Run(run) if run.is_part());
        if is_part || !self.queued.as_ref().is_none_or(is_queued) {
            return false;
        }
        line.project() == self.project && self.has(state) && self.is_of(kind) && is_within
    }

    /// Whether a run that has not ended is wanted.
    pub(super) fn takes_run(&self, run: &Run) -> bool {
        let slot = Instant(run.slot.as_millisecond());
        self.queued.is_none()
            && self.has(run.state)
            && self.is_of(run.kind)
            && self.from <= slot
            && slot < self.to
    }
}

//! When something was: by the clock of its machine, and by its arrival here.
//!
//! Two instances of one start of one machine share a clock, and are compared by it: however late their ticks come, and
//! in whatever order. Any others are compared by the arrival of their ticks.

use std::time::Duration;

use serde::Serialize;

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) made: Option<Duration>,
    pub(crate) arrived: Duration,
}

/// From a first to a last moment on one clock, both of them included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

/// The same on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hull {
    pub(crate) made: Option<Span>,
    pub(crate) arrived: Span,
}

/// By what two instances were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The clock of their machine.
    Machine,
    /// The arrival of their ticks at the witness: they are on different machines, or do not tell the time.
    Arrival,
}

impl Span {
    fn new(first: Duration, last: Duration) -> Self {
        Self { first, last }
    }

    fn include(&mut self, at: Duration) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }

    /// What both have in common, if it is only an instant.
    pub(crate) fn shared(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    pub(crate) fn length(self) -> Duration {
        self.last.saturating_sub(self.first)
    }
}

impl Hull {
    pub(crate) fn new(first: Moment, last: Moment) -> Self {
        let made = first.made.zip(last.made).map(|(first, last)| Span::new(first, last));
        Self { made, arrived: Span::new(first.arrived, last.arrived) }
    }

    pub(crate) fn include(&mut self, moment: Moment) {
        if let Some((span, made)) = self.made.as_mut().zip(moment.made) {
            span.include(made);
        }
        self.arrived.include(moment.arrived);
    }

    /// On the clock of its machine, where it tells the time.
    pub(crate) fn own(self) -> Span {
        self.made.unwrap_or(self.arrived)
    }
}

/// Two hulls on one clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compared {
    pub(crate) one: Span,
    pub(crate) other: Span,
    pub(crate) basis: Basis,
}

impl Compared {
    /// Puts two hulls on a clock that they share, by the starts of their machines.
    pub(crate) fn new(one: (Hull, Option<&str>), other: (Hull, Option<&str>)) -> Self {
        let ((one, one_boot), (other, other_boot)) = (one, other);
        let is_shared = one_boot.is_some() && one_boot == other_boot;
        match one.made.zip(other.made).filter(|_| is_shared) {
            Some((one, other)) => Self { one, other, basis: Basis::Machine },
            None => Self { one: one.arrived, other: other.arrived, basis: Basis::Arrival },
        }
    }

    pub(crate) fn shared(self) -> Option<Span> {
        self.one.shared(self.other)
    }
}

//! Which runs of a queue somebody means who names none: by state, key, labels and time.

use crate::instant::Instant;
use crate::past::{End, PastOfQueue};

use super::dead::DeadRecord;
use super::given::GivenRecord;
use super::submitted::SubmittedRun;

/// What runs have in common, whatever their state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFilter {
    /// This concurrency key.
    pub key: Option<Box<str>>,
    /// All of these labels, each as `key=value`.
    pub labels: Vec<Box<str>>,
    /// From this instant on…
    pub from: Instant,
    /// …and before this one.
    pub to: Instant,
}

/// Unfinished runs: the instant is that of their submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedFilter {
    /// In one of these states; in any, if there are none.
    pub states: Vec<UnfinishedState>,
    /// And like this.
    pub run: RunFilter,
}

/// Dead runs: the instant is that of their end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadFilter {
    /// Of one of these kinds; of any, if there are none.
    pub states: Vec<DeadState>,
    /// And like this.
    pub run: RunFilter,
}

/// Where an unfinished run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfinishedState {
    /// No worker has begun it.
    Waiting,
    /// A worker has it.
    Running,
    /// It waits to be given again.
    Backoff,
}

/// How a run died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadState {
    /// All attempts failed, or too many workers died under it.
    Dead,
    /// Too many workers died under it.
    Poison,
    /// It failed, and was not to be tried again.
    Failed,
}

impl Default for RunFilter {
    fn default() -> Self {
        Self { key: None, labels: Vec::new(), from: Instant::FIRST, to: Instant::LAST }
    }
}

impl RunFilter {
    /// Whether a run with this key and these labels is meant.
    pub fn takes(&self, key: Option<&str>, labels: Option<&str>, at: Instant) -> bool {
        let carries = |wanted: &str| {
            labels.is_some_and(|labels| labels.split(',').any(|label| label == wanted))
        };
        self.from <= at
            && at < self.to
            && self.key.as_deref().is_none_or(|wanted| key == Some(wanted))
            && self.labels.iter().all(|wanted| carries(wanted))
    }

    /// Whether a run that is past is meant.
    pub fn takes_past(&self, queue: &PastOfQueue, at: Instant) -> bool {
        self.takes(queue.key.as_deref(), queue.labels.as_deref(), at)
    }
}

impl UnfinishedFilter {
    /// Whether a run is meant, of which this is recorded if it was given.
    pub fn takes(&self, run: &SubmittedRun, given: Option<&GivenRecord>) -> bool {
        let state = UnfinishedState::of(given);
        let details = run.details.as_deref();
        let key = details.and_then(|details| details.key.as_ref()).map(|key| &*key.text);
        let labels = details.and_then(|details| details.labels.as_deref());
        (self.states.is_empty() || self.states.contains(&state))
            && self.run.takes(key, labels, run.born)
    }
}

impl UnfinishedState {
    /// The state of a run of which this is recorded if it was given.
    pub fn of(given: Option<&GivenRecord>) -> Self {
        match given {
            Some(given) if given.is_running() => Self::Running,
            // What was given back unbegun waits as if nobody had had it.
            Some(given) if given.attempt > 0 => Self::Backoff,
            Some(_) | None => Self::Waiting,
        }
    }
}

impl DeadFilter {
    /// Whether a dead run is meant.
    pub fn takes(&self, record: &DeadRecord) -> bool {
        let Some(queue) = record.run.queue.as_deref() else { return false };
        let is_dead = record.run.end == End::Dead;
        let is_it = |state: &DeadState| match state {
            DeadState::Dead => is_dead,
            DeadState::Poison => queue.poison,
            DeadState::Failed => !is_dead,
        };
        (self.states.is_empty() || self.states.iter().any(is_it))
            && self.run.takes_past(queue, record.run.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_said_must_hold() {
        let filter = RunFilter {
            key: Some("k".into()),
            labels: vec!["env=prod".into(), "team=a".into()],
            from: Instant(10),
            to: Instant(20),
        };
        let labels = Some("env=prod,team=a");
        assert!(filter.takes(Some("k"), labels, Instant(10)));
        for (key, labels, at) in [
            (None, labels, 10),
            (Some("kk"), labels, 10),
            (Some("k"), None, 10),
            (Some("k"), Some("env=prod,team=ab"), 10),
            (Some("k"), labels, 9),
            (Some("k"), labels, 20),
        ] {
            assert!(!filter.takes(key, labels, Instant(at)), "{key:?} {labels:?} {at}");
        }
        assert!(RunFilter::default().takes(None, None, Instant(0)));
    }
}

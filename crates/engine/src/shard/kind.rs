//! What triggers have in common, kept once: ten million of them share a few thousand schedules.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::ProjectId;
use crate::policy::Policy;
use crate::queue::feed::FeedForm;
use crate::schedule::Schedule;
use crate::target::Target;
use crate::trigger::Definition;
use crate::webhook::Form;

/// What many triggers share.
#[derive(Debug)]
pub(super) struct TriggerKind {
    pub(super) project: ProjectId,
    pub(super) policy: Policy,
    pub(super) schedule: Schedule,
    pub(super) form: TargetForm,
    /// The origin of its host, which follows from the form.
    pub(super) host: Option<u64>,
    /// The runs of the busiest minute, which follow from the schedule.
    pub(super) per_minute_max: u32,
}

/// What targets share. Equal forms are the same one.
#[derive(Debug, Clone)]
pub(super) enum TargetForm {
    Webhook(Arc<Form>),
    Queue(Arc<FeedForm>),
}

impl TargetForm {
    /// Where it is: that tells it from others.
    fn address(&self) -> usize {
        match self {
            Self::Webhook(form) => Arc::as_ptr(form).addr(),
            Self::Queue(form) => Arc::as_ptr(form).addr(),
        }
    }
}

impl PartialEq for TriggerKind {
    fn eq(&self, other: &Self) -> bool {
        self.form.address() == other.form.address()
            && self.project == other.project
            && self.policy == other.policy
            && self.schedule == other.schedule
    }
}

impl Eq for TriggerKind {}

impl Hash for TriggerKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.form.address().hash(state);
        self.project.hash(state);
        self.policy.hash(state);
        self.schedule.hash(state);
    }
}

/// The kinds that are in use. All shards of a node share them.
#[derive(Clone, Default)]
pub struct TriggerKinds(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    kinds: HashSet<Arc<TriggerKind>>,
    forms: HashSet<Arc<Form>>,
    feeds: HashSet<Arc<FeedForm>>,
    /// At this number of kinds, those that nobody uses are thrown away.
    full: usize,
}

/// Fewer kinds than this are never looked through.
const FULL_MIN: usize = 1_024;

impl TriggerKinds {
    /// What a trigger of this definition shares with others.
    pub(super) fn of(&self, project: ProjectId, definition: &Definition) -> Arc<TriggerKind> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.sweep();
        let form = match &definition.target {
            Target::Webhook(it) => TargetForm::Webhook(shared(&mut known.forms, &it.form)),
            Target::Queue(it) => TargetForm::Queue(shared(&mut known.feeds, &it.form)),
        };
        let Definition { policy, schedule, .. } = definition;
        let per_minute_max = u32::try_from(schedule.per_minute_max()).unwrap_or(u32::MAX);
        let (policy, schedule) = (*policy, schedule.clone());
        let host = definition.target.host();
        let kind = TriggerKind { project, policy, schedule, form, host, per_minute_max };
        if let Some(same) = known.kinds.get(&kind) {
            return Arc::clone(same);
        }
        let kind = Arc::new(kind);
        known.kinds.insert(Arc::clone(&kind));
        kind
    }
}

fn shared<T: Hash + Eq>(forms: &mut HashSet<Arc<T>>, form: &Arc<T>) -> Arc<T> {
    if let Some(known) = forms.get(form) {
        return Arc::clone(known);
    }
    forms.insert(Arc::clone(form));
    Arc::clone(form)
}

impl Shelf {
    /// Throws away what nobody uses, once there is twice as much as there was after the last time.
    fn sweep(&mut self) {
        if self.kinds.len() < self.full.max(FULL_MIN) {
            return;
        }
        self.kinds.retain(|kind| Arc::strong_count(kind) > 1);
        self.forms.retain(|form| Arc::strong_count(form) > 1);
        self.feeds.retain(|form| Arc::strong_count(form) > 1);
        self.full = self.kinds.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instant::Instant;
    use crate::trigger::Draft;

    fn definition(seconds: usize, host: &str) -> Definition {
        let draft = format!(
            r#"{{"name":"n","schedule":{{"every":"{seconds}s","phase":"0s"}},"webhook":{{"url":"http://{host}/"}}}}"#
        );
        let draft: Draft = serde_json::from_str(&draft).unwrap();
        draft.build(Instant(0)).unwrap()
    }

    #[test]
    fn equal_kinds_are_the_same_one_and_others_share_their_form() {
        let kinds = TriggerKinds::default();
        let one = kinds.of(ProjectId::DEFAULT, &definition(60, "a"));
        assert!(Arc::ptr_eq(&one, &kinds.of(ProjectId::DEFAULT, &definition(60, "a"))));
        let later = kinds.of(ProjectId::DEFAULT, &definition(61, "a"));
        assert!(!Arc::ptr_eq(&one, &later) && one.form.address() == later.form.address());
        assert!(!Arc::ptr_eq(&one, &kinds.of(ProjectId::DEFAULT, &definition(60, "b"))));
    }

    #[test]
    fn what_nobody_uses_is_thrown_away_and_what_is_used_stays() {
        let kinds = TriggerKinds::default();
        let kept: Vec<_> = (1..=10)
            .map(|seconds| kinds.of(ProjectId::DEFAULT, &definition(seconds, "a")))
            .collect();
        for number in 0..FULL_MIN * 3 {
            kinds.of(ProjectId::DEFAULT, &definition(100 + number, &format!("h{number}")));
        }
        let shelf = kinds.0.lock().unwrap();
        assert!(shelf.kinds.len() <= FULL_MIN && shelf.forms.len() <= FULL_MIN);
        assert!(kept.iter().all(|kind| shelf.kinds.contains(kind)));
    }
}

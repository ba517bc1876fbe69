//! What a queue keeps in the store: which keys, and what is in them.
//!
//! ```text
//! shard/<n>/queues/<serial>                               [`QueueRecord`]: its name, what it may, whether it is paused
//! shard/<n>/rate/<serial>                                 [`RateRecord`]: what was given within the last period
//! shard/<n>/queue/<serial>/<priority>/<due>/<sequence>    [`QueuedRecord`]: an unfinished run, in the order of claims
//! shard/<n>/body/<serial>/<priority>/<due>/<sequence>     [`BodyRecord`]: what it is about, if that is long
//! shard/<n>/claimed/<sequence>                            [`ClaimedRecord`](super::given::ClaimedRecord): runs that were given together
//! shard/<n>/given/<sequence>                              [`GivenRecord`](super::given::GivenRecord), once more became of it
//! shard/<n>/unique/<serial>/<hash>                        [`UniqueRecord`]: which run a unique key stands for
//! shard/<n>/dead/<serial>/<sequence>                      [`DeadRecord`](super::dead::DeadRecord), if it can be redriven
//! shard/<n>/output/<born>/<run>                           [`OutputRecord`](super::output::OutputRecord), kept with the past
//! name/<project>/queue/<name>                             [`QueueNameRecord`]: where a name leads
//! ```
//!
//! The record of a run is written once and deleted at its end, or, if it is dead, when it is redriven or kept no longer. Its key never changes, also when the run waits for
//! another attempt: so reading what is claimed next is one scan, and runs that are given together write one small record.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hash::hash;
use crate::id::{ProjectId, QueueId, RunId, SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::ACTION_INLINE_BYTES_MAX;
use crate::policy::{Delivery, Retry};
use crate::shard::record::Pause;

use super::backlog::ClaimOrder;
use super::given::GivenPolicy;
use super::pick::Pick;
use super::rate::{RateLimit, RateWindow};
use super::submitted::{NamedKey, RunDetails, RunPlace, SubmittedRun, TriggerSlot, UniqueKey};
use super::unfinished::QueueLimits;

/// A queue, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRecord {
    /// The queue's id.
    #[serde(with = "crate::id::text")]
    pub id: QueueId,
    /// Its name, unique in its project.
    pub name: Box<str>,
    /// What it may.
    #[serde(default, skip_serializing_if = "QueueSettings::is_default")]
    pub settings: QueueSettings,
    /// Since when, why and until when nothing of it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Since when its oldest run waits for longer than it may, if somebody was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Instant>,
    /// Since when runs that were submitted to it fail, if somebody was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Instant>,
    /// When it came to be.
    pub created: Instant,
    /// When its settings were written.
    pub written: Instant,
    /// Who wrote them.
    pub author: String,
    /// Which settings these are: 1, 2, …
    pub revision: u64,
}

/// What a queue may. What is none is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueSettings {
    /// So many of its runs execute at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// So many of its runs with the same key execute at a time; one, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_key: Option<u32>,
    /// So many of its runs are given in any period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateLimit>,
    /// So many of its runs may wait, if that is less than the store takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_max: Option<u32>,
    /// Somebody is told when a run that could be given waits for longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert_after_ms: Option<u64>,
    /// What becomes of runs whose worker hears from no server for its lease.
    #[serde(default, skip_serializing_if = "LeaseKind::is_loose")]
    pub lease: LeaseKind,
}

/// What becomes of runs whose worker hears from no server for its lease. A server judges silence the same for both, and waits
/// for a quarter longer than that: by then a worker that is told of a strict lease has ended them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseKind {
    /// They go on.
    #[default]
    Loose,
    /// Their worker ends them.
    Strict,
}

/// What was given of a queue within the last period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateRecord {
    /// When, and how much.
    pub given: RateWindow,
}

/// An unfinished run of a queue, as it was submitted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "QueuedFields")]
pub struct QueuedRecord {
    /// When it was submitted, or the slot that it is a run of.
    pub born: Instant,
    /// The trigger that it is a run of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerSlot>,
    /// If nobody was given it by then, nobody will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Instant>,
    /// Its concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// What keeps others like it from being taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueKey>,
    /// Its labels: `env=prod,team=billing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Box<str>>,
    /// By which rules it is given again. The usual ones are not written.
    #[serde(flatten, skip_serializing_if = "GivenPolicy::is_default")]
    pub policy: GivenPolicy,
    /// How long an attempt may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The dead run that it is carried out again for.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::id::text_option")]
    pub redriven_from: Option<RunId>,
    /// For how many workers it is.
    #[serde(default, skip_serializing_if = "Pick::is_any")]
    pub pick: Pick,
    /// What a worker is to do; none, if that has a record of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Box<RawValue>>,
}

/// The same, field by field: a million are read at a start, and fields that belong to something else are read slowly.
#[derive(Deserialize)]
struct QueuedFields {
    born: Instant,
    #[serde(default)]
    trigger: Option<TriggerSlot>,
    #[serde(default)]
    expires: Option<Instant>,
    #[serde(default)]
    key: Option<Box<str>>,
    #[serde(default)]
    unique: Option<UniqueKey>,
    #[serde(default)]
    labels: Option<Box<str>>,
    #[serde(default)]
    delivery: Delivery,
    #[serde(default)]
    retry: Retry,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default, with = "crate::id::text_option")]
    redriven_from: Option<RunId>,
    #[serde(default)]
    pick: Pick,
    #[serde(default)]
    action: Option<Box<RawValue>>,
}

impl From<QueuedFields> for QueuedRecord {
    fn from(read: QueuedFields) -> Self {
        Self {
            born: read.born,
            trigger: read.trigger,
            expires: read.expires,
            key: read.key,
            unique: read.unique,
            labels: read.labels,
            policy: GivenPolicy { delivery: read.delivery, retry: read.retry },
            timeout_ms: read.timeout_ms,
            redriven_from: read.redriven_from,
            pick: read.pick,
            action: read.action,
        }
    }
}

/// What a run is about, if that is long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BodyRecord {
    /// What a worker is to do.
    pub action: Box<RawValue>,
}

/// Which run a unique key stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UniqueRecord {
    /// The key's text.
    pub key: Box<str>,
    /// The number of the run.
    pub sequence: u64,
    /// When that was submitted.
    pub born: Instant,
    /// Until when the key counts; as long as the run is unfinished, if that is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
}

/// Where the name of a queue leads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueNameRecord {
    /// The queue's id.
    #[serde(with = "crate::id::text")]
    pub id: QueueId,
}

impl QueueRecord {
    /// How much of it may be given at a time, as it is now.
    pub fn limits(&self) -> QueueLimits {
        let QueueSettings { concurrency, per_key, rate, .. } = self.settings;
        let per_key = Some(per_key.unwrap_or(1));
        QueueLimits { is_paused: self.paused.is_some(), concurrency, per_key, rate }
    }
}

impl LeaseKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
    fn is_loose(&self) -> bool {
        *self == Self::Loose
    }
}

impl QueueSettings {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl QueuedRecord {
    /// What a shard remembers of it.
    pub fn submitted(&self, queue: SerialId, order: ClaimOrder) -> SubmittedRun {
        let details = RunDetails {
            expires: self.expires,
            trigger: self.trigger.clone(),
            key: self.key.as_deref().map(NamedKey::of),
            unique: self.unique.clone(),
            labels: self.labels.clone(),
            redriven_from: self.redriven_from,
        };
        let is_plain = details == RunDetails::default();
        SubmittedRun {
            queue,
            order,
            born: self.born,
            has_body: self.has_body(),
            policy: self.policy,
            role: self.pick.role(),
            details: (!is_plain).then(|| Arc::new(details)),
        }
    }

    /// Whether what it is about is so long that it has a record of its own.
    pub fn has_body(&self) -> bool {
        self.action.as_deref().is_none_or(is_long)
    }

    /// The same without what it is about.
    #[must_use]
    pub fn without_action(&self) -> Self {
        Self {
            trigger: self.trigger.clone(),
            key: self.key.clone(),
            unique: self.unique.clone(),
            labels: self.labels.clone(),
            action: None,
            ..*self
        }
    }
}

/// Whether what a run is about is so long that it has a record of its own.
pub(crate) fn is_long(action: &RawValue) -> bool {
    action.get().len() > ACTION_INLINE_BYTES_MAX
}

/// Where the queues of a shard are.
pub fn queues(shard: ShardId) -> String {
    format!("shard/{shard}/queues/")
}

/// Where a queue is.
pub fn queue_key(shard: ShardId, queue: SerialId) -> String {
    format!("shard/{shard}/queues/{queue}")
}

/// Where is kept what was given of queues within their last periods.
pub fn rates(shard: ShardId) -> String {
    format!("shard/{shard}/rate/")
}

/// Where is kept what was given of a queue within its last period.
pub fn rate_key(shard: ShardId, queue: SerialId) -> String {
    format!("shard/{shard}/rate/{queue}")
}

/// Where the unfinished runs of all queues of a shard are, in the order of claims within each queue.
pub fn queued(shard: ShardId) -> String {
    format!("shard/{shard}/queue/")
}

/// Where the unfinished runs of a queue are, in the order of claims.
pub fn queued_of(shard: ShardId, queue: SerialId) -> String {
    format!("shard/{shard}/queue/{queue}/")
}

/// Where an unfinished run is.
pub fn queued_key(shard: ShardId, place: &RunPlace) -> String {
    placed(shard, "queue", place)
}

/// Where is kept what a run is about, if that is long.
pub fn body_key(shard: ShardId, place: &RunPlace) -> String {
    placed(shard, "body", place)
}

/// Bytes of the longest key that a run of a queue has.
pub(crate) const RUN_KEY_BYTES_MAX: usize = 65;

fn placed(shard: ShardId, kind: &str, place: &RunPlace) -> String {
    let RunPlace { queue, order: ClaimOrder { priority, due, sequence }, .. } = place;
    let mut key = begun(shard, kind);
    write!(key, "{queue}").expect("a text takes everything");
    key.push('/');
    push_number(&mut key, (*priority).into(), 1);
    key.push('/');
    push_number(&mut key, due.0.max(0).unsigned_abs(), 15);
    key.push('/');
    push_number(&mut key, *sequence, 16);
    key
}

/// How the keys of such records of a shard begin, with room for the rest.
fn begun(shard: ShardId, kind: &str) -> String {
    let mut key = String::with_capacity(RUN_KEY_BYTES_MAX);
    key.push_str("shard/");
    push_number(&mut key, shard.0.into(), 1);
    key.push('/');
    key.push_str(kind);
    key.push('/');
    key
}

/// Adds a number with at least so many digits. Every run has some in its keys, and formatting them took longer.
fn push_number(key: &mut String, number: u64, digits: usize) {
    let mut text = [b'0'; 20];
    let (mut rest, mut from) = (number, text.len());
    while rest > 0 {
        from -= 1;
        text[from] = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    let text = &text[from.min(20 - digits)..];
    key.push_str(std::str::from_utf8(text).expect("digits"));
}

/// Which run of which queue the record under this key is, and its place in the order.
pub fn placed_at(shard: ShardId, key: &str) -> Option<(SerialId, ClaimOrder)> {
    let mut parts = key.strip_prefix(&queued(shard))?.split('/');
    let queue = parts.next()?.parse().ok()?;
    let priority = parts.next()?.parse().ok()?;
    let due = Instant(parts.next()?.parse().ok()?);
    let sequence = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((queue, ClaimOrder { priority, due, sequence }))
}

/// Where runs of a shard are that were given.
pub fn given(shard: ShardId) -> String {
    format!("shard/{shard}/given/")
}

/// Where a run is that was given.
pub fn given_key(shard: ShardId, sequence: u64) -> String {
    numbered(shard, "given", sequence)
}

/// Where runs of a shard are that were given together.
pub fn claimed(shard: ShardId) -> String {
    format!("shard/{shard}/claimed/")
}

/// Where runs are that were given together, by the first of them.
pub fn claimed_key(shard: ShardId, first: u64) -> String {
    numbered(shard, "claimed", first)
}

fn numbered(shard: ShardId, kind: &str, sequence: u64) -> String {
    let mut key = begun(shard, kind);
    push_number(&mut key, sequence, 16);
    key
}

/// Where the unique keys of a shard are.
pub fn uniques(shard: ShardId) -> String {
    format!("shard/{shard}/unique/")
}

/// Where a unique key is.
pub fn unique_key(shard: ShardId, queue: SerialId, key: &str) -> String {
    format!("shard/{shard}/unique/{queue}/{:016x}{:016x}", hash(key, "unique"), hash(key, "key"))
}

/// Where the names of the queues of a project are that begin so.
pub fn queue_name_key(project: ProjectId, name: &str) -> String {
    format!("name/{}/queue/{name}", project.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::pick::RunRole;
    use crate::queue::submitted::GivenPlace;
    use crate::record::{Format, decode, encode};

    #[test]
    fn keys_are_in_the_order_of_claims_and_say_where_a_run_is() {
        let place = |priority, due, sequence| RunPlace {
            queue: SerialId(7),
            order: ClaimOrder { priority, due: Instant(due), sequence },
            has_body: false,
            given: GivenPlace::Nowhere,
            role: RunRole::Plain,
        };
        let places =
            [place(0, 2_000, 9), place(1, 999, 3), place(1, 1_000, 1), place(1, 1_000, 12)];
        let keys = places.map(|place| queued_key(ShardId(3), &place));
        assert!(keys.is_sorted(), "{keys:?}");
        for (place, key) in places.iter().zip(&keys) {
            assert_eq!(placed_at(ShardId(3), key), Some((place.queue, place.order)));
        }
        assert_eq!(placed_at(ShardId(4), &keys[0]), None);
    }

    #[test]
    fn the_usual_rules_are_not_written_and_others_are() {
        let delivery = Delivery::AtMostOnce;
        for policy in [GivenPolicy::default(), GivenPolicy { delivery, ..GivenPolicy::default() }] {
            let text = r#"{"format":1,"born":"2027-03-28T01:00:00Z","key":"k","action":{}}"#;
            let record: QueuedRecord = decode(text.as_bytes(), Format(1)).unwrap();
            let bytes = encode(Format(1), &QueuedRecord { policy, ..record });
            assert_eq!(bytes == text.as_bytes(), policy == GivenPolicy::default());
            assert_eq!(decode::<QueuedRecord>(&bytes, Format(1)).unwrap().policy, policy);
        }
    }

    #[test]
    fn settings_without_a_lease_are_loose_and_are_written_as_they_were() {
        for (text, lease) in [
            (r#"{"concurrency":2}"#, LeaseKind::Loose),
            (r#"{"concurrency":2,"lease":"strict"}"#, LeaseKind::Strict),
        ] {
            let settings: QueueSettings = serde_json::from_str(text).unwrap();
            assert_eq!((settings.concurrency, settings.lease), (Some(2), lease));
            assert_eq!(serde_json::to_string(&settings).unwrap(), text);
        }
    }

    #[test]
    fn what_is_long_has_a_record_of_its_own() {
        let record = |len: usize| QueuedRecord {
            born: Instant(5),
            trigger: None,
            expires: None,
            key: Some("k".into()),
            unique: None,
            labels: None,
            policy: GivenPolicy::default(),
            timeout_ms: None,
            redriven_from: None,
            pick: Pick::Any,
            action: RawValue::from_string(format!("\"{}\"", "x".repeat(len - 2))).ok(),
        };
        assert!(!record(ACTION_INLINE_BYTES_MAX).has_body());
        let long = record(ACTION_INLINE_BYTES_MAX + 1);
        assert!(long.has_body() && long.without_action().has_body());
        let order = ClaimOrder { priority: 1, due: Instant(5), sequence: 2 };
        let submitted = long.without_action().submitted(SerialId(7), order);
        assert!(submitted.has_body && submitted.details.is_some_and(|it| it.key.is_some()));
    }
}

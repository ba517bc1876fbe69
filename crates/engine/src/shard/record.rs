//! What a shard keeps in the store: which keys, and what is in them.
//!
//! ```text
//! shard/<n>/head                  a claim's head; its body is [`HeadRecord`]
//! shard/<n>/trigger/<serial>      [`TriggerRecord`]: what the user wrote, and how it began
//! shard/<n>/moved/<serial>        [`TriggerState`]: what changed since, if anything has
//! shard/<n>/run/<sequence>        [`RunRecord`]: a run that is not finished, and is not in the head
//! shard/<n>/report/<sequence>.<attempt> [`ReportRecord`]: what came of an attempt that a former owner made
//! shard/<n>/stopped/<project>     [`StoppedRecord`]: a project that is disabled, or not up to date again
//! shard/<n>/lag/<origin>          [`LagRecord`]: a host that cannot keep up
//! shard/<n>/past/<reverse number> a batch of finished runs and skipped slots: [`crate::past`]
//! shard/<n>/page/…               what these were merged into: [`crate::past::page`]
//! shard/<n>/odd/…, oddpage/…     the exceptions among them, once more: [`crate::past::exception`]
//! shard/<n>/floor/…              from when on the past is complete: [`crate::past::floor`]
//! shard/<n>/reserved/<project>/<name> [`ReservedName`]: a name that is kept for a trigger of another shard
//! name/<project>/trigger/<name>   [`NameRecord`]: where a name leads
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::id::{Birth, ProjectId, RunId, SerialId, ShardId, TriggerId};
use crate::instant::Instant;
use crate::notice::Occasion;
use crate::outcome::Outcome;
use crate::past::Attempt;
use crate::policy::Policy;
use crate::record::Format;
use crate::target::Target;

/// The format of all of these. A reader of format 2 takes dead runs, and runs that workers have, for waiting ones, and slots
/// that a host lags behind with for decided: it passes over their records, so the format of the head, which it reads, keeps it
/// out (`SHARD_HEAD` of the crate `store`).
pub const FORMAT: Format = Format(3);

/// The mark and the open runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadRecord {
    /// Every slot that leaves at or before this is decided. The stored text is older than the name, and stays.
    #[serde(rename = "fired")]
    pub decided_through: Mark,
    /// Runs that were launched and are not recorded, as `<serial>@<slot>`.
    pub open: Vec<OpenRun>,
    /// The last sequence number given to a run.
    pub sequence: u64,
    /// The last serial given to a trigger, which may be gone.
    #[serde(with = "crate::id::text")]
    pub youngest: SerialId,
}

impl Default for HeadRecord {
    fn default() -> Self {
        Self {
            decided_through: Mark::default(),
            open: Vec::new(),
            sequence: 0,
            youngest: SerialId(0),
        }
    }
}

/// A place in the order in which slots leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark(pub Instant, #[serde(with = "crate::id::text")] pub SerialId);

impl Default for Mark {
    fn default() -> Self {
        Self(Instant(0), SerialId(0))
    }
}

/// A slot of a trigger that was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenRun {
    /// The trigger that was launched.
    pub trigger: SerialId,
    /// The slot for which it was launched.
    pub slot: Instant,
}

/// What the user wrote, and how it began.
#[derive(Clone, Serialize, Deserialize)]
pub struct TriggerRecord {
    /// The trigger's id.
    #[serde(with = "crate::id::text")]
    pub id: TriggerId,
    /// What the user wrote.
    pub draft: Box<RawValue>,
    /// When it was first made.
    pub created: Instant,
    /// When this text was written, and by whom.
    pub written: Instant,
    /// Who wrote this text.
    pub author: String,
    /// Which text this is: 1, 2, …
    pub revision: u64,
    /// Which schedule this is: 1, 2, …
    pub generation: u32,
    /// From when on this schedule counts; the cursor, until something moves.
    pub since: Instant,
}

impl fmt::Debug for TriggerRecord {
    /// Without what the user wrote: it may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, revision, generation, since, .. } = self;
        write!(out, "{id}, revision {revision}, generation {generation} since {since}")
    }
}

impl TriggerRecord {
    /// Its name, as the user wrote it or the server made it up: where [`NameRecord`] leads from.
    pub fn name(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        serde_json::from_str::<Named>(self.draft.get()).ok().map(|named| named.name)
    }
}

/// What changed of a trigger since it was written. Written whole; absent as long as nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TriggerState {
    /// Every slot at or before this is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Instant>,
    /// So many runs are left, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// So many runs failed in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Since when, why and until when nothing fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// It will never fire again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Instant>,
    /// A run that was ended may still be at work at its receiver: whoever takes over holds the next one back
    /// for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(alias = "held_ms")]
    pub busy_elsewhere_ms: Option<u32>,
    /// How far the last requests for slots of the past have come, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backfills: Vec<BackfillMemo>,
    /// Somebody was told that its runs fail, or would be told that they succeed again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failing: bool,
    /// Somebody was told that there was no success for too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
    /// Whose turn it was last, of the workers of its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Box<str>>,
    /// Since when there was no success, if that is watched: since the last one, or since it was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub well: Option<Instant>,
}

impl TriggerState {
    /// Whose turn it was last; nobody's, if that is empty.
    pub fn position(&self) -> &str {
        self.position.as_deref().unwrap_or_default()
    }
}

/// How far a request for slots of the past has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillMemo {
    /// What its asker called it.
    pub request: String,
    /// Every slot from this on...
    pub from: Instant,
    /// ...and before this has its run.
    pub until: Instant,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why and for how long a trigger is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Slots after this do not fire.
    pub since: Instant,
    /// It resumes by itself then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
    /// Who paused it.
    pub author: String,
    /// The reason that its author gave.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A run that is not finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The project of its trigger.
    #[serde(default, skip_serializing_if = "ProjectId::is_default")]
    pub project: ProjectId,
    /// The trigger that it is a run of.
    #[serde(with = "crate::id::text")]
    pub trigger: SerialId,
    /// Its trigger's name, which may be gone.
    pub name: String,
    /// The slot, or the instant of the demand.
    pub slot: Instant,
    /// When it was to leave. The stored text is older than the name, and stays.
    #[serde(rename = "leaves")]
    pub leaves_at: Instant,
    /// By which generation of the schedule; none for a run on demand and for a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Where it is.
    pub state: RunState,
    /// How many attempts were begun.
    pub attempt: u32,
    /// Attempts that failed and count against those that the user granted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// Since when it cannot even be tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untried_since: Option<Instant>,
    /// What it tells somebody of, if it is a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Occasion>,
    /// Where it goes. Runs of a trigger share it.
    #[serde(flatten)]
    pub target: Arc<Target>,
    /// By which rules.
    pub policy: Policy,
    /// What came of the attempts so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Who makes the attempt that is under way, if that is not the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(alias = "abroad")]
    pub remote: Option<RemoteAttempt>,
    /// The dead run of a queue that it is carried out again for.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::id::text_option")]
    pub redriven_from: Option<RunId>,
}

/// An attempt that is under way at a former owner of the shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteAttempt {
    /// The session that makes it, by its key.
    pub sender: Box<str>,
    /// It may take so much longer. Never an instant: clocks are apart.
    pub left_ms: u32,
}

/// What came of an attempt that a former owner made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRecord {
    /// The session that made it, by its key.
    pub sender: Box<str>,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// When it left, how long it took, what was said.
    pub made: Attempt,
}

/// The lane of notices.
const NOBODY: SerialId = SerialId(0);

/// A project that is disabled, or was and is not up to date again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedRecord {
    /// For its triggers the mark stands still here.
    pub since: Mark,
    /// When it was enabled again. A trigger whose cursor is there is up to date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<Instant>,
}

/// A host that cannot keep up: its triggers have a mark of their own, behind the shard's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LagRecord {
    /// Since when it cannot.
    pub since: Instant,
    /// The mark of the shard when that began.
    pub from: Mark,
    /// Every slot of its triggers that leaves at or before this is decided.
    pub mark: Mark,
}

/// Where a run that is not finished is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It has not left; no sooner than this.
    Waiting(Instant),
    /// It waits for another run of its trigger to end.
    #[serde(alias = "queued")]
    Blocked,
    /// An attempt failed, and the next is due then.
    Backoff(Instant),
    /// An attempt is under way, and may have left.
    Running,
}

/// A name that is kept for a trigger of another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedName {
    /// Where the trigger lives, or will.
    pub shard: ShardId,
    /// When it was reserved.
    pub at: Instant,
}

/// Where a name leads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NameRecord {
    /// The trigger's id.
    #[serde(with = "crate::id::text")]
    pub id: TriggerId,
}

impl RunRecord {
    /// The run's id.
    pub fn id(&self, shard: ShardId, sequence: u64, cluster: u64) -> RunId {
        let letters = self.birth(sequence).letters(cluster);
        RunId { shard, trigger: self.trigger, slot: self.slot, letters }
    }

    /// Runs of a lane may have to wait for each other: those of a trigger. A notice waits for nobody.
    pub(super) fn lane(&self) -> SerialId {
        if self.notice.is_some() { NOBODY } else { self.trigger }
    }

    /// Whether it is a run of a slot or on demand.
    pub fn birth(&self, sequence: u64) -> Birth {
        self.generation.map_or(Birth::Demand(sequence), Birth::Slot)
    }
}

/// Where the claim of a shard is.
pub fn head_key(shard: ShardId) -> String {
    format!("shard/{shard}/head")
}

/// Where triggers of a shard are.
pub fn triggers(shard: ShardId) -> String {
    format!("shard/{shard}/trigger/")
}

/// Where the states of triggers are. The stored text `moved/` is older than the name, and stays.
pub fn states(shard: ShardId) -> String {
    format!("shard/{shard}/moved/")
}

/// Where runs of a shard are.
pub fn runs(shard: ShardId) -> String {
    format!("shard/{shard}/run/")
}

/// Where projects of a shard are that are disabled.
pub fn stopped(shard: ShardId) -> String {
    format!("shard/{shard}/stopped/")
}

/// Where a project is that is disabled.
pub fn stopped_key(shard: ShardId, project: ProjectId) -> String {
    format!("shard/{shard}/stopped/{}", project.0)
}

/// Where the names are that a shard keeps for triggers of others.
pub fn reserved(shard: ShardId) -> String {
    format!("shard/{shard}/reserved/")
}

/// Where a name is that a shard keeps for a trigger of another.
pub fn reserved_key(shard: ShardId, project: ProjectId, name: &str) -> String {
    format!("shard/{shard}/reserved/{}/{name}", project.0)
}

/// Which name of which project the record under this key keeps.
pub fn reserved_at(shard: ShardId, key: &str) -> Option<(ProjectId, &str)> {
    let (project, name) = key.strip_prefix(&reserved(shard))?.split_once('/')?;
    Some((ProjectId(project.parse().ok()?), name))
}

/// Where the past of a shard is, newest first.
pub fn past(shard: ShardId) -> String {
    format!("shard/{shard}/past/")
}

/// Where a trigger is.
pub fn trigger_key(shard: ShardId, serial: SerialId) -> String {
    format!("shard/{shard}/trigger/{serial}")
}

/// Where the state of a trigger is.
pub fn state_key(shard: ShardId, serial: SerialId) -> String {
    format!("shard/{shard}/moved/{serial}")
}

/// Where a run is.
pub fn run_key(shard: ShardId, sequence: u64) -> String {
    format!("shard/{shard}/run/{sequence:016}")
}

/// Where hosts of a shard are that cannot keep up.
pub fn lags(shard: ShardId) -> String {
    format!("shard/{shard}/lag/")
}

/// Where the host with this origin is, while it cannot keep up.
pub fn lag_key(shard: ShardId, origin: u64) -> String {
    format!("shard/{shard}/lag/{origin:016x}")
}

/// Which host the record under this key is about.
pub fn lag_of(shard: ShardId, key: &str) -> Option<u64> {
    let origin = u64::from_str_radix(key.strip_prefix(&lags(shard))?, 16).ok()?;
    (lag_key(shard, origin) == key).then_some(origin)
}

/// Where reports of former owners are.
pub fn reports(shard: ShardId) -> String {
    format!("shard/{shard}/report/")
}

/// Where the report of an attempt is.
pub fn report_key(shard: ShardId, sequence: u64, attempt: u32) -> String {
    format!("shard/{shard}/report/{sequence:016}.{attempt}")
}

/// Which run the report under this key is about, and which of its attempts.
pub fn report_of(shard: ShardId, key: &str) -> Option<(u64, u32)> {
    let (sequence, attempt) = key.strip_prefix(&reports(shard))?.split_once('.')?;
    let (sequence, attempt) = (sequence.parse().ok()?, attempt.parse().ok()?);
    (report_key(shard, sequence, attempt) == key).then_some((sequence, attempt))
}

/// Where the past of a commit of the chain is.
pub fn past_key(shard: ShardId, number: u64) -> String {
    format!("shard/{shard}/past/{:016x}", u64::MAX - number)
}

/// Which commit of the chain the past under this key is of.
pub fn past_number(shard: ShardId, key: &str) -> Option<u64> {
    let digits = key.strip_prefix(&past(shard))?;
    let number = u64::MAX - u64::from_str_radix(digits, 16).ok()?;
    (past_key(shard, number) == key).then_some(number)
}

/// Where a name is.
pub fn name_key(project: ProjectId, name: &str) -> String {
    format!("name/{}/trigger/{name}", project.0)
}

impl Serialize for OpenRun {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{}@{}", self.trigger, self.slot.0))
    }
}

impl<'de> Deserialize<'de> for OpenRun {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let parts = text.split_once('@');
        let run = parts.and_then(|(trigger, slot)| {
            Some(Self { trigger: trigger.parse().ok()?, slot: Instant(slot.parse().ok()?) })
        });
        run.ok_or_else(|| serde::de::Error::custom(format!("{text:?} names no run")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_run_keeps_its_target_under_the_name_of_its_kind() {
        let webhook = r#""webhook":{"form":{"scheme":"http","host":"a","port":80,"method":"POST","headers":[],"timeout_ms":9},"path":"/","body":null}"#;
        let (policy, at) = (serde_json::to_string(&Policy::default()).unwrap(), Instant(0));
        let text = format!(
            r#"{{"trigger":"{}","name":"n","slot":"{at}","leaves":"{at}","state":"running","attempt":1,{webhook},"policy":{policy}}}"#,
            SerialId(1)
        );
        let run: RunRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(run.target.timeout_ms(), 9);
        assert_eq!(serde_json::to_string(&run).unwrap(), text);
    }

    #[test]
    fn a_host_that_lags_is_found_by_its_origin() {
        let key = lag_key(ShardId(3), 0xab);
        assert_eq!(key, "shard/3/lag/00000000000000ab");
        assert_eq!(lag_of(ShardId(3), &key), Some(0xab));
        for other in
            ["shard/4/lag/00000000000000ab", "shard/3/lag/ab", "shard/3/lag/+0000000000000ab"]
        {
            assert_eq!(lag_of(ShardId(3), other), None, "{other}");
        }
    }

    #[test]
    fn a_report_is_found_by_the_run_and_the_attempt_that_it_is_about() {
        let key = report_key(ShardId(3), 17, 2);
        assert_eq!(key, "shard/3/report/0000000000000017.2");
        assert_eq!(report_of(ShardId(3), &key), Some((17, 2)));
        for other in [
            "shard/4/report/0000000000000017.2",
            "shard/3/report/17.2",
            "shard/3/report/0000000000000017.02",
            "shard/3/report/0000000000000017",
            "shard/3/run/0000000000000017.2",
        ] {
            assert_eq!(report_of(ShardId(3), other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_key_is_a_report_or_none(sequence in any::<u64>(), attempt in any::<u32>(), text in "\\PC{0,40}") {
            let key = report_key(ShardId(3), sequence, attempt);
            prop_assert_eq!(report_of(ShardId(3), &key), Some((sequence, attempt)));
            let _ = report_of(ShardId(3), &format!("shard/3/report/{text}"));
        }
    }
}

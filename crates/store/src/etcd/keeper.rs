//! Housekeeping: what state etcd is in, and compaction.
//!
//! Every renewal of a session is a revision, and etcd keeps all of them until somebody compacts: its quota is
//! full within hours. So every process notes from time to time which revision is the present one, and compacts
//! up to what it noted an hour ago. Several do the same without harm.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use etcd_client::{GetOptions, StatusResponse};
use tokio::time::{Instant, sleep, timeout};

use super::call::Reach;
use super::failure::Failure;
use super::question::{Compact, Look};
use crate::Class;

/// How often the state is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Revisions that are noted in the time that history is kept.
const NOTES_MAX: u32 = 12;

/// Members from which on the loss of one loses nothing.
const QUORUM_MEMBERS_MIN: usize = 3;

/// What is known of the engine.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) version: String,
    pub(super) voters: usize,
    pub(super) size_bytes: u64,
    /// What it says itself (3.6 and later), or its URL.
    pub(super) quota_bytes: Option<u64>,
    pub(super) alarm: Option<String>,
}

impl State {
    /// Reads what a member says of itself.
    pub(super) fn note(&mut self, status: &StatusResponse) {
        status.version().clone_into(&mut self.version);
        self.size_bytes = u64::try_from(status.db_size()).unwrap_or_default();
        if let Some(quota) = u64::try_from(status.db_size_quota()).ok().filter(|quota| *quota > 0) {
            self.quota_bytes = Some(quota);
        }
        self.alarm = alarm_of(status);
    }

    pub(super) fn class(&self) -> Class {
        if self.voters >= QUORUM_MEMBERS_MIN { Class::A } else { Class::S }
    }

    /// From four fifths of the quota on there is something to do.
    fn is_nearly_full(&self) -> bool {
        self.quota_bytes.is_some_and(|quota| self.size_bytes >= quota / 5 * 4)
    }
}

/// `NOSPACE` or `CORRUPT`, if a member has raised one.
pub(super) fn alarm_of(status: &StatusResponse) -> Option<String> {
    let errors = status.errors();
    ["CORRUPT", "NOSPACE"]
        .into_iter()
        .find(|name| errors.iter().any(|error| error.contains(name)))
        .map(str::to_owned)
}

/// What is known, shared.
#[derive(Debug)]
pub(super) struct Knowledge {
    state: Mutex<State>,
    compact: Option<Duration>,
}

impl Knowledge {
    pub(super) fn new(state: State, compact: Option<Duration>) -> Self {
        Self { state: Mutex::new(state), compact }
    }

    pub(super) fn class(&self) -> Class {
        self.lock().class()
    }

    /// For people.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let state = self.lock().clone();
        let quota = match state.quota_bytes {
            Some(bytes) => format!("{bytes} bytes"),
            None => "not told: etcd before 3.6 does not say, and has 2 GiB unless \
                     --quota-backend-bytes was given; quota=BYTES in the URL gives a warning in time"
                .to_owned(),
        };
        let compaction = match self.compact {
            Some(age) => format!("what is older than {} s", age.as_secs()),
            None => "off: somebody else must compact, or the quota will be full".to_owned(),
        };
        let mut facts = vec![
            ("etcd", format!("{}, voting members: {}", state.version, state.voters)),
            ("database", format!("{} bytes", state.size_bytes)),
            ("quota", quota),
            ("compaction", compaction),
        ];
        facts.extend(state.alarm.map(|alarm| ("alarm", alarm)));
        facts
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps house for ever.
pub(super) async fn keep(reach: Arc<Reach>, knowledge: Arc<Knowledge>) {
    let looking = async {
        loop {
            sleep(LOOK_EVERY).await;
            look(&reach, &knowledge).await;
        }
    };
    let compacting = async {
        let Some(age) = knowledge.compact else { return };
        let mut notes = Notes::default();
        loop {
            compact(&reach, &mut notes, age).await;
            sleep(age / NOTES_MAX).await;
        }
    };
    tokio::join!(looking, compacting);
}

async fn look(reach: &Reach, knowledge: &Knowledge) {
    let Ok(line) = reach.seats.take(Instant::now() + STORE_ANSWER_MAX).await else { return };
    let asked = timeout(STORE_ANSWER_MAX, async {
        let status = line.client.maintenance_client().status().await;
        (status, line.client.cluster_client().member_list().await)
    });
    let Ok((status, members)) = asked.await else { return };
    let mut state = knowledge.lock();
    if let Ok(status) = status {
        state.note(&status);
    }
    if let Ok(members) = members {
        state.voters = members.members().iter().filter(|member| !member.is_learner()).count();
    }
    if state.is_nearly_full() {
        let State { size_bytes, quota_bytes, .. } = *state;
        tracing::warn!(size_bytes, quota_bytes, "the database of etcd nears its quota");
    }
}

/// Notes the present revision, and compacts up to the one that was noted `age` ago.
async fn compact(reach: &Reach, notes: &mut Notes, age: Duration) {
    let look = Look(reach.space.tick(), GetOptions::new().with_count_only());
    if reach.call(look).await.is_err() {
        return;
    }
    let Some(revision) = notes.note(reach.eras.revision(), Instant::now(), age) else { return };
    match reach.call(Compact(revision)).await {
        Ok(_) => tracing::debug!(revision, "compacted the history of etcd"),
        // Somebody else was faster.
        Err(Failure::Refused(why)) if why.contains("compacted") => {}
        Err(why) => tracing::warn!(?why, "the history of etcd could not be compacted"),
    }
}

/// Which revision was the present one, and when.
#[derive(Debug, Default)]
struct Notes(VecDeque<(Instant, i64)>);

impl Notes {
    /// Notes a revision; returns the one that was the present one at least `age` ago, once.
    fn note(&mut self, revision: i64, now: Instant, age: Duration) -> Option<i64> {
        // After a restore, what was noted before means nothing.
        self.0.retain(|(_, noted)| *noted <= revision);
        self.0.push_back((now, revision));
        let mut old = None;
        while let Some((at, revision)) = self.0.front()
            && now.duration_since(*at) >= age
        {
            old = Some(*revision);
            self.0.pop_front();
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_the_present_an_hour_ago_is_compacted_once() {
        let hour = Duration::from_secs(3_600);
        let begin = Instant::now();
        let mut notes = Notes::default();
        assert_eq!(notes.note(10, begin, hour), None);
        assert_eq!(notes.note(20, begin + hour / 2, hour), None);
        assert_eq!(notes.note(30, begin + hour, hour), Some(10));
        assert_eq!(notes.note(40, begin + hour, hour), None);
        assert_eq!(notes.note(50, begin + hour * 3, hour), Some(40));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_noted_before_a_restore_is_forgotten() {
        let hour = Duration::from_secs(3_600);
        let begin = Instant::now();
        let mut notes = Notes::default();
        notes.note(10, begin, hour);
        notes.note(100, begin + hour / 2, hour);
        assert_eq!(notes.note(50, begin + hour, hour), Some(10));
        assert_eq!(notes.note(60, begin + hour * 3 / 2, hour), None, "100 is of a former time");
    }

    #[test]
    fn three_voters_survive_the_loss_of_one() {
        let class = |voters| State { voters, ..State::default() }.class();
        assert_eq!([1, 2, 3, 5].map(class), [Class::S, Class::S, Class::A, Class::A]);
    }
}

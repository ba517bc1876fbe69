//! Compaction of etcd's history, and what is known of its state.
//!
//! Every renewal of a session is a revision, and etcd keeps all of them until somebody compacts: its quota is
//! full within hours. So every process notes from time to time which revision is the present one, and compacts
//! up to what it noted an hour ago.
//!
//! An hour of many fires is more than the quota. So from a quarter of it on, whenever a sixteenth has come on top
//! of the least that was in use, history is cut down to some seconds. It is not done all the time: what is kept
//! for good may be more than a quarter, and etcd goes through all keys to compact. Several processes do the same
//! without harm.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use etcd_client::{GetOptions, StatusResponse};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::call::EtcdHandle;
use super::failure::EtcdFailure;
use super::request::{Compaction, RangeRead};
use crate::Class;

/// How often the state is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How old history becomes while there is too much: longer than a scan takes, which reads at one revision.
const PRESSED_AGE: Duration = Duration::from_secs(10);

/// Then it is cut at multiples of so many revisions: all processes at the same ones, so that it is done once.
const PRESSED_STEP: i64 = 1_024;

/// The step where etcd does not tell this user how much is in use.
const UNTOLD_STEP: i64 = 8 * PRESSED_STEP;

/// What etcd has room for if nobody says otherwise.
const USUAL_QUOTA: u64 = 2 * 1024 * 1024 * 1024;

/// Revisions that are noted in the time that history is kept.
const NOTES_MAX: u32 = 12;

/// Members from which on the loss of one loses nothing.
const QUORUM_MEMBERS_MIN: usize = 3;

/// What is known of the etcd.
#[derive(Debug, Clone, Default)]
pub(super) struct EtcdStatus {
    pub(super) version: String,
    pub(super) voters: usize,
    /// None where this user is not told.
    size: Option<Size>,
    /// What it says itself (3.6 and later), or its URL.
    pub(super) quota_bytes: Option<u64>,
    pub(super) alarm: Option<String>,
}

/// How large a database is, in bytes.
#[derive(Debug, Clone, Copy)]
struct Size {
    file: u64,
    /// Without what is free inside of the file.
    used: u64,
}

impl EtcdStatus {
    /// Reads what a member says of itself.
    pub(super) fn note(&mut self, status: &StatusResponse) {
        status.version().clone_into(&mut self.version);
        let file = u64::try_from(status.db_size()).unwrap_or_default();
        let used = u64::try_from(status.raft_used_db_size()).unwrap_or_default();
        // One that does not tell what is in use says nothing there.
        self.size = Some(Size { file, used: if used == 0 { file } else { used } });
        if let Some(quota) = u64::try_from(status.db_size_quota()).ok().filter(|quota| *quota > 0) {
            self.quota_bytes = Some(quota);
        }
        self.alarm = alarm_of(status);
    }

    pub(super) fn class(&self) -> Class {
        if self.voters >= QUORUM_MEMBERS_MIN { Class::A } else { Class::S }
    }

    /// What it has room for, as far as is known.
    fn room(&self) -> u64 {
        self.quota_bytes.unwrap_or(USUAL_QUOTA)
    }

    /// From four fifths of its room on there is something to do for people.
    fn is_nearly_full(&self) -> bool {
        self.size.is_some_and(|size| size.file >= self.room() / 5 * 4)
    }
}

/// Whether history is to be cut short.
#[derive(Debug, Default)]
struct Pressure {
    /// The least that was in use since it was cut last.
    least: u64,
}

impl Pressure {
    /// In which steps to cut, if at all.
    fn step(&mut self, size: Option<Size>, room: u64) -> Option<i64> {
        let Some(Size { used, .. }) = size else { return Some(UNTOLD_STEP) };
        self.least = self.least.min(used);
        (used >= room / 4 && used - self.least >= room / 16).then_some(PRESSED_STEP)
    }

    /// History was cut: less is in use from now on.
    fn relieve(&mut self, size: Option<Size>) {
        self.least = size.map_or(0, |size| size.used);
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

/// What is known of the etcd, for all who ask.
#[derive(Debug)]
pub(super) struct SharedStatus {
    state: Mutex<EtcdStatus>,
    compact: Option<Duration>,
}

impl SharedStatus {
    pub(super) fn new(state: EtcdStatus, compact: Option<Duration>) -> Self {
        Self { state: Mutex::new(state), compact }
    }

    pub(super) fn class(&self) -> Class {
        self.state.lock().class()
    }

    pub(super) fn room(&self) -> u64 {
        self.state.lock().room()
    }

    /// The facts that are shown to people.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let state = self.state.lock().clone();
        let database = match state.size {
            Some(Size { file, used }) => format!("{file} bytes, {used} of them in use"),
            None => "not told to this user".to_owned(),
        };
        let quota = match state.quota_bytes {
            Some(bytes) => format!("{bytes} bytes"),
            None => "not told, as by etcd before 3.6: 2 GiB are assumed; if \
                     --quota-backend-bytes was given, write quota=BYTES in the URL"
                .to_owned(),
        };
        let compaction = match self.compact {
            Some(age) => format!(
                "what is older than {} s; less is kept if a quarter of the quota is in use",
                age.as_secs()
            ),
            None => "off: somebody else must compact, or the quota will be full".to_owned(),
        };
        let mut facts = vec![
            ("etcd", format!("{}, voting members: {}", state.version, state.voters)),
            ("database", database),
            ("quota", quota),
            ("compaction", compaction),
        ];
        facts.extend(state.alarm.map(|alarm| ("alarm", alarm)));
        facts
    }
}

/// Looks at the state of etcd and compacts its history, for as long as the store is open.
pub(super) async fn keep(etcd: Arc<EtcdHandle>, status: Arc<SharedStatus>) {
    let looking = async {
        let mut house = House {
            is_warned: false,
            pressure: Pressure::default(),
            notes: RevisionNotes::default(),
        };
        loop {
            sleep(LOOK_EVERY).await;
            look(&etcd, &status).await;
            let state = status.state.lock().clone();
            house.warn(&state);
            if let Some(age) = status.compact {
                house.relieve(&etcd, &state, age).await;
            }
        }
    };
    let compacting = async {
        let Some(age) = status.compact else { return };
        let mut notes = RevisionNotes::default();
        loop {
            compact(&etcd, &mut notes, age, 1).await;
            sleep(age / NOTES_MAX).await;
        }
    };
    tokio::join!(looking, compacting);
}

/// What is remembered between two looks.
struct House {
    is_warned: bool,
    pressure: Pressure,
    notes: RevisionNotes,
}

impl House {
    /// Warns once when the database nears its quota.
    fn warn(&mut self, state: &EtcdStatus) {
        let was_warned = std::mem::replace(&mut self.is_warned, state.is_nearly_full());
        let Some(Size { file, used }) = state.size.filter(|_| self.is_warned && !was_warned) else {
            return;
        };
        tracing::warn!(
            size_bytes = file,
            used_bytes = used,
            quota_bytes = state.room(),
            is_quota_told = state.quota_bytes.is_some(),
            "the database of etcd nears its quota: raise that, or let etcdctl defrag give back what is not in use"
        );
    }

    /// Cuts history short, if there is too much.
    async fn relieve(&mut self, etcd: &EtcdHandle, state: &EtcdStatus, age: Duration) {
        match self.pressure.step(state.size, state.room()) {
            Some(step) => {
                if compact(etcd, &mut self.notes, age.min(PRESSED_AGE), step).await {
                    self.pressure.relieve(state.size);
                }
            }
            None => self.notes = RevisionNotes::default(),
        }
    }
}

async fn look(etcd: &EtcdHandle, shared: &SharedStatus) {
    let Ok(connection) = etcd.members.take(Instant::now() + STORE_ANSWER_MAX).await else { return };
    let asked = timeout(STORE_ANSWER_MAX, async {
        let status = connection.client.maintenance_client().status().await;
        (status, connection.client.cluster_client().member_list().await)
    });
    let Ok((status, members)) = asked.await else { return };
    let mut state = shared.state.lock();
    if let Ok(status) = status {
        state.note(&status);
    }
    if let Ok(members) = members {
        state.voters = members.members().iter().filter(|member| !member.is_learner()).count();
    }
}

/// Notes the present revision, and compacts up to the one that was noted `age` ago, in steps. Returns whether it did.
async fn compact(etcd: &EtcdHandle, notes: &mut RevisionNotes, age: Duration, step: i64) -> bool {
    let look = RangeRead(etcd.space.tick(), GetOptions::new().with_count_only());
    if etcd.call(look).await.is_err() {
        return false;
    }
    let present = etcd.epochs.revision();
    let Some(revision) = notes.note(present, Instant::now(), age, step) else { return false };
    match etcd.call(Compaction(revision)).await {
        Ok(_) => tracing::debug!(revision, "compacted the history of etcd"),
        // Somebody else was faster.
        Err(EtcdFailure::Refused(why)) if why.contains("compacted") => {}
        Err(why) => {
            tracing::warn!(?why, "the history of etcd could not be compacted: trying again");
            return false;
        }
    }
    notes.gone = revision;
    true
}

/// Which revision was the present one, and when.
#[derive(Debug, Default)]
struct RevisionNotes {
    noted: VecDeque<(Instant, i64)>,
    /// Up to where history may go, and has gone.
    due: i64,
    gone: i64,
}

impl RevisionNotes {
    /// Notes a revision; returns the one that was the present one at least `age` ago, or the last multiple of `step`
    /// up to it, until history has gone up to there.
    fn note(&mut self, revision: i64, now: Instant, age: Duration, step: i64) -> Option<i64> {
        // After a restore, what was noted before means nothing.
        self.noted.retain(|(_, noted)| *noted <= revision);
        if self.due > revision {
            (self.due, self.gone) = (0, 0);
        }
        self.noted.push_back((now, revision));
        while let Some((at, revision)) = self.noted.front()
            && now.duration_since(*at) >= age
        {
            self.due = self.due.max(revision - revision % step);
            self.noted.pop_front();
        }
        (self.due > self.gone).then_some(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RevisionNotes {
        /// Notes a revision, and history goes up to where it may.
        fn cut(&mut self, revision: i64, now: Instant, age: Duration, step: i64) -> Option<i64> {
            let due = self.note(revision, now, age, step);
            self.gone = due.unwrap_or(self.gone);
            due
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_the_present_an_hour_ago_is_compacted_once() {
        let hour = Duration::from_secs(3_600);
        let begin = Instant::now();
        let mut notes = RevisionNotes::default();
        assert_eq!(notes.cut(10, begin, hour, 1), None);
        assert_eq!(notes.cut(20, begin + hour / 2, hour, 1), None);
        assert_eq!(notes.cut(30, begin + hour, hour, 1), Some(10));
        assert_eq!(notes.cut(40, begin + hour, hour, 1), None);
        assert_eq!(notes.cut(50, begin + hour * 3, hour, 1), Some(40));
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_compacted_is_tried_again() {
        let (hour, begin) = (Duration::from_secs(3_600), Instant::now());
        let mut notes = RevisionNotes::default();
        assert_eq!(notes.note(10, begin, hour, 1), None);
        assert_eq!(notes.note(30, begin + hour, hour, 1), Some(10));
        assert_eq!(notes.note(40, begin + hour, hour, 1), Some(10));
        assert_eq!(notes.cut(50, begin + hour * 2, hour, 1), Some(40));
        assert_eq!(notes.note(50, begin + hour * 2, hour, 1), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_noted_before_a_restore_is_forgotten() {
        let hour = Duration::from_secs(3_600);
        let begin = Instant::now();
        let mut notes = RevisionNotes::default();
        notes.cut(10, begin, hour, 1);
        notes.cut(100, begin + hour / 2, hour, 1);
        assert_eq!(notes.cut(50, begin + hour, hour, 1), Some(10));
        assert_eq!(notes.cut(60, begin + hour * 3 / 2, hour, 1), None, "100 is of a former time");
    }

    #[tokio::test(start_paused = true)]
    async fn steps_are_the_same_for_everybody_and_each_is_returned_once() {
        let (age, begin) = (Duration::from_secs(10), Instant::now());
        let mut notes = RevisionNotes::default();
        for (seconds, revision, returned) in [
            (0, 1_000, None),
            (10, 1_500, None),
            (20, 2_000, Some(1_024)),
            (30, 2_100, None),
            (40, 2_200, Some(2_048)),
            // etcd was restored.
            (50, 1_100, None),
            (60, 1_200, Some(1_024)),
        ] {
            let now = begin + Duration::from_secs(seconds);
            assert_eq!(notes.cut(revision, now, age, 1_024), returned, "{seconds} s");
        }
    }

    #[test]
    fn history_is_cut_short_when_much_has_come_on_top_of_a_quarter_of_the_quota() {
        let size = |used| Some(Size { file: 999, used });
        let mut pressure = Pressure::default();
        let steps = |pressure: &mut Pressure, used: &[u64]| -> Vec<bool> {
            used.iter().map(|used| pressure.step(size(*used), 1_600).is_some()).collect()
        };
        assert_eq!(steps(&mut pressure, &[0, 399, 400, 700]), [false, false, true, true]);
        pressure.relieve(size(700));
        // It takes effect, and more than a quarter is kept for good.
        let used = [700, 600, 500, 599, 600];
        assert_eq!(steps(&mut pressure, &used), [false, false, false, false, true]);
        assert_eq!(pressure.step(None, 1_600), Some(UNTOLD_STEP));
    }

    #[test]
    fn people_are_told_at_four_fifths_of_the_quota() {
        let is_nearly_full = |file, quota_bytes| {
            let size = Some(Size { file, used: 0 });
            EtcdStatus { size, quota_bytes, ..EtcdStatus::default() }.is_nearly_full()
        };
        assert!(!is_nearly_full(799, Some(1_000)) && is_nearly_full(800, Some(1_000)));
        let most = 1_717_986_916;
        assert!(!is_nearly_full(most - 1, None) && is_nearly_full(most, None));
    }

    #[test]
    fn three_voters_survive_the_loss_of_one() {
        let class = |voters| EtcdStatus { voters, ..EtcdStatus::default() }.class();
        assert_eq!([1, 2, 3, 5].map(class), [Class::S, Class::S, Class::A, Class::A]);
    }
}

//! The three verbs on a Redis: what is asked of it, and what its answers mean.

use std::sync::Arc;

use engine::limits::STORE_ANSWER_MAX;
use redis::RedisError;
use tokio::time::Instant;

use super::about::About;
use super::line::{Failure, Line};
use super::link::{Door, Link};
use super::script::{self, Answer, COMMIT, Names, Outcome, SCAN, Verdict};
use super::setting::Setting;
use super::trouble::{FORMER, Trouble};
use crate::parcel::Parcel;
use crate::{
    Commit, CommitError, Conflict, Fault, Key, Page, Range, Refusal, ScanError, Version, Watchers,
};

const REPLICA: &str =
    "redis is a replica now, and takes no writes: name the master in the URL too, and it is found";

/// What the store and its tasks share.
pub(super) struct Core {
    pub(super) names: Names,
    pub(super) door: Arc<Door>,
    /// For commits.
    pub(super) writer: Line,
    /// For scans.
    pub(super) reader: Line,
    pub(super) watchers: Watchers,
    pub(super) about: Arc<About>,
}

impl Core {
    pub(super) fn new(door: Door, names: Names, link: Link, setting: Setting) -> Self {
        let about = Arc::new(About::new(setting));
        let door = Arc::new(door);
        let connect = |first| {
            let about = Arc::clone(&about);
            Line::new(Arc::clone(&door), first, Box::new(move |setting| about.found(setting)))
        };
        Self {
            writer: connect(Some(link)),
            reader: connect(None),
            names,
            watchers: Watchers::default(),
            about,
            door,
        }
    }

    /// Writes, reads and removes something beside the store, so that what is not permitted or not possible is found now, and not in the middle of
    /// a commit, which no script can take back.
    pub(super) async fn rehearse(&self) -> Result<(), Trouble> {
        let names = self.names.rehearsal();
        let key = |name| Key::new(name).expect("a short word");
        let put = Commit::new().put(key("a"), "").put(key("b"), "");
        let delete = Commit::new().delete(key("a")).delete(key("b"));
        for commit in [put, delete] {
            let commits = || std::iter::once(&commit);
            let done = self.writer.call(&COMMIT, |command| names.commits(command, commits())).await;
            let page =
                self.writer.call(&SCAN, |command| names.scan(command, &Range::all(), 1)).await;
            for reply in [done, page] {
                rehearsed(reply)?;
            }
        }
        let deadline = Instant::now() + STORE_ANSWER_MAX;
        match self.writer.ask(&names.removal(), deadline).await {
            // What is left is one small key, which the next one uses again.
            Ok(_) | Err(Failure::Told(_)) => Ok(()),
            Err(Failure::NotSent(why) | Failure::NoAnswer(why)) => {
                Err(Trouble::new(Fault::Unreachable, why))
            }
        }
    }

    /// Sends one commit by itself.
    pub(super) async fn commit(&self, commit: &Commit) -> Result<Version, CommitError> {
        let verdict = self.judge(std::iter::once(commit)).await?.remove(0);
        self.outcome(commit, verdict)
    }

    /// Sends commits together, and tells each what came of it.
    pub(super) async fn carry(&self, mut batch: Vec<Parcel>) {
        batch.sort_by_key(|parcel| script::is_freeing(&parcel.commit));
        match self.judge(batch.iter().map(|parcel| &parcel.commit)).await {
            Ok(verdicts) => {
                for (parcel, verdict) in batch.into_iter().zip(verdicts) {
                    let outcome = self.outcome(&parcel.commit, verdict);
                    parcel.answer(outcome);
                }
            }
            Err(why) => batch.into_iter().for_each(|parcel| parcel.answer(Err(why.clone()))),
        }
    }

    /// What the server says to each of these commits, as many as they are; or what is true of all of them.
    async fn judge<'a>(
        &self,
        commits: impl ExactSizeIterator<Item = &'a Commit> + Clone,
    ) -> Result<Vec<Verdict>, CommitError> {
        let count = commits.len();
        let call =
            self.writer.call(&COMMIT, |command| self.names.commits(command, commits.clone()));
        let answer = match call.await {
            Ok(reply) => Answer::read(reply),
            Err(Failure::NotSent(why)) => return Err(CommitError::Unavailable(why)),
            Err(Failure::NoAnswer(why)) => return Err(CommitError::Unknown(why)),
            Err(Failure::Told(why)) => return Err(self.told(&why)),
        };
        let answer = answer.map_err(CommitError::Corrupt)?;
        if !self.about.admit(&answer) {
            self.hang_up();
            return Err(CommitError::Unknown(format!("the server cannot be relied on: {FORMER}")));
        }
        match answer.outcome {
            Outcome::Commits(verdicts) if verdicts.len() == count => Ok(verdicts),
            Outcome::Commits(_) => {
                Err(CommitError::Corrupt("not every commit was answered".to_owned()))
            }
            Outcome::Replica => {
                self.hang_up();
                Err(CommitError::Unavailable(REPLICA.to_owned()))
            }
            Outcome::Page { .. } | Outcome::Lacking(_) => {
                Err(CommitError::Corrupt("a commit was answered with a page".to_owned()))
            }
        }
    }

    /// What a verdict means for the commit that it is about.
    fn outcome(&self, commit: &Commit, verdict: Verdict) -> Result<Version, CommitError> {
        match verdict {
            Verdict::Done(version) => Ok(version),
            Verdict::Conflict { number, found } => match commit.when.get(number) {
                Some(condition) => Err(Conflict { condition: condition.clone(), found }.into()),
                None => Err(CommitError::Corrupt("a condition failed that was not set".to_owned())),
            },
            Verdict::Refused(why) => Err(self.refused(&why)),
            Verdict::Damaged(why) => Err(CommitError::Corrupt(why)),
        }
    }

    pub(super) async fn scan(&self, range: &Range, limit: usize) -> Result<Page, ScanError> {
        let call = self.reader.call(&SCAN, |command| self.names.scan(command, range, limit));
        let answer = match call.await {
            Ok(reply) => Answer::read(reply),
            Err(Failure::NotSent(why) | Failure::NoAnswer(why)) => {
                return Err(ScanError::Unavailable(why));
            }
            Err(Failure::Told(why)) => {
                return Err(match self.told(&why) {
                    CommitError::Corrupt(why) => ScanError::Corrupt(why),
                    other => ScanError::Unavailable(other.to_string()),
                });
            }
        };
        let answer = answer.map_err(ScanError::Corrupt)?;
        if !self.about.admit(&answer) {
            self.hang_up();
            return Err(ScanError::Unavailable(FORMER.to_owned()));
        }
        match answer.outcome {
            Outcome::Page { entries, more } => Ok(script::page(range, entries, more)),
            Outcome::Lacking(key) => {
                Err(ScanError::Corrupt(format!("{key} has a place in the order and no entry")))
            }
            Outcome::Replica => {
                self.hang_up();
                Err(ScanError::Unavailable(REPLICA.to_owned()))
            }
            Outcome::Commits(_) => {
                Err(ScanError::Corrupt("a scan was answered like a commit".to_owned()))
            }
        }
    }

    /// What an error means that a server answers instead of a script's own words.
    fn told(&self, why: &RedisError) -> CommitError {
        match why.code().unwrap_or_default() {
            // Said before the script began.
            "LOADING" | "BUSY" | "READONLY" | "MASTERDOWN" | "OOM" | "MISCONF" | "NOREPLICAS"
            | "NOAUTH" | "NOSCRIPT" | "MOVED" | "CLUSTERDOWN" => {
                self.refused(why.code().unwrap_or_default())
            }
            "WRONGTYPE" => CommitError::Corrupt(format!(
                "the keys of the store are used for something else ({})",
                why.detail().unwrap_or_default()
            )),
            // A script that failed in the middle has done what it had done.
            code => CommitError::Unknown(format!("{code} {}", why.detail().unwrap_or_default())),
        }
    }

    /// What it means that Redis takes no writes, by the first word of what it says. Nothing was changed.
    fn refused(&self, said: &str) -> CommitError {
        let said = said.trim_start_matches('-');
        let full = |place: &str| CommitError::Refused(Refusal::Full { place: place.to_owned() });
        match said.split(' ').next().unwrap_or_default() {
            "OOM" => full("the memory that Redis may use (maxmemory)"),
            "MISCONF" => full("the place where Redis saves its data (MISCONF: its log says why)"),
            "READONLY" => {
                self.hang_up();
                CommitError::Unavailable(REPLICA.to_owned())
            }
            "LOADING" => CommitError::Unavailable("redis is still loading its data".to_owned()),
            "BUSY" => CommitError::Unavailable(
                "redis is busy with somebody's script: end that with SCRIPT KILL".to_owned(),
            ),
            "NOREPLICAS" => CommitError::Unavailable(
                "redis has fewer replicas than min-replicas-to-write asks for".to_owned(),
            ),
            other => CommitError::Unavailable(format!("redis takes no commits ({other})")),
        }
    }

    /// Both lines are made anew, perhaps to another host.
    pub(super) fn hang_up(&self) {
        self.writer.hang_up();
        self.reader.hang_up();
    }
}

/// What a rehearsal shows.
fn rehearsed(reply: Result<redis::Value, Failure>) -> Result<(), Trouble> {
    let unfit = |why: &str| {
        Trouble::new(Fault::Unsafe, format!("its scripts do not do what they should: {why}"))
    };
    match reply {
        Ok(reply) => match Answer::read(reply).map_err(|why| unfit(&why))?.outcome {
            Outcome::Page { .. } => Ok(()),
            Outcome::Commits(verdicts) => match verdicts.first() {
                Some(Verdict::Done(_)) => Ok(()),
                Some(Verdict::Refused(said)) => Err(Trouble::refused(said)),
                Some(Verdict::Conflict { .. } | Verdict::Damaged(_)) | None => {
                    Err(unfit("a commit without conditions was not done"))
                }
            },
            Outcome::Replica => Err(Trouble::new(Fault::ReadOnly, "it is a replica")),
            Outcome::Lacking(_) => Err(unfit("keys are not as they were left")),
        },
        Err(Failure::Told(why)) => Err(Trouble::told(&why)),
        Err(Failure::NotSent(why) | Failure::NoAnswer(why)) => {
            Err(Trouble::new(Fault::Unreachable, why))
        }
    }
}

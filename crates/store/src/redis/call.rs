//! Calls to a Redis: scans and commits, and what the answers mean.

use std::sync::Arc;

use engine::limits::STORE_ANSWER_MAX;
use redis::RedisError;
use tokio::time::Instant;

use super::connection::{RedisConnection, RedisConnector};
use super::error::{ConnectError, ConnectResult, FORMER};
use super::reconnect::{RedisClient, RedisFailure};
use super::script::{self, COMMIT, CommitVerdict, Names, SCAN, ScriptAnswer, ScriptOutcome};
use super::server::RedisServer;
use super::setting::RedisSettings;
use crate::batching::WaitingCommit;
use crate::{
    Commit, CommitError, Conflict, EngineFault, Key, Page, Range, Refusal, ScanError, Version,
    Watchers,
};

const REPLICA: &str =
    "redis is a replica now, and takes no writes: name the master in the URL too, and it is found";

/// What the store and its tasks share.
pub(super) struct RedisShared {
    pub(super) names: Names,
    pub(super) connector: Arc<RedisConnector>,
    /// The client that commits go through.
    pub(super) writer: RedisClient,
    /// The client that scans go through.
    pub(super) reader: RedisClient,
    pub(super) watchers: Watchers,
    pub(super) server: Arc<RedisServer>,
}

impl RedisShared {
    pub(super) fn new(
        connector: RedisConnector,
        names: Names,
        connection: RedisConnection,
        setting: RedisSettings,
    ) -> Self {
        let server = Arc::new(RedisServer::new(setting));
        let connector = Arc::new(connector);
        let connect = |first| {
            let server = Arc::clone(&server);
            RedisClient::new(
                Arc::clone(&connector),
                first,
                Box::new(move |setting| server.found(setting)),
            )
        };
        Self {
            writer: connect(Some(connection)),
            reader: connect(None),
            names,
            watchers: Watchers::default(),
            server,
            connector,
        }
    }

    /// Writes, reads and removes something beside the store, so that what is not permitted or not possible is found now, and not in the middle of
    /// a commit, which no script can take back.
    pub(super) async fn rehearse(&self) -> ConnectResult {
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
            Ok(_) | Err(RedisFailure::Told(_)) => Ok(()),
            Err(RedisFailure::NotSent(why) | RedisFailure::NoAnswer(why)) => {
                Err(ConnectError::new(EngineFault::Unreachable, why))
            }
        }
    }

    /// Sends one commit by itself.
    pub(super) async fn commit(&self, commit: &Commit) -> Result<Version, CommitError> {
        let verdict = self.judge(std::iter::once(commit)).await?.remove(0);
        self.outcome(commit, verdict)
    }

    /// Sends commits together, and tells each what came of it.
    pub(super) async fn carry(&self, mut batch: Vec<WaitingCommit>) {
        batch.sort_by_key(|waiting| script::is_freeing(&waiting.commit));
        match self.judge(batch.iter().map(|waiting| &waiting.commit)).await {
            Ok(verdicts) => {
                for (waiting, verdict) in batch.into_iter().zip(verdicts) {
                    let outcome = self.outcome(&waiting.commit, verdict);
                    waiting.answer(outcome);
                }
            }
            Err(why) => batch.into_iter().for_each(|waiting| waiting.answer(Err(why.clone()))),
        }
    }

    /// What the server says to each of these commits, as many as they are; or what is true of all of them.
    async fn judge<'a>(
        &self,
        commits: impl ExactSizeIterator<Item = &'a Commit> + Clone,
    ) -> Result<Vec<CommitVerdict>, CommitError> {
        let count = commits.len();
        let call =
            self.writer.call(&COMMIT, |command| self.names.commits(command, commits.clone()));
        let answer = match call.await {
            Ok(reply) => ScriptAnswer::read(reply),
            Err(RedisFailure::NotSent(why)) => return Err(CommitError::Unavailable(why)),
            Err(RedisFailure::NoAnswer(why)) => return Err(CommitError::Unknown(why)),
            Err(RedisFailure::Told(why)) => return Err(self.told(&why)),
        };
        let answer = answer.map_err(CommitError::Corrupt)?;
        if !self.server.admit(&answer) {
            self.hang_up();
            return Err(CommitError::Unknown(format!("the server cannot be relied on: {FORMER}")));
        }
        match answer.outcome {
            ScriptOutcome::Commits(verdicts) if verdicts.len() == count => Ok(verdicts),
            ScriptOutcome::Commits(_) => {
                Err(CommitError::Corrupt("not every commit was answered".to_owned()))
            }
            ScriptOutcome::Replica => {
                self.hang_up();
                Err(CommitError::Unavailable(REPLICA.to_owned()))
            }
            ScriptOutcome::Page { .. } | ScriptOutcome::Lacking(_) => {
                Err(CommitError::Corrupt("a commit was answered with a page".to_owned()))
            }
        }
    }

    /// What a verdict means for the commit that it is server.
    fn outcome(&self, commit: &Commit, verdict: CommitVerdict) -> Result<Version, CommitError> {
        match verdict {
            CommitVerdict::Done(version) => Ok(version),
            CommitVerdict::Conflict { number, found } => match commit.when.get(number) {
                Some(condition) => Err(Conflict { condition: condition.clone(), found }.into()),
                None => Err(CommitError::Corrupt("a condition failed that was not set".to_owned())),
            },
            CommitVerdict::Refused(why) => Err(self.refused(&why)),
            CommitVerdict::Damaged(why) => Err(CommitError::Corrupt(why)),
        }
    }

    pub(super) async fn scan(&self, range: &Range, limit: usize) -> Result<Page, ScanError> {
        let call = self.reader.call(&SCAN, |command| self.names.scan(command, range, limit));
        let answer = match call.await {
            Ok(reply) => ScriptAnswer::read(reply),
            Err(RedisFailure::NotSent(why) | RedisFailure::NoAnswer(why)) => {
                return Err(ScanError::Unavailable(why));
            }
            Err(RedisFailure::Told(why)) => {
                return Err(match self.told(&why) {
                    CommitError::Corrupt(why) => ScanError::Corrupt(why),
                    other => ScanError::Unavailable(other.to_string()),
                });
            }
        };
        let answer = answer.map_err(ScanError::Corrupt)?;
        if !self.server.admit(&answer) {
            self.hang_up();
            return Err(ScanError::Unavailable(FORMER.to_owned()));
        }
        match answer.outcome {
            ScriptOutcome::Page { entries, more } => Ok(script::page(range, entries, more)),
            ScriptOutcome::Lacking(key) => {
                Err(ScanError::Corrupt(format!("{key} has a place in the order and no entry")))
            }
            ScriptOutcome::Replica => {
                self.hang_up();
                Err(ScanError::Unavailable(REPLICA.to_owned()))
            }
            ScriptOutcome::Commits(_) => {
                Err(ScanError::Corrupt("a scan was answered like a commit".to_owned()))
            }
        }
    }

    /// What it means for a commit when the server answers with an error of its own instead of the script's answer.
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

    /// What it means when Redis refuses a write, by the first word of its answer. Nothing was changed.
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

    /// Drops both connections: the next calls make new ones, perhaps to another host.
    pub(super) fn hang_up(&self) {
        self.writer.hang_up();
        self.reader.hang_up();
    }
}

/// Reads the answer to one call of a rehearsal.
fn rehearsed(reply: Result<redis::Value, RedisFailure>) -> ConnectResult {
    let unfit = |why: &str| {
        ConnectError::new(
            EngineFault::Unsafe,
            format!("its scripts do not do what they should: {why}"),
        )
    };
    match reply {
        Ok(reply) => match ScriptAnswer::read(reply).map_err(|why| unfit(&why))?.outcome {
            ScriptOutcome::Page { .. } => Ok(()),
            ScriptOutcome::Commits(verdicts) => match verdicts.first() {
                Some(CommitVerdict::Done(_)) => Ok(()),
                Some(CommitVerdict::Refused(said)) => Err(ConnectError::refused(said)),
                Some(CommitVerdict::Conflict { .. } | CommitVerdict::Damaged(_)) | None => {
                    Err(unfit("a commit without conditions was not done"))
                }
            },
            ScriptOutcome::Replica => {
                Err(ConnectError::new(EngineFault::ReadOnly, "it is a replica"))
            }
            ScriptOutcome::Lacking(_) => Err(unfit("keys are not as they were left")),
        },
        Err(RedisFailure::Told(why)) => Err(ConnectError::told(&why)),
        Err(RedisFailure::NotSent(why) | RedisFailure::NoAnswer(why)) => {
            Err(ConnectError::new(EngineFault::Unreachable, why))
        }
    }
}

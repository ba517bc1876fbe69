//! Restoring: a backup becomes a store again, under a new epoch and with greater tokens.
//!
//! **All or nothing.** The first commit writes a mark, [`check_finished`]'s, and the last one removes it, together
//! with the record that says what cluster this is. Every commit in between is conditional on the mark. A server
//! does not start on a store with a mark, so half a restore serves nobody. The same restore may be begun again: it
//! takes the mark over, and a former one that still runs can write nothing any more. A server that starts
//! at the same time writes its session and then looks for the mark; a restore writes the mark and then looks for
//! sessions: one of them sees the other, and gives up.
//!
//! **Who could still act, and what stops it.** The sessions of the backup are not written: they are absent, which
//! means buried, and keys of sessions are never used again. Whoever is still connected to this store finds its
//! session gone at its next renewal, and ends; until then it may act for T at the most, counted from a renewal
//! before this restore saw that there was no session. So the last commit waits for 1.25 times the longest T
//! that the cluster ever had (and the lag of a store that may forget), unless only one process can have this store
//! open and no session of the backup was that of a remote process: then there is nobody to wait for. Whoever
//! runs on *another* store, such as the directory that the backup was taken from, cannot be told from here: it
//! has to be stopped.
//!
//! **Tokens.** Every claim is written as free, and its token is raised to the wall clock in microseconds, or by
//! one: whatever the former cluster gave after the backup was made is less than what the next holder
//! takes. `cluster/epoch` says that this is another epoch, and since when.

use std::io::{BufRead, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use engine::instant::Instant;
use engine::lease::{Nonce, Token, patience};
use engine::limits::{FAILOVER_LAG, PAGE_ENTRIES_MAX, RESTORE_TRIES_MAX};
use engine::queue::record::{QueueNameRecord, QueueRecord, queue_name_key};
use engine::record::{Format, RecordError, decode, encode};
use engine::shard::record::{
    FORMAT as SHARD_FORMAT, NameRecord, ReservedName, TriggerRecord, name_key,
};
use serde::{Deserialize, Serialize};

use super::name::UnreservedName;
use super::take::is_made_anew;
use super::{BackupItem, BackupReadError, BackupReader, BackupSection, Summary, verify};
use crate::claim::{ClaimState, Head};
use crate::cluster::ClusterIdentity;
use crate::machine::Machine;
use crate::ownership::is_mirror;
use crate::session::SessionKey;
use crate::{
    Class, Commit, CommitError, Condition, Key, Limits, Range, Refusal, ScanError, Store, Value,
    Version, Write,
};

const FORMAT: Format = Format(1);

/// How long to wait before a commit is sent again.
const PAUSE: Duration = Duration::from_secs(1);

/// A restore that is under way, or was cut short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RestoreMark {
    /// The checksum of the backup.
    checksum: String,
    /// When the backup was taken.
    taken_ms: i64,
    /// Tells this restore from others of the same backup.
    nonce: String,
}

impl RestoreMark {
    fn key() -> Key {
        Key::new("cluster/restoring").expect("a short key")
    }
}

/// Which life of the cluster this is. There is none before the first restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EpochRecord {
    /// The name of the epoch.
    epoch: String,
    /// When it began, in microseconds since 1970.
    restored_us: u64,
    /// When the backup was taken that it began with.
    taken_ms: i64,
}

impl EpochRecord {
    fn key() -> Key {
        Key::new("cluster/epoch").expect("a short key")
    }
}

/// A store in which a restore was begun and not finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a restore into this store was not finished (of the backup taken at {taken}): run watchbell restore again with that backup, or empty the store"
)]
pub struct UnfinishedRestore {
    /// When its backup was taken.
    pub taken: Instant,
}

/// Whether no restore into this store was left unfinished.
pub async fn check_finished(store: &Store) -> Result<Result<(), UnfinishedRestore>, ScanError> {
    Ok(match store.get(&RestoreMark::key()).await? {
        None => Ok(()),
        Some(entry) => {
            let mark: Result<RestoreMark, RecordError> = decode(entry.value.as_bytes(), FORMAT);
            let mark =
                mark.map_err(|why| ScanError::Corrupt(format!("{}: {why}", RestoreMark::key())))?;
            Err(UnfinishedRestore { taken: Instant(mark.taken_ms) })
        }
    })
}

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Use another backup. Nothing was written.
    #[error(transparent)]
    Read(#[from] BackupReadError),
    /// Give another store. Nothing was written.
    #[error(
        "the store is not empty, it holds {found}: give a new one, or look with watchbell store dump and empty it if nobody needs it"
    )]
    NotEmpty {
        /// A key that is there.
        found: Key,
    },
    /// Stop whoever that is.
    #[error("{session} is using the store: stop it, empty the store, and restore again")]
    InUse {
        /// The session of that process.
        session: Key,
    },
    /// Go on with that one.
    #[error("{0}")]
    Other(UnfinishedRestore),
    /// Use a store that takes more. Nothing was written.
    #[error(
        "the backup holds a record of {len} bytes, and this store takes {max} at a time: restore it to a store of another kind"
    )]
    TooLarge {
        /// The longest record.
        len: usize,
        /// What the store takes.
        max: usize,
    },
    /// Somebody else restores at the same time.
    #[error("another restore into this store has begun: wait for its end")]
    Overtaken,
    /// Look at the store, and run it again: it goes on.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Look at the store, and run it again: it goes on.
    #[error("{0}; the restore is not finished: run it again when that is mended")]
    Commit(CommitError),
}

/// What was restored.
#[derive(Debug, Clone)]
pub struct Restored {
    /// What the backup holds.
    pub summary: Summary,
    /// The name of the new epoch.
    pub epoch: String,
}

/// Writes a backup to an empty store. `told` is given how many entries of how many are done.
pub async fn restore<R: BufRead + Seek>(
    store: &Store,
    machine: &Arc<dyn Machine>,
    mut file: R,
    mut told: impl FnMut(u64, u64),
) -> Result<Restored, RestoreError> {
    let summary = verify(&mut file)?;
    check_room(&summary, store.limits())?;
    let mut writing = Writing::begin(store, machine, &summary).await?;
    let alone_since = machine.reading();
    file.seek(SeekFrom::Start(0)).map_err(BackupReadError::from)?;
    let mut reader = BackupReader::new(&mut file)?;
    let (mut section, mut done) = (BackupSection::Rest, 0);
    while let Some(item) = reader.next()? {
        match item {
            BackupItem::Section(next) => section = next,
            BackupItem::Entry { key, value } => {
                for write in writes(section, key, value, &**machine) {
                    writing.add(write).await?;
                }
                done += 1;
                told(done, summary.entries);
            }
        }
    }
    for UnreservedName { key, shard } in &summary.census.unreserved {
        let reserved = ReservedName { shard: *shard, at: summary.header.taken };
        let value = encode(SHARD_FORMAT, &reserved).into();
        writing.add(Write::Put(key.clone(), value)).await?;
    }
    writing.flush().await?;
    let wait = wait(&summary, store);
    while machine.reading().least_since(alone_since) < wait {
        let left = wait.saturating_sub(machine.reading().least_since(alone_since));
        machine.sleep(left.min(PAUSE)).await;
    }
    let epoch = writing.finish(&summary).await?;
    Ok(Restored { summary, epoch })
}

/// How long somebody may still act who was using this store.
fn wait(summary: &Summary, store: &Store) -> Duration {
    if store.is_exclusive() && !summary.census.has_remote {
        return Duration::ZERO;
    }
    let lag = if store.class() == Class::B { FAILOVER_LAG } else { Duration::ZERO };
    summary.census.longest.map_or(Duration::ZERO, |longest| patience(longest.length() + lag))
}

fn check_room(summary: &Summary, limits: Limits) -> Result<(), RestoreError> {
    // A name is written beside its trigger, which holds it, and the mark's key beside everything.
    let beside = RestoreMark::key().len();
    let (value, write) = (summary.census.value_bytes, summary.census.write_bytes + beside);
    if value > limits.value_bytes {
        return Err(RestoreError::TooLarge { len: value, max: limits.value_bytes });
    }
    if write > limits.commit_bytes {
        return Err(RestoreError::TooLarge { len: write, max: limits.commit_bytes });
    }
    Ok(())
}

/// What an entry of a backup becomes.
fn writes(section: BackupSection, key: Key, value: Value, machine: &dyn Machine) -> Vec<Write> {
    match section {
        BackupSection::Shard(shard) => {
            let kind = key.as_str().split('/').nth(2).unwrap_or_default();
            match kind {
                "head" => vec![Write::Put(key, freed(&value, machine).unwrap_or(value))],
                "trigger" => {
                    let record: TriggerRecord = decode(value.as_bytes(), SHARD_FORMAT)
                        .unwrap_or_else(|why| panic!("{key} of {shard} was verified: {why}"));
                    let name = record.name().expect("that was verified");
                    let name = Key::new(name_key(record.id.project, &name));
                    let name = name.expect("that was verified");
                    let leads = encode(SHARD_FORMAT, &NameRecord { id: record.id });
                    vec![Write::Put(key, value), Write::Put(name, leads.into())]
                }
                "queues" => {
                    let record: QueueRecord = decode(value.as_bytes(), SHARD_FORMAT)
                        .unwrap_or_else(|why| panic!("{key} of {shard} was verified: {why}"));
                    let name = Key::new(queue_name_key(record.id.project, &record.name));
                    let name = name.expect("that was verified");
                    let leads = encode(SHARD_FORMAT, &QueueNameRecord { id: record.id });
                    vec![Write::Put(key, value), Write::Put(name, leads.into())]
                }
                _ => vec![Write::Put(key, value)],
            }
        }
        BackupSection::Idempotency => vec![Write::Put(key, value)],
        BackupSection::Rest => {
            let is_session = SessionKey::try_from(&key).is_ok();
            // The last commit writes these two.
            let is_last = key == ClusterIdentity::key() || key == EpochRecord::key();
            if is_session || is_last || is_made_anew(&key) || is_mirror(&key) {
                return Vec::new();
            }
            let value = freed(&value, machine).unwrap_or(value);
            vec![Write::Put(key, value)]
        }
    }
}

/// A claim that nobody has, under the next token; `None` if the value is no claim. Every claim is known by what
/// it says, so that no kind of them can be forgotten here.
fn freed(value: &Value, machine: &dyn Machine) -> Option<Value> {
    let head = Head::from_value(value).ok()?;
    let token = Token::after(head.token(), machine.wall_us()).0;
    let (number, nonce) = (head.number.saturating_add(1), Nonce(machine.random()));
    Some(Head { session: None, state: ClaimState::Free, token, number, nonce, ..head }.to_value())
}

/// The writing end of a restore.
struct Writing<'a> {
    store: &'a Store,
    machine: &'a Arc<dyn Machine>,
    /// At which version the mark is ours.
    mark: Version,
    batch: Commit,
}

impl<'a> Writing<'a> {
    /// Sets the mark, if nothing is there, or nothing but what this very restore wrote before.
    async fn begin(
        store: &'a Store,
        machine: &'a Arc<dyn Machine>,
        summary: &Summary,
    ) -> Result<Self, RestoreError> {
        let mark = RestoreMark {
            checksum: summary.checksum.to_string(),
            taken_ms: summary.header.taken.0,
            nonce: format!("{:016x}", machine.random()),
        };
        let found = store.get(&RestoreMark::key()).await?;
        let unmoved = match &found {
            None => {
                if let Some(found) = any_key(store).await? {
                    return Err(RestoreError::NotEmpty { found });
                }
                Condition::Absent(RestoreMark::key())
            }
            Some(entry) => {
                let former: Result<RestoreMark, _> = decode(entry.value.as_bytes(), FORMAT);
                let former = former.map_err(|why| ScanError::Corrupt(why.to_string()))?;
                if former.checksum != mark.checksum {
                    let taken = Instant(former.taken_ms);
                    return Err(RestoreError::Other(UnfinishedRestore { taken }));
                }
                Condition::At(RestoreMark::key(), entry.version)
            }
        };
        let text = encode(FORMAT, &mark);
        let commit = Commit::new().when(unmoved).put(RestoreMark::key(), text.clone());
        let version = match send(store, machine, commit).await? {
            Some(version) => version,
            // An attempt before the one that was answered may have done it.
            None => match store.get(&RestoreMark::key()).await? {
                Some(entry) if entry.value.as_bytes() == text => entry.version,
                Some(_) | None => return Err(RestoreError::Overtaken),
            },
        };
        let this = Self { store, machine, mark: version, batch: Commit::new() };
        this.check_alone(found.is_none()).await?;
        Ok(this)
    }

    /// Looks whether somebody began to use the store before the mark was there.
    async fn check_alone(&self, is_first: bool) -> Result<(), RestoreError> {
        let range = if is_first { Range::all() } else { Range::prefix("node/") };
        let mut pages = self.store.pages(range, PAGE_ENTRIES_MAX);
        while let Some(entries) = pages.next().await? {
            let mut others = entries.into_iter().map(|entry| entry.key);
            let other = others.find(|key| {
                let is_ours = *key == RestoreMark::key();
                !is_ours && (is_first || SessionKey::try_from(key).is_ok())
            });
            if let Some(session) = other {
                if is_first {
                    let mark = Condition::At(RestoreMark::key(), self.mark);
                    let commit = Commit::new().when(mark).delete(RestoreMark::key());
                    send(self.store, self.machine, commit).await?;
                }
                return Err(RestoreError::InUse { session });
            }
        }
        Ok(())
    }

    async fn add(&mut self, write: Write) -> Result<(), RestoreError> {
        let limits = self.store.limits();
        let bytes = RestoreMark::key().len() + self.batch.len() + write.len();
        if self.batch.then.len() == limits.writes || bytes > limits.commit_bytes {
            self.flush().await?;
        }
        self.batch.then.push(write);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), RestoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch =
            std::mem::take(&mut self.batch).when(Condition::At(RestoreMark::key(), self.mark));
        match send(self.store, self.machine, batch).await? {
            Some(_) => Ok(()),
            None => Err(RestoreError::Overtaken),
        }
    }

    /// Writes what makes it a store that servers start on.
    async fn finish(self, summary: &Summary) -> Result<String, RestoreError> {
        let epoch = EpochRecord {
            epoch: format!("{:016x}", self.machine.random()),
            restored_us: self.machine.wall_us(),
            taken_ms: summary.header.taken.0,
        };
        let cluster = ClusterIdentity { id: summary.header.cluster, shards: summary.header.shards };
        let text = encode(FORMAT, &epoch);
        let commit = Commit::new()
            .when(Condition::At(RestoreMark::key(), self.mark))
            .put(ClusterIdentity::key(), cluster.to_value())
            .put(EpochRecord::key(), text.clone())
            .delete(RestoreMark::key());
        if send(self.store, self.machine, commit).await?.is_some() {
            return Ok(epoch.epoch);
        }
        match self.store.get(&EpochRecord::key()).await? {
            Some(entry) if entry.value.as_bytes() == text => Ok(epoch.epoch),
            Some(_) | None => Err(RestoreError::Overtaken),
        }
    }
}

/// Sends a commit until its outcome is known; `None` if its condition does not hold, which may be its own doing.
async fn send(
    store: &Store,
    machine: &Arc<dyn Machine>,
    commit: Commit,
) -> Result<Option<Version>, RestoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match store.commit(commit.clone()).await {
            Ok(version) => return Ok(Some(version)),
            Err(CommitError::Conflict(_)) => return Ok(None),
            Err(CommitError::Unavailable(_) | CommitError::Unknown(_))
                if tries < RESTORE_TRIES_MAX =>
            {
                machine.sleep(PAUSE).await;
            }
            Err(CommitError::Refused(Refusal::ValueBytes { len, max, .. })) => {
                return Err(RestoreError::TooLarge { len, max });
            }
            Err(why) => return Err(RestoreError::Commit(why)),
        }
    }
}

/// Some key of the store, if it has any.
async fn any_key(store: &Store) -> Result<Option<Key>, ScanError> {
    Ok(store.scan(Range::all(), 1).await?.entries.pop().map(|entry| entry.key))
}

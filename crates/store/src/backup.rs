//! Backups: everything that a store holds, in one file that checks itself.
//!
//! A backup is lines of JSON: a header, the entries of each shard, the rest, and an end with the number of
//! entries and a checksum over everything before it; docs/format.md has it as a table. It is read back before
//! anybody relies on it ([`verify`]), and restored to any store that is empty ([`restore()`]).
//!
//! **One moment for each shard.** A shard is consistent between two commits of its chain and at no other time,
//! so it is read while its head stands still, and the head is read again afterwards ([`shard`]). Its owner
//! sees to that, or the fact that nobody has the store open. Shards owe each other nothing but the names of triggers that
//! live elsewhere than their names (`name`), and may be of different moments.
//!
//! **The rest comes after the shards.** What a shard's record refers to, a project or a key, was written before
//! it, and so is met by a scan that begins later. What was made in between is there without anybody who refers
//! to it, which is harmless.
//!
//! **Remembered requests come before the shards.** Such a record says that something was done, and is written in the
//! commit that did it. Read first, what it says is in the shards; what is done afterwards is forgotten, and a request
//! for it that comes again is carried out again, rather than answered as done though the restored store lacks it.
//!
//! **Names of triggers and queues are not in it.** A trigger and its name are written and deleted in one commit of the
//! shard, but names lie outside of shards, and there is no good moment to scan them: before the shards, a trigger
//! made in between has none; after, one that was deleted in between has none. So they are left out, and made anew
//! at restore from the triggers' own records, which say everything that a name says. A trigger without a
//! name cannot come of that. The same goes for queues.
//!
//! **Sessions are in it, and are not restored.** A session that is absent is dead for ever: that is what burying
//! means. Whoever had one finds it gone at its next renewal and ends, and whatever it owned is free. See
//! [`restore()`] for when. The mirrors of claims, which name them, are not even in it.

mod content;
mod line;
mod name;
mod queue;
mod read;
mod restore;
mod take;

pub use content::{BackupCensus, Flaw};
pub use line::{BackupHeader, BackupSection, Encoder, EntryTooLong};
pub use read::{BackupItem, BackupReadError, BackupReader, Checksum};
pub use restore::{RestoreError, Restored, UnfinishedRestore, check_finished, restore};
pub use take::{TakeBackupError, header, idempotency, page, rest, shard, take};

use std::io::BufRead;

/// What is in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// What its first line says.
    pub header: BackupHeader,
    /// How many bytes it has.
    pub bytes: u64,
    /// How many entries it has.
    pub entries: u64,
    /// Over all of it; tells it from every other.
    pub checksum: Checksum,
    /// What kinds of entries there are, counted.
    pub census: BackupCensus,
}

/// Reads a whole backup, and tells what is in it or what is wrong.
pub fn verify(from: impl BufRead) -> Result<Summary, BackupReadError> {
    let mut reader = BackupReader::new(from)?;
    let mut content = content::Content::new(reader.header());
    while let Some(item) = reader.next()? {
        content.take(&item).map_err(|flaw| reader.flawed(flaw))?;
    }
    let census = content.finish().map_err(|flaw| reader.flawed(flaw))?;
    Ok(reader.summary(census))
}

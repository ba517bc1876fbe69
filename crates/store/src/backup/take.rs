//! Taking a backup: which entries, and in which order.

use std::io;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::limits::{BACKUP_QUIESCE_MAX, BACKUP_SHARD_BYTES_MAX, PAGE_ENTRIES_MAX};
use engine::shard::record::head_key;

use super::restore::{UnfinishedRestore, check_finished};
use super::{BackupHeader, BackupSection, Encoder, EntryTooLong};
use crate::cluster::ClusterIdentity;
use crate::machine::Machine;
use crate::ownership::is_mirror;
use crate::{Key, Range, ScanError, Store, Version};

/// Why no backup was taken. Nothing in the store was changed.
#[derive(Debug, thiserror::Error)]
pub enum TakeBackupError {
    /// Look at the store.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Finish the restore, or give another store.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedRestore),
    /// Give another store.
    #[error("there is nothing to back up: no server has ever run on this store")]
    Empty,
    /// Look at what wrote it.
    #[error(transparent)]
    TooLong(#[from] EntryTooLong),
    /// Somebody wrote to the shard meanwhile: ask its owner to hold still.
    #[error("shard {0} was written to while it was read: try again")]
    Moved(ShardId),
    /// Take it while no server runs.
    #[error(
        "shard {0} could not be read within {BACKUP_QUIESCE_MAX:?}, and would have kept what is due waiting: try again when there is less to do, or stop the server and take the backup with --store"
    )]
    TooSlow(ShardId),
    /// Take it while no server runs.
    #[error(
        "shard {0} has more than {BACKUP_SHARD_BYTES_MAX} bytes, which is more than a server reads at once: stop the server and take the backup with --store"
    )]
    TooLarge(ShardId),
    /// Make room, or give another place.
    #[error("the backup cannot be written: {0}; check the place that it goes to")]
    Io(#[from] io::Error),
}

/// Writes a backup of a store that nobody else uses. `write` is given its bytes, in order.
pub async fn take(
    store: &Store,
    machine: &dyn Machine,
    version: &str,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), TakeBackupError> {
    let header = header(store, machine, version).await?;
    let mut out = Vec::new();
    let mut encoder = Encoder::begin(&header, &mut out);
    for (section, ranges) in [
        (BackupSection::Idempotency, idempotency().to_vec()),
        (BackupSection::Rest, rest().to_vec()),
    ] {
        if section == BackupSection::Rest {
            for id in (0..header.shards).map(ShardId) {
                shard(store, id, &mut encoder, |bytes| Ok(write(bytes)?)).await?;
            }
        }
        encoder.section(section, &mut out);
        for range in ranges {
            let mut left = Some(range);
            while let Some(range) = left {
                left = page(store, range, &mut encoder, &mut out).await?;
                write(&out)?;
                out.clear();
            }
        }
    }
    encoder.end(&mut out);
    write(&out)?;
    Ok(())
}

/// What the first line of a backup of this store says, if one can be taken.
pub async fn header(
    store: &Store,
    machine: &dyn Machine,
    version: &str,
) -> Result<BackupHeader, TakeBackupError> {
    check_finished(store).await??;
    let ClusterIdentity { id: cluster, shards } =
        ClusterIdentity::read(store).await?.ok_or(TakeBackupError::Empty)?;
    let millis = i64::try_from(machine.wall_us() / 1_000).unwrap_or(i64::MAX);
    Ok(BackupHeader { version: version.to_owned(), cluster, shards, taken: Instant(millis) })
}

/// Reads a shard, page by page, and says so if its head moved meanwhile.
pub async fn shard(
    store: &Store,
    id: ShardId,
    encoder: &mut Encoder,
    mut write: impl FnMut(&[u8]) -> Result<(), TakeBackupError>,
) -> Result<(), TakeBackupError> {
    let before = head(store, id).await?;
    let mut out = Vec::new();
    encoder.section(BackupSection::Shard(id), &mut out);
    let mut left = Some(Range::prefix(&BackupSection::Shard(id).text()));
    while let Some(range) = left {
        left = page(store, range, encoder, &mut out).await?;
        write(&out)?;
        out.clear();
    }
    if head(store, id).await? == before { Ok(()) } else { Err(TakeBackupError::Moved(id)) }
}

/// The range of what is remembered of requests.
pub fn idempotency() -> [Range; 1] {
    [Range::prefix(&BackupSection::Idempotency.text())]
}

/// The ranges of what is neither that nor in a shard, in order.
pub fn rest() -> [Range; 3] {
    let key = |text: &str| Key::new(text).expect("a short key");
    // A zero follows the slash.
    [
        Range::between(&key("!"), &key("recall/")),
        Range::between(&key("recall0"), &key("shard/")),
        Range::since(&key("shard0")),
    ]
}

/// Reads one page, and tells what is left of the range.
pub async fn page(
    store: &Store,
    range: Range,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<Option<Range>, TakeBackupError> {
    let page = store.scan(range, PAGE_ENTRIES_MAX).await?;
    for entry in page.entries.iter().filter(|entry| is_kept(&entry.key)) {
        encoder.entry(&entry.key, &entry.value, out)?;
    }
    Ok(page.next)
}

/// The version of a shard's head.
async fn head(store: &Store, id: ShardId) -> Result<Option<Version>, ScanError> {
    let key = Key::new(head_key(id)).expect("a short key");
    Ok(store.get(&key).await?.map(|entry| entry.version))
}

/// Whether an entry belongs into a backup: names come from triggers and queues, the owners of shards are
/// those of sessions that are not restored, and what an examination of the store has left is nobody's.
fn is_kept(key: &Key) -> bool {
    !is_made_anew(key) && !is_mirror(key) && !key.as_str().starts_with("scratch/")
}

/// Whether this is where a name leads to a trigger or a queue.
pub(super) fn is_made_anew(key: &Key) -> bool {
    let mut parts = key.as_str().split('/');
    parts.next() == Some("name") && matches!(parts.nth(1), Some("trigger" | "queue"))
}

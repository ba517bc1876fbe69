//! A backup of a server that runs, shard by shard and piece by piece.
//!
//! Each shard is read between two commits of its chain: its owner holds them back, the shard is read into
//! memory, and then it goes on, long before whoever asked has had all of it. Reading has the same bound as the
//! hold; a shard that takes longer ends the backup with a sentence. What is remembered of requests comes
//! first, then shards one after the other, then the rest: see `store::backup` for why in this order.

use std::collections::VecDeque;

use bytes::Bytes;
use engine::id::ShardId;
use engine::limits::{BACKUP_HOLD_MAX, BACKUP_SHARD_BYTES_MAX};
use engine::shard::record::head_key;
use store::backup::{Encoder, Header, Part, TakeError, header, page, recall, rest, shard};
use store::claim::Head;
use store::{Key, Range, ScanError};
use tokio::sync::OwnedSemaphorePermit;

use crate::desk::{CallError, Desk};

/// Why a backup ended before it was whole.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error(transparent)]
    Take(#[from] TakeError),
    #[error("shard {shard}: {why}")]
    Owner {
        shard: ShardId,
        #[source]
        why: CallError,
    },
}

/// A backup that is being taken.
pub(crate) struct Taking {
    desk: Desk,
    shards: u16,
    /// Until the end is written.
    encoder: Option<Encoder>,
    next: Step,
    _turn: OwnedSemaphorePermit,
}

enum Step {
    /// These bytes, and then what is remembered.
    Begin(Vec<u8>),
    Recall(VecDeque<Range>),
    Shard(u16),
    Rest(VecDeque<Range>),
}

impl Taking {
    /// Begins one, if the store can be backed up.
    pub(crate) async fn begin(desk: &Desk, turn: OwnedSemaphorePermit) -> Result<Self, TakeError> {
        let version = env!("CARGO_PKG_VERSION");
        let header: Header = header(desk.store(), desk.machine(), version).await?;
        let mut out = Vec::new();
        let encoder = Some(Encoder::begin(&header, &mut out));
        let (shards, next) = (header.shards, Step::Begin(out));
        Ok(Self { desk: desk.clone(), shards, encoder, next, _turn: turn })
    }

    /// The next piece; `None` when there is no more. If it cannot go on, the last piece says why.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let mut encoder = self.encoder.take()?;
        let mut out = Vec::new();
        match self.step(&mut encoder, &mut out).await {
            Ok(true) => self.encoder = Some(encoder),
            Ok(false) => encoder.end(&mut out),
            Err(why) => {
                tracing::warn!(%why, "a backup was given up");
                out.clear();
                encoder.broken(&why.to_string(), &mut out);
            }
        }
        Some(out.into())
    }

    /// Writes the next piece. Whether there are more.
    async fn step(&mut self, encoder: &mut Encoder, out: &mut Vec<u8>) -> Result<bool, Cut> {
        match &mut self.next {
            Step::Begin(first) => {
                out.append(first);
                encoder.part(Part::Recall, out);
                self.next = Step::Recall(recall().into());
            }
            Step::Recall(ranges) => {
                if !read_page(&self.desk, ranges, encoder, out).await? {
                    self.next = Step::Shard(0);
                }
            }
            Step::Shard(number) if *number < self.shards => {
                let id = ShardId(*number);
                *number += 1;
                read(&self.desk, id, encoder, out).await?;
            }
            Step::Shard(_) => {
                encoder.part(Part::Rest, out);
                self.next = Step::Rest(rest().into());
            }
            Step::Rest(ranges) => {
                return Ok(read_page(&self.desk, ranges, encoder, out).await?);
            }
        }
        Ok(true)
    }
}

/// Reads the next page of these ranges, if there is one.
async fn read_page(
    desk: &Desk,
    ranges: &mut VecDeque<Range>,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<bool, TakeError> {
    let Some(range) = ranges.pop_front() else { return Ok(false) };
    if let Some(left) = page(desk.store(), range, encoder, out).await? {
        ranges.push_front(left);
    }
    Ok(true)
}

/// Reads a shard while its owner writes nothing.
async fn read(
    desk: &Desk,
    id: ShardId,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<(), Cut> {
    let hold = desk.hold(id).await.map_err(|why| Cut::Owner { shard: id, why })?;
    let reading = async {
        // The owner says where its chain is: a store that says otherwise is not the one that it writes to.
        if number(desk, id).await? != Some(hold.quiet.number) {
            return Err(TakeError::Moved(id));
        }
        shard(desk.store(), id, encoder, |bytes| {
            if out.len() + bytes.len() > BACKUP_SHARD_BYTES_MAX {
                return Err(TakeError::TooLarge(id));
            }
            out.extend_from_slice(bytes);
            Ok(())
        })
        .await
    };
    match tokio::time::timeout(BACKUP_HOLD_MAX, reading).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(TakeError::TooSlow(id).into()),
    }
}

/// The number of the last commit of a shard's chain, by the store.
async fn number(desk: &Desk, id: ShardId) -> Result<Option<u64>, ScanError> {
    let key = Key::new(head_key(id)).expect("a short key");
    let Some(entry) = desk.store().get(&key).await? else { return Ok(None) };
    let head = Head::from_value(&entry.value);
    Ok(Some(head.map_err(|why| ScanError::Corrupt(format!("{key}: {why}")))?.number))
}

//! A backup of a server that runs, shard by shard and piece by piece.
//!
//! Each shard is read between two commits of its chain: its owner, which may be another server, holds them back, the
//! shard is read into memory, and then it goes on, long before whoever asked has had all of it. A shard that nobody has
//! is read as it is. Whether nothing was written meanwhile is looked at in any case, and if something was, as when the
//! shard changed hands, it is read again. Reading has the same bound as the quiesce; a shard that takes longer ends the
//! backup with a sentence. What is remembered of requests comes first, then shards one after the other, then the rest:
//! see `store::backup` for why in this order.

use std::collections::VecDeque;
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use client::cluster::{QuiescedShard, ResumeShard};
use engine::id::ShardId;
use engine::limits::{BACKUP_QUIESCE_MAX, BACKUP_SHARD_BYTES_MAX};
use engine::shard::record::head_key;
use store::backup::{
    BackupHeader, BackupSection, Encoder, TakeBackupError, header, idempotency, page, rest, shard,
};
use store::claim::Head;
use store::session::NodeId;
use store::{Key, Range, ScanError};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::forward::{PeerClient, Unreached};
use crate::handle::{self, CallError, NodeHandle};

/// Why a backup ended before it was whole.
#[derive(Debug, thiserror::Error)]
enum BackupError {
    #[error(transparent)]
    Take(#[from] TakeBackupError),
    #[error("shard {shard}: {why}")]
    Owner {
        shard: ShardId,
        #[source]
        why: CallError,
    },
    #[error("shard {shard} could not be quiesced by the server {node}, which has it: {why}")]
    Peer { shard: ShardId, node: NodeId, why: Unreached },
}

impl BackupError {
    /// Whether another try may succeed, because the shard has changed hands.
    fn is_passing(&self) -> bool {
        match self {
            Self::Take(why) => matches!(why, TakeBackupError::Moved(_)),
            Self::Owner { why, .. } => {
                matches!(why, CallError::NoOwner { .. } | CallError::HandedOver | CallError::Busy)
            }
            Self::Peer { .. } => true,
        }
    }
}

/// How often a shard that changes hands is tried.
const TRIES_MAX: usize = 5;

/// The rest between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// A backup that is being taken.
pub(crate) struct RunningBackup {
    handle: NodeHandle,
    peers: PeerClient,
    shards: u16,
    /// None, once the end is written.
    encoder: Option<Encoder>,
    next: BackupStep,
    _permit: OwnedSemaphorePermit,
}

enum BackupStep {
    /// The header, already encoded.
    Begin(Vec<u8>),
    Idempotency(VecDeque<Range>),
    Shard(u16),
    Rest(VecDeque<Range>),
}

impl RunningBackup {
    /// Begins a backup, if the store can be backed up.
    pub(crate) async fn begin(
        handle: &NodeHandle,
        peers: PeerClient,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, TakeBackupError> {
        let version = env!("CARGO_PKG_VERSION");
        let header: BackupHeader = header(handle.store(), handle.machine(), version).await?;
        let mut out = Vec::new();
        let encoder = Some(Encoder::begin(&header, &mut out));
        let (shards, next) = (header.shards, BackupStep::Begin(out));
        Ok(Self { handle: handle.clone(), peers, shards, encoder, next, _permit: permit })
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

    /// Writes the next piece, and tells whether there are more.
    async fn step(
        &mut self,
        encoder: &mut Encoder,
        out: &mut Vec<u8>,
    ) -> Result<bool, BackupError> {
        match &mut self.next {
            BackupStep::Begin(first) => {
                out.append(first);
                encoder.section(BackupSection::Idempotency, out);
                self.next = BackupStep::Idempotency(idempotency().into());
            }
            BackupStep::Idempotency(ranges) => {
                if !read_page(&self.handle, ranges, encoder, out).await? {
                    self.next = BackupStep::Shard(0);
                }
            }
            BackupStep::Shard(number) if *number < self.shards => {
                let id = ShardId(*number);
                *number += 1;
                read(&self.handle, &self.peers, id, encoder, out).await?;
            }
            BackupStep::Shard(_) => {
                encoder.section(BackupSection::Rest, out);
                self.next = BackupStep::Rest(rest().into());
            }
            BackupStep::Rest(ranges) => {
                return Ok(read_page(&self.handle, ranges, encoder, out).await?);
            }
        }
        Ok(true)
    }
}

/// Reads the next page of these ranges, and tells whether there was one.
async fn read_page(
    handle: &NodeHandle,
    ranges: &mut VecDeque<Range>,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<bool, TakeBackupError> {
    let Some(range) = ranges.pop_front() else { return Ok(false) };
    if let Some(left) = page(handle.store(), range, encoder, out).await? {
        ranges.push_front(left);
    }
    Ok(true)
}

/// Reads a shard while nobody writes to it.
async fn read(
    handle: &NodeHandle,
    peers: &PeerClient,
    id: ShardId,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<(), BackupError> {
    let mut tried = 1;
    loop {
        let (mut attempt, mut piece) = (encoder.clone(), Vec::new());
        let why = match read_once(handle, peers, id, &mut attempt, &mut piece).await {
            Ok(()) => {
                *encoder = attempt;
                out.append(&mut piece);
                return Ok(());
            }
            Err(why) => why,
        };
        if tried == TRIES_MAX || !why.is_passing() {
            return Err(why);
        }
        tried += 1;
        handle.machine().sleep(PAUSE).await;
    }
}

async fn read_once(
    handle: &NodeHandle,
    peers: &PeerClient,
    id: ShardId,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<(), BackupError> {
    let quiesce = Quiesce::begin(handle, peers, id).await?;
    let reading = async {
        // The owner says where its chain is: a store that says otherwise is not the one that it writes to.
        if quiesce.number().is_some() && number(handle, id).await? != quiesce.number() {
            return Err(TakeBackupError::Moved(id));
        }
        shard(handle.store(), id, encoder, |bytes| {
            if out.len() + bytes.len() > BACKUP_SHARD_BYTES_MAX {
                return Err(TakeBackupError::TooLarge(id));
            }
            out.extend_from_slice(bytes);
            Ok(())
        })
        .await
    };
    let read = tokio::time::timeout(BACKUP_QUIESCE_MAX, reading).await;
    quiesce.end(peers, id).await;
    match read {
        Ok(done) => Ok(done?),
        Err(_) => Err(TakeBackupError::TooSlow(id).into()),
    }
}

/// What keeps a shard from being written to.
enum Quiesce {
    /// This server holds its commits back.
    Here(handle::QuiesceGuard),
    /// Another server does, until it is told otherwise or its time is over.
    There { node: NodeId, url: Option<String>, quiesce: QuiescedShard },
    /// Nobody has the shard, so nobody writes to it.
    Nobody,
}

impl Quiesce {
    async fn begin(
        handle: &NodeHandle,
        peers: &PeerClient,
        id: ShardId,
    ) -> Result<Self, BackupError> {
        let (node, url) = match handle.find(id).await {
            Ok(()) => {
                let quiesced = handle.quiesce(id).await;
                return quiesced
                    .map(Self::Here)
                    .map_err(|why| BackupError::Owner { shard: id, why });
            }
            Err(CallError::NoOwner { .. }) => return Ok(Self::Nobody),
            Err(CallError::Elsewhere { node, url }) => (node, url),
            Err(why) => return Err(BackupError::Owner { shard: id, why }),
        };
        let path = format!("/v1/cluster/shards/{id}/quiesce");
        let answer = peers.ask((&node, url.as_deref()), Method::POST, &path, None).await;
        let quiesce = answer.and_then(|bytes| {
            serde_json::from_slice(&bytes)
                .map_err(|why| format!("its answer is not understood: {why}"))
        });
        match quiesce {
            Ok(quiesce) => Ok(Self::There { node, url, quiesce }),
            Err(why) => Err(BackupError::Peer { shard: id, node, why }),
        }
    }

    /// The number of the last commit of the shard, if anybody knows.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Here(quiesced) => Some(quiesced.point.number),
            Self::There { quiesce, .. } => Some(quiesce.number),
            Self::Nobody => None,
        }
    }

    /// Lets the shard go on. If that is not heard, it goes on when its time is over.
    async fn end(self, peers: &PeerClient, id: ShardId) {
        let Self::There { node, url, quiesce } = self else { return };
        let path = format!("/v1/cluster/shards/{id}/resume");
        let body = serde_json::to_string(&ResumeShard { quiesce: quiesce.quiesce })
            .expect("it is a number");
        let to = (&node, url.as_deref());
        if let Err(why) = peers.ask(to, Method::POST, &path, Some(body)).await {
            tracing::debug!(%node, shard = %id, why, "a shard was not told to go on");
        }
    }
}

/// The number of the last commit of a shard's chain, by the store.
async fn number(handle: &NodeHandle, id: ShardId) -> Result<Option<u64>, ScanError> {
    let key = Key::new(head_key(id)).expect("a short key");
    let Some(entry) = handle.store().get(&key).await? else { return Ok(None) };
    let head = Head::from_value(&entry.value);
    Ok(Some(head.map_err(|why| ScanError::Corrupt(format!("{key}: {why}")))?.number))
}

//! A backup of a server that runs, shard by shard and piece by piece.
//!
//! Each shard is read between two commits of its chain: its owner, which may be another server, holds them back, the
//! shard is read into memory, and then it goes on, long before whoever asked has had all of it. A shard that nobody has
//! is read as it is. Whether nothing was written meanwhile is looked at in any case, and if something was, as when the
//! shard changed hands, it is read again. Reading has the same bound as the hold; a shard that takes longer ends the
//! backup with a sentence. What is remembered of requests comes first, then shards one after the other, then the rest:
//! see `store::backup` for why in this order.

use std::collections::VecDeque;
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use client::cluster::{ReleaseHold, ShardHold};
use engine::id::ShardId;
use engine::limits::{BACKUP_HOLD_MAX, BACKUP_SHARD_BYTES_MAX};
use engine::shard::record::head_key;
use store::backup::{Encoder, Header, Part, TakeError, header, page, recall, rest, shard};
use store::claim::Head;
use store::session::NodeId;
use store::{Key, Range, ScanError};
use tokio::sync::OwnedSemaphorePermit;

use crate::api::forward::{Envoy, Unreached};
use crate::desk::{CallError, Desk, HeldShard};

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
    #[error("shard {shard} could not be held back by the server {node}, which has it: {why}")]
    Peer { shard: ShardId, node: NodeId, why: Unreached },
}

impl Cut {
    /// Whether it may go better the next time, because the shard has changed hands.
    fn is_passing(&self) -> bool {
        match self {
            Self::Take(why) => matches!(why, TakeError::Moved(_)),
            Self::Owner { why, .. } => {
                matches!(why, CallError::NoOwner { .. } | CallError::Parted | CallError::Busy)
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
pub(crate) struct Taking {
    desk: Desk,
    envoy: Envoy,
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
    pub(crate) async fn begin(
        desk: &Desk,
        envoy: Envoy,
        turn: OwnedSemaphorePermit,
    ) -> Result<Self, TakeError> {
        let version = env!("CARGO_PKG_VERSION");
        let header: Header = header(desk.store(), desk.machine(), version).await?;
        let mut out = Vec::new();
        let encoder = Some(Encoder::begin(&header, &mut out));
        let (shards, next) = (header.shards, Step::Begin(out));
        Ok(Self { desk: desk.clone(), envoy, shards, encoder, next, _turn: turn })
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
                read(&self.desk, &self.envoy, id, encoder, out).await?;
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

/// Reads a shard while nobody writes to it.
async fn read(
    desk: &Desk,
    envoy: &Envoy,
    id: ShardId,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<(), Cut> {
    let mut tried = 1;
    loop {
        let (mut attempt, mut piece) = (encoder.clone(), Vec::new());
        let why = match read_once(desk, envoy, id, &mut attempt, &mut piece).await {
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
        desk.machine().sleep(PAUSE).await;
    }
}

async fn read_once(
    desk: &Desk,
    envoy: &Envoy,
    id: ShardId,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) -> Result<(), Cut> {
    let hold = Hold::begin(desk, envoy, id).await?;
    let reading = async {
        // The owner says where its chain is: a store that says otherwise is not the one that it writes to.
        if hold.number().is_some() && number(desk, id).await? != hold.number() {
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
    let read = tokio::time::timeout(BACKUP_HOLD_MAX, reading).await;
    hold.end(envoy, id).await;
    match read {
        Ok(done) => Ok(done?),
        Err(_) => Err(TakeError::TooSlow(id).into()),
    }
}

/// What keeps a shard from being written to.
enum Hold {
    /// This server holds it back.
    Here(HeldShard),
    /// Another one does, until it is told otherwise or its time is over.
    There { node: NodeId, url: Option<String>, hold: ShardHold },
    /// Nobody has it.
    Nobody,
}

impl Hold {
    async fn begin(desk: &Desk, envoy: &Envoy, id: ShardId) -> Result<Self, Cut> {
        let (node, url) = match desk.find(id).await {
            Ok(()) => {
                let held = desk.hold(id).await;
                return held.map(Self::Here).map_err(|why| Cut::Owner { shard: id, why });
            }
            Err(CallError::NoOwner { .. }) => return Ok(Self::Nobody),
            Err(CallError::Elsewhere { node, url }) => (node, url),
            Err(why) => return Err(Cut::Owner { shard: id, why }),
        };
        let path = format!("/v1/cluster/shards/{id}/hold");
        let answer = envoy.ask((&node, url.as_deref()), Method::POST, &path, None).await;
        let hold = answer.and_then(|bytes| {
            serde_json::from_slice(&bytes)
                .map_err(|why| format!("its answer is not understood: {why}"))
        });
        match hold {
            Ok(hold) => Ok(Self::There { node, url, hold }),
            Err(why) => Err(Cut::Peer { shard: id, node, why }),
        }
    }

    /// The number of the last commit of the shard, if anybody knows.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Here(held) => Some(held.quiet.number),
            Self::There { hold, .. } => Some(hold.number),
            Self::Nobody => None,
        }
    }

    /// Lets the shard go on. If that is not heard, it goes on when its time is over.
    async fn end(self, envoy: &Envoy, id: ShardId) {
        let Self::There { node, url, hold } = self else { return };
        let path = format!("/v1/cluster/shards/{id}/release");
        let body = serde_json::to_string(&ReleaseHold { hold: hold.hold }).expect("it is a number");
        let to = (&node, url.as_deref());
        if let Err(why) = envoy.ask(to, Method::POST, &path, Some(body)).await {
            tracing::debug!(%node, shard = %id, why, "a shard was not told to go on");
        }
    }
}

/// The number of the last commit of a shard's chain, by the store.
async fn number(desk: &Desk, id: ShardId) -> Result<Option<u64>, ScanError> {
    let key = Key::new(head_key(id)).expect("a short key");
    let Some(entry) = desk.store().get(&key).await? else { return Ok(None) };
    let head = Head::from_value(&entry.value);
    Ok(Some(head.map_err(|why| ScanError::Corrupt(format!("{key}: {why}")))?.number))
}

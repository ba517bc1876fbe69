//! Asking whoever owns a shard what only its memory knows: how a queue stands, why a run waits, who works.
//!
//! What is in the store every server reads alike. The rest the owner tells: this server, or another one that is asked by
//! the same path in the name of whoever asked this one. Servers that are asked by a server ask no others.

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use engine::id::ShardId;
use engine::shard::ShardAnswer;

use super::forward::PeerClient;
use crate::handle::{CallError, NodeHandle, ShardAsk};
use crate::peers::ShardLocation;

/// What the owner of a shard told.
pub(super) enum Told {
    /// This server has the shard.
    Here(ShardAnswer),
    /// Another server has it, and answered the same path with this; with nothing, if there is no such thing.
    There(Bytes),
    /// Nobody could be asked.
    Nobody,
}

/// Asks the owner of a shard.
pub(super) async fn ask(
    handle: &NodeHandle,
    peers: &PeerClient,
    shard: ShardId,
    ask: ShardAsk,
    path: &str,
) -> Told {
    let guard = handle.ask_guard(shard);
    match handle.ask_shard(&guard, ask).await {
        Ok(answer) => Told::Here(answer),
        Err(CallError::Elsewhere { .. }) => {
            let place = handle.peers().view().place(shard);
            let ShardLocation::There(server) = place else { return Told::Nobody };
            if !peers.others().contains(&server) {
                return Told::Nobody;
            }
            let to = (server.node(), server.url.as_deref());
            let answer = peers.ask_for(to, Method::GET, path, None, PeerClient::patience()).await;
            match answer {
                Ok((status, bytes)) if status.is_success() => Told::There(bytes),
                Ok((StatusCode::NOT_FOUND, _)) => Told::There(Bytes::new()),
                Ok(_) | Err(_) => Told::Nobody,
            }
        }
        Err(_) => Told::Nobody,
    }
}

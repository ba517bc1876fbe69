//! `/v1/cluster`: who takes part, who has which shard, and letting a server go.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json};
use client::cluster::{
    Cluster, Drain, Node, NodeState, Orphan, QuiescedShard, ResumeShard, ServerNode,
};
use engine::id::ShardId;
use engine::instant::Instant;
use store::session::{Roster, SessionKey, SessionRecord};

use super::body::{JsonBody, NoBody};
use super::caller::Caller;
use super::convert::timestamp;
use super::problem::{ApiError, ApiResult};
use crate::handle::{CallError, NodeHandle, QuiesceId};
use crate::idempotency::RememberedOutcome;
use crate::peers::{SCHEDULE, Server, View};

pub(super) async fn show(handle: NodeHandle) -> ApiResult<Json<Cluster>> {
    let roster = Roster::read(handle.store()).await?;
    let view = handle.peers().view();
    let shards = shards(&view);
    let nodes = roster.live().map(|(key, record)| node(&view, &shards, key, record));
    let since = handle.peers().orphaned();
    let orphans = view
        .orphans()
        .map(|shard| Orphan { shard: shard.0, since: since.get(&shard).copied().map(timestamp) });
    let class = handle.store().class();
    Ok(Json(Cluster {
        id: format!("{:016x}", handle.cluster()),
        shards: handle.shards(),
        store_class: class.to_string(),
        store_means: class.meaning().to_owned(),
        nodes: nodes.collect(),
        orphans: orphans.collect(),
    }))
}

/// The shards of each session.
fn shards(view: &View) -> BTreeMap<&SessionKey, Vec<u16>> {
    let mut shards: BTreeMap<_, Vec<u16>> = BTreeMap::new();
    for (number, owner) in (0..).zip(&view.owners) {
        if let Some(owner) = owner {
            shards.entry(owner).or_default().push(number);
        }
    }
    shards
}

fn node(
    view: &View,
    shards: &BTreeMap<&SessionKey, Vec<u16>>,
    key: &SessionKey,
    record: &SessionRecord,
) -> Node {
    let server = view.server(key).map(|server| {
        let shards = shards.get(key).cloned().unwrap_or_default();
        ServerNode {
            state: state(server, &shards),
            version: server.version.clone(),
            unable: server.unable.iter().map(|shard| shard.0).collect(),
            clock_ahead_ms: server.ahead_ms,
            shards,
        }
    });
    Node {
        name: key.node().to_string(),
        url: record.url.clone(),
        roles: record.roles.clone(),
        ttl_ms: record.ttl_ms,
        seen: timestamp(Instant(i64::try_from(record.wall_us / 1_000).unwrap_or(i64::MAX))),
        server,
    }
}

fn state(server: &Server, shards: &[u16]) -> NodeState {
    if server.is_draining {
        NodeState::Draining
    } else if server.is_apart {
        NodeState::Apart
    } else if server.has_role(SCHEDULE) && shards.is_empty() {
        NodeState::Joining
    } else {
        NodeState::Ready
    }
}

/// Lets a server hand its shards over, until it is told otherwise or started anew.
pub(super) async fn drain(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult {
    check_here(&handle, &name)?;
    handle.peers().drain(true);
    let trail = caller.trail_of_all(&handle, "cluster.drain", &name);
    handle.access().note_as(&trail, RememberedOutcome::Drained(name.clone())).await?;
    caller.tell(&handle, &trail.audit.action, &name);
    tracing::warn!(author = caller.author, "this server hands its shards over, and takes none");
    drained(&handle, &name)
}

pub(super) async fn undrain(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult {
    check_here(&handle, &name)?;
    handle.peers().drain(false);
    let trail = caller.trail_of_all(&handle, "cluster.undrain", &name);
    handle.access().note(&trail).await?;
    caller.tell(&handle, &trail.audit.action, &name);
    tracing::warn!(author = caller.author, "this server takes shards again");
    drained(&handle, &name)
}

/// Whether this is the server of that name. If another is, it is asked instead.
fn check_here(handle: &NodeHandle, name: &str) -> ApiResult<()> {
    let view = handle.peers().view();
    if view.me.node().as_str() == name {
        return Ok(());
    }
    if let Some(server) = view.named(name) {
        let (node, url) = (server.node().clone(), server.url.clone());
        return Err(CallError::Elsewhere { node, url }.into());
    }
    Err(no_server(&view, name))
}

fn no_server(view: &View, name: &str) -> ApiError {
    let names: Vec<&str> = view.servers.iter().map(|server| server.node().as_str()).collect();
    let name: String = name.chars().take(100).collect();
    let detail = format!("there is no server {name:?}: these are there: {}", names.join(", "));
    ApiError::new(StatusCode::NOT_FOUND, "no-server", "No such server", detail)
}

/// How far a server is with handing its shards over: 202 as long as it has any that it should not have.
pub(super) fn drained(handle: &NodeHandle, name: &str) -> ApiResult {
    let view = handle.peers().view();
    let Some(server) = view.named(name) else { return Err(no_server(&view, name)) };
    let is_own = server.session == view.me;
    let draining = if is_own { *handle.peers().drained().borrow() } else { server.is_draining };
    let shards: Vec<u16> = view.shards_of(&server.session).map(|shard| shard.0).collect();
    let is_under_way = draining && !shards.is_empty();
    let status = if is_under_way { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(Drain { node: name.to_owned(), draining, shards })).into_response())
}

/// Quiesces the commits of a shard for a moment: for a backup that another server takes.
pub(super) async fn quiesce(
    handle: NodeHandle,
    caller: Caller,
    Path(id): Path<String>,
    _: NoBody,
) -> ApiResult<Json<QuiescedShard>> {
    let shard = shard(&handle, &id)?;
    handle.find(shard).await?;
    let point = handle.quiesce_for_another(shard).await?;
    tracing::debug!(%shard, author = caller.author, "a shard is quiesced for a backup");
    Ok(Json(QuiescedShard { quiesce: point.quiesce.0, number: point.number }))
}

/// Lets a quiesced shard go on.
pub(super) async fn resume(
    handle: NodeHandle,
    Path(id): Path<String>,
    JsonBody(ResumeShard { quiesce }): JsonBody<ResumeShard>,
) -> ApiResult<StatusCode> {
    let shard = shard(&handle, &id)?;
    handle.find(shard).await?;
    handle.release(QuiesceId(quiesce));
    Ok(StatusCode::NO_CONTENT)
}

fn shard(handle: &NodeHandle, text: &str) -> ApiResult<ShardId> {
    let number = text.parse().ok().filter(|number| *number < handle.shards());
    number.map(ShardId).ok_or_else(|| {
        ApiError::not_found(format!(
            "there is no such shard: they have numbers below {}",
            handle.shards()
        ))
    })
}

#[cfg(test)]
mod tests {
    use store::session::NodeId;

    use super::*;

    #[test]
    fn a_server_is_told_as_what_keeps_it_from_having_shards_first() {
        let me = SessionKey::new(&NodeId::new("a").unwrap(), 1);
        let server = View::alone(me, 4).servers.remove(0);
        let of = |is_draining, is_apart, shards: &[u16]| {
            state(&Server { is_draining, is_apart, ..server.clone() }, shards).as_str()
        };
        assert_eq!(of(false, false, &[1]), "ready");
        assert_eq!(of(false, false, &[]), "joining");
        assert_eq!(of(false, true, &[]), "apart");
        assert_eq!(of(true, true, &[1]), "draining");
        let front = Server { roles: vec!["api".to_owned()], ..server };
        assert_eq!(state(&front, &[]), NodeState::Ready);
    }
}

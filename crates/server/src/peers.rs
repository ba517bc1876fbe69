//! The servers of a cluster, as one of them sees the others: who is there, and who has which shard.
//!
//! The assigner (`node::assign`) makes a new [`View`] whenever something changes. It is for those who pass requests on
//! and for those who show it to people. Nothing that matters is decided by it: it may be old by the time it is read, and
//! a shard's owner refuses what is not its own any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::id::ShardId;
use engine::instant::Instant;
use parking_lot::Mutex;
use store::session::{NodeId, SessionKey};
use tokio::sync::watch;

/// A server with this role answers requests.
pub const API: &str = "api";

/// A server with this role has shards.
pub const SCHEDULE: &str = "schedule";

/// What a server does, if nothing else is said.
pub const ROLES: [&str; 2] = [API, SCHEDULE];

/// A server that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The key of its session.
    pub session: SessionKey,
    /// The URL under which others reach it.
    pub url: Option<String>,
    /// Its roles: see [`ROLES`].
    pub roles: Vec<String>,
    /// The version of Watchbell that it runs.
    pub version: String,
    /// It hands its shards over, and takes none.
    pub is_draining: bool,
    /// How far its clock is ahead of the median of all, in milliseconds, as far as that can be seen.
    pub ahead_ms: i64,
    /// It is so far from the median that it takes no shard.
    pub is_apart: bool,
    /// Its clock was seen to move: until then `ahead_ms` is not known.
    pub is_timed: bool,
    /// Shards that it cannot run.
    pub unable: Vec<ShardId>,
}

impl Server {
    /// Its node's id.
    pub fn node(&self) -> &NodeId {
        self.session.node()
    }

    /// Whether it may be given shards.
    pub fn takes_shards(&self) -> bool {
        self.has_role(SCHEDULE) && !self.is_draining && !self.is_apart
    }

    /// Whether it has this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| own == role)
    }
}

/// A cluster at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The session of the server that sees it so.
    pub me: SessionKey,
    /// All servers that are there, in the order of their sessions' keys; this one among them.
    pub servers: Vec<Server>,
    /// The session that has each shard, by the shard's number. That session may be gone.
    pub owners: Vec<Option<SessionKey>>,
}

/// Where a shard is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardLocation {
    /// This server has it.
    Here,
    /// Another server has it, which is there.
    There(Server),
    /// No server that is there has it.
    Nowhere,
}

impl View {
    /// The view of a server that has not looked yet.
    pub fn first(me: SessionKey, shards: u16) -> Self {
        Self { owners: vec![None; usize::from(shards)], ..Self::alone(me, shards) }
    }

    /// The view of a server that knows of no other, and has every shard.
    pub fn alone(me: SessionKey, shards: u16) -> Self {
        let server = Server {
            session: me.clone(),
            url: None,
            roles: ROLES.map(str::to_owned).to_vec(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            is_draining: false,
            ahead_ms: 0,
            is_apart: false,
            is_timed: true,
            unable: Vec::new(),
        };
        let owners = vec![Some(me.clone()); usize::from(shards)];
        Self { me, servers: vec![server], owners }
    }

    /// The server with this session, if it is there.
    pub fn server(&self, session: &SessionKey) -> Option<&Server> {
        self.servers.iter().find(|server| server.session == *session)
    }

    /// The server of this name, if it is there.
    pub fn named(&self, node: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.node().as_str() == node)
    }

    /// The server whose view this is, if it sees itself.
    pub fn mine(&self) -> Option<&Server> {
        self.server(&self.me)
    }

    /// Where a shard is.
    pub fn place(&self, shard: ShardId) -> ShardLocation {
        let owner = self.owners.get(usize::from(shard.0)).and_then(Option::as_ref);
        match owner.and_then(|owner| self.server(owner)) {
            // A server that says it cannot run a shard does not.
            Some(server) if server.unable.contains(&shard) => ShardLocation::Nowhere,
            Some(server) if server.session == self.me => ShardLocation::Here,
            Some(server) => ShardLocation::There(server.clone()),
            None if owner == Some(&self.me) => ShardLocation::Here,
            None => ShardLocation::Nowhere,
        }
    }

    /// Whether another server is there that takes shards.
    pub fn has_others_to_take(&self) -> bool {
        self.servers.iter().any(|server| server.session != self.me && server.takes_shards())
    }

    /// Whether other servers are there, and this one's clock is as theirs are.
    pub fn agrees_with_others(&self) -> bool {
        let others = self.servers.iter().filter(|server| server.session != self.me);
        let is_apart = self.server(&self.me).is_none_or(|me| me.is_apart);
        !is_apart && others.filter(|server| server.is_timed && !server.is_apart).count() > 0
    }

    /// The shards that this server has.
    pub fn shards_of(&self, session: &SessionKey) -> impl Iterator<Item = ShardId> {
        let owners = self.shards().zip(&self.owners);
        owners.filter(move |(_, owner)| owner.as_ref() == Some(session)).map(|(shard, _)| shard)
    }

    /// The shards that nobody has who is there.
    pub fn orphans(&self) -> impl Iterator<Item = ShardId> {
        self.shards().filter(|shard| self.place(*shard) == ShardLocation::Nowhere)
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        let shards = u16::try_from(self.owners.len()).expect("there are no more shards than that");
        (0..shards).map(ShardId)
    }
}

/// What a node and those with a handle to it know of the others.
#[derive(Debug)]
pub struct Peers {
    view: watch::Sender<Arc<View>>,
    /// The shards that are read and run here at the moment.
    served: watch::Sender<Arc<BTreeSet<ShardId>>>,
    /// Whether this node is to have no shard.
    drained: watch::Sender<bool>,
    /// Since when nobody has a shard, as far as this node has seen it.
    orphaned: Mutex<BTreeMap<ShardId, Instant>>,
}

impl Peers {
    /// Peers that begin with this view.
    pub fn new(view: View) -> Self {
        Self {
            view: watch::Sender::new(Arc::new(view)),
            served: watch::Sender::default(),
            drained: watch::Sender::new(false),
            orphaned: Mutex::default(),
        }
    }

    /// The peers of a node that has every shard, and knows of no other.
    pub fn alone(me: SessionKey, shards: u16) -> Self {
        let peers = Self::new(View::alone(me, shards));
        peers.serve((0..shards).map(ShardId).collect());
        peers
    }

    /// The cluster as it was seen last.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.borrow())
    }

    /// The cluster as it was seen last, and word when it changes.
    pub fn follow(&self) -> watch::Receiver<Arc<View>> {
        self.view.subscribe()
    }

    /// The shards that are read and run here, and word when they change.
    pub fn served(&self) -> watch::Receiver<Arc<BTreeSet<ShardId>>> {
        self.served.subscribe()
    }

    /// Whether this node is to have no shard, and word when that changes.
    pub fn drained(&self) -> watch::Receiver<bool> {
        self.drained.subscribe()
    }

    /// From now on this node is to have no shard, or as many as it should.
    pub fn drain(&self, is_drained: bool) {
        self.drained.send_replace(is_drained);
    }

    /// Since when nobody has a shard, of those that nobody has.
    pub fn orphaned(&self) -> BTreeMap<ShardId, Instant> {
        self.orphaned.lock().clone()
    }

    /// Looks which shards nobody has now.
    pub fn note_orphans(&self, now: Instant) {
        let orphans: BTreeSet<ShardId> = self.view().orphans().collect();
        let mut orphaned = self.orphaned.lock();
        orphaned.retain(|shard, _| orphans.contains(shard));
        for shard in orphans {
            orphaned.entry(shard).or_insert(now);
        }
    }

    /// The cluster looks like this now.
    pub fn show(&self, view: View) {
        show(&self.view, Arc::new(view));
    }

    /// These shards are read and run here now.
    pub fn serve(&self, shards: BTreeSet<ShardId>) {
        show(&self.served, Arc::new(shards));
    }
}

/// Shows a value to all who watch, if it is another than before.
pub(crate) fn show<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|shown| {
        let is_news = *shown != value;
        if is_news {
            *shown = value;
        }
        is_news
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_with_whoever_is_there_and_can_run_it() {
        let session = |name| SessionKey::new(&NodeId::new(name).unwrap(), 1);
        let mut view = View::alone(session("a"), 3);
        view.servers.extend(View::alone(session("b"), 3).servers);
        view.owners = vec![Some(session("a")), Some(session("b")), Some(session("gone"))];
        assert_eq!(view.place(ShardId(0)), ShardLocation::Here);
        assert_eq!(view.place(ShardId(1)), ShardLocation::There(view.servers[1].clone()));
        assert_eq!(view.place(ShardId(2)), ShardLocation::Nowhere);
        assert_eq!(view.place(ShardId(3)), ShardLocation::Nowhere, "there is no such shard");
        view.servers[1].unable = vec![ShardId(1)];
        assert_eq!(view.orphans().collect::<Vec<_>>(), [ShardId(1), ShardId(2)]);
    }
}

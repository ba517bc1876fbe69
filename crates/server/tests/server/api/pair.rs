//! Two servers on one store, which know of each other: `a` has the shards 0 and 1, `b` the shards 2 and 3.

use engine::id::{ProjectId, ShardId};
use server::api::ApiSecurity;
use server::peers::{Server, View};
use store::Store;
use store::memory::MemoryStore;
use store::session::SessionKey;

use super::bench::{Bench, SHARDS};

pub(super) struct Pair {
    pub(super) a: Bench,
    pub(super) b: Bench,
}

/// A server of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    A,
    B,
    Nobody,
}

/// Who has which shard.
pub(super) type Deal = [Who; SHARDS as usize];

pub(super) const HALVES: Deal = [Who::A, Who::A, Who::B, Who::B];

impl Pair {
    pub(super) async fn new() -> Self {
        Self::behind(ApiSecurity::open(), ApiSecurity::open()).await
    }

    /// Two servers that let people in through these gates.
    pub(super) async fn behind(a: ApiSecurity, b: ApiSecurity) -> Self {
        let store = Store::new(MemoryStore::new());
        let a = Bench::of(store.clone(), "a", a).await;
        let pair = Self { a, b: Bench::of(store, "b", b).await };
        pair.deal(HALVES);
        pair
    }

    /// From now on they have these shards, and both know it.
    pub(super) fn deal(&self, deal: Deal) {
        self.tell(Who::A, deal);
        self.tell(Who::B, deal);
    }

    /// From now on one of them takes the shards to be dealt like this, and runs those that it takes for its own.
    pub(super) fn tell(&self, who: Who, deal: Deal) {
        self.tell_of(who, deal, self.b.client.url());
    }

    /// The same; and it takes this to be the URL of `b`.
    pub(super) fn tell_of(&self, who: Who, deal: Deal, url_of_b: &str) {
        let bench = if who == Who::A { &self.a } else { &self.b };
        let servers =
            vec![server(session(&self.a), self.a.client.url()), server(session(&self.b), url_of_b)];
        let owner = |owner: &Who| match owner {
            Who::A => Some(session(&self.a)),
            Who::B => Some(session(&self.b)),
            Who::Nobody => None,
        };
        let (me, owners) = (session(bench), deal.iter().map(owner).collect());
        bench.peers.show(View { me, servers, owners });
        let shards = (0..SHARDS).map(ShardId);
        let own = shards.filter(|shard| deal[usize::from(shard.0)] == who);
        bench.peers.serve(own.collect());
    }
}

fn session(bench: &Bench) -> SessionKey {
    bench.peers.view().me.clone()
}

fn server(session: SessionKey, url: &str) -> Server {
    let View { servers, .. } = View::alone(session, 0);
    let server = servers.into_iter().next().unwrap();
    Server { url: Some(url.to_owned()), ..server }
}

/// A name whose trigger lives in this shard.
pub(super) fn name_in(shard: u16) -> String {
    let mut names = (0..).map(|number| format!("bell-{number}"));
    let lives = |name: &String| ShardId::of(ProjectId::DEFAULT, name, SHARDS) == ShardId(shard);
    names.find(lives).unwrap()
}

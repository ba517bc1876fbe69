//! The engines that elections are tried on, and how each is brought to refuse writes.

use std::net::SocketAddr;

use rig::etcd::Etcd;
use rig::postgres::Postgres;
use rig::redis::{Redis, Setup};
use rig::{PATIENCE, until};

/// One that runs.
pub(crate) enum Engine {
    /// Three members.
    Etcd(Etcd),
    /// One that syncs what it acknowledges.
    Redis(Redis),
    Postgres(Postgres),
}

impl Engine {
    pub(crate) fn etcd() -> Self {
        tokio::task::block_in_place(|| Self::Etcd(Etcd::three()))
    }

    pub(crate) fn redis() -> Self {
        tokio::task::block_in_place(|| Self::Redis(Setup::durable().start()))
    }

    pub(crate) fn postgres() -> Self {
        tokio::task::block_in_place(|| Self::Postgres(Postgres::start(&[])))
    }

    /// One of each.
    pub(crate) fn all() -> [Self; 3] {
        [Self::etcd(), Self::redis(), Self::postgres()]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "etcd",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Where it listens; one of its members, if there are several.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Etcd(etcd) => etcd.address(0),
            Self::Redis(redis) => redis.address(),
            Self::Postgres(postgres) => postgres.address(),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Etcd(etcd) => format!("etcd://{}", etcd.hosts()),
            Self::Redis(redis) => redis.url(),
            Self::Postgres(postgres) => postgres.url(),
        }
    }

    /// The same by this way, and no other.
    pub(crate) fn url_at(&self, address: SocketAddr) -> String {
        match self {
            Self::Etcd(_) => format!("etcd://{address}"),
            Self::Redis(redis) => redis.url_at(address),
            Self::Postgres(postgres) => postgres.url_at(address),
        }
    }

    /// It takes no writes when this returns, from those either that are connected.
    pub(crate) async fn refuse(&self) {
        match self {
            // Without a quorum.
            Self::Etcd(etcd) => {
                etcd.pause(1);
                etcd.pause(2);
            }
            Self::Redis(redis) => min_replicas(redis, "1"),
            Self::Postgres(postgres) => read_only(postgres, "on").await,
        }
    }

    /// It takes writes again when this returns.
    pub(crate) async fn accept(&self) {
        match self {
            Self::Etcd(etcd) => {
                etcd.wake(1);
                etcd.wake(2);
                until("etcd takes writes", PATIENCE, || async {
                    tokio::task::block_in_place(|| etcd.try_ctl(&["put", "taken", "yes"])).ok()
                })
                .await;
            }
            Self::Redis(redis) => min_replicas(redis, "0"),
            Self::Postgres(postgres) => read_only(postgres, "off").await,
        }
    }
}

fn min_replicas(redis: &Redis, count: &str) {
    assert_eq!(redis.ask(&["CONFIG", "SET", "min-replicas-to-write", count]), "OK");
}

/// A server is told to read its configuration, and does so in its own time. It has told all that are connected when it
/// goes by it itself, as a new connection shows.
async fn read_only(postgres: &Postgres, is_on: &str) {
    let sql = |text: &str| tokio::task::block_in_place(|| postgres.sql(text));
    sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {is_on}"));
    sql("SELECT pg_reload_conf()");
    until("Postgres has read its configuration", PATIENCE, || async {
        (sql("SHOW default_transaction_read_only") == is_on).then_some(())
    })
    .await;
}

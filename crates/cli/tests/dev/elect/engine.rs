//! The engines that elections and holds are tried on, what befalls them, and how each is brought to refuse writes.

use std::net::{Ipv4Addr, SocketAddr};

use rig::etcd::{self, Etcd};
use rig::postgres::Postgres;
use rig::redis::{Redis, Setup};
use rig::{PATIENCE, until};
use tokio::task::JoinSet;

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

    /// The same, which is reached at this address as well.
    pub(crate) fn redis_also_at(address: Ipv4Addr) -> Self {
        let setup = Setup::durable().set("bind", &format!("127.0.0.1 {address}"));
        let setup = setup.set("protected-mode", "no");
        tokio::task::block_in_place(|| Self::Redis(setup.start()))
    }

    /// Three members, which are reached at this address as well.
    pub(crate) fn etcd_also_at(address: Ipv4Addr) -> Self {
        let setup = etcd::Setup { also_at: Some(address), ..etcd::Setup::default() };
        tokio::task::block_in_place(|| Self::Etcd(Etcd::start(3, &setup)))
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
        self.addresses()[0]
    }

    /// Where all of its members listen.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Etcd(etcd) => (0..etcd.len()).map(|member| etcd.address(member)).collect(),
            Self::Redis(redis) => vec![redis.address()],
            Self::Postgres(postgres) => vec![postgres.address()],
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url_by(&self.addresses())
    }

    /// The same by this way, and no other.
    pub(crate) fn url_at(&self, address: SocketAddr) -> String {
        self.url_by(&[address])
    }

    /// The same by these ways to its members.
    pub(crate) fn url_by(&self, addresses: &[SocketAddr]) -> String {
        match self {
            Self::Etcd(_) => {
                let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                format!("etcd://{}", hosts.join(","))
            }
            Self::Redis(redis) => redis.url_at(addresses[0]),
            Self::Postgres(postgres) => postgres.url_at(addresses[0]),
        }
    }

    /// kill -9 for one of its members, which is all of it if it has no other.
    pub(crate) fn kill(&mut self, member: usize) {
        match self {
            Self::Etcd(etcd) => etcd.kill(member),
            Self::Redis(redis) => redis.kill(),
            Self::Postgres(postgres) => postgres.kill(),
        }
    }

    /// Starts all members that were killed, on what they left, and waits until they answer.
    pub(crate) fn restart(&mut self) {
        tokio::task::block_in_place(|| match self {
            Self::Etcd(etcd) => etcd.restart_all(),
            Self::Redis(redis) => redis.restart(),
            Self::Postgres(postgres) => postgres.bring_up(),
        });
    }

    /// SIGSTOP for one of its members.
    pub(crate) fn pause(&self, member: usize) {
        match self {
            Self::Etcd(etcd) => etcd.pause(member),
            Self::Redis(redis) => redis.pause(),
            Self::Postgres(postgres) => postgres.pause(),
        }
    }

    /// Lets that one go on.
    pub(crate) fn wake(&self, member: usize) {
        match self {
            Self::Etcd(etcd) => etcd.wake(member),
            Self::Redis(redis) => redis.wake(),
            Self::Postgres(postgres) => postgres.wake(),
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

/// Tries this on all engines at once, each on a task of its own: that one of them is waited for does not count as time
/// that another one took.
pub(crate) async fn on_every_engine<F: Future<Output = ()> + Send + 'static>(
    check: impl Fn(Engine) -> F,
) {
    let mut checks = JoinSet::new();
    for engine in Engine::all() {
        checks.spawn(check(engine));
    }
    checks.join_all().await;
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

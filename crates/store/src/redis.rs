//! A store on Redis (6.2 or later; Valkey too).
//!
//! Two keys and a channel, all with the tag `{watchbell}` and so in one slot, readable with redis-cli: `{watchbell}:entries`, a hash from key
//! to `VERSION VALUE`, with the last version given under ` last`, which is no key; `{watchbell}:order`, a sorted set of the keys, all of score
//! 0, which Redis keeps in the order of their bytes; `{watchbell}:hints`, where the keys are published that commits changed. One hash
//! instead of a key per entry: so the scripts name every key that they touch, as Redis asks them to, a user can be confined to them, and a
//! commit that changes what is there is one `HSET`, in the append-only file too.
//!
//! A commit is a call of a script (`script`), and so is a page. A commit that finds a lane free leaves at once, from its caller's task;
//! those that come while all lanes are busy share a call (`batch`). Versions are `max(previous + 1, RedisStore's clock in µs)`: a Redis that lost
//! its tail, the last version included, still gives none twice, as long as its clock is not set back by more than it lost. What has happened
//! to the server between two answers is told by the `epoch`.
//!
//! Two connections, so that a renewal never waits behind a page of 4 MB, and a third that listens (`hint`).

mod batch;
mod call;
mod connection;
mod epoch;
mod error;
mod hint;
mod mirror;
mod reconnect;
mod script;
mod server;
mod setting;
mod tls;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use client::authority;
use tokio::task::JoinSet;

pub use self::mirror::{Mirror, MirrorError};

use self::batch::{LANES, Steps};
use self::call::RedisShared;
use self::connection::RedisConnector;
use self::error::ConnectError;
use self::script::Names;
use crate::batching::Batcher;
use crate::{
    Adapter, Address, Class, Commit, CommitError, EngineFault, Epoch, Hints, Limits, OpenError,
    Page, Pending, Range, ScanError, Store, Version,
};

/// A batch of 1,000 runs fits. Lua spreads no more than 8,000 values in one call, and a put has two.
const LIMITS: Limits =
    Limits { writes: 3_072, commit_bytes: 4 * 1024 * 1024, value_bytes: 1024 * 1024 };

/// Options of the URL, for whoever mistypes one.
const OPTIONS: &str = "prefix, ca";

/// A store on Redis.
pub struct RedisStore {
    shared: Arc<RedisShared>,
    batcher: Batcher,
    /// Dropped with the store, and with it every connection.
    _tasks: JoinSet<()>,
}

impl RedisStore {
    /// Connects, and makes sure that the engine can be relied on.
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        let (connector, names) = read(at)?;
        let entered = connector.connect(&|_| true).await;
        let (connection, setting) = entered.map_err(|trouble| trouble.opening(at))?;
        let shared = Arc::new(RedisShared::new(connector, names, connection, setting));
        shared.rehearse().await.map_err(|trouble| trouble.opening(at))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(hint::listen(Arc::clone(&shared)));
        let watched = Arc::clone(&shared);
        tasks.spawn(async move {
            tokio::join!(watched.writer.watch(), watched.reader.watch());
        });
        let carrier = Arc::clone(&shared);
        let batcher = Batcher::open::<Steps, _>(LANES, &mut tasks, move |batch| {
            let carrier = Arc::clone(&carrier);
            async move { carrier.carry(batch).await }
        });
        Ok(Store::new(Self { shared, batcher, _tasks: tasks }))
    }
}

/// Reads the address: where to connect, and the names of the keys.
fn read(at: &Address) -> Result<(RedisConnector, Names), OpenError> {
    let bad = |why: String| OpenError::Url { url: at.to_string(), why };
    let mut address = at.clone();
    let prefix = address.take("prefix").unwrap_or_else(|| "watchbell".to_owned());
    // A brace would end the tag early, and put the keys in different slots.
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(is_plain) {
        return Err(bad("prefix is 1 to 64 letters, digits, and any of -_./:".to_owned()));
    }
    if let Some((name, _)) = address.options.first_key_value() {
        return Err(bad(format!("{name:?} is no option of a Redis store; there are {OPTIONS}")));
    }
    let database = match address.path.as_str() {
        "" => 0,
        digits => digits
            .parse()
            .map_err(|_| bad("the database of a Redis is a number: redis://HOST/0".to_owned()))?,
    };
    let tls = match address.scheme {
        "rediss" => {
            let roots = authority::roots(address.ca.as_deref())
                .map_err(|why| ConnectError::new(EngineFault::Tls, why.to_string()).opening(at))?;
            Some(tls::connector(roots))
        }
        _ if address.ca.is_some() => {
            return Err(bad("a certificate is of use with TLS only: rediss://".to_owned()));
        }
        _ => None,
    };
    let connector = RedisConnector {
        hosts: address.hosts,
        user: address.user,
        password: address.password,
        database,
        tls,
        first: AtomicUsize::new(0),
    };
    Ok((connector, Names::new(&prefix)))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte)
}

impl Adapter for RedisStore {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move { self.shared.scan(&range, limit).await })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(async move {
            match self.batcher.lane() {
                Some(_lane) => self.shared.commit(&commit).await,
                None => self.batcher.commit(commit).await,
            }
        })
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.shared.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn class(&self) -> Class {
        self.shared.server.class()
    }

    fn epoch(&self) -> Epoch {
        self.shared.server.epochs.present()
    }

    fn room(&self) -> Option<u64> {
        self.shared.server.room()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        self.shared.server.facts()
    }
}

//! A store on Redis (6.2 or later; Valkey too).
//!
//! Two keys and a channel, all with the tag `{watchbell}` and so in one slot, readable with redis-cli: `{watchbell}:entries`, a hash from key
//! to `VERSION VALUE`, with the last version given under ` last`, which is no key; `{watchbell}:order`, a sorted set of the keys, all of score
//! 0, which Redis keeps in the order of their bytes; `{watchbell}:hints`, where the keys are published that commits changed. One hash
//! instead of a key per entry: so the scripts name every key that they touch, as Redis asks them to, a user can be confined to them, and a
//! commit that changes what is there is one `HSET`, in the append-only file too.
//!
//! A commit is a call of a script (`script`), and so is a page. One that finds a lane free leaves at once, from the task of whoever asked;
//! those that come while all are taken share a call (`batch`). Versions are `max(previous + 1, Redis's clock in µs)`: a Redis that lost
//! its tail, the last version included, still gives none twice, as long as its clock is not set back by more than it lost. What has happened
//! to the server between two answers is told by the `epoch`.
//!
//! Two connections, so that a renewal never waits behind a page of 4 MB, and a third that listens (`hint`).

mod about;
mod batch;
mod core;
mod epoch;
mod hint;
mod line;
mod link;
mod mirror;
mod script;
mod setting;
mod tls;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use client::authority;
use tokio::task::JoinSet;

pub use self::mirror::{Mirror, MirrorError};

use self::batch::{LANES, Steps};
use self::core::Core;
use self::link::Door;
use self::script::Names;
use self::trouble::Trouble;
use crate::parcel::Counter;
use crate::{
    Adapter, Address, Class, Commit, CommitError, Epoch, Fault, Hints, Limits, OpenError, Page,
    Pending, Range, ScanError, Store, Version,
};

const LIMITS: Limits =
    Limits { writes: 1_024, commit_bytes: 4 * 1024 * 1024, value_bytes: 1024 * 1024 };

/// Options of the URL, for whoever mistypes one.
const OPTIONS: &str = "prefix, ca";

/// A store on Redis.
pub struct Redis {
    core: Arc<Core>,
    counter: Counter,
    /// Dropped with the store, and with it every connection.
    _tasks: JoinSet<()>,
}

impl Redis {
    /// Connects, and makes sure that the engine can be relied on.
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        let (door, names) = read(at)?;
        let entered = door.enter(&|_| true).await;
        let (link, setting) = entered.map_err(|trouble| trouble.opening(at))?;
        let core = Arc::new(Core::new(door, names, link, setting));
        core.rehearse().await.map_err(|trouble| trouble.opening(at))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(hint::listen(Arc::clone(&core)));
        let watched = Arc::clone(&core);
        tasks.spawn(async move {
            tokio::join!(watched.writer.watch(), watched.reader.watch());
        });
        let carrier = Arc::clone(&core);
        let counter = Counter::open::<Steps, _>(LANES, &mut tasks, move |batch| {
            let carrier = Arc::clone(&carrier);
            async move { carrier.carry(batch).await }
        });
        Ok(Store::new(Self { core, counter, _tasks: tasks }))
    }
}

/// What the address says.
fn read(at: &Address) -> Result<(Door, Names), OpenError> {
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
                .map_err(|why| Trouble::new(Fault::Tls, why.to_string()).opening(at))?;
            Some(tls::connector(roots))
        }
        _ if address.ca.is_some() => {
            return Err(bad("a certificate is of use with TLS only: rediss://".to_owned()));
        }
        _ => None,
    };
    let door = Door {
        hosts: address.hosts,
        user: address.user,
        password: address.password,
        database,
        tls,
        first: AtomicUsize::new(0),
    };
    Ok((door, Names::new(&prefix)))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte)
}

impl Adapter for Redis {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move { self.core.scan(&range, limit).await })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(async move {
            match self.counter.lane() {
                Some(_lane) => self.core.commit(&commit).await,
                None => self.counter.commit(commit).await,
            }
        })
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.core.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn class(&self) -> Class {
        self.core.about.class()
    }

    fn epoch(&self) -> Epoch {
        self.core.about.epochs.present()
    }

    fn room(&self) -> Option<u64> {
        self.core.about.room()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        self.core.about.facts()
    }
}

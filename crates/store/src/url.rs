//! Store URLs: one line of configuration says where a cluster remembers.

mod address;

use std::fmt;
use std::path::{Path, PathBuf};

pub use address::{Address, StoreHost, StoreSecret};

use crate::etcd::EtcdStore;
use crate::file::{FileStore, Sizes};
use crate::memory::MemoryStore;
use crate::postgres::PostgresStore;
use crate::redis::RedisStore;
use crate::remote::RemoteStore;
use crate::{Class, OpenError, Store};

/// Where a store is. Shown, in any way, with its secrets masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `file:DIR`, a directory on this machine.
    File(PathBuf),
    /// `memory:`, gone with the process.
    Memory,
    /// `etcd://HOST:PORT,HOST:PORT/PREFIX`; `etcds://` with TLS.
    Etcd(Address),
    /// `redis://USER:PASSWORD@HOST:PORT/NUMBER`; `rediss://` with TLS.
    Redis(Address),
    /// `postgres://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE`, with TLS by its options.
    Postgres(Address),
    /// `https://HOST:PORT`, a Watchbell server; `http://` on this machine.
    Server(Address),
}

/// A scheme of engines on the network, and the port they listen on unless the URL says otherwise.
type NetworkScheme = (&'static str, u16, fn(Address) -> StoreUrl);

const NETWORK: [NetworkScheme; 8] = [
    ("etcd", 2379, StoreUrl::Etcd),
    ("etcds", 2379, StoreUrl::Etcd),
    ("redis", 6379, StoreUrl::Redis),
    ("rediss", 6379, StoreUrl::Redis),
    ("postgres", 5432, StoreUrl::Postgres),
    ("postgresql", 5432, StoreUrl::Postgres),
    ("https", 7400, StoreUrl::Server),
    ("http", 7400, StoreUrl::Server),
];

impl StoreUrl {
    /// Reads a URL; the error says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, OpenError> {
        let refuse = |why: &str| Err(OpenError::Url { url: without_secret(url), why: why.into() });
        let Some((scheme, rest)) = url.split_once(':') else {
            return refuse(
                "it does not begin with a kind of store and a colon; try file:./watchbell-data",
            );
        };
        match scheme {
            "file" if rest.is_empty() => return refuse("the directory is missing"),
            "file" if rest.starts_with("//") && !rest.starts_with("///") => {
                return refuse(
                    "a file is on this machine: write file:DIR, or file:/DIR from the root",
                );
            }
            "file" => return Ok(Self::File(PathBuf::from(local_path(rest)))),
            "memory" if rest.is_empty() => return Ok(Self::Memory),
            "memory" => return refuse("nothing follows memory:"),
            "raft" => return refuse("this version has no such store yet"),
            _ => {}
        }
        let known = NETWORK.iter().find(|(name, ..)| *name == scheme);
        let Some((scheme, port, url_of)) = known else {
            return refuse(
                "the kinds of store are file, etcd, redis, postgres, https and memory; try file:./watchbell-data",
            );
        };
        match Address::parse(scheme, rest, *port) {
            Ok(address) => Ok(url_of(address)),
            Err(why) => refuse(&why),
        }
    }

    /// Trusts an engine whose certificate this one signed, unless the URL names another (`?ca=FILE`).
    #[must_use]
    pub fn trusting(mut self, ca: Option<&Path>) -> Self {
        if let (
            Self::Etcd(at) | Self::Redis(at) | Self::Postgres(at) | Self::Server(at),
            Some(ca),
        ) = (&mut self, ca)
        {
            at.trust(ca);
        }
        self
    }

    /// Shows a Watchbell server this key, unless the URL has another.
    #[must_use]
    pub fn with_key(mut self, key: Option<StoreSecret>) -> Self {
        if let Self::Server(at) = &mut self {
            at.password = at.password.take().or(key);
        }
        self
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(dir) => write!(out, "file:{}", dir.display()),
            Self::Memory => out.write_str("memory:"),
            Self::Etcd(at) | Self::Redis(at) | Self::Postgres(at) | Self::Server(at) => at.fmt(out),
        }
    }
}

/// Opens the store, and makes one where there is none.
pub async fn open_or_create(url: &StoreUrl) -> Result<Store, OpenError> {
    open(url, |dir| FileStore::open_or_create(dir, Sizes::default())).await
}

/// Opens the store, which must be there. What is empty on an engine is there.
pub async fn open_existing(url: &StoreUrl) -> Result<Store, OpenError> {
    open(url, |dir| FileStore::open_existing(dir, Sizes::default())).await
}

async fn open(
    url: &StoreUrl,
    open_file: impl FnOnce(&Path) -> Result<FileStore, OpenError>,
) -> Result<Store, OpenError> {
    // Boxed, since all that may be asked of an engine would make large futures of all that open a store.
    match url {
        StoreUrl::File(dir) => Ok(Store::new(open_file(dir)?)),
        // To a person, a store that is gone with its process has lost what it acknowledged.
        StoreUrl::Memory => Ok(Store::new(MemoryStore::of_class(Class::B))),
        StoreUrl::Etcd(at) => Box::pin(EtcdStore::open(at)).await,
        StoreUrl::Redis(at) => Box::pin(RedisStore::open(at)).await,
        StoreUrl::Postgres(at) => Box::pin(PostgresStore::open(at)).await,
        StoreUrl::Server(at) => Box::pin(RemoteStore::open(at)).await,
    }
}

/// `file:///var/lib/x` is the same as `file:/var/lib/x`.
fn local_path(rest: &str) -> &str {
    if rest.starts_with("///") { &rest[2..] } else { rest }
}

/// The URL as it may be shown before it could be read. What is not a directory may carry a password anywhere.
fn without_secret(url: &str) -> String {
    match url.split_once(':') {
        Some(("file", rest)) if !rest.contains('@') => url.to_owned(),
        Some((scheme, _)) => format!("{scheme}:…"),
        None if url.contains('@') => "…".to_owned(),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(url: &str, said: &str) {
        let sentence = StoreUrl::parse(url).unwrap_err().to_string();
        assert!(sentence.contains(said), "{sentence}");
        assert!(!sentence.contains("hunter2"), "{sentence}");
    }

    #[test]
    fn a_file_url_names_a_directory_in_any_of_its_spellings() {
        for (url, dir) in [
            ("file:./data", "./data"),
            ("file:/var/lib/watchbell", "/var/lib/watchbell"),
            ("file:///var/lib/watchbell", "/var/lib/watchbell"),
        ] {
            assert_eq!(StoreUrl::parse(url).unwrap(), StoreUrl::File(dir.into()));
        }
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("redis://:hunter2@cache/0", "redis://:***@cache:6379/0"),
            ("etcd://me:hunter2@a,b:1/x?compact=off", "etcd://me:***@a:2379,b:1/x"),
            ("postgres://me@db/x?password=hunter2", "postgres://me@db:5432/x"),
            ("https://:hunter2@host", "https://:***@host:7400"),
        ] {
            let url = StoreUrl::parse(url).unwrap();
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn the_url_goes_before_what_was_given_beside_it() {
        let url = StoreUrl::parse("https://:own@h?ca=own.pem").unwrap();
        let url =
            url.trusting(Some(Path::new("other.pem"))).with_key(Some(StoreSecret::new("other")));
        let StoreUrl::Server(at) = url else { panic!("a server") };
        assert_eq!(at.ca, Some("own.pem".into()));
        assert_eq!(at.password, Some(StoreSecret::new("own")));
    }

    #[test]
    fn a_bad_url_is_refused_with_its_reason_and_without_its_password() {
        check_refused("data", "does not begin with a kind of store");
        check_refused("", "does not begin with a kind of store");
        check_refused("file:", "the directory is missing");
        check_refused("memory:x", "nothing follows");
        check_refused("mongodb://me:hunter2@db/x", "the kinds of store are");
        check_refused("redis://:hunter2", "the host is missing");
        check_refused("postgres://db/x?hunter2", "name=value");
        check_refused("raft://me:hunter2@host", "no such store yet");
        check_refused("hunter2@x", "does not begin");
        check_refused("file://me:hunter2@host/x", "a file is on this machine");
        check_refused("file://", "a file is on this machine");
    }
}

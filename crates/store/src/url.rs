//! Store URLs: one line of configuration says where a cluster remembers.

use std::path::{Path, PathBuf};

use crate::file::{File, Sizes};
use crate::memory::Memory;
use crate::{Class, OpenError, Store};

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// `file:DIR`
    File(PathBuf),
    /// `memory:`, gone with the process.
    Memory,
}

impl StoreUrl {
    /// Reads a URL; the error says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, OpenError> {
        let refuse = |why: &str| Err(OpenError::Url { url: without_secret(url), why: why.into() });
        let Some((scheme, rest)) = url.split_once(':') else {
            return refuse("it does not begin with a kind of store and a colon, such as file:");
        };
        match scheme {
            "file" if rest.is_empty() => refuse("the directory is missing"),
            "file" if rest.starts_with("//") && !rest.starts_with("///") => {
                refuse("a file is on this machine: write file:DIR, or file:/DIR from the root")
            }
            "file" => Ok(Self::File(PathBuf::from(local_path(rest)))),
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => refuse("nothing follows memory:"),
            "raft" | "etcd" | "redis" | "rediss" | "postgres" | "https" | "http" => {
                refuse("this version has no such store yet, only file and memory")
            }
            _ => refuse("the kinds of store are file and memory"),
        }
    }
}

/// Opens the store, and makes one where there is none.
pub fn open_or_create(url: &StoreUrl) -> Result<Store, OpenError> {
    open(url, |dir| File::open_or_create(dir, Sizes::default()))
}

/// Opens the store, which must be there.
pub fn open_existing(url: &StoreUrl) -> Result<Store, OpenError> {
    open(url, |dir| File::open_existing(dir, Sizes::default()))
}

fn open(
    url: &StoreUrl,
    open_file: impl FnOnce(&Path) -> Result<File, OpenError>,
) -> Result<Store, OpenError> {
    match url {
        StoreUrl::File(dir) => Ok(Store::new(open_file(dir)?)),
        // To a person, a store that is gone with its process has lost what it acknowledged.
        StoreUrl::Memory => Ok(Store::new(Memory::of_class(Class::B))),
    }
}

/// `file:///var/lib/x` is the same as `file:/var/lib/x`.
fn local_path(rest: &str) -> &str {
    if rest.starts_with("///") { &rest[2..] } else { rest }
}

/// The URL as it may be shown. What is not a directory may carry a password anywhere.
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
    fn a_bad_url_is_refused_with_its_reason_and_without_its_password() {
        check_refused("data", "does not begin with a kind of store");
        check_refused("", "does not begin with a kind of store");
        check_refused("file:", "the directory is missing");
        check_refused("memory:x", "nothing follows");
        check_refused("mongodb://me:hunter2@db/x", "the kinds of store are");
        check_refused("redis://:hunter2@cache/0", "no such store yet");
        check_refused("redis://:hunter2", "no such store yet");
        check_refused("postgres://db/x?password=hunter2", "no such store yet");
        check_refused("hunter2@x", "does not begin");
        check_refused("file://me:hunter2@host/x", "a file is on this machine");
        check_refused("file://", "a file is on this machine");
    }
}

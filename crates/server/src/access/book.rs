//! The book: all projects and keys, as one change left them.
//!
//! It is small, read whole, and replaced whole. Every change is decided on a book and committed on the condition
//! that this book is still the last one; so what a decision looks at, such as whether a name is free, stays true.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::notice::{Listener, Occasions};
use engine::record::{Format, RecordError, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::{Entry, Key, Range, ScanError, Store, Version};

use super::drain::DrainRecord;
use super::key::KeyId;
use super::record::{
    ACCESS, DRAINS, FORMAT, KEYS, KeyRecord, NotifyRecord, PROJECTS, ProjectRecord, SCHEDULER,
    SchedulerRecord, VERSION,
};
use crate::webhook::signature::Signer;

/// The name of the project that is there from the beginning.
pub const DEFAULT_PROJECT: &str = "default";

/// Entries that are read at a time.
const PAGE_LEN: usize = 1_000;

/// Why there is no book.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// The store did not answer: try again.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// A record is damaged or newer than this version: have a person look, or upgrade.
    #[error("{key} cannot be read: {why}")]
    Record {
        /// The key of the record.
        key: String,
        /// What is wrong with it.
        why: String,
    },
}

/// All projects and keys.
#[derive(Debug)]
pub struct Book {
    /// The change that left it so; none, if there was none yet.
    pub(super) version: Option<Version>,
    pub(super) scheduler: SchedulerRecord,
    pub(super) projects: BTreeMap<String, Arc<ProjectRecord>>,
    names: HashMap<ProjectId, String>,
    signers: HashMap<ProjectId, Arc<Signer>>,
    listeners: HashMap<ProjectId, Arc<Listener>>,
    pub(super) keys: BTreeMap<KeyId, Arc<KeyRecord>>,
    pub(super) drains: BTreeMap<(ProjectId, String), DrainRecord>,
}

impl Book {
    /// Reads the book as one change left it.
    pub(super) async fn read(store: &Store) -> Result<Self, BookError> {
        loop {
            let version = book_version(store).await?;
            let book = Self::read_at(store, version).await?;
            // Pages together are no snapshot, unless nothing changed meanwhile.
            if book_version(store).await? == version {
                return Ok(book);
            }
        }
    }

    async fn read_at(store: &Store, version: Option<Version>) -> Result<Self, BookError> {
        let default = ProjectRecord::new(ProjectId::DEFAULT, "watchbell".to_owned());
        let mut book = Self {
            version,
            scheduler: SchedulerRecord::default(),
            projects: BTreeMap::from([(DEFAULT_PROJECT.to_owned(), Arc::new(default))]),
            names: HashMap::new(),
            signers: HashMap::new(),
            listeners: HashMap::new(),
            keys: BTreeMap::new(),
            drains: BTreeMap::new(),
        };
        let mut pages = store.pages(Range::prefix(ACCESS), PAGE_LEN);
        while let Some(entries) = pages.next().await? {
            for entry in &entries {
                book.take(entry)?;
            }
        }
        let names = book.projects.iter().map(|(name, record)| (record.id, name.clone()));
        book.names = names.collect();
        let signed = book.projects.values().filter(|record| !record.secrets.is_empty());
        book.signers = signed.map(|record| (record.id, Arc::new(signer(record)))).collect();
        let listening = book.projects.iter().filter_map(|(name, record)| {
            Some((record.id, Arc::new(listener(name, record.notify.as_ref()?)?)))
        });
        book.listeners = listening.collect();
        Ok(book)
    }

    fn take(&mut self, entry: &Entry) -> Result<(), BookError> {
        let key = entry.key.as_str();
        if let Some(name) = key.strip_prefix(PROJECTS) {
            self.projects.insert(name.to_owned(), Arc::new(record(entry)?));
        } else if key.starts_with(KEYS) {
            let found: KeyRecord = record(entry)?;
            self.keys.insert(found.id, Arc::new(found));
        } else if key.starts_with(DRAINS) {
            let found: DrainRecord = record(entry)?;
            self.drains.insert((found.project, found.worker.clone()), found);
        } else if key == SCHEDULER {
            self.scheduler = record(entry)?;
        }
        Ok(())
    }

    /// The project with this name.
    pub fn project(&self, name: &str) -> Option<&Arc<ProjectRecord>> {
        self.projects.get(name)
    }

    /// The project with this number.
    pub fn project_by_id(&self, id: ProjectId) -> Option<&Arc<ProjectRecord>> {
        self.project(self.name_of(id)?)
    }

    /// The name of the project with this number.
    pub fn name_of(&self, id: ProjectId) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// What the webhooks of a project are signed with, if with anything.
    pub fn signer(&self, id: ProjectId) -> Option<&Arc<Signer>> {
        self.signers.get(&id)
    }

    /// Whom a project's notifications go to, if to anybody.
    pub fn listener(&self, id: ProjectId) -> Option<&Arc<Listener>> {
        self.listeners.get(&id)
    }

    /// All projects, by name.
    pub fn projects(&self) -> impl Iterator<Item = (&str, &Arc<ProjectRecord>)> {
        self.projects.iter().map(|(name, record)| (name.as_str(), record))
    }

    /// The key with this id.
    pub fn key(&self, id: KeyId) -> Option<&Arc<KeyRecord>> {
        self.keys.get(&id)
    }

    /// All keys, oldest first.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<KeyRecord>> {
        self.keys.values()
    }

    /// Since when nothing fires at all, if somebody said so.
    pub fn stopped(&self) -> Option<Instant> {
        self.scheduler.stopped
    }

    /// Whether triggers of this project fire.
    pub fn fires(&self, project: &ProjectRecord) -> bool {
        project.disabled.is_none() && self.scheduler.stopped.is_none()
    }
}

/// The secrets of a project, ready to sign with. One that was changed by hand into no secret does not sign.
fn signer(record: &ProjectRecord) -> Signer {
    let secrets = record.secrets.iter();
    Signer::new(secrets.filter_map(|record| Some((record.secret.bytes()?, record.until))))
}

/// Who is told of what. A URL that was good when it was written, and is not any more, is called by nobody.
fn listener(project: &str, notify: &NotifyRecord) -> Option<Listener> {
    let on = match notify.on.as_slice() {
        [] => Occasions::USUAL,
        some => some.iter().copied().collect(),
    };
    Listener::new(project, &notify.url, on).ok()
}

/// The last change.
pub(super) async fn book_version(store: &Store) -> Result<Option<Version>, ScanError> {
    let entry = store.get(&key(VERSION.to_owned())).await?;
    Ok(entry.map(|entry| entry.version))
}

pub(super) fn record<T: DeserializeOwned>(entry: &Entry) -> Result<T, BookError> {
    record_of(entry, FORMAT)
}

/// A record that is not of the book, and has a format of its own.
pub(super) fn record_of<T: DeserializeOwned>(
    entry: &Entry,
    format: Format,
) -> Result<T, BookError> {
    decode(entry.value.as_bytes(), format).map_err(|why: RecordError| BookError::Record {
        key: entry.key.as_str().to_owned(),
        why: why.to_string(),
    })
}

pub(super) fn value<T: Serialize>(record: &T) -> Vec<u8> {
    encode(FORMAT, record)
}

pub(super) fn key(text: String) -> Key {
    Key::new(text).expect("names and ids that were checked")
}

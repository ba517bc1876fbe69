//! Access: who may do what, for which project.
//!
//! Projects and keys are few and change rarely. Every server has all of them in memory, as a [`Book`], and looks
//! every second, or when the store hints at it, whether there is a newer one; a key that it does not know makes it
//! look at once. So a new key is good everywhere at once, and one that was taken back is refused within a second.
//!
//! - [`book`]: all projects and keys
//! - [`record`]: what is stored
//! - [`drain`]: workers that are to have nothing more
//! - [`key`], [`secret`]: what lets somebody in, and what webhooks are signed with
//! - [`audit`]: who changed what
//! - `reconciler`: carries what the book says into the shards, and clears away what is old

pub mod audit;
pub mod book;
pub mod drain;
pub mod key;
mod reconciler;
pub mod record;
pub mod secret;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::limits::{
    ACCESS_CHANGE_TRIES_MAX, KEY_USED_EVERY, KEYS_MAX, PROJECTS_MAX, SECRETS_MAX,
    WORKER_DRAINS_MAX, WORKER_DRAINS_PER_PROJECT_MAX,
};
use parking_lot::Mutex;
use store::machine::Machine;
use store::{Commit, CommitError, Condition, Refusal, ScanError, Store, Version};
use tokio::sync::watch;

use self::audit::AuditRecord;
use self::book::{Book, BookError, book_version, key as store_key, record as read, value};
use self::key::{KeyId, KeyText};
pub(crate) use self::reconciler::{Reconciler, agreed};
use self::record::{
    KEYS, KeyRecord, PROJECTS, ProjectRecord, SCHEDULER, SchedulerRecord, SecretRecord, UsedRecord,
    VERSION, VersionRecord,
};
use self::secret::SigningSecret;
use crate::idempotency::{RememberedOutcome, RequestFingerprint};

/// Why something about projects and keys was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences are the documentation")]
pub enum Denial {
    #[error("there is a project {0:?} already: choose another name, or change that one")]
    ProjectExists(String),
    #[error("there is no project {0:?}: list them at /v1/projects")]
    NoProject(String),
    #[error("there are {PROJECTS_MAX} projects, and that is as many as there can be")]
    TooManyProjects,
    #[error("project {0:?} is enabled already")]
    AlreadyEnabled(String),
    #[error("project {0:?} is disabled already")]
    AlreadyDisabled(String),
    #[error("the scheduler is running already")]
    AlreadyStarted,
    #[error("the scheduler is stopped already")]
    AlreadyStopped,
    #[error("worker {0:?} is draining already")]
    AlreadyDraining(String),
    #[error("nobody has asked worker {0:?} to drain")]
    NotDraining(String),
    #[error(
        "{WORKER_DRAINS_PER_PROJECT_MAX} workers of the project are asked to drain, and that is as many as may be: undo some of those that are gone"
    )]
    TooManyDrains,
    #[error(
        "{WORKER_DRAINS_MAX} workers of all projects are asked to drain, and that is as many as may be: let an admin undo some of those that are gone"
    )]
    TooManyDrainsOfAll,
    #[error("there is no key {0}: list them at /v1/keys")]
    NoKey(KeyId),
    #[error(
        "there are {KEYS_MAX} keys, and that is as many as there can be: delete those that nobody uses"
    )]
    TooManyKeys,
    #[error(
        "this is the last admin's key that does not expire: without one nobody could come in any more; make another first"
    )]
    LastAdmin,
}

/// Why a change came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The change is not allowed: do as the sentence says.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// Others changed something each time: try again.
    #[error("many are changing projects and keys at the same time: try again")]
    Busy,
    /// The same request is under way: send it again, and be told what came of it.
    #[error("the same request is being carried out: send it again in a moment")]
    Repeated,
    /// The change may have been made: look, and try again if it was not.
    #[error("it may have been done, the store did not say: look, and try again if it was not")]
    Unknown,
    /// The store did not take the change: see why.
    #[error(transparent)]
    Commit(CommitError),
    /// The store could not be read: see why.
    #[error(transparent)]
    Read(#[from] BookError),
}

impl From<ScanError> for ChangeError {
    fn from(why: ScanError) -> Self {
        Self::Read(why.into())
    }
}

/// Who may do what.
pub struct Access {
    store: Store,
    machine: Arc<dyn Machine>,
    book: watch::Sender<Arc<Book>>,
    /// The version of the book that this server's shards act by.
    settled: watch::Sender<Option<Version>>,
    /// When keys were last used, as far as that is written.
    used: Mutex<HashMap<KeyId, Instant>>,
}

/// Whether triggers fire at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// Triggers fire by their schedules.
    On,
    /// No trigger fires at all.
    Off,
}

/// Who makes a change, and in which request.
#[derive(Debug, Clone)]
pub struct Trail {
    /// What the audit says of it.
    pub(crate) audit: AuditRecord,
    /// The request, if it is to be remembered.
    pub(crate) idempotency: Option<RequestFingerprint>,
}

impl Trail {
    /// A trail of a change that no request asked for.
    pub fn of(audit: AuditRecord) -> Self {
        Self { audit, idempotency: None }
    }

    /// What is written together with the change.
    pub(crate) fn entries(
        &self,
        outcome: RememberedOutcome,
        machine: &dyn Machine,
    ) -> impl Iterator<Item = (String, Vec<u8>)> {
        let at = self.audit.at;
        let idempotency = self.idempotency.as_ref();
        let idempotency =
            idempotency.map(|request| (request.key().to_owned(), request.record(at, outcome)));
        std::iter::once(self.audit.entry(machine)).chain(idempotency)
    }
}

/// What a change writes.
#[derive(Default)]
struct Edit {
    puts: Vec<(String, Vec<u8>)>,
    gone: Vec<String>,
}

impl Edit {
    fn put(key: String, value: Vec<u8>) -> Self {
        Self { puts: vec![(key, value)], gone: Vec::new() }
    }

    fn gone(key: String) -> Self {
        Self { puts: Vec::new(), gone: vec![key] }
    }
}

impl Access {
    /// Reads who may do what from the store.
    pub async fn open(store: &Store, machine: &Arc<dyn Machine>) -> Result<Arc<Self>, BookError> {
        let book = Arc::new(Book::read(store).await?);
        Ok(Arc::new(Self {
            store: store.clone(),
            machine: Arc::clone(machine),
            book: watch::Sender::new(book),
            settled: watch::Sender::new(None),
            used: Mutex::default(),
        }))
    }

    /// All projects and keys, as they were a moment ago.
    pub fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book.borrow())
    }

    /// Tells when there is a newer book.
    pub fn books(&self) -> watch::Receiver<Arc<Book>> {
        self.book.subscribe()
    }

    /// Looks whether there is a newer book.
    pub async fn refresh(&self) -> Result<(), BookError> {
        if book_version(&self.store).await? == self.book().version {
            return Ok(());
        }
        let news = Book::read(&self.store).await?;
        self.used.lock().retain(|id, _| news.key(*id).is_some());
        self.book.send_if_modified(|book| {
            // Of two that read at the same time the one with the newer book prevails.
            let is_newer = book.version < news.version;
            if is_newer {
                *book = Arc::new(news);
            }
            is_newer
        });
        Ok(())
    }

    /// The key with this text, if there is one such. It may have expired.
    pub async fn check(&self, text: &KeyText) -> Result<Option<Arc<KeyRecord>>, BookError> {
        if self.book().key(text.id()).is_none() {
            self.refresh().await?;
        }
        Ok(self.book().key(text.id()).filter(|record| text.fits(&record.tag)).cloned())
    }

    /// The project with this name, wherever it was made.
    pub async fn project(&self, name: &str) -> Result<Option<Arc<ProjectRecord>>, BookError> {
        if self.book().project(name).is_none() {
            self.refresh().await?;
        }
        Ok(self.book().project(name).cloned())
    }

    /// Notes that a key was used; most of the time that is known already, and the store is not asked.
    pub async fn used(&self, id: KeyId) -> Result<(), ChangeError> {
        let now = self.now();
        let is_known =
            |last: Option<Instant>| last.is_some_and(|last| now < last.after(KEY_USED_EVERY));
        if is_known(self.used.lock().get(&id).copied()) {
            return Ok(());
        }
        let last = self.last_used(id).await?;
        if is_known(last) {
            self.used.lock().extend(last.map(|last| (id, last)));
            return Ok(());
        }
        let key = store_key(format!("used/{id}"));
        // Nothing is written of a key that is taken back at this moment: it would stay for ever.
        let commit = Commit::new()
            .when(Condition::Present(store_key(format!("{KEYS}{id}"))))
            .put(key, value(&UsedRecord { at: now }));
        self.store.commit(commit).await.map_err(ChangeError::Commit)?;
        self.used.lock().insert(id, now);
        Ok(())
    }

    /// When a key was last used, to the hour.
    pub async fn last_used(&self, id: KeyId) -> Result<Option<Instant>, BookError> {
        let entry = self.store.get(&store_key(format!("used/{id}"))).await?;
        let used: Option<UsedRecord> = entry.map(|entry| read(&entry)).transpose()?;
        Ok(used.map(|used| used.at))
    }

    /// Makes a project, with a secret for its webhooks.
    pub async fn create_project(
        &self,
        name: &str,
        spec: impl Fn(&mut ProjectRecord),
        trail: &Trail,
    ) -> Result<SigningSecret, ChangeError> {
        let secret = SigningSecret::draw(&*self.machine);
        self.change(trail, RememberedOutcome::Project(name.to_owned()), |book, now| {
            if book.project(name).is_some() {
                return Err(Denial::ProjectExists(name.to_owned()));
            }
            if book.projects.len() >= PROJECTS_MAX {
                return Err(Denial::TooManyProjects);
            }
            let last = book.projects.values().map(|record| record.id.0).max().unwrap_or(0);
            let mut record = ProjectRecord::new(ProjectId(last + 1), trail.audit.author.clone());
            record.created = Some(now);
            let (secret, created) = (secret.clone(), now);
            record.secrets.push(SecretRecord { secret, created, until: None });
            spec(&mut record);
            Ok(Edit::put(format!("{PROJECTS}{name}"), value(&record)))
        })
        .await?;
        Ok(secret)
    }

    /// Changes a project. Nothing is written if it stays as it is.
    pub async fn change_project(
        &self,
        name: &str,
        trail: &Trail,
        change: impl Fn(&mut ProjectRecord, Instant) -> Result<(), Denial>,
    ) -> Result<Option<Version>, ChangeError> {
        let outcome = RememberedOutcome::ProjectChanged(name.to_owned());
        self.change_project_to(name, trail, outcome, change).await
    }

    async fn change_project_to(
        &self,
        name: &str,
        trail: &Trail,
        outcome: RememberedOutcome,
        change: impl Fn(&mut ProjectRecord, Instant) -> Result<(), Denial>,
    ) -> Result<Option<Version>, ChangeError> {
        self.change(trail, outcome, |book, now| {
            let found = book.project(name).ok_or_else(|| Denial::NoProject(name.to_owned()))?;
            let mut record = ProjectRecord::clone(found);
            change(&mut record, now)?;
            if record == **found {
                return Ok(Edit::default());
            }
            Ok(Edit::put(format!("{PROJECTS}{name}"), value(&record)))
        })
        .await
    }

    /// Gives a project a new secret; the one before is used for a while longer.
    pub async fn rotate_secret(
        &self,
        name: &str,
        grace: Duration,
        trail: &Trail,
    ) -> Result<SigningSecret, ChangeError> {
        let secret = SigningSecret::draw(&*self.machine);
        let outcome = RememberedOutcome::Rotated(name.to_owned());
        self.change_project_to(name, trail, outcome, |record, now| {
            record.secrets.retain(|old| old.until.is_none_or(|until| now < until));
            for old in &mut record.secrets {
                let end = now.after(grace);
                old.until = Some(old.until.map_or(end, |until| until.min(end)));
            }
            record
                .secrets
                .insert(0, SecretRecord { secret: secret.clone(), created: now, until: None });
            record.secrets.truncate(SECRETS_MAX);
            Ok(())
        })
        .await?;
        Ok(secret)
    }

    /// Lets nothing fire, or lets it fire again.
    pub async fn switch_scheduler(
        &self,
        to: Switch,
        trail: &Trail,
    ) -> Result<Option<Version>, ChangeError> {
        self.change(trail, RememberedOutcome::Done, |book, now| {
            let record = match (to, book.stopped()) {
                (Switch::On, None) => return Err(Denial::AlreadyStarted),
                (Switch::Off, Some(_)) => return Err(Denial::AlreadyStopped),
                (Switch::On, Some(_)) => SchedulerRecord::default(),
                (Switch::Off, None) => {
                    SchedulerRecord { stopped: Some(now), author: trail.audit.author.clone() }
                }
            };
            Ok(Edit::put(SCHEDULER.to_owned(), value(&record)))
        })
        .await
    }

    /// Makes a key. The text is told this once.
    pub async fn create_key(
        &self,
        trail: &Trail,
        of: impl Fn(KeyId, key::Tag, Instant) -> KeyRecord,
    ) -> Result<(KeyRecord, KeyText), ChangeError> {
        let text = KeyText::draw(&*self.machine, self.now());
        let record = of(text.id(), text.tag(&*self.machine), self.now());
        let mut trail = trail.clone();
        trail.audit.object = record.id.to_string();
        self.change(&trail, RememberedOutcome::Key(record.id.to_string()), |book, _| {
            if book.keys.len() >= KEYS_MAX {
                return Err(Denial::TooManyKeys);
            }
            Ok(Edit::put(format!("{KEYS}{}", record.id), value(&record)))
        })
        .await?;
        Ok((record, text))
    }

    /// Makes the first admin's key, with a text that somebody has, unless there is an admin's key. Tells whether it made one:
    /// of servers that start at the same time, only one does.
    pub async fn create_first_key(
        &self,
        text: &KeyText,
        trail: &Trail,
        of: impl Fn(KeyId, key::Tag, Instant) -> KeyRecord,
    ) -> Result<bool, ChangeError> {
        let record = of(text.id(), text.tag(&*self.machine), self.now());
        let made = self.change(trail, RememberedOutcome::Key(record.id.to_string()), |book, _| {
            if book.keys().any(|key| key.is_admin()) {
                return Ok(Edit::default());
            }
            Ok(Edit::put(format!("{KEYS}{}", record.id), value(&record)))
        });
        Ok(made.await?.is_some())
    }

    /// Makes a key like another, and lets that one expire at `end`, in one commit. The new text is told this once.
    pub async fn rotate_key(
        &self,
        id: KeyId,
        end: Instant,
        expires: Option<Instant>,
        trail: &Trail,
    ) -> Result<(KeyRecord, KeyText), ChangeError> {
        let text = KeyText::draw(&*self.machine, self.now());
        let tag = text.tag(&*self.machine);
        let made = |old: &KeyRecord, now| KeyRecord {
            id: text.id(),
            tag: tag.clone(),
            created: now,
            author: trail.audit.author.clone(),
            expires,
            ..old.clone()
        };
        self.change(trail, RememberedOutcome::Key(text.id().to_string()), |book, now| {
            let found = book.key(id).ok_or(Denial::NoKey(id))?;
            if expires.is_some() {
                check_admin(book, found)?;
            }
            if book.keys.len() >= KEYS_MAX {
                return Err(Denial::TooManyKeys);
            }
            let mut old = KeyRecord::clone(found);
            old.expires = Some(old.expires.map_or(end, |expires| expires.min(end)));
            let mut edit = Edit::put(format!("{KEYS}{id}"), value(&old));
            edit.puts.push((format!("{KEYS}{}", text.id()), value(&made(found, now))));
            Ok(edit)
        })
        .await?;
        let record = self.book().key(text.id()).map(|record| KeyRecord::clone(record));
        Ok((record.ok_or(ChangeError::Unknown)?, text))
    }

    /// Takes a key back for good.
    pub async fn delete_key(&self, id: KeyId, trail: &Trail) -> Result<(), ChangeError> {
        self.change(trail, RememberedOutcome::Done, |book, _| {
            check_admin(book, book.key(id).ok_or(Denial::NoKey(id))?)?;
            let mut edit = Edit::gone(format!("{KEYS}{id}"));
            edit.gone.push(format!("used/{id}"));
            Ok(edit)
        })
        .await
        .map(|_| ())
    }

    /// Writes down what somebody did that changes nothing in the store.
    pub async fn note(&self, trail: &Trail) -> Result<(), ChangeError> {
        self.note_as(trail, RememberedOutcome::Done).await
    }

    /// The same, with the outcome that a repeated request is told.
    pub(crate) async fn note_as(
        &self,
        trail: &Trail,
        outcome: RememberedOutcome,
    ) -> Result<(), ChangeError> {
        let mut commit = Commit::new();
        for (key, value) in trail.entries(outcome, &*self.machine) {
            commit = commit.put(store_key(key), value);
        }
        self.store.commit(commit).await.map(|_| ()).map_err(ChangeError::Commit)
    }

    /// Waits until the shards that are here do what the book of this version says.
    pub async fn settled(&self, version: Version) {
        let mut settled = self.settled.subscribe();
        // It fails only when there is nobody left to ask.
        let _ = settled.wait_for(|settled| *settled >= Some(version)).await;
    }

    /// What the wall clock shows.
    pub fn now(&self) -> Instant {
        Instant(i64::try_from(self.machine.wall_us() / 1_000).unwrap_or(i64::MAX))
    }

    /// Decides on the last book and writes the edit with its line of the audit; decides anew if somebody else was faster.
    /// An empty edit is not written.
    async fn change(
        &self,
        trail: &Trail,
        outcome: RememberedOutcome,
        decide: impl Fn(&Book, Instant) -> Result<Edit, Denial>,
    ) -> Result<Option<Version>, ChangeError> {
        for _ in 0..ACCESS_CHANGE_TRIES_MAX {
            self.refresh().await?;
            let book = self.book();
            let edit = decide(&book, self.now())?;
            if edit.puts.is_empty() && edit.gone.is_empty() {
                return Ok(None);
            }
            let nonce = format!("{:016x}{:016x}", self.machine.random(), self.machine.random());
            let version_key = store_key(VERSION.to_owned());
            let condition = match book.version {
                Some(version) => Condition::At(version_key.clone(), version),
                None => Condition::Absent(version_key.clone()),
            };
            let mut commit = Commit::new()
                .when(condition)
                .put(version_key, value(&VersionRecord { nonce: nonce.clone() }));
            let noted = trail.entries(outcome.clone(), &*self.machine);
            for (key, value) in edit.puts.into_iter().chain(noted) {
                commit = commit.put(store_key(key), value);
            }
            for key in edit.gone {
                commit = commit.delete(store_key(key));
            }
            if let Some(request) = &trail.idempotency {
                // Who has gone away and asks again may have been faster than itself.
                let now = self.now();
                let condition = request.condition(&self.store, now).await?;
                commit = commit.when(condition.ok_or(ChangeError::Repeated)?);
            }
            if let Some(version) = self.send(commit, &nonce).await? {
                self.refresh().await?;
                return Ok(Some(version));
            }
        }
        Err(ChangeError::Busy)
    }

    /// Sends a commit until it is known what became of it: its version, or nothing if somebody was faster.
    async fn send(&self, commit: Commit, nonce: &str) -> Result<Option<Version>, ChangeError> {
        let mut is_doubtful = false;
        for _ in 0..ACCESS_CHANGE_TRIES_MAX {
            match self.store.commit(commit.clone()).await {
                Ok(version) => return Ok(Some(version)),
                Err(CommitError::Conflict(_)) if !is_doubtful => return Ok(None),
                Err(CommitError::Conflict(_)) => {
                    let entry = self.store.get(&store_key(VERSION.to_owned())).await?;
                    let Some(entry) = entry else { return Err(ChangeError::Unknown) };
                    let found: VersionRecord = read(&entry)?;
                    let is_ours = found.nonce == nonce;
                    return is_ours.then_some(Some(entry.version)).ok_or(ChangeError::Unknown);
                }
                Err(CommitError::Unknown(_)) => is_doubtful = true,
                Err(CommitError::Unavailable(_)) if is_doubtful => {}
                Err(why) => return Err(ChangeError::Commit(why)),
            }
            self.machine.sleep(Duration::from_millis(50)).await;
        }
        Err(ChangeError::Unknown)
    }
}

/// Nobody locks everybody out: an admin's key that never expires goes only if there is another.
fn check_admin(book: &Book, going: &KeyRecord) -> Result<(), Denial> {
    let is_lasting = |record: &KeyRecord| record.expires.is_none() && record.is_admin();
    let others = book.keys().filter(|record| record.id != going.id && is_lasting(record)).count();
    if is_lasting(going) && others == 0 { Err(Denial::LastAdmin) } else { Ok(()) }
}

impl ChangeError {
    /// Whether there is no room in the store.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Commit(CommitError::Refused(Refusal::Full { .. })))
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Access(version {:?})", self.book().version)
    }
}

//! A store on Redis (6.2 or later; Valkey too).
//!
//! Three keys and a channel, all with the tag `{watchbell}` and so in one slot, readable with redis-cli: `{watchbell}:entries`, a hash from key
//! to `VERSION VALUE`; `{watchbell}:order`, a sorted set of the keys, all of score 0, which Redis keeps in the order of their bytes;
//! `{watchbell}:last`, the last version given; `{watchbell}:hints`, where each commit publishes the keys that it changed. One hash instead of a
//! key per entry: so the scripts name every key that they touch, as Redis asks them to, and a user can be confined to them.
//!
//! A commit is one call of one script ([`script`]), and so is a page. Versions are `max(previous + 1, Redis's clock in µs)`: a Redis that lost
//! its tail, the last version included, still gives none twice, as long as its clock is not set back by more than it lost. What has happened
//! to the server between two answers is told by the [`epoch`].
//!
//! Two connections, so that a renewal never waits behind a page of 4 MB, and a third that listens ([`hint`]).

mod epoch;
mod hint;
mod line;
mod link;
mod mirror;
mod script;
mod setting;
mod tls;
mod trouble;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use engine::limits::STORE_ANSWER_MAX;
use redis::RedisError;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use self::mirror::{Mirror, MirrorError};

use self::epoch::Epochs;
use self::line::{Failure, Line};
use self::link::{Door, Link};
use self::script::{Answer, COMMIT, Names, Outcome, SCAN};
use self::setting::Setting;
use self::trouble::{FORMER, Trouble};
use crate::{
    Adapter, Address, Class, Commit, CommitError, Conflict, Epoch, Fault, Hints, Key, Limits,
    OpenError, Page, Pending, Range, Refusal, ScanError, Store, Version, Watchers,
};

const LIMITS: Limits =
    Limits { writes: 1_024, commit_bytes: 4 * 1024 * 1024, value_bytes: 1024 * 1024 };

/// Options of the URL, for whoever mistypes one.
const OPTIONS: &str = "prefix, ca";

const REPLICA: &str =
    "redis is a replica now, and takes no writes: name the master in the URL too, and it is found";

/// A store on Redis.
pub struct Redis {
    core: Arc<Core>,
    /// Dropped with the store, and with it every connection.
    _tasks: JoinSet<()>,
}

/// What the store and its tasks share.
struct Core {
    names: Names,
    door: Arc<Door>,
    /// For commits.
    writer: Line,
    /// For scans.
    reader: Line,
    watchers: Watchers,
    about: Arc<About>,
}

/// What is known about the server that answers.
struct About {
    epochs: Epochs,
    setting: RwLock<Setting>,
    replicas: AtomicU64,
    may_listen: AtomicBool,
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
        Ok(Store::new(Self { core, _tasks: tasks }))
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
            let connector = tls::connector(address.ca.as_deref());
            Some(connector.map_err(|why| Trouble::new(Fault::Tls, why).opening(at))?)
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

impl Core {
    fn new(door: Door, names: Names, link: Link, setting: Setting) -> Self {
        let about = Arc::new(About {
            epochs: Epochs::new(setting.epoch.clone()),
            replicas: AtomicU64::new(setting.replicas),
            setting: RwLock::new(setting),
            may_listen: AtomicBool::new(true),
        });
        let door = Arc::new(door);
        let line = |link| {
            let about = Arc::clone(&about);
            Line::new(Arc::clone(&door), link, Box::new(move |setting| about.found(setting)))
        };
        Self {
            writer: line(Some(link)),
            reader: line(None),
            names,
            watchers: Watchers::default(),
            about,
            door,
        }
    }

    /// Writes, reads and removes something beside the store, so that what is not permitted or not possible is found now, and not in the middle of
    /// a commit, which no script can take back.
    async fn rehearse(&self) -> Result<(), Trouble> {
        let names = self.names.rehearsal();
        let key = |name| Key::new(name).expect("a short word");
        let put = Commit::new().put(key("a"), "").put(key("b"), "");
        let delete = Commit::new().delete(key("a")).delete(key("b"));
        for commit in [put, delete] {
            let done = self.writer.call(&COMMIT, |command| names.commit(command, &commit)).await;
            let page =
                self.writer.call(&SCAN, |command| names.scan(command, &Range::all(), 1)).await;
            for reply in [done, page] {
                rehearsed(reply)?;
            }
        }
        let deadline = Instant::now() + STORE_ANSWER_MAX;
        match self.writer.ask(&names.removal(), deadline).await {
            // What is left is one small key, which the next one uses again.
            Ok(_) | Err(Failure::Told(_)) => Ok(()),
            Err(Failure::NotSent(why) | Failure::NoAnswer(why)) => {
                Err(Trouble::new(Fault::Unreachable, why))
            }
        }
    }

    async fn commit(&self, commit: &Commit) -> Result<Version, CommitError> {
        let call = self.writer.call(&COMMIT, |command| self.names.commit(command, commit));
        let answer = match call.await {
            Ok(reply) => Answer::read(reply),
            Err(Failure::NotSent(why)) => return Err(CommitError::Unavailable(why)),
            Err(Failure::NoAnswer(why)) => return Err(CommitError::Unknown(why)),
            Err(Failure::Told(why)) => return Err(self.told(&why)),
        };
        let answer = answer.map_err(CommitError::Corrupt)?;
        if !self.about.admit(&answer) {
            self.hang_up();
            return Err(CommitError::Unknown(format!("the server cannot be relied on: {FORMER}")));
        }
        match answer.outcome {
            Outcome::Done(version) => Ok(version),
            Outcome::Conflict { number, found } => match commit.when.get(number) {
                Some(condition) => Err(Conflict { condition: condition.clone(), found }.into()),
                None => Err(CommitError::Corrupt("a condition failed that was not set".to_owned())),
            },
            Outcome::Refused(why) => Err(self.refused(&why)),
            Outcome::Replica => {
                self.hang_up();
                Err(CommitError::Unavailable(REPLICA.to_owned()))
            }
            Outcome::Page { .. } | Outcome::Lacking(_) => {
                Err(CommitError::Corrupt("a commit was answered with a page".to_owned()))
            }
        }
    }

    async fn scan(&self, range: &Range, limit: usize) -> Result<Page, ScanError> {
        let call = self.reader.call(&SCAN, |command| self.names.scan(command, range, limit));
        let answer = match call.await {
            Ok(reply) => Answer::read(reply),
            Err(Failure::NotSent(why) | Failure::NoAnswer(why)) => {
                return Err(ScanError::Unavailable(why));
            }
            Err(Failure::Told(why)) => {
                return Err(match self.told(&why) {
                    CommitError::Corrupt(why) => ScanError::Corrupt(why),
                    other => ScanError::Unavailable(other.to_string()),
                });
            }
        };
        let answer = answer.map_err(ScanError::Corrupt)?;
        if !self.about.admit(&answer) {
            self.hang_up();
            return Err(ScanError::Unavailable(FORMER.to_owned()));
        }
        match answer.outcome {
            Outcome::Page { entries, more } => Ok(script::page(range, entries, more)),
            Outcome::Lacking(key) => {
                Err(ScanError::Corrupt(format!("{key} has a place in the order and no entry")))
            }
            Outcome::Replica => {
                self.hang_up();
                Err(ScanError::Unavailable(REPLICA.to_owned()))
            }
            Outcome::Done(_) | Outcome::Conflict { .. } | Outcome::Refused(_) => {
                Err(ScanError::Corrupt("a scan was answered like a commit".to_owned()))
            }
        }
    }

    /// What an error means that a server answers instead of a script's own words.
    fn told(&self, why: &RedisError) -> CommitError {
        match why.code().unwrap_or_default() {
            // Said before the script began.
            "LOADING" | "BUSY" | "READONLY" | "MASTERDOWN" | "OOM" | "MISCONF" | "NOREPLICAS"
            | "NOAUTH" | "NOPERM" | "NOSCRIPT" | "MOVED" | "CLUSTERDOWN" => {
                self.refused(why.code().unwrap_or_default())
            }
            "WRONGTYPE" => CommitError::Corrupt(format!(
                "the keys of the store are used for something else ({})",
                why.detail().unwrap_or_default()
            )),
            // A script that failed in the middle has done what it had done.
            code => CommitError::Unknown(format!("{code} {}", why.detail().unwrap_or_default())),
        }
    }

    /// What it means that Redis takes no writes, by the first word of what it says. Nothing was changed.
    fn refused(&self, said: &str) -> CommitError {
        let said = said.trim_start_matches('-');
        let full = |place: &str| CommitError::Refused(Refusal::Full { place: place.to_owned() });
        match said.split(' ').next().unwrap_or_default() {
            "OOM" => full("the memory that Redis may use (maxmemory)"),
            "MISCONF" => full("the place where Redis saves its data (MISCONF: its log says why)"),
            "READONLY" => {
                self.hang_up();
                CommitError::Unavailable(REPLICA.to_owned())
            }
            "LOADING" => CommitError::Unavailable("redis is still loading its data".to_owned()),
            "BUSY" => CommitError::Unavailable(
                "redis is busy with somebody's script: end that with SCRIPT KILL".to_owned(),
            ),
            "NOREPLICAS" => CommitError::Unavailable(
                "redis has fewer replicas than min-replicas-to-write asks for".to_owned(),
            ),
            other => CommitError::Unavailable(format!("redis takes no commits ({other})")),
        }
    }

    /// Both lines are made anew, perhaps to another host.
    fn hang_up(&self) {
        self.writer.hang_up();
        self.reader.hang_up();
    }
}

/// What a rehearsal shows.
fn rehearsed(reply: Result<redis::Value, Failure>) -> Result<(), Trouble> {
    let unfit = |why: &str| {
        Trouble::new(Fault::Unsafe, format!("its scripts do not do what they should: {why}"))
    };
    match reply {
        Ok(reply) => match Answer::read(reply).map_err(|why| unfit(&why))?.outcome {
            Outcome::Done(_) | Outcome::Page { .. } => Ok(()),
            Outcome::Refused(said) => Err(Trouble::refused(&said)),
            Outcome::Replica => Err(Trouble::new(Fault::ReadOnly, "it is a replica")),
            Outcome::Conflict { .. } | Outcome::Lacking(_) => {
                Err(unfit("keys are not as they were left"))
            }
        },
        Err(Failure::Told(why)) => Err(Trouble::told(&why)),
        Err(Failure::NotSent(why) | Failure::NoAnswer(why)) => {
            Err(Trouble::new(Fault::Unreachable, why))
        }
    }
}

impl About {
    /// Whether an answer counts. Learns what it says beside.
    fn admit(&self, answer: &Answer) -> bool {
        let counts = self.epochs.admit(&answer.epoch);
        if counts && self.replicas.load(Ordering::Relaxed) != answer.replicas {
            self.replicas.store(answer.replicas, Ordering::Relaxed);
        }
        counts
    }

    /// Whether a server with this setting counts. Learns it.
    fn found(&self, setting: &Setting) -> bool {
        if !self.epochs.admit(&setting.epoch) {
            return false;
        }
        self.replicas.store(setting.replicas, Ordering::Relaxed);
        *self.setting.write().unwrap_or_else(PoisonError::into_inner) = setting.clone();
        true
    }

    fn class(&self) -> Class {
        if self.replicas.load(Ordering::Relaxed) > 0 {
            return Class::B;
        }
        self.setting.read().unwrap_or_else(PoisonError::into_inner).class_alone()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.setting.read().unwrap_or_else(PoisonError::into_inner).facts();
        facts.push(("replicas", self.replicas.load(Ordering::Relaxed).to_string()));
        if !self.may_listen.load(Ordering::Relaxed) {
            let text = "none: this user may not subscribe to the channel, so everybody looks once a second";
            facts.push(("hints", text.to_owned()));
        }
        facts
    }
}

impl Adapter for Redis {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move { self.core.scan(&range, limit).await })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(async move { self.core.commit(&commit).await })
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

    fn facts(&self) -> Vec<(&'static str, String)> {
        self.core.about.facts()
    }
}

//! The two scripts, and what is said to them and by them.
//!
//! A script is one step of Redis, so a commit is atomic, and so is each of several that share a call, and a page is one moment's view. Each
//! answer begins with the epoch of the server that gave it and the number of its replicas, read in that same step: see [`super::epoch`].

use std::ops::{Bound, RangeBounds};
use std::sync::LazyLock;

use bytes::Bytes;
use engine::limits::PAGE_BYTES_MAX;
use redis::{Cmd, Value as Reply, cmd};

use crate::{Commit, Condition, Entry, Key, Page, Range, Version, Write};

/// The hint that anything may have changed, for a commit of more keys than the script names one by one.
pub(super) const EVERYTHING: &str = "*";

/// A script and the hash by which Redis knows it.
pub(super) struct LuaScript {
    code: &'static str,
    hash: String,
}

pub(super) static COMMIT: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("commit.lua")));
pub(super) static SCAN: LazyLock<LuaScript> =
    LazyLock::new(|| LuaScript::new(include_str!("scan.lua")));

impl LuaScript {
    fn new(code: &'static str) -> Self {
        Self { code, hash: redis::Script::new(code).get_hash().to_owned() }
    }

    /// A call by hash: short, and answered `NOSCRIPT` by a server that has not seen the script, which has done nothing then.
    pub(super) fn by_hash(&self) -> Cmd {
        // Room for what most calls are made of, so that it is found once.
        let mut command = Cmd::with_capacity(16, 512);
        command.arg("EVALSHA").arg(&self.hash);
        command
    }

    /// A call that brings the script along.
    pub(super) fn by_code(&self) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(self.code);
        command
    }
}

/// The names of everything that a store has in Redis: all with the same tag, so that all of it is in one slot.
#[derive(Debug, Clone)]
pub(super) struct Names {
    entries: String,
    order: String,
    pub(super) hints: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let name = |what: &str| format!("{{{prefix}}}:{what}");
        Self { entries: name("entries"), order: name("order"), hints: name("hints") }
    }

    /// Other names beside them, for a rehearsal.
    pub(super) fn rehearsal(&self) -> Self {
        let name = |what: &str| format!("{what}:rehearsal");
        Self { entries: name(&self.entries), order: name(&self.order), hints: self.hints.clone() }
    }

    /// Removes what a rehearsal left behind.
    pub(super) fn removal(&self) -> Cmd {
        let mut command = cmd("DEL");
        command.arg(&[&self.entries, &self.order]);
        command
    }

    /// Adds what [`COMMIT`] is told. Commits without a put belong at the end: see [`is_freeing`].
    pub(super) fn commits<'a>(
        &self,
        mut command: Cmd,
        commits: impl Iterator<Item = &'a Commit>,
    ) -> Cmd {
        command.arg(2).arg(&self.entries).arg(&self.order).arg(&self.hints);
        commits.for_each(|commit| add(&mut command, commit));
        command
    }

    /// Adds what [`SCAN`] is told.
    pub(super) fn scan(&self, mut command: Cmd, range: &Range, limit: usize) -> Cmd {
        let bound = |bound: Bound<&str>, unbounded: &str| match bound {
            Bound::Included(text) => format!("[{text}"),
            Bound::Excluded(text) => format!("({text}"),
            Bound::Unbounded => unbounded.to_owned(),
        };
        command.arg(2).arg(&self.entries).arg(&self.order);
        command.arg(bound(range.start_bound(), "-")).arg(bound(range.end_bound(), "+"));
        command.arg(limit).arg(PAGE_BYTES_MAX);
        command
    }
}

fn add(command: &mut Cmd, commit: &Commit) {
    let puts = commit.then.iter().filter(|write| is_put(write)).count();
    command.arg(commit.when.len()).arg(puts).arg(commit.then.len() - puts);
    for condition in &commit.when {
        match condition {
            Condition::Absent(_) => command.arg("-"),
            Condition::Present(_) => command.arg("+"),
            Condition::At(_, version) => command.arg(version.0),
        };
    }
    for condition in &commit.when {
        command.arg(condition.key().as_bytes());
    }
    for write in &commit.then {
        if let Write::Put(key, value) = write {
            command.arg(key.as_bytes()).arg(value.as_bytes());
        }
    }
    for write in &commit.then {
        if let Write::Delete(key) = write {
            command.arg(key.as_bytes());
        }
    }
}

fn is_put(write: &Write) -> bool {
    match write {
        Write::Put(..) => true,
        Write::Delete(_) => false,
    }
}

/// Whether a commit only deletes. Redis takes it when its memory is full, and then all that follows in the same call: what would fill it
/// further must not be behind it.
pub(super) fn is_freeing(commit: &Commit) -> bool {
    !commit.then.iter().any(is_put)
}

/// The answer of a script, with the server that gave it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptAnswer {
    /// The epoch of the server.
    pub(super) epoch: String,
    /// How many replicas follow it.
    pub(super) replicas: u64,
    /// What came of the call.
    pub(super) outcome: ScriptOutcome,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScriptOutcome {
    /// What came of each commit, in their order.
    Commits(Vec<CommitVerdict>),
    /// It is a replica: it did nothing.
    Replica,
    /// A page, and whether there is more behind it.
    Page { entries: Vec<Entry>, more: bool },
    /// This key has a place in the order and no entry.
    Lacking(String),
}

/// What came of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommitVerdict {
    /// The commit was done.
    Done(Version),
    /// The condition with this number, from 0, does not hold.
    Conflict { number: usize, found: Option<Version> },
    /// Redis took none of its writes, for this reason.
    Refused(String),
    /// What it was to be compared with is damaged. Nothing was changed.
    Damaged(String),
}

impl ScriptAnswer {
    /// Reads an answer, or says why it is none.
    pub(super) fn read(reply: Reply) -> Result<Self, String> {
        let mut items = list(reply)?;
        let (epoch, replicas) = (text(items.next())?, number(items.next())?);
        let outcome = match &bytes(items.next())?[..] {
            b"commits" => {
                ScriptOutcome::Commits(items.map(CommitVerdict::read).collect::<Result<_, _>>()?)
            }
            b"replica" => ScriptOutcome::Replica,
            b"page" => {
                let more = number(items.next())? == 1;
                let mut entries = Vec::with_capacity(items.len() / 2);
                while let Some(key) = items.next() {
                    entries.push(entry(bytes(Some(key))?, &bytes(items.next())?)?);
                }
                ScriptOutcome::Page { entries, more }
            }
            b"lacking" => ScriptOutcome::Lacking(text(items.next())?),
            _ => return Err("it says what no script of ours does".to_owned()),
        };
        Ok(Self { epoch, replicas, outcome })
    }
}

impl CommitVerdict {
    fn read(reply: Reply) -> Result<Self, String> {
        let mut items = list(reply)?;
        Ok(match &bytes(items.next())?[..] {
            b"done" => Self::Done(Version(number(items.next())?)),
            b"conflict" => {
                let place =
                    number(items.next())?.checked_sub(1).ok_or("conditions count from 1")?;
                let number = usize::try_from(place).map_err(|_| "no such condition")?;
                match version(&text(items.next())?) {
                    Ok(found) => Self::Conflict { number, found },
                    Err(why) => Self::Damaged(why),
                }
            }
            b"refused" => Self::Refused(text(items.next())?),
            _ => return Err("it says what no script of ours does".to_owned()),
        })
    }
}

/// The page that these entries are.
pub(super) fn page(range: &Range, entries: Vec<Entry>, more: bool) -> Page {
    let next = if more { entries.last().map(|last| range.after(&last.key)) } else { None };
    Page { entries, next }
}

/// Reads an entry from what is stored for its key, `VERSION VALUE`.
fn entry(key: Bytes, stored: &Bytes) -> Result<Entry, String> {
    let key = Key::from_bytes(key).map_err(|why| why.to_string())?;
    let damaged = || format!("{key} does not hold a version and a value");
    let space = stored.iter().position(|byte| *byte == b' ').ok_or_else(damaged)?;
    let digits = std::str::from_utf8(&stored[..space]).map_err(|_| damaged())?;
    let version = Version(digits.parse().map_err(|_| damaged())?);
    Ok(Entry { version, value: stored.slice(space + 1..).into(), key })
}

fn version(text: &str) -> Result<Option<Version>, String> {
    match text {
        "-" => Ok(None),
        digits => match digits.parse() {
            Ok(number) => Ok(Some(Version(number))),
            Err(_) => Err("a key does not hold a version and a value".to_owned()),
        },
    }
}

fn list(reply: Reply) -> Result<std::vec::IntoIter<Reply>, String> {
    match reply {
        Reply::Array(items) => Ok(items.into_iter()),
        other => Err(format!("it has {} where a list should be", kind(Some(&other)))),
    }
}

fn bytes(item: Option<Reply>) -> Result<Bytes, String> {
    match item {
        Some(Reply::BulkString(bytes)) => Ok(bytes.into()),
        other => Err(format!("it has {} where text should be", kind(other.as_ref()))),
    }
}

fn text(item: Option<Reply>) -> Result<String, String> {
    String::from_utf8(bytes(item)?.into()).map_err(|_| "it is not UTF-8".to_owned())
}

fn number(item: Option<Reply>) -> Result<u64, String> {
    match item {
        Some(Reply::Int(number)) => {
            u64::try_from(number).map_err(|_| "it counts below 0".to_owned())
        }
        item => text(item)?.parse().map_err(|_| "it has text where a number should be".to_owned()),
    }
}

/// Never shows what is in it: that may be a value.
fn kind(item: Option<&Reply>) -> &'static str {
    match item {
        None | Some(Reply::Nil) => "nothing",
        Some(Reply::Int(_)) => "a number",
        Some(Reply::Array(_)) => "a list",
        Some(_) => "something else",
    }
}

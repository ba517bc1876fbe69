//! Guests: what a commit that comes through a server means, and whether its sender may do that.
//!
//! A *guest* is somebody who has a key to a server and not to its store. A server takes no raw commits of guests. It
//! reads each one as a [`GuestCommit`], of which there are a few kinds, and refuses all others: open, renew and close
//! one's own session; take, write, hand over, release and touch an election of one's own project; wish that a holder leave;
//! raise the longest T. So whatever a guest sends, only records of that guest are written, and they are well-formed.
//!
//! There are three steps. [`GuestCommit::of`] looks at the commit alone: which keys, which conditions, which values.
//! [`GuestCommit::needs`] names the keys that have to be read next. [`GuestCommit::judge`] looks at what was read, and
//! gives the commit that is sent to the store: the same conditions in the same order, perhaps one more, and values
//! written anew, so that nothing gets in that was not understood. That commit is conditional on what was read, so it
//! does not matter that time passes in between.
//!
//! A session is a project's by its key, `node/<id>/<project>.<incarnation>`, and within it the key's that opened it, by
//! its record. Nothing that has no such key can be opened, renewed, closed or named as a holder through a server, so
//! the sessions of servers, and of whoever uses the store directly, are out of reach whatever a guest knows of them. They may
//! be handed an election only if they say themselves that they campaign for it.

mod judge;
#[cfg(test)]
mod mutation;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::lease::Ttl;
use engine::limits::{
    GUEST_BODY_BYTES_MAX, GUEST_CANDIDACIES_MAX, GUEST_ROLES_MAX, GUEST_TEXT_BYTES_MAX,
    GUEST_TTL_MAX, KEY_NAME_CHARS_MAX, UNABLE_SHARDS_MAX,
};
use engine::trigger::check_name;

pub use self::view::{may_scan, shown};
use crate::claim::{Claim, ClaimNote, Head, NUMBER_MAX};
use crate::election::claim_of;
use crate::session::{Longest, NodeId, SESSIONS, SessionKey, SessionRecord};
use crate::{Commit, Condition, Entry, Key, Version, Write};

/// Below this lies what `watchbell store check` writes. Admins may do anything there.
pub const SCRATCH: &str = "scratch/";

/// The sender of a commit that comes through a server.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'a> {
    /// The project that its key belongs to.
    pub project: &'a str,
    /// The id of its key.
    pub key: &'a str,
    /// The name that people gave that key.
    pub author: &'a str,
    /// The server's wall clock.
    pub wall_us: u64,
}

/// Why a commit is not sent to the store: it says what may be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Denied(String);

/// A commit of a guest, by what it means.
#[derive(Debug)]
pub enum GuestCommit {
    /// The store is to remember a longer T.
    Raise(Option<Version>, Ttl),
    /// A session begins.
    Open(SessionKey, SessionRecord),
    /// A session goes on.
    Renew(SessionKey, Version, SessionRecord),
    /// A session ends.
    Close(SessionKey, Option<Version>),
    /// A claim is taken, or handed over by its holder: which of them, its head tells.
    Take(Take),
    /// A claim is written by its holder, released, or touched while nobody has it.
    Change(HeadChange),
    /// The holder of a claim is asked to leave, for this node if one is named.
    Wish(Claim, u64, Option<NodeId>),
}

/// What a guest writes to take a claim, or to hand it over.
#[derive(Debug)]
pub struct Take {
    claim: Claim,
    at: Option<Version>,
    former: Option<SessionKey>,
    by: SessionKey,
    head: Head,
}

/// What a guest writes to a claim without taking it.
#[derive(Debug)]
pub struct HeadChange {
    claim: Claim,
    at: Option<Version>,
    head: Head,
    /// Whether wish and approval beside the head are deleted.
    clears: bool,
}

/// What was read to judge a commit; `None` for a key that is absent.
pub type GuestReads = BTreeMap<Key, Option<Entry>>;

/// Why a commit of a guest is not sent to the store.
#[derive(Debug, PartialEq, Eq)]
pub enum GuestRefusal {
    /// The guest may not do that.
    Denied(Denied),
    /// This condition of the commit does not hold: what was read shows it.
    Conflict {
        /// The number of that condition in the commit, from 0.
        condition: usize,
        /// The version that is there instead.
        found: Option<Version>,
    },
}

impl From<Denied> for GuestRefusal {
    fn from(why: Denied) -> Self {
        Self::Denied(why)
    }
}

fn denied<T>(why: impl Into<String>) -> Result<T, Denied> {
    Err(Denied(why.into()))
}

/// Says what is possible, to whoever sent a commit of no known kind.
const POSSIBLE: &str = "through a server one can open, renew and close a session of one's own, and take, write and release elections of one's own project: use the store itself for everything else";

impl GuestCommit {
    /// Whether the commit makes a claim that nobody has ever had.
    pub fn founds(&self) -> bool {
        match self {
            Self::Take(take) => take.at.is_none(),
            Self::Change(write) => write.at.is_none(),
            Self::Raise(..)
            | Self::Open(..)
            | Self::Renew(..)
            | Self::Close(..)
            | Self::Wish(..) => false,
        }
    }

    /// Reads a commit of a guest of this project.
    pub fn of(commit: &Commit, project: &str) -> Result<Self, Denied> {
        let Some(first) = commit.then.first() else { return denied(POSSIBLE) };
        let key = first.key().as_str();
        if *first.key() == Longest::key() {
            return raise(commit);
        }
        if key.starts_with(SESSIONS) {
            return session(commit, project);
        }
        match key.strip_prefix("election/").and_then(|rest| rest.split_once('/')) {
            Some((of, rest)) if of == project => election(commit, project, rest),
            Some(_) => denied(format!("there are no elections here but those of {project}")),
            None => denied(POSSIBLE),
        }
    }

    /// Whether all of a commit lies below [`SCRATCH`].
    pub fn is_scratch(commit: &Commit) -> bool {
        let conditions = commit.when.iter().map(Condition::key);
        let mut keys = conditions.chain(commit.then.iter().map(Write::key));
        keys.all(|key| key.as_str().starts_with(SCRATCH))
    }
}

fn raise(commit: &Commit) -> Result<GuestCommit, Denied> {
    let key = Longest::key();
    let [condition] = commit.when.as_slice() else { return denied(POSSIBLE) };
    let at = at_or_absent(condition, &key)?;
    let [Write::Put(_, value)] = commit.then.as_slice() else { return denied(POSSIBLE) };
    let longest = Longest::from_value(value).map_err(|why| Denied(format!("{key}: {why}")))?;
    let ttl = longest.ttl().map(Ttl::length);
    Ok(GuestCommit::Raise(at, check_ttl(ttl)?))
}

/// A T that a guest may have.
fn check_ttl(length: Option<Duration>) -> Result<Ttl, Denied> {
    let ttl = length.filter(|length| *length <= GUEST_TTL_MAX).and_then(|ttl| Ttl::new(ttl).ok());
    ttl.ok_or_else(|| {
        let most = GUEST_TTL_MAX.as_secs();
        Denied(format!(
            "a session that comes through a server lasts half a second to {most} seconds"
        ))
    })
}

/// The version at which a key is, or that it is absent.
fn at_or_absent(condition: &Condition, key: &Key) -> Result<Option<Version>, Denied> {
    match condition {
        Condition::At(of, version) if of == key => Ok(Some(*version)),
        Condition::Absent(of) if of == key => Ok(None),
        _ => denied(format!("a change of {key} is conditional on how it was read")),
    }
}

fn session(commit: &Commit, project: &str) -> Result<GuestCommit, Denied> {
    let ([condition], [write]) = (commit.when.as_slice(), commit.then.as_slice()) else {
        return denied(
            "a session is opened, renewed or closed by itself, on one condition; servers bury others",
        );
    };
    let key = own_session(write.key(), project)?;
    if condition.key() != key.key() {
        return denied("a session is opened, renewed and closed on a condition of its own");
    }
    match (condition, write) {
        (Condition::Absent(_), Write::Put(_, value)) => {
            Ok(GuestCommit::Open(key.clone(), record(&key, value, project)?))
        }
        (Condition::At(_, at), Write::Put(_, value)) => {
            Ok(GuestCommit::Renew(key.clone(), *at, record(&key, value, project)?))
        }
        (Condition::Present(_), Write::Delete(_)) => Ok(GuestCommit::Close(key, None)),
        (Condition::At(_, at), Write::Delete(_)) => Ok(GuestCommit::Close(key, Some(*at))),
        (Condition::Present(_), Write::Put(..)) | (Condition::Absent(_), Write::Delete(_)) => {
            denied(
                "a session is opened while it is absent, renewed at its version, closed while it is there",
            )
        }
    }
}

/// The session at this key, if it is one that somebody of this project may have.
fn own_session(key: &Key, project: &str) -> Result<SessionKey, Denied> {
    let bad = || {
        Denied(format!(
            "{key} is no session of project {project}: one that comes through a server is node/<id>/{project}.<16 hexadecimal digits>"
        ))
    };
    let session = SessionKey::try_from(key).map_err(|_| bad())?;
    let digits = key.as_str().rsplit_once('.').map_or("", |(_, digits)| digits);
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let fits = digits.len() == 16 && digits.bytes().all(is_hex);
    if fits && session.guest() == Some(project) { Ok(session) } else { Err(bad()) }
}

fn record(key: &SessionKey, value: &crate::Value, project: &str) -> Result<SessionRecord, Denied> {
    let record = SessionRecord::from_value(value).map_err(|why| Denied(format!("{key}: {why}")))?;
    check_ttl(Some(Duration::from_millis(record.ttl_ms)))?;
    if record.local {
        return denied(
            "a session that comes through a server is not local: others may see it live",
        );
    }
    let url = record.url.as_deref().unwrap_or_default();
    let texts = record.roles.iter().map(String::as_str).chain([url, &record.version]);
    if record.roles.len() > GUEST_ROLES_MAX
        || texts.into_iter().any(|text| text.len() > GUEST_TEXT_BYTES_MAX)
        || record.unable.len() > UNABLE_SHARDS_MAX
    {
        return denied(format!(
            "a session says of itself up to {GUEST_ROLES_MAX} roles, a URL and a version, each of up to {GUEST_TEXT_BYTES_MAX} bytes, and up to {UNABLE_SHARDS_MAX} shards"
        ));
    }
    let is_own = |candidacy: &String| {
        let name = candidacy.strip_prefix(project).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| check_name(name).is_ok())
    };
    if record.candidacies.len() > GUEST_CANDIDACIES_MAX || !record.candidacies.iter().all(is_own) {
        return denied(format!(
            "a session that comes through a server campaigns for up to {GUEST_CANDIDACIES_MAX} elections of its own project, {project}/<name>"
        ));
    }
    Ok(record)
}

fn election(commit: &Commit, project: &str, rest: &str) -> Result<GuestCommit, Denied> {
    let (name, beside) =
        rest.split_once('/').map_or((rest, None), |(name, rest)| (name, Some(rest)));
    check_name(name).map_err(Denied)?;
    let claim = claim_of(project, name).map_err(|why| Denied(why.to_string()))?;
    match beside {
        None => head(commit, claim),
        Some("wish") => wish(commit, claim),
        Some("approval") => denied("an approval is given by POST /v1/elections/<name>/approve"),
        Some(_) => denied(POSSIBLE),
    }
}

fn wish(commit: &Commit, claim: Claim) -> Result<GuestCommit, Denied> {
    let ([], [Write::Put(key, value)]) = (commit.when.as_slice(), commit.then.as_slice()) else {
        return denied("a wish is written by itself");
    };
    let note = ClaimNote::from_value(value).map_err(|why| Denied(format!("{key}: {why}")))?;
    if note.token > NUMBER_MAX || note.by.chars().count() > KEY_NAME_CHARS_MAX {
        return denied("a wish names a token, and who has it");
    }
    let to = note.to.map(NodeId::new).transpose().map_err(|why| Denied(why.to_string()))?;
    Ok(GuestCommit::Wish(claim, note.token, to))
}

fn head(commit: &Commit, claim: Claim) -> Result<GuestCommit, Denied> {
    let key = claim.key();
    let clears = match commit.then.as_slice() {
        [Write::Put(..)] => false,
        [Write::Put(..), Write::Delete(one), Write::Delete(other)]
            if claim.notes() == [one.clone(), other.clone()] =>
        {
            true
        }
        _ => {
            return denied(format!(
                "nothing but {key} is written, and what lies beside it cleared"
            ));
        }
    };
    let Some(Write::Put(_, value)) = commit.then.first() else { return denied(POSSIBLE) };
    let head = Head::from_value(value).map_err(|why| Denied(format!("{key}: {why}")))?;
    if head.format != Head::first().format {
        return denied(format!("{key}: candidates of other versions could not read it"));
    }
    if head.token.max(head.number) > NUMBER_MAX {
        return denied(format!("{key}: its numbers are beyond all that is ever reached"));
    }
    if head.body.as_ref().is_some_and(|body| body.get().len() > GUEST_BODY_BYTES_MAX) {
        return denied(format!(
            "the head of an election keeps at most {GUEST_BODY_BYTES_MAX} bytes"
        ));
    }
    let Some((first, rest)) = commit.when.split_first() else {
        return denied(format!("a change of {key} is conditional on how it was read"));
    };
    let at = at_or_absent(first, key)?;
    if rest.is_empty() {
        return Ok(GuestCommit::Change(HeadChange { claim, at, head, clears }));
    }
    let (former, by) = match rest {
        [Condition::Present(by)] => (None, by),
        [Condition::Absent(former), Condition::Present(by)] => (Some(former), by),
        _ => return denied(TAKING),
    };
    let by = SessionKey::try_from(by).map_err(|_| Denied(TAKING.into()))?;
    let former = match former.map(SessionKey::try_from) {
        None => None,
        Some(Ok(former)) => Some(former),
        Some(Err(_)) => return denied(TAKING),
    };
    if clears || head.session.as_ref() != Some(&by) {
        return denied(TAKING);
    }
    Ok(GuestCommit::Take(Take { claim, at, former, by, head }))
}

/// Says how a claim is taken, to whoever tries otherwise.
const TAKING: &str = "an election is taken as it was read, while the session that it named is absent and one's own is there, which it names from then on";

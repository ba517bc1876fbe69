//! From our types to the API's, and what its errors mean.

use std::ops::{Bound, RangeBounds};

use client::ClientError;
use client::store::{
    Blob, Edge, StoreCommit, StoreCondition, StoreEntry, StorePage, StoreScan, StoreWrite,
};

use crate::{
    Commit, CommitError, Condition, Conflict, Entry, Key, Page, Range, Refusal, ScanError, Value,
    Version, Write,
};

/// What a problem is called that says of a commit that nothing was done.
const NOT_DONE: &str = ":store-unavailable";
/// What a problem is called that says that what is stored is damaged.
const DAMAGED: &str = ":store-damaged";

pub(super) fn scan(range: &Range, limit: usize) -> Result<StoreScan, Refusal> {
    let edge = |bound: Bound<&str>| match bound {
        Bound::Included(text) => Some(Edge::Included(text.to_owned())),
        Bound::Excluded(text) => Some(Edge::Excluded(text.to_owned())),
        Bound::Unbounded => None,
    };
    let (from, to) = (edge(range.start_bound()), edge(range.end_bound()));
    let (Some(from), Some(to)) = (from, to) else {
        let why = "not everything can be read through a server, but sessions and the elections of a project: use the store itself";
        return Err(Refusal::Denied { why: why.into() });
    };
    Ok(StoreScan { from, to, limit })
}

/// What a server gave of a range; or why that is none.
pub(super) fn page(page: StorePage, range: &Range) -> Result<Page, String> {
    let entries: Result<Vec<Entry>, String> = page.entries.into_iter().map(entry).collect();
    let next = page.next.map(|edge| match edge {
        Edge::Included(text) => Bound::Included(text),
        Edge::Excluded(text) => Bound::Excluded(text),
    });
    let end = range.end_bound().map(str::to_owned);
    Ok(Page { entries: entries?, next: next.map(|start| Range::of(start, end)) })
}

fn entry(entry: StoreEntry) -> Result<Entry, String> {
    let key = Key::new(entry.key).map_err(|why| why.to_string())?;
    let value = entry.value.bytes().ok_or("the server gave a value that is none")?;
    Ok(Entry { key, value: Value::from(value), version: Version(entry.version) })
}

pub(super) fn commit(commit: &Commit) -> StoreCommit {
    let when = commit.when.iter().map(|condition| match condition {
        Condition::Absent(key) => StoreCondition::Absent(key.to_string()),
        Condition::Present(key) => StoreCondition::Present(key.to_string()),
        Condition::At(key, version) => StoreCondition::At(key.to_string(), version.0),
    });
    let then = commit.then.iter().map(|write| match write {
        Write::Put(key, value) => StoreWrite::Put(key.to_string(), Blob::new(value.as_bytes())),
        Write::Delete(key) => StoreWrite::Delete(key.to_string()),
    });
    StoreCommit { when: when.collect(), then: then.collect() }
}

/// What became of a commit that was not acknowledged. What is not known for certain is unknown.
pub(super) fn commit_error(why: &ClientError, commit: &Commit) -> CommitError {
    let sentence = why.to_string();
    let kind = why.problem().map_or("", |problem| problem.kind.as_str());
    match why {
        _ if kind.ends_with(NOT_DONE) => CommitError::Unavailable(sentence),
        _ if kind.ends_with(DAMAGED) => CommitError::Corrupt(sentence),
        _ if kind.ends_with(":no-room") => {
            Refusal::Full { place: "the server's store".into() }.into()
        }
        ClientError::Conflict(problem) => {
            let said = problem.store.as_ref();
            let condition = said.and_then(|said| commit.when.get(said.condition?));
            match (said, condition) {
                (Some(said), Some(condition)) => CommitError::Conflict(Conflict {
                    condition: condition.clone(),
                    found: said.found.map(Version),
                }),
                _ => CommitError::Unknown(sentence),
            }
        }
        ClientError::Unauthorized(_)
        | ClientError::Forbidden(_)
        | ClientError::NotFound(_)
        | ClientError::Invalid(_)
        | ClientError::LimitReached { .. } => Refusal::Denied { why: sentence }.into(),
        why if why.may_be_done() => CommitError::Unknown(sentence),
        _ => CommitError::Unavailable(sentence),
    }
}

pub(super) fn scan_error(why: &ClientError) -> ScanError {
    let sentence = why.to_string();
    let kind = why.problem().map_or("", |problem| problem.kind.as_str());
    match why {
        _ if kind.ends_with(DAMAGED) => ScanError::Corrupt(sentence),
        ClientError::Unauthorized(_) | ClientError::Forbidden(_) | ClientError::Invalid(_) => {
            Refusal::Denied { why: sentence }.into()
        }
        _ => ScanError::Unavailable(sentence),
    }
}

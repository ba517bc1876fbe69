//! From the wire's types to the store's, and back.

use std::ops::{Bound, RangeBounds};

use client::store::{
    Blob, Edge, StoreCommit, StoreCondition, StoreEntry, StoreMoment, StorePage, StoreScan,
    StoreWrite,
};
use engine::limits::{KEY_BYTES_MAX, PAGE_ENTRIES_MAX};
use store::{Commit, Condition, Entry, Key, Page, Range, Version, Write};

use crate::api::problem::{ApiError, ApiResult};

pub(super) fn range(asked: &StoreScan) -> ApiResult<(Range, usize)> {
    if !(1..=PAGE_ENTRIES_MAX).contains(&asked.limit) {
        let why = format!("it is a whole number from 1 to {PAGE_ENTRIES_MAX}");
        return Err(ApiError::field("/limit", why));
    }
    let bound = |name: &str, edge: &Edge| {
        let (bound, text): (fn(String) -> Bound<String>, _) = match edge {
            Edge::Included(text) => (Bound::Included, text),
            Edge::Excluded(text) => (Bound::Excluded, text),
        };
        if text.len() > KEY_BYTES_MAX + 1 {
            return Err(ApiError::field(format!("/{name}"), "it is longer than any key"));
        }
        Ok(bound(text.clone()))
    };
    let range = Range::of(bound("from", &asked.from)?, bound("to", &asked.to)?);
    Ok((range, asked.limit))
}

pub(super) fn commit(asked: StoreCommit) -> ApiResult<Commit> {
    let mut commit = Commit::new();
    for (number, condition) in asked.when.into_iter().enumerate() {
        let key = |text| key(format!("/when/{number}"), text);
        commit = commit.when(match condition {
            StoreCondition::Absent(text) => Condition::Absent(key(text)?),
            StoreCondition::Present(text) => Condition::Present(key(text)?),
            StoreCondition::At(text, version) => Condition::At(key(text)?, Version(version)),
        });
    }
    for (number, write) in asked.then.into_iter().enumerate() {
        let place = format!("/then/{number}");
        commit.then.push(match write {
            StoreWrite::Put(text, blob) => {
                let value = blob.bytes().ok_or_else(|| {
                    ApiError::field(place.clone(), "hex is two hexadecimal digits for each byte")
                })?;
                Write::Put(key(place, text)?, value.into())
            }
            StoreWrite::Delete(text) => Write::Delete(key(place, text)?),
        });
    }
    Ok(commit)
}

fn key(place: String, text: String) -> ApiResult<Key> {
    Key::new(text).map_err(|why| ApiError::field(place, why.to_string()))
}

pub(super) fn page(page: Page, moment: StoreMoment) -> StorePage {
    let entry = |entry: Entry| StoreEntry {
        key: entry.key.to_string(),
        value: Blob::new(entry.value.as_bytes()),
        version: entry.version.0,
    };
    let next = page.next.and_then(|range| match range.start_bound() {
        Bound::Included(text) => Some(Edge::Included(text.to_owned())),
        Bound::Excluded(text) => Some(Edge::Excluded(text.to_owned())),
        Bound::Unbounded => None,
    });
    StorePage { entries: page.entries.into_iter().map(entry).collect(), next, moment }
}

//! A page, in portions of one revision.
//!
//! etcd answers with whole values and has no limit of bytes, so that a thousand large ones would be a gigabyte
//! in one message. The first portion is small enough for the largest values; the next ones follow from what it
//! weighed. All are read at the revision of the first: together they are one moment.

use engine::limits::PAGE_BYTES_MAX;
use etcd_client::{GetOptions, GetResponse, ResponseHeader};

use super::call::EtcdHandle;
use super::commit::version;
use super::failure::EtcdFailure;
use super::request::RangeRead;
use super::{LIMITS, MESSAGE_BYTES_MAX};
use crate::{Entry, Page, Range, ScanError, Value};

/// Entries of the first portion: at the largest, a message takes them.
const FIRST_LEN: usize = 48;

/// A portion is at most so many times as long as those before it together: they may have been the small ones.
const GROWTH: usize = 4;

// Keys, and what messages have beside them, are far smaller than the rest.
const _: () = assert!(FIRST_LEN * (LIMITS.value_bytes + 1024) <= MESSAGE_BYTES_MAX);

/// A page of a range.
pub(super) async fn page(etcd: &EtcdHandle, range: Range, limit: usize) -> Result<Page, ScanError> {
    let (mut start, end) = etcd.space.range(&range);
    let mut entries: Vec<Entry> = Vec::new();
    let (mut bytes, mut len) = (0, limit.min(FIRST_LEN));
    let mut moment = None;
    loop {
        let revision = moment.as_ref().map_or(0, |(revision, _)| *revision);
        let mut answer = portion(etcd, &start, &end, len, revision).await?;
        let epoch = etcd.epochs.epoch();
        let (_, begun) = moment.get_or_insert_with(|| {
            (answer.header().map_or(0, ResponseHeader::revision), epoch.clone())
        });
        if *begun != epoch {
            return Err(ScanError::Unavailable("etcd was restored meanwhile".to_owned()));
        }
        let mut more = answer.more();
        for kv in answer.take_kvs() {
            // The page was full before this one.
            if bytes >= PAGE_BYTES_MAX {
                more = true;
                break;
            }
            let entry = entry(etcd, kv)?;
            bytes += entry.key.len() + entry.value.len();
            entries.push(entry);
        }
        let Some(last) = entries.last().filter(|_| more) else {
            return Ok(Page { entries, next: None });
        };
        if entries.len() >= limit || bytes >= PAGE_BYTES_MAX {
            let next = Some(range.after(&last.key));
            return Ok(Page { entries, next });
        }
        start = [etcd.space.key(&last.key), vec![0]].concat();
        len = next_len(entries.len(), bytes).min(limit - entries.len());
    }
}

fn entry(etcd: &EtcdHandle, kv: etcd_client::KeyValue) -> Result<Entry, ScanError> {
    let version = version(kv.mod_revision());
    let (key, value) = kv.into_key_value();
    let Some(key) = etcd.space.read(&key) else {
        let key = String::from_utf8_lossy(&key).into_owned();
        return Err(ScanError::Corrupt(format!("etcd holds {key:?}, which is no key of ours")));
    };
    Ok(Entry { key, value: Value::from(value), version })
}

/// How many entries to ask for next, when `len` of them had so many bytes.
fn next_len(len: usize, bytes: usize) -> usize {
    let each = (bytes / len).max(1);
    let room = (PAGE_BYTES_MAX - bytes) / each + 1;
    room.min(len * GROWTH)
}

/// A portion of up to `len` entries; fewer if so many are too large for a message.
async fn portion(
    etcd: &EtcdHandle,
    start: &[u8],
    end: &[u8],
    mut len: usize,
    revision: i64,
) -> Result<GetResponse, ScanError> {
    loop {
        let options = GetOptions::new()
            .with_range(end)
            .with_limit(i64::try_from(len).expect("a page is short"))
            .with_revision(revision);
        match etcd.call(RangeRead(start.to_vec(), options)).await {
            Ok(answer) => return Ok(answer),
            Err(EtcdFailure::Large) if len > 1 => len = len.div_ceil(4),
            Err(why) => return Err(why.of_scan()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portion_follows_from_what_those_before_it_weighed() {
        assert_eq!(next_len(48, 48 * 100), 192, "small ones may be followed by large ones");
        assert_eq!(next_len(4, 4 * 1024 * 1024 - 4), 1, "one more fills the page");
        assert_eq!(next_len(48, 0), 192);
        assert_eq!(next_len(40, 40 * 64 * 1024), 25);
    }
}

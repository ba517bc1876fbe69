//! Scans: ordered, paged, current.

use super::{ClauseOutcome, ClauseResult, ClauseViolation, ScratchSpace, ensure, ensure_eq};
use crate::{Commit, Range, Value};

/// In the order of their bytes, which is neither a dictionary's nor a language's.
const NAMES: &[&str] = &[
    "!", "-", "0", "10", "2", "A", "B/", "B/1", "B/1/x", "B/2", "B0", "_", "a", "a!", "aa", "b",
    "{", "~", "~~",
];

async fn fill(scratch: &ScratchSpace<'_>) -> ClauseResult {
    // From the middle outwards, so that no engine can get away with the order of arrival.
    let (before, after) = NAMES.split_at(NAMES.len() / 2);
    for name in after.iter().chain(before.iter().rev()) {
        scratch.put(name, *name).await?;
    }
    Ok(())
}

pub(super) async fn order(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    fill(scratch).await?;
    let expected: Vec<String> = NAMES.iter().map(ToString::to_string).collect();
    ensure_eq(&scratch.names(scratch.range(), 1_000).await?, &expected, "the whole range")?;

    let below_b = scratch.key("B/");
    let found = scratch.names(Range::prefix(below_b.as_str()), 1_000).await?;
    ensure_eq(&found, &["B/", "B/1", "B/1/x", "B/2"].map(String::from).to_vec(), "a prefix")?;

    let between = Range::between(&scratch.key("10"), &scratch.key("B/1"));
    let found = scratch.names(between, 1_000).await?;
    let expected = ["10", "2", "A", "B/"].map(String::from).to_vec();
    ensure_eq(&found, &expected, "a range with its start and without its end")?;

    let found = scratch.names(Range::only(&scratch.key("a")), 1_000).await?;
    ensure_eq(&found, &vec!["a".to_string()], "a single key")?;
    Ok(ClauseOutcome::Held)
}

pub(super) async fn pages(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    fill(scratch).await?;
    let expected: Vec<String> = NAMES.iter().map(ToString::to_string).collect();
    for limit in [1, 2, 3, NAMES.len() - 1, NAMES.len(), NAMES.len() + 1] {
        let found = scratch.names(scratch.range(), limit).await?;
        ensure_eq(&found, &expected, &format!("the range in pages of {limit}"))?;
    }
    Ok(ClauseOutcome::Held)
}

pub(super) async fn pages_across_deletes(
    scratch: &ScratchSpace<'_>,
) -> ClauseResult<ClauseOutcome> {
    for name in ["a", "b", "c", "d", "e"] {
        scratch.put(name, "").await?;
    }
    let page = scratch.store().scan(scratch.range(), 2).await?;
    let Some(rest) = page.next else {
        return Err(ClauseViolation::Broken(
            "a page of 2 out of 5 says that it is the last".into(),
        ));
    };
    // The keys of the page go, the next one too, one comes behind the page, one before it: fewer come
    // than go, so that who counts entries loses its place.
    let change = Commit::new()
        .delete(scratch.key("a"))
        .delete(scratch.key("b"))
        .delete(scratch.key("c"))
        .put(scratch.key("bb"), "")
        .put(scratch.key("aa"), "");
    scratch.store().commit(change).await?;
    let found = scratch.names(rest, 1).await?;
    ensure_eq(&found, &["bb", "d", "e"].map(String::from).to_vec(), "the rest behind b")?;
    Ok(ClauseOutcome::Held)
}

pub(super) async fn nothing(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let (low, high) = (scratch.key("a"), scratch.key("b"));
    scratch.put("b", "").await?;
    let empty = [
        Range::between(&low, &high),
        Range::between(&high, &low),
        Range::prefix(scratch.key("c").as_str()),
        Range::only(&low),
        scratch.range().after(&high),
    ];
    for range in empty {
        let page = scratch.store().scan(range.clone(), 10).await?;
        ensure(page.entries.is_empty() && page.next.is_none(), || {
            format!("{range:?} holds nothing, and gave {page:?}")
        })?;
    }
    Ok(ClauseOutcome::Held)
}

pub(super) async fn sees_acknowledged(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    for round in 0..100 {
        let value = Value::from(round.to_string());
        let version = scratch.put("k", value.clone()).await?;
        for store in [scratch.store(), scratch.other()] {
            let found = store.get(&scratch.key("k")).await?;
            let current =
                found.is_some_and(|entry| entry.value == value && entry.version == version);
            ensure(current, || {
                format!("a scan did not see commit {version:?} acknowledged before")
            })?;
        }
    }
    Ok(ClauseOutcome::Held)
}

pub(super) async fn values(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let values = [
        vec![],
        vec![0],
        every_byte,
        b"{\"format\":1,\"name\":\"caf\xc3\xa9\"}".to_vec(),
        b"\xff\xfe not text".to_vec(),
        b"line\r\nline\n".to_vec(),
    ];
    for (number, value) in values.into_iter().enumerate() {
        scratch.put(number, value.clone()).await?;
        let found = scratch.get(number).await?.map(|entry| entry.value.as_bytes().to_vec());
        ensure_eq(&found, &Some(value), "a value that was written")?;
    }
    Ok(ClauseOutcome::Held)
}

//! Bounds: at the limit, and one past it.

use engine::limits::{COMMIT_WRITES_MIN, KEY_BYTES_MAX, PAGE_ENTRIES_MAX};

use super::{ClauseOutcome, ClauseResult, ClauseViolation, ScratchSpace, ensure};
use crate::{Commit, CommitError, Condition, Key, Range, ScanError, Value};

pub(super) async fn limits(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let limits = scratch.store().limits();
    ensure(limits.writes >= COMMIT_WRITES_MIN, || {
        format!("{} writes in a commit are fewer than {COMMIT_WRITES_MIN}", limits.writes)
    })?;

    let filler = |len: usize| Value::from(vec![b'v'; len]);
    let one = |len| Commit::new().put(scratch.key("value"), filler(len));
    taken(scratch, "a value at the limit", one(limits.value_bytes)).await?;
    refused(scratch, "a value past the limit", one(limits.value_bytes + 1)).await?;

    let many = |writes: usize, conditions: usize| {
        let commit = (0..conditions).fold(Commit::new(), |commit, number| {
            commit.when(Condition::Absent(scratch.key(format!("c{number}"))))
        });
        (0..writes).fold(commit, |commit, number| commit.put(scratch.key(format!("w{number}")), ""))
    };
    taken(scratch, "writes and conditions at the limit", many(limits.writes, limits.writes))
        .await?;
    refused(scratch, "writes past the limit", many(limits.writes + 1, 0)).await?;
    refused(scratch, "conditions past the limit", many(1, limits.writes + 1)).await?;

    let full = fill_up(scratch, limits.commit_bytes);
    if full.len() == limits.commit_bytes {
        taken(scratch, "bytes at the limit", full.clone()).await?;
        refused(scratch, "bytes past the limit", full.put(scratch.key("x"), "")).await?;
    }

    let long = |len: usize| Key::new(format!("{:k<len$}", scratch.prefix));
    let longest = long(KEY_BYTES_MAX).map_err(|why| ClauseViolation::Broken(why.to_string()))?;
    taken(scratch, "a key at the limit", Commit::new().put(longest.clone(), "")).await?;
    let found = scratch.store().get(&longest).await?;
    ensure(found.is_some(), || "the longest key is not found".into())?;
    ensure(long(KEY_BYTES_MAX + 1).is_err(), || "a key past the limit can be made".into())?;

    scratch.store().scan(scratch.range(), PAGE_ENTRIES_MAX).await?;
    for limit in [0, PAGE_ENTRIES_MAX + 1] {
        let page = scratch.store().scan(Range::all(), limit).await;
        ensure(matches!(page, Err(ScanError::Refused(_))), || {
            format!("a page of {limit} entries was not refused: {page:?}")
        })?;
    }
    Ok(ClauseOutcome::Held)
}

/// A commit of exactly `bytes`, if values and writes within their own limits can make that many.
fn fill_up(scratch: &ScratchSpace<'_>, bytes: usize) -> Commit {
    let limits = scratch.store().limits();
    let mut commit = Commit::new();
    for number in 0..limits.writes {
        let key = scratch.key(format!("f{number}"));
        let room = bytes - commit.len();
        if room <= key.as_str().len() {
            break;
        }
        // The last value leaves no rest that is too small for one more key.
        let value = (room - key.as_str().len()).min(limits.value_bytes);
        let rest = room - key.as_str().len() - value;
        let value = if rest > 0 && rest <= KEY_BYTES_MAX { value - KEY_BYTES_MAX } else { value };
        commit = commit.put(key, vec![b'f'; value]);
    }
    commit
}

pub(super) async fn bad_commits(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let nothing = Commit::new().when(Condition::Absent(scratch.key("k")));
    refused(scratch, "a commit that writes nothing", nothing).await?;
    let twice = Commit::new().put(scratch.key("k"), "").delete(scratch.key("k"));
    refused(scratch, "a commit that writes a key twice", twice).await?;
    let found = scratch.get("k").await?;
    ensure(found.is_none(), || "a commit that was refused changed something".into())?;
    Ok(ClauseOutcome::Held)
}

async fn taken(scratch: &ScratchSpace<'_>, what: &str, commit: Commit) -> ClauseResult {
    match scratch.store().commit(commit).await {
        Ok(_) => Ok(()),
        Err(why) => Err(ClauseViolation::Broken(format!("{what} was not taken: {why}"))),
    }
}

async fn refused(scratch: &ScratchSpace<'_>, what: &str, commit: Commit) -> ClauseResult {
    match scratch.store().commit(commit).await {
        Err(CommitError::Refused(_)) => Ok(()),
        other => Err(ClauseViolation::Broken(format!("{what} was not refused: {other:?}"))),
    }
}

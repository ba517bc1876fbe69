//! Versions: they only grow.

use super::{ClauseOutcome, ClauseResult, ScratchSpace, ensure};
use crate::{Commit, Version};

pub(super) async fn later_is_greater(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let mut last = Version(0);
    for round in 0..50 {
        let commit = if round % 3 == 2 {
            Commit::new().delete(scratch.key(round - 1))
        } else {
            Commit::new().put(scratch.key(round), "")
        };
        // Whoever sends it.
        let store = if round % 2 == 0 { scratch.store() } else { scratch.other() };
        let version = store.commit(commit).await?;
        ensure(version > last, || format!("{version:?} was given after {last:?}"))?;
        last = version;
    }
    Ok(ClauseOutcome::Held)
}

pub(super) async fn survives_deletion(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let mut last = Version(0);
    for round in 0..20 {
        let written = scratch.put("k", format!("{round}")).await?;
        let read = scratch.get("k").await?.map(|entry| entry.version);
        ensure(read == Some(written), || {
            format!("a scan shows {read:?} for a key written by {written:?}")
        })?;
        let deleted = scratch.delete("k").await?;
        ensure(written > last && deleted > written, || {
            format!("{last:?}, then {written:?} by a put, then {deleted:?} by a delete")
        })?;
        last = deleted;
    }
    Ok(ClauseOutcome::Held)
}

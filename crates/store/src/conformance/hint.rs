//! Hints: after the change, never in the way.

use super::{ClauseOutcome, ClauseResult, ClauseViolation, ScratchSpace};
use crate::{Commit, CommitError, Hints};

const ROUNDS: usize = 50;
const WATCHERS: usize = 100;

/// More than any queue of hints that one would give a watcher.
const UNHEARD: usize = 300;

pub(super) async fn after_change(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let mut hints = scratch.other().watch(&scratch.prefix);
    for round in 0..ROUNDS {
        let key = scratch.key("k");
        let commit = if round % 5 == 4 {
            Commit::new().delete(key.clone())
        } else {
            Commit::new().put(key.clone(), round.to_string())
        };
        let before = scratch.get("k").await?;
        // The hint is taken as soon as it comes, perhaps before the acknowledgement.
        // One without news may be an old one given again; then another is still owed.
        let (acknowledged, seen) = tokio::join!(scratch.store().commit(commit), async {
            loop {
                hints.changed().await;
                if scratch.other().get(&key).await? != before {
                    return Ok::<_, ClauseViolation>(());
                }
            }
        });
        acknowledged?;
        seen?;
    }
    Ok(ClauseOutcome::Held)
}

pub(super) async fn reconnect(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let Some(reconnect) = &scratch.subject.reconnect else {
        return Ok(ClauseOutcome::NotApplicable("its watches stand on no connection"));
    };
    let mut hints = scratch.other().watch(&scratch.prefix);
    for round in 0..3 {
        reconnect();
        // The first hint may be for what was missed; only the second proves that it watches again.
        for _ in 0..2 {
            put_again(scratch, round).await?;
            hints.changed().await;
        }
    }
    Ok(ClauseOutcome::Held)
}

/// Puts until it is acknowledged. A connection that was cut may be the one of a commit too, and only hints are examined.
async fn put_again(scratch: &ScratchSpace<'_>, round: usize) -> ClauseResult {
    loop {
        match scratch.put("k", round.to_string()).await {
            Ok(_) => return Ok(()),
            Err(ClauseViolation::Commit(CommitError::Unknown(_) | CommitError::Unavailable(_))) => {
                tokio::task::yield_now().await;
            }
            Err(why) => return Err(why),
        }
    }
}

pub(super) async fn slow_watcher(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let deaf: Vec<Hints> = (0..WATCHERS).map(|_| scratch.other().watch(&scratch.prefix)).collect();
    for round in 0..UNHEARD {
        scratch.put("k", round.to_string()).await?;
    }
    // They lost nothing that was promised: one hint for all of it.
    for mut hints in deaf {
        hints.changed().await;
    }
    Ok(ClauseOutcome::Held)
}

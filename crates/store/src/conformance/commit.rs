//! Commits: atomic, under conditions.

use tokio::task::JoinSet;

use super::{
    ClauseOutcome, ClauseResult, ClauseViolation, ScratchSpace, ensure, ensure_conflict, ensure_eq,
};
use crate::{Commit, CommitError, Condition, Range, Store, Value, Version};

const ROUNDS: u32 = 100;
const KEYS: u32 = 6;

pub(super) async fn all_or_nothing(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    scratch.put("there", "before").await?;
    let doomed = Commit::new()
        .when(Condition::Present(scratch.key("there")))
        .when(Condition::Present(scratch.key("missing")))
        .put(scratch.key("new"), "after")
        .put(scratch.key("there"), "after");
    let outcome = scratch.store().commit(doomed).await;
    ensure(outcome.is_err(), || "a commit happened though a condition failed".into())?;
    ensure(scratch.get("new").await?.is_none(), || "a refused commit made a key".into())?;
    let there = scratch.get("there").await?.map(|entry| entry.value);
    ensure_eq(&there, &Some(Value::from("before")), "a key that a refused commit would write")?;

    let vain = Commit::new().delete(scratch.key("missing")).put(scratch.key("new"), "");
    scratch.store().commit(vain).await?;
    ensure(scratch.get("new").await?.is_some(), || "half a commit is missing".into())?;

    let mut tasks = JoinSet::new();
    tasks.spawn(write_all_alike(scratch.store().clone(), scratch.prefix.clone()));
    tasks.spawn(read_all_alike(scratch.other().clone(), scratch.prefix.clone()));
    while let Some(task) = tasks.join_next().await {
        task.map_err(|why| ClauseViolation::Broken(why.to_string()))??;
    }
    Ok(ClauseOutcome::Held)
}

fn alike_prefix(prefix: &str) -> String {
    format!("{prefix}alike/")
}

async fn write_all_alike(store: Store, prefix: String) -> ClauseResult {
    for round in 0..ROUNDS {
        let mut commit = Commit::new();
        for number in 0..KEYS {
            let key = crate::Key::new(format!("{}{number}", alike_prefix(&prefix)));
            commit = commit.put(key.expect("short and printable"), round.to_string());
        }
        store.commit(commit).await?;
        // A store that answers at once would otherwise be written in one go, with nobody reading.
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn read_all_alike(store: Store, prefix: String) -> ClauseResult {
    for _ in 0..ROUNDS {
        let page = store.scan(Range::prefix(&alike_prefix(&prefix)), 100).await?;
        let alike = page
            .entries
            .windows(2)
            .all(|pair| pair[0].value == pair[1].value && pair[0].version == pair[1].version);
        let whole = page.entries.is_empty() || page.entries.len() == KEYS as usize;
        ensure(alike && whole, || format!("a page shows half a commit: {:?}", page.entries))?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Tries a commit under one condition, on a key of its own.
async fn try_when(
    scratch: &ScratchSpace<'_>,
    condition: &Condition,
) -> Result<Version, CommitError> {
    let commit = Commit::new().when(condition.clone()).put(scratch.key("done"), "");
    scratch.store().commit(commit).await
}

pub(super) async fn absent(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let condition = Condition::Absent(scratch.key("k"));
    try_when(scratch, &condition).await?;
    scratch.put("k", "").await?;
    ensure_conflict(try_when(scratch, &condition).await, &condition)?;
    scratch.delete("k").await?;
    try_when(scratch, &condition).await?;
    Ok(ClauseOutcome::Held)
}

pub(super) async fn present(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let condition = Condition::Present(scratch.key("k"));
    ensure_conflict(try_when(scratch, &condition).await, &condition)?;
    scratch.put("k", "").await?;
    try_when(scratch, &condition).await?;
    scratch.put("k", "other").await?;
    try_when(scratch, &condition).await?;
    scratch.delete("k").await?;
    ensure_conflict(try_when(scratch, &condition).await, &condition)?;
    Ok(ClauseOutcome::Held)
}

pub(super) async fn at(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let at = |version| Condition::At(scratch.key("k"), version);
    let first = scratch.put("k", "same").await?;
    try_when(scratch, &at(first)).await?;
    let second = scratch.put("k", "same").await?;
    ensure_conflict(try_when(scratch, &at(first)).await, &at(first))?;
    try_when(scratch, &at(second)).await?;
    let read = scratch.get("k").await?.map(|entry| entry.version);
    ensure_eq(&read, &Some(second), "the version that a scan shows")?;
    scratch.delete("k").await?;
    ensure_conflict(try_when(scratch, &at(second)).await, &at(second))?;
    scratch.put("k", "same").await?;
    ensure_conflict(try_when(scratch, &at(second)).await, &at(second))?;
    Ok(ClauseOutcome::Held)
}

pub(super) async fn conflict_names_condition(
    scratch: &ScratchSpace<'_>,
) -> ClauseResult<ClauseOutcome> {
    let earlier = scratch.put("k", "").await?;
    let version = scratch.put("k", "").await?;
    let holds = [Condition::At(scratch.key("k"), version), Condition::Absent(scratch.key("other"))];
    let fails = [
        (Condition::At(scratch.key("k"), earlier), Some(version)),
        (Condition::Absent(scratch.key("k")), Some(version)),
        (Condition::Present(scratch.key("other")), None),
        (Condition::At(scratch.key("other"), version), None),
    ];
    // Each of them is the first to fail once, before all that come after it.
    for (first, (condition, found)) in fails.iter().enumerate() {
        let rest = fails[first..].iter().map(|(condition, _)| condition);
        let commit = holds
            .iter()
            .chain(rest)
            .fold(Commit::new(), |commit, condition| commit.when(condition.clone()))
            .put(scratch.key("k"), "");
        match scratch.store().commit(commit).await {
            Err(CommitError::Conflict(conflict)) => {
                ensure_eq(&conflict.condition, condition, "the first condition that failed")?;
                ensure_eq(&conflict.found, found, "what was found there")?;
            }
            other => {
                return Err(ClauseViolation::Broken(format!(
                    "expected a conflict, found {other:?}"
                )));
            }
        }
    }
    Ok(ClauseOutcome::Held)
}

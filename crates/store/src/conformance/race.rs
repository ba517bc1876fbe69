//! Races: what happens when two want the same, or an answer is lost.

use tokio::task::{JoinSet, yield_now};

use super::{
    ClauseOutcome, ClauseResult, ClauseViolation, ScratchSpace, ensure, ensure_conflict, ensure_eq,
};
use crate::fault::{Faulty, InjectedFault};
use crate::{Commit, CommitError, Condition, Key, ScanError, Store, Value, Version};

const ROUNDS: usize = 60;
const WRITERS: usize = 64;
const COUNTERS: usize = 4;
const STEPS: usize = 8;

/// The guarded commit is as large as the store takes, which makes it as slow as it can be; while it
/// is under way its guard is changed. If both happen, the guarded one must have come first.
pub(super) async fn guard(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let limits = scratch.store().limits();
    let large = (limits.commit_bytes / 8).min(limits.value_bytes);
    for round in 0..ROUNDS {
        let guard = scratch.put("guard", "").await?;
        let condition = Condition::At(scratch.key("guard"), guard);
        let guarded = (0..4).fold(Commit::new().when(condition.clone()), |commit, number| {
            commit.put(scratch.key(format!("effect{number}")), vec![b'e'; large])
        });
        let change = Commit::new().when(condition).put(scratch.key("guard"), "");
        let (first, second) = (scratch.store().commit(guarded), scratch.other().commit(change));
        // Now one, now the other is sent first.
        let (guarded, change) = if round % 2 == 0 {
            tokio::join!(first, second)
        } else {
            let (change, guarded) = tokio::join!(second, first);
            (guarded, change)
        };
        let change = won(change)?;
        let guarded = won(guarded)?;
        ensure(change.is_some(), || {
            "the guard could not be changed, though nobody else did".into()
        })?;
        ensure(guarded.is_none() || guarded < change, || {
            format!(
                "a commit guarded by {guard:?} landed as {guarded:?}, after its guard changed in {change:?}"
            )
        })?;
    }
    Ok(ClauseOutcome::Held)
}

pub(super) async fn skew(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    for round in 0..ROUNDS {
        let (a, b) = (scratch.key(format!("a{round}")), scratch.key(format!("b{round}")));
        let a_without_b = Commit::new().when(Condition::Absent(b.clone())).put(a.clone(), "");
        let b_without_a = Commit::new().when(Condition::Absent(a)).put(b, "");
        let (first, second) =
            tokio::join!(scratch.store().commit(a_without_b), scratch.other().commit(b_without_a));
        let winners = [won(first)?, won(second)?].into_iter().flatten().count();
        ensure_eq(&winners, &1, "how many of two commits happen that exclude each other")?;
    }
    Ok(ClauseOutcome::Held)
}

pub(super) async fn unknown_lands_late(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    let road = Faulty::new(scratch.store());
    let held = |name: &str| {
        let absent = Condition::Absent(scratch.key(name));
        road.on_commits([InjectedFault::LandLater]);
        (Commit::new().when(absent.clone()).put(scratch.key(name), "late"), absent)
    };

    // Not found is not refused: it lands afterwards, and is there.
    let (commit, _) = held("quiet");
    unknown(&road.store().commit(commit).await)?;
    ensure(scratch.get("quiet").await?.is_none(), || "it landed before it arrived".into())?;
    land(&road)
        .await?
        .map_err(|why| ClauseViolation::Broken(format!("nothing stood in its way: {why}")))?;
    ensure(scratch.get("quiet").await?.is_some(), || "a late commit left nothing behind".into())?;

    // Sent again and acknowledged; then the first copy arrives, and must do nothing.
    let (commit, absent) = held("twice");
    unknown(&road.store().commit(commit.clone()).await)?;
    let version = road.store().commit(commit).await?;
    ensure_conflict(land(&road).await?, &absent)?;
    let found = scratch.get("twice").await?.map(|entry| entry.version);
    ensure_eq(&found, &Some(version), "the key after a late copy of its commit")?;

    // Its condition fails by the time that it arrives.
    let (commit, absent) = held("guarded");
    unknown(&road.store().commit(commit).await)?;
    scratch.put("guarded", "meanwhile").await?;
    ensure_conflict(land(&road).await?, &absent)?;
    let found = scratch.get("guarded").await?.map(|entry| entry.value);
    ensure_eq(&found, &Some(Value::from("meanwhile")), "the key after a late commit")?;
    Ok(ClauseOutcome::Held)
}

pub(super) async fn counters(scratch: &ScratchSpace<'_>) -> ClauseResult<ClauseOutcome> {
    for counter in 0..COUNTERS {
        scratch.put(counter, "0").await?;
    }
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS {
        let store = if writer % 2 == 0 { scratch.store() } else { scratch.other() };
        tasks.spawn(count_up(store.clone(), scratch.key(writer % COUNTERS)));
    }
    while let Some(task) = tasks.join_next().await {
        task.map_err(|why| ClauseViolation::Broken(why.to_string()))??;
    }
    for counter in 0..COUNTERS {
        let found = scratch.get(counter).await?.and_then(|entry| number(&entry.value));
        ensure_eq(&found, &Some(WRITERS * STEPS / COUNTERS), "a counter at the end")?;
    }
    Ok(ClauseOutcome::Held)
}

async fn count_up(store: Store, key: Key) -> ClauseResult {
    let gone = || ClauseViolation::Broken("a counter is gone".into());
    for _ in 0..STEPS {
        loop {
            let entry = match store.get(&key).await {
                Err(ScanError::Unavailable(_)) => {
                    yield_now().await;
                    continue;
                }
                read => read?.ok_or_else(gone)?,
            };
            let count = number(&entry.value).ok_or_else(gone)?;
            let commit = Commit::new()
                .when(Condition::At(key.clone(), entry.version))
                .put(key.clone(), (count + 1).to_string());
            match store.commit(commit).await {
                // Nothing was done, so nothing is lost: what so many ask at once may be refused for a moment.
                Err(CommitError::Unavailable(_)) => yield_now().await,
                outcome => {
                    if won(outcome)?.is_some() {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

fn number(value: &Value) -> Option<usize> {
    std::str::from_utf8(value.as_bytes()).ok()?.parse().ok()
}

/// The version, or nothing if it lost by a conflict; anything else is no race but a fault.
fn won(outcome: Result<Version, CommitError>) -> ClauseResult<Option<Version>> {
    match outcome {
        Ok(version) => Ok(Some(version)),
        Err(CommitError::Conflict(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

fn unknown(outcome: &Result<Version, CommitError>) -> ClauseResult {
    let unknown = matches!(outcome, Err(CommitError::Unknown(_)));
    ensure(unknown, || format!("expected an unknown outcome, found {outcome:?}"))
}

async fn land(road: &Faulty) -> ClauseResult<Result<Version, CommitError>> {
    road.land().await.ok_or_else(|| ClauseViolation::Broken("no commit is under way".into()))
}

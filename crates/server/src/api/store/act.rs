//! Carrying out a guest: read what it touches, judge it, send it.

use axum::http::StatusCode;
use client::store::StoreTrouble;
use engine::id::ProjectId;
use engine::limits::{GUEST_ELECTIONS_MAX, GUEST_SESSIONS_MAX, PAGE_ENTRIES_MAX, STORE_ANSWER_MAX};
use store::guest::{Denied, Guest, GuestCommit, GuestReads, GuestRefusal};
use store::session::Roster;
use store::{Commit, CommitError, Key, Range, ScanError, Version};
use tokio::time::timeout;

use super::moment;
use crate::api::caller::{ANONYMOUS, Caller};
use crate::api::problem::{ApiError, ApiResult};
use crate::handle::NodeHandle;

/// Why a commit was not done.
pub(in crate::api) enum Failure {
    Denied(Denied),
    /// There are as many sessions as there may be.
    TooMany,
    /// The project has as many elections as it may.
    TooManyElections,
    Conflict {
        condition: usize,
        found: Option<Version>,
    },
    Store(CommitError),
}

impl From<GuestRefusal> for Failure {
    fn from(verdict: GuestRefusal) -> Self {
        match verdict {
            GuestRefusal::Denied(why) => Self::Denied(why),
            GuestRefusal::Conflict { condition, found } => Self::Conflict { condition, found },
        }
    }
}

impl From<CommitError> for Failure {
    fn from(why: CommitError) -> Self {
        Self::Store(why)
    }
}

impl From<ScanError> for Failure {
    /// Nothing was done: what it rests on could not be read.
    fn from(why: ScanError) -> Self {
        Self::Store(match why {
            ScanError::Refused(why) => CommitError::Refused(why),
            ScanError::Unavailable(why) => CommitError::Unavailable(why),
            ScanError::Corrupt(why) => CommitError::Corrupt(why),
        })
    }
}

/// What people call a project: its claims and sessions carry it.
pub(in crate::api) fn project_name(handle: &NodeHandle, id: ProjectId) -> ApiResult<String> {
    let name = handle.access().book().name_of(id).map(str::to_owned);
    name.ok_or_else(|| ApiError::not_found("the project of this key is not there any more"))
}

/// The id under which a caller's sessions stand.
fn key_of(caller: &Caller) -> String {
    caller.key.map_or_else(|| ANONYMOUS.to_owned(), |key| key.to_string())
}

/// Does what a commit means, if it may be done.
pub(in crate::api) async fn act(
    handle: &NodeHandle,
    caller: &Caller,
    project: &str,
    commit: Commit,
) -> Result<Version, Failure> {
    if caller.is_admin() && GuestCommit::is_scratch(&commit) {
        return send(handle, commit, usize::MAX).await;
    }
    let key = key_of(caller);
    let guest =
        Guest { project, key: &key, author: &caller.author, wall_us: handle.machine().wall_us() };
    let asked = GuestCommit::of(&commit, project).map_err(Failure::Denied)?;
    if let GuestCommit::Open(..) = asked {
        check_room(handle, project).await?;
    }
    if asked.founds() {
        check_elections(handle, project).await?;
    }
    let mut seen = GuestReads::new();
    while let Some(key) = asked.needs(&seen) {
        let found = get(handle, &key).await?;
        seen.insert(key, found);
    }
    let conditions = commit.when.len();
    send(handle, asked.judge(&guest, &seen)?, conditions).await
}

async fn get(handle: &NodeHandle, key: &Key) -> Result<Option<store::Entry>, ScanError> {
    let silence = |_| Err(ScanError::Unavailable("it did not answer in time".into()));
    timeout(STORE_ANSWER_MAX, handle.store().get(key)).await.unwrap_or_else(silence)
}

/// Sessions are read by everybody, all the time: a project has so many, give or take a few that come at once.
async fn check_room(handle: &NodeHandle, project: &str) -> Result<(), Failure> {
    let silence = |_| Err(ScanError::Unavailable("it did not answer in time".into()));
    let roster = timeout(STORE_ANSWER_MAX, Roster::read(handle.store())).await;
    let roster = roster.unwrap_or_else(silence)?;
    let own = roster.keys().filter(|key| key.guest() == Some(project)).count();
    if own < GUEST_SESSIONS_MAX { Ok(()) } else { Err(Failure::TooMany) }
}

/// A project has so many elections, give or take a few that come at once.
async fn check_elections(handle: &NodeHandle, project: &str) -> Result<(), Failure> {
    let mut count = 0;
    let range = Range::prefix(&format!("election/{project}/"));
    let mut pages = handle.store().pages(range, PAGE_ENTRIES_MAX);
    let silence = |_| Err(ScanError::Unavailable("it did not answer in time".into()));
    while let Some(entries) =
        timeout(STORE_ANSWER_MAX, pages.next()).await.unwrap_or_else(silence)?
    {
        // A wish lies beside its head.
        let is_head = |entry: &&store::Entry| entry.key.as_str().split('/').count() == 3;
        count += entries.iter().filter(is_head).count();
        if count >= GUEST_ELECTIONS_MAX {
            return Err(Failure::TooManyElections);
        }
    }
    Ok(())
}

/// Sends a commit. Of its conditions the first ones are its sender's.
async fn send(handle: &NodeHandle, commit: Commit, conditions: usize) -> Result<Version, Failure> {
    let when = commit.when.clone();
    let answer = timeout(STORE_ANSWER_MAX, handle.store().commit(commit)).await;
    let silence = |_| Err(CommitError::Unknown("it did not answer in time".into()));
    match answer.unwrap_or_else(silence) {
        Ok(version) => Ok(version),
        Err(CommitError::Conflict(why)) => {
            let place = when.iter().position(|condition| *condition == why.condition);
            // What was added here stands for the first one: read again, and decide anew.
            let condition = place.filter(|place| *place < conditions).unwrap_or(0);
            Err(Failure::Conflict { condition, found: why.found })
        }
        Err(why) => Err(why.into()),
    }
}

impl Failure {
    /// The problem that says so.
    pub(in crate::api) fn told(self, handle: &NodeHandle) -> ApiError {
        let mut trouble = StoreTrouble { moment: moment(handle), condition: None, found: None };
        let refusal = match self {
            Self::Denied(why) => denied(&why),
            Self::TooMany => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many",
                "Too many sessions",
                format!(
                    "a project has at most {GUEST_SESSIONS_MAX} sessions through servers: end those that are not needed"
                ),
            ),
            Self::TooManyElections => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too-many",
                "Too many elections",
                format!(
                    "a project begins at most {GUEST_ELECTIONS_MAX} elections through servers: use the names that there are"
                ),
            ),
            Self::Conflict { condition, found } => {
                trouble.condition = Some(condition);
                trouble.found = found.map(|found| found.0);
                let detail = format!(
                    "condition {condition} of the commit does not hold: read again, and decide anew"
                );
                ApiError::new(StatusCode::CONFLICT, "conflict", "Changed meanwhile", detail)
            }
            Self::Store(why) => undone(&why),
        };
        refusal.with_store(trouble)
    }
}

/// What the store said of a commit, passed on.
fn undone(why: &CommitError) -> ApiError {
    let sentence = why.to_string();
    match why {
        CommitError::Refused(store::Refusal::Full { .. }) => {
            ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "no-room", "No room", sentence)
        }
        CommitError::Refused(_) => ApiError::malformed(sentence),
        CommitError::Unavailable(_) => ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store-unavailable",
            "Nothing was done",
            sentence,
        ),
        // A conflict was told before.
        CommitError::Unknown(_) | CommitError::Conflict(_) => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "store-unknown",
            "Nobody knows what became of it",
            sentence,
        ),
        CommitError::Corrupt(_) => damaged(sentence),
    }
}

fn damaged(sentence: String) -> ApiError {
    tracing::error!(why = %sentence, "a request could not be answered");
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    ApiError::new(status, "store-damaged", "The store is damaged", sentence)
}

/// What the store said of a scan, passed on.
pub(super) fn unread(handle: &NodeHandle, why: ScanError) -> ApiError {
    let trouble = StoreTrouble { moment: moment(handle), condition: None, found: None };
    let refusal = match why {
        ScanError::Corrupt(why) => damaged(why),
        why => why.into(),
    };
    refusal.with_store(trouble)
}

pub(super) fn denied(why: &Denied) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "no-guest", "Not through a server", why.to_string())
}

/// A commit that breaks a limit.
pub(super) fn unfit(why: &store::Refusal) -> ApiError {
    ApiError::malformed(why.to_string())
}

//! How many claims of each project wait at a server: so many at most, so that one project leaves room to the others.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::StatusCode;
use engine::id::ProjectId;
use engine::limits::CLAIMS_WAITING_MAX;
use parking_lot::Mutex;

use crate::api::problem::ApiError;

/// The claims that wait, by project.
#[derive(Debug, Default)]
pub(crate) struct WaitingClaims(Mutex<HashMap<ProjectId, usize>>);

/// A claim that waits, until it is dropped.
pub(crate) struct WaitingSeat {
    claims: Arc<WaitingClaims>,
    project: ProjectId,
}

impl WaitingSeat {
    /// Takes a seat for a project, if it has not as many as it may.
    pub(super) fn take(claims: &Arc<WaitingClaims>, project: ProjectId) -> Option<Self> {
        let mut waiting = claims.0.lock();
        let count = waiting.entry(project).or_default();
        if *count >= CLAIMS_WAITING_MAX {
            return None;
        }
        *count += 1;
        drop(waiting);
        Some(Self { claims: Arc::clone(claims), project })
    }
}

/// What a claim is told that has no seat, if there is nothing else to tell.
pub(super) fn too_many() -> ApiError {
    let detail = format!(
        "the project has {CLAIMS_WAITING_MAX} claims that wait at this server, and that is as many as it may: ask another server, or again later"
    );
    let status = StatusCode::TOO_MANY_REQUESTS;
    ApiError::new(status, "too-many", "Too many claims wait", detail)
}

impl Drop for WaitingSeat {
    fn drop(&mut self) {
        let mut waiting = self.claims.0.lock();
        if let Some(count) = waiting.get_mut(&self.project) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.project);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_as_many_claims_waiting_as_it_may_and_leaves_the_others_theirs() {
        let claims = Arc::new(WaitingClaims::default());
        let take = |project| WaitingSeat::take(&claims, ProjectId(project));
        let mut seats: Vec<_> = (0..CLAIMS_WAITING_MAX).map(|_| take(1).unwrap()).collect();
        assert!(take(1).is_none() && take(2).is_some());
        seats.pop();
        assert!(take(1).is_some());
        drop(seats);
        assert!(claims.0.lock().is_empty());
    }
}

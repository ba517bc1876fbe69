//! How many claims of each project wait at a server: so many at most, so that one project leaves room to the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use engine::id::ProjectId;
use engine::limits::API_CONNECTIONS_MAX;
use parking_lot::Mutex;

use crate::api::crowding::claims_waiting_max;
use crate::api::problem::ApiError;

/// The claims that wait, by project.
#[derive(Debug)]
pub(crate) struct WaitingClaims {
    by_project: Mutex<HashMap<ProjectId, usize>>,
    /// So many of each project may.
    most: AtomicUsize,
}

impl Default for WaitingClaims {
    /// None so far, and as many may wait as where connections are not scarce.
    fn default() -> Self {
        let most = AtomicUsize::new(claims_waiting_max(API_CONNECTIONS_MAX));
        Self { by_project: Mutex::default(), most }
    }
}

impl WaitingClaims {
    /// So many claims of each project may wait here, by the connections that there are.
    pub(in crate::api) fn allow(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

/// A claim that waits, until it is dropped.
pub(crate) struct WaitingSeat {
    claims: Arc<WaitingClaims>,
    project: ProjectId,
}

impl WaitingSeat {
    /// Takes a seat for a project, if it has not as many as it may.
    pub(super) fn take(claims: &Arc<WaitingClaims>, project: ProjectId) -> Option<Self> {
        let mut waiting = claims.by_project.lock();
        let count = waiting.get(&project).copied().unwrap_or_default();
        if count >= claims.most() {
            return None;
        }
        waiting.insert(project, count + 1);
        drop(waiting);
        Some(Self { claims: Arc::clone(claims), project })
    }
}

/// What a claim is told that has no seat, if there is nothing else to tell.
pub(super) fn too_many(claims: &WaitingClaims) -> ApiError {
    let detail = format!(
        "the project has {} claims that wait at this server, and that is as many as it may: ask another server, or again later",
        claims.most()
    );
    let status = StatusCode::TOO_MANY_REQUESTS;
    ApiError::new(status, "too-many", "Too many claims wait", detail)
}

impl Drop for WaitingSeat {
    fn drop(&mut self) {
        let mut waiting = self.claims.by_project.lock();
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
        claims.allow(512);
        let take = |project| WaitingSeat::take(&claims, ProjectId(project));
        let mut seats: Vec<_> = (0..512).map(|_| take(1).unwrap()).collect();
        assert!(take(1).is_none() && take(2).is_some());
        seats.pop();
        assert!(take(1).is_some());
        drop(seats);
        assert!(claims.by_project.lock().is_empty());
    }
}

//! Crowding: the last connections that a server has are for people.
//!
//! A claim that waits for runs keeps its connection, and ten thousand workers may have one open each. So that somebody can still ask
//! what is going on, the last connections are lent and not kept: each carries one request, and a worker that comes by one of them is
//! not let wait. What it reports is heard at once; if it only wants to wait for runs it is told to come again, or to go to
//! another server.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use engine::limits::{API_CONNECTIONS_FOR_PEOPLE, API_CONNECTIONS_MAX, OPEN_FILES_ELSEWHERE};
use rustix::process::{Resource, getrlimit};

/// How many connections were left when a request's connection was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowding {
    /// Enough.
    Room,
    /// It is one of the last ones.
    Crowded,
}

impl Crowding {
    /// While so many connections are left.
    pub(super) fn of(left: usize) -> Self {
        if left < API_CONNECTIONS_FOR_PEOPLE { Self::Crowded } else { Self::Room }
    }
}

impl<S: Sync> FromRequestParts<S> for Crowding {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self::Room))
    }
}

/// How many connections of the API may be open at a time: each is an open file, and there are others.
pub(super) fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    within(files)
}

fn within(files: usize) -> usize {
    API_CONNECTIONS_MAX.min(files.saturating_sub(OPEN_FILES_ELSEWHERE).max(files / 2)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_to_others() {
        assert_eq!(within(usize::MAX), API_CONNECTIONS_MAX);
        assert_eq!(within(1_024), 512);
        assert_eq!(within(4_096), 4_096 - OPEN_FILES_ELSEWHERE);
        assert_eq!(within(0), 1);
    }

    #[test]
    fn the_last_connections_are_for_people() {
        assert_eq!(Crowding::of(API_CONNECTIONS_FOR_PEOPLE), Crowding::Room);
        assert_eq!(Crowding::of(API_CONNECTIONS_FOR_PEOPLE - 1), Crowding::Crowded);
    }
}

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
    /// While so many of so many connections are left.
    pub(super) fn of(left: usize, all: usize) -> Self {
        if left < for_people(all) { Self::Crowded } else { Self::Room }
    }
}

/// How many of so many connections are for people.
fn for_people(all: usize) -> usize {
    API_CONNECTIONS_FOR_PEOPLE.min(all / 2)
}

/// How many claims of one project may wait where there are so many connections: others have room beside them.
pub(in crate::api) fn claims_waiting_max(connections: usize) -> usize {
    ((connections - for_people(connections)) * 15 / 16).max(1)
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
        let all = API_CONNECTIONS_MAX;
        assert_eq!(Crowding::of(API_CONNECTIONS_FOR_PEOPLE, all), Crowding::Room);
        assert_eq!(Crowding::of(API_CONNECTIONS_FOR_PEOPLE - 1, all), Crowding::Crowded);
        assert_eq!(Crowding::of(50, 100), Crowding::Room, "half of a few");
        assert_eq!(Crowding::of(49, 100), Crowding::Crowded);
    }

    #[test]
    fn a_project_leaves_connections_to_others_however_few_there_are() {
        assert_eq!(claims_waiting_max(API_CONNECTIONS_MAX), 11_280);
        for connections in [2, 20, 512, 1_000, API_CONNECTIONS_MAX] {
            let waiting = claims_waiting_max(connections);
            let room = (1..=connections)
                .filter(|left| Crowding::of(left - 1, connections) == Crowding::Room);
            assert!(waiting <= room.count(), "{connections}: {waiting}");
        }
    }
}

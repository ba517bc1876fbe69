//! What the checker of holds sees at the store's door: heads, renewals and approvals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::lease::Reading;
use engine::record::{Format, decode};
use serde::Deserialize;
use store::claim::Head;
use store::{Key, Write};

use super::{CheckerState, HoldChecker, HoldPromise, SeenTree};
use crate::checker::{Landing, LandingPlace};
use crate::world::World;

/// Renewals of a session that are remembered.
const RENEWALS_MAX: usize = 64;

/// What was seen to land.
#[derive(Default)]
pub(super) struct Door {
    /// Who has the claim, and under which token.
    head: Option<(u64, Option<Key>)>,
    /// When renewals were sent, by the clocks of their senders, and when they landed.
    renewals: BTreeMap<Key, VecDeque<Reading>>,
    /// What the clocks of a holder showed when its claim landed, by its token.
    claimed: BTreeMap<u64, Reading>,
    approved: BTreeSet<u64>,
}

/// What names a token.
#[derive(Debug, Deserialize)]
struct Note {
    token: u64,
}

impl Door {
    pub(super) fn head(&self) -> Option<(u64, Option<&Key>)> {
        self.head.as_ref().map(|(token, session)| (*token, session.as_ref()))
    }

    pub(super) fn is_approved(&self, token: u64) -> bool {
        self.approved.contains(&token)
    }

    /// Whether there is a renewal of less than this age that was sent after the claim had landed.
    pub(super) fn is_fresh(&self, session: &Key, token: u64, now: Reading, age: Duration) -> bool {
        let Some(claimed) = self.claimed.get(&token) else { return false };
        let is_good = |sent: &Reading| now.most_since(*sent) <= age && sent.boot >= claimed.boot;
        self.renewals.get(session).is_some_and(|sent| sent.iter().any(is_good))
    }

    /// Whether there is a renewal of less than this age, by the clock that shims have.
    pub(super) fn is_valid(&self, session: &Key, now: Reading, ttl: Duration) -> bool {
        let is_good = |sent: &Reading| now.boot.saturating_sub(sent.boot) < ttl;
        self.renewals.get(session).is_some_and(|sent| sent.iter().any(is_good))
    }
}

impl HoldChecker {
    /// A commit lands. `there` is what the sender's clocks show now.
    pub fn lands(&self, world: &World, landing: &Landing<'_>, place: LandingPlace, there: Reading) {
        let mut state = self.lock();
        let head = &self.premises.head;
        for write in &landing.commit.then {
            let key = write.key();
            match write {
                Write::Put(_, value) if key == head => {
                    let Ok(next) = decode::<Head>(value.as_bytes(), Format(1)) else { continue };
                    let session = next.session.map(|session| session.key().clone());
                    let former = state.door.head.clone();
                    let is_other = former.as_ref().is_none_or(|(token, _)| *token != next.token);
                    let left = former.and_then(|(_, session)| session);
                    if left.is_some() && left != session {
                        state.check_left(world, landing, left.as_ref());
                    }
                    if is_other {
                        state.counts.takes += 1;
                        state.door.claimed.insert(next.token, there);
                    }
                    if place == LandingPlace::Primary {
                        state.door.head = Some((next.token, session));
                    }
                }
                Write::Put(_, value) if key.as_str().starts_with(head.as_str()) => {
                    let note: Option<Note> = serde_json::from_slice(value.as_bytes()).ok();
                    if let (Some(note), true) = (note, key.as_str().ends_with("/approval")) {
                        state.door.approved.insert(note.token);
                    }
                }
                Write::Put(..) if key.as_str().starts_with("node/") => {
                    let sent = state.door.renewals.entry(key.clone()).or_default();
                    sent.push_back(landing.sent);
                    if sent.len() > RENEWALS_MAX {
                        sent.pop_front();
                    }
                }
                Write::Delete(_) if key.as_str().starts_with("node/") => {
                    state.check_left(world, landing, Some(key));
                }
                Write::Put(..) | Write::Delete(_) => {}
            }
        }
        self.check_head(&mut state, world);
    }
}

impl CheckerState {
    /// Whoever gives something up that it had has nothing left of its program.
    fn check_left(&mut self, world: &World, landing: &Landing<'_>, session: Option<&Key>) {
        let its = |seen: &&SeenTree| {
            seen.start.supervisor == landing.process && seen.start.session.as_ref() == session
        };
        let left = self.trees.values().find(its).map(|seen| seen.start.node);
        self.counts.given_up += 1;
        if let Some(node) = left {
            let what = format!("{} left something on node {node}", landing.process);
            self.accuse(world, HoldPromise::EmptyWhenGivenUp, what);
        }
    }
}

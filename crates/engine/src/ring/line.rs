//! Which server writes next: whoever wrote last, and the others one after the other if it does not.
//!
//! All servers that see the same record and the same sessions come to the same order. Where they do not, two may try at a time,
//! and the store lets one of them win: the order saves writes, and nothing rests on it.

use std::time::Duration;

use crate::hash::hash;
use crate::limits::RING_STAND_IN;

/// The place in line of the session `me` for a subscription: 0 for whoever wrote last.
pub fn place<'a>(
    sessions: impl IntoIterator<Item = &'a str>,
    me: &str,
    last_writer: &str,
    subscription: &str,
) -> usize {
    if me == last_writer {
        return 0;
    }
    let order = |session: &str| (session != last_writer, hash(session, subscription));
    let mine = order(me);
    sessions.into_iter().filter(|session| *session != me && order(session) < mine).count()
}

/// From when on a server at this place may write a slot, as a time after both the slot and what it saw of the record: it leaves
/// the last writer this long alone, and others before it.
pub fn stand_in_delay(place: usize) -> Duration {
    RING_STAND_IN * u32::try_from(place).unwrap_or(u32::MAX)
}

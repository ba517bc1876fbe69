//! Keeping the past elsewhere, and what runs printed no longer than it.
//!
//! Whoever owns a shard is the only one who writes there, so what is done to its past in the background goes
//! through its chain as well. It rides along with what is due, in pieces that fit every store, and nothing
//! that a shard knows changes by it.

use crate::instant::Instant;
use crate::limits::{HISTORY_PAGE_BYTES_MAX, HISTORY_UNIT_WRITES_MAX, RESULT_WAIT_MS};
use crate::past::exception::{exception_pages, exceptions};
use crate::past::floor::floors;
use crate::past::page::{pages, split};
use crate::queue::output::outputs;

use super::command::Done;
use super::memory::Delta;
use super::{Now, Put, Shard, Ticket, Unit, record};

impl Shard {
    /// Writes to the shard's past, in this order, but not as one. Whoever has the ticket is told when the
    /// last of it is durable. A successor may find any beginning of it.
    pub fn rewrite(&mut self, puts: Vec<Put>, ticket: Ticket, now: Now) {
        let homes = [record::past, pages, exceptions, exception_pages, floors, outputs]
            .map(|home| home(self.id()));
        for put in &puts {
            let (Put::Value(key, _) | Put::Gone(key)) = put;
            assert!(homes.iter().any(|home| key.starts_with(home)), "{key} is not past");
        }
        let by = Instant(now.wall.0 + RESULT_WAIT_MS);
        let together = split(puts, HISTORY_UNIT_WRITES_MAX, HISTORY_PAGE_BYTES_MAX);
        let changes = together.into_iter().map(|puts| puts.into_iter().map(Delta::Raw).collect());
        let mut units: Vec<Unit> = changes.map(|changes| Unit::of(changes).by(by)).collect();
        let mut last = units.pop().unwrap_or_default();
        last.reply = Some((ticket, Done::Rewritten));
        last.by = Some(by);
        for unit in units.into_iter().chain([last]) {
            self.enact(unit);
        }
    }
}

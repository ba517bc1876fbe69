//! Rings: whose turn it is, by rules that need nobody to be in charge.
//!
//! A ring has members, who are names, and subscriptions, each with a schedule and a position of its own. At each slot of a
//! subscription the next members in the order of their names have their turn. Any server may decide that: it computes from the
//! subscription's record what is due, and writes the record anew if nobody was quicker. So what is in the store has happened,
//! and nothing else has.
//!
//! - [`SubscriptionDraft`], [`SubscriptionConfig`]: what a person wrote, and what it means
//! - [`TurnRecord`]: how a subscription stands, with its last [`RingEntry`]s in pages
//! - [`turn`]: what is due: turns, and slots that are left out
//! - [`part`]: parts of turns that have to be accepted, and pass on if they are not
//! - [`change`]: what people ask of a subscription
//! - [`member`]: who belongs to a ring, by visits
//! - [`line`](mod@line): which server writes next, and who stands in for it

use std::sync::Arc;

pub mod change;
mod draft;
pub mod line;
pub mod member;
pub mod part;
mod record;
pub mod turn;

pub use draft::{SubscriptionConfig, SubscriptionDraft};
pub use record::{
    NumberedEntry, OpenPart, PartId, PutPage, RingEntry, SkipReason, TurnRecord, Written,
};

/// The subscription that a ring is created with.
pub const MAIN: &str = "main";

/// The name of a member. Clones share it.
pub type MemberName = Arc<str>;

/// A change of a subscription: its record as it is to be, and what is new in it. [`TurnRecord::push`] has numbered the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The record with all that was decided, but for the entries, which are still to be [pushed](TurnRecord::push).
    pub record: TurnRecord,
    /// What is new, in order.
    pub entries: Vec<RingEntry>,
}

#[cfg(test)]
mod tests;

//! The rules of Watchbell, and nothing else.
//!
//! Every rule is a pure function of (state, input, now, randomness). Nothing in this crate reads a
//! clock, opens a file or a socket, or awaits: what happens at three in the morning can be replayed
//! at noon in a test. The store remembers, the server moves bytes; the engine decides.
//!
//! - [`assignment`]: which server should own which shard
//! - [`breaker`]: when a host that does not answer is left alone, and when it is tried again
//! - [`hash`]: a hash that never changes
//! - [`hold`]: a program that runs on at most one machine
//! - [`id`]: names of things
//! - [`instant`]: a moment
//! - [`jump`]: whether the wall clock was set
//! - [`lease`]: how long a holder may act, and how long an observer must have waited
//! - [`length`]: lengths of time as text
//! - [`limits`]: every bound of the system, in one place
//! - [`mutant`]: bugs put in on purpose, in the simulator's build only
//! - [`notice`]: who is told what of a trigger
//! - [`outcome`]: what came of an attempt, and what that means for its run
//! - [`past`]: what became of each slot
//! - [`policy`]: what becomes of slots that were missed, that overlap, that fail
//! - [`queue`]: where runs wait for workers
//! - [`record`]: what a stored value looks like: JSON with a format number
//! - [`ring`]: whose turn it is in a ring
//! - [`rotation`]: who is next
//! - [`schedule`]: when does it ring next?
//! - [`shard`]: a slice of all work: what it keeps, and what it can be told
//! - [`target`]: where a run goes
//! - [`trigger`]: when, what, and by which rules
//! - [`webhook`]: what is sent, and where to
//! - [`wheel`]: which of ten million alarms is next

pub mod assignment;
pub mod breaker;
pub mod hash;
pub mod hold;
pub mod id;
pub mod instant;
pub mod jump;
pub mod lease;
pub mod length;
pub mod limits;
pub mod mutant;
pub mod notice;
pub mod outcome;
pub mod past;
pub mod policy;
pub mod queue;
pub mod record;
pub mod ring;
pub mod rotation;
pub mod schedule;
pub mod shard;
pub mod target;
pub mod trigger;
pub mod webhook;
pub mod wheel;

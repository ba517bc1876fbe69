//! Queues: where runs wait for workers.
//!
//! - [`backlog`]: which run is claimed next: strict order, delays, and keys of which only so many run at a time
//! - [`chunked`]: a sorted map for a million runs
//! - [`claim`]: how an owner hears workers, and gives them runs
//! - [`dead`]: runs that failed for good, and are kept to be redriven
//! - [`decided`]: what was decided, on its way to the store
//! - [`draft`]: runs and settings as people write them
//! - [`feed`]: what a trigger lets a queue have
//! - [`filter`]: which runs somebody means who names none
//! - [`given`]: what is recorded of a run that a worker has or had, and what follows from what happens to it
//! - [`line`]: of the runs that wait, those that are for one worker each
//! - [`meter`]: what was given and what ended lately
//! - [`news`]: what those who watch are told
//! - [`output`]: what a run prints, and how far it has come
//! - [`parts`]: runs that have parts, in memory
//! - [`pick`]: how many of a queue's workers a run is for, and which
//! - [`rate`]: at most so many in any period
//! - [`record`]: what is in the store
//! - [`submitted`]: a run while it is unfinished, and where its records are
//! - [`unfinished`]: all unfinished runs of the queues of a shard, and how many may be given
//! - [`worker`]: the words of the protocol: what workers say, and what they are answered

pub mod backlog;
pub mod chunked;
pub mod claim;
pub mod dead;
pub mod decided;
pub mod draft;
pub mod feed;
pub mod filter;
pub mod given;
pub mod line;
pub mod meter;
pub mod news;
pub mod output;
pub mod parts;
pub mod pick;
pub mod rate;
pub mod record;
pub mod submitted;
pub mod unfinished;
pub mod worker;

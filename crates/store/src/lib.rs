//! The store: the one durable memory of a cluster, behind three verbs.
//!
//! A store is an ordered map from [`Key`] to ([`Value`], [`Version`]). [`Store`] offers
//!
//! - **scan**: a page of a range, which sees every commit acknowledged before it was asked for;
//! - **commit**: conditions and writes as one atomic step;
//! - **watch**: hints that something below a prefix changed.
//!
//! That is all an [`Adapter`] writes. Whatever an engine cannot promise is said by its [`Class`],
//! its [`Limits`] and its [`Epoch`], never papered over. One suite, [`conformance`], states the
//! contract clause by clause and is run against every adapter, here and on the user's own server by
//! `watchbell store check`.
//!
//! Adapters: [`memory`], the reference, with [`fault`]s on order; and [`mod@file`], the embedded one: a
//! [`log`] for order and durability, and an index behind it; and [`mod@etcd`], [`mod@redis`] and [`mod@postgres`].
//! [`remote`] is a Watchbell server, which takes the commits of a [`mod@guest`] alone.
//!
//! On top of the three verbs: [`session`]s, the only lease; [`claim`]s, which name the session that has
//! something; [`chain`]s, by which a holder writes; [`election`]s, which put these together; [`mod@ring`]s, whose turns
//! need none of that; and the [`ownership`] of shards, which everybody reads. And beside them [`mod@cluster`], what the store belongs to, and [`mod@backup`], all of it in one file.

pub mod backup;
mod batching;
pub mod chain;
pub mod claim;
pub mod clock;
pub mod cluster;
mod commit;
pub mod conformance;
mod contract;
pub mod election;
mod entropy;
mod error;
pub mod etcd;
pub mod fault;
pub mod file;
pub mod guest;
mod hint;
mod key;
pub mod log;
pub mod machine;
pub mod memory;
pub mod ownership;
pub mod postgres;
pub mod redis;
pub mod remote;
pub mod ring;
pub mod session;
pub mod speed;
mod url;

pub use commit::{Commit, Condition, Write};
pub use contract::{
    Adapter, Class, Entry, Epoch, Limits, Page, Pages, Pending, Store, Value, Version,
};
pub use error::{CommitError, Conflict, EngineFault, OpenError, Refusal, ScanError};
pub use hint::{Hints, Watchers};
pub use key::{Key, Range};
pub use url::{Address, StoreHost, StoreSecret, StoreUrl, open_existing, open_or_create};

//! The rig: what tests of real processes share, on free ports and in temporary directories.
//!
//! Real engines are started by whoever needs them and killed when dropped, with their data. Nothing is skipped: a server
//! that is not installed is a panic that says what to type. Between a client and its engine a [`Road`] can be put that
//! loses, delays and cuts in either direction; between a client and a server, a [`FaultProxy`] that loses, repeats and
//! delays whole requests and answers. Beside them: a [`Receiver`] of webhooks, requests in any form ([`Ask`]),
//! waiting ([`until`]), chance from a seed ([`Random`]), a [`Freezer`] of processes, and how much of the [`machine`] a test takes.

mod ask;
pub mod etcd;
mod fault_proxy;
mod freezer;
pub mod machine;
pub mod postgres;
mod process;
mod random;
mod receiver;
pub mod redis;
mod road;
mod wait;

pub use ask::{Answer, Ask};
pub use fault_proxy::{FaultProxy, Manner, ProxyCounts};
pub use freezer::{Freezer, Frozen};
pub use process::{Process, directory, free_port, is_root};
pub use random::{Random, hash};
pub use receiver::{Heard, Receiver, Reply};
pub use road::{Road, Way};
pub use wait::{PATIENCE, until};

//! The rig: real engines for tests, on free ports and in temporary directories.
//!
//! Tests start what they need and hold it; what is dropped is killed, with its data. Nothing is skipped: a server that
//! is not installed is a panic that says what to type. Between a client and its engine a [`Road`] can be put that loses,
//! delays and cuts in either direction.

pub mod etcd;
pub mod postgres;
mod process;
pub mod redis;
mod road;

pub use process::{Process, free_port, is_root};
pub use road::{Road, Way};

//! The machine that a node runs on: its clocks, its dice, and waiting.
//!
//! Whatever has to do with time takes a [`Machine`] and asks nobody else, so that the simulator can put
//! a machine of its own underneath, with clocks that run fast or slow and step.

use std::sync::Arc;
use std::time::Duration;

use engine::lease::Reading;

use crate::{Pending, clock, entropy};

/// A machine. The real one is [`System`]; the simulator has its own.
pub trait Machine: Send + Sync + 'static {
    /// Both monotonic clocks.
    fn reading(&self) -> Reading;

    /// The wall clock, in microseconds since 1970. It may be wrong and may step; nothing safe rests on it.
    fn wall_us(&self) -> u64;

    /// A random number, for ids, nonces and secrets: no other machine has drawn it, also if one is a copy of the other.
    fn random(&self) -> u64;

    /// A random number for what needs chance alone: it may be drawn ahead.
    fn dice(&self) -> u64 {
        self.random()
    }

    /// Waits. May wait longer: whoever cares looks at the clock again.
    fn sleep(&self, length: Duration) -> Pending<'static, ()>;
}

/// The machine that this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Machine for System {
    fn reading(&self) -> Reading {
        clock::reading()
    }

    fn wall_us(&self) -> u64 {
        clock::wall_us()
    }

    fn random(&self) -> u64 {
        entropy::random_u64()
    }

    fn dice(&self) -> u64 {
        entropy::dice_u64()
    }

    fn sleep(&self, length: Duration) -> Pending<'static, ()> {
        Box::pin(tokio::time::sleep(length))
    }
}

/// What the future gives, if it does so within `length`; it is dropped otherwise.
pub async fn within<T>(
    machine: &Arc<dyn Machine>,
    length: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = future => Some(done),
        () = machine.sleep(length) => None,
    }
}

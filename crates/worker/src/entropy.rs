//! The only file of this crate that draws randomness: so that not all workers come back at once.

use rustix::rand::{GetRandomFlags, getrandom};

/// From 0 up to 1.
pub(crate) fn dice() -> f64 {
    let mut bytes = [0; 4];
    // Pauses that all workers take alike are better than none that works.
    let _filled = getrandom(&mut bytes, GetRandomFlags::empty());
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

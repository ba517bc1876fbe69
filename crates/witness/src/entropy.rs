//! The only file of this crate that draws randomness: the name of an instance.

use rustix::rand::{GetRandomFlags, getrandom};

/// A name that no other instance has.
pub(crate) fn instance() -> String {
    let mut bytes = [0; 8];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())
        .expect("the kernel gives a few random bytes once it has booted");
    assert_eq!(filled, bytes.len(), "reads of up to 256 bytes are never cut short");
    format!("{:016x}", u64::from_le_bytes(bytes))
}

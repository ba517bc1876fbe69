//! Randomness, read here only: keys that nobody else has, and pauses that not everybody takes at once.

/// A text that no other request has.
pub(super) fn unique() -> String {
    format!("{:016x}{:016x}", word(), word())
}

/// From 0 up to 1.
pub(super) fn dice() -> f64 {
    f64::from((word() >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
}

fn word() -> u64 {
    getrandom::u64().expect("a system without randomness cannot make a connection either")
}

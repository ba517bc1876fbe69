//! A hash that never changes.
//!
//! Where a trigger's slots lie, how it is jittered and what its `H` stands for come from its name. If this
//! function gave other numbers one day, the schedules of everybody would move.

/// A number for a text, for one purpose (FNV-1a of 64 bits, mixed once more so that its low bits are good).
pub fn hash(text: &str, purpose: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes().chain([0]).chain(purpose.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix(hash)
}

/// Spreads a number over all bits.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_what_it_always_gave() {
        // Worked out apart from this code, from the definitions of FNV-1a and of SplitMix64's last step.
        assert_eq!(hash("a", "b"), 16_949_517_343_777_446_270);
        assert_eq!(hash("backup", "every"), 13_479_102_429_970_716_971);
        assert_ne!(hash("a", "b"), hash("ab", ""), "the purpose is no part of the text");
    }
}

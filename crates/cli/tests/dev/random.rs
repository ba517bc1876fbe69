//! Dice that fall the same way for the same seed.

/// `SplitMix64`.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Less than this.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One of these.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let bound = u64::try_from(of.len()).ok().filter(|bound| *bound > 0)?;
        of.get(usize::try_from(self.below(bound)).ok()?)
    }
}

/// A number that looks random and is always the same for the same text.
pub(super) fn hash(text: &str) -> u64 {
    let fold = |sum: u64, byte: u8| mix(sum ^ u64::from(byte));
    text.bytes().fold(0x5eed, fold)
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

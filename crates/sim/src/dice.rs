//! Randomness from a seed: the same on every machine and in every version.

/// A stream of random numbers (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A stream of its own, for something that must not depend on how often others roll.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.roll())
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "a range begins before it ends");
        low + self.roll() % (high - low + 1)
    }

    /// Whether something happens that does so in `percent` of the cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.between(0, 99) < percent
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let last = from.len() as u64 - 1;
        from[usize::try_from(self.between(0, last)).expect("an index fits")]
    }
}

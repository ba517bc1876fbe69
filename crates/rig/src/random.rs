//! Chance for tests: the same seed gives the same run.

/// A small generator (`SplitMix64`), good enough to choose places and moments.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// One that begins with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below this one.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A place among so many.
    pub fn place(&mut self, of: usize) -> usize {
        usize::try_from(self.below(of as u64)).expect("it is below a usize")
    }

    /// One of these, if there are any.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        (!of.is_empty()).then(|| &of[self.place(of.len())])
    }
}

/// A number that looks random and is always the same for the same text.
pub fn hash(text: &str) -> u64 {
    let fold = |sum: u64, byte: u8| mix(sum ^ u64::from(byte));
    text.bytes().fold(0x5eed, fold)
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

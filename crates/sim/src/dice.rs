//! Randomness from a seed: the same on every machine and in every version.

use std::sync::{Mutex, PoisonError};

use crate::clock::TrueTime;

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

    /// A random element of a list.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let last = from.len() as u64 - 1;
        from[usize::try_from(self.between(0, last)).expect("an index fits")]
    }
}

/// Where the numbers of a process come from.
#[derive(Debug)]
pub enum Luck {
    /// From one stream, in the order in which they are asked for.
    Stream(Mutex<Dice>),
    /// From a seed, the moment, and what it is about. For processes of several tasks: which of those that wait for the same
    /// thing goes on first is not ours to say, and must not matter.
    Moment(u64),
}

impl Luck {
    /// Luck that comes in a stream.
    pub fn stream(dice: Dice) -> Self {
        Self::Stream(Mutex::new(dice))
    }

    /// Luck of the moment.
    pub fn moment(mut dice: Dice) -> Self {
        Self::Moment(dice.roll())
    }

    /// Rolls, at this moment, for this.
    pub fn roll<T>(&self, now: TrueTime, about: &str, roll: impl FnOnce(&mut Dice) -> T) -> T {
        match self {
            Self::Stream(dice) => roll(&mut dice.lock().unwrap_or_else(PoisonError::into_inner)),
            Self::Moment(seed) => {
                let mut dice = Dice::new(seed ^ now);
                for byte in about.bytes() {
                    dice = Dice::new(dice.roll() ^ u64::from(byte));
                }
                roll(&mut dice)
            }
        }
    }
}

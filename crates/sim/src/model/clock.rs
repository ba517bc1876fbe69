//! Ages and clocks: how a moment that is some ticks past reads on a machine's two clocks.
//!
//! Within one exploration each clock runs at one rate, so the age of a moment says what its reading
//! differs by from the present one, and only differences mean anything to the rules.

use std::time::Duration;

use engine::lease::{Reading, Ttl};

/// What clocks count in.
const UNIT: Duration = Duration::from_millis(100);

/// T, for the holder and the contenders alike.
const TTL: Duration = Duration::from_secs(4);

/// T, as the rules take it.
pub(super) fn ttl() -> Ttl {
    Ttl::new(TTL).expect("4 s are within the limits")
}

/// How many ticks ago something was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Age(u8);

impl Age {
    /// The age of what happens at this moment.
    pub(super) const NOW: Self = Self(0);

    /// A tick later. Past `oldest` it stays what it is.
    pub(super) fn older(self, oldest: Self) -> Self {
        Self(self.0 + 1).min(oldest)
    }

    /// The age in ticks.
    pub(super) fn ticks(self) -> u8 {
        self.0
    }
}

/// A machine's two clocks: how many units each counts in a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockPair {
    /// The one that goes on while the machine sleeps.
    pub boot: u8,
    /// The one that nobody steers.
    pub raw: u8,
}

impl ClockPair {
    /// What the clocks showed then. The present is far enough from their beginning.
    pub(super) fn at(self, age: Age) -> Reading {
        let ticks = u32::from(u8::MAX - age.0);
        let read = |rate: u8| UNIT * (u32::from(rate) * ticks);
        Reading { boot: read(self.boot), raw: read(self.raw) }
    }

    /// The age of what was so long ago by the faster clock.
    pub(super) fn age_by_faster(self, passed: Duration) -> Age {
        ticks(passed, self.boot.max(self.raw))
    }

    /// The age of what was so long ago by the slower clock.
    pub(super) fn age_by_slower(self, passed: Duration) -> Age {
        ticks(passed, self.boot.min(self.raw))
    }
}

/// The ticks in which a clock of this rate counts that much, the last one whole.
fn ticks(passed: Duration, rate: u8) -> Age {
    let ticks = passed.as_nanos().div_ceil((UNIT * u32::from(rate)).as_nanos());
    Age(u8::try_from(ticks).expect("no rule looks back further than 1.25 T"))
}

/// How fast all clocks run in one exploration; a tick of true time is 9 units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRates {
    /// What to call them.
    pub name: &'static str,
    /// The holder's clocks.
    pub holder: ClockPair,
    /// The clocks of each contender.
    pub contender: ClockPair,
}

impl ClockRates {
    /// The holder as slow and the contenders as fast as is allowed.
    pub const WORST: Self = Self {
        name: "a slow holder and fast contenders",
        holder: ClockPair { boot: 8, raw: 8 },
        contender: ClockPair { boot: 10, raw: 10 },
    };

    /// All clocks right.
    pub const EQUAL: Self = Self {
        name: "clocks that agree",
        holder: ClockPair { boot: 9, raw: 9 },
        contender: ClockPair { boot: 9, raw: 9 },
    };

    /// The holder fast and the contenders slow.
    pub const EASY: Self = Self {
        name: "a fast holder and slow contenders",
        holder: ClockPair { boot: 10, raw: 10 },
        contender: ClockPair { boot: 8, raw: 8 },
    };

    /// One clock of each machine goes wrong, beyond any limit: the holder's machine sleeps all the time,
    /// and a time server hurries the contenders. The clock that counts is the worst that is allowed.
    pub const BROKEN: Self = Self {
        name: "a sleeping holder and hurried contenders",
        holder: ClockPair { boot: 8, raw: 0 },
        contender: ClockPair { boot: 20, raw: 10 },
    };

    /// The age past which the holder's clocks make no difference: 1.25 T, more than any rule looks back.
    pub(super) fn holder_oldest(self) -> Age {
        self.holder.age_by_faster(TTL * 5 / 4)
    }

    /// The age past which a contender's clocks make no difference.
    pub(super) fn contender_oldest(self) -> Age {
        self.contender.age_by_slower(TTL * 5 / 4)
    }
}

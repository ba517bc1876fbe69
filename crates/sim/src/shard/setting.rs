//! What a run is like: how fast things are, how often they fail, how far clocks are apart.

use std::fmt;

use engine::shard::Room;

use crate::dice::Dice;

/// Who can own the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// One process after the other.
    Alone,
    /// Several, that hand it over to each other, and may die.
    Cluster,
    /// Several, that are restarted one after the other. Nothing goes wrong.
    Rolling,
}

/// What a run is like.
#[derive(Debug, Clone)]
pub struct ShardSetting {
    /// What everything else follows from.
    pub seed: u64,
    /// How long faults go on, in milliseconds.
    pub length: u64,
    /// Triggers at a time.
    pub triggers: usize,
    /// What a commit takes.
    pub room: Room,
    /// A commit takes up to so long.
    pub commit_ms: u64,
    /// So many in ten thousand steps are an owner's last.
    pub crashes: u64,
    /// An owner that does not crash stops after about this long.
    pub reign_ms: u64,
    /// Nobody is there for up to so long between two owners.
    pub gap_ms: u64,
    /// Clocks of owners are apart by up to so much.
    pub apart_ms: u64,
    /// So many in a hundred owners have a clock that is minutes ahead.
    pub far_ahead: u64,
    /// So many in a hundred thousand steps find the wall clock set.
    pub clock_steps: u64,
    /// So many in a thousand steps are followed by a long stall.
    pub stalls: u64,
    /// A command comes every so often, on average.
    pub command_ms: u64,
    /// So many in a hundred attempts do not simply succeed.
    pub trouble: u64,
    /// So many in a thousand steps begin a time in which nothing more may leave.
    pub busy: u64,
    /// How many triggers are due at the same second, if that is what the run is about.
    pub due_at_once: usize,
    /// Who can own the shard.
    pub company: Company,
    /// So many in a hundred triggers feed a queue.
    pub feeds: u64,
}

impl ShardSetting {
    /// The setting of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x0073_6861_7264);
        let writes = dice.pick(&[8, 8, 9, 16, 128]);
        let setting = Self {
            seed,
            length: dice.pick(&[30_000, 60_000, 120_000, 240_000]),
            triggers: dice.pick(&[1, 2, 4, 8]),
            room: Room { writes, bytes: 1 << 20, value_bytes: dice.pick(&[1 << 12, 1 << 17]) },
            commit_ms: dice.pick(&[2, 20, 100, 700]),
            crashes: dice.pick(&[0, 4, 15, 60]),
            reign_ms: dice.pick(&[4_000, 15_000, 60_000]),
            gap_ms: dice.pick(&[10, 1_500, 12_000, 60_000, 900_000]),
            apart_ms: dice.pick(&[0, 0, 300, 2_500]),
            far_ahead: dice.pick(&[0, 0, 0, 15]),
            clock_steps: dice.pick(&[0, 0, 20]),
            stalls: dice.pick(&[0, 2, 10]),
            command_ms: dice.pick(&[700, 2_500, 10_000]),
            trouble: dice.pick(&[5, 40, 80]),
            busy: dice.pick(&[0, 0, 4]),
            due_at_once: 0,
            company: Company::Alone,
            feeds: 0,
        };
        match dice.between(0, 9) {
            0..=3 => setting,
            4..=7 => Self { company: Company::Cluster, ..setting },
            _ => setting.rolling(),
        }
    }

    /// The same, where nodes are restarted one after the other and nothing goes wrong.
    #[must_use]
    pub fn rolling(self) -> Self {
        Self {
            crashes: 0,
            gap_ms: 10,
            far_ahead: 0,
            clock_steps: 0,
            stalls: 0,
            company: Company::Rolling,
            ..self
        }
    }

    /// The same, where most triggers feed a queue and nobody sets a clock: to notice that is up to whoever runs a shard.
    #[must_use]
    pub fn feeding(self) -> Self {
        Self { feeds: 80, clock_steps: 0, ..self }
    }

    /// Very many triggers that are due at the same second, and little else.
    pub fn many_at_once(seed: u64, triggers: usize) -> Self {
        Self {
            length: 40_000,
            triggers: 0,
            room: Room { writes: 512, bytes: 4 << 20, value_bytes: 1 << 20 },
            commit_ms: 30,
            crashes: 20,
            reign_ms: 20_000,
            gap_ms: 800,
            apart_ms: 100,
            far_ahead: 0,
            clock_steps: 0,
            stalls: 0,
            command_ms: 10_000_000,
            trouble: 1,
            busy: 0,
            due_at_once: triggers,
            company: Company::Alone,
            ..Self::of(seed)
        }
    }
}

impl fmt::Display for ShardSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} s, {} triggers, {} writes, commits {} ms, crashes {}, reigns {} ms, gaps {} ms, \
             clocks {} ms apart, {} far, {} set, stalls {}, commands {} ms, trouble {}, busy {}, {:?}, {} feed",
            self.length / 1_000,
            self.triggers.max(self.due_at_once),
            self.room.writes,
            self.commit_ms,
            self.crashes,
            self.reign_ms,
            self.gap_ms,
            self.apart_ms,
            self.far_ahead,
            self.clock_steps,
            self.stalls,
            self.command_ms,
            self.trouble,
            self.busy,
            self.company,
            self.feeds
        )
    }
}

//! The lease, explored whole: every order of events around one session, with the real rules.
//!
//! One holder has a session and a claim; two contenders want the claim. At every state each step that
//! could come next is taken, and every state is visited once, so that no luck is needed to meet a bad
//! order: if there is one within the bounds, it is found, by the shortest path. What is checked in every
//! state is in [`BrokenRule`]. Whether the holder may act, from when a renewal counts, since when a session
//! has stood still and whether it is overdue is asked of `engine::lease`; the model adds the store, the
//! messages and time.
//!
//! # What can happen
//!
//! Nothing is ever forced: an actor that pauses is one whose steps are not taken, and a message that is
//! lost is one that never lands. The exception is an answer, since whoever waits for one does nothing
//! else: the holder may give it up at any time, and then read back or send a further renewal.
//! Conditions are checked when a request lands, which is at any time after it was sent. A contender
//! acts from the answer to its claim on, and for ever: the worst that it could do. Its contact with the
//! store is taken to be always steady, for the same reason: time alone decides whom it buries.
//!
//! # Why there is an end
//!
//! Time and renewals have no bound here, and still there are finitely many states:
//!
//! - Time comes in ticks, and a moment is known by how many ticks it is past. The rules look back no
//!   further than 1.25 T, so all older moments are one.
//! - A version is known by how many versions came after it, and a renewal by its place among those that
//!   the holder has sent since the last one that it knows to have won. How many these can be is the one
//!   bound.
//! - What can have no effect any more is forgotten.
//! - The contenders are alike, so that a state and its mirror image are one.
//!
//! # Why ticks are enough
//!
//! T is 40 units, and a tick is 9 units of true time in which a clock at the limits of its rate, ±1/9,
//! counts 8 or 10. So the slowest holder that is allowed acts for exactly 5 ticks, and the fastest
//! contender waits for exactly 5: the inequality of `engine::lease` with no slack at all. A rule that
//! gives either side one tick too many is found.

mod clock;
mod rule;
mod state;
mod step;

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash as _, Hasher};

use engine::mutant::Mutant;

pub use clock::{ClockPair, ClockRates};

use rule::Rules;
use state::ModelState;
use step::ModelStep;

/// The mutants that this model finds.
pub const MUTANTS: [Mutant; 8] = [
    Mutant::ValidityFromReply,
    Mutant::PatienceFromAsking,
    Mutant::PatienceOfOneTtl,
    Mutant::ActFor115Percent,
    Mutant::CreditLastSent,
    Mutant::BuryByName,
    Mutant::ActAfterLapse,
    Mutant::FreeOnResign,
];

/// The most renewals without an answer. With two of them, one may win after the other was sent, or be
/// overtaken by it.
pub const UNANSWERED_MAX: usize = 2;

/// How far one exploration goes.
#[derive(Debug, Clone, Copy)]
pub struct ModelBounds {
    /// How fast the clocks run.
    pub rates: ClockRates,
    /// How many renewals the holder may send after the last one that it knows to have won; at most
    /// [`UNANSWERED_MAX`].
    pub unanswered: usize,
}

impl ModelBounds {
    /// The worst clocks that are allowed, to the full. No step is forced, so whatever can happen with
    /// better clocks can happen here.
    pub const FULL: Self = Self { rates: ClockRates::WORST, unanswered: UNANSWERED_MAX };

    /// The same with one renewal at a time, which is enough to find every mutant.
    pub const NARROW: Self = Self { unanswered: 1, ..Self::FULL };

    /// The full exploration, and a narrow one for each of the other rates.
    pub const ALL: [Self; 4] = [
        Self::FULL,
        Self { rates: ClockRates::EQUAL, ..Self::NARROW },
        Self { rates: ClockRates::EASY, ..Self::NARROW },
        Self { rates: ClockRates::BROKEN, ..Self::NARROW },
    ];
}

/// What an exploration has seen that found nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// How many distinct states were visited.
    pub states: u64,
    /// Steps taken from them.
    pub steps: u64,
    /// The states in which a contender acts: without any, it would be easy to find nothing wrong.
    pub taken_over: u64,
    /// How many steps the farthest state is from the start.
    pub deepest: u32,
}

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenRule {
    /// Two of the three act at once.
    TwoAct,
    /// The claim was taken from a holder that had not released it and whose session is there.
    Robbed,
}

impl fmt::Display for BrokenRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoAct => "two act at once",
            Self::Robbed => "the claim was taken from a holder whose session is there",
        })
    }
}

/// The shortest way to something that must not happen.
#[derive(Debug)]
pub struct Counterexample {
    /// Which rule the path breaks.
    pub broken: BrokenRule,
    /// The clocks it happened with.
    pub rates: ClockRates,
    /// How many states had been visited when it was found.
    pub states: u64,
    /// The steps from the start, each as a sentence.
    pub path: Vec<String>,
    /// The same steps, each by its index among those that were possible: see [`replay`].
    pub choices: Vec<usize>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, with {}, after {} steps:", self.broken, self.rates.name, self.path.len())?;
        self.path.iter().try_for_each(|sentence| writeln!(f, "  {sentence}"))
    }
}

impl std::error::Error for Counterexample {}

/// Visits every state within the bounds, with the rules as they are in this thread: a mutant that is
/// switched on is part of them.
pub fn explore(bounds: ModelBounds) -> Result<Explored, Counterexample> {
    assert!(bounds.unanswered <= UNANSWERED_MAX, "the state has no room for more renewals");
    let rules = Rules::new(bounds.rates);
    let mut seen = Seen::starting_from(ModelState::start());
    let mut explored = Explored { states: 0, steps: 0, taken_over: 0, deepest: 0 };
    let (mut next, mut level_end, mut steps) = (0, 1, Vec::new());
    while let Some(&Visit { state, .. }) = seen.visits.get(next) {
        if let Some(broken) = state.broken(&rules) {
            let (path, choices) = seen.path_to(next, bounds, &rules);
            let (states, rates) = (next as u64 + 1, bounds.rates);
            return Err(Counterexample { broken, rates, states, path, choices });
        }
        if next == level_end {
            explored.deepest += 1;
            level_end = seen.visits.len();
        }
        steps.clear();
        state.steps(bounds, &rules, &mut steps);
        for &step in &steps {
            seen.add(state.after(step, &rules).sorted(), next);
        }
        explored.states += 1;
        explored.steps += steps.len() as u64;
        explored.taken_over += u64::from(state.contenders_acting() > 0);
        next += 1;
    }
    Ok(explored)
}

/// Takes the steps of a counterexample again. Says what they break, if they are still possible and break anything.
pub fn replay(bounds: ModelBounds, choices: &[usize]) -> Option<BrokenRule> {
    let rules = Rules::new(bounds.rates);
    let (mut state, mut steps) = (ModelState::start(), Vec::new());
    for &choice in choices {
        steps.clear();
        state.steps(bounds, &rules, &mut steps);
        state = state.after(*steps.get(choice)?, &rules);
    }
    state.broken(&rules)
}

/// A state, and from which visit it was reached first.
struct Visit {
    state: ModelState,
    from: u32,
}

/// All states met so far, in the order of their distance from the start.
struct Seen {
    known: HashSet<u128, BuildHasherDefault<Mix>>,
    visits: Vec<Visit>,
}

impl Seen {
    fn starting_from(start: ModelState) -> Self {
        let mut seen = Self { known: HashSet::default(), visits: Vec::new() };
        seen.add(start, 0);
        seen
    }

    fn add(&mut self, state: ModelState, from: usize) {
        if self.known.insert(Packed::of(&state)) {
            let from = u32::try_from(from).expect("memory ends long before this many states");
            self.visits.push(Visit { state, from });
        }
    }

    /// Tells how the state of this visit is reached. States have been stored with their contenders
    /// sorted; here they are walked again without, so that each keeps its name.
    fn path_to(
        &self,
        visit: usize,
        bounds: ModelBounds,
        rules: &Rules,
    ) -> (Vec<String>, Vec<usize>) {
        let mut visits = vec![visit];
        while let Some(&first) = visits.last()
            && first != 0
        {
            visits.push(self.visits[first].from as usize);
        }
        let (mut state, mut ticks) = (ModelState::start(), 0);
        let (mut path, mut choices) = (Vec::new(), Vec::new());
        for &visit in visits.iter().rev().skip(1) {
            let mut enabled = Vec::new();
            state.steps(bounds, rules, &mut enabled);
            let leads_on =
                |step: &ModelStep| state.after(*step, rules).sorted() == self.visits[visit].state;
            let choice = enabled.iter().position(leads_on).expect("a step led to the visit");
            let step = enabled[choice];
            choices.push(choice);
            ticks += u32::from(step == ModelStep::Tick);
            path.push(format!("tick {ticks}: {}", step.told_in(&state)));
            state = state.after(step, rules);
        }
        (path, choices)
    }
}

/// A state as one number, which is quick to hash and to compare: its small numbers one after the other, in three bits
/// each. They come as derived hashing writes them, variant before contents, so that the state could be read back from
/// them: no two states have the same number.
struct Packed(u128);

impl Packed {
    fn of(state: &ModelState) -> u128 {
        // The 1 in front keeps leading zeros apart.
        let mut packed = Self(1);
        state.hash(&mut packed);
        packed.0
    }
}

impl Hasher for Packed {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a state has nothing but variants and small numbers");
    }

    fn write_u8(&mut self, number: u8) {
        assert!(number < 8 && self.0.leading_zeros() >= 3, "a state does not fit its number");
        self.0 = self.0 << 3 | u128::from(number);
    }

    fn write_isize(&mut self, variant: isize) {
        self.write_u8(u8::try_from(variant).expect("few variants"));
    }

    /// How long an array is: always the same.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        unreachable!("the number is wanted, and no hash");
    }
}

/// Hashes packed states. The standard hasher guards against chosen keys, which nobody chooses here, and takes most of
/// the time.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("packed states are numbers");
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves count")]
    fn write_u128(&mut self, packed: u128) {
        for half in [packed as u64, (packed >> 64) as u64] {
            self.0 = (self.0.rotate_left(5) ^ half).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

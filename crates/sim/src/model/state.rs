//! One moment of the model: the store, the three actors, and what is under way between them.
//!
//! What can make no difference any more is not kept ([`State::forget`]), so that states with the same
//! future are one. Each thing that is forgotten has its reason beside it, and none of the reasons is the
//! property that is checked.

use engine::mutant::{self, Mutant};

use super::clock::Age;
use super::rule::Rules;
use super::{Broken, UNANSWERED_MAX};

/// Everything that the future depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The holder's session in the store, by the write that made it what it is; `None` when buried.
    pub(super) session: Option<Write>,
    /// The claim in the store.
    pub(super) claim: Claim,
    /// A burial under way, for the version that was watched. Two of them are as good as one.
    pub(super) burial: Option<Behind>,
    pub(super) holder: Holder,
    pub(super) contenders: [Contender; 2],
}

/// A write of the session, which only the holder writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Write {
    /// The last one that the holder knows to have won.
    Known,
    /// A later one, by its place among the unanswered renewals.
    Unanswered(u8),
}

/// A version of the session, by how many versions came after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Behind(u8);

impl Behind {
    /// The version that the store has.
    pub(super) const CURRENT: Self = Self(0);

    /// The session moved on. Only a mutant asks about what is behind, and not how far.
    fn one_more(self) -> Self {
        Self(self.0 + 1).min(Self(2))
    }
}

/// Who has the claim. It passes through each of these once, so each is a version of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Claim {
    /// It names the holder's session, and is free when that is absent.
    Holder,
    /// Released.
    Free,
    /// It names a contender: the one whose bid has won.
    Taken,
}

/// The holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) role: Role,
    /// From when its validity runs.
    pub(super) renewed: Age,
    /// What it has sent since, the oldest first.
    pub(super) sent: [Option<Renewal>; UNANSWERED_MAX],
    pub(super) exchange: Exchange,
}

/// What the holder thinks that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    /// The claim is its own: it acts while it is valid.
    Holds,
    /// As before, and somebody has wished that it resigned.
    Wished,
    /// It has stopped, and then sent a release of the claim.
    Resigned,
    /// It has found its session gone.
    Lost,
}

/// A renewal that the holder has no answer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Renewal {
    pub(super) sent: Age,
    pub(super) flight: Flight,
}

/// Whether a renewal may still change the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Flight {
    /// It has not landed, and if it did now it would win.
    Open,
    /// It has landed, or will be refused when it does.
    Over,
}

/// What the holder waits for from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Exchange {
    /// Nothing.
    None,
    /// An answer to its last renewal. A refusal is not told from silence: after both it reads back.
    Awaited,
    /// The same, and the renewal, this one, has won; the answer is under way.
    Won(Write),
    /// An answer to a read, which is under way and shows this.
    Found(Option<Write>),
}

/// One that wants the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Contender {
    pub(super) sight: Sight,
    pub(super) look: Look,
    pub(super) bid: Bid,
}

/// What a contender knows from its looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sight {
    /// Nothing of use.
    Nothing,
    /// The session at this version, standing still since then.
    Session(Behind, Age),
    /// The claim like this, and nobody behind it.
    Claimable(Claim),
}

/// A look at session and claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Look {
    /// There is none.
    None,
    /// It was asked for then, and has not landed.
    Asked(Age),
    /// It was asked for then, and its answer is under way and shows the session at this version.
    Session(Behind, Age),
    /// Its answer is under way and shows a claim with nobody behind it.
    Claimable(Claim),
}

/// A contender's try to take the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Bid {
    /// There is none.
    None,
    /// It is under way, for the claim as it was seen.
    Sent(Claim),
    /// It has won, and the answer is under way.
    Won,
    /// The answer has come, and the contender acts.
    Answered,
}

impl State {
    /// The holder has just created its session and taken the claim; nobody has looked.
    pub(super) fn start() -> Self {
        let holder = Holder {
            role: Role::Holds,
            renewed: Age::NOW,
            sent: [None; UNANSWERED_MAX],
            exchange: Exchange::None,
        };
        Self {
            session: Some(Write::Known),
            claim: Claim::Holder,
            burial: None,
            holder,
            contenders: [Contender::IDLE; 2],
        }
    }

    /// What must not be and is.
    pub(super) fn broken(&self, rules: &Rules) -> Option<Broken> {
        let holds = self.holder.role.holds();
        let contenders = self.contenders_acting();
        if contenders > 1 || contenders == 1 && holds && rules.may_act(&self.holder) {
            return Some(Broken::TwoAct);
        }
        let robbed = self.claim == Claim::Taken && self.session.is_some() && holds;
        robbed.then_some(Broken::Robbed)
    }

    /// How many contenders act.
    pub(super) fn contenders_acting(&self) -> usize {
        self.contenders.iter().filter(|each| each.bid == Bid::Answered).count()
    }

    /// The holder's write has won: whatever was seen before is a version behind.
    pub(super) fn write(&mut self, write: Write) {
        self.session = Some(write);
        self.burial = self.burial.map(Behind::one_more);
        for contender in &mut self.contenders {
            if let Sight::Session(version, _) = &mut contender.sight {
                *version = version.one_more();
            }
            if let Look::Session(version, _) = &mut contender.look {
                *version = version.one_more();
            }
        }
    }

    /// Whether a burial of the session at this version would do something.
    pub(super) fn would_bury(&self, version: Behind) -> bool {
        self.session.is_some() && (version == Behind::CURRENT || mutant::active(Mutant::BuryByName))
    }

    /// Whether a bid for the claim as it was seen would win: it has not changed, and nobody is behind it.
    pub(super) fn would_win(&self, seen: Claim) -> bool {
        self.claim == seen
            && match seen {
                Claim::Holder => self.session.is_none(),
                Claim::Free => true,
                Claim::Taken => false,
            }
    }

    /// Drops what has no effect any more.
    pub(super) fn forget(mut self) -> Self {
        if !self.holder.role.holds() {
            // It acts no more, and renewals that still land can only keep others waiting.
            self.holder = Holder { role: self.holder.role, ..Self::start().holder };
        }
        if self.session != Some(Write::Known) {
            // All of them were sent at the version that is known, and it never comes back.
            for renewal in self.holder.sent.iter_mut().flatten() {
                renewal.flight = Flight::Over;
            }
        }
        self.burial = self.burial.filter(|&version| self.would_bury(version));
        let mut contenders = self.contenders;
        for contender in &mut contenders {
            contender.forget(&self);
        }
        self.contenders = contenders;
        self
    }

    /// The contenders are alike, so their order says nothing.
    pub(super) fn sorted(mut self) -> Self {
        self.contenders.sort_unstable();
        self
    }
}

impl Role {
    /// Whether it acts while it is valid.
    pub(super) fn holds(self) -> bool {
        match self {
            Self::Holds | Self::Wished => true,
            Self::Resigned | Self::Lost => false,
        }
    }
}

impl Holder {
    /// The renewals without an answer, the oldest first.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (Write, Renewal)> {
        (0..).zip(self.sent).filter_map(|(place, sent)| Some((Write::Unanswered(place), sent?)))
    }

    /// A moment passes.
    pub(super) fn tick(&mut self, oldest: Age) {
        self.renewed = self.renewed.older(oldest);
        for renewal in self.sent.iter_mut().flatten() {
            renewal.sent = renewal.sent.older(oldest);
        }
    }
}

impl Contender {
    /// One that knows nothing and waits for nothing.
    pub(super) const IDLE: Self = Self { sight: Sight::Nothing, look: Look::None, bid: Bid::None };

    /// A moment passes.
    pub(super) fn tick(&mut self, oldest: Age) {
        if let Sight::Session(_, since) = &mut self.sight {
            *since = since.older(oldest);
        }
        if let Look::Asked(asked) | Look::Session(_, asked) = &mut self.look {
            *asked = asked.older(oldest);
        }
    }

    fn forget(&mut self, state: &State) {
        match self.sight {
            // A version that cannot be buried only waits to be replaced by the one that is seen next.
            Sight::Session(version, _) if !state.would_bury(version) => self.sight = Sight::Nothing,
            Sight::Claimable(claim) if !state.would_win(claim) => self.sight = Sight::Nothing,
            Sight::Nothing | Sight::Session(..) | Sight::Claimable(_) => {}
        }
        match self.look {
            // It would be forgotten on arrival, and what was seen before it is older still.
            Look::Session(version, _) if !state.would_bury(version) => self.look = Look::None,
            Look::Claimable(claim) if !state.would_win(claim) => self.look = Look::None,
            // The claim never comes back from a contender.
            Look::Asked(_) if state.claim == Claim::Taken => self.look = Look::None,
            Look::None | Look::Asked(_) | Look::Session(..) | Look::Claimable(_) => {}
        }
        if let Bid::Sent(claim) = self.bid
            && !state.would_win(claim)
        {
            self.bid = Bid::None;
        }
    }
}

//! One moment of the model: the store, the three actors, and what is under way between them.
//!
//! What can make no difference any more is not kept ([`ModelState::forget`]), so that states with the same
//! future are one. Each thing that is forgotten has its reason beside it, and none of the reasons is the
//! property that is checked.

use engine::mutant::{self, Mutant};

use super::clock::Age;
use super::rule::Rules;
use super::{BrokenRule, UNANSWERED_MAX};

/// Everything that the future depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ModelState {
    /// The holder's session in the store, by the write that made it what it is; `None` when buried.
    pub(super) session: Option<SessionWrite>,
    /// The claim in the store.
    pub(super) claim: ModelClaim,
    /// A burial under way, for the version that was watched. Two of them are as good as one.
    pub(super) burial: Option<Behind>,
    pub(super) holder: ModelHolder,
    pub(super) contenders: [Contender; 2],
}

/// A write of the session, which only the holder writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SessionWrite {
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
pub(super) enum ModelClaim {
    /// It names the holder's session, and is free when that is absent.
    Holder,
    /// It was released, and names nobody.
    Free,
    /// It names a contender: the one whose bid has won.
    Taken,
}

/// The node that holds the claim at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ModelHolder {
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
    /// It holds the claim, and somebody has wished that it resign.
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
    pub(super) flight: RenewalFlight,
}

/// Whether a renewal may still change the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RenewalFlight {
    /// It has not landed, and if it did now it would win.
    Open,
    /// It has landed, or will be refused when it does.
    Over,
}

/// What the holder waits for from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Exchange {
    /// It waits for nothing.
    None,
    /// An answer to its last renewal. A refusal is not told from silence: after both it reads back.
    Awaited,
    /// Its last renewal, this one, has won, and the answer is under way.
    Won(SessionWrite),
    /// An answer to a read, which is under way and shows this.
    Found(Option<SessionWrite>),
}

/// A node that wants the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Contender {
    pub(super) sight: Sight,
    pub(super) look: ContenderLook,
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
    Claimable(ModelClaim),
}

/// A look at session and claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ContenderLook {
    /// There is none.
    None,
    /// It was asked for then, and has not landed.
    Asked(Age),
    /// It was asked for then, and its answer is under way and shows the session at this version.
    Session(Behind, Age),
    /// Its answer is under way and shows a claim with nobody behind it.
    Claimable(ModelClaim),
}

/// A contender's try to take the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Bid {
    /// There is none.
    None,
    /// It is under way, for the claim as it was seen.
    Sent(ModelClaim),
    /// It has won, and the answer is under way.
    Won,
    /// The answer has come, and the contender acts.
    Answered,
}

impl ModelState {
    /// The holder has just created its session and taken the claim; nobody has looked.
    pub(super) fn start() -> Self {
        let holder = ModelHolder {
            role: Role::Holds,
            renewed: Age::NOW,
            sent: [None; UNANSWERED_MAX],
            exchange: Exchange::None,
        };
        Self {
            session: Some(SessionWrite::Known),
            claim: ModelClaim::Holder,
            burial: None,
            holder,
            contenders: [Contender::IDLE; 2],
        }
    }

    /// What must not be and is.
    pub(super) fn broken(&self, rules: &Rules) -> Option<BrokenRule> {
        let holds = self.holder.role.holds();
        let contenders = self.contenders_acting();
        if contenders > 1 || contenders == 1 && holds && rules.may_act(&self.holder) {
            return Some(BrokenRule::TwoAct);
        }
        let robbed = self.claim == ModelClaim::Taken && self.session.is_some() && holds;
        robbed.then_some(BrokenRule::Robbed)
    }

    /// How many contenders act.
    pub(super) fn contenders_acting(&self) -> usize {
        self.contenders.iter().filter(|each| each.bid == Bid::Answered).count()
    }

    /// The holder's write has won: whatever was seen before is a version behind.
    pub(super) fn write(&mut self, write: SessionWrite) {
        self.session = Some(write);
        self.burial = self.burial.map(Behind::one_more);
        for contender in &mut self.contenders {
            if let Sight::Session(version, _) = &mut contender.sight {
                *version = version.one_more();
            }
            if let ContenderLook::Session(version, _) = &mut contender.look {
                *version = version.one_more();
            }
        }
    }

    /// Whether a burial of the session at this version would do something.
    pub(super) fn would_bury(&self, version: Behind) -> bool {
        self.session.is_some() && (version == Behind::CURRENT || mutant::active(Mutant::BuryByName))
    }

    /// Whether a bid for the claim as it was seen would win: it has not changed, and nobody is behind it.
    pub(super) fn would_win(&self, seen: ModelClaim) -> bool {
        self.claim == seen
            && match seen {
                ModelClaim::Holder => self.session.is_none(),
                ModelClaim::Free => true,
                ModelClaim::Taken => false,
            }
    }

    /// Drops what has no effect any more.
    pub(super) fn forget(mut self) -> Self {
        if !self.holder.role.holds() {
            // It acts no more, and renewals that still land can only keep others waiting.
            self.holder = ModelHolder { role: self.holder.role, ..Self::start().holder };
        }
        if self.session != Some(SessionWrite::Known) {
            // All of them were sent at the version that is known, and it never comes back.
            for renewal in self.holder.sent.iter_mut().flatten() {
                renewal.flight = RenewalFlight::Over;
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

impl ModelHolder {
    /// The renewals without an answer, the oldest first.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = (SessionWrite, Renewal)> {
        (0..)
            .zip(self.sent)
            .filter_map(|(place, sent)| Some((SessionWrite::Unanswered(place), sent?)))
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
    /// A contender that knows nothing and waits for nothing.
    pub(super) const IDLE: Self =
        Self { sight: Sight::Nothing, look: ContenderLook::None, bid: Bid::None };

    /// A moment passes.
    pub(super) fn tick(&mut self, oldest: Age) {
        if let Sight::Session(_, since) = &mut self.sight {
            *since = since.older(oldest);
        }
        if let ContenderLook::Asked(asked) | ContenderLook::Session(_, asked) = &mut self.look {
            *asked = asked.older(oldest);
        }
    }

    fn forget(&mut self, state: &ModelState) {
        match self.sight {
            // A version that cannot be buried only waits to be replaced by the one that is seen next.
            Sight::Session(version, _) if !state.would_bury(version) => self.sight = Sight::Nothing,
            Sight::Claimable(claim) if !state.would_win(claim) => self.sight = Sight::Nothing,
            Sight::Nothing | Sight::Session(..) | Sight::Claimable(_) => {}
        }
        match self.look {
            // It would be forgotten on arrival, and what was seen before it is older still.
            ContenderLook::Session(version, _) if !state.would_bury(version) => {
                self.look = ContenderLook::None;
            }
            ContenderLook::Claimable(claim) if !state.would_win(claim) => {
                self.look = ContenderLook::None;
            }
            // The claim never comes back from a contender.
            ContenderLook::Asked(_) if state.claim == ModelClaim::Taken => {
                self.look = ContenderLook::None;
            }
            ContenderLook::None
            | ContenderLook::Asked(_)
            | ContenderLook::Session(..)
            | ContenderLook::Claimable(_) => {}
        }
        if let Bid::Sent(claim) = self.bid
            && !state.would_win(claim)
        {
            self.bid = Bid::None;
        }
    }
}

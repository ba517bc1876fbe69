//! What can happen next, and what it does.

use engine::mutant::{self, Mutant};

use super::ModelBounds;
use super::clock::Age;
use super::rule::Rules;
use super::state::{
    Behind, Bid, Contender, ContenderLook, Exchange, ModelClaim, ModelState, Renewal,
    RenewalFlight, Role, SessionWrite, Sight,
};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelStep {
    /// Time passes for everybody.
    Tick,
    /// The holder sends a renewal.
    Renews,
    /// A renewal lands and wins.
    RenewalLands(SessionWrite),
    /// The holder learns that its last renewal, this one, has won.
    AnswerArrives(SessionWrite),
    /// The holder waits no longer for an answer.
    GivesUp,
    /// The holder reads its session, and the read lands.
    ReadsBack,
    /// The holder learns that the session was like this.
    ReadArrives(Option<SessionWrite>),
    /// Somebody wants the holder to resign.
    AsksToResign,
    /// The holder stops, and then sends a release of its claim.
    Resigns,
    /// The release lands.
    ReleaseLands,
    /// A burial lands.
    BurialLands,
    /// A contender does something, or something happens to what it has sent.
    Contender(usize, ContenderMove),
}

/// A step of one contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContenderMove {
    /// It asks for a look.
    Looks,
    /// The look that was asked for then lands.
    LookLands(Age),
    /// The look arrives.
    LookArrives,
    /// It sends a burial of the session at this version.
    Buries(Behind),
    /// It bids for the claim as it has seen it.
    Bids(ModelClaim),
    /// The bid lands and wins.
    BidLands,
    /// It learns that its bid has won, and acts.
    BidAnswered,
}

impl ModelState {
    /// All that can happen next.
    pub(super) fn steps(&self, bounds: ModelBounds, rules: &Rules, steps: &mut Vec<ModelStep>) {
        steps.push(ModelStep::Tick);
        if self.burial.is_some_and(|version| self.would_bury(version)) {
            steps.push(ModelStep::BurialLands);
        }
        match self.holder.role {
            Role::Holds => steps.push(ModelStep::AsksToResign),
            Role::Wished => steps.push(ModelStep::Resigns),
            Role::Resigned if self.claim == ModelClaim::Holder => {
                steps.push(ModelStep::ReleaseLands);
            }
            Role::Resigned | Role::Lost => {}
        }
        if self.holder.role.holds() {
            self.steps_of_holder(bounds, steps);
        }
        for (index, contender) in self.contenders.into_iter().enumerate() {
            let moves = self.moves(contender, rules).into_iter().flatten();
            steps.extend(moves.map(|each| ModelStep::Contender(index, each)));
        }
    }

    fn steps_of_holder(&self, bounds: ModelBounds, steps: &mut Vec<ModelStep>) {
        for (write, renewal) in self.holder.unanswered() {
            if renewal.flight == RenewalFlight::Open {
                steps.push(ModelStep::RenewalLands(write));
            }
        }
        match self.holder.exchange {
            Exchange::None => {
                steps.push(ModelStep::ReadsBack);
                if self.holder.unanswered().count() < bounds.unanswered {
                    steps.push(ModelStep::Renews);
                }
            }
            Exchange::Awaited => steps.push(ModelStep::GivesUp),
            Exchange::Won(write) => {
                steps.extend([ModelStep::AnswerArrives(write), ModelStep::GivesUp]);
            }
            Exchange::Found(session) => steps.push(ModelStep::ReadArrives(session)),
        }
    }

    /// What becomes of a contender's look, of what it knows, and of its bid.
    fn moves(&self, contender: Contender, rules: &Rules) -> [Option<ContenderMove>; 3] {
        let look = match contender.look {
            ContenderLook::None => contender.would_look(self.claim).then_some(ContenderMove::Looks),
            ContenderLook::Asked(asked) => Some(ContenderMove::LookLands(asked)),
            ContenderLook::Session(..) | ContenderLook::Claimable(_) => {
                Some(ContenderMove::LookArrives)
            }
        };
        let sight = match contender.sight {
            Sight::Nothing => None,
            Sight::Session(version, since) => {
                let buries = self.burial.is_none() && rules.is_overdue(since);
                buries.then_some(ContenderMove::Buries(version))
            }
            Sight::Claimable(claim) => Some(ContenderMove::Bids(claim)),
        };
        let bid = match contender.bid {
            Bid::None | Bid::Answered => None,
            Bid::Sent(seen) => self.would_win(seen).then_some(ContenderMove::BidLands),
            Bid::Won => Some(ContenderMove::BidAnswered),
        };
        [look, sight, bid]
    }

    /// What is after a step.
    pub(super) fn after(mut self, step: ModelStep, rules: &Rules) -> Self {
        match step {
            ModelStep::Tick => self.tick(rules),
            ModelStep::Renews => self.renew(),
            ModelStep::RenewalLands(write) => self.land(write),
            ModelStep::AnswerArrives(write) | ModelStep::ReadArrives(Some(write)) => {
                self.learn(write, rules);
            }
            ModelStep::GivesUp => self.holder.exchange = Exchange::None,
            ModelStep::ReadsBack => self.holder.exchange = Exchange::Found(self.session),
            ModelStep::ReadArrives(None) => self.holder.role = Role::Lost,
            ModelStep::AsksToResign if mutant::active(Mutant::FreeOnResign) => self.release(),
            ModelStep::AsksToResign => self.holder.role = Role::Wished,
            ModelStep::Resigns => self.holder.role = Role::Resigned,
            ModelStep::ReleaseLands => self.release(),
            ModelStep::BurialLands => self.session = None,
            ModelStep::Contender(index, each) => self.contend(index, each, rules),
        }
        self.forget()
    }

    fn tick(&mut self, rules: &Rules) {
        self.holder.tick(rules.rates.holder_oldest());
        for contender in &mut self.contenders {
            contender.tick(rules.rates.contender_oldest());
        }
    }

    fn renew(&mut self) {
        let free = self.holder.sent.iter_mut().find(|place| place.is_none());
        let place = free.expect("the bounds leave room for one more");
        *place = Some(Renewal { sent: Age::NOW, flight: RenewalFlight::Open });
        self.holder.exchange = Exchange::Awaited;
    }

    /// A renewal wins. The answer is on its way, if it is the one that the holder waits for.
    fn land(&mut self, write: SessionWrite) {
        self.write(write);
        let last = self.holder.unanswered().last();
        if self.holder.exchange == Exchange::Awaited && last.is_some_and(|(last, _)| last == write)
        {
            self.holder.exchange = Exchange::Won(write);
        }
    }

    /// The holder learns that a write has won. The other renewals were sent at the version before it:
    /// they have been refused, or will be.
    fn learn(&mut self, write: SessionWrite, rules: &Rules) {
        self.holder.renewed = rules.renewed(&self.holder, write);
        self.holder.exchange = Exchange::None;
        if write != SessionWrite::Known {
            self.holder.sent.fill(None);
            self.session = self.session.map(|_| SessionWrite::Known);
        }
    }

    fn release(&mut self) {
        if self.claim == ModelClaim::Holder {
            self.claim = ModelClaim::Free;
        }
    }

    fn contend(&mut self, index: usize, each: ContenderMove, rules: &Rules) {
        let claimable = self.would_win(self.claim).then_some(ContenderLook::Claimable(self.claim));
        let contender = &mut self.contenders[index];
        match each {
            ContenderMove::Looks => contender.look = ContenderLook::Asked(Age::NOW),
            ContenderMove::LookLands(asked) => {
                contender.look =
                    claimable.unwrap_or(ContenderLook::Session(Behind::CURRENT, asked));
            }
            ContenderMove::LookArrives => contender.see(rules),
            ContenderMove::Buries(version) => self.burial = Some(version),
            ContenderMove::Bids(claim) => {
                *contender = Contender { bid: Bid::Sent(claim), ..Contender::IDLE }
            }
            ContenderMove::BidLands => {
                contender.bid = Bid::Won;
                self.claim = ModelClaim::Taken;
            }
            ContenderMove::BidAnswered => contender.bid = Bid::Answered,
        }
    }
}

impl Contender {
    /// Whether it looks: not when it has bid, nor when the claim is taken, for then it is for ever.
    fn would_look(self, claim: ModelClaim) -> bool {
        self.bid == Bid::None && claim != ModelClaim::Taken
    }

    /// Its look arrives.
    fn see(&mut self, rules: &Rules) {
        self.sight = match (self.look, self.sight) {
            (ContenderLook::None | ContenderLook::Asked(_), sight) => sight,
            (ContenderLook::Claimable(claim), _) => Sight::Claimable(claim),
            (ContenderLook::Session(version, asked), Sight::Session(watched, since)) => {
                Sight::Session(version, rules.since(Some((watched, since)), asked, version))
            }
            (ContenderLook::Session(version, asked), Sight::Nothing | Sight::Claimable(_)) => {
                Sight::Session(version, rules.since(None, asked, version))
            }
        };
        self.look = ContenderLook::None;
    }
}

impl ModelStep {
    /// The step as a sentence, when it is taken from this state.
    pub(super) fn told_in(self, state: &ModelState) -> String {
        let renewal = |write| {
            let found = state.holder.unanswered().find(|(each, _)| *each == write);
            let Some((_, renewal)) = found else { return "what it knows".to_owned() };
            format!("the renewal of {}", ago(renewal.sent))
        };
        match self {
            Self::Tick => "time passes".to_owned(),
            Self::Renews => "the holder sends a renewal".to_owned(),
            Self::RenewalLands(write) => format!("{} lands and wins", renewal(write)),
            Self::AnswerArrives(write) => format!("the holder hears that {} won", renewal(write)),
            Self::GivesUp => "the holder waits no longer for an answer".to_owned(),
            Self::ReadsBack => "the holder has a read of its session land".to_owned(),
            Self::ReadArrives(Some(write)) => format!("the holder reads {}", renewal(write)),
            Self::ReadArrives(None) => "the holder finds its session gone".to_owned(),
            Self::AsksToResign => "somebody asks the holder to resign".to_owned(),
            Self::Resigns => "the holder stops and releases its claim".to_owned(),
            Self::ReleaseLands => "the release lands".to_owned(),
            Self::BurialLands => "the burial lands".to_owned(),
            Self::Contender(index, each) => format!("contender {} {}", index + 1, each.told()),
        }
    }
}

impl ContenderMove {
    fn told(self) -> String {
        match self {
            Self::Looks => "asks for a look".to_owned(),
            Self::LookLands(asked) => format!("has its look of {} land", ago(asked)),
            Self::LookArrives => "gets its look".to_owned(),
            Self::Buries(_) => "finds the session overdue and sends a burial".to_owned(),
            Self::Bids(_) => "sends a claim".to_owned(),
            Self::BidLands => "has its claim land and win".to_owned(),
            Self::BidAnswered => "hears of it and acts".to_owned(),
        }
    }
}

fn ago(age: Age) -> String {
    match age.ticks() {
        0 => "this tick".to_owned(),
        1 => "1 tick ago".to_owned(),
        ticks => format!("{ticks} ticks ago"),
    }
}

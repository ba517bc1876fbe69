//! What can happen next, and what it does.

use engine::mutant::{self, Mutant};

use super::Bounds;
use super::clock::Age;
use super::rule::Rules;
use super::state::{
    Behind, Bid, Claim, Contender, Exchange, Flight, Look, Renewal, Role, Sight, State, Write,
};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Time passes for everybody.
    Tick,
    /// The holder sends a renewal.
    Renews,
    /// A renewal lands and wins.
    RenewalLands(Write),
    /// The holder learns that its last renewal, this one, has won.
    AnswerArrives(Write),
    /// The holder waits no longer for an answer.
    GivesUp,
    /// The holder reads its session, and the read lands.
    ReadsBack,
    /// The holder learns that the session was like this.
    ReadArrives(Option<Write>),
    /// Somebody wants the holder to resign.
    AsksToResign,
    /// The holder stops, and then sends a release of its claim.
    Resigns,
    /// The release lands.
    ReleaseLands,
    /// A burial lands.
    BurialLands,
    /// A contender does something, or something happens to what it has sent.
    Contender(usize, Move),
}

/// A step of one contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// It asks for a look.
    Looks,
    /// The look that was asked for then lands.
    LookLands(Age),
    /// The look arrives.
    LookArrives,
    /// It sends a burial of the session at this version.
    Buries(Behind),
    /// It bids for the claim as it has seen it.
    Bids(Claim),
    /// The bid lands and wins.
    BidLands,
    /// It learns that its bid has won, and acts.
    BidAnswered,
}

impl State {
    /// All that can happen next.
    pub(super) fn steps(&self, bounds: Bounds, rules: &Rules, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        if self.burial.is_some_and(|version| self.would_bury(version)) {
            steps.push(Step::BurialLands);
        }
        match self.holder.role {
            Role::Holds => steps.push(Step::AsksToResign),
            Role::Wished => steps.push(Step::Resigns),
            Role::Resigned if self.claim == Claim::Holder => steps.push(Step::ReleaseLands),
            Role::Resigned | Role::Lost => {}
        }
        if self.holder.role.holds() {
            self.steps_of_holder(bounds, steps);
        }
        for (index, contender) in self.contenders.into_iter().enumerate() {
            let moves = self.moves(contender, rules).into_iter().flatten();
            steps.extend(moves.map(|each| Step::Contender(index, each)));
        }
    }

    fn steps_of_holder(&self, bounds: Bounds, steps: &mut Vec<Step>) {
        for (write, renewal) in self.holder.unanswered() {
            if renewal.flight == Flight::Open {
                steps.push(Step::RenewalLands(write));
            }
        }
        match self.holder.exchange {
            Exchange::None => {
                steps.push(Step::ReadsBack);
                if self.holder.unanswered().count() < bounds.unanswered {
                    steps.push(Step::Renews);
                }
            }
            Exchange::Awaited => steps.push(Step::GivesUp),
            Exchange::Won(write) => steps.extend([Step::AnswerArrives(write), Step::GivesUp]),
            Exchange::Found(session) => steps.push(Step::ReadArrives(session)),
        }
    }

    /// What becomes of a contender's look, of what it knows, and of its bid.
    fn moves(&self, contender: Contender, rules: &Rules) -> [Option<Move>; 3] {
        let look = match contender.look {
            Look::None => contender.would_look(self.claim).then_some(Move::Looks),
            Look::Asked(asked) => Some(Move::LookLands(asked)),
            Look::Session(..) | Look::Claimable(_) => Some(Move::LookArrives),
        };
        let sight = match contender.sight {
            Sight::Nothing => None,
            Sight::Session(version, since) => {
                let buries = self.burial.is_none() && rules.is_overdue(since);
                buries.then_some(Move::Buries(version))
            }
            Sight::Claimable(claim) => Some(Move::Bids(claim)),
        };
        let bid = match contender.bid {
            Bid::None | Bid::Answered => None,
            Bid::Sent(seen) => self.would_win(seen).then_some(Move::BidLands),
            Bid::Won => Some(Move::BidAnswered),
        };
        [look, sight, bid]
    }

    /// What is after a step.
    pub(super) fn after(mut self, step: Step, rules: &Rules) -> Self {
        match step {
            Step::Tick => self.tick(rules),
            Step::Renews => self.renew(),
            Step::RenewalLands(write) => self.land(write),
            Step::AnswerArrives(write) | Step::ReadArrives(Some(write)) => {
                self.learn(write, rules);
            }
            Step::GivesUp => self.holder.exchange = Exchange::None,
            Step::ReadsBack => self.holder.exchange = Exchange::Found(self.session),
            Step::ReadArrives(None) => self.holder.role = Role::Lost,
            Step::AsksToResign if mutant::active(Mutant::FreeOnResign) => self.release(),
            Step::AsksToResign => self.holder.role = Role::Wished,
            Step::Resigns => self.holder.role = Role::Resigned,
            Step::ReleaseLands => self.release(),
            Step::BurialLands => self.session = None,
            Step::Contender(index, each) => self.contend(index, each, rules),
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
        *place = Some(Renewal { sent: Age::NOW, flight: Flight::Open });
        self.holder.exchange = Exchange::Awaited;
    }

    /// A renewal wins. The answer is on its way, if it is the one that the holder waits for.
    fn land(&mut self, write: Write) {
        self.write(write);
        let last = self.holder.unanswered().last();
        if self.holder.exchange == Exchange::Awaited && last.is_some_and(|(last, _)| last == write)
        {
            self.holder.exchange = Exchange::Won(write);
        }
    }

    /// The holder learns that a write has won. The other renewals were sent at the version before it:
    /// they have been refused, or will be.
    fn learn(&mut self, write: Write, rules: &Rules) {
        self.holder.renewed = rules.renewed(&self.holder, write);
        self.holder.exchange = Exchange::None;
        if write != Write::Known {
            self.holder.sent.fill(None);
            self.session = self.session.map(|_| Write::Known);
        }
    }

    fn release(&mut self) {
        if self.claim == Claim::Holder {
            self.claim = Claim::Free;
        }
    }

    fn contend(&mut self, index: usize, each: Move, rules: &Rules) {
        let claimable = self.would_win(self.claim).then_some(Look::Claimable(self.claim));
        let contender = &mut self.contenders[index];
        match each {
            Move::Looks => contender.look = Look::Asked(Age::NOW),
            Move::LookLands(asked) => {
                contender.look = claimable.unwrap_or(Look::Session(Behind::CURRENT, asked));
            }
            Move::LookArrives => contender.see(rules),
            Move::Buries(version) => self.burial = Some(version),
            Move::Bids(claim) => {
                *contender = Contender { bid: Bid::Sent(claim), ..Contender::IDLE }
            }
            Move::BidLands => {
                contender.bid = Bid::Won;
                self.claim = Claim::Taken;
            }
            Move::BidAnswered => contender.bid = Bid::Answered,
        }
    }
}

impl Contender {
    /// Whether it looks: not when it has bid, nor when the claim is taken, for then it is for ever.
    fn would_look(self, claim: Claim) -> bool {
        self.bid == Bid::None && claim != Claim::Taken
    }

    /// Its look arrives.
    fn see(&mut self, rules: &Rules) {
        self.sight = match (self.look, self.sight) {
            (Look::None | Look::Asked(_), sight) => sight,
            (Look::Claimable(claim), _) => Sight::Claimable(claim),
            (Look::Session(version, asked), Sight::Session(watched, since)) => {
                Sight::Session(version, rules.since(Some((watched, since)), asked, version))
            }
            (Look::Session(version, asked), Sight::Nothing | Sight::Claimable(_)) => {
                Sight::Session(version, rules.since(None, asked, version))
            }
        };
        self.look = Look::None;
    }
}

impl Step {
    /// The step as a sentence, when it is taken from this state.
    pub(super) fn told_in(self, state: &State) -> String {
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

impl Move {
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

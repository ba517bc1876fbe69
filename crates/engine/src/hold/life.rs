//! What the supervisor of a hold does about its program: a state machine without effects.
//!
//! ```text
//!             claimed            may start          told to end, or nothing was renewed for 0.6 T
//! candidate ──────────▶ waiting ───────────▶ running ──────────▶ ending
//!     ▲                   ▲  │                  │ it ended           │ nothing of it is left
//!     │     given up      │  ▼                  ▼                    ▼
//!     └───────────────────┴── back, or on to the next start, or the claim is given up
//! ```
//!
//! Four rules, each with a mutant that leaves it out:
//!
//! 1. It starts only with the claim, a renewal that was *sent after* the claim was had, at least half of T left, and the lock
//!    of this hold on this machine, which nothing of a former start holds any more.
//! 2. Deadlines count from the sending of a renewal that was acknowledged. They are confirmed only while there is a right.
//! 3. The claim is given up only when the tree of the program is seen to be empty.
//! 4. Whatever is not renewed in time ends by itself: the shim sees to it, and this machine only follows.
//!
//! Whoever drives it tells what happened ([`LifeInput`]) and carries out what it is told ([`LifeOrder`]), in order. The
//! supervisor does so with a session, a candidacy and a tree; the simulator with a model of each.
//!
//! - `input`: what it is told, `order`: what it tells to do
//! - `state`: what it is about, for people

mod input;
mod order;
mod state;

use std::time::Duration;

pub use self::input::{Health, LifeInput, LifeSight, TreeEnd};
pub use self::order::LifeOrder;
pub use self::state::LifeState;
use super::record::{HandOverCause, RiskReason};
use super::restart::{AfterExit, Exits};
use super::timing::{HoldDeadline, HoldTiming, TreeKill};
use crate::lease::Reading;
use crate::limits::{HOLD_CLOCKS_APART_MIN, HOLD_CLOCKS_APART_PERCENT, HOLD_CLOCKS_SPAN};
use crate::mutant::{Mutant, active, pick};

/// What a supervisor keeps to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifeRules {
    /// The deadlines of the program.
    pub timing: HoldTiming,
    /// How long a program that is told to end may take, as long as it is confirmed.
    pub stop_timeout: Duration,
    /// Whether and how its health is asked for.
    pub health: Option<HealthRules>,
}

/// When a health command is run, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthRules {
    /// From the end of one to the next, and how long each may take.
    pub interval: Duration,
    /// How many in a row must fail.
    pub failures: u32,
    /// How long after the start of the program the first one is run.
    pub start_grace: Duration,
}

/// A supervisor, from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    rules: LifeRules,
    phase: Phase,
    /// Whether it was told to end.
    is_told: bool,
    exits: Exits,
    renewal: Option<Renewal>,
    tenure: Tenure,
}

/// The last renewal that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Renewal {
    sent: Reading,
    /// From when its deadlines count.
    counts_from: Reading,
}

/// What is known since the claim was had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tenure {
    claimed: Reading,
    lock: Lock,
    /// The program is not started before, by the clock since boot.
    not_before: Duration,
    /// What the clocks are compared with.
    clocks: Reading,
}

/// The lock of this hold on this machine, which goes over to each tree and ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Unwanted,
    Wanted,
    Had,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Candidate,
    Approval,
    Waiting,
    Starting {
        deadline: HoldDeadline,
        then: Option<Then>,
        is_killed: bool,
    },
    Running {
        deadline: HoldDeadline,
        health: Option<HealthWatch>,
    },
    Ending(Then),
    Leaving,
    /// Both guards were killed.
    Stuck,
    Over,
}

/// What follows when nothing of the program is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Restart,
    GiveUp(HandOverCause),
    Campaign,
}

impl Then {
    /// What follows if both are wanted: whoever has lost the claim gives nothing up, and whoever is told to end says so.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Campaign, _) | (_, Self::Campaign) => Self::Campaign,
            (_, stopped @ Self::GiveUp(HandOverCause::Stopped)) => stopped,
            (first @ Self::GiveUp(_), _) => first,
            (Self::Restart, other) => other,
        }
    }
}

/// The health of a program that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HealthWatch {
    /// When it is asked for next; none while it is.
    next: Option<Duration>,
    failed: u32,
}

impl Life {
    /// One that has nothing yet.
    pub fn new(rules: LifeRules) -> Self {
        let never = Reading { boot: Duration::ZERO, raw: Duration::ZERO };
        let tenure = Tenure {
            claimed: never,
            lock: Lock::Unwanted,
            not_before: Duration::ZERO,
            clocks: never,
        };
        let (phase, exits) = (Phase::Candidate, Exits::default());
        Self { rules, phase, is_told: false, exits, renewal: None, tenure }
    }

    /// What it is about.
    pub fn state(&self) -> LifeState {
        match self.phase {
            Phase::Candidate => LifeState::Candidate,
            Phase::Approval => LifeState::WaitingForApproval,
            Phase::Waiting | Phase::Starting { .. } => LifeState::WaitingToStart,
            Phase::Running { .. } => LifeState::Running,
            Phase::Ending(Then::GiveUp(_)) | Phase::Leaving | Phase::Over => LifeState::Stopping,
            Phase::Ending(Then::Restart | Then::Campaign) | Phase::Stuck => LifeState::Lost,
        }
    }

    /// Why the claim will be given up, if it will be.
    pub fn leaves_for(&self) -> Option<HandOverCause> {
        match self.phase {
            Phase::Ending(Then::GiveUp(cause))
            | Phase::Starting { then: Some(Then::GiveUp(cause)), .. } => Some(cause),
            _ if self.is_told => Some(HandOverCause::Stopped),
            _ => None,
        }
    }

    /// When it wants a [`LifeInput::Tick`] at the latest, by the clock since boot.
    pub fn wakes_at(&self, now: Reading) -> Option<Duration> {
        match self.phase {
            // A permit may come back without a word, as when a quarantine ends.
            Phase::Waiting if self.tenure.not_before > now.boot => Some(self.tenure.not_before),
            Phase::Waiting => Some(now.boot + self.rules.timing.ttl.poll()),
            Phase::Running { deadline, health } => {
                let check = health.and_then(|health| health.next);
                Some(check.map_or(deadline.stop_at, |check| check.min(deadline.stop_at)))
            }
            Phase::Candidate
            | Phase::Approval
            | Phase::Starting { .. }
            | Phase::Ending(_)
            | Phase::Leaving
            | Phase::Stuck
            | Phase::Over => None,
        }
    }

    /// Takes what happened, and tells what to do about it.
    pub fn step(&mut self, input: LifeInput, sight: LifeSight) -> Vec<LifeOrder> {
        let mut orders = Vec::new();
        self.lapse(sight.now);
        match input {
            LifeInput::Awaits => self.phase = Phase::Approval,
            LifeInput::AwaitsNoMore => self.phase = Phase::Candidate,
            LifeInput::Claimed => self.claimed(sight.now, &mut orders),
            LifeInput::Renewed { sent } => self.renewed(sent, sight, &mut orders),
            LifeInput::Locked => self.tenure.lock = Lock::Had,
            LifeInput::NotLocked => self.not_locked(sight.now, &mut orders),
            LifeInput::Started => self.started(sight.now, &mut orders),
            LifeInput::NotStarted => self.not_started(sight.now, &mut orders),
            LifeInput::Ended(end) => self.ended(end, sight.now, &mut orders),
            LifeInput::LostSight => self.lost_sight(&mut orders),
            LifeInput::Checked(health) => self.checked(health, sight.now, &mut orders),
            LifeInput::StopAsked => self.stop_asked(&mut orders),
            LifeInput::KillAsked => self.kill_asked(&mut orders),
            LifeInput::Wished => self.leave(HandOverCause::Resigned, &mut orders),
            LifeInput::RightLost => self.right_lost(&mut orders),
            LifeInput::GivenUp => self.given_up(&mut orders),
            LifeInput::Tick => {}
        }
        self.start_if_it_may(sight, &mut orders);
        self.check_if_due(sight.now, &mut orders);
        orders
    }

    fn claimed(&mut self, now: Reading, orders: &mut Vec<LifeOrder>) {
        self.phase = Phase::Waiting;
        self.tenure =
            Tenure { claimed: now, lock: Lock::Unwanted, not_before: now.boot, clocks: now };
        if self.rules.timing.kill == TreeKill::Search {
            let what = "the program's processes can only be ended by looking for them".to_owned();
            orders.push(LifeOrder::Raise(RiskReason::WeakKill, what));
        }
        if self.is_told {
            self.leave(HandOverCause::Stopped, orders);
        }
    }

    fn renewed(&mut self, sent: Reading, sight: LifeSight, orders: &mut Vec<LifeOrder>) {
        if self.renewal.is_some_and(|last| !sent.is_after(last.sent)) {
            return;
        }
        let counts_from = pick(Mutant::HoldValidityFromReply, sent, sight.now);
        self.renewal = Some(Renewal { sent, counts_from });
        self.compare_clocks(sent, orders);
        if sight.permit.is_none() {
            return;
        }
        let confirmed = self.rules.timing.deadline(counts_from);
        match &mut self.phase {
            Phase::Running { deadline, .. } => {
                *deadline = confirmed;
                orders.push(LifeOrder::Confirm(confirmed));
            }
            // What was started with an earlier one hears of it when it runs.
            Phase::Starting { deadline, .. } => *deadline = confirmed,
            // So that it has its whole grace.
            Phase::Ending(Then::GiveUp(_)) => orders.push(LifeOrder::Confirm(confirmed)),
            Phase::Ending(Then::Restart | Then::Campaign)
            | Phase::Candidate
            | Phase::Approval
            | Phase::Waiting
            | Phase::Leaving
            | Phase::Stuck
            | Phase::Over => {}
        }
    }

    /// Two clocks that count differently are one assumption less. Read one after the other, they never quite agree; and one
    /// that stood still while the machine slept is none that counts differently.
    fn compare_clocks(&mut self, now: Reading, orders: &mut Vec<LifeOrder>) {
        if !self.has_claim() {
            return;
        }
        let since = self.tenure.clocks;
        let (most, least) = (now.most_since(since), now.least_since(since));
        let bearable = (most * HOLD_CLOCKS_APART_PERCENT / 100).max(HOLD_CLOCKS_APART_MIN);
        let has_slept = most > least * 2;
        if most.saturating_sub(least) > bearable && !has_slept {
            let what = format!(
                "of the machine's two clocks one counted {most:.3?} while the other counted {least:.3?}"
            );
            orders.push(LifeOrder::Raise(RiskReason::ClockRates, what));
            self.tenure.clocks = now;
        } else if most >= HOLD_CLOCKS_SPAN || has_slept {
            self.tenure.clocks = now;
        }
    }

    fn has_claim(&self) -> bool {
        match self.phase {
            Phase::Waiting
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Ending(Then::Restart | Then::GiveUp(_)) => true,
            Phase::Ending(Then::Campaign)
            | Phase::Candidate
            | Phase::Approval
            | Phase::Leaving
            | Phase::Stuck
            | Phase::Over => false,
        }
    }

    /// The first rule.
    fn start_if_it_may(&mut self, sight: LifeSight, orders: &mut Vec<LifeOrder>) {
        let (Phase::Waiting, Some(renewal)) = (self.phase, self.renewal) else { return };
        let (timing, now) = (&self.rules.timing, sight.now);
        let is_proved = !self.tenure.claimed.is_after(renewal.sent);
        let left = timing.ttl.length().saturating_sub(now.most_since(renewal.sent));
        let has_margin =
            left >= timing.margin() && sight.permit.is_some_and(|permit| permit >= timing.margin());
        let is_safe = is_proved && has_margin;
        let may_act = pick(Mutant::StartWithoutMargin, is_safe, sight.permit.is_some());
        if !may_act || now.boot < self.tenure.not_before {
            return;
        }
        match pick(Mutant::LeftoversIgnored, self.tenure.lock, Lock::Had) {
            Lock::Unwanted => {
                self.tenure.lock = Lock::Wanted;
                orders.push(LifeOrder::TakeLock);
            }
            Lock::Wanted => {}
            Lock::Had => {
                let deadline = timing.deadline(renewal.counts_from);
                self.phase = Phase::Starting { deadline, then: None, is_killed: false };
                orders.push(LifeOrder::Start(deadline));
            }
        }
    }

    fn started(&mut self, now: Reading, orders: &mut Vec<LifeOrder>) {
        let Phase::Starting { deadline, then, is_killed } = self.phase else { return };
        let health = self
            .rules
            .health
            .map(|rules| HealthWatch { next: Some(now.boot + rules.start_grace), failed: 0 });
        self.phase = Phase::Running { deadline, health };
        orders.push(LifeOrder::Confirm(deadline));
        if let Some(then) = then {
            self.end(then, orders);
        }
        if is_killed {
            orders.push(LifeOrder::Kill);
        }
    }

    /// As a program that ends at once: it is tried again after a pause, and elsewhere in the end.
    fn not_locked(&mut self, now: Reading, orders: &mut Vec<LifeOrder>) {
        if self.phase == Phase::Waiting {
            self.tenure.lock = Lock::Unwanted;
            self.exited(now, Duration::ZERO, orders);
        }
    }

    fn not_started(&mut self, now: Reading, orders: &mut Vec<LifeOrder>) {
        let Phase::Starting { then, .. } = self.phase else { return };
        self.tenure.lock = Lock::Unwanted;
        match then {
            Some(then) => self.empty(then, now, orders),
            None => self.exited(now, Duration::ZERO, orders),
        }
    }

    fn ended(&mut self, end: TreeEnd, now: Reading, orders: &mut Vec<LifeOrder>) {
        let late = end.kill_late.unwrap_or_default();
        if late > self.rules.timing.kill.time_max() {
            let what = format!("the tree was empty {late:.3?} after it was to be killed");
            orders.push(LifeOrder::Raise(RiskReason::SlowKill, what));
        }
        self.tenure.lock = Lock::Unwanted;
        match self.phase {
            Phase::Running { .. } if end.is_unconfirmed => self.empty(Then::Restart, now, orders),
            Phase::Running { .. } => self.exited(now, end.ran, orders),
            Phase::Ending(then) => self.empty(then, now, orders),
            Phase::Candidate
            | Phase::Approval
            | Phase::Waiting
            | Phase::Starting { .. }
            | Phase::Leaving
            | Phase::Stuck
            | Phase::Over => {}
        }
    }

    /// The program has ended by itself, and nothing of it is left.
    fn exited(&mut self, now: Reading, ran: Duration, orders: &mut Vec<LifeOrder>) {
        match self.exits.ended(now.boot, ran) {
            AfterExit::Restart { at } => {
                self.tenure.not_before = at;
                self.phase = Phase::Waiting;
            }
            AfterExit::MakeRoom => self.empty(Then::GiveUp(HandOverCause::Exits), now, orders),
        }
    }

    /// Nothing of the program is left.
    fn empty(&mut self, then: Then, now: Reading, orders: &mut Vec<LifeOrder>) {
        match then {
            Then::Restart => {
                self.tenure.not_before = now.boot;
                self.phase = Phase::Waiting;
            }
            Then::GiveUp(cause) => {
                self.phase = Phase::Leaving;
                orders.push(LifeOrder::GiveUp(cause));
            }
            Then::Campaign => self.nothing(LifeOrder::Campaign, orders),
        }
    }

    /// It has neither a claim nor a program.
    fn nothing(&mut self, unless_told: LifeOrder, orders: &mut Vec<LifeOrder>) {
        if self.is_told {
            self.phase = Phase::Over;
            orders.push(LifeOrder::Quit);
        } else {
            self.phase = Phase::Candidate;
            orders.push(unless_told);
        }
    }

    fn lost_sight(&mut self, orders: &mut Vec<LifeOrder>) {
        let what = "both guards of the program were killed: nobody knows what is left of it";
        orders.push(LifeOrder::Raise(RiskReason::GuardsKilled, what.to_owned()));
        self.phase = Phase::Stuck;
        if self.is_told {
            self.abandon(orders);
        }
    }

    fn abandon(&mut self, orders: &mut Vec<LifeOrder>) {
        self.phase = Phase::Over;
        orders.push(LifeOrder::Abandon);
    }

    fn check_if_due(&mut self, now: Reading, orders: &mut Vec<LifeOrder>) {
        let Phase::Running { health: Some(health), .. } = &mut self.phase else { return };
        if health.next.is_some_and(|at| at <= now.boot) {
            health.next = None;
            let limit = self.rules.health.expect("it is watched").interval;
            orders.push(LifeOrder::Check { limit });
        }
    }

    fn checked(&mut self, said: Health, now: Reading, orders: &mut Vec<LifeOrder>) {
        let (Phase::Running { health: Some(watch), .. }, Some(rules)) =
            (&mut self.phase, self.rules.health)
        else {
            return;
        };
        watch.next = Some(now.boot + rules.interval);
        watch.failed = match said {
            Health::Good => 0,
            Health::Bad => watch.failed + 1,
        };
        if watch.failed >= rules.failures {
            self.leave(HandOverCause::Health, orders);
        }
    }

    fn stop_asked(&mut self, orders: &mut Vec<LifeOrder>) {
        self.is_told = true;
        match self.phase {
            Phase::Candidate | Phase::Approval => {
                self.phase = Phase::Over;
                orders.push(LifeOrder::Quit);
            }
            Phase::Stuck => self.abandon(orders),
            Phase::Waiting
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Ending(_)
            | Phase::Leaving
            | Phase::Over => self.leave(HandOverCause::Stopped, orders),
        }
    }

    fn kill_asked(&mut self, orders: &mut Vec<LifeOrder>) {
        self.stop_asked(orders);
        match &mut self.phase {
            Phase::Starting { is_killed, .. } => *is_killed = true,
            Phase::Ending(_) => orders.push(LifeOrder::Kill),
            Phase::Candidate
            | Phase::Approval
            | Phase::Waiting
            | Phase::Running { .. }
            | Phase::Leaving
            | Phase::Stuck
            | Phase::Over => {}
        }
    }

    /// Ends the program if there is one, and gives the claim up then.
    fn leave(&mut self, cause: HandOverCause, orders: &mut Vec<LifeOrder>) {
        let wanted = Then::GiveUp(cause);
        match &mut self.phase {
            Phase::Waiting => {
                self.phase = Phase::Leaving;
                orders.push(LifeOrder::GiveUp(cause));
            }
            Phase::Starting { then, .. } => {
                *then = Some(then.map_or(wanted, |then| then.and(wanted)));
            }
            Phase::Running { .. } => self.end(wanted, orders),
            Phase::Ending(then) => *then = then.and(wanted),
            Phase::Candidate | Phase::Approval | Phase::Leaving | Phase::Stuck | Phase::Over => {}
        }
    }

    /// Ends the program that runs.
    fn end(&mut self, then: Then, orders: &mut Vec<LifeOrder>) {
        self.phase = Phase::Ending(then);
        match then {
            // Somebody else may have it by now.
            Then::Campaign => orders.push(LifeOrder::Kill),
            Then::GiveUp(cause) => {
                orders.push(LifeOrder::Stop { grace: self.rules.stop_timeout });
                if active(Mutant::ReleaseBeforeEmpty) {
                    self.phase = Phase::Leaving;
                    orders.push(LifeOrder::GiveUp(cause));
                }
            }
            Then::Restart => {}
        }
    }

    fn right_lost(&mut self, orders: &mut Vec<LifeOrder>) {
        match &mut self.phase {
            Phase::Waiting => self.nothing(LifeOrder::Campaign, orders),
            Phase::Starting { then, .. } => *then = Some(Then::Campaign),
            Phase::Running { .. } | Phase::Ending(_) => self.end(Then::Campaign, orders),
            Phase::Candidate | Phase::Approval | Phase::Leaving | Phase::Stuck | Phase::Over => {}
        }
    }

    fn given_up(&mut self, orders: &mut Vec<LifeOrder>) {
        if self.phase == Phase::Leaving {
            self.nothing(LifeOrder::Campaign, orders);
        }
    }

    /// What was not confirmed in time is being ended by the shim, and no renewal takes that back.
    fn lapse(&mut self, now: Reading) {
        if let Phase::Running { deadline, .. } = self.phase
            && deadline.stop_at <= now.boot
        {
            self.phase = Phase::Ending(Then::Restart);
        }
    }
}

#[cfg(test)]
mod tests;

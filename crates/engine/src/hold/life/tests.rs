use super::*;
use crate::lease::Ttl;
use crate::limits::HOLD_EXITS_MAX;
use crate::mutant::switch;

/// T is 5 s, so deadlines are 3 s and 4.25 s after a renewal, and half of T are 2.5 s.
fn rules() -> LifeRules {
    let ttl = Ttl::new(Duration::from_secs(5)).unwrap();
    let timing = HoldTiming::check(ttl, TreeKill::Kernel).unwrap();
    LifeRules { timing, stop_timeout: secs(10.0), health: None }
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn at(seconds: f64) -> Reading {
    Reading { boot: secs(seconds), raw: secs(seconds) }
}

fn until(stop_at: f64, kill_at: f64) -> HoldDeadline {
    HoldDeadline { stop_at: secs(stop_at), kill_at: secs(kill_at) }
}

/// A life with what is needed to tell it something.
struct Told {
    life: Life,
    /// When the last renewal was sent; the permit is what is left of it.
    sent: f64,
    /// Whether the lock is free.
    is_free: bool,
}

impl Told {
    fn new(rules: LifeRules) -> Self {
        Self { life: Life::new(rules), sent: -100.0, is_free: true }
    }

    fn tell(&mut self, now: f64, input: LifeInput) -> Vec<LifeOrder> {
        let left = self.sent + 5.0 - now;
        let permit = (left > 0.0).then(|| secs(left));
        let sight = LifeSight { now: at(now), permit };
        let mut orders = self.life.step(input, sight);
        if self.is_free && orders.last() == Some(&LifeOrder::TakeLock) {
            orders.pop();
            orders.extend(self.life.step(LifeInput::Locked, sight));
        }
        orders
    }

    /// A renewal that was sent then and is acknowledged now.
    fn renewed(&mut self, now: f64, sent: f64) -> Vec<LifeOrder> {
        self.sent = self.sent.max(sent);
        self.tell(now, LifeInput::Renewed { sent: at(sent) })
    }

    /// One that has the claim since second 100, and was not renewed since.
    fn waiting(rules: LifeRules) -> Self {
        let mut told = Self::new(rules);
        told.renewed(99.1, 99.0);
        assert_eq!(told.tell(100.0, LifeInput::Claimed), []);
        told
    }

    /// One whose program runs since second 100.5, with a renewal that was sent at 100.2.
    fn running(rules: LifeRules) -> Self {
        let mut told = Self::waiting(rules);
        let deadline = until(103.2, 104.45);
        assert_eq!(told.renewed(100.3, 100.2), [LifeOrder::Start(deadline)]);
        assert_eq!(told.tell(100.5, LifeInput::Started), [LifeOrder::Confirm(deadline)]);
        assert_eq!(told.life.state(), LifeState::Running);
        told
    }
}

fn ended(ran: f64) -> LifeInput {
    LifeInput::Ended(TreeEnd { ran: secs(ran), is_unconfirmed: false, kill_late: None })
}

fn unconfirmed(kill_late: Option<f64>) -> LifeInput {
    let kill_late = kill_late.map(secs);
    LifeInput::Ended(TreeEnd { ran: secs(3.0), is_unconfirmed: true, kill_late })
}

fn stop() -> LifeOrder {
    LifeOrder::Stop { grace: secs(10.0) }
}

fn reasons(orders: &[LifeOrder]) -> Vec<RiskReason> {
    let reason = |order: &LifeOrder| match order {
        LifeOrder::Raise(reason, _) => Some(*reason),
        _ => None,
    };
    orders.iter().filter_map(reason).collect()
}

#[test]
fn it_starts_with_a_renewal_that_was_sent_after_the_claim_was_had() {
    let mut told = Told::waiting(rules());
    assert_eq!(told.renewed(100.2, 99.9), [], "that one was sent before");
    assert_eq!(told.life.state(), LifeState::WaitingToStart);
    assert_eq!(told.renewed(101.2, 101.0), [LifeOrder::Start(until(104.0, 105.25))]);
}

#[test]
fn it_starts_with_half_of_t_left_and_not_with_less() {
    let mut told = Told::waiting(rules());
    assert_eq!(told.renewed(103.6, 101.0), [], "the answer came late");
    assert_eq!(told.renewed(104.5, 102.0), [LifeOrder::Start(until(105.0, 106.25))]);
}

#[test]
fn it_starts_with_a_permit_and_not_without() {
    let mut told = Told::waiting(rules());
    let sight = |permit| LifeSight { now: at(100.3), permit };
    let renewed = LifeInput::Renewed { sent: at(100.2) };
    assert_eq!(told.life.step(renewed, sight(None)), []);
    assert_eq!(told.life.step(LifeInput::Tick, sight(Some(secs(2.4)))), []);
    let locked = told.life.step(LifeInput::Tick, sight(Some(secs(4.9))));
    assert_eq!(locked, [LifeOrder::TakeLock]);
    let started = told.life.step(LifeInput::Locked, sight(Some(secs(4.9))));
    assert_eq!(started, [LifeOrder::Start(until(103.2, 104.45))]);
}

#[test]
fn it_starts_when_nothing_of_a_former_start_has_the_lock() {
    let mut told = Told::waiting(rules());
    told.is_free = false;
    assert_eq!(told.renewed(100.3, 100.2), [LifeOrder::TakeLock]);
    assert_eq!(told.tell(101.0, LifeInput::Tick), []);
    let started = told.tell(101.5, LifeInput::Locked);
    assert_eq!(started, [LifeOrder::Start(until(103.2, 104.45))]);
    assert_eq!(told.tell(101.6, LifeInput::Tick), [], "and only once");
    told.tell(101.7, LifeInput::Started);
    told.tell(102.0, ended(0.3));
    assert_eq!(told.tell(102.3, LifeInput::Tick), [LifeOrder::TakeLock], "it ended with the tree");
}

#[test]
fn a_lock_that_cannot_be_had_is_tried_again_and_then_elsewhere() {
    let mut told = Told::waiting(rules());
    told.is_free = false;
    let mut now = 100.3;
    assert_eq!(told.renewed(now, now), [LifeOrder::TakeLock]);
    for _ in 1..HOLD_EXITS_MAX {
        assert_eq!(told.tell(now, LifeInput::NotLocked), []);
        assert_eq!(told.life.state(), LifeState::WaitingToStart);
        assert_eq!(told.renewed(now + 0.1, now + 0.1), [], "after a pause");
        now += 10.0;
        assert_eq!(told.renewed(now, now), [LifeOrder::TakeLock]);
    }
    let given_up = told.tell(now, LifeInput::NotLocked);
    assert_eq!(given_up, [LifeOrder::GiveUp(HandOverCause::Exits)]);
}

#[test]
fn deadlines_count_from_the_sending_and_are_confirmed_at_each_renewal() {
    let mut told = Told::running(rules());
    assert_eq!(told.renewed(101.9, 101.2), [LifeOrder::Confirm(until(104.2, 105.45))]);
    assert_eq!(told.renewed(102.0, 101.1), [], "a former one gives nothing");
}

#[test]
fn a_renewal_while_the_program_is_being_started_is_confirmed_when_it_runs() {
    let mut told = Told::waiting(rules());
    told.renewed(100.3, 100.2);
    assert_eq!(told.renewed(101.3, 101.2), []);
    let later = until(104.2, 105.45);
    assert_eq!(told.tell(101.4, LifeInput::Started), [LifeOrder::Confirm(later)]);
}

#[test]
fn nothing_is_confirmed_without_a_right() {
    let mut told = Told::running(rules());
    let renewed = LifeInput::Renewed { sent: at(101.2) };
    let orders = told.life.step(renewed, LifeSight { now: at(101.3), permit: None });
    assert_eq!(orders, []);
}

#[test]
fn what_was_not_confirmed_in_time_is_lost_whatever_comes_later_and_starts_again() {
    let mut told = Told::running(rules());
    assert_eq!(told.life.wakes_at(at(101.0)), Some(secs(103.2)));
    assert_eq!(told.tell(103.2, LifeInput::Tick), []);
    assert_eq!(told.life.state(), LifeState::Lost);
    assert_eq!(told.renewed(103.3, 103.2), [], "the shim has told it to end");
    assert_eq!(told.life.state(), LifeState::Lost);
    let again = told.tell(103.5, unconfirmed(None));
    assert_eq!(again, [LifeOrder::Start(until(106.2, 107.45))], "without a pause");
}

#[test]
fn a_program_that_ends_is_started_again_after_a_pause() {
    let mut told = Told::running(rules());
    told.renewed(101.3, 101.2);
    assert_eq!(told.tell(101.5, ended(1.0)), []);
    assert_eq!(told.life.state(), LifeState::WaitingToStart);
    assert_eq!(told.life.wakes_at(at(101.5)), Some(secs(101.75)));
    assert_eq!(told.tell(101.7, LifeInput::Tick), []);
    assert_eq!(told.tell(101.75, LifeInput::Tick), [LifeOrder::Start(until(104.2, 105.45))]);
}

#[test]
fn five_ends_within_a_minute_give_the_claim_up() {
    let mut told = Told::waiting(rules());
    let mut now = 100.2;
    for exit in 1..=HOLD_EXITS_MAX {
        let orders = told.renewed(now + 0.1, now);
        assert!(matches!(orders[..], [LifeOrder::Start(_)]), "{exit}: {orders:?}");
        told.tell(now + 0.2, LifeInput::Started);
        let orders = told.tell(now + 0.3, ended(0.1));
        let expected: &[_] = match exit {
            HOLD_EXITS_MAX => &[LifeOrder::GiveUp(HandOverCause::Exits)],
            _ => &[],
        };
        assert_eq!(orders, expected, "{exit}");
        now += 10.0;
    }
    assert_eq!(told.life.state(), LifeState::Stopping);
    assert_eq!(told.tell(now, LifeInput::GivenUp), [LifeOrder::Campaign]);
    assert_eq!(told.life.state(), LifeState::Candidate);
}

#[test]
fn a_program_that_does_not_start_counts_as_one_that_ended() {
    let mut told = Told::waiting(rules());
    told.renewed(100.3, 100.2);
    assert_eq!(told.tell(100.4, LifeInput::NotStarted), []);
    assert_eq!(told.life.wakes_at(at(100.4)), Some(secs(100.65)));
}

#[test]
fn a_stop_ends_the_program_then_gives_up_then_quits() {
    let mut told = Told::running(rules());
    assert_eq!(told.tell(101.0, LifeInput::StopAsked), [stop()]);
    assert_eq!(told.life.state(), LifeState::Stopping);
    assert_eq!(told.life.leaves_for(), Some(HandOverCause::Stopped));
    let confirmed = told.renewed(101.3, 101.2);
    assert_eq!(confirmed, [LifeOrder::Confirm(until(104.2, 105.45))], "it has its whole grace");
    assert_eq!(told.tell(102.0, ended(1.5)), [LifeOrder::GiveUp(HandOverCause::Stopped)]);
    assert_eq!(told.tell(102.1, LifeInput::GivenUp), [LifeOrder::Quit]);
}

#[test]
fn a_stop_without_a_program_is_done_at_once() {
    let mut candidate = Told::new(rules());
    assert_eq!(candidate.tell(1.0, LifeInput::StopAsked), [LifeOrder::Quit]);
    let mut awaiting = Told::new(rules());
    awaiting.tell(1.0, LifeInput::Awaits);
    assert_eq!(awaiting.life.state(), LifeState::WaitingForApproval);
    assert_eq!(awaiting.tell(2.0, LifeInput::StopAsked), [LifeOrder::Quit]);
    let mut waiting = Told::waiting(rules());
    let given_up = waiting.tell(101.0, LifeInput::StopAsked);
    assert_eq!(given_up, [LifeOrder::GiveUp(HandOverCause::Stopped)]);
}

#[test]
fn a_stop_while_the_program_is_being_started_waits_for_it() {
    let mut told = Told::waiting(rules());
    told.renewed(100.3, 100.2);
    assert_eq!(told.tell(100.4, LifeInput::StopAsked), []);
    let deadline = until(103.2, 104.45);
    assert_eq!(told.tell(100.5, LifeInput::Started), [LifeOrder::Confirm(deadline), stop()]);
    let mut unstarted = Told::waiting(rules());
    unstarted.renewed(100.3, 100.2);
    unstarted.tell(100.4, LifeInput::StopAsked);
    let given_up = unstarted.tell(100.5, LifeInput::NotStarted);
    assert_eq!(given_up, [LifeOrder::GiveUp(HandOverCause::Stopped)]);
}

#[test]
fn a_second_stop_kills() {
    let mut told = Told::running(rules());
    told.tell(101.0, LifeInput::StopAsked);
    assert_eq!(told.tell(101.1, LifeInput::KillAsked), [LifeOrder::Kill]);
    let mut at_once = Told::running(rules());
    assert_eq!(at_once.tell(101.1, LifeInput::KillAsked), [stop(), LifeOrder::Kill]);
    let mut early = Told::waiting(rules());
    early.renewed(100.3, 100.2);
    early.tell(100.4, LifeInput::KillAsked);
    assert_eq!(early.tell(100.5, LifeInput::Started).last(), Some(&LifeOrder::Kill));
}

#[test]
fn a_wish_ends_the_program_and_gives_up_when_nothing_is_left() {
    let mut told = Told::running(rules());
    assert_eq!(told.tell(101.0, LifeInput::Wished), [stop()]);
    assert_eq!(told.tell(101.2, LifeInput::Tick), []);
    assert_eq!(told.tell(101.4, ended(1.0)), [LifeOrder::GiveUp(HandOverCause::Resigned)]);
    assert_eq!(told.tell(101.5, LifeInput::GivenUp), [LifeOrder::Campaign]);
}

#[test]
fn a_stop_during_a_wish_is_a_stop() {
    let mut told = Told::running(rules());
    told.tell(101.0, LifeInput::Wished);
    assert_eq!(told.tell(101.1, LifeInput::StopAsked), []);
    assert_eq!(told.tell(101.4, ended(1.0)), [LifeOrder::GiveUp(HandOverCause::Stopped)]);
    assert_eq!(told.tell(101.5, LifeInput::GivenUp), [LifeOrder::Quit]);
}

#[test]
fn who_has_lost_the_claim_kills_and_gives_nothing_up() {
    let mut told = Told::running(rules());
    assert_eq!(told.tell(101.0, LifeInput::RightLost), [LifeOrder::Kill]);
    assert_eq!(told.life.state(), LifeState::Lost);
    assert_eq!(told.tell(101.1, LifeInput::StopAsked), [], "which changes nothing about that");
    assert_eq!(told.tell(101.2, ended(0.7)), [LifeOrder::Quit]);
    let mut waiting = Told::waiting(rules());
    assert_eq!(waiting.tell(101.0, LifeInput::RightLost), [LifeOrder::Campaign]);
}

#[test]
fn health_is_asked_for_after_the_grace_and_three_failures_in_a_row_make_room() {
    let health = HealthRules { interval: secs(2.0), failures: 3, start_grace: secs(1.0) };
    let mut told = Told::running(LifeRules { health: Some(health), ..rules() });
    assert_eq!(told.life.wakes_at(at(100.5)), Some(secs(101.5)));
    let check = LifeOrder::Check { limit: secs(2.0) };
    let mut now = 101.5;
    for said in [Health::Bad, Health::Bad, Health::Good, Health::Bad, Health::Bad] {
        told.renewed(now, now);
        assert_eq!(told.tell(now, LifeInput::Tick), [], "the check is under way");
        assert_eq!(told.tell(now + 0.5, LifeInput::Checked(said)), [], "{now}");
        now += 2.5;
        assert_eq!(told.renewed(now - 0.1, now - 0.1).len(), 1, "too early");
        assert_eq!(told.tell(now, LifeInput::Tick), std::slice::from_ref(&check));
    }
    assert_eq!(told.tell(now + 0.5, LifeInput::Checked(Health::Bad)), [stop()]);
    let given_up = told.tell(now + 1.0, ended(9.0));
    assert_eq!(given_up, [LifeOrder::GiveUp(HandOverCause::Health)]);
}

#[test]
fn a_program_that_both_guards_were_killed_of_is_neither_started_again_nor_given_up() {
    let mut told = Told::running(rules());
    let orders = told.tell(101.0, LifeInput::LostSight);
    assert_eq!(reasons(&orders), [RiskReason::GuardsKilled]);
    assert_eq!(told.renewed(101.5, 101.4), []);
    assert_eq!(told.tell(102.0, LifeInput::Tick), []);
    assert_eq!(told.life.state(), LifeState::Lost);
    assert_eq!(told.tell(103.0, LifeInput::StopAsked), [LifeOrder::Abandon]);
}

#[test]
fn a_weak_kill_is_told_at_each_claim() {
    let ttl = rules().timing.ttl;
    let timing = HoldTiming::check(ttl, TreeKill::Search).unwrap();
    let mut told = Told::new(LifeRules { timing, ..rules() });
    assert_eq!(reasons(&told.tell(100.0, LifeInput::Claimed)), [RiskReason::WeakKill]);
}

#[test]
fn a_kill_that_took_too_long_is_told() {
    for (late, expected) in [(0.1, vec![]), (0.101, vec![RiskReason::SlowKill])] {
        let mut told = Told::running(rules());
        told.tell(103.2, LifeInput::Tick);
        assert_eq!(reasons(&told.tell(105.0, unconfirmed(Some(late)))), expected, "{late}");
    }
}

#[test]
fn clocks_that_count_differently_are_told() {
    // How fast boot time is, in parts of a thousand, and whether that is too much.
    for (boot, is_told) in [(1_005, false), (995, false), (1_020, true), (980, true)] {
        let mut told = Told::running(rules());
        let mut seen = Vec::new();
        for second in 101..=130_u32 {
            let passed = second - 100;
            let now = Reading {
                boot: secs(100.0) + secs(1.0) * passed * boot / 1_000,
                raw: Duration::from_secs(second.into()),
            };
            let sight = LifeSight { now, permit: Some(secs(5.0)) };
            seen.extend(reasons(&told.life.step(LifeInput::Renewed { sent: now }, sight)));
        }
        assert_eq!(seen.contains(&RiskReason::ClockRates), is_told, "{boot}");
    }
}

#[test]
fn a_machine_that_slept_has_no_clocks_that_count_differently() {
    let mut told = Told::running(rules());
    let now = Reading { boot: secs(500.0), raw: secs(101.0) };
    let sight = LifeSight { now, permit: Some(secs(5.0)) };
    let orders = told.life.step(LifeInput::Renewed { sent: now }, sight);
    assert_eq!(reasons(&orders), []);
}

/// What is different with each mutant: that the simulator finds it is shown there.
#[test]
fn each_mutant_leaves_its_rule_out() {
    fn with<T>(mutant: Mutant, work: impl FnOnce() -> T) -> T {
        switch(Some(mutant));
        let done = work();
        switch(None);
        done
    }
    let margin = with(Mutant::StartWithoutMargin, || {
        let mut told = Told::new(rules());
        told.renewed(96.1, 96.0);
        told.tell(100.0, LifeInput::Claimed)
    });
    assert!(matches!(margin[..], [LifeOrder::Start(_)]), "{margin:?}");
    let released = with(Mutant::ReleaseBeforeEmpty, || {
        Told::running(rules()).tell(101.0, LifeInput::StopAsked)
    });
    assert_eq!(released, [stop(), LifeOrder::GiveUp(HandOverCause::Stopped)]);
    let counted = with(Mutant::HoldValidityFromReply, || Told::running_wrongly().1);
    assert_eq!(counted, [LifeOrder::Confirm(until(104.9, 106.15))]);
    let killed = with(Mutant::KillAt115Percent, rules).timing.kill_at;
    assert_eq!(killed, secs(5.75));
    let leftovers = with(Mutant::LeftoversIgnored, || {
        let mut told = Told::waiting(rules());
        told.is_free = false;
        told.renewed(100.3, 100.2)
    });
    assert!(matches!(leftovers[..], [LifeOrder::Start(_)]), "{leftovers:?}");
}

impl Told {
    /// What is ordered when an answer comes 0.7 s after its renewal was sent.
    fn running_wrongly() -> (Self, Vec<LifeOrder>) {
        let mut told = Self::waiting(rules());
        told.renewed(100.3, 100.2);
        told.tell(100.5, LifeInput::Started);
        let orders = told.renewed(101.9, 101.2);
        (told, orders)
    }
}

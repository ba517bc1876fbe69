//! A supervisor: the real session, the real candidacy and the real life of a hold, with a model of a tree at its end.
//!
//! It is driven as `watchbell hold` drives it: whatever happens is told to [`Life`], and what that orders is done at once or
//! begun. Sessions follow each other, the life goes on.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::hold::life::{
    Health, Life, LifeInput, LifeOrder, LifeRules, LifeSight, LifeState, TreeEnd,
};
use engine::hold::record::HandOverCause;
use engine::hold::timing::{HoldDeadline, TreeKill};
use serde_json::value::RawValue;
use store::chain::ChainError;
use store::claim::ClaimState;
use store::election::{Candidacy, CandidateActivity, Defeat, Holding, Right, RightEnd};
use store::machine::within;
use store::session::{NodeId, Session, SessionDriver, SessionError, SessionKey, bury_local};

use super::checker::{HoldChecker, HoldStart};
use super::machine::{HoldMachine, LockShare};
use super::setting::Habit;
use super::tree::{HeldTree, SimTree, TreeNews, TreeOrder, TreePlan};
use crate::dice::Dice;
use crate::node::NodeStart;
use crate::sim_store::NodeIndex;
use crate::world::ProcessId;

/// The shortest that is slept: by a fast clock a nanosecond is no time at all.
const SLEEP_MIN: Duration = Duration::from_micros(10);

/// The longest that is slept at a time.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// How long after its last instant a tree is there before its shim is told to go on, and as long again before it is killed.
const SHIM_LATE: Duration = Duration::from_millis(50);

/// How long a session may take to close.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// What supervisors on a node are made of.
pub struct HoldSite {
    /// Which node it is.
    pub node: NodeIndex,
    /// Its machine.
    pub machine: HoldMachine,
    /// What watches them.
    pub checker: Arc<HoldChecker>,
    /// What they keep to.
    pub rules: LifeRules,
    /// What they hold.
    pub habit: Habit,
    /// Whoever has the store open and holds nothing itself, if somebody does.
    pub host: Option<NodeId>,
    /// What is left to chance here.
    pub dice: Mutex<Dice>,
}

impl HoldSite {
    /// Rolls.
    pub fn roll<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What follows a campaign, or a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Campaign,
    Quit,
    Abandon,
}

/// Something that was begun.
type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A supervisor.
struct Supervisor {
    site: Arc<HoldSite>,
    start: NodeStart,
    process: ProcessId,
    life: Life,
}

/// What there is while it has the claim.
struct Desk<'a> {
    session: &'a Session,
    right: Right,
    tree: Option<HeldTree>,
    /// When the tree should be gone, by the clock since boot, and how often it was not.
    overdue: Option<(Duration, u32)>,
    locking: Option<Work<LockShare>>,
    lock: Option<LockShare>,
    checking: Option<Work<Health>>,
}

/// What is left to do when nothing of the program is left.
enum Left {
    GiveUp(HandOverCause),
    Next(Next),
}

/// Runs until it is told to stop, or is refused.
pub async fn run(site: Arc<HoldSite>, start: NodeStart, process: ProcessId) {
    site.checker.supervises(&start.world, process, site.node);
    let life = Life::new(site.rules.clone());
    let mut supervisor = Supervisor { site, start, process, life };
    let mut former = None;
    while let Some((session, mut driver)) = supervisor.join(former.as_ref()).await {
        let (start, process) = (supervisor.start.clone(), supervisor.process);
        start.checker.lives_in(process, Some(session.key()));
        former = Some(session.clone());
        let keeping = async {
            let end = driver.run(|| true).await;
            start.world.trace(process, || format!("ended   {}: {end:?}", session.key()));
            std::future::pending::<()>().await;
        };
        let next = tokio::select! {
            biased;
            () = keeping => unreachable!("it has no end"),
            next = supervisor.take_part(&session) => next,
        };
        start.checker.lives_in(process, None);
        start.checker.holds_no_more(process);
        match next {
            Next::Campaign => {}
            Next::Quit => {
                within(&start.machine, CLOSE_MAX, session.close()).await;
                break;
            }
            Next::Abandon => break,
        }
    }
    supervisor.start.world.trace(process, || "ends".into());
    supervisor.start.checker.died(process, supervisor.start.world.now());
}

/// What a process does that has an exclusive store open: it lets others in, and holds nothing.
pub async fn host(start: NodeStart, process: ProcessId) {
    let ttl = start.node.ttl;
    while !matches!(
        within(&start.machine, ttl.timeout(), bury_local(&start.store)).await,
        Some(Ok(_))
    ) {
        start.machine.sleep(ttl.pause()).await;
    }
    start.controls.opened.notify_one();
    loop {
        match Session::open(&start.store, &start.machine, &start.node).await {
            Ok((session, mut driver)) => {
                start.checker.lives_in(process, Some(session.key()));
                driver.run(|| true).await;
                start.checker.lives_in(process, None);
            }
            Err(_) => start.machine.sleep(start.node.ttl.pause()).await,
        }
    }
}

impl Supervisor {
    /// Opens a session. None if it was told to stop, or is refused.
    async fn join(&self, former: Option<&Session>) -> Option<(Session, SessionDriver)> {
        let start = &self.start;
        loop {
            let opened = tokio::select! {
                biased;
                () = start.controls.stop.notified() => return None,
                opened = Session::open_after(former, &start.store, &start.machine, &start.node) => opened,
            };
            match opened {
                Ok(opened) => {
                    start.world.trace(self.process, || format!("opened  {}", opened.0.key()));
                    return Some(opened);
                }
                Err(why @ SessionError::AlreadyLive { .. }) => {
                    start.world.trace(self.process, || format!("refused {why}"));
                    return None;
                }
                Err(_) => start.machine.sleep(start.node.ttl.pause()).await,
            }
        }
    }

    /// Campaigns and holds in one session. [`Next::Campaign`] if that has ended.
    async fn take_part(&mut self, session: &Session) -> Next {
        let claim = self.start.claim.clone();
        let mut candidacy = Candidacy::new(session, claim, self.start.mode);
        loop {
            let holding = match self.campaign(session, &mut candidacy).await {
                Ok(holding) => holding,
                Err(next) => return next,
            };
            match self.hold(session, &mut candidacy, holding).await {
                Next::Campaign => {}
                next @ (Next::Quit | Next::Abandon) => return next,
            }
        }
    }

    async fn campaign(
        &mut self,
        session: &Session,
        candidacy: &mut Candidacy,
    ) -> Result<Holding, Next> {
        let (controls, mut activity) = (self.start.controls.clone(), candidacy.activity());
        let mut campaign = pin!(candidacy.campaign());
        loop {
            tokio::select! {
                biased;
                () = controls.stop.notified() => {
                    self.tell_candidate(LifeInput::StopAsked);
                    return Err(Next::Quit);
                }
                won = &mut campaign => return match won {
                    Ok(holding) => Ok(holding),
                    Err(Defeat::Ended(_)) => Err(Next::Campaign),
                    Err(Defeat::Corrupt(why)) => panic!("nobody writes rubbish here: {why}"),
                },
                Ok(()) = activity.changed() => {
                    let seen = activity.borrow_and_update().clone();
                    self.sees(session, &seen);
                }
            }
        }
    }

    fn sees(&mut self, session: &Session, seen: &CandidateActivity) {
        let Some(standing) = &seen.standing else { return };
        let is_mine = standing.holder.as_ref() == Some(session.key());
        match (standing.state, self.life.state()) {
            (ClaimState::Waiting, LifeState::Candidate) if is_mine => {
                self.tell_candidate(LifeInput::Awaits);
            }
            (_, LifeState::WaitingForApproval) if !is_mine => {
                self.tell_candidate(LifeInput::AwaitsNoMore);
            }
            _ => {}
        }
    }

    /// Tells the life what happened while it has no claim.
    fn tell_candidate(&mut self, input: LifeInput) {
        let sight = LifeSight { now: self.start.machine.reading(), permit: None };
        let orders = self.life.step(input, sight);
        assert!(orders.iter().all(|order| *order == LifeOrder::Quit), "{orders:?}");
    }

    async fn hold(
        &mut self,
        session: &Session,
        candidacy: &mut Candidacy,
        holding: Holding,
    ) -> Next {
        let right = holding.right.clone();
        self.start.world.trace(self.process, || format!("holds   under {}", right.token().0));
        self.start.checker.holds(self.process, right.clone());
        let mut desk = Desk {
            session,
            right: right.clone(),
            tree: None,
            overdue: None,
            locking: None,
            lock: None,
            checking: None,
        };
        session.renew_soon();
        let left = self.attend(&mut desk).await;
        drop(desk);
        let next = match left {
            Left::Next(next) => next,
            Left::GiveUp(cause) => {
                self.start.world.trace(self.process, || format!("leaves  for {cause:?}"));
                let stop = self.start.controls.stop.clone();
                tokio::select! {
                    biased;
                    () = stop.notified() => {
                        self.life.step(LifeInput::StopAsked, sight(session, &right));
                    }
                    () = self.give_up(session, candidacy, holding) => {}
                }
                let orders = self.life.step(LifeInput::GivenUp, sight(session, &right));
                if orders.contains(&LifeOrder::Quit) { Next::Quit } else { Next::Campaign }
            }
        };
        self.start.checker.holds_no_more(self.process);
        next
    }

    async fn attend(&mut self, desk: &mut Desk<'_>) -> Left {
        let (right, start) = (desk.right.clone(), self.start.clone());
        let mut over = pin!(right.over());
        let mut is_over = false;
        let mut renewals = desk.session.renewals();
        renewals.borrow_and_update();
        let mut input = LifeInput::Claimed;
        loop {
            let former = self.life.state();
            for order in self.life.step(input, sight(desk.session, &right)) {
                start.world.trace(self.process, || format!("orders  {order:?}"));
                if let Some(left) = self.carry_out(desk, &order) {
                    return left;
                }
            }
            let state = self.life.state();
            if state != former {
                start.world.trace(self.process, || format!("is      {}", state.as_str()));
            }
            let now = start.machine.reading();
            let wakes_at =
                self.life.wakes_at(now).into_iter().chain(desk.overdue.map(|(at, _)| at));
            let wakes_in = wakes_at.min().map_or(SLEEP_MAX, |at| at.saturating_sub(now.boot));
            input = tokio::select! {
                biased;
                () = start.controls.stop.notified() => LifeInput::StopAsked,
                end = &mut over, if !is_over => {
                    is_over = true;
                    match end {
                        RightEnd::Wished => LifeInput::Wished,
                        RightEnd::Lost | RightEnd::Released => LifeInput::RightLost,
                    }
                }
                Ok(()) = renewals.changed() => {
                    renewals.borrow_and_update();
                    match desk.session.renewal() {
                        Some(sent) => LifeInput::Renewed { sent },
                        None => LifeInput::Tick,
                    }
                }
                news = hears(&mut desk.tree) => heard(desk, news),
                lock = done(&mut desk.locking) => {
                    desk.lock = Some(lock);
                    LifeInput::Locked
                }
                health = done(&mut desk.checking) => LifeInput::Checked(health),
                () = start.machine.sleep(wakes_in.clamp(SLEEP_MIN, SLEEP_MAX)) => {
                    self.look_for_shim(desk);
                    LifeInput::Tick
                }
            };
        }
    }

    /// Does what it is told, or begins it. Tells when nothing is left to do here.
    fn carry_out(&mut self, desk: &mut Desk<'_>, order: &LifeOrder) -> Option<Left> {
        let tell = |order| {
            if let Some(tree) = &desk.tree {
                tree.tell(order);
            }
        };
        match *order {
            LifeOrder::TakeLock => {
                desk.locking = Some(Box::pin(self.site.machine.clone().take_lock()));
            }
            LifeOrder::Start(deadline) => self.launch(desk, deadline),
            LifeOrder::Confirm(deadline) => {
                tell(TreeOrder::Confirm(deadline));
                desk.overdue = Some((deadline.kill_at + SHIM_LATE, 0));
            }
            LifeOrder::Stop { grace } => tell(TreeOrder::Stop { grace }),
            LifeOrder::Kill => tell(TreeOrder::Kill),
            LifeOrder::Check { limit } => self.check(desk, limit),
            LifeOrder::Raise(..) => self.site.checker.raised(),
            LifeOrder::GiveUp(cause) => return Some(Left::GiveUp(cause)),
            LifeOrder::Campaign => return Some(Left::Next(Next::Campaign)),
            LifeOrder::Quit => return Some(Left::Next(Next::Quit)),
            LifeOrder::Abandon => return Some(Left::Next(Next::Abandon)),
        }
        None
    }

    fn launch(&self, desk: &mut Desk<'_>, deadline: HoldDeadline) {
        let site = &self.site;
        let start = HoldStart {
            node: site.node,
            supervisor: self.process,
            session: Some(desk.session.key().key().clone()),
            token: desk.right.token().0,
        };
        let plan = TreePlan {
            start,
            kill: site.rules.timing.kill,
            habit: site.habit,
            dice: site.roll(Dice::fork),
            lock: desk.lock.take(),
        };
        desk.overdue = Some((deadline.kill_at + SHIM_LATE, 0));
        let (world, checker) = (&self.start.world, &site.checker);
        desk.tree = Some(SimTree::start(world, checker, &site.machine, plan, deadline));
    }

    /// A shim that is late was stopped by somebody.
    fn look_for_shim(&self, desk: &mut Desk<'_>) {
        let (Some(held), Some((at, times))) = (&desk.tree, &mut desk.overdue) else { return };
        if *at > self.start.machine.reading().boot {
            return;
        }
        *at = self.start.machine.reading().boot + SHIM_LATE;
        *times += 1;
        match (*times, self.site.rules.timing.kill) {
            (1, _) | (_, TreeKill::Search) => held.tree.continue_shim(),
            (_, TreeKill::Kernel) => held.tree.kill_shim(),
        }
    }

    fn check(&self, desk: &mut Desk<'_>, limit: Duration) {
        let (takes, is_well) = self.site.roll(|dice| (dice.between(0, 100), dice.chance(85)));
        let machine = Arc::clone(&self.start.machine);
        desk.checking = Some(Box::pin(async move {
            machine.sleep(limit * u32::try_from(takes).expect("a percentage") / 100).await;
            if is_well { Health::Good } else { Health::Bad }
        }));
    }

    /// Gives the claim up, to somebody in particular or to anybody. Nothing of the program is left.
    async fn give_up(&self, session: &Session, candidacy: &mut Candidacy, mut holding: Holding) {
        let given_up = match self.successor(session) {
            Some(to) => match holding.hand_over(&to, RawValue::NULL.to_owned()).await {
                Err(ChainError::Gone | ChainError::NotSent(_) | ChainError::Refused(_)) => {
                    candidacy.step_down(holding).await
                }
                done => done.map(|_| ()),
            },
            None => candidacy.step_down(holding).await,
        };
        self.start.world.trace(self.process, || format!("left    {given_up:?}"));
    }

    /// Whom somebody wishes to follow, now and then; it may be gone by now.
    fn successor(&self, session: &Session) -> Option<SessionKey> {
        let roster = session.roster();
        let roster = roster.borrow();
        let others = roster.live().map(|(key, _)| key).filter(|key| *key != session.key());
        let others: Vec<_> =
            others.filter(|key| Some(key.node()) != self.site.host.as_ref()).collect();
        let last = others.len().checked_sub(1)?;
        let at = self.site.roll(|dice| dice.between(0, 2 * last as u64 + 1));
        others.get(usize::try_from(at).ok()?).map(|key| (*key).clone())
    }
}

fn heard(desk: &mut Desk<'_>, news: TreeNews) -> LifeInput {
    match news {
        TreeNews::Started => return LifeInput::Started,
        TreeNews::NotStarted | TreeNews::Ended { .. } | TreeNews::LostSight => {
            (desk.tree, desk.overdue, desk.checking) = (None, None, None);
        }
    }
    match news {
        TreeNews::NotStarted => LifeInput::NotStarted,
        TreeNews::Ended { ran, is_unconfirmed, kill_late } => {
            LifeInput::Ended(TreeEnd { ran, is_unconfirmed, kill_late })
        }
        TreeNews::LostSight | TreeNews::Started => LifeInput::LostSight,
    }
}

fn sight(session: &Session, right: &Right) -> LifeSight {
    let permit = right.permit().map(|permit| permit.valid_for);
    LifeSight { now: session.machine().reading(), permit }
}

/// Waits until what was begun is done, if anything was.
async fn done<T>(work: &mut Option<Work<T>>) -> T {
    let Some(begun) = work else { return std::future::pending().await };
    let done = begun.await;
    *work = None;
    done
}

/// Waits until a tree is heard of, if there is one.
async fn hears(tree: &mut Option<HeldTree>) -> TreeNews {
    match tree {
        Some(tree) => tree.hears().await,
        None => std::future::pending().await,
    }
}

//! From having the claim to having nothing any more.
//!
//! One loop: whatever happens is told to the life, and what it orders is done at once or begun. Nothing in it waits for
//! anything but the next thing to happen, so a program that takes long to start, a lock that another one has, a health
//! command and a store that does not answer stand in nobody's way.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use engine::hold::life::{Health, LifeInput, LifeOrder, LifeSight, TreeEnd};
use engine::hold::record::{HandOverCause, RiskReason};
use engine::hold::timing::HoldDeadline;
use engine::limits::{ELECT_STOP_MAX, HOLD_RECORD_PAUSE};
use process::{Cause, Lost, Outcome, StartError, Tree};
use serde_json::value::RawValue;
use store::Class;
use store::chain::ChainError;
use store::election::{Candidacy, Holding, Right, RightEnd};
use store::session::Session;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::lock::{HadLock, LockError};
use crate::program::deadline;
use crate::signals::Told;
use crate::supervisor::{Next, Supervisor};

/// The longest that is slept at a time: what one waits by may stand still while the machine sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Something that was begun.
type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What there is while this node has the claim.
struct Desk<'a> {
    session: &'a Session,
    right: Right,
    tree: Option<Tree>,
    locking: Option<Work<Result<HadLock, LockError>>>,
    lock: Option<HadLock>,
    starting: Option<Work<Result<Tree, StartError>>>,
    checking: Option<Work<Health>>,
    /// Renewals of the session that were counted.
    renewed: u64,
}

/// What happened while there is a claim.
enum Event {
    Told(Told),
    Over(RightEnd),
    Renewed(u64),
    Ended(Result<Outcome, Lost>),
    Started(Box<Result<Tree, StartError>>),
    Locked(Result<HadLock, LockError>),
    Checked(Health),
    Tick,
}

/// What is left to do when nothing of the program is left.
enum Left {
    GiveUp(HandOverCause),
    Next(Next),
}

impl Supervisor<'_> {
    /// Runs the program as long as it may, as often as it must.
    pub(crate) async fn hold(
        &mut self,
        session: &Session,
        candidacy: &mut Candidacy,
        holding: Holding,
    ) -> Next {
        let right = holding.right.clone();
        self.story.claimed(&right, holding.head());
        let (leave, leaving) = oneshot::channel();
        let mut writer = pin!(write_records(holding, self.story.bodies(), leaving));
        let mut desk = Desk {
            session,
            right,
            tree: None,
            locking: None,
            lock: None,
            starting: None,
            checking: None,
            renewed: 0,
        };
        // So that there is a renewal that was sent after the claim was had, and not in a fifth of T.
        session.renew_soon();
        let left = self.attend(&mut desk, writer.as_mut()).await;
        let right = desk.right.clone();
        drop(desk);
        match left {
            Left::Next(next) => {
                self.story.gave_up(None);
                self.story.turns(self.life.state(), None);
                next
            }
            Left::GiveUp(cause) => {
                self.story.turns(self.life.state(), Some(cause));
                let _ = leave.send(());
                self.leave(session, &right, cause, give_up(candidacy, session, writer)).await
            }
        }
    }

    /// Gives the claim up, and goes on to whatever follows.
    async fn leave(
        &mut self,
        session: &Session,
        right: &Right,
        cause: HandOverCause,
        giving_up: impl Future<Output = ()>,
    ) -> Next {
        let patience = match cause {
            // The end of the session frees it as well.
            HandOverCause::Stopped => ELECT_STOP_MAX,
            HandOverCause::First
            | HandOverCause::Lost
            | HandOverCause::Resigned
            | HandOverCause::Exits
            | HandOverCause::Health => Duration::MAX,
        };
        tokio::select! {
            biased;
            () = self.signals.stopped() => {
                self.life.step(LifeInput::StopAsked, sight(session, right));
            }
            _ = timeout(patience, giving_up) => {}
        }
        self.story.gave_up(Some(cause));
        let orders = self.life.step(LifeInput::GivenUp, sight(session, right));
        self.story.turns(self.life.state(), None);
        if orders.contains(&LifeOrder::Quit) { Next::Quit } else { Next::Campaign }
    }

    /// The loop.
    async fn attend(
        &mut self,
        desk: &mut Desk<'_>,
        mut writer: Pin<&mut impl Future<Output = Option<Holding>>>,
    ) -> Left {
        let right = desk.right.clone();
        let mut over = pin!(right.over());
        let (mut is_over, mut is_moved) = (false, false);
        let mut renewals = desk.session.renewals();
        desk.renewed = renewals.borrow_and_update().renewed;
        let mut left = self.step(desk, LifeInput::Claimed);
        loop {
            if let Some(left) = left {
                return left;
            }
            let wakes_in = self.wakes_in(desk.session);
            let event = tokio::select! {
                biased;
                told = self.signals.next() => Event::Told(told),
                end = &mut over, if !is_over => {
                    is_over = true;
                    Event::Over(end)
                }
                Ok(()) = renewals.changed() => Event::Renewed(renewals.borrow_and_update().renewed),
                ended = ended(&mut desk.tree) => Event::Ended(ended),
                started = done(&mut desk.starting) => Event::Started(Box::new(started)),
                lock = done(&mut desk.locking) => Event::Locked(lock),
                health = done(&mut desk.checking) => Event::Checked(health),
                _ = &mut writer, if !is_moved => {
                    is_moved = true;
                    Event::Over(RightEnd::Lost)
                }
                () = sleep(wakes_in) => Event::Tick,
            };
            // What time alone has changed comes first, so that it is seen: the process may have been stopped.
            left = self.step(desk, LifeInput::Tick);
            if left.is_none() {
                let input = self.input(desk, event);
                left = self.step(desk, input);
            }
        }
    }

    /// Tells the life what happened, and does what it orders. Tells when nothing is left to do here.
    fn step(&mut self, desk: &mut Desk<'_>, input: LifeInput) -> Option<Left> {
        for order in self.life.step(input, sight(desk.session, &desk.right)) {
            if let Some(left) = self.carry_out(desk, order) {
                return Some(left);
            }
        }
        self.story.turns(self.life.state(), self.life.leaves_for());
        None
    }

    /// What an event is to the life; it is shown here, and what came with it is put in its place.
    fn input(&mut self, desk: &mut Desk<'_>, event: Event) -> LifeInput {
        match event {
            Event::Told(Told::Stop) => LifeInput::StopAsked,
            Event::Told(Told::StopAtOnce) => LifeInput::KillAsked,
            Event::Told(Told::Other(signal)) => {
                match &mut desk.tree {
                    Some(tree) => tree.signal(signal),
                    None => {
                        tracing::debug!(
                            ?signal,
                            "no program runs that a signal could be passed on to"
                        );
                    }
                }
                LifeInput::Tick
            }
            Event::Over(end) => self.over(desk.session, end),
            Event::Renewed(renewed) => {
                let more = renewed - std::mem::replace(&mut desk.renewed, renewed);
                self.sight.count(|figures| figures.renewals += more);
                desk.session.renewal().map_or(LifeInput::Tick, |sent| LifeInput::Renewed { sent })
            }
            Event::Ended(ended) => self.ended(desk, ended),
            Event::Started(started) => self.started(desk, *started),
            Event::Locked(Ok(lock)) => {
                desk.lock = Some(lock);
                LifeInput::Locked
            }
            Event::Locked(Err(why)) => {
                self.story.not_started(&why.to_string());
                LifeInput::NotLocked
            }
            Event::Checked(health) => {
                if health == Health::Bad {
                    self.sight.count(|figures| figures.unhealthy += 1);
                }
                LifeInput::Checked(health)
            }
            Event::Tick => LifeInput::Tick,
        }
    }

    fn wakes_in(&self, session: &Session) -> Duration {
        let now = session.machine().reading();
        let wakes_at = self.life.wakes_at(now);
        wakes_at.map_or(SLEEP_MAX, |at| at.saturating_sub(now.boot).min(SLEEP_MAX))
    }

    /// Does what it is told, or begins it. Tells when nothing is left to do here.
    fn carry_out(&mut self, desk: &mut Desk<'_>, order: LifeOrder) -> Option<Left> {
        match order {
            LifeOrder::TakeLock => desk.locking = Some(Box::pin(self.plan.lock.clone().take())),
            LifeOrder::Start(until) => self.start(desk, until),
            LifeOrder::Confirm(until) => {
                self.plan.deadline.set(desk.right.token(), until.kill_at);
                if let Some(tree) = &mut desk.tree {
                    tree.confirm(deadline(until));
                }
            }
            LifeOrder::Stop { grace } => {
                desk.checking = None;
                if let Some(tree) = &mut desk.tree {
                    tree.stop(grace);
                }
            }
            LifeOrder::Kill => {
                if let Some(tree) = &mut desk.tree {
                    tree.kill();
                }
            }
            LifeOrder::Check { limit } => self.check(desk, limit),
            LifeOrder::Raise(reason, what) => self.story.raises(reason, &what),
            LifeOrder::GiveUp(cause) => return Some(Left::GiveUp(cause)),
            LifeOrder::Campaign => return Some(Left::Next(Next::Campaign)),
            LifeOrder::Quit => return Some(Left::Next(Next::Quit)),
            LifeOrder::Abandon => return Some(Left::Next(Next::Abandon)),
        }
        None
    }

    fn start(&mut self, desk: &mut Desk<'_>, until: HoldDeadline) {
        let (plan, token) = (self.plan, desk.right.token());
        plan.deadline.set(token, until.kill_at);
        let program = plan.program.under(plan, token);
        let program = program.deadline(deadline(until));
        let launcher = plan.launcher(desk.lock.take().expect("nothing starts without the lock"));
        let (settled, streams) = (plan.deadline.settled(), Arc::clone(&plan.streams));
        desk.starting = Some(Box::pin(async move {
            settled.await;
            launcher.start_on(&streams, &program).await
        }));
    }

    fn started(&mut self, desk: &mut Desk<'_>, started: Result<Tree, StartError>) -> LifeInput {
        match started {
            Ok(tree) => {
                self.story.started(&tree, desk.session.machine().reading());
                desk.tree = Some(tree);
                LifeInput::Started
            }
            Err(why) => {
                self.story.not_started(&why.to_string());
                LifeInput::NotStarted
            }
        }
    }

    fn ended(&mut self, desk: &mut Desk<'_>, ended: Result<Outcome, Lost>) -> LifeInput {
        (desk.tree, desk.checking) = (None, None);
        match ended {
            Ok(outcome) => {
                self.story.exited(&outcome);
                LifeInput::Ended(TreeEnd {
                    ran: outcome.duration,
                    is_unconfirmed: outcome.cause == Cause::Unconfirmed,
                    kill_late: outcome.kill_late,
                })
            }
            Err(Lost) => LifeInput::LostSight,
        }
    }

    fn check(&mut self, desk: &mut Desk<'_>, limit: Duration) {
        let (plan, health) = (self.plan, Arc::clone(&self.health));
        let line = plan.health.as_ref().expect("nobody asks otherwise");
        let program = plan.program.shell(line, plan, desk.right.token());
        desk.checking = Some(Box::pin(async move { health.run(&program, limit).await }));
    }

    fn over(&mut self, session: &Session, end: RightEnd) -> LifeInput {
        match end {
            RightEnd::Wished => LifeInput::Wished,
            RightEnd::Lost | RightEnd::Released => {
                // The session is there, so it was the store.
                if session.end().is_none() && session.store().class() == Class::B {
                    let what = "the store failed over, and may have forgotten what it acknowledged";
                    self.story.raises(RiskReason::ForgetfulStore, what);
                }
                LifeInput::RightLost
            }
        }
    }
}

fn sight(session: &Session, right: &Right) -> LifeSight {
    let permit = right.permit().map(|permit| permit.valid_for);
    LifeSight { now: session.machine().reading(), permit }
}

/// Waits until what was begun is done, if anything was. May be dropped, and called again.
async fn done<T>(work: &mut Option<Work<T>>) -> T {
    let Some(begun) = work else { return std::future::pending().await };
    let done = begun.await;
    *work = None;
    done
}

/// Waits until a tree is empty, if there is one.
async fn ended(tree: &mut Option<Tree>) -> Result<Outcome, Lost> {
    match tree {
        Some(tree) => tree.ended().await,
        None => std::future::pending().await,
    }
}

/// Gives the claim up, to whom somebody wishes that it goes or to anybody. Nothing of the program is left.
async fn give_up(
    candidacy: &mut Candidacy,
    session: &Session,
    writer: Pin<&mut impl Future<Output = Option<Holding>>>,
) {
    // What is shown last is worth a moment, and no more.
    let written = timeout(session.ttl().timeout(), writer).await;
    let given_up = match written.ok().flatten() {
        Some(holding) => {
            // Whoever wished so may have seen a candidate that this node has yet to see.
            if let Some(to) = holding.right.wished_to() {
                let mut roster = session.roster();
                let looking = async {
                    while candidacy.successor(to).is_none() && roster.changed().await.is_ok() {}
                };
                let _ = timeout(session.ttl().timeout(), looking).await;
            }
            candidacy.step_down(holding).await
        }
        None => candidacy.leave().await,
    };
    if let Err(why) = given_up {
        tracing::debug!(%why, "the claim was not given up: it is somebody else's, or the session has ended");
    }
}

/// Writes what is shown of the hold into the head, not more often than makes sense, and gives the claim back when it is told
/// to leave: what was shown last is written then. Nothing if the claim is not this node's any more.
async fn write_records(
    mut holding: Holding,
    mut bodies: watch::Receiver<Option<Box<RawValue>>>,
    mut leaving: oneshot::Receiver<()>,
) -> Option<Holding> {
    bodies.mark_changed();
    loop {
        let is_last = tokio::select! {
            biased;
            _ = &mut leaving => true,
            Ok(()) = bodies.changed() => false,
        };
        let body = bodies.borrow_and_update().clone();
        let next = async {
            let is_ours = is_last || wrote(holding.commit(body, Vec::new()).await);
            if is_ours && !is_last {
                sleep(HOLD_RECORD_PAUSE).await;
            }
            is_ours
        };
        let is_told = tokio::select! {
            biased;
            is_ours = next => {
                if !is_ours {
                    return None;
                }
                is_last
            }
            _ = &mut leaving, if !is_last => true,
        };
        if is_told {
            // What is open from before is written first.
            let body = bodies.borrow_and_update().clone();
            return wrote(holding.commit(body, Vec::new()).await).then_some(holding);
        }
    }
}

/// Whether the claim is still this node's.
fn wrote(done: Result<store::Version, ChainError>) -> bool {
    match done {
        Ok(_) => true,
        Err(ChainError::Moved | ChainError::Gone) => false,
        Err(why @ (ChainError::Refused(_) | ChainError::NotSent(_) | ChainError::Corrupt(_))) => {
            tracing::warn!(%why, "what is shown of the hold could not be written");
            true
        }
    }
}

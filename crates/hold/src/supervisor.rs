//! A supervisor from its first session to its last.
//!
//! A session that is lost is followed by another one, as soon as nothing of the program is left that ran under it. The
//! session is kept beside everything else: whatever the supervisor waits for, renewals go on.

use std::sync::Arc;

use engine::hold::life::{Life, LifeInput, LifeOrder, LifeSight, LifeState};
use engine::limits::ELECT_STOP_MAX;
use store::claim::ClaimState;
use store::election::{Candidacy, CandidateActivity, Defeat, Holding};
use store::machine::{Machine, System};
use store::session::{Roster, Session, SessionDriver};
use tokio::time::{sleep, timeout};

use crate::health::HealthCheck;
use crate::signals::Told;
use crate::story::Story;
use crate::{HoldPlan, HoldSight, Signals, Tell};

/// How a supervisor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldEnd {
    /// It was told to, and has given up what it had.
    Told,
    /// It was told to, and something of its program may be left: whoever follows waits until the session's time is over.
    Abandoned,
}

/// What follows a campaign, or a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Campaign,
    Quit,
    Abandon,
}

/// A supervisor.
pub(crate) struct Supervisor<'a> {
    pub(crate) plan: &'a HoldPlan,
    pub(crate) life: Life,
    pub(crate) story: Story<'a>,
    pub(crate) sight: Arc<HoldSight>,
    pub(crate) signals: Signals,
    pub(crate) health: Arc<HealthCheck>,
}

/// Holds the program whenever it may, until it is told to stop. `join` opens a session, however long that takes, after the
/// former one that it is given.
pub async fn supervise<E>(
    plan: &HoldPlan,
    mut join: impl AsyncFnMut(Option<&Session>) -> Result<(Session, SessionDriver), E>,
    signals: Signals,
    tell: &Tell<'_>,
    sight: &Arc<HoldSight>,
) -> Result<HoldEnd, E> {
    let mut supervisor = Supervisor {
        plan,
        life: Life::new(plan.rules.clone()),
        story: Story::new(plan, tell, Arc::clone(sight)),
        sight: Arc::clone(sight),
        signals,
        health: Arc::new(HealthCheck::new(plan.isolation)),
    };
    let mut former: Option<Session> = None;
    loop {
        let (session, mut driver) = tokio::select! {
            biased;
            () = supervisor.signals.stopped() => return Ok(HoldEnd::Told),
            joined = join(former.as_ref()) => joined?,
        };
        former = Some(session.clone());
        let keeping = async {
            driver.run(|| true).await;
            std::future::pending::<()>().await;
        };
        let next = tokio::select! {
            biased;
            () = keeping => unreachable!("it has no end"),
            next = supervisor.take_part(&session) => next,
        };
        match next {
            Next::Campaign => {}
            Next::Quit => {
                // If the store is away, others will bury it.
                let _ = timeout(ELECT_STOP_MAX, session.close()).await;
                return Ok(HoldEnd::Told);
            }
            Next::Abandon => return Ok(HoldEnd::Abandoned),
        }
    }
}

impl Supervisor<'_> {
    /// Campaigns and holds in one session. [`Next::Campaign`] if that has ended.
    async fn take_part(&mut self, session: &Session) -> Next {
        let mut candidacy = Candidacy::new(session, self.plan.claim.clone(), self.plan.mode);
        self.story.campaigns(session.key());
        // Others count it among the candidates once it was renewed.
        session.renew_soon();
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

    /// Waits until it has the claim and may act.
    async fn campaign(
        &mut self,
        session: &Session,
        candidacy: &mut Candidacy,
    ) -> Result<Holding, Next> {
        let mut activity = candidacy.activity();
        let mut roster = session.roster();
        let (mut seen, mut at) = (CandidateActivity::default(), None);
        self.sees(session, &mut seen, &activity.borrow_and_update().clone());
        loop {
            let mut campaign = std::pin::pin!(candidacy.campaign());
            let won = loop {
                tokio::select! {
                    biased;
                    told = self.signals.next() => match told {
                        Told::Stop | Told::StopAtOnce => {
                            self.tell_life(LifeInput::StopAsked);
                            return Err(Next::Quit);
                        }
                        Told::Other(_) => {}
                    },
                    won = &mut campaign => break won,
                    Ok(()) = activity.changed() => {
                        let now = activity.borrow_and_update().clone();
                        self.sees(session, &mut seen, &now);
                    }
                    Ok(()) = roster.changed() => {
                        let roster = roster.borrow_and_update().clone();
                        self.follow_holder(&seen, &roster, &mut at);
                    }
                }
            };
            match won {
                Ok(holding) => return Ok(holding),
                Err(Defeat::Ended(_)) => return Err(Next::Campaign),
                Err(why @ Defeat::Corrupt(_)) => {
                    tracing::error!(%why, hold = self.plan.name, "cannot campaign");
                    tokio::select! {
                        biased;
                        () = self.signals.stopped() => {
                            self.tell_life(LifeInput::StopAsked);
                            return Err(Next::Quit);
                        }
                        () = sleep(session.ttl().length().min(ELECT_STOP_MAX)) => {}
                    }
                }
            }
        }
    }

    /// Tells what a look showed.
    fn sees(&mut self, session: &Session, seen: &mut CandidateActivity, now: &CandidateActivity) {
        let former = std::mem::replace(seen, now.clone());
        let Some(standing) = &now.standing else { return };
        let is_mine = standing.holder.as_ref() == Some(session.key());
        match (standing.state, self.life.state()) {
            (ClaimState::Waiting, LifeState::Candidate) if is_mine => {
                self.tell_life(LifeInput::Awaits);
                self.story.awaits(standing.token.0);
            }
            (_, LifeState::WaitingForApproval) if !is_mine => {
                self.tell_life(LifeInput::AwaitsNoMore);
                self.story.turns(LifeState::Candidate, None);
            }
            _ => {}
        }
        if former.standing.as_ref().is_none_or(|former| former.holder != standing.holder) {
            self.story.sees(standing, session.key());
        }
    }

    /// Notes that the session of whoever has the claim was seen to move.
    fn follow_holder(
        &mut self,
        seen: &CandidateActivity,
        roster: &Roster,
        at: &mut Option<store::Version>,
    ) {
        let holder = seen.standing.as_ref().and_then(|standing| standing.holder.as_ref());
        let Some(holder) = holder else { return };
        let version = roster.version(holder);
        if version.is_some() && version != *at {
            *at = version;
            self.story.is_alive(holder);
        }
    }

    /// Tells the life what happened while it has no claim, so that nothing is to be done about it but to quit.
    fn tell_life(&mut self, input: LifeInput) {
        let sight = LifeSight { now: System.reading(), permit: None };
        let orders = self.life.step(input, sight);
        debug_assert!(orders.iter().all(|order| *order == LifeOrder::Quit), "{orders:?}");
    }
}

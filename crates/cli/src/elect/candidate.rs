//! A candidate from its first session to its last: campaign, lead, stop.
//!
//! It says that it leads from when it may act for at least half of T, until its right ends or is about to: when no
//! renewal was acknowledged for four fifths of T, a fifth of it is left to stop in. Both are judged by its own clocks.
//! A lapse is no loss: if nobody took the claim meanwhile, it leads again under the same token.

use std::sync::Arc;

use engine::limits::ELECT_STOP_MAX;
use serde_json::json;
use store::chain::ChainError;
use store::election::{
    Candidacy, CandidateActivity, ClaimStanding, Defeat, Holding, Permit, Right, RightEnd,
};
use store::session::{RenewalStats, Session};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::board::{Board, margin};
use super::hook::HookHandle;
use super::plan::CandidatePlan;
use super::voice::{ElectMoment, Voice};
use crate::exit::Ending;
use crate::joining::Joining;

/// Why a leader stops when all is well.
const TOLD: &str = "it was told to stop";

/// A candidate, from its start to its end.
pub(super) struct Candidate<'a> {
    pub(super) plan: &'a CandidatePlan,
    pub(super) voice: &'a Voice,
    pub(super) board: Arc<Board>,
    pub(super) hooks: HookHandle,
    /// How often it was told to stop.
    pub(super) stops: watch::Receiver<u32>,
    /// What the mirror shows.
    pub(super) shown: watch::Sender<Option<Right>>,
}

/// Why it leads no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Stopped,
    Wished,
    Lost,
}

impl Candidate<'_> {
    /// Takes part until it is told to stop. Ends before only if something is wrong at the start.
    pub(super) async fn run(&self) -> Result<(), Ending> {
        let trouble = |why: &str| self.voice.log(ElectMoment::CannotCreate, Some(why));
        let CandidatePlan { url, claim, node, wait, .. } = self.plan;
        let joining = Joining { url, claim, node, wait: *wait, trouble: &trouble };
        let store = tokio::select! {
            biased;
            () = self.stopped() => return Ok(()),
            opened = joining.open() => opened?,
        };
        let mut former = None;
        loop {
            let (session, mut keeper) = tokio::select! {
                biased;
                () = self.stopped() => return Ok(()),
                joined = joining.session(&store, former.as_ref()) => joined?,
            };
            self.begins(&session, former.is_none());
            former = Some(session.clone());
            let is_stopped = tokio::select! {
                biased;
                _ = keeper.run(|| true) => false,
                () = self.take_part(&session) => true,
            };
            self.leads_no_more("the session was lost");
            if is_stopped {
                self.voice.log(ElectMoment::Closing, None);
                // If the store is away, others will bury it.
                let _ = timeout(ELECT_STOP_MAX, session.close()).await;
                return Ok(());
            }
        }
    }

    fn begins(&self, session: &Session, is_first: bool) {
        if is_first {
            self.voice.log(ElectMoment::Created, None);
        } else {
            tracing::info!(session = %session.key(), "a new session is opened");
        }
        let words = format!("{} campaigns for {}", self.voice.node, self.voice.election);
        self.voice.tell("candidate", &words, json!({ "session": session.key().to_string() }));
    }

    /// Campaigns and leads in one session, until it is told to stop and has given up what it had.
    async fn take_part(&self, session: &Session) {
        let claim = self.plan.claim.clone();
        let mut election = Candidacy::new(session, claim, store::election::Mode::Automatic);
        if let Some(interval) = self.plan.interval {
            election = election.checking_every(interval);
        }
        let following = self.follow(session, session.renewals(), election.activity());
        tokio::select! {
            biased;
            () = following => unreachable!("it has no end"),
            () = self.contend(session, &mut election) => {}
        }
    }

    async fn contend(&self, session: &Session, election: &mut Candidacy) {
        loop {
            let won = tokio::select! {
                biased;
                () = self.stopped() => {
                    self.voice.log(ElectMoment::Ending, None);
                    return;
                }
                won = election.campaign() => won,
            };
            let mut holding = match won {
                Ok(holding) => holding,
                // The keeper says so too, and ends this.
                Err(Defeat::Ended(_)) => std::future::pending().await,
                Err(why @ Defeat::Corrupt(_)) => {
                    self.voice.log(ElectMoment::CannotCreate, Some(&why.to_string()));
                    sleep(session.ttl().length().min(ELECT_STOP_MAX)).await;
                    continue;
                }
            };
            self.board.claimed.inc();
            match self.lead(session, &holding.right).await {
                Finish::Stopped => {
                    self.voice.log(ElectMoment::Ending, None);
                    self.hooks_done().await;
                    // If the store is away, the end of the session frees it as well.
                    let _ = timeout(ELECT_STOP_MAX, holding.release()).await;
                    return;
                }
                Finish::Wished => tokio::select! {
                    biased;
                    // It has stopped to act; the end of the session frees the claim.
                    () = self.stopped() => return self.hooks_done().await,
                    done = self.make_room(election, holding) => if let Err(why) = done {
                        tracing::warn!(%why, "the claim was not given up");
                    },
                },
                Finish::Lost => {}
            }
        }
    }

    /// Gives up what it has when it has stopped to act, and lets others go first.
    async fn make_room(
        &self,
        election: &mut Candidacy,
        holding: Holding,
    ) -> Result<(), ChainError> {
        self.hooks.settled().await;
        election.step_down(holding).await
    }

    /// Leads while it may, as often as it may.
    async fn lead(&self, session: &Session, right: &Right) -> Finish {
        let patience = session.ttl().length().saturating_sub(margin(session.ttl()));
        loop {
            let finish = tokio::select! {
                biased;
                () = self.stopped() => Some(Finish::Stopped),
                over = right.over() => Some(over.into()),
                () = may_begin(session, right) => None,
            };
            if let Some(finish) = finish {
                return finish;
            }
            self.leads(right);
            let (finish, why) = tokio::select! {
                biased;
                () = self.stopped() => (Some(Finish::Stopped), TOLD),
                over = right.over() => (Some(over.into()), of_over(over)),
                () = session.unrenewed_for(patience) => {
                    (None, "no renewal was acknowledged in time")
                }
            };
            self.leads_no_more(why);
            if let Some(finish) = finish {
                return finish;
            }
        }
    }

    fn leads(&self, right: &Right) {
        let Some(Permit { token, valid_for }) = right.permit() else { return };
        self.board.leads(right);
        self.hooks.change(Some(right));
        self.shown.send_replace(Some(right.clone()));
        self.voice.log(ElectMoment::Becoming, Some(&format!("token {}", token.0)));
        let millis = valid_for.as_millis();
        let words = format!("{} leads, token {}, valid for {millis} ms", self.voice.node, token.0);
        let facts = json!({ "token": token.0, "valid_for_ms": millis });
        self.voice.tell("elected", &words, facts);
    }

    fn leads_no_more(&self, why: &str) {
        let Some(right) = self.board.leads_no_more() else { return };
        self.hooks.change(None);
        self.shown.send_replace(None);
        let (election, node, token) = (&*self.voice.election, &*self.voice.node, right.token().0);
        if why == TOLD {
            tracing::info!(election, node, token, why, "leads no more");
        } else {
            tracing::warn!(election, node, token, why, "leads no more");
        }
        let words = format!("{node} leads no more, token {token}: {why}");
        self.voice.tell("lost", &words, json!({ "token": token, "why": why }));
    }

    /// Counts and tells what goes on.
    async fn follow(
        &self,
        session: &Session,
        mut pulse: watch::Receiver<RenewalStats>,
        mut sightings: watch::Receiver<CandidateActivity>,
    ) {
        let (mut beat, mut seen) =
            (pulse.borrow_and_update().clone(), CandidateActivity::default());
        loop {
            tokio::select! {
                biased;
                Ok(()) = pulse.changed() => {
                    let now = pulse.borrow_and_update().clone();
                    self.beats(&beat, &now);
                    beat = now;
                }
                Ok(()) = sightings.changed() => {
                    let now = sightings.borrow_and_update().clone();
                    self.sees(session, &seen, &now);
                    seen = now;
                }
                else => std::future::pending().await,
            }
        }
    }

    fn beats(&self, former: &RenewalStats, now: &RenewalStats) {
        if now.renewed > former.renewed && self.board.permit().is_some() {
            self.board.refreshed.inc_by(now.renewed - former.renewed);
            // What shows who leads lasts no longer than what it shows.
            self.shown.send_modify(|_| {});
            self.voice.log(ElectMoment::Refreshing, None);
        }
        // Once for each time that it goes wrong, however long.
        if let (None, Some(why)) = (&former.trouble, &now.trouble) {
            self.voice.log(ElectMoment::CannotWrite, Some(why));
        }
    }

    fn sees(&self, session: &Session, former: &CandidateActivity, now: &CandidateActivity) {
        self.board.read.inc_by(now.looks - former.looks);
        if now.takes > former.takes {
            self.voice.log(ElectMoment::Writing, None);
        }
        if now.failures > former.failures && former.trouble != now.trouble {
            self.voice.log(ElectMoment::CannotWrite, now.trouble.as_deref());
        }
        let Some(ClaimStanding { holder, token, .. }) = &now.standing else { return };
        if former.standing.as_ref().is_some_and(|former| former.holder == *holder) {
            return;
        }
        match holder {
            Some(holder) if holder == session.key() => {}
            Some(holder) => {
                let words = format!("{} has the claim, token {}", holder.node(), token.0);
                let facts = json!({ "holder": holder.node().as_str(), "token": token.0 });
                self.voice.tell("leader", &words, facts);
            }
            None => self.voice.tell("vacant", "nobody has the claim", json!({ "token": token.0 })),
        }
    }

    /// Waits until it is told to stop.
    async fn stopped(&self) {
        told(&self.stops, 1).await;
    }

    /// Waits for hooks at the end; who says it twice has no time for them.
    async fn hooks_done(&self) {
        tokio::select! {
            biased;
            () = self.hooks.settled() => {}
            () = told(&self.stops, 2) => tracing::warn!("told to stop twice: hooks are not waited for"),
        }
    }
}

/// Waits until it was told so often.
async fn told(stops: &watch::Receiver<u32>, times: u32) {
    if stops.clone().wait_for(|stops| *stops >= times).await.is_err() {
        // Nobody is left to tell it.
        std::future::pending::<()>().await;
    }
}

/// Waits until there is enough time left to begin with.
async fn may_begin(session: &Session, right: &Right) {
    let mut pulse = session.renewals();
    let enough = session.ttl().length() / 2;
    while right.permit().is_none_or(|permit| permit.valid_for <= enough) {
        // A permit may also come back because a quarantine ends.
        let _ = timeout(session.ttl().poll(), pulse.changed()).await;
    }
}

impl From<RightEnd> for Finish {
    fn from(over: RightEnd) -> Self {
        match over {
            RightEnd::Wished => Self::Wished,
            RightEnd::Lost | RightEnd::Released => Self::Lost,
        }
    }
}

fn of_over(over: RightEnd) -> &'static str {
    match over {
        RightEnd::Wished => "somebody wishes that it leaves",
        RightEnd::Lost => {
            "the claim or the session is not its own any more, or the store failed over"
        }
        RightEnd::Released => "it was given up",
    }
}

//! Elections: a claim, somebody who wants it, and the right to act that comes with it.
//!
//! A candidate looks first and writes only when the claim is free. Whoever has it gets a [`Holding`]:
//! a [`Chain`] to write with, and a [`Right`] to act, which is never a bare yes: it is a token and a time
//! for which it is good. The same type serves leaderships, held processes and shards.
//!
//! A right is good while the session is valid by its own clock, and while the store is in the epoch in
//! which the claim was taken. When the epoch changes, the claim may have been forgotten though the
//! session lives on, or given to somebody else by a primary that did not know yet; so the right is over,
//! and the claim is taken anew, under a new token, after the quarantine.

mod activity;
mod right;

use std::time::Duration;

use engine::lease::{Reading, Token};
use engine::mutant::{self, Mutant};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::chain::{Chain, ChainError};
use crate::claim::{Claim, ClaimError, ClaimState, ClaimView, Head, Wish};
use crate::machine::within;
use crate::session::{NodeId, Roster, Session, SessionEnd, SessionKey};
use crate::{Hints, Refusal, ScanError};

use activity::ActivityLog;
pub use activity::CandidateActivity;
use right::release;
pub use right::{HolderWrites, Holding, Permit, Right, RightEnd};

/// The claim of a leadership: what all candidates for it campaign for.
pub fn claim_of(project: &str, name: &str) -> Result<Claim, Refusal> {
    Claim::new(format!("election/{project}/{name}"))
}

/// How a candidate becomes a holder that may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It may act at once.
    Automatic,
    /// It may act when a person has approved it.
    Manual,
}

/// A candidacy for one claim.
pub struct Candidacy {
    session: Session,
    claim: Claim,
    mode: Mode,
    hints: Hints,
    roster: watch::Receiver<Roster>,
    /// When it looked last.
    looked: Reading,
    /// How often it looks, if no hint comes.
    interval: Option<Duration>,
    log: ActivityLog,
    /// The token that it gave up because somebody wished so, and when: others go first.
    yielded: Option<(Token, Reading)>,
    /// What a take was conditional on that was never answered. It may still land.
    unclear: Option<ClaimView>,
}

/// Who has a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimStanding {
    /// The session of whoever has it.
    pub holder: Option<SessionKey>,
    /// Under which token, or the last one.
    pub token: Token,
    /// Whether it may act.
    pub state: ClaimState,
}

impl From<&Head> for ClaimStanding {
    fn from(head: &Head) -> Self {
        Self { holder: head.session.clone(), token: head.token(), state: head.state }
    }
}

/// Why there is nothing to campaign for any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defeat {
    /// The session has ended: open a new one.
    #[error("the session has ended")]
    Ended(SessionEnd),
    /// The claim cannot be read: have a person look, or upgrade.
    #[error("the claim cannot be read: {0}")]
    Corrupt(String),
}

/// What a candidate does next.
enum CandidateStep {
    Take,
    Wait(Duration),
}

/// Why one look, and one try to take what was seen, gave nothing.
enum Later {
    /// It is not to be had: look again when there is a hint, and not later than this.
    Wait(Duration),
    /// Nothing may be had for so long.
    Quarantine(Duration),
    /// Somebody was quicker, or the store gave no clear answer: look again soon.
    Pause,
}

impl Candidacy {
    /// A candidacy of this session.
    pub fn new(session: &Session, claim: Claim, mode: Mode) -> Self {
        let hints = session.store().watch(claim.key().as_str());
        let (roster, looked) = (session.roster(), session.machine().reading());
        let session = session.clone();
        let (interval, log) = (None, ActivityLog::default());
        let (yielded, unclear) = (None, None);
        Self { session, claim, mode, hints, roster, looked, interval, log, yielded, unclear }
    }

    /// Sets how often it looks at the claim if no hint comes: while it campaigns instead of every T/10, and as
    /// holder instead of every T/2.
    #[must_use]
    pub fn checking_every(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// What it saw and did, and word when there is something new: for people to see.
    pub fn activity(&self) -> watch::Receiver<CandidateActivity> {
        self.log.follow()
    }

    /// Waits until this node has the claim and may begin, or its session has ended. May be dropped at
    /// any moment; call it again, or [`Candidacy::leave`].
    pub async fn campaign(&mut self) -> Result<Holding, Defeat> {
        let session = self.session.clone();
        tokio::select! {
            biased;
            end = session.ended() => Err(Defeat::Ended(end)),
            won = self.win() => won,
        }
    }

    /// Looks once, and takes the claim if it is free or names this session: by the same rules as
    /// [`Candidacy::campaign`], and without waiting for anything but the store. `None` if it is not to be had
    /// now. May be dropped at any moment, like a campaign.
    pub async fn try_take(&mut self) -> Result<Option<Holding>, Defeat> {
        assert_eq!(self.mode, Mode::Automatic, "an approval is waited for in a campaign");
        if let Some(end) = self.session.end() {
            return Err(Defeat::Ended(end));
        }
        match self.attempt().await? {
            Ok(chain) => Ok(Some(self.hold(chain))),
            Err(Later::Wait(_) | Later::Quarantine(_) | Later::Pause) => Ok(None),
        }
    }

    /// Gives up what it has because somebody wished so: to the one that the wish names, with the body as it is, if that one is
    /// there and takes it. Else it lets others go first for a while.
    pub async fn step_down(&mut self, mut holding: Holding) -> Result<(), ChainError> {
        self.yielded = Some((holding.right.token(), self.session.machine().reading()));
        let to = holding.right.wished_to().and_then(|to| self.successor(to));
        if let Some(to) = to {
            let body = body_of(holding.head());
            match holding.hand_over(&to, body).await {
                Ok(_) => return Ok(()),
                Err(why @ (ChainError::Gone | ChainError::NotSent(_) | ChainError::Refused(_))) => {
                    tracing::warn!(%why, successor = %to, claim = %self.claim.key(), "the claim could not be handed over, and is freed");
                }
                Err(why @ (ChainError::Moved | ChainError::Corrupt(_))) => return Err(why),
            }
        }
        holding.release().await
    }

    /// The session of a node that campaigns for the same claim, as the last look at all sessions showed: whom a holder may
    /// hand over to.
    pub fn successor(&self, node: &NodeId) -> Option<SessionKey> {
        let roster = self.session.roster();
        let roster = roster.borrow();
        let mut candidates = roster.candidates(self.claim.candidacy()?);
        candidates.find(|key| key.node() == node && *key != self.session.key()).cloned()
    }

    /// Ends the candidacy while the session lives on: makes sure that this node neither has the claim
    /// nor gets it later by a commit that is still on its way.
    pub async fn leave(&mut self) -> Result<(), ChainError> {
        // Whatever right it had is over, also if somebody kept it.
        self.session.rescind(self.claim.key());
        loop {
            if self.session.end().is_some() {
                return Ok(());
            }
            let Some(seen) = self.look().await.map_err(ChainError::Corrupt)? else {
                self.pause().await;
                continue;
            };
            if seen.head.session.as_ref() == Some(self.session.key()) {
                // Not an adoption: nothing is done under it, so no quarantine matters.
                let Some(version) = seen.version else { return Ok(()) };
                let (claim, epoch) = (self.claim.clone(), self.session.store().epoch());
                let mut chain = Chain::new(claim, &self.session, seen.head, version, epoch);
                match chain.release().await {
                    Ok(_) => return Ok(()),
                    // A commit of ours was on its way, or the read was old: look again.
                    Err(ChainError::Moved | ChainError::NotSent(_)) => self.pause().await,
                    Err(why) => return Err(why),
                }
                continue;
            }
            if self.unclear.as_ref().is_none_or(|sent| seen.version > sent.version) {
                // The head has moved on since our last attempt, which can no longer land.
                self.unclear = None;
                return Ok(());
            }
            self.bump(&seen).await;
        }
    }

    /// Who has the claim, if that can be read now.
    pub async fn standing(&self) -> Option<ClaimStanding> {
        self.look().await.ok()?.map(|seen| (&seen.head).into())
    }

    /// Waits until holder, token or state of the claim are not those of `last`.
    pub async fn changed(&mut self, last: Option<&ClaimStanding>) -> ClaimStanding {
        loop {
            self.looked = self.session.machine().reading();
            match self.standing().await {
                Some(standing) if Some(&standing) != last => return standing,
                Some(_) | None => self.wait(self.poll()).await,
            }
        }
    }

    async fn win(&mut self) -> Result<Holding, Defeat> {
        let mut is_told = false;
        loop {
            match self.attempt().await? {
                Ok(chain) => {
                    if let Some(holding) = self.begin(chain).await? {
                        return Ok(holding);
                    }
                }
                Err(Later::Wait(longest)) => self.wait(longest).await,
                Err(Later::Quarantine(left)) => {
                    if !is_told {
                        is_told = true;
                        let seconds = left.as_secs_f64();
                        tracing::info!(seconds, claim = %self.claim.key(), "the store may have forgotten what others act on: nothing is claimed until they cannot any more");
                    }
                    self.wait(left.min(self.poll())).await;
                }
                Err(Later::Pause) => self.pause().await,
            }
        }
    }

    /// Looks, and takes what is free. Waits for nothing but the store.
    async fn attempt(&mut self) -> Result<Result<Chain, Later>, Defeat> {
        self.looked = self.session.machine().reading();
        let Some(seen) = self.look().await.map_err(Defeat::Corrupt)? else {
            return Ok(Err(Later::Pause));
        };
        let taken = match self.next(&seen) {
            CandidateStep::Take => self.take(&seen).await,
            CandidateStep::Wait(longest) => return Ok(Err(Later::Wait(longest))),
        };
        Ok(taken.map_err(|why| match why {
            ClaimError::Quarantine { left } => Later::Quarantine(left),
            ClaimError::Refused(why) => {
                tracing::warn!(%why, claim = %self.claim.key(), "the claim could not be taken");
                Later::Pause
            }
            ClaimError::NotFree | ClaimError::Unclear => Later::Pause,
        }))
    }

    /// What to do about a claim that looks like this.
    fn next(&mut self, seen: &ClaimView) -> CandidateStep {
        let (ttl, poll) = (self.session.ttl(), CandidateStep::Wait(self.poll()));
        let is_free = match &seen.head.session {
            // Taken by a commit whose answer did not come, or in another epoch; or handed over by somebody.
            Some(holder) if holder == self.session.key() => {
                !mutant::active(Mutant::HandedOverAndLeft)
            }
            Some(holder) => !self.roster.borrow_and_update().contains(holder),
            None => true,
        };
        // Who has not much time left could not do much with it.
        if !is_free || self.session.valid_for() < ttl.length() / 2 {
            return poll;
        }
        if let Some((token, since)) = self.yielded
            && token == seen.head.token()
        {
            let back = ttl.length() * 3 / 2;
            let left = back.saturating_sub(self.session.machine().reading().least_since(since));
            if !left.is_zero() {
                return CandidateStep::Wait(left.min(self.poll()));
            }
        }
        CandidateStep::Take
    }

    async fn take(&mut self, seen: &ClaimView) -> Result<Chain, ClaimError> {
        if !self.is_abandoned(seen).await {
            return Err(ClaimError::NotFree);
        }
        let state = match self.mode {
            Mode::Automatic => ClaimState::Held,
            Mode::Manual => ClaimState::Waiting,
        };
        let former = self.unclear.replace(seen.clone());
        if self.session.quarantine_left().is_zero() {
            self.log.takes();
        }
        let taken = self.claim.take(seen, &self.session, state).await;
        match &taken {
            Ok(_) => self.unclear = None,
            Err(why @ ClaimError::Unclear) => self.log.fails(why),
            // This one was not done; one before it may still be on its way.
            Err(ClaimError::NotFree | ClaimError::Quarantine { .. }) => self.unclear = former,
            Err(why @ ClaimError::Refused(_)) => {
                self.unclear = former;
                self.log.fails(why);
            }
        }
        taken
    }

    /// The roster may be older than the claim, and not know a session that has just been opened.
    async fn is_abandoned(&self, seen: &ClaimView) -> bool {
        let Some(holder) =
            seen.head.session.as_ref().filter(|holder| *holder != self.session.key())
        else {
            return true;
        };
        let read = self.session.store().get(holder.key());
        let read = within(self.session.machine(), self.session.ttl().timeout(), read).await;
        matches!(read, Some(Ok(None)))
    }

    /// From having the claim to being allowed to act. `None` if it was given up on the way.
    async fn begin(&mut self, mut chain: Chain) -> Result<Option<Holding>, Defeat> {
        while chain.head().state == ClaimState::Waiting {
            self.looked = self.session.machine().reading();
            let seen = self.look().await.map_err(Defeat::Corrupt)?;
            let token = Some(chain.token());
            let done = match seen {
                // The store has forgotten about it.
                Some(seen) if Some(seen.head.token()) != token => return Ok(None),
                Some(seen) if seen.wished().is_some() => {
                    self.give_way(&mut chain, seen.wished()).await;
                    return Ok(None);
                }
                Some(seen) if seen.approval == token => chain.begin().await,
                Some(_) | None => {
                    self.wait(self.poll()).await;
                    continue;
                }
            };
            match done {
                Ok(_) => {}
                Err(ChainError::NotSent(_)) => self.pause().await,
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(self.hold(chain)))
    }

    /// Gives up a claim under which nothing was done yet, because somebody wished so.
    async fn give_way(&mut self, chain: &mut Chain, wish: Option<&Wish>) {
        let now = self.session.machine().reading();
        self.yielded = Some((chain.token(), now));
        let to = wish.and_then(|wish| self.successor(wish.to.as_ref()?));
        if let Some(to) = to {
            let body = body_of(chain.head());
            if chain.hand_over(&to, body).await.is_ok() {
                return;
            }
        }
        release(&self.session, chain).await.ok();
    }

    fn hold(&self, chain: Chain) -> Holding {
        let pace = (self.interval, self.log.clone());
        Holding::new(&self.session, self.claim.clone(), chain, pace)
    }

    /// One look; `None` if the store does not answer, and an error if what it says cannot be read.
    async fn look(&self) -> Result<Option<ClaimView>, String> {
        let look = self.claim.look(self.session.store());
        match within(self.session.machine(), self.session.ttl().timeout(), look).await {
            Some(Ok(seen)) => {
                self.log.sees(&seen.head);
                Ok(Some(seen))
            }
            Some(Err(ScanError::Corrupt(why))) => Err(why),
            Some(Err(why)) => {
                tracing::debug!(%why, claim = %self.claim.key(), "the claim could not be read");
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Makes a take that is on its way miss, by moving a head that nobody has.
    async fn bump(&self, seen: &ClaimView) {
        let bump = self.claim.touch(seen, self.session.machine().random());
        let timeout = self.session.ttl().timeout();
        within(self.session.machine(), timeout, self.session.store().commit(bump)).await;
        self.pause().await;
    }

    /// Waits for a hint about the claim or for the end of its holder's session, and not longer than this; but
    /// for a pause since the last look, since a busy holder gives many hints.
    async fn wait(&mut self, longest: Duration) {
        let machine = self.session.machine();
        let passed = machine.reading().most_since(self.looked);
        machine.sleep(self.session.ttl().pause().saturating_sub(passed)).await;
        // Everybody's renewals make a new roster. Only that somebody is gone from it frees anything.
        let (roster, holder) = (&mut self.roster, self.log.holder());
        let gone = async {
            match holder {
                Some(holder) => drop(roster.wait_for(|roster| !roster.contains(&holder)).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.hints.changed() => {}
            () = gone => {}
            () = self.session.machine().sleep(longest) => {}
        }
    }

    /// How long it waits for a hint.
    fn poll(&self) -> Duration {
        self.interval.unwrap_or(self.session.ttl().poll())
    }

    async fn pause(&self) {
        self.session.machine().sleep(self.session.ttl().pause()).await;
    }
}

/// What a head keeps, for a successor to carry over.
fn body_of(head: &Head) -> Box<RawValue> {
    head.body.clone().unwrap_or_else(|| RawValue::NULL.to_owned())
}

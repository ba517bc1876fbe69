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

mod sighting;

use std::sync::Arc;
use std::time::Duration;

use engine::lease::{Reading, Token};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::chain::{self, Chain, ChainError, Piece};
use crate::claim::{Claim, Head, Sight, State, TakeError};
use crate::machine::within;
use crate::session::{End, Roster, Session, SessionKey};
use crate::{Epoch, Hints, Refusal, ScanError, Version, Write};

use sighting::Log;
pub use sighting::Sighting;

/// The claim of a leadership: what all candidates for it campaign for.
pub fn claim_of(project: &str, name: &str) -> Result<Claim, Refusal> {
    Claim::new(format!("election/{project}/{name}"))
}

/// How a candidate becomes a holder that may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At once.
    Automatic,
    /// When a person has approved it.
    Manual,
}

/// A candidate for one claim.
pub struct Election {
    session: Session,
    claim: Claim,
    mode: Mode,
    hints: Hints,
    roster: watch::Receiver<Roster>,
    /// When it looked last.
    looked: Reading,
    /// How often it looks, if no hint comes.
    interval: Option<Duration>,
    log: Log,
    /// The token that it gave up because somebody wished so, and when: others go first.
    yielded: Option<(Token, Reading)>,
    /// What a take was conditional on that was never answered. It may still land.
    unclear: Option<Sight>,
}

/// Who has a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The session of whoever has it.
    pub holder: Option<SessionKey>,
    /// Under which token, or the last one.
    pub token: Token,
    /// Whether it may act.
    pub state: State,
}

impl From<&Head> for Standing {
    fn from(head: &Head) -> Self {
        Self { holder: head.session.clone(), token: head.token(), state: head.state }
    }
}

/// Why there is nothing to campaign for any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defeat {
    /// The session has ended: open a new one.
    #[error("the session has ended")]
    Ended(End),
    /// The claim cannot be read: have a person look, or upgrade.
    #[error("the claim cannot be read: {0}")]
    Corrupt(String),
}

/// What a candidate does next.
enum Step {
    Take,
    Wait(Duration),
}

impl Election {
    /// A candidate in this session.
    pub fn new(session: &Session, claim: Claim, mode: Mode) -> Self {
        let hints = session.store().watch(claim.key().as_str());
        let (roster, looked) = (session.roster(), session.machine().reading());
        let session = session.clone();
        let (interval, log) = (None, Log::default());
        let (yielded, unclear) = (None, None);
        Self { session, claim, mode, hints, roster, looked, interval, log, yielded, unclear }
    }

    /// The same one, which looks at the claim so often if no hint comes: as a candidate instead of every
    /// T/10, and as a holder instead of every T/2.
    #[must_use]
    pub fn checking_every(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// What it saw and did, and word when there is something new: for those who show it to people.
    pub fn sightings(&self) -> watch::Receiver<Sighting> {
        self.log.follow()
    }

    /// Waits until this node has the claim and may begin, or its session has ended. May be dropped at
    /// any moment; call it again, or [`Election::leave`].
    pub async fn campaign(&mut self) -> Result<Holding, Defeat> {
        let session = self.session.clone();
        tokio::select! {
            biased;
            end = session.ended() => Err(Defeat::Ended(end)),
            won = self.win() => won,
        }
    }

    /// Gives up what it has because somebody wished so, and lets others go first for a while.
    pub async fn step_down(&mut self, mut holding: Holding) -> Result<(), ChainError> {
        self.yielded = Some((holding.right.token(), self.session.machine().reading()));
        holding.release().await
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
    pub async fn standing(&self) -> Option<Standing> {
        self.look().await.ok()?.map(|seen| (&seen.head).into())
    }

    /// Waits until somebody else has it, or in another way, than in `last`.
    pub async fn changed(&mut self, last: Option<&Standing>) -> Standing {
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
            self.looked = self.session.machine().reading();
            let Some(seen) = self.look().await.map_err(Defeat::Corrupt)? else {
                self.pause().await;
                continue;
            };
            let taken = match self.next(&seen) {
                Step::Take => self.take(&seen).await,
                Step::Wait(longest) => {
                    self.wait(longest).await;
                    continue;
                }
            };
            match taken {
                Ok(chain) => {
                    if let Some(holding) = self.begin(chain).await? {
                        return Ok(holding);
                    }
                }
                Err(TakeError::Quarantine { left }) => {
                    if !is_told {
                        is_told = true;
                        let seconds = left.as_secs_f64();
                        tracing::info!(seconds, claim = %self.claim.key(), "the store may have forgotten what others act on: nothing is claimed until they cannot any more");
                    }
                    self.wait(left.min(self.poll())).await;
                }
                Err(TakeError::Refused(why)) => {
                    tracing::warn!(%why, claim = %self.claim.key(), "the claim could not be taken");
                    self.pause().await;
                }
                Err(TakeError::NotFree | TakeError::Unclear) => self.pause().await,
            }
        }
    }

    /// What to do about a claim that looks like this.
    fn next(&mut self, seen: &Sight) -> Step {
        let (ttl, poll) = (self.session.ttl(), Step::Wait(self.poll()));
        let is_free = match &seen.head.session {
            // Taken by a commit whose answer did not come, or in another epoch.
            Some(holder) if holder == self.session.key() => true,
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
                return Step::Wait(left.min(self.poll()));
            }
        }
        Step::Take
    }

    async fn take(&mut self, seen: &Sight) -> Result<Chain, TakeError> {
        if !self.is_abandoned(seen).await {
            return Err(TakeError::NotFree);
        }
        let state = match self.mode {
            Mode::Automatic => State::Held,
            Mode::Manual => State::Waiting,
        };
        let former = self.unclear.replace(seen.clone());
        if self.session.quarantine_left().is_zero() {
            self.log.takes();
        }
        let taken = self.claim.take(seen, &self.session, state).await;
        match &taken {
            Ok(_) => self.unclear = None,
            Err(why @ TakeError::Unclear) => self.log.fails(why),
            // This one was not done; one before it may still be on its way.
            Err(TakeError::NotFree | TakeError::Quarantine { .. }) => self.unclear = former,
            Err(why @ TakeError::Refused(_)) => {
                self.unclear = former;
                self.log.fails(why);
            }
        }
        taken
    }

    /// The roster may be older than the claim, and not know a session that has just been opened.
    async fn is_abandoned(&self, seen: &Sight) -> bool {
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
        while chain.head().state == State::Waiting {
            self.looked = self.session.machine().reading();
            let seen = self.look().await.map_err(Defeat::Corrupt)?;
            let token = Some(chain.token());
            let done = match seen {
                // The store has forgotten about it.
                Some(seen) if Some(seen.head.token()) != token => return Ok(None),
                Some(seen) if seen.wish == token => {
                    let now = self.session.machine().reading();
                    self.yielded = token.map(|token| (token, now));
                    release(&self.session, &mut chain).await.ok();
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
        let pace = (self.interval, self.log.clone());
        Ok(Some(Holding::new(&self.session, self.claim.clone(), chain, pace)))
    }

    /// One look; `None` if the store does not answer, and an error if what it says cannot be read.
    async fn look(&self) -> Result<Option<Sight>, String> {
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
    async fn bump(&self, seen: &Sight) {
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

/// Frees a claim, however often the store cannot be reached.
async fn release(session: &Session, chain: &mut Chain) -> Result<(), ChainError> {
    loop {
        match chain.release().await {
            Err(ChainError::NotSent(_)) if session.end().is_none() => {
                session.machine().sleep(session.ttl().pause()).await;
            }
            done => return done.map(|_| ()),
        }
    }
}

/// What somebody who has a claim has: a chain to write with, and the right to act.
pub struct Holding {
    /// The right to act.
    pub right: Right,
    chain: Chain,
}

/// What one claim contributes to a commit of several.
pub struct Share<'a> {
    /// Whose claim it is.
    pub holding: &'a mut Holding,
    /// What its head keeps from then on.
    pub body: Box<RawValue>,
    /// What else is written.
    pub writes: Vec<Write>,
}

impl Holding {
    fn new(
        session: &Session,
        claim: Claim,
        chain: Chain,
        (interval, log): (Option<Duration>, Log),
    ) -> Self {
        session.entitle(claim.key(), chain.token());
        let right = Right(Arc::new(Shared {
            token: chain.token(),
            epoch: chain.epoch().clone(),
            over: watch::Sender::new(None),
            session: session.clone(),
            claim,
            interval: interval.unwrap_or(session.ttl().length() / 2),
            log,
        }));
        Self { right, chain }
    }

    /// Writes, as [`Chain::commit`] does.
    pub async fn commit(
        &mut self,
        body: Option<Box<RawValue>>,
        writes: Vec<Write>,
    ) -> Result<Version, ChainError> {
        let done = self.chain.commit(body, writes).await;
        if done == Err(ChainError::Moved) {
            self.right.finish(Over::Lost);
        }
        done
    }

    /// Writes several claims in one commit, as [`chain::commit_all`] does.
    pub async fn commit_all(shares: Vec<Share<'_>>) -> Vec<Result<Version, ChainError>> {
        let rights: Vec<Right> = shares.iter().map(|share| share.holding.right.clone()).collect();
        let pieces = shares.into_iter().map(|Share { holding, body, writes }| Piece {
            chain: &mut holding.chain,
            body: Some(body),
            writes,
        });
        let answers = chain::commit_all(pieces.collect()).await;
        for (right, answer) in rights.iter().zip(&answers) {
            if *answer == Err(ChainError::Moved) {
                right.finish(Over::Lost);
            }
        }
        answers
    }

    /// The head as the last commit left it.
    pub fn head(&self) -> &Head {
        self.chain.head()
    }

    /// Stops acting, and then frees the claim.
    pub async fn release(&mut self) -> Result<(), ChainError> {
        self.right.finish(Over::Released);
        release(&self.right.0.session, &mut self.chain).await
    }
}

/// The right to act under a token. Clones are the same right.
#[derive(Clone)]
pub struct Right(Arc<Shared>);

struct Shared {
    session: Session,
    claim: Claim,
    token: Token,
    /// The epoch in which the claim was taken.
    epoch: Epoch,
    over: watch::Sender<Option<Over>>,
    /// How often it looks whether the claim is still its own, if no hint comes.
    interval: Duration,
    log: Log,
}

/// Good at the moment when it was given, and for so long by its node's own clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// To show to whatever is acted upon.
    pub token: Token,
    /// How much longer, if nothing is heard.
    pub valid_for: Duration,
}

/// Why a right is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Somebody wishes that this holder leave: stop, and then [`Election::step_down`].
    Wished,
    /// The claim is somebody else's, the session has ended, or the store may have forgotten about it:
    /// drop everything that was built on it, and campaign again.
    Lost,
    /// Its holder gave it up.
    Released,
}

impl Right {
    /// The right to act at this moment, if there is one. Ask at the moment when something leaves.
    pub fn permit(&self) -> Option<Permit> {
        let over = self.0.over.borrow().is_some_and(|over| over != Over::Wished);
        let valid_for = self.0.session.valid_for();
        let entitled = self.0.session.is_entitled(self.0.claim.key(), self.0.token);
        let good = !over && entitled && self.is_trusted() && !valid_for.is_zero();
        good.then_some(Permit { token: self.0.token, valid_for })
    }

    /// The token that it is under.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// Waits until the right is over, and tells why. A lapse is not the end of it.
    pub async fn over(&self) -> Over {
        let session = &self.0.session;
        let mut over = self.0.over.subscribe();
        tokio::select! {
            biased;
            _ = session.ended() => self.finish(Over::Lost),
            _ = over.wait_for(Option::is_some) => {}
            why = self.watch() => self.finish(why),
        }
        let over = *self.0.over.borrow();
        over.expect("it is over now")
    }

    /// Looks at the epoch every T/10, and at the claim when a hint comes and every T/2, or as often as was asked for.
    async fn watch(&self) -> Over {
        let session = &self.0.session;
        let (machine, ttl) = (session.machine(), session.ttl());
        let mut hints = session.store().watch(self.0.claim.key().as_str());
        let poll = ttl.poll().min(self.0.interval);
        loop {
            let looked = machine.reading();
            if let Some(over) = self.look().await {
                return over;
            }
            machine.sleep(ttl.pause()).await;
            while machine.reading().most_since(looked) < self.0.interval {
                if session.store().epoch() != self.0.epoch {
                    return Over::Lost;
                }
                if within(machine, poll, hints.changed()).await.is_some() {
                    break;
                }
            }
        }
    }

    /// Is the claim still ours, and does nobody wish it otherwise?
    async fn look(&self) -> Option<Over> {
        let session = &self.0.session;
        let look = self.0.claim.look(session.store());
        let Some(Ok(seen)) = within(session.machine(), session.ttl().timeout(), look).await else {
            return None;
        };
        self.0.log.sees(&seen.head);
        let mine = seen.head.session.as_ref() == Some(session.key());
        if !mine || seen.head.token() != self.0.token {
            return Some(Over::Lost);
        }
        (seen.wish == Some(self.0.token)).then_some(Over::Wished)
    }

    fn is_trusted(&self) -> bool {
        self.0.session.trusted_epoch().is_ok_and(|epoch| epoch == self.0.epoch)
    }

    fn finish(&self, why: Over) {
        self.0.over.send_if_modified(|over| {
            let news = over.is_none() || why != Over::Wished && *over == Some(Over::Wished);
            if news {
                *over = Some(why);
            }
            news
        });
    }
}

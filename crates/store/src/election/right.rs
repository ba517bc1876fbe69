//! What comes with a claim: writing by its chain, and the right to act.
//!
//! A right is asked at the moment when something leaves. It is over for good when the claim is somebody else's, when
//! the store is in another epoch, when the session has ended, and from the moment on at which its holder begins to
//! release the claim or to hand it over, whatever comes of that.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::lease::Token;
use engine::mutant::{self, Mutant};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::activity::ActivityLog;
use crate::chain::{self, Chain, ChainError, ChainResult, ChainWrites};
use crate::claim::{Claim, Head};
use crate::machine::within;
use crate::session::{NodeId, Session, SessionKey};
use crate::{Epoch, Write};

/// What the holder of a claim gets: a chain to write with, and the right to act.
pub struct Holding {
    /// The right to act.
    pub right: Right,
    chain: Chain,
}

/// What the holder of one claim contributes to a commit of several.
pub struct HolderWrites<'a> {
    /// The holder of that claim.
    pub holding: &'a mut Holding,
    /// What its head keeps from then on.
    pub body: Box<RawValue>,
    /// What else is written.
    pub writes: Vec<Write>,
}

impl Holding {
    pub(super) fn new(
        session: &Session,
        claim: Claim,
        chain: Chain,
        (interval, log): (Option<Duration>, ActivityLog),
    ) -> Self {
        session.entitle(claim.key(), chain.token());
        let right = Right(Arc::new(RightShared {
            token: chain.token(),
            epoch: chain.epoch().clone(),
            over: watch::Sender::new(None),
            wished_to: OnceLock::new(),
            session: session.clone(),
            claim,
            interval: interval.unwrap_or(session.ttl().length() / 2),
            log,
        }));
        Self { right, chain }
    }

    /// Writes, as [`Chain::commit`] does.
    pub async fn commit(&mut self, body: Option<Box<RawValue>>, writes: Vec<Write>) -> ChainResult {
        let done = self.chain.commit(body, writes).await;
        if done == Err(ChainError::Moved) {
            self.right.finish(RightEnd::Lost);
        }
        done
    }

    /// Writes several claims in one commit, as [`chain::commit_all`] does.
    pub async fn commit_all(shares: Vec<HolderWrites<'_>>) -> Vec<ChainResult> {
        let rights: Vec<Right> = shares.iter().map(|share| share.holding.right.clone()).collect();
        let pieces = shares.into_iter().map(|HolderWrites { holding, body, writes }| ChainWrites {
            chain: &mut holding.chain,
            body: Some(body),
            writes,
        });
        let answers = chain::commit_all(pieces.collect()).await;
        for (right, answer) in rights.iter().zip(&answers) {
            if *answer == Err(ChainError::Moved) {
                right.finish(RightEnd::Lost);
            }
        }
        answers
    }

    /// Stops acting, and then gives the claim to another session that is there, with this body: what a successor
    /// needs is written before. From here on there is no permit, whatever comes of it. Until it is known
    /// that the claim is the successor's, or that it never will be, this does not return.
    ///
    /// After [`ChainError::Gone`], [`ChainError::NotSent`] and [`ChainError::Refused`] the claim names this
    /// session still: hand it over again, release it, or drop this and take it anew by an [`super::Candidacy`]. After
    /// anything else it is not this node's.
    pub async fn hand_over(&mut self, to: &SessionKey, body: Box<RawValue>) -> ChainResult {
        if !mutant::active(Mutant::ActWhileHandingOver) {
            self.right.finish(RightEnd::Released);
        }
        let done = self.chain.hand_over(to, body).await;
        self.right.finish(RightEnd::Released);
        done
    }

    /// The head as the last commit left it.
    pub fn head(&self) -> &Head {
        self.chain.head()
    }

    /// Stops acting, and then frees the claim.
    pub async fn release(&mut self) -> ChainResult<()> {
        self.right.finish(RightEnd::Released);
        release(&self.right.0.session, &mut self.chain).await
    }
}

/// The right to act under a token. Clones are the same right.
#[derive(Clone)]
pub struct Right(Arc<RightShared>);

struct RightShared {
    session: Session,
    claim: Claim,
    token: Token,
    /// The epoch in which the claim was taken.
    epoch: Epoch,
    over: watch::Sender<Option<RightEnd>>,
    /// Who is to follow, as the wish says that ends the right.
    wished_to: OnceLock<NodeId>,
    /// How often it looks whether the claim is still its own, if no hint comes.
    interval: Duration,
    log: ActivityLog,
}

/// The right to act at the moment when it was given, and for so long by the node's own clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// The fencing token, for whatever is acted upon.
    pub token: Token,
    /// How much longer it is good, if the session is not renewed.
    pub valid_for: Duration,
}

/// Why a right is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RightEnd {
    /// Somebody wishes that this holder leave: stop, and then [`super::Candidacy::step_down`], or hand it over to whom
    /// [`Right::wished_to`] names.
    Wished,
    /// The claim is somebody else's, the session has ended, or the store may have forgotten about it:
    /// drop everything that was built on it, and campaign again.
    Lost,
    /// The holder gave it up.
    Released,
}

impl Right {
    /// The right to act at this moment, if there is one. Ask at the moment when something leaves.
    pub fn permit(&self) -> Option<Permit> {
        let over = self.0.over.borrow().is_some_and(|over| over != RightEnd::Wished);
        let valid_for = self.0.session.valid_for();
        let entitled = self.0.session.is_entitled(self.0.claim.key(), self.0.token);
        let good = !over && entitled && self.is_trusted() && !valid_for.is_zero();
        good.then_some(Permit { token: self.0.token, valid_for })
    }

    /// The session that has the claim.
    pub fn session(&self) -> &SessionKey {
        self.0.session.key()
    }

    /// The token that it is under.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// The node that is to follow, once a wish has ended the right and named one: see [`super::Candidacy::successor`].
    pub fn wished_to(&self) -> Option<&NodeId> {
        self.0.wished_to.get()
    }

    /// Waits until the right is over, and tells why. A lapse is not the end of it.
    pub async fn over(&self) -> RightEnd {
        let session = &self.0.session;
        let mut over = self.0.over.subscribe();
        tokio::select! {
            biased;
            _ = session.ended() => self.finish(RightEnd::Lost),
            _ = over.wait_for(Option::is_some) => {}
            why = self.watch() => self.finish(why),
        }
        let over = *self.0.over.borrow();
        over.expect("it is over now")
    }

    /// Looks at the epoch every T/10, and at the claim when a hint comes and every T/2, or as often as was asked for.
    async fn watch(&self) -> RightEnd {
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
                    return RightEnd::Lost;
                }
                if within(machine, poll, hints.changed()).await.is_some() {
                    break;
                }
            }
        }
    }

    /// Is the claim still ours, and does nobody wish it otherwise?
    async fn look(&self) -> Option<RightEnd> {
        let session = &self.0.session;
        let look = self.0.claim.look(session.store());
        let Some(Ok(seen)) = within(session.machine(), session.ttl().timeout(), look).await else {
            return None;
        };
        self.0.log.sees(&seen.head);
        let mine = seen.head.session.as_ref() == Some(session.key());
        if !mine || seen.head.token() != self.0.token {
            return Some(RightEnd::Lost);
        }
        let wish = seen.wished()?;
        if let Some(to) = &wish.to {
            // The first one counts: by the next the holder is leaving already.
            self.0.wished_to.get_or_init(|| to.clone());
        }
        Some(RightEnd::Wished)
    }

    fn is_trusted(&self) -> bool {
        self.0.session.trusted_epoch().is_ok_and(|epoch| epoch == self.0.epoch)
    }

    fn finish(&self, why: RightEnd) {
        self.0.over.send_if_modified(|over| {
            let news = over.is_none() || why != RightEnd::Wished && *over == Some(RightEnd::Wished);
            if news {
                *over = Some(why);
            }
            news
        });
    }
}

/// Frees a claim, however often the store cannot be reached.
pub(super) async fn release(session: &Session, chain: &mut Chain) -> ChainResult<()> {
    loop {
        match chain.release().await {
            Err(ChainError::NotSent(_)) if session.end().is_none() => {
                session.machine().sleep(session.ttl().pause()).await;
            }
            done => return done.map(|_| ()),
        }
    }
}

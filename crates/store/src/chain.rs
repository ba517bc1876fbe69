//! The chain: how whoever has a claim writes.
//!
//! Every commit is conditional on the claim's head as its author knows it, and moves it on, with the
//! next number and a nonce. So the commits form a chain: each lands on exactly the state that its
//! author had seen, or not at all. A late copy finds the head moved on and does nothing; a former
//! holder finds it taken and does nothing; and as long as nothing is known of a commit, the same one is
//! sent again, unchanged, since at most one of the copies can land. Not finding it done proves
//! nothing: it may still arrive.

use engine::lease::{Nonce, Token};
use engine::mutant::{self, Mutant};
use serde_json::value::RawValue;

use crate::claim::{Claim, Head, State};
use crate::machine::within;
use crate::session::Session;
use crate::{Commit, CommitError, Condition, Epoch, Refusal, Version, Write};

/// A holder's writing end of a claim. One commit at a time is in flight.
pub struct Chain {
    claim: Claim,
    session: Session,
    head: Head,
    version: Version,
    epoch: Epoch,
    /// Sent, and not known to be done or undone.
    open: Option<Link>,
    /// Somebody else has moved the head. There is no way back, even if the store forgets it.
    moved: bool,
    /// It is being given up, or has been: nothing else is written any more.
    released: bool,
}

/// One commit of the chain.
struct Link {
    head: Head,
    commit: Commit,
    /// Whether a copy of it may have left this process.
    sent: bool,
}

/// Why nothing more will come of a commit of the chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The head was moved by somebody else, or was given up here: the claim is not ours. Drop what you
    /// know, and answer nobody: the last commit may have been done before that.
    #[error("the claim is not this node's any more")]
    Moved,
    /// The commit itself is at fault, or there is no room for it. Nothing was done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It never left this process. Nothing was done; try again later, or decide anew.
    #[error("the store takes no commits now: {0}")]
    NotSent(String),
    /// What the store holds is damaged: stop, and have a person look. The commit may have been done.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

impl Chain {
    /// The chain of a claim that this session has, as it was read in this epoch.
    pub(crate) fn new(
        claim: Claim,
        session: &Session,
        head: Head,
        version: Version,
        epoch: Epoch,
    ) -> Self {
        let session = session.clone();
        Self { claim, session, head, version, epoch, open: None, moved: false, released: false }
    }

    /// The head as this chain knows it: what the last commit that is known to be done wrote.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The store's epoch when the claim was taken or found.
    pub(crate) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// The token that all of it is written under.
    pub fn token(&self) -> Token {
        self.head.token()
    }

    /// Writes, and moves the head on with this body. Returns when that is known to have been done,
    /// which may take as long as the store is out of reach. If it is dropped before, the commit is
    /// still in the chain: the next one waits for it.
    pub async fn commit(
        &mut self,
        body: Option<Box<RawValue>>,
        writes: Vec<Write>,
    ) -> Result<Version, ChainError> {
        self.check_kept()?;
        self.append(|head| Head { body, ..head }, writes).await
    }

    /// Lets a holder that waited begin.
    pub(crate) async fn begin(&mut self) -> Result<Version, ChainError> {
        self.check_kept()?;
        self.append(|head| Head { state: State::Held, ..head }, Vec::new()).await
    }

    /// Gives the claim up; its token stays. The caller has stopped acting before. May be called again if it
    /// was not sent; nothing else can be written from then on.
    pub async fn release(&mut self) -> Result<Version, ChainError> {
        self.settle().await?;
        if self.head.session.is_none() {
            return Ok(self.version);
        }
        self.released = true;
        let notes = self.claim.notes().map(Write::Delete);
        self.append(|head| Head { session: None, state: State::Free, ..head }, notes.into()).await
    }

    /// Waits until nothing is open.
    pub async fn settle(&mut self) -> Result<(), ChainError> {
        while self.open.is_some() {
            self.push().await?;
        }
        Ok(())
    }

    fn check_kept(&self) -> Result<(), ChainError> {
        if self.released { Err(ChainError::Moved) } else { Ok(()) }
    }

    /// Settles what is open, and then writes the head, changed, and the rest.
    async fn append(
        &mut self,
        change: impl FnOnce(Head) -> Head,
        writes: Vec<Write>,
    ) -> Result<Version, ChainError> {
        self.settle().await?;
        if self.moved {
            return Err(ChainError::Moved);
        }
        let nonce = Nonce(self.session.machine().random());
        let head = Head { number: self.head.number + 1, nonce, ..change(self.head.clone()) };
        let mut guard = Condition::At(self.claim.key().clone(), self.version);
        if mutant::active(Mutant::GuardWithoutChain) {
            guard = Condition::Present(self.session.key().key().clone());
        }
        let mut commit = Commit::new().when(guard).put(self.claim.key().clone(), head.to_value());
        commit.then.extend(writes);
        self.open = Some(Link { head, commit, sent: false });
        self.settle().await?;
        Ok(self.version)
    }

    /// Sends what is open once more. After `Ok` it is done, or still open; after an error it is not.
    async fn push(&mut self) -> Result<(), ChainError> {
        let Some(link) = &mut self.open else { return Ok(()) };
        let (machine, ttl) = (self.session.machine().clone(), self.session.ttl());
        let again = std::mem::replace(&mut link.sent, true);
        let answer = self.session.store().commit(link.commit.clone());
        match within(&machine, ttl.timeout(), answer).await {
            Some(Ok(version)) => self.done(version),
            Some(Err(CommitError::Conflict(_))) if again => return self.find().await,
            Some(Err(CommitError::Conflict(_))) => return self.undone(ChainError::Moved),
            Some(Err(CommitError::Corrupt(why))) => return self.undone(ChainError::Corrupt(why)),
            Some(Err(CommitError::Refused(why))) if !again => return self.undone(why.into()),
            Some(Err(CommitError::Unavailable(why))) if !again => {
                return self.undone(ChainError::NotSent(why));
            }
            Some(Err(
                CommitError::Unknown(_) | CommitError::Refused(_) | CommitError::Unavailable(_),
            ))
            | None => {
                if mutant::active(Mutant::DecideAnew) {
                    return self.find().await;
                }
                machine.sleep(ttl.pause()).await;
            }
        }
        Ok(())
    }

    /// A copy met a conflict, and another one may have been done before: was it?
    async fn find(&mut self) -> Result<(), ChainError> {
        let (machine, ttl) = (self.session.machine().clone(), self.session.ttl());
        let read = self.session.store().get(self.claim.key());
        let Some(Ok(found)) = within(&machine, ttl.timeout(), read).await else {
            machine.sleep(ttl.pause()).await;
            return Ok(());
        };
        let Some(entry) = found else { return self.undone(ChainError::Moved) };
        let nonce = Head::from_value(&entry.value).ok().map(|head| head.nonce);
        let mine = self.open.as_ref().map(|link| link.head.nonce);
        if nonce == mine {
            self.done(entry.version);
        } else if entry.version != self.version {
            return self.undone(ChainError::Moved);
        } else if mutant::active(Mutant::DecideAnew) {
            return self.undone(ChainError::NotSent("it was not found".into()));
        } else {
            machine.sleep(ttl.pause()).await;
        }
        Ok(())
    }

    fn done(&mut self, version: Version) {
        let link = self.open.take().expect("only what is open can be done");
        self.head = link.head;
        self.version = version;
    }

    fn undone(&mut self, why: ChainError) -> Result<(), ChainError> {
        self.open = None;
        self.moved |= why == ChainError::Moved;
        Err(why)
    }
}

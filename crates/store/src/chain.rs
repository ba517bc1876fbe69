//! The chain: how whoever has a claim writes.
//!
//! Every commit is conditional on the claim's head as its author knows it, and moves it on, with the
//! next number and a nonce. So the commits form a chain: each lands on exactly the state that its
//! author had seen, or not at all. A late copy finds the head moved on and does nothing; a former
//! holder finds it taken and does nothing; and as long as nothing is known of a commit, the same one is
//! sent again, unchanged, since at most one of the copies can land. Not finding it done proves
//! nothing: it may still arrive.
//!
//! The last link of a holder may be a *hand-over*: it names another session as the holder, if that one is
//! there.
//!
//! ```text
//! when  At(head, as I wrote it), Present(the successor's session)
//! then  Put(head: the successor's session, the next token)
//! ```
//!
//! The order matters. A store names the first condition that does not hold, and judges all of them at one
//! moment; so an answer that the successor is absent also says that the head stood where this chain left it.
//! Then no copy was done, and none can be any more, since the key of a session is never used again: the
//! successor is *gone*, and the claim is still this node's.
//!
//! Several chains of a session write together in one commit of the store, because that is cheaper:
//! [`commit_all`]. They share nothing else. A link of a chain is the same in whatever company it is
//! sent: its condition, its head with its nonce, its writes. Whichever commit lands first that it is in
//! moves the head, and no other one can land then. So each chain judges by its own head alone what
//! became of its link, and when they are parted (one has moved, somebody lost interest) each may send
//! its own again, with others or without.

use engine::lease::{Nonce, Token};
use engine::mutant::{self, Mutant};
use serde_json::value::RawValue;

use crate::claim::{Claim, ClaimState, Head};
use crate::machine::within;
use crate::session::{Session, SessionKey};
use crate::{Commit, CommitError, Condition, Entry, Epoch, Refusal, Version, Write};

/// A holder's writing end of a claim. One commit at a time is in flight.
pub struct Chain {
    claim: Claim,
    session: Session,
    head: Head,
    version: Version,
    epoch: Epoch,
    /// Not known to be done or undone.
    open: Option<Link>,
    /// Why what was open came to nothing, until somebody was told. Not that it was moved.
    failed: Option<ChainError>,
    /// Somebody else has moved the head. There is no way back, even if the store forgets it.
    moved: bool,
    /// It is being given up or handed over, or has been: nothing else is written any more.
    leaving: bool,
}

/// One commit of the chain.
struct Link {
    head: Head,
    /// As it is sent by itself.
    commit: Commit,
    /// How many copies of it, in whatever company, were sent and have not been turned away. As long as
    /// there are any it may have been done, and may yet be.
    out: u64,
}

/// What one chain contributes to a commit of several.
pub struct ChainWrites<'a> {
    /// The chain that writes.
    pub chain: &'a mut Chain,
    /// What its head says from then on.
    pub body: Option<Box<RawValue>>,
    /// What else the chain writes.
    pub writes: Vec<Write>,
}

/// What came of a commit of the chain: its version, or why nothing more will.
pub type ChainResult<T = Version> = Result<T, ChainError>;

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
    /// The session that it was handed over to has ended, and it never had the claim. Hand it over to
    /// somebody else, release it, or take it anew.
    #[error("the successor is gone: the claim is still this node's")]
    Gone,
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
        Self {
            claim,
            session,
            head,
            version,
            epoch,
            open: None,
            failed: None,
            moved: false,
            leaving: false,
        }
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
    /// still in the chain: the next one waits for it, and if it comes to nothing, so does the next,
    /// with the same error.
    pub async fn commit(&mut self, body: Option<Box<RawValue>>, writes: Vec<Write>) -> ChainResult {
        self.check_kept()?;
        self.append(|head| Head { body, ..head }, writes).await
    }

    /// Lets a holder that waited begin.
    pub(crate) async fn begin(&mut self) -> ChainResult {
        self.check_kept()?;
        self.append(|head| Head { state: ClaimState::Held, ..head }, Vec::new()).await
    }

    /// Gives the claim up; its token stays. The caller has stopped acting before. May be called again if it
    /// was not sent; nothing else can be written from then on.
    pub async fn release(&mut self) -> ChainResult {
        // What came of the last one matters no more, but that the claim is lost: this will say so too.
        self.settle().await.ok();
        if self.head.session.is_none() {
            return Ok(self.version);
        }
        self.check_ours()?;
        self.leaving = true;
        self.answer()?;
        let head = Head { session: None, state: ClaimState::Free, ..self.next() };
        let mut writes = self.claim.giving(&head);
        writes.extend(self.claim.notes().map(Write::Delete));
        let commit = Commit { when: vec![self.unmoved()], then: writes };
        self.send(Link { head, commit, out: 0 }).await
    }

    /// Gives the claim to another session, under the next token and with this body. The caller has stopped
    /// acting before. Returns when that is known to have been done, or cannot be any more. May be called again,
    /// with the same successor or another, if nothing came of it or if it was dropped; nothing else but a
    /// release can be written from then on.
    pub async fn hand_over(&mut self, to: &SessionKey, body: Box<RawValue>) -> ChainResult {
        self.leaving = true;
        // What came of the last one matters no more, but that the claim is lost: this will say so too.
        self.settle().await.ok();
        // One that was dropped half way was done after all.
        if to != self.session.key() && self.head.session.as_ref() == Some(to) {
            return Ok(self.version);
        }
        self.check_ours()?;
        self.answer()?;
        let wall_us = self.session.machine().wall_us();
        let head = Head {
            session: Some(to.clone()),
            token: Token::after(self.token(), wall_us).0,
            state: ClaimState::Held,
            body: Some(body),
            ..self.next()
        };
        let there = Condition::Present(to.key().clone());
        let mut when = vec![self.unmoved(), there];
        if mutant::active(Mutant::HandOverToAnybody) {
            when.pop();
        }
        if mutant::active(Mutant::GoneWhateverTheHead) {
            when.reverse();
        }
        let commit = Commit { when, then: self.claim.giving(&head) };
        self.send(Link { head, commit, out: 0 }).await
    }

    /// Waits until nothing is open. After that, [`Chain::head`] tells what was done.
    pub async fn settle(&mut self) -> ChainResult<()> {
        settle_all(&mut [self]).await;
        self.answer().map(|_| ())
    }

    fn check_kept(&self) -> ChainResult<()> {
        if self.leaving { Err(ChainError::Moved) } else { Ok(()) }
    }

    /// What was handed over is not given to anybody else, nor freed.
    fn check_ours(&self) -> ChainResult<()> {
        let ours = self.head.session.as_ref() == Some(self.session.key());
        if ours { Ok(()) } else { Err(ChainError::Moved) }
    }

    /// Settles what is open, and then writes the head, changed, and the rest.
    async fn append(
        &mut self,
        change: impl FnOnce(Head) -> Head,
        writes: Vec<Write>,
    ) -> ChainResult {
        self.settle().await?;
        self.send(self.link(change, writes)).await
    }

    /// The next link, of the same holder.
    fn link(&self, change: impl FnOnce(Head) -> Head, writes: Vec<Write>) -> Link {
        let head = change(self.next());
        let commit = Commit::new().when(self.unmoved());
        let mut commit = commit.put(self.claim.key().clone(), head.to_value());
        commit.then.extend(writes);
        Link { head, commit, out: 0 }
    }

    /// The head as the next link has it, unless that one changes something.
    fn next(&self) -> Head {
        let nonce = Nonce(self.session.machine().random());
        Head { number: self.head.number + 1, nonce, ..self.head.clone() }
    }

    /// What every link is conditional on.
    fn unmoved(&self) -> Condition {
        if mutant::active(Mutant::GuardWithoutChain) {
            return Condition::Present(self.session.key().key().clone());
        }
        Condition::At(self.claim.key().clone(), self.version)
    }

    /// Sends a link until something is known of it. Nothing else is open.
    async fn send(&mut self, link: Link) -> ChainResult {
        self.open = Some(link);
        settle_all(&mut [self]).await;
        self.answer()
    }

    /// What came of the last link. A failure is told once, but that it was moved each time.
    fn answer(&mut self) -> ChainResult {
        if self.moved {
            return Err(ChainError::Moved);
        }
        self.failed.take().map_or(Ok(self.version), Err)
    }

    /// Whether a link may be added.
    fn is_clear(&self) -> bool {
        !self.moved && !self.leaving && self.failed.is_none()
    }

    /// Whether what is open may have been done, or may yet be without being sent again.
    fn is_in_doubt(&self) -> bool {
        self.open.as_ref().is_some_and(|link| link.out > 0)
    }

    /// Whether what is open has this condition.
    fn requires(&self, condition: &Condition) -> bool {
        self.open.as_ref().is_some_and(|link| link.commit.when.contains(condition))
    }

    /// Whether this condition, which does not hold though those before it do, is that the one is there whom
    /// the open link gives the claim to.
    fn is_gone(&self, condition: &Condition) -> bool {
        let to = self.open.as_ref().and_then(|link| link.head.session.as_ref());
        to.is_some_and(|to| {
            to != self.session.key() && *condition == Condition::Present(to.key().clone())
        })
    }

    /// A copy of what is open did nothing. If no other one is out, then it was not done, and if there is
    /// a verdict it is not sent again.
    fn turned_away(&mut self, verdict: Option<ChainError>) {
        let link = self.open.as_mut().expect("only what is open is sent");
        link.out -= 1;
        if link.out == 0
            && let Some(why) = verdict
        {
            self.undone(why);
        }
    }

    /// Looks whether what is open was done. If the head is as it was, it may still arrive. Tells
    /// whether the store answered.
    async fn find(&mut self) -> bool {
        let (machine, ttl) = (self.session.machine(), self.session.ttl());
        let read = self.session.store().get(self.claim.key());
        let Some(Ok(found)) = within(machine, ttl.timeout(), read).await else { return false };
        let nonce = |entry: &Entry| Some(Head::from_value(&entry.value).ok()?.nonce);
        let mine = self.open.as_ref().map(|link| link.head.nonce);
        match found {
            Some(entry) if nonce(&entry) == mine => self.done(entry.version),
            Some(entry) if entry.version == self.version => {
                if mutant::active(Mutant::DecideAnew) {
                    self.undone(ChainError::NotSent("it was not found".into()));
                }
            }
            Some(_) | None => self.undone(ChainError::Moved),
        }
        true
    }

    fn done(&mut self, version: Version) {
        let link = self.open.take().expect("only what is open can be done");
        self.head = link.head;
        self.version = version;
    }

    fn undone(&mut self, why: ChainError) {
        self.open = None;
        match why {
            ChainError::Moved => self.moved = true,
            why => self.failed = Some(why),
        }
    }
}

/// Writes for several chains of one session, in one commit of the store where its limits allow, else in
/// several, one after the other. Each piece has its own answer, in the order of the pieces, as
/// [`Chain::commit`] would give it: one that is refused, or whose chain has moved, does not keep the
/// others from being done. They are not one atomic step: some may be done and others not.
///
/// Returns when all is known. If it is dropped before, what it wanted to write is still in the chains,
/// as with [`Chain::commit`]: whatever is done next with one of them settles its own piece first. What
/// had to wait because something was open from before is not in them.
pub async fn commit_all(mut pieces: Vec<ChainWrites<'_>>) -> Vec<ChainResult> {
    settle_all(&mut writers(&mut pieces)).await;
    for ChainWrites { chain, body, writes } in &mut pieces {
        if chain.is_clear() {
            let body = body.take();
            let link = chain.link(|head| Head { body, ..head }, std::mem::take(writes));
            chain.open = Some(link);
        }
    }
    settle_all(&mut writers(&mut pieces)).await;
    // Nothing is awaited from here on, so that whoever asked is told.
    let answer = |ChainWrites { chain, .. }: ChainWrites<'_>| {
        chain.check_kept().and_then(|()| chain.answer())
    };
    pieces.into_iter().map(answer).collect()
}

/// The chains that may be written to.
fn writers<'a>(pieces: &'a mut [ChainWrites<'_>]) -> Vec<&'a mut Chain> {
    pieces.iter_mut().map(|piece| &mut *piece.chain).filter(|chain| !chain.leaving).collect()
}

/// How links are sent.
#[derive(PartialEq, Eq)]
enum LinkCompany {
    /// As many in one commit as fit.
    Together,
    /// Each in a commit of its own.
    Apart,
}

/// Sends what is open until nothing is.
async fn settle_all(chains: &mut [&mut Chain]) {
    let mut most = usize::MAX;
    loop {
        let mut batch = pack(chains, most);
        if batch.is_empty() {
            return;
        }
        if push(&mut batch).await == LinkCompany::Apart {
            most = 1;
        }
    }
}

/// The first chains with something open, as many as fit in one commit. One that does not even fit by
/// itself goes by itself: the store will refuse it.
fn pack<'a>(chains: &'a mut [&mut Chain], most: usize) -> Vec<&'a mut Chain> {
    let (mut batch, mut writes, mut bytes) = (Vec::new(), 0, 0);
    for chain in chains.iter_mut() {
        let Some(Link { commit, .. }) = &chain.open else { continue };
        // The limit of conditions is that of writes, and a link has one condition and at least one write.
        // A hand-over has two, and goes by itself.
        writes += commit.then.len();
        bytes += commit.len();
        let limits = chain.session.store().limits();
        let fits = writes <= limits.writes && bytes <= limits.commit_bytes;
        if batch.len() == most || !fits && !batch.is_empty() {
            break;
        }
        batch.push(&mut **chain);
    }
    batch
}

/// Sends what is open in these chains once more, as one commit. Then each is done, or undone, or still
/// open. Tells how to go on with those.
async fn push(batch: &mut [&mut Chain]) -> LinkCompany {
    let session = batch[0].session.clone();
    let (machine, ttl) = (session.machine(), session.ttl());
    let mut commit = Commit::new();
    for chain in batch.iter_mut() {
        assert_eq!(chain.session.key(), session.key(), "one session writes in one commit");
        let link = chain.open.as_mut().expect("only what is open is sent");
        link.out += 1;
        commit.when.extend_from_slice(&link.commit.when);
        commit.then.extend_from_slice(&link.commit.then);
    }
    let answer = within(machine, ttl.timeout(), session.store().commit(commit)).await;
    let is_conflict = matches!(answer, Some(Err(CommitError::Conflict(_))));
    let company = judge(batch, answer);
    if is_conflict || mutant::active(Mutant::DecideAnew) {
        for chain in batch.iter_mut().filter(|chain| chain.is_in_doubt()) {
            if !chain.find().await {
                break;
            }
        }
    }
    if batch.iter().any(|chain| chain.is_in_doubt()) {
        machine.sleep(ttl.pause()).await;
    }
    company
}

/// What an answer to a commit of these chains means to each of them. If it was turned away and does not
/// say because of whom, each goes by itself from then on, and that one will be found.
fn judge(batch: &mut [&mut Chain], answer: Option<Result<Version, CommitError>>) -> LinkCompany {
    let is_single = batch.len() == 1;
    match answer {
        Some(Ok(version)) => batch.iter_mut().for_each(|chain| chain.done(version)),
        Some(Err(CommitError::Conflict(why))) => {
            let mut company = LinkCompany::Apart;
            for chain in batch {
                if chain.is_gone(&why.condition) {
                    company = LinkCompany::Together;
                    chain.undone(ChainError::Gone);
                    continue;
                }
                let blamed = is_single || chain.requires(&why.condition);
                if blamed {
                    company = LinkCompany::Together;
                }
                chain.turned_away(blamed.then_some(ChainError::Moved));
            }
            return company;
        }
        Some(Err(CommitError::Refused(why))) => {
            for chain in batch {
                chain.turned_away(is_single.then(|| why.clone().into()));
            }
            if !is_single {
                return LinkCompany::Apart;
            }
        }
        Some(Err(CommitError::Unavailable(why))) => {
            for chain in batch {
                chain.turned_away(Some(ChainError::NotSent(why.clone())));
            }
        }
        Some(Err(CommitError::Corrupt(why))) => {
            for chain in batch {
                chain.undone(ChainError::Corrupt(why.clone()));
            }
        }
        Some(Err(CommitError::Unknown(_))) | None => {}
    }
    LinkCompany::Together
}

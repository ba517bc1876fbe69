//! Claims: who has something, and under which token.
//!
//! A claim is one record, its *head*, that names the session of whoever has it. It is free when that
//! session is absent, and then anybody with a session may take it, with a greater token:
//!
//! ```text
//! when  At(head, as I read it), Absent(its session), Present(my session)
//! then  Put(head: my session, the next token)
//! ```
//!
//! Time plays no part here: that a session is absent was decided by a burial, or by its owner. Only the
//! holder or a burial frees a claim. Who wants a holder to leave writes a *wish* beside the head, which
//! names the token that it is about, and perhaps the node that is to follow; a person who lets a waiting holder begin writes an *approval*, and
//! that names the token as well, so that neither can ever meet somebody else.
//!
//! **Formats.** Who has something reads all that belongs to it, and passes over records of kinds that it does not know. So the
//! head, which everybody reads first, is where the format of all of that stands: a version that would misread what a shard keeps
//! is refused by its head ([`SHARD_HEAD`]), whatever else was written. Heads of elections stay in the first format, as their
//! candidates may be of any version.
//!
//! A claim may be *mirrored*: every commit that changes who has it writes that to a second key as well.
//! Holders write their heads all the time, and a head may be long; a mirror is short and changes only
//! when the holder does. Nobody decides by it: see [`crate::ownership`].

use engine::lease::{Nonce, Token};
use engine::mutant::{self, Mutant};
use engine::record::{Format, RecordError, decode, encode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chain::Chain;
use crate::error::unread;
use crate::machine::{Machine, within};
use crate::ownership::Ownership;
use crate::session::{NodeId, Session, SessionKey, hex};
use crate::{
    Commit, CommitError, Condition, Entry, Key, Refusal, ScanError, Store, Value, Version, Write,
};

const FORMAT: Format = Format(1);

/// The format of heads of shards. It rises when a version of before would misread what a shard keeps, also where it does so by
/// passing over records: format 1 knew neither dead runs of queues nor runs that share a record nor hosts that lag, and format 2
/// no runs that have parts.
pub const SHARD_HEAD: Format = Format(3);

/// Tokens are microseconds since 1970, and chains count commits: neither ever gets here.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 2;

/// What a claim says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    /// In which format it is stored.
    #[serde(skip_serializing)]
    pub format: Format,
    /// Who has it; nobody, if it was released.
    pub session: Option<SessionKey>,
    /// Under which token; it stays when the claim is released.
    pub token: u64,
    /// Whether whoever has it may act.
    pub state: ClaimState,
    /// Which commit of the chain this is: see [`crate::chain`].
    pub number: u64,
    /// Names the commit that wrote this.
    #[serde(with = "hex")]
    pub nonce: Nonce,
    /// What the holder keeps in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
}

/// Whether a holder may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimState {
    /// As long as its session is valid.
    Held,
    /// Not before a person has approved it.
    Waiting,
    /// Nobody has it.
    Free,
}

impl Head {
    /// What a claim is before anybody had it.
    pub(crate) fn first() -> Self {
        Self {
            format: FORMAT,
            session: None,
            token: 0,
            state: ClaimState::Free,
            number: 0,
            nonce: Nonce(0),
            body: None,
        }
    }

    /// The token of the holder, or of the last one.
    pub fn token(&self) -> Token {
        Token(self.token)
    }

    /// The head as it is stored.
    pub fn to_value(&self) -> Value {
        encode(self.format, self).into()
    }

    /// Reads a head of any claim as it was stored.
    pub fn from_value(value: &Value) -> Result<Self, RecordError> {
        decode(value.as_bytes(), SHARD_HEAD)
    }
}

/// A wish that a holder leave, or an approval that it may begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimNote {
    /// The holder that it is about.
    pub(crate) token: u64,
    /// Who wrote it.
    pub(crate) by: String,
    /// The node that is to have the claim next, if the wish says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
}

impl ClaimNote {
    pub(crate) fn to_value(&self) -> Value {
        encode(FORMAT, self).into()
    }

    pub(crate) fn from_value(value: &Value) -> Result<Self, RecordError> {
        decode(value.as_bytes(), FORMAT)
    }
}

/// The keys of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// In which format its head is written.
    format: Format,
    head: Key,
    wish: Key,
    approval: Key,
    mirror: Option<Key>,
}

/// A claim as one look showed it.
#[derive(Debug, Clone)]
pub struct ClaimView {
    /// The head of the claim.
    pub head: Head,
    /// At which version; `None` if nobody ever had it.
    pub version: Option<Version>,
    /// That somebody wants its holder to leave.
    pub wish: Option<Wish>,
    /// The token that somebody approved.
    pub approval: Option<Token>,
}

/// That whoever has a claim under a token leave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The token that it is about.
    pub token: Token,
    /// The node that is to have the claim next, if somebody said so.
    pub to: Option<NodeId>,
}

impl ClaimView {
    /// The wish that whoever has the claim now leave it, if there is one.
    pub fn wished(&self) -> Option<&Wish> {
        self.wish.as_ref().filter(|wish| wish.token == self.head.token())
    }
}

/// Why a claim was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Somebody has it, or was quicker: look again.
    #[error("somebody else has it")]
    NotFree,
    /// It may have been taken, and may yet be: look again.
    #[error("the store gave no clear answer")]
    Unclear,
    /// The store may have forgotten something lately: wait, then look again.
    #[error("nothing may be claimed while the store may have forgotten something")]
    Quarantine {
        /// How long that lasts.
        left: std::time::Duration,
    },
    /// The store takes no such record.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Claim {
    /// The claim at this key. Wish and approval lie below it.
    pub fn new(key: impl Into<String>) -> Result<Self, Refusal> {
        let key = key.into();
        Ok(Self {
            format: FORMAT,
            wish: Key::new(format!("{key}/wish"))?,
            approval: Key::new(format!("{key}/approval"))?,
            head: Key::new(key)?,
            mirror: None,
        })
    }

    /// Its head is read up to this format, and written in it from the next taking on, so that no reader of a former one acts on
    /// what belongs to it.
    #[must_use]
    pub fn of_format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Adds a mirror: a key that names the holder too, for those who want to know the holders of many claims, and
    /// word when one changes. Only commits of a claim that was made with its mirror write it.
    #[must_use]
    pub fn mirrored(mut self, mirror: Key) -> Self {
        self.mirror = Some(mirror);
        self
    }

    /// The key of its head.
    pub fn key(&self) -> &Key {
        &self.head
    }

    /// What sessions call it that campaign for it: `project/name`, if it is that of an election.
    pub fn candidacy(&self) -> Option<&str> {
        self.head.as_str().strip_prefix("election/")
    }

    /// Looks at the claim, and at what was written beside it.
    pub async fn look(&self, store: &Store) -> Result<ClaimView, ScanError> {
        let (head, wish, approval) =
            tokio::join!(store.get(&self.head), store.get(&self.wish), store.get(&self.approval));
        let (head, version) = match head? {
            Some(Entry { value, version, .. }) => {
                let head: Head = decode(value.as_bytes(), self.format)
                    .map_err(|why| ScanError::Corrupt(format!("{}: {why}", self.head)))?;
                if head.token.max(head.number) > NUMBER_MAX {
                    let why =
                        format!("{}: its numbers are beyond all that is ever reached", self.head);
                    return Err(ScanError::Corrupt(why));
                }
                (head, Some(version))
            }
            None => (Head::first(), None),
        };
        // They name the token that they are about, so it does not matter which was read first.
        let note = |entry: Option<Entry>| ClaimNote::from_value(&entry?.value).ok();
        let wish = note(wish?).map(|ClaimNote { token, to, .. }| Wish {
            token: Token(token),
            to: to.and_then(|to| NodeId::new(to).ok()),
        });
        let approval = note(approval?).map(|note| Token(note.token));
        Ok(ClaimView { head, version, wish, approval })
    }

    /// Takes a claim that is free as it was seen, or that names this session already because a commit was
    /// done whose answer did not come. Carries its body over. What was read between that look and this
    /// call is current if this succeeds: nobody has written in between.
    pub async fn take(
        &self,
        seen: &ClaimView,
        by: &Session,
        state: ClaimState,
    ) -> Result<Chain, ClaimError> {
        let epoch =
            by.trusted_epoch().map_err(|wait| ClaimError::Quarantine { left: wait.left })?;
        // Whatever right this session had to it is over.
        by.rescind(&self.head);
        let machine = by.machine();
        let head = Head {
            format: self.format.max(seen.head.format),
            session: Some(by.key().clone()),
            token: Token::after(seen.head.token(), machine.wall_us()).0,
            state,
            number: seen.head.number + 1,
            nonce: Nonce(machine.random()),
            body: seen.head.body.clone(),
        };
        let commit = self.taking(seen, by.key(), &head);
        match within(machine, by.ttl().timeout(), by.store().commit(commit)).await {
            // What was taken in an epoch that we have not looked at is looked at first.
            Some(Ok(version)) if by.store().epoch() == epoch => {
                Ok(Chain::new(self.clone(), by, head, version, epoch))
            }
            Some(Err(CommitError::Conflict(_))) => Err(ClaimError::NotFree),
            Some(Err(CommitError::Refused(why))) => Err(why.into()),
            Some(
                Ok(_)
                | Err(
                    CommitError::Unknown(_) | CommitError::Unavailable(_) | CommitError::Corrupt(_),
                ),
            )
            | None => Err(ClaimError::Unclear),
        }
    }

    /// What takes a claim as it was seen, with this head. What it carries over is the caller's business.
    pub fn taking(&self, seen: &ClaimView, by: &SessionKey, head: &Head) -> Commit {
        let mut commit = Commit::new().when(self.unmoved(seen));
        if let Some(former) = seen.head.session.as_ref().filter(|former| *former != by) {
            commit = commit.when(Condition::Absent(former.key().clone()));
        }
        commit = commit.when(Condition::Present(by.key().clone()));
        commit.then = self.giving(head);
        commit
    }

    /// What frees a claim as it was seen, on behalf of whoever has it. Nothing, if nobody ever had it.
    pub fn releasing(&self, seen: &ClaimView, nonce: Nonce) -> Option<Commit> {
        seen.version?;
        let (number, last) = (seen.head.number + 1, seen.head.clone());
        let head = Head { session: None, state: ClaimState::Free, number, nonce, ..last };
        let then = self.giving(&head);
        let commit = Commit { when: vec![self.unmoved(seen)], then };
        Some(self.notes().into_iter().fold(commit, Commit::delete))
    }

    /// What gives a claim as it was seen to this session, under the next token, on behalf of whoever has it.
    pub fn handing(&self, seen: &ClaimView, to: &SessionKey, machine: &dyn Machine) -> Commit {
        let head = Head {
            session: Some(to.clone()),
            token: Token::after(seen.head.token(), machine.wall_us()).0,
            state: ClaimState::Held,
            number: seen.head.number + 1,
            nonce: Nonce(machine.random()),
            ..seen.head.clone()
        };
        let there = Condition::Present(to.key().clone());
        Commit { when: vec![self.unmoved(seen), there], then: self.giving(&head) }
    }

    /// What writes a head that names somebody else than the last one, or names it under another token.
    pub(crate) fn giving(&self, head: &Head) -> Vec<Write> {
        let mirror = self.mirror.clone().map(|mirror| (mirror, Ownership::of(head).to_value()));
        let both = [(self.head.clone(), head.to_value())].into_iter().chain(mirror);
        both.map(|(key, value)| Write::Put(key, value)).collect()
    }

    /// Writes the mirror anew if it does not say who has the claim: somebody has damaged it, or knows of no mirrors. Returns
    /// whether that was so.
    pub async fn mend_mirror(&self, store: &Store) -> Result<bool, CommitError> {
        let Some(mirror) = &self.mirror else { return Ok(false) };
        // Before the head: whoever changes that after this look changes the mirror as well.
        let shown = store.get(mirror).await.map_err(unread)?;
        let seen = self.look(store).await.map_err(unread)?;
        let right = Ownership::of(&seen.head).to_value();
        let unmoved = match shown {
            _ if seen.version.is_none() => return Ok(false),
            Some(Entry { value, .. }) if value == right => return Ok(false),
            Some(Entry { version, .. }) => Condition::At(mirror.clone(), version),
            None => Condition::Absent(mirror.clone()),
        };
        store.commit(Commit::new().when(unmoved).put(mirror.clone(), right)).await?;
        Ok(true)
    }

    /// What asks whoever has the claim under this token to leave it, for this node if one is named.
    pub fn wishing(&self, token: u64, to: Option<&NodeId>, by: &str) -> Commit {
        note(&self.wish, &ClaimNote { token, by: by.to_owned(), to: to.map(NodeId::to_string) })
    }

    /// What lets the one that waits under this token begin, as long as the claim is as it was seen.
    pub fn approving(&self, seen: &ClaimView, by: &str) -> Commit {
        let note = ClaimNote { token: seen.head.token, by: by.to_owned(), to: None };
        Commit::new().when(self.unmoved(seen)).put(self.approval.clone(), note.to_value())
    }

    fn unmoved(&self, seen: &ClaimView) -> Condition {
        match seen.version {
            Some(version) => Condition::At(self.head.clone(), version),
            None => Condition::Absent(self.head.clone()),
        }
    }

    /// Asks whoever has the claim to leave it; tells who that is. It does so when it has stopped, and
    /// the claim is free then. `None` if nobody has it.
    pub async fn wish(&self, store: &Store, by: &str) -> Result<Option<NodeId>, CommitError> {
        let seen = self.look(store).await.map_err(unread)?;
        let Some(holder) = &seen.head.session else { return Ok(None) };
        let mut commit = self.wishing(seen.head.token, None, by);
        if mutant::active(Mutant::FreeOnResign) {
            let number = seen.head.number + 1;
            let free = Head { session: None, state: ClaimState::Free, number, ..seen.head.clone() };
            let version = seen.version.expect("a claim that somebody has was written");
            commit = Commit::new()
                .when(Condition::At(self.head.clone(), version))
                .put(self.head.clone(), free.to_value());
        }
        store.commit(commit).await?;
        Ok(Some(holder.node().clone()))
    }

    /// Lets the one that waits under this token begin.
    pub async fn approve(&self, store: &Store, token: Token, by: &str) -> Result<(), CommitError> {
        let approval = ClaimNote { token: token.0, by: by.to_owned(), to: None };
        store.commit(note(&self.approval, &approval)).await.map(|_| ())
    }

    /// Writes a head that nobody has once more, so that whatever was conditional on it no longer lands.
    pub(crate) fn touch(&self, seen: &ClaimView, nonce: u64) -> Commit {
        let head = Head { number: seen.head.number + 1, nonce: Nonce(nonce), ..seen.head.clone() };
        Commit::new().when(self.unmoved(seen)).put(self.head.clone(), head.to_value())
    }

    /// What is deleted together with a release.
    pub(crate) fn notes(&self) -> [Key; 2] {
        [self.wish.clone(), self.approval.clone()]
    }
}

fn note(key: &Key, note: &ClaimNote) -> Commit {
    Commit::new().put(key.clone(), note.to_value())
}

//! Whether the commit of a guest may be done, judged by what the store has at the keys that it touches.

use engine::lease::Ttl;
use engine::limits::GUEST_TOKEN_AHEAD_MAX;

use super::{
    Denied, Guest, GuestCommit, GuestReads, GuestRefusal, HeadChange, TAKING, Take, denied,
};
use crate::claim::{Claim, ClaimState, Head};
use crate::session::{Longest, SessionKey, SessionRecord};
use crate::{Commit, Condition, Entry, Key, Version};

impl GuestCommit {
    /// A key that must be read before this commit can be judged; `None` when all have been read.
    pub fn needs(&self, seen: &GuestReads) -> Option<Key> {
        let session = |key: &SessionKey| key.key().clone();
        let mut keys = match self {
            Self::Open(..) => Vec::new(),
            Self::Raise(..) => vec![Longest::key()],
            Self::Renew(key, ..) | Self::Close(key, _) => vec![session(key)],
            Self::Take(take) => vec![session(&take.by), take.claim.key().clone()],
            Self::Wish(claim, ..) => vec![claim.key().clone()],
            Self::Change(step) => vec![step.claim.key().clone()],
        };
        // Whether the holder is there, and whose it is, matters to whoever does not say that it is gone.
        let claim = match self {
            Self::Change(step) => Some(&step.claim),
            Self::Take(take) => take.former.is_none().then_some(&take.claim),
            Self::Raise(..)
            | Self::Open(..)
            | Self::Renew(..)
            | Self::Close(..)
            | Self::Wish(..) => None,
        };
        if let Some(Some(head)) = claim.and_then(|claim| seen.get(claim.key())) {
            let head = Head::from_value(&head.value).ok();
            keys.extend(head.and_then(|head| head.session).as_ref().map(session));
        }
        keys.into_iter().find(|key| !seen.contains_key(key))
    }

    /// The commit to send to the store, if the guest may do that. Everything that [`GuestCommit::needs`] names has been read.
    pub fn judge(self, guest: &Guest<'_>, seen: &GuestReads) -> Result<Commit, GuestRefusal> {
        let found = |key: &Key| seen.get(key).and_then(Option::as_ref);
        match self {
            Self::Raise(at, ttl) => raise(at, ttl, found(&Longest::key())),
            Self::Open(key, record) => {
                let record = SessionRecord { key: Some(guest.key.to_owned()), ..record };
                let key = key.key().clone();
                Ok(Commit::new().when(Condition::Absent(key.clone())).put(key, record.to_value()))
            }
            Self::Renew(key, at, record) => {
                let (former, version) = owned(&key, guest, found(key.key()), 0)?;
                check_at(Some(at), Some(version))?;
                if former.ttl_ms != record.ttl_ms {
                    return Err(Denied("T is fixed while a session lasts".into()).into());
                }
                let record = SessionRecord { key: former.key, ..record };
                let key = key.key().clone();
                Ok(Commit::new().when(Condition::At(key.clone(), at)).put(key, record.to_value()))
            }
            Self::Close(key, at) => {
                let (_, version) = owned(&key, guest, found(key.key()), 0)?;
                check_at(at.or(Some(version)), Some(version))?;
                let key = key.key().clone();
                let there = match at {
                    Some(at) => Condition::At(key.clone(), at),
                    None => Condition::Present(key.clone()),
                };
                Ok(Commit::new().when(there).delete(key))
            }
            Self::Take(take) => take.judge(guest, seen),
            Self::Change(step) => step.judge(guest, seen),
            Self::Wish(claim, token, to) => {
                if found(claim.key()).is_none() {
                    return Err(Denied("nobody ever had it".into()).into());
                }
                Ok(claim.wishing(token, to.as_ref(), guest.author))
            }
        }
    }
}

fn raise(at: Option<Version>, ttl: Ttl, found: Option<&Entry>) -> Result<Commit, GuestRefusal> {
    check_at(at, found.map(|entry| entry.version))?;
    let known = found.and_then(|entry| Longest::from_value(&entry.value).ok()?.ttl());
    if known.is_some_and(|known| known > ttl) {
        return Err(Denied("the longest T that there ever was is not lowered".into()).into());
    }
    let key = Longest::key();
    let commit = Commit::new().when(unmoved(&key, at));
    Ok(commit.put(key, Longest::new(ttl).to_value()))
}

fn unmoved(key: &Key, at: Option<Version>) -> Condition {
    at.map_or_else(|| Condition::Absent(key.clone()), |at| Condition::At(key.clone(), at))
}

/// Checks the first condition of a commit against the version that is there.
fn check_at(at: Option<Version>, found: Option<Version>) -> Result<(), GuestRefusal> {
    if at == found { Ok(()) } else { Err(GuestRefusal::Conflict { condition: 0, found }) }
}

/// The record of a session that belongs to this guest; `condition` is the one that fails if it is absent.
fn owned(
    key: &SessionKey,
    guest: &Guest<'_>,
    found: Option<&Entry>,
    condition: usize,
) -> Result<(SessionRecord, Version), GuestRefusal> {
    let entry = found.ok_or(GuestRefusal::Conflict { condition, found: None })?;
    let record = SessionRecord::from_value(&entry.value).ok();
    match record {
        Some(record)
            if key.guest() == Some(guest.project) && record.key.as_deref() == Some(guest.key) =>
        {
            Ok((record, entry.version))
        }
        _ => Err(Denied(format!("the session {key} was opened with another key")).into()),
    }
}

/// A head as it was read, and its version.
fn head_of(claim: &Claim, seen: &GuestReads) -> Result<(Head, Option<Version>), GuestRefusal> {
    let Some(Some(entry)) = seen.get(claim.key()) else { return Ok((Head::first(), None)) };
    let head = Head::from_value(&entry.value);
    let head = head.map_err(|why| Denied(format!("{} cannot be read: {why}", claim.key())))?;
    Ok((head, Some(entry.version)))
}

impl Take {
    fn judge(self, guest: &Guest<'_>, seen: &GuestReads) -> Result<Commit, GuestRefusal> {
        let (last, version) = head_of(&self.claim, seen)?;
        let other = last.session.as_ref().filter(|last| **last != self.by);
        if let (None, Some(holder)) = (&self.former, other) {
            check_at(self.at, version)?;
            return self.hand_over(guest, &last, holder, seen);
        }
        let Self { claim, at, former, by, head } = self;
        let found = seen.get(by.key()).and_then(Option::as_ref);
        owned(&by, guest, found, 1 + usize::from(former.is_some()))?;
        check_at(at, version)?;
        if last.session.filter(|last| *last != by) != former {
            return Err(Denied(TAKING.into()).into());
        }
        check_token(head.token, last.token, guest)?;
        if head.number != last.number + 1 || head.state == ClaimState::Free {
            return Err(Denied(TAKING.into()).into());
        }
        let mut commit = Commit::new().when(unmoved(claim.key(), at));
        if let Some(former) = &former {
            commit = commit.when(Condition::Absent(former.key().clone()));
        }
        let commit = commit.when(Condition::Present(by.key().clone()));
        Ok(commit.put(claim.key().clone(), head.to_value()))
    }

    /// Its holder, one of the guest's own sessions, gives it to another one that campaigns for it.
    fn hand_over(
        self,
        guest: &Guest<'_>,
        last: &Head,
        holder: &SessionKey,
        seen: &GuestReads,
    ) -> Result<Commit, GuestRefusal> {
        let Self { claim, at, by: successor, head, .. } = self;
        let found = |key: &SessionKey| seen.get(key.key()).and_then(Option::as_ref);
        owned(holder, guest, found(holder), 0)?;
        // It was read before the head was: so it was absent while that stood, as the holder takes this answer to say.
        let entry = found(&successor);
        let entry = entry.ok_or(GuestRefusal::Conflict { condition: 1, found: None })?;
        let record = SessionRecord::from_value(&entry.value).ok();
        let is_candidate = record.filter(|record| !record.joining).is_some_and(|record| {
            claim.candidacy().is_some_and(|candidacy| record.campaigns_for(candidacy))
        });
        if !is_candidate || successor.guest().is_some_and(|project| project != guest.project) {
            return Err(Denied(format!("{successor} does not campaign for this election")).into());
        }
        check_token(head.token, last.token, guest)?;
        if head.number != last.number + 1 || head.state != ClaimState::Held {
            return Err(Denied(TAKING.into()).into());
        }
        let there = |key: &SessionKey| Condition::Present(key.key().clone());
        let commit = Commit::new()
            .when(unmoved(claim.key(), at))
            .when(there(&successor))
            .when(there(holder));
        Ok(commit.put(claim.key().clone(), head.to_value()))
    }
}

/// A token grows, and not so far that nobody could ever have the next one.
fn check_token(token: u64, last: u64, guest: &Guest<'_>) -> Result<(), Denied> {
    let ahead = u64::try_from(GUEST_TOKEN_AHEAD_MAX.as_micros()).unwrap_or(u64::MAX);
    let most = guest.wall_us.saturating_add(ahead).max(last + 1);
    if token <= last {
        return denied("a token only grows");
    }
    if token > most {
        return denied(
            "the token is more than a day ahead of the server's clock: set the clock of this machine",
        );
    }
    Ok(())
}

impl HeadChange {
    fn judge(self, guest: &Guest<'_>, seen: &GuestReads) -> Result<Commit, GuestRefusal> {
        let (last, version) = head_of(&self.claim, seen)?;
        check_at(self.at, version)?;
        let holder = last.session.as_ref();
        let is_there = |key: &SessionKey| seen.get(key.key()).is_some_and(Option::is_some);
        match holder.filter(|holder| is_there(holder)) {
            Some(holder) => {
                let entry = seen.get(holder.key()).and_then(Option::as_ref);
                owned(holder, guest, entry, 0)?;
                self.check_holder(&last)?;
            }
            None => self.check_touch(&last)?,
        }
        let mut commit = Commit::new().when(unmoved(self.claim.key(), self.at));
        match holder {
            // The verdict rests on whether the holder's session is there, so that is a condition too.
            Some(holder) if is_there(holder) => {
                commit = commit.when(Condition::Present(holder.key().clone()));
            }
            Some(holder) => commit = commit.when(Condition::Absent(holder.key().clone())),
            None => {}
        }
        commit = commit.put(self.claim.key().clone(), self.head.to_value());
        if self.clears {
            commit = self.claim.notes().into_iter().fold(commit, Commit::delete);
        }
        Ok(commit)
    }

    /// Checks a write or a release by the holder of the claim.
    fn check_holder(&self, last: &Head) -> Result<(), Denied> {
        let new = &self.head;
        let keeps = new.session == last.session && new.state != ClaimState::Free && !self.clears;
        let frees = new.session.is_none() && new.state == ClaimState::Free;
        if (keeps || frees) && new.token == last.token && new.number == last.number + 1 {
            return Ok(());
        }
        denied(
            "whoever has an election writes it under its token, with the next number, or releases it",
        )
    }

    /// Checks that a claim which nobody has is only touched: written once more unchanged, so that what is on its way no
    /// longer lands. Anything else comes too late, from somebody whose session is gone.
    fn check_touch(&self, last: &Head) -> Result<(), GuestRefusal> {
        let new = &self.head;
        let body = |head: &Head| head.body.as_ref().map(|body| body.get().to_owned());
        let is_touch = new.session == last.session
            && (new.token, new.state) == (last.token, last.state)
            && body(new) == body(last)
            && new.number == last.number + 1
            && !self.clears;
        if is_touch { Ok(()) } else { Err(GuestRefusal::Conflict { condition: 0, found: self.at }) }
    }
}

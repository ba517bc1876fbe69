//! `POST /v1/elections/{name}/campaign`: a program says again and again that it wants to lead.
//!
//! Each request is one sign of life and no more. The server keeps nothing of a candidate in mind: what is not asked
//! for is not renewed, so a program that has stopped asking loses its session as any node would. Time stays with the
//! program: `valid_for_ms` is counted from the moment before it sent the request, and every commit of the answer came
//! after that. So an answer that was under way for long, or was given by a slow server, is worth less and never more.
//!
//! A candidate looks first: as long as somebody else leads, nothing is written, and it needs no session. If the
//! election is free, it is given one, and takes it. One that wants to be listed, so that a wish may name it, has a session from
//! its first request on: each of its requests is a write. A request that waits for its turn is told when that has come and
//! asks again: what it would be given after waiting would have been good since it was sent.
//!
//! The head of an election keeps in which epoch of the store it was taken. In another one it is taken anew, under a
//! new token, when this server trusts that epoch.

use std::time::Duration;

use axum::extract::{Path, Request};
use axum::response::Json;
use client::election::{Campaign, CampaignRequest};
use engine::lease::{Nonce, Token, Ttl};
use engine::limits::{CAMPAIGN_WAIT_MAX, GUEST_TTL_MAX, LEASE_TTL_MIN};
use engine::record::Format;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use store::claim::{Claim, ClaimState, ClaimView, Head};
use store::session::{NodeId, SessionKey, SessionRecord, raise_longest};
use store::{Commit, Condition, Entry};
use tokio::time::{Instant, timeout, timeout_at};

use super::{check, claim};
use crate::api::body;
use crate::api::caller::Caller;
use crate::api::problem::{ApiError, ApiResult};
use crate::api::store::{Failure, act, moment, project_name};
use crate::handle::NodeHandle;

/// How often a renewal is tried that meets another one of the same session.
const RENEWALS_MAX: usize = 5;

/// How often a request that waits looks whether the election is free: at least, and at most.
const POLL: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(50);

/// How long to wait while nobody may have it yet.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// What the head of an election keeps that was taken here.
#[derive(Serialize, Deserialize)]
struct Term {
    epoch: String,
}

/// Somebody who wants to lead.
struct CampaignCandidate<'a> {
    handle: &'a NodeHandle,
    caller: &'a Caller,
    project: String,
    claim: Claim,
    node: NodeId,
    ttl: Ttl,
    session: Option<SessionKey>,
    listing: Listing,
}

/// Whether others see a candidate while somebody else leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    Listed,
    Unlisted,
}

/// What a session was found to be.
enum Renewed {
    Done,
    /// It is not there any more.
    Lost,
}

pub(in crate::api) async fn campaign(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> ApiResult<Json<Campaign>> {
    let arrived = Instant::now();
    let asked: CampaignRequest = body::read(request).await?;
    check(&name)?;
    let project = project_name(&handle, caller.project)?;
    let (node, session) = session_of(&project, &asked.candidate, asked.session.as_deref())?;
    let length = Duration::from_millis(asked.ttl_ms);
    let ttl = Ttl::new(length).ok().filter(|_| length <= GUEST_TTL_MAX).ok_or_else(|| {
        let (least, most) = (LEASE_TTL_MIN.as_millis(), GUEST_TTL_MAX.as_millis());
        ApiError::field("/ttl_ms", format!("it is a whole number from {least} to {most}"))
    })?;
    let wait = Duration::from_millis(asked.wait_ms);
    if wait > CAMPAIGN_WAIT_MAX {
        let most = CAMPAIGN_WAIT_MAX.as_millis();
        return Err(ApiError::field("/wait_ms", format!("it is a whole number from 0 to {most}")));
    }
    let (listing, wait) = if asked.listed {
        // Its session is renewed by requests alone, and is not to lapse while one waits.
        (Listing::Listed, wait.min(length / 2))
    } else {
        (Listing::Unlisted, wait)
    };
    let (handle, caller, claim) = (&handle, &caller, claim(&project, &name)?);
    let candidate =
        CampaignCandidate { handle, caller, project, claim, node, ttl, session, listing };
    let answer = candidate.step(arrived + wait).await;
    answer.map(Json).map_err(|failure| failure.told(handle))
}

/// A candidate and its session, as a request names them.
pub(super) fn session_of(
    project: &str,
    candidate: &str,
    session: Option<&str>,
) -> ApiResult<(NodeId, Option<SessionKey>)> {
    let node =
        NodeId::new(candidate).map_err(|why| ApiError::field("/candidate", why.to_string()))?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let session = match session {
        None => None,
        Some(text) if text.len() == 16 && text.bytes().all(is_hex) => {
            let number = u64::from_str_radix(text, 16).expect("hexadecimal digits");
            Some(SessionKey::of_guest(&node, project, number))
        }
        Some(_) => {
            return Err(ApiError::field(
                "/session",
                "it is the session that an answer told: 16 hexadecimal digits",
            ));
        }
    };
    Ok((node, session))
}

/// What a candidate is told of its session.
fn digits(session: &SessionKey) -> &str {
    session.key().as_str().rsplit_once('.').map_or("", |(_, digits)| digits)
}

impl CampaignCandidate<'_> {
    async fn step(mut self, mut deadline: Instant) -> Result<Campaign, Failure> {
        let mut hints = self.handle.store().watch(self.claim.key().as_str());
        let mut sessions = self.handle.store().watch("node/");
        let mut has_waited = false;
        loop {
            let seen = self.claim.look(self.handle.store()).await?;
            let holder = seen.head.session.clone();
            if holder.is_some() && holder == self.session {
                // Somebody has handed it over meanwhile.
                if has_waited {
                    return Ok(Campaign::Open { retry_ms: 0 });
                }
                return self.go_on(&seen).await;
            }
            let Some(holder) = self.present(holder).await? else {
                if has_waited {
                    return Ok(Campaign::Open { retry_ms: 0 });
                }
                return self.take(&seen).await;
            };
            if self.listing == Listing::Listed
                && !has_waited
                && matches!(self.renew().await?, Renewed::Lost)
            {
                self.open().await?;
                // Nobody but this answer tells it its session.
                deadline = Instant::now();
            }
            if Instant::now() >= deadline {
                let (holder, token) = (holder.node().to_string(), seen.head.token);
                let session = self.session.as_ref().filter(|_| self.listing == Listing::Listed);
                let session = session.map(|key| digits(key).to_owned());
                return Ok(Campaign::Following { holder, token, session });
            }
            has_waited = true;
            let changed = async {
                tokio::time::sleep(PAUSE).await;
                tokio::select! {
                    () = hints.changed() => {}
                    () = sessions.changed() => {}
                    () = self.handle.stopped() => {}
                }
            };
            let _ = timeout_at(deadline, timeout(POLL, changed)).await;
        }
    }

    /// The session that has the election, if it is there.
    async fn present(&self, holder: Option<SessionKey>) -> Result<Option<SessionKey>, Failure> {
        let Some(holder) = holder else { return Ok(None) };
        Ok(self.handle.store().get(holder.key()).await?.map(|_| holder))
    }

    /// It has the election: it goes on, if its session does.
    async fn go_on(&mut self, seen: &ClaimView) -> Result<Campaign, Failure> {
        let now = moment(self.handle).epoch;
        if let Renewed::Lost = self.renew().await? {
            return self.take(seen).await;
        }
        let term: Option<Term> =
            seen.head.body.as_ref().and_then(|body| serde_json::from_str(body.get()).ok());
        if term.is_none_or(|term| term.epoch != now) {
            return self.take(seen).await;
        }
        let resign_wished = seen.wished().is_some();
        Ok(self.leading(&now, seen.head.token, resign_wished))
    }

    /// The candidate's answer, if the store is still in the epoch in which all of this was done.
    fn leading(&self, epoch: &str, token: u64, resign_wished: bool) -> Campaign {
        let quarantine = self.handle.quarantine();
        if !quarantine.is_zero() || moment(self.handle).epoch != epoch {
            return wait(quarantine);
        }
        let session = self.session.as_ref().map(digits).unwrap_or_default().to_owned();
        let valid_for_ms = u64::try_from(self.ttl.length().as_millis()).unwrap_or(u64::MAX);
        Campaign::Leading { session, token, valid_for_ms, resign_wished }
    }

    /// Nobody has the election: it takes it, with a session that was renewed or opened in this request.
    async fn take(&mut self, seen: &ClaimView) -> Result<Campaign, Failure> {
        let quarantine = self.handle.quarantine();
        if !quarantine.is_zero() {
            return Ok(wait(quarantine));
        }
        let epoch = moment(self.handle).epoch;
        let is_new = match &self.session {
            Some(_) => matches!(self.renew().await?, Renewed::Lost),
            None => true,
        };
        if is_new {
            self.open().await?;
        }
        let Some(by) = &self.session else { return Ok(wait(Duration::ZERO)) };
        let machine = self.handle.machine();
        let body = to_raw_value(&Term { epoch: epoch.clone() }).expect("a term always serializes");
        let head = Head {
            format: seen.head.format,
            session: Some(by.clone()),
            token: Token::after(seen.head.token(), machine.wall_us()).0,
            state: ClaimState::Held,
            number: seen.head.number + 1,
            nonce: Nonce(machine.random()),
            body: Some(body),
        };
        let token = head.token;
        match act(self.handle, self.caller, &self.project, self.claim.taking(seen, by, &head)).await
        {
            Ok(_) => Ok(self.leading(&epoch, token, false)),
            // Somebody was quicker: what was opened for it is of no use.
            Err(Failure::Conflict { .. }) => {
                if is_new {
                    self.close().await;
                }
                Ok(wait(Duration::ZERO))
            }
            Err(why) => Err(why),
        }
    }

    async fn open(&mut self) -> Result<(), Failure> {
        let machine = self.handle.machine();
        raise_longest(self.handle.store(), self.ttl).await?;
        let key = SessionKey::of_guest(&self.node, &self.project, machine.random());
        let record = SessionRecord {
            url: None,
            roles: vec!["candidate".to_owned()],
            ttl_ms: u64::try_from(self.ttl.length().as_millis()).unwrap_or(u64::MAX),
            beat: 1,
            nonce: Nonce(machine.random()),
            wall_us: machine.wall_us(),
            reads: Format(1),
            local: false,
            joining: false,
            key: None,
            draining: false,
            unable: Vec::new(),
            version: String::new(),
            candidacies: self.claim.candidacy().map(str::to_owned).into_iter().collect(),
        };
        let commit = Commit::new()
            .when(Condition::Absent(key.key().clone()))
            .put(key.key().clone(), record.to_value());
        act(self.handle, self.caller, &self.project, commit).await?;
        self.session = Some(key);
        Ok(())
    }

    /// One sign of life.
    async fn renew(&mut self) -> Result<Renewed, Failure> {
        let Some(key) = self.session.clone() else { return Ok(Renewed::Lost) };
        let mut tried = 0;
        loop {
            let Some(entry) = self.handle.store().get(key.key()).await? else {
                return Ok(Renewed::Lost);
            };
            let Some(record) = self.next(&entry) else { return Ok(Renewed::Lost) };
            let commit = Commit::new()
                .when(Condition::At(key.key().clone(), entry.version))
                .put(key.key().clone(), record.to_value());
            tried += 1;
            match act(self.handle, self.caller, &self.project, commit).await {
                Ok(_) => return Ok(Renewed::Done),
                Err(Failure::Conflict { .. }) if tried < RENEWALS_MAX => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// The record that comes after this one.
    fn next(&self, entry: &Entry) -> Option<SessionRecord> {
        let machine = self.handle.machine();
        let record = SessionRecord::from_value(&entry.value).ok()?;
        Some(SessionRecord {
            beat: record.beat.wrapping_add(1),
            nonce: Nonce(machine.random()),
            wall_us: machine.wall_us(),
            ttl_ms: u64::try_from(self.ttl.length().as_millis()).unwrap_or(u64::MAX),
            ..record
        })
    }

    /// What nobody needs any more: if it cannot be closed, patience will do it.
    async fn close(&mut self) {
        let Some(key) = self.session.take() else { return };
        let there = Condition::Present(key.key().clone());
        let commit = Commit::new().when(there).delete(key.key().clone());
        let _ = act(self.handle, self.caller, &self.project, commit).await;
    }
}

/// The election cannot be taken yet, or has just changed: try again in a moment.
fn wait(quarantine: Duration) -> Campaign {
    let pause = quarantine.min(RETRY_MAX).max(PAUSE);
    Campaign::Open { retry_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) }
}

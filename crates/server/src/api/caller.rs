//! The caller: who asks, for which project, and which request it is.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use client::key::Scope;
use engine::id::{ProjectId, RunId, ShardId};
use engine::shard::command::{Command, CommandAnswer, Done};
use engine::shard::{CommandNote, Put, Quota, Taken};

use super::problem::{ApiError, ApiResult};
use crate::access::Trail;
use crate::access::audit::AuditRecord;
use crate::access::key::KeyId;
use crate::access::record::QuotaRecord;
use crate::event::{EventDetail, ServerEvent};
use crate::handle::{CallError, CommandGuard, CommandOptions, NodeHandle, WriteTrouble};
use crate::idempotency::{KeyLock, Remembered, RememberedOutcome, RequestFingerprint};

/// The author of what is done without a key.
pub(super) const ANONYMOUS: &str = "anonymous";

/// Whoever sent a request, and what they may do.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// The project that the request is about.
    pub(super) project: ProjectId,
    /// The name of the caller's key.
    pub(super) author: String,
    pub(super) key: Option<KeyId>,
    /// What they may do.
    pub(super) scopes: Vec<Scope>,
    pub(super) address: Option<IpAddr>,
    pub(super) request_id: String,
    /// The server that says it has passed the request on, if one does.
    pub(super) via: Option<String>,
    /// The request, if it is to be done once.
    pub(super) idempotency: Option<IdempotentRequest>,
}

/// A request that is to be done once.
#[derive(Debug, Clone)]
pub(super) struct IdempotentRequest {
    pub(super) request: RequestFingerprint,
    /// Makes the same request wait until this one is answered.
    pub(super) key_lock: KeyLock,
    /// The shards that this server owned when it looked up whether the request was done already.
    pub(super) served: Arc<BTreeSet<ShardId>>,
}

impl IdempotentRequest {
    /// Checks that no other server has carried the request out since it was looked up: the shard's former owner may have.
    async fn check(&self, handle: &NodeHandle, shard: ShardId) -> Result<(), CallError> {
        handle.find(shard).await?;
        if Arc::ptr_eq(&self.served, &handle.peers().served().borrow()) {
            return Ok(());
        }
        match self.request.find(handle.store(), handle.now()).await {
            Ok(Remembered::New) => Ok(()),
            Ok(Remembered::Done(_) | Remembered::Other) => Err(CallError::Repeated),
            Err(why) => Err(CallError::Refused(WriteTrouble::Closed(why.to_string()))),
        }
    }
}

/// An action, its object, and the outcome that a repeated request is told.
pub(super) struct Act<'a> {
    pub(super) action: &'static str,
    pub(super) object: &'a str,
    pub(super) outcome: RememberedOutcome,
}

impl Caller {
    pub(super) fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    /// What the audit says of something that is done in the caller's project.
    pub(super) fn trail(&self, handle: &NodeHandle, action: &str, object: &str) -> Trail {
        let audit = AuditRecord {
            at: handle.now(),
            action: action.to_owned(),
            object: object.to_owned(),
            project: Some(self.project),
            author: self.author.clone(),
            key: self.key,
            address: self.address,
            via: self.via.clone(),
            request_id: self.request_id.clone(),
        };
        Trail {
            audit,
            idempotency: self.idempotency.as_ref().map(|idempotency| idempotency.request.clone()),
        }
    }

    /// The same, of something that concerns all projects.
    pub(super) fn trail_of_all(&self, handle: &NodeHandle, action: &str, object: &str) -> Trail {
        let mut trail = self.trail(handle, action, object);
        trail.audit.project = None;
        trail
    }

    /// Tells a shard something, and writes down who did it in the same commit.
    pub(super) async fn command<T: CommandAnswer>(
        &self,
        handle: &NodeHandle,
        shard: ShardId,
        command: Command,
        act: Act<'_>,
    ) -> Result<T, CallError> {
        let Act { action, object, outcome } = act;
        let remembered = move |runs: &[RunId]| {
            let started = runs.first().map(|run| RememberedOutcome::Started(run.to_string()));
            started.unwrap_or(outcome)
        };
        self.command_remembering(handle, shard, command, (action, object), remembered).await
    }

    /// The same, where what a repeated request is told follows from the runs that the command starts.
    pub(super) async fn command_remembering<T: CommandAnswer>(
        &self,
        handle: &NodeHandle,
        shard: ShardId,
        command: Command,
        (action, object): (&'static str, &str),
        remembered: impl FnOnce(&[RunId]) -> RememberedOutcome + Send + 'static,
    ) -> Result<T, CallError> {
        if let Some(idempotency) = &self.idempotency {
            idempotency.check(handle, shard).await?;
        }
        let trail = self.trail(handle, action, object);
        let random = handle.clone();
        let note: CommandNote = Box::new(move |runs: &[RunId]| {
            let entries = trail.entries(remembered(runs), random.machine());
            entries.map(|(key, value)| Put::Value(key, value)).collect()
        });
        let guard = self
            .idempotency
            .as_ref()
            .map(|idempotency| idempotency.key_lock.clone() as CommandGuard);
        let quota = self.quota(handle);
        let event = ServerEvent {
            project: Some(self.project),
            at: handle.now(),
            what: EventDetail::Changed {
                action: action.to_owned(),
                object: object.to_owned(),
                author: self.author.clone(),
            },
        };
        let done = handle
            .command_with(shard, command, CommandOptions { note: Some(note), quota, guard })
            .await?;
        if done.is_change() {
            handle.events().push([event]);
        }
        Ok(done.answer())
    }

    /// Lets a queue have runs. There may be many, and each is told of in the end: the audit has none of them. A request
    /// that is to be done once is remembered with the runs that came of it.
    pub(super) async fn submit(
        &self,
        handle: &NodeHandle,
        shard: ShardId,
        command: Command,
        batch: bool,
    ) -> Result<Arc<[Taken]>, CallError> {
        let Some(idempotency) = &self.idempotency else {
            return self.go_on(handle, shard, command).await;
        };
        idempotency.check(handle, shard).await?;
        let (request, at) = (idempotency.request.clone(), handle.now());
        let note: CommandNote = Box::new(move |runs: &[RunId]| {
            let runs = runs.iter().map(ToString::to_string).collect();
            let record = request.record(at, RememberedOutcome::Queued { batch, runs });
            vec![Put::Value(request.key().to_owned(), record)]
        });
        let guard = Some(idempotency.key_lock.clone() as CommandGuard);
        let options = CommandOptions { note: Some(note), quota: self.quota(handle), guard };
        handle.command_with(shard, command, options).await.map(Done::answer)
    }

    /// Tells a shard more of what is written down already.
    pub(super) async fn go_on<T: CommandAnswer>(
        &self,
        handle: &NodeHandle,
        shard: ShardId,
        command: Command,
    ) -> Result<T, CallError> {
        let options = CommandOptions { quota: self.quota(handle), ..CommandOptions::default() };
        handle.command_with(shard, command, options).await.map(Done::answer)
    }

    /// How much the project may have, if that is limited.
    fn quota(&self, handle: &NodeHandle) -> Option<(ProjectId, Quota)> {
        let limits = handle.access().book().project_by_id(self.project)?.limits;
        let QuotaRecord { triggers, fires_per_minute, bytes, waiting_runs } = limits;
        let quota = Quota { triggers, bytes, fires_per_minute, waiting_runs };
        (quota != Quota::default()).then_some((self.project, quota))
    }

    /// Tells those who watch of something that concerns all projects.
    pub(super) fn tell(&self, handle: &NodeHandle, action: &str, object: &str) {
        let what = EventDetail::Changed {
            action: action.to_owned(),
            object: object.to_owned(),
            author: self.author.clone(),
        };
        handle.events().push([ServerEvent { project: None, at: handle.now(), what }]);
    }
}

impl FromRequestParts<Self> for NodeHandle {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, handle: &Self) -> Result<Self, Infallible> {
        Ok(handle.clone())
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::of_status(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

//! The routes: every path and method of the API, what each asks of its caller, and what it takes and gives.
//!
//! There is one table, and three things are made from it: the router, which also refuses parameters that a route
//! does not have (public ones ignore them), the `OpenAPI` document, and the test that tries every route with every kind of key.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use client::ListPage;
use client::account::Account;
use client::audit::AuditEntry;
use client::cluster::{Cluster, Drain, QuiescedShard, ResumeShard};
use client::election::{
    ApproveRequest, Campaign, CampaignRequest, Election, ReleaseRequest, ResignRequest,
};
use client::key::{ApiKey, KeySpec, NewKey, RotateKeyRequest, Scope};
use client::output::{OutputAnswer, OutputRequest, RunOutput};
use client::project::{NewProject, Project, ProjectSpec, RotateRequest};
use client::queue::{BatchSpec, Queue, QueueSpec, RunSpec, Submitted, SubmittedBatch};
use client::redrive::{CancelRunsRequest, CancelledRuns, DeadKind, RedriveRequest, Redriven};
use client::ring::{
    AcceptRequest, Accepted, Member, MemberAnswer, MemberRequest, Ring, RingEntry, Subscription,
    SubscriptionSpec,
};
use client::run::{Run, RunKind, RunState, Started};
use client::scheduler::SchedulerStatus;
use client::spec::TriggerSpec;
use client::store::{StoreCommit, StoreCommitted, StoreFacts, StorePage, StoreScan};
use client::trigger::{BackfillRequest, Backfilled, NextSlots, PauseRequest, Status, Trigger};
use client::worker::{BeatRequest, ClaimAnswer, ClaimRequest, Worker, WorkerDetails};
use engine::limits::{LIST_ROWS_MAX, NEXT_SLOTS_MAX};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::authentication::{Authentication, Authenticator, Need, authenticate};
use super::query::LABEL;
use super::{
    audit, backfill, backup, cancel, claim, cluster, dead, election, event, explain, history, key,
    latest, name, openapi, output, project, queue, queued, replace, ring, run, store, system,
    trigger, workers,
};
use crate::handle::NodeHandle;

/// What a type looks like as JSON.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A path and a method.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) need: Need,
    handler: MethodRouter<NodeHandle>,
    pub(super) summary: &'static str,
    pub(super) params: Vec<Param>,
    pub(super) takes: Option<SchemaOf>,
    /// Whether it must be sent.
    pub(super) is_body_needed: bool,
    pub(super) gives: Vec<(u16, AnswerBody)>,
    pub(super) problems: Vec<u16>,
}

/// What an answer holds.
#[derive(Clone, Copy)]
pub(super) enum AnswerBody {
    Json(SchemaOf),
    Text(&'static str),
    Nothing,
}

/// A parameter of the query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) kind: ParamKind,
}

/// What a parameter is.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParamKind {
    Text,
    /// A text like this regular expression.
    Like(&'static str),
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// Some of these words, with commas between them.
    Words(fn() -> Vec<&'static str>),
    /// From one to so many.
    Count(usize),
    Instant,
    Length,
}

const fn text(name: &'static str, about: &'static str) -> Param {
    Param { name, about, kind: ParamKind::Text }
}

const fn instant(name: &'static str, about: &'static str) -> Param {
    Param { name, about, kind: ParamKind::Instant }
}

const LIMIT: Param =
    Param { name: "limit", about: "so many at most", kind: ParamKind::Count(LIST_ROWS_MAX) };
const CURSOR: Param = text("cursor", "the `next` of the page before");
const STATES: Param = Param {
    name: "state",
    about: "only those in one of these states, with commas between them",
    kind: ParamKind::Words(|| RunState::ALL.map(RunState::as_str).to_vec()),
};
const DEAD_KINDS: Param = Param {
    name: "state",
    about: "only those of one of these kinds, with commas between them",
    kind: ParamKind::Words(|| DeadKind::ALL.map(DeadKind::as_str).to_vec()),
};
const STATUS: Param = Param {
    name: "status",
    about: "only those with this status",
    kind: ParamKind::Word(|| Status::ALL.map(Status::as_str).to_vec()),
};
const LABELS: Param = Param {
    name: LABEL,
    about: "only those that carry this label: `team=billing`; of several, with commas between, all",
    kind: ParamKind::Like("^[A-Za-z0-9._-]+=[A-Za-z0-9._-]+(,[A-Za-z0-9._-]+=[A-Za-z0-9._-]+)*$"),
};
const KIND: Param = Param {
    name: "kind",
    about: "only those of this kind",
    kind: ParamKind::Word(|| RunKind::ALL.map(RunKind::as_str).to_vec()),
};
const FROM_SLOT: Param = instant("from", "only those of slots at or after this");
const TO_SLOT: Param = instant("to", "only those of slots before this");

/// Statuses that any request with a key may be answered with.
const USUAL: [u16; 8] = [400, 401, 403, 404, 408, 421, 422, 503];

/// Statuses that a request may be answered with that writes.
const WRITING: [u16; 6] = [409, 413, 415, 429, 502, 507];

impl Route {
    fn new<T: 'static>(
        method: Method,
        path: &'static str,
        need: Need,
        handler: impl Handler<T, NodeHandle>,
    ) -> Self {
        let filter = MethodFilter::try_from(method.clone()).expect("a common method");
        let is_writing = method != Method::GET;
        let mut problems = if need == Need::Nothing { vec![503] } else { USUAL.to_vec() };
        problems.extend(WRITING.iter().filter(|_| is_writing));
        Self {
            method,
            path,
            need,
            handler: on(filter, handler),
            summary: "",
            params: Vec::new(),
            takes: None,
            is_body_needed: false,
            gives: Vec::new(),
            problems,
        }
    }

    fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    fn params(mut self, params: impl IntoIterator<Item = Param>) -> Self {
        self.params.extend(params);
        self
    }

    fn takes<T: JsonSchema>(mut self) -> Self {
        self.is_body_needed = true;
        self.may_take::<T>()
    }

    /// Takes this, or nothing.
    fn may_take<T: JsonSchema>(mut self) -> Self {
        self.takes = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    fn gives<T: JsonSchema>(mut self, status: u16) -> Self {
        self.gives.push((status, AnswerBody::Json(SchemaGenerator::subschema_for::<T>)));
        self
    }

    fn gives_text(mut self, media_type: &'static str) -> Self {
        self.gives.push((200, AnswerBody::Text(media_type)));
        self
    }

    fn gives_nothing(self) -> Self {
        self.gives_empty(204)
    }

    /// An answer without a body.
    fn gives_empty(mut self, status: u16) -> Self {
        self.gives.push((status, AnswerBody::Nothing));
        self
    }

    fn or_fails(mut self, status: u16) -> Self {
        self.problems.push(status);
        self
    }
}

fn get<T: 'static>(path: &'static str, handler: impl Handler<T, NodeHandle>) -> Route {
    Route::new(Method::GET, path, Need::Scope(Scope::Read), handler)
}

fn post<T: 'static>(path: &'static str, handler: impl Handler<T, NodeHandle>) -> Route {
    Route::new(Method::POST, path, Need::Scope(Scope::Write), handler)
}

fn put<T: 'static>(path: &'static str, handler: impl Handler<T, NodeHandle>) -> Route {
    Route::new(Method::PUT, path, Need::Scope(Scope::Write), handler)
}

fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, NodeHandle>) -> Route {
    Route::new(Method::DELETE, path, Need::Scope(Scope::Write), handler)
}

/// Only an admin may.
fn admin(route: Route) -> Route {
    Route { need: Need::Scope(Scope::Admin), ..route }
}

/// A key for elections is enough.
fn node(route: Route) -> Route {
    Route { need: Need::Scope(Scope::Node), ..route }
}

/// A key for workers is enough.
fn worker(route: Route) -> Route {
    Route { need: Need::Scope(Scope::Worker), ..route }
}

/// A key for elections and rings is enough, or one for workers.
fn member(route: Route) -> Route {
    Route { need: Need::OneOf(&[Scope::Node, Scope::Worker]), ..route }
}

/// Anybody may: nothing of anybody's triggers is in the answer.
fn public<T: 'static>(path: &'static str, handler: impl Handler<T, NodeHandle>) -> Route {
    Route::new(Method::GET, path, Need::Nothing, handler)
}

/// An empty object, or nothing.
struct Nothing;

impl JsonSchema for Nothing {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Nothing".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": false})
    }
}

/// Every route of the API.
pub(super) fn routes() -> Vec<Route> {
    let mut routes = triggers();
    routes.extend(runs());
    routes.extend(queues());
    routes.extend(projects());
    routes.extend(keys());
    routes.extend(elections());
    routes.extend(rings());
    routes.extend(stores());
    routes.extend(clusters());
    routes.extend(whole());
    routes
}

fn triggers() -> Vec<Route> {
    vec![
        get("/v1/triggers", trigger::list)
            .says("List triggers, by name")
            .params([
                STATUS,
                text("prefix", "only those whose name begins so"),
                LABELS,
                LIMIT,
                CURSOR,
            ])
            .gives::<ListPage<Trigger>>(200),
        post("/v1/triggers", trigger::create)
            .says("Make a trigger; a name is made up if it has none")
            .takes::<TriggerSpec>()
            .gives::<Trigger>(201),
        get("/v1/triggers/{name}", trigger::show).says("Show a trigger").gives::<Trigger>(200),
        put("/v1/triggers/{name}", replace::replace)
            .says("Make a trigger, or give the one that has this name another text")
            .takes::<TriggerSpec>()
            .gives::<Trigger>(200)
            .gives::<Trigger>(201)
            .or_fails(412),
        delete("/v1/triggers/{name}", trigger::delete)
            .says("Delete a trigger, but for its past")
            .gives_nothing(),
        post("/v1/triggers/{name}/pause", trigger::pause)
            .says("Let it fire nothing for a while")
            .may_take::<PauseRequest>()
            .gives::<Trigger>(200),
        post("/v1/triggers/{name}/resume", trigger::resume)
            .says("Let it fire again")
            .may_take::<Nothing>()
            .gives::<Trigger>(200),
        post("/v1/triggers/{name}/cancel", trigger::cancel)
            .says("Let it never fire again, but keep it")
            .may_take::<Nothing>()
            .gives::<Trigger>(200),
        post("/v1/triggers/{name}/run", run::start)
            .says("Start a run of it now, and wait for its end if asked to")
            .params([Param {
                name: "wait",
                about: "wait so long for its end, up to 1m",
                kind: ParamKind::Length,
            }])
            .may_take::<Nothing>()
            .gives::<Started>(200)
            .gives::<Started>(202),
        post("/v1/triggers/{name}/backfill", backfill::start)
            .says("Run slots of the past again, each once per request")
            .takes::<BackfillRequest>()
            .gives::<Backfilled>(202),
        put("/v1/triggers/{name}/reservation", name::put)
            .says("Keep the name for a trigger that feeds a queue of another shard: servers ask each other")
            .takes::<name::Reservation>()
            .gives_nothing(),
        delete("/v1/triggers/{name}/reservation", name::delete)
            .says("Keep the name no longer, if no trigger has it")
            .gives_nothing(),
        get("/v1/triggers/{name}/next", trigger::next)
            .says("Tell when it fires next")
            .params([Param {
                name: "count",
                about: "so many",
                kind: ParamKind::Count(NEXT_SLOTS_MAX),
            }])
            .gives::<NextSlots>(200),
        get("/v1/triggers/{name}/runs", history::list_of)
            .says("List its runs, newest first")
            .params([STATES, KIND, FROM_SLOT, TO_SLOT, LIMIT, CURSOR])
            .gives::<ListPage<Run>>(200),
        get("/v1/triggers/{name}/explain", explain::explain)
            .says("Tell what became of each of its slots")
            .params([
                instant("from", "from then on; the last hour, if it is not given"),
                instant("to", "until then; now, if it is not given"),
            ])
            .gives::<Account>(200),
    ]
}

fn queues() -> Vec<Route> {
    vec![
        get("/v1/queues", queue::list)
            .says("List queues, by name, and how each stands")
            .params([text("prefix", "only those whose name begins so"), LIMIT, CURSOR])
            .gives::<ListPage<Queue>>(200),
        get("/v1/queues/{name}", queue::show)
            .says("Show a queue, and why its runs wait")
            .gives::<Queue>(200),
        put("/v1/queues/{name}", queue::set)
            .says("Give a queue limits, and make it if it is not there")
            .takes::<QueueSpec>()
            .gives::<Queue>(200)
            .or_fails(412),
        delete("/v1/queues/{name}", queue::delete)
            .says("Delete a queue that has no unfinished run")
            .gives_nothing(),
        get("/v1/queues/{name}/runs", queued::list)
            .says("List its unfinished runs, in the order in which they came")
            .params([
                STATES,
                text("key", "only those with this concurrency key"),
                LABELS,
                LIMIT,
                CURSOR,
            ])
            .gives::<ListPage<Run>>(200),
        post("/v1/queues/{name}/pause", queue::pause)
            .says("Let no worker have its runs for a while; what runs goes on")
            .may_take::<PauseRequest>()
            .gives::<Queue>(200),
        post("/v1/queues/{name}/resume", queue::resume)
            .says("Let workers have its runs again")
            .may_take::<Nothing>()
            .gives::<Queue>(200),
        get("/v1/queues/{name}/dead", dead::list)
            .says("List its dead runs, which can be redriven, in the order in which they were submitted")
            .params([
                DEAD_KINDS,
                text("key", "only those with this concurrency key"),
                LABELS,
                instant("from", "only those that ended at or after this"),
                instant("to", "only those that ended before this"),
                LIMIT,
                CURSOR,
            ])
            .gives::<ListPage<Run>>(200),
        post("/v1/queues/{name}/redrive", dead::redrive)
            .says("Let dead runs wait again, as new runs; `next` tells where to go on")
            .takes::<RedriveRequest>()
            .gives::<Redriven>(200),
        post("/v1/queues/{name}/cancel", cancel::cancel)
            .says("End unfinished runs by a filter; `next` tells where to go on")
            .takes::<CancelRunsRequest>()
            .gives::<CancelledRuns>(200),
        get("/v1/workers", workers::list)
            .says("List the workers that were heard of, by name")
            .gives::<ListPage<Worker>>(200),
        get("/v1/workers/{name}", workers::show)
            .says("Show a worker, and the runs that it has")
            .gives::<WorkerDetails>(200),
        post("/v1/workers/{name}/drain", workers::drain)
            .says("Let a worker have nothing more, and tell it to finish what it has")
            .may_take::<Nothing>()
            .gives::<WorkerDetails>(200),
        delete("/v1/workers/{name}/drain", workers::undrain)
            .says("Let a worker have runs again")
            .gives::<WorkerDetails>(200),
        worker(post("/v1/claim", claim::claim))
            .says("Say what came of runs, and claim more: see docs/queues.md")
            .takes::<ClaimRequest>()
            .gives::<ClaimAnswer>(200),
        worker(post("/v1/workers/{name}/beat", claim::beat))
            .says("Say that a worker is there, and what it has")
            .takes::<BeatRequest>()
            .gives::<ClaimAnswer>(200),
    ]
}

fn runs() -> Vec<Route> {
    vec![
        post("/v1/runs", queue::submit)
            .says("Let a queue have a run; 200 with the id of an earlier one if its unique key stands for that")
            .takes::<RunSpec>()
            .gives::<Submitted>(200)
            .gives::<Submitted>(201),
        post("/v1/runs/batch", queue::submit_batch)
            .says("Let a queue have several runs, all or none")
            .takes::<BatchSpec>()
            .gives::<SubmittedBatch>(201),
        post("/v1/runs/{id}/cancel", run::cancel)
            .says("End a run of a queue: at once if it waits, by its worker if one has it")
            .may_take::<Nothing>()
            .gives_empty(202),
        worker(post("/v1/runs/{id}/output", output::take))
            .says("Say what a run prints, and how far it has come: see docs/queues.md")
            .takes::<OutputRequest>()
            .gives::<OutputAnswer>(200),
        get("/v1/runs/{id}/output", output::show)
            .says("Show what a run printed last, or follow what it prints as server-sent events")
            .params([Param {
                name: "follow",
                about: "`true`: what is kept and all that comes, as server-sent events, until the run has ended",
                kind: ParamKind::Word(|| vec!["true", "false"]),
            }])
            .gives::<RunOutput>(200)
            .gives_text("text/event-stream")
            .or_fails(429),
        post("/v1/runs/{id}/retry", dead::retry)
            .says("Let a dead run of a queue wait again, as a new run")
            .may_take::<Nothing>()
            .gives::<Submitted>(201),
        get("/v1/runs", latest::list)
            .says("List the latest runs of all triggers and queues")
            .params([
                STATES,
                KIND,
                FROM_SLOT,
                TO_SLOT,
                text("queue", "only those of this queue that have ended"),
                text("key", "only those of queues with this concurrency key"),
                LABELS,
                LIMIT,
                CURSOR,
            ])
            .gives::<ListPage<Run>>(200),
        get("/v1/runs/{id}", run::show).says("Show a run").gives::<Run>(200),
    ]
}

fn projects() -> Vec<Route> {
    vec![
        admin(get("/v1/projects", project::list))
            .says("List projects, by name")
            .params([text("prefix", "only those whose name begins so"), LIMIT, CURSOR])
            .gives::<ListPage<Project>>(200),
        admin(post("/v1/projects", project::create))
            .says("Make a project; its secret is told this once")
            .takes::<client::project::NewProjectSpec>()
            .gives::<NewProject>(201),
        admin(get("/v1/projects/{name}", project::show))
            .says("Show a project")
            .gives::<Project>(200),
        admin(put("/v1/projects/{name}", project::replace))
            .says("Change what a project may have, and who is notified")
            .takes::<ProjectSpec>()
            .gives::<Project>(200),
        admin(post("/v1/projects/{name}/enable", project::enable))
            .says("Let its triggers fire again, and catch up by their policies")
            .may_take::<Nothing>()
            .gives::<Project>(200)
            .gives::<Project>(202),
        admin(post("/v1/projects/{name}/disable", project::disable))
            .says("Let none of its triggers fire")
            .may_take::<Nothing>()
            .gives::<Project>(200)
            .gives::<Project>(202),
        admin(post("/v1/projects/{name}/rotate", project::rotate))
            .says("Give it a new secret, beside the former one for a while")
            .may_take::<RotateRequest>()
            .gives::<NewProject>(200),
    ]
}

fn keys() -> Vec<Route> {
    vec![
        admin(get("/v1/keys", key::list))
            .says("List keys, oldest first")
            .params([text("project", "only those of this project"), LIMIT, CURSOR])
            .gives::<ListPage<ApiKey>>(200),
        admin(post("/v1/keys", key::create))
            .says("Make a key; its secret is told this once")
            .takes::<KeySpec>()
            .gives::<NewKey>(201),
        Route { need: Need::Key, ..get("/v1/keys/self", key::own) }
            .says("Show the key of this request")
            .gives::<ApiKey>(200),
        admin(get("/v1/keys/{id}", key::show)).says("Show a key").gives::<ApiKey>(200),
        admin(delete("/v1/keys/{id}", key::delete)).says("Take a key back").gives_nothing(),
        admin(post("/v1/keys/{id}/rotate", key::rotate))
            .says("Make a key like this one, and let this one expire after a while")
            .may_take::<RotateKeyRequest>()
            .gives::<NewKey>(201),
    ]
}

fn elections() -> Vec<Route> {
    vec![
        get("/v1/elections", election::list)
            .says("List elections, by name: who leads, and under which token")
            .params([text("prefix", "only those whose name begins so"), LIMIT, CURSOR])
            .gives::<ListPage<Election>>(200),
        get("/v1/elections/{name}", election::show).says("Show an election").gives::<Election>(200),
        post("/v1/elections/{name}/resign", election::resign)
            .says("Ask whoever leads to leave, for one of the candidates if one is named")
            .may_take::<ResignRequest>()
            .gives::<Election>(200),
        post("/v1/elections/{name}/approve", election::approve)
            .says("Let a holder begin that waits for it under this token")
            .takes::<ApproveRequest>()
            .gives::<Election>(200),
        node(post("/v1/elections/{name}/campaign", election::campaign))
            .says("Want to lead, or go on leading; the answer is good from when this was sent")
            .takes::<CampaignRequest>()
            .gives::<Campaign>(200)
            .or_fails(504),
        node(post("/v1/elections/{name}/release", election::release))
            .says("Leave, having stopped")
            .takes::<ReleaseRequest>()
            .gives::<Election>(200)
            .or_fails(504),
    ]
}

fn rings() -> Vec<Route> {
    vec![
        get("/v1/rings", ring::list)
            .says("List rings, by name: how each stands, and whose turn is next")
            .params([text("prefix", "only those whose name begins so"), LIMIT, CURSOR])
            .gives::<ListPage<Ring>>(200),
        get("/v1/rings/{ring}", ring::show)
            .says("Show a ring with its subscriptions")
            .gives::<Ring>(200),
        put("/v1/rings/{ring}", ring::put)
            .says("Make a ring with this as its subscription main, or change that")
            .takes::<SubscriptionSpec>()
            .gives::<Ring>(200)
            .gives::<Ring>(201)
            .or_fails(412),
        delete("/v1/rings/{ring}", ring::delete)
            .says("Delete a ring, with its subscriptions; its members are in it no more")
            .gives_nothing(),
        get("/v1/rings/{ring}/members", ring::members)
            .says("List its members, in the order of their turns")
            .params([text("prefix", "only those whose name begins so"), LIMIT, CURSOR])
            .gives::<ListPage<Member>>(200),
        member(put("/v1/rings/{ring}/members/{member}", ring::attend))
            .says("Join a ring or say that one is still there, and wait for one's turns: see docs/rings.md")
            .takes::<MemberRequest>()
            .gives::<MemberAnswer>(200),
        Route {
            need: Need::OneOf(&[Scope::Node, Scope::Worker, Scope::Write]),
            ..delete("/v1/rings/{ring}/members/{member}", ring::leave)
        }
        .says("Leave a ring; without a visit, and with the scope write, take out whoever has the name")
        .params([text("visit", "only if it is this visit, as the member was told")])
        .gives_nothing(),
        get("/v1/rings/{ring}/subscriptions/{subscription}", ring::show_subscription)
            .says("Show a subscription: how it is meant, and how it stands")
            .gives::<Subscription>(200),
        put("/v1/rings/{ring}/subscriptions/{subscription}", ring::put_subscription)
            .says("Make a subscription of a ring, or change it")
            .takes::<SubscriptionSpec>()
            .gives::<Subscription>(200)
            .gives::<Subscription>(201)
            .or_fails(412),
        delete("/v1/rings/{ring}/subscriptions/{subscription}", ring::delete_subscription)
            .says("Delete a subscription, with its position")
            .gives_nothing(),
        post("/v1/rings/{ring}/subscriptions/{subscription}/skip", ring::skip)
            .says("Let the next turn pass over its next member")
            .may_take::<Nothing>()
            .gives::<Subscription>(200),
        get("/v1/rings/{ring}/subscriptions/{subscription}/turns", ring::entries)
            .says("List what was decided after a cursor, or lately, in its order; or follow it as server-sent events")
            .params([
                Param {
                    name: "follow",
                    about: "`true`: what comes after the place that `last-event-id` names, or from now on, as server-sent events",
                    kind: ParamKind::Word(|| vec!["true", "false"]),
                },
                LIMIT,
                CURSOR,
            ])
            .gives::<ListPage<RingEntry>>(200)
            .gives_text("text/event-stream")
            .or_fails(429),
        member(post(
            "/v1/rings/{ring}/subscriptions/{subscription}/turns/{number}/accept",
            ring::accept,
        ))
        .says("Accept a part of a turn; a member acts on it only once this is answered")
        .takes::<AcceptRequest>()
        .gives::<Accepted>(200),
    ]
}

/// What Watchbell's own candidates ask.
fn stores() -> Vec<Route> {
    vec![
        node(get("/v1/store", store::facts))
            .says("Tell what the store is like, for candidates that come through this server")
            .gives::<StoreFacts>(200),
        node(post("/v1/store/scan", store::scan))
            .says("Read sessions, or elections of the project")
            .takes::<StoreScan>()
            .gives::<StorePage>(200),
        node(post("/v1/store/commit", store::commit))
            .says("Open, renew or close one's own session; take, write or release an election")
            .takes::<StoreCommit>()
            .gives::<StoreCommitted>(200)
            .or_fails(504),
        node(get("/v1/store/watch", store::watch))
            .says("Tell when something changed, as server-sent events")
            .gives_text("text/event-stream")
            .or_fails(429),
    ]
}

fn clusters() -> Vec<Route> {
    vec![
        admin(get("/v1/cluster", cluster::show))
            .says("Tell who takes part, and who has which shard")
            .gives::<Cluster>(200),
        admin(post("/v1/cluster/nodes/{name}/drain", cluster::drain))
            .says("Let a server hand its shards over and take none")
            .may_take::<Nothing>()
            .gives::<Drain>(200)
            .gives::<Drain>(202),
        admin(delete("/v1/cluster/nodes/{name}/drain", cluster::undrain))
            .says("Let a server take shards again")
            .gives::<Drain>(200),
        admin(post("/v1/cluster/shards/{id}/quiesce", cluster::quiesce))
            .says("Hold the commits of a shard back for a moment: what servers ask each other for a backup")
            .may_take::<Nothing>()
            .gives::<QuiescedShard>(200),
        admin(post("/v1/cluster/shards/{id}/resume", cluster::resume))
            .says("Let a quiesced shard go on")
            .takes::<ResumeShard>()
            .gives_nothing(),
    ]
}

fn whole() -> Vec<Route> {
    vec![
        get("/v1/scheduler", system::scheduler)
            .says("Tell whether slots are fired")
            .gives::<SchedulerStatus>(200),
        admin(post("/v1/scheduler/start", system::start))
            .says("Let triggers fire again, and catch up by their policies")
            .may_take::<Nothing>()
            .gives::<SchedulerStatus>(200)
            .gives::<SchedulerStatus>(202),
        admin(post("/v1/scheduler/stop", system::stop))
            .says("Let no trigger fire, of any project")
            .may_take::<Nothing>()
            .gives::<SchedulerStatus>(200)
            .gives::<SchedulerStatus>(202),
        admin(post("/v1/scheduler/confirm-time", system::confirm_time))
            .says("Say that the clock is right, after it was set forward")
            .may_take::<Nothing>()
            .gives::<SchedulerStatus>(200)
            .gives::<SchedulerStatus>(202),
        get("/v1/events", event::watch)
            .says("Tell what happens, while it happens, as server-sent events")
            .gives_text("text/event-stream"),
        admin(get("/v1/backup", backup::backup))
            .says("Take a backup of everything; see docs/backup.md")
            .gives_text(backup::MEDIA_TYPE),
        admin(get("/v1/audit", audit::list))
            .says("List who changed what, newest first")
            .params([
                text("project", "only changes in this project"),
                text("author", "only changes by this one"),
                text("action", "only changes of this kind, like `trigger.create`"),
                instant("from", "from then on"),
                instant("to", "until then"),
                LIMIT,
                CURSOR,
            ])
            .gives::<ListPage<AuditEntry>>(200),
        public("/livez", system::livez)
            .says("Whether the process is there")
            .gives_text("text/plain"),
        public("/readyz", system::readyz)
            .says("Whether it takes requests")
            .gives_text("text/plain"),
        public("/metrics", system::metrics)
            .says("What there is to measure, for Prometheus")
            .gives_text("text/plain"),
        public("/openapi.json", openapi::document)
            .says("This document")
            .gives_text("application/json"),
        public("/", system::welcome).says("A page for people").gives_text("text/plain"),
    ]
}

/// A router of all routes, each behind its authenticator.
pub(super) fn router(handle: &NodeHandle, authentication: Authentication) -> Router<NodeHandle> {
    routes().into_iter().fold(Router::new(), |router, route| {
        let (handle, need) = (handle.clone(), route.need);
        let known = route.params.iter().map(|param| param.name).collect();
        let authenticator = Authenticator { handle, authentication, need, known };
        let layer = from_fn_with_state(Arc::new(authenticator), authenticate);
        router.route(route.path, route.handler.layer(layer))
    })
}

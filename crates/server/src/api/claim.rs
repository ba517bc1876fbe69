//! `POST /v1/claim`: what workers say, and the runs that they are given.
//!
//! A worker speaks to any server. What it says is split by the shards that its queues and runs live in: those of this
//! server are asked here, those of another in one request to it, and the answers are put together. First they are asked one
//! after the other for what is there, in the order of the worker's queues, so that nobody gives more than the worker has room
//! for. If there is nothing, those that have a queue of the worker's wait at once; when one answers, the others are told that
//! it is enough, and what they gave meanwhile is handed on as well, or back if it is too much.
//!
//! What a run is about comes from the shard's memory, or is read from the store, in the order in which runs are claimed. A run
//! of which the store does not have that any more fails: else it would be given for ever, before all others.
//!
//! A worker that somebody wants to drain is given nothing, and told so; if its claim waits, it waits no more.
//!
//! - `request`: what a worker may say, checked and split; `payload`: what runs are about; `waiting`: how many claims wait

pub(super) mod payload;
mod request;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::Json;
use client::worker::{Ack, BeatRequest, ClaimRequest, HeldRun};
use engine::id::{RunId, ShardId};
use engine::limits::UNAVAILABLE_RETRY_AFTER;
use engine::past::Attempt;
use engine::queue::claim::BEATS_PER_LEASE;
use engine::queue::given::{AttemptResult, RunToken};
use engine::shard::command::Rejection;
use engine::shard::{DoneCall, GivenRun, ShardAnswer, WorkerReply};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::payload::{ClaimedOut, ToldRuns};
use self::request::{Ask, Cookies, Split, Wanted, has_any_of};
pub(crate) use self::waiting::WaitingClaims;
use self::waiting::WaitingSeat;
use super::body::JsonBody;
use super::caller::Caller;
use super::crowding::Crowding;
use super::forward::PeerClient;
use super::problem::{ApiError, ApiResult};
use crate::access::book::Book;
use crate::handle::{AskGuard, CallError, NodeHandle, ShardAsk};
use crate::peers::{Server, ShardLocation};

/// Tells when somebody wants a worker to drain, among other things.
type BookWatch = watch::Receiver<Arc<Book>>;

/// How much longer than a claim waits another server may take to answer it.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

pub(super) async fn claim(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    crowding: Crowding,
    JsonBody(request): JsonBody<ClaimRequest>,
) -> ApiResult<Json<ClaimedOut>> {
    let mut ask = Ask::claim(&caller, &peers, request)?;
    if crowding == Crowding::Crowded {
        ask = ask.in_a_crowd()?;
    }
    answer(handle, peers, ask, "/v1/claim").await
}

pub(super) async fn beat(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(worker): Path<String>,
    JsonBody(request): JsonBody<BeatRequest>,
) -> ApiResult<Json<ClaimedOut>> {
    let ask = Ask::beat(&caller, &peers, &worker, &request)?;
    let path = format!("/v1/workers/{worker}/beat");
    answer(handle, peers, ask, &path).await
}

async fn answer(
    handle: NodeHandle,
    peers: PeerClient,
    ask: Ask,
    path: &str,
) -> ApiResult<Json<ClaimedOut>> {
    // What changes from here on is noticed below.
    let mut books = handle.access().books();
    let split = Arc::new(ask.split(&handle));
    let mut places = places(&handle, &peers, &split);
    let asker =
        Asker { handle: handle.clone(), peers, split: Arc::clone(&split), path: path.into() };
    let mut gathered = Gathered {
        acks: split.unknown.acks.clone(),
        lost: split.unknown.lost.clone(),
        ..Gathered::default()
    };
    if places.len() > 1 && split.is_claim() {
        // One after the other, for what is there: none gives what another one has given.
        for place in &places {
            let free = split.free().saturating_sub(gathered.runs());
            let wanted = Wanted { free, wait_ms: 0 };
            let guard = place.guard(&handle);
            // Who asks for what is there does not wait for an owner.
            let part = match place {
                AskPlace::Here(shard) if !handle.peers().served().borrow().contains(shard) => {
                    Part::of_nobody(*shard)
                }
                AskPlace::Here(_) | AskPlace::There(..) => {
                    asker.clone().ask(place.clone(), guard, wanted).await
                }
            };
            gathered.take(part)?;
        }
        if gathered.has_something() || split.wait_ms() == 0 {
            return gathered.finish(&handle, &split).await;
        }
        // Where it only has runs there is nothing to wait for, and that was heard.
        places.retain(|place| split.has_queues_in(place.shards()));
    }
    // Nobody waits where all its queues are refused, unless it is so everywhere.
    if !split.names_only(&gathered.refused) {
        places.retain(|place| !split.is_closed(place.shards(), &gathered.refused));
    }
    let mut wait_ms = split.wait_ms();
    let take_seat = || WaitingSeat::take(handle.waiting_claims(), split.project());
    let seat = (wait_ms > 0).then(take_seat).flatten();
    // One that has no seat is heard, and told what there is to tell, but does not wait.
    let has_no_seat = wait_ms > 0 && seat.is_none();
    if has_no_seat {
        wait_ms = 0;
    }
    if let [AskPlace::Here(shard)] = places[..] {
        let wanted = Wanted { free: split.free(), wait_ms };
        gathered.take(asker.ask_only(shard, wanted, &mut books).await)?;
    } else {
        // Who waits at several places is given one by each.
        let free = if places.len() > 1 { split.free().min(1) } else { split.free() };
        asker.ask_all(places, Wanted { free, wait_ms }, &mut books, &mut gathered).await?;
    }
    drop(seat);
    if has_no_seat && !gathered.has_something() && !gathered.heard.is_empty() {
        return Err(waiting::too_many(handle.waiting_claims()));
    }
    gathered.finish(&handle, &split).await
}

/// Who is asked: a shard of this server, or another server for several.
#[derive(Clone)]
enum AskPlace {
    Here(ShardId),
    There(Box<Server>, Vec<ShardId>),
}

impl AskPlace {
    fn shards(&self) -> &[ShardId] {
        match self {
            Self::Here(shard) => std::slice::from_ref(shard),
            Self::There(_, shards) => shards,
        }
    }

    /// What lets the asked stop waiting, where that is this server.
    fn guard(&self, handle: &NodeHandle) -> Option<Arc<AskGuard>> {
        match self {
            Self::Here(shard) => Some(Arc::new(handle.ask_guard(*shard))),
            Self::There(..) => None,
        }
    }
}

/// Whom to ask, in the order of the worker's queues.
fn places(handle: &NodeHandle, peers: &PeerClient, split: &Split) -> Vec<AskPlace> {
    let mut places: Vec<AskPlace> = Vec::new();
    let view = handle.peers().view();
    for shard in split.shards() {
        match view.place(shard) {
            ShardLocation::There(server) if !peers.is_asked_by_peer() => {
                let known = places.iter_mut().find_map(|place| match place {
                    AskPlace::There(known, shards) if **known == server => Some(shards),
                    AskPlace::Here(_) | AskPlace::There(..) => None,
                });
                match known {
                    Some(shards) => shards.push(shard),
                    None => places.push(AskPlace::There(Box::new(server), vec![shard])),
                }
            }
            // A shard that nobody has may be here in a moment.
            ShardLocation::Here | ShardLocation::There(_) | ShardLocation::Nowhere => {
                places.push(AskPlace::Here(shard));
            }
        }
    }
    places
}

/// Asks this server's shards, and other servers, in the name of a worker.
#[derive(Clone)]
struct Asker {
    handle: NodeHandle,
    peers: PeerClient,
    split: Arc<Split>,
    path: Arc<str>,
}

impl Asker {
    /// Asks one shard of this server, as most workers do.
    async fn ask_only(self, shard: ShardId, wanted: Wanted, books: &mut BookWatch) -> Part {
        let (handle, split) = (self.handle.clone(), Arc::clone(&self.split));
        let guard = Arc::new(handle.ask_guard(shard));
        let asking = self.ask(AskPlace::Here(shard), Some(Arc::clone(&guard)), wanted);
        let mut asking = std::pin::pin!(asking);
        loop {
            tokio::select! {
                biased;
                part = &mut asking => return part,
                Ok(()) = books.changed(), if wanted.wait_ms > 0 => {
                    if split.is_drained_now(&handle) {
                        guard.stop_waiting();
                    }
                }
            }
        }
    }

    /// Asks all of them at once.
    async fn ask_all(
        self,
        places: Vec<AskPlace>,
        wanted: Wanted,
        books: &mut BookWatch,
        gathered: &mut Gathered,
    ) -> ApiResult<()> {
        let (mut here, mut there, mut guards) = (JoinSet::new(), JoinSet::new(), Vec::new());
        for place in places {
            let guard = place.guard(&self.handle);
            let parts = if guard.is_none() { &mut there } else { &mut here };
            parts.spawn(self.clone().ask(place, guard.clone(), wanted));
            guards.extend(guard);
        }
        loop {
            let part = tokio::select! {
                Some(part) = here.join_next() => part,
                Some(part) = there.join_next() => part,
                Ok(()) = books.changed(), if wanted.wait_ms > 0 && !(here.is_empty() && there.is_empty()) => {
                    if self.split.is_drained_now(&self.handle) {
                        for guard in &guards {
                            guard.stop_waiting();
                        }
                    }
                    continue;
                }
                else => break,
            };
            let Ok(part) = part else { continue };
            let is_told = part.is_told();
            gathered.take(part)?;
            if wanted.wait_ms > 0 && is_told {
                // One answer is enough: those here say what they have, and those elsewhere see that nobody listens.
                for guard in &guards {
                    guard.stop_waiting();
                }
                there.abort_all();
            }
        }
        Ok(())
    }

    async fn ask(self, place: AskPlace, guard: Option<Arc<AskGuard>>, wanted: Wanted) -> Part {
        match (place, guard) {
            (AskPlace::Here(shard), Some(guard)) => {
                let ask = ShardAsk::Worker(Box::new(self.split.call(shard, wanted)));
                let asked = self.handle.ask_shard(&guard, ask).await;
                Part { shards: vec![shard], answer: asked.map(PartAnswer::Here) }
            }
            (AskPlace::Here(shard), None) => unreachable!("shard {shard} is asked under a guard"),
            (AskPlace::There(server, shards), _) => {
                let body = Some(self.split.body(&shards, wanted));
                let within = Duration::from_millis(wanted.wait_ms) + ANSWER_MARGIN;
                let to = (server.node(), server.url.as_deref());
                let told = self.peers.ask_for(to, Method::POST, &self.path, body, within).await;
                let answer = match told {
                    Ok((status, bytes)) if status.is_success() => Ok(PartAnswer::There(bytes)),
                    // It has too much to do, which others may not have.
                    Ok((StatusCode::TOO_MANY_REQUESTS, bytes)) => Ok(PartAnswer::TooMany(bytes)),
                    // A server of a former version takes no request without queues, which others can answer.
                    Ok((StatusCode::UNPROCESSABLE_ENTITY, _))
                        if !self.split.has_queues_in(&shards) =>
                    {
                        Err(CallError::NoOwner { retry_after: UNAVAILABLE_RETRY_AFTER })
                    }
                    // It says what is wrong with the request, as this server would.
                    Ok((status, bytes)) if status.is_client_error() => {
                        Ok(PartAnswer::Refused(status, bytes))
                    }
                    Ok(_) | Err(_) => {
                        Err(CallError::NoOwner { retry_after: UNAVAILABLE_RETRY_AFTER })
                    }
                };
                Part { shards, answer }
            }
        }
    }
}

/// What some of the shards answered.
struct Part {
    shards: Vec<ShardId>,
    answer: Result<PartAnswer, CallError>,
}

impl Part {
    /// Whether it says something that the worker is to know now.
    fn is_told(&self) -> bool {
        match &self.answer {
            Ok(PartAnswer::Here(ShardAnswer::TooManyWorkers) | PartAnswer::TooMany(_)) | Err(_) => {
                false
            }
            Ok(PartAnswer::Here(_) | PartAnswer::There(_) | PartAnswer::Refused(..)) => true,
        }
    }

    /// Nobody has the shard.
    fn of_nobody(shard: ShardId) -> Self {
        let retry_after = UNAVAILABLE_RETRY_AFTER;
        Self { shards: vec![shard], answer: Err(CallError::NoOwner { retry_after }) }
    }
}

enum PartAnswer {
    Here(ShardAnswer),
    There(bytes::Bytes),
    TooMany(bytes::Bytes),
    Refused(StatusCode, bytes::Bytes),
}

/// The answers of all shards, put together.
#[derive(Default)]
struct Gathered {
    acks: Vec<Ack>,
    lost: Vec<HeldRun>,
    cancel: Vec<HeldRun>,
    here: Vec<GivenRun>,
    there: Vec<Box<serde_json::value::RawValue>>,
    cookies: Cookies,
    as_of: Option<u64>,
    /// Queues that cannot be made.
    refused: Vec<String>,
    /// Whether another server says that the worker is to drain.
    is_drained: bool,
    /// Shards that answered.
    heard: Vec<ShardId>,
    refusal: Option<ApiError>,
}

impl Gathered {
    fn take(&mut self, part: Part) -> ApiResult<()> {
        match part.answer {
            Ok(PartAnswer::Here(ShardAnswer::Worker(reply))) => {
                self.take_here(part.shards[0], *reply);
                self.heard.extend(part.shards);
            }
            // Other shards may have room for one more.
            Ok(PartAnswer::Here(answer @ ShardAnswer::TooManyWorkers)) => {
                self.refusal.get_or_insert_with(|| refusal(&answer));
            }
            Ok(PartAnswer::Here(answer)) => return Err(refusal(&answer)),
            Ok(PartAnswer::There(bytes)) => {
                let told: payload::ClaimedIn = serde_json::from_slice(&bytes).map_err(|_| {
                    ApiError::unavailable(
                        "another server's answer cannot be read",
                        UNAVAILABLE_RETRY_AFTER,
                    )
                })?;
                self.acks.extend(told.acks);
                self.lost.extend(told.lost);
                self.cancel.extend(told.cancel);
                self.refuse(told.refused);
                self.there.extend(told.runs);
                self.cookies.add(&told.cookie);
                self.is_drained |= told.drain;
                self.heard_at(told.as_of);
                let unheard = told.unheard;
                let is_heard = |shard: &ShardId| !has_any_of(&unheard, *shard);
                self.heard.extend(part.shards.into_iter().filter(is_heard));
            }
            Ok(PartAnswer::TooMany(bytes)) => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                self.refusal.get_or_insert_with(|| ApiError::passed_on(status, &bytes));
            }
            Ok(PartAnswer::Refused(status, bytes)) => {
                return Err(ApiError::passed_on(status, &bytes));
            }
            Err(why) => {
                tracing::debug!(%why, "a shard could not be asked for a worker");
                self.refusal.get_or_insert(why.into());
            }
        }
        Ok(())
    }

    fn take_here(&mut self, shard: ShardId, reply: WorkerReply) {
        let held = |(id, token): (RunId, RunToken)| HeldRun { id: id.to_string(), token: token.0 };
        self.cookies.put(shard, reply.cookie);
        self.heard_at(reply.as_of);
        self.acks.extend(reply.acks.into_iter().map(|(id, token, counted)| Ack {
            id: id.to_string(),
            token: token.0,
            counted,
        }));
        self.lost.extend(reply.lost.into_iter().map(held));
        self.cancel.extend(reply.cancel.into_iter().map(held));
        self.here.extend(reply.runs);
        self.refuse(reply.refused.into_iter().map(String::from));
    }

    fn refuse(&mut self, queues: impl IntoIterator<Item = String>) {
        for queue in queues {
            if !self.refused.contains(&queue) {
                self.refused.push(queue);
            }
        }
    }

    /// How many runs were given so far.
    fn runs(&self) -> usize {
        self.here.len() + self.there.len()
    }

    /// Whether the worker is to be told something at once.
    fn has_something(&self) -> bool {
        self.runs() > 0 || !self.acks.is_empty() || !self.lost.is_empty() || !self.cancel.is_empty()
    }

    /// Of several owners the one that has heard least counts.
    fn heard_at(&mut self, as_of: u64) {
        self.as_of = Some(self.as_of.map_or(as_of, |known| known.min(as_of)));
    }

    async fn finish(mut self, handle: &NodeHandle, split: &Split) -> ApiResult<Json<ClaimedOut>> {
        if self.heard.is_empty() && !split.shards().is_empty() {
            let nobody = || {
                ApiError::unavailable(
                    "no shard of these queues has an owner now",
                    UNAVAILABLE_RETRY_AFTER,
                )
            };
            return Err(self.refusal.unwrap_or_else(nobody));
        }
        if split.is_claim() && split.names_only(&self.refused) && !self.has_something() {
            return Err(Rejection::TooManyQueues.into());
        }
        // Of several servers that answered at once, each gave one. What is left out is named by nobody, and waits again.
        self.there.truncate(split.free());
        split.sort(&mut self.here);
        let room = split.free().saturating_sub(self.there.len());
        let surplus = self.here.split_off(room.min(self.here.len()));
        give_back(handle, split, surplus).await;
        let is_all = self.there.is_empty()
            && self.acks.is_empty()
            && self.lost.is_empty()
            && self.cancel.is_empty();
        let ToldRuns { told: mut runs, rest, broken, unread } =
            payload::told(handle, self.here).await;
        give_back(handle, split, rest).await;
        fail(handle, split, broken).await;
        if let Some(why) = unread.filter(|_| runs.is_empty() && is_all) {
            return Err(why.into());
        }
        runs.extend(self.there);
        let lease_ms = split.lease_ms();
        Ok(Json(ClaimedOut {
            runs,
            acks: self.acks,
            lost: self.lost,
            cancel: self.cancel,
            unheard: split.unheard(&self.heard),
            refused: self.refused,
            drain: self.is_drained || split.is_drained_now(handle),
            cookie: self.cookies.to_string(),
            as_of: self.as_of.unwrap_or_default(),
            beat_ms: u64::from(lease_ms) / BEATS_PER_LEASE,
            lease_ms: lease_ms.into(),
        }))
    }
}

/// Runs that are more than the worker has room for never reached it.
async fn give_back(handle: &NodeHandle, split: &Split, surplus: Vec<GivenRun>) {
    let mut by_shard: BTreeMap<ShardId, Vec<(RunId, RunToken)>> = BTreeMap::new();
    for run in surplus {
        by_shard.entry(run.id.shard).or_default().push((run.id, run.given.token));
    }
    for (shard, released) in by_shard {
        let guard = handle.ask_guard(shard);
        let call = split.release(released);
        // If that fails, the worker does not name them, and they wait again all the same.
        let _ = handle.ask_shard(&guard, ShardAsk::Worker(Box::new(call))).await;
    }
}

/// Runs of which nobody can say any more what they are about fail in their worker's name: they would be given again for ever.
async fn fail(handle: &NodeHandle, split: &Split, broken: Vec<GivenRun>) {
    let mut by_shard: BTreeMap<ShardId, Vec<DoneCall>> = BTreeMap::new();
    for run in broken {
        let why = "what the run is about cannot be read from the store";
        let made = Attempt { at: run.given.at, error: Some(why.to_owned()), ..Attempt::default() };
        let result = AttemptResult::FailedForGood;
        let (shard, token) = (run.id.shard, run.given.token);
        let done = DoneCall { run: run.id, token, result, made: Some(made) };
        by_shard.entry(shard).or_default().push(done);
    }
    for (shard, done) in by_shard {
        let guard = handle.ask_guard(shard);
        let call = split.report_of(done);
        // If that is not heard, the worker does not name them, and they are looked at again when they are claimed.
        let _ = handle.ask_shard(&guard, ShardAsk::Worker(Box::new(call))).await;
    }
}

fn refusal(answer: &ShardAnswer) -> ApiError {
    match answer {
        ShardAnswer::OldIncarnation => ApiError::new(
            StatusCode::CONFLICT,
            "old-incarnation",
            "A later one is there",
            "a later life of this worker was heard: this one has to stop, or to take a greater incarnation",
        ),
        ShardAnswer::TooManyWorkers => ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too-many",
            "Too many workers",
            "as many workers of the project, or of all projects, are known to this shard as may be: let some end, and try again later",
        ),
        ShardAnswer::Rejected(why) => (*why).into(),
        ShardAnswer::Void => ApiError::new(
            StatusCode::CONFLICT,
            "void-claim",
            "A newer claim came",
            "a newer claim of this worker made this one void",
        ),
        ShardAnswer::Worker(_)
        | ShardAnswer::Queue(_)
        | ShardAnswer::Runs(_)
        | ShardAnswer::QueueRuns { .. }
        | ShardAnswer::Taken(_)
        | ShardAnswer::Output(_)
        | ShardAnswer::Dead(_)
        | ShardAnswer::Counted(_)
        | ShardAnswer::WorkerRuns(_)
        | ShardAnswer::Workers(_) => {
            unreachable!("workers are answered as workers")
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_server_or_shard_that_has_too_much_to_do_fails_no_claim_that_others_hear() {
        let shards = || vec![ShardId(3)];
        let too_many = || Part { shards: shards(), answer: Ok(PartAnswer::TooMany("{}".into())) };
        let full = ShardAnswer::TooManyWorkers;
        let full = Part { shards: shards(), answer: Ok(PartAnswer::Here(full)) };
        for part in [too_many(), full] {
            assert!(!part.is_told(), "others may have something");
            let mut gathered = Gathered::default();
            assert!(gathered.take(part).is_ok() && gathered.heard.is_empty());
            let refusal = gathered.refusal.map(|why| why.into_response().status());
            assert_eq!(refusal, Some(StatusCode::TOO_MANY_REQUESTS), "if nobody else hears it");
        }
        let answer = Ok(PartAnswer::Refused(StatusCode::CONFLICT, "{}".into()));
        assert!(Gathered::default().take(Part { shards: shards(), answer }).is_err());
    }
}

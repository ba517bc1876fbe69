//! Rings: how they are made and seen, and how to be a member of one.

use std::fmt;
use std::time::Duration;

use hyper::header::{ACCEPT, HeaderName, HeaderValue};

use super::Client;
use super::exchange::Question;
use super::path::Path;
use super::watch::EventStream;
use crate::ring::{
    AcceptRequest, Accepted, FollowedEvent, Member, MemberAnswer, MemberRequest, Ring, RingEntry,
    RingEvent, Subscription, SubscriptionSpec,
};
use crate::{ClientError, ListPage};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Which rings, or members of a ring, to list.
#[derive(Debug, Clone, Default)]
pub struct RingFilter {
    /// Those whose name begins so.
    pub prefix: Option<String>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

/// What happens in a ring, while it happens. See [`Client::follow_ring`].
pub struct RingEvents {
    client: Client,
    path: Path,
    last: Option<HeaderValue>,
    /// What is connected now, if something is.
    stream: Option<EventStream>,
}

impl fmt::Debug for RingEvents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RingEvents").field("path", &self.path.as_str()).finish_non_exhaustive()
    }
}

impl Client {
    /// Rings, by name.
    pub async fn rings(&self, filter: &RingFilter) -> Result<ListPage<Ring>, ClientError> {
        self.ask(Question::get(filtered(Path::new("/v1/rings"), filter))).await
    }

    /// Rings, page after page, up to `most` of them; `next` says where more are.
    pub async fn all_rings(
        &self,
        filter: RingFilter,
        most: usize,
    ) -> Result<ListPage<Ring>, ClientError> {
        self.walk(filter.cursor.clone(), most, async |limit, cursor| {
            self.rings(&RingFilter { limit: Some(limit), cursor, ..filter.clone() }).await
        })
        .await
    }

    /// The ring with this name.
    pub async fn ring(&self, name: &str) -> Result<Ring, ClientError> {
        self.ask(Question::get(at(name, ""))).await
    }

    /// Makes a ring with this as its subscription `main`, or gives it to the ring that is there. With a revision, only if that
    /// subscription is at it; with 0, only if there is no such ring.
    pub async fn set_ring(
        &self,
        name: &str,
        spec: &SubscriptionSpec,
        revision: Option<u64>,
    ) -> Result<Ring, ClientError> {
        self.ask_put(at(name, ""), spec, revision, |found: &Ring, next| {
            let main = found.subscriptions.iter().find(|one| one.name == crate::ring::MAIN);
            main.is_some_and(|main| main.revision == next && main.spec == *spec)
        })
        .await
    }

    /// Deletes a ring with its subscriptions; its members are in it no more.
    pub async fn delete_ring(&self, name: &str) -> Result<(), ClientError> {
        self.ask_delete(at(name, "")).await
    }

    /// The members of a ring, in the order of their turns.
    pub async fn ring_members(
        &self,
        ring: &str,
        filter: &RingFilter,
    ) -> Result<ListPage<Member>, ClientError> {
        self.ask(Question::get(filtered(at(ring, "/members"), filter))).await
    }

    /// Joins a ring, or says that the member is still there, and waits for its turns. The request is sent once; whoever hears nothing
    /// sends the next one, also to another server.
    pub async fn attend_ring(
        &self,
        ring: &str,
        member: &str,
        request: &MemberRequest,
    ) -> Result<MemberAnswer, ClientError> {
        let wait = Duration::from_millis(request.wait_ms);
        let question = Question::put(of_member(ring, member), request).wait(Some(wait));
        self.read(&self.attempt(&question).await?)
    }

    /// Leaves a ring. With a visit, only if that is still the one; without, whoever is in the ring under this name is removed.
    pub async fn leave_ring(
        &self,
        ring: &str,
        member: &str,
        visit: Option<u64>,
    ) -> Result<(), ClientError> {
        self.ask_delete(of_member(ring, member).with("visit", visit)).await
    }

    /// The subscription of a ring with this name.
    pub async fn subscription(&self, ring: &str, name: &str) -> Result<Subscription, ClientError> {
        self.ask(Question::get(of_subscription(ring, name, ""))).await
    }

    /// Makes a subscription, or changes it. With a revision, only if it is at that; with 0, only if there is none.
    pub async fn set_subscription(
        &self,
        ring: &str,
        name: &str,
        spec: &SubscriptionSpec,
        revision: Option<u64>,
    ) -> Result<Subscription, ClientError> {
        let path = of_subscription(ring, name, "");
        self.ask_put(path, spec, revision, |found: &Subscription, next| {
            found.revision == next && found.spec == *spec
        })
        .await
    }

    /// Deletes a subscription, with its position.
    pub async fn delete_subscription(&self, ring: &str, name: &str) -> Result<(), ClientError> {
        self.ask_delete(of_subscription(ring, name, "")).await
    }

    /// Lets the next turn pass over its next member.
    pub async fn skip_member(&self, ring: &str, name: &str) -> Result<Subscription, ClientError> {
        self.ask(Question::post(of_subscription(ring, name, "/skip"))).await
    }

    /// Accepts a part of a turn. What is accepted already by the same member is accepted again.
    pub async fn accept_turn(
        &self,
        ring: &str,
        subscription: &str,
        number: u64,
        request: &AcceptRequest,
    ) -> Result<Accepted, ClientError> {
        let path = of_subscription(ring, subscription, &format!("/turns/{number}/accept"));
        self.ask(Question::post(path).body(request)).await
    }

    /// What was decided in a subscription after a cursor, which is the place that an event told, in its order and as far as it is kept;
    /// without one, the last entries.
    pub async fn ring_entries(
        &self,
        ring: &str,
        subscription: &str,
        filter: &RingFilter,
    ) -> Result<ListPage<RingEntry>, ClientError> {
        let path = of_subscription(ring, subscription, "/turns");
        self.ask(Question::get(filtered(path, filter))).await
    }

    /// Begins to follow a subscription: everything from when this returns on, or from a place that an event told.
    pub async fn follow_ring(
        &self,
        ring: &str,
        subscription: &str,
        place: Option<&str>,
    ) -> Result<RingEvents, ClientError> {
        let path = of_subscription(ring, subscription, "/turns").with("follow", Some("true"));
        let last = place.and_then(|place| HeaderValue::from_str(place).ok());
        let mut events = RingEvents { client: self.clone(), path, last, stream: None };
        events.connect().await?;
        Ok(events)
    }
}

impl RingEvents {
    /// The next event. A connection that breaks, or that the server closes, is made anew, by the client's rules for trying again,
    /// and goes on from the same place; what is not kept any more is told as a gap.
    pub async fn next(&mut self) -> Result<FollowedEvent, ClientError> {
        loop {
            self.connect().await?;
            let Some(stream) = &mut self.stream else { continue };
            let block = match stream.block().await {
                Ok(block) => block,
                Err(ClientError::Unreachable { .. }) => {
                    self.stream = None;
                    continue;
                }
                Err(other) => {
                    self.stream = None;
                    return Err(other);
                }
            };
            if let Some(id) = block.id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
                self.last = Some(id);
            }
            // Events of a kind that this version does not know are left out.
            let Ok(what) = serde_json::from_str::<RingEvent>(&block.data) else { continue };
            return Ok(FollowedEvent { place: block.id, what });
        }
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        if self.stream.is_some() {
            return Ok(());
        }
        let (client, path, last) = (&self.client, &self.path, self.last.as_ref());
        let (stream, place) = client.again(|| client.open_ring(path, last)).await?;
        // Whoever has been told nothing yet comes back to where the first connection began.
        self.last = place.or(self.last.take());
        self.stream = Some(stream);
        Ok(())
    }
}

impl Client {
    async fn open_ring(
        &self,
        path: &Path,
        last: Option<&HeaderValue>,
    ) -> Result<(EventStream, Option<HeaderValue>), ClientError> {
        let mut question = Question::get(path.clone())
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last {
            question = question.header(LAST_EVENT_ID, last.clone());
        }
        let body = self.begin(&question).await?;
        let mut stream = EventStream::new(body, &self.base);
        // A comment with a place comes first: until then nothing was promised.
        let first = stream.block().await?;
        Ok((stream, first.id.as_deref().and_then(|id| HeaderValue::from_str(id).ok())))
    }
}

fn filtered(path: Path, filter: &RingFilter) -> Path {
    path.with("prefix", filter.prefix.as_deref())
        .with("limit", filter.limit)
        .with("cursor", filter.cursor.as_deref())
}

fn at(ring: &str, rest: &str) -> Path {
    Path::of("rings", ring, rest)
}

fn of_member(ring: &str, member: &str) -> Path {
    at(ring, "").below("members", member, "")
}

fn of_subscription(ring: &str, subscription: &str, rest: &str) -> Path {
    at(ring, "").below("subscriptions", subscription, rest)
}

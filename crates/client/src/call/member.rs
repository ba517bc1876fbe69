//! A member of a ring that comes through servers: whichever answers.

use std::fmt;
use std::time::Duration;

use super::Client;
use crate::ClientError;
use crate::ring::{AcceptRequest, MEMBER_GONE, MemberAnswer, MemberRequest, MemberTurn};

/// How long an answer waits for a turn: a member whose machine is gone is noticed so much later.
const WAIT: Duration = Duration::from_secs(2);

/// How much longer an answer may take: then another server is asked, before the member counts as silent.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Somebody who takes part in a ring. Each [`attend`](Self::attend) is a sign of life and brings the turns that have come; whoever
/// carries them out meanwhile goes on attending, at least once in each `beat_ms`.
///
/// ```no_run
/// # async fn example(client: client::Client) -> Result<(), client::ClientError> {
/// let mut member = client::RingMember::new([client], "checks", "web-1");
/// loop {
///     for turn in member.attend().await?.turns {
///         if member.accept(&turn).await? {
///             println!("turn {} is ours, under token {}", turn.number, turn.token);
///         }
///     }
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct RingMember {
    servers: Vec<Client>,
    /// Which of them is asked.
    at: usize,
    ring: String,
    name: String,
    request: MemberRequest,
}

impl fmt::Debug for RingMember {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RingMember").field("ring", &self.ring).field("name", &self.name).finish()
    }
}

impl RingMember {
    /// A member of this name, by any of these servers. It joins when it attends for the first time.
    ///
    /// # Panics
    ///
    /// If there is no server.
    pub fn new(
        servers: impl IntoIterator<Item = Client>,
        ring: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        let in_time = |server: Client| server.with_timeout(ANSWER_TIME_MAX);
        let servers: Vec<Client> = servers.into_iter().map(in_time).collect();
        assert!(!servers.is_empty(), "a member comes by a server");
        let wait_ms = u64::try_from(WAIT.as_millis()).unwrap_or(u64::MAX);
        let request = MemberRequest { wait_ms, ..MemberRequest::default() };
        Self { servers, at: 0, ring: ring.into(), name: name.into(), request }
    }

    /// The same, which is told of turns of these subscriptions alone.
    #[must_use]
    pub fn subscriptions(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.request.subscriptions = names.into_iter().map(Into::into).collect();
        self
    }

    /// The same, whose answers wait so long for a turn.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The visit that it was told, while it is in the ring as far as it knows.
    pub fn visit(&self) -> Option<u64> {
        self.request.visit
    }

    /// Where the server is that it asks.
    pub fn server(&self) -> &str {
        self.servers[self.at].url()
    }

    /// Says that it is there, and waits for its turns. After an error the next call asks another server. Whoever was taken out
    /// is told a conflict once, and joins anew by the next call; [`is_taken`](Self::is_taken) tells when somebody else has the name.
    pub async fn attend(&mut self) -> Result<MemberAnswer, ClientError> {
        let attended =
            self.servers[self.at].attend_ring(&self.ring, &self.name, &self.request).await;
        match &attended {
            Ok(answer) => {
                self.request.visit = Some(answer.visit);
                self.request.after = Some(answer.after.clone());
            }
            Err(why) if is_of(why, MEMBER_GONE) => self.request.visit = None,
            Err(_) => self.turn_to_another(),
        }
        attended
    }

    /// Accepts a part of a turn: whether it is this member's. Of a subscription without `accept` it is in any case. If no server
    /// answers in time it is not known, and the part must not be carried out.
    pub async fn accept(&self, turn: &MemberTurn) -> Result<bool, ClientError> {
        if !turn.accept {
            return Ok(true);
        }
        let request = AcceptRequest {
            member: self.name.clone(),
            part: turn.part,
            generation: Some(turn.generation),
        };
        let mut failed = None;
        for step in 0..self.servers.len() {
            let server = &self.servers[(self.at + step) % self.servers.len()];
            let (ring, subscription) = (&self.ring, &turn.subscription);
            match server.accept_turn(ring, subscription, turn.number, &request).await {
                Ok(_) => return Ok(true),
                Err(ClientError::Conflict(_) | ClientError::NotFound(_)) => return Ok(false),
                Err(why) => failed = Some(why),
            }
        }
        Err(failed.expect("there is a server"))
    }

    /// Leaves the ring. When this returns without an error nothing late brings the member back.
    pub async fn leave(&mut self) -> Result<(), ClientError> {
        let Some(visit) = self.request.visit else { return Ok(()) };
        let mut failed = None;
        for _ in 0..self.servers.len() {
            let server = &self.servers[self.at];
            match server.leave_ring(&self.ring, &self.name, Some(visit)).await {
                Ok(()) | Err(ClientError::NotFound(_) | ClientError::Conflict(_)) => {
                    self.request.visit = None;
                    return Ok(());
                }
                Err(why) => failed = Some(why),
            }
            self.turn_to_another();
        }
        failed.map_or(Ok(()), Err)
    }

    /// Whether an error says that somebody else has joined under the name since.
    pub fn is_taken(why: &ClientError) -> bool {
        matches!(why, ClientError::Conflict(_)) && !is_of(why, MEMBER_GONE)
    }

    fn turn_to_another(&mut self) {
        self.at = (self.at + 1) % self.servers.len();
    }
}

fn is_of(why: &ClientError, kind: &str) -> bool {
    why.problem().is_some_and(|problem| problem.kind == kind)
}

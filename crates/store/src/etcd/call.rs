//! One call: to the favourite member, within its time, and what its answer is worth.
//!
//! A request that was sent and not answered may have been carried out. A read is then sent again to another member. A
//! write never is: its outcome is unknown, and its sender decides what follows from that.

use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use tokio::time::{Instant, timeout_at};

use super::epoch::{AnswerEpoch, EtcdEpochs};
use super::failure::EtcdFailure;
use super::member::{ConnectionFate, EtcdMembers, MemberConnection};
use super::request::{EtcdRequest, RequestKind};
use super::space::Space;
use crate::Watchers;

/// How long one member may take to answer a read, before another one is asked.
const READ_ANSWER_MAX: Duration = Duration::from_millis(1_500);

// Two members can be asked in one call.
const _: () = assert!(READ_ANSWER_MAX.as_millis() * 2 <= STORE_ANSWER_MAX.as_millis());

/// Tokens that one call asks for: the second proves that it is not for want of a new one.
const TOKENS_MAX: usize = 2;

/// The members of one etcd, its epoch and its keys: what every call needs.
pub(super) struct EtcdHandle {
    pub(super) members: EtcdMembers,
    pub(super) epochs: EtcdEpochs,
    pub(super) space: Space,
    pub(super) watchers: Watchers,
}

impl EtcdHandle {
    /// Sends a request to the favourite member, or to the next one that can be reached, and judges the answer's epoch.
    pub(super) async fn call<Q: EtcdRequest>(&self, request: Q) -> Result<Q::Answer, EtcdFailure> {
        let deadline = Instant::now() + STORE_ANSWER_MAX;
        let mut tokens = 0;
        loop {
            let connection = self.members.take(deadline).await.map_err(EtcdFailure::Elsewhere)?;
            let failure = match self.call_once(request.clone(), &connection, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let again = match &failure {
                EtcdFailure::Elsewhere(_) => {
                    self.members.leave(&connection, ConnectionFate::Keep);
                    true
                }
                EtcdFailure::Unknown(_) => {
                    self.members.leave(&connection, ConnectionFate::Drop);
                    Q::KIND == RequestKind::Read
                }
                EtcdFailure::Token(_) if tokens < TOKENS_MAX => {
                    tokens += 1;
                    refresh(&connection, deadline).await?;
                    true
                }
                EtcdFailure::Token(_)
                | EtcdFailure::Refused(_)
                | EtcdFailure::Full
                | EtcdFailure::Large
                | EtcdFailure::Corrupt(_) => false,
            };
            if !again || Instant::now() >= deadline {
                return Err(failure);
            }
        }
    }

    async fn call_once<Q: EtcdRequest>(
        &self,
        request: Q,
        connection: &MemberConnection,
        deadline: Instant,
    ) -> Result<Q::Answer, EtcdFailure> {
        let answer_by = match Q::KIND {
            RequestKind::Read => deadline.min(Instant::now() + READ_ANSWER_MAX),
            RequestKind::Write => deadline,
        };
        let mark = self.epochs.mark();
        self.members.asks(connection);
        let Ok(answer) = timeout_at(answer_by, request.send(&connection.client)).await else {
            let host = self.members.host_of(connection);
            return Err(EtcdFailure::Unknown(format!("{host} did not answer in time")));
        };
        self.members.answers(connection);
        let answer = answer.map_err(|why| EtcdFailure::of(&why))?;
        let Some(origin) = Q::origin(&answer) else {
            return Err(EtcdFailure::Unknown(
                "an answer does not say where it comes from".to_owned(),
            ));
        };
        match self.epochs.judge(mark, origin) {
            AnswerEpoch::Known => {}
            AnswerEpoch::New => {
                tracing::warn!(epoch = self.epochs.epoch().0, "etcd was restored or replaced");
                self.watchers.notify_all();
            }
            AnswerEpoch::Former => {
                return Err(EtcdFailure::Unknown("an answer is from before a restore".to_owned()));
            }
        }
        self.members.praise(connection);
        Ok(answer)
    }
}

/// Gets a new token for a connection. Nothing was done if that fails.
async fn refresh(connection: &MemberConnection, deadline: Instant) -> Result<(), EtcdFailure> {
    match timeout_at(deadline, connection.client.refresh_token()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => match EtcdFailure::of(&why) {
            EtcdFailure::Unknown(why) | EtcdFailure::Token(why) => Err(EtcdFailure::Refused(why)),
            failure => Err(failure),
        },
        Err(_) => Err(EtcdFailure::Refused("it did not check our password in time".to_owned())),
    }
}

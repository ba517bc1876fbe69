//! One call: to the favourite member, within its time, and what its answer is worth.
//!
//! A question that was sent and not answered may have been heard. A read is asked again elsewhere then; a write
//! never is: its outcome is unknown, and whoever sent it knows best what follows from that.

use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use tokio::time::{Instant, timeout_at};

use super::era::{Eras, Worth};
use super::failure::Failure;
use super::question::{Kind, Question};
use super::seat::{Line, Parting, Seats};
use super::space::Space;
use crate::Watchers;

/// How long one member may take to answer a read, before another one is asked.
const READ_TURN_MAX: Duration = Duration::from_millis(1_500);

// Two turns fit in a call.
const _: () = assert!(READ_TURN_MAX.as_millis() * 2 <= STORE_ANSWER_MAX.as_millis());

/// Tokens that one call asks for: the second proves that it is not for want of a new one.
const TOKENS_MAX: usize = 2;

/// The way to one etcd, and what is known of it.
pub(super) struct Reach {
    pub(super) seats: Seats,
    pub(super) eras: Eras,
    pub(super) space: Space,
    pub(super) watchers: Watchers,
}

impl Reach {
    /// Asks the favourite, or whoever can be had, and judges where the answer comes from.
    pub(super) async fn call<Q: Question>(&self, question: Q) -> Result<Q::Answer, Failure> {
        let deadline = Instant::now() + STORE_ANSWER_MAX;
        let mut tokens = 0;
        loop {
            let line = self.seats.take(deadline).await.map_err(Failure::Elsewhere)?;
            let failure = match self.call_once(question.clone(), &line, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let again = match &failure {
                Failure::Elsewhere(_) => {
                    self.seats.leave(&line, Parting::Keep);
                    true
                }
                Failure::Unknown(_) => {
                    self.seats.leave(&line, Parting::Drop);
                    Q::KIND == Kind::Read
                }
                Failure::Token(_) if tokens < TOKENS_MAX => {
                    tokens += 1;
                    refresh(&line, deadline).await?;
                    true
                }
                Failure::Token(_)
                | Failure::Refused(_)
                | Failure::Full
                | Failure::Large
                | Failure::Corrupt(_) => false,
            };
            if !again || Instant::now() >= deadline {
                return Err(failure);
            }
        }
    }

    async fn call_once<Q: Question>(
        &self,
        question: Q,
        line: &Line,
        deadline: Instant,
    ) -> Result<Q::Answer, Failure> {
        let turn_ends = match Q::KIND {
            Kind::Read => deadline.min(Instant::now() + READ_TURN_MAX),
            Kind::Write => deadline,
        };
        let mark = self.eras.mark();
        self.seats.asks(line);
        let Ok(answer) = timeout_at(turn_ends, question.send(&line.client)).await else {
            let host = self.seats.host_of(line);
            return Err(Failure::Unknown(format!("{host} did not answer in time")));
        };
        self.seats.answers(line);
        let answer = answer.map_err(|why| Failure::of(&why))?;
        let Some(origin) = Q::origin(&answer) else {
            return Err(Failure::Unknown("an answer does not say where it comes from".to_owned()));
        };
        match self.eras.judge(mark, origin) {
            Worth::Known => {}
            Worth::New => {
                tracing::warn!(epoch = self.eras.epoch().0, "etcd was restored or replaced");
                self.watchers.ring_all();
            }
            Worth::Former => {
                return Err(Failure::Unknown("an answer is from before a restore".to_owned()));
            }
        }
        self.seats.praise(line);
        Ok(answer)
    }
}

/// Gets a new token for a connection. Nothing was done if that fails.
async fn refresh(line: &Line, deadline: Instant) -> Result<(), Failure> {
    match timeout_at(deadline, line.client.refresh_token()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => match Failure::of(&why) {
            Failure::Unknown(why) | Failure::Token(why) => Err(Failure::Refused(why)),
            failure => Err(failure),
        },
        Err(_) => Err(Failure::Refused("it did not check our password in time".to_owned())),
    }
}

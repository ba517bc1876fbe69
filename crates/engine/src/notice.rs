//! Notices: what a project's people are told about its triggers and queues.
//!
//! A notice is a run like any other: it has an id, attempts and a past. It is decided together with what it tells of,
//! in the same unit, so neither is in the store without the other; see docs/decisions/0010-notifications.md. Whom it
//! goes to is the project's affair, not the trigger's: whoever runs a shard tells it who listens, an [`Audience`].
//!
//! What is sent is JSON that chat tools take: `text`, a sentence for people, and the same as fields for programs.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{ProjectId, QueueId, RunId, TriggerId};
use crate::instant::Instant;
use crate::length;
use crate::limits::{QUEUE_WELL_AFTER, WEBHOOK_TIMEOUT_DEFAULT};
use crate::past::{End, Finished};
use crate::policy::{Backoff, Delivery, Overlap, Policy, Retry};
use crate::queue::unfinished::QueueCensus;
use crate::webhook::{Method, Webhook, WebhookError};

/// What a project's people may be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// A trigger's runs begin to fail, or those that were submitted to a queue.
    Failure,
    /// They succeed again; or the runs of a queue do not wait for too long any more.
    Recovery,
    /// A trigger is paused because its runs failed.
    Paused,
    /// A run succeeded.
    Success,
    /// There was no success for too long; or a run of a queue waits for too long.
    Overdue,
}

impl Occasion {
    /// All of them, as they are written.
    pub const WORDS: [(&str, Self); 5] = [
        ("failure", Self::Failure),
        ("recovery", Self::Recovery),
        ("paused", Self::Paused),
        ("success", Self::Success),
        ("overdue", Self::Overdue),
    ];
}

/// A set of occasions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Occasion>", into = "Vec<Occasion>")]
pub struct Occasions(u8);

impl Occasions {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// What people are told of if they do not choose: all but successes.
    pub const USUAL: Self = Self(
        1 << Occasion::Failure as u8
            | 1 << Occasion::Recovery as u8
            | 1 << Occasion::Paused as u8
            | 1 << Occasion::Overdue as u8,
    );

    /// Whether this is one of them.
    pub fn has(self, occasion: Occasion) -> bool {
        self.0 & 1 << occasion as u8 != 0
    }
}

impl FromIterator<Occasion> for Occasions {
    fn from_iter<I: IntoIterator<Item = Occasion>>(occasions: I) -> Self {
        Self(occasions.into_iter().fold(0, |bits, occasion| bits | 1 << occasion as u8))
    }
}

impl From<Vec<Occasion>> for Occasions {
    fn from(occasions: Vec<Occasion>) -> Self {
        occasions.into_iter().collect()
    }
}

impl From<Occasions> for Vec<Occasion> {
    fn from(occasions: Occasions) -> Self {
        let all = Occasion::WORDS.iter().map(|(_, occasion)| *occasion);
        all.filter(|occasion| occasions.has(*occasion)).collect()
    }
}

/// Whom a project's notices go to.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// The project's name.
    project: Box<str>,
    webhook: Webhook,
    /// Of what, unless a trigger has its own choice.
    pub on: Occasions,
}

/// Who listens to a project at the moment of asking, if anybody does.
pub type Audience = Arc<dyn Fn(ProjectId) -> Option<Arc<Listener>> + Send + Sync>;

/// An audience in which nobody listens.
pub fn nobody() -> Audience {
    Arc::new(|_| None)
}

impl Listener {
    /// A listener at this URL.
    pub fn new(project: &str, url: &str, on: Occasions) -> Result<Self, WebhookError> {
        Ok(Self { project: project.into(), webhook: webhook_to(url)?, on })
    }

    /// A notice with this body.
    pub(crate) fn webhook(&self, body: Option<Box<str>>) -> Webhook {
        Webhook { body, ..self.webhook.clone() }
    }
}

/// A webhook that tells something to whoever is at this URL, but for what it tells.
pub fn webhook_to(url: &str) -> Result<Webhook, WebhookError> {
    let body = Some(String::new());
    Webhook::new(url, Method::Post, Vec::new(), None, body, WEBHOOK_TIMEOUT_DEFAULT)
}

/// How often it is tried to tell somebody something.
pub const RETRY: Retry =
    Retry { attempts: 6, delay_ms: 5_000, backoff: Backoff::Exponential, max_delay_ms: 300_000 };

/// By which rules notices are sent.
pub(crate) const POLICY: Policy = Policy {
    catch_up: crate::policy::CatchUp::Latest,
    overlap: Overlap::Allow,
    delivery: Delivery::AtLeastOnce,
    retry: RETRY,
    max_lateness_ms: None,
    pause_after: None,
    alert_after_ms: None,
    notify: Some(Occasions::NONE),
};

/// What a notice tells of.
pub(crate) enum NoticeNews<'a> {
    /// A run ended.
    Ended(RunId, &'a Finished),
    /// A trigger was paused, and why.
    Paused(&'a str),
    /// There was no success for so long.
    Overdue(Duration),
    /// The oldest run of a queue waits for so long.
    LongWait(Duration, QueueCensus),
    /// The oldest run of a queue waits for less than this.
    ShortWait(Duration),
}

/// What a notice is about.
pub(crate) enum NoticeSubject<'a> {
    /// The trigger with this name.
    Trigger(TriggerId, &'a str),
    /// The queue with this name.
    Queue(QueueId, &'a str),
}

/// The body of a notice.
#[derive(Serialize)]
struct Message<'a> {
    text: String,
    event: Occasion,
    project: &'a str,
    #[serde(flatten)]
    subject: MessageSubject<'a>,
    at: String,
    #[serde(flatten)]
    about: Option<NoticeRun>,
}

/// What a notice is about, as it is sent.
#[derive(Serialize)]
#[serde(untagged)]
enum MessageSubject<'a> {
    Trigger { trigger: &'a str, trigger_id: String },
    Queue { queue: &'a str, queue_id: String },
}

/// The run that a notice is about.
#[derive(Serialize)]
struct NoticeRun {
    run: String,
    slot: String,
    state: End,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The body of a notice.
pub(crate) fn body(
    listener: &Listener,
    subject: &NoticeSubject<'_>,
    occasion: Occasion,
    news: &NoticeNews<'_>,
    now: Instant,
) -> String {
    let about = match news {
        NoticeNews::Ended(run, finished) => Some(NoticeRun {
            run: run.to_string(),
            slot: finished.slot.to_string(),
            state: finished.end,
            attempts: finished.attempt,
            error: error(finished),
        }),
        NoticeNews::Paused(_)
        | NoticeNews::Overdue(_)
        | NoticeNews::LongWait(..)
        | NoticeNews::ShortWait(_) => None,
    };
    let (name, subject) = match *subject {
        NoticeSubject::Trigger(id, trigger) => {
            (trigger, MessageSubject::Trigger { trigger, trigger_id: id.to_string() })
        }
        NoticeSubject::Queue(id, queue) => {
            (queue, MessageSubject::Queue { queue, queue_id: id.to_string() })
        }
    };
    let sentence = match (news, &subject) {
        (NoticeNews::Ended(_, finished), MessageSubject::Queue { .. }) => {
            sentence_of_submitted(occasion, finished)
        }
        (news, _) => sentence(occasion, news),
    };
    let message = Message {
        text: format!("{name} ({}) {sentence}", listener.project),
        event: occasion,
        project: &listener.project,
        subject,
        at: now.to_string(),
        about,
    };
    serde_json::to_string(&message).expect("plain structs always serialize")
}

/// What happened, after the name of the trigger or queue.
fn sentence(occasion: Occasion, news: &NoticeNews<'_>) -> String {
    match (news, occasion) {
        (NoticeNews::Paused(why), _) => format!("was paused: {why}"),
        (NoticeNews::Overdue(length), _) => {
            format!("has not succeeded for {}", length::text(*length))
        }
        (NoticeNews::LongWait(length, census), _) => {
            let QueueCensus { waiting, running, .. } = census;
            let length = length::text(*length);
            format!(
                "has a run that waits for a worker since {length}: {waiting} wait, {running} execute"
            )
        }
        (NoticeNews::ShortWait(length), _) => {
            format!("has no run any more that waits for longer than {}", length::text(*length))
        }
        (NoticeNews::Ended(..), Occasion::Recovery) => "succeeded again".to_owned(),
        (NoticeNews::Ended(_, finished), _) => {
            let how = match finished.end {
                End::Succeeded => return "succeeded".to_owned(),
                End::Failed | End::Dead => "failed",
                End::Cancelled => "was cancelled",
                End::Expired => "could not leave in time",
                End::Unknown => "may have arrived or not, and is not sent again",
            };
            match error(finished) {
                Some(error) => format!("{how}: {error}"),
                None => how.to_owned(),
            }
        }
    }
}

/// What happened to a run that was submitted to a queue, after the name of the queue.
fn sentence_of_submitted(occasion: Occasion, finished: &Finished) -> String {
    if occasion == Occasion::Recovery {
        let length = length::text(QUEUE_WELL_AFTER);
        return format!("has a run that succeeded, and none has failed for {length}");
    }
    let how = match finished.end {
        End::Succeeded => "succeeded",
        End::Failed | End::Dead => "failed",
        End::Cancelled => "was cancelled",
        End::Expired => "was given to no worker in time",
        End::Unknown => "may have been carried out or not, and is not begun again",
    };
    match error(finished) {
        Some(error) => format!("has a run that {how}: {error}"),
        None => format!("has a run that {how}"),
    }
}

/// What went wrong last. What the receiver said is left out: it may be long, and nobody has looked at it.
fn error(finished: &Finished) -> Option<String> {
    let last = finished.attempts.last()?;
    let answered = |status: u16| format!("the receiver answered {status}");
    let failed = last.status.filter(|status| status / 100 != 2);
    last.error.clone().or_else(|| failed.map(answered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occasions_are_stored_as_words() {
        let chosen: Occasions = [Occasion::Overdue, Occasion::Failure].into_iter().collect();
        let text = serde_json::to_string(&chosen).unwrap();
        assert_eq!(text, r#"["failure","overdue"]"#);
        assert_eq!(serde_json::from_str::<Occasions>(&text).unwrap(), chosen);
        assert!(chosen.has(Occasion::Overdue) && !chosen.has(Occasion::Success));
        assert!(!Occasions::USUAL.has(Occasion::Success) && Occasions::USUAL.has(Occasion::Paused));
    }
}

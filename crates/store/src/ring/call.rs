//! What is asked of the driver, with where the answer goes.

use std::time::Duration;

use engine::ring::member::Visit;
use engine::ring::{MemberName, PartId, SubscriptionConfig, SubscriptionDraft};
use tokio::sync::oneshot;

use super::{
    Cursor, Cursors, Expected, Feed, Heard, Note, OwnPart, Put, RingError, RingId, SubscriptionId,
};

/// Where an answer goes. Whoever asked may have stopped waiting.
pub(super) type Answer<T> = oneshot::Sender<Result<T, RingError>>;

/// Something that is asked.
pub(super) enum Call {
    Look,
    Stop {
        answer: Answer<()>,
    },
    Hear {
        ring: RingId,
        member: MemberName,
        visit: Option<Visit>,
        answer: Answer<Heard>,
    },
    Leave {
        ring: RingId,
        member: MemberName,
        visit: Option<Visit>,
        note: Note,
        answer: Answer<Visit>,
    },
    Accept {
        subscription: SubscriptionId,
        part: PartId,
        member: MemberName,
        answer: Answer<u64>,
    },
    PassOver {
        subscription: SubscriptionId,
        note: Note,
        answer: Answer<String>,
    },
    Change {
        subscription: SubscriptionId,
        change: Box<Change>,
        answer: Answer<Put>,
    },
    Follow {
        subscription: SubscriptionId,
        from: Option<Cursor>,
        answer: Answer<Feed>,
    },
    Attend {
        ring: RingId,
        member: MemberName,
        after: Cursors,
        wait: Duration,
        answer: Answer<(Vec<OwnPart>, Cursors)>,
    },
}

/// What a subscription is to become.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) draft: SubscriptionDraft,
    pub(super) config: SubscriptionConfig,
    pub(super) expected: Expected,
    pub(super) note: Note,
}

impl Call {
    /// The ring that it is about, if it is about one.
    pub(super) fn ring(&self) -> Option<&RingId> {
        match self {
            Self::Look | Self::Stop { .. } => None,
            Self::Hear { ring, .. } | Self::Leave { ring, .. } | Self::Attend { ring, .. } => {
                Some(ring)
            }
            Self::Accept { subscription, .. }
            | Self::PassOver { subscription, .. }
            | Self::Change { subscription, .. }
            | Self::Follow { subscription, .. } => Some(&subscription.ring),
        }
    }

    /// The subscription that it is about, if it is about one.
    pub(super) fn subscription(&self) -> Option<&SubscriptionId> {
        match self {
            Self::Accept { subscription, .. }
            | Self::PassOver { subscription, .. }
            | Self::Change { subscription, .. }
            | Self::Follow { subscription, .. } => Some(subscription),
            Self::Look
            | Self::Stop { .. }
            | Self::Hear { .. }
            | Self::Leave { .. }
            | Self::Attend { .. } => None,
        }
    }

    /// Answers that it was not done.
    pub(super) fn refuse(self, why: RingError) {
        // Whoever asked may have stopped waiting.
        let _unheard = match self {
            Self::Look => return,
            Self::Stop { answer } => answer.send(Err(why)).is_err(),
            Self::Hear { answer, .. } => answer.send(Err(why)).is_err(),
            Self::Leave { answer, .. } => answer.send(Err(why)).is_err(),
            Self::Accept { answer, .. } => answer.send(Err(why)).is_err(),
            Self::PassOver { answer, .. } => answer.send(Err(why)).is_err(),
            Self::Change { answer, .. } => answer.send(Err(why)).is_err(),
            Self::Follow { answer, .. } => answer.send(Err(why)).is_err(),
            Self::Attend { answer, .. } => answer.send(Err(why)).is_err(),
        };
    }
}

/// Answers; whoever asked may have stopped waiting.
pub(super) fn answer<T>(to: Answer<T>, with: Result<T, RingError>) {
    let _unheard = to.send(with);
}

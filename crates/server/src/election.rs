//! How an election stands: what its head says, beside the sessions that there are.
//!
//! A head names the session of whoever has it; a session that is gone has nothing any more. What a hold says of itself
//! stands in the head too, under the token of whoever wrote it.
//!
//! - [`monitor`]: looks at elections, and tells of changes; [`watch`]: what of it is told; `notified`: what somebody was
//!   notified of already

pub mod monitor;
mod notified;
pub mod watch;

use client::election::{ElectionState, HandOverCause, HoldState, RiskReason};
use engine::hold::record::{self, HoldBody, HoldRecord};
use store::claim::{ClaimState, Head};

/// Whether the session that a head names is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HolderPresence {
    There,
    /// The session has ended, or the head names none.
    Gone,
}

/// Whether somebody has the election.
pub(crate) fn state(head: &Head, holder: HolderPresence) -> ElectionState {
    match (holder, head.state) {
        (HolderPresence::Gone, _) | (_, ClaimState::Free) => ElectionState::Free,
        (HolderPresence::There, ClaimState::Held) => ElectionState::Held,
        (HolderPresence::There, ClaimState::Waiting) => ElectionState::Waiting,
    }
}

/// What a hold has told of itself, if this is one.
pub(crate) fn hold(head: &Head) -> Option<HoldRecord> {
    let body: HoldBody = serde_json::from_str(head.body.as_ref()?.get()).ok()?;
    Some(body.hold)
}

/// What becomes of a held program.
pub(crate) fn hold_state(
    head: &Head,
    holder: HolderPresence,
    (token, told): (u64, record::HoldState),
) -> HoldState {
    match state(head, holder) {
        ElectionState::Waiting => HoldState::WaitingForApproval,
        // Who gave it up had stopped; who is gone without a word was ended by its guard.
        ElectionState::Free if head.session.is_some() => HoldState::Lost,
        ElectionState::Free => HoldState::Former,
        ElectionState::Held if token != head.token => HoldState::Former,
        ElectionState::Held => match told {
            record::HoldState::WaitingToStart => HoldState::WaitingToStart,
            record::HoldState::Running => HoldState::Running,
            record::HoldState::Stopping => HoldState::Stopping,
        },
    }
}

/// Why a program came to another node, as the API says it.
pub(crate) fn cause(cause: record::HandOverCause) -> HandOverCause {
    match cause {
        record::HandOverCause::First => HandOverCause::First,
        record::HandOverCause::Lost => HandOverCause::Lost,
        record::HandOverCause::Stopped => HandOverCause::Stopped,
        record::HandOverCause::Resigned => HandOverCause::Resigned,
        record::HandOverCause::Exits => HandOverCause::Exits,
        record::HandOverCause::Health => HandOverCause::Health,
    }
}

/// Which assumption was broken, as the API says it.
pub(crate) fn reason(reason: record::RiskReason) -> RiskReason {
    match reason {
        record::RiskReason::WeakKill => RiskReason::WeakKill,
        record::RiskReason::ClockRates => RiskReason::ClockRates,
        record::RiskReason::SlowKill => RiskReason::SlowKill,
        record::RiskReason::ForgetfulStore => RiskReason::ForgetfulStore,
        record::RiskReason::GuardsKilled => RiskReason::GuardsKilled,
    }
}

#[cfg(test)]
mod tests {
    use engine::lease::Nonce;
    use store::session::{NodeId, SessionKey};

    use super::*;

    fn head(state: ClaimState, is_held: bool) -> Head {
        let key = SessionKey::new(&NodeId::new("web-1").unwrap(), 1);
        let text = r#"{"format":1,"session":null,"token":7,"state":"held","number":3,"nonce":"1"}"#;
        let first = Head::from_value(&text.into()).unwrap();
        Head { session: is_held.then_some(key), state, nonce: Nonce(1), ..first }
    }

    #[test]
    fn a_hold_is_shown_as_it_is_and_not_as_it_was() {
        use HolderPresence::{Gone, There};
        let running = record::HoldState::Running;
        let held = head(ClaimState::Held, true);
        assert_eq!(hold_state(&held, There, (7, running)), HoldState::Running);
        assert_eq!(hold_state(&held, There, (6, running)), HoldState::Former);
        assert_eq!(hold_state(&held, Gone, (7, running)), HoldState::Lost);
        let waiting = head(ClaimState::Waiting, true);
        assert_eq!(hold_state(&waiting, There, (6, running)), HoldState::WaitingForApproval);
        let free = head(ClaimState::Free, false);
        assert_eq!(hold_state(&free, Gone, (7, running)), HoldState::Former);
    }

    #[test]
    fn reasons_are_called_alike_in_records_and_in_the_api() {
        for one in record::RiskReason::ALL {
            assert_eq!(reason(one).as_str(), one.as_str());
        }
    }
}

//! What an election shows of what is held by it.

use client::election::{HandOver, Hold, HoldExit, HoldRisk};
use engine::hold::record::HoldRecord;
use engine::instant::Instant;
use engine::limits::{HOLD_EXITS_KEPT_MAX, HOLD_HAND_OVERS_KEPT_MAX};
use store::claim::Head;

use crate::api::convert::timestamp;
use crate::election::{HolderPresence, cause, hold_state, reason};

/// A hold as people are shown it. What its holder wrote is not trusted to be short.
pub(super) fn hold(head: &Head, holder: HolderPresence) -> Option<Hold> {
    let told: HoldRecord = crate::election::hold(head)?;
    let state = hold_state(head, holder, (told.token, told.state));
    let at = |ms| timestamp(Instant(ms));
    let exits = told.exits.into_iter().take(HOLD_EXITS_KEPT_MAX).map(|exit| HoldExit {
        at: at(exit.at_ms),
        ran_ms: exit.ran_ms,
        how: exit.how,
        node: exit.node,
    });
    let hand_overs =
        told.hand_overs.into_iter().take(HOLD_HAND_OVERS_KEPT_MAX).map(|came| HandOver {
            at: at(came.at_ms),
            from: came.from,
            to: came.to,
            token: came.token,
            cause: cause(came.cause),
            took_ms: came.took_ms,
        });
    let at_risk = told.at_risk.into_iter().map(|risk| HoldRisk {
        reason: reason(risk.reason),
        count: risk.count,
        last: at(risk.last_ms),
        what: risk.what,
    });
    Some(Hold {
        state,
        node: told.node,
        token: told.token,
        since: at(told.since_ms),
        program: told.program,
        isolation: told.isolation,
        pid: told.pid,
        starts: told.starts,
        exits: exits.collect(),
        hand_overs: hand_overs.collect(),
        at_risk: at_risk.collect(),
    })
}

//! What is shown of a hold: what its holder keeps in the head of the election.
//!
//! Only the holder writes it, with its claim, so it is never that of somebody who lost it; but it may be old. A record whose
//! token is not that of the head was written by a former holder: its history counts, its state does not. Whoever takes the claim
//! carries it over. All times are the wall clock of whoever wrote them: for people.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{HOLD_EXITS_KEPT_MAX, HOLD_HAND_OVERS_KEPT_MAX};

/// What the body of an election's head is, if its holder is a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldBody {
    /// The hold.
    pub hold: HoldRecord,
}

/// A hold, as its holder told of it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The token under which this was written.
    pub token: u64,
    /// The node that wrote it.
    pub node: String,
    /// What it does.
    pub state: HoldState,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// Why whoever wrote this is about to leave, if it is: what a successor takes for the cause of its hand-over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<HandOverCause>,
    /// The program, without its arguments: these may be secrets.
    pub program: String,
    /// What keeps its processes together: see `process::Isolation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// The id of the program's guard on its machine, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started under this token.
    #[serde(default)]
    pub starts: u64,
    /// How it ended, the last time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<HoldExit>,
    /// How it came from one node to another, the last time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hand_overs: Vec<HandOver>,
    /// Why two may have run, one entry for each reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_risk: Vec<Risk>,
}

/// What a holder does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// It has the claim, and may not start yet: too little time is left, something of a former start is, or it exited lately.
    WaitingToStart,
    /// The program runs.
    Running,
    /// The program was told to end.
    Stopping,
}

/// An end of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldExit {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// How long it had run, in milliseconds.
    pub ran_ms: u64,
    /// How: `exit 1`, `signal 9`, or a sentence.
    pub how: String,
    /// The node on which it ran.
    pub node: String,
}

/// How the program came to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// When the new holder had the claim, in milliseconds since 1970.
    pub at_ms: i64,
    /// Who had it before; nobody, the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Who has it since.
    pub to: String,
    /// Under which token.
    pub token: u64,
    /// Why.
    pub cause: HandOverCause,
    /// From when the former holder was last known to run it until the program was started anew, in milliseconds; none
    /// before it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// Why a program came to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandOverCause {
    /// Nobody had it before.
    First,
    /// Its holder was not heard of any more, and buried.
    Lost,
    /// Its holder was told to stop.
    Stopped,
    /// Somebody wished so.
    Resigned,
    /// The program exited too often.
    Exits,
    /// The program's health command failed too often.
    Health,
}

/// An assumption that was seen broken: at most one may not have been kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// Which.
    pub reason: RiskReason,
    /// How often it was seen.
    pub count: u64,
    /// When the last time, in milliseconds since 1970.
    pub last_ms: i64,
    /// What was seen that time.
    pub what: String,
}

/// Which assumption was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RiskReason {
    /// The program's tree can only be ended by looking for its processes.
    WeakKill,
    /// The machine's two clocks count differently.
    ClockRates,
    /// The tree was not empty when it should have been.
    SlowKill,
    /// The store may have forgotten what it acknowledged, after a fail-over.
    ForgetfulStore,
    /// Both guards of the tree were killed: nobody knows what is left of it.
    GuardsKilled,
}

impl RiskReason {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::WeakKill,
        Self::ClockRates,
        Self::SlowKill,
        Self::ForgetfulStore,
        Self::GuardsKilled,
    ];

    /// As it is written: in records, in metrics, in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WeakKill => "weak_kill",
            Self::ClockRates => "clock_rates",
            Self::SlowKill => "slow_kill",
            Self::ForgetfulStore => "forgetful_store",
            Self::GuardsKilled => "guards_killed",
        }
    }
}

impl fmt::Display for RiskReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl HoldRecord {
    /// Adds an end of the program; the oldest is forgotten when there are too many.
    pub fn exited(&mut self, exit: HoldExit) {
        let how = exit.how.chars().take(HOLD_HOW_CHARS_MAX).collect();
        self.exits.insert(0, HoldExit { how, ..exit });
        self.exits.truncate(HOLD_EXITS_KEPT_MAX);
    }

    /// Adds a hand-over; the oldest is forgotten when there are too many.
    pub fn came(&mut self, hand_over: HandOver) {
        self.hand_overs.insert(0, hand_over);
        self.hand_overs.truncate(HOLD_HAND_OVERS_KEPT_MAX);
    }

    /// Adds what was seen of a broken assumption.
    pub fn risks(&mut self, reason: RiskReason, now_ms: i64, what: &str) {
        let what: String = what.chars().take(HOLD_RISK_CHARS_MAX).collect();
        match self.at_risk.iter_mut().find(|risk| risk.reason == reason) {
            Some(risk) => {
                risk.count += 1;
                (risk.last_ms, risk.what) = (now_ms, what);
            }
            None => self.at_risk.push(Risk { reason, count: 1, last_ms: now_ms, what }),
        }
    }

    /// Adds what an earlier record told of broken assumptions, which may have come too late to be written: of each reason
    /// the later one counts.
    pub fn recalls(&mut self, risks: &[Risk]) {
        for recalled in risks {
            match self.at_risk.iter_mut().find(|risk| risk.reason == recalled.reason) {
                Some(risk) if risk.last_ms >= recalled.last_ms => {}
                Some(risk) => {
                    let count = recalled.count.max(risk.count + 1);
                    *risk = Risk { count, ..recalled.clone() };
                }
                None => self.at_risk.push(recalled.clone()),
            }
        }
    }
}

/// How much is told of an end.
const HOLD_HOW_CHARS_MAX: usize = 48;

/// How much is told of a broken assumption.
const HOLD_RISK_CHARS_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{GUEST_BODY_BYTES_MAX, HOLD_PROGRAM_CHARS_MAX, NODE_ID_BYTES_MAX};

    /// One as long as may be, of which nothing is told yet.
    fn record(node: &str) -> HoldRecord {
        HoldRecord {
            token: u64::MAX / 2,
            node: node.to_owned(),
            state: HoldState::WaitingToStart,
            since_ms: i64::MAX,
            leaving: Some(HandOverCause::Resigned),
            program: "p".repeat(HOLD_PROGRAM_CHARS_MAX),
            isolation: Some("user namespace".into()),
            pid: Some(u32::MAX),
            starts: u64::MAX,
            exits: Vec::new(),
            hand_overs: Vec::new(),
            at_risk: Vec::new(),
        }
    }

    #[test]
    fn what_was_not_written_is_added_and_what_was_is_not_counted_again() {
        let at = |count, last_ms| {
            let mut record = record("a");
            for _ in 0..count {
                record.risks(RiskReason::SlowKill, last_ms, "late");
            }
            record
        };
        for (written, recalled, expected) in [
            (at(0, 0), at(1, 5), at(1, 5)),
            (at(1, 5), at(1, 5), at(1, 5)),
            (at(1, 4), at(2, 5), at(2, 5)),
            // Somebody else has told of one before this one's, ...
            (at(3, 4), at(1, 5), at(4, 5)),
            // ...or after it.
            (at(3, 6), at(1, 5), at(3, 6)),
        ] {
            let mut record = written;
            record.recalls(&recalled.at_risk);
            assert_eq!(record, expected);
        }
    }

    #[test]
    fn the_longest_record_fits_what_comes_through_a_server() {
        let node = "n".repeat(NODE_ID_BYTES_MAX);
        let mut record = record(&node);
        for _ in 0..20 {
            let (at_ms, ran_ms, how) = (i64::MAX, u64::MAX, "h".repeat(100));
            record.exited(HoldExit { at_ms, ran_ms, how, node: node.clone() });
            record.came(HandOver {
                at_ms,
                from: Some(node.clone()),
                to: node.clone(),
                token: u64::MAX / 2,
                cause: HandOverCause::Resigned,
                took_ms: Some(u64::MAX),
            });
            for reason in RiskReason::ALL {
                record.risks(reason, at_ms, &"w".repeat(500));
            }
        }
        assert_eq!(record.exits.len(), HOLD_EXITS_KEPT_MAX);
        assert_eq!(record.hand_overs.len(), HOLD_HAND_OVERS_KEPT_MAX);
        assert_eq!(record.at_risk.len(), RiskReason::ALL.len());
        let body = serde_json::to_string(&HoldBody { hold: record }).unwrap();
        assert!(body.len() <= GUEST_BODY_BYTES_MAX, "{} bytes", body.len());
    }

    #[test]
    fn reasons_are_written_as_they_are_called() {
        for reason in RiskReason::ALL {
            let written = serde_json::to_string(&reason).unwrap();
            assert_eq!(written, format!("\"{reason}\""));
        }
    }
}

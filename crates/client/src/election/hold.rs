//! Holds, as the API tells of them: a program that runs on at most one machine.
//!
//! What is told comes from whoever has the election, who wrote it when something changed. All times but those of the API
//! itself are by that machine's wall clock.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A hold, as its holder told of it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hold {
    /// What it does.
    pub state: HoldState,
    /// The node that told this.
    pub node: String,
    /// The token under which it told this: that of a former holder, if it is not the election's.
    pub token: u64,
    /// Since when it is so, by that node's clock.
    pub since: Timestamp,
    /// The program, without its arguments.
    pub program: String,
    /// What keeps its processes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// The id of the process that guards it on its machine, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started under this token.
    pub starts: u64,
    /// How it ended, the last time first.
    #[serde(default)]
    pub exits: Vec<HoldExit>,
    /// How it came from one node to another, the last time first.
    #[serde(default)]
    pub hand_overs: Vec<HandOver>,
    /// Why two may have run, one entry for each reason.
    #[serde(default)]
    pub at_risk: Vec<HoldRisk>,
}

/// What becomes of a held program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// A person has to approve it first.
    WaitingForApproval,
    /// Its holder may not start it yet: too little time is left, something of a former start is, or it exited lately.
    WaitingToStart,
    /// It runs.
    Running,
    /// It was told to end.
    Stopping,
    /// Its holder is gone without a word: it was ended by its guard, and nobody has taken it over yet.
    Lost,
    /// What is told is of a former holder, who gave it up: nobody has told anything since.
    Former,
}

impl HoldState {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WaitingForApproval,
        Self::WaitingToStart,
        Self::Running,
        Self::Stopping,
        Self::Lost,
        Self::Former,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitingForApproval => "waiting_for_approval",
            Self::WaitingToStart => "waiting_to_start",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Lost => "lost",
            Self::Former => "former",
        }
    }
}

/// An end of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoldExit {
    /// When.
    pub at: Timestamp,
    /// How long it had run, in milliseconds.
    pub ran_ms: u64,
    /// How: `exit 1`, `signal 9`, or a sentence.
    pub how: String,
    /// The node on which it ran.
    pub node: String,
}

/// How the program came to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandOver {
    /// When the new holder had the election.
    pub at: Timestamp,
    /// Who had it before; nobody, the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Who has it since.
    pub to: String,
    /// Under which token.
    pub token: u64,
    /// Why.
    pub cause: HandOverCause,
    /// How long the program did not run, as far as that is known, in milliseconds; none before it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// Why a program came to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HandOverCause {
    /// Nobody had it before.
    First,
    /// Its holder was not heard of any more.
    Lost,
    /// Its holder was told to stop.
    Stopped,
    /// Somebody asked its holder to leave.
    Resigned,
    /// The program exited too often.
    Exits,
    /// The program's health command failed too often.
    Health,
}

impl HandOverCause {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Lost => "lost",
            Self::Stopped => "stopped",
            Self::Resigned => "resigned",
            Self::Exits => "exits",
            Self::Health => "health",
        }
    }
}

/// An assumption that was seen broken: two may have run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoldRisk {
    /// Which.
    pub reason: RiskReason,
    /// How often it was seen.
    pub count: u64,
    /// When the last time.
    pub last: Timestamp,
    /// What was seen that time.
    pub what: String,
}

/// Which assumption was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RiskReason {
    /// The program's processes can only be ended by looking for them.
    WeakKill,
    /// The machine's two clocks count differently.
    ClockRates,
    /// The program was not gone when it should have been.
    SlowKill,
    /// The store may have forgotten what it acknowledged, after a fail-over.
    ForgetfulStore,
    /// Both guards of the program were killed: nobody knows what is left of it.
    GuardsKilled,
}

impl RiskReason {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WeakKill => "weak_kill",
            Self::ClockRates => "clock_rates",
            Self::SlowKill => "slow_kill",
            Self::ForgetfulStore => "forgetful_store",
            Self::GuardsKilled => "guards_killed",
        }
    }
}

//! Elections, as the API tells of them, and how a program in any language takes part.
//!
//! Whoever wants to lead sends a [`CampaignRequest`], again and again, a few times in each `ttl_ms`. The answer is
//! never a bare yes: it is a token, and a time for which it is good, counted **from the moment before the request was
//! sent**, by a clock that only goes forward.

mod hold;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::hold::{HandOver, HandOverCause, Hold, HoldExit, HoldRisk, HoldState, RiskReason};

/// An election: who leads, and whether anybody does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Election {
    /// The election's name.
    pub name: String,
    /// Whether somebody has it.
    pub state: ElectionState,
    /// The token of whoever has it, or had it last; 0 before anybody had it.
    pub token: u64,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<ElectionHolder>,
    /// Whether its holder was asked to leave.
    #[serde(default)]
    pub resign_wished: bool,
    /// The node that is to follow then, if somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resign_to: Option<String>,
    /// Other nodes that campaign for it, as far as they say so: up to 50, by name. One that campaigns by requests says so only
    /// while it has the election.
    #[serde(default)]
    pub candidates: Vec<String>,
    /// What runs by it, if it is a hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

/// Whether somebody has an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ElectionState {
    /// Its holder may act, as long as its session is valid.
    Held,
    /// Its holder waits until a person approves.
    Waiting,
    /// Nobody has it.
    Free,
}

impl ElectionState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Held, Self::Waiting, Self::Free];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Free => "free",
        }
    }
}

/// Who has an election. For how much longer is known to itself alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ElectionHolder {
    /// The candidate, or node.
    pub node: String,
    /// For how long it may act after a sign of life, in milliseconds; none, if this cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// What its clock, or that of the server that it came through, showed at its last sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Timestamp>,
}

/// How a holder is asked to leave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({"to": "web-2"}))
)]
#[serde(deny_unknown_fields)]
pub struct ResignRequest {
    /// Which of the candidates is to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub to: Option<String>,
}

/// How a holder that waits is let begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({"token": 1_800_000_000_000_000_u64}))
)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// The token under which it waits: nobody else is let begin by this.
    pub token: u64,
}

/// What a candidate sends, again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({"candidate": "web-1", "ttl_ms": 3000}))
)]
#[serde(deny_unknown_fields)]
pub struct CampaignRequest {
    /// Who it is: 1 to 63 letters, digits, dots, dashes and underscores.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub candidate: String,
    /// The session that an answer told last; none in the first request, and after it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub session: Option<String>,
    /// For how long it may act after a request, in milliseconds: 3000, if it is not said. Fixed while a session lasts.
    #[serde(default = "default_ttl_ms")]
    #[cfg_attr(feature = "schema", schemars(range(min = 500, max = 60000)))]
    pub ttl_ms: u64,
    /// How long the answer may wait, in milliseconds, while somebody else has it.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 30000)))]
    pub wait_ms: u64,
    /// Whether others see it among the candidates, so that a wish may name it. Then it has a session from the first request on,
    /// and waits for no longer than half of `ttl_ms`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
}

fn default_ttl_ms() -> u64 {
    3_000
}

impl CampaignRequest {
    /// The first request of a candidate.
    pub fn new(candidate: impl Into<String>) -> Self {
        let (session, ttl_ms) = (None, default_ttl_ms());
        Self { candidate: candidate.into(), session, ttl_ms, wait_ms: 0, listed: false }
    }
}

/// What a candidate is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({
        "state": "leading", "session": "00c0ffee00c0ffee", "token": 1_800_000_000_000_000_u64,
        "valid_for_ms": 3000, "resign_wished": false,
    }))
)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Campaign {
    /// It has the election.
    Leading {
        /// Its session: to be sent with the next request, and known to nobody else.
        session: String,
        /// To be shown to whatever is acted upon, which refuses a smaller one than it has seen.
        token: u64,
        /// It may act for so long after the moment before this request was sent, and no longer.
        valid_for_ms: u64,
        /// Whether it was asked to leave: then it stops acting, and releases.
        #[serde(default)]
        resign_wished: bool,
    },
    /// Somebody else has it: ask again later.
    Following {
        /// The name of who has it.
        holder: String,
        /// Under which token.
        token: u64,
        /// Its session, if it is listed: to be sent with the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
    },
    /// Nobody has it, since a moment ago, or nobody may have it yet: ask again.
    Open {
        /// Not sooner than this, in milliseconds.
        retry_ms: u64,
    },
}

/// What whoever leaves sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({"candidate": "web-1", "session": "00c0ffee00c0ffee"}))
)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Who it is.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub candidate: String,
    /// The session that the last answer told.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9a-f]{16}$")))]
    pub session: String,
}

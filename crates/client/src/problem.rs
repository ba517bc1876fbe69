//! What the API says when something is wrong: RFC 9457, with each bad field.

use serde::{Deserialize, Serialize};

use crate::store::StoreTrouble;

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What is wrong with a request, or with the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    /// Which kind, for programs: `urn:watchbell:problem:name-taken`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Which kind, for people.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What is wrong this time, and what to do about it.
    pub detail: String,
    /// The request, as it stands in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The limit of the project that is reached, if that is what is wrong: `triggers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// How the store was, if the request was for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreTrouble>,
    /// Each field that is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
}

/// A field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FieldProblem {
    /// A field of the body, as a JSON pointer: `/schedule/cron`. The body itself is the empty text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// A parameter of the query, or a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// What is wrong with it, and what would be right.
    pub detail: String,
}

//! A key, as the API tells of it: what lets somebody in.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A key, but for its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Key"))]
pub struct ApiKey {
    /// The key's id: `key_…`.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The project that it is for; an admin's is for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// When it was made.
    pub created: Timestamp,
    /// Who made it.
    pub author: String,
    /// From when on it is not taken any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When it was last used, to the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Everything, in every project.
    Admin,
    /// Read and change what its project has.
    Write,
    /// Read what its project has.
    Read,
    /// Take runs from its project's queues.
    Worker,
    /// Take part in its project's elections and rings.
    Node,
}

impl Scope {
    /// All the scopes there are.
    pub const ALL: [Self; 5] = [Self::Admin, Self::Write, Self::Read, Self::Worker, Self::Node];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Write => "write",
            Self::Read => "read",
            Self::Worker => "worker",
            Self::Node => "node",
        }
    }

    /// Whether a key with this scope may do what `wanted` allows.
    pub fn covers(self, wanted: Self) -> bool {
        match self {
            Self::Admin => true,
            Self::Write => matches!(wanted, Self::Write | Self::Read),
            Self::Read | Self::Worker | Self::Node => self == wanted,
        }
    }
}

/// What one sends to make a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    /// What people call it: several keys may have the same name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub name: String,
    /// What it may do. An admin's key can do everything, and is for all projects.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub scopes: Vec<Scope>,
    /// From when on it is not taken any more; never, if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// What one sends to replace a key by a new one of the same kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RotateKeyRequest {
    /// For so long the former one goes on being taken; a day, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub grace: Option<String>,
    /// From when on the new one is not taken any more; never, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// A key that was just made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewKey {
    /// What it is.
    pub key: ApiKey,
    /// The text that lets one in. It is told this once; a request that is repeated is not told it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "NewKey({:?})", self.key)
    }
}

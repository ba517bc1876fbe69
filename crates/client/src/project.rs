//! A project, as the API tells of it: a tenant, that owns triggers and keys.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A project: a tenant, with triggers and keys of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Project {
    /// Its id, which never changes.
    pub id: String,
    /// Its name, which never changes.
    pub name: String,
    /// Whether its triggers fire.
    pub enabled: bool,
    /// Since when they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Timestamp>,
    /// How much it may have.
    #[serde(default)]
    pub limits: ProjectLimits,
    /// Which secrets its webhooks are signed with, newest first; what they are is told once, when they are made.
    #[serde(default)]
    pub secrets: Vec<SecretInfo>,
    /// Who is told when runs fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
    /// When it was made; the default project is there from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Who made it.
    pub author: String,
}

/// How much a project may have. What is not said is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProjectLimits {
    /// So many triggers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers: Option<u64>,
    /// So many runs in the busiest minute that its schedules allow, runs on demand included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fires_per_minute: Option<u64>,
    /// So many bytes of what its triggers say, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// So many runs that wait for workers, in all its queues together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_runs: Option<u64>,
}

/// When a secret is used, but not what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SecretInfo {
    /// When it was made.
    pub created: Timestamp,
    /// Until when webhooks are signed with it, if it was replaced by a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Where a project's notifications go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// This URL is called.
    pub url: String,
    /// On these occasions; all but success, if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<Occasion>,
}

/// What somebody is notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// A trigger's runs begin to fail.
    Failure,
    /// They succeed again.
    Recovery,
    /// A trigger is paused because its runs failed.
    Paused,
    /// A run succeeded.
    Success,
    /// There was no success for too long.
    Overdue,
}

/// What one sends to make a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewProjectSpec {
    /// Its name, for good.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub name: String,
    /// How much it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ProjectLimits>,
    /// Who is told when runs fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
}

/// What one sends to change a project. What is not said is not limited, and nobody is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProjectSpec {
    /// How much it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ProjectLimits>,
    /// Who is told when runs fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
}

/// What one sends to replace a project's secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RotateRequest {
    /// For so long the former one goes on being used beside the new one; a day, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"), length(min = 2))
    )]
    pub grace: Option<String>,
}

/// A project that was just made, or was given a new secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewProject {
    /// The project as it is now.
    pub project: Project,
    /// The secret that its webhooks are signed with, as libraries for Standard Webhooks take it. It is told this
    /// once; a request that is repeated is not told it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl std::fmt::Debug for NewProject {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "NewProject({:?})", self.project)
    }
}

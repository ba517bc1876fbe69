//! What is stored about projects and keys.
//!
//! ```text
//! access/version             [`VersionRecord`]: moved by every change of what stands below access/
//! access/scheduler        [`SchedulerRecord`]: whether anything fires at all
//! access/project/<name>   [`ProjectRecord`]
//! access/key/<id>         [`KeyRecord`]
//! used/<key id>           [`UsedRecord`]: when a key was last used
//! ```

use client::key::Scope;
use client::project::{Notify, ProjectLimits};
use engine::id::ProjectId;
use engine::instant::Instant;
use engine::record::Format;
use serde::{Deserialize, Serialize};

use super::key::{KeyId, Tag};
use super::secret::Secret;

/// The format of all of these.
pub(crate) const FORMAT: Format = Format(2);

/// Where everything is that a change moves the version of.
pub(super) const ACCESS: &str = "access/";
pub(super) const VERSION: &str = "access/version";
pub(super) const SCHEDULER: &str = "access/scheduler";
pub(super) const PROJECTS: &str = "access/project/";
pub(super) const KEYS: &str = "access/key/";

/// Tells one change from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VersionRecord {
    /// Of whoever made the last change.
    pub(super) nonce: String,
}

/// Whether anything fires at all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SchedulerRecord {
    /// Since when nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Instant>,
    /// Who said so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub author: String,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// Its number.
    pub id: ProjectId,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Instant>,
    /// By whom.
    pub author: String,
    /// Since when it is disabled, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Instant>,
    /// How much it may have.
    #[serde(default)]
    pub limits: ProjectLimits,
    /// What its webhooks are signed with, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRecord>,
    /// Who is told when runs fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
}

/// What webhooks are signed with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRecord {
    /// As libraries for Standard Webhooks take it.
    pub secret: Secret,
    /// When it was made.
    pub created: Instant,
    /// Until when it is used, if there is a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
}

/// A key. Whoever reads this cannot tell what lets one in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Its id.
    pub id: KeyId,
    /// What people call it.
    pub name: String,
    /// The project that it is for; none, if it is for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// What the right text is told from a wrong one by.
    #[serde(flatten)]
    pub tag: Tag,
    /// When it was made.
    pub created: Instant,
    /// By whom.
    pub author: String,
    /// From when on it is not taken any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Instant>,
}

impl KeyRecord {
    /// Whether it may do everything.
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }
}

/// When a key was last used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UsedRecord {
    /// Then, or up to an hour later.
    pub(super) at: Instant,
}

impl ProjectRecord {
    /// A new one.
    pub fn new(id: ProjectId, author: String) -> Self {
        Self {
            id,
            created: None,
            author,
            disabled: None,
            limits: ProjectLimits::default(),
            secrets: Vec::new(),
            notify: None,
        }
    }
}

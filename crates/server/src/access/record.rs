//! What is stored about projects and keys. These types are the store's alone: the API has its own, in `client`, and
//! `api/convert.rs` goes from one to the other.
//!
//! ```text
//! access/version          [`VersionRecord`]: moved by every change of what stands below access/
//! access/scheduler        [`SchedulerRecord`]: whether anything fires at all
//! access/project/<name>   [`ProjectRecord`]
//! access/key/<id>         [`KeyRecord`]
//! access/drain/<project>/<worker>   [`DrainRecord`](super::drain::DrainRecord)
//! used/<key id>           [`UsedRecord`]: when a key was last used
//! ```

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::notice::Occasion;
use engine::record::Format;
use serde::{Deserialize, Serialize};

use super::key::{KeyId, Tag};
use super::secret::SigningSecret;

/// The format of all records of this file, and of the audit.
pub(crate) const FORMAT: Format = Format(2);

/// Below this is everything whose changes move the version.
pub(super) const ACCESS: &str = "access/";
pub(super) const VERSION: &str = "access/version";
pub(super) const SCHEDULER: &str = "access/scheduler";
pub(super) const PROJECTS: &str = "access/project/";
pub(super) const KEYS: &str = "access/key/";
pub(super) const DRAINS: &str = "access/drain/";

/// Tells one change from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VersionRecord {
    /// Drawn at random by each change.
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

/// A project, but for its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRecord {
    /// Its number, which never changes.
    pub id: ProjectId,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Instant>,
    /// Who made it.
    pub author: String,
    /// Since when it is disabled, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Instant>,
    /// How much it may have.
    #[serde(default)]
    pub limits: QuotaRecord,
    /// What its webhooks are signed with, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretRecord>,
    /// Who is told when runs fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<NotifyRecord>,
}

/// How much a project may have, of each if it is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaRecord {
    /// How many triggers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers: Option<u64>,
    /// How many runs in the busiest minute that its schedules allow, runs on demand included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fires_per_minute: Option<u64>,
    /// How many bytes of what its triggers say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How many runs that wait for workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_runs: Option<u64>,
}

/// Where a project's notifications go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifyRecord {
    /// The URL that is called.
    pub url: String,
    /// The occasions on which it is called; the usual ones, if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<Occasion>,
}

/// What webhooks are signed with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRecord {
    /// As libraries for Standard Webhooks take it.
    pub secret: SigningSecret,
    /// When it was made.
    pub created: Instant,
    /// Until when it is used, if there is a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
}

/// A key. Whoever reads this cannot tell what lets one in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The key's id.
    pub id: KeyId,
    /// What people call it.
    pub name: String,
    /// The project that it is for; none, if it is for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// What tells the right text from a wrong one.
    #[serde(flatten)]
    pub tag: Tag,
    /// When it was made.
    pub created: Instant,
    /// Who made it.
    pub author: String,
    /// From when on it is not taken any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Instant>,
}

/// One thing that a key may do; `client::key::Scope` says what each of them covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are those of the API")]
pub enum KeyScope {
    Admin,
    Write,
    Read,
    Worker,
    Node,
}

impl KeyRecord {
    /// Whether it may do everything.
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&KeyScope::Admin)
    }
}

/// When a key was last used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UsedRecord {
    /// An instant at which it was used, no more than an hour before the last use.
    pub(super) at: Instant,
}

impl ProjectRecord {
    /// A new project, without limits and secrets.
    pub fn new(id: ProjectId, author: String) -> Self {
        Self {
            id,
            created: None,
            author,
            disabled: None,
            limits: QuotaRecord::default(),
            secrets: Vec::new(),
            notify: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::record::{decode, encode};
    use serde::de::DeserializeOwned;

    use super::*;

    const FORMER_PROJECT: &str = concat!(
        r#"{"format":1,"id":3,"created":"2026-11-01T08:00:00Z","author":"ops","limits":{"triggers":6},"#,
        r#""secrets":[{"secret":"whsec_AAAA","created":"2026-11-01T08:00:00Z"}],"#,
        r#""notify":{"url":"https://chat.test/","on":["overdue","failure"]}}"#
    );

    const FORMER_KEY: &str = concat!(
        r#"{"format":1,"id":"key_0d3k8w1v2m7qa","name":"ci","project":3,"#,
        r#""scopes":["admin","write","read","worker","node"],"salt":"00ff","tag":"ff00","#,
        r#""created":"2026-11-01T08:00:00Z","author":"ops","expires":"2027-11-01T08:00:00Z"}"#
    );

    /// Reads a record as a former version wrote it; what is written of it now is the same but for the format's number.
    #[track_caller]
    fn check_former<T: Serialize + DeserializeOwned>(former: &str) -> T {
        let read: T = decode(former.as_bytes(), FORMAT).unwrap();
        let now = String::from_utf8(encode(FORMAT, &read)).unwrap();
        assert_eq!(now.replacen("\"format\":2", "\"format\":1", 1), former);
        read
    }

    #[test]
    fn a_former_project_is_read_and_written_as_it_was() {
        let project: ProjectRecord = check_former(FORMER_PROJECT);
        assert_eq!(project.limits, QuotaRecord { triggers: Some(6), ..QuotaRecord::default() });
        let notify = project.notify.unwrap();
        assert_eq!(notify.on, [Occasion::Overdue, Occasion::Failure]);
    }

    #[test]
    fn a_former_key_is_read_and_written_as_it_was() {
        use KeyScope::{Admin, Node, Read, Worker, Write};
        let key: KeyRecord = check_former(FORMER_KEY);
        assert_eq!(key.scopes, [Admin, Write, Read, Worker, Node]);
    }
}

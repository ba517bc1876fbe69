//! Triggers.

use jiff::Timestamp;

use super::Client;
use super::exchange::Question;
use super::path::Path;
use crate::account::Account;
use crate::spec::TriggerSpec;
use crate::trigger::{BackfillRequest, Backfilled, NextSlots, PauseRequest, Status, Trigger};
use crate::{ClientError, ListPage};

/// Which triggers to list.
#[derive(Debug, Clone, Default)]
pub struct TriggerFilter {
    /// Those with this status.
    pub status: Option<Status>,
    /// Those whose name begins so.
    pub prefix: Option<String>,
    /// Those that carry all of these labels, each `key=value`.
    pub labels: Vec<String>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

impl Client {
    /// Makes a trigger.
    pub async fn create_trigger(&self, spec: &TriggerSpec) -> Result<Trigger, ClientError> {
        self.ask(Question::post(Path::new("/v1/triggers")).body(spec)).await
    }

    /// Makes a trigger with this name, or replaces the text of the one that has it. With a revision, only if the trigger
    /// is at that revision.
    pub async fn put_trigger(
        &self,
        name: &str,
        spec: &TriggerSpec,
        revision: Option<u64>,
    ) -> Result<Trigger, ClientError> {
        self.ask_put(at(name, ""), spec, revision, |found: &Trigger, next| {
            found.revision == next && is_same(&found.spec, spec)
        })
        .await
    }

    /// The trigger with this name or id.
    pub async fn trigger(&self, name: &str) -> Result<Trigger, ClientError> {
        self.ask(Question::get(at(name, ""))).await
    }

    /// Triggers, by name.
    pub async fn triggers(&self, filter: &TriggerFilter) -> Result<ListPage<Trigger>, ClientError> {
        let mut path = Path::new("/v1/triggers")
            .with("status", filter.status.map(Status::as_str))
            .with("prefix", filter.prefix.as_deref());
        for label in &filter.labels {
            path = path.with("label", Some(label));
        }
        let path = path.with("limit", filter.limit).with("cursor", filter.cursor.as_deref());
        self.ask(Question::get(path)).await
    }

    /// Triggers, page after page, up to `most` of them; `next` says where more are.
    pub async fn all_triggers(
        &self,
        filter: TriggerFilter,
        most: usize,
    ) -> Result<ListPage<Trigger>, ClientError> {
        self.walk(filter.cursor.clone(), most, async |limit, cursor| {
            self.triggers(&TriggerFilter { limit: Some(limit), cursor, ..filter.clone() }).await
        })
        .await
    }

    /// Pauses a trigger.
    pub async fn pause(&self, name: &str, request: &PauseRequest) -> Result<Trigger, ClientError> {
        self.ask(Question::post(at(name, "/pause")).body(request)).await
    }

    /// Lets a paused trigger go on.
    pub async fn resume(&self, name: &str) -> Result<Trigger, ClientError> {
        self.ask(Question::post(at(name, "/resume"))).await
    }

    /// Lets a trigger never fire again.
    pub async fn cancel(&self, name: &str) -> Result<Trigger, ClientError> {
        self.ask(Question::post(at(name, "/cancel"))).await
    }

    /// Deletes a trigger.
    pub async fn delete_trigger(&self, name: &str) -> Result<(), ClientError> {
        self.ask_delete(at(name, "")).await
    }

    /// Runs slots of the past again.
    pub async fn backfill(
        &self,
        name: &str,
        request: &BackfillRequest,
    ) -> Result<Backfilled, ClientError> {
        self.ask(Question::post(at(name, "/backfill")).body(request)).await
    }

    /// When a trigger fires next.
    pub async fn next(&self, name: &str, count: usize) -> Result<NextSlots, ClientError> {
        self.ask(Question::get(at(name, "/next").with("count", Some(count)))).await
    }

    /// What became of the slots of a trigger.
    pub async fn account(
        &self,
        name: &str,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<Account, ClientError> {
        self.ask(Question::get(at(name, "/explain").with("from", from).with("to", to))).await
    }
}

pub(super) fn at(name: &str, rest: &str) -> Path {
    Path::of("triggers", name, rest)
}

/// Whether two texts say the same, but for the name, which a PUT has in its path. A text with secret headers never equals
/// what the server tells of it, because it tells no secret values.
fn is_same(one: &TriggerSpec, other: &TriggerSpec) -> bool {
    let nameless = |spec: &TriggerSpec| TriggerSpec { name: None, ..spec.clone() };
    nameless(one) == nameless(other)
}

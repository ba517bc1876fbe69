//! What concerns all projects: scheduler, cluster, audit.

use jiff::Timestamp;

use super::Client;
use super::exchange::Question;
use super::path::Path;
use crate::audit::AuditEntry;
use crate::cluster::{Cluster, Drain};
use crate::scheduler::SchedulerStatus;
use crate::{ClientError, ListPage};

/// Which changes to list.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Those in this project.
    pub project: Option<String>,
    /// Those by this author.
    pub author: Option<String>,
    /// Those of this kind: `trigger.create`.
    pub action: Option<String>,
    /// Those from this instant on.
    pub from: Option<Timestamp>,
    /// Those before this instant.
    pub to: Option<Timestamp>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

impl Client {
    /// How the scheduler is.
    pub async fn scheduler(&self) -> Result<SchedulerStatus, ClientError> {
        self.ask(Question::get(Path::new("/v1/scheduler"))).await
    }

    /// Lets triggers fire again, of all projects: for admins.
    pub async fn start_scheduler(&self) -> Result<SchedulerStatus, ClientError> {
        self.ask(Question::post(Path::new("/v1/scheduler/start"))).await
    }

    /// Lets no trigger fire, of any project: for admins.
    pub async fn stop_scheduler(&self) -> Result<SchedulerStatus, ClientError> {
        self.ask(Question::post(Path::new("/v1/scheduler/stop"))).await
    }

    /// Says that the clock is right, so that firing goes on: for admins.
    pub async fn confirm_time(&self) -> Result<SchedulerStatus, ClientError> {
        self.ask(Question::post(Path::new("/v1/scheduler/confirm-time"))).await
    }

    /// The servers and candidates of the cluster, and its shards: for admins.
    pub async fn cluster(&self) -> Result<Cluster, ClientError> {
        self.ask(Question::get(Path::new("/v1/cluster"))).await
    }

    /// Lets a server hand its shards over and take none: for admins. It may have some for a while
    /// longer: see [`Client::cluster`].
    pub async fn drain(&self, node: &str) -> Result<Drain, ClientError> {
        self.ask(Question::post(Path::of("cluster/nodes", node, "/drain"))).await
    }

    /// Lets a server take shards again: for admins.
    pub async fn undrain(&self, node: &str) -> Result<Drain, ClientError> {
        self.ask(Question::delete(Path::of("cluster/nodes", node, "/drain"))).await
    }

    /// Who changed what, newest first: for admins.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<ListPage<AuditEntry>, ClientError> {
        let path = Path::new("/v1/audit")
            .with("project", filter.project.as_deref())
            .with("author", filter.author.as_deref())
            .with("action", filter.action.as_deref())
            .with("from", filter.from)
            .with("to", filter.to)
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.ask(Question::get(path)).await
    }
}

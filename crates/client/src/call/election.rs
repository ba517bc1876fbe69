//! Elections: who leads, and how to.

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::exchange::Question;
use super::path::Path;
use crate::election::{
    ApproveRequest, Campaign, CampaignRequest, Election, ReleaseRequest, ResignRequest,
};
use crate::{ClientError, ListPage};

/// Which elections to list.
#[derive(Debug, Clone, Default)]
pub struct ElectionFilter {
    /// Those whose name begins so.
    pub prefix: Option<String>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

impl Client {
    /// Elections, by name.
    pub async fn elections(
        &self,
        filter: &ElectionFilter,
    ) -> Result<ListPage<Election>, ClientError> {
        let path = Path::new("/v1/elections")
            .with("prefix", filter.prefix.as_deref())
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.ask(Question::get(path)).await
    }

    /// Elections, page after page, up to `most` of them; `next` says where more are.
    pub async fn all_elections(
        &self,
        filter: ElectionFilter,
        most: usize,
    ) -> Result<ListPage<Election>, ClientError> {
        self.walk(filter.cursor.clone(), most, async |limit, cursor| {
            self.elections(&ElectionFilter { limit: Some(limit), cursor, ..filter.clone() }).await
        })
        .await
    }

    /// The election with this name.
    pub async fn election(&self, name: &str) -> Result<Election, ClientError> {
        self.ask(Question::get(at(name, ""))).await
    }

    /// Asks the holder of an election to leave.
    pub async fn resign_election(
        &self,
        name: &str,
        request: &ResignRequest,
    ) -> Result<Election, ClientError> {
        self.ask(Question::post(at(name, "/resign")).body(request)).await
    }

    /// Lets the holder of an election begin that waits for it under this token.
    pub async fn approve_election(
        &self,
        name: &str,
        request: &ApproveRequest,
    ) -> Result<Election, ClientError> {
        self.ask(Question::post(at(name, "/approve")).body(request)).await
    }

    /// Says once that this candidate wants to lead, or goes on leading. The instant is when the request was first sent:
    /// `valid_for_ms` counts from then on.
    pub async fn campaign(
        &self,
        name: &str,
        request: &CampaignRequest,
    ) -> Result<(Campaign, Instant), ClientError> {
        let sent = Instant::now();
        let wait = Duration::from_millis(request.wait_ms);
        let question = Question::post(at(name, "/campaign")).body(request).wait(Some(wait));
        Ok((self.ask(question).await?, sent))
    }

    /// Gives an election up. Stop acting before you call this.
    pub async fn release_election(
        &self,
        name: &str,
        request: &ReleaseRequest,
    ) -> Result<Election, ClientError> {
        self.ask(Question::post(at(name, "/release")).body(request)).await
    }
}

fn at(name: &str, rest: &str) -> Path {
    Path::of("elections", name, rest)
}

//! A server's store: each request is sent once. Whoever sends it knows what to do when nothing comes back.

use hyper::header::{ACCEPT, HeaderValue};

use super::Client;
use super::exchange::Question;
use super::path::Path;
use super::watch::EventStream;
use crate::ClientError;
use crate::store::{StoreCommit, StoreCommitted, StoreFacts, StoreHint, StorePage, StoreScan};

/// A stream of hints that something changed. See [`Client::store_hints`].
pub struct StoreHints {
    client: Client,
    stream: EventStream,
}

impl Client {
    /// What the server says of its store. The request is sent once.
    pub async fn store_facts(&self) -> Result<StoreFacts, ClientError> {
        let answer = self.attempt(&Question::get(Path::new("/v1/store"))).await?;
        self.read(&answer)
    }

    /// A page of a range. The request is sent once.
    pub async fn store_scan(&self, scan: &StoreScan) -> Result<StorePage, ClientError> {
        let question = Question::post(Path::new("/v1/store/scan")).body(scan);
        self.read(&self.attempt(&question).await?)
    }

    /// Conditions and writes, as one step. The request is sent once: an error that [may be
    /// done](ClientError::may_be_done) leaves open whether it was, and whether it will be.
    pub async fn store_commit(&self, commit: &StoreCommit) -> Result<StoreCommitted, ClientError> {
        let question = Question::post(Path::new("/v1/store/commit")).body(commit);
        self.read(&self.attempt(&question).await?)
    }

    /// Follows what changes. It begins when this returns, and ends with its connection.
    pub async fn store_hints(&self) -> Result<StoreHints, ClientError> {
        let question = Question::get(Path::new("/v1/store/watch"))
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let begun = async {
            let mut stream = EventStream::new(self.begin(&question).await?, &self.base);
            // A comment comes first: until then nothing was promised.
            stream.block().await?;
            Ok(StoreHints { client: self.clone(), stream })
        };
        let timed = tokio::time::timeout(self.timeout, begun).await;
        timed.unwrap_or_else(|_| Err(self.silent(self.timeout)))
    }
}

impl StoreHints {
    /// The next hint; waits for it.
    pub async fn next(&mut self) -> Result<StoreHint, ClientError> {
        loop {
            let block = self.stream.block().await?;
            if let Ok(hint) = serde_json::from_str(&block.data) {
                return Ok(hint);
            }
        }
    }
}

impl std::fmt::Debug for StoreHints {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StoreHints").field("client", &self.client).finish_non_exhaustive()
    }
}

//! Backups: answers that are too long to be held at once.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::exchange::Question;
use super::path::Path;
use super::{ANSWER_TIME_MAX, Client};
use crate::ClientError;

/// An answer that is too long to be held at once.
#[derive(Debug)]
pub struct Pieces {
    body: Incoming,
    client: Client,
}

impl Client {
    /// Has a backup taken; it comes in pieces. Once it has begun it is not asked for again: half of one and half of
    /// another are none.
    pub async fn backup(&self) -> Result<Pieces, ClientError> {
        let question = Question::get(Path::new("/v1/backup"));
        let body = self.again(|| self.begin(&question)).await?;
        Ok(Pieces { body, client: self.clone() })
    }
}

impl Pieces {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::time::timeout(ANSWER_TIME_MAX, self.body.frame()).await;
            let late = |_| self.client.silent(ANSWER_TIME_MAX);
            let Some(frame) = frame.map_err(late)? else { return Ok(None) };
            let frame = frame.map_err(|why| self.client.lost(&why))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

//! Keys: for admins, but for [`Client::own_key`].

use super::Client;
use super::exchange::Question;
use super::path::Path;
use crate::key::{ApiKey, KeySpec, NewKey, RotateKeyRequest};
use crate::{ClientError, ListPage};

/// Which keys to list.
#[derive(Debug, Clone, Default)]
pub struct KeyFilter {
    /// Those of this project.
    pub project: Option<String>,
    /// Most items of a page, 1 to 500.
    pub limit: Option<usize>,
    /// Where to go on: `next` of the last page.
    pub cursor: Option<String>,
}

impl Client {
    /// Makes a key for this client's project, or for all projects if it is an admin's. Its secret is told this once: if
    /// the answer is lost and the request is sent again, there is no secret in the answer. Delete such a key.
    pub async fn create_key(&self, spec: &KeySpec) -> Result<NewKey, ClientError> {
        self.ask(Question::post(Path::new("/v1/keys")).body(spec)).await
    }

    /// The key with this id.
    pub async fn key(&self, id: &str) -> Result<ApiKey, ClientError> {
        self.ask(Question::get(at(id, ""))).await
    }

    /// The key of this client.
    pub async fn own_key(&self) -> Result<ApiKey, ClientError> {
        self.key("self").await
    }

    /// Keys, oldest first.
    pub async fn keys(&self, filter: &KeyFilter) -> Result<ListPage<ApiKey>, ClientError> {
        let path = Path::new("/v1/keys")
            .with("project", filter.project.as_deref())
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.ask(Question::get(path)).await
    }

    /// Makes a key of the same kind, and lets this one expire after a while. The new secret is told this once.
    pub async fn rotate_key(
        &self,
        id: &str,
        request: &RotateKeyRequest,
    ) -> Result<NewKey, ClientError> {
        self.ask(Question::post(at(id, "/rotate")).body(request)).await
    }

    /// Takes a key back.
    pub async fn delete_key(&self, id: &str) -> Result<(), ClientError> {
        self.ask_delete(at(id, "")).await
    }
}

fn at(id: &str, rest: &str) -> Path {
    Path::of("keys", id, rest)
}

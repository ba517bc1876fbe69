//! A store on etcd.

use crate::{Address, OpenError, Store};

/// A store on etcd.
pub struct Etcd;

impl Etcd {
    /// Connects, and makes sure that the engine can be relied on.
    #[expect(clippy::unused_async, reason = "to come")]
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        Err(OpenError::Url {
            url: at.to_string(),
            why: "this version has no such store yet".into(),
        })
    }
}

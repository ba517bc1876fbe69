//! A Watchbell server as a store.

use crate::{Address, OpenError, Store};

/// A Watchbell server as a store.
pub struct Remote;

impl Remote {
    /// Connects, and makes sure that the engine can be relied on.
    #[expect(clippy::unused_async, reason = "to come")]
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        Err(OpenError::Url {
            url: at.to_string(),
            why: "this version has no such store yet".into(),
        })
    }
}

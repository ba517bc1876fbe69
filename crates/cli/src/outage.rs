//! While somebody follows what happens, the server may go, and be started again: then they are told so once, and followed on.

use std::time::Duration;

use client::ClientError;

use crate::exit::{Ending, say};

/// How long to wait before a server that does not answer is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether the server is away, as far as whoever follows was told.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_told: bool,
}

impl Outage {
    /// The server has answered.
    pub(crate) fn end(&mut self) {
        self.is_told = false;
    }

    /// Says once that the server is away, and waits a moment before it is asked again. Any other error is handed back.
    pub(crate) async fn wait(&mut self, why: ClientError) -> Result<(), Ending> {
        match why {
            ClientError::Unreachable { .. } | ClientError::Unavailable { .. } => {}
            why => return Err(why.into()),
        }
        if !std::mem::replace(&mut self.is_told, true) {
            say(&format!("{why}; it is tried again until it answers"));
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

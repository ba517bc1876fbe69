//! Hints from a server: one connection for all watchers, made when the first one watches, and made anew when it breaks.

use std::sync::Arc;
use std::time::Duration;

use client::ClientError;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::failover::ServerList;
use crate::Watchers;

/// How long to wait before a connection is tried again; each time twice as long, up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Listens while somebody watches.
pub(super) struct HintListener(Arc<Notify>);

impl HintListener {
    /// Starts the task, which listens once it is woken.
    pub(super) fn start(
        tasks: &mut JoinSet<()>,
        servers: &Arc<ServerList>,
        watchers: &Arc<Watchers>,
    ) -> Self {
        let wake = Arc::new(Notify::new());
        let (servers, watchers, woken) =
            (Arc::clone(servers), Arc::clone(watchers), Arc::clone(&wake));
        tasks.spawn(async move {
            woken.notified().await;
            listen(&servers, &watchers).await;
        });
        Self(wake)
    }

    pub(super) fn wake(&self) {
        self.0.notify_one();
    }
}

async fn listen(servers: &ServerList, watchers: &Watchers) {
    let mut pause = PAUSE_MIN;
    loop {
        let client = servers.client().clone();
        match client.store_hints().await {
            Ok(mut hints) => {
                pause = PAUSE_MIN;
                // Changes in between came without a hint.
                watchers.notify_all();
                let why = loop {
                    match hints.next().await {
                        Ok(hint) => watchers.notify_below(&hint.prefix),
                        Err(why) => break why,
                    }
                };
                tracing::debug!(%why, "hints are interrupted");
            }
            Err(why @ ClientError::LimitReached { .. }) => {
                tracing::debug!(%why, "no hints: others are looked at from time to time");
                pause = PAUSE_MAX;
            }
            Err(why) => tracing::debug!(%why, "no hints yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

//! Word of changes: one connection for all who watch, made when the first one does, and made anew when it breaks.

use std::sync::Arc;
use std::time::Duration;

use client::ClientError;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::road::Road;
use crate::Watchers;

/// How long to wait before a connection is tried again; each time twice as long, up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Listens while somebody watches.
pub(super) struct Listener(Arc<Notify>);

impl Listener {
    /// Begins when it is woken.
    pub(super) fn start(
        tasks: &mut JoinSet<()>,
        road: &Arc<Road>,
        watchers: &Arc<Watchers>,
    ) -> Self {
        let wake = Arc::new(Notify::new());
        let (road, watchers, woken) = (Arc::clone(road), Arc::clone(watchers), Arc::clone(&wake));
        tasks.spawn(async move {
            woken.notified().await;
            listen(&road, &watchers).await;
        });
        Self(wake)
    }

    pub(super) fn wake(&self) {
        self.0.notify_one();
    }
}

async fn listen(road: &Road, watchers: &Watchers) {
    let mut pause = PAUSE_MIN;
    loop {
        let client = road.client().clone();
        match client.store_hints().await {
            Ok(mut hints) => {
                pause = PAUSE_MIN;
                // What changed meanwhile, nobody said.
                watchers.ring_all();
                let why = loop {
                    match hints.next().await {
                        Ok(hint) => watchers.ring_below(&hint.prefix),
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

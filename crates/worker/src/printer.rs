//! The printer: sends what runs print, and how far they have come.
//!
//! Twice a second it sends what there is, of a few runs at a time. What a run printed last is sent before its result, as servers
//! take nothing of a run that is over; if no server takes it, the result goes without. After a failure the next one
//! is another server's turn, a second later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use client::{Client, ClientError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::printed::{Dirty, Printed};
use crate::{Context, clock};

const EVERY: Duration = Duration::from_millis(500);
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs whose output is sent at a time, and requests for one of them.
const SENDERS_MAX: usize = 8;
const REQUESTS_MAX: usize = 6;

/// Sends output of runs.
#[derive(Debug)]
pub(crate) struct Printer {
    servers: Vec<Client>,
    place: AtomicUsize,
    /// Nothing is sent before this, in milliseconds since boot.
    not_before_ms: AtomicU64,
    places: Semaphore,
}

impl Printer {
    pub(crate) fn new(servers: &[Client]) -> Self {
        Self {
            servers: servers.iter().map(|server| server.with_timeout(PATIENCE)).collect(),
            place: AtomicUsize::new(0),
            not_before_ms: AtomicU64::new(0),
            places: Semaphore::new(SENDERS_MAX),
        }
    }

    /// Sends what is printed for as long as it is let.
    pub(crate) async fn serve(self: Arc<Self>, dirty: Arc<Dirty>) {
        loop {
            dirty.wake.notified().await;
            let contexts = dirty.take();
            let mut sends = JoinSet::new();
            for context in &contexts {
                let (printer, context) = (Arc::clone(&self), context.clone());
                sends.spawn(async move { printer.send(&context).await });
            }
            while sends.join_next().await.is_some() {}
            sleep(EVERY.max(self.rest())).await;
            // What was not taken is tried again.
            let has_more =
                |context: &&Context| context.output_if_any().is_some_and(Printed::has_more);
            contexts.iter().filter(has_more).for_each(|context| dirty.add(context));
        }
    }

    /// Sends what a run printed last. What no server takes now is forgotten: its result comes next, and nothing is taken after that.
    pub(crate) async fn send_last(&self, context: &Context) {
        self.send(context).await;
        if let Some(printed) = context.output_if_any() {
            printed.is_taken_no_more();
        }
    }

    /// Sends what there is of a run.
    async fn send(&self, context: &Context) {
        let Some(printed) = context.output_if_any() else { return };
        let _turn = printed.sending.lock().await;
        let _place = self.places.acquire().await.expect("nobody closes it");
        for _ in 0..REQUESTS_MAX {
            if !printed.has_more() || !self.rest().is_zero() {
                return;
            }
            let run = context.run();
            let part = printed.part(run.token);
            let place = self.place.load(Ordering::Relaxed);
            let server = &self.servers[place % self.servers.len()];
            match server.send_output(&run.id, &part.request).await {
                Ok(answer) => printed.taken(&part, answer.next),
                // The run is another's by now, or is over; whether it is lost, claims and beats tell.
                Err(ClientError::Conflict(_) | ClientError::Invalid(_)) => {
                    printed.is_taken_no_more();
                }
                Err(_) => {
                    self.place.store(place + 1, Ordering::Relaxed);
                    self.pause();
                }
            }
        }
    }

    fn pause(&self) {
        let until = clock::since_boot() + AFTER_FAILURE;
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.not_before_ms.store(until, Ordering::Relaxed);
    }

    /// How much longer servers are let alone.
    fn rest(&self) -> Duration {
        let until = Duration::from_millis(self.not_before_ms.load(Ordering::Relaxed));
        until.saturating_sub(clock::since_boot())
    }
}

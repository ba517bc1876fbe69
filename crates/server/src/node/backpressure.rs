//! Back-pressure: counts attempts and bytes that the dispatcher has for each host and has not answered.
//!
//! Shards ask for the load of a host before they launch a slot (`shard/due.rs`) or start a waiting run (`shard/start.rs`).

use std::collections::HashMap;

use engine::instant::Instant;
use engine::limits::{HOST_BUSY, HOST_FULL, HOST_FULL_BYTES};
use engine::shard::{Departure, HostLoad};
use parking_lot::Mutex;

/// The attempts that the dispatcher has, and their sums by host.
#[derive(Default)]
pub(super) struct Backpressure(Mutex<LoadTable>);

#[derive(Default)]
struct LoadTable {
    calls: HashMap<u64, SentAttempt>,
    hosts: HashMap<u64, HostSum>,
}

/// An attempt that was handed to the dispatcher.
#[derive(Clone, Copy)]
struct SentAttempt {
    origin: u64,
    bytes: usize,
    /// When it was to leave, if it is the first of its run.
    leaves_at: Option<Instant>,
}

/// The sum of the attempts for a host.
#[derive(Clone, Copy, Default)]
struct HostSum {
    calls: usize,
    bytes: usize,
}

impl Backpressure {
    /// Adds an attempt that is handed to the dispatcher.
    pub(super) fn add(&self, key: u64, departure: &Departure) {
        let origin = departure.target.origin();
        let bytes = departure.target.own_bytes();
        let leaves_at = (departure.attempt == 1).then_some(departure.leaves_at);
        let mut known = self.0.lock();
        known.calls.insert(key, SentAttempt { origin, bytes, leaves_at });
        let sum = known.hosts.entry(origin).or_default();
        sum.calls += 1;
        sum.bytes += bytes;
    }

    /// Removes an attempt that has come back. Returns when it was to leave, if it is the first of its run.
    pub(super) fn remove(&self, key: u64) -> Option<Instant> {
        let mut known = self.0.lock();
        let sent = known.calls.remove(&key)?;
        if let Some(sum) = known.hosts.get_mut(&sent.origin) {
            sum.calls -= 1;
            sum.bytes -= sent.bytes;
            if sum.calls == 0 {
                known.hosts.remove(&sent.origin);
            }
        }
        sent.leaves_at
    }

    /// How much there is for the host with this origin.
    pub(super) fn load(&self, origin: u64) -> HostLoad {
        match self.0.lock().hosts.get(&origin) {
            Some(sum) if sum.calls >= HOST_FULL || sum.bytes >= HOST_FULL_BYTES => HostLoad::Full,
            Some(sum) if sum.calls >= HOST_BUSY => HostLoad::Busy,
            Some(_) | None => HostLoad::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::id::{RunId, SerialId, ShardId};
    use engine::target::Target;
    use engine::webhook::{Method, Webhook};

    use super::*;

    fn departure(host: &str, body: &str) -> Departure {
        let url = format!("http://{host}/");
        let (method, timeout) = (Method::Post, Duration::from_secs(9));
        let webhook = Webhook::new(&url, method, Vec::new(), None, Some(body.into()), timeout);
        let (shard, trigger, slot) = (ShardId(0), SerialId(1), Instant(0));
        Departure {
            project: engine::id::ProjectId::DEFAULT,
            key: 0,
            run: RunId { shard, trigger, slot, letters: 0 },
            attempt: 1,
            slot,
            leaves_at: Instant(7),
            leave_by: None,
            target: Target::Webhook(webhook.unwrap()),
        }
    }

    #[test]
    fn a_host_is_busy_then_full_then_free_and_others_do_not_notice() {
        let hosts = Backpressure::default();
        let one = departure("a", "x");
        let (a, b) = (one.target.origin(), departure("b", "x").target.origin());
        for key in 0..HOST_FULL as u64 {
            let load = if key < HOST_BUSY as u64 { HostLoad::Free } else { HostLoad::Busy };
            assert_eq!(hosts.load(a), load, "{key}");
            hosts.add(key, &one);
        }
        assert_eq!((hosts.load(a), hosts.load(b)), (HostLoad::Full, HostLoad::Free));
        for key in 0..HOST_FULL as u64 {
            assert_eq!(hosts.remove(key), Some(Instant(7)));
        }
        assert_eq!(hosts.load(a), HostLoad::Free);
        assert!(hosts.0.lock().hosts.is_empty() && hosts.remove(0).is_none());
    }

    #[test]
    fn a_host_is_full_by_bytes_as_well() {
        let hosts = Backpressure::default();
        let large = departure("a", &"x".repeat(100 * 1024));
        let fit = HOST_FULL_BYTES as u64 / (100 * 1024);
        for key in 0..=fit {
            assert_ne!(hosts.load(large.target.origin()), HostLoad::Full);
            hosts.add(key, &large);
        }
        assert_eq!(hosts.load(large.target.origin()), HostLoad::Full);
    }
}

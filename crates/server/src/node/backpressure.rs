//! Back-pressure: how much room each host has for attempts of each shard.
//!
//! It counts the attempts and bytes that the dispatcher has for a host and has not answered, and what shards have decided
//! for it and not handed over. A shard asks for room before it decides a slot (`shard/due.rs`) or starts a waiting run
//! (`shard/start.rs`).
//!
//! **How much.** A host may have as many as it answers in half a second, so that nothing waits here for long that could
//! wait in the store or in nobody's memory; at least [`HOST_BUSY`] and at most [`HOST_FULL`]. One that was idle has them all.
//! Shards that want something of a host share its room, or the first to ask would have it all.
//!
//! **Rest.** A host that did not answer lately is left alone by its sender, who says so with the attempts that it gives back.
//! Then it has no room for as long, and room for one attempt at a time until it has answered.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::limits::{HOST_BUSY, HOST_FULL, HOST_FULL_BYTES, HOST_LOOK_MS};
use engine::outcome::{NotSent, Outcome};
use engine::shard::{Departure, HostDemand, HostRoom};
use parking_lot::Mutex;

/// The attempts that the dispatcher has or soon will have, and their sums by host.
#[derive(Default)]
pub(super) struct Backpressure(Mutex<LoadTable>);

#[derive(Default)]
struct LoadTable {
    calls: HashMap<u64, SentAttempt>,
    hosts: HashMap<u64, HostSum>,
    /// At this number of hosts, those that are idle are thrown away.
    full: usize,
}

/// An attempt that was handed to the dispatcher.
#[derive(Clone, Copy)]
struct SentAttempt {
    shard: ShardId,
    origin: u64,
    bytes: usize,
    /// When it was to leave, if it is the first of its run.
    leaves_at: Option<Instant>,
}

/// The sum of the attempts for a host.
#[derive(Default)]
struct HostSum {
    calls: usize,
    coming: usize,
    bytes: usize,
    shards: BTreeMap<ShardId, ShardShare>,
    pace: Pace,
    /// Until when (steady) it is left alone. It has yet to answer after that.
    rests_until: Option<u64>,
}

/// What a shard has for a host.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ShardShare {
    /// Attempts that the dispatcher has.
    calls: usize,
    /// Attempts that it soon will have.
    coming: usize,
    /// Whether more wait for room.
    waits: bool,
}

/// How many attempts a host answers.
#[derive(Default)]
struct Pace {
    /// When (steady) this period began, and how many were answered in it.
    since: u64,
    answered: usize,
    /// How many were answered in the last period.
    last: Option<usize>,
}

/// Fewer hosts than this are never looked through.
const HOSTS_FULL_MIN: usize = 1_024;

impl Backpressure {
    /// Adds an attempt that a shard hands to the dispatcher.
    pub(super) fn add(&self, shard: ShardId, key: u64, departure: &Departure) {
        let origin = departure.webhook.form.origin();
        let bytes = departure.webhook.own_bytes();
        let leaves_at = (departure.attempt == 1).then_some(departure.leaves_at);
        let mut known = self.0.lock();
        known.calls.insert(key, SentAttempt { shard, origin, bytes, leaves_at });
        let sum = known.hosts.entry(origin).or_default();
        sum.calls += 1;
        sum.bytes += bytes;
        sum.shards.entry(shard).or_default().calls += 1;
    }

    /// Removes an attempt that has come back at this steady time. Returns when it was to leave, if it is the first of its
    /// run.
    pub(super) fn remove(&self, key: u64, outcome: &Outcome, steady: u64) -> Option<Instant> {
        let mut known = self.0.lock();
        let sent = known.calls.remove(&key)?;
        if let Some(sum) = known.hosts.get_mut(&sent.origin) {
            sum.calls -= 1;
            sum.bytes -= sent.bytes;
            sum.learn(outcome, steady);
            let mut share = sum.shards.get(&sent.shard).copied().unwrap_or_default();
            share.calls = share.calls.saturating_sub(1);
            sum.set_share(sent.shard, share);
        }
        known.tidy(sent.origin, steady);
        sent.leaves_at
    }

    /// A shard wants this of hosts now.
    pub(super) fn demand(&self, shard: ShardId, demands: Vec<HostDemand>, steady: u64) {
        if demands.is_empty() {
            return;
        }
        let mut known = self.0.lock();
        for HostDemand { origin, coming, waits } in demands {
            let sum = known.hosts.entry(origin).or_default();
            let before = sum.shards.get(&shard).copied().unwrap_or_default();
            sum.coming = sum.coming + coming - before.coming;
            sum.set_share(shard, ShardShare { coming, waits, ..before });
            known.tidy(origin, steady);
        }
    }

    /// A shard is not here any more. What the dispatcher has of it stays there.
    pub(super) fn forget(&self, shard: ShardId) {
        for sum in self.0.lock().hosts.values_mut() {
            if let Some(had) = sum.shards.get(&shard).copied() {
                sum.coming -= had.coming;
                sum.set_share(shard, ShardShare { coming: 0, waits: false, ..had });
            }
        }
    }

    /// How many attempts of a shard may be decided for the host with this origin, and not handed over.
    pub(super) fn room(&self, shard: ShardId, origin: u64, steady: u64) -> HostRoom {
        let known = self.0.lock();
        let Some(sum) = known.hosts.get(&origin) else {
            return HostRoom { at_least_once: HOST_FULL, at_most_once: HOST_BUSY };
        };
        let own = sum.shards.get(&shard).copied().unwrap_or_default();
        let others = usize::from(!sum.shards.contains_key(&shard)) + sum.shards.len();
        // A shard counts what it has decided itself.
        let taken = sum.calls + sum.coming - own.coming;
        if let Some(until) = sum.rests_until {
            let is_over = usize::from(until <= steady);
            let probe = is_over.saturating_sub(taken);
            return HostRoom { at_least_once: probe, at_most_once: probe };
        }
        if sum.bytes >= HOST_FULL_BYTES {
            return HostRoom::NONE;
        }
        let most = sum.pace.most();
        let part = |most: usize| most.div_ceil(others).saturating_sub(own.calls);
        let at_least_once = part(most).min(most.saturating_sub(taken));
        // By what the shard has itself: others may go on having more, and it would keep all behind it waiting.
        HostRoom { at_least_once, at_most_once: at_least_once.min(part(HOST_BUSY)) }
    }
}

impl LoadTable {
    /// Forgets a host that is idle; and now and then all that are, for a host that rested is named by nobody afterwards.
    fn tidy(&mut self, origin: u64, steady: u64) {
        if self.hosts.get(&origin).is_some_and(|sum| sum.is_idle(steady)) {
            self.hosts.remove(&origin);
        }
        if self.hosts.len() >= self.full.max(HOSTS_FULL_MIN) {
            self.hosts.retain(|_, sum| !sum.is_idle(steady));
            self.full = self.hosts.len() * 2;
        }
    }
}

impl HostSum {
    /// Whether it has nothing, nothing is wanted of it, and it does not rest.
    fn is_idle(&self, steady: u64) -> bool {
        let rests = self.rests_until.is_some_and(|until| until > steady);
        self.shards.is_empty() && self.calls == 0 && !rests
    }

    fn set_share(&mut self, shard: ShardId, has: ShardShare) {
        if has == ShardShare::default() {
            self.shards.remove(&shard);
        } else {
            self.shards.insert(shard, has);
        }
    }

    /// Takes what an attempt says about its host.
    fn learn(&mut self, outcome: &Outcome, steady: u64) {
        match outcome {
            Outcome::NotSent { why: NotSent::Resting { rest } } => {
                self.rests_until = Some(steady + millis(*rest));
            }
            Outcome::NotSent { .. } => {}
            Outcome::Answered { .. } => {
                self.rests_until = None;
                self.pace.count(steady);
            }
            Outcome::Lost { .. } => self.pace.count(steady),
        }
    }
}

impl Pace {
    fn count(&mut self, steady: u64) {
        if self.since == 0 {
            self.since = steady;
        }
        self.answered += 1;
        let elapsed = steady - self.since;
        if elapsed >= HOST_LOOK_MS {
            let per_period = self.answered as u64 * HOST_LOOK_MS / elapsed;
            self.last = usize::try_from(per_period).ok();
            (self.since, self.answered) = (steady, 0);
        }
    }

    fn most(&self) -> usize {
        self.last.map_or(HOST_FULL, |last| last.clamp(HOST_BUSY, HOST_FULL))
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::id::{RunId, SerialId, ShardId};
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
            webhook: webhook.unwrap(),
        }
    }

    const SHARD: ShardId = ShardId(0);
    const OK: Outcome = Outcome::Answered { status: 200, retry_after: None };

    fn demand(origin: u64, coming: usize) -> Vec<HostDemand> {
        vec![HostDemand { origin, coming, waits: true }]
    }

    #[test]
    fn a_host_has_room_until_it_is_full_and_others_do_not_notice() {
        let hosts = Backpressure::default();
        let one = departure("a", "x");
        let (a, b) = (one.webhook.form.origin(), departure("b", "x").webhook.form.origin());
        for key in 0..HOST_FULL {
            let room = hosts.room(SHARD, a, 0);
            assert_eq!(room.at_least_once, HOST_FULL - key);
            assert_eq!(room.at_most_once, HOST_BUSY.saturating_sub(key));
            hosts.add(SHARD, key as u64, &one);
        }
        assert_eq!(hosts.room(SHARD, a, 0), HostRoom::NONE);
        assert_eq!(hosts.room(SHARD, b, 0).at_least_once, HOST_FULL);
        for key in 0..HOST_FULL as u64 {
            assert_eq!(hosts.remove(key, &OK, 1), Some(Instant(7)));
        }
        assert_eq!(hosts.room(SHARD, a, 1).at_least_once, HOST_FULL);
        assert!(hosts.0.lock().hosts.is_empty() && hosts.remove(0, &OK, 1).is_none());
    }

    #[test]
    fn a_host_is_full_by_bytes_as_well() {
        let hosts = Backpressure::default();
        let large = departure("a", &"x".repeat(100 * 1024));
        let fit = HOST_FULL_BYTES as u64 / (100 * 1024);
        for key in 0..=fit {
            assert_ne!(hosts.room(SHARD, large.webhook.form.origin(), 0), HostRoom::NONE);
            hosts.add(SHARD, key, &large);
        }
        assert_eq!(hosts.room(SHARD, large.webhook.form.origin(), 0), HostRoom::NONE);
    }

    #[test]
    fn a_host_has_as_much_as_it_answers_in_half_a_second() {
        let hosts = Backpressure::default();
        let one = departure("a", "x");
        let origin = one.webhook.form.origin();
        hosts.demand(SHARD, demand(origin, 0), 0);
        for key in 0..2_000 {
            hosts.add(SHARD, key, &one);
            hosts.remove(key, &OK, 1 + key / 2);
        }
        // A thousand were answered in the last half second, and one at its end.
        assert_eq!(hosts.room(SHARD, origin, 1_000).at_least_once, 1_001);
        hosts.demand(SHARD, vec![HostDemand { origin, coming: 0, waits: false }], 1_000);
        assert_eq!(hosts.room(SHARD, origin, 1_000).at_least_once, HOST_FULL, "it is idle");
    }

    #[test]
    fn shards_that_want_something_of_a_host_share_its_room() {
        let hosts = Backpressure::default();
        let one = departure("a", "x");
        let origin = one.webhook.form.origin();
        let [first, second] = [ShardId(1), ShardId(2)];
        hosts.demand(first, demand(origin, HOST_FULL), 0);
        assert_eq!(hosts.room(second, origin, 0), HostRoom::NONE, "the first has it all");
        hosts.demand(first, demand(origin, 100), 0);
        hosts.demand(second, demand(origin, 0), 0);
        assert_eq!(hosts.room(second, origin, 0).at_least_once, HOST_FULL / 2);
        hosts.add(second, 7, &one);
        assert_eq!(hosts.room(second, origin, 0).at_least_once, HOST_FULL / 2 - 1);
        hosts.forget(first);
        assert_eq!(hosts.room(second, origin, 0).at_least_once, HOST_FULL - 1);
    }

    #[test]
    fn what_must_not_be_in_doubt_has_room_beside_another_shard_that_is_busy() {
        let hosts = Backpressure::default();
        let one = departure("a", "x");
        let origin = one.webhook.form.origin();
        let [busy, careful] = [ShardId(1), ShardId(2)];
        for key in 0..HOST_FULL as u64 / 2 {
            hosts.add(busy, key, &one);
        }
        assert_eq!(hosts.room(busy, origin, 0).at_most_once, 0);
        assert_eq!(hosts.room(careful, origin, 0).at_most_once, HOST_BUSY / 2);
    }

    #[test]
    fn a_host_that_rests_has_no_room_and_then_room_for_one_until_it_answers() {
        let hosts = Backpressure::default();
        let one = departure("a", "x");
        let origin = one.webhook.form.origin();
        let rest = Duration::from_secs(5);
        hosts.add(SHARD, 1, &one);
        hosts.remove(1, &Outcome::NotSent { why: NotSent::Resting { rest } }, 1_000);
        assert_eq!(hosts.room(SHARD, origin, 5_999), HostRoom::NONE);
        assert_eq!(hosts.room(SHARD, origin, 6_000).at_least_once, 1);
        hosts.demand(SHARD, demand(origin, 0), 6_000);
        hosts.add(SHARD, 2, &one);
        assert_eq!(hosts.room(SHARD, origin, 6_001), HostRoom::NONE, "one is under way");
        hosts.remove(2, &OK, 6_002);
        assert_eq!(hosts.room(SHARD, origin, 6_002).at_least_once, HOST_FULL);
    }
}

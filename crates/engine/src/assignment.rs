//! Which server should own which shard.
//!
//! **Ranking.** For each shard every server has a score that comes from the two names alone (rendezvous
//! hashing), and the shard belongs to the server with the greatest score among those that can have it. All
//! servers work this out for themselves and come to the same end, without anybody who decides: claims
//! decide, and a ranking only says who should try. A server that joins takes from each of the others about
//! its share of what they have, and nothing moves between those; when it leaves, its shards go to the second
//! in each one's ranking, and nothing else moves. The score is by the id of the node, not by its
//! incarnation, so a server that is restarted gets back what it had. It is stable for ever: if it changed,
//! two versions in one cluster would hand the same shards to and fro.
//!
//! **Clocks.** A server fires by its wall clock. One whose clock is far from that of the others should own
//! nothing: at its hand-overs time would jump. What the right time is only the median can tell. Of two
//! clocks neither is more right than the other; then the one that is behind counts, since to be late is safer
//! than to be early: a slot that fires late has been waited for, and one that fired early cannot be undone.
//!
//! **Settling.** A claim that nobody has is taken at once. What somebody has is handed over for the sake of
//! balance only when the servers have been the same for a while: servers that start one after the other, or
//! one that comes and goes, would otherwise set shards moving again and again.

pub mod step;

use std::collections::BTreeSet;

use crate::hash::hash;
use crate::id::ShardId;
use crate::limits::{CLOCK_APART_MS_MAX, SETTLE};

/// The servers, by their nodes' ids, in the order in which they should own a shard.
pub fn ranking<'a>(shard: ShardId, servers: &[&'a str]) -> Vec<&'a str> {
    let purpose = format!("owner of shard {shard}");
    let mut ranked: Vec<_> =
        servers.iter().map(|server| (hash(server, &purpose), *server)).collect();
    ranked.sort_unstable_by(|one, other| other.cmp(one));
    ranked.into_iter().map(|(_, server)| server).collect()
}

/// The clock that counts as right, of clocks that are so far ahead of one of them: the one in the middle, and
/// of two in the middle the one that is behind. That one itself, if there are none.
pub fn median(ahead_ms: &[i64]) -> i64 {
    let mut sorted = ahead_ms.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Whether a clock is too far from the one that counts as right.
pub fn is_apart(ahead_ms: i64, median: i64) -> bool {
    ahead_ms.abs_diff(median) > CLOCK_APART_MS_MAX.unsigned_abs()
}

/// Whether the servers that shards are given to have been the same for long enough. Milliseconds are those of
/// the observer's steady clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settling {
    servers: BTreeSet<String>,
    /// Since when they are these; `None` before the first look.
    since_ms: Option<u64>,
}

impl Settling {
    /// These are the servers, at this moment.
    pub fn see(&mut self, servers: &[&str], now_ms: u64) {
        let is_same = self.servers.len() == servers.len()
            && servers.iter().all(|server| self.servers.contains(*server));
        if self.since_ms.is_none() || !is_same {
            self.servers = servers.iter().map(|server| (*server).to_owned()).collect();
            self.since_ms = Some(now_ms);
        }
    }

    /// Whether shards may move for the sake of balance.
    pub fn is_settled(&self, now_ms: u64) -> bool {
        let passed_ms = self.since_ms.map(|since| u128::from(now_ms.saturating_sub(since)));
        passed_ms.is_some_and(|passed| passed >= SETTLE.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTLE_MS: u64 = 2_000;

    fn owner<'a>(shard: u16, servers: &[&'a str]) -> &'a str {
        ranking(ShardId(shard), servers)[0]
    }

    /// How many of so many shards each server has.
    fn shares(shards: u16, servers: &[&str]) -> Vec<usize> {
        let owners: Vec<_> = (0..shards).map(|shard| owner(shard, servers)).collect();
        servers
            .iter()
            .map(|server| owners.iter().filter(|owner| *owner == server).count())
            .collect()
    }

    #[test]
    fn it_ranks_as_it_always_did() {
        // Worked out apart from this code.
        let (one, two, three) = ("web-1", "web-2", "web-3");
        let servers = [one, two, three];
        let firsts: Vec<_> = (0..8).map(|shard| owner(shard, &servers)).collect();
        assert_eq!(firsts, [three, one, one, one, three, one, two, one]);
        assert_eq!(ranking(ShardId(0), &servers), [three, two, one]);
        assert_eq!(ranking(ShardId(4_095), &servers), [two, one, three]);
        assert_eq!(ranking(ShardId(0), &[]), [""; 0]);
    }

    /// The smallest and the largest share of any server, in many clusters.
    fn extremes(shards: u16, servers: usize, clusters: usize) -> (usize, usize) {
        let all = (0..clusters).flat_map(|cluster| {
            let names: Vec<_> = (0..servers).map(|at| format!("rack-{cluster}-{at}")).collect();
            shares(shards, &names.iter().map(String::as_str).collect::<Vec<_>>())
        });
        all.fold((usize::MAX, 0), |(least, most), share| (least.min(share), most.max(share)))
    }

    #[test]
    fn many_shards_are_shared_evenly_and_few_are_as_dice_have_it() {
        let servers = ["web-1", "web-2", "web-3", "web-4", "web-5"];
        assert_eq!(shares(32, &servers[..3]), [12, 8, 12]);
        assert_eq!(shares(32, &servers), [9, 7, 7, 4, 5]);
        assert_eq!(shares(4_096, &servers[..3]), [1_394, 1_307, 1_395]);
        assert_eq!(shares(4_096, &servers), [861, 802, 848, 779, 806]);
        // Of two hundred clusters the most uneven one, and of twenty.
        assert_eq!(extremes(32, 3, 200), (3, 19));
        assert_eq!(extremes(32, 5, 200), (1, 13));
        assert_eq!(extremes(4_096, 3, 20), (1_285, 1_435));
        assert_eq!(extremes(4_096, 5, 20), (757, 905));
    }

    #[test]
    fn of_two_clocks_the_one_that_is_behind_counts() {
        for (clocks, right) in [
            (&[][..], 0),
            (&[7][..], 7),
            (&[5_000, 0][..], 0),
            (&[-5_000, 0][..], -5_000),
            (&[9, 1, 5][..], 5),
            (&[9, 1, 5, 6][..], 5),
            (&[i64::MAX, i64::MIN, 0][..], 0),
        ] {
            assert_eq!(median(clocks), right, "of {clocks:?}");
        }
    }

    #[test]
    fn a_clock_is_apart_past_the_limit_and_not_at_it() {
        for median in [0, 700, -700] {
            for side in [1, -1] {
                let at = median + side * CLOCK_APART_MS_MAX;
                assert!(!is_apart(at, median) && is_apart(at + side, median), "{at} and {median}");
            }
        }
        assert!(is_apart(i64::MAX, i64::MIN));
    }

    #[test]
    fn servers_are_settled_when_they_have_been_the_same_for_long_enough() {
        let mut settling = Settling::default();
        assert!(!settling.is_settled(u64::MAX), "before the first look");
        settling.see(&["a", "b"], 10_000);
        assert!(!settling.is_settled(10_000 + SETTLE_MS - 1));
        settling.see(&["b", "a"], 11_000);
        assert!(settling.is_settled(10_000 + SETTLE_MS), "their order means nothing");
        for (servers, at) in [(&["a"][..], 20_000), (&["a", "c"], 30_000), (&["a", "b"], 40_000)] {
            settling.see(servers, at);
            assert!(!settling.is_settled(at + SETTLE_MS - 1));
            assert!(settling.is_settled(at + SETTLE_MS));
        }
    }

    #[test]
    fn nobody_at_all_is_settled_too() {
        let mut settling = Settling::default();
        settling.see(&[], 5);
        assert!(!settling.is_settled(5 + SETTLE_MS - 1) && settling.is_settled(5 + SETTLE_MS));
    }

    proptest! {
        #[test]
        fn whoever_joins_takes_and_whoever_leaves_gives_and_nothing_else_moves(
            names in prop::collection::btree_set("[a-z0-9.-]{1,12}", 2..12), other in any::<prop::sample::Index>(),
            shard in 0..4_096_u16,
        ) {
            let all: Vec<&str> = names.iter().map(String::as_str).collect();
            let one = all[other.index(all.len())];
            let without: Vec<&str> = all.iter().copied().filter(|name| *name != one).collect();
            let mut ranked = ranking(ShardId(shard), &all);
            ranked.retain(|name| *name != one);
            prop_assert_eq!(ranked, ranking(ShardId(shard), &without), "in the order of before");
        }

        #[test]
        fn the_order_in_which_servers_are_known_means_nothing(
            names in prop::collection::btree_set("[a-z0-9.-]{1,12}", 1..8), shard in 0..4_096_u16,
        ) {
            let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
            let ranked = ranking(ShardId(shard), &all);
            all.reverse();
            prop_assert_eq!(ranked, ranking(ShardId(shard), &all));
        }

        #[test]
        fn the_median_is_one_of_the_clocks_and_half_of_them_are_not_ahead_of_it(
            clocks in prop::collection::vec(-10_000..10_000_i64, 1..9),
        ) {
            let right = median(&clocks);
            prop_assert!(clocks.contains(&right));
            let behind = clocks.iter().filter(|clock| **clock < right).count();
            let ahead = clocks.iter().filter(|clock| **clock > right).count();
            prop_assert!(behind * 2 < clocks.len() && ahead * 2 <= clocks.len());
        }
    }
}

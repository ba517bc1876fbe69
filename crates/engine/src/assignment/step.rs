//! What a server does about a shard.
//!
//! Everybody ranks the servers that may take a shard in the same way, and the first one should have it. A shard that
//! nobody has is taken by the first at once; the others wait their turn, should the first not do it. A shard that is
//! run by another than the first is handed over, when the servers have been the same for a while, or at once by one that
//! is to have none. Servers may see things differently for a moment: the claim decides, and the next look mends the rest.

use super::ranking;
use crate::id::ShardId;

/// A server that may have shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker<'a> {
    /// The id of its node.
    pub id: &'a str,
    /// Shards that it cannot run.
    pub unable: &'a [u16],
}

/// Who has a shard, as seen by the server that looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardHolder {
    /// This server, which runs it.
    Runs,
    /// This server, which does not run it yet: a hand-over named it, or a claim of its own that was not answered.
    Named,
    /// Another server that is there.
    Other,
    /// Nobody who is there, for so many milliseconds.
    Nobody {
        /// How long that has been so, as far as this server knows.
        for_ms: u64,
    },
}

/// What a server does about a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignmentStep<'a> {
    /// Leave the shard as it is.
    Leave,
    /// Claim the shard, and run it.
    Take,
    /// Hand the shard over to this server.
    Hand(&'a str),
}

/// The server that looks.
#[derive(Debug, Clone, Copy)]
pub struct Looker<'a> {
    /// The id of its node.
    pub id: &'a str,
    /// Whether the takers have been the same for a while.
    pub is_settled: bool,
    /// How long each waits for the one before it in the ranking.
    pub turn_ms: u64,
}

impl<'a> Looker<'a> {
    /// What this server does about a shard.
    pub fn step(
        &self,
        shard: ShardId,
        takers: &[Taker<'a>],
        holder: ShardHolder,
    ) -> AssignmentStep<'a> {
        let able = takers.iter().filter(|taker| !taker.unable.contains(&shard.0));
        let able: Vec<&'a str> = able.map(|taker| taker.id).collect();
        let ranked = ranking(shard, &able);
        match holder {
            ShardHolder::Other => AssignmentStep::Leave,
            // One that is to have no shard takes it all the same, and hands it on.
            ShardHolder::Named => AssignmentStep::Take,
            ShardHolder::Runs => match ranked.first() {
                Some(first)
                    if *first != self.id && (self.is_settled || !able.contains(&self.id)) =>
                {
                    AssignmentStep::Hand(first)
                }
                Some(_) | None => AssignmentStep::Leave,
            },
            ShardHolder::Nobody { for_ms } => match ranked.iter().position(|id| *id == self.id) {
                Some(place) if for_ms >= place as u64 * self.turn_ms => AssignmentStep::Take,
                Some(_) | None => AssignmentStep::Leave,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn takers<'a>(ids: &[&'a str]) -> Vec<Taker<'a>> {
        ids.iter().map(|id| Taker { id, unable: &[] }).collect()
    }

    fn looker(id: &str) -> Looker<'_> {
        Looker { id, is_settled: true, turn_ms: 1_000 }
    }

    fn ranked<'a>(ids: &[&'a str]) -> Vec<&'a str> {
        ranking(SHARD, ids)
    }

    #[test]
    fn the_first_takes_what_nobody_has_and_the_others_wait_their_turn() {
        let ids = ["a", "b", "c"];
        let (all, order) = (takers(&ids), ranked(&ids));
        for (place, id) in order.iter().enumerate() {
            let at = |for_ms| looker(id).step(SHARD, &all, ShardHolder::Nobody { for_ms });
            let turn = place as u64 * 1_000;
            assert_eq!(at(turn), AssignmentStep::Take, "{id}");
            if turn > 0 {
                assert_eq!(at(turn - 1), AssignmentStep::Leave, "{id}");
            }
        }
        let stranger = looker("d").step(SHARD, &all, ShardHolder::Nobody { for_ms: u64::MAX });
        assert_eq!(stranger, AssignmentStep::Leave, "one that is no taker takes nothing");
    }

    #[test]
    fn what_another_should_have_is_handed_over_when_things_have_settled() {
        let ids = ["a", "b", "c"];
        let (all, order) = (takers(&ids), ranked(&ids));
        assert_eq!(
            looker(order[1]).step(SHARD, &all, ShardHolder::Runs),
            AssignmentStep::Hand(order[0])
        );
        assert_eq!(looker(order[0]).step(SHARD, &all, ShardHolder::Runs), AssignmentStep::Leave);
        let unsettled = Looker { is_settled: false, ..looker(order[1]) };
        assert_eq!(unsettled.step(SHARD, &all, ShardHolder::Runs), AssignmentStep::Leave);
    }

    #[test]
    fn one_that_is_to_have_none_hands_over_at_once_and_keeps_what_nobody_can_have() {
        let draining = Looker { is_settled: false, ..looker("d") };
        let ids = ["a", "b"];
        let first = ranked(&ids)[0];
        assert_eq!(
            draining.step(SHARD, &takers(&ids), ShardHolder::Runs),
            AssignmentStep::Hand(first)
        );
        assert_eq!(draining.step(SHARD, &[], ShardHolder::Runs), AssignmentStep::Leave);
        assert_eq!(draining.step(SHARD, &takers(&ids), ShardHolder::Named), AssignmentStep::Take);
    }

    #[test]
    fn who_cannot_run_a_shard_is_passed_over() {
        let ids = ["a", "b"];
        let order = ranked(&ids);
        let all = [Taker { id: order[0], unable: &[SHARD.0] }, Taker { id: order[1], unable: &[] }];
        let step = |id, holder| looker(id).step(SHARD, &all, holder);
        assert_eq!(step(order[1], ShardHolder::Nobody { for_ms: 0 }), AssignmentStep::Take);
        assert_eq!(step(order[0], ShardHolder::Nobody { for_ms: 9_999 }), AssignmentStep::Leave);
        assert_eq!(
            step(order[1], ShardHolder::Runs),
            AssignmentStep::Leave,
            "it is not handed back and forth"
        );
    }
}

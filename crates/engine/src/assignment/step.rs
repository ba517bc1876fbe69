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
    /// Who it is.
    pub id: &'a str,
    /// Shards that it cannot run.
    pub unable: &'a [u16],
}

/// Who has a shard, for the server that looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// This one, which runs it.
    Runs,
    /// This one, which does not run it yet: it was named by a hand-over, or by a claim that was not answered.
    Named,
    /// Another one that is there.
    Other,
    /// Nobody who is there, for so many milliseconds.
    Nobody {
        /// For so long, as far as this server knows.
        for_ms: u64,
    },
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// Nothing.
    Leave,
    /// Claim it, and run it.
    Take,
    /// Hand it to this one.
    Hand(&'a str),
}

/// What a server knows that looks.
#[derive(Debug, Clone, Copy)]
pub struct Looker<'a> {
    /// Who it is.
    pub id: &'a str,
    /// Whether the takers have been the same for a while.
    pub is_settled: bool,
    /// How long each waits for the one before it in the ranking.
    pub turn_ms: u64,
}

impl<'a> Looker<'a> {
    /// What this server does about a shard.
    pub fn step(&self, shard: ShardId, takers: &[Taker<'a>], holder: Holder) -> Step<'a> {
        let able = takers.iter().filter(|taker| !taker.unable.contains(&shard.0));
        let able: Vec<&'a str> = able.map(|taker| taker.id).collect();
        let ranked = ranking(shard, &able);
        match holder {
            Holder::Other => Step::Leave,
            // One that is to have no shard takes it all the same, and hands it on.
            Holder::Named => Step::Take,
            Holder::Runs => match ranked.first() {
                Some(first)
                    if *first != self.id && (self.is_settled || !able.contains(&self.id)) =>
                {
                    Step::Hand(first)
                }
                Some(_) | None => Step::Leave,
            },
            Holder::Nobody { for_ms } => match ranked.iter().position(|id| *id == self.id) {
                Some(place) if for_ms >= place as u64 * self.turn_ms => Step::Take,
                Some(_) | None => Step::Leave,
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
            let at = |for_ms| looker(id).step(SHARD, &all, Holder::Nobody { for_ms });
            let turn = place as u64 * 1_000;
            assert_eq!(at(turn), Step::Take, "{id}");
            if turn > 0 {
                assert_eq!(at(turn - 1), Step::Leave, "{id}");
            }
        }
        let stranger = looker("d").step(SHARD, &all, Holder::Nobody { for_ms: u64::MAX });
        assert_eq!(stranger, Step::Leave, "one that is no taker takes nothing");
    }

    #[test]
    fn what_another_should_have_is_handed_over_when_things_have_settled() {
        let ids = ["a", "b", "c"];
        let (all, order) = (takers(&ids), ranked(&ids));
        assert_eq!(looker(order[1]).step(SHARD, &all, Holder::Runs), Step::Hand(order[0]));
        assert_eq!(looker(order[0]).step(SHARD, &all, Holder::Runs), Step::Leave);
        let unsettled = Looker { is_settled: false, ..looker(order[1]) };
        assert_eq!(unsettled.step(SHARD, &all, Holder::Runs), Step::Leave);
    }

    #[test]
    fn one_that_is_to_have_none_hands_over_at_once_and_keeps_what_nobody_can_have() {
        let draining = Looker { is_settled: false, ..looker("d") };
        let ids = ["a", "b"];
        let first = ranked(&ids)[0];
        assert_eq!(draining.step(SHARD, &takers(&ids), Holder::Runs), Step::Hand(first));
        assert_eq!(draining.step(SHARD, &[], Holder::Runs), Step::Leave);
        assert_eq!(draining.step(SHARD, &takers(&ids), Holder::Named), Step::Take);
    }

    #[test]
    fn who_cannot_run_a_shard_is_passed_over() {
        let ids = ["a", "b"];
        let order = ranked(&ids);
        let all = [Taker { id: order[0], unable: &[SHARD.0] }, Taker { id: order[1], unable: &[] }];
        let step = |id, holder| looker(id).step(SHARD, &all, holder);
        assert_eq!(step(order[1], Holder::Nobody { for_ms: 0 }), Step::Take);
        assert_eq!(step(order[0], Holder::Nobody { for_ms: 9_999 }), Step::Leave);
        assert_eq!(step(order[1], Holder::Runs), Step::Leave, "it is not handed back and forth");
    }
}

//! Which queue stands first in a claim.
//!
//! Servers give runs in the order in which a claim names its queues. Without weights that is always the order in which the
//! worker was told of them: the first queue comes before the second as long as it has runs. With weights the first place goes
//! round, smoothly: of 4 claims with the weights 3 and 1 the first queue leads in the 1st, 2nd and 4th, not in three in a row.

/// The queues of a worker, and whose turn it is to stand first.
#[derive(Debug)]
pub(crate) struct Rotation {
    queues: Vec<Turn>,
    is_weighted: bool,
}

#[derive(Debug)]
struct Turn {
    queue: String,
    weight: i64,
    /// How much it is owed.
    credit: i64,
}

impl Rotation {
    /// Queues with their weights: 0 for those that were given none.
    pub(crate) fn new(queues: &[(String, u32)]) -> Self {
        let is_weighted = queues.iter().any(|(_, weight)| *weight > 0);
        let turn = |(queue, weight): &(String, u32)| Turn {
            queue: queue.clone(),
            weight: i64::from(*weight).max(1),
            credit: 0,
        };
        Self { queues: queues.iter().map(turn).collect(), is_weighted }
    }

    /// The queues in the order in which the next claim names them.
    pub(crate) fn next(&mut self) -> Vec<String> {
        let mut order: Vec<usize> = (0..self.queues.len()).collect();
        if self.is_weighted {
            let total: i64 = self.queues.iter().map(|turn| turn.weight).sum();
            for turn in &mut self.queues {
                turn.credit += turn.weight;
            }
            // Of equals the one that was named first.
            order.sort_by_key(|at| -self.queues[*at].credit);
            self.queues[order[0]].credit -= total;
        }
        order.into_iter().map(|at| self.queues[at].queue.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firsts(queues: &[(&str, u32)], count: usize) -> String {
        let queues: Vec<_> = queues.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
        let mut rotation = Rotation::new(&queues);
        (0..count).map(|_| rotation.next().remove(0)).collect()
    }

    #[test]
    fn without_weights_the_order_is_the_one_given() {
        let mut rotation = Rotation::new(&[("b".to_owned(), 0), ("a".to_owned(), 0)]);
        for _ in 0..3 {
            assert_eq!(rotation.next(), ["b", "a"]);
        }
    }

    #[test]
    fn with_weights_each_stands_first_as_often_as_its_weight_says_and_not_all_at_once() {
        assert_eq!(firsts(&[("a", 3), ("b", 1)], 8), "aabaaaba");
        assert_eq!(firsts(&[("a", 5), ("b", 1), ("c", 1)], 7), "aabacaa");
        assert_eq!(firsts(&[("a", 2), ("b", 0)], 6), "abaaba", "one without a weight has 1");
    }

    #[test]
    fn all_queues_are_named_in_each_claim() {
        let mut rotation = Rotation::new(&[("a".to_owned(), 1_000), ("b".to_owned(), 1)]);
        for _ in 0..2_000 {
            let mut order = rotation.next();
            order.sort();
            assert_eq!(order, ["a", "b"]);
        }
    }
}

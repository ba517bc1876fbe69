//! Which commits share a call: all that wait at the same time, up to a bound.
//!
//! Scripts are serial, so commits that contend for a key may share a call as well: they are judged one after the other, and the one behind
//! finds what the one before it has done. What is saved is all that a call costs beside its commits. The bound is there for everybody
//! else: a Redis does nothing else while a script runs.

use crate::Commit;
use crate::batching::BatchRule;

/// Conditions and writes of a batch, which take some milliseconds. A commit that has more goes alone.
const STEPS_MAX: usize = 1_024;

/// Calls that may be under way at once. One is enough to keep a Redis busy on the way there, while the answers of another travel back.
pub(super) const LANES: usize = 2;

/// The conditions and writes of a batch.
#[derive(Default)]
pub(super) struct Steps(usize);

impl BatchRule for Steps {
    fn admits(&self, commit: &Commit) -> bool {
        self.0 + steps(commit) <= STEPS_MAX
    }

    fn add(&mut self, commit: &Commit) {
        self.0 += steps(commit);
    }
}

fn steps(commit: &Commit) -> usize {
    commit.when.len() + commit.then.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::batches;
    use crate::{Condition, Key};

    fn key(number: usize) -> Key {
        Key::new(format!("k{number}")).unwrap()
    }

    fn sizes(commits: Vec<Commit>) -> Vec<usize> {
        batches::<Steps>(commits).iter().map(Vec::len).collect()
    }

    #[test]
    fn what_contends_for_a_key_travels_together() {
        let put = Commit::new().when(Condition::Absent(key(1))).put(key(1), "");
        assert_eq!(sizes(vec![put.clone(), put.clone(), put]), [3]);
    }

    #[test]
    fn a_batch_has_so_many_steps_and_no_more() {
        let put = |number| Commit::new().when(Condition::Absent(key(0))).put(key(number), "");
        let half = STEPS_MAX / 2;
        assert_eq!(sizes((0..half).map(put).collect()), [half]);
        assert_eq!(sizes((0..=half).map(put).collect()), [half, 1]);
        let many = (0..2 * STEPS_MAX).fold(Commit::new(), |commit, number| {
            commit.when(Condition::Absent(key(number))).put(key(number), "")
        });
        assert_eq!(sizes(vec![many, put(0)]), [2 * STEPS_MAX, 1], "a large one travels alone");
    }
}

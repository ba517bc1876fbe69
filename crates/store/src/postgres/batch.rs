//! Which commits share a call: those that touch no key of each other.
//!
//! The server makes all commits of a call durable with one sync.

use std::collections::HashMap;

use super::request::LOCKS_MAX;
use crate::batching::BatchRule;
use crate::{Commit, Key, Write};

/// The keys of a batch, and whether each is written.
#[derive(Default)]
pub(super) struct Keys(HashMap<Key, bool>);

impl BatchRule for Keys {
    /// No commit of a batch reads or writes what another one writes.
    fn admits(&self, commit: &Commit) -> bool {
        let conditions = commit.when.len();
        self.0.len() + conditions + commit.then.len() <= LOCKS_MAX
            && commit.when.iter().all(|condition| self.0.get(condition.key()) != Some(&true))
            && commit.then.iter().all(|write| !self.0.contains_key(write.key()))
    }

    fn add(&mut self, commit: &Commit) {
        for condition in &commit.when {
            self.0.entry(condition.key().clone()).or_insert(false);
        }
        for key in commit.then.iter().map(Write::key) {
            self.0.insert(key.clone(), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Condition;
    use crate::batching::batches;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn check(commits: Vec<Commit>, expected: &[&str], why: &str) {
        let found: Vec<String> =
            batches::<Keys>(commits).into_iter().map(|keys| keys.concat()).collect();
        assert_eq!(found, expected, "{why}");
    }

    #[test]
    fn what_touches_the_same_key_does_not_travel_together() {
        let put = |name: &str| Commit::new().put(key(name), "");
        let sees = |seen: &str, name: &str| put(name).when(Condition::Present(key(seen)));
        check(vec![put("a"), put("b"), put("a"), put("c")], &["abc", "a"], "both write");
        check(vec![put("a"), sees("a", "b")], &["a", "b"], "one looks at what another writes");
        check(vec![sees("a", "b"), put("a")], &["b", "a"], "and the other way round");
        check(vec![sees("s", "b"), sees("s", "c")], &["bc"], "both only look");
    }

    #[test]
    fn a_batch_has_no_more_keys_than_locks() {
        let put = |number: usize| Commit::new().put(key(&format!("k{number}")), "");
        let found = batches::<Keys>((0..=LOCKS_MAX).map(put).collect());
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [LOCKS_MAX, 1]);
    }
}

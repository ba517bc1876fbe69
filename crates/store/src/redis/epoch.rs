//! The epoch of a Redis: its replication id.
//!
//! A master draws a new one whenever its process starts and whenever it is promoted, and no two servers share one while both are masters. So
//! it changes with everything that may have lost a tail: a restart, a fail-over, a fail-over and back. (The run id would not do: a server that
//! was demoted and promoted again keeps it.) It also changes an hour after the last replica left, which costs a quarantine and no more.
//!
//! Both scripts read it in the same step in which they do their work, for about 3 µs, so no proxy, no list of hosts and no connection that
//! outlived a fail-over can make an answer look as if another server had given it.

use std::collections::VecDeque;

use parking_lot::RwLock;

use crate::Epoch;

/// How many epochs are remembered that were left. A server that comes back after as many fail-overs is taken for a new one.
const LEFT_MAX: usize = 256;

/// The present epoch, and those that were left.
#[derive(Debug)]
pub(super) struct RedisEpochs(RwLock<KnownEpochs>);

#[derive(Debug)]
struct KnownEpochs {
    present: String,
    left: VecDeque<String>,
}

impl RedisEpochs {
    pub(super) fn new(present: String) -> Self {
        Self(RwLock::new(KnownEpochs { present, left: VecDeque::new() }))
    }

    /// Whether an answer of this epoch counts: one of the present does, one of a new epoch does and begins it, one of an epoch that was left
    /// does not.
    pub(super) fn admit(&self, epoch: &str) -> bool {
        if self.0.read().present == epoch {
            return true;
        }
        let mut state = self.0.write();
        if state.present == epoch {
            return true;
        }
        if state.left.iter().any(|left| left == epoch) {
            return false;
        }
        if state.left.len() == LEFT_MAX {
            state.left.pop_front();
        }
        let former = std::mem::replace(&mut state.present, epoch.to_owned());
        tracing::warn!(epoch, former, "redis has begun a new epoch: it restarted or failed over");
        state.left.push_back(former);
        true
    }

    /// The epoch of the server that answers now.
    pub(super) fn present(&self) -> Epoch {
        Epoch(self.0.read().present.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_that_was_left_never_comes_back() {
        let epochs = RedisEpochs::new("a".into());
        assert!(epochs.admit("a") && epochs.admit("b") && epochs.admit("b"));
        assert!(!epochs.admit("a"));
        assert!(epochs.admit("c"));
        assert!(!epochs.admit("a") && !epochs.admit("b"));
        assert_eq!(epochs.present(), Epoch("c".into()));
    }

    #[test]
    fn as_many_as_the_limit_are_remembered_and_one_more_pushes_the_first_out() {
        let epochs = RedisEpochs::new("0".into());
        for number in 1..=LEFT_MAX {
            assert!(epochs.admit(&number.to_string()));
        }
        assert!(!epochs.admit("0"));
        assert!(epochs.admit("one more") && epochs.admit("0"));
        assert!(!epochs.admit("one more"));
    }
}

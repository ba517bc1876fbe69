//! Eras: whether an answer speaks of the store that we know.
//!
//! Every answer of etcd names its cluster and the revision of that moment. A new cluster is a new epoch. So is
//! an old one whose revision went back: whoever restores a snapshot without a new `--initial-cluster-token` gets
//! the same cluster id as before, and revisions that were given once are given again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Epoch;

/// Former clusters that are remembered, so that none of them is taken for new.
const FORMER_MAX: usize = 64;

/// What was known when a question was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    era: u64,
    revision: i64,
}

/// What an answer says of where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) cluster: u64,
    pub(super) revision: i64,
}

/// What an answer is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    /// It is of the store that we know.
    Known,
    /// It is of a store that was restored or replaced since: a new epoch has begun.
    New,
    /// It may be of a former one: it is none.
    Former,
}

/// The present era.
#[derive(Debug)]
pub(super) struct Eras(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Counts eras.
    era: u64,
    cluster: u64,
    /// How often this cluster's revision went back.
    setbacks: u64,
    /// The greatest revision of this era that we know of.
    revision: i64,
    former: Vec<u64>,
}

impl Eras {
    pub(super) fn new(origin: Origin) -> Self {
        let Origin { cluster, revision } = origin;
        Self(Mutex::new(State { era: 0, cluster, setbacks: 0, revision, former: Vec::new() }))
    }

    pub(super) fn epoch(&self) -> Epoch {
        let state = self.lock();
        match state.setbacks {
            0 => Epoch(format!("{:x}", state.cluster)),
            setbacks => Epoch(format!("{:x}+{setbacks}", state.cluster)),
        }
    }

    /// The greatest revision that we know of.
    pub(super) fn revision(&self) -> i64 {
        self.lock().revision
    }

    /// To be taken before a question leaves.
    pub(super) fn mark(&self) -> Mark {
        let state = self.lock();
        Mark { era: state.era, revision: state.revision }
    }

    /// Judges an answer to a question that was asked at `mark`. It must have been a linearizable one.
    pub(super) fn judge(&self, mark: Mark, origin: Origin) -> Worth {
        let mut state = self.lock();
        if mark.era != state.era || state.former.contains(&origin.cluster) {
            return Worth::Former;
        }
        if origin.cluster == state.cluster && origin.revision >= mark.revision {
            state.revision = state.revision.max(origin.revision);
            return Worth::Known;
        }
        if origin.cluster == state.cluster {
            state.setbacks += 1;
        } else {
            let left = std::mem::replace(&mut state.cluster, origin.cluster);
            if state.former.len() == FORMER_MAX {
                state.former.remove(0);
            }
            state.former.push(left);
            state.setbacks = 0;
        }
        state.era += 1;
        state.revision = origin.revision;
        Worth::New
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cluster: u64, revision: i64) -> Origin {
        Origin { cluster, revision }
    }

    #[test]
    fn answers_of_one_cluster_are_known_in_whatever_order_they_come() {
        let eras = Eras::new(at(0xa, 5));
        let (first, second) = (eras.mark(), eras.mark());
        assert_eq!(eras.judge(second, at(0xa, 7)), Worth::Known);
        assert_eq!(eras.judge(first, at(0xa, 6)), Worth::Known);
        assert_eq!((eras.revision(), eras.epoch()), (7, Epoch("a".into())));
    }

    #[test]
    fn another_cluster_is_a_new_epoch_and_the_former_never_comes_back() {
        let eras = Eras::new(at(0xa, 5));
        let under_way = eras.mark();
        assert_eq!(eras.judge(eras.mark(), at(0xb, 2)), Worth::New);
        assert_eq!(eras.epoch(), Epoch("b".into()));
        assert_eq!(eras.judge(under_way, at(0xb, 3)), Worth::Former, "asked in the former era");
        assert_eq!(eras.judge(eras.mark(), at(0xa, 9)), Worth::Former);
        assert_eq!(eras.judge(eras.mark(), at(0xb, 3)), Worth::Known);
        assert_eq!((eras.revision(), eras.epoch()), (3, Epoch("b".into())));
    }

    #[test]
    fn a_revision_that_went_back_is_a_new_epoch() {
        let eras = Eras::new(at(0xa, 5));
        assert_eq!(eras.judge(eras.mark(), at(0xa, 4)), Worth::New);
        assert_eq!((eras.revision(), eras.epoch()), (4, Epoch("a+1".into())));
        assert_eq!(eras.judge(eras.mark(), at(0xa, 4)), Worth::Known);
        assert_eq!(eras.judge(eras.mark(), at(0xa, 1)), Worth::New);
        assert_eq!(eras.epoch(), Epoch("a+2".into()));
    }
}

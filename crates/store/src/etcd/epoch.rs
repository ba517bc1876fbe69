//! The epoch of an etcd: whether an answer speaks of the store that we know.
//!
//! Every answer of etcd names its cluster and the revision of that moment. A new cluster is a new epoch. So is
//! an old one whose revision went back: whoever restores a snapshot without a new `--initial-cluster-token` gets
//! the same cluster id as before, and revisions that were given once are given again.

use parking_lot::Mutex;

use crate::Epoch;

/// Former clusters that are remembered, so that none of them is taken for new.
const FORMER_MAX: usize = 64;

/// What was known when a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpochMark {
    number: u64,
    revision: i64,
}

/// What an answer says of where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerOrigin {
    pub(super) cluster: u64,
    pub(super) revision: i64,
}

/// Which epoch an answer is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerEpoch {
    /// It is of the store that we know.
    Known,
    /// It is of a store that was restored or replaced since: a new epoch has begun.
    New,
    /// It may be of a former one, and does not count.
    Former,
}

/// The present epoch, and the clusters of former ones.
#[derive(Debug)]
pub(super) struct EtcdEpochs(Mutex<EtcdEpochState>);

#[derive(Debug)]
struct EtcdEpochState {
    /// Counts the epochs so far.
    number: u64,
    cluster: u64,
    /// How often this cluster's revision went back.
    setbacks: u64,
    /// The greatest revision of this epoch that we know of.
    revision: i64,
    former: Vec<u64>,
}

impl EtcdEpochs {
    pub(super) fn new(origin: AnswerOrigin) -> Self {
        let AnswerOrigin { cluster, revision } = origin;
        Self(Mutex::new(EtcdEpochState {
            number: 0,
            cluster,
            setbacks: 0,
            revision,
            former: Vec::new(),
        }))
    }

    pub(super) fn epoch(&self) -> Epoch {
        let state = self.0.lock();
        match state.setbacks {
            0 => Epoch(format!("{:x}", state.cluster)),
            setbacks => Epoch(format!("{:x}+{setbacks}", state.cluster)),
        }
    }

    /// The greatest revision that we know of.
    pub(super) fn revision(&self) -> i64 {
        self.0.lock().revision
    }

    /// To be taken before a request leaves.
    pub(super) fn mark(&self) -> EpochMark {
        let state = self.0.lock();
        EpochMark { number: state.number, revision: state.revision }
    }

    /// Judges an answer to a request that was sent at `mark`. It must have been a linearizable one.
    pub(super) fn judge(&self, mark: EpochMark, origin: AnswerOrigin) -> AnswerEpoch {
        let mut state = self.0.lock();
        if mark.number != state.number || state.former.contains(&origin.cluster) {
            return AnswerEpoch::Former;
        }
        if origin.cluster == state.cluster && origin.revision >= mark.revision {
            state.revision = state.revision.max(origin.revision);
            return AnswerEpoch::Known;
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
        state.number += 1;
        state.revision = origin.revision;
        AnswerEpoch::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cluster: u64, revision: i64) -> AnswerOrigin {
        AnswerOrigin { cluster, revision }
    }

    #[test]
    fn answers_of_one_cluster_are_known_in_whatever_order_they_come() {
        let epochs = EtcdEpochs::new(at(0xa, 5));
        let (first, second) = (epochs.mark(), epochs.mark());
        assert_eq!(epochs.judge(second, at(0xa, 7)), AnswerEpoch::Known);
        assert_eq!(epochs.judge(first, at(0xa, 6)), AnswerEpoch::Known);
        assert_eq!((epochs.revision(), epochs.epoch()), (7, Epoch("a".into())));
    }

    #[test]
    fn another_cluster_is_a_new_epoch_and_the_former_never_comes_back() {
        let epochs = EtcdEpochs::new(at(0xa, 5));
        let under_way = epochs.mark();
        assert_eq!(epochs.judge(epochs.mark(), at(0xb, 2)), AnswerEpoch::New);
        assert_eq!(epochs.epoch(), Epoch("b".into()));
        assert_eq!(
            epochs.judge(under_way, at(0xb, 3)),
            AnswerEpoch::Former,
            "asked in the former epoch"
        );
        assert_eq!(epochs.judge(epochs.mark(), at(0xa, 9)), AnswerEpoch::Former);
        assert_eq!(epochs.judge(epochs.mark(), at(0xb, 3)), AnswerEpoch::Known);
        assert_eq!((epochs.revision(), epochs.epoch()), (3, Epoch("b".into())));
    }

    #[test]
    fn a_revision_that_went_back_is_a_new_epoch() {
        let epochs = EtcdEpochs::new(at(0xa, 5));
        assert_eq!(epochs.judge(epochs.mark(), at(0xa, 4)), AnswerEpoch::New);
        assert_eq!((epochs.revision(), epochs.epoch()), (4, Epoch("a+1".into())));
        assert_eq!(epochs.judge(epochs.mark(), at(0xa, 4)), AnswerEpoch::Known);
        assert_eq!(epochs.judge(epochs.mark(), at(0xa, 1)), AnswerEpoch::New);
        assert_eq!(epochs.epoch(), Epoch("a+2".into()));
    }
}

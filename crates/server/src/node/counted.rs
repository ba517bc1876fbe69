//! A store that counts what is asked of it, for whoever pays for it or wonders whether it answers.

use std::sync::Arc;

use store::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Limits, Page, Pending, Range, ScanError,
    Store, Version,
};

use crate::metric::NodeMetrics;

struct Counted {
    inner: Arc<dyn Adapter>,
    metrics: Arc<NodeMetrics>,
}

/// The same store, with every operation counted.
pub(super) fn counted(store: &Store, metrics: &Arc<NodeMetrics>) -> Store {
    Store::new(Counted { inner: store.adapter(), metrics: Arc::clone(metrics) })
}

impl Adapter for Counted {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move {
            let page = self.inner.scan(range, limit).await;
            let outcome = match &page {
                Ok(_) => "done",
                Err(ScanError::Refused(_)) => "refused",
                Err(ScanError::Unavailable(_)) => "unavailable",
                Err(ScanError::Corrupt(_)) => "corrupt",
            };
            self.metrics.store("scan", outcome);
            page
        })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(async move {
            let done = self.inner.commit(commit).await;
            let outcome = match &done {
                Ok(_) => "done",
                Err(CommitError::Conflict(_)) => "conflict",
                Err(CommitError::Refused(_)) => "refused",
                Err(CommitError::Unavailable(_)) => "unavailable",
                Err(CommitError::Unknown(_)) => "unknown",
                Err(CommitError::Corrupt(_)) => "corrupt",
            };
            self.metrics.store("commit", outcome);
            done
        })
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.inner.watch(prefix)
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn class(&self) -> Class {
        self.inner.class()
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn behind(&self) -> Option<&dyn Adapter> {
        Some(&*self.inner)
    }
}

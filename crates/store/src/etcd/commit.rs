//! A commit as one transaction: compare, then write; or else tell what was found.

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};

use super::space::Space;
use crate::{Commit, CommitError, Condition, Version, Write};

/// The transaction for a commit.
pub(super) fn transaction(space: &Space, commit: &Commit) -> Txn {
    let compares: Vec<_> = commit.when.iter().map(|condition| compare(space, condition)).collect();
    let mut writes: Vec<_> = commit.then.iter().map(|write| operation(space, write)).collect();
    if !commit.then.iter().any(|write| matches!(write, Write::Put(..))) {
        writes.push(TxnOp::put(space.tick(), "", None));
    }
    let keys_only = GetOptions::new().with_keys_only();
    let look =
        |condition: &Condition| TxnOp::get(space.key(condition.key()), Some(keys_only.clone()));
    let looks: Vec<_> = commit.when.iter().map(look).collect();
    Txn::new().when(compares).and_then(writes).or_else(looks)
}

fn compare(space: &Space, condition: &Condition) -> Compare {
    let key = space.key(condition.key());
    match condition {
        Condition::Absent(_) => Compare::mod_revision(key, CompareOp::Equal, 0),
        Condition::Present(_) => Compare::mod_revision(key, CompareOp::Greater, 0),
        Condition::At(_, Version(version)) => {
            // To etcd 0 means absent. No commit was ever given that version, nor one beyond its numbers.
            let revision = i64::try_from(*version).ok().filter(|revision| *revision > 0);
            Compare::mod_revision(key, CompareOp::Equal, revision.unwrap_or(i64::MAX))
        }
    }
}

fn operation(space: &Space, write: &Write) -> TxnOp {
    match write {
        Write::Put(key, value) => TxnOp::put(space.key(key), value.as_bytes(), None),
        Write::Delete(key) => TxnOp::delete(space.key(key), None),
    }
}

/// What came of a commit, by etcd's answer to its transaction.
pub(super) fn outcome(commit: &Commit, answer: &TxnResponse) -> Result<Version, CommitError> {
    if answer.succeeded() {
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        return Ok(version(revision));
    }
    let found: Vec<_> = answer.op_responses().iter().map(found).collect();
    let mut conditions = found.into_iter();
    commit.judge(|_| Ok::<_, CommitError>(conditions.next().flatten()))?;
    // Comparisons and looks are of one moment, so that one of them must have failed.
    Err(CommitError::Corrupt("etcd refused a commit whose conditions hold".to_owned()))
}

fn found(look: &TxnOpResponse) -> Option<Version> {
    match look {
        TxnOpResponse::Get(got) => got.kvs().first().map(|kv| version(kv.mod_revision())),
        _ => None,
    }
}

/// A revision as a version.
pub(super) fn version(revision: i64) -> Version {
    Version(u64::try_from(revision).expect("revisions count up from 1"))
}

//! The cluster that a node belongs to: the one in its store, or a new one.

use engine::limits::SHARDS_DEFAULT;
use store::cluster::ClusterIdentity;
use store::machine::Machine;
use store::{Commit, CommitError, Condition, Store};

use super::NodeStartError;

/// The cluster that lives in this store; a new one, if there is none.
///
/// A new one has as many shards as are wanted; one that is there must have as many, if any number is wanted.
pub(super) async fn found(
    store: &Store,
    machine: &dyn Machine,
    wanted: Option<u16>,
) -> Result<ClusterIdentity, NodeStartError> {
    loop {
        if let Some(found) = ClusterIdentity::read(store).await? {
            return match wanted {
                Some(wanted) if wanted != found.shards => {
                    Err(NodeStartError::Shards { found: found.shards, wanted })
                }
                Some(_) | None => Ok(found),
            };
        }
        let made =
            ClusterIdentity { id: machine.random(), shards: wanted.unwrap_or(SHARDS_DEFAULT) };
        let commit = Commit::new()
            .when(Condition::Absent(ClusterIdentity::key()))
            .put(ClusterIdentity::key(), made.to_value());
        match store.commit(commit).await {
            // Another node may have made one first: the one that is read is the one that counts.
            Ok(_) | Err(CommitError::Conflict(_) | CommitError::Unknown(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

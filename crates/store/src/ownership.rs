//! Who owns which shard, as everybody can read it at a glance.
//!
//! The head of a shard says who has it, and it alone decides. But it is written with every commit of the
//! shard, and is as long as what is open in it: whoever wants to know all owners would read a lot, and
//! whoever watches all heads would be rung all the time. So the claim of a shard is mirrored to
//! `owner/<shard>`, in the very commits that change its owner. One scan shows all of them, and a hint below
//! `owner/` comes only when one has changed.
//!
//! A mirror may lag behind its head in one way: a node that knows of no mirrors takes the claim, and the
//! mirror still names the one before. So what it says is a reason to look, or to ask somebody, and never a
//! reason to act. A session in it that is absent owns nothing. Owners look at what is said about their shards, and
//! mend it ([`Claim::mend_mirror`]).

use std::collections::BTreeMap;

use engine::id::ShardId;
use engine::lease::Token;
use engine::limits::SHARDS_MAX;
use engine::record::{Format, RecordError, decode, encode};
use engine::shard::record::head_key;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Head, SHARD_HEAD};
use crate::session::SessionKey;
use crate::{Key, Range, ScanError, Store, Value};

/// Below this lie the mirrors of shards.
pub const OWNERS: &str = "owner/";

const FORMAT: Format = Format(1);

/// Who has a claim, as its mirror says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// The session of whoever has it; nobody, if it was released.
    pub session: Option<SessionKey>,
    /// Under which token, or the last one.
    pub token: Token,
}

/// The same, as it is stored.
#[derive(Serialize, Deserialize)]
struct OwnerRecord {
    session: Option<SessionKey>,
    token: u64,
}

impl Ownership {
    /// The owner that a head names.
    pub(crate) fn of(head: &Head) -> Self {
        Self { session: head.session.clone(), token: head.token() }
    }

    /// The mirror as it is stored.
    pub fn to_value(&self) -> Value {
        let record = OwnerRecord { session: self.session.clone(), token: self.token.0 };
        encode(FORMAT, &record).into()
    }

    /// Reads a mirror as it was stored.
    pub fn from_value(value: &Value) -> Result<Self, RecordError> {
        let OwnerRecord { session, token } = decode(value.as_bytes(), FORMAT)?;
        Ok(Self { session, token: Token(token) })
    }
}

/// The claim of a shard.
pub fn shard_claim(shard: ShardId) -> Claim {
    let mirror = Key::new(format!("{OWNERS}{shard}")).expect("a short key");
    Claim::new(head_key(shard)).expect("a short key").of_format(SHARD_HEAD).mirrored(mirror)
}

/// The owners of all shards that ever had one, as their mirrors say. What cannot be read is left out: its
/// shard is asked for at its head, like one that never had an owner.
pub async fn owners(store: &Store) -> Result<BTreeMap<ShardId, Ownership>, ScanError> {
    let mut owners = BTreeMap::new();
    for entry in store.scan_all(Range::prefix(OWNERS)).await? {
        let Some(shard) = shard_of(&entry.key) else { continue };
        match Ownership::from_value(&entry.value) {
            Ok(owner) => {
                owners.insert(shard, owner);
            }
            Err(why) => tracing::debug!(%why, key = %entry.key, "an owner cannot be read"),
        }
    }
    Ok(owners)
}

/// Whether this is the mirror of a claim.
pub(crate) fn is_mirror(key: &Key) -> bool {
    key.as_str().starts_with(OWNERS)
}

fn shard_of(key: &Key) -> Option<ShardId> {
    let digits = key.as_str().strip_prefix(OWNERS)?;
    let shard = ShardId(digits.parse().ok()?);
    (shard.0 < SHARDS_MAX && shard.to_string() == digits).then_some(shard)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claim::ClaimState;
    use crate::fault::{Faulty, InjectedFault};
    use crate::memory::MemoryStore;
    use crate::session::NodeId;
    use crate::{Commit, CommitError};

    fn ownership(node: &str, token: u64) -> Ownership {
        let session = SessionKey::new(&NodeId::new(node).unwrap(), 0xab);
        Ownership { session: Some(session), token: Token(token) }
    }

    async fn put(store: &Store, key: &str, value: Value) {
        store.commit(Commit::new().put(Key::new(key).unwrap(), value)).await.unwrap();
    }

    #[test]
    fn an_owner_is_readable_text_and_reads_back() {
        let owner = ownership("web-1", 7);
        let free = Ownership { session: None, token: Token(8) };
        for (owner, text) in [
            (owner, r#"{"format":1,"session":"node/web-1/00000000000000ab","token":7}"#),
            (free, r#"{"format":1,"session":null,"token":8}"#),
        ] {
            assert_eq!(std::str::from_utf8(owner.to_value().as_bytes()).unwrap(), text);
            assert_eq!(Ownership::from_value(&text.into()), Ok(owner));
        }
    }

    #[tokio::test]
    async fn more_owners_than_a_page_are_all_read() {
        let store = Store::new(MemoryStore::new());
        for shard in 0..SHARDS_MAX {
            let owner = ownership("web-1", u64::from(shard)).to_value();
            put(&store, &format!("owner/{shard}"), owner).await;
        }
        let owners = owners(&store).await.unwrap();
        assert_eq!(owners.len(), usize::from(SHARDS_MAX));
        assert!(owners.iter().all(|(shard, owner)| owner.token == Token(u64::from(shard.0))));
    }

    #[tokio::test]
    async fn what_is_no_owner_of_a_shard_is_left_out() {
        let store = Store::new(MemoryStore::new());
        let owner = ownership("web-1", 7);
        put(&store, "owner/3", owner.to_value()).await;
        for key in ["owner/4096", "owner/03", "owner/+5", "owner/x", "owner/3/x", "owners/4"] {
            put(&store, key, owner.to_value()).await;
        }
        for (shard, rubbish) in [(5, "no record"), (6, r#"{"format":2,"owner":"another way"}"#)] {
            put(&store, &format!("owner/{shard}"), rubbish.into()).await;
        }
        assert_eq!(owners(&store).await.unwrap(), BTreeMap::from([(ShardId(3), owner)]));
    }

    /// A head that says that this owner has the shard.
    fn head(owner: &Ownership) -> Value {
        let head = Head {
            session: owner.session.clone(),
            token: owner.token.0,
            state: ClaimState::Held,
            ..Head::first()
        };
        head.to_value()
    }

    async fn said(store: &Store) -> Option<Ownership> {
        owners(store).await.unwrap().remove(&ShardId(3))
    }

    #[tokio::test]
    async fn a_mirror_that_is_gone_or_wrong_says_again_what_its_head_does() {
        let store = Store::new(MemoryStore::new());
        let claim = shard_claim(ShardId(3));
        assert_eq!(claim.mend_mirror(&store).await, Ok(false), "nobody ever had it");
        assert_eq!(said(&store).await, None);
        let owner = ownership("web-1", 7);
        put(&store, claim.key().as_str(), head(&owner)).await;
        for wrong in [None, Some("rubbish".into()), Some(ownership("web-2", 9).to_value())] {
            if let Some(wrong) = wrong {
                put(&store, "owner/3", wrong).await;
            }
            assert_eq!(claim.mend_mirror(&store).await, Ok(true));
            assert_eq!(said(&store).await, Some(owner.clone()));
        }
        assert_eq!(claim.mend_mirror(&store).await, Ok(false), "it is right");
    }

    /// Somebody takes the shard between the looks at mirror and head.
    #[tokio::test(start_paused = true)]
    async fn a_mirror_is_left_to_whoever_takes_the_shard_meanwhile() {
        let store = Store::new(MemoryStore::new());
        let claim = shard_claim(ShardId(3));
        put(&store, claim.key().as_str(), head(&ownership("web-1", 7))).await;
        put(&store, "owner/3", "rubbish".into()).await;
        let road = Faulty::new(&store);
        road.on_scans([InjectedFault::SlowAnswer(Duration::from_secs(2))]);
        let next = ownership("web-2", 9);
        let taking = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mirror = Key::new("owner/3").unwrap();
            let taken = Commit::new().put(claim.key().clone(), head(&next));
            store.commit(taken.put(mirror, next.to_value())).await.unwrap();
        };
        let slow = road.store();
        let (mended, ()) = tokio::join!(claim.mend_mirror(&slow), taking);
        assert!(matches!(mended, Ok(false) | Err(CommitError::Conflict(_))), "{mended:?}");
        assert_eq!(said(&store).await, Some(next));
    }
}

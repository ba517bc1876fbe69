//! What a session looks like in the store.

use std::fmt;
use std::time::Duration;

use engine::lease::{Nonce, Ttl};
use engine::limits::{NODE_ID_BYTES_MAX, UNABLE_SHARDS_MAX};
use engine::record::{Format, RecordError, decode, encode};
use serde::{Deserialize, Serialize};

use crate::{Key, Value};

/// Below this lie all sessions.
pub(crate) const SESSIONS: &str = "node/";

/// Says the longest T that any session ever had; never deleted. No node can be called this.
const LONGEST: &str = "node/~longest";

const FORMAT: Format = Format(1);

/// Who a node is, whatever its incarnation: 1 to 63 letters, digits, dots, dashes and underscores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(String);

/// Why a text names no node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a node id has 1 to {NODE_ID_BYTES_MAX} letters, digits, dots, dashes and underscores, and {0:?} is none"
)]
pub struct BadNodeId(String);

impl NodeId {
    /// Checks the text.
    pub fn new(text: impl Into<String>) -> Result<Self, BadNodeId> {
        let text = text.into();
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=NODE_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(known) {
            Ok(Self(text))
        } else {
            Err(BadNodeId(text))
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The key of one incarnation's session. Never used again: once it is absent it stays so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionKey {
    node: NodeId,
    key: Key,
}

impl SessionKey {
    /// The key of a node's incarnation.
    pub fn new(node: &NodeId, incarnation: u64) -> Self {
        Self::below(node, &format!("/{incarnation:016x}"))
    }

    /// The key of an incarnation that came through a server, for a project: no other session can have it.
    pub fn of_guest(node: &NodeId, project: &str, incarnation: u64) -> Self {
        Self::below(node, &format!("/{project}.{incarnation:016x}"))
    }

    /// The project for which it came through a server, if it did.
    pub fn guest(&self) -> Option<&str> {
        let (_, incarnation) = self.key.as_str().strip_prefix(SESSIONS)?.split_once('/')?;
        incarnation.rsplit_once('.').map(|(project, _)| project)
    }

    /// What a node without incarnations would be called.
    pub(crate) fn without_incarnation(node: &NodeId) -> Self {
        Self::below(node, "")
    }

    fn below(node: &NodeId, rest: &str) -> Self {
        let key = Key::new(format!("{SESSIONS}{node}{rest}"));
        Self { node: node.clone(), key: key.expect("ids and names are short and printable") }
    }

    /// The node that the session is of.
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    /// Where it is in the store.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl TryFrom<&Key> for SessionKey {
    type Error = BadNodeId;

    fn try_from(key: &Key) -> Result<Self, BadNodeId> {
        let bad = || BadNodeId(key.to_string());
        let rest = key.as_str().strip_prefix(SESSIONS).ok_or_else(bad)?;
        let node = rest.split_once('/').map_or(rest, |(node, _)| node);
        Ok(Self { node: NodeId::new(node)?, key: key.clone() })
    }
}

impl TryFrom<String> for SessionKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let key = Key::new(text).map_err(|why| why.to_string())?;
        Self::try_from(&key).map_err(|why| why.to_string())
    }
}

impl From<SessionKey> for String {
    fn from(key: SessionKey) -> Self {
        key.key.to_string()
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(out)
    }
}

/// What a node says about itself when it opens a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// The id of the node.
    pub id: NodeId,
    /// How long it may act after a renewal. Fixed for the incarnation.
    pub ttl: Ttl,
    /// Where others reach it, if they do.
    pub url: Option<String>,
    /// The roles of the node.
    pub roles: Vec<String>,
    /// The elections that it campaigns for, as [`crate::claim::Claim::candidacy`] calls them: others see who could succeed a
    /// holder.
    pub candidacies: Vec<String>,
}

/// A session's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The URL at which others reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The roles of the node.
    pub roles: Vec<String>,
    /// T, in milliseconds.
    pub ttl_ms: u64,
    /// How often it was written.
    pub beat: u64,
    /// Which attempt to renew this is.
    #[serde(with = "hex")]
    pub nonce: Nonce,
    /// The node's wall clock when this was sent: for people, and to tell clocks apart.
    pub wall_us: u64,
    /// The newest format of records that this node reads.
    pub reads: Format,
    /// Written by a process that held an exclusive store itself: dead when another opens it.
    pub local: bool,
    /// Not yet known to be the only one with its id: it takes no part so far.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joining: bool,
    /// The key that it was opened with, if it came through a server: nobody else may renew or use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// It hands over what it has, and takes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Shards that it cannot run; the first ones, if they are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unable: Vec<u16>,
    /// Which Watchbell it is: for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The elections that it campaigns for, `project/name`: nothing is decided by it but who may be handed one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidacies: Vec<String>,
}

/// What a node says about itself while its session lasts, and may take back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAvailability {
    /// It hands over what it has, and takes nothing.
    pub draining: bool,
    /// Shards that it cannot run. At most [`UNABLE_SHARDS_MAX`] of them are told.
    pub unable: Vec<u16>,
}

impl SessionRecord {
    /// T, if the record has one that makes sense.
    pub fn ttl(&self) -> Option<Ttl> {
        Ttl::new(Duration::from_millis(self.ttl_ms)).ok()
    }

    /// Whether it says that it campaigns for this election, `project/name`.
    pub fn campaigns_for(&self, candidacy: &str) -> bool {
        self.candidacies.iter().any(|one| one == candidacy)
    }

    /// Puts the node's status into the record, as far as it fits.
    pub(super) fn say(&mut self, about: &NodeAvailability) {
        self.draining = about.draining;
        self.unable = about.unable.iter().copied().take(UNABLE_SHARDS_MAX).collect();
    }

    /// The record as it is stored.
    pub fn to_value(&self) -> Value {
        encode(FORMAT, self).into()
    }

    /// Reads a record as it was stored.
    pub fn from_value(value: &Value) -> Result<Self, RecordError> {
        decode(value.as_bytes(), FORMAT)
    }
}

/// The longest T that any session ever had. A node that waits until nobody acts any more on what a store
/// has forgotten must know it, though the session that had it may be forgotten as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Longest {
    ttl_ms: u64,
}

impl Longest {
    pub(crate) fn new(ttl: Ttl) -> Self {
        Self { ttl_ms: millis(ttl) }
    }

    pub(crate) fn key() -> Key {
        Key::new(LONGEST).expect("a valid key")
    }

    pub(crate) fn ttl(self) -> Option<Ttl> {
        Ttl::new(Duration::from_millis(self.ttl_ms)).ok()
    }

    pub(crate) fn to_value(self) -> Value {
        encode(FORMAT, &self).into()
    }

    pub(crate) fn from_value(value: &Value) -> Result<Self, RecordError> {
        decode(value.as_bytes(), FORMAT)
    }
}

pub(crate) fn millis(ttl: Ttl) -> u64 {
    u64::try_from(ttl.length().as_millis()).expect("a lease ends some day")
}

/// Numbers of 64 bits as text: tools that read JSON keep only 53 of them.
pub(crate) mod hex {
    use engine::lease::Nonce;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    pub(crate) fn serialize<S: Serializer>(nonce: &Nonce, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&format_args!("{:016x}", nonce.0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nonce, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map(Nonce).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_id_is_taken_at_its_limits_and_refused_past_them() {
        for good in ["a", "web-1.eu_2", &"x".repeat(NODE_ID_BYTES_MAX)] {
            assert!(NodeId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a b", "ä", &"x".repeat(NODE_ID_BYTES_MAX + 1)] {
            assert_eq!(NodeId::new(bad), Err(BadNodeId(bad.into())));
        }
    }

    #[test]
    fn a_session_key_says_whose_it_is() {
        let key = SessionKey::new(&NodeId::new("web-1").unwrap(), 0xab);
        assert_eq!(key.to_string(), "node/web-1/00000000000000ab");
        let read = SessionKey::try_from(key.to_string()).unwrap();
        assert_eq!(read, key);
        assert_eq!(read.node().as_str(), "web-1");
        assert!(SessionKey::try_from("shard/3/head".to_owned()).is_err());
    }

    #[test]
    fn the_key_of_a_guest_names_its_project() {
        let node = NodeId::new("web-1.eu").unwrap();
        let guest = SessionKey::of_guest(&node, "shop.eu", 0xab);
        assert_eq!(guest.to_string(), "node/web-1.eu/shop.eu.00000000000000ab");
        let read = SessionKey::try_from(guest.to_string()).unwrap();
        assert_eq!((read.node(), read.guest()), (&node, Some("shop.eu")));
        assert_eq!(SessionKey::new(&node, 0xab).guest(), None, "dots of a node's id are its own");
    }

    const OLD: &str = r#"{"format":1,"roles":["schedule"],"ttl_ms":3000,"beat":7,"nonce":"ffffffffffffffff","wall_us":5,"reads":1,"local":true}"#;

    fn old() -> SessionRecord {
        SessionRecord {
            url: None,
            roles: vec!["schedule".into()],
            ttl_ms: 3_000,
            beat: 7,
            nonce: Nonce(u64::MAX),
            wall_us: 5,
            reads: FORMAT,
            local: true,
            joining: false,
            key: None,
            draining: false,
            unable: Vec::new(),
            version: String::new(),
            candidacies: Vec::new(),
        }
    }

    #[track_caller]
    fn check_text(record: &SessionRecord, expected: &str) {
        let value = record.to_value();
        assert_eq!(std::str::from_utf8(value.as_bytes()).unwrap(), expected);
        assert_eq!(SessionRecord::from_value(&value).as_ref(), Ok(record));
    }

    #[test]
    fn a_record_is_readable_text_and_reads_back() {
        check_text(&old(), OLD);
        let mut told = SessionRecord { version: "0.1.0".into(), ..old() };
        told.say(&NodeAvailability { draining: true, unable: vec![3, 4_095] });
        let told_text = OLD.strip_suffix('}').unwrap().to_owned()
            + r#","draining":true,"unable":[3,4095],"version":"0.1.0"}"#;
        check_text(&told, &told_text);
        let candidate = SessionRecord { candidacies: vec!["shop/nightly".into()], ..old() };
        let text =
            OLD.strip_suffix('}').unwrap().to_owned() + r#","candidacies":["shop/nightly"]}"#;
        check_text(&candidate, &text);
        assert!(candidate.campaigns_for("shop/nightly") && !candidate.campaigns_for("shop/night"));
    }

    #[test]
    fn what_a_newer_version_says_besides_is_passed_over() {
        let newer = OLD.replace(r#""beat""#, r#""mood":{"calm":true},"beat""#);
        assert_eq!(SessionRecord::from_value(&newer.into_bytes().into()), Ok(old()));
        let other_format = OLD.replace(r#""format":1"#, r#""format":2"#);
        assert!(SessionRecord::from_value(&other_format.into_bytes().into()).is_err());
    }

    #[test]
    fn as_many_shards_are_told_as_there_is_room_for() {
        let most = u16::try_from(UNABLE_SHARDS_MAX).unwrap();
        for (shards, told) in [(most, most), (most + 1, most)] {
            let mut record = old();
            record.say(&NodeAvailability { draining: false, unable: (0..shards).collect() });
            assert_eq!(record.unable, (0..told).collect::<Vec<_>>());
        }
    }
}

//! Where things of rings are in the store, and what rings are called.
//!
//! What every server reads again and again lies together, apart from what is large and read seldom:
//!
//!     ring/generation                                the last token of any subscription; moves whenever one is made or deleted
//!     ring/head/<project>/<ring>/ring                that there is a ring
//!     ring/head/<project>/<ring>/roll                moves whenever a member joins, leaves or is lost
//!     ring/head/<project>/<ring>/sweep               that there was one, and what is left of it has to go
//!     ring/head/<project>/<ring>/turn/<name>         how a subscription stands
//!     ring/member/<project>/<ring>/<member>          a member
//!     ring/page/<project>/<ring>/<name>/<generation>/<page>     entries that have left the record

use std::fmt;
use std::sync::Arc;

use engine::trigger::check_name;

use super::RingError;
use crate::{Key, Range};

/// Below this lies what is read often.
pub(super) const HEADS: &str = "ring/head/";

/// Below this lie all members.
pub(super) const MEMBERS: &str = "ring/member/";

/// A ring: a name in a project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingId {
    /// The name of the project.
    pub project: Arc<str>,
    /// The name of the ring.
    pub name: Arc<str>,
}

impl RingId {
    /// Checks the names.
    pub fn new(project: &str, name: &str) -> Result<Self, RingError> {
        let bad = |what: &'static str| move |why| RingError::BadName { what, why };
        check_name(project).map_err(bad("project"))?;
        check_name(name).map_err(bad("ring"))?;
        Ok(Self { project: project.into(), name: name.into() })
    }

    /// One of its subscriptions.
    pub fn subscription(&self, name: &str) -> Result<SubscriptionId, RingError> {
        let bad = |why| RingError::BadName { what: "subscription", why };
        check_name(name).map_err(bad)?;
        Ok(SubscriptionId { ring: self.clone(), name: name.into() })
    }

    pub(super) fn heads(&self) -> String {
        format!("{HEADS}{}/{}/", self.project, self.name)
    }

    pub(super) fn members(&self) -> String {
        format!("{MEMBERS}{}/{}/", self.project, self.name)
    }

    pub(super) fn pages(&self) -> String {
        format!("ring/page/{}/{}/", self.project, self.name)
    }

    pub(super) fn ring_key(&self) -> Key {
        key(format!("{}ring", self.heads()))
    }

    pub(super) fn roll_key(&self) -> Key {
        key(format!("{}roll", self.heads()))
    }

    pub(super) fn sweep_key(&self) -> Key {
        key(format!("{}sweep", self.heads()))
    }

    pub(super) fn member_key(&self, member: &str) -> Key {
        key(format!("{}{member}", self.members()))
    }
}

impl fmt::Display for RingId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

/// A subscription of a ring.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId {
    /// The ring.
    pub ring: RingId,
    /// The name of the subscription.
    pub name: Arc<str>,
}

impl SubscriptionId {
    pub(super) fn turn_key(&self) -> Key {
        key(format!("{}turn/{}", self.ring.heads(), self.name))
    }

    pub(super) fn page_key(&self, generation: u64, page: u64) -> Key {
        key(format!("{}{generation}/{page:010}", self.pages()))
    }

    pub(super) fn pages(&self) -> String {
        format!("{}{}/", self.ring.pages(), self.name)
    }
}

impl fmt::Display for SubscriptionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.ring.name, self.name)
    }
}

fn key(text: String) -> Key {
    Key::new(text).expect("names are short and printable")
}

/// Where the last token of any subscription is.
pub(super) fn generation_key() -> Key {
    key("ring/generation".to_owned())
}

/// What a key below [`HEADS`] is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    Ring,
    Roll,
    Sweep,
    Turn(Arc<str>),
}

/// The ring that a head is of, and what it is.
pub(super) fn read_head(key: &Key) -> Option<(RingId, Head)> {
    let mut parts = key.as_str().strip_prefix(HEADS)?.split('/');
    let ring = RingId { project: parts.next()?.into(), name: parts.next()?.into() };
    let head = match (parts.next()?, parts.next(), parts.next()) {
        ("ring", None, None) => Head::Ring,
        ("roll", None, None) => Head::Roll,
        ("sweep", None, None) => Head::Sweep,
        ("turn", Some(name), None) => Head::Turn(name.into()),
        _ => return None,
    };
    Some((ring, head))
}

/// The ring and the name of a member.
pub(super) fn read_member(key: &Key) -> Option<(RingId, &str)> {
    let mut parts = key.as_str().strip_prefix(MEMBERS)?.split('/');
    let ring = RingId { project: parts.next()?.into(), name: parts.next()?.into() };
    Some((ring, parts.next()?))
}

/// The heads of a project's rings whose names begin so.
pub(super) fn heads_of(project: &str, prefix: &str) -> Range {
    Range::prefix(&format!("{HEADS}{project}/{prefix}"))
}

/// The name of a member, checked.
pub(super) fn check_member(member: &str) -> Result<Arc<str>, RingError> {
    check_name(member).map_err(|why| RingError::BadName { what: "member", why })?;
    Ok(member.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_members_say_whose_they_are() {
        let ring = RingId::new("shop", "watch").unwrap();
        let main = ring.subscription("main").unwrap();
        let read = |key: Key| read_head(&key);
        assert_eq!(read(ring.ring_key()), Some((ring.clone(), Head::Ring)));
        assert_eq!(read(ring.roll_key()), Some((ring.clone(), Head::Roll)));
        assert_eq!(read(ring.sweep_key()), Some((ring.clone(), Head::Sweep)));
        assert_eq!(read(main.turn_key()), Some((ring.clone(), Head::Turn("main".into()))));
        assert_eq!(read(main.page_key(7, 3)), None);
        let member = ring.member_key("anna");
        assert_eq!(read_member(&member), Some((ring, "anna")));
    }

    #[test]
    fn the_longest_names_make_a_key() {
        let name = "n".repeat(engine::limits::NAME_CHARS_MAX);
        let main = RingId::new(&name, &name).unwrap().subscription(&name).unwrap();
        main.page_key(u64::MAX, u64::MAX);
        assert!(RingId::new("shop", "a/b").is_err() && main.ring.subscription("").is_err());
    }
}

//! Whom commands run as: their ids, and what their environment says of them.

use nix::unistd::{Gid, Group, Uid, User as Entry, getegid, geteuid};
use process::User;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name; its number, if it has none.
    pub name: String,
    /// Its id.
    pub uid: u32,
    /// The id of its group.
    pub gid: u32,
    /// Its home; `/` if it has none.
    pub home: String,
}

/// Why there is no such user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// Nobody is called so.
    #[error("there is no user {0} on this machine: name another, or a number")]
    Unknown(String),
    /// No group is called so.
    #[error("there is no group {0} on this machine: name another, or a number")]
    UnknownGroup(String),
}

impl Account {
    /// Whoever this process is.
    pub fn own() -> Self {
        Self::of_ids(geteuid().as_raw(), getegid().as_raw())
    }

    /// `USER` or `USER:GROUP`, each a name or a number.
    pub fn of(text: &str) -> Result<Self, AccountError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let unknown = || AccountError::Unknown(user.to_owned());
        let entry = match user.parse() {
            Ok(uid) => Entry::from_uid(Uid::from_raw(uid)).ok().flatten(),
            Err(_) => Some(Entry::from_name(user).ok().flatten().ok_or_else(unknown)?),
        };
        let gid = group.map(group_id).transpose()?;
        match (entry, user.parse()) {
            (Some(entry), _) => {
                let own = Self::of_entry(entry);
                Ok(Self { gid: gid.unwrap_or(own.gid), ..own })
            }
            // A number needs no name, as in containers.
            (None, Ok(uid)) => Ok(Self::nameless(uid, gid.unwrap_or(uid))),
            (None, Err(_)) => Err(unknown()),
        }
    }

    /// As it is asked of a process.
    pub fn user(&self) -> User {
        User { uid: self.uid, gid: self.gid }
    }

    fn of_ids(uid: u32, gid: u32) -> Self {
        match Entry::from_uid(Uid::from_raw(uid)) {
            Ok(Some(entry)) => Self { gid, ..Self::of_entry(entry) },
            Ok(None) | Err(_) => Self::nameless(uid, gid),
        }
    }

    fn of_entry(entry: Entry) -> Self {
        let (uid, gid) = (entry.uid.as_raw(), entry.gid.as_raw());
        Self { name: entry.name, uid, gid, home: entry.dir.to_string_lossy().into_owned() }
    }

    fn nameless(uid: u32, gid: u32) -> Self {
        Self { name: uid.to_string(), uid, gid, home: "/".to_owned() }
    }
}

fn group_id(text: &str) -> Result<u32, AccountError> {
    if let Ok(gid) = text.parse() {
        return Ok(gid);
    }
    let group = Group::from_name(text).ok().flatten();
    let gid: Option<Gid> = group.map(|group| group.gid);
    gid.map(Gid::as_raw).ok_or_else(|| AccountError::UnknownGroup(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let root = Account { name: "root".into(), uid: 0, gid: 0, home: "/root".into() };
        assert_eq!(Account::of("root"), Ok(root.clone()));
        assert_eq!(Account::of("0"), Ok(root.clone()));
        assert_eq!(Account::of("root:7"), Ok(Account { gid: 7, ..root.clone() }));
        assert_eq!(Account::of("7:root").map(|it| (it.uid, it.gid)), Ok((7, 0)));
        let nameless =
            Account { name: "4000000".into(), uid: 4_000_000, gid: 4_000_000, home: "/".into() };
        assert_eq!(Account::of("4000000"), Ok(nameless));
    }

    #[test]
    fn who_is_not_there_is_told() {
        assert_eq!(
            Account::of("nobody-at-all"),
            Err(AccountError::Unknown("nobody-at-all".into()))
        );
        assert_eq!(Account::of(""), Err(AccountError::Unknown(String::new())));
        let group = AccountError::UnknownGroup("no-group-at-all".into());
        assert_eq!(Account::of("root:no-group-at-all"), Err(group));
    }
}

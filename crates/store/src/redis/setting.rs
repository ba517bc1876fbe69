//! How a Redis is set up, as far as it says so, and what that is worth.
//!
//! `INFO` tells nearly all. Only how often the append-only file is synced has to be asked for by `CONFIG`, which managed services often keep to
//! themselves: then the class is B, and a fact says what could not be checked.

use std::collections::HashMap;

use crate::{Class, EngineFault};

use super::error::{ConnectError, ConnectResult};

/// The first version with everything that the scripts use, and with effects instead of scripts in its append-only file.
const OLDEST: (u32, u32) = (6, 2);

/// What one Redis said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisSettings {
    version: String,
    pub(super) epoch: String,
    pub(super) replicas: u64,
    policy: String,
    maxmemory: String,
    /// `maxmemory` in bytes; `None` if there is no bound.
    pub(super) room: Option<u64>,
    is_appending: bool,
    sync: Option<Sync>,
}

/// When the append-only file is synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sync {
    /// The setting `appendfsync`.
    pub(super) when: String,
    /// The setting `no-appendfsync-on-rewrite`.
    pub(super) pauses: bool,
}

impl RedisSettings {
    /// Reads what `INFO` says, and what `CONFIG` says if it was permitted; refuses what cannot hold a store.
    pub(super) fn read(info: &str, sync: Option<Sync>) -> ConnectResult<Self> {
        let fields: HashMap<&str, &str> =
            info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        let version = field("redis_version");
        if !is_recent(version) {
            let (major, minor) = OLDEST;
            let why =
                format!("it is version {version:?}, and a store needs {major}.{minor} or later");
            return Err(ConnectError::new(EngineFault::TooOld, why));
        }
        if field("cluster_enabled") == "1" {
            let why = "it is a node of a Redis Cluster, which moves keys about and fails over by itself; a store needs a Redis of its own";
            return Err(ConnectError::new(EngineFault::Unsafe, why));
        }
        if field("role") != "master" {
            return Err(ConnectError::new(EngineFault::ReadOnly, "it is a replica"));
        }
        let policy = field("maxmemory_policy");
        // What is called volatile drops only keys that expire, and ours do not.
        if policy.starts_with("allkeys") {
            let why = format!(
                "its maxmemory-policy is {policy}, which drops keys when memory is full; a store needs noeviction"
            );
            return Err(ConnectError::new(EngineFault::Unsafe, why));
        }
        let epoch = field("master_replid");
        if epoch.is_empty() {
            let why =
                "its INFO does not tell a master_replid, without which a fail-over goes unnoticed";
            return Err(ConnectError::new(EngineFault::TooOld, why));
        }
        Ok(Self {
            version: version.to_owned(),
            epoch: epoch.to_owned(),
            replicas: field("connected_slaves").parse().unwrap_or_default(),
            policy: policy.to_owned(),
            maxmemory: field("maxmemory_human").to_owned(),
            room: field("maxmemory").parse().ok().filter(|bytes| *bytes > 0),
            is_appending: field("aof_enabled") == "1",
            sync,
        })
    }

    /// What an acknowledgement is worth while no replica follows. With replicas it is B: they lag behind, and one may be promoted.
    pub(super) fn class_alone(&self) -> Class {
        let syncs = |sync: &Sync| sync.when == "always" && !sync.pauses;
        if self.is_appending && self.sync.as_ref().is_some_and(syncs) { Class::S } else { Class::B }
    }

    /// The facts that are shown to people.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let durability = match (&self.sync, self.is_appending) {
            (_, false) => "appendonly no: a crash loses what came after the last snapshot".to_owned(),
            (Some(sync), true) if sync.pauses => {
                format!("appendfsync {}, and not while the file is rewritten (no-appendfsync-on-rewrite yes)", sync.when)
            }
            (Some(sync), true) => format!("appendfsync {}", sync.when),
            (None, true) => {
                "not checked: CONFIG is not permitted, so appendfsync is unknown and taken for everysec".to_owned()
            }
        };
        let eviction = match self.policy.as_str() {
            "" => "not checked: INFO does not tell the maxmemory-policy".to_owned(),
            policy => format!("{policy}, maxmemory {}", self.maxmemory),
        };
        vec![("version", self.version.clone()), ("durability", durability), ("eviction", eviction)]
    }
}

/// An unreadable version is an old one.
fn is_recent(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let major = numbers.next().flatten();
    let minor = numbers.next().flatten();
    matches!((major, minor), (Some(major), Some(minor)) if (major, minor) >= OLDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(changes: &[(&str, &str)]) -> String {
        let mut fields = vec![
            ("redis_version", "7.0.15"),
            ("role", "master"),
            ("connected_slaves", "0"),
            ("master_replid", "abc"),
            ("maxmemory_policy", "noeviction"),
            ("maxmemory_human", "0B"),
            ("aof_enabled", "1"),
            ("cluster_enabled", "0"),
        ];
        for (name, value) in changes {
            fields.retain(|(other, _)| other != name);
            fields.push((name, value));
        }
        let lines: Vec<_> = fields.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        lines.join("\r\n")
    }

    fn sync(when: &str) -> Sync {
        Sync { when: when.into(), pauses: false }
    }

    #[track_caller]
    fn check_refused(changes: &[(&str, &str)], fault: EngineFault, said: &str) {
        let trouble = RedisSettings::read(&info(changes), None).unwrap_err();
        assert_eq!(trouble.fault, fault);
        assert!(trouble.why.contains(said), "{trouble}");
    }

    #[test]
    fn only_a_file_that_is_synced_before_every_answer_makes_class_s() {
        let class = |changes: &[(&str, &str)], sync| {
            RedisSettings::read(&info(changes), sync).unwrap().class_alone()
        };
        assert_eq!(class(&[], Some(sync("always"))), Class::S);
        assert_eq!(class(&[], Some(sync("everysec"))), Class::B);
        assert_eq!(class(&[], Some(sync("no"))), Class::B);
        assert_eq!(class(&[], None), Class::B, "what is not known is not promised");
        assert_eq!(class(&[("aof_enabled", "0")], Some(sync("always"))), Class::B);
        let pausing = Some(Sync { when: "always".into(), pauses: true });
        assert_eq!(class(&[], pausing), Class::B);
    }

    #[test]
    fn what_cannot_hold_a_store_is_refused_with_its_reason() {
        check_refused(&[("role", "slave")], EngineFault::ReadOnly, "replica");
        check_refused(&[("redis_version", "6.0.16")], EngineFault::TooOld, "6.2 or later");
        check_refused(&[("redis_version", "")], EngineFault::TooOld, "6.2 or later");
        check_refused(&[("master_replid", "")], EngineFault::TooOld, "master_replid");
        check_refused(&[("maxmemory_policy", "allkeys-lru")], EngineFault::Unsafe, "noeviction");
        check_refused(&[("cluster_enabled", "1")], EngineFault::Unsafe, "Redis Cluster");
        for taken in [[("redis_version", "6.2.0")], [("maxmemory_policy", "volatile-lru")]] {
            assert!(RedisSettings::read(&info(&taken), None).is_ok(), "{taken:?}");
        }
    }

    #[test]
    fn there_is_room_for_as_much_as_maxmemory_says_unless_that_is_nothing() {
        let room = |bytes| RedisSettings::read(&info(&[("maxmemory", bytes)]), None).unwrap().room;
        assert_eq!([room("0"), room(""), room("1048576")], [None, None, Some(1_048_576)]);
    }

    #[test]
    fn what_was_not_checked_is_said() {
        let facts = RedisSettings::read(&info(&[]), None).unwrap().facts();
        assert!(
            facts.iter().any(|(_, text)| text.contains("CONFIG is not permitted")),
            "{facts:?}"
        );
    }
}

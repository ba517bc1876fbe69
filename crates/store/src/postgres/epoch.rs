//! The epoch of a Postgres: which server gave an answer, and whether that answer counts.
//!
//! Every answer names the *incarnation* of the server that gave it. As long as that is the incarnation that was looked at
//! last, nothing more is asked. Any other server is looked at before its answer counts:
//!
//! - another database system, or a later timeline of this one (a standby was promoted, a backup restored), is a new epoch;
//! - where a crash may lose what was acknowledged, so is another incarnation of the same;
//! - an earlier timeline is a former primary that still answers. Its answers do not count.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio_postgres::{Client, Error};

use crate::{Class, Epoch};

/// Servers of former epochs that are remembered.
const FORMER_MAX: usize = 64;

/// A server as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PostgresServer {
    pub(super) incarnation: String,
    system: String,
    timeline: u32,
    pub(super) class: Class,
}

/// What Postgres says of itself that decides about its class.
struct Settings<'a> {
    fsync: &'a str,
    full_page_writes: &'a str,
    synchronous_commit: &'a str,
    synchronous_standby_names: &'a str,
    /// Whether somebody else might become the primary: a standby is attached, or the URL names several hosts.
    has_heir: bool,
}

impl Settings<'_> {
    fn class(&self) -> Class {
        let waits_for_disk =
            self.fsync == "on" && self.full_page_writes == "on" && self.synchronous_commit != "off";
        let waits_for_standby = matches!(self.synchronous_commit, "on" | "remote_apply")
            && !self.synchronous_standby_names.trim().is_empty();
        match (waits_for_disk, waits_for_standby, self.has_heir) {
            (false, ..) | (true, false, true) => Class::B,
            (true, true, _) => Class::A,
            (true, false, false) => Class::S,
        }
    }
}

impl PostgresServer {
    /// Asks the server. Physical replication only: whoever decodes changes never becomes the primary.
    pub(super) async fn look(client: &Client, schema: &str, hosts: usize) -> Result<Self, Error> {
        let query = format!(
            r#"SELECT "{schema}".incarnation(),
                (SELECT system_identifier::text FROM pg_control_system()),
                substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8),
                current_setting('fsync'), current_setting('full_page_writes'),
                current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
                EXISTS (SELECT FROM pg_stat_replication r WHERE NOT EXISTS (
                    SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'))"#
        );
        let row = client.query_typed_one(&query, &[]).await?;
        let text = |column: usize| row.get::<_, &str>(column);
        let settings = Settings {
            fsync: text(3),
            full_page_writes: text(4),
            synchronous_commit: text(5),
            synchronous_standby_names: text(6),
            has_heir: hosts > 1 || row.get::<_, bool>(7),
        };
        Ok(Self {
            incarnation: text(0).to_owned(),
            system: text(1).to_owned(),
            timeline: u32::from_str_radix(text(2), 16).unwrap_or_default(),
            class: settings.class(),
        })
    }

    /// The name of the epoch that begins with this server.
    fn epoch(&self) -> Epoch {
        let Self { incarnation, system, timeline, class } = self;
        Epoch(match class {
            Class::A | Class::S => format!("{system}.{timeline}"),
            Class::B => format!("{system}.{timeline}.{incarnation}"),
        })
    }

    /// Whether writes that `self` acknowledged may be missing on `next`. A change of class alone, as with every standby that
    /// comes and goes, loses nothing.
    fn is_left_by(&self, next: &Self) -> bool {
        let may_forget = self.class == Class::B || next.class == Class::B;
        let ((start, life), (next_start, next_life)) =
            (split_incarnation(&self.incarnation), split_incarnation(&next.incarnation));
        // A life is told only where commits do not wait for the disk; that somebody changed that setting loses nothing.
        let is_other_life = life.is_some() && next_life.is_some() && life != next_life;
        self.system != next.system
            || self.timeline != next.timeline
            || (may_forget && (start != next_start || is_other_life))
    }
}

/// The start of a server, and which life of its processes it is in, if that is told.
fn split_incarnation(incarnation: &str) -> (&str, Option<&str>) {
    incarnation.split_once('.').map_or((incarnation, None), |(start, life)| (start, Some(life)))
}

/// The present server, and what it has left behind.
#[derive(Debug)]
pub(super) struct PostgresEpochs(Mutex<KnownServers>);

#[derive(Debug)]
struct KnownServers {
    now: PostgresServer,
    epoch: Epoch,
    /// Starts of servers whose epochs were left.
    former: VecDeque<String>,
    /// Systems that were left.
    former_systems: VecDeque<String>,
}

/// Whether an answer of an incarnation counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IncarnationStatus {
    /// The answer counts.
    Present,
    /// The answer comes from an epoch that was left.
    Former,
    /// Nobody has looked at this server yet.
    Unseen,
}

/// What a look at a server has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EpochChange {
    /// The epoch is the same.
    None,
    /// A new epoch has begun.
    Begun,
    /// The server belongs to an epoch that was left.
    Former,
}

impl PostgresEpochs {
    pub(super) fn new(now: PostgresServer) -> Self {
        let (former, former_systems) = (VecDeque::new(), VecDeque::new());
        let epoch = now.epoch();
        Self(Mutex::new(KnownServers { now, epoch, former, former_systems }))
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.0.lock().epoch.clone()
    }

    pub(super) fn now(&self) -> PostgresServer {
        self.0.lock().now.clone()
    }

    pub(super) fn worth(&self, incarnation: &str) -> IncarnationStatus {
        let known = self.0.lock();
        if known.now.incarnation == incarnation {
            IncarnationStatus::Present
        } else if known.former.iter().any(|former| former == split_incarnation(incarnation).0) {
            IncarnationStatus::Former
        } else {
            IncarnationStatus::Unseen
        }
    }

    /// Takes note of a server as it was just looked at.
    pub(super) fn note(&self, seen: PostgresServer) -> EpochChange {
        let known = &mut *self.0.lock();
        let is_same = known.now.system == seen.system;
        if known.former.iter().any(|former| former == split_incarnation(&seen.incarnation).0)
            || (is_same && seen.timeline < known.now.timeline)
            || (!is_same && known.former_systems.contains(&seen.system))
        {
            push(&mut known.former, split_incarnation(&seen.incarnation).0.to_owned());
            return EpochChange::Former;
        }
        let left = std::mem::replace(&mut known.now, seen);
        if !left.is_left_by(&known.now) {
            return EpochChange::None;
        }
        let PostgresServer { incarnation, system, timeline, .. } = &known.now;
        known.epoch = Epoch(format!("{system}.{timeline}.{incarnation}"));
        let start = split_incarnation(&left.incarnation).0;
        if start != split_incarnation(&known.now.incarnation).0 {
            push(&mut known.former, start.to_owned());
        }
        if !is_same {
            push(&mut known.former_systems, left.system);
        }
        EpochChange::Begun
    }
}

fn push(list: &mut VecDeque<String>, item: String) {
    if list.contains(&item) {
        return;
    }
    if list.len() == FORMER_MAX {
        list.pop_front();
    }
    list.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(system: &str, timeline: u32, incarnation: &str, class: Class) -> PostgresServer {
        let (incarnation, system) = (incarnation.to_owned(), system.to_owned());
        PostgresServer { incarnation, system, timeline, class }
    }

    #[test]
    fn a_restart_is_a_new_epoch_only_where_a_crash_may_lose_something() {
        for (class, change) in [
            (Class::A, EpochChange::None),
            (Class::S, EpochChange::None),
            (Class::B, EpochChange::Begun),
        ] {
            let epochs = PostgresEpochs::new(server("s", 1, "one", class));
            assert_eq!(epochs.worth("one"), IncarnationStatus::Present);
            assert_eq!(epochs.worth("two"), IncarnationStatus::Unseen);
            assert_eq!(epochs.note(server("s", 1, "two", class)), change);
            assert_eq!(epochs.worth("two"), IncarnationStatus::Present);
        }
    }

    #[test]
    fn a_promotion_is_a_new_epoch_and_the_former_primary_is_none() {
        for class in [Class::A, Class::S, Class::B] {
            let epochs = PostgresEpochs::new(server("s", 1, "old", class));
            assert_eq!(epochs.note(server("s", 2, "new", class)), EpochChange::Begun);
            assert_eq!(epochs.worth("old"), IncarnationStatus::Former);
            assert_eq!(epochs.note(server("s", 1, "old", class)), EpochChange::Former);
            assert_eq!(epochs.note(server("s", 1, "old again", class)), EpochChange::Former);
            assert_eq!(epochs.worth("old again"), IncarnationStatus::Former);
            assert_eq!(epochs.now().timeline, 2);
        }
    }

    #[test]
    fn another_system_is_a_new_epoch_and_there_is_no_way_back() {
        let epochs = PostgresEpochs::new(server("s", 3, "one", Class::S));
        assert_eq!(epochs.note(server("t", 1, "two", Class::S)), EpochChange::Begun);
        assert_eq!(epochs.note(server("s", 3, "three", Class::S)), EpochChange::Former);
    }

    #[test]
    fn a_standby_that_comes_and_goes_begins_no_epoch() {
        let epochs = PostgresEpochs::new(server("s", 1, "one", Class::S));
        let epoch = epochs.epoch();
        for class in [Class::B, Class::S, Class::A, Class::B] {
            assert_eq!(epochs.note(server("s", 1, "one", class)), EpochChange::None);
            assert_eq!(
                (epochs.worth("one"), epochs.now().class),
                (IncarnationStatus::Present, class)
            );
        }
        assert_eq!(epochs.epoch(), epoch);
        assert_eq!(
            epochs.note(server("s", 1, "two", Class::S)),
            EpochChange::Begun,
            "it was worth B"
        );
        assert_ne!(epochs.epoch(), epoch);
    }

    #[test]
    fn who_stops_waiting_for_the_disk_and_begins_again_is_the_same_server() {
        let epochs = PostgresEpochs::new(server("s", 1, "7", Class::S));
        for (incarnation, class) in [("7.1", Class::B), ("7", Class::S), ("7.1", Class::B)] {
            assert_eq!(epochs.note(server("s", 1, incarnation, class)), EpochChange::None);
            assert_eq!(epochs.worth(incarnation), IncarnationStatus::Present);
        }
        assert_eq!(epochs.note(server("s", 1, "7.2", Class::B)), EpochChange::Begun, "a crash");
        assert_eq!(epochs.worth("7.2"), IncarnationStatus::Present);
    }

    #[test]
    fn a_class_follows_from_the_settings() {
        let class = |fsync, pages, commit, names, has_heir| {
            Settings {
                fsync,
                full_page_writes: pages,
                synchronous_commit: commit,
                synchronous_standby_names: names,
                has_heir,
            }
            .class()
        };
        assert_eq!(class("on", "on", "on", "", false), Class::S);
        assert_eq!(class("on", "on", "local", "", false), Class::S);
        assert_eq!(class("on", "on", "on", "", true), Class::B);
        assert_eq!(class("on", "on", "on", "ANY 1 (a, b)", true), Class::A);
        assert_eq!(class("on", "on", "remote_apply", "*", true), Class::A);
        assert_eq!(class("on", "on", "remote_write", "*", true), Class::B);
        assert_eq!(class("on", "on", "local", "*", true), Class::B);
        for (fsync, pages, commit) in
            [("off", "on", "on"), ("on", "off", "on"), ("on", "on", "off")]
        {
            assert_eq!(class(fsync, pages, commit, "", false), Class::B);
            assert_eq!(class(fsync, pages, commit, "*", true), Class::B);
        }
    }
}

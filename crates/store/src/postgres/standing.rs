//! What answers stand on: which server, in which epoch, and what its word is worth.
//!
//! Every answer names the *incarnation* of the server that gave it. As long as it is the one that was looked at last, nothing
//! more is asked. Another one is looked at before its answer counts:
//!
//! - another database system, or a later timeline of this one (a standby was promoted, a backup restored), is a new epoch;
//! - where a crash may lose what was acknowledged, so is another incarnation of the same;
//! - an earlier timeline is a former primary that still answers. Its answers are none.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_postgres::{Client, Error};

use crate::{Class, Epoch};

/// Servers of former epochs that are remembered.
const FORMER_MAX: usize = 64;

/// A server as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
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

impl Standing {
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

    /// The name of the epoch that begins with it.
    fn epoch(&self) -> Epoch {
        let Self { incarnation, system, timeline, class } = self;
        Epoch(match class {
            Class::A | Class::S => format!("{system}.{timeline}"),
            Class::B => format!("{system}.{timeline}.{incarnation}"),
        })
    }

    /// Whether what `self` acknowledged may be missing in what follows it. What its word is worth may change meanwhile, as
    /// it does with every standby that comes and goes: that alone loses nothing.
    fn is_left_by(&self, next: &Self) -> bool {
        let may_forget = self.class == Class::B || next.class == Class::B;
        let ((start, life), (next_start, next_life)) =
            (parts(&self.incarnation), parts(&next.incarnation));
        // A life is told only where commits do not wait for the disk; that somebody changed that setting loses nothing.
        let is_other_life = life.is_some() && next_life.is_some() && life != next_life;
        self.system != next.system
            || self.timeline != next.timeline
            || (may_forget && (start != next_start || is_other_life))
    }
}

/// The start of a server, and which life of its processes it is in, if that is told.
fn parts(incarnation: &str) -> (&str, Option<&str>) {
    incarnation.split_once('.').map_or((incarnation, None), |(start, life)| (start, Some(life)))
}

/// The present standing, and what it has left behind.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<Page>);

#[derive(Debug)]
struct Page {
    now: Standing,
    epoch: Epoch,
    /// Starts of servers whose epochs were left.
    former: VecDeque<String>,
    /// Systems that were left.
    former_systems: VecDeque<String>,
}

/// What an answer is worth.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// It counts.
    Present,
    /// It comes from an epoch that was left.
    Former,
    /// Nobody has looked at this server yet.
    Unseen,
}

/// What a look has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing new.
    None,
    /// A new epoch.
    Epoch,
    /// The server belongs to an epoch that was left.
    Former,
}

impl Ledger {
    pub(super) fn new(now: Standing) -> Self {
        let (former, former_systems) = (VecDeque::new(), VecDeque::new());
        let epoch = now.epoch();
        Self(Mutex::new(Page { now, epoch, former, former_systems }))
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.lock().epoch.clone()
    }

    pub(super) fn now(&self) -> Standing {
        self.lock().now.clone()
    }

    pub(super) fn worth(&self, incarnation: &str) -> Worth {
        let page = self.lock();
        if page.now.incarnation == incarnation {
            Worth::Present
        } else if page.former.iter().any(|former| former == parts(incarnation).0) {
            Worth::Former
        } else {
            Worth::Unseen
        }
    }

    /// Takes note of a look at a server.
    pub(super) fn note(&self, seen: Standing) -> Turn {
        let page = &mut *self.lock();
        let is_same = page.now.system == seen.system;
        if page.former.iter().any(|former| former == parts(&seen.incarnation).0)
            || (is_same && seen.timeline < page.now.timeline)
            || (!is_same && page.former_systems.contains(&seen.system))
        {
            push(&mut page.former, parts(&seen.incarnation).0.to_owned());
            return Turn::Former;
        }
        let left = std::mem::replace(&mut page.now, seen);
        if !left.is_left_by(&page.now) {
            return Turn::None;
        }
        let Standing { incarnation, system, timeline, .. } = &page.now;
        page.epoch = Epoch(format!("{system}.{timeline}.{incarnation}"));
        let start = parts(&left.incarnation).0;
        if start != parts(&page.now.incarnation).0 {
            push(&mut page.former, start.to_owned());
        }
        if !is_same {
            push(&mut page.former_systems, left.system);
        }
        Turn::Epoch
    }

    fn lock(&self) -> MutexGuard<'_, Page> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn standing(system: &str, timeline: u32, incarnation: &str, class: Class) -> Standing {
        let (incarnation, system) = (incarnation.to_owned(), system.to_owned());
        Standing { incarnation, system, timeline, class }
    }

    #[test]
    fn a_restart_is_a_new_epoch_only_where_a_crash_may_lose_something() {
        for (class, turn) in
            [(Class::A, Turn::None), (Class::S, Turn::None), (Class::B, Turn::Epoch)]
        {
            let ledger = Ledger::new(standing("s", 1, "one", class));
            assert_eq!(ledger.worth("one"), Worth::Present);
            assert_eq!(ledger.worth("two"), Worth::Unseen);
            assert_eq!(ledger.note(standing("s", 1, "two", class)), turn);
            assert_eq!(ledger.worth("two"), Worth::Present);
        }
    }

    #[test]
    fn a_promotion_is_a_new_epoch_and_the_former_primary_is_none() {
        for class in [Class::A, Class::S, Class::B] {
            let ledger = Ledger::new(standing("s", 1, "old", class));
            assert_eq!(ledger.note(standing("s", 2, "new", class)), Turn::Epoch);
            assert_eq!(ledger.worth("old"), Worth::Former);
            assert_eq!(ledger.note(standing("s", 1, "old", class)), Turn::Former);
            assert_eq!(ledger.note(standing("s", 1, "old again", class)), Turn::Former);
            assert_eq!(ledger.worth("old again"), Worth::Former);
            assert_eq!(ledger.now().timeline, 2);
        }
    }

    #[test]
    fn another_system_is_a_new_epoch_and_there_is_no_way_back() {
        let ledger = Ledger::new(standing("s", 3, "one", Class::S));
        assert_eq!(ledger.note(standing("t", 1, "two", Class::S)), Turn::Epoch);
        assert_eq!(ledger.note(standing("s", 3, "three", Class::S)), Turn::Former);
    }

    #[test]
    fn a_standby_that_comes_and_goes_begins_no_epoch() {
        let ledger = Ledger::new(standing("s", 1, "one", Class::S));
        let epoch = ledger.epoch();
        for class in [Class::B, Class::S, Class::A, Class::B] {
            assert_eq!(ledger.note(standing("s", 1, "one", class)), Turn::None);
            assert_eq!((ledger.worth("one"), ledger.now().class), (Worth::Present, class));
        }
        assert_eq!(ledger.epoch(), epoch);
        assert_eq!(ledger.note(standing("s", 1, "two", Class::S)), Turn::Epoch, "it was worth B");
        assert_ne!(ledger.epoch(), epoch);
    }

    #[test]
    fn who_stops_waiting_for_the_disk_and_begins_again_is_the_same_server() {
        let ledger = Ledger::new(standing("s", 1, "7", Class::S));
        for (incarnation, class) in [("7.1", Class::B), ("7", Class::S), ("7.1", Class::B)] {
            assert_eq!(ledger.note(standing("s", 1, incarnation, class)), Turn::None);
            assert_eq!(ledger.worth(incarnation), Worth::Present);
        }
        assert_eq!(ledger.note(standing("s", 1, "7.2", Class::B)), Turn::Epoch, "a crash");
        assert_eq!(ledger.worth("7.2"), Worth::Present);
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

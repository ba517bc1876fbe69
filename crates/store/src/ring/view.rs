//! How rings stand, read from the store: for people, at any server.

use std::sync::Arc;

use engine::instant::Instant;
use engine::limits::{PAGE_ENTRIES_MAX, RING_PAGE_ENTRIES};
use engine::ring::member::{MemberRecord, Visit};
use engine::ring::{NumberedEntry, OpenPart, SubscriptionDraft, TurnRecord, turn};

use super::key::{self, Head, heads_of, read_head};
use super::state::{RingRecord, from_value};
use super::{Cursor, RingError, RingEvent, RingEventKind, RingId, SubscriptionId};
use crate::{Key, Range, Store, Value};

/// A ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingView {
    /// Which.
    pub ring: RingId,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// Its subscriptions, by name.
    pub subscriptions: Vec<SubscriptionView>,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionView {
    /// Its name.
    pub name: Arc<str>,
    /// What a person wrote.
    pub draft: Arc<SubscriptionDraft>,
    /// Tells it from others that had its name.
    pub generation: u64,
    /// How often it was changed, from 1.
    pub revision: u64,
    /// The number of its last entry.
    pub number: u64,
    /// Who was served last; empty before the first turn.
    pub position: Arc<str>,
    /// Slots up to here are decided.
    pub decided: Instant,
    /// The next slot; none while the ring is empty, and that was recorded.
    pub next: Option<Instant>,
    /// The session that wrote it last.
    pub writer: Arc<str>,
    /// Parts that wait to be accepted.
    pub open: Vec<OpenPart>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub name: Arc<str>,
    /// Its visit.
    pub visit: Visit,
    /// The session that vouches for it.
    pub session: String,
    /// Whether that is its own.
    pub own: bool,
    /// Since when that one does, in milliseconds since 1970.
    pub since_ms: i64,
}

/// Entries of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntriesPage {
    /// In order; the first is a gap, if some are not kept any more.
    pub events: Vec<Arc<RingEvent>>,
    /// What to go on after.
    pub next: Cursor,
    /// Whether there are more already.
    pub has_more: bool,
}

impl SubscriptionView {
    fn of(id: &SubscriptionId, record: TurnRecord) -> Self {
        let config = record.draft.build(&id.ring.name, &id.name, Instant(0));
        let next = config.ok().filter(|_| !record.idle);
        Self {
            name: Arc::clone(&id.name),
            next: next.and_then(|config| turn::next_due(&record, &config)),
            draft: record.draft,
            generation: record.generation,
            revision: record.revision,
            number: record.number,
            position: record.position,
            decided: record.decided,
            writer: record.writer,
            open: record.open,
        }
    }
}

/// Reads a record, or says that it is damaged.
pub(super) fn read<T: serde::de::DeserializeOwned>(
    key: &Key,
    value: &Value,
) -> Result<T, RingError> {
    from_value(value).map_err(|why| RingError::Corrupt(format!("{key}: {why}")))
}

/// Up to so many rings of a project whose names begin so, in the order of their names, after this one.
pub async fn list(
    store: &Store,
    project: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<RingView>, RingError> {
    let mut range = heads_of(project, prefix);
    if let Some(after) = after {
        let after = RingId::new(project, after)?;
        // Behind all that begins with its name and a slash.
        let last = Key::new(format!("{}~", after.heads()));
        range = range.after(&last?);
    }
    let (mut rings, mut pages) = (Vec::<RingView>::new(), store.pages(range, 200));
    while let Some(entries) = pages.next().await? {
        for entry in entries {
            let Some((ring, head)) = read_head(&entry.key) else { continue };
            match head {
                Head::Ring => {
                    if rings.len() == limit {
                        return Ok(rings);
                    }
                    let record: RingRecord = read(&entry.key, &entry.value)?;
                    let created_ms = record.at_ms;
                    rings.push(RingView { ring, created_ms, subscriptions: Vec::new() });
                }
                Head::Turn(name) => {
                    // The key of a ring comes before those of its subscriptions.
                    let Some(last) = rings.last_mut().filter(|last| last.ring == ring) else {
                        continue;
                    };
                    let id = SubscriptionId { ring, name };
                    let record = read(&entry.key, &entry.value)?;
                    last.subscriptions.push(SubscriptionView::of(&id, record));
                }
                Head::Roll | Head::Sweep => {}
            }
        }
    }
    Ok(rings)
}

/// A ring with its subscriptions.
pub async fn ring(store: &Store, id: &RingId) -> Result<RingView, RingError> {
    let mut found = None;
    for entry in store.scan_all(Range::prefix(&id.heads())).await? {
        match (read_head(&entry.key), &mut found) {
            (Some((_, Head::Ring)), _) => {
                let record: RingRecord = read(&entry.key, &entry.value)?;
                let created_ms = record.at_ms;
                found = Some(RingView { ring: id.clone(), created_ms, subscriptions: Vec::new() });
            }
            (Some((ring, Head::Turn(name))), Some(view)) => {
                let record = read(&entry.key, &entry.value)?;
                view.subscriptions
                    .push(SubscriptionView::of(&SubscriptionId { ring, name }, record));
            }
            _ => {}
        }
    }
    found.ok_or_else(|| RingError::NoRing(id.clone()))
}

/// A subscription.
pub async fn subscription(
    store: &Store,
    id: &SubscriptionId,
) -> Result<SubscriptionView, RingError> {
    Ok(SubscriptionView::of(id, turn_record(store, id).await?))
}

pub(super) async fn turn_record(
    store: &Store,
    id: &SubscriptionId,
) -> Result<TurnRecord, RingError> {
    match store.get(&id.turn_key()).await? {
        Some(entry) => read(&entry.key, &entry.value),
        None if store.get(&id.ring.ring_key()).await?.is_some() => {
            Err(RingError::NoSubscription(id.clone()))
        }
        None => Err(RingError::NoRing(id.ring.clone())),
    }
}

/// How many members a ring has.
pub async fn count_members(store: &Store, id: &RingId) -> Result<usize, RingError> {
    let (mut count, mut pages) = (0, store.pages(Range::prefix(&id.members()), PAGE_ENTRIES_MAX));
    while let Some(entries) = pages.next().await? {
        for entry in entries {
            let record: MemberRecord = read(&entry.key, &entry.value)?;
            count += usize::from(record.session.is_some());
        }
    }
    Ok(count)
}

/// Up to so many members of a ring whose names begin so, in the order of their names, after this one.
pub async fn members(
    store: &Store,
    id: &RingId,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<MemberView>, RingError> {
    if store.get(&id.ring_key()).await?.is_none() {
        return Err(RingError::NoRing(id.clone()));
    }
    let mut range = Range::prefix(&format!("{}{prefix}", id.members()));
    if let Some(after) = after {
        range = range.after(&id.member_key(&key::check_member(after)?));
    }
    let (mut members, mut pages) = (Vec::new(), store.pages(range, PAGE_ENTRIES_MAX));
    while let Some(entries) = pages.next().await? {
        for entry in entries {
            let Some((_, name)) = key::read_member(&entry.key) else { continue };
            let record: MemberRecord = read(&entry.key, &entry.value)?;
            let Some(session) = record.session else { continue };
            if members.len() == limit {
                return Ok(members);
            }
            let MemberRecord { own, visit, since_ms, .. } = record;
            members.push(MemberView { name: name.into(), visit, session, own, since_ms });
        }
    }
    Ok(members)
}

/// Up to so many entries of a subscription after this cursor; without one, the last ones. A turn comes with everything but
/// who accepted it, which is an entry of its own.
pub async fn entries(
    store: &Store,
    id: &SubscriptionId,
    after: Option<Cursor>,
    limit: usize,
) -> Result<EntriesPage, RingError> {
    let record = turn_record(store, id).await?;
    let config = record.draft.build(&id.ring.name, &id.name, Instant(0));
    let config = config.map_err(RingError::Bad)?;
    let number = match after {
        Some(cursor) if cursor.generation == record.generation => cursor.number,
        Some(_) => 0,
        None => record.number.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX)),
    };
    let Kept { entries, gap } = kept_after(store, id, &record, number).await?;
    let mut events = Vec::new();
    if let Some((from, to)) = gap.filter(|_| after.is_some()) {
        events.push(RingEvent::of(RingEventKind::Gap { from, to }));
    }
    let generation = record.generation;
    let mut next = Cursor { generation, number };
    for entry in entries.iter().take(limit) {
        next.number = entry.number();
        events.push(RingEvent::of_entry(&record, &config, entry));
    }
    Ok(EntriesPage { events, next, has_more: entries.len() > limit })
}

/// Entries after a number, and the numbers of those that are not kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) entries: Vec<Arc<NumberedEntry>>,
    pub(super) gap: Option<(u64, u64)>,
}

/// The entries of a record after this number, from its pages as far as they are kept.
pub(super) async fn kept_after(
    store: &Store,
    id: &SubscriptionId,
    record: &TurnRecord,
    number: u64,
) -> Result<Kept, RingError> {
    let mut pages = vec![record.page.clone()];
    let (mut first, mut page) = (record.first_in_page(), record.page_number);
    while first > number + 1 && page > record.oldest_page() {
        page -= 1;
        let Some(entry) = store.get(&id.page_key(record.generation, page)).await? else { break };
        let PageRecord { entries } = read(&entry.key, &entry.value)?;
        let Some(entry) = entries.first() else { break };
        first = entry.number();
        pages.push(entries);
    }
    let entries = pages.into_iter().rev().flatten().filter(|entry| entry.number() > number);
    let mut kept = Vec::with_capacity(RING_PAGE_ENTRIES);
    kept.extend(entries);
    let gap = (first > number + 1).then(|| (number + 1, first - 1));
    Ok(Kept { entries: kept, gap })
}

/// A page that has left its record.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct PageRecord {
    pub(super) entries: Vec<Arc<NumberedEntry>>,
}

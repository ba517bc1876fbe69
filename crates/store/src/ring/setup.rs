//! Rings and subscriptions come and go: straight to the store, by whoever is asked.
//!
//! A ring is there as long as its first record is. Deleting it takes that away, and its roll, so that neither a turn nor a join
//! lands from then on; what else it had goes in pieces, by any server, and until all of it is gone the name cannot be used again.
//! A subscription is told from others of its name by its generation, which is greater than every token that was ever given.

use std::sync::Arc;

use engine::instant::Instant;
use engine::limits::{RING_ROOM_BYTES, RING_SUBSCRIPTIONS_MAX, RINGS_PER_PROJECT_MAX};
use engine::ring::{MAIN, SubscriptionDraft, TurnRecord};
use engine::trigger::BadField;

use super::call::{Call, Change};
use super::key::{Head, generation_key, read_head};
use super::state::{GenerationRecord, RingRecord, from_value, to_value};
use super::view::{read, turn_record};
use super::{Expected, Put, RingError, RingId, Rings, SubscriptionId, noted};
use crate::machine::within;
use crate::session::Session;
use crate::{Commit, CommitError, Condition, Entry, Key, Range, Store, Version};

/// How often something is tried anew when others change something at the same time.
const TRIES_MAX: usize = 50;

/// The present, by the machine's wall clock.
pub(super) fn now(session: &Session) -> Instant {
    Instant(i64::try_from(session.machine().wall_us() / 1_000).expect("a thousandth fits"))
}

fn bad(fields: Vec<BadField>) -> RingError {
    RingError::Bad(fields)
}

/// A generation that nobody has: with the condition under which it is one, and what is to be written with it.
struct Drawn {
    generation: u64,
    unmoved: Condition,
    record: GenerationRecord,
}

async fn draw(session: &Session) -> Result<Drawn, RingError> {
    let found = session.store().get(&generation_key()).await?;
    let last = found.as_ref().map(|entry| read::<GenerationRecord>(&entry.key, &entry.value));
    let last = last.transpose()?.map_or(0, |record| record.last);
    let generation = session.machine().wall_us().max(last + 1);
    Ok(Drawn {
        generation,
        unmoved: unmoved(generation_key(), found.as_ref()),
        record: GenerationRecord { last: generation },
    })
}

/// That a key is as it was read.
pub(super) fn unmoved(key: Key, found: Option<&Entry>) -> Condition {
    at(key, found.map(|entry| entry.version))
}

/// That a key is at this version, or absent.
pub(super) fn at(key: Key, version: Option<Version>) -> Condition {
    match version {
        Some(version) => Condition::At(key, version),
        None => Condition::Absent(key),
    }
}

/// Sends a commit, and waits for its answer for as long as an answer is waited for.
async fn send(session: &Session, commit: Commit) -> Result<Version, CommitError> {
    let answer = session.store().commit(commit);
    let answer = within(session.machine(), session.ttl().timeout(), answer).await;
    answer.unwrap_or_else(|| Err(CommitError::Unknown("the store did not answer in time".into())))
}

/// How many rings a project may have in this store.
pub(super) fn rings_max(store: &Store) -> usize {
    let by_room = store.room().map(|room| room / RING_ROOM_BYTES);
    let by_room = by_room.and_then(|rings| usize::try_from(rings).ok());
    by_room.unwrap_or(RINGS_PER_PROJECT_MAX).clamp(16, RINGS_PER_PROJECT_MAX)
}

pub(super) async fn create(
    rings: &Rings,
    ring: &RingId,
    draft: &SubscriptionDraft,
) -> Result<(), RingError> {
    let session = &rings.session;
    let (now, most) = (now(session), rings_max(session.store()));
    draft.build(&ring.name, MAIN, now).map_err(bad)?;
    if rings.stats.borrow().rings_of(&ring.project) >= most {
        let project = &ring.project;
        let why = format!(
            "the project {project} has {most} rings, which is as many as this store has room for: delete some"
        );
        return Err(RingError::Limit(why));
    }
    let main = ring.subscription(MAIN)?;
    for _ in 0..TRIES_MAX {
        let drawn = draw(session).await?;
        let writer = session.key().to_string();
        let mut record = TurnRecord::new(draft.clone(), drawn.generation, &writer, now);
        record.epoch = session.store().epoch().0.into();
        let about = RingRecord { at_ms: now.0 };
        let commit = Commit::new()
            .when(Condition::Absent(ring.ring_key()))
            .when(Condition::Absent(ring.sweep_key()))
            .when(drawn.unmoved)
            .put(ring.ring_key(), to_value(&about))
            .put(ring.roll_key(), to_value(&about))
            .put(generation_key(), to_value(&drawn.record))
            .put(main.turn_key(), to_value(&record));
        match send(session, noted(commit, &rings.note)).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict(why)) if *why.condition.key() == ring.ring_key() => {
                return Err(RingError::RingExists(ring.clone()));
            }
            Err(CommitError::Conflict(why)) if *why.condition.key() == ring.sweep_key() => {
                return Err(RingError::BeingDeleted(ring.clone()));
            }
            Err(CommitError::Conflict(_)) => {}
            Err(CommitError::Unknown(why)) => {
                let found = turn_record(session.store(), &main).await;
                return match found {
                    Ok(found) if found.generation == drawn.generation => Ok(()),
                    Ok(_) => Err(RingError::RingExists(ring.clone())),
                    Err(_) => Err(RingError::Unknown(why)),
                };
            }
            Err(why) => return Err(why.into()),
        }
    }
    Err(crowded())
}

fn crowded() -> RingError {
    RingError::Unavailable("others changed the same again and again".to_owned())
}

pub(super) async fn delete(rings: &Rings, ring: &RingId) -> Result<(), RingError> {
    let session = &rings.session;
    let Some(found) = session.store().get(&ring.ring_key()).await? else {
        return Err(RingError::NoRing(ring.clone()));
    };
    let about = RingRecord { at_ms: now(session).0 };
    let commit = Commit::new()
        .when(Condition::At(ring.ring_key(), found.version))
        .delete(ring.ring_key())
        .delete(ring.roll_key())
        .put(ring.sweep_key(), to_value(&about));
    match send(session, noted(commit, &rings.note)).await {
        Ok(_) => Ok(()),
        // Nobody writes it but who deletes it.
        Err(CommitError::Conflict(_)) => Err(RingError::NoRing(ring.clone())),
        Err(why) => Err(why.into()),
    }
}

/// Clears away what is left of a ring that was deleted. Whatever lands late does so only while it is still to be cleared away.
pub(super) async fn sweep(session: &Session, ring: &RingId) -> Result<(), RingError> {
    let store = session.store();
    let still = || Condition::Present(ring.sweep_key());
    let heads = store.scan_all(Range::prefix(&ring.heads())).await?;
    let turns: Vec<&Entry> =
        heads.iter().filter(|e| matches!(read_head(&e.key), Some((_, Head::Turn(_))))).collect();
    let tokens = turns.iter().filter_map(|turn| from_value::<TurnRecord>(&turn.value).ok());
    if let Some(last) = tokens.map(|record| record.last_token()).max() {
        raise_generation(session, last, &still()).await?;
    }
    let piece = store.limits().writes.min(64);
    let turns: Vec<Key> = turns.iter().map(|turn| turn.key.clone()).collect();
    delete_all(session, &turns, piece, &still()).await?;
    for prefix in [ring.members(), ring.pages()] {
        delete_below(session, &prefix, piece, &still()).await?;
    }
    let last = Commit::new().when(still()).delete(ring.sweep_key());
    match send(session, last).await {
        Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

async fn delete_all(
    session: &Session,
    keys: &[Key],
    piece: usize,
    when: &Condition,
) -> Result<(), RingError> {
    for keys in keys.chunks(piece) {
        let commit = Commit::new().when(when.clone());
        let commit = keys.iter().fold(commit, |commit, key| commit.delete(key.clone()));
        send(session, commit).await?;
    }
    Ok(())
}

pub(super) async fn delete_below(
    session: &Session,
    prefix: &str,
    piece: usize,
    when: &Condition,
) -> Result<(), RingError> {
    loop {
        let page = session.store().scan(Range::prefix(prefix), piece).await?;
        let keys: Vec<Key> = page.entries.into_iter().map(|entry| entry.key).collect();
        if keys.is_empty() {
            return Ok(());
        }
        delete_all(session, &keys, piece, when).await?;
    }
}

/// Sees to it that the next generation is greater than this token.
async fn raise_generation(session: &Session, last: u64, when: &Condition) -> Result<(), RingError> {
    for _ in 0..TRIES_MAX {
        let drawn = draw(session).await?;
        let record = GenerationRecord { last: drawn.record.last.max(last) };
        let commit = Commit::new()
            .when(when.clone())
            .when(drawn.unmoved)
            .put(generation_key(), to_value(&record));
        match send(session, commit).await {
            Ok(_) => return Ok(()),
            Err(CommitError::Conflict(why)) if why.condition.key() == &generation_key() => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err(crowded())
}

pub(super) async fn put(
    rings: &Rings,
    id: &SubscriptionId,
    draft: &SubscriptionDraft,
    expected: Expected,
) -> Result<Put, RingError> {
    let session = &rings.session;
    let (store, now) = (session.store(), now(session));
    let config = draft.build(&id.ring.name, &id.name, now).map_err(bad)?;
    for _ in 0..TRIES_MAX {
        let heads = store.scan_all(Range::prefix(&id.ring.heads())).await?;
        let is =
            |entry: &&Entry, head: &Head| read_head(&entry.key).is_some_and(|(_, h)| h == *head);
        if !heads.iter().any(|entry| is(&entry, &Head::Ring)) {
            return Err(RingError::NoRing(id.ring.clone()));
        }
        if heads.iter().any(|entry| entry.key == id.turn_key()) {
            let note = Arc::clone(&rings.note);
            let change = Change { draft: draft.clone(), config, expected, note };
            let (change, subscription) = (Box::new(change), id.clone());
            return rings.call(|answer| Call::Change { subscription, change, answer }).await;
        }
        if matches!(expected, Expected::Revision { .. }) {
            return Err(RingError::NoSubscription(id.clone()));
        }
        let turns = heads.iter().filter_map(|entry| read_head(&entry.key));
        let turns = turns.filter(|(_, head)| matches!(head, Head::Turn(_))).count();
        if turns >= RING_SUBSCRIPTIONS_MAX {
            let ring = &id.ring.name;
            let why = format!(
                "the ring {ring} has {RING_SUBSCRIPTIONS_MAX} subscriptions, which is as many as a ring may have"
            );
            return Err(RingError::Limit(why));
        }
        let drawn = draw(session).await?;
        let writer = session.key().to_string();
        let mut record = TurnRecord::new(draft.clone(), drawn.generation, &writer, now);
        record.epoch = session.store().epoch().0.into();
        let commit = Commit::new()
            .when(Condition::Absent(id.turn_key()))
            .when(Condition::Present(id.ring.ring_key()))
            .when(drawn.unmoved)
            .put(generation_key(), to_value(&drawn.record))
            .put(id.turn_key(), to_value(&record));
        match send(session, noted(commit, &rings.note)).await {
            Ok(_) => return Ok(Put::Created),
            Err(CommitError::Conflict(_)) => {}
            Err(CommitError::Unknown(why)) => {
                let found = turn_record(store, id).await;
                return match found {
                    Ok(found) if found.generation == drawn.generation => Ok(Put::Created),
                    Ok(_) | Err(_) => Err(RingError::Unknown(why)),
                };
            }
            Err(why) => return Err(why.into()),
        }
    }
    Err(crowded())
}

/// Whether what is there is what is expected.
pub(super) fn check_expected(record: &TurnRecord, expected: Expected) -> Result<(), RingError> {
    let (generation, revision) = (record.generation, record.revision);
    match expected {
        Expected::Anything => Ok(()),
        Expected::Revision { generation: g, revision: r } if (g, r) == (generation, revision) => {
            Ok(())
        }
        Expected::Nothing | Expected::Revision { .. } => Err(RingError::Changed),
    }
}

pub(super) async fn delete_subscription(
    rings: &Rings,
    id: &SubscriptionId,
    expected: Expected,
) -> Result<(), RingError> {
    let session = &rings.session;
    for _ in 0..TRIES_MAX {
        let Some(entry) = session.store().get(&id.turn_key()).await? else {
            // Says which of the two is missing.
            turn_record(session.store(), id).await?;
            continue;
        };
        let record: TurnRecord = read(&entry.key, &entry.value)?;
        check_expected(&record, expected)?;
        let drawn = draw(session).await?;
        let last = drawn.record.last.max(record.last_token());
        let commit = Commit::new()
            .when(Condition::At(entry.key.clone(), entry.version))
            .when(drawn.unmoved)
            .put(generation_key(), to_value(&GenerationRecord { last }))
            .delete(entry.key);
        match send(session, noted(commit, &rings.note)).await {
            Ok(_) => return clear_pages(session, id, record.generation).await,
            // It takes turns all the time.
            Err(CommitError::Conflict(_)) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Err(crowded())
}

/// Deletes the pages of a generation that is no more.
pub(super) async fn clear_pages(
    session: &Session,
    id: &SubscriptionId,
    generation: u64,
) -> Result<(), RingError> {
    let prefix = format!("{}{generation}/", id.pages());
    let piece = session.store().limits().writes.min(64);
    loop {
        let page = session.store().scan(Range::prefix(&prefix), piece).await?;
        if page.entries.is_empty() {
            return Ok(());
        }
        let gone = page.entries.into_iter();
        let commit = gone.fold(Commit::new(), |commit, entry| commit.delete(entry.key));
        send(session, commit).await?;
    }
}

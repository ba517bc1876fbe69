//! Each distinct schedule once: ten million triggers share a few thousand.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::Schedule;

/// A schedule's place in the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleId(u32);

/// The schedules in use, each with the number of its users.
#[derive(Debug, Default)]
pub struct Book {
    places: Vec<Option<Line>>,
    /// Places that nobody uses.
    free: Vec<u32>,
    /// Where to look for a schedule with a given hash; almost always one place.
    by_hash: HashMap<u64, Vec<u32>>,
    hasher: BuildHasherDefault<DefaultHasher>,
}

#[derive(Debug)]
struct Line {
    schedule: Schedule,
    users: u32,
}

impl Book {
    /// One more user of this schedule.
    pub fn enter(&mut self, schedule: Schedule) -> ScheduleId {
        let hash = self.hasher.hash_one(&schedule);
        let known = self.by_hash.entry(hash).or_default();
        for place in known.iter() {
            if let Some(line) = &mut self.places[*place as usize]
                && line.schedule == schedule
            {
                line.users += 1;
                return ScheduleId(*place);
            }
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("fewer schedules than triggers")
        });
        self.places[place as usize] = Some(Line { schedule, users: 1 });
        known.push(place);
        ScheduleId(place)
    }

    /// The schedule at a place that is in use.
    pub fn get(&self, id: ScheduleId) -> &Schedule {
        let line = self.places[id.0 as usize].as_ref();
        &line.expect("whoever has an id is a user").schedule
    }

    /// One user less; a schedule that nobody uses is forgotten.
    pub fn leave(&mut self, id: ScheduleId) {
        let place = &mut self.places[id.0 as usize];
        let line = place.as_mut().expect("whoever has an id is a user");
        line.users -= 1;
        if line.users > 0 {
            return;
        }
        let hash = self.hasher.hash_one(&line.schedule);
        *place = None;
        self.free.push(id.0);
        if let Some(known) = self.by_hash.get_mut(&hash) {
            known.retain(|known| *known != id.0);
            if known.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// How many distinct schedules are in use.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::every::Every;
    use super::super::{Plan, Spec};
    use super::*;
    use crate::instant::Instant;

    fn every(seconds: u64) -> Schedule {
        let every = Every::at_phase(Duration::from_secs(seconds), Duration::ZERO).unwrap();
        Schedule::new(Plan::of(Spec::Every(every)), Instant(0)).unwrap()
    }

    #[test]
    fn equal_schedules_share_a_place_and_different_ones_do_not() {
        let mut book = Book::default();
        let (one, same, other) =
            (book.enter(every(60)), book.enter(every(60)), book.enter(every(61)));
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(book.len(), 2);
        assert_eq!(book.get(other), &every(61));
    }

    #[test]
    fn a_place_is_used_again_when_its_last_user_has_left() {
        let mut book = Book::default();
        let id = book.enter(every(60));
        assert_eq!(book.enter(every(60)), id);
        book.leave(id);
        assert_eq!(book.get(id), &every(60), "there is another user");
        book.leave(id);
        assert!(book.is_empty() && book.by_hash.is_empty());
        assert_eq!(book.enter(every(90)), id);
        assert_eq!(book.get(id), &every(90));
    }
}

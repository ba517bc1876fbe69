//! The wheel: which entry is due next, among millions, without sorting them.
//!
//! An entry is a small number chosen by the caller, with a time in milliseconds. A heap would keep all entries in
//! order all the time. That is more than we need: only those due within the next milliseconds must be in order,
//! the others need only be known to come later. So we sort as a post office does, by country first, and by street
//! on the morning of delivery.
//!
//! **Levels and piles.** Write a time as a number in base 256: it has eight digits, and the wheel has a level for
//! each. A level has 256 piles, one per digit. The wheel's `clock` is the first millisecond not yet handed out.
//! An entry lies at the level of the highest digit in which its time differs from the clock, on the pile of its
//! own digit there. With the clock at 2·256 + 5:
//!
//! ```text
//!   time              level   pile   all that can lie there
//!   2·256 + 5           0       5    this millisecond
//!   2·256 + 255         0     255    this millisecond
//!   3·256 + 7           1       3    256 ms, from 3·256
//!   1·256² + 9          2       1    65 s, from 256²
//! ```
//!
//! Three things follow, and everything else rests on them:
//!
//! 1. What lies at a lower level is due before what lies at a higher one, and within a level the smaller digit is
//!    first. So the first pile is found from one bit per pile, without a look at any entry.
//! 2. The pile of an entry follows from its time and the clock, so it need not be remembered.
//! 3. The clock may leap to any time up to which nothing begins, and every entry still lies where it should.
//!    Empty time costs nothing, be it a millisecond or a decade.
//!
//! When the clock reaches the beginning of a pile above level 0, the pile is dealt out: each of its entries now
//! shares one more digit with the clock, and moves to a lower level. A pile of level 0 is a single millisecond,
//! and is sorted by id as it is handed out. An entry moves at most seven times in its life, and twice if it is an
//! hour away.
//!
//! **Late entries.** An entry armed for a time before the clock belongs on no pile of the levels. All of these lie
//! on one pile of their own, and a `BTreeSet` keeps them in order. When a millisecond has more entries than the
//! caller's limit allows, its pile becomes the pile of the late ones as it is, and the rest is handed out from
//! there. The set costs another 17 to 30 bytes for each entry in it, so a caller who has a long past to catch up
//! with should let the wheel begin there ([`Wheel::new`]) rather than arm everything late.
//!
//! **Cost.** Handing out and arming take constant time, apart from the sorting within a millisecond. What is not
//! smooth is dealing. The piles of level 2 span 65 s, those of level 3 4.7 hours, and all of a pile is dealt at
//! once, at some 30 ns per entry: with ten million entries within an hour, 10 ms or more each minute. A caller
//! with many wheels keeps these moments apart by adding to all times of a wheel a constant of its own.
//!
//! Memory is 16 bytes and a quarter per entry, and half a block of 400 bytes per pile in use; `wheel/pile.rs` says
//! why. It is kept for later entries, not given back.

mod pile;

use pile::Piles;
use std::collections::BTreeSet;

/// A level tells this many bits of a time apart.
const BITS: usize = 8;
/// Piles per level.
const WIDTH: usize = 1 << BITS;
/// Enough levels for all bits of a time, so that none is too far away.
const LEVELS: usize = 64 / BITS;
/// The pile of the entries due before the clock. It comes after those of all levels.
const LATE: usize = LEVELS * WIDTH;
/// The last time there is: not the last that can be written, so that the clock can be past it.
const END: u64 = u64::MAX - 1;

/// Entries, each with the time at which it is due. The header of this file tells how it works.
pub struct Wheel {
    /// The latest time the caller told us.
    now: u64,
    /// Nothing on the levels is due before this, and everything on the late pile is. At most `now + 1`.
    clock: u64,
    /// A bit for each pile: whether there is anything on it.
    occupied: [u64; LATE / 64 + 1],
    piles: Piles,
    /// The entries of the late pile, in order.
    late: BTreeSet<(u64, u32)>,
    len: usize,
    /// How many piles were looked at and entries put on one: what the work costs, in a unit tests can rely on.
    #[cfg(test)]
    steps: usize,
}

impl Wheel {
    /// An empty wheel, at a time before which the caller will not arm much.
    pub fn new(now: u64) -> Self {
        let now = now.min(END);
        Self {
            now,
            clock: now + 1,
            occupied: [0; LATE / 64 + 1],
            piles: Piles::new(LATE + 1),
            late: BTreeSet::new(),
            len: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// How many entries are armed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is armed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time for which an entry is armed.
    pub fn armed_at(&self, id: u32) -> Option<u64> {
        self.piles.time_of(id)
    }

    /// Arms an entry, or moves it to another time. A time that is not after now is due at the next advance, and
    /// comes out as it was given. `u64::MAX` counts as the millisecond before it.
    ///
    /// Ids had better be dense: they are looked up in pages of 16,384 ids, 64 KiB each, made when first needed.
    pub fn arm(&mut self, id: u32, at: u64) {
        self.cancel(id);
        let at = at.min(END);
        if at < self.clock {
            self.late.insert((at, id));
        }
        self.put(at, id);
        self.len += 1;
    }

    /// Disarms an entry. Says whether it was armed.
    pub fn cancel(&mut self, id: u32) -> bool {
        let Some(at) = self.armed_at(id) else { return false };
        let pile = self.pile_of(at);
        self.piles.remove(pile, id);
        if self.piles.len(pile) == 0 {
            self.mark_empty(pile);
        }
        if pile == LATE {
            self.late.remove(&(at, id));
        }
        self.len -= 1;
        true
    }

    /// When to wake: no entry is due before this time. `None` if no entry is armed.
    ///
    /// It is the very time of the first entry if that is late, or lies within the clock's own 256 ms. If not, it is
    /// the beginning of the pile on which the first entry lies: too early by less than the span of that pile, which
    /// is 256 ms, 65 s, 4.7 h, … at level 1, 2, 3, … But it is after now, unless the last advance left something.
    ///
    /// Whoever wakes early calls [`advance`](Self::advance) and asks again. Each time the entry goes down a level,
    /// so that happens at most seven times, and as a rule twice for an entry that is an hour away.
    pub fn next(&self) -> Option<u64> {
        match self.late.first() {
            Some(&(at, _)) => Some(at),
            None => self.first().map(|(_, start)| start),
        }
    }

    /// Appends to `due` the entries that are due at or before `now`, at most `limit` of them, in the order of
    /// (time, id), and disarms them. Says whether more are due.
    ///
    /// A `now` before an earlier one counts as that. However far it leaps, the work is bounded by the entries
    /// that move, times the levels they go down.
    pub fn advance(&mut self, now: u64, due: &mut Vec<(u64, u32)>, limit: usize) -> bool {
        self.now = self.now.max(now.min(END));
        let full = due.len().saturating_add(limit);
        loop {
            self.take_late(due, full);
            if !self.late.is_empty() {
                return true;
            }
            match self.first() {
                Some((pile, start)) if start <= self.now => {
                    if pile >= WIDTH {
                        self.enter(start);
                    } else if due.len() < full {
                        self.take(pile, start, due, full);
                    } else {
                        return true;
                    }
                }
                _ => {
                    self.enter(self.now + 1);
                    return false;
                }
            }
        }
    }

    /// Hands out late entries until there are none, or `due` is as long as `full`.
    fn take_late(&mut self, due: &mut Vec<(u64, u32)>, full: usize) {
        while due.len() < full
            && let Some(&(at, id)) = self.late.first()
        {
            self.cancel(id);
            due.push((at, id));
        }
    }

    /// Hands out the first pile, which is the millisecond `start`. If that is too much, all of it becomes late.
    fn take(&mut self, pile: usize, start: u64, due: &mut Vec<(u64, u32)>, full: usize) {
        if self.piles.len(pile) > full - due.len() {
            self.piles.swap(pile, LATE);
            self.mark_occupied(LATE);
            // A set sorts what it is made from, but bare ids are sorted twice as fast.
            let mut ids: Vec<u32> = self.piles.entries(LATE).map(|(_, id)| id).collect();
            ids.sort_unstable();
            self.late = ids.into_iter().map(|id| (start, id)).collect();
        } else {
            let before = due.len();
            while self.piles.take_block(pile, due) {}
            let taken = &mut due[before..];
            taken.sort_unstable_by_key(|&(_, id)| id);
            for &(_, id) in &*taken {
                self.piles.forget(id);
            }
            self.len -= taken.len();
        }
        self.mark_empty(pile);
        self.enter(start + 1);
    }

    /// Moves the clock to a time before which nothing on the levels is due, and deals the pile that begins there.
    ///
    /// Above level 0 there is at most one such pile. If two began at the same time, that time would have a zero
    /// digit at the lower of their levels, but the digits of piles in use are greater than the clock's.
    fn enter(&mut self, time: u64) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        self.clock = time;
        let Some((pile, start)) = self.first() else { return };
        if pile < WIDTH || start > time {
            return;
        }
        self.mark_empty(pile);
        let mut hand = Vec::new();
        while self.piles.take_block(pile, &mut hand) {
            hand.drain(..).for_each(|(at, id)| self.put(at, id));
        }
    }

    /// The first pile that is not empty, the late one aside, and the time at which it begins.
    fn first(&self) -> Option<(usize, u64)> {
        let word = self.occupied[..LATE / 64].iter().position(|&bits| bits != 0)?;
        let pile = word * 64 + self.occupied[word].trailing_zeros() as usize;
        let shift = pile / WIDTH * BITS;
        let digits_above = (self.clock >> shift) & !(WIDTH as u64 - 1);
        Some((pile, (digits_above | (pile % WIDTH) as u64) << shift))
    }

    /// The pile on which an entry with this time lies.
    fn pile_of(&self, at: u64) -> usize {
        if at < self.clock {
            return LATE;
        }
        let level = (at ^ self.clock).checked_ilog2().unwrap_or(0) as usize / BITS;
        let digit = at.to_le_bytes()[level];
        level * WIDTH + usize::from(digit)
    }

    fn put(&mut self, at: u64, id: u32) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let pile = self.pile_of(at);
        self.piles.put(pile, at, id);
        self.mark_occupied(pile);
    }

    fn mark_occupied(&mut self, pile: usize) {
        self.occupied[pile / 64] |= 1 << (pile % 64);
    }

    fn mark_empty(&mut self, pile: usize) {
        self.occupied[pile / 64] &= !(1 << (pile % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: u64 = 365 * 86_400_000;

    #[test]
    fn a_leap_of_ten_years_takes_few_steps() {
        for (entries, now) in [(0, 0), (1, 1_800_000_000_000), (100, 1_800_000_000_000)] {
            let mut wheel = Wheel::new(now);
            (0..entries).for_each(|id| wheel.arm(id, now + (u64::from(id) + 1) * YEAR / 10));
            wheel.steps = 0;
            let mut due = Vec::new();
            assert!(!wheel.advance(now + 10 * YEAR, &mut due, usize::MAX));
            assert_eq!(due.len(), entries as usize);
            // Each entry goes down at most all levels, which takes a pile and a put each, and is handed out.
            assert!(wheel.steps <= due.len() * (2 * LEVELS + 1) + 1, "{} steps", wheel.steps);
        }
    }

    #[test]
    fn a_leap_does_not_touch_entries_beyond_it() {
        let mut wheel = Wheel::new(0);
        (0..1_000).for_each(|id| wheel.arm(id, 20 * YEAR * 256));
        wheel.steps = 0;
        assert!(!wheel.advance(10 * YEAR, &mut Vec::new(), usize::MAX));
        assert_eq!(wheel.steps, 1);
    }

    #[test]
    fn sleeping_from_wake_to_wake_takes_few_steps() {
        let mut wheel = Wheel::new(0);
        wheel.arm(7, 10 * YEAR);
        let (mut due, mut wakes) = (Vec::new(), 0);
        while let Some(time) = wheel.next() {
            assert!(!wheel.advance(time, &mut due, 1));
            wakes += 1;
        }
        assert_eq!(due, [(10 * YEAR, 7)]);
        assert!(wakes <= LEVELS, "{wakes} wakes");
        assert!(wheel.steps <= 4 * LEVELS, "{} steps", wheel.steps);
    }

    #[test]
    fn the_set_of_late_entries_is_that_of_the_late_pile() {
        let mut wheel = Wheel::new(1_000);
        (0..100).for_each(|id| wheel.arm(id, 1_001));
        (100..110).for_each(|id| wheel.arm(id, 990));
        wheel.advance(2_000, &mut Vec::new(), 11);
        wheel.cancel(50);
        wheel.arm(60, 1_500);
        wheel.arm(200, 5);
        let pile: BTreeSet<_> = wheel.piles.entries(LATE).collect();
        assert_eq!(pile, wheel.late);
        assert_eq!(pile.len(), 100 - 1 - 2 + 1);
    }
}

//! What the wheel hands out, and when: claims at the borders, and a comparison with a plain ordered set.

use engine::wheel::Wheel;
use proptest::prelude::*;
use std::collections::BTreeSet;

const FAR: u64 = u64::MAX / 2;

/// Advances and returns what was due, all of it.
fn take(wheel: &mut Wheel, now: u64) -> Vec<(u64, u32)> {
    let mut due = Vec::new();
    assert!(!wheel.advance(now, &mut due, usize::MAX), "without a limit nothing can be left");
    due
}

/// Advances with a limit and returns what was due, and whether there is more.
fn take_some(wheel: &mut Wheel, now: u64, limit: usize) -> (Vec<(u64, u32)>, bool) {
    let mut due = Vec::new();
    let more = wheel.advance(now, &mut due, limit);
    (due, more)
}

/// Every border between levels, and some of those within.
fn borders() -> impl Iterator<Item = u64> {
    let powers = (1..64).map(|bits| 1_u64 << bits);
    powers.chain([3 << 8, 255 << 8, 3 << 16, 255 << 16, (1 << 16) + (1 << 8)])
}

#[test]
fn an_entry_comes_out_at_its_millisecond_and_not_before() {
    for border in borders() {
        for start in [0, border - 1, border, border + 1] {
            for at in [border - 1, border, border + 1, border + (border - 2)] {
                if at <= start {
                    continue;
                }
                let mut wheel = Wheel::new(start);
                wheel.arm(3, at);
                assert_eq!(take(&mut wheel, at - 1), [], "armed at {start} for {at}");
                assert_eq!(wheel.next(), Some(at), "one millisecond before, the next is exact");
                assert_eq!(take(&mut wheel, at), [(at, 3)], "armed at {start} for {at}");
                assert!(wheel.is_empty());
            }
        }
    }
}

#[test]
fn entries_around_every_border_come_out_in_order() {
    let times: BTreeSet<u64> = borders().flat_map(|at| [at - 1, at, at + 1]).collect();
    let mut wheel = Wheel::new(0);
    for (id, &at) in (0..).zip(times.iter().rev()) {
        wheel.arm(id, at);
        wheel.arm(id + 1_000, at);
    }
    let due = take(&mut wheel, u64::MAX);
    assert!(due.is_sorted());
    assert_eq!(due.len(), 2 * times.len());
    assert_eq!(due.iter().map(|&(at, _)| at).collect::<BTreeSet<_>>(), times);
}

#[test]
fn the_end_of_time_is_reached() {
    let mut wheel = Wheel::new(0);
    wheel.arm(1, FAR);
    wheel.arm(2, u64::MAX - 1);
    wheel.arm(3, u64::MAX);
    assert_eq!(wheel.armed_at(3), Some(u64::MAX - 1), "the last time there is");
    assert_eq!(take(&mut wheel, FAR), [(FAR, 1)]);
    assert_eq!(take_some(&mut wheel, u64::MAX, 1), (vec![(u64::MAX - 1, 2)], true));
    assert_eq!(take_some(&mut wheel, u64::MAX, 1), (vec![(u64::MAX - 1, 3)], false));

    let mut wheel = Wheel::new(u64::MAX);
    wheel.arm(1, u64::MAX);
    wheel.arm(2, 0);
    assert_eq!(wheel.next(), Some(0));
    assert_eq!(take(&mut wheel, u64::MAX), [(0, 2), (u64::MAX - 1, 1)]);
    assert_eq!(wheel.next(), None);
}

#[test]
fn what_is_armed_in_the_past_is_due_at_the_next_advance_with_its_own_time() {
    let mut wheel = Wheel::new(1_000);
    wheel.arm(1, 1_000);
    wheel.arm(2, 0);
    wheel.arm(3, 1_001);
    assert_eq!(wheel.next(), Some(0));
    assert_eq!(take(&mut wheel, 1_000), [(0, 2), (1_000, 1)]);
    assert_eq!(take(&mut wheel, 1_001), [(1_001, 3)]);
}

#[test]
fn what_is_armed_in_the_past_comes_before_the_rest_of_its_millisecond() {
    let mut wheel = Wheel::new(0);
    (0..5).for_each(|id| wheel.arm(id, 10));
    assert_eq!(take_some(&mut wheel, 20, 2), (vec![(10, 0), (10, 1)], true));
    wheel.arm(9, 4);
    wheel.arm(0, 10);
    wheel.arm(1, 15);
    let rest = [(4, 9), (10, 0), (10, 2), (10, 3), (10, 4), (15, 1)];
    assert_eq!(take(&mut wheel, 20), rest);
}

#[test]
fn an_entry_armed_again_has_only_its_last_time() {
    let mut wheel = Wheel::new(0);
    for at in [5, 5, 70_000, 256, 5_000_000_000, 256] {
        wheel.arm(1, at);
        assert_eq!((wheel.armed_at(1), wheel.len()), (Some(at), 1));
    }
    assert_eq!(take(&mut wheel, FAR), [(256, 1)]);
    assert_eq!((wheel.armed_at(1), wheel.len()), (None, 0));
}

#[test]
fn what_waits_for_its_turn_can_be_cancelled_and_moved() {
    let mut wheel = Wheel::new(0);
    (0..10).for_each(|id| wheel.arm(id, 255));
    assert_eq!(take_some(&mut wheel, 255, 1), (vec![(255, 0)], true));
    assert!(wheel.cancel(5));
    assert!(!wheel.cancel(5));
    assert!(!wheel.cancel(0), "it was handed out");
    wheel.arm(6, 256);
    wheel.arm(7, 255);
    wheel.arm(5, 300);
    assert_eq!(wheel.armed_at(8), Some(255));
    assert_eq!(wheel.len(), 9);
    let rest = [1, 2, 3, 4, 7, 8, 9].map(|id| (255, id));
    assert_eq!(take(&mut wheel, 255), rest);
    assert_eq!(take(&mut wheel, 300), [(256, 6), (300, 5)]);
}

#[test]
fn what_comes_next_can_be_cancelled_while_others_wait() {
    for border in [256, 3 * 256, 65_536, 1 << 24, 1 << 56] {
        let mut wheel = Wheel::new(0);
        for (id, at) in (0..).zip([border - 1, border - 1, border, border + 44, border + 44]) {
            wheel.arm(id, at);
        }
        assert_eq!(take_some(&mut wheel, border - 1, 1), (vec![(border - 1, 0)], true));
        assert!(wheel.cancel(3));
        wheel.arm(2, border + 1);
        let rest = [(border - 1, 1), (border + 1, 2), (border + 44, 4)];
        assert_eq!(take(&mut wheel, border + 44), rest);
    }
}

#[test]
fn cancelling_the_last_that_waits_leaves_nothing() {
    let mut wheel = Wheel::new(0);
    wheel.arm(0, 7);
    wheel.arm(1, 7);
    assert_eq!(take_some(&mut wheel, 7, 1), (vec![(7, 0)], true));
    assert!(wheel.cancel(1));
    assert_eq!(wheel.next(), None);
    assert_eq!(take_some(&mut wheel, 7, 1), (vec![], false));
}

#[test]
fn a_limit_is_kept_and_the_answer_says_whether_there_is_more() {
    let mut wheel = Wheel::new(0);
    assert_eq!(take_some(&mut wheel, 1, 0), (vec![], false));
    for (id, at) in (0..).zip([5, 5, 70_000]) {
        wheel.arm(id, at);
    }
    assert_eq!(take_some(&mut wheel, 4, 0), (vec![], false));
    assert_eq!(take_some(&mut wheel, 5, 0), (vec![], true));
    assert_eq!(take_some(&mut wheel, 5, 1), (vec![(5, 0)], true));
    assert_eq!(take_some(&mut wheel, 69_999, 1), (vec![(5, 1)], false), "the last one is not due");
    assert_eq!(take_some(&mut wheel, 70_000, 0), (vec![], true));
    assert_eq!(take_some(&mut wheel, 70_000, 1), (vec![(70_000, 2)], false));
}

#[test]
fn the_limit_counts_only_what_is_appended() {
    let mut wheel = Wheel::new(0);
    (0..3).for_each(|id| wheel.arm(id, 1));
    let mut due = vec![(9, 9), (8, 8)];
    assert!(wheel.advance(1, &mut due, 2));
    assert!(!wheel.advance(1, &mut due, usize::MAX));
    assert_eq!(due, [(9, 9), (8, 8), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn time_does_not_go_backwards() {
    let mut wheel = Wheel::new(0);
    (1..=3).for_each(|id| wheel.arm(id, 100 * u64::from(id)));
    assert_eq!(take_some(&mut wheel, 250, 1), (vec![(100, 1)], true));
    assert_eq!(take(&mut wheel, 50), [(200, 2)], "it has been 250");
    assert_eq!(take(&mut wheel, 0), []);
    assert_eq!(take(&mut wheel, 300), [(300, 3)]);
}

#[test]
fn ids_may_be_far_apart() {
    let mut wheel = Wheel::new(0);
    for id in [0, 16_383, 16_384, 50_000_000, u32::MAX] {
        wheel.arm(id, 1_000);
    }
    assert_eq!(wheel.armed_at(49_999_999), None);
    assert!(!wheel.cancel(4_000_000_000));
    let ids: Vec<u32> = take(&mut wheel, 1_000).into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids, [0, 16_383, 16_384, 50_000_000, u32::MAX]);
}

#[test]
fn many_entries_in_one_millisecond_come_in_the_order_of_their_ids() {
    let mut wheel = Wheel::new(0);
    (0..10_000).rev().for_each(|id| wheel.arm(id, 86_400_000));
    (0..10_000).step_by(3).for_each(|id| assert!(wheel.cancel(id)));
    let left: Vec<u32> = (0..10_000).filter(|id| id % 3 != 0).collect();
    let (mut due, mut rounds) = (Vec::new(), 1);
    while wheel.advance(86_400_000, &mut due, 100) {
        rounds += 1;
    }
    assert_eq!(rounds, left.len().div_ceil(100));
    assert_eq!(due.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), left);
}

/// The same promises, kept in the plainest way.
struct Model {
    now: u64,
    /// Whether the last advance took all that was due.
    caught_up: bool,
    armed: BTreeSet<(u64, u32)>,
}

impl Model {
    fn armed_at(&self, id: u32) -> Option<u64> {
        self.armed.iter().find(|entry| entry.1 == id).map(|entry| entry.0)
    }

    fn cancel(&mut self, id: u32) -> bool {
        self.armed_at(id).is_some_and(|at| self.armed.remove(&(at, id)))
    }

    fn arm(&mut self, id: u32, at: u64) {
        self.cancel(id);
        self.armed.insert((at, id));
    }

    fn advance(&mut self, now: u64, limit: usize) -> (Vec<(u64, u32)>, bool) {
        self.now = self.now.max(now);
        let is_due = |entry: &&(u64, u32)| entry.0 <= self.now;
        let due: Vec<_> = self.armed.iter().take_while(is_due).take(limit).copied().collect();
        self.armed.retain(|entry| !due.contains(entry));
        let more = self.armed.first().as_ref().is_some_and(is_due);
        self.caught_up = !more;
        (due, more)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Arm { id: u32, distance: i64 },
    Cancel { id: u32 },
    Advance { distance: i64, limit: usize },
    Sleep { limit: usize },
}

const IDS: u32 = 150;

/// How far from now: mostly near, often at a power of two, sometimes years.
fn distance() -> impl Strategy<Value = i64> {
    let border = (0..62_u32, -2..=2_i64).prop_map(|(bits, off)| (1 << bits) + off);
    prop_oneof![
        4 => -20..600_i64,
        3 => border,
        2 => 0..100_000_i64,
        2 => 0..4_000_000_i64,
        1 => 0..400_000_000_000_i64,
        1 => -100_000..0_i64,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let leap =
        prop_oneof![3 => 0..5_i64, 3 => 0..2_000_i64, 2 => 0..5_000_000_i64, 1 => distance()];
    let limit = || prop_oneof![Just(0), Just(1), 0..10_usize, Just(usize::MAX)];
    prop_oneof![
        6 => (0..IDS, distance()).prop_map(|(id, distance)| Step::Arm { id, distance }),
        1 => (0..IDS).prop_map(|id| Step::Cancel { id }),
        2 => (leap, limit()).prop_map(|(distance, limit)| Step::Advance { distance, limit }),
        2 => limit().prop_map(|limit| Step::Sleep { limit }),
    ]
}

/// Sleeps as a caller does, from wake to wake, until something is due.
fn sleep(wheel: &mut Wheel, model: &mut Model, limit: usize) {
    for _ in 0..8 {
        let Some(wake) = wheel.next() else { return };
        let expected = model.advance(wake, limit);
        assert_eq!(take_some(wheel, wake, limit), expected);
        if !expected.0.is_empty() || expected.1 {
            return;
        }
    }
    panic!("eight wakes are enough");
}

fn agree(wheel: &Wheel, model: &Model) {
    assert_eq!(wheel.len(), model.armed.len());
    let Some(&(first, _)) = model.armed.first() else { return assert_eq!(wheel.next(), None) };
    let next = wheel.next().expect("an entry is armed");
    assert!(next <= first, "{next} is too late for {first}");
    if model.caught_up && first <= model.now {
        assert_eq!(next, first, "what is late has its exact time");
    } else if model.caught_up {
        assert!(next > model.now, "nothing is due, so there is time to sleep");
    }
    if next < first {
        // Too early only by its pile's span: the largest power of 256 that the time of waking is a multiple of.
        let span = 1_u64 << (next.trailing_zeros() / 8 * 8);
        assert!(first - next < span, "{next} is too early for {first}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_wheel_does_what_the_model_does(
        start in prop_oneof![Just(0), Just(1_800_000_000_000), 0..FAR],
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut wheel = Wheel::new(start);
        let mut model = Model { now: start, caught_up: true, armed: BTreeSet::new() };
        for step in steps {
            match step {
                Step::Arm { id, distance } => {
                    let at = model.now.saturating_add_signed(distance).min(u64::MAX - 1);
                    wheel.arm(id, at);
                    model.arm(id, at);
                    prop_assert_eq!(wheel.armed_at(id), Some(at));
                }
                Step::Cancel { id } => prop_assert_eq!(wheel.cancel(id), model.cancel(id)),
                Step::Advance { distance, limit } => {
                    let now = model.now.saturating_add_signed(distance).min(u64::MAX - 1);
                    prop_assert_eq!(take_some(&mut wheel, now, limit), model.advance(now, limit));
                }
                Step::Sleep { limit } => sleep(&mut wheel, &mut model, limit),
            }
            agree(&wheel, &model);
        }
        for id in 0..IDS {
            prop_assert_eq!(wheel.armed_at(id), model.armed_at(id));
        }
        let (rest, _) = model.advance(u64::MAX - 1, usize::MAX);
        prop_assert_eq!(take(&mut wheel, u64::MAX), rest);
    }
}

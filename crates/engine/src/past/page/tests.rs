use std::collections::BTreeSet;

use super::*;
use crate::past::{End, Finished, Reason, Skipped};

const SHARD: ShardId = ShardId(3);
const START: i64 = 1_800_000_000_000;

fn run(trigger: u64, second: i64) -> Line {
    let slot = Instant(START + second * 1_000);
    Line::Run(Finished {
        project: crate::id::ProjectId::DEFAULT,
        trigger: SerialId(trigger),
        slot,
        generation: Some(1),
        sequence: None,
        notice: None,
        queue: None,
        end: End::Succeeded,
        at: slot,
        attempt: 1,
        attempts: Vec::new(),
    })
}

fn skip(trigger: u64, from: i64, to: i64) -> Line {
    let at = |second: i64| Instant(START + second * 1_000);
    Line::Skip(Skipped {
        project: crate::id::ProjectId::DEFAULT,
        trigger: SerialId(trigger),
        generation: 1,
        from: at(from),
        to: at(to),
        count: 2,
        reason: Reason::Paused,
        at: at(to),
    })
}

fn segment(lines: Vec<Line>) -> Segment {
    Segment { lines }
}

/// So many segments, each with a line of each of three triggers.
fn segments(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u64, Segment)> {
    let second = |number: u64| i64::try_from(number).unwrap();
    let lines = |number| (1..=3).map(|trigger| run(trigger, second(number))).collect();
    numbers.map(|number| (number, segment(lines(number)))).collect()
}

fn lines(plan: &MergePlan) -> Vec<Line> {
    let read = |bytes: &Vec<u8>| Segment::from_bytes(bytes).unwrap().lines;
    plan.pages.iter().flat_map(|(_, bytes)| read(bytes)).collect()
}

fn set(lines: impl IntoIterator<Item = Line>) -> BTreeSet<Identity> {
    lines.into_iter().map(|line| line.identity()).collect()
}

/// The pages of a plan, as they are read back.
fn sources(plan: &MergePlan) -> Vec<(Bucket, PageName, Segment)> {
    let read = |(key, bytes): &(String, Vec<u8>)| {
        let (bucket, name) = read_key(SHARD, key).unwrap();
        (bucket, name, Segment::from_bytes(bytes).unwrap())
    };
    plan.pages.iter().map(read).collect()
}

#[test]
fn a_key_is_readable_and_newest_comes_first() {
    let bucket = Bucket::of(SerialId(1));
    let name =
        PageName { day: PastDay::of(Instant(START)), round: 1_000, chain_number: 0, piece: 0 };
    let key = name.key(SHARD, bucket);
    assert_eq!(key, "shard/3/page/0485/9979166/fffffffffffffc17.0000000000000000.00000");
    assert_eq!(read_key(SHARD, &key), Some((bucket, name)));
    assert_eq!(name.to_string().parse(), Ok(name));
    let order = [
        PageName { day: PastDay(name.day.0 + 1), ..name },
        PageName { round: 1_001, ..name },
        name,
        PageName { piece: 1, ..name },
        PageName { chain_number: 2_000, ..name },
        PageName { round: 999, ..name },
        PageName { day: PastDay(name.day.0 - 1), ..name },
    ];
    assert!(order.map(|name| name.key(SHARD, bucket)).is_sorted());
}

#[test]
fn what_is_no_key_of_a_page_is_none() {
    for bad in [
        "",
        "shard/3/page/",
        "shard/3/page/1024/9979166/fffffffffffffc17.0000000000000000.00000",
        "shard/4/page/0485/9979166/fffffffffffffc17.0000000000000000.00000",
        "shard/3/page/485/9979166/fffffffffffffc17.0000000000000000.00000",
        "shard/3/page/0485/9979166/fffffffffffffc17.0.0",
        "shard/3/page/0485/9979166/FFFFFFFFFFFFFC17.0000000000000000.00000",
        "shard/3/page/0485/9979166/fffffffffffffc17.0000000000000000.00000.1",
        "shard/3/page/0485/99999999/fffffffffffffc17.0000000000000000.00000",
    ] {
        assert_eq!(read_key(SHARD, bad), None, "{bad}");
    }
}

#[test]
fn a_day_is_that_of_the_slot_and_nothing_comes_before_1970() {
    assert_eq!(PastDay::of(Instant(DAY_MS - 1)), PastDay(0));
    assert_eq!(PastDay::of(Instant(DAY_MS)), PastDay(1));
    assert_eq!(PastDay::of(PastDay(7).end()), PastDay(7));
    assert_eq!(PastDay::of(Instant(PastDay(7).end().0 + 1)), PastDay(8));
    assert_eq!(PastDay::of(Instant::FIRST), PastDay(0));
    assert_eq!(PastDay::of(Instant::LAST).to_string().len(), 7);
}

#[test]
fn a_run_that_waited_for_longer_than_history_is_kept_is_kept_from_its_end() {
    let (day, sequence) = (86_400, 77);
    let Line::Run(finished) = run(sequence, 0) else { unreachable!("it is a run") };
    let queue = crate::past::PastOfQueue { name: "mail".into(), ..Default::default() };
    let end = Instant(START + 40 * day * 1_000);
    let submitted = Finished {
        generation: None,
        sequence: Some(sequence),
        queue: Some(Box::new(queue)),
        at: end,
        ..finished
    };
    let mut fired = submitted.clone();
    (fired.generation, fired.sequence) = (Some(1), None);
    let floor = Instant(START + 10 * day * 1_000);
    let all = vec![(1, segment(vec![Line::Run(submitted), Line::Run(fired)]))];
    let plan = merge_from(SHARD, all, floor, HISTORY_PAGE_BYTES_MAX);
    let kept = lines(&plan);
    let [Line::Run(run)] = &kept[..] else { panic!("{kept:?}") };
    assert!(run.is_submitted(), "the slot of the trigger is too old");
    assert_eq!(sources(&plan)[0].1.day, PastDay::of(end));
    assert_eq!(crate::past::retain::from(Bucket::FIRST.into(), &kept, floor), None);
}

#[test]
fn a_merge_keeps_each_line_once_in_its_bucket_and_day_newest_first() {
    let mut all = segments(1..=50);
    all.push((51, segment(vec![run(1, 7), skip(1, 3, 9), skip(1, 3, 9), run(2, 86_400)])));
    let expected = set(all.iter().flat_map(|(_, segment)| segment.lines.clone()));
    let plan = merge(SHARD, all, HISTORY_PAGE_BYTES_MAX);
    let merged = lines(&plan);
    assert_eq!(merged.len(), 50 * 3 + 2, "doubles are gone");
    assert_eq!(set(merged), expected);
    for (bucket, name, page) in sources(&plan) {
        assert_eq!((name.round, name.chain_number), (51, 0));
        assert!(page.lines.iter().all(|line| Bucket::of(line.trigger()) == bucket));
        assert!(page.lines.iter().all(|line| PastDay::of(line.slot()) == name.day));
        assert!(page.lines.iter().rev().map(Line::slot).is_sorted());
    }
    let at = Instant(START + 9_000);
    let exceptions = crate::past::exception::exception_key(SHARD, at, 51);
    let segments = (1..=51).rev().map(|number| past_key(SHARD, number));
    let spent: Vec<String> = [exceptions].into_iter().chain(segments).collect();
    assert_eq!(plan.spent, spent, "the newest goes first, and its exceptions before it");
    let index: Vec<Line> = plan
        .index
        .iter()
        .flat_map(|(_, bytes)| Segment::from_bytes(bytes).unwrap().lines)
        .collect();
    assert_eq!(index, [skip(1, 3, 9)]);
    let home = read_any_key(SHARD, &plan.index[0].0).map(|(home, _)| home);
    assert_eq!(home, Some(Home::Exceptions(crate::id::ProjectId::DEFAULT)));
}

#[test]
fn a_merge_that_is_done_again_writes_the_same() {
    let mut shuffled = segments(1..=20);
    shuffled.reverse();
    let page_bytes = 2_000;
    assert_eq!(merge(SHARD, segments(1..=20), page_bytes), merge(SHARD, shuffled, page_bytes));
    assert_eq!(merge(SHARD, Vec::new(), page_bytes), MergePlan::default());
}

#[test]
fn runs_of_an_instant_differ_by_how_they_came_to_be() {
    let Line::Run(slot) = run(1, 0) else { unreachable!() };
    let demand = |sequence| Finished { generation: None, sequence: Some(sequence), ..slot.clone() };
    let later = Finished { generation: Some(2), ..slot.clone() };
    let all = vec![slot.clone(), later, demand(1), demand(2), demand(2), slot.clone()];
    let all = segment(all.into_iter().map(Line::Run).collect());
    let plan = merge(SHARD, vec![(1, all)], HISTORY_PAGE_BYTES_MAX);
    assert_eq!(lines(&plan).len(), 4);
}

#[test]
fn a_page_is_full_at_its_limit_and_another_begins_one_past_it() {
    let all = || vec![(1, segment((0..10).map(|second| run(1, second)).collect()))];
    let whole = merge(SHARD, all(), HISTORY_PAGE_BYTES_MAX);
    assert_eq!(whole.pages.len(), 1);
    let limit = whole.pages[0].1.len();
    assert_eq!(merge(SHARD, all(), limit), whole, "at the limit");
    let cut = merge(SHARD, all(), limit - 1);
    assert_eq!(cut.pages.len(), 2, "one past it");
    assert!(cut.pages.iter().all(|(_, bytes)| bytes.len() < limit));
    assert_eq!(lines(&cut), lines(&whole));
    let single = merge(SHARD, all(), 1);
    assert_eq!(single.pages.len(), 10, "a long line has a page to itself");
    assert_eq!(lines(&single), lines(&whole));
}

/// Pages of one bucket and day, one for each round.
fn small(rounds: std::ops::RangeInclusive<u64>) -> Vec<(PageName, Segment)> {
    let second = |round: u64| i64::try_from(round).unwrap();
    let page = |round| merge(SHARD, vec![(round, segment(vec![run(1, second(round))]))], 4_096);
    rounds.flat_map(|round| sources(&page(round))).map(|(_, name, page)| (name, page)).collect()
}

#[test]
fn a_compaction_makes_few_of_many_and_comes_last_in_the_order_of_reading() {
    let bucket = Bucket::of(SerialId(1));
    let mut many = small(11..=30);
    many.extend(small(15..=16));
    let plan = compact(SHARD, bucket, 500, many.clone(), 4_096).unwrap();
    assert!(plan.pages.len() < 3, "{}", plan.pages.len());
    assert_eq!(lines(&plan).len(), 20);
    let first = plan.pages.iter().map(|(key, _)| key).min().unwrap();
    assert!(plan.spent.iter().all(|key| key < first), "whoever is past the new has seen the old");
    let keys: Vec<_> = many.iter().map(|(name, _)| name.key(SHARD, bucket)).collect();
    assert_eq!(plan.spent, keys);
}

#[test]
fn a_compaction_that_was_cut_short_is_done_again() {
    let bucket = Bucket::of(SerialId(1));
    let many = small(11..=30);
    let plan = compact(SHARD, bucket, 500, many.clone(), 1_000).unwrap();
    let written = sources(&plan).into_iter().map(|(_, name, page)| (name, page));
    let left: Vec<_> = many.into_iter().chain(written.take(2)).skip(3).collect();
    let again = compact(SHARD, bucket, 501, left.clone(), 1_000).unwrap();
    assert_eq!(set(lines(&again)), set(left.into_iter().flat_map(|(_, page)| page.lines)));
    assert_eq!(lines(&again).len(), set(lines(&again)).len());
}

#[test]
fn pages_that_do_not_get_fewer_are_left_alone() {
    let bucket = Bucket::of(SerialId(1));
    assert_eq!(compact(SHARD, bucket, 500, Vec::new(), 4_096), None);
    assert_eq!(compact(SHARD, bucket, 500, small(1..=1), 4_096), None);
    assert_eq!(compact(SHARD, bucket, 500, small(1..=5), 1), None);
    assert!(compact(SHARD, bucket, 500, small(1..=2), 4_096).is_some());
}

#[test]
fn pages_are_written_before_segments_go_in_pieces_of_a_bounded_size() {
    let mut numbers = segments(1..=300);
    numbers.push((301, segment((10..300).map(|trigger| run(trigger, 1)).collect())));
    let plan = merge(SHARD, numbers, 2_000);
    let (pages, spent) = (plan.pages.len(), plan.spent.len());
    let pieces = plan.pieces();
    assert!(pieces.iter().all(|piece| piece.len() <= HISTORY_PIECE_WRITES_MAX));
    let puts: Vec<Put> = pieces.into_iter().flatten().collect();
    assert_eq!(puts.len(), pages + spent);
    assert!(puts[..pages].iter().all(|put| matches!(put, Put::Value(..))));
    assert!(puts[pages..].iter().all(|put| matches!(put, Put::Gone(_))));
}

#[test]
fn writes_are_cut_at_both_bounds_and_one_past_them() {
    let put = |bytes: usize| Put::Value("k".to_owned(), vec![0; bytes - 1]);
    let lens = |puts: Vec<Put>| split(puts, 3, 100).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lens(vec![put(10), put(10), put(10)]), [3]);
    assert_eq!(lens(vec![put(10), put(10), put(10), put(10)]), [3, 1]);
    assert_eq!(lens(vec![put(50), put(50)]), [2]);
    assert_eq!(lens(vec![put(50), put(51)]), [1, 1]);
    assert_eq!(lens(vec![put(1_000), put(1)]), [1, 1]);
    assert_eq!(lens(Vec::new()), Vec::<usize>::new());
}

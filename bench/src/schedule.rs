//! The next slot, reading a pattern, and the wheel: beside other crates and the standard library's own
//! collections, in one run.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hint::black_box;
use std::str::FromStr;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeZone as _};
use engine::schedule::Schedule;
use engine::schedule::cron::{Cron, Dialect, Parsed};
use engine::schedule::local::{Fold, Gap, Local};
use engine::schedule::zone::ZoneId;
use engine::wheel::Wheel;

/// What all of them understand: every minute, steps, working hours, days, months, a date.
const MIXED: [&str; 8] = [
    "* * * * *",
    "*/15 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "*/10 9-17 * * 1-5",
    "0 6,18 * * *",
    "0 0 1 * *",
    "0 12 1 1 *",
];

const ZONE: &str = "Europe/Berlin";
const START: i64 = 1_800_000_000;
const ROUNDS: usize = 200_000;

pub(crate) fn next_slots() {
    println!("next slot, mean of {} patterns in {ZONE}:", MIXED.len());
    let ours: Vec<Local> = MIXED.map(|pattern| local(pattern)).into();
    let ns = each(ROUNDS, &ours, START, |local, at| local.next(at).unwrap());
    println!("  watchbell  {ns:>8.0} ns  {} bytes per distinct schedule", size_of::<Schedule>());

    let zone = jiff::tz::TimeZone::get(ZONE).unwrap();
    let theirs: Vec<croner::Cron> = MIXED.map(|text| croner::Cron::from_str(text).unwrap()).into();
    let start = jiff::Timestamp::from_second(START).unwrap().to_zoned(zone);
    let ns_croner = each(ROUNDS / 10, &theirs, start, |cron, at| {
        cron.find_next_occurrence(&at, false).unwrap()
    });
    println!("  croner     {ns_croner:>8.0} ns  {:.1} times ours", ns_croner / ns);

    let theirs: Vec<cron::Schedule> =
        MIXED.map(|text| cron::Schedule::from_str(&format!("0 {}", sundays(text))).unwrap()).into();
    let start: DateTime<chrono_tz::Tz> =
        chrono_tz::Europe::Berlin.timestamp_opt(START, 0).single().unwrap();
    let ns_cron = each(ROUNDS / 10, &theirs, start, |cron, at| cron.after(&at).next().unwrap());
    println!("  cron       {ns_cron:>8.0} ns  {:.1} times ours", ns_cron / ns);

    let theirs: Vec<cronexpr::Crontab> =
        MIXED.map(|text| cronexpr::parse_crontab(&format!("{text} {ZONE}")).unwrap()).into();
    let start = jiff::Timestamp::from_second(START).unwrap();
    let ns_expr = each(ROUNDS / 10, &theirs, start, |cron, at| {
        cron.find_next(cronexpr::MakeTimestamp(at)).unwrap().timestamp()
    });
    println!("  cronexpr   {ns_expr:>8.0} ns  {:.1} times ours", ns_expr / ns);
}

/// The crate `cron` counts days of the week from Sunday = 1.
fn sundays(text: &str) -> String {
    text.replace("1-5", "MON-FRI")
}

fn local(pattern: &str) -> Local {
    match Cron::parse(pattern, Dialect::Open, "") {
        Ok(Parsed::Pattern(cron)) => {
            Local::new(cron, ZoneId::get(ZONE).unwrap(), Gap::Usual, Fold::Usual)
        }
        other => panic!("{other:?}"),
    }
}

/// Nanoseconds for a step, each from the last slot, begun anew now and then; the best of five.
fn each<S, T: Clone>(rounds: usize, specs: &[S], start: T, next: impl Fn(&S, T) -> T) -> f64 {
    let once = || {
        let clock = Instant::now();
        for spec in specs {
            let mut at = start.clone();
            for round in 0..rounds {
                if round % 50 == 0 {
                    at = start.clone();
                }
                at = black_box(next(spec, at));
            }
        }
        per(clock.elapsed(), rounds * specs.len())
    };
    (0..5).map(|_| once()).fold(f64::MAX, f64::min)
}

pub(crate) fn parses() {
    println!("reading a pattern:");
    let ours = each_text(|text| Cron::parse(text, Dialect::Open, "").is_ok());
    println!("  watchbell  {ours:>8.0} ns");
    let theirs = each_text(|text| croner::Cron::from_str(text).is_ok());
    println!("  croner     {theirs:>8.0} ns  {:.1} times ours", theirs / ours);
}

fn each_text(parse: impl Fn(&str) -> bool) -> f64 {
    let once = || {
        let clock = Instant::now();
        for _ in 0..20_000 {
            for text in MIXED {
                assert!(black_box(parse(text)));
            }
        }
        per(clock.elapsed(), 20_000 * MIXED.len())
    };
    (0..5).map(|_| once()).fold(f64::MAX, f64::min)
}

fn per(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_nanos() as f64 / count as f64
}

const HOUR_MS: u64 = 3_600_000;
const START_MS: u64 = 1_800_000_000_000;

/// Cheap enough not to be what is measured.
struct Random(u64);

impl Random {
    fn within_the_hour(&mut self, now: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        now + 1 + self.0 % HOUR_MS
    }
}

pub(crate) fn alarms(entries: u32) {
    let taken = 2 * entries as usize;
    println!("{entries} alarms within an hour; take the earliest and arm it anew, {taken} times:");
    let mut random = Random(1);
    let mut wheel = Wheel::new(START_MS);
    (0..entries).for_each(|id| wheel.arm(id, random.within_the_hour(START_MS)));
    let (mut due, mut count) = (Vec::new(), 0);
    let clock = Instant::now();
    while count < taken {
        let now = wheel.next().expect("never empty");
        wheel.advance(now, &mut due, 1_000);
        count += due.len();
        due.drain(..).for_each(|(at, id)| wheel.arm(id, random.within_the_hour(at)));
    }
    let ours = 1_000.0 / per(clock.elapsed(), count);
    println!("  wheel       {ours:>6.2} M/s");
    drop(wheel);

    let mut random = Random(1);
    let mut heap: BinaryHeap<_> =
        (0..entries).map(|id| Reverse((random.within_the_hour(START_MS), id))).collect();
    let clock = Instant::now();
    for _ in 0..taken / 4 {
        let Reverse((at, id)) = heap.pop().expect("never empty");
        heap.push(Reverse((random.within_the_hour(at), id)));
    }
    let theirs = 1_000.0 / per(clock.elapsed(), taken / 4);
    println!("  BinaryHeap  {theirs:>6.2} M/s  the wheel is {:.1} times as fast", ours / theirs);
    drop(heap);

    let mut random = Random(1);
    let mut tree: BTreeSet<_> =
        (0..entries).map(|id| (random.within_the_hour(START_MS), id)).collect();
    let clock = Instant::now();
    for _ in 0..taken / 4 {
        let (at, id) = tree.pop_first().expect("never empty");
        tree.insert((random.within_the_hour(at), id));
    }
    let theirs = 1_000.0 / per(clock.elapsed(), taken / 4);
    println!("  BTreeSet    {theirs:>6.2} M/s  the wheel is {:.1} times as fast", ours / theirs);
}

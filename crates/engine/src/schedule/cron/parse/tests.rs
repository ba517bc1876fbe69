mod refusal;

use super::*;

use proptest::prelude::*;

const ALL_DAYS: u32 = 0xffff_fffe;

fn open(text: &str) -> Cron {
    open_as(text, "backup")
}

fn open_as(text: &str, name: &str) -> Cron {
    pattern(text, Dialect::Open, name)
}

fn quartz(text: &str) -> Cron {
    pattern(text, Dialect::Quartz, "backup")
}

fn pattern(text: &str, dialect: Dialect, name: &str) -> Cron {
    match Cron::parse(text, dialect, name) {
        Ok(Parsed::Pattern(cron)) => cron,
        other => panic!("{text}: {other:?}"),
    }
}

fn rare(text: &str) -> Rare {
    *open(text).rare.expect("a rare pattern")
}

fn every(text: &str) -> Duration {
    match Cron::parse(text, Dialect::Open, "") {
        Ok(Parsed::Every(every)) => every,
        other => panic!("{text}: {other:?}"),
    }
}

fn bits(values: impl IntoIterator<Item = u32>) -> u64 {
    values.into_iter().fold(0, |bits, value| bits | 1 << value)
}

#[test]
fn five_fields_begin_with_the_minute_and_the_second_is_0() {
    let cron = open("30 2 1 6 1");
    assert_eq!(cron.seconds, 1);
    assert_eq!(cron.minutes, bits([30]));
    assert_eq!(u64::from(cron.hours), bits([2]));
    assert_eq!(u64::from(cron.days), bits([1]));
    assert_eq!(u64::from(cron.months), bits([6]));
    assert_eq!(u64::from(cron.weekdays), bits([1]));
    assert_eq!(cron.kind, PatternKind { days: Days::Either, pace: CronPace::Fixed });
    assert_eq!(cron.rare, None);
}

#[test]
fn six_fields_have_a_second_and_seven_a_year() {
    assert_eq!(open("15 30 2 * * *").seconds, bits([15]));
    assert_eq!(open("15 30 2 * * *").minutes, bits([30]));
    assert_eq!(rare("0 0 0 1 1 * 2027").years, [(2027, 2027, 1)]);
}

#[test]
fn blanks_are_spaces_and_tabs_in_any_number() {
    assert_eq!(open(" \t30\t 2  * * *\t "), open("30 2 * * *"));
}

#[test]
fn a_star_is_everything() {
    let cron = open("* * * * * *");
    assert_eq!(cron.seconds, bits(0..60));
    assert_eq!(cron.minutes, bits(0..60));
    assert_eq!(u64::from(cron.hours), bits(0..24));
    assert_eq!(cron.days, ALL_DAYS);
    assert_eq!(u64::from(cron.months), bits(1..13));
    assert_eq!(u64::from(cron.weekdays), bits(0..7));
}

#[test]
fn lists_ranges_and_steps() {
    let minutes = |field: &str| open(&format!("{field} * * * *")).minutes;
    assert_eq!(minutes("1,5,59"), bits([1, 5, 59]));
    assert_eq!(minutes("10-13"), bits(10..14));
    assert_eq!(minutes("*/15"), bits([0, 15, 30, 45]));
    assert_eq!(minutes("10-30/10"), bits([10, 20, 30]));
    assert_eq!(minutes("5/15"), bits([5, 20, 35, 50]));
    assert_eq!(minutes("5-5"), bits([5]));
    assert_eq!(minutes("*/60"), bits([0]));
    assert_eq!(minutes("1-3,20-40/10,007"), bits([1, 2, 3, 7, 20, 30, 40]));
    assert_eq!(minutes("*,5"), bits(0..60));
}

#[test]
fn ranges_go_around_the_end() {
    assert_eq!(u64::from(open("0 22-2 * * *").hours), bits([22, 23, 0, 1, 2]));
    assert_eq!(u64::from(open("0 22-2/2 * * *").hours), bits([22, 0, 2]));
    assert_eq!(open("58-1 * * * *").minutes, bits([58, 59, 0, 1]));
    assert_eq!(u64::from(open("0 0 30-2 * *").days), bits([30, 31, 1, 2]));
    assert_eq!(u64::from(open("0 0 * NOV-FEB *").months), bits([11, 12, 1, 2]));
    assert_eq!(u64::from(open("0 0 * * FRI-MON").weekdays), bits([5, 6, 0, 1]));
}

#[test]
fn names_are_read_in_any_case() {
    let months = |field: &str| u64::from(open(&format!("0 0 * {field} *")).months);
    let weekdays = |field: &str| u64::from(open(&format!("0 0 * * {field}")).weekdays);
    let names =
        ["JAN", "feb", "Mar", "aPR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
    for (name, month) in names.iter().zip(1..) {
        assert_eq!(months(name), bits([month]), "{name}");
    }
    for (name, weekday) in ["SUN", "mon", "Tue", "WED", "thu", "FRI", "sat"].iter().zip(0..) {
        assert_eq!(weekdays(name), bits([weekday]), "{name}");
    }
    assert_eq!(months("jan,mar-may,10"), bits([1, 3, 4, 5, 10]));
    assert_eq!(months("FEB/4"), bits([2, 6, 10]));
    assert_eq!(weekdays("mon-3,SAT"), bits([1, 2, 3, 6]));
    assert_eq!(weekdays("MON-FRI/2"), bits([1, 3, 5]));
}

#[test]
fn sunday_is_0_and_7() {
    let weekdays = |field: &str| u64::from(open(&format!("0 0 * * {field}")).weekdays);
    assert_eq!(weekdays("0"), bits([0]));
    assert_eq!(weekdays("7"), bits([0]));
    assert_eq!(weekdays("5-7"), bits([5, 6, 0]));
    assert_eq!(weekdays("6-7"), bits([6, 0]));
    assert_eq!(weekdays("0-7"), bits(0..7));
    assert_eq!(weekdays("7-7"), bits([0]));
    assert_eq!(weekdays("7-2"), bits([0, 1, 2]));
    assert_eq!(weekdays("1-7/2"), bits([1, 3, 5, 0]));
    assert_eq!(weekdays("1/2"), bits([1, 3, 5]));
    assert_eq!(weekdays("7/3"), bits([0, 3, 6]));
    assert_eq!(rare("0 0 * * 7L").last, 1);
    assert_eq!(rare("0 0 * * 7#2").nth, rare("0 0 * * SUN#2").nth);
}

#[test]
fn days_are_chosen_by_the_fields_that_are_restricted() {
    let days = |fields: &str| open(&format!("0 0 {fields}")).kind.days;
    assert_eq!(days("* * *"), Days::OfMonth);
    assert_eq!(days("? * ?"), Days::OfMonth);
    assert_eq!(days("1 * *"), Days::OfMonth);
    assert_eq!(days("1 * ?"), Days::OfMonth);
    assert_eq!(days("* * 1"), Days::OfWeek);
    assert_eq!(days("? * 1"), Days::OfWeek);
    assert_eq!(days("1 * 1"), Days::Either);
    assert_eq!(days("*/2 * 1"), Days::Either);
    assert_eq!(days("1 * */2"), Days::Either);
    assert_eq!(days("L * 1"), Days::Either);
    assert_eq!(days("1 * +1"), Days::Both);
    assert_eq!(days("1 * +FRI#2"), Days::Both);
    assert_eq!(days("1 * +*"), Days::OfMonth);
    assert_eq!(days("* * +1"), Days::OfWeek);
}

#[test]
fn stars_ranges_and_steps_of_the_clock_are_intervals() {
    let pace = |text: &str| open(text).kind.pace;
    assert_eq!(pace("30 2 * * *"), CronPace::Fixed);
    assert_eq!(pace("0 30 2 * * *"), CronPace::Fixed);
    assert_eq!(pace("0,30 6,18 1-5 */2 MON-FRI"), CronPace::Fixed);
    assert_eq!(pace("H H(0-5) * * *"), CronPace::Fixed);
    assert_eq!(pace("0 * * * *"), CronPace::Interval);
    assert_eq!(pace("0 9-17 * * *"), CronPace::Interval);
    assert_eq!(pace("5/15 2 * * *"), CronPace::Interval);
    assert_eq!(pace("H/15 2 * * *"), CronPace::Interval);
    assert_eq!(pace("H(0-29)/10 2 * * *"), CronPace::Interval);
    assert_eq!(pace("* 0 2 * * *"), CronPace::Interval);
    assert_eq!(pace("0,10-12 2 * * *"), CronPace::Interval);
}

#[test]
fn days_counted_from_the_end_and_nearest_weekdays() {
    assert_eq!(rare("0 0 L * *"), Rare { from_end: 1, ..Rare::default() });
    assert_eq!(rare("0 0 l-3 * *"), Rare { from_end: 1 << 3, ..Rare::default() });
    assert_eq!(rare("0 0 L-30 * *"), Rare { from_end: 1 << 30, ..Rare::default() });
    assert_eq!(rare("0 0 15W * *"), Rare { nearest: 1 << 15, ..Rare::default() });
    assert_eq!(rare("0 0 31w * *"), Rare { nearest: 1 << 31, ..Rare::default() });
    assert_eq!(rare("0 0 LW * *"), Rare { last_workday: true, ..Rare::default() });
    assert_eq!(open("0 0 L * *").days, 0);
    let mixed = open("0 0 1,10-12,15W,L,L-1 * *");
    assert_eq!(u64::from(mixed.days), bits([1, 10, 11, 12]));
    assert_eq!(
        mixed.rare,
        Some(Box::new(Rare { from_end: 3, nearest: 1 << 15, ..Rare::default() }))
    );
}

#[test]
fn one_of_the_weekdays_of_a_month() {
    let friday = |bits| [0, 0, 0, 0, 0, bits, 0];
    assert_eq!(rare("0 0 * * FRI#2").nth, friday(1 << 2));
    assert_eq!(rare("0 0 * * 5#1,fri#5").nth, friday(1 << 1 | 1 << 5));
    for last in ["5L", "FRIL", "fril", "5#L", "FRI#l"] {
        assert_eq!(rare(&format!("0 0 * * {last}")), Rare { last: 1 << 5, ..Rare::default() });
    }
    assert_eq!(open("0 0 * * FRI#2").weekdays, 0);
    assert_eq!(u64::from(open("0 0 * * MON,FRI#2").weekdays), bits([1]));
}

#[test]
fn years_have_one_form() {
    let years = |field: &str| {
        open(&format!("0 0 0 1 1 * {field}")).rare.map_or(Vec::new(), |rare| rare.years)
    };
    assert_eq!(years("*"), []);
    assert_eq!(years("1-9999"), []);
    assert_eq!(years("2027,*"), []);
    assert_eq!(years("1"), [(1, 1, 1)]);
    assert_eq!(years("9999"), [(9999, 9999, 1)]);
    assert_eq!(years("2030,2027"), [(2027, 2027, 1), (2030, 2030, 1)]);
    assert_eq!(years("2029,2027-2028,2027"), [(2027, 2029, 1)]);
    assert_eq!(years("2027-2030/2"), [(2027, 2029, 2)]);
    assert_eq!(years("2027-2030/5"), [(2027, 2027, 1)]);
    assert_eq!(years("2028/4"), [(2028, 9996, 4)]);
    assert_eq!(years("*/2"), [(1, 9999, 2)]);
    assert!(open("0 0 0 1 1 * *").rare.is_none());
}

#[test]
fn words_are_short_for_patterns() {
    for (word, text) in WORDS {
        assert_eq!(open(word), open(text));
        assert_eq!(open(&format!(" {}\t", word.to_uppercase())), open(text));
    }
}

#[test]
fn every_takes_an_interval() {
    assert_eq!(every("@every 90s"), Duration::from_secs(90));
    assert_eq!(every("@every 1h30m"), Duration::from_secs(5_400));
    assert_eq!(every("@EVERY\t 2d "), Duration::from_secs(2 * 86_400));
    assert_eq!(every("@every 1d2h3m4s"), Duration::from_secs(86_400 + 2 * 3_600 + 184));
    assert_eq!(every("@every 1s"), EVERY_MIN);
    assert_eq!(every("@every 366d"), EVERY_MAX);
}

/// These values are on disks. If one of them changes, schedules move.
#[test]
fn a_name_keeps_its_values() {
    let cron = open_as("H H H H H H", "backup");
    let found = [
        cron.seconds.trailing_zeros(),
        cron.minutes.trailing_zeros(),
        cron.hours.trailing_zeros(),
        cron.days.trailing_zeros(),
        cron.months.trailing_zeros(),
        cron.weekdays.trailing_zeros(),
    ];
    // Worked out apart from this code, from the definition in `crate::hash`.
    assert_eq!(found, [29, 25, 1, 2, 12, 2]);
}

#[test]
fn names_are_spread_evenly_and_apart() {
    let mut counts = [0; 60];
    let mut same = 0;
    for number in 0..6_000 {
        let cron = open_as("H H * * *", &format!("trigger-{number}"));
        counts[cron.minutes.trailing_zeros() as usize] += 1;
        same += u32::from(cron.minutes.trailing_zeros() == cron.hours.trailing_zeros());
    }
    assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    assert!((50..150).contains(&same), "minute and hour go together: {same}");
}

#[test]
fn quartz_counts_weekdays_from_sunday_1() {
    let weekdays = |field: &str| u64::from(quartz(&format!("0 0 0 ? * {field}")).weekdays);
    assert_eq!(weekdays("1"), bits([0]));
    assert_eq!(weekdays("7"), bits([6]));
    assert_eq!(weekdays("2-6"), bits(1..6));
    assert_eq!(weekdays("6-2"), bits([5, 6, 0, 1]));
    assert_eq!(weekdays("MON-FRI"), bits(1..6));
    assert_eq!(weekdays("2/2"), bits([1, 3, 5]));
    assert_eq!(weekdays("L"), bits([6]));
    let rare = |field: &str| *quartz(&format!("0 0 0 ? * {field}")).rare.expect("rare");
    assert_eq!(rare("6L").last, 1 << 5);
    assert_eq!(rare("FRIL").last, 1 << 5);
    assert_eq!(rare("6#3").nth, [0, 0, 0, 0, 0, 1 << 3, 0]);
}

#[test]
fn quartz_shares_the_rest_with_open() {
    for days in ["L", "L-3", "LW", "15W", "1,15", "10-20/5", "*"] {
        assert_eq!(
            quartz(&format!("0 0 12 {days} * ?")),
            open(&format!("0 0 12 {days} * ?")),
            "{days}"
        );
    }
    assert_eq!(quartz("0 0 12 ? * MON").kind.days, Days::OfWeek);
    assert_eq!(quartz("0 0 12 ? * *").kind.days, Days::OfMonth);
    assert_eq!(quartz("0 0 12 1 1 ? *").rare, None);
    let years = |field: &str| quartz(&format!("0 0 12 1 1 ? {field}")).rare.expect("years").years;
    assert_eq!(years("2027-2029"), [(2027, 2029, 1)]);
    assert_eq!(years("*/10"), [(1970, 2090, 10)]);
    assert_eq!(years("2095/2"), [(2095, 2099, 2)]);
}

#[test]
fn the_length_is_limited() {
    let text = |len: usize| format!("{:len$}", "0 0 * * *");
    assert!(Cron::parse(&text(CRON_BYTES_MAX), Dialect::Open, "").is_ok());
    let error = Cron::parse(&text(CRON_BYTES_MAX + 1), Dialect::Open, "").expect_err("too long");
    assert_eq!(
        error.to_string(),
        "pattern, character 1025: the pattern has 1025 bytes; up to 1024 are allowed"
    );
    let error = Cron::parse(&"é".repeat(600), Dialect::Open, "").expect_err("too long");
    assert_eq!(error.position(), 512);
}

#[test]
fn an_error_has_parts_for_those_who_draw() {
    let error = Cron::parse("0 24 * * *", Dialect::Open, "").expect_err("an hour too many");
    assert_eq!(error.field(), Some(Field::Hour));
    assert_eq!(error.position(), 2);
    assert_eq!(error.wrong(), "24 is too large");
    assert_eq!(error.allowed(), "0 to 23 are allowed");
}

#[test]
fn what_a_file_leaves_at_the_end_does_not_matter() {
    let plain = Cron::parse("0 12 * * *", Dialect::Open, "");
    for text in ["0 12 * * *\n", "0 12 * * *\r\n"] {
        assert_eq!(Cron::parse(text, Dialect::Open, ""), plain);
    }
}

fn dialects() -> impl Strategy<Value = Dialect> {
    prop_oneof![Just(Dialect::Open), Just(Dialect::Quartz)]
}

/// Texts made of what patterns are made of, many of which are patterns.
fn cron_like() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "*",
        "?",
        "H",
        "L",
        "W",
        "LW",
        "#",
        "+",
        "-",
        "/",
        ",",
        "(",
        ")",
        " ",
        "\t",
        "0",
        "1",
        "5",
        "7",
        "12",
        "31",
        "59",
        "60",
        "2027",
        "99999999999",
        "MON",
        "fri",
        "JAN",
        "dec",
        "@",
        "é",
        "@every ",
        "90s",
        "1h",
        "d",
        "\n",
        "\u{0}",
    ]);
    let free = prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat());
    let item = prop::sample::select(vec![
        "*",
        "?",
        "1",
        "2-5",
        "5-2",
        "*/2",
        "3/4",
        "H",
        "H/3",
        "H(1-5)",
        "H(5-1)/2",
        "L",
        "L-2",
        "LW",
        "3W",
        "5L",
        "2#3",
        "MON#L",
        "SAT-TUE",
        "OCT-MAR/2",
        "+1",
        "59",
        "2030",
    ]);
    let field = prop::collection::vec(item, 1..3).prop_map(|items| items.join(","));
    let fields = prop::collection::vec(field, 5..8).prop_map(|fields| fields.join(" "));
    prop_oneof![free, fields]
}

fn check(text: &str, dialect: Dialect, name: &str) {
    match Cron::parse(text, dialect, name) {
        Ok(Parsed::Every(every)) => assert!((EVERY_MIN..=EVERY_MAX).contains(&every)),
        Ok(Parsed::Pattern(cron)) => check_pattern(&cron),
        Err(error) => {
            assert!(error.position() <= text.chars().count());
            assert!(!error.to_string().chars().any(char::is_control), "{error}");
        }
    }
}

/// Every field matches something, and nothing that does not exist.
fn check_pattern(cron: &Cron) {
    let rare = cron.rare.as_deref().cloned().unwrap_or_default();
    assert_ne!(cron.rare.as_deref(), Some(&Rare::default()));
    for (field, allowed) in [
        (cron.seconds, bits(0..60)),
        (cron.minutes, bits(0..60)),
        (u64::from(cron.hours), bits(0..24)),
        (u64::from(cron.months), bits(1..13)),
    ] {
        assert!(field != 0 && field & !allowed == 0);
    }
    assert_eq!(cron.days & !ALL_DAYS, 0);
    assert_eq!(cron.weekdays & !0x7f, 0);
    assert_eq!(rare.nearest & !ALL_DAYS, 0);
    assert_eq!(rare.from_end >> 31, 0);
    assert_eq!(rare.last & !0x7f, 0);
    assert!(rare.nth.iter().all(|nth| nth & !0b11_1110 == 0));
    let of_month = cron.days != 0 || rare.from_end != 0 || rare.nearest != 0 || rare.last_workday;
    let of_week = cron.weekdays != 0 || rare.last != 0 || rare.nth != [0; 7];
    assert!(of_month && of_week);
    assert!(rare.years.is_sorted());
    for (first, last, step) in rare.years {
        assert!(1 <= first && first <= last && last <= 9_999 && (last - first) % step == 0);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_pattern_or_an_error(text in ".{0,80}", dialect in dialects(), name in ".{0,9}") {
        check(&text, dialect, &name);
    }

    #[test]
    fn any_text_like_a_pattern_is_one_or_an_error(text in cron_like(), dialect in dialects(), name in ".{0,9}") {
        check(&text, dialect, &name);
    }

    #[test]
    fn a_hashed_value_lies_in_its_range(name in ".{0,20}", step in 1_u32..60) {
        let cron = open_as("H(10-20) H H H H", &name);
        prop_assert_eq!(cron.minutes.count_ones(), 1);
        prop_assert!((10..=20).contains(&cron.minutes.trailing_zeros()));
        prop_assert!(cron.hours.trailing_zeros() < 24);
        prop_assert!((1..=28).contains(&cron.days.trailing_zeros()));
        prop_assert!((1..=12).contains(&cron.months.trailing_zeros()));
        prop_assert!(cron.weekdays.trailing_zeros() < 7);
        let night = open_as("H H(22-2) * * *", &name);
        prop_assert!([22, 23, 0, 1, 2].contains(&night.hours.trailing_zeros()));
        let stepped = open_as(&format!("H/{step} * * * *"), &name).minutes;
        let first = stepped.trailing_zeros();
        prop_assert!(first < step);
        prop_assert_eq!(stepped, bits((first..60).step_by(step as usize)));
        let workday = open_as("0 0 * * H(MON-FRI)", &name).weekdays;
        prop_assert!((1..=5).contains(&workday.trailing_zeros()));
    }
}

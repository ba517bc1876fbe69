use super::super::{Cron, CronPace, Dialect, Parsed};

use std::collections::HashMap;

use proptest::prelude::*;

fn pattern(text: &str) -> Cron {
    match Cron::parse(text, Dialect::Open, "backup") {
        Ok(Parsed::Pattern(cron)) => cron,
        other => panic!("{text}: {other:?}"),
    }
}

#[rustfmt::skip]
const SENTENCES: &[(&str, &str)] = &[
    ("* * * * *", "Every minute"),
    ("* * * * * *", "Every second"),
    ("0 * * * *", "Every hour"),
    ("30 2 * * *", "At 02:30 every day"),
    ("0 0 * * *", "At 00:00 every day"),
    ("0 12 * * *", "At noon every day"),
    ("*/15 * * * *", "Every 15 minutes"),
    ("5/15 * * * *", "Every 15 minutes, starting 5 minutes past the hour"),
    ("*/15 9-17 * * MON-FRI", "Every 15 minutes from 09:00 to 17:59, Monday to Friday"),
    ("*/15 9-17 * * *", "Every 15 minutes from 09:00 to 17:59, every day"),
    ("*/30 * * * *", "Every 30 minutes"),
    ("0,30 * * * *", "Every 30 minutes"),
    ("0,30 9-17 * * *", "Every 30 minutes from 09:00 to 17:59, every day"),
    ("*/30 22-2 * * MON", "Every 30 minutes from 22:00 to 02:59 on Mondays"),
    ("*/30 2 * * *", "At 02:00 and 02:30 every day"),
    ("*/30 9,13,17 * * *", "At 0 and 30 minutes past 09:00, 13:00 and 17:00 every day"),
    ("*/30 */2 * * *", "At 0 and 30 minutes past every second hour, starting at 00:00"),
    ("5,35 * * * *", "At 5 and 35 minutes past every hour"),
    ("5 * * * *", "At 5 minutes past every hour"),
    ("1 * * * *", "At 1 minute past every hour"),
    ("*/7 * * * *", "Every 7 minutes from 0 to 56 past every hour"),
    ("10-50/10 * * * *", "Every 10 minutes from 10 to 50 past every hour"),
    ("0-29 * * * *", "Every minute from 0 to 29 past every hour"),
    ("55-5 * * * *", "Every minute from 0 to 5 and from 55 to 59 past every hour"),
    ("0-29 9 * * *", "Every minute from 09:00 to 09:29, every day"),
    ("* 2 * * *", "Every minute from 02:00 to 02:59, every day"),
    ("*/10 2 * * MON", "Every 10 minutes from 02:00 to 02:59 on Mondays"),
    ("5,20 9,13,17 * * *", "At 5 and 20 minutes past 09:00, 13:00 and 17:00 every day"),
    ("5,35 8-11,14-17 * * *", "At 5 and 35 minutes past every hour from 08:00 to 11:59 and from 14:00 to 17:59, every day"),
    ("0 6,18 * * *", "At 06:00 and 18:00 every day"),
    ("0 */6 * * *", "Every 6 hours"),
    ("30 */6 * * *", "Every 6 hours, starting at 00:30"),
    ("0 1/2 * * *", "Every 2 hours, starting at 01:00"),
    ("0 8-18/2 * * *", "Every 2 hours from 08:00 to 18:00, every day"),
    ("0 9-17 * * *", "Every hour from 09:00 to 17:00, every day"),
    ("0 9-17 * * 1-5", "Every hour from 09:00 to 17:00, Monday to Friday"),
    ("*/15 22-2 * * *", "Every 15 minutes from 22:00 to 02:59, every day"),
    ("0 8-11,14-17 * * *", "Every hour from 08:00 to 11:00 and from 14:00 to 17:00, every day"),
    ("0 1,2,3,9,14 * * *", "Every hour from 01:00 to 03:00, at 09:00 and at 14:00, every day"),
    ("*/15 */2 * * *", "Every 15 minutes in every second hour, starting at 00:00"),
    ("0,10,30 */2 * * *", "At 0, 10 and 30 minutes past every second hour, starting at 00:00"),
    ("0 9 * * 1", "At 09:00 on Mondays"),
    ("0 9 * * 1,3,5", "At 09:00 on Mondays, Wednesdays and Fridays"),
    ("0 9 * * 6,0", "At 09:00 on Saturdays and Sundays"),
    ("0 9 * * FRI-SUN", "At 09:00, Friday to Sunday"),
    ("0 9 * * 0,1,2,4,5,6", "At 09:00 every day except Wednesday"),
    ("0 9 * * 1-6", "At 09:00, Monday to Saturday"),
    ("*/5 * * * 0,1,2,4,5,6", "Every 5 minutes, every day except Wednesday"),
    ("*/5 * * * MON", "Every 5 minutes on Mondays"),
    ("0 9 1,15 * MON", "At 09:00 on the 1st and the 15th of every month, and on every Monday"),
    ("0 12 1 * +MON", "At noon on the 1st, if it is a Monday"),
    ("0 0 L * *", "At 00:00 on the last day of every month"),
    ("0 18 15W * *", "At 18:00 on the weekday nearest to the 15th of every month"),
    ("0 18 1W,15W * *", "At 18:00 on the first weekday and the weekday nearest to the 15th of every month"),
    ("0 18 10W,20W * *", "At 18:00 on the weekdays nearest to the 10th and the 20th of every month"),
    ("0 18 1W * *", "At 18:00 on the first weekday of every month"),
    ("0 18 30W * *", "At 18:00 on the weekday nearest to the 30th of every month that has one"),
    ("0 18 15W,31W * *", "At 18:00 on the weekdays nearest to the 15th and the 31st of every month"),
    ("0 18 LW * *", "At 18:00 on the last weekday of every month"),
    ("0 0 L-1 * *", "At 00:00 on the day before the last day of every month"),
    ("0 0 L-3 * *", "At 00:00 three days before the last day of every month"),
    ("*/15 * L-3 * *", "Every 15 minutes, three days before the last day of every month"),
    ("0 0 L-12 2 *", "At 00:00 12 days before the last day of February"),
    ("0 0 1,L-3 * *", "At 00:00 on the 1st and the third day before the last day of every month"),
    ("0 0 L-3 * MON", "At 00:00 three days before the last day of every month, and on every Monday"),
    ("0 0 L-3 * +MON", "At 00:00 three days before the last day, if that is a Monday"),
    ("0 0 28 * *", "At 00:00 on the 28th of every month"),
    ("0 0 29 * *", "At 00:00 on the 29th of every month that has one"),
    ("0 0 31 6-8 *", "At 00:00 on the 31st of every month from June to August that has one"),
    ("0 0 30 6-8 *", "At 00:00 on the 30th of every month from June to August"),
    ("0 0 31 1,4 *", "At 00:00 on the 31st of January and April"),
    ("0 0 15,31 * *", "At 00:00 on the 15th and the 31st of every month"),
    ("0 0 31,L-3 * *", "At 00:00 on the 31st and the third day before the last day of every month"),
    ("0 0 31 * MON", "At 00:00 on the 31st of every month that has one, and on every Monday"),
    ("0 0 31 * +MON", "At 00:00 on the 31st, if it is a Monday"),
    ("0 0 0 31 * * 2027", "At 00:00 on the 31st of every month in 2027 that has one"),
    ("0 0 1,L * *", "At 00:00 on the 1st and the last day of every month"),
    ("0 8 * * FRI#2", "At 08:00 on the second Friday of every month"),
    ("0 8 * * FRI#1,FRI#3", "At 08:00 on the first and third Friday of every month"),
    ("0 8 * * FRI#5", "At 08:00 on the fifth Friday of every month that has one"),
    ("0 8 * 5 FRI#5", "At 08:00 on the fifth Friday of May"),
    ("0 8 * * FRI#5,FRI#L", "At 08:00 on the fifth and last Friday of every month"),
    ("0 8 * * FRI#L", "At 08:00 on the last Friday of every month"),
    ("0 8 * * MON#1,FRI#L", "At 08:00 on the first Monday and the last Friday of every month"),
    ("0 8 * * MON,FRI#2", "At 08:00 on Mondays, and on the second Friday of every month"),
    ("0 8 15 * FRI#2", "At 08:00 on the 15th and on the second Friday of every month"),
    ("0 8 15 6 FRI#2", "At 08:00 on the 15th and on the second Friday of June"),
    ("0 0 29 2 *", "At 00:00 on 29 February"),
    ("0 0 1 1 *", "At 00:00 on 1 January"),
    ("0 0 1,15 1 *", "At 00:00 on 1 and 15 January"),
    ("0 0 1-7 1 *", "At 00:00 from 1 to 7 January"),
    ("0 0 1-7 * *", "At 00:00 from the 1st to the 7th of every month"),
    ("0 0 1-7,15 * *", "At 00:00 on the 1st to the 7th and the 15th of every month"),
    ("0 0 */2 * *", "At 00:00 on every second day from the 1st to the 31st of every month"),
    ("0 0 */5 * *", "At 00:00 on every fifth day from the 1st to the 31st of every month"),
    ("0 0 1/10 * *", "At 00:00 on the 1st, the 11th, the 21st and the 31st of every month"),
    ("0 0 1 */3 *", "At 00:00 on the 1st of January, April, July and October"),
    ("0 0 1 */2 *", "At 00:00 on the 1st of every second month from January"),
    ("0 0 1 6-8 *", "At 00:00 on the 1st of every month from June to August"),
    ("0 0 1 NOV-FEB *", "At 00:00 on the 1st of every month from November to February"),
    ("0 9 * 1 *", "At 09:00 every day in January"),
    ("0 9 * 6-8 MON", "At 09:00 on Mondays from June to August"),
    ("0 9 * 1,7 MON-FRI", "At 09:00, Monday to Friday, in January and July"),
    ("0 9 1,15 6 MON", "At 09:00 on the 1st and the 15th, and on every Monday, in June"),
    ("0 9 1-7 * +MON", "At 09:00 on Mondays from the 1st to the 7th of every month"),
    ("0 9 1-7 * +MON-FRI", "At 09:00, Monday to Friday, from the 1st to the 7th of every month"),
    ("0 9 13 * +FRI", "At 09:00 on the 13th, if it is a Friday"),
    ("0 9 1,15 * +MON-FRI", "At 09:00 on the 1st and the 15th, if it is a weekday"),
    ("0 9 1 1 +MON", "At 09:00 on 1 January, if it is a Monday"),
    ("0 9 1 * +FRI#1", "At 09:00 on the 1st, if it is the first Friday of the month"),
    ("0 9 1-7 * MON", "At 09:00 from the 1st to the 7th of every month, and on every Monday"),
    ("0 9 1 * MON-FRI", "At 09:00 on the 1st of every month, and on every day from Monday to Friday"),
    ("*/15 * * 1 *", "Every 15 minutes in January"),
    ("*/15 9-17 * 6-8 *", "Every 15 minutes from 09:00 to 17:59, every day from June to August"),
    ("*/15 9-17 1-7 * *", "Every 15 minutes from 09:00 to 17:59, from the 1st to the 7th of every month"),
    ("0 0 0 1 1 * 2027,2030", "At 00:00 on 1 January in 2027 and 2030"),
    ("0 0 0 1 1 * 2027", "At 00:00 on 1 January 2027"),
    ("0 30 2 * * * 2027", "At 02:30 every day in 2027"),
    ("0 30 2 * * * 2027-2030", "At 02:30 every day from 2027 to 2030"),
    ("0 30 2 * * * 2027/2", "At 02:30 every day in every second year from 2027 on"),
    ("0 */15 * * * * 2027", "Every 15 minutes in 2027"),
    ("0 0 9 * 1 * 2027", "At 09:00 every day in January 2027"),
    ("0 0 9 * * MON-FRI 2027", "At 09:00, Monday to Friday, in 2027"),
    ("0 0 9 1 * +MON 2027", "At 09:00 on the 1st of every month in 2027, if it is a Monday"),
    ("0 0 9 1 */2 * 2027", "At 09:00 on the 1st of every second month from January, in 2027"),
    ("15 30 2 * * *", "At 02:30:15 every day"),
    ("30 * * * * *", "At 30 seconds past every minute"),
    ("15 0 * * * *", "At 15 seconds past every hour"),
    ("15 5 * * * *", "At 5 minutes and 15 seconds past every hour"),
    ("15 */5 * * * *", "Every 5 minutes, at 15 seconds past the minute"),
    ("*/10 * * * * *", "Every 10 seconds"),
    ("5/10 * * * * *", "Every 10 seconds, starting 5 seconds past the minute"),
    ("0,30 * * * * *", "Every 30 seconds"),
    ("0-29 * * * * *", "Every second from 0 to 29 past every minute"),
    ("* * 9-17 * * *", "Every second from 09:00:00 to 17:59:59, every day"),
    ("*/10 * 9-17 * * MON-FRI", "Every 10 seconds from 09:00:00 to 17:59:59, Monday to Friday"),
    ("* 30 2 * * *", "Every second from 02:30:00 to 02:30:59, every day"),
    ("*/10 30-44 2 * * *", "Every 10 seconds from 02:30:00 to 02:44:59, every day"),
    ("*/10 */5 * * * *", "Every 10 seconds in every fifth minute"),
    ("*/10 0,30 * * * *", "Every 10 seconds in minutes 0 and 30 of every hour"),
    ("*/10 0,30 9-17 * * *", "Every 10 seconds in minutes 0 and 30 of every hour from 09:00 to 17:59, every day"),
    ("0,30 */5 9-17 * * *", "At 0 and 30 seconds past the minute, in every fifth minute of every hour from 09:00 to 17:59, every day"),
    ("0,30 0 9 * * *", "At 09:00:00 and 09:00:30 every day"),
    ("0,30 * 9-17 * * *", "Every 30 seconds from 09:00:00 to 17:59:59, every day"),
    ("1,2,3,5,9 30 2 * * *", "At 1, 2, 3, 5 and 9 seconds past 02:30 every day"),
    ("* 5 * * * *", "Every second in minute 5 of every hour"),
    ("* * */2 * * *", "Every second in every second hour, starting at 00:00"),
    ("30 30 */2 * * *", "Every 2 hours, starting at 00:30:30"),
    ("0 0 31 2 *", "At 00:00 on 31 February"),
    ("H H * * *", "At 01:25 every day"),
    ("H/20 * * * *", "Every 20 minutes, starting 5 minutes past the hour"),
    ("0 0 2,3,23 * *", "At 00:00 on the 2nd, the 3rd and the 23rd of every month"),
    ("0 9,12 * * *", "At 09:00 and 12:00 every day"),
    ("5/20 8-10 * * *", "Every 20 minutes from 08:05 to 10:59, every day"),
    ("0 0 1-7,L * *", "At 00:00 on the 1st to the 7th and the last day of every month"),
    ("0 0 2-30/2 2 *", "At 00:00 on every second day from the 2nd to the 30th of February"),
    ("*/7 */2 * * *", "Every 7 minutes from 0 to 56 past every second hour, starting at 00:00"),
    ("1,2,3,4,5,30 9 * * *", "At 09:01, 09:02, 09:03, 09:04, 09:05 and 09:30 every day"),
    ("30 * 9-17 * * *", "At 30 seconds past every minute from 09:00 to 17:59, every day"),
    ("0 0 1-31 * MON", "At 00:00 every day"),
    ("0 9 * * 0-6", "At 09:00 every day"),
    ("0 0 * * +MON", "At 00:00 on Mondays"),
    ("0 */8 * * *", "Every 8 hours"),
    ("0 0,12 * * *", "At 00:00 and 12:00 every day"),
    ("0 9 1 * +MON,FRI#2", "At 09:00 on the 1st, if it is a Monday or the second Friday of the month"),
    ("0 8 * * MON-WED,FRI#2", "At 08:00, Monday to Wednesday, and on the second Friday of every month"),
    ("0 8 * 6 MON,FRI#2", "At 08:00 on Mondays, and on the second Friday of the month, in June"),
    ("0 9 1 * MON,FRI#2", "At 09:00 on the 1st of every month, on every Monday, and on the second Friday of the month"),
    ("0 0 0 1 * * 2027-2029,2035", "At 00:00 on the 1st of every month from 2027 to 2029 and in 2035"),
    ("0 0 0 1 1 * 2030-9999", "At 00:00 on 1 January from 2030 on"),
    ("0 0 0 1 1 * 2028-2040/4", "At 00:00 on 1 January in every fourth year from 2028 to 2040"),
    ("0 */5 * * *", "Every 5 hours from 00:00 to 20:00, every day"),
    ("45 23 L 2 *", "At 23:45 on the last day of February"),
    ("0 9 1 6 MON,FRI#2", "At 09:00 on the 1st, on every Monday, and on the second Friday of the month, in June"),
];

#[test]
fn patterns_read_like_sentences() {
    for (text, sentence) in SENTENCES {
        assert_eq!(pattern(text).explain(), *sentence, "{text}");
    }
}

#[test]
fn different_ways_to_write_a_pattern_read_the_same() {
    for (one, other) in [
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("0 0 * * 7", "0 0 * * SUN"),
        ("0 0 * * 5L", "0 0 * * FRI#L"),
        ("0 22-2 * * *", "0 0,1,2,22,23 * * *"),
        ("@weekly", "0 0 0 ? * SUN *"),
    ] {
        assert_eq!(pattern(one).explain(), pattern(other).explain());
    }
}

/// A sentence that two patterns share would hide something of one of them.
#[test]
fn different_patterns_read_differently() {
    let minutes = ["0", "*", "5", "*/15", "5/15", "0,30", "*/7", "0-29", "55-5"];
    let hours = ["*", "12", "9-17", "*/2", "1/2", "22-2", "8-18/2", "6,18", "8-11,14-17"];
    let days = ["*", "1", "1-7", "L", "L-3", "15W", "LW", "*/2", "1,L"];
    let months = ["*", "1", "6-8", "*/2", "1,7"];
    let weekdays = ["*", "MON", "MON-FRI", "MON,WED", "FRI#2", "MON,FRI#2", "+MON", "+FRI#2"];
    let years = ["*", "2027", "2027-2030/3"];
    let mut seen: HashMap<String, Cron> = HashMap::new();
    let mut check = |text: &str| {
        let mut cron = pattern(text);
        cron.kind.pace = CronPace::Fixed;
        let before = seen.entry(cron.explain()).or_insert_with(|| cron.clone());
        assert_eq!(*before, cron, "{text}: {}", cron.explain());
    };
    for second in minutes {
        for minute in minutes {
            for hour in hours {
                check(&format!("{second} {minute} {hour} * * *"));
            }
        }
    }
    for (day, month) in days.into_iter().flat_map(|day| months.map(|month| (day, month))) {
        for weekday in weekdays {
            for year in years {
                check(&format!("0 0 0 {day} {month} {weekday} {year}"));
            }
        }
    }
}

proptest! {
    #[test]
    fn any_pattern_has_a_sentence(
        clock in prop::array::uniform3(prop::sample::select(vec!["*", "0", "3", "*/4", "5/9", "1,7", "20-4", "H"])),
        day in prop::sample::select(vec!["*", "?", "31", "3/4", "30-2", "L-2,5W", "LW,1-9"]),
        month in prop::sample::select(vec!["*", "12", "3/4", "10-2", "1,2"]),
        weekday in prop::sample::select(vec!["*", "0", "*/3", "SAT-TUE", "2#3,4L", "+5", "+1,2#1", "+0-6"]),
        year in prop::sample::select(vec!["*", "1", "9999", "2027/3", "2030-2040,2050"]),
    ) {
        let [second, minute, hour] = clock;
        let sentence = pattern(&format!("{second} {minute} {hour} {day} {month} {weekday} {year}")).explain();
        prop_assert!(sentence.starts_with("At ") || sentence.starts_with("Every "));
        for flaw in ["  ", " ,", ",,", "every day of", "and and", "on on"] {
            prop_assert!(!sentence.contains(flaw), "{}", sentence);
        }
        prop_assert!(sentence.ends_with(|last: char| last.is_alphanumeric()));
    }
}

//! On which days: the second part of the sentence, with months and years.

use super::super::super::civil::month_len;
use super::super::{Cron, Days, Rare};
use super::{
    and, cardinal, enumerate, even_step, join, nth, ordinal, run_words, runs, runs_around, values,
};

const ALL_DAYS: u32 = 0xffff_fffe;
const ALL_WEEKDAYS: u8 = 0x7f;
const MONDAY_TO_FRIDAY: u8 = 0b11_1110;

/// Days up to this many are listed one by one.
const LISTED_MAX: usize = 4;

/// A year without a leap day.
const COMMON_YEAR: i32 = 2027;

const THAT_HAS_ONE: &str = " that has one";

/// On which days.
pub(super) struct DayPhrase {
    pub(super) lead: Lead,
    pub(super) text: String,
    /// Months and years, if they are not part of the text.
    pub(super) rest: String,
}

/// With what the text begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// As in "every day".
    EveryDay,
    /// "every day except Wednesday"
    Except,
    /// "Monday to Friday"
    Range,
    /// "on the 1st of every month"
    On,
    /// "from the 1st to the 7th of every month"
    From,
    /// "two days before the last day of every month"
    Before,
}

impl DayPhrase {
    pub(super) fn of(cron: &Cron) -> Self {
        let none = Rare::default();
        let rare = cron.rare.as_deref().unwrap_or(&none);
        let month = OfMonth { days: cron.days, rare };
        let week = OfWeek::of(cron.weekdays, rare);
        let calendar = MonthsAndYears { months: cron.months, years: &rare.years };
        match (cron.kind.days, month.is_all(), week.is_all()) {
            (Days::OfMonth, true, _) | (Days::OfWeek, _, true) | (Days::Both, true, true) => {
                Self::every(&calendar)
            }
            (Days::Either, true, _) | (Days::Either, _, true) => Self::every(&calendar),
            (Days::OfMonth, false, _) | (Days::Both, false, true) => {
                Self::of_month(&month, &calendar)
            }
            (Days::OfWeek, _, false) | (Days::Both, true, false) => Self::of_week(&week, &calendar),
            (Days::Either, false, false) => Self::either(&month, &week, &calendar),
            (Days::Both, false, false) => Self::both(&month, &week, &calendar),
        }
    }

    fn every(calendar: &MonthsAndYears) -> Self {
        Self { lead: Lead::EveryDay, text: "every day".to_owned(), rest: calendar.within() }
    }

    fn of_month(month: &OfMonth, calendar: &MonthsAndYears) -> Self {
        let (lead, text) = month.dated(calendar);
        Self { lead, text, rest: String::new() }
    }

    fn of_week(week: &OfWeek, calendar: &MonthsAndYears) -> Self {
        if week.plain == 0 {
            let text =
                format!("on {} {}{}", and(&week.chosen), calendar.of(), week.proviso(calendar));
            return Self { lead: Lead::On, text, rest: String::new() };
        }
        let (lead, text) = week.regularly();
        if week.chosen.is_empty() {
            return Self { lead, text, rest: calendar.within() };
        }
        let chosen = and(&week.chosen);
        let text = if calendar.is_all() {
            format!("{text}, and on {chosen} of every month")
        } else {
            format!("{text}, and on {chosen} of the month, {}", calendar.within())
        };
        Self { lead, text, rest: String::new() }
    }

    /// "on the 1st of every month, and on every Monday".
    fn either(month: &OfMonth, week: &OfWeek, calendar: &MonthsAndYears) -> Self {
        let (lead, dates) = month.dates();
        if week.plain == 0 {
            let text = format!("{dates} and on {} {}", and(&week.chosen), calendar.of());
            return Self { lead, text, rest: String::new() };
        }
        let weekdays = match &*week.chosen {
            [] => format!("and {}", week.each()),
            chosen => format!("{}, and on {} of the month", week.each(), and(chosen)),
        };
        let text = if calendar.is_all() {
            format!("{dates} of every month{}, {weekdays}", month.proviso(calendar))
        } else {
            format!("{dates}, {weekdays}, {}", calendar.within())
        };
        Self { lead, text, rest: String::new() }
    }

    /// "on the 1st, if it is a Monday", "on Mondays from the 1st to the 7th of every month".
    fn both(month: &OfMonth, week: &OfWeek, calendar: &MonthsAndYears) -> Self {
        let (lead, dates) = if calendar.is_all() { month.dates() } else { month.dated(calendar) };
        if lead == Lead::From && week.chosen.is_empty() {
            let (week_lead, weekdays) = week.regularly();
            let (_, dates) = month.dated(calendar);
            let separator = if week_lead == Lead::On { " " } else { ", " };
            let text = format!("{weekdays}{separator}{dates}");
            return Self { lead: week_lead, text, rest: String::new() };
        }
        // "It" would be the last day.
        let it = if lead == Lead::Before { "that" } else { "it" };
        Self { lead, text: format!("{dates}, if {it} is {}", week.one()), rest: String::new() }
    }
}

/// The field day of month.
struct OfMonth<'a> {
    days: u32,
    rare: &'a Rare,
}

impl OfMonth<'_> {
    fn is_all(&self) -> bool {
        self.days == ALL_DAYS
    }

    /// The days with their months: "on the 1st of every month", "on 1 January".
    fn dated(&self, calendar: &MonthsAndYears) -> (Lead, String) {
        let days = values(u64::from(self.days));
        let is_stepped = days.len() > LISTED_MAX && even_step(&days).is_some();
        match calendar.only_month() {
            Some(month) if self.ends().is_empty() && !is_stepped => {
                let years = calendar.years_after_month();
                match &*runs(&days) {
                    [(first, last)] if last - first >= 2 => {
                        (Lead::From, format!("from {first} to {last} {month}{years}"))
                    }
                    runs => {
                        let days = run_words(runs, |day| day.to_string());
                        (Lead::On, format!("on {} {month}{years}", and(&days)))
                    }
                }
            }
            _ => {
                let (lead, dates) = self.dates();
                (lead, format!("{dates} {}{}", calendar.of(), self.proviso(calendar)))
            }
        }
    }

    /// The days without their months: "on the 1st and the 15th".
    fn dates(&self) -> (Lead, String) {
        let the = |day: u32| format!("the {}", ordinal(day));
        let days = values(u64::from(self.days));
        let runs = runs(&days);
        let ends = self.ends();
        if let (&[(first, last)], []) = (&*runs, &*ends)
            && last - first >= 2
        {
            return (Lead::From, format!("from {} to {}", the(first), the(last)));
        }
        if let Some(before) = self.only_before_last() {
            return (Lead::Before, format!("{} days before the last day", cardinal(before)));
        }
        let mut items = match even_step(&days) {
            Some(step) if days.len() > LISTED_MAX => {
                let (first, last) = (days[0], days[days.len() - 1]);
                vec![format!("every {} day from {} to {}", nth(step), the(first), the(last))]
            }
            _ => run_words(&runs, the),
        };
        items.extend(ends);
        (Lead::On, format!("on {}", and(&items)))
    }

    /// " that has one", if it is a single day that some of many months do not have.
    fn proviso(&self, calendar: &MonthsAndYears) -> &'static str {
        let has_ends = self.rare.from_end != 0 || self.rare.last_workday;
        let day = match (&*values(u64::from(self.days)), &*values(u64::from(self.rare.nearest))) {
            ([day], []) | ([], [day]) if !has_ends => *day,
            _ => return "",
        };
        if calendar.is_broad() && calendar.shortest() < day { THAT_HAS_ONE } else { "" }
    }

    /// How many days before the last one, if there is nothing else, and it is more than one.
    fn only_before_last(&self) -> Option<u32> {
        let is_alone = self.days == 0 && self.rare.nearest == 0 && !self.rare.last_workday;
        match *values(u64::from(self.rare.from_end)) {
            [before] if is_alone && before > 1 => Some(before),
            _ => None,
        }
    }

    /// What depends on the month: its first and last days, and weekdays nearest to some day.
    fn ends(&self) -> Vec<String> {
        let mut items = Vec::new();
        // The weekday nearest to the 1st stays in its month, and so is the first one.
        if self.rare.nearest & 1 << 1 != 0 {
            items.push("the first weekday".to_owned());
        }
        let nearest: Vec<_> = values(u64::from(self.rare.nearest))
            .into_iter()
            .filter(|day| *day > 1)
            .map(|day| format!("the {}", ordinal(day)))
            .collect();
        match nearest.len() {
            0 => {}
            1 => items.push(format!("the weekday nearest to {}", nearest[0])),
            _ => items.push(format!("the weekdays nearest to {}", and(&nearest))),
        }
        for before in values(u64::from(self.rare.from_end)).into_iter().rev() {
            items.push(match before {
                0 => "the last day".to_owned(),
                1 => "the day before the last day".to_owned(),
                _ => format!("the {} day before the last day", nth(before)),
            });
        }
        if self.rare.last_workday {
            items.push("the last weekday".to_owned());
        }
        items
    }
}

/// The field day of week.
struct OfWeek {
    /// Every one of these days.
    plain: u8,
    /// Only some in each month: "the second Friday".
    chosen: Vec<String>,
}

impl OfWeek {
    fn of(weekdays: u8, rare: &Rare) -> Self {
        let mut week = Self { plain: weekdays, chosen: Vec::new() };
        for day in MONDAY_FIRST {
            let nths = values(u64::from(rare.nth[day]));
            let mut which: Vec<_> = nths.into_iter().map(nth).collect();
            if which.len() == 5 {
                week.plain |= 1 << day;
            }
            if rare.last >> day & 1 == 1 {
                which.push("last".to_owned());
            }
            if !which.is_empty() && week.plain >> day & 1 == 0 {
                week.chosen.push(format!("the {} {}", and(&which), WEEKDAYS[day]));
            }
        }
        week
    }

    fn is_all(&self) -> bool {
        self.plain == ALL_WEEKDAYS
    }

    /// " that has one", if it is a fifth weekday.
    fn proviso(&self, calendar: &MonthsAndYears) -> &'static str {
        match &*self.chosen {
            [only] if calendar.is_broad() => {
                let is_fifth = WEEKDAYS.iter().any(|day| *only == format!("the fifth {day}"));
                if is_fifth { THAT_HAS_ONE } else { "" }
            }
            _ => "",
        }
    }

    /// "on Mondays", "Monday to Friday", "every day except Wednesday".
    fn regularly(&self) -> (Lead, String) {
        match self.range() {
            Some((first, last)) if self.plain.count_ones() < 6 || first < last => {
                let text = format!("{} to {}", name(first), name(last));
                (Lead::Range, text)
            }
            Some((first, _)) => {
                (Lead::Except, format!("every day except {}", name((first + 6) % 7)))
            }
            None => {
                let days: Vec<_> = self.names().map(|name| format!("{name}s")).collect();
                (Lead::On, format!("on {}", and(&days)))
            }
        }
    }

    /// "on every Monday and Friday", "on every day from Monday to Friday".
    fn each(&self) -> String {
        match self.range() {
            Some((first, last)) => format!("on every day from {} to {}", name(first), name(last)),
            None => format!("on every {}", and(&self.names().collect::<Vec<_>>())),
        }
    }

    /// "a Monday or Friday", "a weekday", "the second Friday of the month".
    fn one(&self) -> String {
        let plain = match self.plain {
            0 => None,
            MONDAY_TO_FRIDAY => Some("a weekday".to_owned()),
            _ => Some(format!("a {}", enumerate(&self.names().collect::<Vec<_>>(), " or "))),
        };
        let chosen = match &*self.chosen {
            [] => None,
            chosen => Some(format!("{} of the month", enumerate(chosen, " or "))),
        };
        let items: Vec<_> = plain.into_iter().chain(chosen).collect();
        enumerate(&items, " or ")
    }

    /// First and last of three or more days in a row, counted from Monday = 0.
    fn range(&self) -> Option<(u32, u32)> {
        let days: Vec<_> =
            (0..7).filter(|day| self.plain >> MONDAY_FIRST[*day as usize] & 1 == 1).collect();
        match *runs_around(&days, 0, 6) {
            [run] if days.len() >= 3 => Some(run),
            _ => None,
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let days = MONDAY_FIRST.into_iter().filter(|day| self.plain >> day & 1 == 1);
        days.map(|day| WEEKDAYS[day].to_owned())
    }
}

/// The name of a weekday counted from Monday = 0.
fn name(day: u32) -> &'static str {
    WEEKDAYS[MONDAY_FIRST[day as usize]]
}

const MONDAY_FIRST: [usize; 7] = [1, 2, 3, 4, 5, 6, 0];

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

pub(in crate::schedule) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The fields month and year.
struct MonthsAndYears<'a> {
    months: u16,
    years: &'a [(u16, u16, u16)],
}

/// The months of a pattern, in words.
enum Months {
    All,
    /// "January and July"
    Listed(String),
    /// "from June to August"
    Range(String),
    /// "every second month from January"
    Second(String),
}

impl MonthsAndYears<'_> {
    fn is_all(&self) -> bool {
        matches!(self.months(), Months::All) && self.years.is_empty()
    }

    /// "of every month", "of January and July 2027".
    fn of(&self) -> String {
        match self.months() {
            Months::All => format!("of every month{}", self.years_after(" ")),
            Months::Listed(months) => format!("of {months}{}", self.years_after_month()),
            Months::Range(months) => format!("of every month {months}{}", self.years_after_month()),
            Months::Second(months) => format!("of {months}{}", self.years_after(", ")),
        }
    }

    /// Every month, or every one from here to there.
    fn is_broad(&self) -> bool {
        match self.months() {
            Months::All | Months::Range(_) => true,
            Months::Listed(_) | Months::Second(_) => false,
        }
    }

    /// How many days the shortest of the months has, in most years.
    fn shortest(&self) -> u32 {
        let lens = self.month_values().into_iter().map(|month| month_len(COMMON_YEAR, month));
        lens.min().expect("a pattern has months")
    }

    /// "in January and July 2027", "from June to August"; nothing if there is nothing to say.
    fn within(&self) -> String {
        match self.months() {
            Months::All => self.years_after(""),
            Months::Listed(months) => format!("in {months}{}", self.years_after_month()),
            Months::Range(months) => format!("{months}{}", self.years_after_month()),
            Months::Second(months) => format!("in {months}{}", self.years_after(", ")),
        }
    }

    fn only_month(&self) -> Option<&'static str> {
        match *self.month_values() {
            [month] => Some(MONTHS[month as usize - 1]),
            _ => None,
        }
    }

    fn months(&self) -> Months {
        let months = self.month_values();
        let name = |month: u32| MONTHS[month as usize - 1];
        match (&*runs_around(&months, 1, 12), even_step(&months)) {
            _ if months.len() == 12 => Months::All,
            ([(first, last)], _) if months.len() > 2 => {
                Months::Range(format!("from {} to {}", name(*first), name(*last)))
            }
            (_, Some(2)) if months.len() == 6 => {
                Months::Second(format!("every second month from {}", name(months[0])))
            }
            _ => {
                let names: Vec<_> = months.iter().map(|month| name(*month).to_owned()).collect();
                Months::Listed(and(&names))
            }
        }
    }

    fn month_values(&self) -> Vec<u32> {
        values(u64::from(self.months))
    }

    /// After the name of a month a single year needs no "in": "January 2027".
    fn years_after_month(&self) -> String {
        match *self.years {
            [(first, last, _)] if first == last => format!(" {first}"),
            _ => self.years_after(" "),
        }
    }

    /// "in 2027 and 2030", "from 2027 to 2035", "in every second year from 2027 on".
    fn years_after(&self, separator: &str) -> String {
        let mut singles = Vec::new();
        let mut items = Vec::new();
        for &(first, last, step) in self.years {
            let end = if last > 9_999 - step { "on".to_owned() } else { format!("to {last}") };
            let span = match (last - first, step) {
                (0, _) => {
                    singles.push(first.to_string());
                    continue;
                }
                (1, 1) => {
                    singles.extend([first.to_string(), last.to_string()]);
                    continue;
                }
                (_, 1) => format!("from {first} {end}"),
                _ => format!("in every {} year from {first} {end}", nth(step.into())),
            };
            items.extend(in_years(&mut singles));
            items.push(span);
        }
        items.extend(in_years(&mut singles));
        join(String::new(), separator, &and(&items))
    }
}

/// Takes the years collected so far: "in 2027 and 2030".
fn in_years(years: &mut Vec<String>) -> Option<String> {
    let years = std::mem::take(years);
    (!years.is_empty()).then(|| format!("in {}", and(&years)))
}

//! A pattern in its zone, in plain English.
//!
//! What the pattern says comes first; then what becomes of it when clocks are set, each of the next times,
//! with the date and with the times of the pattern that do not come or come twice. If none of those matters to
//! it, a later one may.

use super::super::civil::{DAY, Date, Day, Second};
use super::super::cron::explain::{LISTED_MAX, MONTHS, and, time};
use super::super::zone::{ClockChange, UtcSecond, ZoneId};
use super::{Fold, Gap, Local};

/// How many of the next times that clocks are set are told: in most zones that is once each way.
const CHANGES_TOLD: usize = 2;

/// If none of those matters, the first that does is told, as far as this many more.
const CHANGES_LOOKED_AT: usize = 80;

impl Local {
    /// Says in sentences when it comes, and what becomes of it when clocks are set next after this second.
    pub fn explain(&self, after: UtcSecond) -> Vec<String> {
        let zone = self.zone.zone();
        let mut sentences = vec![format!("{}.", self.cron.explain())];
        let mut changes =
            std::iter::successors(zone.next_change(after), |set| zone.next_change(set.at));
        let next: Vec<_> = changes.by_ref().take(CHANGES_TOLD).collect();
        sentences.extend(next.iter().map(|set| self.explain_change(set)));
        if next.iter().all(|set| self.touched_by(set).is_none()) {
            let matters =
                changes.take(CHANGES_LOOKED_AT).find(|set| self.touched_by(set).is_some());
            sentences.extend(matters.map(|set| self.explain_change(&set)));
        }
        // Nobody expects UTC to be set.
        if sentences.len() == 1 && self.zone != ZoneId::UTC {
            sentences.push(format!("Clocks in {} are not set forward or back.", self.zone));
        }
        sentences
    }

    /// "On 29 March 2026 clocks in Europe/Berlin go forward from 02:00 to 03:00: …".
    fn explain_change(&self, set: &ClockChange) -> String {
        let Words { date, from, to } = Words::of(set);
        let is_gap = set.before < set.after;
        let way = if is_gap { "forward" } else { "back" };
        let clocks = format!("On {date} clocks in {} go {way} from {from} to {to}", self.zone);
        let Some(touched) = self.touched_by(set) else {
            return format!("{clocks}, which makes no difference to it.");
        };
        let then = if self.keeps_pace(set) {
            "it goes on at its usual pace".to_owned()
        } else if is_gap {
            self.explain_gap(set, &touched, &to)
        } else {
            self.explain_fold(&touched)
        };
        format!("{clocks}: {then}.")
    }

    /// "02:30 does not come, and it fires at 03:00 instead".
    fn explain_gap(&self, set: &ClockChange, touched: &Touched, to: &str) -> String {
        let (one, times) = (touched.is_one, &touched.times);
        let lost = format!("{times} {} not come", if one { "does" } else { "do" });
        match self.gap {
            Gap::Fire if self.cron.matches(set.after) => {
                format!("{lost}, and it fires at {to} anyway")
            }
            Gap::Fire if one => format!("{lost}, and it fires at {to} instead"),
            Gap::Fire => format!("{lost}, and it fires once at {to} instead"),
            Gap::Skip | Gap::Usual => {
                format!("{lost}, and {} left out", if one { "is" } else { "are" })
            }
        }
    }

    /// "02:30 comes twice, and it fires the first time only".
    fn explain_fold(&self, touched: &Touched) -> String {
        let come = if touched.is_one { "comes" } else { "come" };
        let when = match self.fold {
            Fold::First => "the first time only",
            Fold::Second => "the second time only",
            Fold::Both | Fold::Usual => "both times",
        };
        format!("{} {come} twice, and it fires {when}", touched.times)
    }

    /// The times of the pattern that do not come or come twice, if there are any.
    fn touched_by(&self, set: &ClockChange) -> Option<Touched> {
        let (low, high) = reach(set);
        let times: Vec<_> = self.matches(low, high).take(LISTED_MAX + 1).map(time_of_day).collect();
        let listed = match times.len() {
            0 => return None,
            len if len > LISTED_MAX => "its times between".to_owned(),
            _ => and(&times),
        };
        Some(Touched { times: listed, is_one: times.len() == 1 })
    }

    /// Whether it fires as if clocks had not been set: around the clock, at distances that fit into how far
    /// they are set.
    fn keeps_pace(&self, set: &ClockChange) -> bool {
        let follows_time = if set.before < set.after {
            self.gap == Gap::Skip || self.cron.matches(set.after)
        } else {
            self.fold == Fold::Both
        };
        let (low, high) = reach(set);
        let len = high - low;
        let shifted = self.matches(low, high).map(|second| second + len);
        follows_time && self.cron.has_all_hours() && shifted.eq(self.matches(high, high + len))
    }

    fn matches(&self, from: Second, to: Second) -> impl Iterator<Item = Second> {
        let next = move |from| self.cron.next(from).filter(|found| *found < to);
        std::iter::successors(next(from), move |found| next(found + 1))
    }
}

/// Times of a pattern that do not come or come twice.
struct Touched {
    /// "02:00 and 02:30".
    times: String,
    is_one: bool,
}

/// How a person says when clocks are set.
struct Words {
    date: String,
    from: String,
    to: String,
}

impl Words {
    fn of(set: &ClockChange) -> Self {
        let before = set.before.div_euclid(DAY);
        // Clocks that go back from midnight go back into the day that was about to end.
        let is_midnight = set.before == before * DAY && set.after < set.before;
        let (day, from) = if is_midnight {
            (before - 1, "24:00".to_owned())
        } else {
            (before, time_of_day(set.before))
        };
        let to = time_of_day(set.after);
        let to = match set.after.div_euclid(DAY) - day {
            0 => to,
            1.. => format!("{to} on the next day"),
            _ => format!("{to} on the day before"),
        };
        Self { date: date(day), from, to }
    }
}

/// The civil times that do not come or come twice: from the first one on, and before the second.
fn reach(set: &ClockChange) -> (Second, Second) {
    (set.before.min(set.after), set.before.max(set.after))
}

/// "29 March 2026".
fn date(day: Day) -> String {
    let Date { year, month, day } = Date::of(day);
    format!("{day} {} {year}", MONTHS[month as usize - 1])
}

fn time_of_day(second: Second) -> String {
    let of_day = u32::try_from(second.rem_euclid(DAY)).expect("less than a day");
    time(of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests;

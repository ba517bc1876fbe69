//! Schedules: when does it ring next?
//!
//! A schedule is one or several [`Spec`]s (cron patterns in a zone, intervals, instants), a first and a last
//! moment, a [`Calendar`] of times at which nothing fires, and a jitter. All of it is a pure function of the
//! moment one asks for: the next slot comes from the previous *slot*, never from now, so nothing drifts and
//! nothing depends on who asks. What was missed is computed, not walked: see [`Schedule::count`].
//!
//! - [`cron`]: which seconds of the calendar match
//! - [`local`]: what becomes of them when clocks are set
//! - [`zone`]: when clocks are set
//! - [`mod@every`]: intervals at a fixed distance
//! - [`calendar`]: when nothing fires

pub mod calendar;
pub mod civil;
pub mod cron;
pub mod every;
pub mod local;
pub mod zone;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use self::calendar::{Calendar, QuietWindow};
use self::civil::Date;
use self::every::Every;
use self::local::Local;
use self::zone::ZoneId;
use crate::hash::{hash, mix};
use crate::instant::Instant;
use crate::length::text;
use crate::limits::{
    AT_MAX, EXCLUDED_DATES_MAX, JITTER_MAX, QUIET_WINDOWS_MAX, SLOTS_WALKED_MAX, SPECS_MAX,
};
use crate::mutant::{Mutant, pick};

/// One way of saying when a trigger is due.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Spec {
    /// A cron pattern in a zone.
    Cron(Local),
    /// An interval of fixed length.
    Every(Every),
    /// These moments, in order.
    At(Arc<[Instant]>),
}

impl Spec {
    /// How many slots there are in a minute at most.
    fn per_minute_max(&self) -> u64 {
        match self {
            Self::Cron(local) => local.cron().per_minute_max(),
            Self::Every(every) => every.per_minute_max(),
            Self::At(moments) => {
                let after = |first: &Instant| moments.partition_point(|at| at.0 < first.0 + 60_000);
                let most = moments.iter().enumerate().map(|(place, first)| after(first) - place);
                most.max().unwrap_or(0) as u64
            }
        }
    }

    /// These moments, in any order.
    pub fn at(mut moments: Vec<Instant>) -> Result<Self, ScheduleError> {
        if moments.is_empty() || moments.len() > AT_MAX {
            return Err(ScheduleError::Instants { len: moments.len() });
        }
        moments.sort_unstable();
        match moments.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ScheduleError::Twice { instant: pair[0] }),
            None => Ok(Self::At(moments.into())),
        }
    }

    /// The first slot after this moment.
    fn next(&self, after: Instant) -> Option<Instant> {
        match self {
            Self::Cron(local) => local.next(after.second()).map(Instant::from_second),
            Self::Every(every) => every.next(after),
            Self::At(moments) => moments.get(moments.partition_point(|at| *at <= after)).copied(),
        }
    }

    fn count(&self, after: Instant, until: Instant) -> u64 {
        match self {
            Self::Cron(local) => local.count(after.second(), until.second()),
            Self::Every(every) => every.count(after, until),
            Self::At(moments) => {
                let up_to = |moment| moments.partition_point(|at| *at <= moment);
                up_to(until).saturating_sub(up_to(after)) as u64
            }
        }
    }

    fn nth(&self, after: Instant, until: Instant, skip: u64) -> Option<Instant> {
        match self {
            Self::Cron(local) => {
                local.nth(after.second(), until.second(), skip).map(Instant::from_second)
            }
            Self::Every(every) => every.nth(after, until, skip),
            Self::At(moments) => {
                let first = moments.partition_point(|at| *at <= after);
                let found = moments.get(first.checked_add(usize::try_from(skip).ok()?)?);
                found.copied().filter(|found| *found <= until)
            }
        }
    }

    /// The last slot after `after`, up to and including `until`.
    fn last(&self, after: Instant, until: Instant) -> Option<Instant> {
        let (mut until, mut length) = (until, Duration::from_secs(86_400));
        // Most come often, so the last day is looked at first; then what is before it, twice as long each time.
        while after < until {
            let from = after.max(until.before(length));
            if let Some(others) = self.count(from, until).checked_sub(1) {
                return self.nth(from, until, others);
            }
            (until, length) = (from, length.saturating_mul(2));
        }
        None
    }
}

/// When something is due. Most have one spec and nothing else; those take no more than that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Schedule(ScheduleForm);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ScheduleForm {
    Plain(Spec),
    Full(Box<Full>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Full {
    specs: Vec<Spec>,
    first: Instant,
    last: Instant,
    calendar: Option<Calendar>,
    jitter_ms: u32,
    limit: Option<NonZeroU64>,
}

/// What a schedule is made of.
#[derive(Debug, Clone, Default)]
pub struct SchedulePlan {
    /// When; nothing, for what is started on demand only.
    pub specs: Vec<Spec>,
    /// No slot before this.
    pub first: Option<Instant>,
    /// No slot after this.
    pub last: Option<Instant>,
    /// The zone of excluded dates and quiet windows.
    pub zone: Option<ZoneId>,
    /// Nothing fires on these dates.
    pub excluded: Vec<Date>,
    /// Nothing fires in these windows.
    pub quiet: Vec<QuietWindow>,
    /// Each slot leaves up to so much later.
    pub jitter: Duration,
    /// It ends after so many runs. Who counts them is whoever runs it.
    pub limit: Option<NonZeroU64>,
}

/// Why there is no such schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences below are the documentation of each field")]
pub enum ScheduleError {
    #[error("a list of instants has 1 to {AT_MAX} of them, and this one has {len}")]
    Instants { len: usize },
    #[error("{instant} is in the list twice: name each instant once")]
    Twice { instant: Instant },
    #[error("a schedule has at most {SPECS_MAX} specs, and this one has {len}")]
    Specs { len: usize },
    #[error("a calendar excludes at most {EXCLUDED_DATES_MAX} dates, and this one excludes {len}")]
    ExcludedDates { len: usize },
    #[error("there is no day {} of month {} in {}: it cannot be excluded", .date.day, .date.month, .date.year)]
    ExcludedDate { date: Date },
    #[error("a calendar has at most {QUIET_WINDOWS_MAX} quiet windows, and this one has {len}")]
    QuietWindows { len: usize },
    #[error(
        "a quiet window begins on at least one day of the week, at second 0 to 86399 of it, and ends at second 1 to 86400"
    )]
    QuietWindow,
    #[error("the jitter is at most {}, and {} was asked for", text(JITTER_MAX), text(*.jitter))]
    Jitter { jitter: Duration },
    #[error("it ends at {last}, before it starts at {first}")]
    Backwards { first: Instant, last: Instant },
    #[error(
        "it never fires after {after}: check its dates, its years, its end and its quiet windows"
    )]
    Never { after: Instant },
}

/// How many slots there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Exactly so many.
    Exactly(u64),
    /// More than were counted: several specs are counted one by one, up to a bound.
    MoreThan(u64),
}

impl Schedule {
    /// A schedule that fires at least once after `now`, or a reason why there is none.
    pub fn new(plan: SchedulePlan, now: Instant) -> Result<Self, ScheduleError> {
        plan.check()?;
        let on_demand = plan.specs.is_empty();
        let schedule = Self(plan.into_form());
        match schedule.next(now) {
            None if !on_demand => Err(ScheduleError::Never { after: now }),
            Some(_) | None => Ok(schedule),
        }
    }

    /// The first slot after this moment at which something fires.
    pub fn next(&self, after: Instant) -> Option<Instant> {
        if self.calendar().is_none() {
            return self.next_slot(after);
        }
        let (specs, after, last) = self.within(after, Instant::LAST);
        let mut slots: Vec<Option<Instant>> = specs.iter().map(|spec| spec.next(after)).collect();
        // Each step leaves an excluded stretch behind.
        for _ in 0..SLOTS_WALKED_MAX {
            let slot = slots.iter().flatten().min().copied().filter(|slot| *slot <= last)?;
            let Some((_, end)) = self.excluded_around(slot) else { return Some(slot) };
            let from = Instant(end.0 - 1);
            // A spec that comes rarely takes long to answer, so none is asked twice for the same slot.
            for (spec, slot) in specs.iter().zip(&mut slots) {
                if slot.is_some_and(|slot| slot <= from) {
                    *slot = spec.next(from);
                }
            }
        }
        None
    }

    /// The first slot after this moment, whether or not the calendar lets it fire.
    pub fn next_slot(&self, after: Instant) -> Option<Instant> {
        let (specs, after, last) = self.within(after, Instant::LAST);
        let next = specs.iter().filter_map(|spec| spec.next(after)).min();
        next.filter(|slot| *slot <= last)
    }

    /// How many slots fire after `after`, up to and including `until`. Ten years of every second cost no
    /// more than ten years of every month: spans, months and quiet windows are looked at, not slots. Only
    /// several specs together are walked, since they may share slots, up to a bound.
    pub fn count(&self, after: Instant, until: Instant) -> Count {
        let (specs, after, until) = self.within(after, until);
        match (specs, self.calendar()) {
            ([spec], None) => Count::Exactly(spec.count(after, until)),
            ([spec], Some(calendar)) => Count::Exactly(count_fired(spec, calendar, after, until)),
            _ => self.count_walked(after, until),
        }
    }

    /// The last slot that fires after `after`, up to and including `until`.
    pub fn last(&self, after: Instant, until: Instant) -> Option<Instant> {
        let (specs, after, until) = self.within(after, until);
        let mut slots: Vec<Option<Instant>> =
            specs.iter().map(|spec| spec.last(after, until)).collect();
        for _ in 0..SLOTS_WALKED_MAX {
            let slot = slots.iter().flatten().max().copied()?;
            let Some((start, _)) = self.excluded_around(slot) else { return Some(slot) };
            let until = Instant(start.0 - 1);
            for (spec, slot) in specs.iter().zip(&mut slots) {
                if slot.is_some_and(|slot| slot > until) {
                    *slot = spec.last(after, until);
                }
            }
        }
        None
    }

    /// The slot that has `skip` others before it, of those that fire after `after`, up to and including
    /// `until`. Computed for one spec without a calendar. Otherwise walked, up to a bound, and nothing is
    /// found past it.
    pub fn nth(&self, after: Instant, until: Instant, skip: u64) -> Option<Instant> {
        let (specs, after, until) = self.within(after, until);
        match (specs, self.calendar()) {
            ([spec], None) => spec.nth(after, until, skip),
            _ if skip > SLOTS_WALKED_MAX => None,
            _ => self.walk(after, until).nth(usize::try_from(skip).ok()?),
        }
    }

    /// When a slot leaves: the jitter is stable per slot and name, and never reaches the next slot.
    pub fn leaves_at(&self, slot: Instant, name: &str) -> Instant {
        let ScheduleForm::Full(full) = &self.0 else { return slot };
        if full.jitter_ms == 0 {
            return slot;
        }
        let roll = mix(hash(name, "jitter") ^ slot.0.unsigned_abs());
        let leaves_at = slot.after(Duration::from_millis(roll % (u64::from(full.jitter_ms) + 1)));
        let next = pick(Mutant::JitterNotCut, self.next(slot), None);
        next.map_or(leaves_at, |next| leaves_at.min(Instant(next.0 - 1)))
    }

    /// Whether slots may leave later than they are.
    pub fn is_jittered(&self) -> bool {
        match &self.0 {
            ScheduleForm::Plain(_) => false,
            ScheduleForm::Full(full) => full.jitter_ms > 0,
        }
    }

    /// After how many runs it ends, if it does.
    pub fn limit(&self) -> Option<NonZeroU64> {
        match &self.0 {
            ScheduleForm::Plain(_) => None,
            ScheduleForm::Full(full) => full.limit,
        }
    }

    /// How many slots there are in a minute at most.
    pub fn per_minute_max(&self) -> u64 {
        self.specs().iter().map(Spec::per_minute_max).sum()
    }

    /// Its specs; none for what is started on demand only.
    pub fn specs(&self) -> &[Spec] {
        match &self.0 {
            ScheduleForm::Plain(spec) => std::slice::from_ref(spec),
            ScheduleForm::Full(full) => &full.specs,
        }
    }

    fn calendar(&self) -> Option<&Calendar> {
        match &self.0 {
            ScheduleForm::Plain(_) => None,
            ScheduleForm::Full(full) => full.calendar.as_ref(),
        }
    }

    /// Its specs, and what of a stretch of time lies between its first and last moment.
    fn within(&self, after: Instant, until: Instant) -> (&[Spec], Instant, Instant) {
        let (first, last) = match &self.0 {
            ScheduleForm::Plain(_) => (Instant::FIRST, Instant::LAST),
            ScheduleForm::Full(full) => (full.first, full.last),
        };
        (self.specs(), after.clamp(Instant(first.0 - 1), Instant::LAST), until.min(last))
    }

    fn walk(&self, after: Instant, until: Instant) -> impl Iterator<Item = Instant> {
        std::iter::successors(self.next(after), |slot| self.next(*slot))
            .take_while(move |slot| *slot <= until)
    }

    fn count_walked(&self, after: Instant, until: Instant) -> Count {
        let bound = usize::try_from(SLOTS_WALKED_MAX).expect("a bound that fits");
        match self.walk(after, until).take(bound + 1).count() as u64 {
            count if count > SLOTS_WALKED_MAX => Count::MoreThan(SLOTS_WALKED_MAX),
            count => Count::Exactly(count),
        }
    }

    fn excluded_around(&self, slot: Instant) -> Option<(Instant, Instant)> {
        let (start, end) = self.calendar()?.around(slot.second())?;
        Some((Instant::from_second(start), Instant::from_second(end)))
    }
}

/// How many slots of a spec are not excluded: all of them, less those of each excluded stretch.
fn count_fired(spec: &Spec, calendar: &Calendar, after: Instant, until: Instant) -> u64 {
    let (mut fired, mut done) = (spec.count(after, until), after);
    // The first stretch may have begun before, and the next ones may overlap.
    while done < until {
        let from = done.second();
        let stretch = calendar.around(from + 1);
        let stretch = stretch.or_else(|| calendar.next(from + 1, until.second() + 1));
        let Some((start, end)) = stretch.filter(|(start, _)| *start <= until.second()) else {
            break;
        };
        let begin = Instant(start * 1_000 - 1).max(done);
        done = Instant(end * 1_000 - 1).min(until);
        fired -= spec.count(begin, done);
    }
    fired
}

impl SchedulePlan {
    /// A plan of one spec and nothing else.
    pub fn of(spec: Spec) -> Self {
        Self { specs: vec![spec], ..Self::default() }
    }

    fn check(&self) -> Result<(), ScheduleError> {
        let quiet_is_good = |quiet: &QuietWindow| {
            (1..=0x7f).contains(&quiet.weekdays)
                && quiet.from < 86_400
                && (1..=86_400).contains(&quiet.to)
        };
        if self.specs.len() > SPECS_MAX {
            return Err(ScheduleError::Specs { len: self.specs.len() });
        }
        if self.excluded.len() > EXCLUDED_DATES_MAX {
            return Err(ScheduleError::ExcludedDates { len: self.excluded.len() });
        }
        if let Some(date) = self.excluded.iter().find(|date| !date.exists()) {
            return Err(ScheduleError::ExcludedDate { date: *date });
        }
        if self.quiet.len() > QUIET_WINDOWS_MAX {
            return Err(ScheduleError::QuietWindows { len: self.quiet.len() });
        }
        if !self.quiet.iter().all(quiet_is_good) {
            return Err(ScheduleError::QuietWindow);
        }
        if self.jitter > JITTER_MAX {
            return Err(ScheduleError::Jitter { jitter: self.jitter });
        }
        match (self.first, self.last) {
            (Some(first), Some(last)) if last < first => {
                Err(ScheduleError::Backwards { first, last })
            }
            _ => Ok(()),
        }
    }

    fn into_form(mut self) -> ScheduleForm {
        let calendar = !self.excluded.is_empty() || !self.quiet.is_empty();
        let bounded = self.first.is_some() || self.last.is_some() || self.limit.is_some();
        let plain = !bounded && !calendar && self.jitter.is_zero();
        if plain
            && self.specs.len() == 1
            && let Some(spec) = self.specs.pop()
        {
            return ScheduleForm::Plain(spec);
        }
        let zone = self.zone.unwrap_or(ZoneId::UTC);
        ScheduleForm::Full(Box::new(Full {
            specs: self.specs,
            first: self.first.unwrap_or(Instant::FIRST).clamp(Instant::FIRST, Instant::LAST),
            last: self.last.unwrap_or(Instant::LAST).min(Instant::LAST),
            calendar: calendar.then(|| Calendar::new(zone, &self.excluded, self.quiet)),
            jitter_ms: u32::try_from(self.jitter.as_millis()).expect("at most a day"),
            limit: self.limit,
        }))
    }
}

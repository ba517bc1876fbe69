//! The judge: ticks go in, findings come out, and time is an argument.
//!
//! An instance acted from its first tick to its last. If that stretch and the one of another instance of the same hold
//! have anything in common, the two acted at a time: the ticks go one, other, one, and it takes a single late tick. So a
//! judge need not remember ticks, only where the first and the last of each instance lie, and has seen an overlap as soon
//! as the tick has come that shows it.
//!
//! Which tick was first is asked of the clock of the machine, where both instances are on one. There no delay, no loss,
//! no repetition and no change of order on the way can show an overlap that was none, and none is missed but for ticks
//! that never come. Instances on different machines are compared by the arrival of their ticks. What is late on its way
//! from there may look as if it had been made late.
//!
//! - `moment`: the two clocks; `course`: missing ticks, repeated ones, and silence; `instance`: one start of a program

mod course;
mod instance;
mod moment;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use self::course::{Place, Stretch, Tally, is_gap};
use self::instance::{Instance, Stint};
pub use self::moment::Basis;
use self::moment::{Compared, Hull, Moment, Span};
use crate::limits::{CHANGES_LISTED_MAX, FINDINGS_MAX, HOLDS_MAX, INSTANCES_MAX};
use crate::report::{
    Change, Counts, Figures, Gap, Happening, HoldReport, InstanceReport, LeftOut, Overlap, Pause,
    Report, TokenBack,
};
use crate::tick::{Made, Tick};

/// When something happens here.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Since the start of this machine.
    pub since_boot: Duration,
    /// The wall clock, for people.
    pub wall: Timestamp,
}

/// What a judge is told once.
#[derive(Debug, Clone)]
pub struct JudgeSettings {
    /// Nobody acts for longer than this: that is a gap.
    pub gap: Duration,
    /// The start of this machine. Ticks of this machine are shown when they were made.
    pub boot: Option<String>,
}

/// Who judges ticks.
#[derive(Debug)]
pub struct Judge {
    settings: JudgeSettings,
    begun: Now,
    /// The latest arrival. No two ticks arrive at one moment.
    arrived: Duration,
    heard_instances: u64,
    holds: BTreeMap<String, Hold>,
    overlaps: BTreeMap<(u64, u64), Overlap>,
    tokens_back: BTreeMap<(u64, u64, u64, u64), TokenBack>,
    /// In which order they were found.
    found: Found,
    unreadable: u64,
    left_out: LeftOut,
}

#[derive(Debug, Default)]
struct Found {
    overlaps: Vec<(u64, u64)>,
    tokens_back: Vec<(u64, u64, u64, u64)>,
}

/// The instances of a hold, in the order in which they were first heard.
#[derive(Debug, Default)]
struct Hold {
    instances: Vec<Instance>,
    /// What is left of those that were forgotten.
    forgotten: u64,
    counts: Counts,
    gaps: u64,
}

impl Judge {
    /// One that has heard nothing yet.
    pub fn new(settings: JudgeSettings, now: Now) -> Self {
        Self {
            settings,
            begun: now,
            arrived: now.since_boot,
            heard_instances: 0,
            holds: BTreeMap::new(),
            overlaps: BTreeMap::new(),
            tokens_back: BTreeMap::new(),
            found: Found::default(),
            unreadable: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Something came that is no tick.
    pub fn refuse(&mut self) {
        self.unreadable += 1;
    }

    /// A tick came. Gives what it shows for the first time.
    pub fn hear(&mut self, tick: &Tick, now: Now) -> Vec<Happening> {
        if !self.holds.contains_key(&tick.hold) && self.holds.len() == HOLDS_MAX {
            self.left_out.ticks += 1;
            let is_first = self.left_out.ticks == 1;
            return left_out(is_first, "ticks of further holds").into_iter().collect();
        }
        // The order of arrival is kept where the clock does not tell it.
        self.arrived = now.since_boot.max(self.arrived + Duration::from_nanos(1));
        let moment =
            Moment { made: tick.made.as_ref().map(Made::since_boot), arrived: self.arrived };
        let hold = self.holds.entry(tick.hold.clone()).or_default();
        let known = hold.instances.iter().rposition(|instance| instance.made(tick));
        let (mut happenings, at) = match known {
            Some(at) => {
                let place = hold.instances[at].hear(tick, moment, self.settings.gap);
                let stretch = match place {
                    Place::Repeated => return Vec::new(),
                    Place::Late => None,
                    Place::Next(stretch) => stretch,
                };
                let gap = stretch.and_then(|stretch| self.gap_within(&tick.hold, at, stretch));
                let happening = |gap| Happening::Gap { hold: tick.hold.clone(), gap };
                (gap.map(happening).into_iter().collect(), at)
            }
            None => self.begin(tick, moment),
        };
        happenings.extend(self.compare(tick, at, now.wall));
        happenings
    }

    /// An instance that was not heard before. Gives its place.
    fn begin(&mut self, tick: &Tick, moment: Moment) -> (Vec<Happening>, usize) {
        let mut happenings = Vec::new();
        if self.holds.values().map(|hold| hold.instances.len()).sum::<usize>() == INSTANCES_MAX {
            self.forget();
            let is_first = self.left_out.instances == 1;
            happenings.extend(left_out(is_first, "instances that were silent for longest"));
        }
        let hold = self.holds.get_mut(&tick.hold).expect("it was made when its tick came");
        hold.instances.push(Instance::new(self.heard_instances, tick, moment));
        self.heard_instances += 1;
        let at = hold.instances.len() - 1;
        let (who, change) = (hold.instances[at].who(), self.change_to(&tick.hold, at));
        let gap = change.as_ref().and_then(|change| self.gap_of_change(change));
        happenings.push(Happening::Acting { hold: tick.hold.clone(), who, change });
        happenings.extend(gap.map(|gap| Happening::Gap { hold: tick.hold.clone(), gap }));
        (happenings, at)
    }

    /// Forgets the instance that has been silent for longest. What is left of it is counted.
    fn forget(&mut self) {
        let silent = |instance: &Instance| instance.hull.arrived.last;
        let places = self.holds.iter().flat_map(|(name, hold)| {
            hold.instances.iter().enumerate().map(move |(at, it)| (silent(it), name, at))
        });
        let Some((_, name, at)) = places.min() else { return };
        let name = name.clone();
        let gaps = self.gaps_within(&name, at).len() as u64;
        // The change to it goes with it; of the first one, that from it: all others acted later than it.
        let change = self.change_to(&name, at.max(1));
        let gaps = gaps + u64::from(change.and_then(|it| self.gap_of_change(&it)).is_some());
        let hold = self.holds.get_mut(&name).expect("it was found there");
        let gone = hold.instances.remove(at);
        hold.forgotten += 1;
        hold.gaps += gaps + gone.course.gaps_settled();
        add(&mut hold.counts, counts(&gone));
        self.left_out.instances += 1;
    }

    /// Holds an instance that has just been heard against all others.
    fn compare(&mut self, tick: &Tick, at: usize, noticed: Timestamp) -> Vec<Happening> {
        let Some(hold) = self.holds.get(&tick.hold) else { return Vec::new() };
        let one = &hold.instances[at];
        let mut happenings = Vec::new();
        for other in &hold.instances {
            if other.serial != one.serial
                && let Some((mut overlap, pair)) = overlap(&tick.hold, one, other, noticed)
            {
                let known = self.overlaps.get(&pair);
                overlap.noticed = known.map_or(noticed, |known| known.noticed);
                let kept = keep(&mut self.overlaps, &mut self.found.overlaps, pair, overlap);
                happenings.extend(told(kept, Happening::Overlap, &mut self.left_out));
            }
            for (mine, theirs) in stints(one, tick.token, other) {
                let back = token_back(&tick.hold, (one, mine), (other, theirs), noticed);
                let Some((mut back, pair)) = back else { continue };
                let known = self.tokens_back.get(&pair);
                back.noticed = known.map_or(noticed, |known| known.noticed);
                let kept = keep(&mut self.tokens_back, &mut self.found.tokens_back, pair, back);
                happenings.extend(told(kept, Happening::TokenBack, &mut self.left_out));
            }
        }
        happenings
    }

    /// How it went to an instance from those that were heard before it.
    fn change_to(&self, hold: &str, at: usize) -> Option<Change> {
        let instances = &self.holds.get(hold)?.instances;
        let to = instances.get(at)?;
        let from = instances[..at].iter().max_by_key(|instance| instance.hull.arrived.last)?;
        let compared = compared(from, to);
        let length = match compared.shared() {
            Some(_) => None,
            None => Some(compared.other.first.saturating_sub(compared.one.last)),
        };
        Some(Change {
            from: from.who(),
            to: to.who(),
            length,
            lost: to.course.before_first(),
            at: self.line(to.hull, to.boot()).first,
        })
    }

    fn gap_of_change(&self, change: &Change) -> Option<Gap> {
        let length = change.length?;
        is_gap(length, change.lost, self.settings.gap).then(|| Gap {
            before: change.from.clone(),
            after: change.to.clone(),
            length,
            lost: change.lost,
            until: change.at,
        })
    }

    /// When an instance did not act and nobody else did either.
    fn gap_within(&self, hold: &str, at: usize, stretch: Stretch) -> Option<Gap> {
        let instances = &self.holds.get(hold)?.instances;
        let instance = &instances[at];
        let hull = stretch.hull();
        let is_other = |other: &Instance| {
            let other_hull = (other.hull, other.boot());
            other.serial != instance.serial
                && Compared::new((hull, instance.boot()), other_hull).shared().is_some()
        };
        if !stretch.is_gap(self.settings.gap) || instances.iter().any(is_other) {
            return None;
        }
        Some(Gap {
            before: instance.who(),
            after: instance.who(),
            length: hull.own().length(),
            lost: stretch.lost(),
            until: self.line(hull, instance.boot()).last,
        })
    }

    fn gaps_within(&self, hold: &str, at: usize) -> Vec<Gap> {
        let Some(instance) = self.holds.get(hold).map(|hold| &hold.instances[at]) else {
            return Vec::new();
        };
        let gaps = instance.course.gaps(self.settings.gap);
        gaps.filter_map(|stretch| self.gap_within(hold, at, stretch)).collect()
    }

    /// Where something lies on the line that is shown: since the beginning of the witness, by its own clock.
    fn line(&self, hull: Hull, boot: Option<&str>) -> Span {
        let is_own = boot.is_some() && boot == self.settings.boot.as_deref();
        let span = hull.made.filter(|_| is_own).unwrap_or(hull.arrived);
        let since = |at: Duration| at.saturating_sub(self.begun.since_boot);
        Span { first: since(span.first), last: since(span.last) }
    }

    /// Whether neither an overlap nor a token that went back was seen.
    pub fn all_is_well(&self) -> bool {
        self.overlaps.is_empty() && self.tokens_back.is_empty()
    }

    /// All that was seen until now.
    pub fn report(&self, now: Now) -> Report {
        let holds: Vec<_> = self.holds.keys().map(|name| self.hold_report(name, now)).collect();
        let mut counts = Counts { unreadable: self.unreadable, ..Counts::default() };
        for hold in &holds {
            add(&mut counts, hold.counts);
        }
        let back = self.found.tokens_back.iter().map(|key| self.tokens_back[key].clone());
        Report {
            since: self.begun.wall,
            watched: now.since_boot.saturating_sub(self.begun.since_boot),
            all_is_well: self.all_is_well(),
            counts,
            holds,
            overlaps: self.found.overlaps.iter().map(|key| self.overlaps[key].clone()).collect(),
            tokens_back: back.collect(),
            left_out: LeftOut { tokens: self.tokens_forgotten(), ..self.left_out },
        }
    }

    fn tokens_forgotten(&self) -> u64 {
        let instances = self.holds.values().flat_map(|hold| &hold.instances);
        instances.map(|instance| instance.tokens_forgotten).sum()
    }

    fn hold_report(&self, name: &str, now: Now) -> HoldReport {
        let hold = &self.holds[name];
        let places = 0..hold.instances.len();
        let mut changes: Vec<_> =
            places.clone().filter_map(|at| self.change_to(name, at)).collect();
        let lengths = |is_fail_over: bool| {
            let wanted = changes.iter().filter(|change| change.is_fail_over() == is_fail_over);
            Figures::of(wanted.filter_map(|change| change.length).collect())
        };
        let (fail_overs, restarts) = (lengths(true), lengths(false));
        let mut gaps: Vec<_> = places.flat_map(|at| self.gaps_within(name, at)).collect();
        gaps.extend(changes.iter().filter_map(|change| self.gap_of_change(change)));
        gaps.sort_by_key(|gap| gap.until);
        let settled: u64 = hold.instances.iter().map(|it| it.course.gaps_settled()).sum();
        let gap_count = gaps.len() as u64 + settled + hold.gaps;
        let mut all = hold.counts;
        for instance in &hold.instances {
            add(&mut all, counts(instance));
        }
        let last = hold.instances.iter().map(|it| it.hull.arrived.last).max();
        keep_last(&mut changes);
        keep_last(&mut gaps);
        HoldReport {
            hold: name.to_owned(),
            instances: hold.instances.iter().map(|it| self.instance_report(it)).collect(),
            forgotten: hold.forgotten,
            changes,
            fail_overs,
            restarts,
            gaps,
            gap_count,
            counts: all,
            silent_for: now.since_boot.saturating_sub(last.unwrap_or(self.begun.since_boot)),
        }
    }

    fn instance_report(&self, instance: &Instance) -> InstanceReport {
        let Span { first, last } = self.line(instance.hull, instance.boot());
        let pause = |stretch: Stretch| {
            let span = self.line(stretch.hull(), instance.boot());
            Pause { from: span.first, until: span.last }
        };
        InstanceReport {
            who: instance.who(),
            first,
            last,
            pauses: instance.course.gaps(self.settings.gap).map(pause).collect(),
            counts: counts(instance),
            before_first: instance.course.before_first(),
        }
    }
}

fn compared(one: &Instance, other: &Instance) -> Compared {
    Compared::new((one.hull, one.boot()), (other.hull, other.boot()))
}

/// The overlap of two instances, if there is one, and the pair that it is of.
fn overlap(
    hold: &str,
    one: &Instance,
    other: &Instance,
    noticed: Timestamp,
) -> Option<(Overlap, (u64, u64))> {
    let compared = compared(one, other);
    let shared = compared.shared()?;
    let is_later = (compared.one.first, one.serial) > (compared.other.first, other.serial);
    let (earlier, later) = if is_later { (other, one) } else { (one, other) };
    let overlap = Overlap {
        hold: hold.to_owned(),
        earlier: earlier.who(),
        later: later.who(),
        length: shared.length(),
        basis: compared.basis,
        noticed,
    };
    Some((overlap, (one.serial.min(other.serial), one.serial.max(other.serial))))
}

/// The stint of an instance that has just been heard, beside all others of another one, or of its own.
fn stints<'a>(
    one: &'a Instance,
    token: u64,
    other: &'a Instance,
) -> impl Iterator<Item = (&'a Stint, &'a Stint)> {
    let mine = one.stints.iter().filter(move |stint| stint.token == token);
    mine.flat_map(|mine| other.stints.iter().map(move |theirs| (mine, theirs)))
}

/// Whether one of two acted under a lower token after the other had acted under a greater one.
fn token_back(
    hold: &str,
    one: (&Instance, &Stint),
    other: (&Instance, &Stint),
    noticed: Timestamp,
) -> Option<(TokenBack, (u64, u64, u64, u64))> {
    let is_lower = one.1.token < other.1.token;
    let (lower, greater) = if is_lower { (one, other) } else { (other, one) };
    let compared =
        Compared::new((lower.1.hull, lower.0.boot()), (greater.1.hull, greater.0.boot()));
    let (last, first) = (compared.one.last, compared.other.first);
    if lower.1.token == greater.1.token || last <= first {
        return None;
    }
    let back = TokenBack {
        hold: hold.to_owned(),
        lower: lower.0.who_under(lower.1.token),
        greater: greater.0.who_under(greater.1.token),
        late_by: last.saturating_sub(first),
        basis: compared.basis,
        noticed,
    };
    Some((back, (lower.0.serial, lower.1.token, greater.0.serial, greater.1.token)))
}

/// What became of a finding.
enum Kept<T> {
    /// It is of a pair that was not found before.
    New(T),
    /// It was found before, and is longer now.
    Known,
    /// There are too many.
    LeftOut,
}

/// Keeps a finding under its pair.
fn keep<K: Ord + Copy, T: Clone>(
    kept: &mut BTreeMap<K, T>,
    order: &mut Vec<K>,
    pair: K,
    finding: T,
) -> Kept<T> {
    if let Some(known) = kept.get_mut(&pair) {
        *known = finding;
        return Kept::Known;
    }
    if order.len() == FINDINGS_MAX {
        return Kept::LeftOut;
    }
    order.push(pair);
    kept.insert(pair, finding.clone());
    Kept::New(finding)
}

fn told<T>(
    kept: Kept<T>,
    tell: impl Fn(T) -> Happening,
    all_left_out: &mut LeftOut,
) -> Option<Happening> {
    match kept {
        Kept::New(finding) => Some(tell(finding)),
        Kept::Known => None,
        Kept::LeftOut => {
            all_left_out.findings += 1;
            left_out(all_left_out.findings == 1, "overlaps of further pairs")
        }
    }
}

fn left_out(is_first: bool, what: &'static str) -> Option<Happening> {
    is_first.then_some(Happening::LeftOut { what })
}

fn counts(instance: &Instance) -> Counts {
    let Tally { heard, late, repeated } = instance.course.tally;
    Counts { ticks: heard, repeated, late, lost: instance.course.lost(), unreadable: 0 }
}

fn add(sum: &mut Counts, more: Counts) {
    sum.ticks += more.ticks;
    sum.repeated += more.repeated;
    sum.late += more.late;
    sum.lost += more.lost;
    sum.unreadable += more.unreadable;
}

fn keep_last<T>(list: &mut Vec<T>) {
    list.drain(..list.len().saturating_sub(CHANGES_LISTED_MAX));
}

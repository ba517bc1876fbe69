//! What happened: who was up when, who carried out what, and what is told of it.
//!
//! Times are real ones since the runs were submitted. People are shown those of the published timetable, which are as many times
//! longer as the demonstration is faster.

use std::collections::BTreeMap;
use std::time::Duration;

use super::journal::{Entry, Mark};
use super::plan::Actor;

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// What kind of thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// Somebody comes, or something is done.
    Good,
    /// Somebody goes.
    Bad,
    Plain,
}

/// A time as people are shown it, minutes and seconds.
pub(super) fn clock(at: Duration, speed: u32) -> String {
    let seconds = (at * speed).as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Why somebody went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The timetable says so.
    Planned,
    /// Somebody else did it, or it ended by itself.
    Unplanned,
}

/// A time for which somebody was down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Absence {
    pub(super) from: Duration,
    /// None while it lasts.
    pub(super) to: Option<Duration>,
    pub(super) cause: Cause,
}

/// Who was down when. Whoever is not down is up.
#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<Actor, Vec<Absence>>);

impl Absences {
    pub(super) fn begin(&mut self, actor: Actor, from: Duration, cause: Cause) {
        self.0.entry(actor).or_default().push(Absence { from, to: None, cause });
    }

    pub(super) fn end(&mut self, actor: Actor, at: Duration) {
        if let Some(last) = self.0.entry(actor).or_default().last_mut() {
            last.to.get_or_insert(at);
        }
    }

    /// The one that lasts, if somebody is down.
    pub(super) fn now(&self, actor: Actor) -> Option<Absence> {
        self.of(actor).last().copied().filter(|absence| absence.to.is_none())
    }

    pub(super) fn of(&self, actor: Actor) -> &[Absence] {
        self.0.get(&actor).map_or(&[], Vec::as_slice)
    }

    /// When somebody went down first after an instant.
    fn next(&self, actor: Actor, after: Duration) -> Option<Duration> {
        self.of(actor).iter().map(|absence| absence.from).find(|from| *from >= after)
    }
}

/// One attempt, as it was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) task: u32,
    pub(super) attempt: u32,
    pub(super) worker: Actor,
    pub(super) begun: Duration,
    pub(super) end: SpanEnd,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanEnd {
    /// The program came to its end.
    Finished(Duration),
    /// It was ended, with its worker or otherwise.
    Cut(Duration),
    UnderWay,
}

impl Span {
    /// Until when it lasted, or lasts if this is now.
    pub(super) fn until(&self, now: Duration) -> Duration {
        match self.end {
            SpanEnd::Finished(at) | SpanEnd::Cut(at) => at,
            SpanEnd::UnderWay => now,
        }
    }
}

/// What was carried out, in the order in which it began. `zero_us` is the beginning, by the wall clock.
pub(super) fn spans(entries: &[Entry], absences: &Absences, zero_us: u64) -> Vec<Span> {
    let at = |entry: &Entry| Duration::from_micros(entry.at_us.saturating_sub(zero_us));
    let span = |(place, entry): (usize, &Entry)| {
        let worker = Actor::all().find(|actor| actor.to_string() == entry.worker)?;
        let (begun, later) = (at(entry), &entries[place..]);
        let ended = later.iter().find(|it| it.mark == Mark::Ended && it.is_beside(entry));
        let again = later.iter().find(|it| it.task == entry.task && !it.is_beside(entry));
        let cut = [absences.next(worker, begun), again.map(at)].into_iter().flatten().min();
        let unfinished = cut.map_or(SpanEnd::UnderWay, SpanEnd::Cut);
        let end = ended.map_or(unfinished, |ended| SpanEnd::Finished(at(ended)));
        Some(Span { task: entry.task, attempt: entry.attempt, worker, begun, end })
    };
    let begun = entries.iter().enumerate().filter(|(_, entry)| entry.mark == Mark::Begun);
    begun.filter_map(span).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demo::journal::tests::entry;

    pub(in crate::demo) fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn people_are_shown_the_times_of_the_timetable() {
        assert_eq!(clock(seconds(5), 10), "0:50");
        assert_eq!(clock(Duration::from_millis(16_900), 10), "2:49");
        assert_eq!(clock(seconds(245), 1), "4:05");
    }

    #[test]
    fn what_died_with_its_worker_was_cut_then_and_what_began_again_before_no_later_than_that() {
        let at = |second: u64, entry: Entry| Entry { at_us: (100 + second) * 1_000_000, ..entry };
        let entries = [
            at(1, entry(Mark::Begun, 1, 1, "worker-1")),
            at(2, entry(Mark::Begun, 2, 1, "worker-1")),
            at(3, entry(Mark::Begun, 3, 1, "worker-2")),
            at(4, entry(Mark::Ended, 1, 1, "worker-1")),
            at(9, entry(Mark::Begun, 2, 2, "worker-2")),
            at(10, entry(Mark::Begun, 3, 2, "worker-2")),
        ];
        let mut absences = Absences::default();
        absences.begin(Actor::Worker(1), seconds(5), Cause::Planned);
        absences.end(Actor::Worker(1), seconds(7));
        let spans = spans(&entries, &absences, 100_000_000);
        let ends: Vec<_> = spans.iter().map(|span| (span.task, span.attempt, span.end)).collect();
        let expected = [
            (1, 1, SpanEnd::Finished(seconds(4))),
            (2, 1, SpanEnd::Cut(seconds(5))),
            (3, 1, SpanEnd::Cut(seconds(10))),
            (2, 2, SpanEnd::UnderWay),
            (3, 2, SpanEnd::UnderWay),
        ];
        assert_eq!(ends, expected);
        assert_eq!(spans[1].begun, seconds(2));
    }

    #[test]
    fn whoever_was_down_and_is_not_is_up() {
        let mut absences = Absences::default();
        let server = Actor::Server;
        absences.end(server, seconds(1));
        assert_eq!(absences.now(server), None);
        absences.begin(server, seconds(2), Cause::Unplanned);
        assert_eq!(absences.now(server).unwrap().from, seconds(2));
        absences.end(server, seconds(3));
        absences.end(server, seconds(4));
        assert_eq!(absences.now(server), None);
        assert_eq!(absences.of(server)[0].to, Some(seconds(3)));
    }
}

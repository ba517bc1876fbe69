//! What is to be seen while the demonstration runs, as lines: a pure function of how things stand.

use std::fmt::Write;
use std::time::Duration;

use super::plan::{Actor, Plan};
use super::story::{Absence, Absences, Cause, Event, Span, SpanEnd, Tone, clock};
use crate::colour::Colour;

/// Wider than this it is not read more easily.
const WIDTH_MAX: usize = 100;

/// How many of the last events are shown.
const EVENTS: usize = 8;

/// How wide the bar of one run is.
const SMALL_BAR: usize = 8;

/// How things stand.
pub(super) struct Scene<'a> {
    pub(super) plan: &'a Plan,
    /// Since the runs were submitted.
    pub(super) now: Duration,
    /// Where the server is, if it is up.
    pub(super) place: &'a str,
    /// The process of each who is up.
    pub(super) pids: &'a [(Actor, u32)],
    pub(super) absences: &'a Absences,
    pub(super) spans: &'a [Span],
    /// How many runs the server has recorded as ended.
    pub(super) recorded: usize,
    pub(super) events: &'a [Event],
}

/// Counts of runs, as the programs tell of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) under_way: usize,
    /// Carried out, and not recorded yet.
    pub(super) kept: usize,
    pub(super) waiting: usize,
    /// Attempts that were ended with their workers.
    pub(super) cut: usize,
}

impl Counts {
    pub(super) fn of(plan: &Plan, spans: &[Span], recorded: usize) -> Self {
        let count = |is_it: fn(&SpanEnd) -> bool| spans.iter().filter(|it| is_it(&it.end)).count();
        let under_way = count(|end| matches!(end, SpanEnd::UnderWay));
        let finished = count(|end| matches!(end, SpanEnd::Finished(_)));
        // What was finished twice, since its worker died before it could say so, is kept once.
        let kept = finished.saturating_sub(recorded);
        let waiting = plan.tasks.len().saturating_sub(recorded + kept + under_way);
        Self { under_way, kept, waiting, cut: count(|end| matches!(end, SpanEnd::Cut(_))) }
    }
}

impl Scene<'_> {
    /// The lines, none longer than the terminal is wide.
    pub(super) fn lines(&self, width: usize, colour: Colour) -> Vec<String> {
        let width = width.min(WIDTH_MAX).saturating_sub(1);
        let mut lines = vec![self.head(), String::new()];
        lines.extend(Actor::all().map(|actor| self.line_of(actor)));
        lines.push(String::new());
        lines.push(self.bar(width));
        lines.push(self.counts());
        lines.push(String::new());
        let speed = self.plan.speed;
        let first = self.events.len().saturating_sub(EVENTS);
        lines.extend(self.events[first..].iter().map(|event| event_line(event, speed)));
        let shown = |line: String| coloured(&cut(&line, width), colour);
        lines.into_iter().map(shown).collect()
    }

    fn head(&self) -> String {
        let (count, now) = (self.plan.tasks.len(), clock(self.now, self.plan.speed));
        let speed = match self.plan.speed {
            1 => String::new(),
            speed => format!(", {speed} times faster"),
        };
        format!("  {now}  {count} runs, a server and three workers{speed}; Ctrl-C ends it")
    }

    fn line_of(&self, actor: Actor) -> String {
        if let Some(absence) = self.absences.now(actor) {
            return format!("  ✕ {actor:<8}  {}", self.since(actor, absence));
        }
        let pid = self.pids.iter().find(|(it, _)| *it == actor).map_or(0, |(_, pid)| *pid);
        let what = match actor {
            Actor::Server => self.place.to_owned(),
            Actor::Worker(_) => self.runs_of(actor),
        };
        format!("  ● {actor:<8}  pid {pid:<7}  {what}").trim_end().to_owned()
    }

    fn since(&self, actor: Actor, absence: Absence) -> String {
        let clock = |at| clock(at, self.plan.speed);
        let back = match (absence.cause, self.plan.back_at(actor, self.now)) {
            (Cause::Planned, Some(at)) => format!("back at {}", clock(at)),
            (Cause::Planned, None) => "not to come back".to_owned(),
            (Cause::Unplanned, _) => "which nobody planned: back in a moment".to_owned(),
        };
        format!("down since {}, {back}", clock(absence.from))
    }

    /// What a worker executes: each run with its number, a bar, and how long it takes.
    fn runs_of(&self, actor: Actor) -> String {
        let under_way = self
            .spans
            .iter()
            .filter(|span| span.worker == actor && matches!(span.end, SpanEnd::UnderWay));
        let shown = under_way.map(|span| {
            let length = self.plan.tasks.iter().find(|task| task.number == span.task);
            let length = length.map_or(Duration::ZERO, |task| task.length);
            let done = self.now.saturating_sub(span.begun);
            let bar = bar(SMALL_BAR, &[(done.as_millis(), '▰')], length.as_millis(), '▱');
            let seconds = (length * self.plan.speed).as_secs();
            format!("{:>3} {bar} {seconds:>2} s", span.task)
        });
        shown.collect::<Vec<_>>().join("   ")
    }

    fn bar(&self, width: usize) -> String {
        let all = self.plan.tasks.len();
        let counts = self.counted();
        let figure = format!("  {} of {all}", self.recorded);
        let room = width.saturating_sub(figure.chars().count() + 2);
        let parts = [(self.recorded as u128, '█'), (counts.kept as u128, '▓')];
        format!("  {}{figure}", bar(room, &parts, all as u128, '░'))
    }

    fn counts(&self) -> String {
        let Counts { under_way, kept, waiting, cut } = self.counted();
        let mut text = format!("  {under_way} under way, {waiting} waiting");
        if kept > 0 {
            let them = if kept == 1 { "it" } else { "them" };
            let _ = write!(text, ", {kept} done, kept until the server records {them}");
        }
        if cut > 0 {
            let _ = write!(text, ", {cut} cut short so far");
        }
        text
    }

    fn counted(&self) -> Counts {
        Counts::of(self.plan, self.spans, self.recorded)
    }
}

/// An event on a line of its own.
pub(super) fn event_line(event: &Event, speed: u32) -> String {
    let sign = match event.tone {
        Tone::Good => '●',
        Tone::Bad => '✕',
        Tone::Plain => ' ',
    };
    format!("  {:>5}  {sign} {}", clock(event.at, speed), event.text)
}

/// Parts of a whole, so wide altogether, and the rest.
fn bar(width: usize, parts: &[(u128, char)], whole: u128, rest: char) -> String {
    let mut bar = String::new();
    let mut sum = 0;
    for (part, sign) in parts {
        sum += part;
        let to = usize::try_from(sum.min(whole) * width as u128 / whole.max(1)).unwrap_or(width);
        bar.extend(std::iter::repeat_n(*sign, to.saturating_sub(bar.chars().count())));
    }
    bar.extend(std::iter::repeat_n(rest, width.saturating_sub(bar.chars().count())));
    bar
}

/// A line that is no longer than this.
fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The same with its sign in colour.
pub(super) fn coloured(line: &str, colour: Colour) -> String {
    line.replacen('●', &colour.of_sign('+', "●"), 1).replacen('✕', &colour.of_sign('-', "✕"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::tests::typed;
    use crate::demo::story::tests::seconds;

    fn span(task: u32, worker: u8, begun: u64, end: SpanEnd) -> Span {
        Span { task, attempt: 1, worker: Actor::Worker(worker), begun: seconds(begun), end }
    }

    fn event(at: u64, tone: Tone, text: &str) -> Event {
        Event { at: seconds(at), tone, text: text.to_owned() }
    }

    /// Three minutes and ten seconds after the beginning of a small one: worker 3 is down, and worker 2 was killed by somebody.
    fn shown(width: usize, colour: Colour) -> Vec<String> {
        let mut plan = Plan::new(&typed(10, 1, 1));
        for (task, length) in plan.tasks.iter_mut().zip([10, 4, 20, 8, 5, 5, 5, 5, 5, 5]) {
            task.length = seconds(length);
        }
        let mut absences = Absences::default();
        absences.begin(Actor::Worker(3), seconds(187), Cause::Planned);
        absences.begin(Actor::Worker(2), seconds(189), Cause::Unplanned);
        let spans = [
            span(1, 3, 170, SpanEnd::Finished(seconds(180))),
            span(2, 2, 180, SpanEnd::Finished(seconds(184))),
            span(3, 1, 180, SpanEnd::UnderWay),
            span(4, 1, 188, SpanEnd::UnderWay),
            span(5, 3, 185, SpanEnd::Cut(seconds(187))),
        ];
        let events = [
            event(187, Tone::Bad, "worker-3 is killed; run 5 was under way"),
            event(190, Tone::Plain, "run 5 begins again"),
        ];
        let scene = Scene {
            plan: &plan,
            now: seconds(190),
            place: "http://127.0.0.1:40123",
            pids: &[(Actor::Server, 4710), (Actor::Worker(1), 4711)],
            absences: &absences,
            spans: &spans,
            recorded: 1,
            events: &events,
        };
        scene.lines(width, colour)
    }

    #[test]
    fn it_is_seen_who_is_up_who_runs_what_and_how_far_it_has_come() {
        let expected = "  3:10  10 runs, a server and three workers; Ctrl-C ends it

  ● server    pid 4710     http://127.0.0.1:40123
  ● worker-1  pid 4711       3 ▰▰▰▰▱▱▱▱ 20 s     4 ▰▰▱▱▱▱▱▱  8 s
  ✕ worker-2  down since 3:09, which nobody planned: back in a moment
  ✕ worker-3  down since 3:07, back at 4:05

  ██████▓▓▓▓▓▓░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  1 of 10
  2 under way, 6 waiting, 1 done, kept until the server records it, 1 …

   3:07  ✕ worker-3 is killed; run 5 was under way
   3:10    run 5 begins again";
        let lines = shown(72, Colour::Plain);
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn no_line_is_longer_than_the_terminal_is_wide() {
        for width in [10, 40, 80, 300] {
            let longest = shown(width, Colour::Plain).iter().map(|line| line.chars().count()).max();
            assert!(longest.unwrap() < width.min(WIDTH_MAX + 1), "{width}: {longest:?}");
        }
    }

    #[test]
    fn signs_are_green_and_red_where_colours_are_shown() {
        let lines = shown(80, Colour::Shown);
        assert!(lines[2].starts_with("  \u{1b}[32m●\u{1b}[0m server"), "{lines:?}");
        assert!(lines[5].starts_with("  \u{1b}[31m✕\u{1b}[0m worker-3"), "{lines:?}");
    }

    #[test]
    fn what_two_attempts_finished_is_counted_once() {
        let plan = Plan::new(&typed(3, 1, 1));
        let finished = SpanEnd::Finished(seconds(1));
        let spans =
            [span(1, 1, 0, finished), span(2, 2, 0, finished), span(3, 2, 0, SpanEnd::UnderWay)];
        let counts = Counts { under_way: 1, kept: 1, waiting: 0, cut: 0 };
        assert_eq!(Counts::of(&plan, &spans, 1), counts);
        assert_eq!(Counts::of(&plan, &spans[..2], 2).kept, 0);
    }
}

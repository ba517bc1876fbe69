//! Who ran what and when, as a small picture: a row for the server, and as many for each worker as it has places.

use std::fmt::Write;
use std::time::Duration;

use super::plan::Actor;
use super::story::{Absences, Span, SpanEnd, clock};

/// How wide the names in front are.
const NAMES: usize = 10;

/// Between two times above the picture.
const BETWEEN_TIMES: usize = 12;

/// What is drawn.
pub(super) struct Timeline<'a> {
    pub(super) absences: &'a Absences,
    pub(super) spans: &'a [Span],
    /// From the beginning to the end.
    pub(super) length: Duration,
    pub(super) speed: u32,
}

impl Timeline<'_> {
    /// The rows, so wide.
    pub(super) fn rows(&self, width: usize) -> Vec<String> {
        let width = width.saturating_sub(NAMES).max(BETWEEN_TIMES);
        let mut rows = vec![self.times(width)];
        for actor in Actor::all() {
            let drawn = match actor {
                Actor::Server => vec![self.server(width)],
                Actor::Worker(_) => self.worker(actor, width),
            };
            for (place, row) in drawn.into_iter().enumerate() {
                let name = if place == 0 { actor.to_string() } else { String::new() };
                rows.push(format!("{name:<NAMES$}{row}").trim_end().to_owned());
            }
        }
        rows
    }

    /// In which column a time is.
    fn column(&self, at: Duration, width: usize) -> usize {
        let whole = self.length.as_millis().max(1);
        let column = at.min(self.length).as_millis() * width as u128 / whole;
        usize::try_from(column).map_or(width, |column| column.min(width))
    }

    fn times(&self, width: usize) -> String {
        let mut row = " ".repeat(NAMES);
        for column in (0..width).step_by(BETWEEN_TIMES) {
            let millis = self.length.as_millis() * column as u128 / width as u128;
            let at = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
            let _ = write!(row, "{:<BETWEEN_TIMES$}", clock(at, self.speed));
        }
        row.trim_end().to_owned()
    }

    fn server(&self, width: usize) -> String {
        let mut row = vec!['━'; width];
        self.draw_absences(Actor::Server, &mut row);
        row.into_iter().collect()
    }

    fn draw_absences(&self, actor: Actor, row: &mut [char]) {
        let width = row.len();
        for absence in self.absences.of(actor) {
            let from = self.column(absence.from, width);
            let to = absence.to.map_or(width, |to| self.column(to, width));
            row[from..to.max(from)].fill('░');
        }
    }

    /// A row for each place: a run takes the first one that is free.
    fn worker(&self, actor: Actor, width: usize) -> Vec<String> {
        let mut places: Vec<(Duration, Vec<char>)> = Vec::new();
        for span in self.spans.iter().filter(|span| span.worker == actor) {
            let free = places.iter().position(|(until, _)| *until <= span.begun);
            let place = free.unwrap_or_else(|| {
                places.push((Duration::ZERO, vec![' '; width]));
                places.len() - 1
            });
            places[place].0 = span.until(self.length);
            self.draw(span, &mut places[place].1);
        }
        if places.is_empty() {
            places.push((Duration::ZERO, vec![' '; width]));
        }
        let drawn = places.into_iter().map(|(_, mut row)| {
            let runs = row.clone();
            self.draw_absences(actor, &mut row);
            // What was cut short ends in the column in which the worker went.
            row.iter().zip(runs).map(|(down, run)| if run == ' ' { *down } else { run }).collect()
        });
        drawn.collect()
    }

    /// Its number, a line, and a cross if it was cut short.
    fn draw(&self, span: &Span, row: &mut [char]) {
        let width = row.len();
        let taken = row.iter().rposition(|sign| *sign != ' ').map_or(0, |last| last + 1);
        let from = self.column(span.begun, width).max(taken);
        let to = self.column(span.until(self.length), width).max(from + 1).min(width);
        let Some(cells) = row.get_mut(from..to).filter(|cells| !cells.is_empty()) else { return };
        cells.fill('─');
        cells[0] = '├';
        let number = span.task.to_string();
        if number.len() <= cells.len() {
            for (cell, digit) in cells.iter_mut().zip(number.chars()) {
                *cell = digit;
            }
        }
        if let (SpanEnd::Cut(_), Some(last)) = (span.end, cells.last_mut()) {
            *last = '✕';
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demo::story::Cause;
    use crate::demo::story::tests::seconds;

    fn span(task: u32, worker: u8, begun: u64, end: SpanEnd) -> Span {
        Span { task, attempt: 1, worker: Actor::Worker(worker), begun: seconds(begun), end }
    }

    #[test]
    fn each_worker_has_a_row_for_each_place_with_gaps_where_it_was_down() {
        let finished = |second| SpanEnd::Finished(seconds(second));
        let spans = [
            span(1, 1, 0, finished(10)),
            span(22, 1, 0, finished(4)),
            span(3, 2, 2, SpanEnd::Cut(seconds(12))),
            span(41, 1, 5, finished(6)),
            span(5, 1, 10, finished(24)),
            span(3, 1, 18, finished(24)),
        ];
        let mut absences = Absences::default();
        absences.begin(Actor::Worker(2), seconds(12), Cause::Planned);
        absences.end(Actor::Worker(2), seconds(20));
        absences.begin(Actor::Server, seconds(6), Cause::Planned);
        absences.end(Actor::Server, seconds(8));
        let timeline =
            Timeline { absences: &absences, spans: &spans, length: seconds(24), speed: 10 };
        let expected = [
            "          0:00        2:00",
            "server    ━━━━━━░░━━━━━━━━━━━━━━━━",
            "worker-1  1─────────5─────────────",
            "          22── ├            3─────",
            "worker-2    3────────✕░░░░░░░░",
            "worker-3",
        ];
        assert_eq!(timeline.rows(34), expected);
    }

    #[test]
    fn it_may_be_as_narrow_as_it_likes() {
        let spans = [span(100, 1, 0, SpanEnd::UnderWay), span(101, 1, 0, SpanEnd::UnderWay)];
        let absences = Absences::default();
        let timeline =
            Timeline { absences: &absences, spans: &spans, length: seconds(1), speed: 1 };
        for width in 0..40 {
            assert_eq!(timeline.rows(width).len(), 6, "{width}");
        }
    }
}

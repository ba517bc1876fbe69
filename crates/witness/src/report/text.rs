//! A report for people: a chart of who acted when, and what was found, in sentences.

use std::fmt::Write;
use std::time::Duration;

use super::{
    Basis, Change, Figures, Gap, Happening, HoldReport, InstanceReport, LeftOut, Overlap, Report,
    TokenBack, Who,
};
use crate::limits::{CHANGES_SHOWN_MAX, CHART_COLUMNS_MAX, CHART_COLUMNS_MIN, CHART_ROWS_MAX};

/// Between two times above a chart.
const BETWEEN_TIMES: usize = 12;

/// How wide the rows of a chart are at least, beside the names in front of them.
const ROW_MIN: usize = 20;

/// Characters of an instance's name that are shown.
const NAME_SHOWN: usize = 8;

/// A length, in seconds.
fn seconds(length: Duration) -> String {
    format!("{:.3} s", length.as_secs_f64())
}

/// One or several of something.
fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// A name, cut to what is shown.
fn cut(name: &str) -> &str {
    // Names are ASCII.
    name.get(..NAME_SHOWN).unwrap_or(name)
}

impl Who {
    fn text(&self) -> String {
        format!("{}/{} (token {})", self.node, cut(&self.instance), self.token)
    }
}

impl Basis {
    fn text(self) -> &'static str {
        match self {
            Self::Machine => "by the clock of their machine",
            Self::Arrival => "by the arrival of their ticks",
        }
    }
}

impl Happening {
    /// In one line.
    pub fn text(&self) -> String {
        match self {
            Self::Acting { hold, who, change: None } => format!("{hold}: {} acts", who.text()),
            Self::Acting { hold, who, change: Some(change) } => {
                let after = change.length.map_or_else(
                    || format!("while {} does", change.from.text()),
                    |length| format!("{} after {}", seconds(length), change.from.text()),
                );
                format!("{hold}: {} acts, {after}", who.text())
            }
            Self::Overlap(overlap) => format!("{}, so far", overlap.text()),
            Self::TokenBack(back) => format!("{}, so far", back.text()),
            Self::Gap { hold, gap } => format!("{hold}: {}", gap.text()),
            Self::LeftOut { what } => {
                format!("there is no room for more: {what} are left out from now on, and counted")
            }
        }
    }
}

impl Overlap {
    /// In one line.
    pub fn text(&self) -> String {
        let (earlier, later) = (self.earlier.text(), self.later.text());
        let (length, basis) = (seconds(self.length), self.basis.text());
        format!("{}: OVERLAP: {earlier} and {later} both acted, for {length} {basis}", self.hold)
    }
}

impl TokenBack {
    /// In one line.
    pub fn text(&self) -> String {
        let (lower, greater) = (self.lower.text(), self.greater.text());
        let (late, basis) = (seconds(self.late_by), self.basis.text());
        format!(
            "{}: TOKEN WENT BACK: {lower} still acted {late} after {greater} had begun, {basis}",
            self.hold
        )
    }
}

impl Gap {
    fn text(&self) -> String {
        let (length, after) = (seconds(self.length), self.after.text());
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(", in which {}", count(lost, "tick was lost", "ticks were lost")),
        };
        format!("nobody acted for {length} before {after}{lost}")
    }
}

impl Change {
    fn text(&self) -> String {
        let what = if self.is_fail_over() { "fail-over" } else { "restart" };
        let took = self.length.map_or_else(|| "with an overlap".to_owned(), seconds);
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(", and {} before", count(lost, "lost tick", "lost ticks")),
        };
        format!(
            "{what} at {}: {} after {}: {took}{lost}",
            seconds(self.at),
            self.to.text(),
            self.from.text()
        )
    }
}

impl Figures {
    fn text(&self, one: &str, many: &str) -> String {
        let [median, p99, longest] = [self.median, self.p99, self.longest].map(seconds);
        let times = count(self.count as u64, one, many);
        format!("{times}: median {median}, 99 % within {p99}, longest {longest}")
    }
}

impl LeftOut {
    fn text(self) -> Option<String> {
        let parts = [
            (self.ticks, "ticks of holds beyond the limit"),
            (self.instances, "instances that were silent for longest"),
            (self.tokens, "tokens of instances that had many"),
            (self.findings, "ticks that showed overlaps of further pairs"),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
    }
}

impl Report {
    /// All of it, so many columns wide.
    pub fn text(&self, columns: usize) -> String {
        let mut text = self.chart(columns);
        for hold in &self.holds {
            let _ = write!(text, "{}", hold.text());
        }
        for overlap in &self.overlaps {
            let _ = writeln!(text, "{}", overlap.text());
        }
        for back in &self.tokens_back {
            let _ = writeln!(text, "{}", back.text());
        }
        let counts = &self.counts;
        let _ = writeln!(
            text,
            "heard in {}: {}; {} lost, {} repeated, {} late, {} unreadable",
            seconds(self.watched),
            count(counts.ticks, "tick", "ticks"),
            counts.lost,
            counts.repeated,
            counts.late,
            counts.unreadable
        );
        if let Some(left_out) = self.left_out.text() {
            let _ = writeln!(text, "{left_out}");
        }
        let _ = writeln!(text, "{}", self.verdict());
        text
    }

    /// What is to be concluded, in one line.
    pub fn verdict(&self) -> String {
        if self.counts.ticks == 0 {
            return "nobody was heard".to_owned();
        }
        if self.all_is_well {
            return "no overlap was seen".to_owned();
        }
        let overlaps = count(self.overlaps.len() as u64, "overlap was seen", "overlaps were seen");
        match self.tokens_back.len() as u64 {
            0 => overlaps,
            back => format!(
                "{overlaps}, and {}",
                count(back, "token that went back", "tokens that went back")
            ),
        }
    }

    /// Who acted when, one row for each of the last instances of each hold.
    pub fn chart(&self, columns: usize) -> String {
        let columns = columns.clamp(CHART_COLUMNS_MIN, CHART_COLUMNS_MAX);
        self.holds.iter().map(|hold| self.chart_of(hold, columns)).collect()
    }

    fn chart_of(&self, hold: &HoldReport, columns: usize) -> String {
        let shown = &hold.instances[hold.instances.len().saturating_sub(CHART_ROWS_MAX)..];
        let Some(from) = shown.iter().map(|instance| instance.first).min() else {
            return String::new();
        };
        let latest = shown.iter().map(|instance| instance.last).max().unwrap_or_default();
        let label = |it: &InstanceReport| {
            format!("{} {}  {}", it.who.node, cut(&it.who.instance), it.who.token)
        };
        let longest = shown.iter().map(|it| label(it).len()).chain([hold.hold.len()]).max();
        let names = (longest.unwrap_or_default() + 2).min(columns - ROW_MIN);
        let scale = Scale { from, until: self.watched.max(latest), width: columns - names };
        let mut text = String::new();
        let _ = writeln!(text, "{}{}", column(&hold.hold, names), scale.times());
        for instance in shown {
            let row = scale.row(instance);
            let _ = writeln!(text, "{}{}", column(&label(instance), names), row.trim_end());
        }
        let two = self.overlap_row(hold, shown, &scale);
        if !two.trim().is_empty() {
            let _ = writeln!(text, "{}{}", column("two acted", names), two.trim_end());
        }
        let before = hold.forgotten + (hold.instances.len() - shown.len()) as u64;
        if before > 0 {
            let _ = writeln!(text, "({} before that)", count(before, "instance", "instances"));
        }
        text.push('\n');
        text
    }

    /// Where two of those that are shown acted at a time.
    fn overlap_row(&self, hold: &HoldReport, shown: &[InstanceReport], scale: &Scale) -> String {
        let mut row = vec![' '; scale.width];
        for overlap in self.overlaps.iter().filter(|overlap| overlap.hold == hold.hold) {
            let of = |who: &Who| {
                let is_it = |it: &&InstanceReport| {
                    it.who.node == who.node && it.who.instance == who.instance
                };
                shown.iter().rfind(is_it)
            };
            let Some((one, other)) = of(&overlap.earlier).zip(of(&overlap.later)) else { continue };
            let from = one.first.max(other.first);
            row[scale.cells(from, one.last.min(other.last).max(from))].fill('╳');
        }
        row.into_iter().collect()
    }
}

impl HoldReport {
    fn text(&self) -> String {
        let mut text = String::new();
        let silent = seconds(self.silent_for);
        let nodes: std::collections::BTreeSet<_> =
            self.instances.iter().map(|instance| &instance.who.node).collect();
        let instances =
            count(self.instances.len() as u64 + self.forgotten, "instance", "instances");
        let nodes = count(nodes.len() as u64, "node", "nodes");
        let hold = &self.hold;
        let _ = writeln!(text, "{hold}: {instances} on {nodes}; silent for {silent}");
        let figures = [
            self.fail_overs.map(|it| it.text("fail-over", "fail-overs")),
            self.restarts
                .map(|it| it.text("restart on the same node", "restarts on the same node")),
        ];
        for line in figures.into_iter().flatten() {
            let _ = writeln!(text, "{hold}: {line}");
        }
        let first = self.changes.len().saturating_sub(CHANGES_SHOWN_MAX);
        for change in &self.changes[first..] {
            let _ = writeln!(text, "{hold}: {}", change.text());
        }
        if self.gap_count > 0 {
            let gaps = count(self.gap_count, "gap", "gaps");
            let _ = writeln!(text, "{hold}: {gaps} in acting");
        }
        let first = self.gaps.len().saturating_sub(CHANGES_SHOWN_MAX);
        for gap in &self.gaps[first..] {
            let _ = writeln!(text, "{hold}: until {}: {}", seconds(gap.until), gap.text());
        }
        text
    }
}

/// A name in front of a row, with two blanks behind it.
fn column(name: &str, width: usize) -> String {
    let room = width - 2;
    if name.len() <= room {
        return format!("{name:<width$}");
    }
    let kept = name.get(..room - 1).unwrap_or_default();
    format!("{kept}…  ")
}

/// What a column of a chart stands for.
struct Scale {
    from: Duration,
    until: Duration,
    width: usize,
}

impl Scale {
    fn cell(&self, at: Duration) -> usize {
        let whole = self.until.saturating_sub(self.from).as_micros().max(1);
        let cell = at.saturating_sub(self.from).as_micros() * self.width as u128 / whole;
        usize::try_from(cell).map_or(self.width - 1, |cell| cell.min(self.width - 1))
    }

    /// The cells from one moment to another, at least one.
    fn cells(&self, from: Duration, until: Duration) -> std::ops::RangeInclusive<usize> {
        self.cell(from)..=self.cell(until)
    }

    fn times(&self) -> String {
        let mut row = String::new();
        let whole = self.until.saturating_sub(self.from);
        let part = |columns: usize| u32::try_from(columns).expect("no chart is so wide");
        for column in (0..self.width).step_by(BETWEEN_TIMES) {
            let at = self.from + whole * part(column) / part(self.width);
            let time = format!("{:.1} s", at.as_secs_f64());
            if column + time.len() <= self.width {
                let _ = write!(row, "{time:<BETWEEN_TIMES$}");
            }
        }
        row.trim_end().to_owned()
    }

    /// When an instance acted, and when it paused.
    fn row(&self, instance: &InstanceReport) -> String {
        let mut row = vec![' '; self.width];
        row[self.cells(instance.first, instance.last)].fill('━');
        for pause in &instance.pauses {
            let (before, after) = (self.cell(pause.from), self.cell(pause.until));
            // In the cells at both ends it acted.
            if after > before + 1 {
                row[before + 1..after].fill('░');
            }
        }
        row.into_iter().collect()
    }
}

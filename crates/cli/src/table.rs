//! How tables and numbers look: no borders, numbers to the right, never wider than the terminal.

use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

const GAP: u16 = 2;

/// A text is not cut to less than this.
const CUT_MIN: usize = 4;

/// How wide a terminal is at least.
const COLUMNS: usize = 80;

/// An empty table in our style.
pub(crate) fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

/// The finished table as text, with numbers in all columns from `numbers_from` on. Ends its last
/// line.
pub(crate) fn finish(mut table: Table, numbers_from: usize) -> String {
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP));
        if number >= numbers_from {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{}\n", table.trim_fmt())
}

/// Makes rows fit into a terminal that is so wide: the columns after the first `whole` go, from the last one on,
/// and then the texts in one of the first are cut.
pub(crate) fn narrow(rows: &mut [Vec<String>], width: usize, cut: usize, whole: usize) {
    let columns = rows.first().map_or(0, Vec::len);
    let wide = |rows: &[Vec<String>], column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let total = |rows: &[Vec<String>], columns: usize| {
        let texts: usize = (0..columns).map(|column| wide(rows, column)).sum();
        texts + columns.saturating_sub(1) * usize::from(GAP)
    };
    // A table keeps the gap after its last column, too.
    let width = width.saturating_sub(usize::from(GAP));
    let kept = (whole..=columns).rev().find(|kept| total(rows, *kept) <= width).unwrap_or(whole);
    for row in rows.iter_mut() {
        row.truncate(kept);
    }
    let over = total(rows, kept).saturating_sub(width);
    let room = wide(rows, cut).saturating_sub(over).max(CUT_MIN);
    for row in rows.iter_mut().filter(|row| row[cut].chars().count() > room) {
        row[cut] = row[cut].chars().take(room - 1).chain(['…']).collect();
    }
}

/// Cuts the texts of a column so that rows fit into a terminal, or into 80 columns.
pub(crate) fn cut(rows: &mut [Vec<String>], column: usize) {
    let columns = rows.first().map_or(0, Vec::len);
    narrow(rows, terminal_width().unwrap_or(COLUMNS), column, columns);
}

/// Rows as a table, of which the first is its header, with numbers in all columns from `numbers_from` on.
pub(crate) fn rows(rows: Vec<Vec<String>>, numbers_from: usize) -> String {
    let mut table = plain();
    let mut rows = rows.into_iter();
    table.set_header(rows.next().unwrap_or_default());
    table.add_rows(rows);
    finish(table, numbers_from)
}

/// Sentences on lines of at most 80 columns, if their words allow it.
pub(crate) fn folded(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= COLUMNS => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// How wide the terminal is, if stdout is one that knows.
pub(crate) fn terminal_width() -> Option<usize> {
    Table::new().width().map(usize::from).filter(|width| *width > 0)
}

/// A number with its thousands apart: 1,048,576.
pub(crate) fn grouped(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::new();
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds, down to the microsecond.
pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let numbers = [0_u64, 999, 1_000, 12_345, 1_048_576];
        assert_eq!(numbers.map(grouped), ["0", "999", "1,000", "12,345", "1,048,576"]);
    }

    #[test]
    fn sentences_are_folded_between_words() {
        let long = ["word"; 17].join(" ");
        assert_eq!(folded(&long), format!("{}\nword", ["word"; 16].join(" ")));
        assert_eq!(folded("short"), "short");
        assert_eq!(folded(&"x".repeat(90)), "x".repeat(90));
    }

    #[test]
    fn a_table_has_no_borders_and_its_numbers_stand_to_the_right() {
        let mut table = plain();
        table.set_header(["bell", "strokes"]);
        table.add_row(["noon", "8"]);
        assert_eq!(finish(table, 1), "bell  strokes\nnoon        8\n");
    }
}

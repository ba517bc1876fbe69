//! How tables and numbers look: no borders, numbers to the right, never wider than the terminal.

use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

const GAP: u16 = 2;

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

/// How wide the terminal is, if stdout is one.
pub(crate) fn terminal_width() -> Option<usize> {
    Table::new().width().map(usize::from)
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
    fn a_table_has_no_borders_and_its_numbers_stand_to_the_right() {
        let mut table = plain();
        table.set_header(["bell", "strokes"]);
        table.add_row(["noon", "8"]);
        assert_eq!(finish(table, 1), "bell  strokes\nnoon        8\n");
    }
}

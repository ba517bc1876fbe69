//! Progress, as a command says it: lines on the descriptor whose number is in `WATCHBELL_PROGRESS_FD`.
//!
//! ```text
//! 40 page 4 of 10     so many percent, and a text
//! 40                  so many percent
//! - looking for pages only a text
//! ```
//!
//! A shell says it with `echo 40 page 4 of 10 >&$WATCHBELL_PROGRESS_FD`. A percentage is a whole number from 0 to 100, with or
//! without a `%`. A line that is none of these, or longer than 1,024 bytes, is left out and counted: a program is not ended for
//! what it says about itself. Of a text the first 200 characters are shown.

use crate::limits::PROGRESS_CHARS_MAX;

/// Bytes of a line.
const LINE_BYTES_MAX: usize = 1_024;

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) percent: Option<u8>,
    pub(super) text: Option<String>,
}

/// Puts lines together from what is read.
#[derive(Debug, Default)]
pub(super) struct ProgressLines {
    line: Vec<u8>,
    /// The line is too long already.
    is_long: bool,
    /// Lines that were left out.
    pub(super) left_out: u64,
}

impl ProgressLines {
    /// Takes bytes, and gives the last step that they end: those before it are out of date already.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<Step> {
        let mut last = None;
        for byte in bytes {
            match byte {
                b'\n' => last = self.end_line().or(last),
                _ if self.line.len() == LINE_BYTES_MAX => self.is_long = true,
                byte => self.line.push(*byte),
            }
        }
        last
    }

    /// At the end: a last line may have no end of its own.
    pub(super) fn finish(&mut self) -> Option<Step> {
        self.end_line()
    }

    fn end_line(&mut self) -> Option<Step> {
        let (line, is_long) = (std::mem::take(&mut self.line), std::mem::take(&mut self.is_long));
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() && !is_long {
            return None;
        }
        let step = parse(text).filter(|_| !is_long);
        if step.is_none() {
            self.left_out += 1;
        }
        step
    }
}

fn parse(line: &str) -> Option<Step> {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let text = (!rest.is_empty()).then(|| shown(rest));
    if first == "-" {
        return text.map(|text| Step { percent: None, text: Some(text) });
    }
    let digits = first.strip_suffix('%').unwrap_or(first);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let percent: u8 = digits.parse().ok().filter(|percent| is_number && *percent <= 100)?;
    Some(Step { percent: Some(percent), text })
}

/// A text without control characters, cut to what a server takes.
fn shown(text: &str) -> String {
    let plain = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().take(PROGRESS_CHARS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(percent: Option<u8>, text: Option<&str>) -> Step {
        Step { percent, text: text.map(str::to_owned) }
    }

    #[test]
    fn a_line_is_a_percentage_a_text_or_both() {
        assert_eq!(parse("40 page 4 of 10"), Some(step(Some(40), Some("page 4 of 10"))));
        assert_eq!(parse("0"), Some(step(Some(0), None)));
        assert_eq!(parse("100%\tdone\u{7}"), Some(step(Some(100), Some("done "))));
        assert_eq!(parse("- looking"), Some(step(None, Some("looking"))));
        for wrong in ["101", "-1", "+1", "4.5", "half", "-", "40page", "%", "{\"percent\": 4}"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_are_put_together_however_they_come_and_the_last_one_counts() {
        let mut lines = ProgressLines::default();
        assert_eq!(lines.take(b"1"), None);
        assert_eq!(lines.take(b"0 on"), None);
        assert_eq!(lines.take(b"e\n\n20\n30 th"), Some(step(Some(20), None)));
        assert_eq!(lines.finish(), Some(step(Some(30), Some("th"))));
        assert_eq!((lines.finish(), lines.left_out), (None, 0));
    }

    #[test]
    fn what_is_wrong_or_too_long_is_counted_and_takes_no_room() {
        let mut lines = ProgressLines::default();
        let full = format!("7 {}\n", "x".repeat(LINE_BYTES_MAX - 2));
        let cut = "x".repeat(PROGRESS_CHARS_MAX);
        assert_eq!(lines.take(full.as_bytes()), Some(step(Some(7), Some(&cut))));
        let long = format!("7 {}", "x".repeat(LINE_BYTES_MAX - 1));
        for _ in 0..1_000 {
            assert_eq!(lines.take(long.as_bytes()), None);
        }
        assert!(lines.line.len() <= LINE_BYTES_MAX);
        assert_eq!(lines.take(b"\n8\nwrong\n"), Some(step(Some(8), None)));
        assert_eq!(lines.left_out, 2);
    }
}

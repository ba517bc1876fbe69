//! The last line that a command printed on standard error: it stands behind the exit code in the run's error, because it
//! is what people want to see at night.

use std::collections::VecDeque;

/// Bytes that are kept.
const KEPT_BYTES: usize = 2_048;

/// Characters of the line that are shown.
const SHOWN_CHARS_MAX: usize = 300;

/// The end of what was printed.
#[derive(Debug, Default)]
pub(super) struct Tail(VecDeque<u8>);

impl Tail {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        let excess = (self.0.len() + bytes.len()).saturating_sub(KEPT_BYTES);
        self.0.drain(..excess);
        self.0.extend(bytes);
    }

    /// The last line that says something.
    pub(super) fn last_line(mut self) -> Option<String> {
        let text = String::from_utf8_lossy(self.0.make_contiguous());
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        let plain = line.chars().filter(|char| !char.is_control());
        let mut shown: String = plain.clone().take(SHOWN_CHARS_MAX).collect();
        if plain.count() > SHOWN_CHARS_MAX {
            shown.push('…');
        }
        Some(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_line(pieces: &[&[u8]]) -> Option<String> {
        let mut tail = Tail::default();
        for piece in pieces {
            tail.take(piece);
        }
        tail.last_line()
    }

    #[test]
    fn the_last_line_that_says_something_is_found() {
        assert_eq!(last_line(&[]), None);
        assert_eq!(last_line(&[b"\n \n"]), None);
        assert_eq!(last_line(&[b"first\nsec", b"ond\r\n\n"]), Some("second".to_owned()));
        assert_eq!(last_line(&[b"a\x1b[31mred\xff"]), Some("a[31mred\u{fffd}".to_owned()));
    }

    #[test]
    fn however_much_is_printed_little_is_kept() {
        let much = vec![b'x'; 3 * KEPT_BYTES];
        let mut tail = Tail::default();
        tail.take(&much);
        tail.take(&much[..7]);
        assert_eq!(tail.0.len(), KEPT_BYTES);
        let shown = tail.last_line().unwrap();
        assert_eq!(shown.chars().count(), SHOWN_CHARS_MAX + 1);
    }
}

//! Makes any value readable: as the JSON or the text that it is, or else as hexadecimal digits.
//!
//! What is shown cannot move the cursor, ring the bell or turn the direction of the script: a value
//! may come from anywhere, and a terminal obeys what it is shown.

use std::fmt::Write;

use serde_json::json;

/// What stands in a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Readable {
    /// JSON on one line, with its members and numbers as they were written.
    Json(String),
    Text(String),
    Base16(String),
}

impl Readable {
    /// Looks at the bytes of a value.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self::Base16(base16(bytes));
        };
        if serde_json::from_str::<serde_json::Value>(text).is_ok() {
            return Self::Json(compact(text));
        }
        if text.chars().any(|char| char.is_control() && !matches!(char, '\t' | '\n' | '\r')) {
            return Self::Base16(base16(bytes));
        }
        Self::Text(text.to_owned())
    }

    /// For people, on one line.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Json(json) => json.clone(),
            Self::Text(text) if text.is_empty() => "(empty)".into(),
            Self::Text(text) => escape(text),
            Self::Base16(digits) => format!("{digits} ({} bytes in hexadecimal)", digits.len() / 2),
        }
    }

    /// For people, on one line of at most `room` columns: what does not fit gives way to the number
    /// of bytes that there are.
    pub(crate) fn line_within(&self, room: usize, value_len: usize) -> String {
        let line = self.line();
        if columns(&line) <= room {
            return line;
        }
        let note = match self {
            Self::Json(_) | Self::Text(_) => format!("… ({value_len} bytes)"),
            Self::Base16(_) => format!("… ({value_len} bytes in hexadecimal)"),
        };
        let mut left = room.saturating_sub(note.chars().count());
        let fits = |char: &char| {
            let fits = columns_of(*char) <= left;
            left = left.saturating_sub(columns_of(*char));
            fits
        };
        line.chars().take_while(fits).chain(note.chars()).collect()
    }

    /// The value as programs read it.
    pub(crate) fn json(&self) -> String {
        match self {
            Self::Json(json) => json.clone(),
            Self::Text(text) => json!({ "text": text }).to_string(),
            Self::Base16(digits) => json!({ "base16": digits }).to_string(),
        }
    }
}

fn base16(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("a String takes everything");
        digits
    })
}

/// Valid JSON without the white space between its parts, and with nothing invisible within its
/// strings.
fn compact(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    let (mut within_string, mut escaped) = (false, false);
    for char in json.chars() {
        if !within_string && char.is_ascii_whitespace() {
            continue;
        }
        within_string ^= char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        if is_invisible(char) {
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(line, "\\u{unit:04x}").expect("a String takes everything");
            }
        } else {
            line.push(char);
        }
    }
    line
}

/// A text on one line, with nothing that could steer a terminal.
pub(crate) fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, char| {
        if is_invisible(char) || char == '\\' {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
        line
    })
}

/// Control characters, and those that change how the ones around them are shown.
fn is_invisible(char: char) -> bool {
    let steers = matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}');
    char.is_control() || steers
}

fn columns(line: &str) -> usize {
    line.chars().map(columns_of).sum()
}

/// At least as many columns as a terminal takes: a line that is a little short is fine.
fn columns_of(char: char) -> usize {
    if char.is_ascii() { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: impl AsRef<[u8]>, line: &str, json: &str) {
        let readable = Readable::of(bytes.as_ref());
        assert_eq!(readable.line(), line);
        assert_eq!(readable.json(), json);
        serde_json::from_str::<serde_json::Value>(json).expect("programs can read it");
    }

    #[test]
    fn json_is_shown_as_it_was_written_on_one_line() {
        check(
            "{\n \"b\": [1.10, 2],\n \"a\": \"x \\\" y\" }\n",
            r#"{"b":[1.10,2],"a":"x \" y"}"#,
            r#"{"b":[1.10,2],"a":"x \" y"}"#,
        );
        check("12345678901234567890123", "12345678901234567890123", "12345678901234567890123");
        check(r#""\\" "#, r#""\\""#, r#""\\""#);
    }

    #[test]
    fn text_is_shown_with_escapes() {
        check("noon\tand\\night\n", r"noon\tand\\night\n", r#"{"text":"noon\tand\\night\n"}"#);
        check("Glasenuhr für 8", "Glasenuhr für 8", r#"{"text":"Glasenuhr für 8"}"#);
        check("", "(empty)", r#"{"text":""}"#);
    }

    #[test]
    fn other_bytes_are_shown_in_hexadecimal() {
        check([0xff, 0x00, 0x1b], "ff001b (3 bytes in hexadecimal)", r#"{"base16":"ff001b"}"#);
        check("\x1b[2J", "1b5b324a (4 bytes in hexadecimal)", r#"{"base16":"1b5b324a"}"#);
    }

    #[test]
    fn nothing_that_is_shown_can_steer_a_terminal() {
        check("a\u{202e}b", r"a\u{202e}b", "{\"text\":\"a\u{202e}b\"}");
        check("\"\u{9b}2J\"", r#""\u009b2J""#, r#""\u009b2J""#);
    }

    #[test]
    fn a_line_that_fits_is_whole_and_one_that_does_not_says_how_long_it_is() {
        let text = Readable::of("bells ".repeat(5).as_bytes());
        assert_eq!(text.line_within(30, 30), "bells bells bells bells bells ");
        assert_eq!(text.line_within(29, 30), "bells bells bells… (30 bytes)");
        let bytes = Readable::of(&[0xff; 100]);
        assert_eq!(bytes.line_within(40, 100), "ffffffffffff… (100 bytes in hexadecimal)");
    }
}

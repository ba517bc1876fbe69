//! What is wrong with a pattern, where, and what is allowed there.

use std::fmt;

/// A field of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// The first of six or seven fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// The day of the month.
    Day,
    /// 1 to 12.
    Month,
    /// The day of the week.
    Weekday,
    /// The last of seven fields.
    Year,
}

impl Field {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day of month",
            Self::Month => "month",
            Self::Weekday => "day of week",
            Self::Year => "year",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a piece of a pattern means, or what is wrong with it.
pub(super) type CronResult<T> = Result<T, CronError>;

/// A text that is not a pattern. The one remedy is to write another text; the message says which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}, character {}: {wrong}; {allowed}", self.place(), self.position + 1)]
pub struct CronError {
    field: Option<Field>,
    position: usize,
    wrong: String,
    allowed: String,
}

impl CronError {
    /// The fault at a byte of the text, which must be the first one of a character or the end.
    #[cold]
    pub(super) fn new(
        text: &str,
        byte: usize,
        field: Option<Field>,
        wrong: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        let position = text[..byte].chars().count();
        Self { field, position, wrong: wrong.into(), allowed: allowed.into() }
    }

    /// The field that is wrong; none if it is the pattern as a whole.
    pub fn field(&self) -> Option<Field> {
        self.field
    }

    /// The character that is wrong, counted from 0; for something missing, where it would stand. A caret
    /// goes below this one.
    pub fn position(&self) -> usize {
        self.position
    }

    /// What is wrong, for people.
    pub fn wrong(&self) -> &str {
        &self.wrong
    }

    /// What is allowed there.
    pub fn allowed(&self) -> &str {
        &self.allowed
    }

    fn place(&self) -> &'static str {
        self.field.map_or("pattern", Field::name)
    }
}

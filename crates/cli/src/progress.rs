//! One line on stderr that says what takes so long, for those who watch.
//!
//! It ends with the cursor at its beginning, so that whatever is printed next writes over it. Where
//! stderr is no terminal there is nothing to see.

use std::fmt;
use std::io::{self, IsTerminal, Write};

const CLEAR_LINE: &str = "\x1b[2K";

/// The line. It is gone when this is dropped.
pub(crate) struct Progress {
    watched: bool,
}

impl Progress {
    /// On stderr, if that is a terminal.
    pub(crate) fn on_stderr() -> Self {
        Self { watched: io::stderr().is_terminal() }
    }

    /// Shows this instead of what was shown before. Short enough for one line.
    pub(crate) fn show(&self, what: impl fmt::Display) {
        if self.watched {
            // Nothing depends on whether it was seen.
            let _ = write!(io::stderr(), "{CLEAR_LINE}{what}\r");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

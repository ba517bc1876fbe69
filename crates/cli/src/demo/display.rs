//! Where it is shown while it runs: a picture that is drawn over itself on a terminal, and lines elsewhere.

use std::io::{self, IsTerminal, Write};

use super::story::Event;
use super::view::{coloured, event_line};
use crate::colour::Colour;
use crate::table;

/// How wide a terminal is that does not say so.
const WIDTH: usize = 80;

/// On stderr: stdout is for what became of it.
pub(super) struct Display {
    colour: Colour,
    kind: Kind,
}

enum Kind {
    /// So many lines were drawn, and the cursor is below them.
    Terminal {
        drawn: usize,
    },
    Plain,
}

impl Display {
    pub(super) fn on_stderr() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let kind = if is_terminal { Kind::Terminal { drawn: 0 } } else { Kind::Plain };
        Self { colour: Colour::of_stderr(), kind }
    }

    /// Tells of something that happened, where there is no picture that shows it.
    pub(super) fn tell(&self, event: &Event, speed: u32) {
        if let Kind::Plain = self.kind {
            // Nothing depends on whether it was seen.
            let _ = writeln!(io::stderr(), "{}", coloured(&event_line(event, speed), self.colour));
        }
    }

    /// Draws how things stand over what was drawn before.
    pub(super) fn draw(&mut self, lines: impl FnOnce(usize, Colour) -> Vec<String>) {
        let Kind::Terminal { drawn } = &mut self.kind else { return };
        let lines = lines(table::terminal_width().unwrap_or(WIDTH), self.colour);
        let mut text = if *drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
        for line in &lines {
            text.extend(["\x1b[2K", line, "\n"]);
        }
        *drawn = lines.len();
        let _ = io::stderr().write_all(format!("{text}\x1b[J").as_bytes());
    }

    /// Leaves a line between the picture and what comes next.
    pub(super) fn close(self) {
        if let Kind::Terminal { drawn: 1.. } = self.kind {
            let _ = writeln!(io::stderr());
        }
    }
}

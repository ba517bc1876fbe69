//! Colours, where somebody can see them: on a terminal, and unless `NO_COLOR` or `--no-color` says otherwise.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

/// Whether people want none. Set once, from the command line.
static UNWANTED: OnceLock<()> = OnceLock::new();

/// Says that people want no colours.
pub(crate) fn turn_off() {
    let _ = UNWANTED.set(());
}

/// Whether a stream that is or is not a terminal is to have colours.
fn shown(is_terminal: bool) -> bool {
    is_terminal && UNWANTED.get().is_none()
}

/// Whether what is written to stderr is to have colours.
pub(crate) fn on_stderr() -> bool {
    shown(io::stderr().is_terminal())
}

/// How a text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    Shown,
}

impl Colour {
    /// For what is written to stdout.
    pub(crate) fn of_stdout() -> Self {
        if shown(io::stdout().is_terminal()) { Self::Shown } else { Self::Plain }
    }

    /// For what is written to stderr.
    pub(crate) fn of_stderr() -> Self {
        if on_stderr() { Self::Shown } else { Self::Plain }
    }

    /// A text that begins with a sign: green for what comes, red for what goes, yellow for what changes.
    pub(crate) fn of_sign(self, sign: char, text: &str) -> String {
        let code = match (self, sign) {
            (Self::Shown, '+') => 32,
            (Self::Shown, '-' | '!') => 31,
            (Self::Shown, '~') => 33,
            (Self::Plain | Self::Shown, _) => return text.to_owned(),
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_can_see_colours_get_them() {
        assert_eq!(Colour::Plain.of_sign('+', "+ a"), "+ a");
        assert_eq!(Colour::Shown.of_sign('+', "+ a"), "\u{1b}[32m+ a\u{1b}[0m");
        assert_eq!(Colour::Shown.of_sign('=', "= a"), "= a");
        assert!(!shown(false));
    }
}

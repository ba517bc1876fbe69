//! Asking before something is done that cannot be undone.
//!
//! Whoever types at a terminal is asked; a script says that it means it. One place, so that every such verb
//! asks in the same way and is answered in the same way.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Ending;

/// Whether to ask.
#[derive(Debug, clap::Args)]
pub(crate) struct YesArgs {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

impl YesArgs {
    /// Whether the question could be answered; `nothing` says what was not done if it cannot.
    pub(crate) fn check(&self, nothing: &str) -> Result<(), Ending> {
        if self.yes || io::stdin().is_terminal() {
            return Ok(());
        }
        Err(Ending::wrong_input(format!(
            "{nothing}: there is no terminal to ask at, so say that you mean it with --yes"
        )))
    }

    /// Asks, and goes on only after a yes.
    pub(crate) fn ask(&self, question: &str, nothing: &str) -> Result<(), Ending> {
        self.check(nothing)?;
        if self.yes {
            return Ok(());
        }
        write!(io::stderr(), "{question} [y/N] ")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(Ending::failed(nothing))
    }
}

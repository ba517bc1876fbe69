//! Before something is lost, a person is asked; where there is none, `--yes` has to say that it is meant.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Ending;

/// Whether there is a person to ask, or nobody needs to be. What would be `done` is not, otherwise.
pub(crate) fn possible(yes: bool, done: &str) -> Result<(), Ending> {
    if yes || io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Ending::wrong_input(format!(
        "nothing was {done}: there is no terminal to ask at, so say that you mean it with --yes"
    )))
}

/// Goes on only if the person at the keyboard says yes, or has said so before.
pub(crate) fn sure(yes: bool, done: &str, question: impl FnOnce() -> String) -> Result<(), Ending> {
    possible(yes, done)?;
    if yes || confirmed(&question())? {
        return Ok(());
    }
    Err(Ending::failed(format!("nothing was {done}")))
}

fn confirmed(question: &str) -> Result<bool, Ending> {
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

//! `watchbell run output`: what a run printed, or prints, each stream to its own.
//!
//! Bytes are written as they are, so that they can be piped. A terminal is shown no control characters but line breaks and
//! tabs: what a program prints may come from anywhere. What is missing is said on stderr.

use std::io::{self, IsTerminal, Write};

use client::output::{OutputChunk, OutputEvent, OutputStream, RunOutput};
use client::run::RunState;

use crate::args::OutputFormat;
use crate::args::run::RunOutputArgs;
use crate::exit::{Ending, say};
use crate::table::grouped;
use crate::trigger::print;

pub(crate) async fn output(typed: &RunOutputArgs) -> Result<(), Ending> {
    if typed.follow {
        return follow(typed).await;
    }
    let output = typed.server.client()?.run_output(&typed.id).await?;
    match typed.server.output {
        OutputFormat::Json => print(OutputFormat::Json, &output, String::new),
        OutputFormat::Table => show(&output),
    }
}

fn show(output: &RunOutput) -> Result<(), Ending> {
    let mut next = 0;
    for chunk in &output.chunks {
        tell_cut(next, chunk.offset);
        next = chunk.offset + write(chunk)?;
    }
    tell_cut(next, output.bytes);
    if output.bytes == 0 {
        say("nothing that it printed is kept");
    }
    Ok(())
}

async fn follow(typed: &RunOutputArgs) -> Result<(), Ending> {
    let mut events = typed.server.client()?.follow_output(&typed.id).await?;
    let mut last_attempt = None;
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            // Whoever follows ends it so: that is fine.
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(event) = event else { return Ok(()) };
        if matches!(typed.server.output, OutputFormat::Json) {
            let line = serde_json::to_string(&event).expect("events always serialize");
            let mut out = io::stdout().lock();
            writeln!(out, "{line}")?;
            out.flush()?;
            continue;
        }
        match &event {
            OutputEvent::Printed { attempt, chunk } => {
                if last_attempt.replace(*attempt).is_some_and(|last| last != *attempt) {
                    say(&format!("attempt {attempt} begins here"));
                }
                write(chunk)?;
            }
            OutputEvent::Cut { from, to, .. } => tell_cut(*from, *to),
            OutputEvent::Ended { state } => {
                let ended = state.map_or("ended", RunState::as_str);
                say(&format!("the run has ended: {ended}"));
            }
        }
    }
}

/// Says how much is missing between two offsets.
fn tell_cut(from: u64, to: u64) {
    if from < to {
        say(&format!("{} bytes are missing here", grouped(to - from)));
    }
}

/// Writes a chunk to where it was printed. Tells how many bytes it has.
fn write(chunk: &OutputChunk) -> Result<u64, Ending> {
    let bytes =
        chunk.bytes().map_err(|why| Ending::failed(format!("an answer is wrong: {why}")))?;
    match chunk.stream {
        OutputStream::Stdout => put(&mut io::stdout().lock(), &bytes)?,
        OutputStream::Stderr => put(&mut io::stderr().lock(), &bytes)?,
    }
    Ok(bytes.len() as u64)
}

fn put(out: &mut (impl Write + IsTerminal), bytes: &[u8]) -> io::Result<()> {
    if out.is_terminal() {
        out.write_all(harmless(bytes).as_bytes())?;
    } else {
        out.write_all(bytes)?;
    }
    // Somebody waits for it.
    out.flush()
}

/// The same, as far as a terminal may be shown it.
fn harmless(bytes: &[u8]) -> String {
    let shown = |char: char| match char {
        '\n' | '\t' => char,
        '\r' => '\n',
        _ if char.is_control() || is_direction(char) => char::REPLACEMENT_CHARACTER,
        _ => char,
    };
    String::from_utf8_lossy(bytes).replace("\r\n", "\n").chars().map(shown).collect()
}

/// Whether it turns the direction in which the rest is shown.
fn is_direction(char: char) -> bool {
    matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_shown_nothing_that_it_obeys() {
        assert_eq!(harmless(b"a\tb\r\n\x1b[2Jc\x07\xff"), "a\tb\n\u{fffd}[2Jc\u{fffd}\u{fffd}");
        assert_eq!(harmless("x\u{202e}y".as_bytes()), "x\u{fffd}y");
    }
}

//! `watchbell run output`: what a run printed, or prints, each stream to its own.
//!
//! Bytes are written as they are, so that they can be piped. A terminal is shown no control characters but line breaks and
//! tabs: what a program prints may come from anywhere. What is missing is said on stderr. With time stamps all lines go to
//! stdout, each with the time of the piece in which it begins, and its stream.

use std::io::{self, IsTerminal, Write};

use client::Timestamp;
use client::output::{OutputChunk, OutputEvent, OutputStream, RunOutput};
use client::run::RunState;

use crate::args::OutputFormat;
use crate::args::run::RunOutputArgs;
use crate::exit::{Ending, say};
use crate::outage::Outage;
use crate::table::grouped;
use crate::trigger::print;

pub(crate) async fn output(typed: &RunOutputArgs) -> Result<(), Ending> {
    if typed.follow {
        return follow(typed).await;
    }
    let output = typed.server.client()?.run_output(&typed.id).await?;
    match typed.server.output {
        OutputFormat::Json => print(OutputFormat::Json, &output, String::new),
        OutputFormat::Table => show(&output, Printer::of(typed)),
    }
}

fn show(output: &RunOutput, mut printer: Printer) -> Result<(), Ending> {
    let mut next = 0;
    for chunk in &output.chunks {
        printer.cut(next, chunk.offset)?;
        next = chunk.offset + printer.write(chunk)?;
    }
    printer.cut(next, output.bytes)?;
    printer.end_line()?;
    if output.bytes == 0 {
        say("nothing that it printed is kept");
    }
    Ok(())
}

async fn follow(typed: &RunOutputArgs) -> Result<(), Ending> {
    let mut events = typed.server.client()?.follow_output(&typed.id).await?;
    let (mut last_attempt, mut printer) = (None, Printer::of(typed));
    let mut outage = Outage::default();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            // Whoever follows ends it so: that is fine.
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let event = match event {
            Ok(event) => event,
            // A server that is started again is followed on, from the same place.
            Err(why) => tokio::select! {
                waited = outage.wait(why) => {
                    waited?;
                    continue;
                }
                _ = tokio::signal::ctrl_c() => return Ok(()),
            },
        };
        outage.end();
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
                    printer.end_line()?;
                    say(&format!("attempt {attempt} begins here"));
                }
                printer.write(chunk)?;
            }
            OutputEvent::Cut { from, to, .. } => printer.cut(*from, *to)?,
            OutputEvent::Ended { state } => {
                printer.end_line()?;
                let ended = state.map_or("ended", RunState::as_str);
                say(&format!("the run has ended: {ended}"));
            }
        }
    }
}

/// How output is written.
enum Printer {
    /// Each stream to its own.
    Plain,
    /// As lines with their times.
    Stamped(StampedLines),
}

impl Printer {
    fn of(typed: &RunOutputArgs) -> Self {
        if typed.timestamps { Self::Stamped(StampedLines::default()) } else { Self::Plain }
    }

    /// Writes a chunk. Tells how many bytes it has.
    fn write(&mut self, chunk: &OutputChunk) -> Result<u64, Ending> {
        let bytes =
            chunk.bytes().map_err(|why| Ending::failed(format!("an answer is wrong: {why}")))?;
        match (self, chunk.stream) {
            (Self::Plain, OutputStream::Stdout) => put(&mut io::stdout().lock(), &bytes)?,
            (Self::Plain, OutputStream::Stderr) => put(&mut io::stderr().lock(), &bytes)?,
            (Self::Stamped(lines), stream) => {
                let mut out = io::stdout().lock();
                let is_shown = out.is_terminal();
                let shown = if is_shown { harmless(&bytes).into_bytes() } else { bytes.clone() };
                out.write_all(&lines.stamped(stream, chunk.at, &shown))?;
                out.flush()?;
            }
        }
        Ok(bytes.len() as u64)
    }

    /// Ends a line that the program did not end.
    fn end_line(&mut self) -> io::Result<()> {
        if let Self::Stamped(lines) = self
            && lines.open.take().is_some()
        {
            let mut out = io::stdout().lock();
            out.write_all(b"\n")?;
            out.flush()?;
        }
        Ok(())
    }

    /// Says how much is missing between two offsets.
    fn cut(&mut self, from: u64, to: u64) -> io::Result<()> {
        if from < to {
            self.end_line()?;
            say(&format!("{} bytes are missing here", grouped(to - from)));
        }
        Ok(())
    }
}

/// Lines with their times: `2026-11-18T19:41:55.120Z stdout | line`.
#[derive(Default)]
struct StampedLines {
    /// Whose line has not ended yet.
    open: Option<OutputStream>,
}

impl StampedLines {
    /// What is to be written for these bytes.
    fn stamped(&mut self, stream: OutputStream, at: Option<Timestamp>, bytes: &[u8]) -> Vec<u8> {
        let at = at.map_or_else(|| format!("{:24}", "-"), |at| format!("{at:.3}"));
        let mut out = Vec::with_capacity(bytes.len() + 64);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.open != Some(stream) {
                if self.open.is_some() {
                    out.push(b'\n');
                }
                out.extend_from_slice(format!("{at} {} | ", stream.as_str()).as_bytes());
            }
            out.extend_from_slice(line);
            self.open = (!line.ends_with(b"\n")).then_some(stream);
        }
        out
    }
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
    fn lines_have_the_time_at_which_they_begin_and_their_stream() {
        let mut lines = StampedLines::default();
        let at = |text: &str| Some(text.parse().unwrap());
        let mut stamped =
            |stream, at, bytes: &[u8]| String::from_utf8(lines.stamped(stream, at, bytes)).unwrap();
        let (out, err) = (OutputStream::Stdout, OutputStream::Stderr);
        let text = stamped(out, at("2026-11-18T19:41:55.12Z"), b"one\ntw");
        let first = "2026-11-18T19:41:55.120Z stdout | one\n2026-11-18T19:41:55.120Z stdout | tw";
        assert_eq!(text, first);
        assert_eq!(stamped(out, at("2026-11-18T19:41:57Z"), b"o\n"), "o\n");
        let text = stamped(out, at("2026-11-18T19:41:58.0004Z"), b"three");
        assert_eq!(text, "2026-11-18T19:41:58.000Z stdout | three");
        let text = stamped(err, None, b"oh\n");
        assert_eq!(text, "\n-                        stderr | oh\n");
        assert_eq!(lines.open, None);
    }

    #[test]
    fn a_terminal_is_shown_nothing_that_it_obeys() {
        assert_eq!(harmless(b"a\tb\r\n\x1b[2Jc\x07\xff"), "a\tb\n\u{fffd}[2Jc\u{fffd}\u{fffd}");
        assert_eq!(harmless("x\u{202e}y".as_bytes()), "x\u{fffd}y");
    }
}

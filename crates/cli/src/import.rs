//! `watchbell import crontab`: a crontab as a file for `watchbell trigger apply`.
//!
//! Commands need somebody to run them. Each line becomes a trigger that calls a webhook with its command; what
//! receives the call decides how the command is run. What a crontab says and a trigger cannot say is told line
//! by line, and is never dropped in silence.

pub(crate) mod crontab;

use std::fmt::Write as _;
use std::io::{self, Write};

use engine::schedule::zone::ZoneId;

use self::crontab::{CrontabColumns, CrontabRead, Imported};
use crate::apply::file::read_text;
use crate::args::import::CrontabArgs;
use crate::cron::now;
use crate::exit::{Ending, say};
use crate::value::escape;

pub(crate) fn crontab(typed: &CrontabArgs) -> Result<(), Ending> {
    let zone = typed.zone.as_deref();
    if let Some(zone) = zone {
        ZoneId::get(zone).map_err(|why| Ending::wrong_input(format!("--tz: {why}")))?;
    }
    let file = escape(&typed.file.display().to_string());
    let text =
        read_text(&typed.file).map_err(|why| Ending::wrong_input(format!("{file}: {why}")))?;
    let columns = if typed.system { CrontabColumns::System } else { CrontabColumns::User };
    let read = crontab::read(&text, columns, zone, &typed.webhook_base, now());
    io::stdout().write_all(yaml(&file, &read).as_bytes())?;
    for note in &read.notes {
        say(&format!("line {}: {}", note.line, note.why));
    }
    for left in &read.left_out {
        say(&format!("line {} is left out: {}", left.line, left.why));
    }
    match (read.left_out.len(), read.triggers.len()) {
        (0, 0) => Err(Ending::failed("there is no line that could become a trigger")),
        (0, _) => Ok(()),
        (left, made) => {
            Err(Ending::failed(format!("{left} of {} lines were left out", left + made)))
        }
    }
}

/// As a file that can be applied, with the line that each trigger comes from.
fn yaml(file: &str, read: &CrontabRead) -> String {
    let mut text = format!(
        "# From the crontab {file}. Look at what it does: watchbell trigger apply --dry-run\ntriggers:\n"
    );
    if read.triggers.is_empty() {
        text.push_str("  []\n");
    }
    for Imported { line, spec } in &read.triggers {
        let json = serde_json::to_value(spec).expect("a spec always serializes");
        let _ = writeln!(text, "  # line {line}");
        let mut sign = '-';
        for field in ["name", "labels", "schedule", "catch_up", "webhook"] {
            if let Some(value) = json.get(field) {
                let _ = writeln!(text, "  {sign} {field}: {value}");
                sign = ' ';
            }
        }
    }
    text
}

/// When a crontab is judged in a test.
#[cfg(test)]
const NOW: engine::instant::Instant = engine::instant::Instant(1_800_000_000_000);

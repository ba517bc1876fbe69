//! What people and programs see of an apply, and of one that was only thought through.

use std::fmt::Write;

use engine::instant::Instant;
use engine::schedule::Count;
use serde_json::{Value, json};

use super::fires::{Fires, Timing, difference};
use super::plan::{ApplyChange, ApplyStep};
use crate::args::OutputFormat;
use crate::colour::Colour;
use crate::exit::Ending;
use crate::table;
use crate::trigger::print;
use crate::value::escape;

/// More than so many triggers that stay as they are are not named.
const UNCHANGED_NAMED_MAX: usize = 20;

/// What came of a trigger, or of a queue.
#[derive(Debug)]
pub(super) struct ApplyRow {
    pub(super) name: String,
    pub(super) outcome: ApplyOutcome,
}

impl ApplyRow {
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.outcome, ApplyOutcome::Failed(_))
    }
}

#[derive(Debug)]
pub(super) enum ApplyOutcome {
    Created,
    Updated,
    Unchanged,
    Deleted,
    Failed(String),
}

impl ApplyOutcome {
    const WORDS: [&'static str; 5] = ["created", "updated", "unchanged", "deleted", "failed"];

    fn word(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Failed(_) => "failed",
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            Self::Created | Self::Updated | Self::Unchanged | Self::Deleted => None,
        }
    }
}

/// Shows what was done; it is a failure if some of it was not.
pub(super) fn rows((of, rows): (&str, &[ApplyRow]), output: OutputFormat) -> Result<(), Ending> {
    let count = |word: &str| rows.iter().filter(|row| row.outcome.word() == word).count();
    let counts: Vec<(&str, usize)> =
        ApplyOutcome::WORDS.into_iter().map(|word| (word, count(word))).collect();
    let told: Vec<Value> = rows
        .iter()
        .map(
            |row| json!({"name": row.name, "result": row.outcome.word(), "why": row.outcome.why()}),
        )
        .collect();
    let sums: serde_json::Map<String, Value> =
        counts.iter().map(|(word, count)| ((*word).to_owned(), json!(count))).collect();
    print(output, &json!({ of: told, "totals": sums }), || text(rows, &counts))?;
    match count("failed") {
        0 => Ok(()),
        failed => Err(Ending::failed(format!("{failed} of {} {of} failed", rows.len()))),
    }
}

fn text(rows: &[ApplyRow], counts: &[(&str, usize)]) -> String {
    let unchanged =
        rows.iter().filter(|row| matches!(row.outcome, ApplyOutcome::Unchanged)).count();
    let named = |row: &&ApplyRow| {
        unchanged <= UNCHANGED_NAMED_MAX || !matches!(row.outcome, ApplyOutcome::Unchanged)
    };
    let mut table = table::plain();
    let mut rows = rows.iter().filter(named).peekable();
    let is_empty = rows.peek().is_none();
    for row in rows {
        let why = row.outcome.why().map(escape).unwrap_or_default();
        table.add_row([row.outcome.word().to_owned(), escape(&row.name), why]);
    }
    let table = if is_empty { String::new() } else { table::finish(table, 3) };
    format!("{table}{}.\n", summary(counts))
}

pub(super) fn summary(counts: &[(&str, usize)]) -> String {
    let parts = counts.iter().filter(|(_, count)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(word, count)| format!("{} {word}", table::grouped(*count))).collect();
    if parts.is_empty() { "There was nothing to do".to_owned() } else { parts.join(", ") }
}

/// Shows what would be done.
pub(super) fn dry_run(
    steps: &[ApplyStep],
    now: Instant,
    horizon: Instant,
    output: OutputFormat,
) -> Result<(), Ending> {
    let told: Vec<(&ApplyStep, Fires)> =
        steps.iter().map(|step| (step, difference(step, now, horizon))).collect();
    let json: Vec<Value> = told.iter().map(|(step, fires)| value(step, fires)).collect();
    let json = json!({"now": now.to_string(), "horizon": horizon.to_string(), "triggers": json});
    print(output, &json, || dry_text(&told, horizon, Colour::of_stdout()))?;
    let refused =
        steps.iter().filter(|step| matches!(step.change, ApplyChange::Refused(_))).count();
    match refused {
        0 => Ok(()),
        refused => Err(Ending::failed(format!("{refused} of {} would fail", steps.len()))),
    }
}

/// The sign and the word of a change.
fn sign(change: &ApplyChange) -> (char, &'static str) {
    match change {
        ApplyChange::Create => ('+', "create"),
        ApplyChange::Update(_) => ('~', "update"),
        ApplyChange::Unchanged => ('=', "unchanged"),
        ApplyChange::Delete => ('-', "delete"),
        ApplyChange::Refused(_) => ('!', "fail"),
    }
}

fn value(step: &ApplyStep, fires: &Fires) -> Value {
    let texts = |slots: &[Instant]| slots.iter().map(ToString::to_string).collect::<Vec<_>>();
    let count = |count: Count| match count {
        Count::Exactly(count) => json!({ "slots": count }),
        Count::MoreThan(count) => json!({ "more_than": count }),
    };
    let mut told = json!({
        "name": step.name,
        "change": sign(&step.change).1,
        "same_schedule": fires.timing == Timing::Same,
        "appear": texts(&fires.appear),
        "vanish": texts(&fires.vanish),
        "compared_until": fires.until.to_string(),
    });
    match &step.change {
        ApplyChange::Update(fields) => told["fields"] = json!(fields),
        ApplyChange::Refused(why) => told["why"] = json!(why),
        ApplyChange::Create | ApplyChange::Unchanged | ApplyChange::Delete => {}
    }
    if let Some((old, new)) = fires.beyond {
        told["beyond"] = json!({ "old": count(old), "new": count(new) });
    }
    told
}

fn dry_text(told: &[(&ApplyStep, Fires)], horizon: Instant, colour: Colour) -> String {
    let mut text = String::new();
    for (step, fires) in told {
        if step.change != ApplyChange::Unchanged {
            one(step, fires, horizon, colour, &mut text);
        }
    }
    let count = |word: &str| told.iter().filter(|(step, _)| sign(&step.change).1 == word).count();
    let counts: Vec<(&str, usize)> = [
        ("to create", count("create")),
        ("to update", count("update")),
        ("unchanged", count("unchanged")),
        ("to delete", count("delete")),
        ("would fail", count("fail")),
    ]
    .into();
    let (appear, vanish) = told.iter().fold((0, 0), |(appear, vanish), (_, fires)| {
        (appear + fires.appear.len(), vanish + fires.vanish.len())
    });
    let _ = write!(text, "{}", summary(&counts));
    if appear + vanish > 0 {
        let _ = write!(
            text,
            "; of the slots that were compared {} appear and {} vanish",
            table::grouped(appear),
            table::grouped(vanish)
        );
    }
    text.push_str(". Nothing was sent.\n");
    text
}

fn one(step: &ApplyStep, fires: &Fires, horizon: Instant, colour: Colour, out: &mut String) {
    let (sign, word) = sign(&step.change);
    let head = format!("{sign} {word} {}", escape(&step.name));
    let _ = writeln!(out, "{}", colour.of_sign(sign, &head));
    match &step.change {
        ApplyChange::Update(fields) => {
            for change in fields {
                let _ = writeln!(out, "    {}", field_text(change));
            }
        }
        ApplyChange::Refused(why) => {
            let _ = writeln!(out, "    {}", escape(why));
            return;
        }
        ApplyChange::Create | ApplyChange::Unchanged | ApplyChange::Delete => {}
    }
    if fires.timing == Timing::Same {
        out.push_str("    the schedule stays as it is: no slot appears, and none vanishes\n");
        return;
    }
    let mut slots: Vec<(Instant, char)> = fires.appear.iter().map(|slot| (*slot, '+')).collect();
    slots.extend(fires.vanish.iter().map(|slot| (*slot, '-')));
    slots.sort();
    for (slot, sign) in &slots {
        let _ = writeln!(out, "    {}", colour.of_sign(*sign, &format!("{sign} {slot}")));
    }
    if slots.is_empty() {
        let _ = writeln!(out, "    no slot appears, and none vanishes, up to {}", fires.until);
    }
    if let Some((old, new)) = fires.beyond {
        let _ = writeln!(
            out,
            "    later, up to {horizon}: {} slots before, {} after",
            count_text(old),
            count_text(new)
        );
    }
}

fn count_text(count: Count) -> String {
    match count {
        Count::Exactly(count) => table::grouped(count),
        Count::MoreThan(count) => format!("more than {}", table::grouped(count)),
    }
}

pub(super) fn field_text(change: &super::plan::FieldChange) -> String {
    let field = escape(&change.field);
    match (&change.old, &change.new) {
        (None, None) => format!("{field}: changes"),
        (Some(old), Some(new)) => format!("{field}: {} → {}", escape(old), escape(new)),
        (Some(old), None) => format!("{field}: {} goes", escape(old)),
        (None, Some(new)) => format!("{field}: {} is new", escape(new)),
    }
}

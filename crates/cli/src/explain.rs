//! `watchbell trigger explain`: why did it run, and why did it not? In sentences.

use std::fmt::Write;

use client::Timestamp;
use client::account::{Account, Fate, Reason, Row, RunFacts, Totals, Whole};
use client::run::RunState;
use client::trigger::Status;
use engine::limits::TOLD_LATE_MS;

use crate::args::trigger::AccountArgs;
use crate::exit::Ending;
use crate::table::{self, folded, grouped};
use crate::trigger::print;
use crate::value::escape;

pub(crate) async fn explain(typed: &AccountArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let account = client.account(&typed.name, typed.from, typed.to).await?;
    print(typed.server.output, &account, || text(&account))
}

fn text(account: &Account) -> String {
    let mut sentences = standing(account);
    if let Some(why) = &account.suspended {
        let why = escape(why);
        let why = why.trim_end_matches('.');
        let cure = account.cure.as_deref().unwrap_or("watchbell scheduler status");
        let then = if cure.ends_with("confirm-time") {
            "If its clock is right, say so:"
        } else {
            "Let it go on:"
        };
        sentences.push(folded(&format!("It does not fire at the moment: {why}. {then}")));
        sentences.push(format!("  {}", escape(cure)));
    } else if let Some(since) = account.host_lags_since {
        let said = format!(
            "Its host cannot keep up since {since}: what is due waits for it, and leaves in order."
        );
        sentences.push(folded(&said));
    }
    sentences.extend(sum(account));
    let mut text = sentences.join("\n");
    text.push('\n');
    if !account.rows.is_empty() {
        let mut table = table::plain();
        for line in lines(&account.rows) {
            table.add_row([span(line.from, line.to), line.said]);
        }
        let _ = write!(text, "\n{}", table::finish(table, 2));
    }
    if account.totals.missing > 0 {
        text.push_str(
            "\nSlots without a record must never happen. Please report this, with the\nserver's log.\n",
        );
    }
    if account.totals.unread > 0 {
        text.push_str(
            "\nSome slots lie further back than one answer reaches: ask for a shorter span.\n",
        );
    }
    if let Some(from) = account.kept_from {
        let _ = writeln!(text, "\nRecords of slots before {from} are not kept any more.");
    }
    if let Some(from) = account.more_from {
        let _ = writeln!(text, "\nThere is more: add\n  --from {from} --to {}", account.to);
    }
    text
}

/// How the trigger is now, in lines.
fn standing(account: &Account) -> Vec<String> {
    let name = escape(&account.name);
    if let Some(pause) = &account.paused {
        let note = if pause.note.is_empty() {
            String::new()
        } else {
            format!(" ({})", escape(&pause.note))
        };
        let (then, command) = match pause.until {
            Some(until) => (format!("it resumes by itself at {until}."), None),
            None => {
                ("let it go on:".to_owned(), Some(format!("  watchbell trigger resume {name}")))
            }
        };
        let (since, author) = (pause.since, escape(&pause.author));
        let said = format!("{name} has been paused since {since} by {author}{note}; {then}");
        return [Some(folded(&said)), command].into_iter().flatten().collect();
    }
    let said = match account.status {
        Status::Scheduled | Status::Paused => match account.next.as_slice() {
            [] => format!("{name} follows its schedule."),
            [_, ..] if account.suspended.is_some() => format!("{name} has a schedule."),
            [next, ..] => format!("{name} follows its schedule; it rings next at {next}."),
        },
        Status::OnDemand => format!("{name} has no schedule: it runs when somebody runs it."),
        Status::Expired => {
            format!("{name} rings no more: its schedule, or its limit of runs, is over.")
        }
        Status::Cancelled => format!("{name} rings no more: it was cancelled."),
    };
    vec![folded(&said)]
}

/// What became of all slots together, in lines.
fn sum(account: &Account) -> Vec<String> {
    let totals = &account.totals;
    let has_parts = account.rows.iter().any(|row| row.part_of.is_some());
    let span = format!("Between {} and {}", account.from, account.to);
    let mut lines = match (totals.slots, has_parts) {
        (0, false) => vec![format!("{span} nothing was due.")],
        (0, true) => vec![format!("{span}:")],
        (1, _) => vec![span, folded(&format!("one slot was due: {}.", parts(totals)))],
        (slots, _) => {
            let sum = format!("{} slots were due: {}.", grouped(slots), parts(totals));
            vec![span, folded(&sum)]
        }
    };
    if totals.late > 0 {
        let late = grouped(totals.late);
        lines.push(format!("Of these, {late} left more than a second late (caught up)."));
    }
    if has_parts {
        lines.push(folded(
            "Of a former schedule only ranges of skipped slots are on record. One that reaches beyond \
             what was asked is told below, and only its ends are counted.",
        ));
    }
    lines
}

fn parts(totals: &Totals) -> String {
    let parts = [
        (totals.succeeded, "succeeded"),
        (totals.failed, "did not succeed"),
        (totals.under_way, "under way"),
        (totals.skipped, "skipped"),
        (totals.paused, "suspended back by the pause"),
        (totals.pending, "due and not decided yet"),
        (totals.coming, "still to come"),
        (totals.unread, "not looked up"),
        (totals.forgotten, "no longer on record"),
        (totals.missing, "WITHOUT A RECORD"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, said)| format!("{} {said}", grouped(count))).collect::<Vec<_>>().join(", ")
}

/// A line of the account.
struct AccountLine {
    from: Timestamp,
    to: Timestamp,
    said: String,
}

/// Rows as lines: plain successes that follow each other share one, and so do skips for the same reason.
fn lines(rows: &[Row]) -> Vec<AccountLine> {
    let mut lines = Vec::new();
    for group in rows.chunk_by(|one, other| kind(one).is_some() && kind(one) == kind(other)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let said = match (group.len(), kind(first)) {
            (1, _) | (_, None) => said(first),
            (runs, Some(Kind::Succeeded(pace))) => {
                format!("{} runs succeeded{}", grouped(runs), pace.said())
            }
            (_, Some(Kind::Skipped(_))) => {
                said(&Row { count: group.iter().map(|row| row.count).sum(), ..first.clone() })
            }
        };
        lines.push(AccountLine { from: first.from, to: last.to, said });
    }
    lines
}

/// What rows have in common that share a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Succeeded(Punctuality),
    Skipped(Option<Reason>),
}

/// Whether a run left when it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Punctuality {
    InTime,
    Late,
}

impl Punctuality {
    fn of(run: &RunFacts) -> Self {
        if run.late_ms.is_some_and(|late| late > TOLD_LATE_MS) { Self::Late } else { Self::InTime }
    }

    fn said(self) -> &'static str {
        match self {
            Self::InTime => "",
            Self::Late => ", late",
        }
    }
}

fn kind(row: &Row) -> Option<Kind> {
    let is_plain =
        |run: &RunFacts| run.state == RunState::Succeeded && run.attempt == 1 && !run.on_demand;
    match (row.fate, &row.run) {
        (Fate::Run, Some(run)) if is_plain(run) => Some(Kind::Succeeded(Punctuality::of(run))),
        (Fate::Skipped, _) if row.part_of.is_none() => Some(Kind::Skipped(row.reason)),
        _ => None,
    }
}

fn span(from: Timestamp, to: Timestamp) -> String {
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

fn said(row: &Row) -> String {
    let slots =
        if row.count == 1 { "1 slot".to_owned() } else { format!("{} slots", grouped(row.count)) };
    if let Some(Whole { from, to, count }) = row.part_of {
        let why = row.reason.map_or_else(String::new, |why| format!(": {}", reason_said(why)));
        let count = grouped(count);
        return format!(
            "{count} slots skipped between {from} and {to}, some outside of what was asked{why}"
        );
    }
    match (row.fate, &row.run, row.reason) {
        (Fate::Run, Some(run), _) => run_said(run),
        (Fate::Run, None, _) => "a run".to_owned(),
        (Fate::Skipped, _, Some(reason)) => format!("{slots} skipped: {}", reason_said(reason)),
        (Fate::Skipped, _, None) => format!("{slots} skipped"),
        (Fate::Paused, ..) => format!("{slots} suspended back: the trigger is paused"),
        (Fate::Excluded, ..) => format!("nothing was due: the calendar excludes {slots}"),
        (Fate::Pending, ..) => format!("{slots} due, and not decided yet"),
        (Fate::Coming, ..) => format!("{slots} still to come"),
        (Fate::Unread, ..) => format!("{slots} not looked up: too far back"),
        (Fate::Forgotten, ..) => format!("{slots}: records this old are not kept any more"),
        (Fate::Missing, ..) => "NO RECORD: this is a fault of Watchbell".to_owned(),
    }
}

fn reason_said(reason: Reason) -> &'static str {
    match reason {
        Reason::Paused => "the trigger was paused",
        Reason::Overlap => "a run before it was not finished",
        Reason::Misfire => {
            "no server could fire then, or their host had no room for long, and catch-up leaves them out"
        }
        Reason::Cap => "more were missed than catch-up makes up for",
        Reason::Limit => "the limit of runs was reached",
        Reason::Superseded => "the trigger was changed, or a later slot took their place",
        Reason::Disabled => "the project was disabled",
        Reason::Pruned => "the trigger had ended long ago, and was deleted",
        Reason::QueueFull => "as many runs waited in its queue as may",
    }
}

fn run_said(run: &RunFacts) -> String {
    let tries =
        if run.attempt == 1 { "1 attempt".to_owned() } else { format!("{} attempts", run.attempt) };
    let answer = match (run.status, &run.error) {
        (_, Some(error)) => format!(": {}", escape(error)),
        (Some(status), None) => format!(": the receiver answered {status}"),
        (None, None) => String::new(),
    };
    let said = match run.state {
        RunState::Succeeded if run.attempt > 1 => format!("succeeded after {tries}"),
        RunState::Succeeded => "succeeded".to_owned(),
        RunState::Failed => format!("refused for good{answer}"),
        RunState::Dead => format!("given up after {tries}{answer}"),
        RunState::Cancelled => "cancelled".to_owned(),
        RunState::Expired => "given up: it could not leave in time".to_owned(),
        RunState::Unknown => "may or may not have arrived, and is not sent again".to_owned(),
        RunState::Skipped => "skipped".to_owned(),
        RunState::Waiting => "about to leave".to_owned(),
        RunState::Blocked => "waits for the run before it".to_owned(),
        RunState::Backoff => format!("tried again soon, after {tries}{answer}"),
        RunState::Running => "under way".to_owned(),
    };
    let late = match run.late_ms {
        Some(late) if late > TOLD_LATE_MS => format!(", left {} s late", grouped(late / 1_000)),
        Some(_) | None => String::new(),
    };
    let again = match (run.untold, run.sent) {
        (0, _) | (_, None) => String::new(),
        (untold, Some(sent)) => format!(
            ", sent again at {sent}: of {} before nothing is known, since the server stopped or could not send",
            if untold == 1 { "1 attempt".to_owned() } else { format!("{untold} attempts") }
        ),
    };
    let kind = if run.on_demand { "run by hand, " } else { "" };
    let id =
        if run.state == RunState::Succeeded { String::new() } else { format!(" ({})", run.id) };
    format!("{kind}{said}{late}{again}{id}")
}

#[cfg(test)]
mod tests;

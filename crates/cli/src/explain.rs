//! `watchbell trigger explain`: why did it run, and why did it not? In sentences.

use std::fmt::Write;

use client::account::{Account, Fate, Reason, Row, RunFacts, Totals};
use client::run::RunState;
use client::trigger::Status;
use client::{Client, Timestamp};

use crate::args::trigger::AccountArgs;
use crate::exit::Ending;
use crate::table::{self, grouped};
use crate::trigger::print;
use crate::value::escape;

pub(crate) async fn explain(typed: &AccountArgs) -> Result<(), Ending> {
    let client = Client::new(&typed.server.server)?;
    let account = client.account(&typed.name, typed.from, typed.to).await?;
    print(typed.server.output, &account, || text(&account))
}

fn text(account: &Account) -> String {
    let mut sentences = vec![standing(account)];
    if let Some(why) = &account.held {
        sentences.push(format!(
            "Nothing fires on this server at the moment: {}. If its clock is right, say so: watchbell scheduler confirm-time",
            escape(why).trim_end_matches('.')
        ));
    }
    sentences.push(sum(account));
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
            "\nSlots without a record must never happen. Please report this, with the server's log.\n",
        );
    }
    if account.totals.unread > 0 {
        text.push_str("\nSome slots lie further back than one answer reaches: ask for a shorter, later span.\n");
    }
    if let Some(from) = account.more_from {
        let _ = writeln!(text, "\nThere is more: add --from {from} --to {}", account.to);
    }
    text
}

/// How the trigger is now.
fn standing(account: &Account) -> String {
    let name = escape(&account.name);
    if let Some(pause) = &account.paused {
        let note = if pause.note.is_empty() {
            String::new()
        } else {
            format!(" ({})", escape(&pause.note))
        };
        let then = match pause.until {
            Some(until) => format!("it resumes by itself at {until}."),
            None => format!("let it go on with: watchbell trigger resume {name}"),
        };
        return format!(
            "{name} has been paused since {} by {}{note}; {then}",
            pause.since,
            escape(&pause.author)
        );
    }
    match account.status {
        Status::Scheduled | Status::Paused => match account.next.as_slice() {
            [] => format!("{name} follows its schedule."),
            [next, ..] => format!("{name} follows its schedule; it rings next at {next}."),
        },
        Status::OnDemand => format!("{name} has no schedule: it runs when somebody runs it."),
        Status::Expired => {
            format!("{name} rings no more: its schedule, or its limit of runs, is over.")
        }
        Status::Cancelled => format!("{name} rings no more: it was cancelled."),
    }
}

/// What became of all slots together.
fn sum(account: &Account) -> String {
    let totals = &account.totals;
    let span = format!("Between {} and {}", account.from, account.to);
    match totals.slots {
        0 => format!("{span} nothing was due."),
        1 => format!("{span} one slot was due: {}.", parts(totals)),
        slots => format!("{span} {} slots were due: {}.", grouped(slots), parts(totals)),
    }
}

fn parts(totals: &Totals) -> String {
    let parts = [
        (totals.succeeded, "succeeded"),
        (totals.failed, "did not succeed"),
        (totals.under_way, "under way"),
        (totals.skipped, "skipped"),
        (totals.paused, "held back by the pause"),
        (totals.pending, "due and not decided yet"),
        (totals.coming, "still to come"),
        (totals.unread, "not looked up"),
        (totals.missing, "WITHOUT A RECORD"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    parts.map(|(count, said)| format!("{} {said}", grouped(count))).collect::<Vec<_>>().join(", ")
}

/// A line of the account.
struct Line {
    from: Timestamp,
    to: Timestamp,
    said: String,
}

/// Rows as lines: plain successes that follow each other share one.
fn lines(rows: &[Row]) -> Vec<Line> {
    let mut lines = Vec::new();
    for group in rows.chunk_by(|one, other| is_plain(one) && is_plain(other)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let said = match group {
            [row] => said(row),
            several => format!("{} runs succeeded", grouped(several.len())),
        };
        lines.push(Line { from: first.from, to: last.to, said });
    }
    lines
}

fn is_plain(row: &Row) -> bool {
    let run = row.run.as_ref();
    run.is_some_and(|run| run.state == RunState::Succeeded && run.attempt == 1 && !run.on_demand)
}

fn span(from: Timestamp, to: Timestamp) -> String {
    if from == to { from.to_string() } else { format!("{from} to {to}") }
}

fn said(row: &Row) -> String {
    let slots =
        if row.count == 1 { "1 slot".to_owned() } else { format!("{} slots", grouped(row.count)) };
    match (row.fate, &row.run, row.reason) {
        (Fate::Run, Some(run), _) => run_said(run),
        (Fate::Run, None, _) => "a run".to_owned(),
        (Fate::Skipped, _, Some(reason)) => format!("{slots} skipped: {}", reason_said(reason)),
        (Fate::Skipped, _, None) => format!("{slots} skipped"),
        (Fate::Paused, ..) => format!("{slots} held back: the trigger is paused"),
        (Fate::Excluded, ..) => format!("nothing was due: the calendar excludes {slots}"),
        (Fate::Pending, ..) => format!("{slots} due, and not decided yet"),
        (Fate::Coming, ..) => format!("{slots} still to come"),
        (Fate::Unread, ..) => format!("{slots} not looked up: too far back"),
        (Fate::Missing, ..) => "NO RECORD: this is a fault of Watchbell".to_owned(),
    }
}

fn reason_said(reason: Reason) -> &'static str {
    match reason {
        Reason::Paused => "the trigger was paused",
        Reason::Overlap => "a run before it was not finished",
        Reason::Misfire => "no server was there to fire, and catch-up leaves them out",
        Reason::Cap => "more were missed than catch-up makes up for",
        Reason::Limit => "the limit of runs was reached",
        Reason::Superseded => "the trigger was changed, or a later slot took their place",
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
        RunState::Waiting => "about to leave".to_owned(),
        RunState::Queued => "waits for the run before it".to_owned(),
        RunState::Backoff => format!("tried again soon, after {tries}{answer}"),
        RunState::Running => "under way".to_owned(),
    };
    let kind = if run.on_demand { "run by hand, " } else { "" };
    let id =
        if run.state == RunState::Succeeded { String::new() } else { format!(" ({})", run.id) };
    format!("{kind}{said}{id}")
}

#[cfg(test)]
mod tests;

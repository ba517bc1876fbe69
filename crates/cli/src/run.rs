//! `watchbell run`, and `watchbell trigger run`.

use std::time::Duration;

use client::run::Run;
use client::{Client, RunFilter};

use crate::args::run::{RunListArgs, RunShowArgs};
use crate::args::trigger::StartArgs;
use crate::exit::Ending;
use crate::table;
use crate::trigger::{more, print};
use crate::value::{Readable, escape};

/// Columns of a receiver's answer that are shown.
const RESPONSE_COLUMNS: usize = 100;

pub(crate) async fn start(typed: &StartArgs) -> Result<(), Ending> {
    let client = Client::new(&typed.server.server)?;
    let wait = typed.wait.map(|seconds| Duration::from_secs(seconds.into()));
    let started = client.run(&typed.name, wait).await?;
    print(typed.server.output, &started, || match &started.run {
        Some(run) => show_text(run),
        None => format!("{id} is started. Look at it: watchbell run show {id}\n", id = started.id),
    })
}

pub(crate) async fn list(typed: RunListArgs) -> Result<(), Ending> {
    let client = Client::new(&typed.server.server)?;
    let filter = RunFilter {
        state: typed.state,
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = match &typed.trigger {
        Some(name) => client.runs_of(name, &filter).await?,
        None => client.runs(&filter).await?,
    };
    print(typed.server.output, &page, || {
        if page.items.is_empty() && page.next.is_none() {
            return "There are no such runs.\n".to_owned();
        }
        let mut table = table::plain();
        table.set_header(["slot", "trigger", "state", "id", "attempts", "took ms"]);
        for run in &page.items {
            let took =
                run.attempts.last().map_or_else(String::new, |last| last.latency_ms.to_string());
            table.add_row([
                run.slot.to_string(),
                run.name.as_deref().map_or_else(|| run.trigger.clone(), escape),
                run.state.as_str().to_owned(),
                run.id.clone(),
                run.attempt.to_string(),
                took,
            ]);
        }
        format!("{}{}", table::finish(table, 4), more(page.next.as_deref()))
    })
}

pub(crate) async fn show(typed: &RunShowArgs) -> Result<(), Ending> {
    let client = Client::new(&typed.server.server)?;
    let run = client.run_by_id(&typed.id).await?;
    print(typed.server.output, &run, || show_text(&run))
}

fn show_text(run: &Run) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("id", run.id.clone());
    let name = run.name.as_deref().map(|name| format!("{} ", escape(name))).unwrap_or_default();
    row("trigger", format!("{name}({})", run.trigger));
    row(
        "slot",
        if run.on_demand { format!("{} (on demand)", run.slot) } else { run.slot.to_string() },
    );
    row("state", run.state.as_str().to_owned());
    if let Some(instant) = run.not_before {
        row("not before", instant.to_string());
    }
    if let Some(ended) = run.ended {
        row("ended", ended.to_string());
    }
    row("attempts", run.attempt.to_string());
    for (number, attempt) in (1..).zip(&run.attempts) {
        let status = attempt.status.map(|status| format!("HTTP {status}"));
        let error = attempt.error.as_deref().map(escape);
        let answer =
            attempt.response.as_deref().filter(|text| !text.is_empty()).map(|text| {
                Readable::of(text.as_bytes()).line_within(RESPONSE_COLUMNS, text.len())
            });
        let said: Vec<String> = [status, error, answer].into_iter().flatten().collect();
        let said = said.join(", ");
        row(
            &format!("  {number}"),
            format!("{} after {} ms: {said}", attempt.at, attempt.latency_ms),
        );
    }
    table::finish(table, 2)
}

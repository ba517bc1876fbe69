//! `watchbell queue dead|redrive|cancel` and `watchbell run retry`: what is done to many runs of a queue, and to dead ones.
//!
//! A server does a bounded number at a time and says where to go on, so it is asked until there are no more. Each piece is
//! durable when it is answered: whoever is interrupted types the same again.

use client::DeadRunFilter;
use client::redrive::{CancelRunsRequest, CancelledRuns, RedriveRequest, Redriven};
use client::run::Run;
use engine::limits::CANCEL_REQUEST_RUNS_MAX;

use crate::args::redrive::{DeadFilterArgs, QueueCancelArgs, QueueDeadArgs, QueueRedriveArgs};
use crate::args::run::RunIdArgs;
use crate::exit::Ending;
use crate::progress::Progress;
use crate::table::grouped;
use crate::trigger::{print, print_list};
use crate::value::escape;

pub(crate) async fn dead(typed: QueueDeadArgs) -> Result<(), Ending> {
    let DeadFilterArgs { state: kinds, concurrency_key: key, labels, since: from, until: to } =
        typed.filter;
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (limit, cursor) = (Some(typed.page.limit.into()), typed.page.cursor);
    let filter = DeadRunFilter { kinds, key, labels, from, to, limit, cursor };
    let page = typed.server.client()?.dead_runs(&typed.name, &filter).await?;
    let none = "There are no such dead runs.";
    let header = ["ended", "state", "id", "attempts", "last error"];
    print_list(typed.server.output, &page, Some(none), header, |run: &Run| {
        let is_poison = run.queued.as_ref().is_some_and(|queued| queued.poison);
        let state = if is_poison { "poison" } else { run.state.as_str() };
        let error = run.attempts.last().and_then(|last| last.error.as_deref());
        [
            run.ended.map_or_else(|| "-".to_owned(), |ended| ended.to_string()),
            state.to_owned(),
            run.id.clone(),
            run.attempt.to_string(),
            error.map_or_else(|| "-".to_owned(), escape),
        ]
    })
}

pub(crate) async fn retry(typed: &RunIdArgs) -> Result<(), Ending> {
    let made = typed.server.client()?.retry_run(&typed.id).await?;
    let (former, id) = (escape(&typed.id), &made.id);
    print(typed.server.output, &made, || {
        format!("{former} waits again, as {id}. Look at it: watchbell run show {id}\n")
    })
}

pub(crate) async fn redrive(typed: QueueRedriveArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let DeadFilterArgs { state, concurrency_key: key, labels, since, until } = typed.filter;
    let (labels, dry_run) = (labels.into_iter().collect(), typed.dry_run);
    let (limit, cursor) = (typed.limit, None);
    let mut request = RedriveRequest { state, key, labels, since, until, limit, cursor, dry_run };
    let (mut sum, progress) = (Redriven::default(), Progress::on_stderr());
    loop {
        let told = client.redrive(&typed.name, &request).await.map_err(|why| {
            let done = grouped(sum.redriven);
            Ending::from(why).and(Some(format!("{done} runs were redriven before that")))
        })?;
        sum.matched += told.matched;
        sum.redriven += told.redriven;
        sum.skipped += told.skipped;
        sum.next = told.next;
        progress.show(format_args!("{} dead runs so far", grouped(sum.matched)));
        request.limit = typed.limit.map(|limit| limit.saturating_sub(sum.redriven));
        request.cursor.clone_from(&sum.next);
        if sum.next.is_none() || request.limit == Some(0) {
            break;
        }
    }
    drop(progress);
    if dry_run {
        sum.matched = typed.limit.map_or(sum.matched, |limit| limit.min(sum.matched));
    }
    sum.next = None;
    print(typed.server.output, &sum, || redriven_text(&escape(&typed.name), &sum, dry_run))
}

fn redriven_text(name: &str, sum: &Redriven, is_dry: bool) -> String {
    if is_dry {
        let matched = grouped(sum.matched);
        return format!("{matched} dead runs of {name} would wait again. Nothing was changed.\n");
    }
    let skipped = match sum.skipped {
        0 => String::new(),
        skipped => format!(
            " {} stay dead: another run has their unique key, or they were redriven meanwhile.",
            grouped(skipped)
        ),
    };
    format!("{} dead runs of {name} wait again.{skipped}\n", grouped(sum.redriven))
}

pub(crate) async fn cancel(typed: QueueCancelArgs) -> Result<(), Ending> {
    let nothing = "nothing was cancelled";
    if !typed.dry_run {
        typed.consent.check(nothing)?;
    }
    let client = typed.server.client()?;
    let name = escape(&typed.name);
    let mut request = CancelRunsRequest {
        state: typed.state,
        key: typed.concurrency_key,
        labels: typed.labels.into_iter().collect(),
        since: typed.since,
        until: typed.until,
        limit: Some(CANCEL_REQUEST_RUNS_MAX as u64),
        cursor: None,
        dry_run: true,
    };
    if typed.dry_run || !typed.consent.yes {
        let counted = cancel_all(&client, &typed.name, &mut request).await?;
        if typed.dry_run {
            return print(typed.server.output, &counted, || {
                let (all, running) = (grouped(counted.matched), grouped(counted.running));
                format!(
                    "{all} runs of {name} would be cancelled, {running} of them running. Nothing was changed.\n"
                )
            });
        }
        let question = format!("Cancel {} runs of {name}?", grouped(counted.matched));
        typed.consent.ask(&question, nothing)?;
    }
    request.dry_run = false;
    let done = cancel_all(&client, &typed.name, &mut request).await?;
    print(typed.server.output, &done, || {
        let all = grouped(done.matched);
        match done.running {
            0 => format!("{all} runs of {name} are cancelled.\n"),
            running => format!(
                "{all} runs of {name} are cancelled; workers that have {} of them are told to end them.\n",
                grouped(running)
            ),
        }
    })
}

/// Asks until there are no more.
async fn cancel_all(
    client: &client::Client,
    queue: &str,
    request: &mut CancelRunsRequest,
) -> Result<CancelledRuns, Ending> {
    let (mut sum, progress) = (CancelledRuns::default(), Progress::on_stderr());
    request.cursor = None;
    loop {
        let told = client.cancel_runs(queue, request).await.map_err(|why| {
            let done = if request.dry_run { 0 } else { sum.matched };
            Ending::from(why)
                .and(Some(format!("{} runs were cancelled before that", grouped(done))))
        })?;
        sum.matched += told.matched;
        sum.running += told.running;
        progress.show(format_args!("{} runs so far", grouped(sum.matched)));
        request.cursor = told.next;
        if request.cursor.is_none() {
            return Ok(sum);
        }
    }
}

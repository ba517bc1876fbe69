//! `watchbell run`, and `watchbell trigger run`.

use client::output::RunProgress;
use client::run::{Run, RunKind, RunPart, RunState, Skipped, Started};
use client::{ClientError, RunFilter};

use crate::args::run::{RunIdArgs, RunListArgs};
use crate::args::trigger::StartArgs;
use crate::exit::Ending;
use crate::table::{self, grouped};
use crate::trigger::{more, print};
use crate::value::{Readable, escape};

/// Columns of a receiver's answer that are shown.
const RESPONSE_COLUMNS: usize = 100;

/// Columns of a run's command that are shown: all of it is in the JSON.
const COMMAND_COLUMNS: usize = 200;

/// In a list of runs: where the name of the trigger or queue is, and how many columns always stay beside such names.
const NAME_COLUMN: usize = 1;
const WHOLE_COLUMNS: usize = 3;

pub(crate) async fn start(typed: &StartArgs) -> Result<(), Ending> {
    let started = typed.server.client()?.run(&typed.name, typed.wait).await?;
    print(typed.server.output, &started, || match &started.run {
        Some(run) => show_text(run),
        None => format!("{id} is started. Look at it: watchbell run show {id}\n", id = started.id),
    })?;
    match typed.wait {
        Some(_) => judge(&started),
        None => Ok(()),
    }
}

/// Who waits for a run wants it to succeed.
fn judge(started: &Started) -> Result<(), Ending> {
    let id = &started.id;
    let said = match started.run.as_ref().map(|run| run.state) {
        Some(RunState::Succeeded) => return Ok(()),
        Some(RunState::Failed) => "failed: it was refused for good, and is not tried again",
        Some(RunState::Dead) => "is dead: its attempts are used up",
        Some(RunState::Cancelled) => "was cancelled",
        Some(RunState::Expired) => "has expired: it could not leave in time",
        Some(RunState::Unknown) => "may or may not have arrived, and is not sent again",
        Some(RunState::Skipped) => "was skipped",
        Some(RunState::Waiting | RunState::Blocked | RunState::Backoff | RunState::Running)
        | None => {
            let hint = "is not finished; look again later: watchbell run show";
            return Err(Ending::failed(format!("{id} {hint} {id}")));
        }
    };
    Err(Ending::failed(format!("{id} {said}")))
}

pub(crate) async fn list(typed: RunListArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let is_unfinished = typed.state.iter().any(|state| !state.is_end());
    let is_ended = typed.state.is_empty() || typed.state.iter().any(|state| state.is_end());
    let unfinished = typed.queue.clone().filter(|_| is_unfinished);
    if unfinished.is_some() && is_ended {
        let why = "--state: of a queue, ask for states of runs that have ended, or of others, not for both";
        return Err(Ending::wrong_input(why));
    }
    if unfinished.is_some() && (typed.from.is_some() || typed.to.is_some() || typed.kind.is_some())
    {
        let why =
            "--state: runs of a queue that have not ended are not listed by --from, --to or --kind";
        return Err(Ending::wrong_input(why));
    }
    let filter = RunFilter {
        states: typed.state,
        kind: typed.kind,
        from: typed.from,
        to: typed.to,
        queue: typed.queue,
        key: typed.concurrency_key,
        labels: typed.labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let hint = unlisted(typed.trigger.as_deref(), unfinished.as_deref(), filter.queue.as_deref());
    let page = match (&typed.trigger, &unfinished) {
        (Some(name), _) => client.runs_of(name, &filter).await?,
        (None, Some(queue)) => client.queue_runs(queue, &filter).await?,
        (None, None) => client.runs(&filter).await?,
    };
    print(typed.server.output, &page, || {
        if page.items.is_empty() && page.next.is_none() {
            return format!("There are no such runs.{hint}\n");
        }
        format!("{}{}", list_text(&page.items, table::terminal_width()), more(page.next.as_deref()))
    })
}

/// Which runs are not among those that a list has, for who finds none.
fn unlisted(trigger: Option<&str>, unfinished: Option<&str>, queue: Option<&str>) -> &'static str {
    match (trigger.or(unfinished), queue) {
        (Some(_), _) => "",
        (None, Some(_)) => {
            " Those that wait, or that a worker has, are listed with --state waiting,blocked,running,backoff."
        }
        (None, None) => {
            " Those that wait in a queue, or that a worker has, are listed with --queue."
        }
    }
}

/// Runs as a table of at most so many columns. An id is there to be copied, so it is whole: how long it took
/// and how many attempts there were give way first, then the end of the trigger's name.
fn list_text(runs: &[Run], width: Option<usize>) -> String {
    let has_queues = runs.iter().any(|run| run.queued.is_some());
    let has_triggers = !has_queues || runs.iter().any(|run| run.trigger.is_some());
    let names = [("trigger", has_triggers), ("queue", has_queues)];
    let names: Vec<&str> =
        names.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
    let row = |name: &dyn Fn(&str) -> String, rest: [String; 5]| {
        let [slot, state, id, attempts, took] = rest;
        let names = names.iter().map(|column| name(column));
        [slot].into_iter().chain(names).chain([state, id, attempts, took]).collect::<Vec<_>>()
    };
    let header = ["slot", "state", "id", "attempts", "took ms"].map(str::to_owned);
    let mut rows = vec![row(&|column| column.to_owned(), header)];
    rows.extend(runs.iter().map(|run| {
        let took = run.attempts.last().map(|last| last.latency_ms.to_string());
        let name =
            |column: &str| if column == "queue" { queue_text(run) } else { trigger_text(run) };
        let (slot, attempts) = (run.slot.to_string(), run.attempt.to_string());
        row(&name, [slot, state_text(run), run.id.clone(), attempts, took.unwrap_or_default()])
    }));
    let whole = WHOLE_COLUMNS + names.len();
    if let Some(width) = width {
        table::narrow(&mut rows, width, NAME_COLUMN, whole);
    }
    table::rows(rows, whole)
}

/// The trigger that a run comes from, if it comes from one.
fn trigger_text(run: &Run) -> String {
    let name = run.name.as_deref().map(escape);
    name.or_else(|| run.trigger.clone()).unwrap_or_default()
}

/// The queue that has or had a run, if one did.
fn queue_text(run: &Run) -> String {
    run.queued.as_ref().map_or_else(String::new, |queued| escape(&queued.queue))
}

/// Where a run is; and of slots that were skipped how many.
fn state_text(run: &Run) -> String {
    if let Some(event) = run.event {
        let told = serde_json::to_value(event).expect("a word always serializes");
        return format!("{}, tells of {}", run.state.as_str(), told.as_str().unwrap_or("news"));
    }
    match &run.skipped {
        Some(Skipped { count, .. }) if *count > 1 => format!("skipped {}", grouped(*count)),
        Some(_) | None => run.state.as_str().to_owned(),
    }
}

pub(crate) async fn show(typed: &RunIdArgs) -> Result<(), Ending> {
    let run = typed.server.client()?.run_by_id(&typed.id).await?;
    print(typed.server.output, &run, || show_text(&run))
}

pub(crate) async fn cancel(typed: &RunIdArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let cancelled = client.cancel_run(&typed.id).await;
    // What it was, or is by now: it is cancelled, or not, whether or not that can be told.
    let found = client.run_by_id(&typed.id).await.ok();
    match cancelled {
        Err(ClientError::NotFound(problem)) => match found.filter(|run| run.state.is_end()) {
            Some(run) => {
                let (id, state) = (escape(&typed.id), run.state.as_str());
                let why = format!("{id} has ended ({state}), and cannot be cancelled any more");
                return Err(Ending::failed(why));
            }
            None => return Err(ClientError::NotFound(problem).into()),
        },
        other => other?,
    }
    let json = serde_json::json!({ "cancelled": typed.id });
    print(typed.server.output, &json, || cancelled_text(&escape(&typed.id), found.as_ref()))
}

/// What a cancel has done, as far as that is known.
fn cancelled_text(id: &str, found: Option<&Run>) -> String {
    let worker = found.and_then(|run| run.queued.as_ref()?.worker.as_deref());
    let look = format!("Look at it: watchbell run show {id}");
    match (worker, found) {
        (Some(worker), _) => {
            let worker = escape(worker);
            format!("{id} is to end: its worker {worker} is told, and cancels it. {look}\n")
        }
        (None, Some(run)) if run.state.is_end() => {
            format!("{id} is {}: no worker had it.\n", run.state.as_str())
        }
        (None, _) => {
            format!("{id} is cancelled; a worker that has it is told to end it. {look}\n")
        }
    }
}

/// A command on one line, as far as there is room: words with spaces in quotes.
fn command_text(argv: &[String]) -> String {
    let quoted = |word: &String| {
        let is_plain = !word.is_empty() && !word.contains(char::is_whitespace);
        if is_plain { escape(word) } else { format!("\"{}\"", escape(word)) }
    };
    let whole = argv.iter().map(quoted).collect::<Vec<_>>().join(" ");
    match whole.char_indices().nth(COMMAND_COLUMNS) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}

/// A part of a run: whom it is for, where it is, and who had it if that was another.
fn part_text(part: &RunPart) -> String {
    let by = part.worker.as_deref().filter(|worker| *worker != part.chosen);
    let by = by.map_or_else(String::new, |by| format!(", by {}", escape(by)));
    format!("{}: {}{by}, {}", escape(&part.chosen), part.state.as_str(), part.id)
}

/// How far a run has come: `40 %, sending`.
pub(crate) fn progress_text(progress: &RunProgress) -> String {
    let percent = progress.percent.map(|percent| format!("{percent} %"));
    let text = progress.text.as_deref().map(escape);
    percent.into_iter().chain(text).collect::<Vec<_>>().join(", ")
}

fn show_text(run: &Run) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("id", run.id.clone());
    if let Some(trigger) = &run.trigger {
        let name = run.name.as_deref().map(escape);
        let known = name.map(|name| format!("{name} ({trigger})"));
        row("trigger", known.unwrap_or_else(|| format!("{trigger} (deleted)")));
    }
    if let Some(queued) = &run.queued {
        row("queue", escape(&queued.queue));
        if let Some(handler) = &queued.handler {
            row("handler", escape(handler));
        }
        if !queued.argv.is_empty() {
            row("command", command_text(&queued.argv));
        }
        if let Some(priority) = queued.priority {
            row("priority", priority.to_string());
        }
        if !queued.labels.is_empty() {
            let labels = queued.labels.iter().map(|(key, value)| format!("{key}={value}"));
            row("labels", escape(&labels.collect::<Vec<_>>().join(", ")));
        }
        for (name, value) in [("key", &queued.key), ("worker", &queued.worker)] {
            if let Some(value) = value {
                row(name, escape(value));
            }
        }
        if let Some(why) = &queued.why {
            row("waits because", escape(why));
        }
        if let Some(progress) = &queued.progress {
            row("progress", format!("{}, {}", progress_text(progress), progress.at));
        }
        if queued.cancelling {
            row("cancelled", "its worker is being told".to_owned());
        }
        if queued.poison {
            row("poison", "too many workers died under it".to_owned());
        }
        if let Some(former) = &queued.redriven_from {
            row("redriven from", escape(former));
        }
    }
    if let Some(queued) = &run.queued {
        if let Some(whole) = &queued.part_of {
            row("part of", escape(whole));
        }
        if let Some(chosen) = &queued.chosen {
            row("chosen", escape(chosen));
        }
        for (number, part) in (1..).zip(&queued.parts) {
            row(&format!("part {number}"), part_text(part));
        }
    }
    row(
        "slot",
        if run.on_demand { format!("{} (on demand)", run.slot) } else { run.slot.to_string() },
    );
    if run.kind == RunKind::Notification {
        row("kind", run.kind.as_str().to_owned());
    }
    row("state", run.state.as_str().to_owned());
    if let Some(instant) = run.not_before {
        row("not before", instant.to_string());
    }
    if let Some(ended) = run.ended {
        row("ended", ended.to_string());
    }
    let told = u32::try_from(run.attempts.len()).unwrap_or(u32::MAX);
    let untold = if run.ended.is_some() { run.attempt.saturating_sub(told) } else { 0 };
    row(
        "attempts",
        match untold {
            0 => run.attempt.to_string(),
            _ => format!("{}, {untold} of them not on record", run.attempt),
        },
    );
    for (number, attempt) in (1..).zip(&run.attempts) {
        // Which of them are not is not known either.
        let number = if untold == 0 { number.to_string() } else { "-".to_owned() };
        let status = attempt.status.map(|status| format!("HTTP {status}"));
        let code = attempt.exit_code.filter(|code| *code != 0);
        let code = code.map(|code| format!("exit code {code}"));
        let error = attempt.error.as_deref().map(escape);
        let code =
            code.filter(|code| error.as_ref().is_none_or(|error| !error.contains(code.as_str())));
        let answer =
            attempt.response.as_deref().filter(|text| !text.is_empty()).map(|text| {
                Readable::of(text.as_bytes()).line_within(RESPONSE_COLUMNS, text.len())
            });
        let said: Vec<String> = [status, code, error, answer].into_iter().flatten().collect();
        let worker = attempt.worker.as_deref().map(|name| format!(" by {}", escape(name)));
        let said = if said.is_empty() { String::new() } else { format!(": {}", said.join(", ")) };
        row(
            &format!("  {number}"),
            format!(
                "{} after {} ms{}{said}",
                attempt.at,
                attempt.latency_ms,
                worker.unwrap_or_default()
            ),
        );
    }
    table::finish(table, 2)
}

#[cfg(test)]
mod tests {
    use client::run::{Attempt, QueuedPart};

    use super::*;

    #[test]
    fn who_finds_no_runs_is_told_which_ones_were_not_looked_for() {
        assert!(unlisted(None, None, None).contains("--queue"));
        assert!(unlisted(None, None, Some("mail")).contains("--state waiting,"));
        assert_eq!(unlisted(None, Some("mail"), Some("mail")), "");
        assert_eq!(unlisted(Some("hello"), None, None), "");
    }

    fn run(name: &str) -> Run {
        Run {
            id: "run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx".to_owned(),
            trigger: Some("trg_00f00000d3k8w1v2m7qa".to_owned()),
            name: Some(name.to_owned()),
            slot: "2027-01-15T08:00:00Z".parse().unwrap(),
            kind: RunKind::Run,
            event: None,
            on_demand: false,
            state: RunState::Succeeded,
            not_before: None,
            ended: None,
            attempt: 1,
            attempts: Vec::new(),
            queued: None,
            skipped: None,
        }
    }

    #[test]
    fn an_id_is_whole_in_a_narrow_list() {
        let runs = [run("hello"), run("a-report-with-a-long-name")];
        for width in [None, Some(120)] {
            let wide = list_text(&runs, width);
            assert!(
                wide.contains("attempts") && wide.contains("a-report-with-a-long-name"),
                "{wide}"
            );
        }
        let narrow = list_text(&runs, Some(80));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert_eq!(narrow.matches(&runs[0].id).count(), 2, "{narrow}");
        assert!(narrow.contains("  a-report…  ") && !narrow.contains("attempts"), "{narrow}");
    }

    #[test]
    fn attempts_have_numbers_unless_some_are_not_on_record() {
        let at = "2027-01-15T08:00:00Z".parse().unwrap();
        let (status, error, response) = (Some(200), None, None);
        let attempts = vec![Attempt {
            at,
            latency_ms: 7,
            status,
            error,
            response,
            worker: None,
            exit_code: None,
        }];
        let whole = Run { attempts, ended: Some(at), ..run("hello") };
        let rows = |run: &Run| -> Vec<String> {
            let text = show_text(run);
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            text.lines().map(words).skip_while(|line| !line.starts_with("attempts")).collect()
        };
        let line = "2027-01-15T08:00:00Z after 7 ms: HTTP 200";
        assert_eq!(rows(&whole), ["attempts 1", &format!("1 {line}")]);
        let by_worker =
            Attempt { status: None, worker: Some("web-1".to_owned()), ..whole.attempts[0].clone() };
        let of_queue = Run { attempts: vec![by_worker], ..whole.clone() };
        let line_of_queue = "1 2027-01-15T08:00:00Z after 7 ms by web-1";
        assert_eq!(rows(&of_queue), ["attempts 1", line_of_queue]);
        let lost = Run { attempt: 3, ..whole };
        let told = "attempts 3, 2 of them not on record";
        assert_eq!(rows(&lost), [told, &format!("- {line}")]);
        // One may be under way.
        let going = Run { attempt: 2, ended: None, ..lost };
        assert_eq!(rows(&going), ["attempts 2", &format!("1 {line}")]);
    }

    #[test]
    fn what_a_run_of_a_queue_is_about_is_one_line_each() {
        let argv = ["/bin/report", "--all", "", "two words", "\u{1b}[2J"].map(str::to_owned);
        let part = QueuedPart {
            queue: "mail".to_owned(),
            handler: Some("welcome".to_owned()),
            argv: argv.to_vec(),
            priority: Some(2),
            labels: [("env".to_owned(), "prod".to_owned())].into(),
            ..QueuedPart::default()
        };
        let text = show_text(&Run { queued: Some(part), ..run("hello") });
        let has = |name: &str, value: &str| {
            let is_it = |line: &str| line.starts_with(name) && line.ends_with(value);
            assert!(text.lines().any(is_it), "{name}: {text}");
        };
        has("handler", "  welcome");
        has("command", r#"  /bin/report --all "" "two words" \u{1b}[2J"#);
        has("priority", "  2");
        let long = command_text(&["x".repeat(COMMAND_COLUMNS), "y".to_owned()]);
        assert_eq!(long, format!("{}…", "x".repeat(COMMAND_COLUMNS)));
        has("labels", "  env=prod");
    }

    #[test]
    fn who_cancels_is_told_whether_it_has_ended_or_its_worker_is_told() {
        let cancelled = Run { state: RunState::Cancelled, ..run("hello") };
        let said = cancelled_text("run_1", Some(&cancelled));
        assert_eq!(said, "run_1 is cancelled: no worker had it.\n");
        let part = QueuedPart { worker: Some("web-1".to_owned()), ..QueuedPart::default() };
        let running = Run { state: RunState::Running, queued: Some(part), ..run("hello") };
        let said = cancelled_text("run_1", Some(&running));
        assert!(said.starts_with("run_1 is to end: its worker web-1 is told, "), "{said}");
        assert!(cancelled_text("run_1", None).starts_with("run_1 is cancelled; a worker that"));
    }

    #[test]
    fn who_waits_hears_of_everything_but_success() {
        let started = |state: Option<RunState>| {
            let run = state.map(|state| Run { state, ..run("hello") });
            judge(&Started { id: "run_x".to_owned(), run })
        };
        assert_eq!(started(Some(RunState::Succeeded)), Ok(()));
        for state in RunState::ALL.into_iter().filter(|state| *state != RunState::Succeeded) {
            let ending = started(Some(state)).unwrap_err();
            let unfinished = "run_x is not finished; look again later: watchbell run show run_x";
            assert_eq!(ending == Ending::failed(unfinished), !state.is_end(), "{state:?}");
        }
        assert!(started(None).is_err());
    }
}

//! `watchbell worker`: to be one ([`work`]), or to look after those that there are.

pub(crate) mod board;
pub(crate) mod plan;
pub(crate) mod work;

use client::worker::{Worker, WorkerDetails};

use crate::args::trigger::ServerArgs;
use crate::args::worker::{WorkerArgs, WorkerDrainArgs, WorkerNameArgs, WorkerVerb};
use crate::exit::Ending;
use crate::table;
use crate::trigger::{print, print_list};
use crate::value::escape;

pub(crate) async fn worker(typed: WorkerArgs) -> Result<(), Ending> {
    match typed.verb {
        None => work::work(&typed.work).await,
        Some(WorkerVerb::List(typed)) => list(&typed).await,
        Some(WorkerVerb::Show(typed)) => show(&typed).await,
        Some(WorkerVerb::Drain(typed)) => drain(&typed).await,
    }
}

async fn list(typed: &ServerArgs) -> Result<(), Ending> {
    let page = typed.client()?.workers().await?;
    let none = "There are no workers: one is known when it has claimed from a queue.";
    let header = ["name", "state", "runs", "heard", "queues", "labels"];
    print_list(typed.output, &page, Some(none), header, |worker| {
        let (state, runs) = (worker.state.as_str().to_owned(), worker.running.to_string());
        let queues = escape(&worker.queues.join(","));
        [escape(&worker.name), state, runs, heard(worker), queues, labels(worker)]
    })
}

/// `version=7,zone=b`.
fn labels(worker: &Worker) -> String {
    let labels = worker.labels.iter().map(|(key, value)| format!("{key}={value}"));
    escape(&labels.collect::<Vec<_>>().join(","))
}

fn heard(worker: &Worker) -> String {
    worker.heard.map_or_else(|| "-".to_owned(), |heard| heard.to_string())
}

async fn show(typed: &WorkerNameArgs) -> Result<(), Ending> {
    let worker = typed.server.client()?.worker(&typed.name).await?;
    print(typed.server.output, &worker, || show_text(&worker))
}

async fn drain(typed: &WorkerDrainArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let worker = if typed.undo {
        client.undrain_worker(&typed.name).await?
    } else {
        client.drain_worker(&typed.name).await?
    };
    print(typed.server.output, &worker, || {
        let name = escape(&typed.name);
        if typed.undo {
            return format!("{name} is given runs again.\n");
        }
        let runs = match worker.worker.running {
            0 => "it has no runs".to_owned(),
            1 => "it has one run to finish".to_owned(),
            count => format!("it has {count} runs to finish"),
        };
        format!("{name} is given nothing more, and is told so; {runs}.\n")
    })
}

fn show_text(WorkerDetails { worker, lease_ms, drain, runs }: &WorkerDetails) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("name", escape(&worker.name));
    row("state", worker.state.as_str().to_owned());
    row("incarnation", worker.incarnation.to_string());
    row("heard", heard(worker));
    if let Some(lease_ms) = lease_ms {
        row("lease", format!("{lease_ms} ms"));
    }
    row("queues", escape(&worker.queues.join(", ")));
    if !worker.labels.is_empty() {
        row("labels", labels(worker));
    }
    if let Some(drain) = drain {
        row("drain", format!("since {}, asked for by {}", drain.since, escape(&drain.author)));
    }
    row("runs", worker.running.to_string());
    for run in runs {
        let queue = escape(&run.queue);
        row("", format!("{} of {queue}, attempt {}, since {}", run.id, run.attempt, run.since));
    }
    table::finish(table, 2)
}

#[cfg(test)]
mod tests {
    use client::worker::{WorkerDrain, WorkerRun, WorkerState};

    use super::*;

    #[test]
    fn a_worker_is_shown_with_what_it_has_and_who_wants_it_to_drain() {
        let at = "2027-01-15T08:00:00Z".parse().unwrap();
        let worker = Worker {
            name: "web-1".to_owned(),
            incarnation: 7,
            state: WorkerState::Draining,
            heard: Some(at),
            queues: vec!["a".to_owned(), "b".to_owned()],
            running: 1,
            labels: [("zone", "b"), ("version", "7")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        let run =
            WorkerRun { id: "run_x".to_owned(), queue: "a".to_owned(), since: at, attempt: 2 };
        let drain = Some(WorkerDrain { since: at, author: "ops".to_owned() });
        let shown = WorkerDetails { worker, lease_ms: Some(15_000), drain, runs: vec![run] };
        let text = show_text(&shown);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        let expected = [
            "name web-1",
            "state draining",
            "incarnation 7",
            "heard 2027-01-15T08:00:00Z",
            "lease 15000 ms",
            "queues a, b",
            "labels version=7,zone=b",
            "drain since 2027-01-15T08:00:00Z, asked for by ops",
            "runs 1",
            "run_x of a, attempt 2, since 2027-01-15T08:00:00Z",
        ];
        assert_eq!(lines, expected);
    }
}

//! `watchbell queue`.

use client::QueueFilter;
use client::queue::{Queue, QueueSpec, RateSpec};

use crate::args::queue::{
    LeaseWord, QueueDeleteArgs, QueueListArgs, QueueNameArgs, QueuePauseArgs, QueueSetArgs,
    QueueVerb,
};
use crate::exit::Ending;
use crate::redrive;
use crate::table::{self, grouped};
use crate::trigger::{pause_text, paused_text, print, print_list};
use crate::value::escape;

pub(crate) async fn queue(verb: QueueVerb) -> Result<(), Ending> {
    match verb {
        QueueVerb::List(typed) => list(typed).await,
        QueueVerb::Show(typed) => show(&typed).await,
        QueueVerb::Set(typed) => set(typed).await,
        QueueVerb::Apply(typed) => crate::apply::queue::apply(typed).await,
        QueueVerb::Pause(typed) => pause(typed).await,
        QueueVerb::Resume(typed) => resume(&typed).await,
        QueueVerb::Delete(typed) => delete(&typed).await,
        QueueVerb::Dead(typed) => redrive::dead(typed).await,
        QueueVerb::Redrive(typed) => redrive::redrive(typed).await,
        QueueVerb::Cancel(typed) => redrive::cancel(typed).await,
    }
}

async fn list(typed: QueueListArgs) -> Result<(), Ending> {
    let filter = QueueFilter {
        prefix: typed.prefix,
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.queues(&filter).await?;
    let none = "There are no such queues: one comes to be with its first run. See watchbell run submit --help";
    let header = ["name", "waiting", "running", "oldest due", "limits", "paused"];
    print_list(typed.server.output, &page, Some(none), header, |queue| {
        let state = queue.state.as_ref();
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), grouped);
        let oldest = state.and_then(|state| state.oldest);
        let limits: Vec<String> = limits(&queue.spec)
            .into_iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        [
            escape(&queue.name),
            count(state.map(|state| state.waiting)),
            count(state.map(|state| state.running)),
            oldest.map_or_else(|| "-".to_owned(), |oldest| oldest.to_string()),
            if limits.is_empty() { "none".to_owned() } else { limits.join(", ") },
            queue.paused.as_ref().map_or("no", |_| "yes").to_owned(),
        ]
    })
}

async fn show(typed: &QueueNameArgs) -> Result<(), Ending> {
    let queue = typed.server.client()?.queue(&typed.name).await?;
    print(typed.server.output, &queue, || show_text(&queue))
}

/// Writes without reading first: what is not named is lifted, whoever set it.
async fn set(typed: QueueSetArgs) -> Result<(), Ending> {
    let spec = QueueSpec {
        concurrency: typed.concurrency,
        per_key: typed.per_key,
        rate: typed.rate,
        waiting_max: typed.waiting_max,
        alert_after: typed.alert_after,
        lease: typed.lease.map(LeaseWord::kind),
    };
    let queue = typed.server.client()?.set_queue(&typed.name, &spec, None).await?;
    print(typed.server.output, &queue, || show_text(&queue))
}

async fn pause(typed: QueuePauseArgs) -> Result<(), Ending> {
    let request = typed.pause.request();
    let queue = typed.server.client()?.pause_queue(&typed.name, &request).await?;
    print(typed.server.output, &queue, || paused_text("queue", &queue.name, &request))
}

async fn resume(typed: &QueueNameArgs) -> Result<(), Ending> {
    let queue = typed.server.client()?.resume_queue(&typed.name).await?;
    print(typed.server.output, &queue, || {
        let waiting = queue.state.as_ref().map(|state| grouped(state.waiting));
        let waiting = waiting.map_or_else(String::new, |runs| format!("; runs that wait: {runs}"));
        format!("{} goes on{waiting}.\n", escape(&queue.name))
    })
}

async fn delete(typed: &QueueDeleteArgs) -> Result<(), Ending> {
    typed.consent.check("nothing was deleted")?;
    let client = typed.server.client()?;
    let Queue { id, name, state, .. } = client.queue(&typed.name).await?;
    let dead = state.map_or(0, |state| state.dead);
    let dead = match dead {
        0 => String::new(),
        dead => {
            format!(" and {} dead runs, which can be redriven now and not later", grouped(dead))
        }
    };
    let question = format!("Delete the queue {}{dead}?", escape(&name));
    typed.consent.ask(&question, "nothing was deleted")?;
    client.delete_queue(&name).await?;
    let gone = serde_json::json!({ "deleted": name, "id": id });
    print(typed.server.output, &gone, || {
        format!("{} is deleted; its runs stay on record.\n", escape(&name))
    })
}

/// A queue, as lines.
fn show_text(queue: &Queue) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("name", escape(&queue.name));
    row("id", escape(&queue.id));
    if let Some(pause) = &queue.paused {
        row("paused", pause_text(pause));
    }
    match &queue.state {
        Some(state) => {
            let (waiting, most) = (grouped(state.waiting), grouped(state.waiting_max));
            row("waiting", format!("{waiting} of at most {most}"));
            row("running", grouped(state.running));
            if let Some(oldest) = state.oldest {
                row("oldest due", oldest.to_string());
            }
            if let Some(overdue) = queue.overdue {
                row("overdue since", overdue.to_string());
            }
            if let Some(failing) = queue.failing {
                row("failing since", failing.to_string());
            }
            row("claims that wait", grouped(state.claims_waiting));
            let (given, ended) = (state.given_last_minute, state.ended_last_minute);
            row("last minute", format!("{} given, {} ended", grouped(given), grouped(ended)));
            if state.dead > 0 {
                let hint = format!("watchbell queue dead {}", escape(&queue.name));
                row("dead", format!("{}; look at them: {hint}", grouped(state.dead)));
            }
            if let Some(why) = &state.why {
                row("waits because", escape(why));
            }
        }
        None => row("state", "not known: nobody owns its shard now; try again soon".to_owned()),
    }
    let limits = limits(&queue.spec);
    if limits.is_empty() {
        row("limits", "none".to_owned());
    }
    for (name, value) in limits {
        row(name, value);
    }
    let Queue { revision, written, author, .. } = queue;
    row("revision", format!("{revision}, written {written} by {}", escape(author)));
    table::finish(table, 2)
}

/// The limits that somebody chose, in the words in which they are typed.
fn limits(spec: &QueueSpec) -> Vec<(&'static str, String)> {
    let QueueSpec { concurrency, per_key, rate, waiting_max, alert_after, lease } = spec;
    let rate = rate.as_ref().map(|RateSpec { runs, per }| format!("{runs}/{}", escape(per)));
    let all = [
        ("concurrency", concurrency.map(grouped)),
        ("per key", per_key.map(grouped)),
        ("rate", rate),
        ("waiting max", waiting_max.map(grouped)),
        ("alert after", alert_after.as_deref().map(escape)),
        ("lease", lease.map(|lease| lease.as_str().to_owned())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

//! `watchbell trigger`: everything that is one question and one answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use client::queue::FeedSpec;
use client::spec::{ScheduleSpec, TriggerSpec};
use client::trigger::{Pause, PauseRequest, Status, Trigger};
use client::{ListPage, TriggerFilter};
use serde::Serialize;

use crate::args::OutputFormat;
use crate::args::trigger::{
    PauseArgs, SlotsArgs, TriggerConsentArgs, TriggerListArgs, TriggerNameArgs,
};
use crate::exit::Ending;
use crate::table;
use crate::value::escape;

/// Shows an answer: as JSON to programs, as text to people.
pub(crate) fn print(
    output: OutputFormat,
    answer: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Ending> {
    let text = match output {
        OutputFormat::Json => {
            let json = serde_json::to_string_pretty(answer).expect("answers always serialize");
            format!("{json}\n")
        }
        OutputFormat::Table => text(),
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Shows a page of a list: as JSON to programs, as a table to people. Where there is nothing, `none` says so.
pub(crate) fn print_list<T: Serialize, const COLUMNS: usize>(
    output: OutputFormat,
    page: &ListPage<T>,
    none: Option<&str>,
    header: [&str; COLUMNS],
    row: impl Fn(&T) -> [String; COLUMNS],
) -> Result<(), Ending> {
    print(output, page, || match none {
        Some(none) if page.items.is_empty() && page.next.is_none() => format!("{none}\n"),
        Some(_) | None => {
            let mut table = table::plain();
            table.set_header(header).add_rows(page.items.iter().map(row));
            format!("{}{}", table::finish(table, COLUMNS), more(page.next.as_deref()))
        }
    })
}

pub(crate) async fn list(typed: TriggerListArgs) -> Result<(), Ending> {
    let filter = TriggerFilter {
        status: typed.status,
        prefix: typed.prefix,
        labels: typed.labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        limit: Some(typed.page.limit.into()),
        cursor: typed.page.cursor,
    };
    let page = typed.server.client()?.triggers(&filter).await?;
    let none = "There are no such triggers. Make one: watchbell trigger create --help";
    let header = ["name", "status", "next", "when", "target"];
    print_list(typed.server.output, &page, Some(none), header, |trigger| {
        let next = trigger.next.first().map_or_else(|| "-".to_owned(), ToString::to_string);
        let (status, target) = (trigger.status.as_str(), target_said(&trigger.spec));
        [trigger.name.clone(), status.to_owned(), next, when(&trigger.spec), target]
    })
}

/// How to see what follows.
pub(crate) fn more(next: Option<&str>) -> String {
    next.map_or_else(String::new, |next| format!("There are more: add --cursor {}\n", escape(next)))
}

pub(crate) async fn show(typed: &TriggerNameArgs) -> Result<(), Ending> {
    let trigger = typed.server.client()?.trigger(&typed.name).await?;
    print(typed.server.output, &trigger, || show_text(&trigger))
}

pub(crate) async fn next(typed: &SlotsArgs) -> Result<(), Ending> {
    let slots = typed.server.client()?.next(&typed.name, typed.count.into()).await?;
    print(typed.server.output, &slots, || {
        let slots_text = slots.items.iter().map(ToString::to_string);
        let note = slots.note.iter().map(|note| format!("({})", escape(note)));
        let lines: Vec<String> = slots_text.chain(note).collect();
        format!("{}\n", lines.join("\n"))
    })
}

pub(crate) async fn pause(typed: PauseArgs) -> Result<(), Ending> {
    let request = typed.pause.request();
    let trigger = typed.server.client()?.pause(&typed.name, &request).await?;
    print(typed.server.output, &trigger, || paused_text("trigger", &trigger.name, &request))
}

/// That something is paused, and how it goes on.
pub(crate) fn paused_text(noun: &str, name: &str, request: &PauseRequest) -> String {
    let name = escape(name);
    match request.until {
        Some(until) => format!("{name} is paused, and resumes by itself at {until}.\n"),
        None => format!("{name} is paused. Let it go on: watchbell {noun} resume {name}\n"),
    }
}

pub(crate) async fn resume(typed: &TriggerNameArgs) -> Result<(), Ending> {
    let trigger = typed.server.client()?.resume(&typed.name).await?;
    print(typed.server.output, &trigger, || {
        let next =
            trigger.next.first().map_or_else(String::new, |next| format!("; next at {next}"));
        format!("{} goes on{next}.\n", escape(&trigger.name))
    })
}

pub(crate) async fn cancel(typed: &TriggerConsentArgs) -> Result<(), Ending> {
    typed.consent.check("nothing was cancelled")?;
    let client = typed.server.client()?;
    let Trigger { id, name, .. } = client.trigger(&typed.name).await?;
    let question = format!("Cancel the trigger {} for good?", escape(&name));
    typed.consent.ask(&question, "nothing was cancelled")?;
    // By its id: somebody may have made another one with this name meanwhile.
    let trigger = client.cancel(&id).await?;
    print(typed.server.output, &trigger, || {
        format!("{} is cancelled: it never fires again.\n", escape(&trigger.name))
    })
}

pub(crate) async fn delete(typed: &TriggerConsentArgs) -> Result<(), Ending> {
    typed.consent.check("nothing was deleted")?;
    let client = typed.server.client()?;
    let Trigger { id, name, .. } = client.trigger(&typed.name).await?;
    let question = format!("Delete the trigger {}?", escape(&name));
    typed.consent.ask(&question, "nothing was deleted")?;
    // By its id: somebody may have made another one with this name meanwhile.
    client.delete_trigger(&id).await?;
    let gone = serde_json::json!({ "deleted": name, "id": id });
    print(typed.server.output, &gone, || {
        format!(
            "{} is deleted; its runs stay on record:\n  watchbell run list --trigger {}\n",
            escape(&name),
            escape(&id)
        )
    })
}

/// A trigger, as lines.
pub(crate) fn show_text(trigger: &Trigger) -> String {
    let mut table = table::plain();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("name", escape(&trigger.name));
    row("id", trigger.id.clone());
    row("status", status_text(trigger));
    if let Some(why) = &trigger.suspended {
        row("does not fire", escape(why));
    }
    if !trigger.spec.labels.is_empty() {
        row("labels", labels_text(&trigger.spec.labels));
    }
    row("when", when(&trigger.spec));
    if let Some(webhook) = &trigger.spec.webhook {
        let method = webhook.method.as_deref().unwrap_or("POST");
        row("webhook", format!("{} {}", escape(method), escape(&webhook.url)));
    }
    if let Some(feed) = &trigger.spec.queue {
        row("queue", escape(&feed.name));
        row("what", action_said(feed));
    }
    for (name, value) in rules(&trigger.spec) {
        row(name, value);
    }
    if let Some(remaining) = trigger.remaining {
        row("runs left", remaining.to_string());
    }
    if trigger.failures > 0 {
        row("failures in a row", trigger.failures.to_string());
    }
    row("revision", format!("{}, written {}", trigger.revision, trigger.written));
    if let Some(run) = &trigger.last_run {
        row("last run", format!("{} {} ({})", run.slot, run.state.as_str(), run.id));
    }
    let next: Vec<String> = trigger.next.iter().map(ToString::to_string).collect();
    row("next", if next.is_empty() { "-".to_owned() } else { next.join("\n") });
    table::finish(table, 2)
}

/// The rules that somebody chose, in the words in which they are written.
fn rules(spec: &TriggerSpec) -> Vec<(&'static str, String)> {
    let json = serde_json::to_value(spec).expect("a spec always serializes");
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => escape(text),
        serde_json::Value::Object(fields) => {
            let word = |value: &serde_json::Value| value.to_string().replace('"', "");
            let fields = fields.iter().map(|(name, value)| format!("{name} {}", word(value)));
            escape(&fields.collect::<Vec<_>>().join(", "))
        }
        other => escape(&other.to_string().replace(['"', '[', ']'], "")),
    };
    let names = [
        ("catch_up", "catch-up"),
        ("catch_up_cap", "catch-up cap"),
        ("overlap", "overlap"),
        ("delivery", "delivery"),
        ("retry", "retry"),
        ("max_lateness", "max lateness"),
        ("pause_after", "pause after"),
        ("alert_after", "alert after"),
        ("notify", "notify"),
    ];
    let chosen = names.into_iter().filter_map(|(field, name)| Some((name, text(json.get(field)?))));
    let webhook = spec.webhook.as_ref();
    let timeout = webhook.and_then(|webhook| webhook.timeout.as_ref());
    let timeout = timeout.map(|timeout| ("timeout", escape(timeout)));
    let headers = webhook.into_iter().flat_map(|webhook| webhook.headers.keys());
    let headers: Vec<&str> = headers.map(String::as_str).collect();
    let headers = (!headers.is_empty()).then(|| ("headers", escape(&headers.join(", "))));
    let feed = spec.queue.iter().flat_map(feed_rules);
    timeout.into_iter().chain(headers).chain(feed).chain(chosen).collect()
}

fn feed_rules(feed: &FeedSpec) -> impl Iterator<Item = (&'static str, String)> {
    let priority = feed.priority.map(|priority| ("priority", priority.to_string()));
    let key = feed.key.as_ref().map(|key| ("concurrency key", escape(key)));
    let timeout = feed.timeout.as_ref().map(|timeout| ("timeout", escape(timeout)));
    [priority, key, timeout].into_iter().flatten()
}

/// Where the runs of a trigger go, in a few words.
pub(crate) fn target_said(spec: &TriggerSpec) -> String {
    match (&spec.webhook, &spec.queue) {
        (_, Some(feed)) => format!("queue {}", escape(&feed.name)),
        (Some(webhook), None) => escape(&webhook.url),
        (None, None) => "-".to_owned(),
    }
}

/// What a worker is to do: a handler, or a program without what it is given, which may be secret.
fn action_said(feed: &FeedSpec) -> String {
    match (&feed.handler, &feed.command) {
        (Some(handler), _) => format!("handler {}", escape(handler)),
        (None, Some(command)) => {
            let program = command.argv.first().map_or("", String::as_str);
            format!("command {}", escape(program))
        }
        (None, None) => "-".to_owned(),
    }
}

/// Labels as they are typed.
pub(crate) fn labels_text(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    escape(&labels.join(","))
}

fn status_text(trigger: &Trigger) -> String {
    let mut text = trigger.status.as_str().to_owned();
    if let Some(pause) = &trigger.paused {
        let _ = write!(text, " {}", pause_text(pause));
    } else if let (Status::Cancelled, Some(at)) = (trigger.status, trigger.cancelled) {
        let _ = write!(text, " since {at}");
    }
    text
}

/// Since when, by whom, until when and why something is paused.
pub(crate) fn pause_text(pause: &Pause) -> String {
    let mut text = format!("since {} by {}", pause.since, escape(&pause.author));
    if let Some(until) = pause.until {
        let _ = write!(text, " until {until}");
    }
    if !pause.note.is_empty() {
        let _ = write!(text, ": {}", escape(&pause.note));
    }
    text
}

/// A schedule in a few words.
pub(crate) fn when(spec: &TriggerSpec) -> String {
    let Some(schedule) = &spec.schedule else { return "on demand".to_owned() };
    let ScheduleSpec { cron, every, at, tz, .. } = schedule;
    let mut parts: Vec<String> = cron.iter().map(|pattern| escape(pattern)).collect();
    if let (Some(zone), false) = (tz, cron.is_empty()) {
        parts.push(format!("({})", escape(zone)));
    }
    parts.extend(every.iter().map(|interval| format!("every {}", escape(interval))));
    match at.as_slice() {
        [] => {}
        [instant] => parts.push(format!("at {instant}")),
        instants => parts.push(format!("at {} instants", instants.len())),
    }
    parts.join(" ")
}

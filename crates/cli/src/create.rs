//! `watchbell trigger create`: from what was typed, or from a file, to a trigger.

use std::io::Read;
use std::path::Path;

use client::queue::{CommandSpec, FeedSpec};
use client::spec::{ScheduleSpec, TriggerSpec, WebhookSpec};
use engine::limits::REQUEST_BYTES_MAX;

use crate::args::feed::FeedArgs;
use crate::args::trigger::{CreateArgs, ServerArgs};
use crate::exit::Ending;
use crate::refusal;
use crate::submit;
use crate::trigger::{self, show_text};

pub(crate) async fn create(mut typed: CreateArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let file = typed.file.take();
    let replace = typed.replace;
    let (server, spec) = match &file {
        Some(path) => (typed.server, read(path)?),
        None => spec(typed)?,
    };
    let made = match (replace, &spec.name) {
        (true, Some(name)) => client.put_trigger(name, &spec, None).await,
        (true, None) => {
            return Err(Ending::wrong_input("--replace needs a name: give one with --name NAME"));
        }
        (false, _) => client.create_trigger(&spec).await,
    };
    let made = made.map_err(|error| match (error.problem(), &file) {
        (Some(problem), Some(_)) => Ending::wrong_or_failed(problem, refusal::of_file(problem)),
        (Some(_) | None, _) => error.into(),
    })?;
    trigger::print(server.output, &made, || show_text(&made))
}

/// Reads a trigger from a file, or from stdin if its name is `-`.
fn read(path: &Path) -> Result<TriggerSpec, Ending> {
    let wrong = |why: String| Ending::wrong_input(format!("--file {}: {why}", path.display()));
    let read = |from: &mut dyn Read| {
        let mut text = String::new();
        from.take(REQUEST_BYTES_MAX as u64 + 1).read_to_string(&mut text).map(|_| text)
    };
    let text = if path.as_os_str() == "-" {
        read(&mut std::io::stdin())
    } else {
        std::fs::File::open(path).and_then(|mut file| read(&mut file))
    };
    let text = text.map_err(|why| wrong(why.to_string()))?;
    if text.len() > REQUEST_BYTES_MAX {
        return Err(wrong(format!("a trigger has at most {REQUEST_BYTES_MAX} bytes")));
    }
    serde_json::from_str(&text).map_err(|why| wrong(why.to_string()))
}

/// What was typed, as a trigger.
fn spec(typed: CreateArgs) -> Result<(ServerArgs, TriggerSpec), Ending> {
    let schedule = ScheduleSpec {
        cron: typed.cron,
        every: typed.every,
        phase: typed.phase,
        at: typed.at,
        tz: typed.zone,
        dialect: typed.dialect,
        gap: typed.gap,
        fold: typed.fold,
        start: typed.start,
        end: typed.end,
        limit: typed.limit,
        jitter: typed.jitter,
        exclude: typed.exclude,
        quiet: Vec::new(),
    };
    let queue = feed(typed.feed, typed.timeout.clone())?;
    let webhook = WebhookSpec {
        url: typed.webhook.unwrap_or_default(),
        method: typed.method,
        headers: typed.header.into_iter().collect(),
        secret_headers: typed.secret_header.into_iter().collect(),
        content_type: typed.content_type,
        body: typed.body,
        timeout: typed.timeout,
    };
    let spec = TriggerSpec {
        name: typed.name,
        labels: typed.labels.into_iter().collect(),
        schedule: (schedule != ScheduleSpec::default()).then_some(schedule),
        webhook: queue.is_none().then_some(webhook),
        queue,
        catch_up: typed.catch_up,
        catch_up_cap: typed.catch_up_cap,
        overlap: typed.overlap,
        delivery: typed.delivery,
        retry: typed.retry.spec(),
        max_lateness: typed.max_lateness,
        pause_after: typed.pause_after,
        alert_after: typed.alert_after,
        notify: typed.notify,
    };
    Ok((typed.server, spec))
}

/// What was typed of a queue, if one was.
fn feed(typed: FeedArgs, timeout: Option<String>) -> Result<Option<FeedSpec>, Ending> {
    let Some(name) = typed.queue else { return Ok(None) };
    let from_file = typed.payload_file.as_deref().map(submit::read).transpose()?;
    let command = CommandSpec {
        argv: typed.command,
        env: typed.env.into_iter().collect(),
        dir: typed.dir,
        stdin: typed.stdin,
    };
    Ok(Some(FeedSpec {
        name,
        handler: typed.handler,
        payload: typed.payload.or(from_file),
        command: (!command.argv.is_empty()).then_some(command),
        priority: typed.priority,
        key: typed.concurrency_key,
        timeout,
        pick: typed.pick,
        count: typed.count,
    }))
}

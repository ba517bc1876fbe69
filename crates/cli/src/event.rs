//! `watchbell events`: follows what happens, one line per event.

use std::io::{self, Write};

use client::account::Reason;
use client::election::HoldState;
use client::event::{Event, EventKind};

use crate::args::OutputFormat;
use crate::args::system::EventsArgs;
use crate::exit::Ending;
use crate::outage::Outage;
use crate::run::progress_text;
use crate::value::escape;

pub(crate) async fn follow(typed: &EventsArgs) -> Result<(), Ending> {
    let mut events = typed.server.client()?.events().await?;
    let (mut count, mut outage): (u64, _) = (0, Outage::default());
    while typed.count.is_none_or(|most| count < most) {
        let event = tokio::select! {
            event = events.next() => event,
            // Whoever follows ends it so: that is fine.
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let event = match event {
            Ok(event) => event,
            // A server that is started again is followed on: that may take a while.
            Err(why) => tokio::select! {
                waited = outage.wait(why) => {
                    waited?;
                    continue;
                }
                _ = tokio::signal::ctrl_c() => return Ok(()),
            },
        };
        outage.end();
        let line = match typed.server.output {
            OutputFormat::Json => serde_json::to_string(&event).expect("events always serialize"),
            OutputFormat::Table => line(&event),
        };
        // Each line is out at once: somebody waits for it.
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()?;
        count += 1;
    }
    Ok(())
}

fn line(event: &Event) -> String {
    let what = match &event.what {
        EventKind::RunEnded { run, trigger, queue, slot, state, attempt, event: _ } => {
            let queue = queue.iter().map(|name| format!("  queue {}", escape(name)));
            let trigger = trigger.iter().map(|id| format!("  trigger {}", escape(id)));
            format!(
                "{}  {}  slot {slot}{}  attempts {attempt}",
                state.as_str(),
                escape(run),
                queue.chain(trigger).collect::<String>()
            )
        }
        EventKind::SlotsSkipped { trigger, from, to, count, reason } => {
            format!("{count} of {}  {from} to {to}  {}", escape(trigger), word(*reason))
        }
        EventKind::RunProgress { run, queue, progress } => {
            let told = progress_text(progress);
            format!("{}  queue {}  {told}", escape(run), escape(queue))
        }
        EventKind::Changed { action, object, author } => {
            format!("{}  {}  by {}", escape(action), escape(object), escape(author))
        }
        EventKind::QueueOverdue { queue, oldest } => {
            format!("{}  its oldest run is due since {oldest}", escape(queue))
        }
        EventKind::QueueWell { queue } => escape(queue),
        EventKind::RunGiven { run, queue, worker, attempt } => format!(
            "{}  queue {}  to {}  attempt {attempt}",
            escape(run),
            escape(queue),
            escape(worker)
        ),
        EventKind::WorkerCame { worker } | EventKind::WorkerGone { worker } => escape(worker),
        EventKind::WorkerSilent { worker, runs } => {
            format!("{}  runs taken from it: {runs}", escape(worker))
        }
        EventKind::ElectionChanged { name, state, hold, holder, token, cause } => {
            let state = hold.map_or(state.as_str(), HoldState::as_str);
            let holder = holder.as_deref().map_or_else(|| "nobody".to_owned(), escape);
            let cause =
                cause.map(|cause| format!("  cause {}", cause.as_str())).unwrap_or_default();
            format!("{}  {state}  {holder}  token {token}{cause}", escape(name))
        }
        EventKind::HoldAtRisk { name, node, reason, what } => {
            format!("{}  {}  on {}: {}", escape(name), reason.as_str(), escape(node), escape(what))
        }
        EventKind::ElectionUnheld { name, candidates } => {
            let candidates: Vec<String> = candidates.iter().map(|one| escape(one)).collect();
            format!("{}  nobody has it; candidates {}", escape(name), candidates.join(", "))
        }
        EventKind::ServerJoined { node }
        | EventKind::ServerLeft { node }
        | EventKind::ServerLost { node }
        | EventKind::ClockRight { node } => escape(node),
        EventKind::ShardsOrphaned { count, shards } => {
            let first: Vec<String> = shards.iter().take(8).map(u16::to_string).collect();
            let more = if *count > 8 { ", …" } else { "" };
            format!("{count}: {}{more}", first.join(", "))
        }
        EventKind::ShardsOwned => "every shard has an owner again".to_owned(),
        EventKind::ClockApart { node, ahead_ms } => {
            format!("{}  {ahead_ms} ms ahead of the median", escape(node))
        }
        EventKind::Reset => "events may be missing here: look again at what matters".to_owned(),
    };
    format!("{}  {:15}  {what}", event.at, event.what.kind())
}

fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Paused => "the trigger was paused",
        Reason::Overlap => "another run was not finished",
        Reason::Misfire => "nobody was there to fire them, or their host had no room for long",
        Reason::Cap => "too many were missed",
        Reason::Limit => "the limit of runs was reached",
        Reason::Superseded => "something later took their place",
        Reason::Disabled => "the project was disabled",
        Reason::Pruned => "the trigger had ended long ago, and was deleted",
        Reason::QueueFull => "the queue was full",
    }
}

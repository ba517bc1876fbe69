//! One line for each change of a run, with its ids.

use engine::id::ShardId;
use engine::past::{End, Line};
use engine::shard::Departure;

pub(super) fn departure(shard: ShardId, departure: &Departure) {
    tracing::debug!(
        run = %departure.run, attempt = departure.attempt, %shard, slot = %departure.slot,
        host = %departure.webhook.form.host, "an attempt leaves"
    );
}

pub(super) fn line(shard: ShardId, line: &Line) {
    match line {
        Line::Run(run) if run.end == End::Succeeded => tracing::debug!(
            trigger = %run.trigger, slot = %run.slot, %shard, attempt = run.attempt, "a run succeeded"
        ),
        // Not what its worker said went wrong: that is a program's own text, and may be anything.
        Line::Run(run) if run.is_submitted() => tracing::info!(
            queue = run.queue.as_ref().map(|queue| &*queue.name), number = run.trigger.0, %shard,
            attempt = run.attempt, end = ?run.end, "a run of a queue ended"
        ),
        Line::Run(run) => {
            let last = run.attempts.last();
            tracing::info!(
                trigger = %run.trigger, slot = %run.slot, %shard, attempt = run.attempt, end = ?run.end,
                status = last.and_then(|attempt| attempt.status),
                error = last.and_then(|attempt| attempt.error.as_deref()),
                "a run ended"
            );
        }
        Line::Skip(skip) => tracing::info!(
            trigger = %skip.trigger, from = %skip.from, to = %skip.to, count = skip.count, %shard,
            reason = ?skip.reason, "slots were skipped"
        ),
    }
}

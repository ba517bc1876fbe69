//! How large is a server with so many triggers, and how long does it take to start?
//!
//! The whole process counts, as the operating system sees it. A server with no triggers is measured first; what
//! is above it is the triggers' share. One more trigger is overdue, so that the first webhook leaves as soon as
//! the server can send it. The store was written a moment before, so it is read from memory, not from the disk.

use std::time::Duration;

use super::args::MemoryArgs;
use super::crowd::{Crowd, When};
use super::fill::{Actions, fill};
use super::machine::About;
use super::receiver::Receiver;
use super::report::{Cell, Report, float};
use super::subject::Subject;
use super::usage::{Look, Memory};
use super::{Bench, now, remove};
use crate::triggers::Ending;
use crate::triggers::report::grouped;

/// How long a server gets to come to rest.
const REST: Duration = Duration::from_secs(3);

/// How long to wait for a first webhook.
const FIRST_FIRE_MAX: Duration = Duration::from_secs(120);

struct Found {
    memory: Memory,
    ready_after: Duration,
    fired_after: Duration,
    /// Time of the processor until the first webhook had come.
    cpu_us: u64,
    others: f64,
    stopped_after: Duration,
}

pub(super) async fn memory(typed: &MemoryArgs) -> Result<Report, Ending> {
    let mut bench = Bench::new(&typed.common)?;
    let mut receiver = Receiver::start(1).await?;
    let mut report = Report::new(About::this(&bench.watchbell, bench.path()));
    let mut rows = Vec::new();
    let mut empty = 0;
    for count in std::iter::once(0).chain(typed.count.iter().copied()) {
        let found = one(&mut bench, &mut receiver, count, typed.action_bytes).await?;
        if count == 0 {
            empty = found.memory.resident;
        }
        report.others(found.others);
        report.stopped(found.stopped_after);
        rows.push(row(count, empty, &found));
    }
    report.add("memory", rows);
    report.note(format!(
        "Each trigger has a name of 13 bytes and {} bytes of path and body of its own; 2,688 schedules are shared.\n\
         Bytes per trigger are what is resident above the first row. CPU s is the processor time until\n\
         the first webhook had come. The store is read from the page cache.",
        typed.action_bytes
    ));
    Ok(report)
}

async fn one(
    bench: &mut Bench,
    receiver: &mut Receiver,
    count: u32,
    action_bytes: u16,
) -> Result<Found, Ending> {
    let place = bench.place();
    let crowds = [
        Crowd { when: When::calm(now()), first: 0, len: count },
        Crowd { when: When::Overdue, first: count, len: 1 },
    ];
    let actions = Actions { hosts: &receiver.hosts, bytes: action_bytes };
    fill(bench, &place, &crowds, now(), actions).await?;
    receiver.forget().await?;
    bench.progress.show(format_args!("starting a server with {} triggers", grouped(count)));
    let before = Look::at(&[receiver.pid()]);
    let subject = Subject::start(bench, &place).await?;
    let first_us = first_fire(receiver).await?;
    let cpu_us = Look::at(&[subject.pid()]).total_us();
    let spent = Look::at(&[receiver.pid()]).since(&before);
    // There was no server yet at the first look, so all that it did is among what others did.
    let others = spent.others - float(cpu_us) / (spent.elapsed.as_secs_f64() * 1e6);
    bench.wait(REST, "letting the server come to rest").await;
    let scheduled = subject.metrics().await?.scheduled();
    if scheduled != u64::from(count) + 1 {
        return Err(Ending::failed(format!(
            "the server has {scheduled} triggers, and {count} and one were written"
        )));
    }
    let mut found = Found {
        memory: Memory::of(subject.pid()),
        ready_after: subject.ready_after,
        fired_after: Duration::from_micros(first_us.saturating_sub(subject.started_us)),
        cpu_us,
        others: others.max(0.0),
        stopped_after: Duration::ZERO,
    };
    found.stopped_after = subject.stop().await?;
    remove(&place);
    Ok(found)
}

async fn first_fire(receiver: &mut Receiver) -> Result<u64, Ending> {
    let until = now().after(FIRST_FIRE_MAX);
    while now() < until {
        let first_us = receiver.tally().await?.first_us;
        if first_us > 0 {
            return Ok(first_us);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(Ending::failed(format!("no webhook came within {FIRST_FIRE_MAX:?}")))
}

fn row(count: u32, empty: u64, found: &Found) -> Vec<Cell> {
    let Memory { resident, peak, own } = found.memory;
    let each = (count > 0).then(|| float(resident.saturating_sub(empty)) / f64::from(count));
    vec![
        Cell::count("triggers", "triggers", count),
        Cell::bytes("resident_bytes", "resident MB", resident),
        Cell::bytes("anonymous_bytes", "anonymous MB", own),
        Cell::bytes("peak_bytes", "peak MB", peak),
        Cell::number("bytes_per_trigger", "bytes/trigger", each, 0),
        Cell::number("ready_s", "ready s", Some(found.ready_after.as_secs_f64()), 2),
        Cell::number("first_fire_s", "first fire s", Some(found.fired_after.as_secs_f64()), 2),
        Cell::number("start_cpu_s", "CPU s", Some(float(found.cpu_us) / 1e6), 2),
    ]
}

//! What does a server cost while nothing is due?
//!
//! A store numbers its commits, so how many a server made can be seen once it has stopped. Starting and stopping
//! take some too: a server that is stopped as soon as it is ready shows how many, and these are taken away.

use std::path::Path;
use std::time::Duration;

use super::args::IdleArgs;
use super::crowd::{Crowd, When};
use super::fill::{Actions, fill, next_version};
use super::machine::About;
use super::report::{Cell, Report, float};
use super::subject::Subject;
use super::usage::{Look, Memory, Spent};
use super::{Bench, now};
use crate::exit::Ending;

const ACTION_BYTES: u16 = 64;

/// How long a server gets to come to rest.
const REST: Duration = Duration::from_secs(3);

pub(super) async fn idle(typed: &IdleArgs) -> Result<Report, Ending> {
    let mut bench = Bench::new(&typed.common)?;
    let mut report = Report::new(About::this(bench.path()));
    let place = bench.place();
    let crowd = Crowd { when: When::calm(now()), first: 0, len: typed.count };
    let nobody = ["127.0.0.1:9".parse().expect("an address")];
    let actions = Actions { hosts: &nobody, bytes: ACTION_BYTES };
    fill(&bench, &place, &[crowd], now(), actions).await?;
    // The first start makes what later ones find.
    rest(&bench, &place, Duration::ZERO).await?;
    let (begin_stop, _) = counted(&bench, &place, Duration::ZERO).await?;
    let length = Duration::from_secs(typed.seconds.into());
    let (all, idle) = counted(&bench, &place, length).await?;
    let writes = float(all.saturating_sub(begin_stop)) / length.as_secs_f64();
    let share = float(idle.spent.processes_us[0]) / (idle.spent.elapsed.as_secs_f64() * 1e6);
    report.others(idle.spent.others);
    report.add(
        "idle",
        vec![vec![
            Cell::count("triggers", "triggers", typed.count),
            Cell::number("cpu_percent", "% of a core", Some(share * 100.0), 3),
            Cell::number("writes_per_s", "store writes/s", Some(writes), 2),
            Cell::count("shard_commits", "of these by shards", idle.commits),
            Cell::bytes("resident_bytes", "resident MB", idle.memory.resident),
        ]],
    );
    report.note(format!("threads: {}", idle.spent.threads()));
    Ok(report)
}

/// What a server at rest used.
struct Idle {
    spent: Spent,
    memory: Memory,
    commits: u64,
}

/// Commits of a server from its start to its stop, with so long a rest between.
async fn counted(bench: &Bench, place: &Path, length: Duration) -> Result<(u64, Idle), Ending> {
    let before = next_version(place).await?;
    let idle = rest(bench, place, length).await?;
    let after = next_version(place).await?;
    // The second look is a commit itself.
    Ok((after.0 - before.0 - 1, idle))
}

/// Starts a server, lets it rest, and stops it.
async fn rest(bench: &Bench, place: &Path, length: Duration) -> Result<Idle, Ending> {
    bench.progress.show("starting a server");
    let subject = Subject::start(place).await?;
    bench.wait(REST, "letting the server come to rest").await;
    let before = subject.metrics().await?;
    let look = Look::at(&[subject.pid()]);
    bench.wait(length, "measuring").await;
    let spent = Look::at(&[subject.pid()]).since(&look);
    let commits = subject.metrics().await?.commits() - before.commits();
    let memory = Memory::of(subject.pid());
    subject.stop().await?;
    Ok(Idle { spent, memory, commits })
}

//! How many webhooks per second, end to end and recorded durably?
//!
//! More triggers are due every second than can be done, so the server is never idle; what counts is what it has
//! recorded as succeeded. It takes turns with the bare loop, because the machine is not the same from one minute to
//! the next. Then it is asked for less than it can do, to see what a commit is shared by.

use std::net::SocketAddr;
use std::time::Duration;

use store::clock::Stopwatch;

use super::args::FiresArgs;
use super::bare::{self, Sent, Until};
use super::cluster::{Cluster, empty, open_empty};
use super::crowd::{Crowd, When};
use super::fill::{self, Actions, fill, fill_store};
use super::machine::About;
use super::receiver::{Receiver, Tally};
use super::report::{Cell, Report, float};
use super::usage::{Look, Spent};
use super::{Bench, now, remove};
use crate::triggers::Ending;

const ACTION_BYTES: u16 = 64;

/// For connections to be made and catching up to be over.
const WARM_UP: Duration = Duration::from_secs(3);

/// For several servers to share the shards before anything is due.
const SHARING: Duration = Duration::from_secs(20);

/// What a server did while it was watched.
struct Fired {
    recorded: u64,
    not_succeeded: u64,
    commits: u64,
    /// Scans and commits of the store, of all parts of the server.
    operations: u64,
    waiting: u64,
    tally: Tally,
    spent: Spent,
    /// From one look at the server's metrics to the other: a busy server takes its time to answer.
    elapsed: Duration,
    stopped_after: Duration,
}

impl Fired {
    fn per_second(&self) -> f64 {
        float(self.recorded) / self.elapsed.as_secs_f64()
    }

    fn commits_per_1000(&self) -> f64 {
        float(self.commits) * 1_000.0 / float(self.recorded.max(1))
    }

    fn operations_per_1000(&self) -> f64 {
        float(self.operations) * 1_000.0 / float(self.recorded.max(1))
    }

    /// What a fire cost: all servers together, and the receiver.
    fn each_us(&self) -> (f64, f64) {
        let (receiver, servers) =
            self.spent.processes_us.split_last().expect("both were looked at");
        let each = |us: u64| float(us) / float(self.recorded.max(1));
        (each(servers.iter().sum()), each(*receiver))
    }
}

pub(super) async fn fires(typed: &FiresArgs) -> Result<Report, Ending> {
    let mut bench = Bench::new(&typed.common)?;
    let mut receiver = Receiver::start(typed.target.hosts).await?;
    let mut report = Report::new(About::this(&bench.watchbell, bench.path()));
    if typed.on.store.is_some() {
        report.on_engine();
    }
    let mut rounds = Vec::new();
    for round in 1..=typed.rounds {
        bench.progress.show(format_args!("round {round} of {}", typed.rounds));
        let fired = one(&mut bench, &mut receiver, typed, typed.offered).await?;
        let sent = bare(&mut receiver, &bench, typed.seconds, &mut report).await?;
        rounds.push((fired, sent));
    }
    let mut rates = Vec::new();
    for rate in &typed.rates {
        rates.push((*rate, one(&mut bench, &mut receiver, typed, *rate).await?));
    }
    for fired in rounds.iter().map(|(fired, _)| fired).chain(rates.iter().map(|(_, fired)| fired)) {
        report.others(fired.spent.others);
        if typed.on.servers == 1 {
            // Of several each hands over what it has, as fast as the others can take it.
            report.stopped(fired.stopped_after);
        }
    }
    full_speed(&mut report, &rounds, typed);
    let rows = rates.iter().map(|(rate, fired)| rate_row(u64::from(*rate).to_string(), fired));
    let full = rounds.iter().map(|(fired, _)| rate_row("full speed".into(), fired));
    report.add("commits", rows.chain(full).collect());
    report.note(
        "Recorded: succeeded, and durable in the store. Commits are those of shards, several together; store operations are all scans and commits, also those of the session and of the past that is merged.",
    );
    Ok(report)
}

/// A fresh store with so many triggers that are due every second, and a server on it.
async fn one(
    bench: &mut Bench,
    receiver: &mut Receiver,
    typed: &FiresArgs,
    rate: u32,
) -> Result<Fired, Ending> {
    let length = Duration::from_secs(typed.seconds.into());
    let place = bench.place();
    let crowd = Crowd { when: When::Spread { interval_s: 1 }, first: 0, len: rate };
    let mut begin = fill::begin(rate);
    let actions = Actions { hosts: &receiver.hosts, bytes: ACTION_BYTES };
    let cluster = match &typed.on.store {
        None => {
            fill(bench, &place, &[crowd], begin, actions).await?;
            Cluster::on_file(bench, &place).await?
        }
        Some(url) => {
            let store = open_empty(url).await?;
            if typed.on.servers > 1 {
                begin = begin.after(SHARING);
            }
            fill_store(bench, store, &[crowd], begin, actions).await?;
            Cluster::start(bench, url, typed.on.servers).await?
        }
    };
    bench.wait_until(begin.max(now()).after(WARM_UP), "warming up").await;
    let mut pids = cluster.pids();
    pids.push(receiver.pid());
    receiver.forget().await?;
    let look = Look::at(&pids);
    let before = cluster.metrics().await?;
    let watch = Stopwatch::start();
    bench.wait(length, "measuring").await;
    let spent = Look::at(&pids).since(&look);
    let after = cluster.metrics().await?;
    let elapsed = watch.elapsed();
    let tally = receiver.tally().await?;
    let stopped_after = cluster.stop().await?;
    remove(&place);
    if let Some(url) = &typed.on.store {
        empty(url).await?;
    }
    Ok(Fired {
        recorded: after.succeeded() - before.succeeded(),
        not_succeeded: after.not_succeeded() - before.not_succeeded(),
        commits: after.commits() - before.commits(),
        operations: after.store_operations() - before.store_operations(),
        waiting: after.waiting(),
        tally,
        spent,
        elapsed,
        stopped_after,
    })
}

/// What the bare loop did, with the bytes of each request.
struct Bare {
    sent: Sent,
    bytes: u64,
}

async fn bare(
    receiver: &mut Receiver,
    bench: &Bench,
    seconds: u16,
    report: &mut Report,
) -> Result<Bare, Ending> {
    bench.progress.show("measuring the bare loop");
    receiver.forget().await?;
    let look = Look::at(&[receiver.pid()]);
    let hosts: &[SocketAddr] = &receiver.hosts;
    let sent = bare::measure(hosts, ACTION_BYTES, Until::Seconds(seconds.into())).await?;
    let used = Look::at(&[receiver.pid()]).since(&look);
    let own = float(sent.cpu_us) / (used.elapsed.as_secs_f64() * 1e6);
    report.others((used.others - own).max(0.0));
    let tally = receiver.tally().await?;
    if tally.count != sent.count {
        report.note(format!(
            "WRONG: the bare loop says that it sent {}, and {} came",
            sent.count, tally.count
        ));
    }
    Ok(Bare { sent, bytes: tally.bytes / tally.count.max(1) })
}

fn full_speed(report: &mut Report, rounds: &[(Fired, Bare)], typed: &FiresArgs) {
    let mut ratios = Vec::new();
    let mut rows = Vec::new();
    for (round, (fired, bare)) in rounds.iter().enumerate() {
        let bare_per_second = float(bare.sent.count) * 1e6 / float(bare.sent.elapsed_us.max(1));
        let ratio = fired.per_second() / bare_per_second;
        ratios.push(ratio);
        let arrived = float(fired.tally.count) / fired.spent.elapsed.as_secs_f64();
        let (servers_us, receiver_us) = fired.each_us();
        let bare_us = float(bare.sent.cpu_us) / float(bare.sent.count.max(1));
        rows.push(vec![
            Cell::count("round", "round", round as u64 + 1),
            Cell::number("recorded_per_s", "recorded/s", Some(fired.per_second()), 0),
            Cell::number("arrived_per_s", "arrived/s", Some(arrived), 0),
            Cell::number("bare_per_s", "bare loop/s", Some(bare_per_second), 0),
            Cell::number("ratio", "ratio", Some(ratio), 2),
            Cell::number("cpu_us_per_fire", "CPU µs/fire", Some(servers_us), 1),
            Cell::number("receiver_us_per_fire", "receiver µs", Some(receiver_us), 1),
            Cell::number("bare_cpu_us", "bare µs", Some(bare_us), 1),
            Cell::count("bytes", "bytes", fired.tally.bytes / fired.tally.count.max(1)),
            Cell::count("bare_bytes", "bare bytes", bare.bytes),
        ]);
        if fired.per_second() > f64::from(typed.offered) * 0.95 {
            report.note(
                "WRONG: all that was offered was done, so this is not full speed: raise --offered",
            );
        }
        if fired.not_succeeded > 0 {
            report.note(format!(
                "round {}: {} slots did not succeed",
                round + 1,
                fired.not_succeeded
            ));
        }
        report.note(format!(
            "round {}: {}; {} waited",
            round + 1,
            fired.spent.threads(),
            fired.waiting
        ));
    }
    report.add("fires", rows);
    ratios.sort_by(f64::total_cmp);
    if let [least, .., most] = ratios[..] {
        let usual = ratios[ratios.len() / 2];
        report.note(format!("ratio to the bare loop: {usual:.2} ({least:.2} to {most:.2})"));
    }
}

fn rate_row(rate: String, fired: &Fired) -> Vec<Cell> {
    let commits = float(fired.commits) / fired.elapsed.as_secs_f64();
    vec![
        Cell::word("asked_per_s", "asked/s", rate),
        Cell::number("recorded_per_s", "recorded/s", Some(fired.per_second()), 0),
        Cell::number("commits_per_s", "commits/s", Some(commits), 1),
        Cell::number("commits_per_1000", "commits/1,000 fires", Some(fired.commits_per_1000()), 1),
        Cell::number(
            "store_operations_per_1000",
            "store operations/1,000",
            Some(fired.operations_per_1000()),
            1,
        ),
        Cell::number("cpu_us_per_fire", "CPU µs/fire", Some(fired.each_us().0), 1),
    ]
}

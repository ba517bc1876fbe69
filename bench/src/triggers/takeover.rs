//! For how long have triggers no server, when theirs is killed and when it leaves in order?
//!
//! Two servers share a store with triggers that are not due. What the other one says about itself tells when it has all
//! of them: a trigger counts from when its shard is served.

use std::time::Duration;

use store::clock::Stopwatch;

use super::args::TakeoverArgs;
use super::cluster::{Cluster, empty, open_empty};
use super::crowd::{Crowd, When};
use super::fill::{Actions, fill_store};
use super::machine::About;
use super::report::{Cell, Report};
use super::{Bench, now};
use crate::triggers::Ending;

const ACTION_BYTES: u16 = 64;

/// How long a take-over may last before it counts as one that does not happen.
const TAKEN_MAX: Duration = Duration::from_secs(120);

/// How one of two servers goes.
#[derive(Clone, Copy, PartialEq)]
enum Going {
    Killed,
    Stopped,
}

pub(super) async fn takeover(typed: &TakeoverArgs) -> Result<Report, Ending> {
    let bench = Bench::new(&typed.common)?;
    let mut report = Report::new(About::this(&bench.watchbell, bench.path()));
    report.on_engine();
    let mut rows = Vec::new();
    for count in &typed.count {
        rows.extend(one(&bench, typed, *count).await?);
    }
    report.add("takeover", rows);
    report.note(
        "From the kill, or the word to stop, until the other server serves every trigger; the session is over 3 s after its last renewal.",
    );
    Ok(report)
}

/// So many triggers for each of two servers.
async fn one(bench: &Bench, typed: &TakeoverArgs, count: u32) -> Result<Vec<Vec<Cell>>, Ending> {
    let total = count * 2;
    let crowd = Crowd { when: When::calm(now()), first: 0, len: total };
    let nobody = ["127.0.0.1:9".parse().expect("an address")];
    let actions = Actions { hosts: &nobody, bytes: ACTION_BYTES };
    let store = open_empty(&typed.store).await?;
    fill_store(bench, store, &[crowd], now(), actions).await?;
    let mut cluster = Cluster::start(bench, &typed.store, 2).await?;
    let mut rows = Vec::new();
    for going in [Going::Killed, Going::Stopped] {
        let mut took = Vec::new();
        let mut most = 0;
        for round in 1..=typed.rounds {
            bench
                .progress
                .show(format_args!("{count} triggers each, round {round} of {}", typed.rounds));
            let (name, victim) = cluster.first();
            most = most.max(victim.metrics().await?.scheduled());
            let watch = Stopwatch::start();
            match going {
                Going::Killed => victim.kill().await?,
                Going::Stopped => drop(victim.stop().await?),
            }
            while cluster.metrics().await?.scheduled() < u64::from(total) {
                if watch.elapsed() > TAKEN_MAX {
                    return Err(Ending::failed("the other server does not take over: see above"));
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            took.push(watch.elapsed());
            cluster.join(bench, &typed.store, &name).await?;
            cluster.shared().await?;
        }
        rows.push(row(going, most, took));
    }
    cluster.stop().await?;
    empty(&typed.store).await?;
    Ok(rows)
}

fn row(going: Going, most: u64, mut took: Vec<Duration>) -> Vec<Cell> {
    took.sort_unstable();
    let ms = |took: Duration| Some(took.as_secs_f64() * 1_000.0);
    let how = match going {
        Going::Killed => "killed",
        Going::Stopped => "stopped in order",
    };
    vec![
        Cell::count("triggers", "triggers lost, at most", most),
        Cell::word("how", "server", how),
        Cell::count("rounds", "rounds", took.len() as u64),
        Cell::number("least_ms", "least ms", ms(took[0]), 0),
        Cell::number("usual_ms", "usual ms", ms(took[took.len() / 2]), 0),
        Cell::number("most_ms", "most ms", ms(took[took.len() - 1]), 0),
    ]
}

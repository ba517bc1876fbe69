//! What do servers cost while nothing is due?

use std::time::Duration;

use super::args::IdleArgs;
use super::cluster::{Cluster, empty, open_empty};
use super::crowd::{Crowd, When};
use super::fill::{Actions, fill, fill_store};
use super::machine::About;
use super::report::{Cell, Report, float};
use super::usage::{Look, Memory};
use super::{Bench, now};
use crate::triggers::Ending;

const ACTION_BYTES: u16 = 64;

/// How long servers get to come to rest: whoever takes a shard looks through its past.
const REST: Duration = Duration::from_secs(20);

pub(super) async fn idle(typed: &IdleArgs) -> Result<Report, Ending> {
    let mut bench = Bench::new(&typed.common)?;
    let mut report = Report::new(About::this(&bench.watchbell, bench.path()));
    let place = bench.place();
    let crowd = Crowd { when: When::calm(now()), first: 0, len: typed.count };
    let nobody = ["127.0.0.1:9".parse().expect("an address")];
    let actions = Actions { hosts: &nobody, bytes: ACTION_BYTES };
    let cluster = match &typed.on.store {
        None => {
            fill(&bench, &place, &[crowd], now(), actions).await?;
            // The first start makes what later ones find.
            Cluster::on_file(&bench, &place).await?.stop().await?;
            Cluster::on_file(&bench, &place).await?
        }
        Some(url) => {
            report.on_engine();
            fill_store(&bench, open_empty(url).await?, &[crowd], now(), actions).await?;
            Cluster::start(&bench, url, typed.on.servers).await?
        }
    };
    bench.wait(REST, "letting the servers come to rest").await;
    let pids = cluster.pids();
    let (look, before) = (Look::at(&pids), cluster.metrics().await?);
    bench.wait(Duration::from_secs(typed.seconds.into()), "measuring").await;
    let (spent, after) = (Look::at(&pids).since(&look), cluster.metrics().await?);
    let resident = pids.iter().map(|pid| Memory::of(*pid).resident).max().unwrap_or_default();
    cluster.stop().await?;
    if let Some(url) = &typed.on.store {
        empty(url).await?;
    }
    let (seconds, servers) = (spent.elapsed.as_secs_f64(), float(u64::from(typed.on.servers)));
    let busy = float(spent.processes_us.iter().sum()) / (seconds * 1e6 * servers) * 100.0;
    let per_second = |count: u64| Some(float(count) / (seconds * servers));
    let writes = after.store_commits() - before.store_commits();
    let reads = after.store_operations() - before.store_operations() - writes;
    report.others(spent.others);
    report.add(
        "idle",
        vec![vec![
            Cell::count("triggers", "triggers", typed.count),
            Cell::count("servers", "servers", typed.on.servers),
            Cell::number("cpu_percent", "% of a core each", Some(busy), 3),
            Cell::number("writes_per_s", "store writes/s each", per_second(writes), 2),
            Cell::number("reads_per_s", "store reads/s each", per_second(reads), 2),
            Cell::count("shard_commits", "writes by shards", after.commits() - before.commits()),
            Cell::bytes("resident_bytes", "resident MB, at most", resident),
        ]],
    );
    report.note(format!("threads of the first: {}", spent.threads()));
    Ok(report)
}

//! `watchbell cluster`.

use std::time::Duration;

use client::Client;
use client::cluster::{Cluster, Drain, Node, Orphan};
use engine::limits::DRAIN_WAIT_MAX;

use crate::args::system::ClusterDrainArgs;
use crate::args::trigger::ServerArgs;
use crate::exit::Ending;
use crate::progress::Progress;
use crate::table;
use crate::trigger::print;
use crate::value::escape;

/// How often to look whether it has.
const LOOK: Duration = Duration::from_millis(200);

/// Shards that a line names.
const SHARDS_SHOWN: usize = 12;

pub(crate) async fn status(typed: &ServerArgs) -> Result<(), Ending> {
    let cluster = typed.client()?.cluster().await?;
    print(typed.output, &cluster, || text(&cluster))
}

pub(crate) async fn drain(typed: &ClusterDrainArgs) -> Result<(), Ending> {
    let client = typed.server.client()?;
    let node = &typed.node;
    if typed.undo {
        let told = client.undrain(node).await?;
        return print(typed.server.output, &told, || {
            format!("{} takes shards again\n", escape(node))
        });
    }
    let drain = client.drain(node).await?;
    let left = hand_over(&client, drain).await?;
    if !left.shards.is_empty() {
        return Err(Ending::failed(format!(
            "{} still has {} after {}: is there another server that can have them? watchbell cluster status shows it; it goes on \
             handing over, and watchbell cluster drain {} --undo calls it off",
            escape(node),
            count(left.shards.len()),
            humane(DRAIN_WAIT_MAX),
            escape(node)
        )));
    }
    print(typed.server.output, &left, || {
        format!("{} has no shard, and takes none until --undo or its next start\n", escape(node))
    })
}

/// Waits until a server has no shard, or for long enough. What it has then.
async fn hand_over(client: &Client, mut drain: Drain) -> Result<Drain, Ending> {
    let progress = Progress::on_stderr();
    let waited = async {
        while !drain.shards.is_empty() {
            progress.show(format_args!(
                "{} has {}",
                escape(&drain.node),
                count(drain.shards.len())
            ));
            tokio::time::sleep(LOOK).await;
            let cluster = client.cluster().await?;
            let node = cluster.nodes.into_iter().find(|node| node.name == drain.node);
            // One that is gone has none.
            drain.shards = node.and_then(|node| node.server).map_or(Vec::new(), |node| node.shards);
        }
        Ok(())
    };
    match tokio::time::timeout(DRAIN_WAIT_MAX, waited).await {
        Ok(Err(why)) => Err(why),
        Ok(Ok(())) | Err(_) => Ok(drain),
    }
}

fn count(shards: usize) -> String {
    if shards == 1 { "1 shard".to_owned() } else { format!("{shards} shards") }
}

fn humane(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

fn text(cluster: &Cluster) -> String {
    let mut facts = table::plain();
    facts.add_row(["cluster".to_owned(), escape(&cluster.id)]);
    facts.add_row(["shards".to_owned(), cluster.shards.to_string()]);
    let class = format!("{}: {}", escape(&cluster.store_class), escape(&cluster.store_means));
    facts.add_row(["store class".to_owned(), class]);
    let mut text = format!("{}\n{}", table::finish(facts, 2), nodes(&cluster.nodes));
    for line in trouble(cluster) {
        text.push_str(&table::folded(&format!("\n{line}")));
        text.push('\n');
    }
    text
}

fn nodes(nodes: &[Node]) -> String {
    let header = ["node", "state", "roles", "shards", "clock ms", "version"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut places = vec![["node", "url"].map(str::to_owned).to_vec()];
    for node in nodes {
        let server = node.server.as_ref();
        let of_server = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        rows.push(vec![
            escape(&node.name),
            of_server(server.map(|server| server.state.as_str().to_owned())),
            escape(&node.roles.join(",")),
            of_server(server.map(|server| server.shards.len().to_string())),
            of_server(server.map(|server| signed(server.clock_ahead_ms))),
            of_server(server.map(|server| escape(&server.version))),
        ]);
        places.extend(node.url.as_ref().map(|url| vec![escape(&node.name), escape(url)]));
    }
    table::cut(&mut rows, 0);
    let rows = table::rows(rows, usize::MAX);
    if places.len() == 1 {
        return rows;
    }
    format!("{rows}\n{}", table::rows(places, usize::MAX))
}

/// How far a clock is ahead, or behind.
fn signed(ahead_ms: i64) -> String {
    if ahead_ms > 0 { format!("+{ahead_ms}") } else { ahead_ms.to_string() }
}

/// What a person should know, a sentence each.
fn trouble(cluster: &Cluster) -> Vec<String> {
    let mut lines = Vec::new();
    if !cluster.orphans.is_empty() {
        let shards: Vec<u16> = cluster.orphans.iter().map(|Orphan { shard, .. }| *shard).collect();
        let since = cluster.orphans.iter().filter_map(|orphan| orphan.since).min();
        let since = since.map_or_else(String::new, |since| format!(", some since {since}"));
        lines.push(format!("nobody has {}{since}: nothing of them fires", list(&shards)));
    }
    for node in &cluster.nodes {
        let Some(server) = &node.server else { continue };
        if !server.unable.is_empty() {
            let name = escape(&node.name);
            lines.push(format!("{name} cannot run {}: its log says why", list(&server.unable)));
        }
        if server.state == client::cluster::NodeState::Apart {
            let (name, by) = (escape(&node.name), signed(server.clock_ahead_ms));
            lines.push(format!(
                "the clock of {name} is {by} ms from the median: it has no shard until it is set"
            ));
        }
    }
    lines
}

fn list(shards: &[u16]) -> String {
    let shown: Vec<String> = shards.iter().take(SHARDS_SHOWN).map(u16::to_string).collect();
    let more = if shards.len() > SHARDS_SHOWN { ", …" } else { "" };
    format!("{} ({}{more})", count(shards.len()), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use client::cluster::{NodeState, ServerNode};

    use super::*;

    #[test]
    fn a_cluster_is_shown_on_lines_that_fit_a_terminal_with_what_is_wrong_beneath() {
        let node = |name: &str, state, shards: Vec<u16>, unable, clock_ahead_ms| Node {
            name: name.to_owned(),
            url: Some(format!("https://{name}.watchbell.example.com:7400")),
            roles: vec!["api".to_owned(), "schedule".to_owned()],
            ttl_ms: 3_000,
            seen: "2027-01-15T08:00:00Z".parse().unwrap(),
            server: Some(ServerNode {
                state,
                version: "0.1.0".to_owned(),
                shards,
                unable,
                clock_ahead_ms,
            }),
        };
        let cluster = Cluster {
            id: "0000000000000007".to_owned(),
            shards: 32,
            store_class: "A".to_owned(),
            store_means: "acknowledged writes survive".to_owned(),
            nodes: vec![
                node("watchbell-1", NodeState::Ready, (0..30).collect(), vec![], 3),
                node("watchbell-2", NodeState::Apart, vec![], vec![30], -4_200),
            ],
            orphans: vec![
                Orphan { shard: 30, since: Some("2027-01-15T08:00:00Z".parse().unwrap()) },
                Orphan { shard: 31, since: None },
            ],
        };
        let text = text(&cluster);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in [
            "watchbell-1  ready  api,schedule  30      +3        0.1.0",
            "nobody has 2 shards (30, 31), some since 2027-01-15T08:00:00Z",
            "watchbell-2 cannot run 1 shard (30)",
            "the clock of watchbell-2 is -4200 ms from the median",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

//! `watchbell cluster`.

use client::cluster::Cluster;

use crate::args::system::ClusterStatusArgs;
use crate::exit::Ending;
use crate::table;
use crate::trigger::print;
use crate::value::escape;

pub(crate) async fn status(typed: &ClusterStatusArgs) -> Result<(), Ending> {
    let cluster = typed.server.client()?.cluster().await?;
    print(typed.server.output, &cluster, || text(&cluster))
}

fn text(cluster: &Cluster) -> String {
    let mut facts = table::plain();
    facts.add_row(["cluster".to_owned(), escape(&cluster.id)]);
    facts.add_row(["shards".to_owned(), cluster.shards.to_string()]);
    let class = format!("{}: {}", escape(&cluster.store_class), escape(&cluster.store_means));
    facts.add_row(["store class".to_owned(), class]);
    let mut nodes = table::plain();
    nodes.set_header(["node", "roles", "url", "seen", "lease ms"]);
    for node in &cluster.nodes {
        nodes.add_row([
            escape(&node.name),
            escape(&node.roles.join(", ")),
            node.url.as_deref().map_or_else(|| "-".to_owned(), escape),
            node.seen.to_string(),
            table::grouped(node.ttl_ms),
        ]);
    }
    format!("{}\n{}", table::finish(facts, 2), table::finish(nodes, 4))
}

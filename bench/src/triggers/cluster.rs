//! Servers that share a store.

use std::path::Path;
use std::time::Duration;

use engine::assignment::ranking;
use engine::id::ShardId;
use engine::limits::SHARDS_DEFAULT;
use store::clock::Stopwatch;
use store::conformance;
use store::{Range, Store, StoreUrl, open_or_create};

use super::Bench;
use super::metrics::Metrics;
use super::subject::Subject;
use crate::triggers::Ending;

/// How long servers may take to share the shards among them.
const SHARED_MAX: Duration = Duration::from_secs(60);

/// Servers on one store, measured together.
pub(super) struct Cluster {
    members: Vec<(String, Subject)>,
}

impl Cluster {
    /// One server on a store of its own.
    pub(super) async fn on_file(bench: &Bench, store: &Path) -> Result<Self, Ending> {
        Ok(Self { members: vec![("dev".to_owned(), Subject::start(bench, store).await?)] })
    }

    /// So many servers on a store on the network, once each has its shards.
    pub(super) async fn start(bench: &Bench, url: &str, count: u16) -> Result<Self, Ending> {
        let mut cluster = Self { members: Vec::new() };
        for number in 1..=count {
            cluster.join(bench, url, &format!("bench-{number}")).await?;
        }
        cluster.shared().await?;
        Ok(cluster)
    }

    /// One more server, of this name.
    pub(super) async fn join(
        &mut self,
        bench: &Bench,
        url: &str,
        name: &str,
    ) -> Result<(), Ending> {
        let subject = Subject::start_on(bench, url, name).await?;
        self.members.push((name.to_owned(), subject));
        Ok(())
    }

    /// Takes the one that came first out of it, as it is.
    pub(super) fn first(&mut self) -> (String, Subject) {
        self.members.remove(0)
    }

    /// Waits until every server has the shards that it should have, and no other.
    pub(super) async fn shared(&self) -> Result<(), Ending> {
        let names: Vec<&str> = self.members.iter().map(|(name, _)| name.as_str()).collect();
        let watch = Stopwatch::start();
        for (name, subject) in &self.members {
            let is_its = |shard: &u16| ranking(ShardId(*shard), &names)[0] == name;
            let due = (0..SHARDS_DEFAULT).filter(is_its).count() as u64;
            while subject.metrics().await?.shards() != due {
                if watch.elapsed() > SHARED_MAX {
                    let many = SHARED_MAX.as_secs();
                    return Err(Ending::failed(format!(
                        "the servers have not shared the shards after {many} s"
                    )));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|(_, subject)| subject.pid()).collect()
    }

    /// What they say about themselves, added up.
    pub(super) async fn metrics(&self) -> Result<Metrics, Ending> {
        let mut all = Metrics::default();
        for (_, subject) in &self.members {
            all.add(subject.metrics().await?);
        }
        Ok(all)
    }

    /// Stops all of them in order; says how long the slowest took.
    pub(super) async fn stop(self) -> Result<Duration, Ending> {
        let mut longest = Duration::ZERO;
        for (_, subject) in self.members {
            longest = longest.max(subject.stop().await?);
        }
        Ok(longest)
    }
}

/// A store on the network that has nothing in it: it is emptied afterwards.
pub(super) async fn open_empty(url: &str) -> Result<Store, Ending> {
    let url = StoreUrl::parse(url)?;
    let store = open_or_create(&url).await?;
    if !store.scan(Range::all(), 1).await?.entries.is_empty() {
        return Err(Ending::failed(format!(
            "--store: {url} is not empty, and would be emptied: give another database or prefix"
        )));
    }
    Ok(store)
}

/// Empties such a store again.
pub(super) async fn empty(url: &str) -> Result<(), Ending> {
    let store = store::open_existing(&StoreUrl::parse(url)?).await?;
    let swept = conformance::sweep(&store, "").await;
    swept.map(drop).map_err(|why| Ending::failed(format!("the store could not be emptied: {why}")))
}

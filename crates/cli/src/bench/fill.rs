//! Fills a store with triggers, as a server would have left them.
//!
//! A creation each through the API would take minutes and measure something else. The records are the engine's
//! own, so a server reads them as its own.

use std::net::SocketAddr;

use engine::id::{ProjectId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::SHARDS_DEFAULT;
use engine::record::encode;
use engine::shard::record::{FORMAT, NameRecord, TriggerRecord, name_key, trigger_key};
use engine::trigger::{Draft, ScheduleDraft, Texts, WebhookDraft};
use serde_json::value::to_raw_value;
use store::{Commit, CommitError, Key, Store, Version};
use tokio::task::JoinSet;

use super::now;
use crate::exit::Ending;

/// Records in a commit, if the store takes as many.
const COMMIT_LEN: usize = 500;

/// Commits on their way at once.
const COMMITS_MAX: usize = 8;

/// Writes so many triggers that are due every second, and returns the instant from which on they are.
pub(super) async fn fill(
    store: Store,
    count: u32,
    hosts: &[SocketAddr],
) -> Result<Instant, Ending> {
    let born = now();
    // They do not begin before their server: half a minute for a million, and a little.
    let begin = Instant::from_second(born.second() + 5 + i64::from(count) / 33_333);
    let len = COMMIT_LEN.min(store.limits().writes);
    let mut commits: JoinSet<Result<Version, CommitError>> = JoinSet::new();
    let mut records = (0..count).flat_map(|number| records(number, born, begin, hosts)).peekable();
    while records.peek().is_some() {
        let batch = records.by_ref().take(len);
        let commit = batch.fold(Commit::new(), |commit, (key, value)| commit.put(key, value));
        while commits.len() >= COMMITS_MAX {
            join(&mut commits).await?;
        }
        let store = store.clone();
        commits.spawn(async move { store.commit(commit).await });
    }
    while !commits.is_empty() {
        join(&mut commits).await?;
    }
    // Dropping a store waits for its threads.
    let dropped = tokio::task::spawn_blocking(move || drop(store)).await;
    dropped.map_err(|why| Ending::failed(why.to_string()))?;
    Ok(begin)
}

async fn join(commits: &mut JoinSet<Result<Version, CommitError>>) -> Result<(), Ending> {
    if let Some(written) = commits.join_next().await {
        written.map_err(|why| Ending::failed(why.to_string()))??;
    }
    Ok(())
}

/// A trigger, and the reservation of its name.
fn records(
    number: u32,
    born: Instant,
    begin: Instant,
    hosts: &[SocketAddr],
) -> [(Key, Vec<u8>); 2] {
    let name = format!("bell-{number:08}");
    let project = ProjectId::DEFAULT;
    let shard = ShardId::of(project, &name, SHARDS_DEFAULT);
    let serial = SerialId((born.0.unsigned_abs() << 20) + u64::from(number));
    let id = TriggerId { shard, project, serial };
    let host = hosts[number as usize % hosts.len()];
    let draft = Draft {
        schedule: Some(ScheduleDraft {
            every: Texts(vec!["1s".to_owned()]),
            phase: Some("0s".to_owned()),
            jitter: Some("1s".to_owned()),
            ..ScheduleDraft::default()
        }),
        webhook: Some(WebhookDraft {
            url: Some(format!("http://{host}/{name}")),
            ..WebhookDraft::default()
        }),
        name: Some(name.clone()),
        ..Draft::default()
    };
    let trigger = TriggerRecord {
        id,
        draft: to_raw_value(&draft).expect("plain structs with text keys always serialize"),
        created: born,
        written: born,
        author: "bench".to_owned(),
        revision: 1,
        generation: 1,
        since: begin,
    };
    let key = |text| Key::new(text).expect("our keys are short and printable");
    [
        (key(trigger_key(shard, serial)), encode(FORMAT, &trigger)),
        (key(name_key(project, &name)), encode(FORMAT, &NameRecord { id })),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::shard::Now;
    use engine::shard::record::HeadRecord;

    #[test]
    fn what_is_written_is_what_a_shard_reads() {
        let hosts = ["127.0.0.1:80".parse().unwrap()];
        let (born, begin) = (Instant(1_800_000_000_000), Instant(1_800_000_050_000));
        let [(key, value), _] = records(42, born, begin, &hosts);
        let shard = ShardId::of(ProjectId::DEFAULT, "bell-00000042", SHARDS_DEFAULT);
        let mut loading = engine::shard::Loading::begin(shard, 7, &HeadRecord::default());
        loading.trigger(key.as_str(), &value).unwrap();
        let now = Now { wall: born, steady: 0, random: 0 };
        let mut shard = loading.finish(now);
        shard.step(now, &|_| engine::shard::HostRoom::ALL);
        assert_eq!((shard.len(), shard.census().scheduled), (1, 1));
        assert_eq!(shard.unfinished(), 0, "nothing is due before its slots count");
    }
}

//! Fills a store with triggers, as a server would have left them.
//!
//! A million creations through the API would take minutes and measure something else. The records are the
//! engine's own, so a server reads them as its own; they are written in the order of keys, several commits at
//! once.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use engine::id::{ProjectId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::SHARDS_DEFAULT;
use engine::record::encode;
use engine::shard::record::{FORMAT, NameRecord, TriggerRecord, name_key, trigger_key};
use serde_json::value::to_raw_value;
use store::{Commit, Key, Store, StoreUrl, Version, open_or_create};
use tokio::task::JoinSet;

use super::crowd::{Crowd, When, draft, name};
use super::{Bench, now};
use crate::triggers::Ending;

/// Records in a commit, if the store takes as many.
const COMMIT_LEN: usize = 500;

/// Commits on their way at once.
const COMMITS_MAX: usize = 8;

/// What the actions of triggers are like.
#[derive(Clone, Copy)]
pub(super) struct Actions<'a> {
    pub(super) hosts: &'a [SocketAddr],
    pub(super) bytes: u16,
}

/// When triggers that are written from now on had better begin, so that they do not begin before their server:
/// half a minute for a million, and a little.
pub(super) fn begin(count: u32) -> Instant {
    Instant::from_second(now().second() + 5 + i64::from(count) / 33_333)
}

/// Makes a store with these triggers. Their slots count from `begin` on. Returns the version of the last commit.
pub(super) async fn fill(
    bench: &Bench,
    place: &Path,
    crowds: &[Crowd],
    begin: Instant,
    actions: Actions<'_>,
) -> Result<Version, Ending> {
    let store = open_or_create(&StoreUrl::File(place.to_owned())).await?;
    fill_store(bench, store, crowds, begin, actions).await
}

/// Fills this store.
pub(super) async fn fill_store(
    bench: &Bench,
    store: Store,
    crowds: &[Crowd],
    begin: Instant,
    actions: Actions<'_>,
) -> Result<Version, Ending> {
    let mut members = crowds
        .iter()
        .flat_map(|crowd| (crowd.first..crowd.first + crowd.len).map(|number| (crowd.when, number)))
        .map(|(when, number)| Member::new(when, number))
        .collect::<Vec<_>>();
    members.sort_unstable_by_key(|member| (member.shard, member.number));
    let total = members.len() * 2;
    let born = now();
    let triggers = members.iter().map(|member| member.trigger(born, begin, actions));
    let len = COMMIT_LEN.min(store.limits().writes);
    let mut writer = Writer { store, tasks: JoinSet::new(), last: Version(0) };
    let mut done = 0;
    let mut told = 0;
    // Names come after the triggers, in an order of their own: that of the numbers.
    let mut by_name: Vec<&Member> = members.iter().collect();
    by_name.sort_unstable_by_key(|member| member.number);
    let names = by_name.iter().map(|member| member.reservation(born));
    let mut records = triggers.chain(names).peekable();
    while records.peek().is_some() {
        let batch: Vec<(Key, Vec<u8>)> = records.by_ref().take(len).collect();
        done += batch.len();
        writer.write(batch).await?;
        if done - told >= 50_000 {
            told = done;
            bench.progress.show(format_args!("filling a store: {} %", done * 100 / total));
        }
    }
    writer.finish().await
}

struct Member {
    when: When,
    number: u32,
    shard: ShardId,
}

impl Member {
    fn new(when: When, number: u32) -> Self {
        let shard = ShardId::of(ProjectId::DEFAULT, &name(number), SHARDS_DEFAULT);
        Self { when, number, shard }
    }

    fn id(&self, born: Instant) -> TriggerId {
        let serial = SerialId((born.0.unsigned_abs() << 20) + u64::from(self.number));
        TriggerId { shard: self.shard, project: ProjectId::DEFAULT, serial }
    }

    fn trigger(&self, born: Instant, begin: Instant, actions: Actions<'_>) -> (Key, Vec<u8>) {
        let id = self.id(born);
        let draft = draft(self.when, self.number, actions.hosts, actions.bytes);
        let record = TriggerRecord {
            id,
            draft: to_raw_value(&draft).expect("plain structs with text keys always serialize"),
            created: born,
            written: born,
            author: "bench".to_owned(),
            revision: 1,
            generation: 1,
            since: self.when.since(begin),
        };
        (key(trigger_key(self.shard, id.serial)), encode(FORMAT, &record))
    }

    fn reservation(&self, born: Instant) -> (Key, Vec<u8>) {
        let record = NameRecord { id: self.id(born) };
        (key(name_key(ProjectId::DEFAULT, &name(self.number))), encode(FORMAT, &record))
    }
}

fn key(text: String) -> Key {
    Key::new(text).expect("our keys are short and printable")
}

/// Keeps several commits on their way.
struct Writer {
    store: Store,
    tasks: JoinSet<Result<Version, Ending>>,
    last: Version,
}

impl Writer {
    async fn write(&mut self, batch: Vec<(Key, Vec<u8>)>) -> Result<(), Ending> {
        while self.tasks.len() >= COMMITS_MAX {
            self.join().await?;
        }
        let commit =
            batch.into_iter().fold(Commit::new(), |commit, (key, value)| commit.put(key, value));
        let store = self.store.clone();
        self.tasks.spawn(async move { Ok(store.commit(commit).await?) });
        Ok(())
    }

    async fn join(&mut self) -> Result<(), Ending> {
        if let Some(written) = self.tasks.join_next().await {
            let version = written.map_err(|why| Ending::failed(why.to_string()))??;
            self.last = self.last.max(version);
        }
        Ok(())
    }

    /// Waits for all, and until the store has come to rest, so that its tidying is not measured.
    async fn finish(mut self) -> Result<Version, Ending> {
        while !self.tasks.is_empty() {
            self.join().await?;
        }
        let store = self.store;
        // Dropping it waits for its threads.
        let dropped = tokio::task::spawn_blocking(move || drop(store)).await;
        dropped.map_err(|why| Ending::failed(why.to_string()))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(self.last)
    }
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
        let member = Member::new(When::Spread { interval_s: 100 }, 42);
        let (key, value) = member.trigger(born, begin, Actions { hosts: &hosts, bytes: 64 });
        let mut loading = engine::shard::Loading::begin(member.shard, 7, &HeadRecord::default());
        loading.trigger(key.as_str(), &value).unwrap();
        let now = Now { wall: born, steady: 0, random: 0 };
        let mut shard = loading.finish(now);
        shard.step(now, &|_| engine::shard::HostLoad::Free);
        assert_eq!((shard.len(), shard.census().scheduled), (1, 1));
        assert_eq!(shard.unfinished(), 0, "nothing is due before its slots count");
    }
}

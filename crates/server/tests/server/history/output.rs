//! What runs printed is kept as long as the past, and less of it if there is too much.

use engine::id::{RunId, SerialId};
use engine::queue::output::{output_key, outputs};

use super::*;

const DAY_MS: i64 = 86_400_000;
const BYTES: usize = 1_000;

/// A store of one shard in which a run of each of the last days printed something, and the times of these.
async fn printed(days: i64) -> (Store, Vec<Instant>) {
    let store = Road::open(&Arc::new(MemoryStore::new()));
    let about = std::collections::BTreeMap::from([("id", 7_u64), ("shards", 1)]);
    let about = engine::record::encode(engine::record::Format(1), &about);
    store.commit(Commit::new().put(key("cluster/about".to_owned()), about)).await.unwrap();
    let now = store::machine::Machine::wall_us(&System) / 1_000;
    let now = i64::try_from(now).unwrap();
    let slots: Vec<Instant> = (0..days).rev().map(|day| Instant(now - day * DAY_MS)).collect();
    for (slot, number) in slots.iter().zip(1..) {
        let run = RunId { shard: SHARD, trigger: SerialId(number), slot: *slot, letters: 1 };
        let put = Commit::new().put(key(output_key(run)), vec![b'x'; BYTES]);
        store.commit(put).await.unwrap();
    }
    (store, slots)
}

/// Waits until exactly these are left.
async fn check_left(store: &Store, left: &[Instant]) {
    let expected: BTreeSet<String> = left.iter().map(|slot| format!("{:015}", slot.0)).collect();
    let prefix = outputs(SHARD);
    let slot = |key: String| key[prefix.len()..].split('/').next().unwrap().to_owned();
    until(store, async |store| {
        let slots: BTreeSet<String> = below(store, &prefix).await.into_iter().map(slot).collect();
        slots == expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_goes_when_its_day_does() {
    let (store, slots) = printed(20).await;
    let retention = Retention { age: Duration::from_secs(10 * 86_400), ..QUICK.retention };
    let served = Served::start(store.clone(), HistoryPace { retention, ..QUICK }).await;
    // To the day: of the tenth day before this one something may be left.
    let floor = (served.handle.now().0 - 10 * DAY_MS) / DAY_MS * DAY_MS;
    let left: Vec<Instant> = slots.into_iter().filter(|slot| slot.0 >= floor).collect();
    check_left(&store, &left).await;
    served.node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_too_much_output_the_oldest_goes() {
    let (store, slots) = printed(20).await;
    let output_bytes = 5 * BYTES as u64;
    let retention = Retention { output_bytes, ..QUICK.retention };
    let served = Served::start(store.clone(), HistoryPace { retention, ..QUICK }).await;
    check_left(&store, &slots[15..]).await;
    served.node.stop().await;
}

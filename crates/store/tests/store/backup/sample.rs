//! A small store with one of everything, and a machine whose clocks stand still until somebody waits.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::id::{ProjectId, QueueId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::lease::{Nonce, Reading};
use engine::past::{Line, Reason, Segment, Skipped};
use engine::queue::record::{
    QueueNameRecord, QueueRecord, QueueSettings, queue_key, queue_name_key,
};
use engine::record::{Format, encode};
use engine::shard::record::{
    FORMAT, HeadRecord, Mark, NameRecord, OpenRun, TriggerRecord, TriggerState, head_key, name_key,
    past_key, state_key, trigger_key,
};
use serde_json::value::{RawValue, to_raw_value};
use store::claim::{ClaimState, Head, SHARD_HEAD};
use store::cluster::ClusterIdentity;
use store::machine::Machine;
use store::{Commit, Key, Pending, Range, Store, Value};

pub(crate) const SHARDS: u16 = 3;
pub(crate) const WALL_US: u64 = 1_800_000_000_000_000;

/// The longest T of the sample.
pub(crate) const LONGEST: Duration = Duration::from_secs(4);

/// Waiting takes no time, and is remembered.
#[derive(Default)]
pub(crate) struct Still {
    slept: Mutex<Duration>,
    dice: AtomicU64,
}

impl Still {
    pub(crate) fn slept(&self) -> Duration {
        *self.slept.lock().unwrap()
    }
}

impl Machine for Still {
    fn reading(&self) -> Reading {
        Reading { boot: self.slept(), raw: self.slept() }
    }

    fn wall_us(&self) -> u64 {
        WALL_US
    }

    fn random(&self) -> u64 {
        self.dice.fetch_add(1, Ordering::Relaxed)
    }

    fn sleep(&self, length: Duration) -> Pending<'static, ()> {
        *self.slept.lock().unwrap() += length;
        Box::pin(std::future::ready(()))
    }
}

pub(crate) fn key(text: impl Into<String>) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn trigger(shard: u16, serial: u64, name: &str) -> TriggerRecord {
    let id =
        TriggerId { shard: ShardId(shard), project: ProjectId::DEFAULT, serial: SerialId(serial) };
    let draft = format!(r#"{{"name":"{name}","webhook":{{"url":"https://example.com/"}}}}"#);
    TriggerRecord {
        id,
        draft: RawValue::from_string(draft).unwrap(),
        created: Instant(1),
        written: Instant(1),
        author: "somebody".to_owned(),
        revision: 1,
        generation: 1,
        since: Instant(1),
    }
}

/// The head of a shard after its commit of this number.
pub(crate) fn head(number: u64, youngest: u64, open: &[(u64, i64)]) -> Head {
    let open = open
        .iter()
        .map(|(trigger, slot)| OpenRun { trigger: SerialId(*trigger), slot: Instant(*slot) });
    let record = HeadRecord {
        decided_through: Mark(Instant(9), SerialId(youngest)),
        open: open.collect(),
        sequence: 4,
        youngest: SerialId(youngest),
    };
    Head {
        format: SHARD_HEAD,
        session: Some("node/anna/00000000000000ab".to_owned().try_into().unwrap()),
        token: 100 + number,
        state: ClaimState::Held,
        number,
        nonce: Nonce(1),
        body: Some(to_raw_value(&record).unwrap()),
    }
}

pub(crate) fn segment() -> Vec<u8> {
    let skip = Skipped {
        trigger: SerialId(20),
        project: ProjectId::DEFAULT,
        at: Instant(2),
        from: Instant(1),
        to: Instant(2),
        count: 2,
        reason: Reason::Misfire,
        generation: 1,
    };
    Segment { lines: vec![Line::Skip(skip)] }.to_bytes()
}

/// One of everything. A claim in the rest is ahead of the clock.
pub(crate) async fn fill(store: &Store) {
    let mut commit = Commit::new()
        .put(ClusterIdentity::key(), ClusterIdentity { id: 7, shards: SHARDS }.to_value());
    for record in [trigger(0, 20, "chime"), trigger(2, 30, "gong")] {
        let (id, name) = (record.id, record.name().unwrap());
        commit = commit
            .put(key(trigger_key(id.shard, id.serial)), encode(FORMAT, &record))
            .put(key(name_key(id.project, &name)), encode(FORMAT, &NameRecord { id }));
    }
    let (shard, project, serial) = (ShardId(2), ProjectId::DEFAULT, SerialId(25));
    let queue = QueueRecord {
        id: QueueId { shard, project, serial },
        name: "mail".into(),
        settings: QueueSettings::default(),
        paused: None,
        overdue: None,
        failing: None,
        created: Instant(5),
        written: Instant(5),
        author: "x".to_owned(),
        revision: 1,
    };
    let named = QueueNameRecord { id: queue.id };
    let state = TriggerState { failures: 3, ..TriggerState::default() };
    let ahead = Head { format: Format(1), token: WALL_US + 5, body: None, ..head(3, 0, &[]) };
    let session = r#"{"format":1,"roles":[],"ttl_ms":3000,"beat":7,"nonce":"00000000000000ff","wall_us":5,"reads":1,"local":true}"#;
    let commit = commit
        .put(key(state_key(ShardId(0), SerialId(20))), encode(FORMAT, &state))
        .put(key(past_key(ShardId(0), 11)), segment())
        .put(key(head_key(ShardId(0))), head(12, 20, &[(20, 8)]).to_value())
        .put(key(head_key(ShardId(2))), head(1, 30, &[]).to_value())
        .put(key("shard/0/floor/all"), r#"{"format":1}"#)
        .put(key("shard/2/worker/future"), "not JSON")
        .put(key("election/default/watch"), ahead.to_value())
        .put(key("election/default/watch/wish"), r#"{"format":1,"token":3,"by":"x"}"#)
        .put(key("node/anna/00000000000000ab"), session)
        .put(key("node/~longest"), format!(r#"{{"format":1,"ttl_ms":{}}}"#, LONGEST.as_millis()))
        .put(key("owner/0"), r#"{"format":1,"session":"node/anna/00000000000000ab","token":112}"#)
        .put(key("project/x"), "{\n}")
        .put(key("recall/0/ab"), r#"{"format":1}"#)
        .put(key("recalled"), "x")
        .put(key("shared"), vec![0_u8, 255, 10])
        // A reservation that leads nowhere, and what an examination left.
        .put(key("name/0/trigger/nobody"), r#"{"format":1,"id":"trg_000000000000000000001"}"#)
        .put(key("name/0/ring/mail"), "{}")
        .put(key(queue_key(ShardId(2), queue.id.serial)), encode(FORMAT, &queue))
        .put(key(queue_name_key(queue.id.project, &queue.name)), encode(FORMAT, &named))
        .put(key("scratch/x"), "x");
    store.commit(commit).await.unwrap();
}

pub(crate) type Contents = BTreeMap<String, Value>;

pub(crate) async fn contents(store: &Store) -> Contents {
    let mut found = BTreeMap::new();
    let mut left = Some(Range::all());
    while let Some(range) = left {
        let page = store.scan(range, 1_000).await.unwrap();
        let entries = page.entries.into_iter();
        found.extend(entries.map(|entry| (entry.key.as_str().to_owned(), entry.value)));
        left = page.next;
    }
    found
}

/// What a restore leaves as it is.
pub(crate) fn restored(contents: &Contents) -> Contents {
    let mut contents = contents.clone();
    contents.retain(|key, value| {
        let is_gone = key.starts_with("node/anna/")
            || key.starts_with("owner/")
            || key.starts_with("scratch/")
            || key == "name/0/trigger/nobody";
        let is_new = key == "cluster/epoch";
        !is_gone && !is_new && Head::from_value(value).is_err()
    });
    contents
}

/// Sessions are gone and with them who owned what, and every claim is free under a greater token.
pub(crate) fn check_free(before: &Contents, after: &Contents) {
    let is_theirs = |key: &String| key.starts_with("node/anna/") || key.starts_with("owner/");
    assert!(!after.keys().any(is_theirs), "{:?}", after.keys());
    assert!(after.contains_key("cluster/epoch") && !after.contains_key("cluster/restoring"));
    let claims =
        before.iter().filter_map(|(key, value)| Some((key, Head::from_value(value).ok()?)));
    let mut count = 0;
    for (key, former) in claims {
        let now = Head::from_value(&after[key]).unwrap();
        assert_eq!((now.session, now.state), (None, ClaimState::Free), "{key}");
        assert_eq!(now.token, WALL_US.max(former.token + 1), "{key}");
        assert!(now.number > former.number, "{key}");
        assert_eq!(now.format, former.format, "{key}");
        let text = |body: Option<Box<RawValue>>| body.map(|body| body.get().to_owned());
        assert_eq!(text(now.body), text(former.body), "{key}");
        count += 1;
    }
    assert_eq!(count, 3);
}

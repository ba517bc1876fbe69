//! The schema: made once, by whoever may; and what people see in it.

use engine::id::{ProjectId, SerialId, ShardId};
use engine::instant::Instant;
use engine::past::{Attempt, End, Finished, Line, Segment};
use engine::shard::record::{past_key, run_key};
use rig::postgres::Postgres;
use store::memory::MemoryStore;
use store::{Class, Commit, EngineFault, OpenError, Range, Store, StoreUrl, open_or_create};
use tokio::task::JoinSet;

use super::super::backup::{backup, check_round_trip, put_back, sample};
use super::{key, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_that_come_at_once_make_one_schema() {
    let server = Postgres::start(&[]);
    let mut openers = JoinSet::new();
    for number in 0..8 {
        let url = server.url();
        openers.spawn(async move {
            let store = open(&url).await;
            store.commit(Commit::new().put(key(format!("k{number}")), "")).await.unwrap();
        });
    }
    openers.join_all().await;
    assert_eq!(open(&server.url()).await.scan(Range::all(), 100).await.unwrap().entries.len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_store_is_restored_as_it_was_and_from_another_kind() {
    let server = Postgres::start(&[]);
    let schema = |name: &str| format!("{}?schema={name}", server.url());
    let (one, other) = (open(&schema("one")).await, open(&schema("other")).await);
    check_round_trip(&one, &other).await;

    let memory = Store::new(MemoryStore::new());
    put_back(&memory, &backup(&one).await).await.unwrap();
    let third = open(&schema("third")).await;
    put_back(&third, &backup(&memory).await).await.unwrap();
    let (before, after) = (sample::contents(&one).await, sample::contents(&third).await);
    assert_eq!(sample::restored(&before), sample::restored(&after));
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let server = Postgres::start(&[]);
    drop(open(&server.url()).await);
    server.sql("UPDATE watchbell.about SET format = 2");
    let why = open_or_create(&StoreUrl::parse(&server.url()).unwrap()).await.unwrap_err();
    assert!(matches!(why, OpenError::Format { .. }), "{why}");
    assert!(why.to_string().contains("upgrade Watchbell"), "{why}");
}

#[tokio::test]
async fn a_user_with_few_rights_works_in_a_schema_that_is_there() {
    let server = Postgres::start(&[]);
    server.sql("CREATE ROLE clerk LOGIN PASSWORD 'hunter2'");
    // What a role is set to otherwise is no matter.
    server.sql("ALTER ROLE clerk SET default_transaction_isolation = 'serializable'");
    let url = format!("postgres://clerk:hunter2@{}/postgres", server.address());
    let refused = async |said: &str| {
        let why = open_or_create(&StoreUrl::parse(&url).unwrap()).await.unwrap_err();
        assert!(matches!(why, OpenError::Engine { fault: EngineFault::Password, .. }), "{why}");
        assert!(why.to_string().contains(said), "{why}");
    };
    refused("permission denied for database").await;
    drop(open(&server.url()).await);
    refused("permission denied for schema").await;
    server.sql("GRANT USAGE ON SCHEMA watchbell TO clerk");
    server.sql("GRANT SELECT, UPDATE ON watchbell.about, watchbell.version TO clerk");
    refused("lacks SELECT, INSERT, UPDATE and DELETE on watchbell.entry").await;
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON watchbell.entry TO clerk");
    let store = open(&url).await;
    store.commit(Commit::new().put(key("k"), "v")).await.unwrap();
    assert!(store.get(&key("k")).await.unwrap().is_some());
    assert_eq!(store.class(), Class::S);
    // Or it owns a schema of its own, without the right to make one.
    server.sql("CREATE SCHEMA own AUTHORIZATION clerk");
    let own = open(&format!("{url}?schema=own")).await;
    own.commit(Commit::new().put(key("k"), "v")).await.unwrap();
}

#[tokio::test]
async fn a_page_of_large_values_ends_early_and_goes_on() {
    let server = Postgres::start(&[]);
    let store = open(&server.url()).await;
    let large = store.limits().value_bytes;
    for number in 0..6 {
        store
            .commit(Commit::new().put(key(format!("k{number}")), vec![number; large]))
            .await
            .unwrap();
    }
    let page = store.scan(Range::all(), 1_000).await.unwrap();
    assert_eq!(page.entries.len(), 4);
    let rest = store.scan(page.next.unwrap(), 1_000).await.unwrap();
    assert_eq!((rest.entries.len(), rest.next), (2, None));
}

#[tokio::test]
async fn people_see_triggers_and_runs() {
    let server = Postgres::start(&[]);
    let store = open(&server.url()).await;
    sample::fill(&store).await;
    let attempt = Attempt {
        at: Instant(1_000),
        ms: 12,
        status: Some(503),
        error: Some("busy".to_owned()),
        ..Attempt::default()
    };
    let finished = Finished {
        project: ProjectId::DEFAULT,
        trigger: SerialId(20),
        slot: Instant(1_800_000_000_000),
        generation: Some(1),
        sequence: None,
        notice: None,
        queue: None,
        end: End::Dead,
        at: Instant(1_800_000_001_000),
        attempt: 2,
        attempts: vec![attempt],
    };
    let segment = Segment { lines: vec![Line::Run(finished)] }.to_bytes();
    let run = format!(
        r#"{{"format":1,"trigger":"{}","name":"gong","slot":"2027-01-15T08:00:00Z","leaves":"2027-01-15T08:00:00Z",
        "state":{{"backoff":"2027-01-15T08:00:09Z"}},"attempt":1,"webhook":{{}},"policy":{{}}}}"#,
        SerialId(30),
    );
    let more = Commit::new()
        .put(key(past_key(ShardId(0), 10)), segment.clone())
        // The same line stands in a page while it is merged.
        .put(key("shard/0/page/0001/9979000/ffffffffffffffff.0000000000000000.00000"), segment)
        .put(key(run_key(ShardId(2), 4)), run)
        .put(key("access/project/ops"), r#"{"format":1,"id":7,"author":"x"}"#);
    store.commit(more).await.unwrap();

    let see = |query: &str| server.sql(&format!("SET timezone = 'UTC'; {query}"));
    assert_eq!(
        see("SELECT project, name, url, paused, failures FROM watchbell.triggers ORDER BY name"),
        "default|chime|https://example.com/|f|3\ndefault|gong|https://example.com/|f|0",
    );
    assert_eq!(
        see(
            "SELECT trigger, state, slot, attempts, status, error FROM watchbell.runs ORDER BY slot, state"
        ),
        "chime|launched|1970-01-01 00:00:00.008+00|1||\n\
         gong|backoff|2027-01-15 08:00:00+00|1||\n\
         chime|dead|2027-01-15 08:00:00+00|2|503|busy",
    );
    assert_eq!(see("SELECT name FROM watchbell.projects ORDER BY number"), "default\nops");
    assert_eq!(see("SELECT count(*) FROM watchbell.entries WHERE record IS NULL"), "4");
}

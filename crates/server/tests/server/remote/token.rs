//! The recipes of docs/elections.md: a resource keeps the greatest token that it has seen, and refuses a smaller one.

use std::sync::Mutex;

use client::election::{Campaign, CampaignRequest, ReleaseRequest};
use client::key::Scope;
use store::Store;
use store::memory::MemoryStore;

use super::stand::Stand;

/// What a service does with the token of a request: 200, or 409.
#[derive(Default)]
struct Resource(Mutex<u64>);

impl Resource {
    fn answer(&self, token: u64) -> u16 {
        let mut greatest = self.0.lock().unwrap();
        if token < *greatest {
            return 409;
        }
        *greatest = token;
        200
    }
}

/// The tokens of three who lead one after the other.
async fn terms() -> Vec<u64> {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    let client = stand.client(&stand.key("default", &[Scope::Node]).await);
    let mut tokens = Vec::new();
    for candidate in ["web-1", "web-2", "web-1"] {
        let told = client.campaign("nightly", &CampaignRequest::new(candidate)).await.unwrap().0;
        let Campaign::Leading { session, token, .. } = told else { panic!("{told:?}") };
        tokens.push(token);
        let release = ReleaseRequest { candidate: candidate.into(), session };
        client.release_election("nightly", &release).await.unwrap();
    }
    stand.stop().await;
    tokens
}

#[tokio::test]
async fn a_table_in_postgres_refuses_whoever_led_before() {
    let tokens = terms().await;
    let postgres = rig::postgres::Postgres::start(&[]);
    postgres.sql(
        "CREATE TABLE report (name text PRIMARY KEY, token bigint NOT NULL DEFAULT 0, body text); \
         INSERT INTO report VALUES ('nightly')",
    );
    let write = |token: u64| {
        postgres.sql(&format!(
            "UPDATE report SET body = 'x', token = {token} WHERE name = 'nightly' AND token <= {token} RETURNING 'written'"
        ))
    };
    for (number, token) in tokens.iter().enumerate() {
        assert!(write(*token).contains("written") && write(*token).contains("written"));
        for former in &tokens[..number] {
            assert!(!write(*former).contains("written"), "{former} led before {token}");
        }
    }
}

#[tokio::test]
async fn a_service_refuses_whoever_led_before() {
    let resource = Resource::default();
    let tokens = terms().await;
    for (number, token) in tokens.iter().enumerate() {
        assert_eq!(resource.answer(*token), 200);
        assert_eq!(resource.answer(*token), 200, "it may ask again");
        assert!(tokens[..number].iter().all(|former| resource.answer(*former) == 409));
    }
}

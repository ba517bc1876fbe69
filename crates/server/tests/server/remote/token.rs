//! The recipe of docs/elections.md for an HTTP service: it keeps the greatest token that it has seen.

use std::sync::Mutex;

use client::election::{Campaign, CampaignRequest, ReleaseRequest};
use client::key::Scope;
use store::Store;
use store::memory::Memory;

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

#[tokio::test]
async fn a_resource_refuses_whoever_led_before() {
    let stand = Stand::on(Store::new(Memory::new())).await;
    let client = stand.client(&stand.key("default", &[Scope::Node]).await);
    let resource = Resource::default();
    let mut tokens = Vec::new();
    for candidate in ["web-1", "web-2", "web-1"] {
        let told = client.campaign("nightly", &CampaignRequest::new(candidate)).await.unwrap().0;
        let Campaign::Leading { session, token, .. } = told else { panic!("{told:?}") };
        assert_eq!(resource.answer(token), 200);
        assert_eq!(resource.answer(token), 200, "it may ask again");
        assert!(tokens.iter().all(|former| resource.answer(*former) == 409));
        tokens.push(token);
        let release = ReleaseRequest { candidate: candidate.into(), session };
        client.release_election("nightly", &release).await.unwrap();
    }
    stand.stop().await;
}

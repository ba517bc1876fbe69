//! What is asked of rings, and what is refused.

use client::audit::AuditEntry;
use client::key::{KeySpec, Scope};
use client::project::NewProjectSpec;
use client::ring::{MAIN, SubscriptionSpec};
use client::{AuditFilter, Client, ClientError, RingFilter, RingMember};
use rig::{Ask, PATIENCE, machine, until};
use serde_json::{Value, json};

use super::super::process::{Dev, place};
use super::super::server::Server;
use super::crowd::make;

fn put(dev: &Dev, path: &str) -> Ask {
    Ask::new(dev.address(), "PUT", path)
}

/// The pointers of the fields that are wrong.
fn pointers(answer: &Value) -> Vec<&str> {
    let errors = answer["errors"].as_array().unwrap();
    errors.iter().map(|error| error["pointer"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_that_cannot_be_is_refused_field_by_field() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    for (body, wrong) in [
        (json!({}), vec!["/schedule"]),
        (json!({"schedule": {}}), vec!["/schedule"]),
        (json!({"schedule": {"every": "19ms"}}), vec!["/schedule/every"]),
        (
            json!({"schedule": {"cron": "61 * * * *"}, "count": 65}),
            vec!["/schedule/cron", "/count"],
        ),
        (
            json!({"schedule": {"every": "1s"}, "count": 0, "splay_percent": 101, "accept": "1ms"}),
            vec!["/count", "/splay_percent", "/accept"],
        ),
        (json!({"schedule": {"every": "1s", "limit": 3}}), vec!["/schedule/limit"]),
    ] {
        let answer = put(&dev, "/v1/rings/checks").body(&body).await.is(422).json();
        let mut found = pointers(&answer);
        found.sort_unstable();
        let mut wrong = wrong;
        wrong.sort_unstable();
        assert_eq!(found, wrong, "{body}: {answer}");
    }
    let answer = put(&dev, "/v1/rings/checks").body(&json!({"evry": "1s"})).await;
    assert!(matches!(answer.status, 400 | 422), "{}", answer.text);
    let lost = dev.client.ring("checks").await.unwrap_err();
    assert!(matches!(lost, ClientError::NotFound(_)), "{lost:?}");
    // At the limits.
    let body = json!({"schedule": {"every": "20ms"}, "count": 64, "splay_percent": 100, "accept": "200ms"});
    put(&dev, "/v1/rings/checks").body(&body).await.is(201);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_is_told_under_a_revision_that_keeps_others_from_undoing_it() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let client = &dev.client;
    let spec = SubscriptionSpec::every("5s").count(2).accept("1s500ms");
    make(client, "checks", &spec).await;
    let main = client.subscription("checks", MAIN).await.unwrap();
    assert_eq!(main.spec, spec);
    // The same again changes nothing.
    let again = client.set_ring("checks", &spec, None).await.unwrap();
    assert_eq!(again.subscriptions[0].revision, main.revision);
    let other = SubscriptionSpec::every("6s");
    let changed = client.set_subscription("checks", MAIN, &other, Some(main.revision)).await;
    let changed = changed.unwrap();
    assert_eq!((changed.revision, changed.generation), (main.revision + 1, main.generation));
    for revision in [0, main.revision] {
        let stale = client.set_ring("checks", &spec, Some(revision)).await.unwrap_err();
        assert!(matches!(stale, ClientError::Conflict(_)), "{stale:?}");
    }
    let answer = put(&dev, "/v1/rings/checks").header("if-none-match", "*");
    answer.body(&json!({"schedule": {"every": "1s"}})).await.is(412);
    // One that is made anew is another one.
    client.set_subscription("checks", "slow", &other, Some(0)).await.unwrap();
    let slow = client.subscription("checks", "slow").await.unwrap();
    client.delete_subscription("checks", "slow").await.unwrap();
    let lost = client.subscription("checks", "slow").await.unwrap_err();
    assert!(matches!(lost, ClientError::NotFound(_)), "{lost:?}");
    client.set_subscription("checks", "slow", &other, Some(0)).await.unwrap();
    assert!(client.subscription("checks", "slow").await.unwrap().generation > slow.generation);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rings_and_members_are_listed_page_after_page() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let client = &dev.client;
    for name in ["a-1", "a-2", "a-3", "b-1"] {
        make(client, name, &SubscriptionSpec::every("1h")).await;
    }
    let page = |prefix: &str, cursor: Option<String>| RingFilter {
        prefix: Some(prefix.to_owned()),
        limit: Some(2),
        cursor,
    };
    let first = client.rings(&page("a-", None)).await.unwrap();
    let second = client.rings(&page("a-", first.next.clone())).await.unwrap();
    let names: Vec<_> = first.items.iter().chain(&second.items).map(|ring| &ring.name).collect();
    assert_eq!(names, ["a-1", "a-2", "a-3"]);
    assert_eq!(second.next, None);
    for name in ["m-3", "m-1", "m-2"] {
        RingMember::new([client.clone()], "a-1", name)
            .wait(std::time::Duration::ZERO)
            .attend()
            .await
            .unwrap();
    }
    let first = client.ring_members("a-1", &page("", None)).await.unwrap();
    let second = client.ring_members("a-1", &page("", first.next.clone())).await.unwrap();
    let names: Vec<_> = first.items.iter().chain(&second.items).map(|one| &one.name).collect();
    assert_eq!(names, ["m-1", "m-2", "m-3"]);
    let by = &first.items[0].by;
    assert!(!by.is_empty() && !first.items[0].own_session, "{first:?}");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_does_what_its_scope_says_and_projects_do_not_see_each_other() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let server = Server::start(&data, &[]).await;
    let admin = server.client();
    make(&admin, "checks", &SubscriptionSpec::every("1h")).await;
    let mut clients = Vec::new();
    for scope in [Scope::Read, Scope::Write, Scope::Node, Scope::Worker] {
        let spec = KeySpec { name: scope.as_str().to_owned(), scopes: vec![scope], expires: None };
        let made = admin.create_key(&spec).await.unwrap();
        let key = made.secret.unwrap();
        let client = Client::builder(&server.url()).key(&key).retries(0).build().unwrap();
        clients.push((scope, client));
    }
    let forbidden = |told: Result<(), ClientError>| matches!(told, Err(ClientError::Forbidden(_)));
    for (scope, client) in &clients {
        let is_node = matches!(scope, Scope::Node | Scope::Worker);
        let reads = matches!(scope, Scope::Read | Scope::Write);
        let mut member = RingMember::new([client.clone()], "checks", scope.as_str())
            .wait(std::time::Duration::ZERO);
        assert_eq!(forbidden(member.attend().await.map(drop)), !is_node, "{scope:?}");
        assert_eq!(forbidden(client.ring("checks").await.map(drop)), !reads, "{scope:?}");
        let skip = client.skip_member("checks", MAIN).await.map(drop);
        assert_eq!(forbidden(skip), *scope != Scope::Write, "{scope:?}");
        // Nobody is taken out but by whoever may write.
        let removed = client.leave_ring("checks", "nobody", None).await;
        let is_refused =
            matches!(&removed, Err(ClientError::Forbidden(_) | ClientError::Invalid(_)));
        assert_eq!(is_refused, *scope != Scope::Write, "{scope:?}: {removed:?}");
    }
    // In another project the name is free.
    let spec = NewProjectSpec { name: "other".to_owned(), limits: None, notify: None };
    admin.create_project(&spec).await.unwrap();
    let other = admin.in_project("other").unwrap();
    let lost = other.ring("checks").await.unwrap_err();
    assert!(matches!(lost, ClientError::NotFound(_)), "{lost:?}");
    make(&other, "checks", &SubscriptionSpec::every("2h")).await;
    assert_eq!(other.ring("checks").await.unwrap().members, 0);
    assert_eq!(admin.ring("checks").await.unwrap().members, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_in_the_audit_and_a_repeated_request_is_done_once() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let server = Server::start(&data, &[]).await;
    let client = server.client();
    make(&client, "checks", &SubscriptionSpec::every("1h")).await;
    for name in ["a", "b", "c"] {
        let mut member = RingMember::new([client.clone()], "checks", name);
        member = member.wait(std::time::Duration::ZERO);
        member.attend().await.unwrap();
    }
    let once = client.once("skip-1").unwrap();
    let first = once.skip_member("checks", MAIN).await.unwrap();
    let again = once.skip_member("checks", MAIN).await.unwrap();
    assert_eq!((first.position, first.number), (again.position, again.number));
    client.leave_ring("checks", "c", None).await.unwrap();
    client.set_ring("checks", &SubscriptionSpec::every("2h"), None).await.unwrap();
    client.delete_ring("checks").await.unwrap();
    let filter = AuditFilter { limit: Some(50), ..AuditFilter::default() };
    let audit = client.audit(&filter).await.unwrap().items;
    let of_rings = |entry: &&AuditEntry| entry.action.starts_with("ring.");
    let actions: Vec<_> = audit
        .iter()
        .filter(of_rings)
        .map(|entry| (entry.action.as_str(), entry.object.as_str()))
        .collect();
    let expected = [
        ("ring.delete", "checks"),
        ("ring.change", "checks"),
        ("ring.remove", "checks/c"),
        ("ring.skip", "checks"),
        ("ring.create", "checks"),
    ];
    assert_eq!(actions, expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_is_told_when_the_subscription_goes_and_metrics_count_turns() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("100ms")).await;
    let mut crowd = super::crowd::Crowd::default();
    crowd.join(&servers, "checks", "a").await;
    let mut events = dev.client.follow_ring("checks", MAIN, None).await.unwrap();
    let mut turns = 0;
    while turns < 3 {
        turns += u32::from(events.next().await.unwrap().what.kind() == "turn");
    }
    // A server counts at its leisure.
    until("its turns are counted", PATIENCE, || async {
        let text = Ask::new(dev.address(), "GET", "/metrics").send().await.is(200).text;
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let line = line.unwrap_or_else(|| panic!("there is no {name} in\n{text}"));
            line.trim().parse().unwrap()
        };
        let turns = value("watchbell_ring_turns_total");
        (turns >= 3.0 && value("watchbell_ring_lateness_seconds_count") >= 3.0).then_some(())
    })
    .await;
    dev.client.delete_ring("checks").await.unwrap();
    loop {
        if events.next().await.unwrap().what.kind() == "closing" {
            break;
        }
    }
    dev.stop().await;
}

//! Events: no gap without a word.

use client::ClientError;
use client::event::EventKind;

use super::script::{Act, Script, problem};

const BEGIN: &str = ": watching\nid: a-0\n\n";
const ONE: &str = "id: a-1\nevent: changed\ndata: {\"at\":\"2027-01-15T00:00:00Z\",\"type\":\"changed\",\"action\":\"trigger.create\",\"object\":\"one\",\"author\":\"a\"}\n\n";
const NEWER: &str = "id: a-2\nevent: unheard_of\ndata: {\"at\":\"2027-01-15T00:00:00Z\",\"type\":\"unheard_of\"}\n\n";
const RESET: &str = ": watching\nid: b-0\n\nid: b-0\nevent: reset\ndata: {\"at\":\"2027-01-15T00:00:00Z\",\"type\":\"reset\"}\n\n";

fn last_ids(script: &Script) -> Vec<Option<String>> {
    let last = |headers: &std::collections::BTreeMap<_, _>| headers.get("last-event-id").cloned();
    script.asked().iter().map(|asked| last(&asked.headers)).collect()
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_and_says_when_it_cannot() {
    let script = Script::play([
        Act::Before,
        Act::Stream(vec![BEGIN, ONE, NEWER]),
        Act::Refuse(503, "", problem(503, "starting")),
        Act::Stream(vec![RESET]),
    ]);
    let mut events = script.client().events().await.unwrap();
    assert!(
        matches!(events.next().await.unwrap().what, EventKind::Changed { object, .. } if object == "one")
    );
    assert_eq!(events.next().await.unwrap().what, EventKind::Reset);
    let last = |id: &str| Some(id.to_owned());
    assert_eq!(last_ids(&script), [None, None, last("a-2"), last("a-2")]);
}

#[tokio::test]
async fn a_watch_that_saw_nothing_goes_on_from_its_beginning() {
    let script = Script::play([Act::Stream(vec![BEGIN]), Act::Stream(vec![BEGIN, ONE])]);
    let mut events = script.client().events().await.unwrap();
    events.next().await.unwrap();
    assert_eq!(last_ids(&script), [None, Some("a-0".to_owned())]);
}

#[tokio::test]
async fn a_watch_that_cannot_go_on_says_why_and_can_be_asked_again() {
    let refuse = |status| Act::Refuse(status, "", problem(status, "no"));
    let script = Script::play([
        Act::Stream(vec![BEGIN]),
        refuse(401),
        Act::Before,
        Act::Stream(vec![BEGIN, ONE]),
    ]);
    let mut events = script.builder().retries(0).build().unwrap().events().await.unwrap();
    assert!(matches!(events.next().await, Err(ClientError::Unauthorized(_))));
    assert!(matches!(events.next().await, Err(ClientError::Unreachable { .. })));
    events.next().await.unwrap();
    let other = Script::play([Act::Answer(200, "hi\n\n".to_owned())]);
    let error = other.client().events().await.unwrap_err();
    assert!(matches!(error, ClientError::Answer { .. }), "{error:?}");
}

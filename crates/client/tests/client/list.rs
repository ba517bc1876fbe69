//! Lists, page after page.

use client::{ClientError, TriggerFilter};
use serde_json::json;

use super::script::{Act, Script, trigger};

fn page(count: usize, next: Option<&str>) -> Act {
    let item: serde_json::Value = serde_json::from_str(&trigger(1, "http://127.0.0.1:1/")).unwrap();
    Act::Answer(200, json!({ "items": vec![item; count], "next": next }).to_string())
}

#[tokio::test]
async fn all_follows_the_cursors_to_the_end() {
    let script = Script::play([page(500, Some("a")), page(0, Some("b")), page(7, None)]);
    let all = script.client().all_triggers(TriggerFilter::default(), 10_000).await.unwrap();
    assert_eq!((all.items.len(), all.next), (507, None));
    let lines: Vec<String> = script.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines[0], "GET /v1/triggers?limit=500 HTTP/1.1");
    assert_eq!(lines[2], "GET /v1/triggers?limit=500&cursor=b HTTP/1.1");
}

#[tokio::test]
async fn all_ends_where_it_is_told_and_says_where_more_are() {
    let script = Script::play([page(500, Some("a")), page(3, Some("b"))]);
    let all = script.client().all_triggers(TriggerFilter::default(), 503).await.unwrap();
    assert_eq!((all.items.len(), all.next.as_deref()), (503, Some("b")));
    assert_eq!(script.asked()[1].line, "GET /v1/triggers?limit=3&cursor=a HTTP/1.1");
}

#[tokio::test]
async fn a_list_that_does_not_move_is_an_error_and_no_endless_loop() {
    let script = Script::play([page(0, Some("a")), page(0, Some("a"))]);
    let error = script.client().all_triggers(TriggerFilter::default(), 10).await.unwrap_err();
    assert!(matches!(error, ClientError::Answer { .. }), "{error}");
}

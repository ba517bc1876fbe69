//! Each error says what to do, by its kind and by its sentence.

use client::{Client, ClientError};

use super::script::{Act, Script, problem};

async fn error_of(act: Act) -> ClientError {
    Script::play([act]).builder().retries(0).build().unwrap().scheduler().await.unwrap_err()
}

#[tokio::test]
async fn a_status_is_what_to_do_about_it() {
    type Kind = fn(&ClientError) -> bool;
    let kinds: [(u16, Kind); 11] = [
        (400, |error| matches!(error, ClientError::Invalid(_))),
        (401, |error| matches!(error, ClientError::Unauthorized(_))),
        (403, |error| matches!(error, ClientError::Forbidden(_))),
        (404, |error| matches!(error, ClientError::NotFound(_))),
        (409, |error| matches!(error, ClientError::Conflict(_))),
        (412, |error| matches!(error, ClientError::Conflict(_))),
        (422, |error| matches!(error, ClientError::Invalid(_))),
        (429, |error| matches!(error, ClientError::LimitReached { .. })),
        (500, |error| matches!(error, ClientError::Refused(_))),
        (503, |error| matches!(error, ClientError::Unavailable { .. })),
        (507, |error| matches!(error, ClientError::Refused(_))),
    ];
    for (status, is_kind) in kinds {
        let error = error_of(Act::Refuse(status, "", problem(status, "do this instead"))).await;
        assert!(is_kind(&error) && error.to_string() == "do this instead", "{status}: {error:?}");
        assert_eq!(error.may_be_done(), status >= 500, "{status}");
    }
}

#[tokio::test]
async fn what_a_proxy_says_is_understood_and_what_another_server_says_is_not() {
    for status in [401, 403, 429, 502, 503, 504] {
        let error = error_of(Act::Refuse(status, "", "<h1>no</h1>".to_owned())).await;
        assert_eq!(error.problem().map(|problem| problem.status), Some(status));
        assert!(error.to_string().contains("what stands before it"), "{error}");
    }
    for act in [Act::Refuse(404, "", "<h1>?</h1>".to_owned()), Act::Answer(200, "hi".to_owned())] {
        let error = error_of(act).await;
        assert!(error.to_string().ends_with("is it a Watchbell server?"), "{error}");
    }
}

#[tokio::test]
async fn every_request_says_who_asks_and_for_which_project() {
    let script = Script::play([]);
    let admin = script.builder().key("wbk_1").project("shop").retries(0).build().unwrap();
    for client in [&admin, &admin.in_project("other").unwrap()] {
        client.scheduler().await.unwrap_err();
    }
    let projects: Vec<String> =
        script.asked().iter().map(|asked| asked.headers["watchbell-project"].clone()).collect();
    assert_eq!(projects, ["shop", "other"]);
    for asked in script.asked() {
        assert_eq!(asked.headers["authorization"], "Bearer wbk_1");
        assert!(asked.headers["user-agent"].starts_with("watchbell-client/"));
    }
    assert!(Client::new("http://localhost").unwrap().in_project("a\nb").is_err());
}

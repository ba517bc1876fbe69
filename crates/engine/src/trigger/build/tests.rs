//! Each field of a draft: what it means, and what is said about a bad one.

use serde_json::{Value, json};

use super::*;
use crate::limits::{NAME_CHARS_MAX, WEBHOOK_HEADER_BYTES_MAX, WEBHOOK_HEADERS_MAX};

const NOW: Instant = Instant(1_800_000_000_000); // 2027-01-15T08:00:00Z

fn draft(json: Value) -> Draft {
    serde_json::from_value(json).unwrap()
}

/// A good draft with one field put in, by its pointer.
fn with(pointer: &str, value: Value) -> Draft {
    let mut json = json!({
        "name": "backup",
        "schedule": {"cron": "0 3 * * *"},
        "webhook": {"url": "https://example.com/hook"},
    });
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    if json.pointer(parent).is_none() {
        json[&parent[1..]] = json!({});
    }
    json.pointer_mut(parent).unwrap()[field] = value;
    draft(json)
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the tables below read better without `&`")]
fn check_bad(pointer: &str, value: Value, wrong_at: &str, said: &str) {
    let faults = with(pointer, value.clone()).build(NOW).unwrap_err();
    let fault = faults.iter().find(|fault| fault.pointer == wrong_at);
    let fault = fault.unwrap_or_else(|| panic!("{pointer} = {value}: {faults:?}"));
    assert!(fault.why.contains(said), "{}", fault.why);
    assert_eq!(faults.len(), 1, "{faults:?}");
}

#[track_caller]
fn check_good(pointer: &str, value: Value) -> Definition {
    with(pointer, value).build(NOW).unwrap_or_else(|faults| panic!("{faults:?}"))
}

#[test]
fn a_full_draft_comes_back_as_it_was_written() {
    let json = json!({
        "name": "backup",
        "schedule": {
            "cron": ["0 3 * * *", "0 15 * * *"], "every": "90s", "phase": "5s",
            "at": ["2027-03-28T01:00:00Z"], "tz": "Europe/Berlin", "dialect": "open",
            "gap": "fire", "fold": "both", "start": "2027-01-01T00:00:00Z",
            "end": "2028-01-01T00:00:00Z", "limit": 7, "jitter": "30s", "exclude": ["2027-12-24"],
            "quiet": [{"days": ["mon"], "from": "22:00", "to": "06:00"}],
        },
        "webhook": {
            "url": "https://example.com/hook", "method": "PUT", "headers": {"x-bell": "noon"},
            "secret_headers": {"authorization": "Bearer swordfish"},
            "content_type": "text/plain", "body": "ring", "timeout": "20s",
        },
        "catch_up": "all", "catch_up_cap": 5, "overlap": "queue_one", "delivery": "at_most_once",
        "retry": {"attempts": 5, "delay": "2s", "backoff": "constant", "max_delay": "1m"},
        "max_lateness": "1h30m", "pause_after": 3, "alert_after": "1d",
        "notify": ["failure", "success"],
    });
    let read = draft(json.clone());
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
    let definition = read.build(NOW).unwrap();
    assert_eq!(definition.schedule.specs().len(), 4);
    assert_eq!(definition.schedule.limit().map(NonZeroU64::get), Some(7));
    assert_eq!(definition.target.timeout_ms(), 20_000);
    let retry =
        Retry { attempts: 5, delay_ms: 2_000, backoff: Backoff::Constant, max_delay_ms: 60_000 };
    assert_eq!(
        definition.policy,
        Policy {
            catch_up: CatchUp::All(5),
            overlap: Overlap::QueueOne,
            delivery: Delivery::AtMostOnce,
            retry,
            max_lateness_ms: Some(5_400_000),
            pause_after: Some(3),
            alert_after_ms: Some(86_400_000),
            notify: Some([Occasion::Failure, Occasion::Success].into_iter().collect()),
        }
    );
}

#[test]
fn secret_headers_count_as_headers_do_and_are_named_by_their_own_field() {
    let secret = "/webhook/secret_headers";
    let many = |count: usize| {
        let headers = (0..count).map(|number| (format!("x-{number}"), json!("v")));
        Value::Object(headers.collect())
    };
    let Target::Webhook(webhook) = check_good(secret, many(WEBHOOK_HEADERS_MAX)).target else {
        panic!("it is a webhook");
    };
    let form = webhook.form;
    assert_eq!((form.headers.len(), form.secret_headers.len()), (0, WEBHOOK_HEADERS_MAX));
    check_bad(secret, many(WEBHOOK_HEADERS_MAX + 1), secret, "at most 30 headers");
    let long = |bytes: usize| json!({"x": "v".repeat(bytes - 1)});
    check_good(secret, long(WEBHOOK_HEADER_BYTES_MAX));
    check_bad(secret, long(WEBHOOK_HEADER_BYTES_MAX + 1), secret, "8192 bytes");
    check_bad(secret, json!({"a b": "swordfish"}), secret, "the name of a header");
    check_bad(secret, json!({"Host": "swordfish"}), secret, "leave it out");
    let mut both = with(secret, json!({"X-Key": "swordfish"}));
    both.webhook.as_mut().unwrap().headers.insert("x-key".to_owned(), "open".to_owned());
    let faults = both.build(NOW).unwrap_err();
    assert!(faults[0].pointer == secret && faults[0].why.contains("twice"), "{faults:?}");
}

#[test]
fn no_secret_is_printed_or_told_with_what_is_wrong() {
    let draft = with("/webhook/secret_headers", json!({"x-key": "swordfish"}));
    let definition = draft.build(NOW).unwrap();
    let shown = format!("{draft:?} {:?} {definition:?}", draft.webhook);
    assert!(!shown.contains("swordfish") && shown.contains("x-key"), "{shown}");
    let wrong = r#"{"name": "x", "webhook": {"secret_headers": {"x-key": 20061961}}}"#;
    let why = serde_json::from_str::<Draft>(wrong).unwrap_err().to_string();
    assert!(!why.contains("20061961") && why.contains("is a text"), "{why}");
}

#[test]
fn a_mask_that_is_sent_back_keeps_what_is_stored() {
    let headers = |json: Value| WebhookDraft {
        secret_headers: serde_json::from_value(json).unwrap(),
        ..WebhookDraft::default()
    };
    let stored = headers(json!({"X-Key": "swordfish", "x-gone": "tuna"}));
    let mut sent = headers(json!({"x-key": "***", "x-new": "cod", "x-odd": "***"}));
    assert!(sent.unmask(&stored));
    let expected = headers(json!({"x-key": "swordfish", "x-new": "cod", "x-odd": "***"}));
    assert_eq!(sent.secret_headers, expected.secret_headers);
    assert!(!expected.clone().unmask(&headers(json!({}))));
    let draft = |webhook| Draft { webhook: Some(webhook), ..Draft::default() };
    let [fault] = draft(sent).check_unmasked().unwrap_err();
    assert!(fault.why.contains("none is stored"), "{}", fault.why);
    assert_eq!(draft(stored).check_unmasked(), Ok(()));
}

#[test]
fn who_is_told_is_chosen_by_words() {
    let notify = |value: Value| check_good("/notify", value).policy.notify;
    assert_eq!(notify(json!("none")), Some(Occasions::NONE));
    assert_eq!(notify(json!("overdue")), Some([Occasion::Overdue].into_iter().collect()));
    assert_eq!(notify(json!([])), None, "it is as the project has it");
    check_bad("/notify", json!(["failure", "disaster"]), "/notify/1", "\"overdue\"");
    check_bad("/notify", json!(["failure", "none"]), "/notify/1", "\"overdue\"");
    check_good("/alert_after", json!("1s"));
    check_good("/alert_after", json!("366d"));
    check_bad("/alert_after", json!("0s"), "/alert_after", "1s to 366d");
    check_bad("/alert_after", json!("367d"), "/alert_after", "1s to 366d");
}

#[test]
fn without_a_schedule_it_is_run_on_demand() {
    let draft = draft(json!({"name": "x", "webhook": {"url": "http://example.com"}}));
    let definition = draft.build(NOW).unwrap();
    assert!(definition.schedule.specs().is_empty());
    assert_eq!(definition.policy, Policy::default());
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let draft = draft(json!({
        "name": "a b", "schedule": {"cron": ["0 3 * * *", "61 * * * *"], "tz": "Mars/Olympus"},
        "webhook": {"url": "ftp://example.com", "timeout": "31s"}, "overlap": "sometimes",
    }));
    let pointers: Vec<String> =
        draft.build(NOW).unwrap_err().into_iter().map(|fault| fault.pointer).collect();
    assert_eq!(
        pointers,
        [
            "/name",
            "/schedule/tz",
            "/schedule/cron/1",
            "/webhook/timeout",
            "/webhook/url",
            "/overlap"
        ]
    );
}

#[test]
fn names_are_taken_up_to_the_limit_and_refused_one_past_it() {
    check_good("/name", json!("n".repeat(NAME_CHARS_MAX)));
    check_bad("/name", json!("n".repeat(NAME_CHARS_MAX + 1)), "/name", "1 to 100 characters");
    check_bad("/name", json!(""), "/name", "1 to 100 characters");
    check_bad("/name", json!("a/b"), "/name", "letters from a to z");
    check_bad("/name", json!(".."), "/name", "dots alone");
    check_bad("/name", json!("trg_00z0000fzzzzzzzzzzzz"), "/name", "looks like an id");
}

#[test]
fn numbers_are_taken_up_to_their_limits_and_refused_one_past_them() {
    for (pointer, most) in
        [("/retry/attempts", RETRY_ATTEMPTS_MAX), ("/pause_after", PAUSE_AFTER_MAX)]
    {
        check_good(pointer, json!(1));
        check_good(pointer, json!(most));
        check_bad(pointer, json!(most + 1), pointer, &format!("1 to {most} are allowed"));
        check_bad(pointer, json!(0), pointer, &format!("1 to {most} are allowed"));
    }
    check_good("/schedule/limit", json!(1));
    check_bad("/schedule/limit", json!(0), "/schedule/limit", "1 or more");
}

#[test]
fn lengths_are_taken_up_to_their_limits_and_refused_one_past_them() {
    for (pointer, least, most) in [
        ("/retry/delay", RETRY_DELAY_MIN, RETRY_DELAY_MAX),
        ("/retry/max_delay", Duration::from_secs(5), RETRY_GROWN_DELAY_MAX),
        ("/max_lateness", MAX_LATENESS_MIN, MAX_LATENESS_MAX),
        ("/schedule/every", EVERY_MIN, EVERY_MAX),
        ("/schedule/jitter", Duration::ZERO, JITTER_MAX),
        ("/webhook/timeout", WEBHOOK_TIMEOUT_MIN, WEBHOOK_TIMEOUT_MAX),
    ] {
        let text = |seconds: u64| json!(format!("{seconds}s"));
        check_good(pointer, text(least.as_secs()));
        check_good(pointer, text(most.as_secs()));
        check_bad(pointer, text(most.as_secs() + 1), pointer, "are allowed");
        if !least.is_zero() {
            check_bad(pointer, text(least.as_secs() - 1), pointer, "are allowed");
        }
        check_bad(pointer, json!("soon"), pointer, "a number is missing");
    }
}

#[test]
fn a_cap_goes_with_all_only_and_has_a_limit() {
    let with_cap = |catch_up: &str, cap: u64| {
        let mut draft = with("/catch_up", json!(catch_up));
        draft.catch_up_cap = Some(cap);
        draft.build(NOW).map(|definition| definition.policy.catch_up)
    };
    assert_eq!(with_cap("all", CATCH_UP_CAP_MAX), Ok(CatchUp::All(1_000)));
    assert_eq!(with_cap("all", CATCH_UP_CAP_MAX + 1).unwrap_err()[0].pointer, "/catch_up_cap");
    assert_eq!(with_cap("all", 0).unwrap_err()[0].pointer, "/catch_up_cap");
    assert!(with_cap("skip", 5).unwrap_err()[0].why.contains("\"all\" only"));
    let usual = check_good("/catch_up", json!("all")).policy.catch_up;
    assert_eq!(usual, CatchUp::All(CATCH_UP_CAP_DEFAULT));
}

#[test]
fn unknown_words_are_refused_with_the_known_ones() {
    for (pointer, known) in [
        ("/catch_up", "\"skip\", \"latest\", \"all\""),
        ("/overlap", "\"allow\", \"skip\", \"queue_one\", \"replace\""),
        ("/delivery", "\"at_least_once\", \"at_most_once\""),
        ("/retry/backoff", "\"constant\", \"exponential\""),
        ("/schedule/dialect", "\"open\", \"quartz\""),
        ("/schedule/gap", "\"fire\", \"skip\""),
        ("/schedule/fold", "\"first\", \"second\", \"both\""),
    ] {
        check_bad(pointer, json!("sideways"), pointer, known);
    }
}

#[test]
fn a_bad_schedule_is_refused_where_it_is_bad() {
    for (pointer, value, wrong_at, said) in [
        ("/schedule/cron", json!("0 25 * * *"), "/schedule/cron", "25 is too large"),
        ("/schedule/cron", json!(["x", "@daily"]), "/schedule/cron/0", "field"),
        ("/schedule/cron", json!("0 0 30 2 *"), "/schedule", "never fires"),
        ("/schedule/at", json!(["tomorrow"]), "/schedule/at/0", "is no instant"),
        (
            "/schedule/at",
            json!(["2027-03-28T01:00:00Z", "2027-03-28T02:00:00+01:00"]),
            "/schedule/at",
            "twice",
        ),
        ("/schedule/tz", json!("Mars/Olympus"), "/schedule/tz", "is no time zone"),
        ("/schedule/phase", json!("5s"), "/schedule/phase", "\"every\" only"),
        ("/schedule/start", json!("2027"), "/schedule/start", "is no instant"),
        ("/schedule/end", json!("2026-01-01T00:00:00Z"), "/schedule", "never fires"),
        ("/schedule/exclude", json!(["2027-02-29"]), "/schedule/exclude/0", "2027-12-24"),
        ("/schedule/exclude", json!(["27-02-01"]), "/schedule/exclude/0", "2027-12-24"),
        (
            "/schedule/quiet",
            json!([{"from": "25:00", "to": "06:00"}]),
            "/schedule/quiet/0/from",
            "no time of the day",
        ),
        (
            "/schedule/quiet",
            json!([{"from": "22:00", "to": "6"}]),
            "/schedule/quiet/0/to",
            "no time of the day",
        ),
        (
            "/schedule/quiet",
            json!([{"days": ["mon", "day"], "from": "22:00", "to": "06:00"}]),
            "/schedule/quiet/0/days/1",
            "\"mon\"",
        ),
        ("/schedule", json!({}), "/schedule", "\"cron\", \"every\" or \"at\""),
        ("/schedule", json!({"every": "1m", "gap": "skip"}), "/schedule/gap", "\"cron\" only"),
        ("/schedule", json!({"every": "1m", "tz": "UTC"}), "/schedule/tz", "\"quiet\" only"),
    ] {
        check_bad(pointer, value, wrong_at, said);
    }
}

#[test]
fn a_bad_webhook_is_refused_where_it_is_bad() {
    check_bad("/webhook", json!(null), "/webhook", "a trigger calls a webhook");
    check_bad("/webhook", json!({}), "/webhook/url", "a trigger calls a webhook");
    check_bad("/webhook/url", json!("example.com"), "/webhook/url", "begins with http");
    check_bad("/webhook/method", json!("RING"), "/webhook/method", "one of GET");
    check_bad("/webhook/headers", json!({"host": "x"}), "/webhook/headers", "leave it out");
}

#[test]
fn a_quiet_window_lasts_to_midnight_and_on_all_days_if_none_is_named() {
    let definition = check_good(
        "/schedule",
        json!({"cron": "0 * * * *", "quiet": [{"from": "01:00", "to": "24:00"}]}),
    );
    let next = definition.schedule.next(NOW).unwrap();
    assert_eq!(next.to_string(), "2027-01-16T00:00:00Z");
    let definition = check_good(
        "/schedule",
        json!({"cron": "0 * * * *", "quiet": [{"days": ["fri", "sat"], "from": "00:00", "to": "24:00"}]}),
    );
    let next = definition.schedule.next(NOW).unwrap();
    assert_eq!(next.to_string(), "2027-01-17T00:00:00Z", "the 15th is a Friday");
}

#[test]
fn what_was_stored_is_read_although_its_time_has_passed() {
    let draft = with("/schedule", json!({"at": ["2027-01-15T08:00:00Z"]}));
    assert!(draft.build(NOW).unwrap_err()[0].why.contains("never fires"));
    assert!(draft.build(Instant(0)).is_ok());
}

#[test]
fn unknown_fields_are_refused_wherever_they_are() {
    for json in [
        json!({"nmae": "x"}),
        json!({"schedule": {"corn": "x"}}),
        json!({"webhook": {"uri": "x"}}),
        json!({"retry": {"times": 1}}),
        json!({"schedule": {"quiet": [{"from": "01:00", "to": "02:00", "when": "x"}]}}),
    ] {
        let why = serde_json::from_value::<Draft>(json).unwrap_err().to_string();
        assert!(why.contains("unknown field"), "{why}");
    }
}

#[test]
fn a_draft_that_is_printed_tells_no_secret() {
    let draft = with("/webhook/headers", json!({"authorization": "Bearer secret"}));
    assert!(!format!("{draft:?} {:?}", draft.webhook).contains("secret"));
}

//! What is taken and what is refused, at each limit and one past it.

use super::*;
use crate::limits::WEBHOOK_TIMEOUT_DEFAULT;

fn get(url: &str) -> Result<Webhook, WebhookError> {
    Webhook::new(url, Method::Get, vec![], None, None, WEBHOOK_TIMEOUT_DEFAULT)
}

fn with_headers(headers: Vec<(String, String)>) -> Result<Webhook, WebhookError> {
    Webhook::new("http://a.example", Method::Get, headers, None, None, WEBHOOK_TIMEOUT_DEFAULT)
}

fn post(content_type: Option<&str>, body: Option<String>) -> Result<Webhook, WebhookError> {
    let timeout = WEBHOOK_TIMEOUT_DEFAULT;
    Webhook::new("http://a.example", Method::Post, vec![], content_type, body, timeout)
}

fn header(name: &str, value: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.to_owned())]
}

#[track_caller]
fn check_refused(refused: Result<Webhook, WebhookError>, field: &str, said: &str) {
    let refusal = refused.unwrap_err();
    assert_eq!(refusal.field(), field, "{refusal}");
    assert!(refusal.to_string().contains(said), "{refusal}");
    assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
}

#[test]
fn a_url_is_written_in_one_way() {
    for (given, written, host, port, path) in [
        ("http://a.example", "http://a.example/", "a.example", 80, "/"),
        ("HTTPS://A.Example:443/X", "https://a.example/X", "a.example", 443, "/X"),
        ("http://a.example:8080?x=1", "http://a.example:8080/?x=1", "a.example", 8080, "/?x=1"),
        ("https://a:1/b/../c", "https://a:1/b/../c", "a", 1, "/b/../c"),
        ("http://my_app/a@b?c[]=%20|", "http://my_app/a@b?c[]=%20|", "my_app", 80, "/a@b?c[]=%20|"),
        ("http://127.0.0.1/", "http://127.0.0.1/", "127.0.0.1", 80, "/"),
        ("http://[0:0::1]:81/", "http://[::1]:81/", "[::1]", 81, "/"),
        ("http://[::FFFF:7f00:1]/", "http://[::ffff:127.0.0.1]/", "[::ffff:127.0.0.1]", 80, "/"),
        (
            "http://xn--bcher-kva.example/",
            "http://xn--bcher-kva.example/",
            "xn--bcher-kva.example",
            80,
            "/",
        ),
    ] {
        let webhook = get(given).unwrap();
        assert_eq!(webhook.url(), written);
        assert_eq!((&*webhook.form.host, webhook.form.port, &*webhook.path), (host, port, path));
        assert_eq!(get(written).unwrap(), webhook, "what is written reads as the same");
    }
}

#[test]
fn a_host_is_a_name_or_an_address() {
    let address = |url| get(url).unwrap().form.address();
    assert_eq!(address("http://10.0.0.1:8080"), Some("10.0.0.1".parse().unwrap()));
    assert_eq!(address("http://[fe80::1]"), Some("fe80::1".parse().unwrap()));
    assert_eq!(address("http://a.example"), None);
}

#[test]
fn a_bad_url_is_refused_and_told_how_to_be_right() {
    for (bad, said) in [
        ("", "http://"),
        ("a.example/x", "http:// or https://"),
        ("ftp://a.example", "http:// or https://"),
        ("http:a.example", "http:// or https://"),
        (" http://a.example", "http:// or https://"),
        ("http://", "names a host"),
        ("http:///x", "names a host"),
        ("http://:80", "names a host"),
        ("http://me:hunter2@a.example/", "authorization"),
        ("http://a.example@b.example", "authorization"),
        ("http://a.example/#x", "%23"),
        ("http://a.example#x", "%23"),
        ("http://a.example\\@b.example/", "%20"),
        ("http://bücher.example/", "xn--"),
        ("http://a..b/", "single dots"),
        ("http://a.example./", "single dots"),
        ("http://a%2eexample/", "single dots"),
        ("http://a example/", "single dots"),
        ("http://::1/", "names a host"),
        ("http://[::1/", "brackets"),
        ("http://[::1]x/", "brackets"),
        ("http://[fe80::1%25eth0]/", "no zone"),
        ("http://[127.0.0.1]/", "brackets"),
        ("http://a.example:0/", "1 to 65535"),
        ("http://a.example:65536/", "1 to 65535"),
        ("http://a.example:/", "1 to 65535"),
        ("http://a.example:+80/", "1 to 65535"),
        ("http://a.example/a b", "byte 19 of the URL"),
        ("http://a.example/%zz", "%25"),
        ("http://a.example/%2", "%25"),
        ("http://a.example/ü", "two hex digits"),
        ("http://a.example/\r\nx: y", "two hex digits"),
    ] {
        check_refused(get(bad), "url", said);
    }
}

#[test]
fn a_number_that_some_read_as_an_address_is_refused() {
    for bad in [
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.01/",
        "http://1.2.3.4.5/",
        "http://256.0.0.1/",
        "http://a.0x7f/",
        "http://a.1/",
    ] {
        check_refused(get(bad), "url", "four numbers");
    }
}

#[test]
fn a_url_has_its_longest() {
    let url = |len: usize| format!("http://a.example/{}", "x".repeat(len - 17));
    assert_eq!(get(&url(WEBHOOK_URL_BYTES_MAX)).unwrap().url().len(), WEBHOOK_URL_BYTES_MAX);
    check_refused(get(&url(WEBHOOK_URL_BYTES_MAX + 1)), "url", "at most 2048 bytes");
    let host = |last: usize| {
        let label = "x".repeat(63);
        format!("http://{label}.{label}.{label}.{}", "x".repeat(last))
    };
    assert!(get(&host(61)).is_ok());
    check_refused(get(&host(62)), "url", "253");
    check_refused(get(&format!("http://{}", "x".repeat(64))), "url", "63");
}

#[test]
fn names_of_headers_are_kept_in_lower_case() {
    let webhook = with_headers(header("X-Api-Key", "a\tb c")).unwrap();
    assert_eq!(*webhook.form.headers, [("x-api-key".into(), "a\tb c".into())]);
}

#[test]
fn headers_cannot_be_injected() {
    for bad in ["a\r\nx: y", "a\nb", "a\rb", "a\0b", "ü", " a", "a ", "a\t", "\x7f"] {
        check_refused(with_headers(header("x", bad)), "headers", "without line breaks");
        check_refused(post(Some(bad), None), "headers", "that of content-type");
    }
    for bad in ["", "a b", "a:b", "a\r\nb", "ü", "a\0"] {
        check_refused(with_headers(header(bad, "x")), "headers", "the name of a header");
    }
}

#[test]
fn names_that_are_not_the_users_are_refused() {
    for bad in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "proxy-authorization",
        "proxy-connection",
        "expect",
        "webhook-id",
        "webhook-signature",
        "watchbell-token",
        "Idempotency-Key",
        "traceparent",
        "tracestate",
        "user-agent",
    ] {
        check_refused(with_headers(header(bad, "x")), "headers", "leave it out");
    }
    for good in ["authorization", "x-proxy-authorization", "accept", "cookie"] {
        assert!(with_headers(header(good, "x")).is_ok(), "{good}");
    }
}

#[test]
fn a_name_is_there_once() {
    let twice = vec![("A".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
    check_refused(with_headers(twice), "headers", "twice");
}

#[test]
fn headers_have_their_most_and_their_longest() {
    let many = |len| (0..len).map(|number| (format!("x-{number}"), String::new())).collect();
    assert!(with_headers(many(WEBHOOK_HEADERS_MAX)).is_ok());
    check_refused(with_headers(many(WEBHOOK_HEADERS_MAX + 1)), "headers", "at most 30 headers");
    let long = |len: usize| header("x", &"y".repeat(len - 1));
    assert!(with_headers(long(WEBHOOK_HEADER_BYTES_MAX)).is_ok());
    check_refused(with_headers(long(WEBHOOK_HEADER_BYTES_MAX + 1)), "headers", "8192 bytes");
}

#[test]
fn a_body_has_a_content_type() {
    let headers = |webhook: Result<Webhook, WebhookError>| webhook.unwrap().form.headers.clone();
    let json: Headers = [("content-type".into(), "application/json".into())].into();
    assert_eq!(headers(post(None, Some("{}".to_owned()))), json);
    assert_eq!(headers(post(None, None)), [].into());
    assert_eq!(&*headers(post(Some("text/plain"), Some("x".to_owned())))[0].1, "text/plain");
    let given = |content_type| {
        let headers = header("Content-Type", "text/csv");
        let body = Some("a,b".to_owned());
        let timeout = WEBHOOK_TIMEOUT_DEFAULT;
        Webhook::new("http://a", Method::Put, headers, content_type, body, timeout)
    };
    assert_eq!(&*headers(given(None))[0].1, "text/csv");
    check_refused(given(Some("text/csv")), "content_type", "not both");
}

#[test]
fn a_body_has_its_longest_and_a_get_has_none() {
    assert!(post(None, Some("x".repeat(WEBHOOK_BODY_BYTES_MAX))).is_ok());
    let long = "x".repeat(WEBHOOK_BODY_BYTES_MAX + 1);
    check_refused(post(None, Some(long)), "body", "at most 102400 bytes");
    for method in Method::ALL {
        let body = Some(String::new());
        let made = Webhook::new("http://a", method, vec![], None, body, WEBHOOK_TIMEOUT_DEFAULT);
        if matches!(method, Method::Get | Method::Head) {
            check_refused(made, "body", "has no body");
        } else {
            assert!(made.is_ok());
        }
    }
}

#[test]
fn a_timeout_is_taken_at_its_limits_and_refused_past_them() {
    let with = |timeout| Webhook::new("http://a", Method::Get, vec![], None, None, timeout);
    for good in [WEBHOOK_TIMEOUT_MIN, WEBHOOK_TIMEOUT_DEFAULT, WEBHOOK_TIMEOUT_MAX] {
        assert_eq!(with(good).unwrap().form.timeout(), good);
    }
    let step = Duration::from_millis(1);
    for bad in [WEBHOOK_TIMEOUT_MIN.saturating_sub(step), WEBHOOK_TIMEOUT_MAX + step] {
        check_refused(with(bad), "timeout", "1s to 30s");
    }
}

#[test]
fn a_method_is_read_as_it_is_written() {
    for method in Method::ALL {
        assert_eq!(method.to_string().parse(), Ok(method));
    }
    for bad in ["", "post", "TRACE", "CONNECT"] {
        assert_eq!(bad.parse::<Method>().unwrap_err().field(), "method");
    }
    assert_eq!(Method::default(), Method::Post);
}

#[test]
fn what_is_logged_holds_no_secret() {
    let headers = header("authorization", "hunter2");
    let body = Some("hunter2".to_owned());
    let timeout = WEBHOOK_TIMEOUT_DEFAULT;
    let webhook = Webhook::new("http://a/hunter2", Method::Post, headers, None, body, timeout);
    let shown = format!("{:?}", webhook.unwrap());
    assert!(shown.contains("authorization") && !shown.contains("hunter2"), "{shown}");
}

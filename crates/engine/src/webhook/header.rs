//! The headers of a webhook.
//!
//! A value with a line break in it could add headers, or a whole second request, that nobody judged. And a
//! person's `content-length` or `connection` could make receiver and sender disagree about where a request
//! ends. So values are printable, and names that are not the person's to choose are refused.

use super::{Headers, WebhookError, WebhookResult};
use crate::limits::{WEBHOOK_HEADER_BYTES_MAX, WEBHOOK_HEADERS_MAX};

const CONTENT_TYPE: &str = "content-type";

/// What a body is if nobody says.
const CONTENT_TYPE_DEFAULT: &str = "application/json";

/// Names that Watchbell sets, and names that say something about the connection.
const RESERVED: [&str; 16] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "forwarded",
];

/// Beginnings of names that are reserved.
const RESERVED_PREFIXES: [&str; 3] = ["proxy-", "watchbell-", "webhook-"];

/// Judges them all, and puts the content type among them.
pub(super) fn check(
    given: Vec<(String, String)>,
    content_type: Option<&str>,
    has_body: bool,
) -> WebhookResult<Headers> {
    let mut headers = check_each(&[], given)?;
    let given = headers.iter().any(|(name, _)| **name == *CONTENT_TYPE);
    match content_type {
        Some(_) if given => return Err(WebhookError::ContentTypeTwice),
        Some(content_type) => {
            check_value(CONTENT_TYPE, content_type)?;
            headers.push((CONTENT_TYPE.into(), content_type.into()));
        }
        None if has_body && !given => {
            headers.push((CONTENT_TYPE.into(), CONTENT_TYPE_DEFAULT.into()));
        }
        None => (),
    }
    check_limits(&[], &headers)?;
    Ok(headers.into())
}

/// Judges those whose values are secret, beside the others.
pub(super) fn check_secret(
    others: &Headers,
    given: Vec<(String, String)>,
) -> WebhookResult<Headers> {
    let headers = check_each(others, given)?;
    check_limits(others, &headers)?;
    Ok(headers.into())
}

type Header = (Box<str>, Box<str>);

/// Judges each, and that no name is there twice.
fn check_each(others: &[Header], given: Vec<(String, String)>) -> WebhookResult<Vec<Header>> {
    let mut headers: Vec<Header> = Vec::with_capacity(given.len() + 1);
    for (name, value) in given {
        let name = check_name(&name)?;
        check_value(&name, &value)?;
        if headers.iter().chain(others).any(|(known, _)| **known == *name) {
            return Err(WebhookError::HeaderTwice { name });
        }
        headers.push((name.into(), value.into()));
    }
    Ok(headers)
}

fn check_limits(others: &[Header], headers: &[Header]) -> WebhookResult {
    let len = others.len() + headers.len();
    if len > WEBHOOK_HEADERS_MAX {
        return Err(WebhookError::Headers { len });
    }
    let len = others.iter().chain(headers).map(|(name, value)| name.len() + value.len()).sum();
    if len > WEBHOOK_HEADER_BYTES_MAX {
        return Err(WebhookError::HeaderBytes { len });
    }
    Ok(())
}

/// The name in lower case.
fn check_name(name: &str) -> WebhookResult<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(fits) {
        // The beginning is enough to find it by, and no secret that was put there by mistake is shown whole.
        return Err(WebhookError::HeaderName { name: name.chars().take(40).collect() });
    }
    let name = name.to_ascii_lowercase();
    let reserved = RESERVED.contains(&&*name)
        || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if reserved { Err(WebhookError::HeaderReserved { name }) } else { Ok(name) }
}

fn check_value(name: &str, value: &str) -> WebhookResult {
    let fits = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
    if value.trim() == value && value.bytes().all(fits) {
        return Ok(());
    }
    Err(WebhookError::HeaderValue { name: name.to_owned() })
}

//! Reading the body of a request: JSON, nothing but known fields, and not too much of it.

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use engine::limits::REQUEST_BYTES_MAX;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};

use super::problem::{ApiError, ApiResult};

/// What the body says, as an argument of a handler.
pub(super) struct JsonBody<T>(pub(super) T);

/// The same where a request may come without a body.
pub(super) struct OptionalBody<T>(pub(super) T);

/// Nothing, or an empty object.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoBody {}

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Self> {
        read(request).await.map(Self)
    }
}

impl<S: Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Self> {
        read_or_default(request).await.map(Self)
    }
}

impl<S: Sync> FromRequest<S> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Self> {
        read_or_default(request).await
    }
}

/// What the body says.
pub(super) async fn read<T: DeserializeOwned>(request: Request) -> ApiResult<T> {
    let (head, body) = request.into_parts();
    let bytes = collect(body).await?;
    check_type(&head.headers)?;
    parse(&bytes)
}

async fn read_or_default<T: DeserializeOwned + Default>(request: Request) -> ApiResult<T> {
    let (head, body) = request.into_parts();
    let bytes = collect(body).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    check_type(&head.headers)?;
    parse(&bytes)
}

async fn collect(body: Body) -> ApiResult<Vec<u8>> {
    to_bytes(body, REQUEST_BYTES_MAX).await.map(Into::into).map_err(|why| cut(&why))
}

/// Why a body could not be read to its end.
pub(super) fn cut(why: &axum::Error) -> ApiError {
    if is_too_long(why) {
        return ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "Too large",
            format!("a request has at most {REQUEST_BYTES_MAX} bytes"),
        );
    }
    ApiError::malformed("the body ended before it was complete")
}

fn is_too_long(why: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(why);
    while let Some(inner) = cause {
        if inner.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

fn check_type(headers: &HeaderMap) -> ApiResult<()> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type",
        "Not JSON",
        "a body is sent as content-type: application/json",
    ))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    // An array of the values alone would be taken too, and nobody means that.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|first| *first != b'{')
        && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
    {
        return Err(ApiError::field("", "it is a JSON object: {…}"));
    }
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    // Read again for the place of what is wrong: knowing it on the way costs more than reading.
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json);
    let value = read.map_err(|error| {
        let inner = error.inner();
        if inner.is_syntax() || inner.is_eof() {
            return not_json(inner);
        }
        let why = without_text(&without_place(&inner.to_string()));
        ApiError::field(pointer(error.path(), &why), why)
    })?;
    json.end().map_err(|why| not_json(&why))?;
    Ok(value)
}

fn not_json(why: &serde_json::Error) -> ApiError {
    ApiError::malformed(format!("the body is not JSON: {why}"))
}

/// The sentence without line and column: a pointer says it better.
fn without_place(sentence: &str) -> String {
    let end = sentence.rfind(" at line ").unwrap_or(sentence.len());
    sentence[..end].to_owned()
}

/// The sentence without the text that was sent: it may be a secret in the wrong place.
fn without_text(sentence: &str) -> String {
    match (sentence.split_once(": string \""), sentence.rsplit_once("\", expected ")) {
        (Some((wrong, _)), Some((_, right))) => format!("{wrong}: string, expected {right}"),
        _ => sentence.to_owned(),
    }
}

/// A JSON pointer to the field. One that nobody knows is named in the sentence, not in the path.
pub fn pointer(path: &Path, why: &str) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => push_key(&mut pointer, &index.to_string()),
            Segment::Map { key } => push_key(&mut pointer, key),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let unknown = why.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    if let Some(field) = unknown
        && !pointer.ends_with(&format!("/{field}"))
    {
        push_key(&mut pointer, field);
    }
    pointer
}

/// Lets a JSON pointer go on to the value under this key.
pub fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_not_repeated_in_what_is_wrong_with_it() {
        for (sentence, told) in [
            (
                r#"invalid type: string "hush", expected an object"#,
                "invalid type: string, expected an object",
            ),
            (
                r#"invalid type: string "a: string \"b\", expected c", expected a boolean"#,
                "invalid type: string, expected a boolean",
            ),
            ("missing field `url`", "missing field `url`"),
            ("invalid type: map, expected a string", "invalid type: map, expected a string"),
        ] {
            assert_eq!(without_text(sentence), told);
        }
    }
}

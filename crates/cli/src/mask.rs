//! Secrets that stand in a store, made unreadable: who looks into a store looks for something else.
//!
//! Values of secret headers, in what people wrote and in runs, and what webhooks are signed with.

use std::borrow::Cow;

use engine::trigger::WebhookDraft;
use serde_json::Value;

/// The member that has headers: an object of them, or a list of pairs.
const HEADERS: &str = "secret_headers";

/// The member that has a secret, and what one begins with.
const SECRET: &str = "secret";
const SECRET_BEGIN: &str = "whsec_";

/// A value with its secrets masked; as it is, if it has none.
pub(crate) fn masked(bytes: &[u8]) -> Cow<'_, [u8]> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    if !text.contains(HEADERS) && !text.contains(SECRET_BEGIN) {
        return Cow::Borrowed(bytes);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return Cow::Borrowed(bytes) };
    mask_in(&mut value);
    Cow::Owned(value.to_string().into_bytes())
}

fn mask_in(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let is_secret = name == SECRET
                    && member.as_str().is_some_and(|text| text.starts_with(SECRET_BEGIN));
                match name.as_str() {
                    HEADERS => mask_headers(member),
                    _ if is_secret => *member = mask(),
                    _ => mask_in(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_in),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn mask_headers(headers: &mut Value) {
    match headers {
        Value::Object(headers) => headers.values_mut().for_each(|value| *value = mask()),
        Value::Array(pairs) => {
            for pair in pairs.iter_mut().filter_map(Value::as_array_mut) {
                pair.iter_mut().skip(1).for_each(|value| *value = mask());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn mask() -> Value {
    Value::from(WebhookDraft::MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: &str) {
        assert_eq!(masked(value.as_bytes()), expected.as_bytes());
    }

    #[test]
    fn secrets_are_masked_wherever_they_stand() {
        check(
            r#"{"draft":{"webhook":{"secret_headers":{"authorization":"Bearer swordfish"}}}}"#,
            r#"{"draft":{"webhook":{"secret_headers":{"authorization":"***"}}}}"#,
        );
        check(
            r#"[{"form":{"secret_headers":[["authorization","Bearer swordfish"]]}}]"#,
            r#"[{"form":{"secret_headers":[["authorization","***"]]}}]"#,
        );
        check(r#"{"secrets":[{"secret":"whsec_c3dvcmQ="}]}"#, r#"{"secrets":[{"secret":"***"}]}"#);
    }

    #[test]
    fn what_has_none_stays_as_it_was_written() {
        for value in [r#"{ "b": 1.10, "a": {"secret": "of the sea"} }"#, "secret_headers: none", ""]
        {
            check(value, value);
        }
    }
}

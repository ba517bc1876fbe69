//! What may be secret, hidden from people: a table is looked at over shoulders, and pasted into tickets.
//!
//! Programs are shown everything.

use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Members of records whose values are not shown: what signs, what is called, and what receivers answer.
const HIDDEN: [&str; 5] = ["secret", "secret_headers", "webhook", "notify", "response"];

/// What is shown instead.
const VEIL: &str = "\"…\"";

/// Valid JSON without what may be secret; all else stays as it was written, in its order.
pub(crate) fn veil(json: &str) -> String {
    match json.as_bytes().first() {
        Some(b'{') => match serde_json::Deserializer::from_str(json).deserialize_map(Members) {
            Ok(members) => enclosed('{', members.iter().map(member), '}'),
            Err(_) => VEIL.to_owned(),
        },
        Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(json) {
            Ok(items) => enclosed('[', items.iter().map(|item| veil(item.get())), ']'),
            Err(_) => VEIL.to_owned(),
        },
        _ => json.to_owned(),
    }
}

fn member((name, value): &(String, Box<RawValue>)) -> String {
    let is_hidden = HIDDEN.contains(&name.as_str()) && value.get() != "null";
    let value = if is_hidden { VEIL.to_owned() } else { veil(value.get()) };
    format!("{}:{value}", Value::from(name.as_str()))
}

fn enclosed(open: char, parts: impl Iterator<Item = String>, close: char) -> String {
    format!("{open}{}{close}", parts.collect::<Vec<_>>().join(","))
}

/// The members of an object, in their order.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_hidden_and_all_else_stays_as_it_is() {
        for (json, shown) in [
            (r#"{"z":1.50,"a":[true,null,"x"]}"#, r#"{"z":1.50,"a":[true,null,"x"]}"#),
            (
                r#"{"secrets":[{"secret":"whsec_x","created":1}]}"#,
                r#"{"secrets":[{"secret":"…","created":1}]}"#,
            ),
            (
                r#"{"draft":{"name":"b","webhook":{"url":"u"}},"notify":null}"#,
                r#"{"draft":{"name":"b","webhook":"…"},"notify":null}"#,
            ),
            ("7", "7"),
            (r#""text""#, r#""text""#),
        ] {
            assert_eq!(veil(json), shown);
        }
    }
}
